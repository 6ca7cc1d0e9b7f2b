"""A side channel of a batch: rows of numbers beside the tokens, such as the experts that each pass was routed to."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from . import tensors
from .errors import Invalid
from .tensors import Array

#: The arrays of types that safetensors names otherwise.
_DTYPES = {
    "u8": "uint8", "u16": "uint16", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "f16": "float16",
    "bf16": "uint16", "f32": "float32",
}  # fmt: skip


@dataclass(frozen=True)
class ChannelInfo:
    """The form of a channel, and how much of it there is in this share."""

    name: str
    dtype: str
    #: "passes": row i is of the pass of token i, which samples token i + 1, and the last token has none. "sampled": a
    #: row for each token that the policy sampled. "tokens": a row for every token.
    align: str
    #: Shape of a row; () for one number, and for rows with lengths of their own.
    row: tuple[int, ...]
    ragged: bool
    #: Rows that there are, and rows that no engine has said.
    rows: int
    absent: int

    @classmethod
    def read(cls, said: dict[str, Any]) -> ChannelInfo:
        """The form that a header says."""
        info = cls(
            str(said["name"]), str(said["dtype"]), str(said["align"]), tuple(int(n) for n in said.get("row") or ()),
            bool(said.get("ragged", False)), int(said["rows"]), int(said["absent"]),
        )  # fmt: skip
        if info.dtype not in _DTYPES or info.align not in ("passes", "sampled", "tokens"):
            raise ValueError(f"channel {info.name} of {info.dtype}, aligned to {info.align}")
        return info


@dataclass(frozen=True, eq=False)
class Kept:
    """The ids that a cut (top-k, top-p, min-p) left to draw tokens from, for those tokens alone that have a mask."""

    #: [T]: r · L + i of token i of sequence r, in tokens of [R, L].
    place: npt.NDArray[np.int64]
    #: [T]: how many ids were kept.
    sizes: npt.NDArray[np.int64]
    #: The ids of all tokens, one token's after the other's.
    ids: npt.NDArray[np.int64]
    #: [T]: where in `ids` each token itself stands.
    own: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Channel:
    """One channel of a batch. Entry i of what `packed` returns belongs to token i of the batch, whatever the alignment.

    Each sequence is padded to its number of tokens before sequences are joined, so that no row of one falls on a token
    of the next: a row of passes stands at the token that the pass read, and the last token of a sequence has none.
    """

    info: ChannelInfo
    #: For each row: the token of the batch that it belongs to.
    at: npt.NDArray[np.int64]
    #: The rows [P, row...]; of a ragged channel the values of all rows, one row after the other.
    values: Array
    #: Of a ragged channel: row i is values[offsets[i]:offsets[i+1]]. Else empty.
    offsets: npt.NDArray[np.int64]
    #: The batch's own offsets of sequences.
    sequences: npt.NDArray[np.int64]

    def present(self) -> npt.NDArray[np.bool_]:
        """[N], packed like the batch's tokens: whether there is a row."""
        there = np.zeros(int(self.sequences[-1]), dtype=np.bool_)
        there[self.at] = True
        return there

    def packed(self, fill: float = 0) -> Array:
        """[N, row...], packed like the batch's tokens; `fill` stands where there is no row."""
        if self.info.ragged:
            raise Invalid(f"the rows of channel {self.info.name} have lengths of their own: take packed_ragged")
        out = self._filled(self.values.shape[1:], fill)
        out[self.at] = self.values
        return out.view(tensors.BFloat16) if self.info.dtype == "bf16" else out

    def _filled(self, row: tuple[int, ...], fill: float) -> Array:
        """[N, row...] of the fill alone."""
        out = np.empty((int(self.sequences[-1]), *row), dtype=self.values.dtype)
        if self.info.dtype == "bf16":
            out[...] = tensors.narrow(np.float32(fill))
        else:
            _fits(fill, out.dtype, self.info.name)
            out[...] = fill
        return out

    def _widened(self, fill: float) -> Array:
        """[N, K] of a ragged channel, K the longest row's length: the fill stands behind shorter ones."""
        lengths = np.diff(self.offsets)
        out = self._filled((int(lengths.max(initial=0)),), fill)
        out[np.repeat(self.at, lengths), _counted(lengths)] = self.values
        return out.view(tensors.BFloat16) if self.info.dtype == "bf16" else out

    def packed_ragged(self) -> tuple[Array, npt.NDArray[np.int64]]:
        """Values and offsets [N+1]: token i has values[offsets[i]:offsets[i+1]], none where there is no row."""
        if not self.info.ragged:
            raise Invalid(f"the rows of channel {self.info.name} all have the shape {list(self.info.row)}: take packed")
        lengths = np.zeros(int(self.sequences[-1]), dtype=np.int64)
        lengths[self.at] = np.diff(self.offsets)
        return self.values, np.concatenate(([0], np.cumsum(lengths)))

    def padded(self, fill: float = 0, max_len: int | None = None) -> tuple[Array, npt.NDArray[np.bool_]]:
        """[R, L, row...] and [R, L], padded like `Batch.padded`: the rows, and whether there is one.

        Rows with lengths of their own are padded to the longest one's, with `fill` behind them.
        """
        lengths = np.diff(self.sequences)
        longest = int(lengths.max(initial=0))
        width = longest if max_len is None else max_len
        if width < longest:
            raise Invalid(f"a sequence has {longest} tokens, more than max_len {width}: raise it")
        there = np.arange(width) < lengths[:, None]
        packed = self._widened(fill) if self.info.ragged else self.packed(fill)
        out = np.full((*there.shape, *packed.shape[1:]), packed.dtype.type(0), dtype=packed.dtype)
        if self.info.dtype == "bf16":
            out, packed = out.view(tensors.BFloat16), packed.view(tensors.BFloat16)
            out[...] = tensors.narrow(np.float32(fill))
        else:
            out[...] = fill
        out[there] = packed
        present = np.zeros(there.shape, dtype=np.bool_)
        present[there] = self.present()
        return out, present

    def select(self, sequences: Any) -> Channel:
        """The channel of some of the batch's sequences, as for a micro-batch: a slice, or their numbers in any order.

        It goes with the same rows of what `Batch.padded` returns. `info` stays that of the whole share.
        """
        chosen = np.arange(len(self.sequences) - 1)[sequences]
        first, lengths = self.sequences[chosen], np.diff(self.sequences)[chosen]
        order = np.argsort(self.at, kind="stable")
        begin, end = (np.searchsorted(self.at[order], edge) for edge in (first, first + lengths))
        rows = order[np.repeat(begin, end - begin) + _counted(end - begin)]
        places = np.concatenate(([0], np.cumsum(lengths)))
        at = self.at[rows] + np.repeat(places[:-1] - first, end - begin)
        if not self.info.ragged:
            return replace(self, at=at, values=self.values[rows], sequences=places)
        sizes = np.diff(self.offsets)[rows]
        values = self.values[np.repeat(self.offsets[rows], sizes) + _counted(sizes)]
        return replace(self, at=at, values=values, offsets=np.concatenate(([0], np.cumsum(sizes))), sequences=places)

    def kept(self, tokens: npt.NDArray[Any]) -> Kept:
        """A sampling mask as log-softmaxes need it, for tokens [R, L] padded like `Batch.padded`.

        Invalid where a token is not in its own mask: it is then the mask of other tokens.
        """
        count, lengths = len(self.sequences) - 1, np.diff(self.sequences)
        if not self.info.ragged or self.values.dtype.kind not in "iu":
            raise Invalid(f"channel {self.info.name} has no lists of ids: it is no sampling mask")
        if tokens.ndim != 2 or len(tokens) != count or tokens.shape[1] < lengths.max(initial=0):
            raise Invalid(
                f"the mask is of {count} sequences of up to {lengths.max(initial=0)} tokens, and the tokens have the "
                f"shape {list(tokens.shape)}: take mask.select for a part of a batch"
            )
        sequence = np.searchsorted(self.sequences, self.at, side="right") - 1
        column = self.at - self.sequences[sequence]
        sizes = np.diff(self.offsets)
        # Nothing predicts the first token of a sequence, and an empty row cuts nothing.
        use = (sizes > 0) & (column > 0)
        ids = self.values[np.repeat(use, sizes)].astype(np.int64)
        sequence, column, sizes = sequence[use], column[use], sizes[use]
        own = ids == np.repeat(tokens[sequence, column], sizes)
        times = np.add.reduceat(own, np.cumsum(sizes) - sizes, dtype=np.int64) if len(sizes) else sizes
        if (times != 1).any():
            k = int((times != 1).argmax())
            r, i = int(sequence[k]), int(column[k])
            raise Invalid(
                f"sequence {r}, token {i}: id {tokens[r, i]} is {'twice' if times[k] else 'not'} in its sampling mask "
                f"of {sizes[k]} ids",
                detail={"sequence": r, "token": i},
            )
        return Kept(sequence * tokens.shape[1] + column, sizes, ids, np.flatnonzero(own))


