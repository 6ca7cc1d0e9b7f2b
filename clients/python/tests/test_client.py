"""The protocol of a trainer against a server whose faults are chosen; `test_serve.py` has the real one."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty import CONNECTED, Reply, Request, Server, as_json, body, refusal, serving

import headway
from headway import errors, tensors
from headway.publication import measured

LEASE, RENEW = "/api/v1/batches/lease", "/api/v1/batches/11/renew"
WEIGHTS = {"w": np.ones(3, np.float32)}


def model(value: float = 1.0) -> bytes:
    return b"".join(bytes(c) for c in tensors.File("m", {"w": np.full(3, value, np.float32)}).chunks())


@pytest.fixture
def server() -> Iterator[Server]:
    """Version 3 is there, and one batch that starts from it; then the run ends."""
    with serving() as made:
        state = {
            "version": 3,
            "manifest": {"files": [{"name": "model.safetensors"}, {"name": "optimizer.safetensors"}]},
        }
        made.routes["GET /api/v1/weights/latest"] = lambda _: as_json(state)
        made.routes["GET /api/v1/weights/3"] = lambda _: as_json(state)
        made.routes["GET /api/v1/weights/3/files/model.safetensors"] = lambda _: Reply(body=model())
        made.routes["GET /api/v1/weights/3/files/optimizer.safetensors"] = lambda _: Reply(body=model(2))
        made.routes[f"POST {LEASE}"] = once(Reply(body=body()), Reply(205))
        made.routes[f"POST {RENEW}"] = lambda _: as_json({"deadline_s": 0.05})
        made.routes["POST /api/v1/weights"] = lambda _: as_json({"version": 4, "existing": False})
        made.routes["POST /api/v1/batches/11/nack"] = lambda _: Reply(204)
        made.routes["POST /api/v1/batches/11/ack"] = lambda _: as_json({"version": 4})
        yield made


def once(first: Reply, then: Reply) -> Callable[[Request], Reply]:
    replies = [first]
    return lambda _: replies.pop() if replies else then


def loaded(server: Server, **options: Any) -> headway.Client:
    hw = headway.connect(server.url, **options)
    hw.load()
    return hw


def test_a_run(server: Server) -> None:
    with headway.connect(server.url) as hw:
        assert (hw.action, hw.newest, hw.next, hw.version, hw.config) == ("load", 3, 4, -1, {"seed": 1})
        assert hw.load()["w"].tolist() == [1, 1, 1]
        assert hw.optimizer()["w"].tolist() == [2, 2, 2]
        seen = []
        for batch in hw.batches():
            seen.append(batch.lease)
            batch.stamp_forward()
            assert hw.publish(batch, WEIGHTS, optimizer=WEIGHTS, metrics={"loss": np.float32(0.5)}) == 4
        assert (seen, hw.version, hw.next) == ([11], 4, 5)
    sent = server.seen("/api/v1/weights")[0]
    assert int(sent.headers["Content-Length"]) == len(sent.body)
    assert b'"forward_version":3,"step_version":3' in sent.body
    assert b'"metrics":{"loss":0.5}' in sent.body
    assert sent.body.index(b'name="manifest"') < sent.body.index(b'name="model.safetensors"')
    assert sent.body.index(b'name="model.safetensors"') < sent.body.index(b'name="optimizer.safetensors"')
    assert len([t for t in threading.enumerate() if t.name.startswith("headway-lease")]) == 0


def test_renewed(server: Server) -> None:
    server.routes[f"POST {LEASE}"] = once(Reply(body=body(lease={"deadline_s": 0.05})), Reply(205))
    with loaded(server) as hw:
        for batch in hw.batches():
            server.wait_for(RENEW, 3)
            assert not batch.expired
            hw.publish(batch, WEIGHTS)
        count = len(server.seen(RENEW))
    assert server.seen(RENEW)[0].json == {"trainer": "trainer", "attempt": 0, "rank": 0}
    assert len(server.seen(RENEW)) == count


def test_lost(server: Server) -> None:
    """A renewal that is refused marks the batch; its publish raises, and nothing goes on before a load."""
    server.routes[f"POST {LEASE}"] = once(Reply(body=body(lease={"deadline_s": 0.05})), Reply(204))
    server.routes[f"POST {RENEW}"] = lambda _: refusal("expired", 410)
    server.routes["POST /api/v1/weights"] = lambda _: refusal("expired", 410)
    with loaded(server) as hw:
        batches = hw.batches()
        batch = next(batches)
        assert batch._renewal is not None
        assert batch._renewal.lost.wait(20)
        assert batch.expired
        with pytest.raises(headway.LeaseExpired):
            hw.publish(batch, WEIGHTS)
        with pytest.raises(headway.Conflict, match="load"):
            next(batches)
        hw.load()
        server.routes[f"POST {LEASE}"] = lambda _: Reply(205)
        assert list(hw.batches()) == []


def test_renewal_outlives_a_restart(server: Server) -> None:
    """A server that is away for a while is no lost lease."""
    server.routes[f"POST {LEASE}"] = once(Reply(body=body(lease={"deadline_s": 0.05})), Reply(205))
    server.routes[f"POST {RENEW}"] = lambda _: Reply(drop=True)
    with loaded(server) as hw:
        for batch in hw.batches():
            server.wait_for(RENEW, 4)
            server.routes[f"POST {RENEW}"] = lambda _: as_json({"deadline_s": 0.05})
            server.wait_for(RENEW, 7)
            assert not batch.expired
            hw.publish(batch, WEIGHTS)


def test_step_s_max(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """A trainer that hangs loses its lease, and is told so."""
    server.routes[f"POST {LEASE}"] = once(Reply(body=body(lease={"deadline_s": 0.05})), Reply(205))
    with loaded(server, step_s_max=0.01) as hw:
        batch = hw.lease()
        assert batch._renewal is not None
        batch._renewal._thread.join(timeout=20)
        assert not batch._renewal._thread.is_alive()
        assert len(server.seen(RENEW)) <= 1
        assert "lease 11 has been kept for 0.01 s" in caplog.text


def test_publish_again_is_the_same(server: Server) -> None:
    """A publish whose answer was lost is sent whole again under one key."""
    server.routes["POST /api/v1/weights"] = once(Reply(drop=True), as_json({"version": 4, "existing": True}))
    with loaded(server) as hw:
        for batch in hw.batches():
            assert hw.publish(batch, WEIGHTS) == 4
    first, second = server.seen("/api/v1/weights")
    assert first.body == second.body
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]


def test_a_directory_by_the_name_it_has(server: Server, tmp_path: Path) -> None:
    """The server compares the name with those that it allows: links in it stay."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "model.safetensors").write_bytes(model())
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    with loaded(server) as hw:
        for batch in hw.batches():
            assert hw.publish(batch, weights_dir=tmp_path / "other" / ".." / "link") == 4
    assert server.seen("/api/v1/weights")[0].json["directory"] == str(tmp_path / "link")


