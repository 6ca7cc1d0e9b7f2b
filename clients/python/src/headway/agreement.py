"""Do a trainer's log-probs agree with those by which the engines sampled? And where not, what does it look like?

Tokens that the version in training sampled have the same log-prob at engine and trainer, up to rounding. A larger
difference is an error, and its pattern tells of the cause. Tokens of earlier versions convict no trainer: a policy
that learns fast moves as far in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import tensors
from .errors import Invalid

if TYPE_CHECKING:
    from .batch import Batch

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: A mean difference beyond this, in nats a token, is an error. Weights and logits in bfloat16 make a tenth of it.
LEVEL = 0.1
#: Below this a difference is rounding, whatever its pattern.
_ROUNDING = 0.01
#: Fewer sampled tokens, or sequences, are not judged. So many are enough, and so many at most are looked at.
_TOKENS_MIN, _SEQUENCES_MIN, _TOKENS_ENOUGH, _SEQUENCES_MAX = 32, 4, 256, 512
#: Sampled tokens of a sequence whose context is compared with that of others: later ones share none.
_PLACES = 8

#: What each cause is likely to be, and where to look.
CAUSES: Mapping[str, str] = {
    "off_by_one": "entry i of the array is to be about token i, by the logits at i − 1",
    "temperature": "divide the logits by rollout.sampling.temperature before the softmax",
    "cut": "the engine samples from a cut distribution (top_p, top_k, min_p): take log-probs over what it kept, with "
    "sampling_mask in rollout.channels; or these are no log-probs of a softmax",
    "blind": "the images are not in the forward pass: give the model pixel values of batch.media, in their order",
    "positions": "positions, padding or the attention mask go wrong by a sequence's length (or the prompt's template)",
    "random": "dropout is on (model.eval()), there is no causal mask, or padding and neighbours in the batch count",
    "future": "the model has seen the token that it predicts: logits at i instead of i − 1, or no causal mask",
    "template": "the prompt is not what the engine read: its template, special tokens or truncation",
    "precision": "weights or logits are rounded (dtype, quantization), or the weights are those of a version nearby",
    "weights": "other weights, another tokenizer, other positions, or logits of another token",
    "unknown": "look at positions, temperature, the attention mask, the weights that were loaded, and dtype",
}
#: Those that no pattern of their own tells.
VAGUE = ("precision", "weights", "unknown")


@dataclass(frozen=True)
class Agreement:
    """How a trainer's log-probs compare with the engines', over the freshest sequences of a batch."""

    #: Sampled tokens that were compared, and how many versions old they are on average.
    tokens: int
    lag: float
    #: Mean of |trainer − engine| and of trainer − engine, in nats a token.
    difference: float
    bias: float
    #: True: they agree. False: they do not, and `cause` is a key of `CAUSES`. None: there are too few tokens to say,
    #: or they are of earlier versions and differ by what a train step may have changed.
    agrees: bool | None = None
    cause: str = ""
    #: The pattern that tells of the cause, in words.
    evidence: str = ""

    def __str__(self) -> str:
        found = f"mean |trainer − engine| {self.difference:.2g} nats over {self.tokens} tokens"
        if self.lag:
            found += f", {self.lag:.1f} versions old"
        if self.agrees is False:
            return f"{found}: {self.evidence}. Likely {self.cause}: {CAUSES[self.cause]}"
        if self.agrees is None:
            return f"{found}: too few, or too old, to say whether they agree"
        return f"{found}: they agree" + (", as far as older tokens tell" if self.lag else "")

    def metrics(self) -> dict[str, float]:
        """The figures that go with a step's metrics."""
        found = {
            "forward/difference": self.difference, "forward/bias": self.bias, "forward/lag": self.lag,
            "forward/tokens": float(self.tokens),
        }  # fmt: skip
        if self.agrees is not None:
            found["forward/agrees"] = float(self.agrees)
        return found | ({f"forward/cause/{self.cause}": 1.0} if self.cause else {})


