"""What a GPU does at best, and what it costs to publish weights that lie on it.

    PYTHONPATH=src python benchmarks/gpu.py

Each figure is the median of several runs after a warm-up, over more memory than the GPU's cache has. The first rows
are beside what `headway plan --presets` says of the device. The others are of a state dict in bfloat16: what
`publish` does to it before a byte is sent, and what a sender does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from headway import collective, tensors
from headway.torch import to_numpy

RUNS = 7


def timed(call: Callable[[], object], runs: int = RUNS) -> float:
    """Seconds of a call, with all that it has the GPU do."""
    found = []
    for run in range(runs + 2):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if run > 1:
            found.append(time.perf_counter() - began)
    return statistics.median(found)


def matmul(size: int = 8192, each: int = 20) -> float:
    """TFLOP/s of square products in bfloat16."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)

    def products() -> None:
        for _ in range(each):
            torch.mm(a, b, out=out)

    return each * 2 * size**3 / timed(products) / 1e12


def memory(gib: int = 4) -> float:
    """TB/s of a copy within the GPU, counting what is read and what is written."""
    a = torch.randn(gib << 28, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.nbytes / timed(lambda: b.copy_(a)) / 1e12


def host(pinned: bool, to: str, gib: int = 2) -> float:
    """GB/s between host and GPU."""
    near = torch.zeros(gib << 28, pin_memory=pinned)
    far = torch.zeros(gib << 28, device="cuda")
    copy = (lambda: far.copy_(near)) if to == "cuda" else (lambda: near.copy_(far))
    return far.nbytes / timed(copy) / 1e9


def publishing(gib: int) -> dict[str, float]:
    """GB/s of each part of a publish, of so large a model in layers of 64 MiB."""
    state: dict[str, Any] = {
        f"layers.{i}.weight": torch.randn(4096, 8192, device="cuda").to(torch.bfloat16) for i in range(gib * 16)
    }
    size = sum(t.nbytes for t in state.values()) / 1e9
    on_host = {name: to_numpy(tensor) for name, tensor in state.items()}
    file = tensors.File("model.safetensors", on_host)
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    held = collective.copied(state, gpu)

    def digest() -> str:
        held._digest = ""
        return held.digest()

    return {name: size / timed(call, 3) for name, call in {
        "publish: to the host, GB/s": lambda: [to_numpy(t) for t in state.values()],
        "publish: look for numbers that are not finite, GB/s": lambda: tensors.check_finite(on_host, "model"),
        "publish: hash, GB/s": file.hash,
        "sender: look for numbers that are not finite, GB/s": lambda: collective.checked(state, "nccl"),
        "sender: copy on the GPU, GB/s": lambda: collective.copied(state, gpu),
        "sender: copy to the host, GB/s": lambda: collective.copied(state, cpu),
        "sender: digest on the GPU, GB/s": digest,
    }.items()}  # fmt: skip


def main() -> int:
    """Print the figures as a table, and as JSON with --json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=4, help="size of the state dict (default 4)")
    parser.add_argument("--json", action="store_true")
    said = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch sees no GPU", file=sys.stderr)
        return 2
    figures: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    figures |= {"memory, GiB": torch.cuda.get_device_properties(0).total_memory / 2**30}
    figures |= {"bf16 product, TFLOP/s": matmul(), "memory, TB/s": memory()}
    for pinned in (True, False):
        for to in ("cuda", "host"):
            way = "host to GPU" if to == "cuda" else "GPU to host"
            figures[f"{way}, {'pinned' if pinned else 'pageable'}, GB/s"] = host(pinned, to)
    figures |= publishing(said.gib)
    if said.json:
        print(json.dumps(figures, indent=1))
    else:
        for name, value in figures.items():
            print(f"{name:55} {value if isinstance(value, str) else format(value, '.3g')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
