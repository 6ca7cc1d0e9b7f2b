"""Losses against a teacher, by enumeration: every token of a small vocabulary with its exact probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_batch import golden
from test_masks import gradient_of

import headway
from headway import distill
from headway.channel import Channel, ChannelInfo

TOKENS, CONTEXTS = 7, 4
Floats = Any


def log_softmax(scores: Floats) -> Floats:
    scores = scores.astype(np.float64)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))


RNG = np.random.default_rng(6)
#: Logits of a context (the token before): those of the student that sampled, of the one in training, of the teacher.
SAMPLED, NOW = (RNG.normal(scale=0.8, size=(CONTEXTS, TOKENS)).astype(np.float32) for _ in range(2))
TEACHER = log_softmax(2 * RNG.normal(size=(CONTEXTS, TOKENS)))


def everything(k: int, absent: tuple[int, ...] = (), floor: float | None = None) -> headway.Batch:
    """All that the student can sample: a context, and one of its tokens; with the teacher's rows but for some.

    A sequence has its context once or more, so that lengths differ.
    """
    pairs = [(context, token) for context in range(CONTEXTS) for token in range(TOKENS)]
    sequences = [[context] * (1 + i % 3) + [token] for i, (context, token) in enumerate(pairs)]
    offsets = np.concatenate(([0], np.cumsum([len(s) for s in sequences])))
    count, at = len(pairs), offsets[1:] - 1
    mask = np.zeros(offsets[-1], np.uint8)
    mask[at] = 1
    logprobs = np.zeros(offsets[-1], np.float32)
    logprobs[at] = [log_softmax(SAMPLED)[pair] for pair in pairs]
    ids, scores = [], []
    for context, token in pairs:
        likeliest = np.argsort(-TEACHER[context])[:k].tolist()
        ids.append([token, *likeliest])
        scores.append(TEACHER[context][[token, *likeliest]])
    there = np.array([i for i in range(count) if i not in absent])
    batch = headway.Batch(
        tokens=np.concatenate(sequences).astype(np.int32), offsets=offsets, loss_mask=mask, logprobs=logprobs,
        versions=mask.astype(np.int32) - 1, advantages=RNG.normal(size=count).astype(np.float32),
        rewards=np.zeros(count, np.float32), groups=np.arange(count), samples=np.zeros(count, np.int32),
        rollouts=np.arange(count, dtype=np.int32), metadata=replace(golden("whole").metadata, version=0),
    )  # fmt: skip
    for name, dtype, rows in (("teacher_ids", "i32", ids), ("teacher_logprobs", "f32", scores)):
        info = ChannelInfo(name, dtype, "sampled", (k + 1,), False, len(there), len(absent))
        values = np.array(rows, np.int32 if dtype == "i32" else np.float32)[there]
        batch._channels[name] = Channel(info, at[there], values, np.zeros(0, np.int64), offsets)
    return batch


class Numpy:
    """The losses over arrays of numpy; gradients are not its."""

    def array(self, x: Floats) -> Any:
        return np.asarray(x)

    def teacher(self, batch: headway.Batch) -> distill.Teacher:
        return distill.teacher(batch)

    def value(self, function: Callable[..., Any], *arrays: Any) -> Floats:
        return np.asarray(function(*arrays))


class Torch(Numpy):
    def __init__(self) -> None:
        self.torch = pytest.importorskip("torch")

    def array(self, x: Floats) -> Any:
        return self.torch.as_tensor(np.asarray(x))

    def teacher(self, batch: headway.Batch) -> distill.Teacher:
        import headway.torch

        return headway.torch.teacher(batch)

    def gradient(self, function: Callable[..., Any], at: Floats) -> Floats:
        x = self.torch.tensor(at, requires_grad=True)
        function(x).backward()
        return x.grad.numpy()


class Jax(Numpy):
    """Within compiled functions."""

    def __init__(self) -> None:
        self.jax = pytest.importorskip("jax")

    def array(self, x: Floats) -> Any:
        return self.jax.numpy.asarray(x)

    def teacher(self, batch: headway.Batch) -> distill.Teacher:
        import headway.jax

        return headway.jax.teacher(batch)

    def value(self, function: Callable[..., Any], *arrays: Any) -> Floats:
        return np.asarray(self.jax.jit(function)(*arrays))

    def gradient(self, function: Callable[..., Any], at: Floats) -> Floats:
        return np.asarray(self.jax.jit(self.jax.grad(function))(at))


EACH = pytest.mark.parametrize("library", [Numpy, Torch, Jax])
BOTH = pytest.mark.parametrize("library", [Torch, Jax])


def contexts(batch: headway.Batch) -> Any:
    """[R, L]: rows of a table of logits that tokens take, padding the first one's."""
    return batch.padded()["tokens"] % CONTEXTS