def compare(batch: Batch, logprobs: Any) -> Agreement:
    """What `Batch.compare` returns."""
    if batch.metadata.kind != "train":
        raise Invalid(f"a batch of kind {batch.metadata.kind} is answered greedily: compare log-probs of train batches")
    ours = _packed(batch, logprobs)
    seen = _Seen(batch, ours)
    if not seen.tokens:
        return Agreement(0, 0.0, 0.0, 0.0)
    found = Agreement(seen.tokens, seen.lag, float(seen.apart.mean()), float(seen.delta.mean()))
    if seen.tokens < _TOKENS_MIN or seen.sequences < _SEQUENCES_MIN:
        return found
    if found.lag > 0:
        return replace(found, agrees=True) if found.difference < LEVEL else found
    wrong = found.difference - 2 * seen.error(seen.apart) > LEVEL
    if found.difference > _ROUNDING:
        for cause, rule in (_RULES if wrong else _EXACT).items():
            if evidence := rule(seen):
                return replace(found, agrees=False, cause=cause, evidence=evidence)
    if not wrong:
        return replace(found, agrees=True)
    cause, evidence = _unexplained(seen)
    return replace(found, agrees=False, cause=cause, evidence=evidence)


def _packed(batch: Batch, logprobs: Any) -> Floats:
    """Log-probs in the batch's own order, from either form. What can be none is Invalid, with its place."""
    array = tensors.widen(tensors.to_numpy("logprobs", logprobs))
    if array.dtype.kind != "f":
        raise Invalid(f"the log-probs are {array.dtype}: want floating point")
    lengths, total = np.diff(batch.offsets), len(batch.tokens)
    longest = int(lengths.max(initial=0))
    if array.shape == (total,):
        packed = array
    elif array.ndim == 2 and len(array) == len(batch) and array.shape[1] >= longest:
        packed = array[np.arange(array.shape[1]) < lengths[:, None]]
    else:
        raise Invalid(
            f"the log-probs have the shape {list(array.shape)}: want [{total}], packed as batch.tokens, or "
            f"[{len(batch)}, {longest} or more], padded as batch.padded(); entry i about token i, column 0 any number"
        )
    packed = packed.astype(np.float64)
    sampled = batch.loss_mask == 1
    for wrong, what in (
        (sampled & ~np.isfinite(packed), "is not finite"),
        (sampled & (packed > 1e-3), "is above 0: want log-probs, not logits"),
    ):
        if wrong.any():
            at = int(wrong.argmax())
            r = int(np.searchsorted(batch.offsets, at, side="right")) - 1
            place = int(at - batch.offsets[r])
            raise Invalid(
                f"the log-prob of sequence {r}, token {place} is {packed[at]:g}, which {what}",
                detail={"sequence": r, "token": place},
            )
    return packed


