"""`python -m headway.worker module:function http://HOST:PORT`: play rollouts of a run."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterable, Sequence

from . import errors
from .claims import work
from .play import Environment


def load(names: Iterable[str]) -> list[Environment]:
    """Environments by `module:function`. Only an `@headway.environment` will do."""
    found: list[Environment] = []
    for name in names:
        module, _, attribute = name.partition(":")
        if not attribute:
            raise errors.Invalid(f"{name!r} names no environment: want module:function")
        made = getattr(importlib.import_module(module), attribute, None)
        if not isinstance(made, Environment):
            raise errors.Invalid(f"{name} is no environment: mark it with @headway.environment(NAME)")
        found.append(made)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m headway.worker", description="Play rollouts of a run.")
    parser.add_argument("environment", nargs="+", help="module:function, one or more, and last the control plane's URL")
    parser.add_argument("url", help="such as http://127.0.0.1:7070")
    parser.add_argument("--concurrency", type=int, default=8, help="rollouts at once (default 8)")
    parser.add_argument("--grace", type=float, default=30, help="seconds that running rollouts have after SIGTERM (30)")
    parser.add_argument("--name", help="the worker's name (default: host and process)")
    parser.add_argument("--token-file", help="file with the environment role's token (default: HEADWAY_TOKEN)")
    parser.add_argument("--ca", help="PEM file of the authority that signed the server's certificate")
    said = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for library in ("httpx", "httpx2"):  # a line a request otherwise: the client's own, and those of openai's client
        logging.getLogger(library).setLevel(logging.WARNING)
    sys.path.insert(0, os.getcwd())
    stop = threading.Event()

    def stopping(number: int, _: object) -> None:
        if stop.is_set():  # the second time: at once
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stopping)
    try:
        token = None
        if said.token_file:
            with open(said.token_file, encoding="utf-8") as file:
                token = file.read().strip()
        environments = load(said.environment)
        logging.info("playing %s of %s", ", ".join(e.name for e in environments), said.url)
        finished = work(
            said.url, environments, said.concurrency, worker=said.name, token=token, stop=stop,
            verify=said.ca or True, grace_s=said.grace,
        )  # fmt: skip
    except (errors.HeadwayError, ImportError, OSError) as error:
        print(f"headway.worker: {error}", file=sys.stderr)
        return 2 if isinstance(error, (errors.Invalid, ImportError)) else 1
    print(f"{finished} rollouts finished", file=sys.stderr)
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
