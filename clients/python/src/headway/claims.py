"""An environment worker: claims rollouts, plays them, keeps their claims, finishes them."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from . import errors
from .failures import Failures
from .play import DataFailure, Environment, Sampled, Sampler, Task, Unwanted, ending
from .threads import in_thread
from .transport import Transport

_log = logging.getLogger("headway.worker")
#: How long a claim waits for a rollout: `stop` is seen after it at the latest.
_CLAIM_WAIT_S = 5.0
#: How long an event loop is waited for that an async function may hold up.
_LOOP_ENDS_S = 1.0
#: How many touches are under way at once, and bounds of the time that each waits for its answer: a quarter of the
#: claim's, so that there is time to ask another address.
_TOUCHES_MAX = 32
_TOUCH_MIN_S, _TOUCH_MAX_S = 1.0, 5.0
#: How a claim ends that is tried again until `stop`.
_TRIED_AGAIN = (errors.Unavailable, errors.Busy, errors.DiskFull, errors.Internal)


def work(
    url: str | Sequence[str], environments: Environment | Iterable[Environment], concurrency: int = 8, *,
    token: str | None = None, worker: str | None = None, patience_s: float = 600.0, verify: bool | str = True,
    stop: threading.Event | None = None, grace_s: float = 30.0,
) -> int:  # fmt: skip
    """Play rollouts until the run has ended or `stop` is set; return how many were finished.

    At most `concurrency` are played at once, in daemon threads; async functions share one thread's event loop.
    After `stop`, running rollouts have `grace_s` to finish. What still runs then is left behind: it ends with the
    process, and is played again elsewhere when its claim has run out.
    """
    made = Worker(
        url, environments, concurrency, token=token, worker=worker, patience_s=patience_s, verify=verify, stop=stop,
        grace_s=grace_s,
    )  # fmt: skip
    try:
        return made.run()
    except _TRIED_AGAIN as error:
        if stop is None or not stop.is_set():
            raise
        _log.info("the worker was stopped while it waited for the control plane: %s", error)
        return made.finished


class Worker:
    """One process that plays; see `work`."""

    def __init__(
        self, url: str | Sequence[str], environments: Environment | Iterable[Environment], concurrency: int = 8, *,
        token: str | None = None, worker: str | None = None, patience_s: float = 600.0, verify: bool | str = True,
        stop: threading.Event | None = None, grace_s: float = 30.0,
    ) -> None:  # fmt: skip
        made = list(environments) if isinstance(environments, Iterable) else [environments]
        for one in made:
            if not isinstance(one, Environment):
                raise errors.Invalid(f"{one!r:.200} is no environment: mark it with @headway.environment(NAME)")
        self._environments = {e.name: e for e in made}
        if not made or len(self._environments) != len(made):
            raise errors.Invalid("a worker wants at least one environment, each of its own name")
        if concurrency < 1:
            raise errors.Invalid(f"a concurrency of {concurrency} plays nothing: want at least 1")
        self.name = worker or f"{socket.gethostname()}-{os.getpid()}".replace(" ", "-")
        self._closing = threading.Event()
        self._transport = Transport(url, token, patience_s=patience_s, verify=verify, stopped=self._closing)
        self._cells: dict[str, Transport] = {}  # by the address that claims have named
        self._stop = stop or threading.Event()
        self._concurrency, self._grace_s = concurrency, grace_s
        self._free = threading.Semaphore(concurrency)
        self._failures = Failures(concurrency)
        self._lock = threading.Lock()
        self._running: dict[str, tuple[Task, float]] = {}  # by id, with the moment of its next touch
        self._begun: set[str] = set()  # of these, those whose own thread has begun
        self._deadline_s = 1.0  # until the first claim says it
        #: Rollouts that ended with a result, that failed, and that nobody wanted any more.
        self.finished = self.failed = self.given_up = 0

    def run(self) -> int:
        """Play until the end."""
        loop = asyncio.new_event_loop()
        looping = threading.Thread(target=loop.run_forever, name="headway-async", daemon=True)
        looping.start()
        threading.Thread(target=self._touch, name="headway-touch", daemon=True).start()
        try:
            while not self._stop.is_set():
                if not self._free.acquire(timeout=0.1):
                    continue  # all are busy; tools that hang do not keep it from seeing `stop`
                self._free.release()
                if (pause := self._failures.wait_s()) > 0:
                    self._stop.wait(min(pause, 0.5))  # a rollout that still runs may end well, and ends the pause
                    continue
                try:
                    claims = self._claim()
                except errors.RunEnded:
                    break
                for claim in claims:
                    self._free.acquire()
                    try:
                        in_thread(self._play, claim, loop)
                        self._begins(claim["task"])
                    except RuntimeError as error:  # no thread can be started now: its claim runs out
                        self._ended(claim["task"])
                        self._failures.add(claim["task"].id, error)
        finally:
            try:
                self._drain()
            finally:  # also where a second interrupt ends the grace: claims of what is left are kept no more
                self._close(loop, looping)
        return self.finished

    def _close(self, loop: asyncio.AbstractEventLoop, looping: threading.Thread) -> None:
        self._closing.set()
        self._transport.close()
        if self.given_up:
            _log.info("%d rollouts were not wanted any more", self.given_up)
        self._failures.tell(at_once=True)
        loop.call_soon_threadsafe(loop.stop)
        looping.join(_LOOP_ENDS_S)
        if not looping.is_alive() and not self._running:  # else something is left behind that is in it
            loop.close()

    def _claim(self) -> list[dict[str, Any]]:
        with self._lock:
            want = max(self._concurrency - len(self._running), 1)
        message = {
            "worker": self.name, "environments": sorted(self._environments),
            "max": min(want, 1024), "wait_s": _CLAIM_WAIT_S,
        }  # fmt: skip
        reply = self._transport.post("/api/v1/rollouts/claim", message, timeout_s=_CLAIM_WAIT_S + 30.0, stop=self._stop)
        claims = list(reply.get("rollouts") or ())
        if any("key" not in claim or "secret" not in claim for claim in claims):
            raise errors.Internal("claims without key and secret: this control plane is older than this client")
        now = time.monotonic()
        with self._lock:
            for claim in claims:
                self._deadline_s = float(claim.get("deadline_s") or self._deadline_s)
                fields = {k: claim.get(k, 0) for k in ("prompt", "level", "seed", "group", "sample", "attempt")}
                task = Task(
                    claim["id"], claim.get("environment", ""), **fields, evaluation=bool(claim.get("evaluation")),
                    _key=claim["key"], _secret=claim["secret"], _transport=self._playing_at(claim.get("url") or ""),
                    _unwanted=threading.Event(), _keep=self._keep,
                )  # fmt: skip
                claim["task"] = task
                self._running[task.id] = (task, now + self._deadline_s / 4)
        return claims

    def _playing_at(self, url: str) -> Transport:
        """Where calls for a rollout go: to the address that its claim names, else where it was claimed."""
        if not url:
            return self._transport
        if url not in self._cells:
            self._cells[url] = self._transport.at(url)
        return self._cells[url]

    def _play(self, claim: dict[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        task: Task = claim["task"]
        if not self._begins(task):  # the worker ends
            return
        try:
            said = self._outcome(task, loop)
            if said is None or not task.wanted:
                self._count("given_up")
                return
            try:
                self._finish(task, said)
            except (errors.Invalid, errors.TooLarge) as error:
                said = self._failure(task, error, "environment")
                self._finish(task, said)
            if "failed" not in said:
                self._count("finished")
                self._failures.none()
        except (errors.LeaseExpired, errors.NotFound, errors.Conflict) as error:
            self._count("given_up")
            _log.log(logging.INFO if task.wanted else logging.DEBUG, "%s is lost: %s", task.id, error)
        except errors.HeadwayError:
            self._count("failed")
            _log.exception("%s could not be finished", task.id)
        except BaseException as error:  # a defect, which may come with every rollout
            self._count("failed")
            self._failures.add(task.id, error)
        finally:
            self._ended(task)

    def _begins(self, task: Task) -> bool:
        """Note that a rollout's thread has begun, which is known first here or there."""
        with self._lock:
            if task.id in self._running:
                self._begun.add(task.id)
            return task.id in self._running

    def _ended(self, task: Task) -> None:
        with self._lock:
            self._running.pop(task.id, None)
            self._begun.discard(task.id)
        self._free.release()

    def _count(self, what: str) -> None:
        with self._lock:
            setattr(self, what, getattr(self, what) + 1)

    def _post(self, task: Task, what: str, said: dict[str, Any], **options: Any) -> dict[str, Any]:
        """A call for a claim, in its worker's name."""
        message = {"worker": self.name, "secret": task._secret} | said
        return task._claimed_at().post(f"/api/v1/rollouts/{task.id}/{what}", message, **options)

    def _finish(self, task: Task, said: dict[str, Any]) -> None:
        self._post(task, "finish", said, timeout_s=120.0)

    def _failure(self, task: Task, error: BaseException, reason: str) -> dict[str, Any]:
        """What a finish says of a rollout that came to nothing."""
        self._count("failed")
        self._failures.add(task.id, error)
        # One of this package begins with its class, such as verifier_crash, as the server's own failures do.
        text = str(error) if isinstance(error, errors.HeadwayError) else f"{type(error).__name__}: {error}"
        said: dict[str, Any] = {"failed": text[:1000], "reason": reason}
        if isinstance(error, errors.HeadwayError) and error.kind:
            said["class"] = error.kind
        return said

    def _outcome(self, task: Task, loop: asyncio.AbstractEventLoop) -> dict[str, Any] | None:
        found = self._environments.get(task.environment)
        if found is None and len(self._environments) == 1:
            found = next(iter(self._environments.values()))
        try:
            if found is None:
                raise errors.Invalid(f"no environment {task.environment!r} here")
            sample = Sampler(task, self.name)
            if found.is_async:
                return ending(asyncio.run_coroutine_threadsafe(_await(found, task, sample), loop).result())
            return ending(found(task, sample))
        except (Unwanted, errors.LeaseExpired):
            return None
        except TimeoutError as error:
            return self._failure(task, error, "timeout")
        except DataFailure as error:
            return self._failure(task, error, "data")
        except BaseException as error:  # this is no main thread: none of them ends the process
            if self._closing.is_set() or not task.wanted or (_gone(error) and self._lost(task)):
                return None
            return self._failure(task, error, "environment")

    def _lost(self, task: Task) -> bool:
        """Nobody wants the rollout any more. False also where nobody answers."""
        try:
            self._keep(task)
        except (errors.HeadwayError, RuntimeError):
            return False
        return not task.wanted

    def _keep(self, task: Task) -> None:
        """Keep a claim, and learn whether it is wanted."""
        try:
            limit_s = min(max(self._deadline_s / 4, _TOUCH_MIN_S), _TOUCH_MAX_S)
            reply = self._post(task, "touch", {}, timeout_s=limit_s, patience_s=0.0)
        except (errors.LeaseExpired, errors.NotFound, errors.Conflict):
            task._unwanted.set()
            return
        self._deadline_s = float(reply.get("deadline_s") or self._deadline_s)
        if not reply.get("wanted", True):
            task._unwanted.set()

    def _touch(self) -> None:
        """Keep the claims of what is being played, and learn which are not wanted any more.

        A claim is touched at a quarter of its time, and none twice before all that are due. No claim waits for the
        answer to another's touch, as long as there is room.
        """
        room = threading.Semaphore(_TOUCHES_MAX)
        while not self._closing.wait(min(max(self._deadline_s / 8, 0.02), 1.0)):
            self._failures.tell()
            for task in self._due():
                room.acquire()
                try:
                    in_thread(self._touch_one, task, room)
                except RuntimeError:  # no thread can be started now: it is tried again soon
                    room.release()
                    self._touch_again(task, time.monotonic() + self._deadline_s / 8)

    def _due(self) -> list[Task]:
        """The rollouts whose touch is due. Each is due again when `_touch_again` says so."""
        now = time.monotonic()
        with self._lock:
            found = [task for task, moment in self._running.values() if moment <= now and task.wanted]
            for task in found:
                self._running[task.id] = (task, math.inf)
        return found

    def _touch_one(self, task: Task, room: threading.Semaphore) -> None:
        began, share = time.monotonic(), 8
        try:
            self._keep(task)
            share = 4
        except (errors.HeadwayError, RuntimeError):
            pass  # the control plane is away: it is asked again soon
        finally:
            room.release()
            self._touch_again(task, began + self._deadline_s / share)

    def _touch_again(self, task: Task, moment: float) -> None:
        with self._lock:
            if task.id in self._running:
                self._running[task.id] = (task, moment)

    def _drain(self) -> None:
        with self._lock:  # KeyboardInterrupt may come before a claim has its thread: nobody plays it here
            self._running = {name: at for name, at in self._running.items() if name in self._begun}
        until = time.monotonic() + self._grace_s
        while time.monotonic() < until:
            with self._lock:
                if not self._running:
                    return
            self._closing.wait(0.02)
        _log.warning("%d rollouts had not ended after %g s: they are left", len(self._running), self._grace_s)


def _gone(error: BaseException | None) -> bool:
    """An agent's library was answered 410: httpx and openai say so in an attribute, or in a cause."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for one in (error, getattr(error, "response", None)):
            if 410 in (getattr(one, "status_code", None), getattr(one, "status", None)):
                return True
        error = error.__cause__ or error.__context__
    return False


async def _await(found: Environment, task: Task, sample: Sampler) -> Any:
    async def sampled(prompt_ids: Sequence[int], max_tokens: int, agent: str = "", train: bool = True) -> Sampled:
        return await asyncio.wrap_future(in_thread(sample, prompt_ids, max_tokens, agent, train))

    try:
        return await found(task, sampled)
    except (SystemExit, KeyboardInterrupt) as error:  # it would end the event loop
        raise RuntimeError(repr(error)) from error
