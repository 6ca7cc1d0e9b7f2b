"""Losses against a teacher's log-probs, token by token, over arrays of numpy, torch or jax alike.

`forward_kl` and `reverse_kl` are divergences between two distributions, by the student's logits and the teacher's
likeliest tokens. No token's chance enters them, so that they need no ratio. `sampled_kl` and `advantages` know the
sampled token alone. An older student has drawn it, and they weigh it by the ratio of both.

Every loss is [R, L], aligned with tokens, and 0 where the teacher has no row: divide sums by the rows that there are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .batch import Batch
from .errors import Invalid
from .tensors import Array

_log = logging.getLogger("headway")

#: The least that a teacher's other tokens have together: its log-probs, in single precision, tell no less.
_REST = 1e-6
#: Logits of tokens that are left out, and a logarithm of no probability.
_NONE = -1e30
#: Log-probs that add up to more than this are none. It is above what the control plane lets pass, which is 1.05.
_ALL = 1.06


@dataclass(frozen=True, eq=False)
class Teacher:
    """What a teacher says of the tokens of a batch: arrays padded like `Batch.padded`."""

    #: [R, L, K]: the sampled token, then the teacher's likeliest ones.
    ids: Any
    #: [R, L, K]: their log-probs.
    logprobs: Any
    #: [R, L, K]: the columns that are tokens of their own. The sampled token is not where it is a likely one as well.
    own: Any
    #: [R, L]: where the teacher has a row.
    present: Any
    #: Sampled tokens that have none.
    absent: Any = 0

    @property
    def sampled(self) -> Any:
        """[R, L]: the log-prob of the sampled token."""
        return self.logprobs[..., 0]

    def map(self, function: Callable[[Any], Any]) -> Teacher:
        """The same of other arrays, as on another device or of another library."""
        changed = {name: function(getattr(self, name)) for name in ("ids", "logprobs", "own", "present")}
        return replace(self, **changed)

    def select(self, sequences: Any) -> Teacher:
        """Those of some sequences, as for a micro-batch; `absent` stays that of all."""
        return self.map(lambda array: array[sequences])


def teacher(batch: Batch, max_len: int | None = None) -> Teacher:
    """The channels `teacher_ids` and `teacher_logprobs` of a batch, as arrays of numpy.

    `headway.torch.teacher` and `headway.jax.teacher` are the same of theirs. Invalid names a row that is not of the
    batch's token, or that no distribution has. The logger `headway` warns of sampled tokens without a row.
    """
    (ids, there), (logprobs, also) = (
        batch.channel(name).padded(0, max_len) for name in ("teacher_ids", "teacher_logprobs")
    )
    if ids.ndim == 2:  # one value a row
        ids = ids[..., None]
    if logprobs.ndim == 2:
        logprobs = logprobs[..., None]
    if ids.shape != logprobs.shape or (there != also).any():
        raise Invalid(f"teacher_ids and teacher_logprobs have other rows: {list(ids.shape)}, {list(logprobs.shape)}")
    rows = batch.padded(max_len)
    ids = ids.astype(np.int64)
    first, rest = ids[..., :1], ids[..., 1:]
    own = np.concatenate([(rest != first).all(-1, keepdims=True), rest >= 0], axis=-1) & there[..., None]
    logprobs = logprobs.astype(np.float32)
    said = own.copy()
    said[..., 0] = there
    known = np.where(said, logprobs, 0)
    _refuse(there & (first[..., 0] != rows["tokens"]), "the teacher's row is of another token")
    _refuse(~np.isfinite(known).all(-1) | (known.max(-1) > 1e-3), "the teacher's row has a number that is no log-prob")
    _refuse(np.where(own, np.exp(known), 0).sum(-1) > _ALL, "the teacher's row has more probability than there is")
    _refuse(_repeats(rest, own[..., 1:]), "the teacher's row has a token twice among its likeliest")
    absent = int(((rows["loss_mask"] == 1) & ~there).sum())
    if absent:
        _log.warning("%d of %d sampled tokens have no teacher's row: no loss has them", absent, batch.loss_mask.sum())
    return Teacher(np.where(own, ids, first), np.where(there[..., None], logprobs, 0), own, there, absent)


def _repeats(ids: Array, own: Array) -> Array:
    """[R, L]: whether an id is twice among the likeliest."""
    # What is no id gets one of its own.
    apart = np.sort(np.where(own, ids, -1 - np.arange(ids.shape[-1])), axis=-1)
    repeated: Array = (np.diff(apart, axis=-1) == 0).any(-1)
    return repeated


def _refuse(wrong: Array, what: str) -> None:
    """Raise Invalid that names the first token where something is wrong."""
    if wrong.any():
        r, i = (int(n) for n in np.argwhere(wrong)[0])
        raise Invalid(f"sequence {r}, token {i}: {what}", detail={"sequence": r, "token": i})


def forward_kl(logits: Any, of: Teacher, *, temperature: float = 1.0) -> Any:
    """KL(teacher ‖ student) of each token's distribution, in nats, by logits [R, L, V]: those at i − 1 are for token i.

    Both distributions are over the sampled token and the teacher's likeliest ones, each once, and all other tokens
    together. That is at most the divergence over the vocabulary. It is the same where the row holds the vocabulary.
    `temperature` divides the student's logits.
    """

    def divergence(a: _Arrays, q: Any, other: Any, p: Any, rest: Any) -> Any:
        return (a.exp(q) * (q - p)).sum(-1) + a.exp(other) * (other - rest)

    return _over(logits, of, temperature, divergence)


def reverse_kl(logits: Any, of: Teacher, *, temperature: float = 1.0) -> Any:
    """KL(student ‖ teacher) of each token's distribution, in nats, over the same tokens as `forward_kl`."""

    def divergence(a: _Arrays, q: Any, other: Any, p: Any, rest: Any) -> Any:
        return (a.exp(p) * (p - q)).sum(-1) + a.exp(rest) * (rest - other)

    return _over(logits, of, temperature, divergence)


