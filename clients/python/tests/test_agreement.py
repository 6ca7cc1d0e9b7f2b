"""A trainer's forward pass beside a real engine's: honest ones agree, and each way to break one has its cause found."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Serve
from test_batch import golden

import headway

Start = Callable[..., Serve]
LETTERS, HEADS = 3, 2
NOTEBOOK = ROOT / "examples" / "notebooks" / "write_a_trainer.ipynb"


def policy(**changes: str) -> dict[str, Any]:
    """The functions of the notebook's policy, with pieces of its text replaced by others."""
    cells = ["".join(c["source"]) for c in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]]
    text = next(c for c in cells if "def forward" in c).partition("\n\n\n")[2]
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    names: dict[str, Any] = {"np": np, "HEADS": HEADS, "random": np.random.default_rng(0)}
    exec(text, names)
    return names


def changed(before: str, after: str) -> dict[str, Any]:
    return policy(**{before: after})


class Case:
    """A batch as the engine sampled it, with the weights that sampled it."""

    def __init__(self, batch: headway.Batch, weights: dict[str, Any]) -> None:
        self.batch, self.weights, self.rows = batch, weights, batch.padded()
        self.tokens = self.rows["tokens"]
        self.first = LETTERS + 2 - self.rows["prompts"]  # shorter prompts begin later

    def logits(self, names: dict[str, Any] | None = None, **instead: Any) -> Any:
        given = {"w": self.weights, "tokens": self.tokens, "first": self.first} | instead
        return (names or policy())["forward"](given["w"], given["tokens"], given["first"])[0]

    def log_probs(self, logits: Any) -> Any:
        scores = logits[:, :-1] - np.log(np.exp(logits[:, :-1]).sum(-1, keepdims=True))
        found = np.zeros(self.tokens.shape, np.float32)
        found[:, 1:] = np.take_along_axis(scores, self.tokens[:, 1:, None], -1)[..., 0]
        return found


def rounded(array: Any, bits: int) -> Any:
    """The array with so many bits of mantissa after the first: 7 of bfloat16, 3 of float8."""
    mantissa, exponent = np.frexp(array)
    return np.ldexp(np.round(mantissa * 2 ** (bits + 1)) / 2 ** (bits + 1), exponent).astype(np.float32)


def integers(array: Any, largest: int) -> Any:
    """The array by integers up to a largest, times one scale."""
    scale = max(float(np.abs(array).max()), 1e-9) / largest
    return (np.round(array / scale) * scale).astype(np.float32)


