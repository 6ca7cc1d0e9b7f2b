"""GRPO in JAX against `headway serve`: a small transformer learns to reverse words.

The rollouts are Headway's; what is here is the policy, its loss and one optimizer step a batch. The policy is
the one that the embedded engine runs, number for number, so that its log-probs can be compared with ours.
"""

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import headway
import headway.jax as adapter

Tensors = dict[str, jax.Array]  # a version's tensors by name; matrices are input by output
ADAM = {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8}


def norm(x: jax.Array, gain: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * gain


def attention(x: jax.Array, qkv: jax.Array, heads: int) -> jax.Array:
    rows, length, width = x.shape
    q, k, v = jnp.moveaxis((x @ qkv).reshape(rows, length, 3, heads, width // heads), 2, 0)
    scores = jnp.einsum("rqhd,rkhd->rhqk", q, k) / np.sqrt(width // heads)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    return jnp.einsum("rhqk,rkhd->rqhd", jax.nn.softmax(scores), v).reshape(x.shape)


def logits(w: Tensors, tokens: jax.Array, first: jax.Array, heads: int) -> jax.Array:
    """Logits [R, L, V] of tokens [R, L], row r's first token at position first[r]."""
    positions = jnp.minimum(first[:, None] + jnp.arange(tokens.shape[1]), len(w["position_embedding"]) - 1)
    x = w["token_embedding"][tokens] + w["position_embedding"][positions]
    for layer in range(sum(name.endswith("attention_norm") for name in w)):
        of = {name.split(".")[2]: tensor for name, tensor in w.items() if name.startswith(f"layers.{layer}.")}
        x += attention(norm(x, of["attention_norm"]), of["attention_qkv"], heads) @ of["attention_output"]
        x += jax.nn.relu(norm(x, of["hidden_norm"]) @ of["hidden_up"]) @ of["hidden_down"]
    return norm(x, w["final_norm"]) @ w["token_embedding"].T


def log_probs(w: Tensors, rows: Tensors, heads: int, prompt_tokens: int) -> jax.Array:
    """[R, L], aligned with tokens. Prompts end at position prompt_tokens − 1, so shorter ones begin later."""
    return adapter.logprobs(logits(w, rows["tokens"], prompt_tokens - rows["prompts"], heads), rows["tokens"])


def loss_of(
    w: Tensors, rows: Tensors, response_tokens: int, heads: int, prompt_tokens: int, epsilon: float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """GRPO with PPO's clip, mean over the batch's sampled tokens; beside it what it measured."""
    # Put your own loss here: rows has tokens, logprobs, advantages and loss_mask, [sequences, longest].
    mask = rows["loss_mask"] == 1
    now = log_probs(w, rows, heads, prompt_tokens)
    log_ratio = jnp.where(mask, now - rows["logprobs"], 0.0)
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - epsilon, 1 + epsilon)
    gain = jnp.minimum(ratio * rows["advantages"], clipped * rows["advantages"])
    loss = -jnp.where(mask, gain, 0.0).sum() / response_tokens
    count, weight = mask.sum(), jnp.where(mask, ratio, 0.0)
    return loss, {
        "loss": loss, "clip_fraction": (ratio != clipped).sum() / count, "mean_log_ratio": log_ratio.sum() / count,
        "effective_sample_size": weight.sum() ** 2 / (weight**2).sum() / count, "log_probs": now,
    }  # fmt: skip


@partial(jax.jit, static_argnames=("heads", "prompt_tokens", "epsilon", "rate", "gradient_norm"))
def train_step(
    w: Tensors, moments: Any, rows: Tensors, response_tokens: int, heads: int, prompt_tokens: int, epsilon: float,
    rate: float, gradient_norm: float,
) -> tuple[Tensors, Any, dict[str, jax.Array]]:  # fmt: skip
    """One step of Adam; the weights and moments after it, and what the step measured."""
    gradients, metrics = jax.grad(loss_of, has_aux=True)(w, rows, response_tokens, heads, prompt_tokens, epsilon)
    size = jnp.sqrt(sum(jnp.sum(g * g) for g in gradients.values()))
    scale = jnp.minimum(1.0, gradient_norm / (size + 1e-6)) if gradient_norm else 1.0
    b1, b2, steps = ADAM["beta1"], ADAM["beta2"], moments["steps"] + 1
    mean = {k: b1 * m + (1 - b1) * scale * gradients[k] for k, m in moments["mean"].items()}
    square = {k: b2 * v + (1 - b2) * (scale * gradients[k]) ** 2 for k, v in moments["square"].items()}
    after = {
        k: w[k] - rate * (mean[k] / (1 - b1**steps)) / (jnp.sqrt(square[k] / (1 - b2**steps)) + ADAM["epsilon"])
        for k in w
    }
    return after, {"mean": mean, "square": square, "steps": steps}, metrics | {"grad_norm": size}


def main(arguments: list[str] | None = None) -> float:
    """Train until the run has ended; return the last held-out accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:7070")
    parser.add_argument("--evaluate-every", type=int, default=50, help="train steps between evaluations")
    said = parser.parse_args(arguments)

    hw = headway.connect(said.url)
    setting, letters = hw.config["trainer"], hw.config["environment"]["letters_max"]
    fixed = {
        "heads": hw.config["model"]["heads"], "prompt_tokens": letters + 2, "epsilon": setting["clip_epsilon"],
        "rate": setting["learning_rate"], "gradient_norm": setting["gradient_norm"],
    }  # fmt: skip

    def take(weights: Mapping[str, Any]) -> tuple[Tensors, Any]:
        w = {name: adapter.from_numpy(array) for name, array in weights.items()}
        zeros = {name: jnp.zeros_like(tensor) for name, tensor in w.items()}
        fresh, saved = {"mean": zeros, "square": zeros, "steps": jnp.zeros(())}, hw.optimizer()
        return w, adapter.unflatten(fresh, saved) if "steps" in saved else fresh

    w, moments = take(hw.load())
    accuracy = 0.0
    for batch in hw.batches():
        if batch.version and batch.version % said.evaluate_every == 0:
            accuracy = float(np.mean(hw.validation().rewards == 1))
            print(f"version {batch.version}: held-out accuracy {accuracy:.3f}", file=sys.stderr)
        batch.stamp_forward()
        rows = adapter.padded(batch, max_len=2 * letters + 3)  # one shape, compiled once
        w, moments, found = train_step(w, moments, rows, batch.metadata.response_tokens, **fixed)
        batch.compare(found.pop("log_probs"))
        metrics = {name: float(value) for name, value in found.items()}
        try:
            hw.publish(batch, w, optimizer=adapter.flatten(moments), metrics=metrics)
        except headway.LeaseExpired:  # the batch went back to the queue: so do we
            w, moments = take(hw.load())
    return accuracy


if __name__ == "__main__":
    main()
