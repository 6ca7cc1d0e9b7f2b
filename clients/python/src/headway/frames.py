"""Results as tables: rows of a list, a DataFrame of whichever library is installed, and HTML for notebooks."""

from __future__ import annotations

import html as markup
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import MissingLibrary, Refused
from .view import Result, View

#: A row: scalars by dotted name.
Row = dict[str, Any]

# The figures that a notebook shows of a result, by the class: a reader meets these first.
_HEADLINES: dict[str, tuple[str, ...]] = {
    "Prediction": ("staleness.mean", "pqs", "iqs", "regime", "dominant", "basis"),
    "Simulation": (
        "staleness.mean", "pqs.mean", "iqs.mean", "period_s.mean", "utilization", "trainer_idle_ratio",
        "rollout_idle_ratio", "throughput.binding", "waste.wasted_share", "steps", "settled",
    ),
    "Grid": ("events", "wall_s"),
    "Plan": (
        "met", "recommended.rollout_gpus", "recommended.train_gpus", "recommended.batch_rollouts",
        "recommended.slots_per_replica", "recommended.queue_factor", "recommended.policy",
        "recommended.simulated.staleness_mean", "recommended.simulated.period_s",
    ),
    "Examination": ("errors", "warnings"),
    "Diagnosis": ("run", "source", "settled.ok", "settled.why"),
    "Resimulation": ("run", "settled", "own.summary.staleness.mean", "extrapolated_ratio"),
}  # fmt: skip
# Rows and columns of a table in a notebook.
_ROWS_MAX, _COLUMNS_MAX = 30, 10


def escaped(words: str) -> str:
    """Words that are no HTML."""
    return markup.escape(words)


def rows(result: View, name: str) -> list[Row]:
    """The rows of a list of a result, by its name or dotted path."""
    found: Any = result
    for part in name.split("."):
        found = getattr(found, part, None) if isinstance(found, View) else None
    if not isinstance(found, list):
        lists = [key for key in result if isinstance(getattr(result, key), list)]
        raise Refused(f"{name!r} is no list of {type(result).__name__}; it has {', '.join(lists)}", exit_code=2)
    return [flat(item.to_dict()) if isinstance(item, View) else {name: item} for item in found]


def flat(item: Mapping[str, Any], above: str = "") -> Row:
    """Scalars by dotted name; lists stay as they are."""
    row: Row = {}
    for key, value in item.items():
        if isinstance(value, Mapping):
            row.update(flat(value, f"{above}{key}."))
        else:
            row[above + key] = value
    return row


def frame(found: Sequence[Row]) -> Any:
    """A DataFrame of pandas or polars: the one that the process uses already, else the one that is installed."""
    columns = list(dict.fromkeys(key for row in found for key in row))
    for library in sorted(("pandas", "polars"), key=lambda name: name not in sys.modules):
        try:
            module = __import__(library)
        except ImportError:
            continue
        if library == "pandas":
            return module.DataFrame.from_records(found, columns=columns)
        data = {column: [row.get(column) for row in found] for column in columns}
        return module.DataFrame(data, strict=False)
    raise MissingLibrary("a frame needs pandas or polars, and neither is installed: pip install pandas, or polars")


def headline(result: View) -> Row:
    """The figures to show first, as far as the result has them."""
    shown: Row = {}
    for path in _HEADLINES.get(type(result).__name__, ()):
        value: Any = result
        for part in path.split("."):
            value = getattr(value, part, None)
        if value is not None:
            shown[path] = value
    return shown


def html(result: Result) -> str:
    """A result in a notebook: its headline, and its first rows."""
    figures = [{"": name, " ": value} for name, value in headline(result).items()]
    parts = [f"<b>{type(result).__name__}</b>", table(figures)]
    found = rows(result, result._rows) if result._rows else []
    if found:
        more = f", the first {_ROWS_MAX} of {len(found)}" if len(found) > _ROWS_MAX else ""
        parts += [f"<i>{escaped(result._rows)}{more}</i>", table(found)]
    return "\n".join(parts)


def table(found: Sequence[Row]) -> str:
    """Rows as an HTML table; what is long is cut."""
    columns = list(dict.fromkeys(key for row in found[:_ROWS_MAX] for key in row))[:_COLUMNS_MAX]
    head = "".join(f"<th>{escaped(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escaped(text(row.get(column)))}</td>" for column in columns) + "</tr>"
        for row in found[:_ROWS_MAX]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def text(value: Any) -> str:
    """A scalar as a reader wants it."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    shown = str(value)
    return shown if len(shown) <= 80 else shown[:79] + "…"
