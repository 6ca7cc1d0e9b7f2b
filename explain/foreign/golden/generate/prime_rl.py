"""prime-rl at 559b44772e47 (PrimeIntellect-ai/prime-rl): orchestrator and trainer each write metrics.jsonl and a W&B run,
under keys that they share in part (time/step); every effective episode goes to rollouts/step_N/train/effective/traces.jsonl."""

from __future__ import annotations

import json
import os
from typing import Any

from . import clock, sinks
from .truth import Truth, mean, served


class _Process:
    """A process with its file and its run."""

    def __init__(self, out: str, name: str, config: dict[str, Any]) -> None:
        os.makedirs(f"{out}/{name}", exist_ok=True)
        self.file = open(f"{out}/{name}/metrics.jsonl", "w", encoding="utf-8")
        self.run = sinks.Wandb(f"{out}/{name}/wandb/run-{name}.wandb", config, "prime-rl", f"golden-{name}")
        self.run.run.define_metric("*", step_metric="step")

    def log(self, metrics: dict[str, Any], step: int) -> None:
        self.file.write(json.dumps({"step": step, "time": clock.now(), **metrics}) + "\n")
        self.run.log({**metrics, "step": step})

    def close(self) -> None:
        self.file.close()
        self.run.finish()


def _episode(r: dict[str, Any], truth: Truth) -> dict[str, Any]:
    begin = clock.START + r["start_s"]
    return {
        "id": f"{r['group']}-{r['sample']}", "env": "reverse", "group": {"id": str(r["group"]), "size": truth.settings["group_size"]},
        "run": {"type": "train", "id": "golden", "work": {"policy": {"start": served(r, "first"), "end": served(r, "last")}, "env_name": "reverse"}},
        "timing": {"start": begin, "setup": {"start": begin, "end": begin}, "agent": {"start": begin, "end": begin + r["generate_s"]},
                   "scoring": {"start": begin + r["generate_s"], "end": begin + r["generate_s"] + r["environment_s"]}, "end": clock.START + r["end_s"]},
        "traces": [{"reward": r["reward"], "num_output_tokens": r["tokens"], "num_turns": 1, "is_truncated": False, "is_completed": True}],
    }


def write(truth: Truth, out: str) -> None:
    s = truth.settings
    config = {"orchestrator": {"batch_size": s["batch"], "group_size": s["group_size"], "max_off_policy_steps": int(s["budget"]),
                               "concurrency": {"initial_inflight": s["concurrency"], "min_inflight": 1, "max_inflight": s["concurrency"]}}}
    orchestrator = _Process(out, "orchestrator", config["orchestrator"])
    trainer = _Process(out, "trainer", {"max_steps": len(truth.steps), "loss": {"dppo_mask_low": 0.2, "dppo_mask_high": 0.2}})
    # Both loops go on with the next step once the one before is done; the policy waits beside it.
    shipped = trained = 0.0
    for step in truth.steps:
        clock.at(step.start_s)
        started = [step.version - served(r, "first") for r in step.rollouts]
        in_flight = [min(total, served(r, "last") - served(r, "first")) for total, r in zip(started, step.rollouts)]
        in_queue = [total - flight for total, flight in zip(started, in_flight)]
        latency = [r["end_s"] - r["start_s"] for r in step.rollouts]
        path = f"{out}/rollouts/step_{step.step}/train/effective/traces.jsonl"
        if step.step % 8 == 0:  # a user keeps some
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(_episode(r, truth), separators=(",", ":")) + "\n" for r in step.rollouts)
        orchestrator.log({
            "train/agg/effective/reward/mean": step.reward, "train/agg/effective/num_output_tokens/mean": step.response_tokens,
            "train/agg/all/timing/total/mean": mean(latency), "train/agg/all/timing/total/max": max(latency),
            "progress/tokens": step.tokens(), "progress/rollouts": step.trained, "progress/tasks": step.trained // s["group_size"],
            "time/step": step.start_s - shipped, "time/pack": 0.0, "time/save_ckpt": 0.0, "time/wait_for_policy": 0.0, "step": step.step,
            "off_policy/mean": mean(started), "off_policy/max": float(max(started)),
            "off_policy/in_flight/mean": mean(in_flight), "off_policy/in_flight/max": float(max(in_flight)),
            "off_policy/in_queue/mean": mean(in_queue), "off_policy/in_queue/max": float(max(in_queue)),
            "off_policy/dropped": float(step.dropped),
            "dispatcher/inflight/train": float(step.in_flight), "dispatcher/inflight/eval": 0.0, "dispatcher/cancelled/train": 0.0,
            "concurrency/max_inflight": float(s["concurrency"]), "concurrency/signal": 0.0,
            "watcher/policy_version": float(step.version), "watcher/update_count": float(step.version), "watcher/last_update_weights_time": 0.5,
        }, step.step)
        shipped = step.start_s
        clock.at(step.end_s)
        trainer.log({"perf/throughput": step.tokens() / (step.end_s - trained), "perf/throughput_per_gpu": step.tokens() / (step.end_s - trained) / 8, "perf/mfu": 31.5, "step": step.step}, step.step)
        trainer.log({"optim/lr": 1e-6, "step": step.step}, step.step)
        trainer.log({"mismatch_kl/all/mean": 0.0013, "is_masked/all/mean": 0.004, "step": step.step}, step.step)
        trainer.log({"time/step": step.end_s - trained, "time/wait_for_batch": step.wait_s, "time/load_data": 0.0, "time/broadcast_weights": 0.0, "time/save_ckpt": 0.0,
                     "time/forward_backward": step.train_s, "step": step.step}, step.step)
        trained = step.end_s
    orchestrator.close()
    trainer.close()
