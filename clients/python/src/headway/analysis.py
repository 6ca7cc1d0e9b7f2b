"""Predict, simulate, plan, judge and look back: each call is one process of the program.

A document is a path or a mapping of what would be in the file. Overrides change keys of it: a mapping of dotted keys
(`{"queue.factor": 2}`), or keywords with `__` for the dot (`queue__factor=2`). The program's errors are raised as
`Refused`, `Failed` and `Died`, its warnings as `HeadwayWarning`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from . import errors
from .call import Document, Overrides, call, flat, named, settings, together, value_text, warn
from .results import Comparison, Diagnosis, Examination, Grid, Plan, Prediction, Resimulation, Simulation

Path: TypeAlias = str | os.PathLike[str]


def predict(
    document: Document = None, overrides: Overrides = None, *,
    concurrency: float | None = None, batch: float | None = None, group: int | None = None,
    queue_factor: float | None = None, utilization: float | None = None, tail_multiplier: float | None = None,
    mean_tokens: float | None = None, tailness: float | None = None, cap_tokens: int | None = None,
    policy: str | None = None, max_staleness: int | None = None, select: str | None = None, start: str | None = None,
    step_time: float | None = None, sync_time: float | None = None, sync_mode: str | None = None,
    sync_trainer: str | None = None, sync_every: int | None = None, acceptance: float | None = None,
    budget: int | None = None, speed_ratio: float | None = None, closed_form: bool = False,
    progress: bool | None = None, **keys: Any,
) -> Prediction:  # fmt: skip
    """Predict staleness and period, by closed forms or, where none holds, by a short simulation.

    Either a document with overrides, or the quantities themselves, as the flags of `headway predict` have them:

        headway.predict(concurrency=128, batch=128, group=8, queue_factor=2, utilization=1.07, tail_multiplier=1.44).pqs
    """
    given: dict[str, Any] = {
        "concurrency": concurrency, "batch": batch, "group": group, "queue-factor": queue_factor,
        "utilization": utilization, "tail-multiplier": tail_multiplier, "mean-tokens": mean_tokens,
        "tailness": tailness, "cap-tokens": cap_tokens, "policy": policy, "max-staleness": max_staleness,
        "select": select, "start": start, "step-time": step_time, "sync-time": sync_time, "sync-mode": sync_mode,
        "sync-trainer": sync_trainer, "sync-every": sync_every, "acceptance": acceptance, "budget": budget,
        "speed-ratio": speed_ratio,
    }  # fmt: skip
    asked = [name for name, value in given.items() if value is not None]
    if asked and document is None and not overrides:
        for key in keys:
            close = difflib.get_close_matches(key.replace("_", "-"), given, 1)
            hint = f": did you mean {close[0].replace('-', '_')}?" if close else ""
            raise errors.Refused(f"predict knows no quantity {key!r}{hint}", exit_code=2)
    arguments = [*_flags(given), *_switches({"closed-form": closed_form})]
    answer, failed = call("predict", arguments, document, together(overrides, keys), progress=progress)
    result = Prediction(answer)
    _settled(failed, result)
    return result


def simulate(
    document: Document = None, overrides: Overrides = None, *, accept_unsettled: bool = False, bias: bool = False,
    trace: Path | None = None, yes: bool = False, progress: bool | None = None, **keys: Any,
) -> Simulation:  # fmt: skip
    """Simulate a document in virtual time, with the loop that runs it.

        headway.simulate("run.yaml", queue__factor=2).staleness.mean

    Means that have not settled raise `NotSettled`, unless `accept_unsettled`. `bias` compares what is trained with
    what is started; `trace` names a new file for the trace; `yes` starts what takes long. Several seeds or settings:
    see `grid`.
    """
    arguments = [
        *_flags({"trace": trace}), *_switches({"accept-unsettled": accept_unsettled, "bias": bias, "yes": yes}),
    ]  # fmt: skip
    answer, failed = call("simulate", arguments, document, together(overrides, keys), progress=progress)
    result = Simulation(answer)
    _settled(failed, result)
    return result


def grid(
    document: Document, axes: Mapping[str, Iterable[Any] | str], overrides: Overrides = None, *, seeds: int = 1,
    accept_unsettled: bool = False, yes: bool = False, progress: bool | None = None, **keys: Any,
) -> Grid:  # fmt: skip
    """Simulate every combination of values of some keys, on all cores.

        headway.grid("run.yaml", {"queue.factor": [1, 2, 4]}, seeds=3).frame()

    A text is a range: `"16..1024x2"`, `"0.3..3/0.1"`, `"0.5..2#7"`. A setting whose means have not settled has no
    means, and says so in `settled`; one that cannot be simulated has an `error`.
    """
    words = [f"--grid={key}={_values(key, values)}" for key, values in flat(axes)]
    arguments = [*words, f"--seeds={seeds}", *_switches({"accept-unsettled": accept_unsettled, "yes": yes})]
    if not words and seeds == 1:
        raise errors.Refused("axes: a grid needs a key with values, or several seeds", exit_code=2)
    answer, failed = call("simulate", arguments, document, together(overrides, keys), progress=progress)
    if failed is not None and not answer.get("points"):
        raise failed
    return Grid(answer)


def plan(
    document: Document = None, overrides: Overrides = None, *, model: str | None = None, gpu: str | None = None,
    gpus: int | None = None, budget: float | None = None, budget_p95: float | None = None, prefer: str | None = None,
    mean_tokens: float | None = None, tailness: float | None = None, cap_tokens: int | None = None,
    prompt_tokens: float | None = None, group: int | None = None, finalists: int | None = None,
    measured: Sequence[Path] = (), write: Path | None = None, html: Path | None = None,
    progress: bool | None = None, **keys: Any,
) -> Plan:  # fmt: skip
    """Search split, batch, queue, concurrency and rules under a budget of staleness.

        headway.plan(model="qwen3-8b", gpu="h100-sxm", gpus=16, budget=2).recommended

    `budget` is the largest mean staleness in versions, `budget_p95` the largest 95 % quantile. Where no setting keeps
    it, `met` is False, `recommended` the nearest and `shortfall` says what to relax. The work is the document's, or
    described by `mean_tokens`, `tailness`, `cap_tokens`, `prompt_tokens` and `group`. `measured` takes speeds from run
    directories, `write` names a new document for the recommended setting. What the plan leaves out is warned of.
    """
    given: dict[str, Any] = {
        "model": model, "gpu": gpu, "gpus": gpus, "budget": budget, "budget-p95": budget_p95, "prefer": prefer,
        "mean-tokens": mean_tokens, "tailness": tailness, "cap-tokens": cap_tokens, "prompt-tokens": prompt_tokens,
        "group": group, "finalists": finalists, "write": write, "html": html,
    }  # fmt: skip
    arguments = [*_flags(given), *(f"--measured={os.fspath(run)}" for run in measured)]
    answer, failed = call("plan", arguments, document, together(overrides, keys), progress=progress)
    if failed is not None and answer.get("met"):
        raise failed
    for text in answer.get("warnings") or ():
        warn(text)
    return Plan(answer)


def doctor(
    document: Document = None, overrides: Overrides = None, *, probe: bool = True, progress: bool | None = None,
    **keys: Any,
) -> Examination:  # fmt: skip
    """Say what is wrong with a document before it costs anything: `findings`, and how many are `errors`.

    `probe=False` asks no server, and starts no sandbox and no verifier.
    """
    arguments = _switches({"no-probe": not probe})
    answer, _ = call("doctor", arguments, document, together(overrides, keys), progress=progress)
    return Examination(answer)


def diagnose(
    run: Path | Sequence[Path], *, framework: str | None = None, run_name: str | None = None,
    given: Mapping[str, float] | None = None, quick: bool = False, html: Path | None = None,
    progress: bool | None = None,
) -> Diagnosis:  # fmt: skip
    """Say where a run's staleness and idle time come from, and how much each change would buy.

    `run` is a run directory, a trace, the address of a control plane, or files of another framework's log. Of such a
    log `framework` names the framework where its keys do not, `run_name` the run, and `given` figures that it lacks
    (`{"group_size": 8}`). `quick` resimulates nothing.
    """
    paths = [*run] if isinstance(run, Sequence) and not isinstance(run, str) else [run]
    if not paths:
        raise errors.Refused("run: no path given; name a run directory, a trace or a log", exit_code=2)
    arguments = [
        *_flags({"from": framework, "run-name": run_name, "html": html}), *_switches({"quick": quick}),
        *map(named, paths),
    ]  # fmt: skip
    answer, failed = call("diagnose", arguments, None, given, progress=progress)
    if failed is not None:
        raise failed
    return Diagnosis(answer)


def resimulate(
    run: Path, overrides: Overrides = None, *, arms: Sequence[Mapping[str, Any]] = (),
    axes: Mapping[str, Iterable[Any] | str] | None = None, progress: bool | None = None, **keys: Any,
) -> Resimulation:  # fmt: skip
    """Say what a run would have been under other settings, from its own lengths and times.

        headway.resimulate("runs/a", queue__factor=2).arms[0].summary.staleness.mean

    `arms` are several settings to compare, `axes` every combination of values. `own` is the run's own setting,
    resimulated; an arm that cannot be judged says why in `refused`.
    """
    arguments = [named(run)]
    for arm in arms:
        words = [word.removeprefix("--set=") for word in settings(arm)]
        arguments.append("--arm=" + " ".join(words))
    arguments += [f"--grid={key}={_values(key, values)}" for key, values in flat(axes or {})]
    answer, _ = call("resimulate", arguments, None, together(overrides, keys), progress=progress)
    return Resimulation(answer)


def compare(*runs: Path | Sequence[Path], framework: str | None = None, progress: bool | None = None) -> Comparison:
    """Put runs side by side, several or a list of them: settings, figures, staleness and its sources."""
    paths = [one for run in runs for one in ([run] if isinstance(run, (str, os.PathLike)) else run)]
    arguments = [*map(named, paths), *_flags({"from": framework})]
    answer, failed = call("compare", arguments, progress=progress)
    if failed is not None:
        raise failed
    return Comparison(answer)


def _flags(given: Mapping[str, Any]) -> list[str]:
    """Flags that have a value."""
    return [f"--{name}={os.fspath(value) if isinstance(value, os.PathLike) else value}"
            for name, value in given.items() if value is not None]  # fmt: skip


def _switches(given: Mapping[str, bool]) -> list[str]:
    return [f"--{name}" for name, on in given.items() if on]


def _values(key: str, values: Iterable[Any] | str) -> str:
    """The values of an axis as the program takes them."""
    if isinstance(values, str):
        return values
    if not isinstance(values, Iterable):
        message = f"{key}: {values!r} is no list of values and no range, such as [1, 2, 4] or '1..4/1'"
        raise errors.Refused(message, exit_code=2)
    return ",".join(value_text(value, key) for value in values)


def _settled(failed: errors.ProgramError | None, result: Simulation | Prediction) -> None:
    """Raise the failure that a program ended with beside its document."""
    if failed is None:
        return
    raise errors.NotSettled(failed.message, result=result, hint=failed.hint, command=failed.command)
