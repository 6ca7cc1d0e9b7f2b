"""Batches: the golden bodies of the server's own tests, the padded form, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty import body

import headway
from headway.batch import parse

GOLDEN = Path(__file__).resolve().parents[3] / "train" / "batch" / "testdata"


def golden(name: str) -> headway.Batch:
    return parse((GOLDEN / f"{name}.safetensors").read_bytes())


def test_whole() -> None:
    batch = golden("whole")
    assert (batch.lease, batch.attempt, batch.version, len(batch)) == (3, 1, 12, 3)
    assert [(s.group, s.start_version, s.ready_version) for s in batch.metadata.stamps] == [(1, 10, 11), (4, 10, 11)]
    rollouts = list(batch)
    assert [(r.group, r.sample) for r in rollouts] == [(1, 0), (1, 1), (4, 0)]
    assert [r.reward for r in rollouts] == [0, 1, 0]
    np.testing.assert_allclose([r.advantage for r in rollouts], [-1, 1, 0])
    assert rollouts[1].tokens.tolist() == [1, 2, 3, 4, 5, 7]
    assert rollouts[0].loss_mask.tolist() == [0, 0, 0, 1, 1, 1]
    assert rollouts[2].logprobs.tolist() == [0, 0, 0, -0.5, -1.25, -3]
    assert rollouts[2].versions.tolist() == [-1, -1, -1, 10, 10, 11]


def test_branches() -> None:
    """A rollout that left several sequences has each as a row, and counts once where it is to."""
    batch = golden("branched")
    assert (len(batch), batch.metadata.rollouts, batch.metadata.sequences) == (5, 4, 5)
    assert batch.rollouts.tolist() == [0, 1, 1, 2, 3]
    assert [[s.tokens.tolist() for s in sequences] for sequences in batch.by_rollout()][:2] == [
        [[1, 2, 3, 4, 5, 6]], [[1, 2, 3], [4, 5, 7]],
    ]  # fmt: skip
    assert [{s.advantage for s in sequences} for sequences in batch.by_rollout()] == [{-1}, {1}, {-1}, {1}]
    assert batch.sequence_weights().tolist() == [1, 0.5, 0.5, 1, 1]
    assert batch.padded()["loss_mask"].sum(axis=1).tolist() == [3, 1, 1, 3, 3]
    plain = golden("whole")
    assert plain.rollouts.tolist() == [0, 1, 2]
    assert plain.metadata.sequences == plain.metadata.rollouts == 3
    assert plain.sequence_weights().tolist() == [1, 1, 1]
    assert golden("empty").sequence_weights().tolist() == []
    assert list(golden("empty").by_rollout()) == []


def test_agents() -> None:
    """Every sequence says who speaks in it; what is not trained is not there."""
    batch = golden("agents")
    assert batch.metadata.agents == ("critic", "solver")
    assert batch.agents.tolist() == ["critic", "solver", "", ""]
    assert [r.agent for r in batch] == ["critic", "solver", "", ""]
    assert batch.tokens[batch.offsets[1] : batch.offsets[2]].tolist() == [4, 5, 7]
    assert batch.metadata.response_tokens == int(batch.loss_mask.sum())
    assert golden("whole").agents.tolist() == ["", "", ""]
    for codes in (None, np.array([0, 1, -1, 2], np.int32), np.array([0, 1], np.int32)):
        batch._agents = codes
        with pytest.raises(headway.Invalid, match="agent"):
            headway.batch.check(batch)


def test_shares() -> None:
    """The shares of all ranks are the whole, in groups; each says the whole's figures."""
    batch, shares = golden("whole"), [golden(n) for n in ("share0", "share1", "empty")]
    assert [s.metadata.rank for s in shares] == [0, 1, 2]
    assert sorted(g for s in shares for g in s.groups.tolist()) == sorted(batch.groups.tolist())
    for share in shares:
        assert share.metadata.tokens == batch.metadata.tokens == len(batch.tokens)
        assert share.metadata.response_tokens == int(batch.loss_mask.sum())
    empty = shares[2]
    assert len(empty) == 0
    assert list(empty) == []
    assert empty.padded()["tokens"].shape == (0, 0)
    assert empty.padded(4)["tokens"].shape == (0, 4)


