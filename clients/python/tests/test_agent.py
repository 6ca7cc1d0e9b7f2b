"""Agents that speak OpenAI's API alone, against the real server."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from conftest import Serve
from test_worker import word_of

import headway

Start = Callable[..., Serve]
SECRETS = {"environment": "an-agent-may-know-this", "trainer": "an-agent-may-not-know-this"}


def complete(http: httpx.Client, prompt: list[int], **more: Any) -> dict[str, Any]:
    """What an agent asks for: nothing in it is of this package."""
    said = http.post("/completions", json={"model": "policy", "prompt": prompt, "max_tokens": 6} | more)
    assert said.status_code == 200, said.text
    choice: dict[str, Any] = said.json()["choices"][0]
    return choice


def reward(task: headway.Task, tokens: list[int]) -> float:
    return sum(a == b for a, b in zip(tokens, [*reversed(word_of(task)), 2], strict=False)) / 6


def connected(task: headway.Task) -> httpx.Client:
    api = task.openai()
    return httpx.Client(base_url=api.base_url, headers={"Authorization": f"Bearer {api.api_key}"}, timeout=60)


def test_agents_are_trained_on(serve: Start) -> None:
    """Claim, calls under /v1, a reward. The trainer gets what the agents were answered, a sequence a history."""
    answered: dict[tuple[int, int], list[list[int]]] = defaultdict(list)

    @headway.environment("reverse")
    def play(task: headway.Task) -> float:
        prompt = [0, *word_of(task), 1]
        with connected(task) as http:
            said = [complete(http, prompt, return_token_ids=True)["token_ids"] for _ in range(1 + task.sample % 3)]
        key = (task.group, task.sample)
        answered[key] = [[*prompt, *tokens] for tokens in said]
        return reward(task, said[-1])

    server = serve("--steps", "3", environment__kind="remote")
    worker = threading.Thread(target=headway.work, args=(server.url, play, 16), kwargs={"worker": "w"})
    worker.start()
    with headway.connect(server.url) as hw:
        weights = hw.load()
        batches = 0
        for batch in hw.batches():
            batches += 1
            assert batch.metadata.rollouts == 16
            assert batch.metadata.sequences == len(batch) > 16
            assert batch.sequence_weights().sum() == pytest.approx(16)
            for sequences in batch.by_rollout():
                one = sequences[0]
                assert [s.tokens.tolist() for s in sequences] == answered[one.group, one.sample]
                assert {(s.reward, s.advantage) for s in sequences} == {(one.reward, one.advantage)}
            weights = {name: array + np.float32(1e-3) for name, array in weights.items()}
            hw.publish(batch, weights)
    worker.join(60)
    assert not worker.is_alive()
    assert batches == 3


def spoken(task: headway.Task) -> float:
    """An episode of two solvers and a referee that is not trained; it has read the first solver's words."""
    prompt = [0, *word_of(task), 1]
    said = {}
    for name in ("solver", "referee", "second"):
        api = task.openai(name, train=name != "referee")
        with httpx.Client(base_url=api.base_url, headers=api.headers) as http:
            choice = complete(http, prompt, return_token_ids=True)
            said[name] = choice["token_ids"]
            assert choice["headway"]["branch"] == len(said) - 1
    with httpx.Client(base_url=task.openai().base_url, headers=task.openai().headers) as http:
        unnamed = http.post("/completions", json={"model": "policy", "prompt": prompt})
        assert (unnamed.status_code, unnamed.json()["error"]["param"]) == (400, "agent")
    with httpx.Client(base_url=api.base_url, headers=task.openai(train=False).headers) as http:
        untrained = http.post("/completions", json={"model": "policy", "prompt": prompt})
        assert (untrained.status_code, "names none: name the agent" in untrained.text) == (400, True)
    return reward(task, said["solver"])


def test_agents_of_an_episode(serve: Start) -> None:
    """Every sequence says who speaks, and a trainer makes a baseline of each agent. Nothing of a referee is there."""
    server = serve("--steps", "2", environment__kind="remote")
    play = headway.environment("reverse")(spoken)
    worker = threading.Thread(target=headway.work, args=(server.url, play, 16), kwargs={"worker": "w"})
    worker.start()
    with headway.connect(server.url) as hw:
        weights = hw.load()
        for batch in hw.batches():
            assert batch.metadata.agents == ("second", "solver")
            assert [[s.agent for s in one] for one in batch.by_rollout()] == [["solver", "second"]] * 16
            assert batch.metadata.response_tokens == int(batch.loss_mask.sum())
            advantages = np.zeros(len(batch), np.float32)
            for g in np.unique(batch.groups):
                for name in np.unique(batch.agents):
                    rows = (batch.groups == g) & (batch.agents == name)
                    advantages[rows] = batch.rewards[rows] - batch.rewards[rows].mean()
            assert abs(advantages.sum()) < 1e-4
            hw.publish(batch, weights)
    worker.join(60)
    assert not worker.is_alive()


