"""A leased batch: packed, ragged arrays, and what is known of it."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from . import agreement, channel, tensors
from .agreement import Agreement
from .channel import Channel, ChannelInfo
from .errors import Invalid
from .groups import Reference
from .lease import Renewal
from .media import Medium, MediumInfo

#: Tensors of a batch by name: their type, and what their length is counted in.
_LAYOUT = {
    "tokens": ("int32", "N"), "offsets": ("int64", "R+1"), "loss_mask": ("uint8", "N"), "logprobs": ("float32", "N"),
    "versions": ("int32", "N"), "advantages": ("float32", "R"), "rewards": ("float32", "R"), "groups": ("int64", "R"),
    "samples": ("int32", "R"), "rollouts": ("int32", "R"),
}  # fmt: skip


@dataclass(frozen=True)
class GroupStamp:
    """A group's part in the definition of staleness."""

    group: int
    #: Versions when its first token was sampled, and when it was whole.
    start_version: int
    ready_version: int
    rollouts: int


@dataclass(frozen=True)
class Metadata:
    """What the header of a batch says: of the whole batch, over all ranks, so that all normalise alike."""

    #: What the lease is called (0 for validation), and how often the batch has been given out before.
    lease: int
    attempt: int
    #: "train" or "validation".
    kind: str
    #: The version that the step starts from; training it makes version + 1.
    version: int
    #: Seconds that the lease lasts without a word.
    deadline_s: float
    #: Whose share this is, of how many.
    rank: int
    world_size: int
    #: Tokens, those with mask 1, rollouts and groups of the whole batch.
    tokens: int
    response_tokens: int
    rollouts: int
    groups: int
    #: Sequences of the whole batch: as many as rollouts, unless some left several.
    sequences: int
    #: In versions, from a group's first token to the step, over the whole batch.
    staleness_mean: float
    staleness_max: int
    #: The groups of this share, in its order.
    stamps: tuple[GroupStamp, ...]
    #: Names of the agents who speak in the whole batch's sequences, sorted; empty where nobody is named.
    agents: tuple[str, ...] = ()
    #: The side channels of this share, by name: `Batch.channel` fetches one.
    channels: tuple[ChannelInfo, ...] = ()
    #: The images of this share: `Batch.media` brings their bytes.
    media: tuple[MediumInfo, ...] = ()


@dataclass(frozen=True)
class Rollout:
    """One sequence of a rollout, mostly its only one: views of a batch's arrays."""

    tokens: npt.NDArray[np.int32]
    loss_mask: npt.NDArray[np.uint8]
    logprobs: npt.NDArray[np.float32]
    versions: npt.NDArray[np.int32]
    advantage: float
    reward: float
    group: int
    sample: int
    #: Number of the rollout in the batch, from 0.
    rollout: int
    #: Who speaks in it, empty for nobody that was named.
    agent: str = ""