@pytest.fixture(scope="module")
def first(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The first batch of a run: its tokens are of the version in training."""
    settings = {
        "train.batch": 128, "rollout.group_size": 8, "rollout.concurrency": 64, "model.layers": 1, "model.width": 32,
        "model.heads": HEADS, "environment.letters_max": LETTERS, "trainer.steps": 4,
    }  # fmt: skip
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    server = Serve(binary, tmp_path_factory.mktemp("runs"), sets)
    try:
        with headway.connect(server.url) as hw:
            weights = hw.load()
            batch = hw.lease()
            hw.nack(batch, "it is looked at")
    finally:
        server.stop()
    assert (batch.versions[batch.loss_mask == 1] == 0).all()
    batch._renewal = batch._fetch = None
    return Case(batch, weights)


@pytest.fixture
def case(first: Case) -> Case:
    """A copy, to be changed."""
    return copy.deepcopy(first)


def broken(case: Case) -> dict[str, Any]:
    """Log-probs of trainers that each have one mistake, by the cause that is to be found."""
    logits, honest = case.logits(), case.log_probs(case.logits())
    template = case.tokens.copy()
    template[np.arange(len(template)), case.rows["prompts"] - 1] = 3  # the prompt's last token is another
    own = np.take_along_axis(logits - np.log(np.exp(logits).sum(-1, keepdims=True)), case.tokens[..., None], -1)
    drop = "a = a * (random.random(a.shape) > 0.5) * 2; x = x + a @"
    other = {k: w if "norm" in k else np.random.default_rng(1).permuted(w) for k, w in case.weights.items()}
    return {
        "positions": case.log_probs(case.logits(first=np.zeros_like(case.first))),
        "temperature": case.log_probs(logits / 1.1),
        "template": case.log_probs(case.logits(tokens=template)),
        "precision": case.log_probs(case.logits(w={k: integers(w, 3) for k, w in case.weights.items()})),
        "off_by_one": np.roll(honest, 1, axis=1),
        "future": own[..., 0],  # the logits at i are for token i + 1
        "random": case.log_probs(case.logits(changed("x = x + a @", drop))),
        "weights": case.log_probs(case.logits(w=other) * 4),
        "unknown": case.log_probs(case.logits(first=case.first + 1)),
    }


def test_an_honest_forward_pass_agrees(case: Case) -> None:
    """In float32, in bfloat16 (weights and logits), in float8, and with an error of every log-prob that is small."""
    bfloat = {k: rounded(w, 7) for k, w in case.weights.items()}
    exact = case.log_probs(case.logits())
    found = {
        "float32": case.batch.compare(exact),
        "bfloat16": case.batch.compare(case.log_probs(rounded(case.logits(w=bfloat), 7))),
        "float8": case.batch.compare(case.log_probs(case.logits(w={k: rounded(w, 3) for k, w in bfloat.items()}))),
        "noise": case.batch.compare(np.minimum(exact + np.random.default_rng(0).normal(0, 0.05, exact.shape), 0)),
    }
    print({k: str(v) for k, v in found.items()})  # pytest -s shows them
    assert all(a.agrees and not a.cause for a in found.values()), found
    assert found["float32"].difference < 1e-5
    assert found["bfloat16"].difference < 0.01
    assert found["float32"].metrics()["forward/agrees"] == 1


def test_each_mistake_has_its_cause(case: Case) -> None:
    wrong = broken(case)
    found = {cause: case.batch.compare(log_probs) for cause, log_probs in wrong.items()}
    for cause, a in found.items():
        print(f"{cause:12s} {a}")
    assert {cause: a.cause for cause, a in found.items()} == {cause: cause for cause in wrong}
    assert "1.10 times" in found["temperature"].evidence
    assert found["temperature"].metrics()["forward/cause/temperature"] == 1
    assert found["temperature"].metrics()["forward/agrees"] == 0


def test_a_cut_distribution(case: Case) -> None:
    """An engine that samples from the likelier tokens alone says log-probs that a softmax does not have."""
    logits = case.logits()
    scores = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    kept = np.where(scores > 0.05, scores, 0)
    missing = np.zeros(case.tokens.shape)
    missing[:, 1:] = np.log(kept.sum(-1))[:, :-1]
    there = case.rows["attention"] == 1
    sampled = case.batch.loss_mask == 1
    case.batch.logprobs = np.where(
        sampled, np.minimum(case.batch.logprobs - missing[there], 0), 0).astype(np.float32)  # fmt: skip
    a = case.batch.compare(case.log_probs(logits))
    assert (a.agrees, a.cause) == (False, "cut"), str(a)


def test_older_tokens_clear_and_do_not_convict(case: Case) -> None:
    """A policy that learns fast is as far from the version before as a wrong one is."""
    exact = case.log_probs(case.logits())
    object.__setattr__(case.batch.metadata, "version", 1)
    a = case.batch.compare(exact)
    assert (a.agrees, a.lag) == (True, 1)
    a = case.batch.compare(case.log_probs(case.logits(first=case.first + 1)))
    assert (a.agrees, a.cause) == (None, "")
    assert a.difference > 0.1


def test_both_forms(case: Case) -> None:
    """Packed and padded log-probs are the same, whatever stands where no token was sampled."""
    exact = case.log_probs(case.logits())
    packed = exact[case.rows["attention"] == 1]
    loose = np.pad(np.where(case.rows["loss_mask"] == 1, exact, np.nan), ((0, 0), (0, 5)))
    assert case.batch.compare(packed) == case.batch.compare(exact) == case.batch.compare(loose)


def test_bad_input() -> None:
    batch = golden("whole")
    zeros = np.zeros(len(batch.tokens), np.float32)
    nan, above = zeros.copy(), zeros.copy()
    nan[4], above[3] = np.nan, 2
    for wrong, match in (
        (zeros[:-1], r"shape \[\d+\]: want \[18\], packed as batch.tokens, or \[3, 6 or more\]"),
        (np.zeros((3, 5)), r"shape \[3, 5\]"),
        (np.zeros((2, 6)), r"shape \[2, 6\]"),
        (np.zeros((3, 6, 9)), r"shape \[3, 6, 9\]"),
        (nan, "sequence 0, token 4 is nan, which is not finite"),
        (above, "sequence 0, token 3 is 2, which is above 0: want log-probs, not logits"),
        (np.zeros(len(zeros), np.int64), "int64: want floating point"),
        ("no array", "want a numpy, torch or jax array"),
    ):
        with pytest.raises(headway.Invalid, match=match):
            batch.compare(wrong)
    a = batch.compare(zeros)
    assert (a.agrees, a.cause) == (None, ""), "nine tokens are too few to say"
    assert golden("empty").compare(np.zeros(0)).tokens == 0


def test_it_is_said(
    binary: Path, serve: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer that compares nothing hears of it once; a wrong one hears why, once, and so do all who look at the run.

    Its forward pass is wrong from version 3 on. The weights do not change, so that every batch is called fresh,
    but for the last: older tokens do not clear a trainer.
    """
    monkeypatch.setenv("HEADWAY_PROGRAM", str(binary))
    server = serve(
        "--steps", "6", train__batch=64, model__layers=1, model__width=32, model__heads=HEADS,
        environment__letters_max=LETTERS,
    )  # fmt: skip
    said = []
    with headway.connect(server.url) as hw, caplog.at_level(logging.WARNING, "headway.client"):
        weights = hw.load()
        for batch in hw.batches():
            case = Case(batch, weights)
            if batch.version:
                last = batch.version == 5
                batch.versions[batch.loss_mask == 1] = batch.version - last
                a = batch.compare(case.log_probs(case.logits() / (1.3 if batch.version > 2 and not last else 1)))
                assert a.agrees == (batch.version < 3 or last)
            status = hw._transport.get("/api/v1/status")
            assert status.get("forward", {}).get("code") == ("temperature" if batch.version > 3 else None)
            hw.publish(batch, weights, metrics={"mine": 1.0})
            said.append([r.getMessage() for r in caplog.records])
            caplog.clear()
    assert "batch.compare" in said[0][0]
    assert "version 3: trainer and engines do not compute the same" in said[3][0]
    assert "Likely temperature: divide the logits" in said[3][0]
    assert [len(s) for s in said] == [1, 0, 0, 1, 0, 0]
    heard = [line for line in server.output if "nats off the engines" in line]
    assert len(heard) == 1
    assert "at version 3" in heard[0]
    server.end()
    findings = headway.load(tmp_path / "runs" / "serve").diagnose().findings
    finding = next(f for f in findings if f.code == "forward_pass")
    assert "Likely temperature" in finding.evidence[0]
    assert "2 of 4" in finding.evidence[1]
