"""Judge a run that was killed again and again, from its files alone and without Headway's code.

usage: audit.py RUN [TRAINER_JOURNAL WORKER_JOURNAL...]

It reads the event log's mirror, the manifests of the published versions, what the trainer wrote down of its
batches and what the workers wrote down of their acknowledged rollouts, and prints one JSON object. It ends with 1
if something is not as it must be:

  every attempt that was started ends once or is still there, and the figures add up to the ledger's;
  no batch is committed twice: leases of manifests and train steps are the same, each once, versions without a gap;
  no group is trained twice;
  what the trainer says it published is what the manifests say, made of the groups that the log leased;
  no acknowledged rollout is lost: it is in the log, and its sample was never started again after it.

Without journals, as of a run that trains in its own process, the last two are passed over.
"""

import json
import pathlib
import subprocess
import sys
from collections import Counter
from typing import Any


class Audit:
    """What was found, and what is wrong with it."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.figures: dict[str, Any] = {}

    def expect(self, holds: bool, problem: str) -> None:
        """Note a problem unless it holds."""
        if not holds:
            self.problems.append(problem)


def lines(audit: Audit, path: pathlib.Path) -> list[Any]:
    """The JSON lines of a file. One may be torn for every time its writer was killed: what follows it is whole."""
    out, torn = [], 0
    packed = path.with_name(path.name + ".zst")
    if packed.exists():
        content = subprocess.run(["zstd", "-dc", packed], stdout=subprocess.PIPE, check=True).stdout
    else:
        content = path.read_bytes()
    for text in content.split(b"\n"):
        try:
            if text:
                out.append(json.loads(text))
        except ValueError:
            torn += 1
    audit.expect(torn == 0 or path.suffix == ".jsonl", f"{path.name} has {torn} lines that are no JSON")
    return out


def read_log(audit: Audit, run: pathlib.Path) -> dict[str, Any]:
    """What the log says of attempts, groups, batches and versions."""
    started: Counter[tuple[int, int, int]] = Counter()
    started_at: dict[tuple[int, int], list[tuple[int, int]]] = {}  # of a sample: (line, attempt)
    scored: dict[tuple[int, int, int], int] = {}
    trained: Counter[int] = Counter()
    ended: Counter[int] = Counter()
    ends: Counter[str] = Counter()  # rollouts of groups that ended untrained, by how
    leased: dict[int, set[int]] = {}
    steps: dict[int, int] = {}  # version by lease
    batch, rollouts_trained, end, recovered = 0, 0, None, 0
    for at, line in enumerate(lines(audit, run / "trace.ndjson")):
        sample = (line.get("g", 0), line.get("s", 0))
        attempt = (*sample, line.get("attempt", 0))
        match line.get("a") or line.get("e") or line.get("note"):
            case "header":
                batch = line["data"]["loop"]["GroupSize"] * line["data"]["loop"]["BatchGroups"]
            case "start-rollout":
                started[attempt] += 1
                started_at.setdefault(sample, []).append((at, attempt[2]))
            case "rollout-scored":
                audit.expect(attempt not in scored, f"attempt {attempt} was scored twice")
                scored.setdefault(attempt, at)
            case "group-leased":
                leased.setdefault(line["lease"], set()).add(line["g"])
            case "group-trained":
                trained[line["g"]] += 1
                rollouts_trained += line["count"]
            case "group-ended":
                ended[line["g"]] += 1
                ends[line["end"]] += line.get("count", 0)
            case "train-step-ended":
                audit.expect(line["lease"] not in steps, f"lease {line['lease']} ends two train steps")
                steps[line["lease"]] = line["v"]
            case "recovered":
                recovered += 1
            case "end":
                end = line["data"]["status"]
    audit.expect(bool(started), "the log starts no rollout")
    # An action whose execution was not in the log when the process died is issued anew, under another attempt.
    for attempt, n in started.items():
        audit.expect(n == 1, f"attempt {attempt} was started {n} times")
    for group, n in (trained + ended).items():
        audit.expect(n == 1, f"group {group} ended {n} times")
    audit.figures.update(attempts=len(started), groups_trained=len(trained), groups_ended=len(ended), train_steps=len(steps), recoveries=recovered)
    return {"started_at": started_at, "scored": scored, "leased": leased, "steps": steps, "batch": batch, "trained": rollouts_trained, "end": end,
            "groups": {g for g, _ in started_at}, "ended_groups": set(trained) | set(ended), "ends": ends, "trained_groups": set(trained)}


def check_ledger(audit: Audit, log: dict[str, Any]) -> None:
    """The ledger at the end against what was counted here."""
    end = log["end"]
    audit.expect(end is not None, "the log has no end: was the run stopped in order?")
    if end is None:
        return
    ledger = end["ledger"]
    parts = sum(n for name, n in ledger.items() if name != "admitted")
    audit.expect(ledger["admitted"] == parts, f"the ledger does not balance: {ledger['admitted']} admitted, {parts} accounted for")
    made = log["batch"] * len(log["steps"])
    audit.expect(ledger["trained"] == made, f"the ledger says {ledger['trained']} rollouts trained, {len(log['steps'])} train steps of {log['batch']} are {made}")
    # What followed from the last events before a crash may not have been written down, nor executed: it is in
    # the ledger alone. That is at most one turn of the loop for every crash.
    crashes = audit.figures["recoveries"]
    unwritten = {"attempts": ledger["admitted"] - audit.figures["attempts"], "trained": made - log["trained"]}
    for what, n in unwritten.items():
        audit.expect(0 <= n <= 4 * log["batch"] * crashes, f"{n} more {what} in the ledger than in the log, after {crashes} crashes")
    # Every group that was opened has ended, or is one of those that are there still.
    open_groups = len(log["groups"] - log["ended_groups"])
    missing = open_groups - end["live_groups"]
    audit.expect(0 <= missing <= 8 * crashes, f"{open_groups} groups have no end in the log, {end['live_groups']} are there: {missing} ends are lost, after {crashes} crashes")
    # Rollouts whose group ended untrained had been scored and count under that end.
    for how, n in log["ends"].items():
        short = ledger.get(how, 0) - n
        audit.expect(how == "failed" or 0 <= short <= 4 * log["batch"] * crashes, f"the ledger has {ledger.get(how, 0)} rollouts {how}, the log {n}")
    audit.figures.update(ledger=ledger, in_the_ledger_alone={**unwritten, "groups": missing})


def check_versions(audit: Audit, run: pathlib.Path, log: dict[str, Any]) -> dict[int, int]:
    """Manifests against train steps; returns the lease of each version."""
    leases = {}
    for path in sorted((run / "weights").glob("v*/manifest.json")):
        manifest = json.loads(path.read_text())
        leases[manifest["version"]] = manifest["lease"]
    made = [lease for lease in leases.values() if lease]
    for lease, n in Counter(made).items():
        audit.expect(n == 1, f"batch {lease} is committed by {n} versions")
    audit.expect(sorted(leases) == list(range(len(leases))), f"versions have gaps: {sorted(leases)[:20]}")
    for lease, version in log["steps"].items():
        audit.expect(leases.get(version) == lease, f"the log's step of lease {lease} made version {version}, its manifest names lease {leases.get(version)}")
    unseen = set(made) - set(log["steps"])
    audit.expect(len(unseen) <= 1, f"published and never counted: leases {sorted(unseen)}")
    audit.figures.update(versions=len(leases))
    return leases


def check_trainer(audit: Audit, journal: pathlib.Path, leases: dict[int, int], log: dict[str, Any]) -> None:
    """What the trainer wrote down against the manifests and the log."""
    published: dict[int, dict[str, Any]] = {}
    counts: Counter[str] = Counter()
    for line in lines(audit, journal):
        counts[line["event"]] += 1
        if line["event"] == "leased":
            known = log["leased"].get(line["lease"], set())
            audit.expect(set(line["groups"]) == known, f"lease {line['lease']} reached the trainer with other groups than the log's")
        if line["event"] == "published":
            audit.expect(line["lease"] not in published, f"the trainer published lease {line['lease']} twice")
            published[line["lease"]] = line
            audit.expect(leases.get(line["version"]) == line["lease"], f"version {line['version']} was acknowledged for lease {line['lease']}, its manifest names {leases.get(line['version'])}")
    # Whatever was published by lease is among the manifests, and the trainer knows of all but those whose reply
    # was lost with its process or its connection.
    unknown = [lease for lease in leases.values() if lease and lease not in published]
    audit.expect(len(unknown) <= counts["connected"] + counts["lost"] + audit.figures["recoveries"] + 1, f"{len(unknown)} versions that the trainer was not told of")
    groups = Counter(g for line in published.values() for g in line["groups"])
    audit.expect(max(groups.values(), default=0) <= 1, f"groups trained twice: {[g for g, n in groups.items() if n > 1][:10]}")
    audit.expect(bool(published), "the trainer published nothing")
    audit.figures["trainer"] = dict(counts)


def check_workers(audit: Audit, journals: list[pathlib.Path], log: dict[str, Any]) -> None:
    """No acknowledged rollout is lost."""
    acknowledged, lost = 0, []
    for journal in journals:
        for group, sample, attempt in lines(audit, journal):
            acknowledged += 1
            at = log["scored"].get((group, sample, attempt))
            again = [line for line, other in log["started_at"].get((group, sample), []) if other > attempt]
            if at is None or again:
                lost.append((group, sample, attempt))
    audit.expect(acknowledged > 0, "no rollout was acknowledged")
    # A worker writes a rollout down when it is told; killed in between, it knows less, never more.
    counted = len(log["scored"])
    audit.expect(acknowledged >= counted * 0.8, f"the workers wrote down {acknowledged} rollouts, the log counts {counted}")
    audit.expect(not lost, f"{len(lost)} acknowledged rollouts were lost: {lost[:10]}")
    audit.figures.update(acknowledged=acknowledged)


def main() -> int:
    """Audit the run that is named."""
    run, *journals = (pathlib.Path(a) for a in sys.argv[1:])
    audit = Audit()
    log = read_log(audit, run)
    check_ledger(audit, log)
    leases = check_versions(audit, run, log)
    if journals:
        check_trainer(audit, journals[0], leases, log)
        check_workers(audit, journals[1:], log)
    print(json.dumps({"sound": not audit.problems, "problems": audit.problems[:50], **audit.figures}))
    return 1 if audit.problems else 0


if __name__ == "__main__":
    sys.exit(main())
