"""The Python API over the real program: results, errors, warnings, interrupts."""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headway
import pytest
from headway import results
from headway.view import View

ROOT = Path(__file__).resolve().parents[3]
#: Small enough for a fraction of a second, and settled.
SMALL: dict[str, Any] = {
    "rollout": {"concurrency": 32, "group_size": 4}, "train": {"batch": 32},
    "modelled": {"train": {"utilization": 1.07}, "length": {"kind": "lognormal", "mean_tokens": 400, "tailness": 10}},
    "steps": {"measured": 400},
}  # fmt: skip
#: A plan over few settings.
PLAN: dict[str, Any] = {
    "rollout": {"group_size": 8}, "modelled": {"length": {"kind": "lognormal", "mean_tokens": 3000, "tailness": 60}},
    "hardware": {"model": "qwen3-8b", "gpu": "h100-sxm", "gpus": 8},
    "search": {
        "finalists": 1, "batch": [256], "rollout_gpus": [4], "slots_per_gpu": [32], "queue_factor": [1],
        "policies": ["drop"], "select": ["oldest"], "sync_every": [1],
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def _program(binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_PROGRAM", str(binary))


@pytest.fixture(scope="session")
def run(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory."""
    folder = tmp_path_factory.mktemp("runs")
    words = ["run", "--dir", str(folder), "--name", "a", "--steps", "30", "--no-dashboard", "--json"]
    sets = ["--set=train.batch=32", "--set=rollout.concurrency=32", "--set=rollout.group_size=4"]
    subprocess.run([binary, *words, *sets], check=True, capture_output=True, timeout=120)
    return folder / "a"


def undeclared(view: View, at: str = "") -> Iterator[str]:
    """Keys of a document that its type does not know, and values of another type."""
    named = view._names()
    for key, value in view.to_dict().items():
        kind = named.get(key, named.get(f"{key}_"))
        if kind is None:
            yield f"{at}.{key} is undeclared"
            continue
        shown = getattr(view, key if key in named else f"{key}_")
        scalar = {"int": int, "float": (int, float), "str": str, "bool": bool}.get(kind.removesuffix(" | None"))
        if scalar is not None and value is not None and not isinstance(value, scalar):
            yield f"{at}.{key} is {value!r}, and {kind} is declared"
        if value is None and kind in ("int", "str", "bool", "float"):
            yield f"{at}.{key} is null, and {kind} is declared"
        for inner in shown if isinstance(shown, list) else shown.values() if isinstance(shown, dict) else [shown]:
            if isinstance(inner, View):
                yield from undeclared(inner, f"{at}.{key}")


def test_predict_by_its_quantities() -> None:
    predicted = headway.predict(
        concurrency=128, batch=128, group=8, queue_factor=2, utilization=1.07, tail_multiplier=1.44
    )
    assert predicted.pqs == pytest.approx(1.3458, abs=1e-4)
    assert predicted.staleness.mean == pytest.approx(predicted.pqs + predicted.iqs)
    assert predicted.levers[0].name == "tail"
    assert list(undeclared(predicted)) == []


def test_simulate_a_dict_with_overrides() -> None:
    simulated = headway.simulate(SMALL, {"queue.factor": 2}, queue__select="newest", steps={"measured": 500})
    assert simulated.settled
    assert simulated.steps == 500
    assert 0 < simulated.staleness.mean < 10
    assert simulated.series[-1].staleness >= 0
    assert simulated.predicted.pqs is not None
    assert list(undeclared(simulated)) == []
    assert simulated == pickle.loads(pickle.dumps(simulated))


def test_simulate_a_file_is_the_program_itself(binary: Path, tmp_path: Path) -> None:
    file = tmp_path / "document.yaml"
    file.write_text(json.dumps(SMALL))
    done = subprocess.run([binary, "simulate", file, "--json"], capture_output=True, check=True, timeout=60)
    of_program, of_python = json.loads(done.stdout), headway.simulate(file).to_dict()
    for clock in ("wall_s", "events_per_s"):
        del of_program[clock], of_python[clock]
    assert of_python == of_program
    assert headway.simulate(SMALL).staleness == headway.simulate(file).staleness


def test_grid_over_keys_and_seeds() -> None:
    axes = {"queue.factor": [1, 2], "queue.select": ["oldest", "newest"]}
    made = headway.grid(SMALL, axes, seeds=2, accept_unsettled=True, steps__measured=120)
    assert [point.set["queue.factor"] for point in made.points] == ["1", "1", "2", "2"]
    assert {point.set["queue.select"] for point in made.points} == {"oldest", "newest"}
    assert len(made.runs) == 8
    assert made.points[0].staleness.mean == pytest.approx(
        sum(made.runs[seed].staleness.mean for seed in (0, 1)) / 2
    )
    assert list(undeclared(made)) == []
    assert len(headway.grid(SMALL, {"queue.factor": "1..3/1"}, steps__measured=120).points) == 3


def test_plan_recommends() -> None:
    made = headway.plan(PLAN, model="qwen3-8b", gpu="h100-sxm", budget=2)
    assert made.met
    assert made.recommended.rollout_gpus + made.recommended.train_gpus <= 8
    assert list(undeclared(made)) == []
    short = headway.plan(PLAN, budget=0.01)
    assert not short.met
    assert short.shortfall
    with pytest.raises(headway.Refused, match="too few"):
        headway.plan(gpus=2)


def test_the_program_warns_where_it_is_called() -> None:
    with pytest.warns(headway.HeadwayWarning, match="built-in example's") as caught:
        headway.plan(None, {f"search.{key}": value for key, value in PLAN["search"].items()}, gpus=8)
    assert caught[0].filename == __file__


def test_doctor_finds() -> None:
    found = headway.doctor(SMALL, queue__policy="max", queue__max_staleness=1, probe=False)
    assert len(found.findings) >= found.errors + found.warnings
    assert all(finding.code for finding in found.findings)
    assert list(undeclared(found)) == []


def test_runs_are_diagnosed_resimulated_and_compared(run: Path) -> None:
    found = headway.diagnose(run)
    assert found.source == "run"
    assert list(undeclared(found)) == []
    asked = headway.resimulate(run, arms=[{"queue.factor": 2}, {"queue": {"factor": 2, "select": "newest"}}])
    assert [arm.set for arm in asked.arms] == [["queue.factor=2"], ["queue.factor=2", "queue.select=newest"]]
    assert list(undeclared(asked)) == []
    beside = headway.compare([run, run])
    assert beside.runs[0].figures["staleness_mean"].value >= 0
    assert list(undeclared(beside)) == []


@pytest.mark.parametrize(
    ("document", "key", "says"),
    [
        ({"rollout": {"grop_size": 4}}, "rollout.grop_size", "did you mean group_size?"),
        ({"rollout": {"group_size": "many"}}, "rollout.group_size", '"many" is not allowed here (allowed: a whole'),
        ({"rollout": {"group_size": {1, 2}}}, "the document", "is of type set (allowed: None, booleans, finite"),
        ({"rollout": {"group_size": math.nan}}, "the document", "no value of a document"),
        ({"hardware": {"gpus": 0}}, "hardware.gpus", "0 is not allowed"),
        ({"budget": {"staleness_mean": -1}}, "budget.staleness_mean", "-1 is not allowed"),
    ],
)
def test_a_bad_document_is_refused_by_key(document: dict[str, Any], key: str, says: str) -> None:
    with pytest.raises(headway.Refused) as caught:
        headway.simulate(document)
    assert says in str(caught.value)
    assert caught.value.exit_code == 2
    fault = caught.value.faults[0]
    assert fault.key == key
    assert fault.file is None
    assert "/tmp" not in str(caught.value)


def test_a_bad_file_is_refused_by_line(tmp_path: Path) -> None:
    file = tmp_path / "document.yaml"
    file.write_text("seed: 1\nrollout:\n  grop_size: 4\n")
    with pytest.raises(headway.Refused) as caught:
        headway.simulate(file)
    assert (caught.value.faults[0].file, caught.value.faults[0].line) == (str(file), 3)
    with pytest.raises(headway.Refused, match="no-such-file: cannot be read"):
        headway.doctor(tmp_path / "no-such-file")


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(headway.Refused, match='"qwen9" is not known'):
        headway.plan(PLAN, model="qwen9")
    with pytest.raises(headway.Refused, match="0 is not allowed"):
        headway.plan(PLAN, gpus=0)
    with pytest.raises(headway.Refused, match="-1 is not allowed"):
        headway.plan(PLAN, budget=-1)
    with pytest.raises(headway.Refused, match="--queue-factor: 0"):
        headway.predict(concurrency=8, batch=8, queue_factor=0, utilization=1, tail_multiplier=1.2)
    with pytest.raises(headway.Refused, match="queue.factor: given twice"):
        headway.simulate(SMALL, {"queue.factor": 1}, queue__factor=2)
    with pytest.raises(headway.Refused, match="queue.factor: 3 is no list"):
        headway.grid(SMALL, {"queue.factor": 3})  # type: ignore[dict-item]
    with pytest.raises(headway.Refused, match="a grid needs a key"):
        headway.grid(SMALL, {})
    with pytest.raises(headway.Refused, match="no path given"):
        headway.diagnose([])
    with pytest.raises(headway.Refused, match="cannot be read"):
        headway.diagnose("no-such-run")
    with pytest.raises(headway.Refused, match="'concurency': did you mean concurrency"):
        headway.predict(concurency=128, batch=128, group=8, utilization=1.07, tail_multiplier=1.44)
    for wrong in (3, [3], None):
        with pytest.raises(headway.Refused, match="is no path"):
            headway.diagnose(wrong)  # type: ignore[arg-type]
    with pytest.raises(headway.Refused, match=r"\[1\] is no path"):
        headway.simulate([1])  # type: ignore[arg-type]


def test_unsettled_means_are_an_error_with_the_rest() -> None:
    with pytest.raises(headway.NotSettled, match="steps.measured") as caught:
        headway.simulate(SMALL, steps__measured=20)
    simulated = caught.value.result
    assert isinstance(simulated, results.Simulation)
    assert simulated.staleness.mean is None
    assert simulated.unsettled
    assert headway.simulate(SMALL, steps__measured=20, accept_unsettled=True).staleness.mean > 0


def test_attributes_say_what_there_is() -> None:
    found = headway.doctor(SMALL, probe=False)
    with pytest.raises(AttributeError, match="did you mean findings"):
        _ = found.finding
    assert {"findings", "errors", "frame"} <= set(dir(found))
    assert repr(found).startswith("Examination(findings=<")


LONG = """
import sys, headway
headway.simulate({document}, steps__measured=10_000_000, yes=True, progress=True)
"""


def started(binary: Path) -> subprocess.Popen[bytes]:
    """A Python process in the middle of a long simulation: its progress was shown."""
    process = subprocess.Popen(
        [sys.executable, "-c", LONG.format(document=SMALL)], stderr=subprocess.PIPE,
        env={**os.environ, "HEADWAY_PROGRAM": str(binary), "PYTHONPATH": str(Path(headway.__file__).parents[1])},
    )  # fmt: skip
    assert process.stderr is not None
    assert b"steps" in process.stderr.readline()
    return process


def children(process: subprocess.Popen[bytes]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_call_leaves_no_child(binary: Path, how: signal.Signals) -> None:
    process = started(binary)
    child = os.pidfd_open(children(process)[0])
    process.send_signal(how)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == (-how if how == signal.SIGKILL else -signal.SIGINT)
    assert (b"KeyboardInterrupt" in said) == (how == signal.SIGINT)
    import select

    assert select.select([child], [], [], 30)[0], "the program goes on without its caller"
    os.close(child)


def test_a_program_that_dies_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for body, says in (("kill -9 $$", "was ended by signal 9"), ("echo oops >&2; exit 3", "ended with exit code 3")):
        program = tmp_path / "headway"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        monkeypatch.setenv("HEADWAY_PROGRAM", str(program))
        with pytest.raises(headway.Died, match=says) as caught:
            headway.simulate(SMALL)
    assert caught.value.log == "oops"


def test_a_run_is_loaded(run: Path) -> None:
    loaded = headway.load(run)
    assert (loaded.source, loaded.ended, loaded.name) == ("live", True, "a")
    assert loaded.figures["staleness_mean"].value >= 0
    assert loaded.config["train"]["batch"] == 32
    assert [row["step"] for row in loaded.metrics] == list(range(1, 31))
    assert loaded.resimulate(queue__factor=2).arms[0].set == ["queue.factor=2"]
    assert loaded.diagnose(quick=True).run == str(run)
    assert list(undeclared(loaded)) == []
    assert "train steps" in loaded._repr_html_()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 31, "ti')  # a run that goes on
    assert len(headway.load(run).metrics) == 30
    with pytest.raises(headway.Refused, match="metrics.jsonl: cannot be read"):
        _ = headway.load(trace_of(run)).metrics


def trace_of(run: Path) -> Path:
    """The file of a run's trace."""
    return next(path for path in run.iterdir() if path.name.startswith("trace."))
