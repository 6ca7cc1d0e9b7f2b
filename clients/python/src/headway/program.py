"""Find the program `headway`, which every call of the Python API runs.

The places, in this order:

1. the file that the variable `HEADWAY_PROGRAM` names;
2. the folder of scripts of this Python, where a wheel puts the program;
3. the folder `bin` in this package or beside it, where `pip install --target` puts it;
4. the `PATH`;
5. in a checkout of the repository with Go: built from its sources into a cache, which it says on stderr.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .errors import ProgramMissing

#: The variable that names the program.
VARIABLE = "HEADWAY_PROGRAM"
#: The program's file name.
NAME = "headway.exe" if os.name == "nt" else "headway"

# Checking the sources of a checkout takes longer than a call: once a process is enough.
_built: dict[Path, Path] = {}


def program() -> Path:
    """The program's file. `ProgramMissing` says where it was looked for, and what to do."""
    if named := os.environ.get(VARIABLE):
        if not _runs(Path(named)):
            raise ProgramMissing(
                f"{VARIABLE}={named} is no file that can be run; name the program headway, or unset the variable"
            )
        return Path(named).absolute()
    for place in _places():
        if _runs(place) and not _is_script(place):
            return place
    checkout = _checkout()
    if checkout is None:
        looked = ", ".join(str(place.parent) for place in _installed())
        raise ProgramMissing(
            f"the program headway is neither in {looked} nor on the PATH; install a wheel that carries it "
            f"(pip install headway), or name a built program in {VARIABLE}"
        )
    return _built_in(checkout)


def _places() -> Iterator[Path]:
    """Files that would be the program, where they exist."""
    yield from _installed()
    for folder in os.get_exec_path():
        if folder:  # an empty entry is the working directory, whose files are not to be trusted
            yield Path(folder) / NAME


def _installed() -> list[Path]:
    """Where a wheel of this package puts the program."""
    package = Path(__file__).resolve().parent
    places = [Path(sysconfig.get_path("scripts")) / NAME]
    user = f"{os.name}_user"
    if user in sysconfig.get_scheme_names():
        places.append(Path(sysconfig.get_path("scripts", user)) / NAME)
    return [*places, package / "bin" / NAME, package.parent / "bin" / NAME]


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _is_script(path: Path) -> bool:
    """Whether a file is a script, such as an entry point that would call this package again."""
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True


def _checkout() -> Path | None:
    """The repository that this file is a part of, if it is of one."""
    for folder in Path(__file__).resolve().parents:
        if (folder / "cmd" / "headway" / "main.go").is_file() and (folder / "go.mod").is_file():
            return folder
    return None


def _built_in(checkout: Path) -> Path:
    """The program of a checkout, built unless the cache has it for the same sources."""
    if checkout in _built:
        return _built[checkout]
    made = _cache(checkout) / _sources(checkout) / NAME
    if not _runs(made):
        _build(checkout, made)
    _built[checkout] = made
    return made


def _build(checkout: Path, made: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise ProgramMissing(
            f"the program headway is not installed, and building it from {checkout} needs Go (https://go.dev/dl/), "
            f"which is not on the PATH; install Go, or name a built program in {VARIABLE}"
        )
    made.parent.mkdir(parents=True, exist_ok=True)
    said = f"headway: building the program from {checkout} into {made.parent}, once (minutes)"
    print(said, file=sys.stderr, flush=True)
    # A rename at the end: two processes may build at the same time.
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:
        unfinished = Path(folder) / NAME
        done = subprocess.run(
            [go, "build", "-trimpath", "-o", str(unfinished), "./cmd/headway"],
            cwd=checkout, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise ProgramMissing(
                f"building the program from {checkout} failed: {done.stderr.strip()[-2000:]}\n"
                f"mend the checkout, or name a built program in {VARIABLE}"
            )
        unfinished.replace(made)
    for old in made.parent.parent.iterdir():  # programs of earlier sources, 50 MB each
        if old != made.parent and (old / NAME).exists():
            shutil.rmtree(old, ignore_errors=True)


def _cache(checkout: Path) -> Path:
    """The folder of programs built from a checkout."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "headway" / "program" / hashlib.sha256(str(checkout).encode()).hexdigest()[:16]


def _sources(checkout: Path) -> str:
    """A name for the state of the sources: it changes with every file that a build may read."""
    state = hashlib.sha256()
    for folder, folders, files in os.walk(checkout):
        skipped, names = {"testdata"}, files
        if Path(folder) == checkout:  # what holds no Go, and what the repository does not keep
            skipped = {"bin", "clients", "dist", "docs", "examples", "runs"}
            names = [name for name in files if name in ("go.mod", "go.sum")]
        folders[:] = sorted(name for name in folders if name not in skipped and not name.startswith("."))
        for name in sorted(names):
            if not name.endswith("_test.go"):
                found = os.stat(os.path.join(folder, name))
                state.update(f"{folder}/{name} {found.st_size} {found.st_mtime_ns}\n".encode())
    return state.hexdigest()[:16]
