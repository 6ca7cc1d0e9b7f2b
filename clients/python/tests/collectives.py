"""A control plane of a few lines, and engines that are members of groups over gloo: for tests of a sender."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from conftest import ROOT

from headway import tensors as arrays

torch = pytest.importorskip("torch")
sys.path.insert(0, str(ROOT / "examples" / "hf_shim" / "src"))

from hf_shim import groups  # noqa: E402

#: A test that waits longer has failed.
LIMIT = 120.0


class Plane:
    """What `POST /api/v1/senders/{name}` is answered: the commands that are not done, and the groups."""

    def __init__(self, port: int = 0) -> None:
        self.changed = threading.Condition()
        self.commands: dict[int, dict[str, Any]] = {}
        self.done: dict[int, dict[str, Any]] = {}
        self.groups: list[str] = []
        self.told: list[str] = []
        self.holds: list[int] = []
        self.left = False
        self.said: list[dict[str, Any]] = []
        self.refusal: dict[str, Any] | None = None
        self.bytes_max = 0  # of a body; 0: any
        self.weights: dict[int, dict[str, Any]] = {}
        self.met: dict[str, int] = {}  # the port that the trainer said, by meeting
        self.members: list[Member] = []
        self._seq = 0
        plane = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = self.headers.get("Content-Length")
                text = self.rfile.read(int(length)) if length else b"".join(self.chunks())
                plane.answer(self, json.loads(text))

            def do_GET(self) -> None:
                plane.stored(self)

            def chunks(self) -> Iterator[bytes]:
                while size := int(self.rfile.readline(), 16):
                    yield self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()

            def reply(self, message: Any, status: int = 200) -> None:
                content = message if isinstance(message, bytes) else json.dumps(message).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def __init__(self, address: tuple[str, int]) -> None:
                self.open: set[socket.socket] = set()
                super().__init__(address, Handler)

            def process_request(self, request: Any, client: Any) -> None:
                self.open.add(request)
                super().process_request(request, client)

            def handle_error(self, *_: object) -> None:
                pass

        self.server = Server(("127.0.0.1", port))
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, call: Any, said: dict[str, Any]) -> None:
        kind, name = call.path.split("/")[3:5]
        if kind == "rendezvous":
            with self.changed:
                self.met[name] = int(said["address"].rpartition(":")[2])
                self.changed.notify_all()
            call.reply({"epoch": 1, "master_address": "127.0.0.1", "master_port": self.met[name], "world_size": 2,
                        "rank_offset": 0, "backend": said["backend"], "members": []})  # fmt: skip
            return
        if self.bytes_max and len(json.dumps(said)) > self.bytes_max:
            call.reply({"error": {"code": "too_large", "message": "the body is too large"}}, 413)
            return
        with self.changed:
            self.said.append(said)
            self.holds = said["holds"]
            self.left |= said["leaving"]
            for done in said["done"]:
                if self.commands.pop(done["seq"], None):
                    self.done[done["seq"]] = done
            self.changed.notify_all()

            def news() -> bool:
                told = set(said["knows"]) == set(self.commands) and self.told == self.groups
                return bool(self.refusal) or self.left or not told

            self.changed.wait_for(news, said["wait_s"])
            self.told = list(self.groups)
            if self.refusal:
                call.reply({"error": self.refusal}, 410 if self.refusal["code"] == "expired" else 409)
            else:
                call.reply({"commands": list(self.commands.values()), "groups": self.groups})

    def stored(self, call: Any) -> None:
        version = int(call.path.split("/")[4])
        if version not in self.weights:
            call.reply({"error": {"code": "not_found", "message": f"there is no version {version}"}}, 404)
        elif "files" in call.path:
            call.reply(b"".join(arrays.File("model.safetensors", self.weights[version]).chunks()))
        else:
            files = [{"name": "model.safetensors"}] if self.weights[version] else []
            call.reply({"version": version, "manifest": {"files": files}})

    def give(self, kind: str, engine: str, version: int = -1, **more: str) -> int:
        with self.changed:
            self._seq += 1
            self.commands[self._seq] = {"seq": self._seq, "kind": kind, "engine": engine, "version": version, **more}
            self.changed.notify_all()
            return self._seq

    def until(self, true: Callable[[], Any]) -> Any:
        with self.changed:
            assert self.changed.wait_for(true, LIMIT), (self.commands, self.said[-3:])
            return true()

    def end(self, seq: int) -> dict[str, Any]:
        """What the sender says of a command."""
        return self.until(lambda: self.done.get(seq))  # type: ignore[no-any-return]

    def do(self, kind: str, engine: str, version: int = -1, **more: str) -> dict[str, Any]:
        return self.end(self.give(kind, engine, version, **more))

    def meet(self, engine: str, group: str) -> tuple[int, int]:
        """Have the sender join; the command's number and the port of the meeting."""
        with self.changed:
            self.groups = [*self.groups, group]
        seq = self.give("join", engine, rendezvous=group, group=group)
        return seq, int(self.until(lambda: self.met.get(group)))

    def take_back(self, seq: int, group: str = "") -> None:
        """Nobody waits for it any more."""
        with self.changed:
            self.commands.pop(seq, None)
            self.groups = [g for g in self.groups if g != group]
            self.changed.notify_all()

    def close(self) -> None:
        """Gone, with all connections."""
        self.server.shutdown()
        self.server.server_close()
        for one in self.server.open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class Member:
    """An engine that is a thread of this process: it joins as the shim does, and receives when it is told to."""

    def __init__(self, plane: Plane, engine: str, group: str) -> None:
        self.plane, self.engine, self.group = plane, engine, group
        seq, port = plane.meet(engine, group)
        self._groups = groups.Groups()
        self._groups.join(
            {"group_name": group, "backend": "gloo", "master_address": "127.0.0.1", "master_port": port,
             "rank_offset": 1, "world_size": 2}
        )  # fmt: skip
        assert "error" not in plane.end(seq)
        plane.members.append(self)

    def close(self) -> None:
        """Leave."""
        self._groups.close()

    def receive(self, version: int) -> dict[str, torch.Tensor]:
        """What a hold and a send bring."""
        held = self.plane.do("hold", self.engine, version)
        assert "error" not in held, held
        empty = {t["name"]: torch.empty(t["shape"], dtype=getattr(torch, t["dtype"])) for t in held["tensors"]}
        return self.take(self.plane.give("send", self.engine, version, group=self.group), empty)

    def take(self, seq: int, like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What a send brings."""
        like = dict(sorted(like.items()))
        wanted: dict[str, Any] = {
            "names": list(like), "dtypes": [str(t.dtype) for t in like.values()],
            "shapes": [list(t.shape) for t in like.values()], "group_name": self.group,
        }  # fmt: skip
        found = self._groups.receive(wanted, Anything())  # type: ignore[arg-type]
        assert "error" not in self.plane.end(seq)
        return found

    def fails(self) -> str:
        """The group is broken: a receive says how."""
        wanted: dict[str, Any] = {"names": ["x"], "dtypes": ["float32"], "shapes": [[1]], "group_name": self.group}
        with pytest.raises(groups.Refusal) as caught:
            self._groups.receive(wanted, Anything())  # type: ignore[arg-type]
        return str(caught.value)


class Anything:
    """A model that has every tensor."""

    device = torch.device("cpu")
    architecture = type("Architecture", (), {"tied": False})

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """All is well."""


PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from hf_shim.groups import join
join("127.0.0.1", int(sys.argv[2]), 1, 2, sys.argv[3], "gloo")
sys.stdin.read()
"""


def process(plane: Plane, engine: str, group: str) -> subprocess.Popen[bytes]:
    """An engine that is a process, and never receives."""
    seq, port = plane.meet(engine, group)
    command = [sys.executable, "-c", PROCESS, str(ROOT / "examples" / "hf_shim" / "src"), str(port), group]
    made = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert "error" not in plane.end(seq)
    return made


def state(seed: int = 0) -> dict[str, Any]:
    torch.manual_seed(seed)
    tied = torch.randn(5, 4, dtype=torch.bfloat16)
    return {
        "z": torch.randn(33, 7), "embed": tied, "head": tied, "scalar": torch.tensor(2.5),
        "turned": torch.randn(6, 3).T, "none": torch.empty(0, 3), "flags": torch.tensor([True, False]),
        "numbers": np.arange(6).reshape(2, 3), "bits": arrays.narrow(np.linspace(-1, 1, 5)),
        "parameter": torch.nn.Parameter(torch.randn(3)),
    }  # fmt: skip


def as_tensors(given: dict[str, Any]) -> dict[str, torch.Tensor]:
    from headway.torch import from_numpy

    return {k: v.detach().clone() if isinstance(v, torch.Tensor) else from_numpy(v) for k, v in given.items()}


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert sorted(found) == sorted(wanted)
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name
