"""Small random checkpoints, and servers of them."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from hf_shim import __main__ as command
from hf_shim.http import Server
from hf_shim.service import Service

CHARACTERS = "0123456789+-*=() abcdefghijklmnopqrstuvwxyz.,?!\n"
SPECIAL = ["<pad>", "<bos>", "<eos>", "<|im_start|>", "<|im_end|>", "<unk>"]
TEMPLATE = (
    "{% if tools %}<|im_start|>tools\n{{ tools | length }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: Four times the initial spread, so that tokens differ in how likely they are.
SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 4, "pad_token_id": 0,
    "initializer_range": 0.08, "tie_word_embeddings": False,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32, "rope_theta": 10000.0,
}  # fmt: skip
CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(**SIZES),
    "tied": lambda: LlamaConfig(**{**SIZES, "tie_word_embeddings": True, "num_key_value_heads": 4}),
    "biased": lambda: LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama3": lambda: LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "qwen2": lambda: Qwen2Config(**SIZES),
    "qwen3": lambda: Qwen3Config(**SIZES, head_dim=16),
}


def save(directory: Path, kind: str, seed: int) -> Path:
    """A random checkpoint with a tokenizer of single characters."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(CONFIGS[kind]())
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(std=0.1)
    model.save_pretrained(directory)
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *CHARACTERS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<bos>", eos_token="<|im_end|>", pad_token="<pad>", unk_token="<unk>",
        additional_special_tokens=["<|im_start|>"],
    )  # fmt: skip
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(directory)
    return directory


Checkpoints = Callable[[str, int], Path]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    """Makes a checkpoint of a kind and a seed, once."""
    made: dict[tuple[str, int], Path] = {}

    def make(kind: str, seed: int) -> Path:
        if (kind, seed) not in made:
            made[kind, seed] = save(tmp_path_factory.mktemp(f"{kind}-{seed}-"), kind, seed)
        return made[kind, seed]

    return make


def reference(directory: Path, tokens: list[int]) -> torch.Tensor:
    """Log-probs of every next token by transformers, [positions, vocabulary]."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    with torch.inference_mode():
        return torch.log_softmax(model(torch.tensor([tokens])).logits[0], dim=-1)


class Shim:
    """A server on a thread of this process."""

    def __init__(self, *arguments: str) -> None:
        self._options = command.arguments().parse_args(arguments)
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.service: Service
        self.port = 0
        self._thread.start()
        self._ready.wait()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as problem:
            self._failed = problem
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.service, routes = command.build(self._options)
        server = Server(routes.answer)
        await server.start("127.0.0.1", 0)
        self.port = server.port
        self.service.start()
        self._ready.set()
        await command.until_ended(self.service, server)

    def close(self) -> None:
        """Stops it, and waits until it has; it may be called again."""
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self.service.ended.set)
        self._thread.join()

    def failure(self) -> BaseException | None:
        """Waits until it has ended by itself, and returns why."""
        self._thread.join()
        return self._failed

    def call(self, path: str, body: Any = None, method: str | None = None) -> tuple[int, Any]:
        """Status and answer, as JSON where it is any."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            text = None if body is None else json.dumps(body)
            connection.request(method or ("GET" if body is None else "POST"), path, text)
            reply = connection.getresponse()
            content = reply.read().decode()
            return reply.status, json.loads(content) if reply.headers["Content-Type"] == "application/json" else content

    def ask(self, path: str, body: Any = None) -> Any:
        """The answer of a call that is to succeed."""
        status, answer = self.call(path, body)
        assert status == 200, answer
        return answer

    def stream(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of a response, its end mark checked."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            connection.request("POST", "/generate", json.dumps({"stream": True, "return_logprob": True, **body}))
            reply = connection.getresponse()
            assert reply.status == 200, reply.read()
            ended = False
            for line in reply:
                data = line.decode().strip().removeprefix("data: ")
                if data == "[DONE]":
                    ended = True
                elif data:
                    assert not ended
                    yield json.loads(data)
            assert ended


@pytest.fixture
def shim(checkpoint: Checkpoints) -> Iterator[Callable[..., Shim]]:
    """Starts servers, of the first llama unless told otherwise, and stops them."""
    started: list[Shim] = []

    def start(*arguments: str, model: Path | None = None) -> Shim:
        started.append(Shim("--model", str(model or checkpoint("llama", 0)), "--log-steps", *arguments))
        return started[-1]

    yield start
    for server in started:
        server.close()