def at_samples(batch: headway.Batch, found: Floats) -> Floats:
    """[contexts, tokens] of [R, L]; everything else is 0."""
    sampled = batch.padded()["loss_mask"] == 1
    assert not found[~sampled].any()
    return found[sampled].reshape(CONTEXTS, TOKENS)


def divided(log_probs: Floats, token: int, k: int, context: int) -> Floats:
    """The probabilities of the token, of the teacher's k likeliest, each once, and of all others together."""
    own = {token, *np.argsort(-TEACHER[context])[:k].tolist()}
    chances = np.exp(log_probs)
    others = sum(chances[t] for t in range(TOKENS) if t not in own)
    return np.array([*(chances[t] for t in sorted(own)), others] if len(own) < TOKENS else chances)


def kl(a: Floats, b: Floats) -> float:
    return float((a * np.log(a / b)).sum())


@pytest.mark.parametrize("k", [0, 1, 3, TOKENS])
@EACH
def test_divergences_are_those_of_the_enumerated_distributions(library: Any, k: int) -> None:
    """With the whole vocabulary in every row they are exact, though each row has its sampled token twice."""
    x, batch = library(), everything(k)
    logits, teacher = x.array(NOW[contexts(batch)]), x.teacher(batch)
    for loss, order in ((distill.forward_kl, 1), (distill.reverse_kl, -1)):
        found = at_samples(batch, x.value(lambda a, t, loss=loss: loss(a, t, temperature=0.8), logits, teacher))
        for context in range(CONTEXTS):
            student = log_softmax(NOW[context] / 0.8)
            for token in range(TOKENS):
                pair = [divided(TEACHER[context], token, k, context), divided(student, token, k, context)][::order]
                assert found[context, token] == pytest.approx(kl(*pair), abs=1e-5), (k, context, token)
                if k == TOKENS:
                    whole = [np.exp(TEACHER[context]), np.exp(student)][::order]
                    assert found[context, token] == pytest.approx(kl(*whole), abs=1e-5)


@pytest.mark.parametrize("k", [2, TOKENS])
@BOTH
def test_their_gradients_are_those_by_differences(library: Any, k: int) -> None:
    x, batch = library(), everything(k)
    where, teacher, exact = contexts(batch), x.teacher(batch), distill.teacher(batch)
    for loss in (distill.forward_kl, distill.reverse_kl):
        found = x.gradient(lambda table, loss=loss: loss(table[where], teacher).sum(), NOW)
        want = gradient_of(lambda table, loss=loss: float(loss(table[where], exact).sum()), NOW.astype(np.float64))
        np.testing.assert_allclose(found, want, atol=2e-5)


def test_a_student_far_more_certain_than_the_teacher_has_finite_losses_and_gradients() -> None:
    """Of all others together it has less than single precision tells from nothing, and is told to have more."""
    torch = pytest.importorskip("torch")
    import headway.torch

    batch = everything(2)
    teacher, where = headway.torch.teacher(batch), contexts(batch)
    table = torch.full((CONTEXTS, TOKENS), -40.0)
    for context in range(CONTEXTS):
        table[context, int(np.argmax(TEACHER[context]))] = 40.0
    for loss in (distill.forward_kl, distill.reverse_kl):
        logits = table.clone().requires_grad_()
        found = loss(logits[where], teacher)
        found.sum().backward()
        assert found.isfinite().all() and (found >= 0).all()
        assert logits.grad.isfinite().all()
        if loss is distill.forward_kl:
            assert found.max() > 10
            others = torch.as_tensor(np.argsort(TEACHER)[:, :3].copy())
            assert (logits.grad.gather(1, others) < 0).all()


def tables(batch: headway.Batch) -> tuple[Any, Any, Any]:
    """[R, L]: contexts, tokens, and the chance that each was sampled with; 0 where it was not."""
    rows = batch.padded()
    drawn = np.where(rows["loss_mask"] == 1, np.exp(rows["logprobs"]), 0)
    before = np.concatenate([rows["tokens"][:, :1], rows["tokens"][:, :-1]], axis=1)
    return before % CONTEXTS, rows["tokens"], drawn.astype(np.float32)


