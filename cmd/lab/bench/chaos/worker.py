"""An environment worker that speaks the API by hand and writes down what it was promised.

It plays the task reverse. Every finish that the control plane has answered with "counted" becomes a line of the
journal, synced before the worker goes on: from then on the rollout may not be lost, whatever is killed.
"""

import argparse
import json
import os
import random
import threading

import httpx


def play(client: httpx.Client, worker: str, journal: "Journal") -> bool:
    """Claim one rollout, play it and finish it; False when the run has ended."""
    reply = client.post("/api/v1/rollouts/claim", json={"worker": worker, "wait_s": 5})
    if reply.status_code == 205:
        return False
    if reply.status_code != 200:
        return True
    claim = reply.json()["rollouts"][0]
    draw = random.Random(f"{claim['seed']}/{claim['prompt']}")
    word = [3 + draw.randrange(26) for _ in range(draw.randint(2, 5))]
    path = f"/api/v1/rollouts/{claim['id']}"
    mine = {"worker": worker, "secret": claim["secret"]}
    sampled = client.post(f"{path}/sample", json={**mine, "turn": 0, "prompt": [0, *word, 1], "max_tokens": 6})
    if sampled.status_code != 200:
        return True
    want = [*reversed(word), 2]
    said = sampled.json()["tokens"]
    reward = sum(a == b for a, b in zip(want, said)) / max(len(want), len(said))
    finished = client.post(f"{path}/finish", json={**mine, "reward": reward, "exact": want == said})
    if finished.status_code == 200 and finished.json()["counted"]:
        journal.write(claim["group"], claim["sample"], claim["attempt"])
    return True


class Journal:
    """JSON lines that survive the end of this process."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, group: int, sample: int, attempt: int) -> None:
        """Append one rollout."""
        with self._lock:
            self._file.write(json.dumps([group, sample, attempt]) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())


def work(url: str, name: str, journal: Journal) -> None:
    """Play until the run has ended; a control plane that is gone is waited for."""
    with httpx.Client(base_url=url, timeout=httpx.Timeout(30.0, connect=2.0)) as client:
        pause = threading.Event()
        while True:
            try:
                if not play(client, name, journal):
                    return
            except httpx.TransportError:
                pause.wait(0.05)


def main() -> None:
    """Start the threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("journal")
    parser.add_argument("--name", default="worker")
    parser.add_argument("--threads", type=int, default=16)
    said = parser.parse_args()
    journal = Journal(said.journal)
    threads = [threading.Thread(target=work, args=(said.url, f"{said.name}-{i}", journal)) for i in range(said.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
