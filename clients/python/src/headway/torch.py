"""torch beside the client: state dicts and arrays, log-probs of a batch, an optimizer's state, a sender of weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from . import distill
from .batch import Batch
from .channel import Channel
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


def teacher(batch: Batch, max_len: int | None = None, device: torch.device | str | None = None) -> distill.Teacher:
    """`distill.teacher` as tensors."""
    return distill.teacher(batch, max_len).map(lambda array: from_numpy(array, device))


def logprobs(
    model: Callable[..., Any],
    rows: Batch | Mapping[str, torch.Tensor],
    *,
    temperature: float = 1.0,
    mask: Channel | None = None,
    **options: Any,
) -> torch.Tensor:
    """[R, L] log-probs of the batch's tokens under the model, aligned with tokens: column 0 is 0.

    The model is called with the tokens [R, L] (and `options`) and returns logits [R, L, V], or anything with
    `.logits`: those at i − 1 are for token i. A batch is padded where the model's parameters lie.

    With `mask`, `batch.channel("sampling_mask")`, a token's log-prob is that among the ids which the engine's cut
    (top-k, top-p, min-p) had kept, as the engine's own is: the ratio of both is then exact. Tokens without a mask take
    all ids. For some rows of a batch give `mask.select` of the same sequences. Invalid names a token that is not in its
    mask.
    """
    if isinstance(rows, Batch):
        rows = padded(rows, device=_device_of(model))
    tokens = rows["tokens"]
    kept = None if mask is None else mask.kept(tokens.cpu().numpy())
    out = model(tokens, **options)
    logits: torch.Tensor = getattr(out, "logits", out)
    if kept is None:
        scores = torch.log_softmax(logits[:, :-1].float() / temperature, dim=-1)
        return torch.nn.functional.pad(scores.gather(-1, tokens[:, 1:, None]).squeeze(-1), (1, 0))
    if len(kept.ids) and not 0 <= kept.ids.min() <= kept.ids.max() < logits.shape[-1]:
        raise Invalid(f"the mask has ids up to {kept.ids.max()}, and there are {logits.shape[-1]} logits")
    places = torch.arange(tokens.numel(), device=logits.device).view_as(tokens)[:, 1:].flatten()
    place, sizes, ids, own = (torch.from_numpy(a).to(logits.device) for a in astuple(kept))
    masked = torch.zeros(tokens.numel(), dtype=torch.bool, device=logits.device)
    masked[place] = True
    drawn = place, torch.arange(len(place), device=logits.device).repeat_interleave(sizes), ids, own
    rest = places[~masked[places]]
    found: torch.Tensor = _LogProbs.apply(logits.flatten(0, 1), tokens.flatten(), rest, drawn, temperature)
    return found.view_as(tokens)


def _device_of(model: object) -> torch.device | None:
    """Where a module's parameters lie; None of what is no module, or has none."""
    first = next(model.parameters(), None) if isinstance(model, torch.nn.Module) else None
    return None if first is None else first.device


#: Logits that are widened to float32 at once.
_CHUNK = 1 << 24
#: Tokens with a mask: their places, for each kept id which of them it belongs to, the ids, and where tokens stand.
_Drawn = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class _LogProbs(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Log-probs of tokens by logits [P, V] of the place before, over all ids or over the kept ones; else 0.

    It holds the logits and a number for each token until the backward pass, and no other array of V numbers a token.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, tokens: torch.Tensor, places: torch.Tensor, drawn: _Drawn, heat: float
    ) -> torch.Tensor:
        found = torch.zeros(len(tokens), dtype=torch.float32, device=logits.device)
        norms = torch.zeros_like(found)
        for part in places.split(max(1, _CHUNK // logits.shape[1])):
            scores = logits[part - 1].float() / heat
            norms[part] = scores.logsumexp(-1)
            found[part] = scores.gather(1, tokens[part, None])[:, 0] - norms[part]
        place, of, ids, own = drawn
        scores = logits[place[of] - 1, ids].float() / heat
        most = torch.full_like(place, -torch.inf, dtype=torch.float32).scatter_reduce(0, of, scores, "amax")
        norm = most + torch.zeros_like(most).index_add(0, of, (scores - most[of]).exp()).log()
        norms[place], found[place] = norm, scores[own] - norm
        ctx.save_for_backward(logits, tokens, places, norms, *drawn)
        ctx.heat = heat
        return found

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        logits, tokens, places, norms, place, of, ids, own = ctx.saved_tensors
        by_logits, gradient = torch.zeros_like(logits), gradient / ctx.heat
        # Prompts and padding mostly have no gradient, and then cost nothing here.
        for part in places[gradient[places] != 0].split(max(1, _CHUNK // logits.shape[1])):
            scores = (logits[part - 1].float() / ctx.heat - norms[part, None]).exp() * -gradient[part, None]
            scores.scatter_add_(1, tokens[part, None], gradient[part, None])
            by_logits[part - 1] = scores.to(logits.dtype)
        scores = (logits[place[of] - 1, ids].float() / ctx.heat - norms[place[of]]).exp() * -gradient[place[of]]
        scores[own] += gradient[place]
        by_logits[place[of] - 1, ids] = scores.to(logits.dtype)
        return by_logits, None, None, None, None


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
    beside = _counted_beside(optimizer)
    for key, array in state.items():
        what, slash, name = key.partition("/")
        if slash and name in parameters:
            value, parameter = from_numpy(array), parameters[name]
            # Step counts are where torch keeps them: mostly on the host.
            stays = value.ndim == 0 and parameter not in beside
            optimizer.state[parameter][what] = value if stays else value.to(parameter.device)
            found = True
    return found


def _counted_beside(optimizer: torch.optim.Optimizer) -> set[torch.Tensor]:
    """The parameters whose step counts lie on their own device."""
    groups = [group for group in optimizer.param_groups if group.get("fused") or group.get("capturable")]
    return {parameter for group in groups for parameter in group["params"]}


__all__ = [
    "Sender", "channel", "from_numpy", "load_optimizer", "logprobs", "optimizer_state", "padded", "teacher", "tensors",
    "to_numpy",
]  # fmt: skip
