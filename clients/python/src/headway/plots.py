"""Results as pictures, by matplotlib where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import MissingLibrary, Refused
from .results import Comparison, Diagnosis, Examination, Grid, Plan, Prediction, Resimulation, Simulation
from .view import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot(result: Result, ax: Axes | None = None) -> Axes:
    """Draw a result on axes of its own, or on those given."""
    draw = next((draw for kind, draw in _DRAWN.items() if isinstance(result, kind)), None)
    if draw is None:
        raise Refused(f"{type(result).__name__} has no picture; frame() has its rows", exit_code=2)
    axes = new_axes() if ax is None else ax
    draw(result, axes)
    return axes


def new_axes() -> Axes:
    """Axes of a new figure."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingLibrary("a plot needs matplotlib, which is not installed: pip install matplotlib") from error
    return pyplot.subplots(layout="constrained")[1]


def _simulation(result: Any, ax: Axes) -> None:
    steps = [point.step for point in result.series]
    ax.plot(steps, [point.staleness for point in result.series], linewidth=0.8, label="mean of the step")
    if result.staleness.mean is not None:
        ax.axhline(result.staleness.mean, color="black", linestyle="--", label=f"mean {result.staleness.mean:.2f}")
    ax.set(xlabel="train step", ylabel="staleness in versions", ylim=(0, None))
    ax.legend()


def _grid(result: Any, ax: Axes) -> None:
    """The mean staleness over the first key that is a number; a line for each combination of the others."""
    keys = list(dict.fromkeys(key for point in result.points for key in point.set))
    over = next((key for key in keys if all(_number(point.set.get(key)) is not None for point in result.points)), None)
    lines: dict[str, list[tuple[float, Any]]] = {}
    for at, point in enumerate(result.points):
        if point.staleness.mean is not None:
            name = ", ".join(f"{key} {point.set[key]}" for key in keys if key != over and key in point.set)
            place = _number(point.set[over]) if over else None
            lines.setdefault(name, []).append((float(at) if place is None else place, point.staleness))
    for name, line in lines.items():
        line.sort(key=lambda item: item[0])
        means = [staleness.mean for _, staleness in line]
        ends = [staleness.interval_95 or [staleness.mean, staleness.mean] for _, staleness in line]
        below, above = ([abs(mean - pair[side]) for mean, pair in zip(means, ends, strict=True)] for side in (0, 1))
        ax.errorbar([x for x, _ in line], means, yerr=[below, above], marker="o", capsize=3, label=name or None)
    ax.set(xlabel=over or "setting", ylabel="mean staleness in versions", ylim=(0, None))
    if len(lines) > 1:
        ax.legend()


def _plan(result: Any, ax: Axes) -> None:
    """Staleness against the time of a step: the frontier, the finalists and the recommended setting."""

    def figures(candidates: Any) -> tuple[list[float], list[float]]:
        known = [candidate.simulated or candidate.predicted for candidate in candidates]
        return [k.staleness_mean for k in known if k], [k.period_per_rollout_s * 1000 for k in known if k]

    ax.plot(*figures(result.frontier), marker=".", linestyle="-", label="frontier")
    ax.plot(*figures(result.finalists), marker="o", linestyle="", label="finalists")
    ax.plot(*figures([result.recommended]), marker="*", markersize=14, linestyle="", label="recommended")
    ax.set(xlabel="mean staleness in versions", ylabel="milliseconds a trained rollout", ylim=(0, None), xlim=(0, None))
    ax.legend()


def _levers(result: Any, ax: Axes) -> None:
    named = [(lever.change, lever.staleness_mean) for lever in result.levers if lever.staleness_mean is not None]
    _bars(ax, [(name, mean) for name, mean in named], "mean staleness in versions after the change")
    if result.staleness.mean is not None:
        ax.axvline(result.staleness.mean, color="black", linestyle="--", label="now")
        ax.legend()


def _findings(result: Any, ax: Axes) -> None:
    _bars(ax, [(finding.code, finding.cost_versions) for finding in result.findings], "cost in versions of staleness")


def _arms(result: Any, ax: Axes) -> None:
    arms = [("as it was", result.own), *((" ".join(arm.set) or "own", arm) for arm in result.arms)]
    means = [(name, arm.summary.staleness.mean) for name, arm in arms if arm and arm.summary]
    _bars(ax, means, "mean staleness in versions")


def _runs(result: Any, ax: Axes) -> None:
    figures = [(run.name, run.figures.get("staleness_mean")) for run in result.runs]
    _bars(ax, [(name, figure.value) for name, figure in figures if figure], "mean staleness in versions")


def _examined(result: Any, ax: Axes) -> None:
    kinds = [finding.severity for finding in result.findings]
    _bars(ax, [(kind, kinds.count(kind)) for kind in dict.fromkeys(kinds)], "findings")


def _bars(ax: Axes, bars: list[tuple[str, float]], label: str) -> None:
    """Named values, the first on top."""
    ax.barh(range(len(bars)), [value for _, value in bars])
    ax.set_yticks(range(len(bars)), [name if len(name) <= 50 else name[:49] + "…" for name, _ in bars])
    ax.invert_yaxis()
    ax.set_xlabel(label)


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


_DRAWN: dict[type[Result], Callable[[Any, Any], None]] = {
    Simulation: _simulation, Grid: _grid, Plan: _plan, Prediction: _levers, Diagnosis: _findings,
    Resimulation: _arms, Comparison: _runs, Examination: _examined,
}  # fmt: skip