class _Seen:
    """The sampled tokens of the freshest sequences: log-probs of both sides, and where each stands."""

    def __init__(self, batch: Batch, ours: Floats) -> None:
        self._batch, self._ours = batch, ours
        self._theirs = batch.logprobs.astype(np.float64)
        self._sampled = batch.loss_mask == 1
        row = np.repeat(np.arange(len(batch)), np.diff(batch.offsets))
        lags = np.where(self._sampled, batch.version - batch.versions, 0).astype(np.int64)
        self._chosen = self._freshest(row, lags)
        at = np.flatnonzero(self._sampled & self._chosen[row])
        self.tokens = len(at)
        self._at, self._row = at, row
        if not self.tokens:
            return
        self.lag = float(lags[at].mean())
        self.ours, self.theirs = ours[at], self._theirs[at]
        self.delta = self.ours - self.theirs
        self.apart = np.abs(self.delta)
        rows, self.sequence = np.unique(row[at], return_inverse=True)
        self.sequences = len(rows)
        before = np.cumsum(self._sampled) - 1
        first = np.searchsorted(row[at], rows)
        self.place = before[at] - before[at][first][self.sequence]
        self.prompt = (at[first] - batch.offsets[rows]).astype(np.int64)
        self.length = np.diff(batch.offsets)[rows].astype(np.int64)
        self.images, self.fetched = len(batch.metadata.media), bool(batch._media)
        #: Whether an image stands before each token.
        opened = np.full(len(batch), len(batch.tokens), np.int64)
        for m in reversed(batch.metadata.media):
            opened[m.sequence] = batch.offsets[m.sequence] + m.offset
        self.pictured = at > opened[row[at]]

    def _freshest(self, row: Ints, lags: Ints) -> npt.NDArray[np.bool_]:
        """Whole sequences, those of the smallest lag that are enough tokens."""
        count = len(self._batch)
        oldest, tokens = np.zeros(count, np.int64), np.bincount(row[self._sampled], minlength=count)
        np.maximum.at(oldest, row, lags)
        order = np.argsort(oldest, kind="stable")
        order = order[tokens[order] > 0]
        if not len(order):
            return np.zeros(count, bool)
        enough = min(int(np.searchsorted(np.cumsum(tokens[order]), _TOKENS_ENOUGH)), len(order) - 1)
        # Lag 0 has no drift in it: few of its tokens are better than many of others.
        fresh = oldest == 0
        limit = 0 if tokens[fresh].sum() >= _TOKENS_MIN else oldest[order[enough]]
        chosen: npt.NDArray[np.bool_] = (oldest <= limit) & (tokens > 0)
        return chosen & (np.cumsum(chosen) <= _SEQUENCES_MAX)

    def error(self, values: Floats) -> float:
        """The standard error of a mean over tokens, where those of a sequence go together."""
        centred = np.bincount(self.sequence, values - values.mean())
        return float(np.sqrt((centred**2).sum())) / self.tokens

    def means(self, values: Floats, key: Ints) -> tuple[Ints, Floats, Ints]:
        """The distinct keys, the mean of the tokens' values under each, and their number."""
        keys, of = np.unique(key, return_inverse=True)
        tokens = np.bincount(of)
        return keys, np.bincount(of, values) / tokens, tokens

    def shifted(self, by: int) -> tuple[float, float]:
        """The mean difference of both sides' log-probs to the engine's of the tokens before (−1) or after (+1)."""
        to = self._at + by
        there = (to >= 0) & (to < len(self._row))
        own, to = self._at[there], to[there]
        there = self._sampled[to] & (self._row[to] == self._row[own])
        if there.sum() < _TOKENS_MIN // 2:
            return float("inf"), 0.0
        own, to = own[there], to[there]
        ours, theirs = (float(np.abs(side[own] - self._theirs[to]).mean()) for side in (self._ours, self._theirs))
        return ours, theirs

    @cached_property
    def contexts(self) -> list[dict[int, list[int]]]:
        """By token those that stand after the same tokens, wherever some do."""
        batch, found = self._batch, dict[tuple[bytes, bytes], dict[int, list[int]]]()
        prompts: list[bytes] = []
        for k in np.flatnonzero(self.place < _PLACES):
            at, r = self._at[k], self.sequence[k]
            begin = batch.offsets[self._row[at]]
            opened = begin + self.prompt[r]
            if len(prompts) == r:
                prompts.append(batch.tokens[begin:opened].tobytes())
            key = prompts[r], batch.tokens[opened:at].tobytes()
            found.setdefault(key, {}).setdefault(int(batch.tokens[at]), []).append(int(k))
        return list(found.values())

    @cached_property
    def siblings(self) -> tuple[Floats, Floats, Floats]:
        """Of different tokens after equal contexts: both sides' deviations from its mean, and how far that is off."""
        ours, theirs, offset = [], [], []
        for tokens in self.contexts:
            if len(tokens) < 2:
                continue
            a = np.array([self.ours[k].mean() for k in tokens.values()])
            b = np.array([self.theirs[k].mean() for k in tokens.values()])
            ours += list(a - a.mean())
            theirs += list(b - b.mean())
            offset += [(a - b).mean()] * len(a)
        return np.array(ours), np.array(theirs), np.array(offset)


def _off_by_one(s: _Seen) -> str:
    (nearest, neighbours), by = min((s.shifted(by), by) for by in (-1, 1))
    if nearest > s.apart.mean() / 5 or neighbours < s.apart.mean() / 4:
        return ""
    return f"they agree to {nearest:.2g} nats with those of the token {'before' if by < 0 else 'after'}"


def _temperature(s: _Seen) -> str:
    """Between tokens of one context a temperature multiplies all differences by one factor, exactly."""
    ours, theirs, _ = s.siblings
    if len(ours) < 12 or not (square := float((theirs**2).sum())) > 0:
        return ""
    factor = float((ours * theirs).sum()) / square
    left, before = _rms(ours - factor * theirs), _rms(ours - theirs)
    if left > before / 4 or abs(factor - 1) < max(0.02, 4 * left / square**0.5) or factor <= 0:
        return ""
    return (
        f"between tokens after the same context the differences are {factor:.3f} times the engine's, so the trainer's "
        f"temperature is {1 / factor:.2f} times that"
    )


def _cut(s: _Seen) -> str:
    """What is missing of a distribution, or is too much, is the same for all tokens of a context."""
    ours, theirs, offset = s.siblings
    if len(ours) < 12 or _rms(ours - theirs) > _rms(offset) / 10 or _rms(offset) < _rms(s.delta) / 3:
        return ""
    return f"tokens after the same context are off by the same amount, {offset.mean():+.2f} nats on average"


