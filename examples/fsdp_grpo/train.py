"""GRPO in PyTorch with FSDP: torchrun --nproc-per-node 8 examples/fsdp_grpo/train.py --weights runs/serve/weights.

A skeleton to edit: any causal model of transformers, one optimizer step a batch, weights by a disk that the control
plane and the engines share. Without a GPU it runs on CPUs, over gloo.
"""

import argparse
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM

import headway
import headway.torch as adapter


def sharded(directory: Path) -> nn.Module:
    """The model with float32 weights, a shard a rank, and layers gathered in bfloat16. Each rank reads it whole."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    return fully_shard(model, mp_policy=policy).float()


def pieces(rows: Mapping[str, Tensor], size: int) -> list[dict[str, Tensor]]:
    """The rank's sequences, `size` at a time. All ranks make as many: each is a collective of all."""
    count = torch.tensor(-(-len(rows["tokens"]) // size), device=rows["tokens"].device)
    dist.all_reduce(count, dist.ReduceOp.MAX)
    made = []
    for i in range(0, int(count) * size, size):
        piece = {name: rows[name][i : i + size] for name in ("tokens", "loss_mask", "logprobs", "advantages")}
        if len(piece["tokens"]) == 0:  # nothing is left: two tokens without weight
            piece = {name: value.new_zeros(1, 2) for name, value in piece.items()}
        made.append(piece)
    return made


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: headway.Batch, config: Mapping[str, Any], size: int
) -> dict[str, float]:
    """One step of GRPO with PPO's clip, mean over the sampled tokens of all ranks; what it measured."""
    batch.stamp_forward()
    device = next(model.parameters()).device
    epsilon, temperature = config["trainer"]["clip_epsilon"], config["rollout"]["sampling"]["temperature"]
    rows, found, sums = adapter.padded(batch, device=device), [], torch.zeros(3, device=device)
    optimizer.zero_grad()
    for piece in pieces(rows, size):
        now = adapter.logprobs(lambda tokens: model(input_ids=tokens), piece, temperature=temperature)
        found.append(now.detach())
        mask = piece["loss_mask"].bool()
        log_ratio = torch.where(mask, now - piece["logprobs"], 0.0)
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
        gain = torch.minimum(ratio * piece["advantages"], clipped * piece["advantages"])
        loss = -(gain * mask).sum() / batch.metadata.response_tokens
        (loss * dist.get_world_size()).backward()  # type: ignore[no-untyped-call] # FSDP takes the mean over ranks
        sums += torch.stack([loss.detach(), (ratio != clipped).sum(), log_ratio.detach().sum()])
    if len(rows["tokens"]):  # a rank's share may be empty
        batch.compare(torch.cat(found[: -(-len(rows["tokens"]) // size)]))
    norm = nn.utils.clip_grad_norm_(model.parameters(), config["trainer"]["gradient_norm"])
    optimizer.step()
    dist.all_reduce(sums)
    tokens = batch.metadata.response_tokens
    return {
        "loss": float(sums[0]), "clip_fraction": float(sums[1]) / tokens, "mean_log_ratio": float(sums[2]) / tokens,
        "grad_norm": float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm),
    }  # fmt: skip


def saved(model: nn.Module, directory: Path) -> None:
    """Rank 0 writes the whole model in bfloat16, under the names of Hugging Face's files."""
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        shutil.rmtree(directory, ignore_errors=True)
        narrow = {name: value.to(torch.bfloat16) for name, value in whole.items()}
        model.save_pretrained(directory, state_dict=narrow)  # type: ignore[operator]


def main(arguments: list[str] | None = None) -> None:
    """Train until the run has ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:7070")
    parser.add_argument("--weights", type=Path, required=True, help="runs/NAME/weights, on the shared disk")
    parser.add_argument("--out", type=Path, default=Path("published"), help="below server.directories (published)")
    parser.add_argument("--sequences", type=int, default=1, help="sequences of one forward pass (1)")
    said = parser.parse_args(arguments)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

    while not (views := sorted(said.weights.glob("v*/hf"))):  # the control plane has still to make version 0
        time.sleep(1)
    newest = int(views[-1].parent.name[1:])
    model = sharded(views[-1])
    rank, ranks = dist.get_rank(), dist.get_world_size()
    with headway.connect(said.url, rank=rank, world_size=ranks, version=newest) as hw:
        optimizer = torch.optim.AdamW(model.parameters(), lr=hw.config["trainer"]["learning_rate"], weight_decay=0.0)
        for batch in hw.batches():
            metrics = train_step(model, optimizer, batch, hw.config, said.sequences)
            saved(model, said.out)
            version = hw.publish(batch, weights_dir=said.out, metrics=metrics)
            if rank == 0:
                print(f"version {version}: reward {batch.rewards.mean():.3f} {metrics}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
