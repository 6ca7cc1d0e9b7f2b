"""HTTP/1.1 over asyncio, as much of it as this server's clients speak: a stream's event is one write."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .errors import Lost, Refusal

HEADER_BYTES_MAX = 64 << 10
BODY_BYTES_MAX = 64 << 20
#: What a client may leave unread of a stream before its connection is cut.
UNREAD_BYTES_MAX = 64 << 20

REASONS = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 411: "Length Required",
    413: "Content Too Large", 431: "Request Header Fields Too Large", 500: "Internal Server Error",
    503: "Service Unavailable",
}  # fmt: skip


@dataclass
class Incoming:
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""

    def json(self) -> dict[str, Any]:
        """The body's object; an empty body is an empty one."""
        try:
            found = json.loads(self.body or b"{}")
        except ValueError as problem:
            raise Refusal(f"the body is not JSON: {problem}") from None
        if not isinstance(found, dict):
            raise Refusal("the body is not a JSON object")
        return found


@dataclass
class Reply:
    """A whole answer."""

    body: str = ""
    status: int = 200
    kind: str = "application/json"

    @staticmethod
    def of(value: Any, status: int = 200) -> Reply:
        """A value as JSON."""
        return Reply(json.dumps(value, separators=(",", ":")), status)


@dataclass
class Stream:
    """An answer in server-sent events: begin is given the function that writes one, and its end is awaited."""

    begin: Callable[[Callable[[str], None]], Awaitable[None]] = field(repr=False)


Handler = Callable[[Incoming], Awaitable[Reply | Stream]]


class Connection(asyncio.Protocol):
    """One client. Its requests are answered one after the other; when it goes away, the one under way is cancelled."""

    def __init__(self, handler: Handler, connections: set[Connection]) -> None:
        self._handler, self._connections = handler, connections
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._advance()

    def close(self) -> None:
        """Closes the connection once the request under way is answered."""
        self._closing = True
        if self._task is None:
            self.transport.close()

    def _advance(self) -> None:
        """Begins to answer the next request, if it is here."""
        if self._task is not None or self.transport.is_closing():
            return
        try:
            incoming = self._take()
        except Refusal as problem:
            self._closing = True
            self._send(Reply.of({"error": {"message": str(problem)}}, problem.status))
            self.transport.close()
            return
        if incoming is not None:
            self._task = asyncio.get_running_loop().create_task(self._answer(incoming))

    def _take(self) -> Incoming | None:
        """A whole request from the buffer, None while some of it is missing."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEADER_BYTES_MAX:
                raise Refusal("the headers are too long", 431)
            return None
        incoming = _headers(bytes(self._buffer[:end]))
        if "transfer-encoding" in incoming.headers:
            raise Refusal("a body in chunks is not read: send it with Content-Length", 411)
        text = incoming.headers.get("content-length", "0")
        if not text.isdigit():
            raise Refusal(f"Content-Length is {text!r}: want a number")
        length = int(text)
        if length > BODY_BYTES_MAX:
            raise Refusal(f"the body has {length} bytes, more than {BODY_BYTES_MAX}", 413)
        if len(self._buffer) < end + 4 + length:
            if incoming.headers.get("expect", "").lower() == "100-continue" and len(self._buffer) == end + 4:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return None
        incoming.body = bytes(self._buffer[end + 4 : end + 4 + length])
        del self._buffer[: end + 4 + length]
        return incoming

    async def _answer(self, incoming: Incoming) -> None:
        if incoming.headers.get("connection", "").lower() == "close":
            self._closing = True
        try:
            reply = await self._handler(incoming)
            if isinstance(reply, Stream):
                await self._stream(reply)
            else:
                self._send(reply)
        except asyncio.CancelledError:
            self.transport.abort()
            raise
        except Lost:
            self.transport.abort()
        finally:
            self._task = None
        if self._closing:
            self.transport.close()
        else:
            self._advance()

    def _send(self, reply: Reply) -> None:
        body = reply.body.encode()
        self.transport.write(
            f"HTTP/1.1 {reply.status} {REASONS.get(reply.status, 'Error')}\r\nContent-Type: {reply.kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: {'close' if self._closing else 'keep-alive'}\r\n\r\n".encode()
            + body
        )  # fmt: skip

    async def _stream(self, reply: Stream) -> None:
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )

        def event(data: str) -> None:
            if self.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
                self.transport.abort()
                return
            text = b"data: " + data.encode() + b"\n\n"
            self.transport.write(b"%x\r\n%b\r\n" % (len(text), text))

        await reply.begin(event)
        self.transport.write(b"0\r\n\r\n")


def _headers(text: bytes) -> Incoming:
    lines = text.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise Refusal(f"the request line {lines[0]!r} is not understood")
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise Refusal(f"the header {line!r} is not understood")
        headers[name.strip().lower()] = value.strip()
    address = urlsplit(words[1])
    query = {name: values[-1] for name, values in parse_qs(address.query).items()}
    return Incoming(words[0], address.path, query, headers)


class Server:
    """A listening port and its connections."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._connections: set[Connection] = set()
        self._listening: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listens; port 0 takes a free one."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(lambda: Connection(self._handler, self._connections), host, port)
        self.port = self._listening.sockets[0].getsockname()[1]

    def abort(self) -> None:
        """Ends every connection without an answer, as the end of the process does."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._connections):
            connection.transport.abort()

    async def stop(self) -> None:
        """Takes no new connection, and closes each once it has its answer."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._connections):
            connection.close()
        tasks = [c._task for c in self._connections if c._task is not None]
        if tasks:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait(tasks, timeout=5.0)
        for connection in list(self._connections):
            connection.transport.abort()
