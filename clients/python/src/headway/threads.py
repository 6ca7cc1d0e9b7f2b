"""Threads for calls that may hang: each has one of its own, which does not keep the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


def in_thread(call: Callable[..., _T], *arguments: object) -> Future[_T]:
    """Call it in a thread of its own. A pool's threads would keep the process until the last tool has ended.

    A call that has begun cannot be cancelled.
    """
    done: Future[_T] = Future()

    def run() -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            done.set_result(call(*arguments))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="headway-play", daemon=True).start()
    return done
