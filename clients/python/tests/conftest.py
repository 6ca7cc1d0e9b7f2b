"""The real server, built once, and started by a test with its own settings."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # they need torch
    from collectives import Plane

    from headway.torch import Sender

ROOT = Path(__file__).resolve().parents[3]
#: Small batches, so that a train step is a matter of milliseconds.
SMALL = {"train.batch": 16, "rollout.group_size": 4, "rollout.concurrency": 16}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel for this machine, built from this repository, or what HEADWAY_WHEEL names."""
    if given := os.environ.get("HEADWAY_WHEEL"):
        return Path(given)
    if shutil.which("go") is None:
        pytest.skip("go is not installed: the program cannot be built")
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(build, cwd=ROOT / "clients" / "python", check=True, timeout=1200)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="session")
def binary(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`headway` out of the wheel, or what HEADWAY_PROGRAM names."""
    if given := os.environ.get("HEADWAY_PROGRAM"):
        return Path(given)
    out = tmp_path_factory.mktemp("bin")
    with zipfile.ZipFile(request.getfixturevalue("wheel")) as files:
        program = next(name for name in files.namelist() if name.endswith(".data/scripts/headway"))
        made = Path(files.extract(program, out))
    made.chmod(0o755)
    return made


class Serve:
    """One `headway serve`. It keeps its port and its run over a restart."""

    def __init__(self, binary: Path, directory: Path, arguments: list[str]) -> None:
        self._command = [str(binary), "serve", "--dir", str(directory), *arguments]
        self._port = 0
        self.output: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.start()

    def start(self) -> None:
        """Start, or start again where it was."""
        command = [*self._command, "--listen", f"127.0.0.1:{self._port}"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        listening = threading.Event()

        def read(stream: Iterator[str]) -> None:
            for line in stream:
                self.output.append(line)
                if found := re.search(r"listening on (https?://[\w.:]+)", line):
                    self.url = found[1]
                    listening.set()
            listening.set()

        assert self._process.stdout is not None
        threading.Thread(target=read, args=(self._process.stdout,), daemon=True).start()
        assert listening.wait(60), "headway serve did not listen"
        assert self.url, "".join(self.output)
        self._port = int(self.url.rsplit(":", 1)[1])

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """SIGTERM: it ends in order, and its files have all that happened."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait()

    def stop(self) -> None:
        """End it, whatever it does."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def serve(binary: Path, tmp_path: Path) -> Iterator[Callable[..., Serve]]:
    """Starts `headway serve` with settings by key, and ends it with the test."""
    started = contextlib.ExitStack()

    def start(*arguments: str, **settings: object) -> Serve:
        said = SMALL | {key.replace("__", "."): value for key, value in settings.items()}
        sets = [word for key, value in said.items() for word in ("--set", f"{key}={value}")]
        made = Serve(binary, tmp_path / "runs", [*arguments, *sets])
        started.callback(made.stop)
        return made

    with started:
        yield start


@pytest.fixture
def plane() -> Iterator[Plane]:
    """A control plane as a sender sees it."""
    from collectives import Plane

    made = Plane()
    yield made
    for member in made.members:
        member.close()
    made.close()


@pytest.fixture
def sender(plane: Plane) -> Iterator[Sender]:
    """One of that plane."""
    from headway.torch import Sender

    with Sender(plane.url) as made:
        yield made
