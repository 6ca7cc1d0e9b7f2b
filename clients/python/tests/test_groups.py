"""Batches by reference: the same arrays as in one piece, groups that are verified, and groups that come ahead."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Serve
from faulty import Reply, Request, Server, as_json, body, refusal, serving

import headway
from headway import errors
from headway.batch import Batch
from headway.groups import Directory, Groups, Reference
from headway.tensors import decode
from headway.transport import Transport

WHOLE = body()
ARRAYS = (
    "tokens", "offsets", "loss_mask", "logprobs", "versions", "advantages", "rewards", "groups", "samples", "rollouts",
)  # fmt: skip


def group(number: int) -> bytes:
    """The body of one of the groups of `body()`."""
    arrays, header = decode(WHOLE, "the batch")
    lease = json.loads(header["headway"])
    rows = np.flatnonzero(arrays["groups"] == number)
    first, end = int(arrays["offsets"][rows[0]]), int(arrays["offsets"][rows[-1] + 1])
    changes: dict[str, Any] = {n: arrays[n][rows] for n in ("advantages", "rewards", "groups", "samples")}
    changes |= {n: arrays[n][first:end] for n in ("tokens", "loss_mask", "logprobs", "versions")}
    changes["offsets"] = arrays["offsets"][rows[0] : rows[-1] + 2] - first
    stamps = [s for s in lease["stamps"] if s["group"] == number]
    return body(lease={"lease": 0, "rollouts": 2, "groups": 1, "tokens": end - first, "stamps": stamps}, **changes)


BODIES = {number: group(number) for number in (7, 9)}


def refer(number: int) -> dict[str, Any]:
    raw = BODIES[number]
    return {"group": number, "bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}


def listed() -> dict[str, Any]:
    said = json.loads(decode(WHOLE, "the batch")[1]["headway"])
    return {**said, "references": [refer(7), refer(9)]}


@pytest.fixture
def server() -> Iterator[Server]:
    """One batch of two groups, by reference; then the run ends."""
    with serving() as made:
        given: list[Reply] = [as_json(listed())]
        made.routes["POST /api/v1/batches/lease"] = lambda _: given.pop() if given else Reply(205)
        for number, raw in BODIES.items():
            made.routes[f"GET /api/v1/groups/{number}"] = lambda _, raw=raw: Reply(body=raw)  # type: ignore[misc]
        announced = as_json({"groups": [refer(7), refer(9)], "next": "p-2"})

        def ready(request: Request) -> Reply:
            return announced if not request.json["after"] else as_json({"groups": [], "next": "p-2"})

        made.routes["POST /api/v1/groups/ready"] = ready
        made.routes["POST /api/v1/batches/11/renew"] = lambda _: as_json({"deadline_s": 30})
        made.routes["POST /api/v1/batches/11/nack"] = lambda _: Reply(204)
        made.routes["POST /api/v1/batches/11/ack"] = lambda _: as_json({"version": 4})
        yield made


def client(server: Server, **options: Any) -> headway.Client:
    hw = headway.connect(server.url, patience_s=5.0, **{"prefetch_mb": 0, **options})
    hw.version, hw.action, hw.sync_every = 3, "train", 9
    return hw


def same(one: Batch, other: Batch) -> None:
    for name in ARRAYS:
        mine, theirs = getattr(one, name), getattr(other, name)
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), name
        assert mine.tobytes() == theirs.tobytes(), name
    assert one.agents.tolist() == other.agents.tolist()
    assert dataclasses.replace(one.metadata, deadline_s=1) == dataclasses.replace(other.metadata, deadline_s=1)


def files(path: Path) -> set[str]:
    return {file.name for file in path.iterdir()}


def until(so: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_same_arrays(server: Server) -> None:
    with client(server) as hw:
        found = hw.lease()
        same(found, headway.batch.parse(WHOLE))
        assert server.seen("/api/v1/batches/lease")[0].json["form"] == "references"
        assert not server.seen("/api/v1/groups/ready")
        hw.ack(found)


def test_flipped_byte(server: Server) -> None:
    """A body whose hash is another is fetched once more. After that the batch goes back."""
    bad = bytearray(BODIES[9])
    bad[-1] ^= 1
    given = [BODIES[9], bytes(bad)]
    server.routes["GET /api/v1/groups/9"] = lambda _: Reply(body=given.pop())
    with client(server) as hw:
        same(hw.lease(), headway.batch.parse(WHOLE))
    server.routes["GET /api/v1/groups/9"] = lambda _: Reply(body=bytes(bad))
    server.routes["POST /api/v1/batches/lease"] = lambda _: as_json(listed())
    with client(server) as hw, pytest.raises(errors.Internal, match="group 9 came 2 times with other bytes"):
        hw.lease()
    assert len(server.seen("/api/v1/batches/11/nack")) == 1


def test_another_groups_body(server: Server) -> None:
    """A reference of the wrong group holds by its hash, and is refused by what is in it."""
    said = listed()
    said["references"][1] |= {"bytes": len(BODIES[7]), "sha256": refer(7)["sha256"]}
    server.routes["POST /api/v1/batches/lease"] = lambda _: as_json(said)
    server.routes["GET /api/v1/groups/9"] = lambda _: Reply(body=BODIES[7])
    with client(server) as hw, pytest.raises(errors.Invalid, match="the body of group 9 is another group's"):
        hw.lease()
    spoils: list[tuple[Callable[[dict[str, Any]], object], str]] = [
        (lambda said: said["references"].pop(), "not to the groups that it lists"),
        (lambda said: said.pop("references"), "no references"),
        (lambda said: said["references"][0].update(sha256="x"), "no SHA-256"),
    ]
    for spoil, match in spoils:
        said = listed()
        spoil(said)
        with client(server) as hw, pytest.raises(errors.Invalid, match=match):
            hw.lease()


def test_a_group_that_is_gone(server: Server) -> None:
    """The lease is lost then: it asks again. The same lease without its group is an error."""
    server.routes["POST /api/v1/batches/lease"] = lambda _: as_json(listed())
    server.routes["GET /api/v1/groups/9"] = lambda _: refusal("not_found", 404)
    with client(server) as hw, pytest.raises(errors.NotFound):
        hw.lease()
    assert len(server.seen("/api/v1/batches/lease")) == 2


def test_an_error_ends_the_fetches(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups that are not being fetched by then are left."""

    def at_once(call: Callable[[], None]) -> Future[None]:
        done: Future[None] = Future()
        try:
            done.set_result(call())
        except errors.HeadwayError as error:
            done.set_exception(error)
        return done

    monkeypatch.setattr("headway.groups.in_thread", at_once)
    refs = [Reference.read(refer(number)) for number in (7, 9)]
    refs[1:1] = [dataclasses.replace(refs[0], group=number) for number in range(20, 40)]
    transport = Transport(server.url, patience_s=1.0)
    try:
        with pytest.raises(errors.NotFound):
            Groups(transport).bodies(refs)
    finally:
        transport.close()
    assert [request.path for request in server.requests] == ["/api/v1/groups/7", "/api/v1/groups/20"]


