"""examples/fsdp_grpo on two ranks over gloo, or on a GPU, against a real control plane and a server that samples."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Serve

import headway
from headway import tensors as arrays

torch = pytest.importorskip("torch")
from test_distributed import CONFIG, SHIM, Shim, architecture  # noqa: E402
from test_distributed import Model as Policy  # noqa: E402

DOCUMENT = """
model: {{path: {model}}}
engines:
  - {{kind: sglang, name: e0, url: "http://127.0.0.1:{port}", slots: 8, weights: disk}}
environment: {{name: words, prompt_tokens_max: 16, response_tokens_max: 8}}
rollout: {{group_size: 4}}
train: {{batch: 16}}
queue: {{policy: bounded, eta: 1}}
trainer: {{steps: 2, learning_rate: 0.01}}
server: {{directories: [{published}]}}
"""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Random weights in bfloat16, as the trainer publishes them."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG | {"model_type": "llama", "torch_dtype": "bfloat16"}))
    made = Policy(architecture.read(directory), torch.float32, torch.device("cpu"))
    draw = np.random.default_rng(0)
    weights: dict[str, Any] = {
        name: headway.narrow((0.1 * draw.standard_normal(tuple(p.shape))).astype(np.float32))
        for name, p in made.parameters.items()
    }
    (directory / "model.safetensors").write_bytes(b"".join(arrays.File("model.safetensors", weights).chunks()))
    return directory


@pytest.mark.parametrize(
    ("ranks", "devices"),
    [
        (2, ""),
        pytest.param(1, "0", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")),
    ],
    ids=["two-ranks", "cuda"],
)
def test_ranks_train(
    serve: Callable[..., Serve], checkpoint: Path, tmp_path: Path, ranks: int, devices: str
) -> None:
    """Both steps are committed, the first agrees with the engine's log-probs, and each version has other weights."""
    published, document, stop = tmp_path / "published", tmp_path / "run.yaml", threading.Event()
    shim = Shim(checkpoint)
    try:
        document.write_text(DOCUMENT.format(model=checkpoint, port=shim.port, published=published))
        server = serve(str(document), "--name", "fsdp")

        @headway.environment("words")
        def play(task: headway.Task, sample: Any) -> headway.Result:
            said = sample([1, 6 + task.prompt % 50, 7], max_tokens=8)
            return headway.Result(float(said.tokens[0] % 2))

        work = {"stop": stop, "grace_s": 0.0}
        threading.Thread(target=headway.work, args=(server.url, play, 16), kwargs=work, daemon=True).start()
        found = importlib.util.find_spec("transformers")
        paths = [SHIM, ROOT / "clients" / "python" / "src"] + ([] if found else [Path(__file__).parent / "standin"])
        environment = {"PYTHONPATH": ":".join(map(str, paths)), "CUDA_VISIBLE_DEVICES": devices, "OMP_NUM_THREADS": "1"}
        trainer = subprocess.run(
            [
                sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
                str(ROOT / "examples" / "fsdp_grpo" / "train.py"), "--url", server.url, "--out", str(published),
                "--weights", str(tmp_path / "runs" / "fsdp" / "weights"), "--sequences", "2",
            ],
            env=os.environ | environment, check=False,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    finally:
        stop.set()
        shim.kill()
    said = trainer.stdout + trainer.stderr + "".join(server.output)
    assert trainer.returncode == 0, said
    assert re.findall(r"^version (\d+): reward", trainer.stdout, re.M) == ["1", "2"], said
    drift = [float(x) for x in re.findall(r"'mean_log_ratio': ([-+.e\d]+)", trainer.stdout)]
    assert abs(drift[0]) < 0.02, said
    kept = tmp_path / "runs" / "fsdp" / "weights"
    assert len({(kept / f"v{v:06d}" / "model.safetensors").read_bytes() for v in range(3)}) == 3, said