def _random(s: _Seen) -> str:
    again, spread = 0, 0.0
    for tokens in s.contexts:
        for same in tokens.values():
            again += len(same) - 1
            spread += float(((s.ours[same] - s.ours[same].mean()) ** 2).sum())
    if again < 8:
        return ""
    deviation = (spread / again) ** 0.5
    if deviation < _rms(s.delta) / 4:
        return ""
    return f"the trainer's own log-probs of equal tokens after equal contexts spread by {deviation:.2g} nats"


def _future(s: _Seen) -> str:
    """Under what sampled it, no distribution gives tokens more log-probability on average (Gibbs' inequality)."""
    if s.delta.mean() - 4 * s.error(s.delta) < LEVEL / 4:
        return ""
    return (
        f"on average the trainer gives {s.delta.mean():+.2f} nats more than what sampled them, which no policy can "
        "that has not seen them"
    )


def _blind(s: _Seen) -> str:
    """Sequences without images agree, and those with some do not; or the trainer has never asked for any of these."""
    if not s.pictured.any():
        return ""
    seen, unseen = s.apart[s.pictured], s.apart[~s.pictured]
    if len(unseen) >= _TOKENS_MIN:
        if seen.mean() < _ROUNDING or unseen.mean() > seen.mean() / 5:
            return ""
        return (
            f"tokens after images are off by {seen.mean():.2g} nats (token_mult_prob_error {np.exp(seen).mean():.3f}), "
            f"all others by {unseen.mean():.2g}"
        )
    if s.fetched or seen.mean() < _ROUNDING:
        return ""
    return (
        f"of {s.images} images the trainer has fetched none, and tokens after them are off by {seen.mean():.2g} nats "
        f"(token_mult_prob_error {np.exp(seen).mean():.3f})"
    )


def _positions(s: _Seen) -> str:
    """Sequences of one length agree, and those of all others do not."""
    mean = s.apart.mean()
    for what, of in (("prompts", s.prompt), ("sequences", s.length)):
        lengths, apart, tokens = s.means(s.apart, of[s.sequence])
        right = (apart < mean / 10) & (tokens >= 8)
        wrong = (apart > max(mean / 3, LEVEL)) & (tokens >= 8)
        if wrong.any() and right.any() and (right | wrong | (tokens < 8)).all():
            return (
                f"{what} of {_listed(lengths[right])} tokens agree ({apart[right].max():.2g} nats), those of "
                f"{_listed(lengths[wrong])} do not ({apart[wrong].min():.2g} and more)"
            )
    return ""


def _template(s: _Seen) -> str:
    """The first tokens are off more than later ones of which the engine was as unsure."""
    unsure = s.theirs < -0.3
    first, later = unsure & (s.place == 0), unsure & (s.place > 1)
    if first.sum() < 8 or later.sum() < 8:
        return ""
    if s.apart[later].mean() > LEVEL or s.apart[first].mean() < 3 * s.apart[later].mean():
        return ""
    return (
        f"first tokens of responses are off by {s.apart[first].mean():.2g} nats, from the third on by "
        f"{s.apart[later].mean():.2g}"
    )


# These compare numbers that nothing else makes equal, so that they tell of small differences, too.
_EXACT: Mapping[str, Callable[[_Seen], str]] = {
    "off_by_one": _off_by_one, "temperature": _temperature, "cut": _cut, "blind": _blind, "positions": _positions,
}  # fmt: skip
_RULES: Mapping[str, Callable[[_Seen], str]] = {
    **_EXACT, "random": _random, "future": _future, "template": _template,
}  # fmt: skip


def _unexplained(s: _Seen) -> tuple[str, str]:
    related = _correlation(s.ours, s.theirs)
    said = f"no pattern, correlation {related:.2f}, {s.delta.mean():+.2g} on average"
    if related < 0.7:
        return "weights", said
    if related > 0.9 and s.apart.mean() < 3 * LEVEL:
        return "precision", said
    return "unknown", said


def _correlation(a: Floats, b: Floats) -> float:
    spread = float(a.std() * b.std())
    return float(((a - a.mean()) * (b - b.mean())).mean()) / spread if spread > 0 else 0.0


def _rms(values: Floats) -> float:
    return float(np.sqrt((values**2).mean()))


def _listed(numbers: Ints) -> str:
    shown = ", ".join(str(n) for n in numbers[:4])
    return shown + (" …" if len(numbers) > 4 else "")