@pytest.mark.parametrize("shared", [False, True])
def test_ahead(server: Server, tmp_path: Path, shared: bool) -> None:
    """Announced groups are there before the lease, and go with the end of the batch."""
    cache = tmp_path / "cache" if shared else None
    with client(server, prefetch_mb=1, cache=cache) as hw:
        assert hw._groups is not None
        hw._groups.begin()
        until(lambda: all(hw._groups._cache.get(Reference.read(refer(n))) for n in BODIES))  # type: ignore[union-attr]
        server.routes["GET /api/v1/groups/*"] = lambda _: refusal("not_found", 404)
        for number in BODIES:
            del server.routes[f"GET /api/v1/groups/{number}"]
        found = hw.lease()
        same(found, headway.batch.parse(WHOLE))
        assert all(len(server.seen(f"/api/v1/groups/{number}")) == 1 for number in BODIES)
        hw.ack(found)
        assert hw._groups._cache.size() == 0


def test_bounded(server: Server) -> None:
    """What does not fit is not fetched ahead, and what is not announced any more makes room."""
    old = Reference(1, 10, "0" * 64)
    transport = Transport(server.url, patience_s=1.0)
    try:
        groups = Groups(transport, len(BODIES[7]) + 5)
        groups._cache.put(old, b"x" * 10)
        ref = Reference.read(refer(7))
        assert groups._room(ref.size)
        assert groups._cache.get(old) is None
        groups._keep(ref)
        assert groups._cache.get(ref) == BODIES[7]
        assert not groups._room(len(BODIES[9]))
    finally:
        transport.close()


