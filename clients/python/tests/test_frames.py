"""Results as frames, pictures and notebook views: with each library, and without any."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import headway
import pytest
from test_analysis import SMALL

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _program(binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_PROGRAM", str(binary))


@pytest.fixture(scope="module")
def swept(binary: Path) -> headway.results.Grid:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_PROGRAM", str(binary))
        axes = {"queue.factor": [1, 2], "queue.select": ["oldest", "newest"]}
        return headway.grid(SMALL, axes, accept_unsettled=True, steps__measured=120)


def test_a_grid_is_a_frame_of_either_library(swept: headway.results.Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as only:
        only.setitem(sys.modules, "polars", None)  # as if it were not installed
        frame = swept.frame()
        assert isinstance(frame, pandas.DataFrame)
        assert list(frame["set.queue.factor"]) == ["1", "1", "2", "2"]
        assert frame["staleness.mean"].min() > 0
    with monkeypatch.context() as only:
        only.setitem(sys.modules, "pandas", None)
        frame = swept.frame("runs")
        assert isinstance(frame, polars.DataFrame)
        assert frame["pqs.mean"].len() == 4
        with pytest.raises(headway.Refused, match="'run' is no list of Grid; it has points, runs"):
            swept.frame("run")


WITHOUT = """
import sys
for name in ("pandas", "polars", "matplotlib"):
    sys.modules[name] = None
import headway
found = headway.predict(concurrency=8, batch=8, utilization=1.1, tail_multiplier=1.3)
for call in (found.frame, found.plot):
    try:
        call()
    except headway.MissingLibrary as error:
        print(error)
"""


def test_without_libraries_the_error_names_them() -> None:
    environment = {"PYTHONPATH": str(Path(headway.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "a frame needs pandas or polars, and neither is installed: pip install pandas, or polars",
        "a plot needs matplotlib, which is not installed: pip install matplotlib",
    ]


def test_results_have_pictures_and_tables(swept: headway.results.Grid) -> None:
    simulated = headway.simulate(SMALL)
    predicted = headway.predict(concurrency=8, batch=8, utilization=1.1, tail_multiplier=1.3)
    examined = headway.doctor(SMALL, probe=False)
    labels = {}
    for result in (simulated, predicted, examined, swept):
        labels[type(result).__name__] = result.plot().get_xlabel()
        assert "<table>" in result._repr_html_()
    assert labels == {
        "Simulation": "train step", "Prediction": "mean staleness in versions after the change",
        "Examination": "findings", "Grid": "queue.factor",
    }  # fmt: skip
    lines = [line.get_xdata() for line in swept.plot().get_lines()]
    assert [list(xs) for xs in lines if len(xs) == 2][:2] == [[1, 2], [1, 2]]
    assert f"{simulated.staleness.mean:.4g}" in simulated._repr_html_()
    assert "<script>" not in headway.frames.table([{"a": "<script>"}])
