"""The notebooks of examples/notebooks, executed cell by cell as a reader would, without a kernel around them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

FOLDER = ROOT / "examples" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
# A cell's last expression is shown, as a notebook does: a result by its HTML.
RUNNER = """
import ast, json, sys, time
names = {"__name__": "__main__"}
for at, cell in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cells"]):
    if cell["cell_type"] != "code":
        continue
    began = time.monotonic()
    parsed = ast.parse("".join(cell["source"]), f"{sys.argv[1]}, cell {at}")
    last = parsed.body.pop() if isinstance(parsed.body[-1], ast.Expr) else None
    exec(compile(parsed, f"cell {at}", "exec"), names)
    if last is not None:
        shown = eval(compile(ast.Expression(last.value), f"cell {at}", "eval"), names)
        if shown is not None:
            print(getattr(shown, "_repr_html_", lambda: repr(shown))())
    print(f"cell {at}: {time.monotonic() - began:.1f} s", file=sys.stderr)
"""


def test_there_are_four() -> None:
    assert NOTEBOOKS == [
        "compare_queue_rules.ipynb", "plan_a_cluster.ipynb", "understand_a_run.ipynb", "write_a_trainer.ipynb",
    ]  # fmt: skip


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(binary: Path, tmp_path: Path, name: str) -> None:
    for cell in json.loads((FOLDER / name).read_text(encoding="utf-8"))["cells"]:
        assert cell["cell_type"] != "code" or (cell["outputs"], cell["execution_count"]) == ([], None), (
            f"{name} has outputs: clear them"
        )
    if name != "write_a_trainer.ipynb":  # which uses numpy alone
        pytest.importorskip("matplotlib")
        pytest.importorskip("pandas")
    environment = {
        "HEADWAY_PROGRAM": str(binary), "PYTHONPATH": str(ROOT / "clients" / "python" / "src"), "MPLBACKEND": "Agg",
        "OPENBLAS_NUM_THREADS": "1",  # matrices this small are not worth a second thread
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, str(FOLDER / name)], cwd=tmp_path, env={**os.environ, **environment},
        capture_output=True, text=True, check=False, timeout=550,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    print(done.stdout, done.stderr)  # pytest -s shows them
    if name == "write_a_trainer.ipynb":
        found = re.search(r"reward ([\d.]+) → ([\d.]+)", done.stdout)
        assert found and float(found[2]) > 2 * float(found[1]), "the trainer learns nothing"
