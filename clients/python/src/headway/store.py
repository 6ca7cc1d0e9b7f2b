"""The versions of the weights that a run has stored: their manifests, and their files into memory or a directory."""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import httpx

from . import errors, tensors
from .tensors import Array
from .transport import Transport, refusal

_log = logging.getLogger("headway")
#: How often a file is fetched that is not as its manifest says.
_FETCHES = 3
_CHUNK = 1 << 20
#: Files of this prefix are the trainer's own; all others are the model's.
_OPTIMIZER = "optimizer."


@dataclass(frozen=True)
class _Listed:
    """A file as a version's manifest has it."""

    version: int
    name: str
    #: "sha256:" and the digits of its content; empty where the manifest has none.
    hash: str


class Store:
    """Reads versions. A transfer that breaks off goes on where it was. Safe for concurrent use.

    A file that is not as its manifest says is fetched again, and then an error: nobody trains on a flipped byte.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def state(self, version: int | str = "latest") -> dict[str, Any]:
        """A version's manifest, where it is, and which engines serve it."""
        return self._transport.get(f"/api/v1/weights/{version}")

    def model(self, version: int | str = "latest") -> tuple[int, dict[str, Array]]:
        """A version's number, and the model's tensors by name; none where it was committed without weights."""
        return self._read(version, lambda name: not name.startswith(_OPTIMIZER))

    def arrays(self, version: int) -> dict[str, Array]:
        """The model's tensors of a version by name; empty where it was committed without weights."""
        return self.model(version)[1]

    def optimizer(self, version: int | str) -> dict[str, Array]:
        """The optimizer's tensors of a version by name; empty where it has none."""
        return self._read(version, lambda name: name.startswith(_OPTIMIZER))[1]

    def download(self, directory: str | Path, version: int | str = "latest") -> int:
        """Put a version's files in a directory, one after the other and as they come; return its number."""
        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        while True:
            number, files = self._files(version)
            for file in files:
                if Path(file.name).name != file.name:
                    message = f"the manifest of version {number} names the file {file.name!r}: not a plain name"
                    raise errors.Invalid(message)
            try:
                for file in files:
                    self._download(file, target / file.name)
            except errors.NotFound:
                if version == "latest" and self._files(version)[0] != number:
                    continue  # it was pruned while it was read: there is a newer one
                raise
            return number

    def _files(self, version: int | str) -> tuple[int, list[_Listed]]:
        state = self.state(version)
        number, listed = int(state["version"]), state["manifest"].get("files") or ()
        return number, [_Listed(number, str(f["name"]), str(f.get("hash") or "")) for f in listed]

    def _read(self, version: int | str, wanted: Callable[[str], bool]) -> tuple[int, dict[str, Array]]:
        while True:
            number, files = self._files(version)
            found: dict[str, Array] = {}
            try:
                for file in files:
                    if wanted(file.name):
                        content = self._content(file)
                        found.update(tensors.decode(content, f"{file.name} of version {number}")[0])
            except errors.NotFound:
                if version == "latest" and self._files(version)[0] != number:
                    continue  # it was pruned while it was read: there is a newer one
                raise
            return number, found

    def _download(self, file: _Listed, path: Path) -> None:
        """Put a file in its place once it is whole. Others may be at the same file, such as further ranks."""
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
        try:
            with part.open("w+b") as out:
                self._fetch_to(file, out)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def _fetch_to(self, file: _Listed, out: BinaryIO) -> None:
        def again() -> None:
            out.seek(0)
            out.truncate()

        def hashed() -> str:
            digest = hashlib.sha256()
            out.seek(0)
            while chunk := out.read(_CHUNK):
                digest.update(chunk)
            return "sha256:" + digest.hexdigest()

        self._fetch(file, out.tell, out.write, again, hashed)

    def _content(self, file: _Listed) -> bytearray:
        """A file in memory, once."""
        content = bytearray()

        def hashed() -> str:
            return "sha256:" + hashlib.sha256(content).hexdigest()

        self._fetch(file, content.__len__, content.extend, content.clear, hashed)
        return content

    def _fetch(
        self, file: _Listed, have: Callable[[], int], write: Callable[[bytes], object], again: Callable[[], object],
        hashed: Callable[[], str],
    ) -> None:  # fmt: skip
        """Read a file until it has the hash that its manifest says."""
        for _ in range(_FETCHES):
            self._pull(file.version, file.name, have, write, again)
            if not file.hash or (found := hashed()) == file.hash:
                return
            _log.warning("%s of version %d came with the hash %s instead of its manifest's %s: it is fetched again",
                         file.name, file.version, found, file.hash)  # fmt: skip
            again()
            self._transport.another()
        raise errors.Internal(
            f"{file.name} of version {file.version} came {_FETCHES} times with another hash than its manifest's, last "
            f"with {found} instead of {file.hash}: see what stands between here and the control plane, and run "
            "`headway weights verify --run RUN` there"
        )

    def _pull(
        self, version: int, name: str, have: Callable[[], int], write: Callable[[bytes], object],
        again: Callable[[], object],
    ) -> None:  # fmt: skip
        """Read a file as it comes; a transfer that breaks off goes on where it was."""
        source, defects = f"/api/v1/weights/{version}/files/{name}", 0
        deadline = time.monotonic() + self._transport.patience_s
        while True:
            at = have()
            try:
                headers = {"Range": f"bytes={at}-"} if at else {}
                with self._transport.stream(source, headers=headers) as response:
                    if response.status_code == 416 and at:  # it was whole already
                        return
                    if response.status_code >= 300:
                        response.read()
                        raise refusal(response)
                    if at and response.status_code != 206:
                        again()
                    for chunk in response.iter_bytes():
                        write(chunk)
                return
            except (httpx.TransportError, errors.Unavailable, errors.Busy, errors.Internal) as error:
                self._transport.another()
                defects += isinstance(error, errors.Internal)
                if have() > at:
                    deadline = time.monotonic() + self._transport.patience_s
                if time.monotonic() > deadline or defects > 2 or self._transport.stopped.wait(0.2):
                    if isinstance(error, errors.HeadwayError):
                        raise
                    message = f"{name} of version {version} broke off at byte {have()}: {error}"
                    raise errors.Unavailable(message) from error
