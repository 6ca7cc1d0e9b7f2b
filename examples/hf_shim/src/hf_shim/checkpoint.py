"""Checkpoints in the layout of Hugging Face: read whole and checked before a model takes anything over."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from . import architecture
from .errors import Refusal
from .model import Model


def load(directory: Path, dtype: torch.dtype, device: torch.device) -> Model:
    """The model of a checkpoint."""
    model = Model(architecture.read(directory), dtype, device)
    model.replace(tensors(directory, model))
    return model


def tensors(directory: Path, model: Model) -> dict[str, torch.Tensor]:
    """All tensors that a model needs, from a checkpoint of the same architecture; a Refusal says what is amiss."""
    found = architecture.read(directory)
    if found != model.architecture:
        ours, theirs = vars(model.architecture), vars(found)
        changed = ", ".join(f"{k} {theirs[k]} (served: {ours[k]})" for k in ours if ours[k] != theirs[k])
        raise Refusal(f"{directory} is of another architecture: {changed}")
    read: dict[str, torch.Tensor] = {}
    for path in files(directory):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118
                    if name == "lm_head.weight" and model.architecture.tied:
                        continue  # some writers repeat the embedding
                    tensor = file.get_tensor(name)
                    model.check(name, tuple(tensor.shape))
                    read[name] = tensor
        except (OSError, SafetensorError) as problem:
            raise Refusal(f"{path} cannot be read: {problem}") from None
    missing = [name for name in model.parameters if name not in read]
    if missing:
        raise Refusal(f"{directory} lacks {len(missing)} tensors, such as {', '.join(missing[:3])}")
    broken = [name for name, tensor in read.items() if not tensor.isfinite().all()]
    if broken:
        raise Refusal(f"{directory} has values that are not finite, such as in {', '.join(broken[:3])}")
    return read


def files(directory: Path) -> list[Path]:
    """The files of a checkpoint; a Refusal where there are none."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = set(json.loads(index.read_text())["weight_map"].values())
        except (OSError, ValueError, KeyError, AttributeError) as problem:
            raise Refusal(f"{index} cannot be read: {problem!r}") from None
        return [directory / name for name in sorted(names)]
    single = directory / "model.safetensors"
    if single.is_file():
        return [single]
    raise Refusal(f"{directory} has neither model.safetensors nor model.safetensors.index.json")
