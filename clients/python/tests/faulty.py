"""A server that answers as a test says: for faults that a real one cannot be asked for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from headway import tensors


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    #: Close the connection instead of answering.
    drop: bool = False


def as_json(value: Any, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


def refusal(code: str, status: int, **detail: Any) -> Reply:
    return as_json({"error": {"code": code, "message": f"it is {code}", "detail": detail}}, status)


CONNECTED: dict[str, Any] = {
    "action": "load", "version": 3, "next": 4, "optimizer": False, "sync_every": 1, "lease_s": 30.0, "steps": 5,
    "run": "test", "config": "{\"seed\": 1}",
}  # fmt: skip


@dataclass
class Server:
    url: str
    #: By "METHOD path": what answers. A path of the form /x/* stands for all below it.
    routes: dict[str, Callable[[Request], Reply]]
    requests: list[Request] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def seen(self, path: str) -> list[Request]:
        with self.arrived:
            return [r for r in self.requests if r.path == path]

    def wait_for(self, path: str, count: int) -> None:
        """Return when a path has been asked for so often."""
        with self.arrived:
            done = self.arrived.wait_for(lambda: sum(r.path == path for r in self.requests) >= count, timeout=20)
        assert done, f"{path} was asked for {len(self.seen(path))} times, want {count}"


@contextmanager
def serving() -> Iterator[Server]:
    """A server on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            request = Request(self.command, self.path, dict(self.headers.items()), self.rfile.read(length))
            with server.arrived:
                server.requests.append(request)
                server.arrived.notify_all()
            keys = (f"{self.command} {self.path}", f"{self.command} {self.path.rsplit('/', 1)[0]}/*")
            route = next((server.routes[k] for k in keys if k in server.routes), None)
            reply = refusal("not_found", 404) if route is None else route(request)
            if reply.drop:
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.status != 204 and "Content-Length" not in reply.headers:
                self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if reply.status != 204:
                self.wfile.write(reply.body)
            if "Content-Length" in reply.headers:  # it breaks off
                self.close_connection = True

        do_GET = do_POST = answer

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a dropped connection is what was asked for

    http = Quiet(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    server = Server(f"http://127.0.0.1:{http.server_address[1]}", {})
    server.routes["POST /api/v1/trainers/connect"] = lambda _: as_json(CONNECTED)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def body(**changes: Any) -> bytes:
    """A batch of two groups of two rollouts, with some tensors changed or, by None, left out."""
    arrays: dict[str, Any] = {
        "tokens": np.array([0, 5, 1, 7, 2, 0, 5, 1, 9, 0, 6, 4, 1, 4, 2, 0, 6, 4, 1, 2], np.int32),
        "offsets": np.array([0, 5, 9, 15, 20], np.int64),
        "loss_mask": np.array([0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1], np.uint8),
        "advantages": np.array([1, -1, 0.5, -0.5], np.float32), "rewards": np.array([1, 0, 0.5, 0], np.float32),
        "groups": np.array([7, 7, 9, 9], np.int64), "samples": np.array([0, 1, 0, 1], np.int32),
    }  # fmt: skip
    arrays["logprobs"] = -0.25 * arrays["loss_mask"].astype(np.float32)
    arrays["versions"] = np.where(arrays["loss_mask"] == 1, 3, -1).astype(np.int32)
    lease = {
        "lease": 11, "attempt": 0, "kind": "train", "version": 3, "deadline_s": 30.0, "rank": 0, "world_size": 1,
        "tokens": 20, "response_tokens": 6, "rollouts": 4, "groups": 2, "staleness_mean": 0.5, "staleness_max": 1,
        "stamps": [
            {"group": 7, "start_version": 3, "ready_version": 3, "rollouts": 2},
            {"group": 9, "start_version": 2, "ready_version": 3, "rollouts": 2},
        ],
    }  # fmt: skip
    lease |= changes.pop("lease", {})
    arrays |= changes
    arrays = {name: array for name, array in arrays.items() if array is not None}
    return b"".join(bytes(c) for c in tensors.File("batch", arrays, {"headway": json.dumps(lease)}).chunks())