def now_of(x: Any, table: Any, batch: headway.Batch) -> Any:
    """[R, L] log-probs of what was sampled."""
    context, token, _ = tables(batch)
    if isinstance(x, Torch):
        return x.torch.log_softmax(table, -1)[context, token]
    if isinstance(x, Jax):
        return x.jax.nn.log_softmax(table, axis=-1)[context, token]
    return log_softmax(table)[context, token]


def exact_kl(table: Floats) -> float:
    """KL(student ‖ teacher), summed over contexts."""
    student = log_softmax(table)
    return float((np.exp(student) * (student - TEACHER)).sum())


@EACH
def test_the_mean_of_what_an_older_student_sampled_is_the_students_own_divergence(library: Any) -> None:
    """Not that of the older one, which it is without the ratio."""
    x, batch = library(), everything(0)
    _, _, drawn = tables(batch)
    teacher, by = x.teacher(batch), x.array(batch.padded()["logprobs"])
    now = x.array(np.asarray(now_of(x, x.array(NOW), batch), np.float32))
    found = x.value(lambda a, b, c, t: distill.sampled_kl(a, t.sampled, b, t.present), now, by, now, teacher)
    assert (drawn * found).sum() == pytest.approx(exact_kl(NOW), abs=2e-5)
    assert abs(exact_kl(SAMPLED) - exact_kl(NOW)) > 0.1
    assert at_samples(batch, found).min() > -1e-6


@BOTH
def test_gradients_of_what_was_sampled_are_those_of_the_divergence(library: Any) -> None:
    """k3 with its ratio, and k1 as the advantage of a policy gradient with ratios: the same, token by token."""
    x, batch = library(), everything(0)
    teacher, by, chance = x.teacher(batch), x.array(batch.padded()["logprobs"]), x.array(tables(batch)[2])
    exp = x.torch.exp if isinstance(x, Torch) else x.jax.numpy.exp

    def k3(table: Any) -> Any:
        return distill.sampled_kl(now_of(x, table, batch), teacher.sampled, by, teacher.present)

    def k1(table: Any) -> Any:
        now = now_of(x, table, batch)
        return -exp(now - by) * distill.advantages(now, teacher.sampled, teacher.present)

    want = gradient_of(exact_kl, NOW.astype(np.float64))
    for one in (k3, k1):
        np.testing.assert_allclose(x.gradient(lambda table, one=one: (chance * one(table)).sum(), NOW), want, atol=2e-5)
    for r in (0, 5, 11):
        pair = [x.gradient(lambda table, one=one, r=r: one(table)[r].sum(), NOW) for one in (k3, k1)]
        np.testing.assert_allclose(*pair, atol=2e-5)


@BOTH
def test_a_reference_is_a_term_of_grpo(library: Any) -> None:
    """The gradient of the mean reward less beta times the divergence from the reference, exactly."""
    x, batch, beta = library(), everything(0), 0.3
    rows, there = batch.padded(), x.array(batch.padded()["loss_mask"] == 1)
    context, token, chance = tables(batch)
    reference = x.array(np.where(chance > 0, TEACHER[context, token], 0).astype(np.float32))
    by, advantage = x.array(rows["logprobs"]), x.array(rows["advantages"])
    exp = x.torch.exp if isinstance(x, Torch) else x.jax.numpy.exp

    def loss(table: Any) -> Any:
        now = now_of(x, table, batch)
        return (
            x.array(chance) * (beta * distill.sampled_kl(now, reference, by, there) - exp(now - by) * advantage)
        ).sum()

    def exact(table: Floats) -> float:
        reward = np.exp(log_softmax(table)) * at_samples(batch, rows["advantages"])
        return beta * exact_kl(table) - float(reward.sum())

    np.testing.assert_allclose(x.gradient(loss, NOW), gradient_of(exact, NOW.astype(np.float64)), atol=2e-5)


def test_ratios_far_from_one_do_not_overflow() -> None:
    now, other, drawn = np.float32([[-200.0, -0.1]]), np.float32([[-0.1, -90.0]]), np.float32([[-2.0, -5.0]])
    found = distill.sampled_kl(now, other, drawn, np.array([[True, True]]))
    assert np.isfinite(found).all()


