"""What a worker says of environments that fail, and how it waits. The clock is the test's own."""

from __future__ import annotations

import logging
import sys

import pytest

from headway.failures import PAUSE_MAX_S, PERIOD_S, Failures
from headway.worker import main


def raised(message: str) -> Exception:
    try:
        raise RuntimeError(message)
    except RuntimeError as error:
        return error


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_first_has_a_traceback_and_the_others_a_count(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    failures = Failures(8, clock)
    failures.add("g1-s0-a1", raised("no such file"))
    assert "in raised" in caplog.text  # the function of the traceback
    assert "no such file" in caplog.text
    caplog.clear()
    for i in range(20):
        clock.now += 1
        failures.add(f"g{i}", raised(f"number {i}"))
        failures.tell()
    assert [record.getMessage() for record in caplog.records] == [
        "10 more rollouts failed, 11 in a row by now; the last is g9: RuntimeError('number 9')",
        "10 more rollouts failed, 21 in a row by now; the last is g19: RuntimeError('number 19')",
    ]
    clock.now += PERIOD_S
    failures.tell()  # there is nothing new
    assert len(caplog.records) == 2
    failures.add("g20", KeyError("another type"))
    assert "later failures of this type are counted" in caplog.text
    failures.add("g21", raised("last"))
    failures.tell()
    assert len(caplog.records) == 3
    failures.tell(at_once=True)
    assert "1 more rollouts failed" in caplog.records[-1].getMessage()


def test_claims_wait_while_all_fail() -> None:
    clock = Clock()
    failures = Failures(4, clock)
    pauses = []
    for _ in range(40):
        failures.add("g1", raised("again"))
        pauses.append(failures.wait_s())
    assert pauses[:12] == [0, 0, 0, 0.5, 0.5, 0.5, 0.5, 1, 1, 1, 1, 2]
    assert pauses[-1] == PAUSE_MAX_S
    clock.now += PAUSE_MAX_S - 1
    assert failures.wait_s() == pytest.approx(1)
    failures.none()
    assert failures.wait_s() == 0
    failures.add("g1", raised("once"))
    assert failures.wait_s() == 0


def test_the_command_quiets_http_libraries_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """httpx, and httpx2 of openai's client, have a line for every request. The package itself sets no logger."""
    loggers = [logging.getLogger(name) for name in ("httpx", "httpx2")]
    for logger in loggers:
        monkeypatch.setattr(logger, "level", logging.NOTSET)
        logger.manager._clear_cache()  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["no_such_module:play", "http://127.0.0.1:1"]) == 2
    assert [logger.level for logger in loggers] == [logging.WARNING] * 2
