"""Environments of one turn: a question to the policy, and a function of yours that judges what it said.

    @headway.single_turn("sums", max_tokens=16)
    def sums(task):
        draw = random.Random(f"{task.seed}/{task.prompt}/{task.level}")    # of these alone: siblings get the same
        a, b = draw.randrange(10), draw.randrange(10)
        return headway.Question(f"{a}+{b}=", lambda said: said.strip() == str(a + b))

    headway.work("http://127.0.0.1:7070", sums)

What goes wrong in the judging is a failure of the rollout, which has a class, is tried again, and is never a reward:
verifier_crash, verifier_timeout or verifier_protocol. One that raises headway.DataFailure says that the task cannot be
judged, which is not tried again.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from . import errors
from .play import REWARD_MAX, DataFailure, Environment, InfraFailure, Result, Sampled, Task, environment
from .threads import in_thread
from .transport import Transport

Message = Mapping[str, Any]
#: What the policy said, as text or, after a prompt of token ids, as tokens; what that is worth: True or False, a
#: number, or a Result. It may be a coroutine function.
Verify = Callable[[Any], Any]
_MODEL = "policy"


class VerifierCrash(errors.HeadwayError):
    """The function that judges raised."""

    default_code = kind = "verifier_crash"


class VerifierTimeout(errors.HeadwayError, TimeoutError):
    """The function that judges took too long. Its thread is left to itself."""

    default_code = kind = "verifier_timeout"


class VerifierProtocol(errors.HeadwayError):
    """The function that judges returned what is no reward."""

    default_code = kind = "verifier_protocol"


@dataclass(frozen=True)
class Question:
    """What a rollout asks the policy, and who judges what it says."""

    #: A text, which is the user's message; chat messages; or token ids, which the policy goes on from.
    prompt: str | Sequence[Message] | Sequence[int]
    verify: Verify
    #: Readable rendering of the right answer, for sample files.
    answer: str = ""


def single_turn(
    name: str, *, system: str = "", max_tokens: int | None = None, verify_s: float = 60.0,
    low: float = -REWARD_MAX, high: float = REWARD_MAX, exact_from: float = 1.0,
) -> Callable[[Callable[[Task], Question]], Environment]:  # fmt: skip
    """Make an environment of `def ask(task) -> Question`, a function of the task's seed, prompt and level alone.

    `system` is a system message before prompts that are text. `max_tokens` bounds the response; without it the run
    does, and a prompt of token ids wants it. A judge has `verify_s` seconds. Rewards outside of `low` to `high` are
    failures; one of at least `exact_from` counts as wholly right.
    """
    if not isinstance(name, str):
        raise errors.Invalid("an environment wants a name: mark the function with @headway.single_turn(NAME)")
    if max_tokens is not None and max_tokens < 1:
        raise errors.Invalid(f"max_tokens is {max_tokens}: want at least 1, or None for the run's limit")
    if not verify_s > 0 or not low <= high:
        raise errors.Invalid(f"verify_s is {verify_s}, rewards are from {low} to {high}: want above 0, and in order")
    judged = _Judged(system, max_tokens, verify_s, low, high, exact_from)

    def made(ask: Callable[[Task], Question]) -> Environment:
        if inspect.iscoroutinefunction(ask):
            raise errors.Invalid(f"{ask.__name__} is a coroutine function: want one that returns a Question at once")

        def play(task: Task, sample: Callable[[Sequence[int], int], Sampled]) -> Result:
            return judged.play(ask(task), task, sample)

        return environment(name)(play)

    return made


@dataclass(frozen=True)
class _Judged:
    system: str
    max_tokens: int | None
    verify_s: float
    low: float
    high: float
    exact_from: float

    def play(self, question: Question, task: Task, sample: Callable[[Sequence[int], int], Sampled]) -> Result:
        if not isinstance(question, Question):
            raise errors.Invalid(f"the environment asked {question!r:.80}: want a headway.Question")
        messages = self.messages(question.prompt)
        if messages is None:
            if self.max_tokens is None:
                raise errors.Invalid("a prompt of token ids wants max_tokens")
            tokens: Any = question.prompt
            said: Any = sample(tokens, self.max_tokens)
            text = asked = ""
        else:
            said = text = chat(task, messages, self.max_tokens)
            asked = str(messages[-1].get("content") or "")
        result = self.judge(question.verify, said)
        return replace(
            result, prompt_text=result.prompt_text or asked, response_text=result.response_text or text,
            answer_text=result.answer_text or question.answer,
        )  # fmt: skip

    def messages(self, prompt: str | Sequence[Message] | Sequence[int]) -> list[dict[str, Any]] | None:
        """The chat of a prompt, None for one of token ids."""
        if isinstance(prompt, str):
            before = [{"role": "system", "content": self.system}] if self.system else []
            return [*before, {"role": "user", "content": prompt}]
        if len(prompt) == 0:
            raise errors.Invalid("the prompt is empty: want a text, messages or token ids")
        chat = [dict(one) for one in prompt if isinstance(one, Mapping)]
        if chat and len(chat) < len(prompt):
            raise errors.Invalid("the prompt has both messages and something else")
        return chat or None

    def judge(self, verify: Verify, said: Any) -> Result:
        """Ask the user's function, in a thread of its own, and take nothing but a reward for an answer."""
        done: Future[Any] = in_thread(_called, verify, said)
        try:
            found = done.result(self.verify_s)
        except BaseException as error:
            if not done.done():
                raise VerifierTimeout(f"no verdict within {self.verify_s:g} s") from None
            if isinstance(error, (DataFailure, InfraFailure)):
                raise
            raise VerifierCrash(f"{type(error).__name__}: {error}") from error
        if isinstance(found, (DataFailure, InfraFailure)):  # returned instead of raised
            raise found
        if isinstance(found, Result):
            self.check(found.reward)
            return found
        if isinstance(found, bool) or type(found).__name__ == "bool_":  # numpy's
            return Result(float(found), exact=bool(found))
        self.check(found)
        reward = float(found)
        return Result(reward, exact=reward >= self.exact_from)

    def check(self, reward: object) -> None:
        if isinstance(reward, str) or not hasattr(reward, "__float__"):
            raise VerifierProtocol(f"the verdict is {reward!r:.80}: want True, False, a number or a headway.Result")
        try:
            value = float(reward)
        except Exception as error:  # such as of an array of several numbers
            raise VerifierProtocol(f"the verdict is {reward!r:.80}, which is no number: {error}") from error
        if math.isnan(value) or not self.low <= value <= self.high:
            raise VerifierProtocol(f"the reward is {value:g}: want a number from {self.low:g} to {self.high:g}")


def _called(verify: Verify, said: Any) -> Any:
    found = verify(said)
    if inspect.iscoroutine(found):
        return asyncio.run(found)
    return found


def chat(task: Task, messages: Sequence[Message], max_tokens: int | None = None) -> str:
    """The policy's next message of a rollout. One without an answer is asked for again, and not recorded.

    The claim's key is known to the control plane alone that gave it. Another one answers 410 once it is the writer.
    """
    body: dict[str, Any] = {"model": _MODEL, "messages": list(messages)}
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    headers = {"Authorization": f"Bearer {task._key}"}

    def call(transport: Transport, over: threading.Event) -> dict[str, Any]:
        return transport.post("/v1/chat/completions", body, headers=headers, timeout_s=None, stop=over)

    reply = task._ask(call)
    try:
        return str(reply["choices"][0]["message"].get("content") or "")
    except (AttributeError, IndexError, KeyError, TypeError):
        raise errors.Internal(f"the answer to a chat of {task.id} is no chat completion: {str(reply)[:200]}") from None
