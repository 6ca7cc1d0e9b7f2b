"""The sender against a control plane of a few lines and engines that are members of groups, over gloo."""

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
from faulty import CONNECTED, Reply, as_json, body, refusal, serving
from faulty import Server as Trainers

import headway
from headway import tensors as arrays

torch = pytest.importorskip("torch")
sys.path.insert(0, str(ROOT / "engines" / "hf_shim" / "src"))

import torch.distributed as dist  # noqa: E402
from hf_shim import groups  # noqa: E402

from headway import collective  # noqa: E402
from headway.torch import Sender  # noqa: E402

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
    command = [sys.executable, "-c", PROCESS, str(ROOT / "engines" / "hf_shim" / "src"), str(port), group]
    made = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert "error" not in plane.end(seq)
    return made


@pytest.fixture
def plane() -> Iterator[Plane]:
    made = Plane()
    yield made
    for member in made.members:
        member.close()
    made.close()


@pytest.fixture
def sender(plane: Plane) -> Iterator[Sender]:
    with Sender(plane.url) as made:
        yield made


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


def test_sends(plane: Plane, sender: Sender) -> None:
    """All kinds of tensors come as they were when they were held, whatever the optimizer does then."""
    given = state()
    wanted = as_tensors(given)
    sender.hold(3, given)
    assert plane.holds == [3]
    with torch.no_grad():
        for name in given:
            given[name][...] = 0
    member = Member(plane, "engine-0", "g0")
    same(member.receive(3), wanted)
    sender.hold(4, given)
    same(member.receive(4), as_tensors(given))
    assert plane.holds == [3, 4]


def test_two_engines(plane: Plane, sender: Sender) -> None:
    """One that takes nothing keeps the other from nothing, nor from the version after."""
    first = Member(plane, "engine-0", "g0")
    second = Member(plane, "engine-1", "g1")
    sender.hold(1, state(1))
    plane.do("hold", "engine-0", 1)
    stuck = plane.give("send", "engine-0", 1, group="g0")
    same(second.receive(1), as_tensors(state(1)))
    sender.hold(2, state(2))
    same(second.receive(2), as_tensors(state(2)))
    assert stuck in plane.commands
    plane.take_back(stuck, "g0")
    anew = Member(plane, "engine-0", "g2")
    same(anew.receive(2), as_tensors(state(2)))
    assert first.group == "g0"


def test_an_engine_that_takes_nothing(plane: Plane) -> None:
    """After the timeout the engine is told, and its group is left."""
    with Sender(plane.url, timeout_s=1.0) as sender:
        member = Member(plane, "engine-0", "g0")
        sender.hold(1, state())
        plane.do("hold", "engine-0", 1)
        said = plane.do("send", "engine-0", 1, group="g0")
        assert "Timed out" in said["error"] or "took nothing" in said["error"]
        assert "no group g0" in plane.do("send", "engine-0", 1, group="g0")["error"]
        assert "failed" in member.fails()
        same(Member(plane, "engine-0", "g1").receive(1), as_tensors(state()))


def test_an_engine_that_is_killed(plane: Plane, sender: Sender) -> None:
    """What is being sent to it fails at once; the next one of its name joins anew."""
    gone = process(plane, "engine-0", "g0")
    sender.hold(1, state())
    plane.do("hold", "engine-0", 1)
    sending = plane.give("send", "engine-0", 1, group="g0")
    plane.until(lambda: any(sending in said["knows"] for said in plane.said))
    gone.kill()
    gone.communicate()
    assert "error" in plane.end(sending)
    same(Member(plane, "engine-0", "g1").receive(1), as_tensors(state()))


def test_an_engine_that_does_not_come(plane: Plane, sender: Sender) -> None:
    """A join that is taken back leaves nothing, and keeps no other of the engine's."""
    seq, _ = plane.meet("engine-0", "g0")
    threads = lambda: [t for t in threading.enumerate() if t.name == "headway-sender-engine-0"]  # noqa: E731
    waiting = threads()
    assert len(waiting) == 1
    plane.take_back(seq, "g0")
    waiting[0].join(LIMIT)
    assert not waiting[0].is_alive()
    sender.hold(1, state())
    same(Member(plane, "engine-0", "g1").receive(1), as_tensors(state()))


