"""A run's live figures, from the real server into sinks."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Serve
from faulty import Reply, serving

import headway
from headway import metrics

Start = Callable[..., Serve]


def train(url: str) -> None:
    with headway.connect(url) as hw:
        weights = hw.load()
        for batch in hw.batches():
            weights = {name: array + np.float32(1e-4) for name, array in weights.items()}
            hw.publish(batch, weights, metrics={"loss": 0.25})


def follow_run(server: Serve, *sinks: metrics.Sink) -> None:
    """Follow from before the first step until the run is over."""
    listening = threading.Event()
    done = threading.Event()

    def first(step: int, said: dict[str, float]) -> None:
        if step >= 5:
            done.set()

    def go() -> None:
        for event in metrics.events(server.url, stop=done):
            listening.set()
            del event

    probe = threading.Thread(target=go, daemon=True)
    probe.start()
    assert listening.wait(30)
    arguments = (server.url, *sinks, first)
    follower = threading.Thread(target=metrics.follow, args=arguments, kwargs={"stop": done}, daemon=True)
    follower.start()
    train(server.url)
    assert done.wait(30)
    follower.join(30)
    assert not follower.is_alive()


def test_a_function(serve: Start) -> None:
    seen: dict[int, dict[str, float]] = {}
    follow_run(serve("--steps", "40"), seen.__setitem__)
    assert len(seen) >= 1
    assert all(said["loss"] == 0.25 for said in seen.values())
    assert {"staleness_mean", "reward", "period_s"} <= set(next(iter(seen.values())))


def test_the_end_of_a_run(serve: Start) -> None:
    """The real server says that the run is over, and a follower ends by that."""
    server = serve("--steps", "3")
    following, seen = threading.Event(), []

    def go() -> None:
        for event in metrics.events(server.url):
            following.set()
            seen.append(event)

    follower = threading.Thread(target=go, daemon=True)
    follower.start()
    assert following.wait(30)
    train(server.url)
    follower.join(30)
    assert not follower.is_alive()
    assert seen[-1]["over"] is True


def test_tensorboard(serve: Start, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    writers = pytest.importorskip("torch.utils.tensorboard")
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    follow_run(serve("--steps", "40"), metrics.tensorboard(writers.SummaryWriter(str(tmp_path / "board"))))
    found = reading.EventAccumulator(str(tmp_path / "board"))
    found.Reload()
    assert {e.value for e in found.Scalars("loss")} == {0.25}


def test_wandb(serve: Start, tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    run = wandb.init(mode="offline", dir=str(tmp_path), project="headway")
    try:
        follow_run(serve("--steps", "40"), metrics.wandb(run))
        assert run.summary["loss"] == 0.25
    finally:
        run.finish()
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_reconnects() -> None:
    """A stream that breaks off is taken up again; a step that was told before is told once."""
    parts = [
        b'event: hello\ndata: {"state":"running","version":0}\n\n: ping\n\n'
        b'id: 1\ndata: {"step":1,"a":{"b":2},"t":"x"}\n\ndata: {"state":"stopped"}\n\n',
        b'event: hello\ndata: {"state":"running","version":1}\n\ndata: {"state":"failed"}\n\n',
        b'data: {"step":1,"a":{"b":2}}\n\ndata: {"step":2,\ndata: "a":{"b":3}}\n\ndata: {"state":"stopped","over":true}\n\n',
    ]
    seen: list[tuple[int, dict[str, float]]] = []
    with serving() as server:
        server.routes["GET /api/v1/stream"] = lambda _: Reply(body=parts.pop(0))
        assert metrics.follow(server.url, lambda step, said: seen.append((step, said))) == 2
        assert server.requests[1].headers["Last-Event-ID"] == "1"
    assert seen == [(1, {"a/b": 2.0}), (2, {"a/b": 3.0})]


def test_the_callers_event() -> None:
    """`stop` ends the follow, and the end of a run does not set it: it may be that of other threads, too."""
    stop = threading.Event()
    with serving() as server:
        server.routes["GET /api/v1/stream"] = lambda _: Reply(body=b'data: {"state":"stopped","over":true}\n\n')
        assert metrics.follow(server.url, stop=stop) == 0
        assert not stop.is_set()
        steps = b"".join(b'data: {"step":%d}\n\n' % step for step in (1, 2, 3))
        server.routes["GET /api/v1/stream"] = lambda _: Reply(body=steps)
        assert metrics.follow(server.url, lambda step, _: stop.set(), stop=stop) == 1


def test_a_silent_server() -> None:
    """One that takes the connection and never says anything is not waited for longer than the patience."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(4)
        with pytest.raises(headway.Unavailable, match=r"silent for 0\.3 s"):
            metrics.follow(f"http://127.0.0.1:{silent.getsockname()[1]}", patience_s=0.3)


def test_a_mistaken_address() -> None:
    """What cannot be otherwise the next time, such as TLS to a plain port, is raised at once, not after ten minutes."""
    with serving() as server, pytest.raises(headway.Invalid, match="SSL"):
        metrics.follow([server.url.replace("http:", "https:")] * 2)


def test_figures() -> None:
    event: dict[str, Any] = {"x": 1, "deep": {"y": 2.5, "z": float("nan")}, "on": True, "name": "n", "list": [1]}
    assert metrics.figures(event) == {"x": 1.0, "deep/y": 2.5, "on": 1.0}
