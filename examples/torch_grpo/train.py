"""GRPO in PyTorch against `headway serve`: a small transformer learns to reverse words.

The rollouts are Headway's; what is here is the policy, its loss and one optimizer step a batch. The policy is
the one that the embedded engine runs, number for number, so that its log-probs can be compared with ours.
"""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headway
import headway.torch as adapter


class Layer(nn.Module):
    """Attention, then a feed-forward layer, each behind an RMS norm. Matrices are input by output."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.Parameter(torch.ones(width))
        self.attention_qkv = nn.Parameter(torch.empty(width, 3 * width))
        self.attention_output = nn.Parameter(torch.empty(width, width))
        self.hidden_norm = nn.Parameter(torch.ones(width))
        self.hidden_up = nn.Parameter(torch.empty(width, hidden))
        self.hidden_down = nn.Parameter(torch.empty(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        qkv = (norm(x, self.attention_norm) @ self.attention_qkv).view(rows, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + attended @ self.attention_output
        return x + torch.relu(norm(x, self.hidden_norm) @ self.hidden_up) @ self.hidden_down


class Policy(nn.Module):
    """A decoder whose positions count so that every response begins at the same one, however long its prompt."""

    def __init__(self, vocabulary: int, context: int, width: int, layers: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.token_embedding = nn.Parameter(torch.empty(vocabulary, width))
        self.position_embedding = nn.Parameter(torch.empty(context, width))
        self.layers = nn.ModuleList(Layer(width, heads, hidden) for _ in range(layers))
        self.final_norm = nn.Parameter(torch.ones(width))

    def forward(self, tokens: Tensor, first: Tensor) -> Tensor:
        """Logits [R, L, V] of tokens [R, L], row r's first token at position first[r]."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        positions = (first[:, None] + places).clamp(max=len(self.position_embedding) - 1)
        x = self.token_embedding[tokens] + self.position_embedding[positions]
        for layer in self.layers:
            x = layer(x)
        return norm(x, self.final_norm) @ self.token_embedding.T


def norm(x: Tensor, gain: Tensor) -> Tensor:
    return F.rms_norm(x, gain.shape, gain, eps=1e-5)


def policy_of(weights: Mapping[str, Any], config: Mapping[str, Any]) -> Policy:
    """A policy with the shapes of a version's tensors."""
    vocabulary, width = weights["token_embedding"].shape
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers."))
    hidden = weights["layers.0.hidden_up"].shape[1]
    return Policy(vocabulary, len(weights["position_embedding"]), width, layers, config["model"]["heads"], hidden)


def log_probs(policy: Policy, rows: Mapping[str, Tensor], prompt_tokens: int) -> Tensor:
    """[R, L], aligned with tokens. Prompts end at position prompt_tokens − 1, so shorter ones begin later."""
    return adapter.logprobs(policy, rows, first=prompt_tokens - rows["prompts"])


def train_step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: headway.Batch,
    setting: Mapping[str, Any],
    prompt_tokens: int,
) -> dict[str, float]:
    """One step of GRPO with PPO's clip, mean over the batch's sampled tokens; what it measured."""
    # Put your own loss here: rows has tokens, logprobs, advantages and loss_mask, [sequences, longest].
    batch.stamp_forward()
    rows = adapter.padded(batch, device=policy.token_embedding.device)
    mask = rows["loss_mask"].bool()
    now = log_probs(policy, rows, prompt_tokens)
    batch.compare(now)
    log_ratio = (now - rows["logprobs"])[mask]
    advantage, epsilon = rows["advantages"][mask], setting["clip_epsilon"]
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
    loss = -torch.minimum(ratio * advantage, clipped * advantage).sum() / batch.metadata.response_tokens
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    grad_norm = nn.utils.clip_grad_norm_(policy.parameters(), setting["gradient_norm"])
    optimizer.step()
    weight = ratio.detach()
    return {
        "loss": loss.item(), "grad_norm": grad_norm.item(),
        "clip_fraction": (weight != clipped.detach()).float().mean().item(),
        "mean_log_ratio": log_ratio.mean().item(),
        "effective_sample_size": (weight.sum() ** 2 / (weight**2).sum() / len(weight)).item(),
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> float:
    """Train until the run has ended; return the last held-out accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:7070")
    parser.add_argument("--evaluate-every", type=int, default=50, help="train steps between evaluations")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where to train")
    said = parser.parse_args(arguments)
    torch.set_num_threads(1)  # it is a very small model

    hw = headway.connect(said.url)
    setting, prompt_tokens = hw.config["trainer"], hw.config["environment"]["letters_max"] + 2
    weights = hw.load()
    policy = policy_of(weights, hw.config).to(said.device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=setting["learning_rate"], betas=(0.9, 0.99))

    def take(weights: Mapping[str, Any]) -> None:
        policy.load_state_dict(adapter.tensors(weights))
        adapter.load_optimizer(optimizer, policy, hw.optimizer())

    take(weights)
    accuracy = 0.0
    for batch in hw.batches():
        if batch.version and batch.version % said.evaluate_every == 0:
            accuracy = float(np.mean(hw.validation().rewards == 1))
            print(f"version {batch.version}: held-out accuracy {accuracy:.3f}", file=sys.stderr)
        metrics = train_step(policy, optimizer, batch, setting, prompt_tokens)
        try:
            hw.publish(
                batch, policy.state_dict(), optimizer=adapter.optimizer_state(optimizer, policy), metrics=metrics
            )
        except headway.LeaseExpired:  # the batch went back to the queue: so do we
            take(hw.load())
    return accuracy


if __name__ == "__main__":
    main()
