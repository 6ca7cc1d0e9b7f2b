"""The versions of the weights that a run has stored: their manifests, and their files into memory or a directory."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from . import errors, tensors
from .tensors import Array
from .transport import Transport, refusal

#: Files of this prefix are the trainer's own; all others are the model's.
_OPTIMIZER = "optimizer."


class Store:
    """Reads versions. A transfer that breaks off goes on where it was. Safe for concurrent use."""

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
        number, names = self._files(version)
        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            if Path(name).name != name:
                raise errors.Invalid(f"the manifest of version {number} names the file {name!r}: not a plain name")
            self._download(number, name, target / name)
        return number

    def _files(self, version: int | str) -> tuple[int, list[str]]:
        state = self.state(version)
        return int(state["version"]), [str(f["name"]) for f in state["manifest"].get("files") or ()]

    def _read(self, version: int | str, wanted: Callable[[str], bool]) -> tuple[int, dict[str, Array]]:
        while True:
            number, names = self._files(version)
            found: dict[str, Array] = {}
            try:
                for name in filter(wanted, names):
                    found.update(tensors.decode(self._content(number, name), f"{name} of version {number}")[0])
            except errors.NotFound:
                if version == "latest" and self._files(version)[0] != number:
                    continue  # it was pruned while it was read: there is a newer one
                raise
            return number, found

    def _download(self, version: int, name: str, path: Path) -> None:
        part = path.with_name(path.name + ".part")
        with part.open("wb") as out:

            def again() -> None:
                out.seek(0)
                out.truncate()

            self._pull(version, name, out.tell, out.write, again)
        part.replace(path)

    def _content(self, version: int, name: str) -> bytearray:
        """A file in memory, once."""
        content = bytearray()
        self._pull(version, name, content.__len__, content.extend, content.clear)
        return content

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