@dataclass(eq=False)
class Batch:
    """Whole groups to train on, or to judge by. Entry i of every per-token array is about token i itself.

    Sequence r is `tokens[offsets[r]:offsets[r+1]]`. A rollout is one sequence, but for those of agents that
    changed their history on the way: they left several, side by side, each with the rollout's reward and
    advantage; `rollouts` says which are whose. A model's output at token i − 1 predicts token i: compare
    it with `logprobs[i]`, where `loss_mask[i]` is 1.
    """

    #: Prompt and response ids, N in all.
    tokens: npt.NDArray[np.int32]
    #: R + 1 places: where each sequence begins, and the end.
    offsets: npt.NDArray[np.int64]
    #: 1 where the policy sampled the token, else 0.
    loss_mask: npt.NDArray[np.uint8]
    #: Log-probability with which the token was sampled, in nats; 0 where the mask is 0. After a switch of weights
    #: within a rollout (sync.mode in_flight, pause) it is over the keys and values of the versions before.
    logprobs: npt.NDArray[np.float32]
    #: Policy version that sampled the token; −1 where the mask is 0.
    versions: npt.NDArray[np.int32]
    #: The rollout's reward relative to its group, one a sequence, as are all below.
    advantages: npt.NDArray[np.float32]
    rewards: npt.NDArray[np.float32]
    #: Id of the rollout's group; equal ids are neighbours.
    groups: npt.NDArray[np.int64]
    #: Place in the group, from 0.
    samples: npt.NDArray[np.int32]
    #: Number of the sequence's rollout in this share, from 0: 0, 1, 2 … where each left one.
    rollouts: npt.NDArray[np.int32]
    metadata: Metadata
    #: Version of the weights that the forward pass used, and of those that the optimizer changed; −1 unstamped.
    forward_version: int = field(default=-1)
    step_version: int = field(default=-1)
    _renewal: Renewal | None = field(default=None, repr=False)
    _references: Sequence[Reference] = field(default=(), repr=False)
    _done: bool = field(default=False, repr=False)
    _held_version: int = field(default=-1, repr=False)
    _agreement: Agreement | None = field(default=None, repr=False)
    _fetch: Callable[[str, str], bytes] | None = field(default=None, repr=False)
    _channels: dict[str, Channel] = field(default_factory=dict, repr=False)
    _agents: npt.NDArray[np.int32] | None = field(default=None, repr=False)
    _media: dict[str, bytes] = field(default_factory=dict, repr=False)
    _views: tuple[Medium, ...] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        """The number of sequences."""
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Rollout]:
        agents = self.agents
        for r in range(len(self)):
            span = slice(int(self.offsets[r]), int(self.offsets[r + 1]))
            yield Rollout(
                self.tokens[span], self.loss_mask[span], self.logprobs[span], self.versions[span],
                float(self.advantages[r]), float(self.rewards[r]), int(self.groups[r]), int(self.samples[r]),
                int(self.rollouts[r]), str(agents[r]),
            )  # fmt: skip

    @property
    def agents(self) -> npt.NDArray[np.str_]:
        """The name of the agent who speaks in each sequence, [R]; empty where none was named.

        Sequences of agents that are not trained are left out of a batch. A baseline of an agent is over the
        rollouts of a group in which it speaks: `(batch.groups == g) & (batch.agents == name)`.
        """
        if self._agents is None:
            return np.full(len(self), "", dtype=np.str_)
        return np.array((*self.metadata.agents, ""), dtype=np.str_)[self._agents]

    def by_rollout(self) -> Iterator[list[Rollout]]:
        """The sequences of each rollout, in their order."""
        sequences: list[Rollout] = []
        for one in self:
            if sequences and sequences[0].rollout != one.rollout:
                yield sequences
                sequences = []
            sequences.append(one)
        if sequences:
            yield sequences

    def sequence_weights(self) -> npt.NDArray[np.float32]:
        """One over the number of its rollout's sequences, for each: a mean that counts every rollout once.

        Their sum is the number of rollouts in this share; `metadata.rollouts` is that of the whole batch.
        """
        counts = np.bincount(self.rollouts, minlength=1)
        return (1.0 / counts[self.rollouts]).astype(np.float32)

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

    def channel(self, name: str) -> Channel:
        """A side channel, such as "routed_experts", fetched at the first call; Invalid where the batch has none.

        `rollout.channels` names the channels that engines are asked for, and `scoring.servers` the teachers and
        references that write theirs. Rows that nobody has said, or that the store has lost, are absent:
        `Channel.present` tells which, and the channel's `info` how many.
        """
        if name not in self._channels:
            if self._fetch is None or all(known.name != name for known in self.metadata.channels):
                have = ", ".join(known.name for known in self.metadata.channels) or "none"
                scored = name.startswith(("teacher_", "ref_"))
                remedy = "let a server of scoring.servers write it" if scored else "name it in rollout.channels"
                raise Invalid(f"the batch has no channel {name!r}, it has {have}: {remedy}")
            self._channels[name] = channel.parse(self._fetch("channels", name), self.offsets, self.loss_mask)
        return self._channels[name]

    @property
    def media(self) -> tuple[Medium, ...]:
        """The images among the tokens, in the order of these; their bytes come at the first call of `Medium.bytes`.

        Give a model the original bytes through the processor that `Medium.processor` names, and the ids as they are:
        they are expanded. A trainer that leaves images out is told by `compare`.
        """
        if self._views is None:
            self._views = tuple(Medium(m, functools.partial(self._medium, m.sha256)) for m in self.metadata.media)
        return self._views

    def _medium(self, sha256: str) -> bytes:
        if sha256 not in self._media:
            if self._fetch is None:
                raise Invalid("the bytes of images are fetched within a lease, and this batch has none")
            found = self._fetch("media", sha256)
            if hashlib.sha256(found).hexdigest() != sha256:
                raise Invalid(f"the bytes of image {sha256} are others: want its SHA-256")
            self._media[sha256] = found
        return self._media[sha256]

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

    def compare(self, logprobs: Any) -> Agreement:
        """Compare the trainer's own log-probs of this batch, before the step, with those of the engines.

        They are an array of numpy, torch or jax in either form, packed [N] or padded [R, L], aligned with `tokens`
        and at the temperature of `rollout.sampling`. A train step has them anyway. What is found goes with the
        step's metrics as `forward/…`, and a forward pass that disagrees is said in the log, in `headway status`
        and by `headway diagnose`, with its likely cause. NaN, a log-prob above 0 and another shape are Invalid.
        """
        self._agreement = agreement.compare(self, logprobs)
        return self._agreement

    def token_advantages(self) -> npt.NDArray[np.float32]:
        """Each token's advantage, packed like `tokens`: its rollout's where the policy sampled it, else 0."""
        spread = np.repeat(self.advantages, np.diff(self.offsets))
        return (spread * self.loss_mask).astype(np.float32)

    def padded(self, max_len: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """One row a sequence, padded at the end to `max_len` (the longest one's): arrays of shape [R, L].

        `tokens`, `loss_mask`, `logprobs`, `versions` and `advantages` stay aligned with tokens: entry [r, i]
        is about token i of sequence r. For the usual shift take `tokens[:, :-1]` as inputs and `[:, 1:]` of
        every array as what the outputs are compared with. `attention` is 1 where there is a token. Of shape
        [R]: `lengths`, and `prompts`, the tokens before the first that the policy sampled.
        """
        lengths = np.diff(self.offsets).astype(np.int64)
        longest = int(lengths.max(initial=0))
        width = longest if max_len is None else max_len
        if width < longest:
            row = int(lengths.argmax())
            raise Invalid(
                f"sequence {row} has {longest} tokens, more than max_len {width}: raise it, or drop the rollout"
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


@dataclass(frozen=True)
class Leased:
    """The answer to a lease: what it says of the batch, and the batch or references to its groups."""

    metadata: Metadata
    batch: Batch | None
    references: tuple[Reference, ...] = ()

    @classmethod
    def read(cls, body: bytes, by_reference: bool) -> Leased:
        """An answer that has the batch in it, or the groups by reference."""
        if not by_reference:
            found = parse(body)
            return cls(found.metadata, found)
        try:
            listed = [Reference.read(one) for one in json.loads(body)["references"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Invalid(f"the lease lists no references to groups that can be read: {error!r}") from error
        metadata = _metadata(body.decode())
        if [one.group for one in listed] != [stamp.group for stamp in metadata.stamps]:
            raise Invalid("the lease's references are not to the groups that it lists")
        return cls(metadata, None, tuple(listed))


def parse(body: bytes) -> Batch:
    """The batch of a safetensors body. Anything that cannot be trained on is Invalid, with the place named."""
    arrays, header = _arrays(body, "the batch")
    batch = _batch(_metadata(header.get("headway", "")), arrays)
    check(batch)
    return batch


def pack(leased: Leased, bodies: Sequence[bytes]) -> Batch:
    """The batch that the bodies of its groups make up: the same as in one piece."""
    names = leased.metadata.agents
    parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in (*_LAYOUT, "agents")}
    tokens = rollouts = 0
    for stamp, body in zip(leased.metadata.stamps, bodies, strict=True):
        arrays, header = _arrays(body, f"group {stamp.group}", writable=False)
        said = _metadata(header.get("headway", ""))
        if (arrays["groups"] != stamp.group).any() or said.rollouts != stamp.rollouts:
            raise Invalid(f"the body of group {stamp.group} is another group's, or not whole")
        arrays["offsets"] = arrays["offsets"][1:] + tokens
        arrays["rollouts"] = arrays["rollouts"] + np.int32(rollouts)
        arrays["agents"] = _codes(arrays, said.agents, names)
        tokens, rollouts = tokens + len(arrays["tokens"]), rollouts + stamp.rollouts
        for name, list_ in parts.items():
            list_.append(arrays[name])
    parts["offsets"].insert(0, np.zeros(1, np.int64))
    whole = {
        name: np.concatenate(list_) if list_ else np.empty(0, _LAYOUT.get(name, ("int32", ""))[0])
        for name, list_ in parts.items()
    }
    if not names:
        del whole["agents"]
    batch = _batch(leased.metadata, whole)
    batch._references = leased.references
    check(batch)
    return batch


def _codes(arrays: dict[str, npt.NDArray[Any]], said: tuple[str, ...], names: tuple[str, ...]) -> npt.NDArray[np.int32]:
    """The places among a batch's agents of a group's sequences, which have places among the group's."""
    codes = arrays.get("agents")
    if codes is None:
        return np.full(len(arrays["rewards"]), -1, np.int32)
    if not set(said) <= set(names) or codes.dtype != np.int32 or ((codes < -1) | (codes >= len(said))).any():
        raise Invalid("the body of a group names agents that its batch does not")
    places: npt.NDArray[np.int32] = np.array([*(names.index(name) for name in said), -1], np.int32)[codes]
    return places


def _arrays(body: bytes, what: str, *, writable: bool = True) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """The tensors of a body, with all that a batch has, and what its header says."""
    arrays, header = tensors.decode(body, what, writable=writable)
    for name, (dtype, _) in _LAYOUT.items():
        if name not in arrays:
            if name == "rollouts":
                continue  # each left one sequence
            raise Invalid(f"{what} has no tensor {name!r}; it has {', '.join(sorted(arrays)) or 'none'}")
        if arrays[name].ndim != 1 or arrays[name].dtype != np.dtype(dtype):
            raise Invalid(
                f"{what}'s {name} is {arrays[name].dtype} of shape {list(arrays[name].shape)}; "
                f"want {dtype} of one dimension"
            )
    arrays.setdefault("rollouts", np.arange(len(arrays["rewards"]), dtype=np.int32))
    return arrays, header


def _batch(metadata: Metadata, arrays: dict[str, npt.NDArray[Any]]) -> Batch:
    fields: dict[str, Any] = {name: arrays[name] for name in _LAYOUT}
    return Batch(metadata=metadata, **fields, _agents=arrays.get("agents"))


def check(batch: Batch) -> None:
    """Raise Invalid unless every shape, id, number and version of a batch can be."""
    sizes = {"N": len(batch.tokens), "R": len(batch.rewards), "R+1": len(batch.rewards) + 1}
    for name, (_, unit) in _LAYOUT.items():
        if len(getattr(batch, name)) != sizes[unit]:
            raise Invalid(
                f"the batch's {name} has {len(getattr(batch, name))} entries, want {sizes[unit]}: "
                f"{sizes['N']} tokens in {sizes['R']} sequences"
            )
    offsets = batch.offsets
    outside = (offsets < 0) | (offsets > sizes["N"])  # their differences could wrap
    if outside.any() or offsets[0] != 0 or offsets[-1] != sizes["N"] or (np.diff(offsets) < 1).any():
        raise Invalid(f"the batch's offsets do not divide its {sizes['N']} tokens into sequences of at least one token")
    _check_rollouts(batch)
    _check_agents(batch)
    _check_media(batch)
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
                f"sequence {r} (group {batch.groups[r]}, sample {batch.samples[r]}), token {at - offsets[r]}: {what}",
                detail={"sequence": r, "token": int(at - offsets[r])},
            )
    for name in ("advantages", "rewards"):
        bad = ~np.isfinite(getattr(batch, name))
        if bad.any():
            raise Invalid(f"sequence {int(bad.argmax())} has {name} that are not finite")


def _check_agents(batch: Batch) -> None:
    """Raise Invalid unless every sequence is of an agent that the header names, or of none."""
    codes, names = batch._agents, batch.metadata.agents
    if codes is None and not names:
        return
    if codes is None or codes.dtype != np.int32 or codes.shape != (len(batch),):
        raise Invalid(f"the batch names {len(names)} agents, and has no int32 tensor of one for each sequence")
    if ((codes < -1) | (codes >= len(names))).any():
        raise Invalid(f"a sequence is of an agent that the batch does not name: want -1 to {len(names) - 1}")


def _check_media(batch: Batch) -> None:
    """Raise Invalid unless every image stands within its sequence, after the one before, where nothing was sampled."""
    before = (-1, 0)
    for m in batch.metadata.media:
        inside = 0 <= m.sequence < len(batch) and m.offset >= 0 and m.length > 0 and (m.sequence, m.offset) >= before
        if inside:
            begin, end = (int(at) for at in batch.offsets[m.sequence : m.sequence + 2])
            first = begin + m.offset
            inside = first + m.length <= end and not batch.loss_mask[first : first + m.length].any()
        if not inside:
            raise Invalid(
                f"image {m.sha256[:12]} is said to be {m.length} ids at {m.offset} of sequence {m.sequence}: "
                "that is not within the sequence, or another image or sampled tokens are there"
            )
        before = (m.sequence, m.offset + m.length)


def _check_rollouts(batch: Batch) -> None:
    """Raise Invalid unless the sequences of each rollout stand side by side and agree."""
    rollouts = batch.rollouts
    steps = np.diff(rollouts)
    wrong = (steps < 0) | (steps > 1)
    if rollouts[:1].any() or wrong.any():
        raise Invalid("the batch's rollouts are not numbered from 0, each one's sequences side by side")
    same = steps == 0
    for name in ("groups", "samples", "rewards", "advantages"):
        values = getattr(batch, name)
        differ = same & (values[1:] != values[:-1])
        if differ.any():
            raise Invalid(f"sequence {int(differ.argmax()) + 1} is of the rollout before it, and has other {name}")


def _metadata(text: str) -> Metadata:
    try:
        said = json.loads(text)
        stamps = tuple(
            GroupStamp(**{k: int(s[k]) for k in GroupStamp.__dataclass_fields__}) for s in said.pop("stamps") or ()
        )
        kinds = {"kind": str, "deadline_s": float, "staleness_mean": float}
        said.setdefault("sequences", said["rollouts"])
        channels = tuple(ChannelInfo.read(one) for one in said.pop("channels", None) or ())
        agents = tuple(str(name) for name in said.pop("agents", None) or ())
        media = MediumInfo.read_all(said.pop("media", None) or (), said.pop("processors", None) or ())
        apart = ("stamps", "channels", "agents", "media")
        known = {k: kinds.get(k, int)(said[k]) for k in Metadata.__dataclass_fields__ if k not in apart}
        return Metadata(**known, stamps=stamps, agents=agents, channels=channels, media=media)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise Invalid(f"the batch's header says nothing of its lease that can be read: {error!r}") from error
