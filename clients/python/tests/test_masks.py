"""Ratios over cut distributions, by enumeration: every token of a small vocabulary, with its exact probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_batch import golden
from test_channel import golden as with_channels

import headway
from headway.channel import Channel, ChannelInfo

TOKENS, CONTEXTS, HEAT = 7, 5, 0.7
Floats = Any


def softmax(scores: Floats) -> Floats:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def top_p(chances: Floats) -> Floats:
    """The likeliest tokens that make up 0.8."""
    order = np.argsort(-chances, axis=-1)
    ranked = np.take_along_axis(chances, order, -1)
    kept = np.zeros(chances.shape, bool)
    np.put_along_axis(kept, order, ranked.cumsum(-1) - ranked < 0.8, -1)
    return kept


def top_k(chances: Floats) -> Floats:
    """The three likeliest."""
    return np.asarray(chances >= np.sort(chances, axis=-1)[:, -3:-2])


#: Batch of one rollout for each context and kept token, with its chance; the engine's logits and kept ids.
Everything = tuple[headway.Batch, Floats, Floats, Floats]


def everything(cut: Callable[[Floats], Floats]) -> Everything:
    """All that an engine can sample: a context of three tokens, and one token drawn from what the cut kept."""
    rng = np.random.default_rng(4)
    logits = rng.normal(scale=0.8, size=(CONTEXTS, TOKENS)).astype(np.float32)
    kept = cut(softmax(logits / HEAT))
    chances = np.where(kept, softmax(logits / HEAT), 0)
    chances /= chances.sum(-1, keepdims=True)
    context, token = np.nonzero(kept)
    count = len(token)
    tokens = np.stack([context, context, context, token], axis=1).astype(np.int32)
    drawn = chances[context, token]
    mask = np.tile([0, 0, 0, 1], count).astype(np.uint8)
    metadata = replace(golden("whole").metadata, version=0)
    numbers = np.arange(count)
    batch = headway.Batch(
        tokens=tokens.reshape(-1), offsets=np.arange(count + 1) * 4, loss_mask=mask,
        logprobs=(np.repeat(np.log(drawn), 4) * mask).astype(np.float32), versions=mask.astype(np.int32) - 1,
        advantages=rng.normal(size=count).astype(np.float32), rewards=np.zeros(count, np.float32), groups=numbers,
        samples=numbers.astype(np.int32), rollouts=numbers.astype(np.int32), metadata=metadata,
    )  # fmt: skip
    ids, sizes = [np.flatnonzero(kept[c]) for c in context], kept.sum(-1)[context]
    batch._channels["sampling_mask"] = Channel(
        ChannelInfo("sampling_mask", "i32", "sampled", (), True, count, 0), np.flatnonzero(mask),
        np.concatenate(ids).astype(np.int32), np.concatenate(([0], np.cumsum(sizes))), batch.offsets,
    )  # fmt: skip
    return batch, drawn, logits, kept


def by_torch(batch: headway.Batch, table: Any, masked: bool, **options: Any) -> Any:
    """The log-probs of a policy that has a row of logits for each context."""
    torch = pytest.importorskip("torch")
    import headway.torch

    mask = batch.channel("sampling_mask") if masked else None
    return headway.torch.logprobs(
        lambda tokens: torch.as_tensor(table)[tokens % CONTEXTS], batch, temperature=HEAT, mask=mask, **options
    )


def by_jax(batch: headway.Batch, table: Any, masked: bool) -> Any:
    jax = pytest.importorskip("jax")
    import headway.jax as adapter

    tokens: Any = batch.padded()["tokens"]
    run = jax.jit(lambda table, kept: adapter.logprobs(table[tokens % CONTEXTS], tokens, temperature=HEAT, kept=kept))
    return run(table, adapter.kept(batch) if masked else None)


#: Compiling takes jax a second each time.
EACH = pytest.mark.parametrize(("log_probs", "cut"), [(by_torch, top_p), (by_torch, top_k), (by_jax, top_p)])


@EACH
def test_ratios_average_one_with_masks_and_the_kept_mass_without(log_probs: Any, cut: Any) -> None:
    """Of the policy that sampled, and of another: of every context, weighed by the exact chances of its tokens."""
    batch, drawn, logits, kept = everything(cut)
    other = logits + np.random.default_rng(5).normal(scale=0.3, size=logits.shape).astype(np.float32)
    context = batch.tokens[::4]
    for now in (logits, other):
        mass = np.where(kept, softmax(now / HEAT), 0).sum(-1)
        assert mass.max() < 0.97
        for masked, mean in ((True, np.ones(CONTEXTS)), (False, mass)):
            ratio = np.exp(np.asarray(log_probs(batch, now, masked))[:, 3] - batch.logprobs[3::4])
            np.testing.assert_allclose(np.bincount(context, drawn * ratio), mean, rtol=2e-6)
    exact = np.asarray(log_probs(batch, logits, True))[:, 3]
    np.testing.assert_allclose(exact, batch.logprobs[3::4], atol=2e-6)  # every ratio is one, not their mean alone


def objective(table: Floats, kept: Floats, batch: headway.Batch) -> float:
    """The mean advantage, over contexts, of a policy that draws from the kept tokens alone."""
    chances = np.where(kept, softmax(table.astype(np.float64) / HEAT), 0)
    chances /= chances.sum(-1, keepdims=True)
    return float((chances[batch.tokens[::4], batch.tokens[3::4]] * batch.advantages).sum())


def gradient_of(function: Callable[[Floats], float], at: Floats) -> Floats:
    """By differences, in float64."""
    found = np.zeros(at.shape)
    for where in np.ndindex(at.shape):
        step = np.zeros(at.shape)
        step[where] = 1e-5
        found[where] = (function(at + step) - function(at - step)) / 2e-5
    return found


def gradient_of_surrogate(log_probs: Any, batch: headway.Batch, drawn: Floats, now: Floats, masked: bool) -> Floats:
    """The mean of ratio · advantage over all that can be sampled, with its chance: its gradient by the logits."""
    weight = (drawn * batch.advantages).astype(np.float32)
    if log_probs is by_jax:
        jax = pytest.importorskip("jax")

        def surrogate(table: Any) -> Any:
            return (jax.numpy.exp(by_jax(batch, table, masked)[:, 3] - batch.logprobs[3::4]) * weight).sum()

        return np.asarray(jax.jit(jax.grad(surrogate))(now))
    torch = pytest.importorskip("torch")
    table = torch.tensor(now, requires_grad=True)
    ratio = (by_torch(batch, table, masked)[:, 3] - torch.tensor(batch.logprobs[3::4])).exp()
    (ratio * torch.tensor(weight)).sum().backward()
    return table.grad.numpy()


@EACH
def test_the_surrogate_has_the_gradient_of_the_objective_with_masks_alone(log_probs: Any, cut: Any) -> None:
    """Without masks it also pays for probability that moves out of what was kept."""
    batch, drawn, logits, kept = everything(cut)
    now = logits + np.random.default_rng(5).normal(scale=0.3, size=logits.shape).astype(np.float32)
    want = gradient_of(lambda table: objective(table, kept, batch), now)
    np.testing.assert_allclose(gradient_of_surrogate(log_probs, batch, drawn, now, True), want, atol=2e-5)
    assert np.abs(gradient_of_surrogate(log_probs, batch, drawn, now, False) - want).max() > 0.05 * np.abs(want).max()


def test_compare() -> None:
    """With masks a trainer agrees with the engine's log-probs; without, the cut is named."""
    few, _, logits, _ = everything(top_p)
    # Each sequence eight times, so that there are enough.
    names = ["tokens", "loss_mask", "logprobs", "versions", "advantages", "rewards", "groups", "samples", "rollouts"]
    many: dict[str, Any] = {name: np.tile(getattr(few, name), 8) for name in names}
    batch = headway.Batch(**many, offsets=np.arange(len(few) * 8 + 1) * 4, metadata=few.metadata)
    batch._channels["sampling_mask"] = few.channel("sampling_mask").select(np.tile(np.arange(len(few)), 8))
    found = batch.compare(np.asarray(by_torch(batch, logits, True)))
    assert found.agrees and found.difference < 1e-5, str(found)
    found = batch.compare(np.asarray(by_torch(batch, logits, False)))
    assert (found.agrees, found.cause) == (False, "cut")
    assert "sampling_mask" in str(found)