def test_groups_that_are_left(plane: Plane, sender: Sender) -> None:
    """A group that the plane does not name any more is left: the engine's side of it ends."""
    member = Member(plane, "engine-0", "g0")
    plane.take_back(0, "g0")
    assert "failed" in member.fails()
    assert "no group" in plane.do("send", "engine-0", 1, group="g0")["error"]
    assert sender.error is None


def test_the_plane_goes_away(plane: Plane, sender: Sender) -> None:
    """What is held is said to the one that comes in its place, and a hold waits for it."""
    sender.hold(1, state())
    member = Member(plane, "engine-0", "g0")
    plane.close()
    began, ended = threading.Event(), threading.Event()

    def hold() -> None:
        began.set()
        sender.hold(2, state(2))
        ended.set()

    threading.Thread(target=hold, daemon=True).start()
    assert began.wait(LIMIT)
    again = Plane(plane.port)
    assert ended.wait(LIMIT)
    again.until(lambda: again.holds == [1, 2])
    assert "failed" in member.fails()  # its plane is gone, and with it the group
    other = Member(again, "engine-0", "g1")
    same(other.receive(2), as_tensors(state(2)))
    other.close()
    sender.close()
    again.close()


def test_another_sender(plane: Plane, sender: Sender) -> None:
    """What the plane refuses is raised by the next hold, and ends when it does."""
    member = Member(plane, "engine-0", "g0")
    with plane.changed:
        plane.refusal = {"code": "conflict", "message": "another process is the sender"}
        plane.changed.notify_all()
    assert "failed" in member.fails()
    with pytest.raises(headway.Conflict, match="another process"):
        sender.hold(1, state())
    assert isinstance(sender.error, headway.Conflict)
    with plane.changed:
        plane.refusal = None
    sender.hold(1, state())
    assert sender.error is None


def test_another_process_of_the_name(plane: Plane, sender: Sender) -> None:
    """It is over for good, with an error that no trainer takes for a lost lease."""
    sender.hold(1, state())
    member = Member(plane, "engine-0", "g0")
    with plane.changed:
        plane.refusal = {"code": "expired", "message": "another process has come under this name"}
        plane.changed.notify_all()
    assert "failed" in member.fails()
    sender._thread.join(LIMIT)
    assert not sender._thread.is_alive()
    with plane.changed:
        plane.refusal = None
        asked = len(plane.said)
    for _ in range(2):
        with pytest.raises(headway.Conflict, match="another process has come") as caught:
            sender.hold(2, state())
        assert sender.error is caught.value
        assert (caught.value.code, caught.value.status) == ("expired", 410)
    sender.close()
    assert len(plane.said) == asked


def test_versions_that_are_not_held(plane: Plane, sender: Sender) -> None:
    """They come from the store, with the digest of the same weights held; what is not there is said."""
    weights = {"a": np.ones((3, 2), np.float32), "b": arrays.narrow(np.ones(3)), "c": np.zeros((), np.float32)}
    plane.weights = {0: weights, 7: {}}
    stored = plane.do("hold", "engine-0", 0)
    assert [t["name"] for t in stored["tensors"]] == ["a", "b", "c"]
    assert [t["dtype"] for t in stored["tensors"]] == ["float32", "bfloat16", "float32"]
    sender.hold(1, dict(reversed(list(as_tensors(weights).items()))))
    assert plane.do("hold", "engine-0", 1) | {"seq": 0} == stored | {"seq": 0}
    assert "no weights of it" in plane.do("hold", "engine-0", 7)["error"]
    assert "no version 8" in plane.do("hold", "engine-0", 8)["error"]