def _counted(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """0, 1, 2 … for each size, one after the other."""
    return np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _fits(fill: float, dtype: np.dtype[Any], name: str) -> None:
    """Raise Invalid for a fill that the channel's type cannot hold, as −1 in uint8."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not limits.min <= fill <= limits.max or fill != int(fill):
            raise Invalid(
                f"channel {name} is {dtype}, which cannot hold the fill {fill:g}: present says what is absent"
            )


def parse(body: bytes, sequences: npt.NDArray[np.int64], loss_mask: npt.NDArray[np.uint8]) -> Channel:
    """The channel of a safetensors body, for a batch with these offsets and this mask."""
    arrays, header = tensors.decode(body, "the channel")
    try:
        info = ChannelInfo.read(json.loads(header.get("headway", "")))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise Invalid(f"the channel's header says nothing of its form that can be read: {error!r}") from error
    what = "values" if info.ragged else "rows"
    parts, values = arrays.get("parts"), arrays.get(what)
    if parts is None or values is None or parts.dtype != np.int64 or parts.ndim != 2 or parts.shape[1] != 3:
        raise Invalid(f"channel {info.name} has {', '.join(sorted(arrays))}: want parts [K, 3] and {what}")
    if values.dtype != np.dtype(_DTYPES[info.dtype]) or values.shape[1:] != (() if info.ragged else info.row):
        raise Invalid(
            f"channel {info.name} has {what} of {values.dtype} {list(values.shape)}; "
            f"want {info.dtype}, rows of {list(info.row)}"
        )
    at = _places(info, parts, sequences, loss_mask)
    offsets = arrays.get("offsets", np.zeros(0, dtype=np.int64)) if info.ragged else np.zeros(0, dtype=np.int64)
    count = len(offsets) - 1 if info.ragged else len(values)
    if count != len(at) or count != info.rows:
        raise Invalid(f"channel {info.name} has {count} rows, its parts {len(at)} and its header {info.rows}")
    if info.ragged and (offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any()):
        raise Invalid(f"the offsets of channel {info.name} do not divide its {len(values)} values into rows")
    return Channel(info, at, values, offsets, sequences)


def _places(
    info: ChannelInfo, parts: Array, sequences: npt.NDArray[np.int64], loss_mask: npt.NDArray[np.uint8]
) -> npt.NDArray[np.int64]:
    """The token of the batch that each row belongs to."""
    places = []
    for sequence, start, rows in parts.tolist():
        if not 0 <= sequence < len(sequences) - 1:
            raise Invalid(f"channel {info.name} has rows of sequence {sequence}; the batch has {len(sequences) - 1}")
        first, end = int(sequences[sequence]), int(sequences[sequence + 1])
        if info.align == "sampled":
            tokens = first + np.flatnonzero(loss_mask[first:end])
        else:
            tokens = np.arange(first, end - (info.align == "passes"))
        if start < 0 or rows < 1 or start + rows > len(tokens):
            raise Invalid(
                f"channel {info.name} has rows {start} to {start + rows} of sequence {sequence}, "
                f"which can have {len(tokens)}"
            )
        places.append(tokens[start : start + rows])
    at = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
    if len(np.unique(at)) != len(at):
        raise Invalid(f"channel {info.name} has a row twice")
    return at
