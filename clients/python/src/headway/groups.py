"""Finished groups by reference: fetched in parallel, verified, and kept ahead of the lease that names them."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import errors
from .threads import in_thread
from .transport import Transport

_log = logging.getLogger("headway")

#: How many groups are fetched at once.
_PARALLEL = 4
#: How often a group is fetched whose hash is another than its reference's.
_FETCHES = 2
#: Seconds after which a file that another rank has begun, or that no rank has asked for, counts as left behind.
_LEFT_S = 60.0
_PAUSE_S, _FULL_S = 0.5, 2.0
#: Names of files of a cache: bodies by their hash, and what becomes of one.
_OWN = re.compile(r"[0-9a-f]{64}(\.part.*)?")


@dataclass(frozen=True)
class Reference:
    """A finished group's body, as the control plane names it."""

    group: int
    size: int
    sha256: str

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Reference:
        """What a lease or an announcement says of a group."""
        try:
            found = cls(int(said["group"]), int(said["bytes"]), str(said["sha256"]))
        except (KeyError, TypeError, ValueError) as error:
            raise errors.Invalid(f"a reference to a group cannot be read: {error!r}") from error
        if len(found.sha256) != 64 or not set(found.sha256) <= set("0123456789abcdef"):
            raise errors.Invalid(f"the reference to group {found.group} has no SHA-256 in hexadecimal digits")
        return found

    def holds(self, body: bytes | bytearray) -> bool:
        """The bytes are those that the reference means."""
        return len(body) == self.size and hashlib.sha256(body).hexdigest() == self.sha256


class Memory:
    """Bodies in the memory of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bodies: dict[str, bytes] = {}

    def get(self, ref: Reference) -> bytes | None:
        """The body, if it is there."""
        with self._lock:
            return self._bodies.get(ref.sha256)

    def begin(self, ref: Reference) -> bool:
        """Nobody else is about to put the body."""
        return self.get(ref) is None

    def put(self, ref: Reference, body: bytes) -> None:
        """Keep a body that holds."""
        with self._lock:
            self._bodies[ref.sha256] = body

    def drop(self, names: Iterable[str]) -> None:
        """Forget bodies, by their hash."""
        with self._lock:
            for name in names:
                self._bodies.pop(name, None)

    def size(self) -> int:
        """Bytes that are kept."""
        with self._lock:
            return sum(map(len, self._bodies.values()))

    def keep(self, names: set[str]) -> None:
        """Forget all other bodies."""
        with self._lock:
            self._bodies = {name: body for name, body in self._bodies.items() if name in names}


class Directory:
    """Bodies as files in a directory that the ranks of a node share. There are no locks: a file appears whole."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            probe = self._path / f"probe-{threading.get_ident()}-{time.time_ns()}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise errors.Invalid(f"cache={str(path)!r} is no directory that can be written to: {error}") from error

    def get(self, ref: Reference) -> bytes | None:
        """The body, if it is there and holds. One that does not hold goes."""
        file = self._path / ref.sha256
        try:
            body = file.read_bytes()
        except OSError:
            return None
        if ref.holds(body):
            return body
        _log.warning("%s does not hold what its name says: group %d is fetched again", file, ref.group)
        _remove(file)
        return None

    def begin(self, ref: Reference) -> bool:
        """No other rank is about to put the body. Whoever begins leaves a file that says so.

        It is as long as the body and takes no room, so that `size` counts what all ranks are fetching.
        """
        if (self._path / ref.sha256).exists():
            return False
        part = self._part(ref.sha256)
        try:
            _claim(part, "xb", ref.size)
        except FileExistsError:
            if not _left(part):
                return False
            _claim(part, "wb", ref.size)
        return True

    def put(self, ref: Reference, body: bytes) -> None:
        """Keep a body that holds. A disk that is full keeps nothing: OSError."""
        part = self._part(ref.sha256)
        own = part.with_name(f"{part.name}-{threading.get_ident()}-{time.time_ns()}")
        try:
            own.write_bytes(body)
            own.replace(self._path / ref.sha256)
        finally:
            _remove(own)
            _remove(part)

    def drop(self, names: Iterable[str]) -> None:
        """Forget bodies, by their hash."""
        for name in names:
            _remove(self._path / name)
            _remove(self._part(name))

    def size(self) -> int:
        """Bytes of all bodies, and of those that a rank has begun."""
        return sum(_size(file) for file in self._files() if ".part-" not in file.name)  # that one has its room by .part

    def keep(self, names: set[str]) -> None:
        """Forget all other bodies, unless they are new: another rank may have heard of them later."""
        for file in self._files():
            if file.name not in names and _left(file):
                _remove(file)

    def _files(self) -> Iterable[Path]:
        """The files of this cache: others' that lie beside them are let alone."""
        return (file for file in self._path.iterdir() if _OWN.fullmatch(file.name))

    def _part(self, name: str) -> Path:
        return self._path / f"{name}.part"


def _claim(file: Path, mode: str, size: int) -> None:
    with file.open(mode) as made:
        made.truncate(size)


def _remove(file: Path) -> None:
    """Remove a file of the cache. One that cannot be, as on a disk that has failed, is no loss."""
    with contextlib.suppress(OSError):
        file.unlink(missing_ok=True)


