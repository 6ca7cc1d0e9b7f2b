"""A control plane as a child of this process: a whole training script is one file."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import httpx

from . import errors
from .call import Document, Overrides, answer_of, end, settings, start, together, written
from .client import Client, connect
from .transport import DIRECT

# What is kept of the log, and how much of it an error shows.
_LINES_MAX, _TAIL_LINES = 2000, 25
# How long a train step that runs may take when the plane is to end, and the plane itself after that.
_DRAIN_S, _END_S = 5.0, 20.0
# How long one look at the plane may take, and the time between two.
_LOOK_S, _BETWEEN_S = 2.0, 0.02


class Plane:
    """A control plane that `serve` started. It ends with the `with` block, and with this process however that ends."""

    def __init__(self, process: subprocess.Popen[bytes], words: list[str], temporary: str) -> None:
        self._process, self._words, self._temporary = process, words, temporary
        self._lines: deque[str] = deque(maxlen=_LINES_MAX)
        self._output = b""
        self._listening = threading.Event()
        self._closing = contextlib.ExitStack()
        self._client: Client | None = None
        #: Where it answers.
        self.url = ""
        #: The trainer's token, None where the plane asks for none.
        self.token: str | None = None
        self._verify: bool | str = True
        self._readers = [
            threading.Thread(target=read, args=(stream,), daemon=True)
            for read, stream in ((self._read_log, process.stderr), (self._read_output, process.stdout))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def client(self) -> Client:
        """A trainer's connection, made when it is first asked for. It closes with the plane."""
        if self._client is None:
            self._client = self.connect()
        return self._client

    def connect(self, **options: Any) -> Client:
        """A connection with options of `headway.connect`. It closes with the plane."""
        own = {"token": self.token, "verify": self._verify}
        return self._closing.enter_context(connect(self.url, **{**own, **options}))

    @property
    def log(self) -> list[str]:
        """What it said so far, the newest 2,000 lines."""
        return list(self._lines)

    @property
    def running(self) -> bool:
        """Whether it is there."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it: a train step that runs may end within seconds, and what is not over then is stopped."""
        try:
            self._closing.close()
        finally:
            if self.running:
                self._process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_DRAIN_S)
            end(self._process, _END_S)
            for reader in self._readers:
                reader.join()
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                if stream is not None:
                    stream.close()

    def __enter__(self) -> Plane:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        died = not self.running and self._process.returncode != 0
        try:
            self.close()
        finally:
            if isinstance(error, errors.HeadwayError) or (error is not None and died):
                _note(error, "the control plane's log ends with:\n" + self._tail())
        if error is None and died:
            raise self._death()

    def _tail(self) -> str:
        return "\n".join(self.log[-_TAIL_LINES:])

    def _death(self) -> errors.ProgramError:
        """Why it ended: its own error, or how it ended and the end of its log."""
        self._process.wait()
        for reader in self._readers:
            reader.join()
        code = self._process.returncode
        failed: errors.ProgramError | None
        try:
            _, failed = answer_of(self._words, code, self._output, self.log, self._temporary)
        except errors.ProgramError as error:
            failed = error
        if failed is not None and not isinstance(failed, errors.Died):
            return failed
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return errors.Died(f"the control plane ended {how}", exit_code=code, log=self._tail(), command=self._words)

    def _read_log(self, stream: IO[bytes]) -> None:
        for line in stream:
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            self._lines.append(text)
            if not self.url and (found := re.search(r"listening on (https?://\S+)", text)):
                self.url = found[1]
                self._listening.set()
        self._listening.set()

    def _read_output(self, stream: IO[bytes]) -> None:
        self._output = stream.read()

    def _await(self, ready_s: float, verify: bool | str) -> None:
        """Wait until it can be worked with."""
        with httpx.Client(timeout=_LOOK_S, verify=verify, mounts=DIRECT) as looking:
            self._look(looking, ready_s)

    def _look(self, looking: httpx.Client, ready_s: float) -> None:
        until = time.monotonic() + ready_s
        said = "it does not listen"
        while self._listening.wait(max(until - time.monotonic(), 0)) and time.monotonic() < until:
            if not self.url or not self.running:
                raise self._death()
            try:
                reply = looking.get(f"{self.url}/readyz")
                if reply.status_code == httpx.codes.OK:
                    return
                said = reply.text.strip()
            except httpx.TransportError as error:
                said = str(error)
            time.sleep(_BETWEEN_S)
        raise errors.Unavailable(f"the control plane is not ready after {ready_s:g} s: {said}\n{self._tail()}")


def serve(
    document: Document = None, overrides: Overrides = None, *, dir: str | Path | None = None, name: str | None = None,
    listen: str = "127.0.0.1:0", token_file: str | Path | None = None, ready_s: float = 600.0,
    verify: bool | str = True, **keys: Any,
) -> Plane:  # fmt: skip
    """Start a control plane on a free port, and wait until it is ready.

        with headway.serve("run.yaml", trainer__steps=100) as plane:
            weights = plane.client.load()
            for batch in plane.client.batches():
                ...

    `dir` is the folder of runs and `name` the run; the same name again goes on with the run. `token_file` has a line
    `ROLE TOKEN` for each role, and `token` is then the trainer's. A document that is refused raises `Refused`, a plane
    that ends by itself `Died` with the end of its log. `ready_s` bounds the wait, also for servers that start. `verify`
    is that of `headway.connect`, also for the plane's own connections.
    """
    arguments = ["--json", f"--listen={listen}"]
    for flag, value in (("dir", dir), ("name", name), ("token-file", token_file)):
        if value is not None:
            arguments.append(f"--{flag}={value}")
    with written(document) as file:
        words = ["serve", *file, *arguments, *settings(together(overrides, keys))]
        temporary = file[0] if isinstance(document, Mapping) else ""
        plane = Plane(start(words, subprocess.PIPE), words, temporary)
        plane._verify = verify
        try:
            plane._await(ready_s, verify)
            if token_file is not None:
                plane.token = _trainers(Path(token_file))
        except BaseException:
            plane.close()
            raise
    return plane


def _trainers(path: Path) -> str | None:
    """The trainer's token of a token file."""
    for line in path.read_text(encoding="utf-8-sig").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "trainer":
            return words[1]
    return None


def _note(error: BaseException, text: str) -> None:
    """Add words to an error that is on its way up."""
    if sys.version_info >= (3, 11):
        error.add_note(text)
    else:
        print(text, file=sys.stderr)
