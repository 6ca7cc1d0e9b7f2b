"""A trainer without a model: it perturbs the weights and publishes them. It learns nothing.

It is for trying out a control plane, and for checking one: with --journal every batch that it got and every
version that it published is a line of JSON on disk, synced before it goes on, for a checker that trusts
neither side. A line is {"event": "connected"|"leased"|"publishing"|"published"|"lost", …}.
"""

import argparse
import json
import os
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import headway


class Journal:
    """JSON lines that survive the end of this process, each synced."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a", encoding="utf-8") if path else None  # noqa: SIM115

    def write(self, event: str, **fields: Any) -> None:
        """Append one line."""
        if self._file is not None:
            self._file.write(json.dumps({"event": event, "pid": os.getpid(), "time": time.time(), **fields}) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())


def perturbed(array: NDArray[Any], rng: np.random.Generator, scale: float) -> NDArray[Any]:
    """An array with normal noise of a standard deviation, in its own type."""
    found = headway.widen(array) + scale * rng.standard_normal(array.shape)
    return headway.narrow(found) if isinstance(array, headway.BFloat16) else found.astype(array.dtype)


def main(arguments: list[str] | None = None) -> int:
    """Train until the run has ended, or for --steps; return the number of versions published."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:7070")
    parser.add_argument("--trainer", default="trainer", help="the trainer's name")
    parser.add_argument("--journal", default="", help="file that gets a line of JSON for every event")
    parser.add_argument("--steps", type=int, default=0, help="stop after so many versions (default: with the run)")
    parser.add_argument("--step-s", type=float, default=0.0, help="seconds that a step takes")
    parser.add_argument("--scale", type=float, default=1e-3, help="how much a step changes the weights")
    parser.add_argument("--patience-s", type=float, default=600.0, help="how long to wait for the control plane")
    said = parser.parse_args(arguments)
    journal = Journal(said.journal)
    published = 0
    with headway.connect(said.url, trainer=said.trainer, patience_s=said.patience_s) as hw:
        journal.write("connected", action=hw.action, version=hw.newest, next=hw.next)
        weights = hw.load()
        for batch in hw.batches():
            if said.steps and published >= said.steps:
                break
            fields = {
                "lease": batch.lease, "attempt": batch.attempt, "version": batch.version + 1,
                "groups": [stamp.group for stamp in batch.metadata.stamps],
                "rollouts": [[int(g), int(s)] for g, s in zip(batch.groups, batch.samples, strict=True)],
            }  # fmt: skip
            journal.write("leased", **fields)
            batch.stamp_forward()
            rng = np.random.default_rng(batch.version)
            changed = {name: perturbed(array, rng, said.scale) for name, array in weights.items()}
            time.sleep(said.step_s)
            journal.write("publishing", **fields)
            try:
                version = hw.publish(batch, changed, optimizer={"steps": np.array([batch.version + 1.0], np.float32)})
            except (headway.LeaseExpired, headway.Conflict) as error:
                journal.write("lost", **fields, error=str(error))
                weights = hw.load()
                continue
            weights, published = changed, published + 1
            journal.write("published", **{**fields, "version": version})
    print(f"{published} versions published", file=sys.stderr)
    return published


if __name__ == "__main__":
    main()
