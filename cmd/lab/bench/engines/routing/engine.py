"""A vLLM that returns routed experts, and what transformers says of the same tokens."""

from __future__ import annotations

import base64
import io
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache

LAYERS, CHOSEN = 4, 2


@dataclass
class Answer:
    """What was sampled, and the rows from `start` on; none where the answer had no field of them."""

    tokens: list[int]
    logprobs: list[float]
    finish: str | None
    rows: np.ndarray | None
    start: int


class Engine:
    """A server, by its own words."""

    def __init__(self, url: str) -> None:
        self.url, self.http = url, httpx.Client(base_url=url, timeout=120)

    def generate(
        self,
        prompt: Sequence[int],
        most: int,
        *,
        seed: int = 1,
        salt: str = "",
        start: int = 0,
        stream: bool = False,
        name: str = "",
    ) -> Answer:
        """Sample at temperature 1, past the end of a sequence; without a salt by a cache of its own."""
        params = {"max_tokens": most, "temperature": 1.0, "seed": seed, "logprobs": 0, "ignore_eos": True}
        body: dict[str, Any] = {"model": "policy", "token_ids": list(prompt), "stream": stream}
        body["cache_salt"] = salt or uuid.uuid4().hex
        body["sampling_params"] = params | {"routed_experts_prompt_start": start}
        if name:
            body["request_id"] = name
        answer = Answer([], [], None, None, start)
        for choice in self._choices(body):
            answer.tokens += choice["token_ids"]
            answer.logprobs += [entry["logprob"] for entry in choice["logprobs"]["content"]]
            answer.finish = choice["finish_reason"]
            if choice["routed_experts"] is not None:
                answer.rows = np.load(io.BytesIO(base64.b64decode(choice["routed_experts"])))
        return answer

    def _choices(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        with self.http.stream("POST", "/inference/v1/generate", json=body) as reply:
            if not body["stream"]:
                text = reply.read()
                assert reply.status_code == 200, text
                yield json.loads(text)["choices"][0]
                return
            assert reply.status_code == 200, reply.read()
            for line in reply.iter_lines():
                if line.startswith("data: {"):
                    yield from json.loads(line[6:])["choices"]

    def call(self, path: str, body: Any = None) -> Any:
        reply = self.http.post(path, json=body)
        assert reply.status_code == 200, f"{path}: {reply.text}"
        return reply

    def load(self, directory: str) -> None:
        """Replace the weights in place; the cache stays."""
        self.call("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": directory}})

    def reset(self, running: bool = False) -> None:
        """Drop the cache; with `running` that of requests under way as well, which are computed anew."""
        self.call("/reset_prefix_cache" + ("?reset_running_requests=true" if running else ""))

    def abort(self, name: str) -> None:
        self.call("/abort_requests", {"request_ids": ["generate-tokens-" + name]})

    def sampled(self) -> int:
        """Tokens since the server was started."""
        for line in self.http.get("/metrics").text.splitlines():
            if line.startswith("vllm:generation_tokens_total{"):
                return int(float(line.rpartition(" ")[2]))
        raise AssertionError("the server counts no tokens")

    @contextmanager
    def frozen(self, asked: Callable[[], Answer], tokens: int) -> Iterator[list[Answer]]:
        """Within it the server is paused after so many tokens of what is asked; behind it the answer is in the list."""
        before, answers = self.sampled(), list[Answer]()
        thread = threading.Thread(target=lambda: answers.append(asked()))
        thread.start()
        deadline = time.monotonic() + 60
        while self.sampled() < before + tokens:
            assert time.monotonic() < deadline, "nothing is sampled"
        self.call("/pause?mode=keep&clear_cache=false")
        try:
            yield answers
        finally:
            self.call("/resume")
            thread.join()


class Truth:
    """Two models of transformers in single precision: choices and log-probs of every token."""

    def __init__(self, directories: Sequence[str]) -> None:
        self.models = [AutoModelForCausalLM.from_pretrained(d, dtype=torch.float32).eval() for d in directories]

    @torch.no_grad()
    def __call__(self, tokens: Sequence[int], *parts: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Rows [N, layers, k] and log-probs [N] (of token i at i, 0 at 0) of parts: a model, and up to which pass.

        Keys and values of a part are those that the models of the parts before have left.
        """
        rows = np.zeros((len(tokens), LAYERS, CHOSEN), dtype=np.int64)
        logprobs, cache, begin = np.zeros(len(tokens) + 1), DynamicCache(), 0
        ids = torch.tensor([list(tokens)])
        for number, end in parts or ((0, len(tokens)),):
            model = self.models[number]
            if end <= begin:
                continue
            with choices(model) as seen:
                out = model(input_ids=ids[:, begin:end], past_key_values=cache, use_cache=True)
            for layer, chosen in seen.items():
                rows[begin:end, layer] = chosen
            scores = torch.log_softmax(out.logits[0], -1)
            following = ids[0, begin + 1 : end + 1]
            logprobs[begin + 1 : begin + 1 + len(following)] = scores[: len(following)].gather(-1, following[:, None])[
                :, 0
            ]
            begin = end
        return rows, logprobs[: len(tokens)]


@contextmanager
def choices(model: torch.nn.Module) -> Iterator[dict[int, np.ndarray]]:
    """The experts that a model chooses within it, by layer."""
    seen: dict[int, np.ndarray] = {}
    hooks = []
    for number, layer in enumerate(model.model.layers):
        if hasattr(layer.mlp, "gate"):

            def keep(_: object, __: object, out: Any, number: int = number) -> None:
                seen[number] = out[2].numpy()

            hooks.append(layer.mlp.gate.register_forward_hook(keep))
    yield seen
    for hook in hooks:
        hook.remove()


def sets(rows: np.ndarray) -> np.ndarray:
    """The experts of each token and layer without their order."""
    return np.sort(np.asarray(rows, dtype=np.int64), axis=-1)


def apart(a: np.ndarray, b: np.ndarray) -> list[int]:
    """The rows in which two differ; all of those that one has more."""
    both = min(len(a), len(b))
    differ = (sets(a[:both]) != sets(b[:both])).any(axis=(1, 2))
    return [int(i) for i in np.flatnonzero(differ)] + list(range(both, max(len(a), len(b))))
