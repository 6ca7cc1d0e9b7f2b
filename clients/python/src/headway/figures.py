"""`python -m headway.figures [URL] --wandb PROJECT`: hand a run's figures to W&B or TensorBoard.

Without a URL they are read from standard input, a JSON object a line, as the document's `sinks.command` writes them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from . import errors
from .metrics import Sink, figures, follow, tensorboard, wandb


def lines(source: Iterable[str], *sinks: Sink) -> int:
    """Hand every line's step to the sinks; return how many there were. A line that is none is an Invalid."""
    count = 0
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        try:
            said = json.loads(line)
            step, values = int(said["step"]), figures(said["figures"])
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise errors.Invalid(
                f"line {number} is no train step: want an object with step and figures, have {line.strip()[:200]!r}"
            ) from error
        for sink in sinks:
            sink(step, values)
        count += 1
    return count


def main(arguments: Sequence[str] | None = None, source: TextIO | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m headway.figures", description="Hand a run's figures to W&B or TensorBoard."
    )
    parser.add_argument("url", nargs="?", help="a control plane (default: lines on standard input)")
    parser.add_argument("--wandb", metavar="PROJECT", help="a run in this project of W&B, by its library")
    parser.add_argument("--name", help="the run's name there")
    parser.add_argument("--tensorboard", metavar="DIR", help="an event file in this directory")
    said = parser.parse_args(arguments)
    if said.wandb is None and said.tensorboard is None:
        parser.error("name a destination: --wandb PROJECT or --tensorboard DIR")
    sinks: list[Sink] = []
    run: Any = None
    if said.wandb is not None:
        import wandb as library

        run = library.init(project=said.wandb, name=said.name)
        sinks.append(wandb(run))
    if said.tensorboard is not None:
        sinks.append(tensorboard(said.tensorboard))
    try:
        count = follow(said.url, *sinks) if said.url else lines(source or sys.stdin, *sinks)
    except errors.HeadwayError as error:
        print(f"headway.figures: {error}", file=sys.stderr)
        if run is not None:
            run.finish(exit_code=1)
        return 1
    if run is not None:
        run.finish()
    print(f"{count} train steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