def test_left_early(server: Server) -> None:
    """A batch whose loop ends by an exception goes back at once."""
    with loaded(server) as hw:
        batches = hw.batches()
        next(batches)
        batches.close()  # type: ignore[attr-defined]
    assert server.seen("/api/v1/batches/11/nack")[0].json["failed"] is False


def test_validation_left_early(server: Server) -> None:
    """The batch that is trained on stays leased."""
    with loaded(server) as hw:
        batch = hw.lease()
        server.routes[f"POST {LEASE}"] = lambda _: Reply(body=body(lease={"lease": 0, "kind": "validation"}))
        validation = hw.batches("validation")
        next(validation)
        validation.close()  # type: ignore[attr-defined]
        assert hw.publish(batch, WEIGHTS) == 4
    assert not server.seen("/api/v1/batches/11/nack")


def test_no_wait_is_a_short_one(server: Server) -> None:
    """A loop that asks with wait_s=0 does not ask as fast as it can."""

    class Pauses(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout)
            return False

    pauses: list[float | None] = []
    replies = [Reply(205), Reply(204), Reply(204)]
    server.routes[f"POST {LEASE}"] = lambda _: replies.pop()
    with loaded(server) as hw:
        hw._transport.stopped = Pauses()
        assert list(hw.batches(wait_s=0)) == []
    assert pauses == [0.05, 0.05]


def test_forgotten(server: Server) -> None:
    with loaded(server) as hw:
        batches = hw.batches()
        next(batches)
        with pytest.raises(headway.Invalid, match="batch 11 was neither published, acked nor nacked"):
            next(batches)


def test_ended_twice(server: Server) -> None:
    server.routes["POST /api/v1/trainers/connect"] = lambda _: as_json({**CONNECTED, "sync_every": 5})
    with loaded(server) as hw:
        batch = hw.lease()
        assert hw.ack(batch, {"loss": 1.0}) == 4
        for end in (lambda: hw.ack(batch), lambda: hw.nack(batch), lambda: hw.publish(batch, WEIGHTS)):
            with pytest.raises(headway.Invalid, match="already"):
                end()
        assert server.seen("/api/v1/batches/11/ack")[0].json["metrics"] == {"loss": 1.0}


