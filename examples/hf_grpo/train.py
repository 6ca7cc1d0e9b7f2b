"""GRPO in PyTorch of a Hugging Face model whose rollouts are sampled by vLLM, SGLang or the shim.

The control plane brings batches and takes versions; the engines load those from disk, or take them from this process
(--send). What is here is the model of transformers, its loss and one optimizer step a batch.
"""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

import headway
import headway.torch as adapter


def log_probs(model: nn.Module, rows: Mapping[str, Tensor], temperature: float) -> Tensor:
    """[R, L], aligned with tokens. Rows are padded behind, where a causal model does not look."""
    return adapter.logprobs(lambda tokens: model(input_ids=tokens), rows, temperature=temperature)


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: headway.Batch, config: Mapping[str, Any]
) -> dict[str, float]:
    """One step of GRPO with PPO's clip, mean over the batch's sampled tokens; what it measured."""
    # Put your own loss here: rows has tokens, logprobs, advantages and loss_mask, [sequences, longest].
    batch.stamp_forward()
    rows = adapter.padded(batch, device=next(model.parameters()).device)
    setting, mask = config["trainer"], rows["loss_mask"].bool()
    now = log_probs(model, rows, config["rollout"]["sampling"]["temperature"])
    batch.compare(now)
    log_ratio = (now - rows["logprobs"])[mask]
    advantage, epsilon = rows["advantages"][mask], setting["clip_epsilon"]
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
    loss = -torch.minimum(ratio * advantage, clipped * advantage).sum() / batch.metadata.response_tokens
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), setting["gradient_norm"])
    optimizer.step()
    weight = ratio.detach()
    return {
        "loss": loss.item(), "grad_norm": grad_norm.item(),
        "clip_fraction": (weight != clipped.detach()).float().mean().item(),
        "mean_log_ratio": log_ratio.mean().item(),
        "effective_sample_size": (weight.sum() ** 2 / (weight**2).sum() / len(weight)).item(),
    }  # fmt: skip


def published(model: nn.Module, like: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of the model's own files, in their types: those that are tied are stored once."""
    state = model.state_dict()
    types = {name: adapter.from_numpy(array).dtype for name, array in like.items()}
    return {name: state[name].to(types[name]) for name in like}


def main(arguments: list[str] | None = None) -> float:
    """Train until the run has ended; return the mean reward of the last twenty batches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:7070")
    parser.add_argument("--threads", type=int, default=1, help="torch's (default 1: it is a very small model)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where to train")
    parser.add_argument("--send", choices=("gloo", "nccl"), help="send weights to the engines over this")
    parser.add_argument("--checkpoint-every", type=int, default=10, help="with --send: store one each so many (10)")
    said = parser.parse_args(arguments)
    torch.set_num_threads(said.threads)

    hw = headway.connect(said.url)
    if hw.distributed and not said.send:
        engines = ", ".join(hw.distributed)
        parser.error(f"{engines} take their weights from this process (weights: distributed): say --send gloo or nccl")
    if said.send and not hw.distributed:
        parser.error(f"--send {said.send}: no engine of the run takes weights from this process (weights: distributed)")
    # Put your own model here: one that gives logits, its tensors named as in the files of model.path.
    model = AutoModelForCausalLM.from_pretrained(hw.config["model"]["path"], dtype=torch.float32).to(said.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=hw.config["trainer"]["learning_rate"], betas=(0.9, 0.99))

    def take(weights: Mapping[str, Any]) -> Mapping[str, Any]:
        model.load_state_dict(adapter.tensors(weights), strict=False)
        adapter.load_optimizer(optimizer, model, hw.optimizer())
        return weights

    def state() -> Mapping[str, Any]:
        return adapter.optimizer_state(optimizer, model)

    sender = adapter.Sender(said.url, backend=said.send) if said.send else None
    like, rewards = take(hw.load()), [0.0]
    for batch in hw.batches():
        metrics = train_step(model, optimizer, batch, hw.config)
        rewards = [*rewards[-19:], float(batch.rewards.mean())]
        if batch.version % 10 == 0:
            shown = sum(rewards) / len(rewards)
            drift = metrics["mean_log_ratio"]
            print(f"version {batch.version}: reward {shown:.3f}, log-ratio {drift:.5f}", file=sys.stderr, flush=True)
        try:
            weights = published(model, like)
            if sender is None:
                hw.publish(batch, weights, optimizer=state(), metrics=metrics)
            else:  # which asks for the state of those that it stores alone
                every = said.checkpoint_every
                sender.publish(hw, batch, weights, optimizer=state, metrics=metrics, checkpoint_every=every)
        except headway.LeaseExpired:  # the batch went back to the queue: so do we
            like = take(hw.load())
    if sender is not None:
        sender.close()
    return sum(rewards) / len(rewards)


if __name__ == "__main__":
    main()