@EACH
def test_tokens_without_a_row_are_masked_and_counted(library: Any, caplog: pytest.LogCaptureFixture) -> None:
    x, absent = library(), (0, 9, 10)
    batch, whole = everything(2, absent), everything(2)
    teacher, full = x.teacher(batch), x.teacher(whole)
    assert teacher.absent == 3
    assert "3 of 28 sampled tokens have no teacher's row" in caplog.text
    logits, by = x.array(NOW[contexts(batch)]), x.array(batch.padded()["logprobs"])
    for loss in (
        distill.forward_kl, distill.reverse_kl,
        lambda a, t: distill.sampled_kl(a[..., 0] - 5, t.sampled, by, t.present),
        lambda a, t: distill.advantages(a[..., 0] - 5, t.sampled, t.present),
    ):  # fmt: skip
        found, want = (at_samples(batch, x.value(loss, logits, t)).reshape(-1) for t in (teacher, full))
        np.testing.assert_array_equal(found[list(absent)], 0)
        assert want[list(absent)].all()
        np.testing.assert_allclose(np.delete(found, absent), np.delete(want, absent), rtol=1e-6)


def test_the_logarithm_of_nothing_is_no_gradient() -> None:
    """Tokens without a row leave every gradient a number, however unlikely the padding is to the model."""
    torch = pytest.importorskip("torch")
    now = torch.full((1, 2), -300.0, requires_grad=True)
    distill.sampled_kl(now, torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([[False, False]])).sum().backward()
    assert now.grad is not None and not now.grad.any()


@EACH
def test_some_sequences_of_a_batch(library: Any) -> None:
    x, batch = library(), everything(2)
    logits, teacher = x.array(NOW[contexts(batch)]), x.teacher(batch)
    part = x.value(distill.forward_kl, logits[3:8], teacher.select(slice(3, 8)))
    np.testing.assert_allclose(part, x.value(distill.forward_kl, logits, teacher)[3:8], rtol=1e-6)


def test_half_precision() -> None:
    """Logits of half precision are widened first."""
    torch = pytest.importorskip("torch")
    import headway.torch

    batch = everything(3)
    logits, teacher = torch.as_tensor(NOW[contexts(batch)]).bfloat16(), headway.torch.teacher(batch)
    for loss in (distill.forward_kl, distill.reverse_kl):
        torch.testing.assert_close(loss(logits, teacher), loss(logits.float(), teacher))


def test_rounding_that_the_control_plane_lets_pass() -> None:
    """A teacher in half precision says likely tokens that have 1.05 together."""
    batch = everything(2)
    batch._channels["teacher_logprobs"].values[1] = [-9, np.log(0.525), np.log(0.525)]
    assert distill.teacher(batch).absent == 0


@pytest.mark.parametrize(
    ("name", "row", "values", "said"),
    [
        ("teacher_ids", 9, [0, 3, 4], "sequence 9, token 1: the teacher's row is of another token"),
        ("teacher_ids", 2, [2, 3, 3], "sequence 2, token 3: the teacher's row has a token twice"),
        ("teacher_logprobs", 1, [-0.1, -0.1, -0.2], "sequence 1, token 2: .* more probability than there is"),
        ("teacher_logprobs", 1, [np.nan, -9, -9], "sequence 1, token 2: .* no log-prob"),
        ("teacher_logprobs", 1, [-9, 0.5, -9], "sequence 1, token 2: .* no log-prob"),
    ],
)
def test_rows_that_cannot_be(name: str, row: int, values: list[float], said: str) -> None:
    batch = everything(2)
    batch._channels[name].values[row] = values
    with pytest.raises(headway.Invalid, match=said):
        distill.teacher(batch)


def test_ids_out_of_step() -> None:
    """A teacher's rows one token late are another token's, and are refused."""
    batch = everything(2)
    values = batch._channels["teacher_ids"].values
    values[:] = np.roll(values, 1, axis=0)
    with pytest.raises(headway.Invalid, match="sequence 0, token 1: the teacher's row is of another token"):
        distill.teacher(batch)


def test_channels_that_do_not_go_together() -> None:
    batch = everything(2)
    batch._channels["teacher_logprobs"] = everything(2, absent=(4,))._channels["teacher_logprobs"]
    with pytest.raises(headway.Invalid, match="have other rows"):
        distill.teacher(batch)
    del batch._channels["teacher_logprobs"]
    with pytest.raises(headway.Invalid, match=r"let a server of scoring\.servers write it"):
        distill.teacher(batch)


def test_rows_shorter_than_the_others() -> None:
    """Ids of −1 are none: a teacher with fewer likely tokens than were asked for."""
    batch, fewer = everything(4), everything(3)
    batch._channels["teacher_ids"].values[:, 4] = -1
    batch._channels["teacher_logprobs"].values[:, 4] = -np.inf
    logits = NOW[contexts(batch)]
    for loss in (distill.forward_kl, distill.reverse_kl):
        found, want = (loss(logits, distill.teacher(one)) for one in (batch, fewer))
        np.testing.assert_allclose(found, want, rtol=1e-6)
