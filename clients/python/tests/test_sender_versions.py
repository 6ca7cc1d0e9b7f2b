"""Which versions a sender has, for how long, and what engines are told and sent of them."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from collectives import LIMIT, Member, Plane, as_tensors, same

import headway
from headway import tensors as arrays

torch = pytest.importorskip("torch")

from headway.torch import Sender  # noqa: E402


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
