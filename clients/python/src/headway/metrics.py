"""A run's live figures, handed to W&B, TensorBoard or any function.

headway.metrics.follow("http://127.0.0.1:7070", headway.metrics.wandb(project="reverse"))
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import httpx

from . import errors
from .transport import Transport, refusal

#: A stream that is quiet for so long has broken: the server says something every 15 s.
_SILENCE_S = 20.0
#: Takes the train step and its figures by name.
Sink = Callable[[int, dict[str, float]], None]


def events(
    url: str | Sequence[str], *, token: str | None = None, verify: bool | str = True,
    stop: threading.Event | None = None, patience_s: float = 600.0,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """The live events of a control plane, over restarts of it, until the run is over or `stop` is set.

    `stop` is seen with the next event, or after 20 s. `patience_s` is how long a server may say nothing.
    """
    ended = stop or threading.Event()
    transport = Transport(url, token, verify=verify)  # its own event: closing it sets that
    word, last = time.monotonic(), ""

    def heard(lines: Iterator[str]) -> Iterator[str]:
        nonlocal word
        for line in lines:
            word = time.monotonic()
            yield line

    try:
        while not ended.is_set():
            broken: Exception | None = None
            try:
                headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
                with transport.stream(
                    "/api/v1/stream", headers=headers, timeout_s=min(_SILENCE_S, patience_s)
                ) as response:
                    if response.status_code == 205:
                        return
                    if response.status_code != 200:
                        response.read()
                        raise refusal(response)
                    for seen, event in _parse(heard(response.iter_lines()), last):
                        last = seen
                        yield event
                        if ended.is_set() or event.get("over") is True:
                            return
            except errors.HeadwayError as error:
                if not isinstance(error, errors.Unavailable | errors.Busy | errors.Internal):
                    raise
            except httpx.TransportError as error:  # the stream breaks off with every restart of the server
                broken = error
            transport.another(broken)
            if time.monotonic() - word > patience_s:
                raise errors.Unavailable(f"the stream of {url} was silent for {patience_s:g} s")
            ended.wait(0.5)
    finally:
        transport.close()


def _parse(lines: Iterator[str], last: str) -> Iterator[tuple[str, dict[str, Any]]]:
    data: list[str] = []
    for line in lines:
        if line.startswith("id:"):
            last = line[3:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            found, data = "\n".join(data), []
            try:
                event = json.loads(found)
            except (ValueError, RecursionError) as error:
                raise errors.Internal(f"an event of the stream is not JSON: {found[:200]!r}") from error
            if isinstance(event, dict):
                yield last, event


def figures(event: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The finite numbers of an event by name, nested ones joined by a slash."""
    found: dict[str, float] = {}
    for name, value in event.items():
        if isinstance(value, Mapping):
            found |= figures(value, f"{prefix}{name}/")
        elif isinstance(value, bool) or (isinstance(value, (int, float)) and math.isfinite(value)):
            found[prefix + name] = float(value)
    return found


def follow(
    url: str | Sequence[str], *sinks: Sink, token: str | None = None, verify: bool | str = True,
    stop: threading.Event | None = None, patience_s: float = 600.0,
) -> int:  # fmt: skip
    """Hand every train step's figures to the sinks until the run is over; return how many steps there were."""
    newest = -1
    count = 0
    for event in events(url, token=token, verify=verify, stop=stop, patience_s=patience_s):
        step = event.get("step")
        if not isinstance(step, int) or isinstance(step, bool) or step <= newest:
            continue  # a change of state, or a step that was told before a reconnection
        newest, count = step, count + 1
        said = figures({k: v for k, v in event.items() if k != "step"})
        for sink in sinks:
            sink(step, said)
    return count


def wandb(run: Any = None, **init: Any) -> Sink:
    """A sink into a W&B run, by default one that `wandb.init(**init)` makes."""
    if run is None:
        import wandb as library

        run = library.init(**init)

    def sink(step: int, said: dict[str, float]) -> None:
        run.log(said, step=step)

    return sink


def tensorboard(writer: Any) -> Sink:
    """A sink into a TensorBoard SummaryWriter (torch's, tensorboardX's), or a log directory."""
    if isinstance(writer, (str, os.PathLike)):
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(os.fspath(writer))

    def sink(step: int, said: dict[str, float]) -> None:
        for name, value in said.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return sink
