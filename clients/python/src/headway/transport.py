"""HTTP with patience: a call outlives a restart of the control plane.

Connection errors, 429, 502, 503, 504 and 507 are tried again, with growing pauses, until the patience of
the call is spent; 500 a few times. A mutating call has one Idempotency-Key over all of its tries, so that a
try whose answer was lost is not done twice. With several addresses (a standby), each failure moves on.
What can only be a mistake of the setting, such as a certificate that is not trusted, is raised at once, as long
as no server has answered; the rest is logged, once an outage, under "headway".
"""

from __future__ import annotations

import copy
import functools
import json
import logging
import os
import random
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import httpx

from . import errors
from .agent import OpenAI

_log = logging.getLogger("headway")

#: Statuses that say "not now".
_LATER = frozenset({429, 502, 503, 504, 507})
#: Those of them that are said before anything is done.
_NOTHING_DONE = frozenset({429, 507})
#: How often a defect of the server (500) is tried again.
_DEFECT_TRIES = 3
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.05, 2.0
_CONNECT_MAX_S = 10.0
#: No proxy of the environment is asked for this machine's own addresses, as by the program.
DIRECT: dict[str, httpx.BaseTransport | None] = dict.fromkeys(("all://127.0.0.1", "all://[::1]", "all://localhost"))

#: A connection that is quiet for so long is probed, how often, and after how many seconds again: a machine that is gone
#: ends even a call that waits without a limit. Not all systems have all of them.
_PROBES = {"TCP_KEEPIDLE": 60, "TCP_KEEPCNT": 4, "TCP_KEEPINTVL": 15}

Body = Callable[[], Iterator[bytes]]


class Silent(errors.Unavailable):
    """A call that `joins` has no answer yet: ask again."""