def _left(file: Path) -> bool:
    try:
        return time.time() - file.stat().st_mtime > _LEFT_S
    except OSError:
        return False


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


class Groups:
    """Brings the bodies of groups. With `ahead` it fetches those that are announced, up to so many bytes in all."""

    def __init__(self, transport: Transport, ahead: int = 0, directory: str | Path | None = None) -> None:
        if ahead < 0:
            raise errors.Invalid(f"prefetch_mb is {ahead / 1e6:g}: want megabytes, or 0 to fetch nothing ahead")
        self._transport, self._ahead = transport, ahead
        self._cache: Memory | Directory = Memory() if directory is None else Directory(directory)
        self._began = False
        self._told = self._said_large = False

    def bodies(self, refs: Sequence[Reference]) -> list[bytes]:
        """The body of each group, verified. After an error no further one is fetched."""
        found: list[bytes] = [b""] * len(refs)
        places, lock, failed = iter(range(len(refs))), threading.Lock(), threading.Event()

        def work() -> None:
            while not failed.is_set():
                with lock:
                    at = next(places, None)
                if at is None:
                    return
                try:
                    found[at] = self._cache.get(refs[at]) or self._fetch(refs[at])
                except BaseException:
                    failed.set()
                    raise

        if len(refs) == 1:
            work()
        else:
            for done in [in_thread(work) for _ in range(min(len(refs), _PARALLEL))]:
                done.result()
        return found

    def _fetch(self, ref: Reference) -> bytes:
        """A group's body from the control plane. One whose hash is another is fetched once more."""
        for _ in range(_FETCHES):
            body = self._transport.call("GET", f"/api/v1/groups/{ref.group}", timeout_s=60.0).content
            if ref.holds(body):
                return body
            _log.warning("group %d came with other bytes than its reference says", ref.group)
        raise errors.Internal(
            f"group {ref.group} came {_FETCHES} times with other bytes than its reference says ({ref.size} bytes, "
            f"SHA-256 {ref.sha256}): see what stands between here and the control plane"
        )

    def drop(self, refs: Sequence[Reference]) -> None:
        """These groups are trained, or given back."""
        if self._ahead:
            self._cache.drop(ref.sha256 for ref in refs)

    def begin(self) -> None:
        """Fetch ahead from now on, beside everything else."""
        if self._ahead and not self._began:
            self._began = True
            threading.Thread(target=self._run, name="headway-prefetch", daemon=True).start()

    def _run(self) -> None:
        after = ""
        while not self._transport.stopped.is_set():
            try:
                after, groups = self._announced(after, 20.0)
            except errors.RunEnded:
                return
            except (errors.HeadwayError, RuntimeError):
                self._transport.stopped.wait(_PAUSE_S)
                continue
            self._keep_all(groups)

    def _announced(self, after: str, wait_s: float) -> tuple[str, list[Reference]]:
        reply = self._transport.post(
            "/api/v1/groups/ready", {"after": after, "wait_s": wait_s}, timeout_s=wait_s + 60.0
        )
        return str(reply.get("next", "")), [Reference.read(one) for one in reply.get("groups") or ()]

    def _keep_all(self, refs: Sequence[Reference]) -> None:
        """Fetch groups ahead, each once there is room."""
        left = [ref for ref in refs if not self._too_large(ref)]
        while left:
            some = self._first(left)
            if not some and self._transport.stopped.wait(_FULL_S):
                return
            for done in [in_thread(self._keep, ref) for ref in some]:
                done.result()
            left = left[len(some) :]

    def _too_large(self, ref: Reference) -> bool:
        """There can be no room for the group. The first one is said."""
        if ref.size <= self._ahead:
            return False
        if not self._said_large:
            _log.warning(
                "group %d has %g MB: with prefetch_mb=%g groups of this size are not fetched ahead",
                ref.group, ref.size / 1e6, self._ahead / 1e6,
            )  # fmt: skip
        self._said_large = True
        return True

    def _first(self, refs: Sequence[Reference]) -> Sequence[Reference]:
        """The groups in front that there is room for, at most so many as are fetched at once."""
        if not self._room(refs[0].size):
            return []
        try:
            free = self._ahead - self._cache.size()
        except OSError:
            return []
        ends = itertools.accumulate(ref.size for ref in refs[:_PARALLEL])
        return refs[: sum(end <= free for end in ends)]

    def _keep(self, ref: Reference) -> None:
        """Fetch a group ahead. What goes wrong here is no loss: the lease fetches it, if it is not gone."""
        try:
            if self._cache.begin(ref):
                try:
                    self._cache.put(ref, self._fetch(ref))
                except errors.HeadwayError:
                    self._cache.drop([ref.sha256])
        except OSError as error:
            if not self._told:
                _log.warning("groups cannot be kept ahead of their batch: %s", error)
            self._told = True
        except RuntimeError:  # the connection pool was closed
            return

    def _room(self, size: int) -> bool:
        """There is room for so many bytes. Where there is none, what is of use no more goes."""
        try:
            if self._cache.size() + size <= self._ahead:
                return True
            live, after = set[str](), ""
            while True:
                after, some = self._announced(after, 0.0)
                if not some:
                    break
                live.update(one.sha256 for one in some)
            self._cache.keep(live)
            return self._cache.size() + size <= self._ahead
        except (errors.HeadwayError, RuntimeError, OSError):
            return False
