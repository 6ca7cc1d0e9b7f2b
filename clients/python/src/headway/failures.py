"""Failures of environments as a worker says them: the first in full, the others counted, with pauses between claims."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_log = logging.getLogger("headway.worker")
#: Between two counted lines.
PERIOD_S = 10.0
#: The first pause and the longest.
_PAUSE_S, PAUSE_MAX_S = 0.5, 10.0


class Failures:
    """Failures of one worker. Any thread may call it.

    The first failure by each type of exception is logged with its traceback, the others as one line in PERIOD_S. Where
    `concurrency` rollouts in a row have failed, claims wait: nothing that is played then is likely to end well.
    """

    def __init__(self, concurrency: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._concurrency, self._clock = concurrency, clock
        self._lock = threading.Lock()
        self._known: set[type[BaseException]] = set()
        self._row = self._untold = 0
        self._told = self._until = 0.0
        self._last = ""

    def add(self, name: str, error: BaseException) -> None:
        """A rollout has failed."""
        with self._lock:
            now = self._clock()
            self._row += 1
            if rounds := self._row // self._concurrency:
                self._until = now + min(_PAUSE_S * 2.0 ** min(rounds - 1, 10), PAUSE_MAX_S)
            new = type(error) not in self._known
            self._known.add(type(error))
            if new:
                self._told = now
            else:
                self._untold += 1
                self._last = f"{name}: {error!r}"
        if new:
            _log.warning("%s failed; later failures of this type are counted", name, exc_info=error)

    def none(self) -> None:
        """A rollout has ended with a result."""
        with self._lock:
            self._row, self._until = 0, 0.0

    def wait_s(self) -> float:
        """Seconds until the next claim."""
        with self._lock:
            return max(self._until - self._clock(), 0.0)

    def tell(self, at_once: bool = False) -> None:
        """Log what was counted, if a period has passed since the last such line or `at_once`."""
        with self._lock:
            now = self._clock()
            if not self._untold or (not at_once and now - self._told < PERIOD_S):
                return
            said = (self._untold, self._row, self._last)
            self._untold, self._told = 0, now
        _log.warning("%d more rollouts failed, %d in a row by now; the last is %s", *said)
