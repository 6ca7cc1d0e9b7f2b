"""The complete trainers: their policies are the engine's, number for number, and they learn its task."""

from __future__ import annotations

import importlib.util
import itertools
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Serve

import headway

Start = Callable[..., Serve]
#: The server's own batches again.
DEFAULT = {"train__batch": 128, "rollout__group_size": 8, "rollout__concurrency": 128}


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_train", ROOT / "examples" / name / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def torch_log_probs(weights: dict[str, Any], config: dict[str, Any], batch: headway.Batch) -> Any:
    torch = pytest.importorskip("torch")
    import headway.torch as adapter

    train = example("torch_grpo")
    policy = train.policy_of(weights, config)
    policy.load_state_dict(adapter.tensors(weights))
    with torch.no_grad():
        return train.log_probs(policy, adapter.padded(batch), config["environment"]["letters_max"] + 2).numpy()


def jax_log_probs(weights: dict[str, Any], config: dict[str, Any], batch: headway.Batch) -> Any:
    jax = pytest.importorskip("jax")
    import headway.jax as adapter

    jax.config.update("jax_default_matmul_precision", "highest")  # or a GPU multiplies in fewer bits
    train = example("jax_grpo")
    w = {name: adapter.from_numpy(array) for name, array in weights.items()}
    letters = config["environment"]["letters_max"]
    return np.asarray(train.log_probs(w, adapter.padded(batch), config["model"]["heads"], letters + 2))


@pytest.mark.parametrize("log_probs", [torch_log_probs, jax_log_probs], ids=["torch", "jax"])
def test_the_same_numbers(serve: Start, log_probs: Callable[..., Any]) -> None:
    """At the same version the trainer's log-probs are the rollout's, to rounding, also after the weights changed."""
    server = serve("--steps", "12", rollout__concurrency=8, queue__policy="block")
    compared = 0
    with headway.connect(server.url) as hw:
        weights = hw.load()
        for batch in hw.batches():
            rows = batch.padded()
            sampled = rows["loss_mask"] == 1
            # A rollout that an earlier version began has keys and values in its cache that this one would not make.
            one_version = ((rows["versions"] == batch.version) | ~sampled).all(axis=1)
            on_policy = sampled & one_version[:, None]
            if on_policy.any():
                apart = np.abs(log_probs(weights, hw.config, batch) - rows["logprobs"])[on_policy]
                assert apart.mean() < 1e-4, f"version {batch.version}: {apart.mean()}"
                compared += int(on_policy.sum())
            rng = np.random.default_rng(batch.version)
            weights = {k: (w + 0.02 * rng.standard_normal(w.shape)).astype(np.float32) for k, w in weights.items()}
            hw.publish(batch, weights)
    assert compared > 50


@pytest.mark.parametrize("name", ["torch_grpo", "jax_grpo"])
def test_a_few_steps(serve: Start, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole program, short: every step is committed, and its optimizer's state is there for a restart."""
    pytest.importorskip(name.partition("_")[0])
    server = serve("--steps", "6")
    example(name).main(["--url", server.url, "--evaluate-every", "3"])
    said = capsys.readouterr().err
    assert "version 3: held-out accuracy" in said, "".join(server.output)


@pytest.mark.learning
@pytest.mark.parametrize("name", ["torch_grpo", "jax_grpo"])
def test_learns(serve: Start, name: str) -> None:
    """Against `headway serve` as it comes, to the end of its 600 steps."""
    pytest.importorskip(name.partition("_")[0])
    server = serve(**DEFAULT)
    assert example(name).main(["--url", server.url]) >= 0.95


def test_readme_trains(serve: Start) -> None:
    """The trainer's loop of README, with a model and a train step as its reader has them."""
    torch = pytest.importorskip("torch")
    train = example("torch_grpo")
    server = serve("--steps", "3")
    with headway.connect(server.url) as hw:
        config, policy = hw.config, train.policy_of(hw.load(), hw.config)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    losses = []

    def train_step(model: Any, *arrays: Any) -> float:
        optimizer.zero_grad()
        tokens, offsets, mask, sampled, advantages = map(torch.as_tensor, arrays)
        loss = torch.zeros(())
        for begin, end in itertools.pairwise(offsets.tolist()):
            row, here = tokens[None, begin:end].long(), mask[begin + 1 : end] == 1
            first = config["environment"]["letters_max"] + 1 - int(here.int().argmax())
            scores = model(row, torch.tensor([first])).log_softmax(-1)[0, :-1]
            now = scores.gather(1, row[0, 1:, None])[:, 0]
            ratio = (now - sampled[begin + 1 : end])[here].exp()
            loss = loss - (ratio * advantages[begin + 1 : end][here]).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        return losses[-1]

    (code,) = (c for c in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S) if "connect(" in c)
    exec(code.replace("http://127.0.0.1:7070", server.url), {"model": policy, "train_step": train_step})
    assert len(losses) == 3
    assert np.isfinite(losses).all()
