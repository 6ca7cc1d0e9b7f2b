"""Routing replay in torch: the model sends each token to the experts that the engine sent it to.

Engine and trainer compute the same mixture of experts with other kernels and in other batches. Now and then a token
goes to other experts for that, and its log-prob is then that of another network. With the engine's choices replayed
the trainer computes the network that sampled. The weights of the experts stay the trainer's: they follow from its own
router's logits at those experts, and have gradients.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from .errors import Invalid

#: The weights of a token's experts: of a router, its logits [T, experts] and chosen experts [T, k], weights [T, k].
Weights = Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]
#: Own weights and those by a rule may differ by this share of the largest, from rounding in half precision.
_CLOSE = 2e-2


class Replay:
    """What `replay` gives: how the replayed choices compare with the model's own."""

    def __init__(self, rows: torch.Tensor, present: torch.Tensor, weights: Weights | None) -> None:
        self._rows, self._present, self._weights = rows, present, weights
        self._largest = int(rows[present].max()) if present.any() else -1
        self._rules: dict[torch.nn.Module, Weights] = {}
        self._same: list[torch.Tensor] = []
        self._seen = 0

    @property
    def same(self) -> float:
        """The share of choices that the model would have made itself, over passes and layers; 1 where there are none.

        It is a little below 1 where engine and trainer round differently, far below where rows are of other tokens.
        """
        return float(torch.stack(self._same).sum()) / self._seen if self._seen else 1.0

    def _choose(self, layer: int, name: str, router: torch.nn.Module, output: Any) -> Any:
        """What the router returns, with other experts."""
        logits, weights, own = _three(name, output)
        if own.shape[0] != self._rows.shape[0]:
            raise Invalid(
                f"{name} routes {own.shape[0]} tokens, and there are rows for {self._rows.shape[0]}: call the model "
                "with tokens of the rows' shape"
            )
        if own.shape[1] != self._rows.shape[2] or self._largest >= logits.shape[-1]:
            raise Invalid(
                f"{name} chooses {own.shape[1]} of {logits.shape[-1]} experts, and rows have {self._rows.shape[2]} "
                f"with ids up to {self._largest}: they are of another model"
            )
        rows, present = self._rows[:, layer].to(own.device), self._present.to(own.device)
        chosen = torch.where(present[:, None], rows.to(own.dtype), own)
        if router not in self._rules:
            self._rules[router] = self._weights or _rule(name, router, logits, weights, own)
        with torch.no_grad():
            equal = (chosen.sort(-1).values == own.sort(-1).values).all(-1) & present
            self._same.append(equal.sum().cpu())
            self._seen += int(present.sum())
        return logits, self._rules[router](router, logits, chosen).to(weights.dtype), chosen


@contextmanager
def replay(
    model: torch.nn.Module, rows: Any, present: Any = None, *, weights: Weights | None = None
) -> Iterator[Replay]:
    """Within it, the routers of `model` choose the experts of `rows` where there are any, and their own where not.

    `rows` are integers [R, L, layers, k] of numpy or torch, for calls with tokens [R, L]: row i is of the pass of token
    i. The layers are all of the model, or those with routers. `present` [R, L] says which rows there are; without it
    those are that are not negative. The last token of a sequence has no pass and so no row: its own choice changes no
    log-prob. Dense layers, and models that are called outside, are left alone.

    The backward pass belongs inside as well where activations are computed again (gradient checkpointing). `weights`
    weighs the chosen experts where a router does it by neither of the rules known here, softmax and sigmoid.
    """
    rows, present = _tensors(rows, present)
    routers = _routers(model)
    layers = rows.shape[2]
    by_order = layers == len(routers)
    if not by_order and layers <= max(layer for layer, _, _ in routers):
        numbers = ", ".join(str(layer) for layer, _, _ in routers)
        raise Invalid(f"rows have {layers} layers: the model has routers in layers {numbers}")
    places = [i if by_order else layer for i, (layer, _, _) in enumerate(routers)]
    flat, there = rows.flatten(0, 1), present.flatten()
    ids = flat[there][:, places[0]].sort(-1).values
    if (ids[:, 1:] == ids[:, :-1]).any():
        raise Invalid(f"a row names an expert twice in layer {places[0]}: it is a filler, or of a dense layer")
    replayed = Replay(flat, there, weights)
    with ExitStack() as hooks:
        for place, (_, name, router) in zip(places, routers, strict=True):
            hooks.callback(router.register_forward_hook(_hook(replayed, place, name)).remove)
        yield replayed


