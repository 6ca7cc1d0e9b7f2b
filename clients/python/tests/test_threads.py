"""Calls in threads of their own, and what becomes of those that nobody waits for any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

import headway
from headway.claims import Worker
from headway.threads import in_thread


def test_a_cancelled_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that has begun goes on to its end, and its thread does not die of a result that nobody takes."""
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    begun, go = threading.Event(), threading.Event()

    def call() -> int:
        begun.set()
        go.wait(20)
        return 7

    done = in_thread(call)

    async def gives_up() -> None:
        waiting = asyncio.wrap_future(done)
        waiting.cancel()
        await asyncio.wait([waiting])

    assert begun.wait(20)
    asyncio.run(gives_up())
    go.set()
    assert done.result(20) == 7
    assert not died


def test_cancelled_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    begins: list[Callable[[], None]] = []

    class Slow:
        def __init__(self, target: Callable[[], None], **_: object) -> None:
            begins.append(target)

        def start(self) -> None:
            """Not yet."""

    monkeypatch.setattr("headway.threads.threading.Thread", Slow)
    called: list[int] = []
    done = in_thread(called.append, 1)
    assert done.cancel()
    begins[0]()
    assert not called


def test_second_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose grace is interrupted, as in a notebook, keeps its claims no more."""

    @headway.environment("x")
    def play(task: headway.Task) -> float:
        return 0.0

    def interrupted(_: Worker) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "_claim", interrupted)
    monkeypatch.setattr(Worker, "_drain", interrupted)
    worker = Worker("http://127.0.0.1:1", play)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        worker.run()
    for left in set(threading.enumerate()) - before:
        left.join(60)
        assert not left.is_alive(), left.name
