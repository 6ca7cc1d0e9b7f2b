"""The worker of examples/verifiers_agent, where that library is installed."""

from __future__ import annotations

import importlib.util

import pytest
from conftest import ROOT

pytest.importorskip("verifiers.v1")
WORKER = ROOT / "examples" / "verifiers_agent" / "worker.py"


def test_a_harness_that_executes_code_is_refused() -> None:
    """The library's default harness gives the policy a shell: beside a process of this machine it does not start."""
    from verifiers.v1.harnesses.bash import BashHarnessConfig

    spec = importlib.util.spec_from_file_location("verifiers_agent_worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    assert worker.unbounded() == ""
    worker.HARNESS = BashHarnessConfig(id="bash")
    assert "the harness bash executes what the policy writes" in worker.unbounded()
    assert "--boundary none" in worker.unbounded()