def _over(logits: Any, of: Teacher, temperature: float, divergence: Callable[..., Any]) -> Any:
    """A divergence at each token that has a row, by log-probs of teacher and student: of ids, and of all others."""
    a, there = _arrays(logits), of.present[:, 1:]
    parts = logits[:, :-1], of.ids[:, 1:], of.own[:, 1:], of.logprobs[:, 1:]
    if a.picks:  # prompts and padding cost nothing
        parts = tuple(part[there] for part in parts)
    scores, ids, own, q = parts
    scores = a.single(scores) / temperature
    norm = a.logsumexp(scores)
    p = a.take(scores, ids) - norm[..., None]
    rest = a.logsumexp(a.where(a.cover(scores, ids), _NONE, scores)) - norm
    held = a.where(own, a.exp(q), 0.0).sum(-1)
    other = a.log(a.where(held < 1 - _REST, 1 - held, _REST))
    # Where the ids are the whole vocabulary there are no others, and nothing of them counts.
    other = a.where(rest < _NONE / 2, _NONE, other)
    return a.spread(divergence(a, a.where(own, q, 0.0), other, a.where(own, p, 0.0), rest), there)


def advantages(now: Any, teacher: Any, there: Any) -> Any:
    """[R, L] log-prob of the teacher less the student's, without a gradient: how much better the teacher likes a token.

    As the advantage of a policy gradient with ratios, as GRPO's, it gives the gradient of KL(student ‖ teacher).
    """
    a = _arrays(now)
    return a.where(there, teacher - a.still(now), 0.0)


def sampled_kl(now: Any, other: Any, drawn: Any, there: Any) -> Any:
    """[R, L] estimates of KL(student ‖ other), in nats, from the sampled token: k3 times its ratio.

    `now` [R, L] are the log-probs of the model in training, `other` those of a teacher or a reference, `drawn` those
    with which the tokens were sampled, all of the sampled tokens; `there` is where `other` has a row. Their mean over
    the tokens that an older student samples is the student's own divergence, and their gradient has its gradient. Each
    is never negative, but for rounding. Its gradient is that of `advantages` in a policy gradient with ratios.
    """
    a = _arrays(now)
    now, other, drawn = (a.where(there, array, 0.0) for array in (now, other, drawn))
    # The ratio of the student to the one that sampled, times q/p - 1 - log(q/p): their product does not overflow.
    return a.exp(other - drawn) - a.exp(now - drawn) * (1 + other - now)


