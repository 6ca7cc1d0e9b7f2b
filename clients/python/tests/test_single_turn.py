"""Environments of one turn, against the real server."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Serve
from faulty import as_json, serving
from test_worker import word_of

import headway
from headway.claims import Worker
from headway.single_turn import _Judged, chat
from headway.transport import Transport

Start = Callable[..., Serve]


def test_a_chat(serve: Start) -> None:
    """A text is asked through the gateway; what the function says of the answer is the reward."""
    heard: list[str] = []

    @headway.single_turn("reverse", max_tokens=4)
    def letters(task: headway.Task) -> headway.Question:
        def right(said: str) -> bool:
            heard.append(said)
            return len(said) % 2 == 0

        return headway.Question("abc", right, answer="cba")

    server = serve("--steps", "2", environment__kind="remote", trainer__kind="embedded")
    assert headway.work(server.url, letters, 16, worker="w") >= 2 * 16
    assert len(heard) >= 2 * 16
    assert all(len(said) <= 4 for said in heard)


def test_token_ids(serve: Start) -> None:
    """A prompt of token ids is sampled from as it is, and judged by tokens; the judge may be a coroutine."""

    @headway.single_turn("reverse", max_tokens=6)
    def word(task: headway.Task) -> headway.Question:
        want = [*reversed(word_of(task)), 2]

        async def right(said: headway.Sampled) -> Any:
            await asyncio.sleep(0)
            return np.float32(sum(a == b for a, b in zip(want, said.tokens, strict=False)) / 6)

        return headway.Question([0, *word_of(task), 1], right)

    server = serve("--steps", "2", environment__kind="remote", trainer__kind="embedded")
    assert headway.work(server.url, word, 16, worker="w") >= 2 * 16


def test_failures_have_a_class(serve: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge that raises, hangs, or says what is no reward fails the attempt: it is played again, never scored 0."""
    never = threading.Event()
    wrong: list[Callable[[Any], Any]] = [
        lambda said: 1 / 0, lambda said: float("nan"), lambda said: "1", lambda said: 2.0, lambda said: never.wait(),
    ]  # fmt: skip
    told: Counter[tuple[str, str]] = Counter()
    ended: list[dict[str, Any]] = []
    finish = Worker._finish

    def noting(self: Worker, task: headway.Task, said: dict[str, Any]) -> None:
        ended.append(said)
        if "failed" in said:
            assert said["class"] == said["failed"].split(":")[0]
            told[said["class"], said["reason"]] += 1
        finish(self, task, said)

    monkeypatch.setattr(Worker, "_finish", noting)

    @headway.single_turn("reverse", max_tokens=6, low=0, high=1, verify_s=0.5)
    def word(task: headway.Task) -> headway.Question:
        broken = task.attempt == 1 and task.group <= 2
        verify = wrong[(4 * task.group + task.sample) % len(wrong)] if broken else lambda said: 0.75
        return headway.Question([0, *word_of(task), 1], verify)

    server = serve("--steps", "2", environment__kind="remote", trainer__kind="embedded")
    assert headway.work(server.url, word, 16, worker="w") >= 2 * 16
    never.set()
    assert told == {("verifier_crash", "environment"): told["verifier_crash", "environment"],
                    ("verifier_protocol", "environment"): told["verifier_protocol", "environment"],
                    ("verifier_timeout", "timeout"): told["verifier_timeout", "timeout"]}  # fmt: skip
    assert min(told.values()) >= 1
    assert {said["reward"] for said in ended if "failed" not in said} == {0.75}


def test_the_judge_says_whose_fault_it_is() -> None:
    for failure in (headway.DataFailure, headway.InfraFailure):
        with pytest.raises(failure):
            judged(lambda said, failure=failure: (_ for _ in ()).throw(failure("no answer")))


