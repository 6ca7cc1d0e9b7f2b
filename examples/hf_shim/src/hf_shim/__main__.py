"""python -m hf_shim --model DIR --port N"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from . import architecture, checkpoint
from .engine import Engine
from .errors import Lost, Refusal
from .http import Server
from .routes import Routes
from .sampling import LOGPROBS
from .service import Service
from .text import Tokenizer

DTYPES = ("float32", "bfloat16", "float16")
#: Below this many weights a step is too short to be shared by threads.
THREADED_WEIGHTS = 16_000_000


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser("hf_shim", description="A small rollout server that speaks SGLang's HTTP.")
    parser.add_argument("--model", required=True, type=Path, help="directory of a Llama-style checkpoint")
    parser.add_argument("--tokenizer", type=Path, help="its tokenizer's directory, none for no tokenizer")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000, help="0 for a free one, which is printed")
    parser.add_argument("--max-running", type=int, default=64, help="requests that generate at once; others wait")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=0, help="of a step on the CPU; 0 chooses by the model's size")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument("--served-model-name", help="default the directory's name")
    parser.add_argument("--weight-version", default="default", help="label of the weights that are served first")
    add = parser.add_argument
    add("--incremental-streaming-output", action="store_true", help="events of a stream bring what is new alone")
    add("--logprobs", choices=LOGPROBS, default="sampled", help="of which distribution a token's log-prob is")
    add("--log-steps", action="store_true", help="keep which weights made which tokens, for GET /steps")
    return parser


def ends(directory: Path, tokenizer: Tokenizer | None) -> frozenset[int]:
    """The tokens that end a response."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        path = directory / name
        if path.is_file():
            end = json.loads(path.read_text()).get("eos_token_id")
            found.update(end if isinstance(end, list) else [] if end is None else [end])
    if tokenizer is not None and tokenizer.end is not None:
        found.add(tokenizer.end)
    return frozenset(found)


def build(options: argparse.Namespace) -> tuple[Service, Routes]:
    """The service and its paths, with the model loaded."""
    if options.max_running < 1:
        raise Refusal(f"--max-running is {options.max_running}: want at least 1")
    shape = architecture.read(options.model)
    weights = shape.layers * (4 * shape.width + 3 * shape.mlp_width) * shape.width
    threads = options.threads or (1 if weights < THREADED_WEIGHTS else os.cpu_count() or 1)
    torch.set_num_threads(threads)
    model = checkpoint.load(options.model, getattr(torch, options.dtype), torch.device(options.device))
    at = options.tokenizer or options.model
    tokenizer = Tokenizer(at) if str(at) != "none" else None
    engine = Engine(
        model, rows=options.max_running, ends=ends(options.model, tokenizer), seed=options.seed,
        logprobs=options.logprobs, label=options.weight_version, log_steps=options.log_steps,
    )  # fmt: skip
    about: dict[str, Any] = {
        "served_model_name": options.served_model_name or options.model.resolve().name, "tokenizer_path": str(at),
        "model_path": str(options.model), "dtype": options.dtype, "device": options.device, "frontend": "hf_shim",
        "incremental_streaming_output": options.incremental_streaming_output, "threads": threads, "tp_size": 1,
        "dp_size": 1, "enable_priority_scheduling": False, "disable_radix_cache": True,
    }  # fmt: skip
    service = Service(engine, options.model)
    return service, Routes(service, tokenizer, about, options.incremental_streaming_output)


async def serve(options: argparse.Namespace) -> None:
    """Serves until a signal, and then ends what is under way."""
    service, routes = build(options)
    server = Server(routes.answer)
    await server.start(options.host, options.port)
    service.start()
    print(f"hf_shim serves {options.model} at http://{options.host}:{server.port}", flush=True)
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, service.ended.set)
    await until_ended(service, server)


async def until_ended(service: Service, server: Server) -> None:
    """Waits until the service is told to end, and ends what is under way. A lost engine answers nothing more."""
    await service.ended.wait()
    if service.lost is not None:
        server.abort()
        raise service.lost
    await service.stop()
    await server.stop()


def main() -> int:
    """Returns the exit status."""
    try:
        asyncio.run(serve(arguments().parse_args()))
    except (Refusal, Lost, OSError) as problem:
        print(f"hf_shim: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
