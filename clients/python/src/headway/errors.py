"""What can go wrong, one class per code of the server, and the errors of calls of the program.

Every refusal of the server is `{"error": {"code", "message", "detail"}}`; it arrives here as the class of
its code. What the client finds wrong before it sends anything raises the same classes, with status 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from .results import Fault
    from .view import Result


class HeadwayError(Exception):
    """A refusal. `code` is for programs, `message` a sentence for people, `detail` its figures by name."""

    #: The server's word for this class.
    default_code: ClassVar[str] = "internal"
    #: The class under which a rollout that ended by it is counted as failed; empty for unknown.
    kind: ClassVar[str] = ""

    def __init__(
        self, message: str, *, code: str = "", detail: Mapping[str, Any] | None = None, status: int = 0
    ) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.message = message
        self.detail: dict[str, Any] = dict(detail or {})
        #: HTTP status; 0 where no server said it.
        self.status = status
        #: A try of the same request was not answered, or by a defect: what it asked for may have been done.
        self.unanswered = False

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle, as between processes of a pool: without the constructor, whose arguments differ by class."""
        return _bare, (type(self), self.args), self.__dict__


def _bare(kind: type[HeadwayError], arguments: tuple[Any, ...]) -> HeadwayError:
    """An error without its attributes."""
    made = kind.__new__(kind)
    made.args = arguments
    return made


class Invalid(HeadwayError):
    """The request cannot be meant. Sending it again does not help."""

    default_code = "invalid"


class Unauthorized(HeadwayError):
    """No token, or one that the server does not know."""

    default_code = "unauthorized"


class Forbidden(HeadwayError):
    """The token's role may not do this."""

    default_code = "forbidden"


class NotFound(HeadwayError):
    """There is no such thing, or not any more."""

    default_code = "not_found"


class Conflict(HeadwayError):
    """It contradicts what is there already."""

    default_code = "conflict"


class LeaseExpired(HeadwayError):
    """The lease or claim ran out, or was given to another: the work counts for nothing.

    The trainer's weights are now ahead of the run: call `Client.load` before the next batch.
    """

    default_code = "expired"


class TooLarge(HeadwayError):
    """The body, a header or a tensor exceeds its limit."""

    default_code = "too_large"


class Busy(HeadwayError):
    """A limit on concurrency is reached, and stayed so for as long as the client's patience."""

    default_code = "busy"


class Internal(HeadwayError):
    """A defect of the server."""

    default_code = "internal"


class Unavailable(HeadwayError):
    """No server answered, or none was ready, for as long as the client's patience."""

    default_code = "unavailable"


class DiskFull(HeadwayError):
    """The server has no room to make it durable. Nothing was changed."""

    default_code = "disk_full"


class RunEnded(HeadwayError):
    """The run is done: there will be no more work. `Client.batches` ends instead of raising it."""

    default_code = "run_ended"


class ProgramMissing(HeadwayError):
    """The program `headway` is not installed. The message names the remedy."""

    default_code = "program_missing"

    def __str__(self) -> str:
        return self.message


class MissingLibrary(HeadwayError, ImportError):
    """A library that is not required is asked for and not installed."""

    default_code = "missing_library"

    def __str__(self) -> str:
        return self.message


class ProgramError(HeadwayError):
    """The program refused, failed or died. The message is its own."""

    default_code = "failure"

    def __init__(
        self, message: str, *, code: str = "", hint: str = "", exit_code: int = 1,
        faults: Sequence[Mapping[str, Any]] = (), command: Sequence[str] = (),
    ) -> None:  # fmt: skip
        super().__init__(message, code=code, detail={"hint": hint, "faults": list(faults)})
        #: The remedy, empty where the message says it.
        self.hint = hint
        #: 1: the run or the check failed; 2: bad arguments or a bad document; below 0: ended by that signal.
        self.exit_code = exit_code
        #: The arguments of the program.
        self.command = list(command)
        self._faults = [dict(fault) for fault in faults]

    @property
    def faults(self) -> list[Fault]:
        """The single mistakes, each with file, line, key, value, problem and what is allowed, as far as known."""
        from .results import Fault

        return [Fault(fault) for fault in self._faults]

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class Refused(ProgramError):
    """Bad arguments or a bad document, refused before anything was done. `faults` names the keys."""

    default_code = "usage"


class Failed(ProgramError):
    """What was asked for was begun, and failed."""


class NotSettled(Failed):
    """The means of a simulation still move. `result` has everything but these means.

    Measure longer (`steps.measured`), or take them as they are with `accept_unsettled=True`.
    """

    def __init__(self, message: str, *, result: Result, hint: str = "", command: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint, command=command)
        self.result = result


class Died(ProgramError):
    """The program ended without a result or an error of its own, such as by a signal. `log` is the end of its words."""

    default_code = "died"

    def __init__(self, message: str, *, exit_code: int, log: str = "", command: Sequence[str] = ()) -> None:
        super().__init__(message, exit_code=exit_code, command=command)
        self.log = log

    def __str__(self) -> str:
        return f"{self.message}\n{self.log}" if self.log else self.message


class HeadwayWarning(UserWarning):
    """What the program warns of."""


_BY_CODE: dict[str, type[HeadwayError]] = {
    kind.default_code: kind
    for kind in (
        Invalid, Unauthorized, Forbidden, NotFound, Conflict, LeaseExpired, TooLarge, Busy, Internal,
        Unavailable, DiskFull, RunEnded,
    )
}  # fmt: skip

_BY_STATUS: dict[int, type[HeadwayError]] = {
    205: RunEnded, 400: Invalid, 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict,
    410: LeaseExpired, 413: TooLarge, 429: Busy, 431: TooLarge, 502: Unavailable, 503: Unavailable,
    504: Unavailable, 507: DiskFull,
}  # fmt: skip


def from_response(status: int, body: object, text: str = "") -> HeadwayError:
    """The error of a refused request: by its code, or by its status where the body has none."""
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        error = body["error"]
        code, message, detail = error.get("code"), error.get("message"), error.get("detail")
        kind = _BY_CODE.get(str(code)) or _BY_STATUS.get(status, Internal)
        found = detail if isinstance(detail, dict) else {}
        return kind(str(message or text), code=str(code or ""), detail=found, status=status)
    kind = _BY_STATUS.get(status, Internal if status >= 500 else Invalid)
    return kind(text.strip()[:500] or f"HTTP status {status}", status=status)