def test_a_version_that_is_nowhere(plane: Plane, sender: Sender, caplog: pytest.LogCaptureFixture) -> None:
    """After a restart engines ask for what the process before had: it is said in one line, however often they ask."""
    plane.weights = {6: {}, 7: {}}
    for engine, version in (("engine-0", 7), ("engine-1", 7), ("engine-1", 6), ("engine-0", 7)):
        assert "error" in plane.do("hold", engine, version)
    (said,) = [record.getMessage() for record in caplog.records if record.name == "headway.sender"]
    assert said.startswith("version 7 is neither held here nor stored")
    sender.hold(8, {"w": torch.ones(2)})
    assert "error" in plane.do("send", "engine-0", 8, group="g0")
    assert "engine engine-0: send of version 8 failed" in caplog.text


def test_source(plane: Plane) -> None:
    """Another place to take versions from; what goes wrong there is said to the engine."""

    def source(version: int) -> dict[str, torch.Tensor]:
        if version:
            raise OSError("the disk is gone")
        return {"w": torch.ones(2)}

    with Sender(plane.url, source=source):
        assert plane.do("hold", "engine-0", 0)["tensors"] == [{"name": "w", "dtype": "float32", "shape": [2]}]
        assert plane.do("hold", "engine-0", 1)["error"] == "the disk is gone"


def test_copies(plane: Plane, sender: Sender) -> None:
    """The newest are kept, and what an engine was promised; of that no more than of the newest."""
    weights = {"w": torch.ones(2)}
    for version in range(1, 4):
        sender.hold(version, weights)
    assert sender.holds == [2, 3]
    plane.do("hold", "engine-0", 2)
    for version in range(4, 7):
        sender.hold(version, weights)
    assert sender.holds == [2, 5, 6] == plane.holds
    Member(plane, "engine-0", "g0").receive(2)
    sender.hold(7, weights)
    assert sender.holds == [6, 7]
    sender.drop(7)
    assert sender.holds == [6]


def test_copies_that_are_promised(plane: Plane, sender: Sender) -> None:
    """They are kept until they were sent, as many as of the newest; an engine that wants another waits for room."""
    members = [Member(plane, f"engine-{i}", f"g{i}") for i in range(3)]
    weights = {"w": torch.ones(2)}

    def promised(version: int) -> int:
        sender.hold(version, {"w": torch.full((2,), float(version))})
        return plane.give("hold", f"engine-{version - 1}", version)

    for version in (1, 2):
        assert "error" not in plane.end(promised(version))
    waits = promised(3)
    for version in (4, 5):
        sender.hold(version, weights)
        assert len(sender.holds) <= 4
    assert sender.holds == [1, 2, 4, 5]
    assert waits in plane.commands
    plane.take_back(waits)
    waits = plane.give("hold", "engine-2", 5)
    sender.hold(6, weights)
    assert waits in plane.commands
    first = plane.give("send", "engine-0", 1, group="g0")
    same(members[0].take(first, {"w": torch.empty(2)}), {"w": torch.full((2,), 1.0)})
    assert "error" not in plane.end(waits)
    sender.hold(7, weights)
    sender.hold(8, weights)
    assert sender.holds == [2, 5, 7, 8]
    second = plane.give("send", "engine-1", 2, group="g1")
    same(members[1].take(second, {"w": torch.empty(2)}), {"w": torch.full((2,), 2.0)})


def test_promises_of_engines_that_are_gone(plane: Plane) -> None:
    """Those that are in no group are kept from nobody, one that takes nothing for so long only."""
    weights = {"w": torch.ones(2)}
    with Sender(plane.url, copies=1, timeout_s=0.5) as sender:
        for version in (1, 2, 3):
            sender.hold(version, weights)
            assert "error" not in plane.do("hold", f"engine-{version}", version)
        sender.hold(4, weights)
        assert sender.holds == [3, 4]
        member = Member(plane, "engine-3", "g0")
        assert "no room for version 4" in plane.do("hold", "engine-4", 4)["error"]
        assert sender.holds == [3, 4]
        same(member.take(plane.give("send", "engine-3", 3, group="g0"), weights), weights)
        assert "error" not in plane.do("hold", "engine-4", 4)


