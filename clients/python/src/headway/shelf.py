"""The versions of the weights that a sender has in memory, for as long as engines may want them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from . import errors
from .client import Client
from .collective import Held, checked, copied, fetched

_log = logging.getLogger("headway.sender")


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
        #: Shape of each tensor of the model, by name; None until a version is known.
        self.shapes: dict[str, tuple[int, ...]] | None = None
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
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if self.shapes is not None and shapes != self.shapes:
            raise errors.Invalid(f"version {version} is another model than the version held first: "
                                 + _differing(self.shapes, shapes))  # fmt: skip
        self.shapes = shapes
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
        return fetched(state, self._backend, self._device)


def shapes_stored(hw: Client) -> dict[str, tuple[int, ...]] | None:
    """Of the tensors of the newest stored version; None where that has been pruned meanwhile."""
    try:
        manifest = hw.state(hw.stored)["manifest"]
    except errors.NotFound:
        return None
    served = [t for t in manifest.get("tensors") or () if not str(t.get("file", "")).startswith("optimizer.")]
    return {str(t["name"]): tuple(t["shape"]) for t in served} or None


def _differing(before: Mapping[str, tuple[int, ...]], now: Mapping[str, tuple[int, ...]]) -> str:
    """What differs between the tensors of two versions, some of it."""
    found = [
        f"{name} is missing" if name not in now else f"{name} is new" if name not in before
        else f"{name} has the shape {list(now[name])}, not {list(before[name])}"
        for name in sorted({*before, *now}) if before.get(name) != now.get(name)
    ]  # fmt: skip
    return "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")