def test_a_small_bound(server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of groups that are announced together, those that fit come ahead; one that never fits is said once."""
    monkeypatch.setattr("headway.groups._FULL_S", 0.01)
    refs = [Reference.read(refer(number)) for number in (7, 9)]
    large = [Reference(number, 10**6, "0" * 64) for number in (1, 2)]
    transport = Transport(server.url, patience_s=1.0)
    try:
        groups = Groups(transport, max(ref.size for ref in refs) + 5)
        keeping = threading.Thread(target=groups._keep_all, args=([large[0], *refs, large[1]],), daemon=True)
        keeping.start()
        server.wait_for("/api/v1/groups/ready", 1)  # there is no room for the second
        assert groups._cache.get(refs[0]) == BODIES[7]
        assert groups._cache.get(refs[1]) is None
        groups.drop([refs[0]])
        keeping.join(20)
        assert groups._cache.get(refs[1]) == BODIES[9]
    finally:
        transport.close()
    said = [record.getMessage() for record in caplog.records if record.name == "headway"]
    bound = groups._ahead / 1e6
    assert said == [f"group 1 has 1 MB: with prefetch_mb={bound:g} groups of this size are not fetched ahead"]


def test_directory(
    tmp_path: Path, server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks of a node share files: one fetches, a damaged file goes, and a full disk is no loss."""
    ref = Reference.read(refer(7))
    one, two = Directory(tmp_path), Directory(tmp_path)
    assert one.begin(ref)
    assert not two.begin(ref)
    one.put(ref, BODIES[7])
    assert two.get(ref) == BODIES[7]
    assert files(tmp_path) == {ref.sha256}
    (tmp_path / ref.sha256).write_bytes(BODIES[7][:-1] + b"x")
    assert two.get(ref) is None
    assert files(tmp_path) == set()
    assert one.begin(ref)
    os.utime(tmp_path / f"{ref.sha256}.part", (1, 1))  # whoever began has died
    assert two.begin(ref)
    with pytest.raises(errors.Invalid, match="no directory that can be written to"):
        Directory("/proc/nowhere")
    with pytest.raises(errors.Invalid, match="keeps nothing without prefetch_mb"):
        headway.connect(server.url, cache=tmp_path)

    transport = Transport(server.url, patience_s=1.0)
    try:
        groups = Groups(transport, 10**6, tmp_path)

        def full(_: Reference, __: bytes) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(groups._cache, "put", full)
        two.drop([ref.sha256])
        groups._keep(ref)
        assert "groups cannot be kept ahead" in caplog.text
        assert groups.bodies([ref]) == [BODIES[7]]
    finally:
        transport.close()


def test_directory_of_others(tmp_path: Path) -> None:
    """Files that lie beside a cache are none of it: it neither counts nor removes them."""
    notes, folder = tmp_path / "notes.txt", tmp_path / "models"
    notes.write_text("mine")
    folder.mkdir()
    kept = Directory(tmp_path)
    ref = Reference(7, 4, hashlib.sha256(b"body").hexdigest())
    assert kept.begin(ref)
    kept.put(ref, b"body")
    assert kept.size() == 4
    for path in (notes, folder, tmp_path / ref.sha256):
        os.utime(path, (0, 0))
    kept.keep(set())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models", "notes.txt"]


def test_empty_share(server: Server) -> None:
    said = {**listed(), "stamps": [], "references": []}
    server.routes["POST /api/v1/batches/lease"] = lambda _: as_json(said)
    with client(server) as hw:
        found = hw.lease()
        assert len(found) == 0
        assert [getattr(found, name).dtype for name in ARRAYS] == [
            getattr(headway.batch.parse(WHOLE), name).dtype for name in ARRAYS
        ]


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_real_server(serve: Callable[..., Serve], tmp_path: Path, ranks: int) -> None:
    """A share is the same both ways, for every rank; a run is trained by reference to its end."""
    server = serve("--steps", "3")
    options: dict[str, Any] = {"world_size": ranks, "prefetch_mb": 1, "cache": tmp_path / "cache"}
    clients = [headway.connect(server.url, rank=rank, **options) for rank in range(ranks)]
    weights = [hw.load() for hw in clients]
    for step in range(3):
        shares = [hw.lease() for hw in clients]
        for hw, share in zip(clients, shares, strict=True):
            hw._open, groups, hw._groups = None, hw._groups, None
            whole = hw.lease()
            same(share, whole)
            assert whole._renewal is not None
            whole._renewal.stop()
            hw._groups, hw._open = groups, share
        for rank in reversed(range(ranks)):
            clients[rank].publish(shares[rank], weights[rank])
        assert clients[0].version == step + 1
    for hw in clients:
        with pytest.raises(headway.RunEnded):
            hw.lease()
        hw.close()


def test_ranks_fill_a_cache_together(tmp_path: Path) -> None:
    """Ranks that share a directory keep its bound together: each counts what another is fetching."""
    one, two, ref = Directory(tmp_path), Directory(tmp_path), Reference.read(refer(7))
    assert one.begin(ref)
    assert not two.begin(ref)
    assert two.size() == ref.size
    one.put(ref, BODIES[7])
    assert two.size() == ref.size


def test_a_cache_that_cannot_be_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails as a trained group leaves the cache does not end the trainer after its publish."""
    kept = Directory(tmp_path)
    ref = Reference(7, 4, hashlib.sha256(b"body").hexdigest())
    kept.put(ref, b"body")

    def failing(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", failing)
    kept.drop([ref.sha256])
    (tmp_path / ref.sha256).write_bytes(b"else")
    assert kept.get(ref) is None
