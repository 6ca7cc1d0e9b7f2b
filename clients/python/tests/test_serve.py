"""The client against the real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Serve

import headway

Start = Callable[..., Serve]
TRAINER = ROOT / "examples" / "numpy_trainer" / "train.py"


def bumped(weights: dict[str, Any]) -> dict[str, Any]:
    return {name: array + np.float32(1e-4) for name, array in weights.items()}


def test_a_run(serve: Start) -> None:
    """From version 0 to the end of the run: what was published is what is read, weights and optimizer."""
    server = serve("--steps", "4")
    with headway.connect(server.url) as hw:
        assert (hw.action, hw.newest, hw.next, hw.steps) == ("load", 0, 1, 4)
        assert hw.config["environment"]["letters_max"] == 5
        weights, seen = hw.load(), []
        for batch in hw.batches():
            assert batch.version == hw.version
            assert len(batch) == batch.metadata.rollouts == 16
            assert batch.metadata.response_tokens == int(batch.loss_mask.sum())
            assert sum(s.rollouts for s in batch.metadata.stamps) == 16
            for group in np.unique(batch.groups):
                assert abs(float(batch.advantages[batch.groups == group].sum())) < 1e-4
            batch.stamp_forward()
            weights = bumped(weights)
            seen.append(hw.publish(batch, weights, optimizer={"m": np.ones(2)}, metrics={"loss": 0.5, "mine": 2}))
        assert seen == [1, 2, 3, 4]
        found = hw.weights(4)
        for name, array in weights.items():
            np.testing.assert_array_equal(found[name], array)
        assert hw.optimizer(4)["m"].tolist() == [1, 1]
        assert hw.state(4)["version"] == 4


def test_validation(serve: Start) -> None:
    with headway.connect(serve().url) as hw:
        batch = hw.validation(12)
        assert (len(batch), batch.metadata.kind, batch.lease) == (12, "validation", 0)
        again = hw.validation(12)
        np.testing.assert_array_equal(
            again.tokens[: again.padded()["prompts"][0]], batch.tokens[: batch.padded()["prompts"][0]]
        )
        hw.load()
        with pytest.raises(headway.Invalid, match="judged by"):
            hw.publish(batch, {"w": np.ones(1)})


def test_restart_of_the_control_plane(serve: Start) -> None:
    """kill -9 in the middle of a train step, and again while a batch is waited for: the trainer goes on by itself."""
    server = serve("--steps", "8")
    with headway.connect(server.url) as hw:
        weights, versions, lost = hw.load(), [], 0
        for batch in hw.batches():
            if hw.version in (2, 5):
                server.kill()
                threading.Thread(target=server.start).start()
            weights = bumped(weights)
            try:
                versions.append(hw.publish(batch, weights))
            except headway.LeaseExpired:
                weights, lost = hw.load(), lost + 1
        assert versions == [1, 2, 3, 4, 5, 6, 7, 8]
        assert lost <= 2


def test_lost_lease(serve: Start) -> None:
    """A trainer that stops renewing loses its batch, is told so, loads, and goes on with the same groups."""
    server = serve("--steps", "2", server__lease_s=0.3, queue__policy="block")
    with headway.connect(server.url, step_s_max=0.0) as hw:
        weights = hw.load()
        first = hw.lease()
        assert first._renewal is not None
        first._renewal._thread.join(20)
        wait_until(lambda: not lease_of(hw), first.lease)
        with pytest.raises(headway.LeaseExpired) as caught:
            hw.publish(first, bumped(weights))
        assert caught.value.status == 410
        hw._step_s_max = None
        hw.load()
        again = hw.lease()
        assert sorted(set(again.groups.tolist())) == sorted(set(first.groups.tolist()))
        assert (again.lease, again.attempt) != (first.lease, first.attempt)
        assert hw.publish(again, bumped(weights)) == 1
        with pytest.raises(headway.Invalid, match="already"):
            hw.ack(again)


def lease_of(hw: headway.Client) -> int:
    return int(hw._transport.get("/api/v1/status")["trainer"]["lease"])


def wait_until(done: Callable[[], bool], what: object) -> None:
    """Ask the server until it says so."""
    pause = threading.Event()
    for _ in range(400):
        if done():
            return
        pause.wait(0.05)
    pytest.fail(f"{what}: it did not come")


def test_other_content(serve: Start) -> None:
    """A version is published once; the same again is fine, other content is a conflict."""
    server = serve("--steps", "3")
    with headway.connect(server.url) as hw:
        weights = hw.load()
        batch = hw.lease()
        assert hw.publish(batch, weights) == 1
        batch._done = False
        assert hw.publish(batch, weights) == 1
        batch._done = False
        with pytest.raises((headway.Conflict, headway.LeaseExpired)) as caught:
            hw.publish(batch, bumped(weights))
        assert caught.value.message
        assert hw.weights(1)["final_norm"].tolist() == weights["final_norm"].tolist()


def test_skew_is_refused(serve: Start) -> None:
    """Weights that moved between forward pass and optimizer step are not published."""
    with headway.connect(serve().url) as hw:
        weights = hw.load()
        batch = hw.lease()
        batch.stamp_forward(0)
        batch.stamp_step(7)
        with pytest.raises((headway.Invalid, headway.Conflict), match="version"):
            hw.publish(batch, bumped(weights))


def at_version_3(serve: Start) -> Serve:
    server = serve("--steps", "6")
    with headway.connect(server.url) as hw:
        weights = hw.load()
        for batch in hw.batches():
            weights = bumped(weights)
            if hw.publish(batch, weights) == 3:
                break
    return server


def test_restore(serve: Start) -> None:
    """A trainer that went back to version 1 publishes it as the next version."""
    server = at_version_3(serve)
    with headway.connect(server.url, version=1) as hw:
        assert (hw.action, hw.newest, hw.next) == ("republish", 3, 4)
        old = hw.weights(1)
        assert hw.restore(1, old) == 4
        batch = hw.lease()
        assert batch.version == 4
        assert hw.publish(batch, bumped(old)) == 5
        np.testing.assert_array_equal(hw.weights(4)["final_norm"], old["final_norm"])


def test_ranks_restore(serve: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks go back. Rank 1 is first, and gets no batch before rank 0 has made the version."""
    server = at_version_3(serve)
    zero, one = (headway.connect(server.url, version=1, rank=rank, world_size=2) for rank in range(2))
    old, looked, state = zero.weights(1), threading.Event(), one.state

    def looking(version: int | str = "latest") -> dict[str, Any]:
        looked.set()
        return state(version)

    monkeypatch.setattr(one, "state", looking)

    def second() -> int:
        assert one.restore(1, old) == 4
        return one.lease().version

    with zero, one, ThreadPoolExecutor() as pool:
        version = pool.submit(second)
        assert looked.wait(60)
        assert zero.restore(1, old) == 4
        assert zero.lease().version == version.result(60) == 4


