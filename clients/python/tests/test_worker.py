"""Environment workers against the real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from conftest import ROOT, Serve
from faulty import Reply, Request, as_json, refusal, serving

import headway
from headway.claims import _TOUCHES_MAX, Worker
from headway.play import Sampler, ending
from headway.transport import Transport
from headway.worker import load, main

Start = Callable[..., Serve]
LETTERS = """
import random
import headway

@headway.environment("reverse")
def play(task, sample):
    draw = random.Random(f"{task.seed}/{task.prompt}/{task.level}")
    word = [3 + draw.randrange(26) for _ in range(draw.randint(2, 5))]
    said = sample([0, *word, 1], 6)
    return sum(a == b for a, b in zip(said.tokens, [*reversed(word), 2])) / 6
"""


def word_of(task: headway.Task) -> list[int]:
    draw = random.Random(f"{task.seed}/{task.prompt}/{task.level}")
    return [3 + draw.randrange(26) for _ in range(draw.randint(2, 5))]


@headway.environment("reverse")
def plain(task: headway.Task, sample: Callable[..., headway.Sampled]) -> headway.Result:
    word = word_of(task)
    said = sample([0, *word, 1], 6)
    assert len(said.tokens) == len(said.logprobs) == len(said.versions) > 0
    assert said.finish in ("stop", "length")
    want = [*reversed(word), 2]
    right = sum(a == b for a, b in zip(want, said.tokens, strict=False))
    return headway.Result(right / max(len(want), len(said.tokens)), exact=want == said.tokens, prompt_text=str(word))


@headway.environment("reverse")
async def coroutine(task: headway.Task, sample: Any) -> float:
    said = await sample([0, *word_of(task), 1], 6)
    more = await sample([0, *word_of(task), 1, *said.tokens], 1) if False else said
    return float(more.tokens[0] == 5)


def status(url: str) -> dict[str, Any]:
    return Transport(url).get("/api/v1/status")


@pytest.mark.parametrize("environment", [plain, coroutine], ids=["threads", "async"])
def test_plays_a_run(serve: Start, environment: headway.Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded trainer trains on what the worker plays, until the run has ended; then work returns."""
    made: list[asyncio.AbstractEventLoop] = []
    new_event_loop = asyncio.new_event_loop
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: made.append(new_event_loop()) or made[-1])
    server = serve("--steps", "4", environment__kind="remote", trainer__kind="embedded")
    finished = headway.work(server.url, environment, concurrency=16, worker="w")
    assert finished >= 4 * 16
    assert made[0].is_closed()


def test_failures_are_reported(serve: Start) -> None:
    """An environment that fails is tried again and never scored 0; a reward that is not finite is a failure."""
    seen: list[str] = []

    @headway.environment("reverse")
    def flaky(task: headway.Task, sample: Callable[..., headway.Sampled]) -> float:
        if task.attempt == 1 and task.sample in (1, 2):
            seen.append(task.id)
            if task.sample == 1:
                return 0.5  # refused by the server: nothing was sampled
            sys.exit("an environment may not")
        sample([0, *word_of(task), 1], 6)
        if task.attempt == 1 and task.sample == 0:
            seen.append(task.id)
            if len(seen) % 3 == 0:
                raise TimeoutError("too slow")
            return float("nan") if len(seen) % 2 else 1 / 0
        return random.random()

    server = serve("--steps", "3", environment__kind="remote", trainer__kind="embedded")
    worker = Worker(server.url, flaky, 16, worker="w")
    assert worker.run() >= 3 * 16
    assert len(seen) - worker.given_up <= worker.failed <= len(seen)
    assert worker.failed > 0