def test_nack(server: Server) -> None:
    with loaded(server) as hw:
        for batch in hw.batches():
            hw.nack(batch, "out of memory" * 1000, failed=True)
    said = server.seen("/api/v1/batches/11/nack")
    assert [(r.json["reason"], r.json["failed"]) for r in said] == [(("out of memory" * 1000)[:4096], True)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "one of"),
        ({"state_dict": WEIGHTS, "rendezvous": "r"}, "one of"),
        ({"state_dict": {}}, "empty"),
        ({"state_dict": {"w": np.array([np.nan], np.float32)}}, "not finite"),
        ({"state_dict": WEIGHTS, "optimizer": {"m": np.array([np.inf])}}, "optimizer tensor 'm'"),
        ({"state_dict": WEIGHTS, "metrics": {"loss": float("nan")}}, "metric 'loss'"),
        ({"state_dict": WEIGHTS, "metrics": {"loss": "abc"}}, "metric 'loss' is 'abc'"),
        ({"state_dict": WEIGHTS, "metrics": {"loss": [1, 2]}}, "metric 'loss' is"),
        ({"state_dict": WEIGHTS, "metrics": {"loss": 10**400}}, "metric 'loss' is"),
        ({"weights_dir": "/nonexistent"}, "no .*safetensors"),
        ({"state_dict": [np.ones(1)]}, "state_dict is a list"),
        ({"state_dict": WEIGHTS, "optimizer": 3}, "optimizer is a int"),
        ({"state_dict": WEIGHTS, "metrics": ["loss"]}, "metrics is a list"),
    ],
)
def test_refused_before_it_is_sent(server: Server, arguments: dict[str, Any], message: str) -> None:
    with loaded(server) as hw:
        batch = hw.lease()
        with pytest.raises(headway.Invalid, match=message):
            hw.publish(batch, **arguments)
        with pytest.raises(headway.Invalid, match="3 is no batch"):
            hw.publish(3, WEIGHTS)  # type: ignore[arg-type]
        assert server.seen("/api/v1/weights") == []
        hw.publish(batch, WEIGHTS)  # the batch is still ours


class OnDevice:
    """As a tensor on an accelerator: a number for Python, and none for numpy."""

    def __float__(self) -> float:
        return 0.5

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("can't convert to numpy")


def test_metrics_of_any_library() -> None:
    numbers: list[Any] = [0.5, np.float32(0.5), np.array(0.5), OnDevice()]
    assert [measured({"loss": number}) for number in numbers] == [{"metrics": {"loss": 0.5}}] * 4


@pytest.mark.filterwarnings("error")
def test_metrics_of_torch() -> None:
    """A loss with its gradient, and of a type that numpy has not."""
    torch = pytest.importorskip("torch")
    with_gradient = torch.ones(1, requires_grad=True).sum() / 2
    for number in (with_gradient, torch.tensor(0.5, dtype=torch.bfloat16)):
        assert measured({"loss": number}) == {"metrics": {"loss": 0.5}}
    with pytest.raises(headway.Invalid, match="metric 'loss' is"):
        measured({"loss": torch.ones(2)})


def test_must_load_first(server: Server) -> None:
    with headway.connect(server.url) as hw:
        with pytest.raises(headway.Conflict, match="load first"):
            hw.lease()
        with pytest.raises(headway.Invalid, match=r"load\(\) first"):
            hw.optimizer()


def test_initialize(server: Server) -> None:
    nothing = {**CONNECTED, "action": "initialize", "version": -1, "next": 0}
    server.routes["POST /api/v1/trainers/connect"] = lambda _: as_json(nothing)
    server.routes["POST /api/v1/weights"] = lambda _: as_json({"version": 0})
    with headway.connect(server.url) as hw:
        with pytest.raises(headway.NotFound, match="initialize"):
            hw.load()
        assert hw.publish(None, WEIGHTS) == 0
        assert (hw.action, hw.version, hw.next) == ("train", 0, 1)
    assert b'"lease":0,' in server.seen("/api/v1/weights")[0].body


def test_other_start(server: Server) -> None:
    """A batch from another version than the one that is held is not trained on."""
    server.routes[f"POST {LEASE}"] = once(Reply(body=body(lease={"version": 5})), Reply(205))
    with loaded(server) as hw, pytest.raises(headway.Conflict, match="starts from version 5, and this trainer holds 3"):
        hw.lease()