def test_padded() -> None:
    rows = parse(body()).padded()
    assert rows["tokens"].tolist() == [[0, 5, 1, 7, 2, 0], [0, 5, 1, 9, 0, 0], [0, 6, 4, 1, 4, 2], [0, 6, 4, 1, 2, 0]]
    assert rows["attention"].sum(axis=1).tolist() == rows["lengths"].tolist() == [5, 4, 6, 5]
    assert rows["prompts"].tolist() == [3, 3, 4, 4]
    assert rows["versions"][0].tolist() == [-1, -1, -1, 3, 3, -1]
    assert rows["advantages"][2].tolist() == [0, 0, 0, 0, 0.5, 0.5]
    assert rows["logprobs"][1].tolist() == [0, 0, 0, -0.25, 0, 0]
    assert parse(body()).padded(9)["tokens"].shape == (4, 9)
    with pytest.raises(headway.Invalid, match="sequence 2 has 6 tokens, more than max_len 5"):
        parse(body()).padded(5)


def test_token_advantages() -> None:
    batch = parse(body())
    assert batch.token_advantages().tolist() == [0, 0, 0, 1, 1, 0, 0, 0, -1, 0, 0, 0, 0, 0.5, 0.5, 0, 0, 0, 0, -0.5]


def put(name: str, at: int, value: float) -> dict[str, Any]:
    array = getattr(parse(body()), name).copy()
    array[at] = value
    return {name: array}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (put("logprobs", 8, np.nan), r"sequence 1 \(group 7, sample 1\), token 3: a log-prob that is not finite"),
        (put("logprobs", 8, 0.5), "a log-prob above 0"),
        (put("advantages", 2, np.inf), "sequence 2 has advantages that are not finite"),
        (put("rewards", 0, np.nan), "sequence 0 has rewards that are not finite"),
        (put("tokens", 10, -4), "sequence 2 .* token 1: a negative id"),
        (put("versions", 8, 4), "version from the future: the step starts from 3"),
        (put("versions", 8, -1), "no version"),
        (put("loss_mask", 0, 2), "neither 0 nor 1"),
        (put("offsets", 1, 9), "do not divide"),
        (put("offsets", 4, 19), "do not divide"),
        ({"tokens": np.zeros(19, np.int32)}, "has 20 entries, want 19"),
        ({"rewards": np.zeros(3, np.float32)}, "want 4|want 3"),
        ({"tokens": np.zeros(20, np.int64)}, "want int32 of one dimension"),
        ({"groups": np.zeros((4, 1), np.int64)}, "want int64 of one dimension"),
        ({"rollouts": np.array([0, 1, 3, 4], np.int32)}, "not numbered from 0"),
        ({"rollouts": np.array([1, 2, 3, 4], np.int32)}, "not numbered from 0"),
        ({"rollouts": np.array([0, 1, 0, 1], np.int32)}, "not numbered from 0"),
        (
            {"rollouts": np.array([0, 1, 1, 2], np.int32)},
            "sequence 2 is of the rollout before it, and has other groups",
        ),
        ({"rollouts": np.array([0, 1], np.int32)}, "rollouts has 2 entries, want 4"),
        ({"samples": None}, "no tensor 'samples'"),
        ({"lease": {"version": None}}, "version|lease"),
    ],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(headway.Invalid, match=message):
        parse(body(**changes))


def test_no_header() -> None:
    content = body().replace(b'"headway"', b'"heedway"')
    with pytest.raises(headway.Invalid, match="says nothing of its lease"):
        parse(content)
