"""Digests of weights."""

from __future__ import annotations

import threading
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


class TestFirstBroadcast:
    """A communicator of NCCL that is never made, as of an engine that is gone."""

    class Members:
        """The first broadcast waits for an engine; all others begin at once."""

        def __init__(self) -> None:
            self.engine, self.begun, self.aborted = threading.Event(), 0, False

        def broadcast(self, tensors: list[Any], options: Any) -> Any:
            del tensors, options
            self.begun += 1
            assert self.engine.wait(60)
            return self

        def is_completed(self) -> bool:
            return True

        def wait(self) -> None:
            if self.aborted:
                raise RuntimeError("aborted")

        def abort(self) -> None:
            self.aborted = True
            self.engine.set()

    @staticmethod
    def held() -> collective.Held:
        return collective.copied({f"w{i}": torch.ones(2) for i in range(3)}, torch.device("cpu"))

    def test_timeout(self) -> None:
        members = self.Members()
        group = collective.Group("nccl", members, None, 0.05)
        with pytest.raises(TimeoutError, match="took nothing"):
            group.broadcast(self.held(), threading.Event())
        group.part()
        assert members.aborted
        assert members.begun == 1

    def test_given_up(self) -> None:
        members, stop = self.Members(), threading.Event()
        stop.set()
        with pytest.raises(collective.GivenUp):
            collective.Group("nccl", members, None, 60).broadcast(self.held(), stop)
        members.engine.set()

    def test_an_engine_that_comes(self) -> None:
        members = self.Members()
        members.engine.set()
        group = collective.Group("nccl", members, None, 60)
        group.broadcast(self.held(), threading.Event())
        group.broadcast(self.held(), threading.Event())
        assert members.begun == 6

    def test_its_error(self) -> None:
        """What the call raises is raised where it is waited for."""
        members = self.Members()
        members.broadcast = lambda *_: (_ for _ in ()).throw(RuntimeError("Duplicate GPU"))  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="Duplicate GPU"):
            collective.Group("nccl", members, None, 60).broadcast(self.held(), threading.Event())
