"""On-policy distillation in PyTorch: a student answers, and learns from what a teacher says of each of its tokens.

No reward enters the loss. The control plane brings batches with the teacher's rows, and takes versions.
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
from headway import distill

#: Of logits, log-probs of what was sampled, those that it was sampled with, and the teacher's rows.
LOSSES = {
    "reverse": lambda logits, now, drawn, teacher: distill.reverse_kl(logits, teacher),
    "forward": lambda logits, now, drawn, teacher: distill.forward_kl(logits, teacher),
    "sampled": lambda logits, now, drawn, teacher: distill.sampled_kl(now, teacher.sampled, drawn, teacher.present),
}


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: headway.Batch, config: Mapping[str, Any], loss_of: str
) -> dict[str, float]:
    """One step, mean over the tokens that the teacher has scored; what it measured."""
    batch.stamp_forward()
    device = next(model.parameters()).device
    rows, teacher = adapter.padded(batch, device=device), adapter.teacher(batch, device=device)
    logits = model(input_ids=rows["tokens"]).logits
    now = adapter.logprobs(lambda _: logits, rows)
    batch.compare(now)
    scored = teacher.present.sum().clamp(min=1)
    with torch.no_grad():
        sampled = distill.sampled_kl(now, teacher.sampled, rows["logprobs"], teacher.present).sum() / scored
        found = {name: of(logits, teacher).sum() / scored for name, of in (
            ("reverse", distill.reverse_kl), ("forward", distill.forward_kl),
        )}  # fmt: skip
    loss = LOSSES[loss_of](logits, now, rows["logprobs"], teacher).sum() / scored
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), config["trainer"]["gradient_norm"])
    optimizer.step()
    return {
        "loss": loss.item(), "grad_norm": grad_norm.item(), "teacher/absent": float(teacher.absent),
        "teacher/reverse_kl": found["reverse"].item(), "teacher/forward_kl": found["forward"].item(),
        "teacher/sampled_kl": sampled.item(),
    }  # fmt: skip


def published(model: nn.Module, like: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of the model's own files, in their types."""
    state = model.state_dict()
    types = {name: adapter.from_numpy(array).dtype for name, array in like.items()}
    return {name: state[name].to(types[name]) for name in like}


def main(arguments: list[str] | None = None) -> list[float]:
    """Train until the run has ended; return the divergence from the teacher at each step, in nats a token."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:7070")
    parser.add_argument("--loss", choices=LOSSES, default="reverse", help="which divergence to train on (reverse)")
    parser.add_argument("--threads", type=int, default=1, help="torch's (default 1: it is a very small model)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where to train")
    said = parser.parse_args(arguments)
    torch.set_num_threads(said.threads)

    hw = headway.connect(said.url)
    model = AutoModelForCausalLM.from_pretrained(hw.config["model"]["path"], dtype=torch.float32).to(said.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=hw.config["trainer"]["learning_rate"], betas=(0.9, 0.99))

    def take(weights: Mapping[str, Any]) -> Mapping[str, Any]:
        model.load_state_dict(adapter.tensors(weights), strict=False)
        adapter.load_optimizer(optimizer, model, hw.optimizer())
        return weights

    like, divergences = take(hw.load()), list[float]()
    for batch in hw.batches():
        metrics = train_step(model, optimizer, batch, hw.config, said.loss)
        divergences.append(metrics["teacher/reverse_kl"])
        if batch.version % 10 == 0:
            shown = ", ".join(f"{name[8:]} {metrics[name]:.4f}" for name in metrics if name.startswith("teacher/"))
            right = float(batch.rewards.mean())
            print(f"version {batch.version}: {shown}, right {right:.3f}", file=sys.stderr, flush=True)
        try:
            state = adapter.optimizer_state(optimizer, model)
            hw.publish(batch, published(model, like), optimizer=state, metrics=metrics)
        except headway.LeaseExpired:  # the batch went back to the queue: so do we
            like = take(hw.load())
    return divergences


if __name__ == "__main__":
    main()
