"""A run that was recorded, with its figures, its settings and the figures of every train step."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import analysis, errors, frames, plots, results
from .call import call
from .view import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Run(results.Run, Result):
    """What `load` returns: the figures of a run, as attributes, and what its directory holds.

    It stands wherever a run's path does, and its methods ask the program about it.
    """

    @cached_property
    def config(self) -> dict[str, Any]:
        """The run's document, with every default filled in."""
        return call("config", [], Path(self.path) / "config.yaml")[0]

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The figures of every train step (docs/reference/metrics.md). A line that is not whole yet is left out."""
        file = Path(self.path) / "metrics.jsonl"
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            message = f"{file}: cannot be read: {error.strerror}; a run directory has it"
            raise errors.Refused(message, exit_code=2) from error
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def diagnose(self, **options: Any) -> results.Diagnosis:
        """`headway.diagnose` of this run."""
        return analysis.diagnose(self, **options)

    def resimulate(self, overrides: Mapping[str, Any] | None = None, **options: Any) -> results.Resimulation:
        """`headway.resimulate` of this run."""
        return analysis.resimulate(self, overrides, **options)

    def frame(self, rows: str = "metrics") -> Any:
        """The train steps as a DataFrame of pandas or polars, whichever is installed."""
        found = self._steps() if rows == "metrics" else frames.rows(self, rows)
        return frames.frame(found)

    def plot(self, ax: Axes | None = None, figures: Sequence[str] = ("staleness_mean", "reward")) -> Axes:
        """Draw figures over the train steps, the second on axes of its own at the right."""
        left = plots.new_axes() if ax is None else ax
        left.set_xlabel("train step")
        for at, figure in enumerate(figures):
            axes = left if at == 0 else left.twinx()
            known = [(row["step"], row[figure]) for row in self.metrics if row.get(figure) is not None]
            axes.plot([step for step, _ in known], [value for _, value in known], color=f"C{at}", label=figure)
            axes.set_ylabel(figure, color=f"C{at}")
        return left

    def _steps(self) -> list[frames.Row]:
        return [frames.flat(row) for row in self.metrics]

    def _repr_html_(self) -> str:
        known = [{"": name, " ": figure.value} for name, figure in self.figures.items()]
        return f"<b>{frames.escaped(self.name)}</b>, {self.steps} train steps\n{frames.table(known)}"

    def __fspath__(self) -> str:
        return os.fspath(self.path)


def load(run: str | os.PathLike[str], *, framework: str | None = None, progress: bool | None = None) -> Run:
    """Read a run: a run directory, a trace, or another framework's log.

        run = headway.load("runs/a")
        run.figures["staleness_mean"].value, run.frame(), run.diagnose().findings
    """
    return Run(analysis.compare(run, framework=framework, progress=progress).to_dict()["runs"][0])
