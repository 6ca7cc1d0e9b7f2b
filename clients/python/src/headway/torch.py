"""torch beside the client: state dicts and arrays, log-probs of a batch, an optimizer's state, a sender of weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from .batch import Batch
from .errors import Invalid
from .sender import Sender
from .tensors import Array, BFloat16


def to_numpy(tensor: torch.Tensor) -> Array:
    """The array of a tensor, shared where it lies in host memory; bfloat16 becomes a BFloat16."""
    host = tensor.detach().to("cpu").contiguous()
    if host.dtype == torch.bfloat16:
        bits: Array = host.view(torch.int16).numpy().view(np.uint16)
        return bits.view(BFloat16)
    try:
        array: Array = host.numpy()
        return array
    except TypeError as error:
        raise Invalid(f"a tensor of {tensor.dtype} cannot be published: {error}") from error


def from_numpy(array: Array, device: torch.device | str | None = None) -> torch.Tensor:
    """The tensor of an array, of its own memory."""
    if isinstance(array, BFloat16):
        return torch.from_numpy(np.array(array, dtype=np.uint16).view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(np.array(array)).to(device)


def tensors(arrays: Mapping[str, Array], device: torch.device | str | None = None) -> dict[str, torch.Tensor]:
    """A state dict of arrays, as `Client.load` returns them."""
    return {name: from_numpy(array, device) for name, array in arrays.items()}


def padded(
    batch: Batch, max_len: int | None = None, device: torch.device | str | None = None
) -> dict[str, torch.Tensor]:
    """`Batch.padded` as tensors; `tokens` are int64, as embeddings and gathers want them."""
    rows = {name: from_numpy(array, device) for name, array in batch.padded(max_len).items()}
    rows["tokens"] = rows["tokens"].long()
    return rows


def channel(
    batch: Batch, name: str, fill: float = 0, max_len: int | None = None, device: torch.device | str | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """A side channel as `Channel.padded`: rows [R, L, row...] and where there are any [R, L].

    Whole numbers are int64, as gathers want them.
    """
    rows, present = batch.channel(name).padded(fill, max_len)
    if rows.dtype.kind in "iu" and not isinstance(rows, BFloat16):
        rows = rows.astype(np.int64)
    return from_numpy(rows, device), from_numpy(present, device)


def logprobs(
    model: Callable[..., Any], rows: Batch | Mapping[str, torch.Tensor], *, temperature: float = 1.0, **options: Any
) -> torch.Tensor:
    """[R, L] log-probs of the batch's tokens under the model, aligned with tokens: column 0 is 0.

    The model is called with the tokens [R, L] (and `options`) and returns logits [R, L, V], or anything with
    `.logits`: those at i − 1 are for token i.
    """
    if isinstance(rows, Batch):
        rows = padded(rows)
    out = model(rows["tokens"], **options)
    logits: torch.Tensor = getattr(out, "logits", out)
    scores = torch.log_softmax(logits[:, :-1].float() / temperature, dim=-1)
    found = scores.gather(-1, rows["tokens"][:, 1:, None]).squeeze(-1)
    return torch.nn.functional.pad(found, (1, 0))


def optimizer_state(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> dict[str, Array]:
    """The optimizer's tensors by names that survive a restart: `exp_avg/layers.0.weight`."""
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    state: dict[str, Array] = {}
    for parameter, values in optimizer.state.items():
        if parameter not in names:
            raise Invalid(
                f"the optimizer holds a parameter of shape {list(parameter.shape)} that the model does not name: give "
                "the module that has all of them"
            )
        for key, value in values.items():
            if not hasattr(value, "__float__"):
                what = f"the optimizer's {key} of {names[parameter]}"
                raise Invalid(f"{what} is a {type(value).__name__}: want a tensor or a number")
            tensor = value if isinstance(value, torch.Tensor) else torch.tensor(float(value))
            state[f"{key}/{names[parameter]}"] = to_numpy(tensor)
    return state


def load_optimizer(optimizer: torch.optim.Optimizer, model: torch.nn.Module, state: Mapping[str, Array]) -> bool:
    """Give the optimizer the state that `optimizer_state` made; False where there is none for this model.

    Without any it begins anew, as after a version that another program made.
    """
    optimizer.state.clear()
    found = False
    parameters = dict(model.named_parameters())
    for key, array in state.items():
        what, slash, name = key.partition("/")
        if slash and name in parameters:
            value = from_numpy(array)
            # Step counts stay on the host, where torch keeps them.
            optimizer.state[parameters[name]][what] = value if value.ndim == 0 else value.to(parameters[name].device)
            found = True
    return found


__all__ = [
    "Sender", "channel", "from_numpy", "load_optimizer", "logprobs", "optimizer_state", "padded", "tensors", "to_numpy",
]  # fmt: skip
