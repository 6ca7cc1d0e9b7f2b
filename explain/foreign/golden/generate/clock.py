"""The clock of the process is that of the simulated run: import this before any tracker."""

import time

START = 1_700_000_000.0  # Unix time of the run's start

_now = START
monotonic = time.monotonic


def at(seconds: float) -> None:
    """Sets the clock, in seconds since the run's start. It never goes back by itself."""
    global _now
    _now = START + seconds


def now() -> float:
    return _now


time.time = now  # trackers stamp what they write by it


def stamp(form: str) -> str:
    """The clock as a log line has it, in UTC."""
    return time.strftime(form, time.gmtime(_now))
