"""What `headway init` writes trains: its own programs, started as its README says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, SMALL, Serve

slow = pytest.mark.learning  # test_learning runs the same train.py in a few steps


@pytest.mark.parametrize(
    ("trainer", "environment", "library"),
    [
        ("embedded", "python", "httpx"),
        ("embedded", "agent", "openai"),
        pytest.param("torch", "python", "torch", marks=slow),
        pytest.param("jax", "python", "jax", marks=slow),
    ],
)
def test_init_trains(binary: Path, tmp_path: Path, trainer: str, environment: str, library: str) -> None:
    pytest.importorskip(library)
    project = tmp_path / "new"
    flags = ["--trainer", trainer, "--engine", "embedded", "--environment", environment]
    subprocess.run([binary, "init", project, *flags], check=True, capture_output=True, timeout=60)
    sets = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    server = Serve(binary, tmp_path / "runs", [str(project / "run.yaml"), "--steps", "3", *sets])
    programs = [["-m", "headway.worker", "environment:words", server.url, "--concurrency", "16"]]
    if trainer != "embedded":
        programs.append(["train.py", "--url", server.url, "--evaluate-every", "2"])
    env = os.environ | {"PYTHONPATH": str(ROOT / "clients" / "python" / "src")}
    started = [
        subprocess.Popen([sys.executable, *p], cwd=project, env=env, stderr=subprocess.PIPE, text=True)
        for p in programs
    ]
    try:
        said = [process.communicate(timeout=120)[1] for process in started]
    finally:
        for process in started:
            process.kill()
        server.stop()
    assert [process.returncode for process in started] == [0] * len(started), "\n".join([*said, *server.output])
    assert "rollouts finished" in said[0]
    assert any("finished at version 3 of 3" in line or "the run has ended" in line for line in server.output)