def dense(torch: Any, logits: Any, rows: Any, kept: Any, heat: float) -> Any:
    """The same by a mask of all ids, where any is kept."""
    scores = logits[:, :-1].float() / heat
    allowed = kept[:, 1:] | ~kept[:, 1:].any(-1, keepdim=True)
    scores = scores.masked_fill(~allowed, -torch.inf).log_softmax(-1)
    return torch.nn.functional.pad(scores.gather(-1, rows["tokens"][:, 1:, None])[..., 0], (1, 0))


@pytest.mark.parametrize("chunk", [1 << 24, 64])
@pytest.mark.parametrize("heat", [1.0, 0.6])
@pytest.mark.parametrize("half", [False, True])
def test_values_and_gradients_are_those_of_a_dense_mask(
    chunk: int, heat: float, half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over sequences of several lengths, whole and in parts, where some tokens have no mask, and with none at all."""
    torch = pytest.importorskip("torch")
    import headway.torch as adapter

    monkeypatch.setattr(adapter, "_CHUNK", chunk)
    torch.manual_seed(0)
    batch, ids = with_channels(), 9
    batch.tokens[:] = np.random.default_rng(1).integers(0, ids, len(batch.tokens))
    rows = adapter.padded(batch)
    kept = torch.rand(*rows["tokens"].shape, ids) < 0.4
    kept.scatter_(-1, rows["tokens"][..., None], True)
    kept &= ((rows["loss_mask"] == 1) & (torch.rand(rows["tokens"].shape) < 0.7))[..., None]
    packed = kept[rows["attention"] == 1].numpy()
    at = np.flatnonzero(packed.any(-1))[::-1].copy()  # rows may come in any order
    mask = Channel(
        ChannelInfo("sampling_mask", "i32", "sampled", (), True, len(at), 0), at,
        np.concatenate([np.flatnonzero(packed[i])[::-1] for i in at]).astype(np.int32),
        np.concatenate(([0], np.cumsum(packed[at].sum(-1)))), batch.offsets,
    )  # fmt: skip
    logits = torch.randn(*rows["tokens"].shape, ids, dtype=torch.bfloat16 if half else torch.float32)
    weight = torch.randn(rows["tokens"].shape)
    for some in (slice(None), slice(1, 3), np.array([2, 0])):
        part = {name: value[some] for name, value in rows.items()}
        for given, allowed in ((mask.select(some), kept[some]), (None, torch.zeros_like(kept[some]))):
            mine, theirs = (logits[some].clone().requires_grad_() for _ in range(2))
            found = adapter.logprobs(lambda _: mine, part, temperature=heat, mask=given)  # noqa: B023
            want = dense(torch, theirs, part, allowed, heat)
            torch.testing.assert_close(found, want, atol=2e-6, rtol=0)
            (found * weight[some]).sum().backward()
            (want * weight[some]).sum().backward()
            torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-2 if half else 2e-6, rtol=0)


def test_a_mask_without_its_token() -> None:
    """It is the mask of other tokens: named by sequence and token, not trained on."""
    batch, *_ = everything(top_k)
    mask = batch.channel("sampling_mask")
    tokens: Any = batch.padded()["tokens"]
    for at, said in ((TOKENS, "id 7 is not in its sampling mask of 3 ids"), (-1, "id -1 is not in")):
        wrong = tokens.copy()
        wrong[4, 3] = at
        with pytest.raises(headway.Invalid, match=f"sequence 4, token 3: {said}") as raised:
            mask.kept(wrong)
        assert raised.value.detail == {"sequence": 4, "token": 3}
    twice = replace(mask, values=np.where(np.arange(len(mask.values)) < 3, mask.values[0], mask.values))
    with pytest.raises(headway.Invalid, match=r"sequence 0, token 3: id \d is twice in"):
        twice.kept(tokens)
    with pytest.raises(headway.Invalid, match=r"take mask\.select"):
        mask.kept(tokens[:4])
    with pytest.raises(headway.Invalid, match="it is no sampling mask"):
        with_channels().channel("routed_experts").kept(tokens)


def test_a_mask_of_another_vocabulary() -> None:
    batch, _, logits, _ = everything(top_k)
    with pytest.raises(headway.Invalid, match=r"the mask has ids up to \d, and there are 3 logits"):
        by_torch(batch, logits[:, :3], True)


def test_select_and_padded() -> None:
    """Some sequences have the rows that they have in the whole batch; ragged rows are padded by the fill."""
    batch = with_channels()
    for name in ("routed_experts", "sampling_mask"):
        whole = batch.channel(name)
        fill = -1 if whole.info.ragged else 60001
        rows, there = whole.padded(fill)
        assert (rows[~there] == fill).all()
        for some in (slice(1, 3), np.array([3, 0, 1]), np.array([2, 2]), slice(0, 0)):
            part, present = whole.select(some).padded(fill, max_len=rows.shape[1])
            np.testing.assert_array_equal(present, there[some])
            if part.size:
                cut = rows[some][:, :, : part.shape[2]]
                np.testing.assert_array_equal(part, cut)
                assert (rows[some][:, :, part.shape[2] :] == fill).all()
    values, offsets = batch.channel("sampling_mask").packed_ragged()
    packed = batch.channel("sampling_mask").padded(-1)[0][batch.padded()["attention"] == 1]
    for i in range(len(batch.tokens)):
        want = values[offsets[i] : offsets[i + 1]].tolist()
        assert packed[i].tolist() == want + [-1] * (packed.shape[1] - len(want))


def test_a_batch_is_padded_where_the_model_lies() -> None:
    """A model on another device than the host's is called with tokens of its own; a function, with the host's."""
    torch = pytest.importorskip("torch")
    import headway.torch

    batch, _, logits, _ = everything(top_p)
    model = torch.nn.Embedding(TOKENS, TOKENS, device="meta")
    found = headway.torch.logprobs(model, batch)
    assert (found.device.type, tuple(found.shape)) == ("meta", (len(batch), 4))
    on_host = headway.torch.logprobs(lambda tokens: torch.as_tensor(logits)[tokens % CONTEXTS], batch)
    assert on_host.device.type == "cpu"