def test_a_machine_is_no_zero(serve: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollout on a dead machine is tried again, one of a broken task is not, and neither is scored 0."""
    ended: list[dict[str, Any]] = []
    attempts: dict[tuple[int, int], int] = {}
    finish = Worker._finish

    def noting(self: Worker, task: headway.Task, said: dict[str, Any]) -> None:
        ended.append(said)
        attempts[task.group, task.sample] = task.attempt
        finish(self, task, said)

    monkeypatch.setattr(Worker, "_finish", noting)

    @headway.environment("reverse")
    def dying(task: headway.Task, sample: Callable[..., headway.Sampled]) -> object:
        if task.sample == 0:
            raise headway.DataFailure("the task has no answer")
        if task.sample == 1 and task.attempt == 1:
            return headway.InfraFailure("no route to the machine")
        sample([0, *word_of(task), 1], 6)
        return 0.5 + task.sample / 8

    more: dict[str, object] = {"failures__on_failure": "shrink", "failures__group_min": 3}
    server = serve("--steps", "3", environment__kind="remote", trainer__kind="embedded", **more)
    assert headway.work(server.url, dying, 16, worker="w") >= 3 * 12
    told = {(said["reason"], said["class"]) for said in ended if "failed" in said}
    assert told == {("data", "data"), ("environment", "infra")}
    assert min(said["reward"] for said in ended if "failed" not in said) > 0.5
    assert {attempt for (_, sample), attempt in attempts.items() if sample == 0} == {1}
    assert max(attempt for (_, sample), attempt in attempts.items() if sample == 1) == 2


def test_evaluation_beside(serve: Start, tmp_path: Path) -> None:
    """Held-out prompts are played while the run goes on, and nothing of them is trained on."""
    prompts: set[int] = set()

    @headway.environment("reverse")
    def play(task: headway.Task, sample: Callable[..., headway.Sampled]) -> object:
        sample([0, *word_of(task), 1], 6)
        if not task.evaluation:
            return 0.75
        assert task.group < 0
        assert task.id.startswith("e")
        prompts.add(task.prompt)
        if task.prompt == 3:
            raise headway.DataFailure("no answer")
        return headway.Result(0.25, exact=task.prompt <= 3)

    more: dict[str, object] = {"evaluate__slots": 4, "evaluate__every": 2, "evaluate__prompts": 6}
    server = serve("--steps", "40", environment__kind="remote", trainer__kind="embedded", **more)
    assert headway.work(server.url, play, 24, worker="w") >= 40 * 16
    said = status(server.url)["held_out"]
    assert (said["reward"], said["accuracy"], said["scored"], said["failed"]) == (0.25, 0.4, 5, 1)
    (path,) = (tmp_path / "runs").glob("*/metrics.jsonl")
    steps = [json.loads(line) for line in path.read_text().splitlines()]
    assert {step["reward"] for step in steps} == {0.75}
    found = [step["held_out"] for step in steps if "held_out" in step]
    assert found
    assert prompts == set(range(1, 7))
    for one in found:
        assert (one["reward"], one["scored"], one["failed_data"], one["failed_infra"]) == (0.25, 5, 1, 0)
        assert 0 <= one["oldest_version"] <= one["newest_version"] <= 40
    assert {step["held_out_accuracy"] for step in steps if "held_out" in step} == {0.4}


def test_killed_worker(serve: Start, tmp_path: Path) -> None:
    """kill -9 of a worker: its claims expire, others play them, and the run goes on. SIGTERM ends one in order."""
    server = serve("--steps", "6", environment__kind="remote", trainer__kind="embedded", server__claim_s=0.5)
    (tmp_path / "letters.py").write_text(LETTERS)
    command = [sys.executable, "-m", "headway.worker", "letters:play", server.url, "--concurrency", "8"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "clients" / "python" / "src"), str(tmp_path)])}
    pause = threading.Event()

    def started() -> subprocess.Popen[str]:
        process = subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert "playing reverse" in process.stderr.readline()
        return process

    killed = started()
    while status(server.url)["workers"]["claimed"] == 0:
        pause.wait(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    asked = started()
    asked.send_signal(signal.SIGTERM)
    assert asked.wait(40) == 0
    assert headway.work(server.url, plain, concurrency=16) > 0
    assert status(server.url)["version"] == 6


def test_claims_are_kept(serve: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that takes longer than a claim lasts keeps it, however short that is."""
    touched: dict[str, int] = {}
    attempts: set[int] = set()
    word = threading.Condition()
    post = Transport.post

    def counting(self: Transport, path: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        reply = post(self, path, *arguments, **options)
        if path.endswith("/touch"):
            with word:
                task = path.split("/")[-2]
                touched[task] = touched.get(task, 0) + 1
                word.notify_all()
        return reply

    monkeypatch.setattr(Transport, "post", counting)

    @headway.environment("reverse")
    def slow(task: headway.Task, sample: Callable[..., headway.Sampled]) -> float:
        said = sample([0, *word_of(task), 1], 6)
        with word:
            attempts.add(task.attempt)
            assert word.wait_for(lambda: touched.get(task.id, 0) >= 6 or not task.wanted, 60)
        return float(said.tokens[0] == 5)

    server = serve("--steps", "1", environment__kind="remote", trainer__kind="embedded", server__claim_s=2)
    assert headway.work(server.url, slow, 16) >= 16
    assert attempts == {1}


HANGS = """
import sys
import threading
import headway

@headway.environment("reverse")
def play(task, sample):
    sys.stdout.write("hangs\\n")  # in one piece, since two threads do
    sys.stdout.flush()
    threading.Event().wait()
"""


@pytest.mark.parametrize("signals", [1, 2])
def test_hanging_tool(serve: Start, tmp_path: Path, signals: int) -> None:
    """A tool that hangs does not keep a worker that is to stop: after the grace, or at the second signal."""
    server = serve("--steps", "6", environment__kind="remote", trainer__kind="embedded")
    (tmp_path / "hangs.py").write_text(HANGS)
    grace = "0.2" if signals == 1 else "600"
    command = [sys.executable, "-m", "headway.worker", "hangs:play", server.url, "--concurrency", "2", "--grace", grace]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "clients" / "python" / "src"), str(tmp_path)])}
    process = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["hangs\n", "hangs\n"]
        process.send_signal(signal.SIGTERM)
        if signals == 2:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == (0 if signals == 1 else 128 + signal.SIGTERM)
    finally:
        process.kill()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["threads", "async"])