def test_ranks(server: Server) -> None:
    """Every rank connects and leases its share; rank 0 alone publishes."""
    share = body(lease={"rank": 1, "world_size": 2})
    server.routes[f"POST {LEASE}"] = once(Reply(body=share), Reply(205))
    with loaded(server, rank=1, world_size=2) as hw:
        for batch in hw.batches():
            assert hw.publish(batch, WEIGHTS) == 4
    connect = server.seen("/api/v1/trainers/connect")[0].json
    assert (connect["rank"], connect["world_size"]) == (1, 2)
    first, second = (r.json for r in server.seen(LEASE))
    assert (first["rank"], first["world_size"]) == (1, 2)
    assert (second["after"], second["after_attempt"]) == (11, 0)
    assert server.seen("/api/v1/weights") == []


def test_rank_keeps_the_lease(server: Server) -> None:
    """A rank that has finished its share renews until the step has ended; that it has is no loss."""
    share = body(lease={"rank": 1, "world_size": 2, "deadline_s": 0.05})
    server.routes[f"POST {LEASE}"] = once(Reply(body=share), Reply(205))
    with loaded(server, rank=1, world_size=2) as hw:
        batch = hw.lease()
        hw.publish(batch, WEIGHTS)
        server.wait_for(RENEW, len(server.seen(RENEW)) + 3)
        server.routes[f"POST {RENEW}"] = lambda _: refusal("expired", 410)
        assert batch._renewal is not None
        batch._renewal._thread.join(timeout=20)
        assert not batch._renewal._thread.is_alive()
        assert not batch.expired


@pytest.mark.parametrize(("version", "found"), [(2, "starts from version 2"), (6, "starts from version 6")])
def test_rank_is_apart(server: Server, version: int, found: str) -> None:
    """A rank whose weights are not those that the batch starts from says so, until it has loaded."""
    share = {"rank": 1, "world_size": 2, "version": version}
    versions = np.where(np.frombuffer(b"\0\0\0\1\1\0\0\0\1\0\0\0\0\1\1\0\0\0\0\1", np.uint8) == 1, 2, -1)
    server.routes[f"POST {LEASE}"] = lambda _: Reply(body=body(lease=share, versions=versions.astype(np.int32)))
    with loaded(server, rank=1, world_size=2) as hw:
        with pytest.raises(headway.Conflict, match=found):
            hw.lease()
        with pytest.raises(headway.Conflict, match="load"):
            hw.lease()
        hw.load()
        hw.version = version
        assert hw.lease().version == version


def test_rank_restores(server: Server) -> None:
    """Rank 0 alone publishes the earlier state."""
    restored = as_json({"version": 4, "manifest": {"restored_from": 2}})
    server.routes["GET /api/v1/weights/4"] = once(refusal("not_found", 404), restored)
    with loaded(server, rank=1, world_size=2) as hw:
        assert hw.restore(2, WEIGHTS) == 4
        assert hw.version == 4
    assert server.seen("/api/v1/weights") == []


def test_skipped_versions(server: Server) -> None:
    """Where the newest versions have no weights, the last that has some becomes the next version."""
    reply = {**CONNECTED, "version": 5, "next": 6, "load": 3, "sync_every": 4}
    server.routes["POST /api/v1/trainers/connect"] = lambda _: as_json(reply)
    server.routes["POST /api/v1/weights"] = lambda _: as_json({"version": 6})
    with headway.connect(server.url) as hw:
        assert hw.load()["w"].tolist() == [1, 1, 1]
        assert (hw.version, hw.next) == (6, 7)
    assert b'"restored_from":3' in server.seen("/api/v1/weights")[0].body


def test_lost_after_versions_that_were_sent(server: Server) -> None:
    """Versions that a sender has sent are not stored: what a lost lease leaves is the last one before them."""
    refused = once(as_json({"version": 4}), refusal("expired", 410))
    server.routes["POST /api/v1/weights"] = refused
    second = {"lease": 12, "version": 4}
    server.routes[f"POST {LEASE}"] = once(Reply(body=body()), Reply(body=body(lease=second)))
    with loaded(server) as hw:
        assert hw.publish(hw.lease(), rendezvous="sender") == 4
        batch = hw.lease()
        with pytest.raises(headway.LeaseExpired):
            hw.publish(batch, rendezvous="sender")
        reply = {**CONNECTED, "version": 4, "next": 5, "load": 3}
        server.routes["POST /api/v1/trainers/connect"] = lambda _: as_json(reply)
        server.routes["POST /api/v1/weights"] = lambda _: as_json({"version": 5})
        assert hw.load()["w"].tolist() == [1, 1, 1]
        assert (hw.version, hw.next) == (5, 6)
    said = [r.body for r in server.seen("/api/v1/weights")]
    assert [b'"rendezvous":"sender"' in body for body in said] == [True, True, False]
    assert b'"restored_from":3' in said[2]


