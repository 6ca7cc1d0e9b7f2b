"""Routing replay on a small mixture of experts of torch alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import headway  # noqa: E402
from headway import routing  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor, nn
else:
    nn = torch.nn

TOKENS, EXPERTS, CHOSEN, WIDTH = 11, 8, 2, 16


class TopKRouter(nn.Module):
    """A router as transformers has them."""

    def __init__(self, sigmoid: bool, **settings: Any) -> None:
        super().__init__()
        self.weight, self.sigmoid = nn.Parameter(torch.randn(EXPERTS, WIDTH)), sigmoid
        for name, value in settings.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = x.reshape(-1, WIDTH) @ self.weight.T
        scores = logits.sigmoid() if self.sigmoid else logits.softmax(-1)
        weights, chosen = scores.topk(CHOSEN, dim=-1)
        if getattr(self, "norm_topk_prob", True):
            weights = weights / weights.sum(-1, keepdim=True)
        factor = getattr(self, "routed_scaling_factor", 1.0) * getattr(self, "unheard_of", 1.0)
        return logits, weights * factor, chosen


class Mixture(nn.Module):
    def __init__(self, router: TopKRouter) -> None:
        super().__init__()
        self.gate, self.experts = router, nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH) / WIDTH**0.5)

    def forward(self, x: Tensor) -> Tensor:
        _, weights, chosen = self.gate(x)
        flat = x.reshape(-1, WIDTH)
        out = torch.einsum("tki,tkij,tk->tj", flat[:, None].expand(-1, CHOSEN, -1), self.experts[chosen], weights)
        return x + out.reshape(x.shape).tanh()


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(x).tanh()


class Model(nn.Module):
    """Four layers of which the first has no experts."""

    def __init__(self, sigmoid: bool = False, **settings: Any) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.ModuleList(
            [Dense(), *(Mixture(TopKRouter(sigmoid, **settings)) for _ in range(3))]  # type: ignore[list-item]
        )
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.head(x)
        return out


def tokens() -> Tensor:
    return torch.arange(24).reshape(2, 12) % TOKENS


def own(model: nn.Module, call: Callable[[], object]) -> Tensor:
    """The experts that a model chooses, [R, L, 4, k], with zeros in its dense layer."""
    seen: list[Tensor] = []
    routers = [m for m in model.modules() if isinstance(m, TopKRouter)]
    hooks = [m.register_forward_hook(lambda _, __, out: seen.append(out[2])) for m in routers]
    call()
    for hook in hooks:
        hook.remove()
    rows = torch.stack([torch.zeros_like(seen[0]), *seen], dim=1)
    return rows.reshape(2, 12, 4, CHOSEN)


def others(rows: Tensor) -> Tensor:
    """Other experts for every choice."""
    changed = (rows + 1) % EXPERTS
    changed[:, :, 0] = 0
    return changed


@pytest.mark.parametrize(
    "settings",
    [
        {"sigmoid": False}, {"sigmoid": False, "norm_topk_prob": False}, {"sigmoid": True},
        {"sigmoid": True, "routed_scaling_factor": 2.5}, {"sigmoid": True, "norm_topk_prob": False},
    ],
    ids=str,
)  # fmt: skip
def test_own_choices_change_nothing(settings: dict[str, Any]) -> None:
    """Under every rule of weights; with all layers, and with those that have routers alone."""
    model = Model(**settings)
    rows, plain = own(model, lambda: model(tokens())), model(tokens())
    for given in (rows, rows[:, :, 1:], rows.numpy().astype(np.uint8), rows.numpy().astype(np.uint16)):
        with routing.replay(model, given) as replayed:
            torch.testing.assert_close(model(tokens()), plain)
        assert replayed.same == 1
    assert torch.equal(model(tokens()), plain)


def test_other_choices_are_taken() -> None:
    """The experts are those of the rows, their weights the router's own for these, and both have gradients."""
    model = Model()
    rows, plain = others(own(model, lambda: model(tokens()))), model(tokens())
    taken: list[Tensor] = []
    with routing.replay(model, rows) as replayed:
        taken.append(own(model, lambda: model(tokens())))
        out = model(tokens())
        out.square().sum().backward()
    assert torch.equal(taken[0], rows)
    assert replayed.same < 0.2
    assert not torch.allclose(out, plain)
    router = model.layers[1].gate
    x = model.layers[0](model.embed(tokens()))
    logits, weights, chosen = routing._three("it", router(x))
    want = logits.softmax(-1).gather(-1, rows[:, :, 1].reshape(-1, CHOSEN))
    got = routing._rule("it", router, logits, weights, chosen)(router, logits, rows[:, :, 1].reshape(-1, CHOSEN))
    torch.testing.assert_close(got, want / want.sum(-1, keepdim=True))
    assert router.weight.grad is not None
    assert router.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("form", ["present", "negative"])
