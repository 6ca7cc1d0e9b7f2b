"""Rollouts that see images go on after a restart: of the control plane, and of a cell."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import headway
import httpx
import pytest
from headway.program import program
from test_images import Trainer, drawn, part, scored

# How many rollouts are under way when a process dies, and how long anything may take.
UNDER_WAY, WITHIN_S = 8, 300


class Process:
    """A process of the run that is killed, and started again at its address."""

    def __init__(self, *words: str) -> None:
        self.words, self.listen = [str(program()), *words], "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        self.lines: list[str] = []
        listening = threading.Event()
        self.process = subprocess.Popen(
            [*self.words, "--listen", self.listen], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )

        def read() -> None:
            for line in self.process.stderr or ():
                self.lines.append(line)
                if found := re.search(r"listening on http://(\S+)", line):
                    self.listen = found[1]
                    listening.set()
            listening.set()

        threading.Thread(target=read, daemon=True).start()
        assert listening.wait(WITHIN_S) and self.process.poll() is None, "".join(self.lines)

    @property
    def url(self) -> str:
        return f"http://{self.listen}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Looks:
    """Rollouts of two turns with an image each, and a third. The first of them stop before their third."""

    def __init__(self) -> None:
        self.paused, self.goes_on, self.between = threading.Semaphore(0), threading.Event(), threading.Event()
        self.attempts: list[str] = []

    def play(self, task: headway.Task) -> float:
        self.attempts.append(task.id)
        with httpx.Client(base_url=task.openai().base_url, headers=task.openai().headers, timeout=WITHIN_S) as http:
            chat: list[dict[str, object]] = []
            for turn in range(3):
                if turn == 2:
                    self.paused.release()
                    assert self.goes_on.wait(WITHIN_S)
                chat.append({"role": "user", "content": [part(drawn(task.group, turn))] if turn < 2 else "and?"})
                asked = {"messages": chat, "max_tokens": 6}
                while (reply := http.post("/chat/completions", json=asked)).status_code == 503:
                    self.between.wait(0.1)  # a process that is starting
                assert reply.status_code == 200, reply.text
                chat.append(reply.json()["choices"][0]["message"])
        return float(task.sample % 2)


def free() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"


@pytest.fixture(params=["control plane", "cell"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Process, Process]]:
    """The control plane of a run, and the process that plays."""
    engine: dict[str, object] = {"kind": "vllm", "url": os.environ["HEADWAY_TEST_VLLM_VISION"], "slots": UNDER_WAY}
    document: dict[str, object] = {
        "model": {"path": os.environ["HEADWAY_TEST_WEIGHTS"].split(":")[0]},
        "engines": [engine],
        "environment": {"name": "look", "kind": "remote", "prompt_tokens_max": 200, "response_tokens_max": 8},
        "rollout": {"group_size": 4}, "train": {"batch": UNDER_WAY}, "trainer": {"kind": "remote", "steps": 2},
        "failures": {"max_attempts": 1},
    }  # fmt: skip
    if request.param == "cell":
        engine["cell"], document["store"] = "c", {"nats": {"listen": free()}}
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(document))
    of = (str(file), "--name", "r", "--dir", str(tmp_path / "runs"))
    plane = Process("serve", *of)
    plays = Process("cell", "c", *of) if request.param == "cell" else plane
    yield plane, plays
    for process in {plays, plane}:
        process.kill()


def test_nothing_is_sampled_twice(run: tuple[Process, Process]) -> None:
    plane, plays = run
    looks, stop = Looks(), threading.Event()
    worker = threading.Thread(
        target=headway.work, args=(plays.url, headway.environment("look")(looks.play)), kwargs={"stop": stop, "grace_s": 1}
    )
    with headway.connect(plane.url) as client:
        client.load()
        worker.start()
        for _ in range(UNDER_WAY):
            assert looks.paused.acquire(timeout=WITHIN_S)
        plays.kill()
        plays.start()
        looks.goes_on.set()
        batch = client.lease()
        while batch is None:
            batch = client.lease()
        stop.set()
        worker.join()
        first = [a for a in looks.attempts if a.split("-")[0] in {f"g{g}" for g in set(map(int, batch.groups))}]
        assert len(first) == UNDER_WAY and all(a.endswith("-a1") for a in looks.attempts), looks.attempts
        assert len(batch.media) == 2 * len(batch)  # a chat that is rendered anew may be another sequence
        for m in batch.media:
            assert m.bytes() in (drawn(int(batch.groups[m.sequence]), 0), drawn(int(batch.groups[m.sequence]), 1))
        seen = batch.compare(scored(batch, Trainer(os.environ["HEADWAY_TEST_WEIGHTS"].split(":")[0])))
        print("seen:", seen)
        assert seen.agrees and seen.difference < 1e-4, seen