def test_copies_while_one_is_fetched(plane: Plane) -> None:
    """It counts among them before it is there."""
    began, goes = threading.Event(), threading.Event()

    def source(version: int) -> dict[str, torch.Tensor]:
        if version == 2:
            began.set()
            assert goes.wait(LIMIT)
        return {"w": torch.full((2,), float(version))}

    with Sender(plane.url, source=source) as sender:
        for version in (1, 2):
            Member(plane, f"engine-{version}", f"g{version}")
        for version in (6, 7):
            sender.hold(version, {"w": torch.ones(2)})
        assert "error" not in plane.do("hold", "engine-1", 1)
        seq = plane.give("hold", "engine-2", 2)
        assert began.wait(LIMIT)
        assert sender.holds == [1, 6, 7]  # and the fourth on its way
        sender.hold(8, {"w": torch.ones(2)})
        assert sender.holds == [1, 7, 8]
        goes.set()
        assert "error" not in plane.end(seq)
        assert sender.holds == [1, 2, 7, 8]


@pytest.fixture
def trainers() -> Iterator[Trainers]:
    """Trainers' side of a control plane: version 3 is there, and a batch that starts from it."""
    with serving() as made:
        state = {"version": 3, "manifest": {"files": [{"name": "model.safetensors"}]}}
        stored = b"".join(arrays.File("model.safetensors", {"w": np.ones(2, np.float32)}).chunks())
        made.routes["GET /api/v1/weights/latest"] = made.routes["GET /api/v1/weights/3"] = lambda _: as_json(state)
        made.routes["GET /api/v1/weights/3/files/model.safetensors"] = lambda _: Reply(body=stored)
        made.routes["POST /api/v1/batches/lease"] = lambda _: Reply(body=body())
        made.routes["POST /api/v1/weights"] = lambda _: as_json({"version": 4})
        yield made


@pytest.fixture
def hw(trainers: Trainers) -> Iterator[headway.Client]:
    with headway.connect(trainers.url) as made:
        made.load()
        yield made


WEIGHTS = {"w": torch.ones(2)}
MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"


def test_publish(trainers: Trainers, hw: headway.Client, plane: Plane, sender: Sender) -> None:
    assert sender.publish(hw, hw.lease(), WEIGHTS) == 4
    assert plane.holds == [4]
    assert b'"rendezvous":"sender"' in trainers.seen("/api/v1/weights")[0].body


def test_checkpoints(trainers: Trainers, hw: headway.Client, sender: Sender) -> None:
    """They are so many versions apart, or the few more until one goes to the engines; counted from the one loaded."""
    stored: list[int] = []

    def optimizer() -> dict[str, Any]:
        stored.append(version)
        return {}

    hw.steps = 0
    for version in range(4, 40, 3):
        sent = {"lease": version, "version": version - 1}
        trainers.routes["POST /api/v1/batches/lease"] = lambda _, sent=sent: Reply(body=body(lease=sent))
        trainers.routes["POST /api/v1/weights"] = lambda _, version=version: as_json({"version": version})
        hw.version = version - 1  # those between were acknowledged
        sender.publish(hw, hw.lease(), WEIGHTS, optimizer=optimizer, checkpoint_every=10)
    assert stored == [13, 25, 37]
    uploaded = [b'"rendezvous"' not in request.body for request in trainers.seen("/api/v1/weights")]
    assert uploaded.count(True) == 3
    hw.steps = version = 38
    last = {"lease": 38, "version": 37}
    trainers.routes["POST /api/v1/batches/lease"] = lambda _: Reply(body=body(lease=last))
    trainers.routes["POST /api/v1/weights"] = lambda _: as_json({"version": 38})
    sender.publish(hw, hw.lease(), WEIGHTS, optimizer=optimizer, checkpoint_every=0)
    assert stored[-1] == 38, "the run's last version is stored in any case"
    trainers.routes["POST /api/v1/weights"] = lambda _: as_json({"version": 39})
    hw.restore(3, WEIGHTS)
    assert hw.stored == 39


