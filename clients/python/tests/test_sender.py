"""The sender against a control plane of a few lines and engines that are members of groups, over gloo."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from collectives import LIMIT, Member, Plane, as_tensors, process, same, state
from conftest import ROOT

import headway
from headway import tensors as arrays

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from headway.torch import Sender  # noqa: E402


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


def test_leaving_where_no_thread_starts(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 3.12 on Python starts none while it ends: a group in which nothing is under way is left all the same."""

    def refuse(name: str, *_: object) -> None:
        raise RuntimeError(f"can't create new thread at interpreter shutdown: {name}")

    sender = Sender(plane.url)
    member = Member(plane, "engine-0", "group")
    monkeypatch.setattr(sender, "_start", refuse)
    sender.close()
    assert "failed" in member.fails()


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


def test_a_forked_child_ends(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs what its parent registered for the end, and does not say that its parent's sender leaves."""
    registered: list[Any] = []
    monkeypatch.setattr(threading, "_register_atexit", registered.append)
    with Sender(plane.url) as sender:
        (at_exit,) = registered
        child = os.getpid() + 1
        with monkeypatch.context() as forked:
            forked.setattr(os, "getpid", lambda: child)
            at_exit()
        sender.hold(1, state())
        assert plane.holds == [1]
        at_exit()
        assert plane.left


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
