"""A leased batch: packed, ragged arrays, and what is known of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from . import tensors
from .errors import Invalid
from .lease import Renewal

#: Tensors of a batch by name: their type, and what their length is counted in.
_LAYOUT = {
    "tokens": ("int32", "N"), "offsets": ("int64", "R+1"), "loss_mask": ("uint8", "N"), "logprobs": ("float32", "N"),
    "versions": ("int32", "N"), "advantages": ("float32", "R"), "rewards": ("float32", "R"), "groups": ("int64", "R"),
    "samples": ("int32", "R"),
}  # fmt: skip


@dataclass(frozen=True)
class GroupStamp:
    """A group's part in the definition of staleness."""

    group: int
    start_version: int
    ready_version: int
    rollouts: int


@dataclass(frozen=True)
class Metadata:
    """What the header of a batch says: of the whole batch, over all ranks, so that all normalise alike."""

    lease: int
    attempt: int
    kind: str
    #: The version that the step starts from; training it makes version + 1.
    version: int
    deadline_s: float
    rank: int
    world_size: int
    #: Tokens, those with mask 1, rollouts and groups of the whole batch.
    tokens: int
    response_tokens: int
    rollouts: int
    groups: int
    staleness_mean: float
    staleness_max: int
    #: The groups of this share, in its order.
    stamps: tuple[GroupStamp, ...]


@dataclass(frozen=True)
class Rollout:
    """One rollout of a batch: views of its arrays."""

    tokens: npt.NDArray[np.int32]
    loss_mask: npt.NDArray[np.uint8]
    logprobs: npt.NDArray[np.float32]
    versions: npt.NDArray[np.int32]
    advantage: float
    reward: float
    group: int
    sample: int


