"""Digests of weights."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from headway import collective  # noqa: E402


class TestDigest:
    """Equal weights have equal digests, and others have others."""

    @staticmethod
    def of(**given: Any) -> str:
        held = collective.copied(collective.checked(given, "gloo"), torch.device("cpu"))
        return held.digest()

    def test_equal(self) -> None:
        w = torch.randn(3, 50)
        assert self.of(a=w, b=w) == self.of(b=w.clone(), a=w.T.contiguous().T) == self.of(a=w.numpy(), b=w)

    def test_others(self) -> None:
        w = torch.randn(64).view(torch.int32)
        w[0], w[40] = 5, 9
        swapped = w.clone()
        swapped[[0, 40]] = w[[40, 0]]
        signs = w.clone()
        signs[[1, 3]] ^= -(2**31)
        bit = w.clone()
        bit[63] ^= 1
        variants = [
            {"a": w}, {"a": swapped}, {"a": signs}, {"a": bit}, {"a": w.view(torch.float32)}, {"a": w.view(8, 8)},
            {"b": w}, {"a": w[:63]}, {"a": w, "b": w}, {"a": w[:0]},
        ]  # fmt: skip
        digests = [self.of(**{k: v for k, v in given.items()}) for given in variants]
        assert len(set(digests)) == len(digests)

    def test_chunks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two chunks that change places make another digest."""
        monkeypatch.setattr(collective, "_CHUNK", 4)
        w = torch.arange(16)
        assert self.of(a=w) != self.of(a=torch.cat([w[4:8], w[:4], w[8:]]))