@pytest.mark.parametrize(
    ("code", "status", "kept"),
    [
        ("expired", 410, False), ("conflict", 409, False), ("invalid", 400, False), ("not_found", 404, False),
        ("forbidden", 403, False), ("too_large", 413, False), ("disk_full", 507, False), ("busy", 429, False),
        ("unavailable", 503, True), ("internal", 500, True),
    ],
)  # fmt: skip
def test_publish_fails(
    trainers: Trainers, hw: headway.Client, sender: Sender, code: str, status: int, kept: bool
) -> None:
    """What was certainly not committed is not held: engines would be sent it under another's number."""
    trainers.routes["POST /api/v1/weights"] = lambda _: refusal(code, status)
    batch = hw.lease()
    hw._transport.patience_s = 0.0
    with pytest.raises(headway.HeadwayError) as caught:
        sender.publish(hw, batch, WEIGHTS)
    assert caught.value.code == code
    assert sender.holds == ([4] if kept else [])


def test_publish_that_may_have_been_committed(trainers: Trainers, hw: headway.Client, sender: Sender) -> None:
    """No answer, and then a refusal of the moment, say nothing of the first try."""
    replies = [refusal("disk_full", 507), Reply(drop=True)]
    trainers.routes["POST /api/v1/weights"] = lambda _: replies.pop() if len(replies) > 1 else replies[0]
    batch = hw.lease()
    hw._transport.patience_s = 0.3
    with pytest.raises(headway.DiskFull):
        sender.publish(hw, batch, WEIGHTS)
    assert sender.holds == [4]


