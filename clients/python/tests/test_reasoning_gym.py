"""The worker of examples/reasoning_gym, where that library is installed (make test-engines does)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import ROOT, Serve

import headway
from headway.claims import Worker

pytest.importorskip("reasoning_gym")
WORKER = ROOT / "examples" / "reasoning_gym" / "worker.py"
Start = Callable[..., Serve]


@pytest.fixture(scope="module")
def worker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reasoning_gym_worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def task(prompt: int, level: int, sample: int = 0, seed: int = 7) -> headway.Task:
    return headway.Task(f"g{prompt}-s{sample}-a1", "reasoning-gym", prompt, level, seed, prompt, sample, 1)


def test_problems(worker: ModuleType) -> None:
    """Siblings get the same, other prompts and seeds others; a right answer is worth 1, higher levels are longer."""
    names = ("chain_sum", "basic_arithmetic")
    lengths = []
    for level in range(1, 6):
        entries = []
        for prompt in range(1, 40):
            dataset, entry = worker.problem(names, 7, prompt, level)
            worker.problem.cache_clear()
            again = worker.problem(names, 7, prompt, level)[1]
            assert (again["question"], again["answer"]) == (entry["question"], entry["answer"])
            assert dataset.score_answer(entry["answer"], entry) == 1
            assert dataset.score_answer(None, entry) < 1
            entries.append(entry["question"])
        assert len(set(entries)) > 20
        assert entries != [worker.problem(names, 8, prompt, level)[1]["question"] for prompt in range(1, 40)]
        lengths.append(sum(map(len, entries)))
    assert lengths == sorted(lengths)
    assert worker.problem(names, 7, 1, 0)[1]["question"]


def test_what_is_refused(worker: ModuleType) -> None:
    worker.checked(["chain_sum"], 5)
    with pytest.raises(headway.Invalid, match=r"no task 'chain_sun'.*chain_sum"):
        worker.checked(["chain_sun"], 0)
    with pytest.raises(headway.Invalid, match="levels, and the run may ask for 100"):
        worker.checked(["chain_sum"], 100)
    refused = subprocess.run(
        [sys.executable, str(WORKER), "http://127.0.0.1:1", "--task", "nothing"], capture_output=True, text=True,
        check=False, env={"PYTHONPATH": str(ROOT / "clients" / "python" / "src")},
    )  # fmt: skip
    assert refused.returncode == 2
    assert "no task 'nothing'" in refused.stderr


#: Every task of the pinned version whose scoring evaluates the answer.
EVALUATED = [
    "binary_matrix", "countdown", "intermediate_integration", "n_queens", "polynomial_multiplication", "puzzle24",
    "simple_integration", "spiral_matrix", "string_insertion",
]  # fmt: skip


def test_evaluated_answers_are_refused(worker: ModuleType, tmp_path: Path) -> None:
    """Tasks that run code of the policy need the word that there is no boundary; others are as they were."""
    assert sorted(filter(worker.evaluates, worker.DATASETS)) == EVALUATED
    for name in EVALUATED:
        with pytest.raises(headway.Invalid, match=f"{name} evaluates answers as Python.*--boundary none"):
            worker.checked(["chain_sum", name], 0)
        worker.checked([name], 0, "none")
    dataset, entry = worker.problem(("string_insertion",), 7, 1, 0)
    left = tmp_path / "left"
    dataset.score_answer(f"open({str(left)!r}, 'w')", entry)
    assert left.exists(), "no answer is evaluated any more: the refusal can go"
    command = [sys.executable, str(WORKER), "http://127.0.0.1:1", "--task", "string_insertion"]
    env = {"PYTHONPATH": str(ROOT / "clients" / "python" / "src")}
    refused = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert refused.returncode == 2
    assert "--boundary none" in refused.stderr


def test_plays_a_run(serve: Start, worker: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims with the curriculum's levels, chats through the gateway, rewards by the library's scoring.

    HEADWAY_TEXT_DOCUMENT names a document whose engines read any text: the embedded ones read letters alone.
    """
    document = os.environ.get("HEADWAY_TEXT_DOCUMENT")
    if not document:
        pytest.skip("HEADWAY_TEXT_DOCUMENT names no document with engines that read any text")
    finished: list[tuple[int, dict[str, Any]]] = []
    stop = threading.Event()
    finish = Worker._finish

    def noting(self: Worker, played: headway.Task, said: dict[str, Any]) -> None:
        finished.append((played.level, said))
        finish(self, played, said)
        if len(finished) >= 8:
            stop.set()

    monkeypatch.setattr(Worker, "_finish", noting)
    server = serve(
        document, filter__curriculum__levels=3, filter__curriculum__explore=1, environment__name="reasoning-gym"
    )  # fmt: skip
    headway.work(server.url, worker.environment(["chain_sum"], True, 16), 8, worker="w", stop=stop)
    assert len(finished) >= 8
    for level, said in finished:
        assert 1 <= level <= 3
        assert "failed" not in said
        assert 0 <= said["reward"] <= 1
        assert "arithmetic problem" in said["prompt_text"]
