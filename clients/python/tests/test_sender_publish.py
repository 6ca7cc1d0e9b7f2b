"""A publish by a sender: what is held, what is stored, and what becomes of both where it fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from collectives import Plane
from faulty import CONNECTED, Reply, as_json, body, refusal, serving
from faulty import Server as Trainers

import headway
from headway import tensors as arrays

torch = pytest.importorskip("torch")

from headway.torch import Sender  # noqa: E402


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