class Transport:
    """A connection pool to one control plane. Safe for concurrent use.

    `token` None is the one of the environment variable HEADWAY_TOKEN, empty is none.
    """

    def __init__(
        self, url: str | Sequence[str], token: str | None = None, *, patience_s: float = 600.0,
        verify: bool | str | os.PathLike[str] = True, stopped: threading.Event | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(url, Sequence):
            raise errors.Invalid(f"{url!r:.200} is no address: give a url such as http://127.0.0.1:7070, or several")
        urls = [url] if isinstance(url, str) else list(url)
        self._urls = [_address(u.strip()) for one in urls for u in one.split(",") if u.strip()]
        if not self._urls:
            raise errors.Invalid("no address to connect to: give a url such as http://127.0.0.1:7070")
        self._at = 0
        self._answered = False  # some server did, once
        self._hopeless = 0  # streams that a mistake of the setting ended
        self._outage = threading.Event()  # the failure of now has been logged
        self.patience_s = patience_s
        #: Set to end waiting calls early.
        self.stopped = stopped or threading.Event()
        headers = {"User-Agent": "headway-python"}
        verify = os.fspath(verify) if isinstance(verify, os.PathLike) else verify
        self._ca = os.path.abspath(verify) if isinstance(verify, str) else ""  # agents may run in another directory
        if sent := _token(os.environ.get("HEADWAY_TOKEN", "") if token is None else token):
            headers["Authorization"] = f"Bearer {sent}"
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        try:
            checked = _authority(verify) if isinstance(verify, str) else verify
            self._pool = functools.partial(
                httpx.Client, headers=headers, limits=limits, verify=checked, follow_redirects=False, mounts=DIRECT,
                event_hooks={"request": [_watch]},
            )  # fmt: skip
            self._http, self._process = self._pool(), os.getpid()
        except OSError as error:  # ssl.SSLError is one
            raise errors.Invalid(f"verify={verify!r} is no file of certificates: {error}") from error

    def _connections(self) -> httpx.Client:
        """Those of this process. A forked child has the sockets of its parent, and would take its parent's answers."""
        if self._process != os.getpid():
            self._http, self._process = self._pool(), os.getpid()
        return self._http

    @property
    def url(self) -> str:
        """The address that is in use."""
        return self._urls[self._at % len(self._urls)]

    def close(self) -> None:
        """End waiting calls and free the connections."""
        self.stopped.set()
        self._http.close()

    def at(self, url: str) -> Transport:
        """The same connections, for calls that go to one address alone."""
        other = copy.copy(self)
        other._urls, other._at, other._outage = [_address(url)], 0, threading.Event()
        return other

    def openai(self, rollout: str, key: str) -> OpenAI:
        """Where an agent samples for a rollout, by its claim's key, at the address that is in use."""
        return OpenAI(self.url + "/v1", key, rollout, self._ca)

    def post(self, path: str, message: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """POST a JSON object and return the JSON object of the answer, {} where it has none."""
        response = self.call("POST", path, message=message, **options)
        return _object(response)

    def get(self, path: str, **options: Any) -> dict[str, Any]:
        """GET a JSON object."""
        return _object(self.call("GET", path, **options))

    def call(
        self, method: str, path: str, *, message: Mapping[str, Any] | None = None, body: Body | None = None,
        headers: Mapping[str, str] | None = None, timeout_s: float | None = 30.0, patience_s: float | None = None,
        stop: threading.Event | None = None, joins: bool = False,
    ) -> httpx.Response:  # fmt: skip
        """Send until it is answered with anything final; 205 and refusals raise. The answer has been read.

        `timeout_s` bounds the time between two bytes; None does not. Patience begins when a wait has ended that may be
        longer than it.
        A call that `joins` goes on where the one before it was: without an answer in time it raises Silent.
        """
        sent = dict(headers or {})
        if method != "GET":
            sent.setdefault("Idempotency-Key", uuid.uuid4().hex)
        content: bytes | None = None
        if message is not None:
            try:
                content = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
            except ValueError as error:
                raise errors.Invalid(f"{method} {path}: a number of the message is not finite: {error}") from None
            sent["Content-Type"] = "application/json"
        retry = _Retry(self.patience_s if patience_s is None else patience_s, stop or self.stopped)
        while True:
            base, began = self.url, time.monotonic()
            try:
                response = self._connections().request(
                    method, base + path, content=body() if body is not None else content, headers=sent,
                    timeout=_limits(timeout_s),
                )  # fmt: skip
            except httpx.TransportError as error:
                what = f"{method} {base}{path}: no answer ({type(error).__name__}: {error})"
                if joins and isinstance(error, httpx.ReadTimeout):
                    raise Silent(what) from None
                failure: errors.HeadwayError = errors.Unavailable(what)
                cause: Exception | None = error
                retry.unanswered |= not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                retry.hopeless += not self._answered and _hopeless(error)
                if retry.hopeless >= len(self._urls):
                    raise errors.Invalid(f"{what}: not tried again, as it can only be a mistake") from error
            else:
                self._answered = True
                if response.status_code < 300 and response.status_code != 205:
                    if self._outage.is_set():
                        self._outage.clear()
                        _log.warning("%s answers again", base)
                    return response
                failure, cause = refusal(response), None
                if response.status_code != 500 and response.status_code not in _LATER:
                    raise failure
                if response.status_code == 500:
                    retry.defects += 1
                retry.unanswered |= response.status_code not in _NOTHING_DONE
                retry.after_s = _retry_after(response)
            longer = timeout_s is None or timeout_s > retry.patience_s
            if longer and not isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout):
                retry.waited(time.monotonic() - began)
            self._leave(base)
            # One failure is nothing: an idle connection that the server closed ends like that.
            if retry.tries == 1 and not isinstance(failure, errors.Busy) and not self._outage.is_set():
                self._outage.set()
                said = f"{method} {base}{path}: {failure.message}" if failure.status else failure.message
                _log.warning("%s; it is tried again for %g s in all", said, retry.patience_s)
            if not retry.again():
                failure.unanswered = retry.unanswered
                raise failure from (None if isinstance(cause, httpx.TransportError) else cause)

    @contextmanager
    def stream(
        self, path: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 60.0
    ) -> Iterator[httpx.Response]:
        """Open a GET whose answer is read while it comes: a context manager, as `httpx.Client.stream`."""
        base = self.url
        with self._connections().stream(
            "GET", base + path, headers=dict(headers or {}), timeout=_limits(timeout_s)
        ) as response:
            self._answered = True
            yield response

    def _leave(self, base: str) -> None:
        """Use the next address after a failure at one. Calls that fail there together move on once."""
        if self.url == base:
            self._at += 1

    def another(self, error: Exception | None = None) -> None:
        """Use the next address, after a stream ended. Raise what can only be a mistake, as `call` does."""
        self._hopeless += not self._answered and _hopeless(error)
        if self._hopeless >= len(self._urls):
            what = f"{self.url}: no answer ({type(error).__name__}: {error})"
            raise errors.Invalid(f"{what}: not tried again, as it can only be a mistake") from error
        self._at += 1


class _Retry:
    """The pauses of one call."""

    def __init__(self, patience_s: float, stop: threading.Event) -> None:
        self.patience_s = patience_s
        self._deadline = time.monotonic() + patience_s
        self._stop = stop
        self._pause_s = _PAUSE_FIRST_S
        #: Tries that failed and will be made again, those that the server's defects ended, and those
        #: that a mistake of the setting did.
        self.tries = self.defects = self.hopeless = 0
        #: A try may have been done: it was sent, and what became of it was not said.
        self.unanswered = False
        #: What the server asked to wait, 0 for nothing.
        self.after_s = 0.0

    def waited(self, seconds: float) -> None:
        """Leave a time out of the patience."""
        self._deadline += seconds

    def again(self) -> bool:
        """Wait for the next try; False when there is none."""
        self.tries += 1
        left = self._deadline - time.monotonic()
        if left <= 0 or self.defects >= _DEFECT_TRIES or self._stop.is_set():
            return False
        pause = max(self._pause_s * random.uniform(0.5, 1.0), min(self.after_s, 30.0))
        self._pause_s, self.after_s = min(self._pause_s * 2, _PAUSE_MAX_S), 0.0
        return not self._stop.wait(min(pause, left))


def _limits(timeout_s: float | None) -> httpx.Timeout:
    connect = _CONNECT_MAX_S if timeout_s is None else min(timeout_s, _CONNECT_MAX_S)
    return httpx.Timeout(timeout_s, connect=connect, pool=None)


def _watch(request: httpx.Request) -> None:
    """Have the connection probed that is made for a request. An option of httpx would take proxies away."""
    request.extensions["trace"] = _probe


def _probe(event: str, said: Mapping[str, Any]) -> None:
    if event != "connection.connect_tcp.complete":
        return
    connection = said["return_value"].get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _address(url: str) -> str:
    try:
        parsed = httpx.URL(url)
        port = parsed.port
    except (httpx.InvalidURL, ValueError) as error:
        raise errors.Invalid(f"the url {url!r} cannot be read ({error}): want http://HOST:PORT or https://HOST:PORT") \
            from None  # fmt: skip
    if parsed.scheme not in ("http", "https"):
        raise errors.Invalid(f"the url {url!r} has no scheme: want http://HOST:PORT or https://HOST:PORT")
    if not parsed.host or (port is not None and not 0 < port < 1 << 16):
        raise errors.Invalid(f"the url {url!r} names no host or a port that cannot be: want http://HOST:PORT")
    return url.rstrip("/")


def _authority(path: str) -> ssl.SSLContext:
    """What trusts the certificates of a PEM file, or of a directory of them."""
    if os.path.isdir(path):
        return ssl.create_default_context(capath=path)
    return ssl.create_default_context(cafile=path)


def _token(said: str) -> str:
    """A token without the white space that files end in. What is wrong with it is said without saying it."""
    token = said.strip()
    for at, letter in enumerate(token):
        if not "!" <= letter <= "~":
            raise errors.Invalid(
                f"the token (HEADWAY_TOKEN or token=) cannot be sent: character {at + 1} of {len(token)} is a space, a "
                "control character or not ASCII"
            )
    return token


def _hopeless(error: BaseException | None) -> bool:
    """It cannot be otherwise the next time: no certificate or no TLS where it should be, or no HTTP."""
    while error is not None:
        if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
            return True
        if isinstance(error, ssl.SSLError):
            return not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError)
        error = error.__cause__ or error.__context__
    return False


def refusal(response: httpx.Response) -> errors.HeadwayError:
    """The error that a response says. The body must have been read."""
    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = None
    return errors.from_response(response.status_code, body, response.text)


def _retry_after(response: httpx.Response) -> float:
    try:
        return max(float(response.headers.get("Retry-After", "0")), 0.0)
    except ValueError:
        return 0.0


def _object(response: httpx.Response) -> dict[str, Any]:
    if response.status_code == 204 or not response.content:
        return {}
    try:
        found = response.json()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        kind = response.headers.get("Content-Type", "no type")
        raise errors.Internal(
            f"{response.request.url} answered with {kind} where a JSON object was expected: is it a Headway "
            "control plane, and is nothing between that answers for it?", status=response.status_code,
        )  # fmt: skip
    return found
