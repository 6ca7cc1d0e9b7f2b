"""The versions of the weights that a sender has in memory, for as long as engines may want them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from . import errors
from .client import Client
from .collective import STORED_TYPES, Held, checked, copied, fetched, type_name

_log = logging.getLogger("headway.sender")


#: Type, in torch's word, and shape of each tensor of a model, by name.
Model = Mapping[str, tuple[str, tuple[int, ...]]]


@dataclass(eq=False)
class Promise:
    """What an engine was told of a version."""

    version: int
    #: Of the tensors that it was told; empty until it was.
    digest: str = ""
    #: The version is not to be forgotten: the engine has still to be sent it.
    kept: bool = True


class Shelf:
    """The newest `copies` versions, and those that engines were promised: as many again at most.

    `source` gives a version that is not there, as arrays by name that nobody writes to any more. Safe for concurrent
    use.
    """

    def __init__(self, copies: int, backend: str, device: Any, source: Callable[[int], Mapping[str, Any]]) -> None:
        self._copies, self._backend, self._device, self._source = copies, backend, device, source
        #: What all versions are alike in; None until one is known.
        self.model: Model | None = None
        self._fetching = threading.Lock()
        self._lock = threading.Lock()  # of all that follows
        self._versions: dict[int, Held] = {}
        self._coming = 0  # versions that are being fetched, 1 at most
        self._promised: dict[str, Promise] = {}  # the last one, by engine

    @property
    def versions(self) -> list[int]:
        """The versions that are there, the oldest first."""
        with self._lock:
            return sorted(self._versions)

    def put(self, version: int, state_dict: Mapping[str, Any]) -> None:
        """Keep a copy of a version, in the place of one of its number. Another model is refused."""
        tensors = checked(state_dict, self._backend)
        self._check_model(version, tensors)
        with self._lock:
            self._versions.pop(version, None)
            self._make_room(1)  # before the copy is made: the memory is that of another
        held = copied(tensors, self._device)
        with self._lock:
            self._versions[version] = held

    def drop(self, version: int) -> None:
        """Forget a version, and what was promised of it."""
        with self._lock:
            self._versions.pop(version, None)
            for promise in self._promised.values():
                promise.kept = promise.kept and promise.version != version

    def find(self, version: int) -> Held | None:
        """A version's tensors if they are there."""
        with self._lock:
            return self._versions.get(version)

    def have(self, version: int) -> Held:
        """A version's tensors, fetched if need be."""
        if held := self.find(version):
            return held
        with self._fetching:
            with self._lock:
                if held := self._versions.get(version):
                    return held
                self._coming = 1
                self._make_room(0)  # before it is there: the memory is that of another
            try:
                held = self._fetch(version)
                with self._lock:
                    return self._versions.setdefault(version, held)
            finally:
                with self._lock:
                    self._coming = 0
                    self._make_room(0)

    def promise(self, engine: str, version: int, joined: Collection[str]) -> Promise | None:
        """Have a version kept for an engine, in the place of what it was promised before; None without room for it.

        What was promised is kept until it was sent, beside the newest versions. `joined` are the engines that are in a
        group: one that is in none asks again once it is, if it ever comes, and its promise gives way, the oldest first.
        """
        with self._lock:
            self._promised.pop(engine, None)
            loose = [p for e, p in self._promised.items() if p.kept and e not in joined]
            while len(self._kept() | {version}) > self._copies:
                if not loose:
                    return None
                loose.pop(0).kept = False
            promise = self._promised[engine] = Promise(version)
            return promise

    def promised_to(self, engine: str) -> Promise | None:
        """What an engine was promised last."""
        with self._lock:
            return self._promised.get(engine)

    @property
    def promised(self) -> list[int]:
        """The versions that are kept for engines, the oldest first."""
        with self._lock:
            return sorted(self._kept())

    def release(self, promise: Promise) -> None:
        """An engine has what it was promised, or will not be sent it."""
        with self._lock:
            promise.kept = False

    def _kept(self) -> set[int]:
        """The versions that are promised. The lock must be held."""
        return {p.version for p in self._promised.values() if p.kept}

    def _make_room(self, more: int) -> None:
        """Forget versions: all but the newest and those that engines were promised. The lock must be held.

        With `more` that are about to be held, and one that is being fetched, they are twice `copies` at most: no more
        than half of them were promised, and those are kept.
        """
        newest, promised = sorted(self._versions, reverse=True), self._kept()
        others = [v for v in newest[: max(self._copies - more, 0)] if v not in promised]
        kept = [v for v in newest if v in promised]
        room = max(2 * self._copies - more - self._coming - len(kept), 0)
        self._versions = {v: self._versions[v] for v in sorted(kept + others[:room])}

    def _fetch(self, version: int) -> Held:
        _log.info("version %d is not held: it is fetched", version)
        state = self._source(version)
        if not state:
            raise errors.NotFound(f"this process does not hold version {version}, and no weights of it are stored")
        held = fetched(state, self._backend, self._device)
        self._check_model(version, held.tensors)
        return held

    def _check_model(self, version: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Refuse another model than the versions before. Of the same names and shapes engines would cast it silently.

        The store would refuse it as well, but a sender's versions get there one in many.
        """
        found = {name: (type_name(tensor.dtype), tuple(tensor.shape)) for name, tensor in tensors.items()}
        with self._lock:
            known = self.model = self.model or found
        if known != found:
            raise errors.Invalid(
                f"version {version} is another model than the versions before it: {_differing(known, found)}. Give "
                "every version the names, types and shapes of the run's first: engines load them in place"
            )


def model_stored(hw: Client) -> Model | None:
    """That of the newest stored version; None where it has been pruned meanwhile, or has types that torch has not."""
    try:
        manifest = hw.state(hw.stored)["manifest"]
    except errors.NotFound:
        return None
    served = [t for t in manifest.get("tensors") or () if not str(t.get("file", "")).startswith("optimizer.")]
    if any(t.get("dtype") not in STORED_TYPES for t in served):
        return None
    return {str(t["name"]): (STORED_TYPES[t["dtype"]], tuple(t["shape"])) for t in served} or None


def _differing(before: Model, now: Model) -> str:
    """What differs between the tensors of two versions, some of it."""
    found = []
    for name in sorted({*before, *now}):
        if name not in now:
            found.append(f"{name} is missing")
        elif name not in before:
            found.append(f"{name} is new")
        elif before[name][1] != now[name][1]:
            found.append(f"{name} has the shape {list(now[name][1])}, not {list(before[name][1])}")
        elif before[name][0] != now[name][0]:
            found.append(f"{name} is {now[name][0]}, not {before[name][0]}")
    return "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")