def test_publish_that_is_interrupted(
    hw: headway.Client, plane: Plane, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the request is made nothing is committed; after it that is not known."""
    batch = hw.lease()

    def interrupted(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sender.publish(hw, batch, WEIGHTS, optimizer=interrupted, checkpoint_every=1)
    assert sender.holds == []
    with plane.changed:
        plane.refusal = {"code": "conflict", "message": "another process is the sender"}
    with pytest.raises(headway.Conflict):
        sender.publish(hw, batch, WEIGHTS)
    assert sender.holds == []
    with plane.changed:
        plane.refusal = None
    monkeypatch.setattr("headway.publication.send", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sender.publish(hw, batch, WEIGHTS)
    assert sender.holds == [4]


def test_a_restore_takes_the_number(trainers: Trainers, hw: headway.Client, sender: Sender) -> None:
    """What was held of a version that became another is forgotten before that one is there."""
    trainers.routes["POST /api/v1/weights"] = lambda _: Reply(drop=True)
    batch = hw.lease()
    hw._transport.patience_s = 0.0
    with pytest.raises(headway.Unavailable):
        sender.publish(hw, batch, WEIGHTS)
    sender.hold(2, WEIGHTS)
    assert sender.holds == [2, 4]
    held: list[list[int]] = []

    def restored(_: object) -> Reply:
        held.append(sender.holds)
        return as_json({"version": 4})

    trainers.routes["POST /api/v1/weights"] = restored
    assert hw.restore(3, WEIGHTS) == 4
    assert held == [[2]]
    sender.hold(5, WEIGHTS)
    trainers.routes["POST /api/v1/trainers/connect"] = lambda _: as_json({**CONNECTED, "version": 4, "load": 3})
    hw.reconnect()
    hw.load()
    assert held == [[2], [2]]


def test_a_version_that_is_replaced(plane: Plane, sender: Sender) -> None:
    """An engine is sent what it was told, or nothing."""
    member = Member(plane, "engine-0", "g0")
    sender.hold(1, {"w": torch.ones(2)})
    assert "not asked for" in plane.do("send", "engine-0", 1, group="g0")["error"]
    member = Member(plane, "engine-0", "g1")
    plane.do("hold", "engine-0", 1)
    sender.hold(1, {"w": torch.zeros(2)})
    assert "other weights" in plane.do("send", "engine-0", 1, group="g1")["error"]
    assert "failed" in member.fails()
    member = Member(plane, "engine-0", "g2")
    plane.do("hold", "engine-0", 1)
    sender.drop(1)
    assert "not held any more" in plane.do("send", "engine-0", 1, group="g2")["error"]
    member = Member(plane, "engine-0", "g3")
    sender.hold(1, {"w": torch.ones(2)})
    plane.do("hold", "engine-0", 1)
    sender.hold(1, {"w": torch.ones(2)})  # a publish that is made again, say
    taken = member.take(plane.give("send", "engine-0", 1, group="g3"), {"w": torch.empty(2)})
    same(taken, {"w": torch.ones(2)})


def test_refusals(plane: Plane, sender: Sender) -> None:
    """What cannot be sent is refused where it is held, and what was held before stays."""
    sender.hold(1, state())
    bad: list[tuple[dict[str, Any], str]] = [
        ({}, "empty"), ({"w": torch.tensor([1.0, float("nan")])}, "not finite"),
        ({"w": arrays.narrow(np.array([np.inf]))}, "not finite"), ({"w": torch.ones(2, dtype=torch.int16)}, "int16"),
        ({"w": torch.eye(2).to_sparse()}, "sparse"), ({"w": torch.empty(2, device="meta")}, "meta"),
        ({"w": "text"}, "str"), ({"": torch.ones(1)}, "name"), ({"w": torch.ones(1).to(torch.float8_e4m3fn)}, "gloo"),
    ]  # fmt: skip
    for given, said in bad:
        with pytest.raises(headway.Invalid, match=said):
            sender.hold(2, given)
    with pytest.raises(headway.Invalid, match="version -1"):
        sender.hold(-1, state())
    assert sender.holds == [1]
    with Sender(plane.url) as other:
        other.hold(2, {"w": torch.full((4,), 3e38), "none": torch.empty(0)})  # large, and finite
    assert "knows no command" in plane.do("dance", "engine-0")["error"]
    for wrong in ({"backend": "mpi"}, {"device": "cuda"}, {"copies": 0}, {"timeout_s": 0}, {"host": "no such host"}):
        with pytest.raises(headway.Invalid):
            Sender(plane.url, **wrong)


def test_another_model(trainers: Trainers, hw: headway.Client, plane: Plane, sender: Sender) -> None:
    """Engines would refuse it version after version: it is refused where it is held, and nothing is published."""
    tensors = [
        {"name": "w", "dtype": "F32", "shape": [2], "file": MODEL},
        {"name": "m/w", "dtype": "F32", "shape": [2], "file": OPTIMIZER},
    ]
    first = {"version": 3, "manifest": {"files": [], "tensors": tensors}}
    trainers.routes["GET /api/v1/weights/3"] = lambda _: as_json(first)
    batch = hw.lease()
    with pytest.raises(headway.Invalid, match=r"v is new; w has the shape \[3\], not \[2\]"):
        sender.publish(hw, batch, {"w": torch.ones(3), "v": torch.ones(1)})
    with pytest.raises(headway.Invalid, match="w is bfloat16, not float32"):
        sender.publish(hw, batch, {"w": torch.ones(2, dtype=torch.bfloat16)})
    assert sender.holds == []
    assert not trainers.seen("/api/v1/weights")
    assert sender.publish(hw, batch, WEIGHTS) == 4
    with pytest.raises(headway.Invalid, match="w is missing"):
        sender.hold(5, {"v": torch.ones(2)})
    assert plane.holds == [4]


def test_another_type(plane: Plane, sender: Sender) -> None:
    """A trainer's float32 is not sent beside versions that are stored as bfloat16, nor the other way round."""
    bits = {"w": arrays.narrow(np.ones(2))}
    plane.weights = {0: bits, 2: {"w": np.ones(2, np.float32)}}
    assert plane.do("hold", "engine-0", 0)["tensors"] == [{"name": "w", "dtype": "bfloat16", "shape": [2]}]
    with pytest.raises(headway.Invalid, match=r"version 1 is another model.*: w is float32, not bfloat16"):
        sender.hold(1, {"w": torch.ones(2)})
    sender.hold(1, bits)
    assert "w is float32, not bfloat16" in plane.do("hold", "engine-0", 2)["error"]
    assert plane.holds == [0, 1]


#: A trainer that forgets to close its sender, with a group that stands.
CARELESS = """
import sys
sys.path.insert(0, sys.argv[2])
from headway.torch import Sender
import torch

sender = Sender(sys.argv[1])
sender.hold(1, {"w": torch.ones(2)})
sys.stdin.readline()
raise SystemExit("the trainer's own error")
"""


def test_a_trainer_that_ends_without_closing(plane: Plane) -> None:
    """It leaves in order, with its groups, and its own error is the last that is said."""
    command = [sys.executable, "-c", CARELESS, plane.url, str(ROOT / "clients" / "python" / "src")]
    careless = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        Member(plane, "engine-0", "group")
        _, said = careless.communicate("\n", timeout=100)
    finally:
        careless.kill()
    assert said == "the trainer's own error\n"
    assert careless.returncode == 1
    assert [told["leaving"] for told in plane.said].count(True) == 1


def test_leaving(plane: Plane) -> None:
    """It says so, once, and nothing after it."""
    sender = Sender(plane.url)
    sender.hold(1, state())
    sender.close()
    sender.close()
    assert [said["leaving"] for said in plane.said].count(True) == 1
    with pytest.raises(headway.Invalid, match="closed"):
        sender.hold(2, state())


def test_replies_that_come_late(plane: Plane, sender: Sender) -> None:
    """A reply to what was asked before a command was learned gives nothing up, and does nothing twice."""
    member = Member(plane, "engine-0", "g0")
    sender.hold(1, state())
    plane.do("hold", "engine-0", 1)
    sending = plane.give("send", "engine-0", 1, group="g0")
    plane.until(lambda: any(sending in said["knows"] for said in plane.said))
    with sender._lock:
        known, listed = sender._commands[sending], dict(plane.commands[sending])
        sender._heed(known.since, {"commands": [], "groups": ["g0"]})
        assert sender._commands[sending] is known
        assert not known.stop.is_set()
    same(member.take(sending, as_tensors(state())), as_tensors(state()))
    plane.until(lambda: sending not in plane.said[-1]["knows"])
    with sender._lock:
        sender._heed(known.since, {"commands": [listed], "groups": ["g0"]})
        assert not sender._commands


def test_threads_that_do_not_start(plane: Plane, sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command fails and a group waits to be left; the sender goes on, and does both when it can again."""
    sender.hold(1, state())
    member = Member(plane, "engine-0", "g0")
    tried: list[str] = []

    def start(name: str, *_: object) -> None:
        with plane.changed:
            tried.append(name)
            plane.changed.notify_all()
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(sender, "_start", start)
        assert "can't start new thread" in plane.do("hold", "engine-0", 1)["error"]
        assert plane.said[-1]["holds"] == [1]
        plane.take_back(0, "g0")
        plane.until(lambda: len(tried) > 1)
    assert tried[0] == "headway-sender-engine-0"
    assert set(tried[1:]) == {"headway-part-g0"}
    assert "error" not in plane.do("hold", "engine-0", 1)
    assert "failed" in member.fails()
    same(Member(plane, "engine-0", "g1").receive(1), as_tensors(state()))


def done(sender: Sender, sizes: list[int]) -> set[int]:
    """Have it say that commands are done, each with so many bytes; their numbers."""
    said = {seq: json.dumps({"seq": seq, "digest": "x" * size}) for seq, size in enumerate(sizes, 10**6)}
    with sender._lock:
        for seq, text in said.items():
            sender._outbox.put(seq, text)
    return set(said)


def test_more_to_say_than_fits(plane: Plane, sender: Sender) -> None:
    """It is said in several requests, at once, and each is counted as said when it was."""
    sender._outbox._bytes_max = 1000
    wanted = done(sender, [400] * 9 + [5000])
    sender.hold(1, {"w": torch.ones(2)})
    with sender._lock:
        assert not sender._outbox._waiting
        assert wanted <= set(sender._outbox._over)
    with plane.changed:
        said = [(s["wait_s"], [d["seq"] for d in s["done"]]) for s in plane.said if s["done"]]
    assert {seq for _, seqs in said for seq in seqs} == wanted
    assert max(len(seqs) for _, seqs in said) == 2
    assert all(wait_s == 0.0 for wait_s, seqs in said if max(wanted) not in seqs)


def test_more_to_say_than_is_taken(plane: Plane, sender: Sender) -> None:
    """A refusal of size gives nothing up: less is said, and of what alone is too large, that it is."""
    member = Member(plane, "engine-0", "g0")
    plane.bytes_max = 10_000
    wanted = done(sender, [4000] * 6 + [20_000])
    sender.hold(1, state())
    with plane.changed:
        said = {d["seq"]: d for s in plane.said for d in s["done"]}
    assert wanted <= set(said)
    assert [seq for seq in wanted if "error" in said[seq]] == [max(wanted)]
    assert "too large" in said[max(wanted)]["error"]
    assert sender.error is None
    plane.bytes_max = 10
    with pytest.raises(headway.TooLarge):  # it is not what is done that is large
        sender.hold(2, state())
    plane.bytes_max = 0
    same(member.receive(1), as_tensors(state()))


def test_a_defect_in_a_reply(plane: Plane, sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not end the sender."""
    monkeypatch.setattr("headway.sender._REFUSED_S", 0.0)
    heed, calls = sender._heed, threading.Semaphore(1)

    def fails(number: int, reply: Any) -> None:
        if calls.acquire(blocking=False):
            raise RuntimeError("a defect")
        heed(number, reply)

    monkeypatch.setattr(sender, "_heed", fails)
    plane.weights = {0: {"w": np.ones(2, np.float32)}}
    assert "error" not in plane.do("hold", "engine-0", 0)
    assert sender._thread.is_alive()


class TestDigest:
    """Equal weights have equal digests, and others have others."""

    @staticmethod
    def of(**given: Any) -> str:
        held = collective.copied(collective.checked(given, "gloo"), torch.device("cpu"))
        return held.digest()

    def test_equal(self) -> None:
        w = torch.randn(3, 50)
        assert self.of(a=w, b=w) == self.of(b=w.clone(), a=w.T.contiguous().T) == self.of(a=w.numpy(), b=w)

    def test_others(self) -> None:
        w = torch.randn(64).view(torch.int32)
        w[0], w[40] = 5, 9
        swapped = w.clone()
        swapped[[0, 40]] = w[[40, 0]]
        signs = w.clone()
        signs[[1, 3]] ^= -(2**31)
        bit = w.clone()
        bit[63] ^= 1
        variants = [
            {"a": w}, {"a": swapped}, {"a": signs}, {"a": bit}, {"a": w.view(torch.float32)}, {"a": w.view(8, 8)},
            {"b": w}, {"a": w[:63]}, {"a": w, "b": w}, {"a": w[:0]},
        ]  # fmt: skip
        digests = [self.of(**{k: v for k, v in given.items()}) for given in variants]
        assert len(set(digests)) == len(digests)

    def test_chunks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two chunks that change places make another digest."""
        monkeypatch.setattr(collective, "_CHUNK", 4)
        w = torch.arange(16)
        assert self.of(a=w) != self.of(a=torch.cat([w[4:8], w[:4], w[8:]]))


def test_beside_a_group_of_the_trainers(plane: Plane, sender: Sender) -> None:
    """A trainer that has a default group of its own is in no engine's, and the other way round."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    try:
        sender.hold(1, state())
        member = Member(plane, "engine-0", "g0")
        same(member.receive(1), as_tensors(state()))
        member.close()
    finally:
        dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