@dataclass(eq=False)
class Batch:
    """Whole groups to train on, or to judge by. Entry i of every per-token array is about token i itself.

    Rollout r is `tokens[offsets[r]:offsets[r+1]]`. A model's output at token i − 1 predicts token i: compare
    it with `logprobs[i]`, where `loss_mask[i]` is 1.
    """

    #: Prompt and response ids, N in all.
    tokens: npt.NDArray[np.int32]
    #: R + 1 places: where each rollout begins, and the end.
    offsets: npt.NDArray[np.int64]
    #: 1 where the policy sampled the token, else 0.
    loss_mask: npt.NDArray[np.uint8]
    #: Log-probability with which the token was sampled, in nats; 0 where the mask is 0. After a switch of weights
    #: within a rollout (sync.mode in_flight, pause) it is over the keys and values of the versions before.
    logprobs: npt.NDArray[np.float32]
    #: Policy version that sampled the token; −1 where the mask is 0.
    versions: npt.NDArray[np.int32]
    #: Reward relative to its group, one a rollout, as are all below.
    advantages: npt.NDArray[np.float32]
    rewards: npt.NDArray[np.float32]
    #: Id of the rollout's group; equal ids are neighbours.
    groups: npt.NDArray[np.int64]
    #: Place in the group, from 0.
    samples: npt.NDArray[np.int32]
    metadata: Metadata
    #: Version of the weights that the forward pass used, and of those that the optimizer changed; −1 unstamped.
    forward_version: int = field(default=-1)
    step_version: int = field(default=-1)
    _renewal: Renewal | None = field(default=None, repr=False)
    _done: bool = field(default=False, repr=False)
    _held_version: int = field(default=-1, repr=False)

    def __len__(self) -> int:
        """The number of rollouts."""
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Rollout]:
        for r in range(len(self)):
            span = slice(int(self.offsets[r]), int(self.offsets[r + 1]))
            yield Rollout(
                self.tokens[span], self.loss_mask[span], self.logprobs[span], self.versions[span],
                float(self.advantages[r]), float(self.rewards[r]), int(self.groups[r]), int(self.samples[r]),
            )  # fmt: skip

    @property
    def lease(self) -> int:
        """What the lease is called; 0 for validation."""
        return self.metadata.lease

    @property
    def attempt(self) -> int:
        """How often the batch has been given out before, from the lease's first."""
        return self.metadata.attempt

    @property
    def version(self) -> int:
        """The version that the step starts from."""
        return self.metadata.version

    @property
    def expired(self) -> bool:
        """The server has said that the lease is lost: stop working on it."""
        return self._renewal is not None and self._renewal.expired

    def stamp_forward(self, version: int | None = None) -> None:
        """Say that the forward pass runs now, with the weights that the trainer holds (or with a version).

        With it, a publish also says which version the optimizer changed, and a mismatch is refused: weights
        that moved between a forward pass and its recomputation ruin a run long after.
        """
        self.forward_version = self._held_version if version is None else version

    def stamp_step(self, version: int | None = None) -> None:
        """Say that the optimizer steps now. A publish does it where it was not done."""
        self.step_version = self._held_version if version is None else version

    def token_advantages(self) -> npt.NDArray[np.float32]:
        """Each token's advantage, packed like `tokens`: its rollout's where the policy sampled it, else 0."""
        spread = np.repeat(self.advantages, np.diff(self.offsets))
        return (spread * self.loss_mask).astype(np.float32)

    def padded(self, max_len: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """One row a rollout, padded at the end to `max_len` (the longest rollout's): arrays of shape [R, L].

        `tokens`, `loss_mask`, `logprobs`, `versions` and `advantages` stay aligned with tokens: entry [r, i]
        is about token i of rollout r. For the usual shift take `tokens[:, :-1]` as inputs and `[:, 1:]` of
        every array as what the outputs are compared with. `attention` is 1 where there is a token. Of shape
        [R]: `lengths`, and `prompts`, the tokens before the first that the policy sampled.
        """
        lengths = np.diff(self.offsets).astype(np.int64)
        longest = int(lengths.max(initial=0))
        width = longest if max_len is None else max_len
        if width < longest:
            row = int(lengths.argmax())
            raise Invalid(
                f"rollout {row} has {longest} tokens, more than max_len {width}: raise it, or drop the rollout"
            )
        there = np.arange(width) < lengths[:, None]
        advantages = self.token_advantages()
        rows: dict[str, npt.NDArray[Any]] = {"attention": there.astype(np.uint8), "lengths": lengths}
        for name, packed, empty in (
            ("tokens", self.tokens, 0), ("loss_mask", self.loss_mask, 0), ("logprobs", self.logprobs, 0),
            ("versions", self.versions, -1), ("advantages", advantages, 0),
        ):  # fmt: skip
            rows[name] = np.full(there.shape, empty, dtype=packed.dtype)
            rows[name][there] = packed
        sampled = rows["loss_mask"] != 0
        rows["prompts"] = np.where(sampled.any(axis=1), sampled.argmax(axis=1), lengths) if width else lengths
        return rows


def parse(body: bytes) -> Batch:
    """The batch of a safetensors body. Anything that cannot be trained on is Invalid, with the place named."""
    arrays, header = tensors.decode(body, "the batch")
    for name, (dtype, _) in _LAYOUT.items():
        if name not in arrays:
            raise Invalid(f"the batch has no tensor {name!r}; it has {', '.join(sorted(arrays)) or 'none'}")
        if arrays[name].ndim != 1 or arrays[name].dtype != np.dtype(dtype):
            raise Invalid(
                f"the batch's {name} is {arrays[name].dtype} of shape {list(arrays[name].shape)}; "
                f"want {dtype} of one dimension"
            )
    metadata = _metadata(header.get("headway", ""))
    fields: dict[str, Any] = {name: arrays[name] for name in _LAYOUT}
    batch = Batch(metadata=metadata, **fields)
    check(batch)
    return batch


def check(batch: Batch) -> None:
    """Raise Invalid unless every shape, id, number and version of a batch can be."""
    sizes = {"N": len(batch.tokens), "R": len(batch.rewards), "R+1": len(batch.rewards) + 1}
    for name, (_, unit) in _LAYOUT.items():
        if len(getattr(batch, name)) != sizes[unit]:
            raise Invalid(
                f"the batch's {name} has {len(getattr(batch, name))} entries, want {sizes[unit]}: "
                f"{sizes['N']} tokens in {sizes['R']} rollouts"
            )
    offsets = batch.offsets
    if offsets[0] != 0 or offsets[-1] != sizes["N"] or (np.diff(offsets) < 1).any():
        raise Invalid(f"the batch's offsets do not divide its {sizes['N']} tokens into rollouts of at least one token")
    sampled = batch.loss_mask == 1
    newest = batch.version
    for wrong, what in (
        (batch.loss_mask > 1, "a loss mask that is neither 0 nor 1"),
        (batch.tokens < 0, "a negative id"),
        (~np.isfinite(batch.logprobs), "a log-prob that is not finite"),
        (batch.logprobs > 1e-3, "a log-prob above 0"),
        (sampled & (batch.versions < 0), "no version, and the policy sampled it"),
        (sampled & (batch.versions > newest), f"a version from the future: the step starts from {newest}"),
    ):
        if wrong.any():
            at = int(wrong.argmax())
            r = int(np.searchsorted(offsets, at, side="right")) - 1
            raise Invalid(
                f"rollout {r} (group {batch.groups[r]}, sample {batch.samples[r]}), token {at - offsets[r]}: {what}",
                detail={"rollout": r, "token": int(at - offsets[r])},
            )
    for name in ("advantages", "rewards"):
        bad = ~np.isfinite(getattr(batch, name))
        if bad.any():
            raise Invalid(f"rollout {int(bad.argmax())} has {name} that are not finite")


def _metadata(text: str) -> Metadata:
    try:
        said = json.loads(text)
        stamps = tuple(
            GroupStamp(**{k: int(s[k]) for k in GroupStamp.__dataclass_fields__}) for s in said.pop("stamps") or ()
        )
        kinds = {"kind": str, "deadline_s": float, "staleness_mean": float}
        known = {k: kinds.get(k, int)(said[k]) for k in Metadata.__dataclass_fields__ if k != "stamps"}
        return Metadata(**known, stamps=stamps)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"the batch's header says nothing of its lease that can be read: {error!r}") from error
