"""The engine on a thread of its own, and what stops it between two steps."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from . import checkpoint
from .engine import Engine
from .errors import Lost, Refusal
from .groups import Groups
from .request import Request

T = TypeVar("T")
#: Seconds over which the throughput is averaged.
THROUGHPUT_S = 2.0


class Service:
    """Drives the engine. Whoever holds the gate finds it between two steps, so a control call is exact to the token."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self.engine, self.directory = engine, directory
        self.groups = Groups()
        #: Tensors of a group are taken only while a session is open, as SGLang takes them since 0.5.21.
        self.session = False
        self.throughput = 0.0
        self.closed = False
        #: Set by who wants the server to end, and where the engine is lost; lost then says why.
        self.ended = asyncio.Event()
        self.lost: Lost | None = None
        self._gate = asyncio.Lock()
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        #: Set while new requests may enter; an update of a running server waits for those under way.
        self._open = asyncio.Event()
        self._open.set()
        self._thread = ThreadPoolExecutor(1, "engine")
        self._driver: asyncio.Task[None] | None = None
        self._measured_at, self._measured_tokens = time.monotonic(), 0

    def start(self) -> None:
        """Begins to drive."""
        self._driver = asyncio.get_running_loop().create_task(self._drive())

    async def stop(self) -> None:
        """Ends what is under way with what there is of it."""
        self.closed = True
        await _waiting(self.groups.close)  # what is received would hold the gate
        async with self._gate:
            self._publish(self.engine.abort(None, "the server stops"))
        if self._driver is not None:
            self._driver.cancel()
        self._thread.shutdown(wait=False)

    async def _drive(self) -> None:
        while True:
            await self._work.wait()
            async with self._gate:
                if not self.engine.ready:
                    self._work.clear()
                    continue
                try:
                    self._publish(await self._apart(self.engine.step))
                except Exception as problem:  # a defect ends the responses that it hit, and says so
                    self._publish(self.engine.abort(None, f"the engine failed: {problem!r}"))
            self._measure()

    async def _apart(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _publish(self, requests: list[Request]) -> None:
        for request in requests:
            request.changed(request)
        if self.engine.idle:
            self._idle.set()

    def _measure(self) -> None:
        now = time.monotonic()
        if now - self._measured_at >= THROUGHPUT_S:
            self.throughput = (self.engine.sampled_tokens - self._measured_tokens) / (now - self._measured_at)
            self._measured_at, self._measured_tokens = now, self.engine.sampled_tokens

    async def submit(self, request: Request) -> None:
        """Queues a request; its changed is called after every step that changes it."""
        await self._open.wait()
        async with self._gate:
            if self.closed:
                raise Refusal("the server stops", 503)
            if any(r.rid == request.rid for r in (*self.engine.running, *self.engine.waiting)):
                raise Refusal(f"the rid {request.rid!r} is under way already: give every request its own")
            self._idle.clear()
            self.engine.submit(request)
        self._work.set()

    async def abort(self, prefix: str | None, message: str) -> None:
        """Ends requests by the beginning of their rid, None for all."""
        async with self._gate:
            self._publish(self.engine.abort(prefix, message))

    async def pause(self, mode: str) -> None:
        """When it returns, nothing is sampled any more."""
        async with self._gate:
            self._publish(self.engine.pause(mode))

    async def resume(self) -> None:
        """Goes on."""
        async with self._gate:
            self.engine.resume()
        self._work.set()

    async def flush(self) -> None:
        """Drops the cache, or refuses."""
        async with self._gate:
            self.engine.flush()

    async def set_label(self, label: str, abort: bool) -> None:
        """Names the weights that are served."""
        async with self._gate:
            if abort:
                self._publish(self.engine.abort(None))
            self.engine.label = label

    async def update(self, read: Callable[[], dict[str, Any]], *, label: str | None, flush: bool, abort: bool) -> int:
        """Serves the tensors that read brings, and returns how many requests were kept waiting.

        A server that is not paused ends what is under way first, as SGLang does; what comes meanwhile waits.
        """
        if abort:
            await self.abort(None, "Aborted by a weight update")
        if self.engine.paused is not None:
            return await self._replace(read, label, flush)
        self._open.clear()
        try:
            await self._idle.wait()
            return await self._replace(read, label, flush)
        finally:
            self._open.set()

    async def _replace(self, read: Callable[[], dict[str, Any]], label: str | None, flush: bool) -> int:
        async with self._gate:
            tensors = await self._apart(read)
            await self._apart(lambda: self.engine.replace(tensors, label))
            if flush:
                try:
                    self.engine.flush()
                except Refusal as problem:  # SGLang, too, has changed the weights and their label by then
                    raise Refusal(f"Weights were updated, but the cache was not flushed: {problem}") from None
            return len(self.engine.running) + len(self.engine.waiting)

    async def update_from_disk(self, directory: Path, **how: Any) -> int:
        """Serves a checkpoint. Where a directory has none, the old weights are served on.

        A checkpoint that does not load loses the engine, as at SGLang: its way back reads the new directory again.
        """

        def read() -> dict[str, Any]:
            checkpoint.files(directory)
            try:
                return checkpoint.tensors(directory, self.engine.model)
            except Refusal as problem:
                raise Lost(f"the update failed, and so did the way back: {problem}") from problem

        try:
            kept = await self.update(read, **how)
        except Lost as problem:
            self.closed, self.lost = True, problem
            self.ended.set()
            raise
        self.directory = directory
        return kept

    async def update_from_group(self, wanted: dict[str, Any], **how: Any) -> int:
        """Serves tensors that a group's first member broadcasts."""
        if not self.session:
            raise Refusal(
                "update_weights_from_distributed must run between begin_weight_update() and end_weight_update()"
            )
        model = self.engine.model
        try:
            return await self.update(lambda: self.groups.receive(wanted, model), **how)
        except asyncio.CancelledError:  # the client is gone: the engine does not wait for tensors on its behalf
            self.groups.give_up(wanted["group_name"])
            raise

    async def begin_update(self) -> None:
        """Opens the session of an update by a group; there is one at a time."""
        if self.session:
            raise Refusal("a weight-update session is already open; call end_weight_update() first")
        self.session = True

    async def end_update(self) -> None:
        """Closes it."""
        if not self.session:
            raise Refusal("no weight-update session is open; call begin_weight_update() first")
        self.session = False

    async def join(self, wanted: dict[str, Any]) -> None:
        """Joins a group. It waits for the others on a thread of its own, and generation goes on."""
        await _waiting(lambda: self.groups.join(wanted))

    async def leave(self, name: str) -> None:
        """Leaves a group."""
        await _waiting(lambda: self.groups.destroy(name))


def _waiting(work: Callable[[], T]) -> asyncio.Future[T]:
    """Work that may wait for minutes, on a thread that keeps neither another nor the end of the process waiting."""
    done: Future[T] = Future()

    def run() -> None:
        done.set_running_or_notify_cancel()  # from here on nobody cancels it
        try:
            result = work()
        except BaseException as problem:
            done.set_exception(problem)
        else:
            done.set_result(result)

    threading.Thread(target=run, name="group", daemon=True).start()
    return asyncio.wrap_future(done)