def test_absent_rows_are_the_models_own(form: str) -> None:
    model = Model()
    chosen = own(model, lambda: model(tokens()))
    there = torch.ones(2, 12, dtype=torch.bool)
    there[0, 5:] = there[1, 0] = False
    rows = others(chosen)
    if form == "negative":
        rows[~there] = -1
        given: dict[str, Any] = {"rows": rows}
    else:
        rows[~there] = 0  # a filler: no model chooses it
        given = {"rows": rows.numpy().astype(np.uint8), "present": there.numpy()}
    first: list[Tensor] = []
    hook = model.layers[1].gate.register_forward_hook(lambda _, __, out: first.append(out[2]))
    with routing.replay(model, **given):
        again = model.layers[1].gate.register_forward_hook(lambda _, __, out: first.append(out[2]))
        model(tokens())
    hook.remove()
    again.remove()
    got = first[-1].reshape(2, 12, CHOSEN)
    assert torch.equal(got[there], rows[:, :, 1][there])
    assert torch.equal(got[~there], chosen[:, :, 1][~there])


def test_a_shift_by_one_row_shows() -> None:
    model = Model()
    rows = own(model, lambda: model(tokens()))
    with routing.replay(model, rows.roll(1, dims=1)) as replayed:
        model(tokens())
    assert replayed.same < 0.5


def test_what_does_not_fit_is_refused() -> None:
    model, good = Model(), torch.zeros(2, 12, 4, CHOSEN, dtype=torch.long)
    good[..., 1] = 1
    cases: list[tuple[str, Any, Any]] = [
        ("want \\[sequences", good[0], None),
        ("rows for 22", good[:, 1:], None),
        ("routers in layers 1, 2, 3", good[:, :, :2], None),
        ("of another model", good[..., :1], None),
        ("ids up to 8", good + 7, None),
        ("twice in layer 1", good * 0, None),
        ("want \\[sequences, tokens\\]", good, torch.ones(2, 11)),
        ("negative", good - 1, torch.ones(2, 12)),
    ]
    for words, rows, present in cases:
        with pytest.raises(headway.Invalid, match=words), routing.replay(model, rows, present):
            model(tokens())
    with pytest.raises(headway.Invalid, match="no router"), routing.replay(nn.Linear(2, 2), good):
        pass
    model.layers[2].gate.forward = lambda x: x  # type: ignore[method-assign]
    with pytest.raises(headway.Invalid, match="gate does not return"), routing.replay(model, good):
        model(tokens())


def test_weights_of_another_kind() -> None:
    """A router that weighs by no rule known here is refused, until it is said how."""
    model = Model(unheard_of=3.0)
    rows, plain = own(model, lambda: model(tokens())), model(tokens())
    with pytest.raises(headway.Invalid, match="weights="), routing.replay(model, rows):
        model(tokens())

    def weights(_: nn.Module, logits: Tensor, chosen: Tensor) -> Tensor:
        found = logits.softmax(-1).gather(-1, chosen)
        return 3 * found / found.sum(-1, keepdim=True)

    with routing.replay(model, rows, weights=weights):
        torch.testing.assert_close(model(tokens()), plain)
