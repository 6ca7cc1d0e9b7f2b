"""The truth of a simulated run, as explain/foreign/golden writes it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Step:
    """A train step with the rollouts that it trained on. See truthStep of the Go side."""

    raw: dict[str, Any]
    rollouts: list[dict[str, Any]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return self.raw[name]

    @property
    def version(self) -> int:
        """The version that the step trains from."""
        return self.raw["step"] - 1

    @property
    def train_s(self) -> float:
        return self.raw["end_s"] - self.raw["start_s"]

    @property
    def wait_s(self) -> float:
        return self.raw["start_s"] - self.raw["asked_s"]

    @property
    def done_s(self) -> float:
        """When the step and its weight sync are over."""
        return self.raw["end_s"] + self.raw["sync_s"]

    def groups(self) -> list[list[dict[str, Any]]]:
        found: dict[int, list[dict[str, Any]]] = {}
        for r in self.rollouts:
            found.setdefault(r["group"], []).append(r)
        return list(found.values())

    def tokens(self) -> int:
        return sum(r["tokens"] for r in self.rollouts)

    def truncated(self, cap: int) -> float:
        return sum(r["tokens"] >= cap for r in self.rollouts) / len(self.rollouts)


@dataclass
class Truth:
    framework: str
    settings: dict[str, Any]
    steps: list[Step]
    rollouts: list[dict[str, Any]]  # all that were scored, in the order in which they ended


def load(path: str) -> Truth:
    with open(path, encoding="utf-8") as file:
        raw = json.load(file)
    by_group: dict[int, list[dict[str, Any]]] = {}
    for r in raw["rollouts"]:
        by_group.setdefault(r["group"], []).append(r)
    steps = [Step(s, [r for g in s["groups"] for r in by_group[g]]) for s in raw["steps"]]
    return Truth(raw["framework"], raw["settings"], steps, raw["rollouts"])


def mean(values: Any) -> float:
    values = list(values)
    return sum(values) / len(values)


def percentile(values: list[float], p: float) -> float:
    """Linear between the order statistics, as numpy has it."""
    values = sorted(values)
    at = (len(values) - 1) * p / 100
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def served(r: dict[str, Any], version: str) -> int:
    """The first or last version that sampled a token of a rollout."""
    return r["spans"][0 if version == "first" else -1][0]