def test_ranks(serve: Start) -> None:
    """Two ranks share every batch by whole groups; rank 0 publishes."""
    server = serve("--steps", "3")

    def train(rank: int, barrier: threading.Barrier, hw: headway.Client) -> list[tuple[int, list[int]]]:
        weights, seen = hw.load(), []
        for batch in hw.batches():
            seen.append((batch.lease, sorted(set(batch.groups.tolist()))))
            assert batch.metadata.rollouts == 16
            barrier.wait(60)
            weights = bumped(weights)
            hw.publish(batch, weights)
        return seen

    barrier = threading.Barrier(2)
    clients = [headway.connect(server.url, rank=rank, world_size=2) for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        first, second = [f.result(120) for f in [pool.submit(train, r, barrier, clients[r]) for r in range(2)]]
    for hw in clients:
        hw.close()
    assert [lease for lease, _ in first] == [lease for lease, _ in second]
    assert len(first) == 3
    for (_, mine), (_, theirs) in zip(first, second, strict=True):
        assert not set(mine) & set(theirs)
        assert len(mine) + len(theirs) == 4


def test_lost_by_all_ranks(serve: Start) -> None:
    """Rank 0's publish is lost: rank 1 does not go on with what nobody published; after a load both have the batch."""
    server = serve("--steps", "2", server__lease_s=1, queue__policy="block")
    clients = [headway.connect(server.url, rank=rank, world_size=2) for rank in range(2)]
    with clients[0] as zero, clients[1] as one:
        weights = zero.load()
        one.load()
        batch, share = zero.lease(), one.lease()
        one.publish(share, weights)
        assert batch._renewal is not None
        batch._renewal.stop()
        wait_until(lambda: not lease_of(zero), batch.lease)
        with pytest.raises(headway.LeaseExpired):
            zero.publish(batch, bumped(weights))
        zero.load()
        again = zero.lease()
        with pytest.raises(headway.Conflict, match="rank 1"):
            one.lease()
        one.load()
        share = one.lease()
        assert (again.lease, again.attempt) == (share.lease, share.attempt)
        assert one.publish(share, weights) == zero.publish(again, weights) == 1


def test_lost_between_synced_versions(serve: Start) -> None:
    """Where the newest version has no weights, a trainer that lost its batch goes on from the last that has some."""
    server = serve("--steps", "6", sync__every=2, server__lease_s=1, queue__policy="block")
    clients = [headway.connect(server.url, rank=rank, world_size=2) for rank in range(2)]
    with clients[0] as zero, clients[1] as one, ThreadPoolExecutor(1) as pool:
        weights = zero.load()
        one.load()
        batch, share = zero.lease(), one.lease()
        assert zero.ack(batch) == one.ack(share) == 1
        batch, share = zero.lease(), one.lease()
        with pytest.raises(headway.Conflict, match="publish the batch"):
            zero.ack(batch)
        one.publish(share, weights)
        assert batch._renewal is not None
        batch._renewal.stop()
        wait_until(lambda: not lease_of(zero), batch.lease)
        with pytest.raises(headway.LeaseExpired):
            zero.publish(batch, bumped(weights))
        following = pool.submit(one.lease)  # it waits for rank 0
        zero.load()
        assert (zero.version, zero.weights(2)["final_norm"].tolist()) == (2, weights["final_norm"].tolist())
        with pytest.raises(headway.Conflict, match="rank 1"):
            following.result(60)
        one.load()
        batch, share = zero.lease(), one.lease()
        assert (batch.version, share.version) == (2, 2)
        assert zero.ack(batch) == one.ack(share) == 3


def test_ranks_start_again_between_synced_versions(serve: Start) -> None:
    """A rank that is sooner than rank 0, which has to publish first, waits for it."""
    server = serve(sync__every=2)
    with headway.connect(server.url) as hw:
        hw.load()
        assert hw.ack(hw.lease()) == 1
    clients = [headway.connect(server.url, rank=rank, world_size=2) for rank in range(2)]
    with clients[0] as zero, clients[1] as one, ThreadPoolExecutor(1) as pool:
        one.load()
        following = pool.submit(one.lease)
        with pytest.raises(TimeoutError):
            following.result(0.5)
        zero.load()
        assert following.result(60).version == zero.lease().version == 2


def test_restart_between_ranks(serve: Start) -> None:
    """The control plane restarts between two ranks' leases of one batch: the step is not lost."""
    server = serve("--steps", "2")
    clients = [headway.connect(server.url, rank=rank, world_size=2) for rank in range(2)]
    with clients[0] as zero, clients[1] as one:
        weights = zero.load()
        one.load()
        batch = zero.lease()
        server.kill()
        server.start()
        share = one.lease()
        assert share.lease == batch.lease
        assert one.publish(share, weights) == zero.publish(batch, weights) == 1
        assert one.lease().lease == zero.lease().lease


def test_weights_dir(serve: Start, tmp_path: Path) -> None:
    """Weights that lie on a disk the server shares are published without being sent."""
    shared = tmp_path / "shared"
    shared.mkdir()
    server = serve(server__directories=f"[{shared}]")
    with headway.connect(server.url) as hw:
        assert hw.download(shared / "step", "latest") == 0
        assert {p.name for p in (shared / "step").iterdir()} == {"model.safetensors", "optimizer.safetensors"}
        weights = hw.load()
        batch = hw.lease()
        assert hw.publish(batch, weights_dir=shared / "step") == 1
        np.testing.assert_array_equal(hw.weights(1)["final_norm"], weights["final_norm"])
        batch = hw.lease()
        outside = tmp_path / "outside"
        hw.download(outside)
        with pytest.raises((headway.Invalid, headway.Forbidden)):
            hw.publish(batch, weights_dir=outside)


def test_roles(serve: Start, tmp_path: Path) -> None:
    """Without the right token nothing is done, and the client says which error it is."""
    tokens = tmp_path / "tokens"
    tokens.write_text("trainer aaaaaaaaaaaaaaaaaaaaaaaa\nviewer bbbbbbbbbbbbbbbbbbbbbbbb\n")
    tokens.chmod(0o600)
    server = serve("--token-file", str(tokens))
    with pytest.raises(headway.Unauthorized):
        headway.connect(server.url)
    with pytest.raises(headway.Unauthorized):
        headway.connect(server.url, token="no")
    with pytest.raises(headway.Forbidden):
        headway.connect(server.url, token="b" * 24)
    with headway.connect(server.url, token="a" * 24) as hw:
        assert hw.load()


def test_wrong_weights(serve: Start) -> None:
    """Versions that are not there are named so."""
    with headway.connect(serve().url) as hw:
        hw.load()
        with pytest.raises(headway.NotFound):
            hw.weights(77)


def journal(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_killed_trainer(serve: Start, tmp_path: Path) -> None:
    """kill -9 of a trainer: its successor loads what is committed and trains nothing twice."""
    server, path = serve("--steps", "12", server__lease_s=1), tmp_path / "journal"
    command = [sys.executable, str(TRAINER), "--url", server.url, "--journal", str(path), "--step-s", "0.02"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "clients" / "python" / "src")}
    for kill_at in (3, 7):
        process = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
        wait_until(lambda at=kill_at: path.exists() and path.read_text().count('"published"') >= at, "published")  # type: ignore[misc]
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, env=env, check=True, timeout=120, stderr=subprocess.DEVNULL)
    lines = journal(path)
    assert [line["event"] for line in lines].count("connected") == 3
    published = [line["version"] for line in lines if line["event"] == "published"]
    assert len(published) == len(set(published))
    assert max(published) == 12
    groups = [tuple(line["groups"]) for line in lines if line["event"] == "published"]
    assert len(groups) == len(set(groups)), "a batch was committed twice"
