"""The snippets of the pages on the Python API, run one after another as a reader would."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from test_analysis import PLAN, SMALL

SNIPPET = re.compile(r"(<!-- needs ([\w ]+) -->\n)?```python\n(.*?)```", re.S)


def snippets(page: str) -> list[str]:
    """The Python of a page; what needs a library that is not installed is left out."""
    found = []
    for match in SNIPPET.finditer((ROOT / page).read_text()):
        for library in (match[2] or "").split(" and "):
            if library:
                pytest.importorskip(library)
        found.append(match[3])
    return found


def test_docs_python(binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_PROGRAM", str(binary))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "clients" / "python" / "src"))
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text(json.dumps({key: SMALL[key] for key in ("rollout", "train")}))
    Path("plan.yaml").write_text(json.dumps(PLAN))
    sets = ["--set=train.batch=32", "--set=rollout.concurrency=32", "--set=rollout.group_size=4"]
    words = ["run", "--dir", "runs", "--name", "a", "--steps", "30", "--no-dashboard", "--json"]
    subprocess.run([binary, *words, *sets], check=True, capture_output=True, timeout=120)
    first = [snippets(page)[0] for page in ("clients/python/README.md", "README.md")]
    code = "\n".join([*snippets("docs/python.md"), *first])
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "did you mean group_size" in done.stdout
    assert Path("sweep.png").stat().st_size > 1000
