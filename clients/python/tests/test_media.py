"""Images of a batch: their places, their bytes, and a forward pass that leaves them out."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable

import numpy as np
import pytest

from headway import Batch, Invalid
from headway import batch as batches
from headway.media import MediumInfo, Processor

BYTES = [b"one image", b"another"]


def medium(sequence: int, offset: int, length: int, data: bytes = BYTES[0]) -> MediumInfo:
    sha = hashlib.sha256(data).hexdigest()
    return MediumInfo(sequence, offset, length, "image", sha, "image/png", len(data), Processor("tiny"))


def with_media(batch: Batch, *media: MediumInfo) -> Batch:
    found = dataclasses.replace(
        batch, metadata=dataclasses.replace(batch.metadata, media=media), _media={}, _views=None
    )
    batches.check(found)
    return found


def drawn(
    sequences: int = 24, prompt: int = 6, response: int = 12, pictured: Callable[[int], bool] = lambda r: True
) -> Batch:
    """A batch of one group, with an image in the prompts of some sequences."""
    draw = np.random.default_rng(1)
    length = prompt + response
    n = sequences * length
    mask = np.tile(np.repeat([0, 1], [prompt, response]), sequences).astype(np.uint8)
    metadata = batches.Metadata(
        lease=1, attempt=0, kind="train", version=3, deadline_s=60, rank=0, world_size=1, tokens=n,
        response_tokens=int(mask.sum()), rollouts=sequences, groups=1, sequences=sequences, staleness_mean=0.0,
        staleness_max=0, stamps=(), media=tuple(medium(r, 1, 4) for r in range(sequences) if pictured(r)),
    )  # fmt: skip
    return Batch(
        metadata=metadata, tokens=draw.integers(0, 50, n).astype(np.int32),
        offsets=np.arange(0, n + 1, length, dtype=np.int64), loss_mask=mask,
        logprobs=np.where(mask, -draw.exponential(1.5, n), 0).astype(np.float32),
        versions=np.where(mask, 3, -1).astype(np.int32), advantages=np.zeros(sequences, np.float32),
        rewards=np.zeros(sequences, np.float32), groups=np.zeros(sequences, np.int64),
        samples=np.arange(sequences, dtype=np.int32), rollouts=np.arange(sequences, dtype=np.int32),
    )  # fmt: skip


def blinded(batch: Batch, pictured: Callable[[int], bool] = lambda r: True) -> np.ndarray:
    """Log-probs of a model that misses the images: others for the tokens after one, equal for all others."""
    draw = np.random.default_rng(2)
    rows = np.repeat(np.arange(len(batch)), np.diff(batch.offsets))
    after = np.array([pictured(int(r)) for r in rows]) & (batch.loss_mask == 1)
    moved = np.minimum(batch.logprobs + draw.normal(0, 0.4, len(rows)), 0)
    return np.where(after, moved, batch.logprobs).astype(np.float32)


def test_bytes_come_once_and_late() -> None:
    asked = list[tuple[str, str]]()
    by_hash = {hashlib.sha256(data).hexdigest(): data for data in BYTES}

    def fetch(kind: str, name: str) -> bytes:
        asked.append((kind, name))
        return by_hash[name]

    batch = with_media(drawn(), medium(0, 0, 2), medium(0, 3, 2, BYTES[1]), medium(2, 1, 3))
    batch._fetch = fetch
    assert [m.sequence for m in batch.media] == [0, 0, 2] and not asked
    assert [m.bytes() for m in batch.media] == [BYTES[0], BYTES[1], BYTES[0]]
    assert len(asked) == 2 and {kind for kind, _ in asked} == {"media"}
    assert batch.media[0].processor.name == "tiny"


def test_other_bytes_are_refused() -> None:
    batch = with_media(drawn(), medium(0, 0, 2))
    batch._fetch = lambda kind, name: b"something else"
    with pytest.raises(Invalid, match="SHA-256"):
        batch.media[0].bytes()
    batch._fetch = None
    with pytest.raises(Invalid, match="lease"):
        batch.media[0].bytes()


@pytest.mark.parametrize(
    "media",
    [
        [medium(99, 0, 1)], [medium(-1, 0, 1)], [medium(0, 0, 0)], [medium(0, -1, 2)], [medium(0, 5, 2)],
        [medium(0, 0, 3), medium(0, 2, 1)], [medium(1, 0, 1), medium(0, 0, 1)], [medium(0, 17, 9)],
    ],
)  # fmt: skip
def test_places_that_cannot_be(media: list[MediumInfo]) -> None:
    with pytest.raises(Invalid, match="image"):
        with_media(drawn(), *media)


@pytest.mark.parametrize("every", [1, 2])
def test_a_blind_forward_pass_is_named(every: int) -> None:
    def pictured(r: int) -> bool:
        return r % every == 0

    batch = drawn(pictured=pictured)
    assert batch.compare(batch.logprobs).agrees
    found = batch.compare(blinded(batch, pictured))
    assert found.agrees is False and found.cause == "blind", found
    assert "token_mult_prob_error" in found.evidence
    assert "forward/cause/blind" in found.metrics()


def test_other_faults_are_not_called_blind() -> None:
    batch = drawn()
    batch._media = {"fetched": b""}
    assert batch.compare(blinded(batch)).cause != "blind"
    half = drawn(pictured=lambda r: r % 2 == 0)
    assert half.compare(blinded(half)).cause != "blind"
    assert drawn(pictured=lambda r: False).compare(blinded(drawn())).cause != "blind"
