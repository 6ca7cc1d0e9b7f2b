"""What an environment is: a function that plays one rollout, sampling from the policy as it goes."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import operator
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

from . import errors
from .agent import OpenAI
from .threads import in_thread
from .transport import Silent, Transport

#: How long a call that samples waits before it asks again, how often it is looked whether its rollout is still wanted,
#: and how often who plays it is asked for a word.
_SAMPLE_S = 60.0
_LOOK_S = 0.25
_REACH_S = 60.0


class Unwanted(errors.HeadwayError):
    """The loop has given the rollout up: stop playing it. Its end is not reported."""

    default_code = "unwanted"


class InfraFailure(errors.HeadwayError):
    """A machine, a sandbox, a tool or a judge failed, and no reward can be given: raise it, or return it.

    The rollout is tried again, as after any other exception. What the policy brings about, such as a crash of its own
    program, is no failure: give it a reward.
    """

    default_code = kind = "infra"


class DataFailure(errors.HeadwayError):
    """The task itself cannot be played or judged: raise it, or return it. The rollout is not tried again."""

    default_code = kind = "data"


@dataclass(frozen=True)
class Task:
    """A rollout to play. All rollouts of a group are to get the same prompt.

    A prompt is a function of (seed, prompt, level) alone, so that siblings and retries agree.
    """

    #: The claim's name, such as g12-s3-a1.
    id: str
    environment: str
    #: Number of the prompt in its set; the group's own number where there is no set.
    prompt: int
    #: Difficulty from 1; 0 for none.
    level: int
    #: The run's.
    seed: int
    group: int
    #: Place in the group, from 0, and how often the rollout has been begun before.
    sample: int
    attempt: int
    #: The prompt is one of those kept for evaluation, by its number from 1. Nothing is trained on it, and `group` is
    #: below 0.
    evaluation: bool = False
    _unwanted: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    #: The claim's key, for an agent, and its secret, which stays with the worker.
    _key: str = field(default="", repr=False, compare=False)
    _secret: str = field(default="", repr=False, compare=False)
    _transport: Transport | None = field(default=None, repr=False, compare=False)
    #: Keeps the claim by one call, and learns whether the rollout is wanted. None where no worker claimed it.
    _keep: Callable[[Task], None] | None = field(default=None, repr=False, compare=False)

    @property
    def wanted(self) -> bool:
        """False once the loop has given the rollout up: what it yields counts for nothing."""
        return not self._unwanted.is_set()

    def openai(self, agent: str = "", train: bool = True) -> OpenAI:
        """Where an agent that speaks OpenAI's API samples for this rollout, instead of `sample`.

        What it samples is recorded by the server: play returns the reward alone. Where several agents speak in a
        rollout, `agent` names each: their calls are sequences of their own, and `Batch.agents` says whose. All calls
        of a rollout name one, or none does. With `train` false nothing of that agent's is trained on.
        """
        return dataclasses.replace(self._sampling().openai(self.id, self._key), agent=agent, train=train)

    def _sampling(self) -> Transport:
        """The worker's transport, while the rollout is wanted."""
        if not self.wanted:
            raise Unwanted(f"{self.id} is not wanted any more")
        return self._claimed_at()

    def _claimed_at(self) -> Transport:
        """The worker's transport to who plays it."""
        if self._transport is None:
            raise errors.Invalid(f"{self.id} was not claimed by a worker: nothing can be sampled for it")
        return self._transport

    def _ask(self, call: Callable[[Transport, threading.Event], dict[str, Any]]) -> dict[str, Any]:
        """A call that samples, however long that takes. It ends when the rollout is not wanted any more.

        Its plane may then be gone without a word. The thread is left to itself: nothing ends a read of a socket.
        """
        contact, over = _Contact(self), threading.Event()
        done = in_thread(call, self._sampling(), over)
        try:
            while True:
                try:
                    return done.result(_LOOK_S)
                except futures.TimeoutError:
                    if done.done():
                        return done.result()
                if not self.wanted:
                    raise Unwanted(f"{self.id} is not wanted any more")
                if contact.look():
                    over.set()
                    over = threading.Event()
                    done = in_thread(call, self._sampling(), over)
        finally:
            over.set()


