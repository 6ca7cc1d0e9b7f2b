"""One call of the program: arguments in, its JSON document or its error out."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

from . import errors
from .program import program

#: A document: the path of its file, or what would be in it; None where a command has defaults.
Document: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | None
#: Keys of a document with other values: "queue.factor", or sections within sections.
Overrides: TypeAlias = Mapping[str, Any] | None

# The program ends by itself when the pipe at its standard input does, however this process ends, and says twice a
# second how far it is.
_ENVIRONMENT = {"HEADWAY_UNTIL_EOF": "1", "HEADWAY_PROGRESS_EVERY": "500ms"}
# Text that YAML reads as text without quotes.
_PLAIN = re.compile(r"[A-Za-z][\w.-]*")
_NO_TEXT = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"}
# How long a program that was interrupted may take to end.
_END_S = 5.0


def call(
    command: str, arguments: Sequence[str] = (), document: Document = None, overrides: Overrides = None, *,
    progress: bool | None = None,
) -> tuple[dict[str, Any], errors.ProgramError | None]:  # fmt: skip
    """Run `headway COMMAND` with `--json`: its document, and the failure that it ended with beside that document.

    Raises the program's error where it printed no document. `progress` shows how far it is on stderr; None: where
    that is a terminal or a notebook.
    """
    with written(document) as file:
        words = [command, *file, "--json", *arguments, *settings(overrides)]
        code, output, said = _run(words, _Progress(progress))
        return answer_of(words, code, output, said, file[0] if file and isinstance(document, Mapping) else "")


@contextlib.contextmanager
def written(document: Document) -> Iterator[list[str]]:
    """The argument that names a document's file; a mapping is written to one for as long as the program reads it."""
    if document is None:
        yield []
    elif isinstance(document, Mapping):
        with tempfile.TemporaryDirectory(prefix="headway-") as folder:
            path = Path(folder) / "document.yaml"
            path.write_text(value_text(dict(document), "the document"), encoding="utf-8")
            yield [str(path)]
    else:
        yield [named(document)]


def named(path: str | os.PathLike[str]) -> str:
    """A path as an argument: one that begins with a dash is no flag."""
    if not isinstance(path, (str, os.PathLike)):
        raise errors.Refused(f"{path!r:.200} is no path", exit_code=2)
    text = os.fspath(path)
    return os.path.join(os.curdir, text) if text.startswith("-") else text


def settings(overrides: Overrides) -> list[str]:
    """Overrides as arguments."""
    return [f"--set={key}={value_text(value, key)}" for key, value in flat(overrides or {})]


