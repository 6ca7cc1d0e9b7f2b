"""Time from a trainer's request to its packed batch: in one piece, by reference, and fetched ahead, beside raw GETs.

    make bench-batches

A control plane on this machine serves one batch over and over. Each rank is a process. A round measures every form in
turn, and each figure is the median over the rounds, of the time until the last rank has its share. `GETs` fetches the
same groups, four at once, and takes their SHA-256 alone. `packing` is what joining them takes, by itself.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import headway
from headway import batch as batches
from headway import groups
from headway.transport import Transport

ROOT = Path(__file__).resolve().parents[3]
FORMS = ("one piece", "by reference", "ahead", "ahead, shared", "GETs", "packing")


class Rank:
    """One data-parallel rank."""

    def __init__(self, url: str, rank: int, ranks: int, directory: str, ahead_mb: int) -> None:
        self._url, self._rank, self._ranks = url, rank, ranks
        self._directory, self._ahead_mb = directory, ahead_mb

    def run(self, form: str, go: Any) -> float:
        """Seconds from the request to the batch, all ranks at once."""
        options: dict[str, Any] = {"rank": self._rank, "world_size": self._ranks}
        if form != "one piece":
            options["prefetch_mb"] = self._ahead_mb if form.startswith("ahead") else 0
        if form == "ahead, shared":
            options["cache"] = self._directory
        with headway.connect(self._url, **options) as hw:
            hw.load()
            if form.startswith("ahead"):
                self._fill(hw)
            leased = self._leased(hw) if form in ("GETs", "packing") else None
            brought = groups.Groups(hw._transport).bodies(leased.references) if form == "packing" and leased else None
            go.wait()
            began = time.perf_counter()
            if leased is None:
                hw.lease()
            elif brought is None:
                groups.Groups(hw._transport).bodies(leased.references)
            else:
                batches.pack(leased, brought)
            took = time.perf_counter() - began
            go.wait()  # nobody gives the batch back while another still fetches
            if self._rank == 0:
                hw._transport.post("/api/v1/batches/1/nack", {"trainer": "trainer", "attempt": self._attempt(hw)})
            go.wait()
            return took

    def _leased(self, hw: headway.Client) -> batches.Leased:
        message = {
            "trainer": "trainer", "rank": self._rank, "world_size": self._ranks, "wait_s": 20, "form": "references",
        }  # fmt: skip
        return batches.Leased.read(hw._transport.call("POST", "/api/v1/batches/lease", message=message).content, True)

    def _attempt(self, hw: headway.Client) -> int:
        return hw._open.attempt if hw._open is not None else self._leased(hw).metadata.attempt

    def _fill(self, hw: headway.Client) -> None:
        """Wait until all groups that wait are there."""
        brings = hw._groups
        assert brings is not None
        brings.begin()
        _, refs = brings._announced("", 0.0)
        while brings._cache.size() < sum(ref.size for ref in refs):
            time.sleep(0.05)


def work(pipe: Any, go: Any, *arguments: Any) -> None:
    """A rank's process."""
    rank = Rank(*arguments)
    while form := pipe.recv():
        pipe.send(rank.run(form, go))


def measure(url: str, ranks: int, forms: list[str], rounds: int, size_mb: int) -> dict[str, list[float]]:
    """Seconds by form, one a round."""
    context = multiprocessing.get_context("spawn")
    go, found = context.Barrier(ranks), {form: list[float]() for form in forms}
    with tempfile.TemporaryDirectory() as directory:
        pipes, processes = [], []
        for rank in range(ranks):
            mine, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, go, url, rank, ranks, directory, 2 * size_mb))
            process.start()
            pipes.append(mine)
            processes.append(process)
        for turn in range(rounds):
            for form in forms if turn % 2 == 0 else reversed(forms):
                for pipe in pipes:
                    pipe.send(form)
                found[form].append(max(pipe.recv() for pipe in pipes))
                for file in Path(directory).iterdir():
                    file.unlink()
        for pipe in pipes:
            pipe.send("")
        for process in processes:
            process.join()
    return found


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--groups", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=8, help="rollouts of a group")
    parser.add_argument("--tokens", type=int, default=150_000, help="tokens of a rollout")
    parser.add_argument("--server", default="", help="the built program of cmd/lab/bench/batches")
    said = parser.parse_args()
    size_mb = said.groups * said.rollouts * said.tokens * 13 // 10**6
    command = [said.server] if said.server else ["go", "run", "./cmd/lab/bench/batches"]
    command += [f"--groups={said.groups}", f"--rollouts={said.rollouts}", f"--tokens={said.tokens}"]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdin is not None
    url = server.stdout.readline().strip()
    Transport(url).close()
    print(f"{size_mb} MB in {said.groups} groups; seconds, medians of {said.rounds} rounds in turn (least to most)")
    print("ranks  " + "".join(f"{form:>24}" for form in FORMS), flush=True)
    for ranks in said.ranks:
        # In memory every rank keeps all groups: that is for one.
        forms = [form for form in FORMS if form != "ahead" or ranks == 1]
        found = measure(url, ranks, forms, said.rounds, size_mb)
        cells = ""
        for form in FORMS:
            took = found.get(form)
            cell = f"{statistics.median(took):.2f} ({min(took):.2f} to {max(took):.2f})" if took else "-"
            cells += f"{cell:>24}"
        print(f"{ranks:<7}{cells}", flush=True)
    server.stdin.close()
    server.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
