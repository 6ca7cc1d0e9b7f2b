"""GRPO of a mixture of experts with routing replay: experts are chosen as the engine chose them when it sampled.

The rest is examples/hf_grpo: its model maker (--mixture) and its agent.
"""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.core_model_loading import revert_weight_conversion

import headway
import headway.torch as adapter
from headway import routing


def log_probs(model: nn.Module, rows: Mapping[str, Tensor], temperature: float) -> Tensor:
    """[R, L], aligned with tokens. Rows are padded behind, where a causal model does not look."""
    return adapter.logprobs(lambda tokens: model(input_ids=tokens), rows, temperature=temperature)


def divergence(now: Tensor, sampled: Tensor) -> float:
    """The k3 estimate of how far the trainer is from the engine, in nats a token."""
    apart = (now - sampled).detach()
    return float((apart.exp() - 1 - apart).mean())


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: headway.Batch, config: Mapping[str, Any]
) -> dict[str, float]:
    """One step of GRPO with PPO's clip over the network that sampled; what it measured."""
    batch.stamp_forward()
    device, setting = next(model.parameters()).device, config["trainer"]
    rows = adapter.padded(batch, device=device)
    mask, temperature = rows["loss_mask"].bool(), config["rollout"]["sampling"]["temperature"]
    with torch.no_grad():  # for the figures alone
        without = divergence(log_probs(model, rows, temperature)[mask], rows["logprobs"][mask])
    experts, present = adapter.channel(batch, "routed_experts", device=device)
    with routing.replay(model, experts, present) as replayed:
        now = log_probs(model, rows, temperature)
    batch.compare(now)
    advantage, epsilon = rows["advantages"][mask], setting["clip_epsilon"]
    ratio = (now - rows["logprobs"])[mask].exp()
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
    loss = -torch.minimum(ratio * advantage, clipped * advantage).sum() / batch.metadata.response_tokens
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), setting["gradient_norm"])
    optimizer.step()
    return {
        "loss": loss.item(), "grad_norm": grad_norm.item(), "routing/same": replayed.same,
        "routing/present": present.float().sum().item() / max(1, len(batch.tokens) - len(batch.offsets) + 1),
        "routing/k3": divergence(now[mask], rows["logprobs"][mask]), "routing/k3_without": without,
    }  # fmt: skip


def published(model: nn.Module, like: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of the model's own files, in their types: transformers joins a layer's experts, files have each."""
    state = revert_weight_conversion(model, model.state_dict())
    types = {name: adapter.from_numpy(array).dtype for name, array in like.items()}
    return {name: state[name].to(types[name]) for name in like}


def main(arguments: list[str] | None = None) -> float:
    """Train until the run has ended; return the mean reward of the last twenty batches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:7070")
    parser.add_argument("--threads", type=int, default=1, help="torch's (default 1: it is a very small model)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where to train")
    said = parser.parse_args(arguments)
    torch.set_num_threads(said.threads)
    hw = headway.connect(said.url)
    model = AutoModelForCausalLM.from_pretrained(hw.config["model"]["path"], dtype=torch.float32).to(said.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=hw.config["trainer"]["learning_rate"], betas=(0.9, 0.99))

    def take(weights: Mapping[str, Any]) -> Mapping[str, Any]:
        loaded = type(model).from_pretrained(None, config=model.config, state_dict=adapter.tensors(weights))
        model.load_state_dict(loaded.state_dict())
        adapter.load_optimizer(optimizer, model, hw.optimizer())
        return weights

    like, rewards = take(hw.load()), [0.0]
    for batch in hw.batches():
        metrics = train_step(model, optimizer, batch, hw.config)
        rewards = [*rewards[-19:], float(batch.rewards.mean())]
        if batch.version % 10 == 0:
            shown = ", ".join(f"{name[8:]} {metrics[name]:.5f}" for name in metrics if name.startswith("routing/"))
            reward = sum(rewards) / len(rewards)
            print(f"version {batch.version}: reward {reward:.3f}, {shown}", file=sys.stderr, flush=True)
        try:
            hw.publish(
                batch, published(model, like), optimizer=adapter.optimizer_state(optimizer, model), metrics=metrics
            )
        except headway.LeaseExpired:  # the batch went back to the queue: so do we
            like = take(hw.load())
    return sum(rewards) / len(rewards)


if __name__ == "__main__":
    main()