def test_chats_have_their_claims_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of a rollout's claim stands in the place of the worker's token."""
    monkeypatch.setenv("HEADWAY_TOKEN", "the-process-own")
    with serving() as server:
        transport = Transport(server.url)
        answer = {"choices": [{"message": {"content": "yes"}}]}
        server.routes["POST /v1/chat/completions"] = lambda _: as_json(answer)
        for rollout in ("g0-s0-a1", "g0-s1-a1"):
            task = headway.Task(rollout, "x", 0, 0, 7, 0, 0, 1, _key=f"{rollout}.key", _transport=transport)
            assert chat(task, [{"role": "user"}]) == "yes"
        said = [request.headers["Authorization"] for request in server.seen("/v1/chat/completions")]
        transport.close()
    assert said == ["Bearer g0-s0-a1.key", "Bearer g0-s1-a1.key"]


def judged(verify: Callable[[Any], Any], **more: Any) -> headway.Result:
    settings = {"system": "", "max_tokens": None, "verify_s": 30.0, "low": -1.0, "high": 1.0, "exact_from": 1.0} | more
    return _Judged(**settings).judge(verify, "said")


def test_verdicts() -> None:
    assert judged(lambda said: said == "said") == headway.Result(1.0, exact=True)
    assert judged(lambda said: np.bool_(False)) == headway.Result(0.0)
    assert judged(lambda said: 0.5, exact_from=0.5) == headway.Result(0.5, exact=True)
    assert judged(lambda said: headway.Result(0.25, answer_text="x")) == headway.Result(0.25, answer_text="x")
    for wrong in (None, "1", [1], float("inf"), -1.5, headway.Result(7.0)):
        with pytest.raises(headway.VerifierProtocol):
            judged(lambda said, wrong=wrong: wrong)

    def exits(said: str) -> float:
        raise SystemExit(3)

    def late(said: str) -> float:
        raise TimeoutError("the judge's own")

    for broken in (exits, late):
        with pytest.raises(headway.VerifierCrash):
            judged(broken)
    hold = threading.Event()
    with pytest.raises(headway.VerifierTimeout) as caught:
        judged(lambda said: hold.wait(), verify_s=0.01)
    hold.set()
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.code == "verifier_timeout"


def test_what_cannot_be_asked() -> None:
    task = headway.Task("g1-s0-a1", "x", 1, 0, 7, 1, 0, 1)
    mixed: Any = [{"role": "user"}, 1]
    for asked, message in (
        ("no question", "want a headway.Question"), (headway.Question([], bool), "empty"),
        (headway.Question([1, 2], bool), "max_tokens"), (headway.Question(mixed, bool), "something else"),
    ):  # fmt: skip
        made = headway.single_turn("x")(lambda task, asked=asked: asked)  # type: ignore[misc]
        with pytest.raises(headway.Invalid, match=message):
            made(task, lambda prompt, most: None)  # type: ignore[arg-type, return-value]
    for options in ({"max_tokens": 0}, {"verify_s": 0.0}, {"low": 1.0, "high": 0.0}):
        with pytest.raises(headway.Invalid):
            headway.single_turn("x", **options)  # type: ignore[arg-type]

    async def asks(task: headway.Task) -> headway.Question:
        return headway.Question("x", bool)

    with pytest.raises(headway.Invalid, match="coroutine"):
        headway.single_turn("x")(asks)  # type: ignore[arg-type]


@pytest.mark.parametrize("verdict", [np.array([1.0, 2.0]), 10**400])
def test_a_verdict_that_is_no_number(verdict: object) -> None:
    with pytest.raises(headway.VerifierProtocol):
        _Judged("", None, 30.0, -1.0, 1.0, 1.0).judge(lambda said: verdict, "said")


def test_a_failure_that_is_returned() -> None:
    for kind in (headway.DataFailure, headway.InfraFailure):
        with pytest.raises(kind):
            _Judged("", None, 30.0, -1.0, 1.0, 1.0).judge(lambda said, kind=kind: kind("no answer"), "said")