def flat(overrides: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys with their values. Sections may be mappings, and in a keyword `__` stands for a dot."""
    for key, value in overrides.items():
        dotted = above + str(key).replace("__", ".")
        if isinstance(value, Mapping) and value:
            yield from flat(value, dotted + ".")
        else:
            yield dotted, value


def together(overrides: Overrides, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides and keywords as one; a key that both give is a mistake."""
    both = dict(flat(overrides or {}))
    for key, value in flat(keys):
        if key in both:
            raise errors.Refused(f"{key}: given twice, in the mapping and as a keyword", exit_code=2)
        both[key] = value
    return both


def value_text(value: Any, key: str) -> str:
    """A value as JSON, which YAML contains."""

    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXT:
        return value

    def other(item: Any) -> Any:
        if isinstance(item, os.PathLike):
            return os.fspath(item)
        if hasattr(item, "tolist"):  # a number or an array of NumPy
            return item.tolist()
        raise TypeError(f"{item!r} is of type {type(item).__name__}")

    try:
        return json.dumps(value, default=other, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        allowed = "None, booleans, finite numbers, text, lists and mappings"
        raise errors.Refused(
            f"{key}: no value of a document: {error} (allowed: {allowed})", exit_code=2,
            faults=[{"key": key, "problem": f"no value of a document: {error}", "allowed": allowed}],
        ) from error  # fmt: skip


def start(words: Sequence[str], stdout: int) -> subprocess.Popen[bytes]:
    """Start the program. Its standard input is a pipe that ends with this process."""
    return subprocess.Popen(
        [str(program()), *words], stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE,
        env={**os.environ, **_ENVIRONMENT},
    )  # fmt: skip


def end(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """Have a program end, and wait for it: asked first, killed when it takes longer."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def _run(words: Sequence[str], show: _Progress) -> tuple[int, bytes, list[str]]:
    """Run to the end. Whatever interrupts this ends the program, too."""
    said: list[str] = []
    process = start(words, subprocess.PIPE)
    assert process.stdin and process.stdout and process.stderr

    def read(stream: IO[bytes]) -> None:
        for line in stream:
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            said.append(text)
            show.line(text)

    reader = threading.Thread(target=read, args=(process.stderr,), daemon=True)
    try:
        reader.start()
        output = process.stdout.read()
        code = process.wait()
    finally:
        end(process, _END_S)
        reader.join()
        show.clear()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()
    return code, output, said


def answer_of(
    words: Sequence[str], code: int, output: bytes, said: list[str], temporary: str
) -> tuple[dict[str, Any], errors.ProgramError | None]:
    """The document of a program that ended, and the failure beside it."""
    for line in said:
        if line.startswith("warning: "):
            warn(_unnamed(line.removeprefix("warning: "), temporary))
    try:
        document = json.loads(output)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code} and printed no document"
        raise errors.Died(f"headway {words[0]} {how}", exit_code=code, log="\n".join(said[-20:]), command=words)
    if isinstance(document.get("error"), dict) and "exit_code" in document["error"]:
        raise _error(document["error"], words, temporary)
    if code == 0:
        return document, None
    message, hint = _failure(said)
    kind = errors.Refused if code == 2 else errors.Failed
    return document, kind(_unnamed(message, temporary), hint=hint, exit_code=code, command=words)


def warn(text: str) -> None:
    """Warn as the program does. The place is the first caller outside of this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, errors.HeadwayWarning, stacklevel=level)


def _error(parts: Mapping[str, Any], words: Sequence[str], temporary: str) -> errors.ProgramError:
    """The error of a JSON document."""
    kind = errors.Refused if parts.get("code") == "usage" else errors.Failed
    faults = []
    for fault in parts.get("faults") or ():
        kept = dict(fault)
        if temporary and kept.get("file") == temporary:  # it was written for the call: its places say nothing
            kept = {name: value for name, value in kept.items() if name not in ("file", "line", "column")}
        faults.append(kept)
    return kind(
        _unnamed(str(parts.get("message", "")), temporary), hint=_unnamed(str(parts.get("hint", "")), temporary),
        exit_code=int(parts["exit_code"]), faults=faults, command=words,
    )  # fmt: skip


def _unnamed(text: str, temporary: str) -> str:
    """A message without the name of a file that was written for the call."""
    return re.sub(re.escape(temporary) + r"(:\d+:\d+)?", "document", text) if temporary else text


def _failure(said: Sequence[str]) -> tuple[str, str]:
    """The message and the hint at the end of what a program said."""
    for at in range(len(said) - 1, -1, -1):
        if said[at].startswith("headway: "):
            after = said[at + 1 :]
            hint = after[-1].strip() if after and after[-1].startswith("  ") else ""
            return "\n".join([said[at].removeprefix("headway: "), *after[: len(after) - bool(hint)]]), hint
    return "the program failed", ""


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    get = getattr(shell, "get_ipython", None)
    return bool(get and getattr(get(), "kernel", None))


class _Progress:
    """The program's words on how far it is: one line that is written over, or lines where that cannot be."""

    def __init__(self, shown: bool | None) -> None:
        self._over = _in_notebook() or bool(getattr(sys.stderr, "isatty", lambda: False)())
        self._shown = self._over if shown is None else shown
        self._wide = 0
        self._error = False

    def line(self, text: str) -> None:
        """Show one line. What is raised or warned of later is left out."""
        self._error = self._error or text.startswith("headway: ")
        if not self._shown or self._error or text.startswith("warning: "):
            return
        if not self._over:
            print(text, file=sys.stderr, flush=True)
            return
        text = text[:100]
        print(f"\r{text:{self._wide}}", end="", file=sys.stderr, flush=True)
        self._wide = max(self._wide, len(text))

    def clear(self) -> None:
        """Take the line away."""
        if self._wide:
            print("\r" + " " * self._wide + "\r", end="", file=sys.stderr, flush=True)
            self._wide = 0
