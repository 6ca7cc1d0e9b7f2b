"""Side channels: the golden bodies of the server's own tests against their rows, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import headway
from headway import channel
from headway.batch import parse
from headway.tensors import File

GOLDEN = Path(__file__).resolve().parents[3] / "train" / "batch" / "testdata"


def golden() -> headway.Batch:
    batch = parse((GOLDEN / "channels.safetensors").read_bytes())
    batch._fetch = lambda kind, name: (GOLDEN / f"channels.{name}.safetensors").read_bytes()
    return batch


def value(batch: headway.Batch, sequence: int, row: int, at: int) -> int:
    """What the server's test writes into a row of a channel."""
    place = sequence - int(np.searchsorted(batch.rollouts, batch.rollouts[sequence]))
    return int(batch.groups[sequence] * 31 + batch.samples[sequence] * 17 + place * 7 + row * 5 + at) % 60000 + 1


def test_passes() -> None:
    """Each row stands at the token that its pass read; the last token of a sequence has none."""
    batch = golden()
    routed = batch.channel("routed_experts")
    packed, present = routed.packed(), routed.present()
    assert packed.shape == (len(batch.tokens), 3, 2)
    assert present.sum() == routed.info.rows == batch.metadata.channels[0].rows
    assert len(batch.tokens) - len(batch) - present.sum() == routed.info.absent > 0
    for r in range(len(batch)):
        first, end = batch.offsets[r : r + 2]
        assert not present[end - 1]
        for row in range(end - first):
            if present[first + row]:
                want = [value(batch, r, row, at) for at in range(6)]
                assert packed[first + row].reshape(-1).tolist() == want, (r, row)
            else:
                assert not packed[first + row].any()
    rows, there = routed.padded(fill=60001)
    shape = batch.padded()["tokens"].shape
    assert rows.shape == (*shape, 3, 2) and there.shape == shape
    assert (rows[~there] == 60001).all()
    np.testing.assert_array_equal(rows[there], routed.values)


def test_sampled() -> None:
    """Ragged rows stand at the tokens that the policy sampled."""
    batch = golden()
    mask = batch.channel("sampling_mask")
    values, offsets = mask.packed_ragged()
    assert len(offsets) == len(batch.tokens) + 1
    assert not (np.diff(offsets)[batch.loss_mask == 0]).any()
    assert not (mask.present() & (batch.loss_mask == 0)).any()
    for r in range(len(batch)):
        first, end = batch.offsets[r : r + 2]
        for row, token in enumerate(first + np.flatnonzero(batch.loss_mask[first:end])):
            if mask.present()[token]:
                want = [value(batch, r, row, at) for at in range(row % 4)]
                assert values[offsets[token] : offsets[token + 1]].tolist() == want
    with pytest.raises(headway.Invalid, match="packed_ragged"):
        mask.packed()
    with pytest.raises(headway.Invalid, match="take packed"):
        batch.channel("routed_experts").packed_ragged()


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    import headway.torch

    rows, there = headway.torch.channel(golden(), "routed_experts")
    assert rows.dtype == torch.int64 and there.dtype == torch.bool
    np.testing.assert_array_equal(rows[there].numpy(), golden().channel("routed_experts").values)


def test_refused() -> None:
    """What cannot be is named: fills that a type cannot hold, channels and rows that are not there."""
    batch = golden()
    with pytest.raises(headway.Invalid, match="cannot hold the fill -1"):
        batch.channel("routed_experts").packed(-1)
    with pytest.raises(headway.Invalid, match="no channel 'x-none', it has routed_experts, sampling_mask"):
        batch.channel("x-none")
    with pytest.raises(headway.Invalid, match="max_len 2"):
        batch.channel("routed_experts").padded(max_len=2)


HEADER = '{"name":"x-a","dtype":"u8","row":[2],"align":"%s","rows":%d,"absent":0}'
ROWS = np.zeros((2, 2), dtype=np.uint8)


@pytest.mark.parametrize(
    ("parts", "rows", "align", "said"),
    [
        ([[0, 0, 2]], ROWS, "passes", None),
        ([[0, 1, 2]], ROWS, "passes", "rows 1 to 3 of sequence 0, which can have 2"),
        ([[0, 0, 2]], ROWS, "sampled", "which can have 1"),
        ([[1, 0, 2]], ROWS, "passes", "rows of sequence 1; the batch has 1"),
        ([[0, 0, 1], [0, 0, 1]], ROWS, "passes", "a row twice"),
        ([[0, 0, 1]], ROWS, "passes", "2 rows, its parts 1"),
        ([[0, 0, 2]], ROWS.astype(np.int32), "passes", "want u8"),
        ([[0, 0, 2]], ROWS[:, :1], "passes", "rows of"),
    ],
)  # fmt: skip
def test_bodies(parts: list[list[int]], rows: np.ndarray, align: str, said: str | None) -> None:
    arrays = {"parts": np.array(parts, dtype=np.int64), "rows": rows}
    file = File("body", arrays, {"headway": HEADER % (align, 2)})
    body = b"".join(file.chunks())
    sequences, mask = np.array([0, 3]), np.array([0, 0, 1], dtype=np.uint8)
    if said is None:
        assert channel.parse(body, sequences, mask).present().tolist() == [True, True, False]
        return
    with pytest.raises(headway.Invalid, match=said):
        channel.parse(body, sequences, mask)