@dataclass(frozen=True)
class _Arrays:
    """The operations of one library."""

    exp: Callable[[Any], Any]
    log: Callable[[Any], Any]
    where: Callable[..., Any]
    logsumexp: Callable[[Any], Any]
    #: The values at ids of the last axis.
    take: Callable[[Any, Any], Any]
    #: Whether each place of the last axis is among the ids.
    cover: Callable[[Any, Any], Any]
    #: In single precision at least.
    single: Callable[[Any], Any]
    #: Without a gradient.
    still: Callable[[Any], Any]
    #: Whether places can be picked by where they are true; a compiled program of jax cannot.
    picks: bool
    #: [R, L] of values from token 1 on, or of those that were picked: 0 where there is none.
    spread: Callable[[Any, Any], Any]


def _arrays(like: Any) -> _Arrays:
    """Those of an array's library."""
    library = type(like).__module__.partition(".")[0]
    if library == "torch":
        return _of_torch()
    return _of_jax() if library in ("jax", "jaxlib") else _of_numpy()


def _of_numpy() -> _Arrays:
    def logsumexp(scores: Any) -> Any:
        most = scores.max(-1, keepdims=True)
        return np.log(np.exp(scores - most).sum(-1)) + most[..., 0]

    def cover(scores: Any, ids: Any) -> Any:
        covered = np.zeros(scores.shape, dtype=np.bool_)
        np.put_along_axis(covered, ids, True, axis=-1)
        return covered

    def spread(values: Any, there: Any) -> Any:
        out = np.zeros((len(there), there.shape[1] + 1), dtype=values.dtype)
        out[:, 1:][there] = values
        return out

    return _Arrays(
        np.exp, np.log, np.where, logsumexp, lambda scores, ids: np.take_along_axis(scores, ids, -1), cover,
        lambda scores: scores.astype(np.promote_types(scores.dtype, np.float32)), lambda array: array, True, spread,
    )  # fmt: skip


def _of_torch() -> _Arrays:
    import torch

    def spread(values: Any, there: Any) -> Any:
        out = torch.zeros(there.shape, dtype=values.dtype, device=values.device).masked_scatter(there, values)
        return torch.nn.functional.pad(out, (1, 0))

    return _Arrays(
        torch.exp, torch.log, torch.where, lambda scores: torch.logsumexp(scores, -1),
        lambda scores, ids: scores.gather(-1, ids),
        lambda scores, ids: torch.zeros_like(scores, dtype=torch.bool).scatter(-1, ids, True),
        lambda scores: scores.to(torch.promote_types(scores.dtype, torch.float32)), lambda array: array.detach(),
        True, spread,
    )  # fmt: skip


def _of_jax() -> _Arrays:
    import jax
    import jax.numpy as jnp

    def cover(scores: Any, ids: Any) -> Any:
        rows, size = ids.reshape(-1, ids.shape[-1]), scores.shape[-1]
        covered = jnp.zeros((len(rows), size), dtype=bool).at[jnp.arange(len(rows))[:, None], rows].set(True)
        return covered.reshape(scores.shape)

    return _Arrays(
        jnp.exp, jnp.log, jnp.where, lambda scores: jax.nn.logsumexp(scores, axis=-1),
        lambda scores, ids: jnp.take_along_axis(scores, ids, axis=-1), cover,
        lambda scores: scores.astype(jnp.promote_types(scores.dtype, jnp.float32)), jax.lax.stop_gradient, False,
        lambda values, there: jnp.pad(jnp.where(there, values, 0.0), ((0, 0), (1, 0))),
    )  # fmt: skip


__all__ = ["Teacher", "advantages", "forward_kl", "reverse_kl", "sampled_kl", "teacher"]