def test_as_many_as_said(serve: Start, asynchronous: bool) -> None:
    """So many rollouts sample at once as the concurrency says, whatever the machine's processors."""
    concurrency = 48  # asyncio's own executor has at most 32 threads
    together = threading.Barrier(concurrency)
    stop = threading.Event()

    def play(task: headway.Task, sample: Callable[..., headway.Sampled]) -> float:
        said = sample([0, *word_of(task), 1], 6)
        return float(said.tokens[0] == 5)

    async def coroutine(task: headway.Task, sample: Any) -> float:
        said = await sample([0, *word_of(task), 1], 6)
        return float(said.tokens[0] == 5)

    plain_call = Sampler.__call__

    def waiting(self: Sampler, *arguments: Any, **named: Any) -> headway.Sampled:
        if not stop.is_set():
            together.wait(60)
            stop.set()
        return plain_call(self, *arguments, **named)

    server = serve(environment__kind="remote", trainer__kind="embedded", rollout__concurrency=64)
    environment = headway.environment("reverse")(coroutine if asynchronous else play)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sampler, "__call__", waiting)
        assert headway.work(server.url, environment, concurrency, stop=stop) >= concurrency
    assert not together.broken


@pytest.mark.parametrize(
    ("played", "message"),
    [
        (1e300, "float32"), (None, "want a number"), (True, "want a number"), ("1", "want a number"),
        (float("inf"), "finite"),
        (headway.Result(1, tokens=[1, 2], loss_mask=[0, 1], logprobs=[0.0]), "one length"),
        (headway.Result(1, tokens=[1], loss_mask=[1], logprobs=[float("nan")], versions=[0]), "not finite"),
        (headway.Result(1, answer_text=np.int64(7)), "answer_text .*7.* of type int64: want a str"),  # type: ignore[arg-type]
        (headway.Result(1, response_text=b""), "response_text b'' of type bytes"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_no_result(played: object, message: str) -> None:
    with pytest.raises(headway.Invalid, match=message):
        ending(played)


def test_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "some_environment.py").write_text(LETTERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [e.name for e in load(["some_environment:play"])] == ["reverse"]
    for wrong in ("some_environment", "some_environment:random", "some_environment:nothing"):
        with pytest.raises(headway.Invalid):
            load([wrong])
    assert main(["no_such_module:play", "http://127.0.0.1:1"]) == 2
    assert "no_such_module" in capsys.readouterr().err
    with pytest.raises(headway.Invalid, match="name 'a b'"):
        headway.environment("a b")


def answering(status: int) -> Worker:
    """A worker whose server answers every touch alike."""
    worker = Worker("http://nowhere", plain, 1, worker="w")
    refusal = {"error": {"code": "expired", "message": "it is not wanted"}} if status != 200 else {"wanted": True}
    worker._transport._http = httpx.Client(
        transport=httpx.MockTransport(lambda request: httpx.Response(status, json=refusal))
    )
    return worker


def plays_one(worker: Worker, environment: headway.Environment) -> None:
    """Have the worker play one rollout, in this thread."""
    worker._environments = {environment.name: environment}
    task = headway.Task("g1-s0-a1", environment.name, 1, 0, 7, 1, 0, 1, _transport=worker._transport)
    worker._running[task.id] = (task, 0.0)
    worker._free.acquire()
    worker._play({"task": task}, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("touched", "failed"), [(410, 0), (200, 1)])
def test_an_agents_call_is_gone(touched: int, failed: int) -> None:
    """A 410 in an agent's library is no failure of the environment where the rollout is not wanted any more."""

    @headway.environment("reverse")
    def play(task: headway.Task) -> float:
        try:
            httpx.Response(410, request=httpx.Request("POST", "http://nowhere/v1")).raise_for_status()
        except httpx.HTTPStatusError as error:
            raise RuntimeError("the harness failed") from error
        return 1.0

    worker = answering(touched)
    posted: list[str] = []
    worker._finish = lambda task, said: posted.append(said.get("failed", ""))  # type: ignore[method-assign]
    plays_one(worker, play)
    assert (worker.failed, worker.given_up, worker.finished) == (failed, 1 - failed, 0)
    assert len(posted) == failed


class Outcome(BaseException):
    """As pytest.fail() raises one."""


def cancels() -> float:
    async def agent() -> None:
        raise asyncio.CancelledError

    asyncio.run(agent())
    return 1.0


def fails() -> float:
    raise Outcome("assert 1 == 2")


@pytest.mark.parametrize(("ends", "name"), [(cancels, "CancelledError"), (fails, "Outcome"), (sys.exit, "SystemExit")])
def test_no_exception_is_lost(ends: Callable[[], float], name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever play raises is a failure that is finished, logged and counted."""
    worker = answering(200)
    posted: list[dict[str, Any]] = []
    worker._finish = lambda task, said: posted.append(said)  # type: ignore[method-assign]
    plays_one(worker, headway.environment("reverse")(lambda task: ends()))
    assert (worker.failed, worker.finished) == (1, 0)
    assert [said["reason"] for said in posted] == ["environment"]
    assert posted[0]["failed"].startswith(name)
    assert "g1-s0-a1 failed" in caplog.text
    assert worker._failures.wait_s() > 0


def test_a_finish_that_cannot_be_said() -> None:
    """The worker pauses after defects as after failures."""
    worker = answering(200)
    worker._finish = lambda task, said: said["missing"]  # type: ignore[method-assign]
    plays_one(worker, headway.environment("reverse")(lambda task: 1.0))
    assert (worker.failed, worker.finished) == (1, 0)
    assert worker._failures.wait_s() > 0
    assert not worker._running


@pytest.mark.parametrize(("code", "status"), [("unavailable", 503), ("busy", 429), ("disk_full", 507)])
def test_stopped_in_an_outage(code: str, status: int) -> None:
    """A worker that is to stop while nobody answers its claim ends in order."""
    stop = threading.Event()

    def away(_: Request) -> Reply:
        stop.set()
        return refusal(code, status)

    with serving() as server:
        server.routes["POST /api/v1/rollouts/claim"] = away
        assert headway.work(server.url, plain, stop=stop) == 0
        with pytest.raises(headway.HeadwayError, match=code):
            headway.work(server.url, plain, patience_s=0)


CLAIM = {"id": "g1-s0-a1", "key": "k", "secret": "s", "environment": "reverse", "deadline_s": 60}


def test_interrupted_before_a_rollout_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between a claim and its thread: the worker waits for what plays, and nothing does."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headway.claims.in_thread", interrupted)
    with serving() as server:
        server.routes["POST /api/v1/rollouts/claim"] = lambda _: as_json({"rollouts": [CLAIM]})
        worker = Worker(server.url, plain, 1, worker="w", grace_s=3600)
        with pytest.raises(KeyboardInterrupt):
            worker.run()
    assert not worker._running


def test_a_rollout_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started for a rollout, the worker goes on with others."""
    stop = threading.Event()

    def scarce(*_: object) -> None:
        stop.set()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("headway.claims.in_thread", scarce)
    with serving() as server:
        server.routes["POST /api/v1/rollouts/claim"] = lambda _: as_json({"rollouts": [CLAIM]})
        worker = Worker(server.url, plain, 1, worker="w", stop=stop, grace_s=3600)
        assert worker.run() == 0
    assert not worker._running
    assert worker._free.acquire(blocking=False)
    assert worker._failures.wait_s() > 0


def test_what_is_no_environment() -> None:
    for wrong in (lambda task: 1.0, [plain, lambda task: 1.0], None):
        with pytest.raises(headway.Invalid, match="is no environment: mark it"):
            Worker("http://nowhere", wrong)  # type: ignore[arg-type]
    for mark in (headway.environment, headway.single_turn):
        with pytest.raises(headway.Invalid, match="wants a name"):
            mark(lambda task: 1.0)  # type: ignore[arg-type]


def test_touches_outlive_a_lack_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started for one touch, claims are touched all the same, soon after."""
    worker, started, tries = answering(200), threading.Event(), 0

    def scarce(call: Callable[..., object], *arguments: object) -> None:
        nonlocal tries
        tries += 1
        if tries <= 2 * _TOUCHES_MAX:
            raise RuntimeError("can't start new thread")
        call(*arguments)
        started.set()

    monkeypatch.setattr("headway.claims.in_thread", scarce)
    task = headway.Task("g1-s0-a1", "reverse", 1, 0, 7, 1, 0, 1, _transport=worker._transport)
    worker._running[task.id] = (task, 0.0)
    worker._deadline_s = 0.16
    touching = threading.Thread(target=worker._touch, daemon=True)
    touching.start()
    assert started.wait(20)
    worker._closing.set()
    touching.join(20)
    assert not touching.is_alive()


def test_a_refused_turn_is_asked_for_again() -> None:
    """A prompt that is too long can be shortened: the server has not counted it."""
    turns: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        said = json.loads(request.content)
        turns.append(said["turn"])
        if len(said["prompt"]) > 3:
            return httpx.Response(413, json={"error": {"code": "too_large", "message": "shorten the prompt"}})
        return httpx.Response(200, json={"tokens": [2]})

    transport = Transport("http://nowhere")
    transport._http = httpx.Client(transport=httpx.MockTransport(answer))
    sample = Sampler(headway.Task("g1-s0-a1", "reverse", 1, 0, 7, 1, 0, 1, _transport=transport), "w")
    for prompt in ([0], [0] * 4, [0] * 5, [0, 2], [0, 2, 2]):
        with contextlib.suppress(headway.TooLarge):
            sample(prompt, 6)
    assert turns == [0, 1, 1, 1, 2]


def test_who_samples() -> None:
    """A function gets `sample` where it has a place for it, never in place of an option of its own."""

    def agent(task: headway.Task, model: str = "policy") -> str:
        return model

    def sampler(task: headway.Task, sample: Any = None) -> Any:
        return sample

    task = headway.Task("g1-s0-a1", "reverse", 1, 0, 7, 1, 0, 1)
    sample = Sampler(task, "w")
    assert headway.environment("a")(agent)(task, sample) == "policy"
    assert headway.environment("a")(sampler)(task, sample) is sample
    assert headway.environment("a")(lambda *all: len(all))(task, sample) == 2
    assert headway.environment("a")(lambda task, said: said)(task, sample) is sample


def test_a_private_authority_is_passed_on(tmp_path: Path) -> None:
    paths = ssl.get_default_verify_paths()
    if not (paths.cafile and Path(paths.cafile).exists()):
        pytest.skip("there is no file of certificates to name")
    api = Transport("https://nowhere", verify=paths.cafile).openai("g1-s0-a1", "g1-s0-a1.signature")
    assert api.ca == api.environ["SSL_CERT_FILE"] == api.environ["REQUESTS_CA_BUNDLE"] == paths.cafile
    known = Transport("https://nowhere").openai("g1-s0-a1", "g1-s0-a1.signature")
    assert known.ca == ""
    assert set(known.environ) == {"OPENAI_BASE_URL", "OPENAI_API_KEY"}