def test_engines_that_wait_for_a_sender(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """A trainer that publishes files to a run whose engines take none is told so, once, when no batch comes."""
    engines = [{"name": "engine-0", "weights": "distributed"}, {"name": "engine-1", "weights": "disk"}]
    connected = {**CONNECTED, "config": json.dumps({"engines": engines})}
    server.routes["POST /api/v1/trainers/connect"] = lambda _: as_json(connected)
    senders: list[Any] = [
        None, {"state": "serving", "waiting": ["engine-0"]}, {"state": "absent"},
        {"state": "absent", "waiting": ["engine-0"]},
    ]  # fmt: skip
    asked = iter(senders)
    server.routes["GET /api/v1/status"] = lambda _: as_json({"sender": next(asked)})
    replies = iter([Reply(204)] * (len(senders) + 2) + [Reply(body=body())])
    server.routes[f"POST {LEASE}"] = lambda _: next(replies)
    with headway.connect(server.url, version=3) as hw:
        hw.load()
        assert hw.distributed == ["engine-0"]
        hw.lease(wait_s=0.0)
    (said,) = [record.getMessage() for record in caplog.records if record.name == "headway.client"]
    assert "engine-0 of run test take their weights from a sender" in said
    assert "none is there" in said
    assert len(server.seen("/api/v1/status")) == len(senders)


def test_download(server: Server, tmp_path: Any) -> None:
    """A download that breaks off goes on where it was."""
    whole = model()

    def file(request: Request) -> Reply:
        if "Range" not in request.headers:
            return Reply(body=whole[:50], headers={"Content-Length": str(len(whole))})
        assert request.headers["Range"] == "bytes=50-"
        return Reply(206, whole[50:])

    server.routes["GET /api/v1/weights/3/files/model.safetensors"] = file
    with headway.connect(server.url) as hw:
        assert hw.download(tmp_path / "v3") == 3
    assert (tmp_path / "v3" / "model.safetensors").read_bytes() == whole
    assert sorted(p.name for p in (tmp_path / "v3").iterdir()) == ["model.safetensors", "optimizer.safetensors"]


def test_a_download_is_checked(server: Server, tmp_path: Any) -> None:
    """A file with another hash than its manifest's is fetched again. It is never there under its name."""
    whole = model()
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])
    listed = {"name": "model.safetensors", "hash": "sha256:" + hashlib.sha256(whole).hexdigest()}
    server.routes["GET /api/v1/weights/latest"] = lambda _: as_json({"version": 3, "manifest": {"files": [listed]}})
    bodies = [flipped, whole]
    server.routes["GET /api/v1/weights/3/files/model.safetensors"] = lambda _: Reply(body=bodies.pop(0))
    with headway.connect(server.url) as hw:
        assert hw.download(tmp_path / "v3") == 3
        assert (tmp_path / "v3" / "model.safetensors").read_bytes() == whole
        bodies += [flipped] * 3
        with pytest.raises(errors.Internal, match="headway weights verify"):
            hw.download(tmp_path / "again")
    assert not list((tmp_path / "again").iterdir())


def test_downloads_into_one_directory(server: Server, tmp_path: Path) -> None:
    """Ranks of a node may all download there: one ends while another is in the middle of the same file."""
    whole, other = model(), threading.Semaphore(1)

    def file(_: Request) -> Reply:
        if other.acquire(blocking=False):
            assert hw.download(tmp_path) == 3
        return Reply(body=whole)

    server.routes["GET /api/v1/weights/3/files/model.safetensors"] = file
    with headway.connect(server.url) as hw:
        hw.download(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert files == {"model.safetensors": whole, "optimizer.safetensors": model(2)}


def test_download_of_a_version_that_is_pruned(tmp_path: Path) -> None:
    with serving() as server:
        newest = [3]

        def manifest(_: Request) -> Reply:
            return as_json({"version": newest[0], "manifest": {"files": [{"name": "a"}, {"name": "b"}]}})

        def gone(_: Request) -> Reply:
            newest[0] = 7
            return refusal("not_found", 404)

        server.routes["GET /api/v1/weights/latest"] = manifest
        server.routes["GET /api/v1/weights/3/files/a"] = lambda _: Reply(body=b"3")
        server.routes["GET /api/v1/weights/3/files/b"] = gone
        server.routes["GET /api/v1/weights/7/files/*"] = lambda _: Reply(body=b"7")
        with headway.connect(server.url, patience_s=1.0) as hw:
            assert hw.download(tmp_path) == 7
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"a": b"7", "b": b"7"}