class _Contact:
    """Whether who plays a rollout is there while it samples."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._last = self._asked = time.monotonic()
        self._base, self._away = task._sampling().url, 0

    def look(self) -> bool:
        """Ask now and then. Raise Unavailable where nobody has answered for the transport's patience.

        True where another address has answered twice: the process that the call waits for has lost the rollout, and may
        stand still for ever.
        """
        keep, now = self._task._keep, time.monotonic()
        if keep is None or now - self._asked < _REACH_S:
            return False
        self._asked = now
        try:
            keep(self._task)
        except errors.HeadwayError:
            if now - self._last > self._task._claimed_at().patience_s:
                raise
            return False
        self._last, here = now, self._task._claimed_at().url
        self._away = self._away + 1 if here != self._base else 0
        if self._away < 2:
            return False
        self._base, self._away = here, 0
        return True


@dataclass(frozen=True)
class Sampled:
    """A response of the policy, one entry a token in every list."""

    tokens: list[int]
    #: Log-probabilities under the policy that sampled, in nats.
    logprobs: list[float]
    #: Policy version that sampled each token: weights may change between two.
    versions: list[int]
    #: "stop" (the policy ended it), "length" (max_tokens) or "pruned".
    finish: str


@dataclass(frozen=True)
class Result:
    """How a rollout ended."""

    #: Any finite number that a float32 can be.
    reward: float
    #: The answer is wholly right.
    exact: bool = False
    #: Readable renderings, for sample files.
    prompt_text: str = ""
    response_text: str = ""
    answer_text: str = ""
    #: Only of a rollout that was sampled elsewhere than by `sample`, one entry a token of prompt and response: ids,
    #: 1 where the policy sampled the token (else 0), log-probabilities in nats, and the versions that sampled.
    tokens: Sequence[int] | None = None
    loss_mask: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    versions: Sequence[int] | None = None


Play = Callable[..., Any]
#: The largest float32, which is what a reward is kept as.
REWARD_MAX = 3.4028234663852886e38


class Sampler:
    """Samples with the rollout's slot of an engine, however often the rollout is interrupted meanwhile."""

    def __init__(self, task: Task, worker: str) -> None:
        self._task, self._worker = task, worker
        self._lock = threading.Lock()
        self._answered = self._asked = 0  # turns that have their response, and calls that wait for theirs

    def __call__(self, prompt_ids: Sequence[int], max_tokens: int, agent: str = "", train: bool = True) -> Sampled:
        """One response. The prompt of a later turn begins with the prompt and response of the turn before.

        Where several agents speak, `agent` names each, and every one has turns of its own: see `Task.openai`.
        """
        if not self._task.wanted:
            raise Unwanted(f"{self._task.id} is not wanted any more")
        if max_tokens < 1 or len(prompt_ids) < 1:
            raise errors.Invalid(f"sample of {max_tokens} tokens after {len(prompt_ids)}: want at least one of each")
        message = {
            "worker": self._worker, "secret": self._task._secret,
            "prompt": [operator.index(t) for t in prompt_ids], "max_tokens": int(max_tokens),
        }  # fmt: skip
        if agent or not train:  # the server refuses an agent that is not trained and has no name
            message |= {"agent": agent, "train": bool(train)}
        reply = self._next(message)
        return Sampled(
            reply.get("tokens") or [], reply.get("logprobs") or [], reply.get("versions") or [], reply.get("finish", "")
        )

    def _next(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for the next turn. One that is refused, such as for its prompt, is asked for again by the next call."""
        with self._lock:
            turn = self._answered + self._asked
            self._asked += 1
        answered = 0
        try:
            reply = self._task._ask(functools.partial(self._sampled, {**message, "turn": turn}))
            answered = 1
            return reply
        finally:
            with self._lock:
                self._asked -= 1
                self._answered += answered

    def _sampled(self, message: Mapping[str, Any], transport: Transport, over: threading.Event) -> dict[str, Any]:
        """Ask for a turn until it is there: each call joins the one before it."""
        path = f"/api/v1/rollouts/{self._task.id}/sample"
        while True:
            try:
                return transport.post(path, message, timeout_s=_SAMPLE_S, stop=over, joins=True)
            except Silent:
                if over.is_set():
                    raise


@dataclass(frozen=True)
class Environment:
    """A named function that plays."""

    name: str
    play: Play

    @property
    def samples(self) -> bool:
        """The function takes `sample`; one that takes the task, and options of its own, lets an agent sample."""
        try:
            parameters = list(inspect.signature(self.play).parameters.values())
        except (TypeError, ValueError):  # a function that says nothing of its arguments
            return True
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            return True
        places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        return len(places) > 1 and (places[1].default is places[1].empty or places[1].name == "sample")

    @property
    def is_async(self) -> bool:
        """The function is a coroutine function."""
        return inspect.iscoroutinefunction(self.play)

    def __call__(self, task: Task, sample: Callable[[Sequence[int], int], Sampled | Awaitable[Sampled]]) -> Any:
        return self.play(task, sample) if self.samples else self.play(task)


def environment(name: str) -> Callable[[Play], Environment]:
    """Make an environment of `def play(task, sample) -> float | Result`; `async def` with `await sample(…)` too.

    `def play(task)` is for agents that speak OpenAI's API: they sample at `task.openai()`. An exception is a
    failure of the environment, retried and never scored 0.
    """
    if not isinstance(name, str):
        raise errors.Invalid("an environment wants a name: mark the function with @headway.environment(NAME)")
    if not name or not all(c.isascii() and (c.isalnum() or c in "._-") for c in name):
        raise errors.Invalid(f"the environment's name {name!r} cannot be: want letters, digits, '.', '_', '-'")

    def named(play: Play) -> Environment:
        return Environment(name, play)

    return named


def ending(played: object) -> dict[str, Any]:
    """The fields of a finish request that a result says; Invalid where it cannot be. A failure is raised."""
    if isinstance(played, (InfraFailure, DataFailure)):
        raise played
    result = played if isinstance(played, Result) else None
    if result is None:
        if isinstance(played, bool) or not hasattr(played, "__float__"):
            raise errors.Invalid(f"play returned {played!r}: want a number or a headway.Result")
        result = Result(float(played))
    reward = float(result.reward)
    if not abs(reward) <= REWARD_MAX:
        raise errors.Invalid(f"play returned the reward {reward}: want a finite number that a float32 can be")
    said: dict[str, Any] = {"reward": reward, "exact": bool(result.exact)}
    for key in ("prompt_text", "response_text", "answer_text"):
        text = getattr(result, key)
        if text is not None and not isinstance(text, str):
            raise errors.Invalid(f"a result has the {key} {text!r:.80} of type {type(text).__name__}: want a str")
        if text:
            said[key] = text
    given = {key: getattr(result, key) for key in ("tokens", "loss_mask", "logprobs", "versions")}
    if any(value is not None for value in given.values()):
        lengths = {key: -1 if value is None else len(value) for key, value in given.items()}
        if len(set(lengths.values())) != 1:
            raise errors.Invalid(f"a result sampled elsewhere wants all of one length, and has {lengths} (-1: missing)")
        numbers = [float(x) for x in given["logprobs"]]
        if not all(map(math.isfinite, numbers)):
            raise errors.Invalid("a result sampled elsewhere has a log-prob that is not finite")
        said["logprobs"] = numbers
        for key in ("tokens", "loss_mask", "versions"):
            said[key] = [int(x) for x in given[key]]
    return said
