"""What a call from Python costs beside the bare program: the median over alternating calls of both.

    make bench-python

The bare program is started with the same arguments, its output read and thrown away. The limit is that of the
project: 150 ms. Exit code 1 where a call costs more.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import headway
from headway.program import program

LIMIT_MS = 150.0
DOCUMENT = """
rollout: {concurrency: 32, group_size: 4}
train: {batch: 32}
modelled: {train: {utilization: 1.07}, length: {kind: lognormal, mean_tokens: 400, tailness: 10}}
steps: {measured: 1500}
"""
QUANTITIES = {
    "concurrency": 128, "batch": 128, "group": 8, "queue_factor": 2, "utilization": 1.07, "tail_multiplier": 1.44,
}  # fmt: skip


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of a call."""
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def bare(arguments: list[str]) -> Callable[[], object]:
    """The program alone."""
    words = [str(program()), *arguments, "--json"]
    return lambda: subprocess.run(words, capture_output=True, check=True)


def main() -> int:
    """Measure, print a table, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=21, help="calls of each, in turn")
    said = parser.parse_args()
    worst = 0.0
    print(f"{'call':24}{'bare ms':>10}{'Python ms':>12}{'cost ms':>10}   median of {said.calls}, in turn")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "document.yaml"
        file.write_text(DOCUMENT)
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in QUANTITIES.items()]
        for name, program_alone, from_python in (
            ("predict", bare(["predict", *flags]), lambda: headway.predict(**QUANTITIES)),  # type: ignore[arg-type]
            ("simulate, 1,500 steps", bare(["simulate", str(file)]), lambda: headway.simulate(file).staleness.mean),
            ("doctor", bare(["doctor", "--no-probe", str(file)]), lambda: headway.doctor(file, probe=False)),
        ):
            program_alone(), from_python()  # neither begins with files that are read for the first time
            alone, python = [], []
            for _ in range(said.calls):
                alone.append(timed(program_alone))
                python.append(timed(from_python))
            cost = statistics.median(python) - statistics.median(alone)
            worst = max(worst, cost)
            print(f"{name:24}{statistics.median(alone):10.1f}{statistics.median(python):12.1f}{cost:10.1f}")
    if worst > LIMIT_MS:
        print(f"a call costs {worst:.1f} ms, more than {LIMIT_MS:g}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
