"""A run whose engines take their weights from the trainer's process: real servers, and every part of it killed once."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Serve

import headway
from headway import tensors as arrays

torch = pytest.importorskip("torch")
SHIM = ROOT / "examples" / "hf_shim" / "src"
sys.path.insert(0, str(SHIM))

from hf_shim import architecture  # noqa: E402
from hf_shim.model import Cache, Model  # noqa: E402

from headway.torch import tensors  # noqa: E402

Start = Callable[..., Serve]
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "bos_token_id": 1, "eos_token_id": 4, "pad_token_id": 0, "tie_word_embeddings": False,
}  # fmt: skip
DOCUMENT = """
model: {{path: {model}}}
engines:
{engines}
environment: {{name: words, prompt_tokens_max: 16, response_tokens_max: 8}}
rollout: {{group_size: 4}}
train: {{batch: 16}}
queue: {{policy: bounded, eta: 1}}
"""
#: A trainer that takes a step each time that it is told to, and leaves every version's weights in a file.
TRAINER = """
import sys, numpy as np
import headway
from headway.torch import Sender

url, directory = sys.argv[1:]

def note(version, weights):
    np.savez(f"{directory}/{version}.npz", **weights)
    print(version, flush=True)

hw = headway.connect(url)
with Sender(url) as sender:
    weights = hw.load()
    note(hw.version, weights)
    for batch in hw.batches():
        if not sys.stdin.readline():
            break
        draw = np.random.default_rng(batch.version)
        weights = {n: (w + 0.02 * draw.standard_normal(w.shape)).astype(np.float32) for n, w in weights.items()}
        note(sender.publish(hw, batch, weights, optimizer=lambda: {"m": np.ones(2)}, checkpoint_every=2), weights)
"""


class Program:
    """A Python program that is killed and started again."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._arguments = arguments
        paths = f"{SHIM}:{ROOT / 'clients' / 'python' / 'src'}"
        self._environment = os.environ | {"PYTHONPATH": paths} | environment
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *self._arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=self._environment,
        )  # fmt: skip

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.communicate()

    def line(self) -> str:
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said, f"{self._arguments} ended"
        return said

    def say(self, text: str = "") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()


class Shim(Program):
    """A server of the first weights, at a port that it keeps."""

    def __init__(self, model: Path, *options: str, **environment: str) -> None:
        self._port = 0
        words = ("-m", "hf_shim", "--model", str(model), "--tokenizer", "none", *options, "--port", "0")
        super().__init__(*words, **environment)

    @property
    def port(self) -> int:
        if not self._port:
            self._port = int(re.search(r":(\d+)$", self.line().strip())[1])  # type: ignore[index]
            self._arguments = (*self._arguments[:-1], str(self._port))
        return self._port

    def ask(self, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        assert reply.status == 200, content
        return json.loads(content)

    def label(self) -> str:
        try:
            return str(self.ask("/model_info")["weight_version"])
        except (OSError, http.client.HTTPException):  # it starts
            return ""

    def logprobs(self, tokens: list[int]) -> list[float]:
        """Of the tokens, from the second on."""
        limits = {"max_new_tokens": 1}
        said = self.ask(
            "/generate",
            {"input_ids": tokens, "sampling_params": limits, "return_logprob": True, "logprob_start_len": 0},
        )
        return [entry[0] for entry in said["meta_info"]["input_token_logprobs"][1:]]


def expected(model: Path, weights: dict[str, Any], tokens: list[int]) -> list[float]:
    """The same by a forward pass of ours."""
    made = Model(architecture.read(model), torch.float32, torch.device("cpu"))
    made.replace(tensors(weights))
    with torch.no_grad():
        hidden = made.forward(Cache(made, 1), 0, torch.tensor([tokens]), torch.arange(len(tokens))[None])
        scores = torch.log_softmax(made.logits(hidden[0]), dim=-1)
    return [scores[at, token].item() for at, token in enumerate(tokens[1:])]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A checkpoint of random weights."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG))
    made = Model(architecture.read(directory), torch.float32, torch.device("cpu"))
    draw = np.random.default_rng(0)
    weights = {n: (0.1 * draw.standard_normal(tuple(p.shape))).astype(np.float32) for n, p in made.parameters.items()}
    (directory / "model.safetensors").write_bytes(b"".join(arrays.File("model.safetensors", weights).chunks()))
    return directory


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        program.kill()


def test_a_trainer_without_a_sender(
    serve: Start, model: Path, tmp_path: Path, programs: list[Program], caplog: pytest.LogCaptureFixture
) -> None:
    """It gets no batch, and is told why."""
    shim = Shim(model)
    programs.append(shim)
    url = f"http://127.0.0.1:{shim.port}"
    document = tmp_path / "run.yaml"
    engine = f'  - {{kind: sglang, name: e0, url: "{url}", slots: 8, weights: distributed}}'
    document.write_text(DOCUMENT.format(model=model, engines=engine))
    server = serve(str(document))
    with headway.connect(server.url) as hw:
        assert hw.distributed == ["e0"]
        hw.load()
        for _ in range(60):
            assert hw._lease("train", 1.0) is None
            if "no batch comes: e0" in caplog.text:
                break
        else:
            pytest.fail("".join(server.output))


def test_every_part_is_killed(serve: Start, model: Path, tmp_path: Path, programs: list[Program]) -> None:
    """Engines serve what the trainer published, number for number; a server, the trainer and the plane go on."""
    shims = [Shim(model), Shim(model)]
    programs += shims
    engines = "".join(
        f'  - {{kind: sglang, name: e{i}, url: "http://127.0.0.1:{s.port}", slots: 8, weights: distributed}}\n'
        for i, s in enumerate(shims)
    )
    document = tmp_path / "run.yaml"
    document.write_text(DOCUMENT.format(model=model, engines=engines))
    server = serve(str(document))
    stop = threading.Event()

    @headway.environment("words")
    def play(task: headway.Task, sample: Any) -> headway.Result:
        said = sample([1, 6 + task.prompt % 50, 7], max_tokens=8)
        return headway.Result(float(said.tokens[0] % 2))

    worker = threading.Thread(
        target=headway.work, args=(server.url, play, 16), kwargs={"stop": stop, "grace_s": 0.0}, daemon=True
    )
    worker.start()
    trainer = Program("-c", TRAINER, server.url, str(tmp_path))
    programs.append(trainer)
    tokens = [1, 17, 7, 9, 33, 60, 5, 21]

    def served(version: int) -> None:
        """Both serve a version: its label, and its log-probs."""
        with np.load(tmp_path / f"{version}.npz") as found:
            wanted = expected(model, dict(found), tokens)
        pause = threading.Event()
        for shim in shims:
            for _ in range(1200):
                if shim.label().startswith(f"v{version}-"):
                    break
                pause.wait(0.05)
            else:
                pytest.fail(f"version {version} is not served: {shim.label()}\n{''.join(server.output)}")
            assert shim.logprobs(tokens) == pytest.approx(wanted, abs=1e-4)

    def step(version: int) -> None:
        trainer.say()
        assert int(trainer.line()) == version
        served(version)

    assert int(trainer.line()) == 0
    for version in (1, 2, 3):
        step(version)
    shims[1].kill()
    shims[1].start()
    step(4)
    step(5)
    trainer.kill()
    trainer.start()
    assert int(trainer.line()) == 6  # version 4 again, the last that is stored
    with np.load(tmp_path / "4.npz") as four, np.load(tmp_path / "6.npz") as six:
        assert all(np.array_equal(four[name], six[name]) for name in four)
    served(6)
    step(7)
    server.kill()
    server.start()
    step(8)
    stop.set()