def test_numbered_agents(serve: Start) -> None:
    """A worker's own calls name agents too; the embedded trainer trains on those that are to be."""

    @headway.environment("reverse")
    def play(task: headway.Task, sample: headway.Sampler) -> float:
        prompt = [0, *word_of(task), 1]
        refereed = sample(prompt, 6, agent="referee", train=False)
        solved = sample(prompt, 3, agent="solver")
        with pytest.raises(headway.Invalid, match="names none: name the agent"):
            sample(prompt, 3, train=False)
        return reward(task, solved.tokens) + len(refereed.tokens) / 100

    server = serve("--steps", "2", environment__kind="remote", trainer__kind="embedded")
    assert headway.work(server.url, play, 16, worker="w") >= 2 * 16


def test_embedded_trainer(serve: Start) -> None:
    """The embedded trainer trains on agents' rollouts, too; a coroutine that streams plays as well."""

    @headway.environment("reverse")
    async def play(task: headway.Task) -> float:
        api = task.openai()
        prompt = [0, *word_of(task), 1]
        heard: list[str] = []
        async with httpx.AsyncClient(base_url=api.base_url, headers=api.headers, timeout=60) as http:
            body = {"model": "policy", "prompt": prompt, "max_tokens": 6, "stream": True}

            async def leave() -> None:  # in the middle of a response
                async with http.stream("POST", "/completions", json=body) as said:
                    await anext(said.aiter_bytes())

            if task.sample == 0:
                await leave()
            async with http.stream("POST", "/completions", json=body) as said:
                assert said.status_code == 200
                async for line in said.aiter_lines():
                    if line:
                        heard.append(line)
            if task.sample == 1:  # and finishes before the server may have noticed
                await leave()
        assert heard[-1] == "data: [DONE]"
        return len(heard) / 100

    server = serve("--steps", "4", environment__kind="remote", trainer__kind="embedded")
    assert headway.work(server.url, play, 16, worker="w") >= 4 * 16


def test_chat(serve: Start) -> None:
    """Messages in, a message out. A chat that is begun anew is another sequence; the reply says so."""
    began: list[list[str]] = []

    @headway.environment("reverse")
    def play(task: headway.Task) -> float:
        told: list[str] = []
        with connected(task) as http:
            for _ in range(2):
                body = {"model": "policy", "messages": [{"role": "user", "content": "abc"}], "temperature": 0.5}
                said = http.post("/chat/completions", json=body)
                if said.status_code == 410:  # the run has what it needs
                    raise headway.Unwanted(said.text)
                choice = said.json()["choices"][0]
                assert choice["message"]["role"] == "assistant"
                assert choice["headway"]["overridden"] == ["temperature"]
                told.append(choice["headway"]["began"])
        began.append(told)
        return 0.5

    server = serve("--steps", "1", environment__kind="remote", trainer__kind="embedded")
    assert headway.work(server.url, play, 8, worker="w") >= 16
    assert len(began) >= 16
    assert all(told == ["first", "repeated"] for told in began)


def test_key_with_a_token(serve: Start, tmp_path: Path) -> None:
    """The API key is the claim's: it samples for that rollout, and no token of the worker's is in it."""
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{role} {secret}\n" for role, secret in SECRETS.items()))
    tokens.chmod(0o600)
    keys: list[str] = []

    @headway.environment("reverse")
    def play(task: headway.Task) -> float:
        api = task.openai()
        keys.append(api.api_key)
        assert api.client == {"base_url": api.base_url, "api_key": api.api_key}
        assert api.environ["OPENAI_BASE_URL"] == api.base_url
        assert SECRETS["environment"] not in repr(api)
        token = SECRETS["environment"]
        for key, says in ((task.id, "id alone"), (f"{token}:{task.id}", "TOKEN:ROLLOUT"), (token, "claim's key")):
            said = httpx.post(
                f"{api.base_url}/completions", json={"prompt": [1]}, headers={"Authorization": f"Bearer {key}"}
            )
            assert said.status_code in (401, 403)
            assert says in said.text
            assert token not in said.text
        for path in (f"rollouts/{task.id}/finish", "rollouts/claim", "status"):
            said = httpx.request(
                "GET" if path == "status" else "POST", f"{server.url}/api/v1/{path}", headers=api.headers,
                json={"worker": "w", "secret": api.api_key, "reward": 1e6},
            )  # fmt: skip
            assert said.status_code == 403
        with connected(task) as http:
            complete(http, [0, *word_of(task), 1])
        return 1.0

    server = serve(
        "--steps", "1", environment__kind="remote", trainer__kind="embedded", server__token_file=str(tokens)
    )  # fmt: skip
    assert headway.work(server.url, play, 8, worker="w", token=SECRETS["environment"]) >= 16
    assert all(key.startswith("g") and SECRETS["environment"] not in key for key in keys)
    assert not any(key in line for key in keys for line in server.output)


def test_without_a_worker() -> None:
    task = headway.Task("g1-s0-a1", "reverse", 1, 0, 7, 1, 0, 1)
    with pytest.raises(headway.Invalid, match="not claimed by a worker"):
        task.openai()
    task._unwanted.set()
    with pytest.raises(headway.Unwanted):
        task.openai()
