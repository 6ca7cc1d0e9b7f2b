"""Threads that take turns under a clock that jumps: time passes only when all of them wait."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

#: Virtual seconds after which a test is taken to hang.
LIMIT_S = 100_000.0


class Over(BaseException):
    """The test has ended: threads that are left end, too."""


@dataclass(eq=False)
class _Turn:
    """A thread, and what it waits for."""

    thread: Any = None
    ready: Callable[[], bool] = lambda: True
    until: float | None = None
    last: int = 0  # when it ran last
    go: threading.Event = field(default_factory=threading.Event)


class Virtual:
    """The clock and the threads. The thread that makes it takes the first turn."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._count = itertools.count(1)
        self._running = self._main = _Turn()
        self._turns = [self._main]
        self._over = False
        self._stuck = ""

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.wait(lambda: False, seconds)

    def wait(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Give the turn to others until something is so, or time is up. Return whether it is."""
        mine = self._running
        mine.ready, mine.until = ready, None if timeout is None else self.now + max(timeout, 0.0)
        self._pass(mine)
        return ready()

    def start(self, thread: Thread) -> None:
        turn = _Turn(thread)
        self._turns.append(turn)

        def run() -> None:
            turn.go.wait()
            turn.go.clear()
            try:
                if not self._over:
                    thread.run()
            except Over:
                pass
            finally:
                thread.alive = False
                self._turns.remove(turn)
                if not self._over:
                    self._next().go.set()

        threading.Thread(target=run, daemon=True).start()

    def current(self) -> Any:
        return self._running.thread

    def end(self) -> None:
        """End the threads that are left."""
        self._over = True
        for turn in list(self._turns):
            turn.go.set()

    def _pass(self, mine: _Turn) -> None:
        following = self._next()
        if following is not mine:
            following.go.set()
            mine.go.wait()
            mine.go.clear()
        if self._over:
            raise Over
        if mine is self._main and self._stuck:
            raise AssertionError(self._stuck)

    def _next(self) -> _Turn:
        """The next turn: of those that are ready the one that waited longest, else the one whose time is up first."""
        ready = [turn for turn in self._turns if turn.ready()]
        chosen = min(ready, key=lambda turn: turn.last, default=None)
        if chosen is None:
            timed = [turn for turn in self._turns if turn.until is not None]
            chosen = min(timed, key=lambda turn: (turn.until, turn.last), default=None)
            if chosen is not None and chosen.until is not None:
                self.now = max(self.now, chosen.until)
        if chosen is None or self.now > LIMIT_S:
            self._stuck = f"all threads wait for each other at {self.now:g} s"
            chosen = self._main
        chosen.last, chosen.ready, chosen.until = next(self._count), lambda: True, None
        self._running = chosen
        return chosen


class Thread:
    """A thread that takes turns."""

    def __init__(
        self, world: Virtual, target: Callable[..., Any], args: tuple[Any, ...] = (), name: str = "",
        daemon: bool = False,
    ) -> None:  # fmt: skip
        self._world, self._target, self._args, self.name, self.daemon = world, target, args, name, daemon
        self.alive = False

    def start(self) -> None:
        self.alive = True
        self._world.start(self)

    def run(self) -> None:
        self._target(*self._args)

    def is_alive(self) -> bool:
        return self.alive

    def join(self, timeout: float | None = None) -> None:
        self._world.wait(lambda: not self.alive, timeout)


class Event:
    """threading.Event."""

    def __init__(self, world: Virtual) -> None:
        self._world, self._set = world, False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._set or self._world.wait(lambda: self._set, timeout)


class Semaphore:
    """threading.Semaphore."""

    def __init__(self, world: Virtual, value: int) -> None:
        self._world, self._value = world, value

    def acquire(self, timeout: float | None = None) -> bool:
        if self._value < 1 and not self._world.wait(lambda: self._value > 0, timeout):
            return False
        self._value -= 1
        return True

    def release(self) -> None:
        self._value += 1


class Future:
    """concurrent.futures.Future, as far as it is used."""

    def __init__(self, world: Virtual) -> None:
        self._event = Event(world)
        self._result: Any = None
        self._error: BaseException | None = None

    def set_running_or_notify_cancel(self) -> bool:
        return True

    def set_result(self, result: Any) -> None:
        self._result = result
        self._event.set()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._event.set()

    def done(self) -> bool:
        return self._event.is_set()

    def result(self, timeout: float | None = None) -> Any:
        if not self._event.wait(timeout):
            raise futures.TimeoutError
        if self._error is not None:
            raise self._error
        return self._result


class Loop:
    """An event loop that runs nothing: coroutines are not played here."""

    def __init__(self, world: Virtual) -> None:
        self._stopped = Event(world)

    def run_forever(self) -> None:
        self._stopped.wait()

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        call()

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        """There is nothing to free."""


def enter(monkeypatch: pytest.MonkeyPatch) -> Virtual:
    """Have the modules of the client use this clock and these threads."""
    from headway import claims, client, failures, lease, play, store, threads, transport

    world = Virtual()
    clock = SimpleNamespace(monotonic=world.monotonic, sleep=world.sleep)
    instead = SimpleNamespace(
        Thread=lambda **said: Thread(world, **said), Event=lambda: Event(world), Lock=threading.Lock,
        Semaphore=lambda value: Semaphore(world, value), current_thread=world.current,
    )  # fmt: skip
    for module in (claims, client, lease, play, store, threads, transport):
        for name, replaced in (("time", clock), ("threading", instead)):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, replaced)
    monkeypatch.setattr(threads, "Future", lambda: Future(world))
    monkeypatch.setattr(claims, "asyncio", SimpleNamespace(new_event_loop=lambda: Loop(world)))
    monkeypatch.setattr(claims, "Failures", lambda n: failures.Failures(n, world.monotonic))
    return world