def _hook(replayed: Replay, place: int, name: str) -> Callable[..., Any]:
    return lambda router, _, output: replayed._choose(place, name, router, output)


def _tensors(rows: Any, present: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as int64, and which there are."""
    if not isinstance(rows, torch.Tensor):
        rows = torch.from_numpy(np.asarray(rows).astype(np.int64))
    rows = rows.long()
    if rows.ndim != 4:
        raise Invalid(f"rows have the shape {list(rows.shape)}: want [sequences, tokens, layers, experts]")
    if present is None:
        return rows, (rows >= 0).flatten(2).all(-1)
    there = present if isinstance(present, torch.Tensor) else torch.from_numpy(np.array(present))
    if there.shape != rows.shape[:2]:
        raise Invalid(
            f"rows have the shape {list(rows.shape)}, and present {list(there.shape)}: want [sequences, tokens]"
        )
    there = there.bool().to(rows.device)
    if (rows[there] < 0).any():
        raise Invalid("a row that is present has a negative expert")
    return rows, there


def _routers(model: torch.nn.Module) -> list[tuple[int, str, torch.nn.Module]]:
    """The model's routers in the order of their layers: the number of each one's layer, its name and itself."""
    found = []
    for name, module in model.named_modules():
        number = re.search(r"(?:^|\.)layers\.(\d+)\.", name)
        if number and type(module).__name__.lower().endswith("router"):
            found.append((int(number[1]), name, module))
    if not found:
        raise Invalid("the model has no router: no module below layers.N is of a class named …Router")
    return sorted(found, key=lambda router: router[0])


def _three(name: str, output: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A router's logits, weights and experts."""
    try:
        logits, weights, own = output
        fits = logits.ndim == own.ndim == 2 and own.shape == weights.shape and not own.is_floating_point()
    except (TypeError, ValueError, AttributeError):
        fits = False
    if not fits:
        raise Invalid(f"{name} does not return logits, weights and experts: its choice cannot be replaced")
    return logits, weights, own


def _rule(
    name: str, router: torch.nn.Module, logits: torch.Tensor, weights: torch.Tensor, own: torch.Tensor
) -> Weights:
    """The rule by which the router has weighed its own choice: the one that comes closest."""
    with torch.no_grad():
        rules = [_weigh(torch.softmax), _weigh(_sigmoid)]
        apart = [float((rule(router, logits, own) - weights).abs().max()) for rule in rules]
        bound = _CLOSE * max(1.0, float(weights.abs().max()))
    if not min(apart) <= bound:
        raise Invalid(f"{name} weighs its experts by neither softmax nor sigmoid of its logits: say how by weights=")
    return rules[apart.index(min(apart))]


def _sigmoid(logits: torch.Tensor, dim: int) -> torch.Tensor:
    del dim
    return torch.sigmoid(logits)


def _weigh(scores: Callable[..., torch.Tensor]) -> Weights:
    """Scores of the chosen experts, which sum to one and are scaled where the router's attributes say so."""

    def rule(router: torch.nn.Module, logits: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        found = scores(logits.float(), dim=-1).gather(-1, chosen.long())
        if getattr(router, "norm_topk_prob", True):
            found = found / (found.sum(-1, keepdim=True) + 1e-20)
        return found * float(getattr(router, "routed_scaling_factor", 1.0))

    return rule


__all__ = ["Replay", "Weights", "replay"]
