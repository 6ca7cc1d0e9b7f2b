"""PipelineRL at 58d393458625 (ServiceNow/PipelineRL).

Its versions are counts of samples: a broadcast takes training_metrics.samples for one, and rollouts carry that. Actor,
preprocessor and trainer have a W&B run each; only the trainer's has a step. Streams are files of JSON lines.
"""

from __future__ import annotations

import json
import os
from typing import Any

from . import clock, sinks
from .truth import Truth, mean, percentile


def _stats(values: list[float], name: str) -> dict[str, float]:
    return {f"{name}_max": max(values), f"{name}_min": min(values), f"{name}_mean": mean(values), f"{name}_var": mean((v - mean(values)) ** 2 for v in values)}


def _format(value: Any) -> str:
    if isinstance(value, (int, float)):
        return f"{value:.3e}" if abs(value) < 1e-3 and value != 0 else f"{value:.3f}"
    return str(value)


def _config(s: dict[str, Any]) -> dict[str, Any]:
    """As flatten_dict_config leaves it."""
    return {"attempts": s["group_size"], "max_lag": None, "pop_old_data": True, "actor.llm_max_rollouts": s["concurrency"] // 2, "actor.rollout_workers": 1, "actor.problem_queue_size": 64,
            "actor.result_queue_size": 64, "preprocess.ring_buffer_size": s["queue"], "preprocess.max_ready_samples_per_lead": 64, "finetune.train_batch_size": 1,
            "finetune.gradient_accumulation_passes": s["batch"], "finetune.weight_update_interval": 1, "finetune.attempts": s["group_size"], "finetune.max_lag": None,
            "world.replicas": 1, "world.actor_fraction": 2, "world.preprocessor_fraction": 0, "world.finetune_fraction": 4, "llm.parameters.max_tokens": s["cap_tokens"]}


def _streams(truth: Truth, out: str) -> None:
    s = truth.settings
    path = f"{out}/streams/actor/0/0/0.jsonl"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    ready: dict[int, list[dict[str, Any]]] = {}
    for r in truth.rollouts:
        if r["ready_s"]:
            ready.setdefault(r["group"], []).append(r)
    with open(path, "w", encoding="utf-8") as file:
        for group, rollouts in sorted(ready.items(), key=lambda item: (item[1][0]["ready_s"], item[0])):
            texts = [{"text": "", "n_predicted": r["tokens"], "reward": r["reward"], "logprobs": [], "ref_logprobs": [], "input_ids": [], "labels": [], "group_id": f"actor_{group}", "finished": True,
                      "prompt_tokens": 64, "output_tokens": r["tokens"], "visual_features": None,
                      "metadata": {"model_version": r["spans"][0][0] * s["batch"], "rollout_index": r["sample"], "step_index": 0}} for r in rollouts]
            file.write(json.dumps(texts, separators=(",", ":")) + "\n")


def write(truth: Truth, out: str) -> None:
    s = truth.settings
    n, batch = s["group_size"], s["batch"]
    config = _config(s)
    actor = sinks.Wandb(f"{out}/actor/wandb/run-actor.wandb", config, "pipeline-rl", "golden-actor")
    finetune = sinks.Wandb(f"{out}/finetune/wandb/run-finetune.wandb", {"num_processes": "4", **config}, "pipeline-rl", "golden-finetune")
    preprocess = sinks.Wandb(f"{out}/preprocess/wandb/run-preprocess.wandb", config, "pipeline-rl", "golden-preprocess")
    console = sinks.Console(f"{out}/finetune.log")
    stats_path = f"{out}/streams/stats/0/0/0.jsonl"
    os.makedirs(os.path.dirname(stats_path), exist_ok=True)
    waited = published = groups = tokens = 0.0
    with open(stats_path, "w", encoding="utf-8") as stats_stream:
        for step in truth.steps:
            finished = [r for r in truth.rollouts if r["ready_s"] and step.asked_s < r["ready_s"] <= step.done_s]
            published += len(finished)
            groups += len(finished) // n
            clock.at(step.end_s)
            waited += step.wait_s
            tokens += step.tokens()
            versions = [r["stamp"] * batch for r in step.rollouts]
            metrics = {
                "stats/lr": 1e-6, "stats/grad_norm": 0.12, "stats/samples": step.step * batch, "stats/tokens": tokens, "stats/samples_too_old_to_queue": 0, "stats/samples_too_old_to_train": 0,
                "stats/passes": step.step * batch, "stats/completed_steps": step.step, "stats/epoch": 0, "stats/min_actor_version": min(versions), "stats/max_actor_version": max(versions),
                "stats/queue/batches": min(step.queued * n, 32), "stats/time_waiting_for_data": waited, "stats/lag": step.version * batch - min(versions),
                "throughput/tokens_per_sec": step.tokens() / step.train_s, "throughput/real_tokens_per_sec": step.tokens() / (step.wait_s + step.train_s), "throughput/samples_per_sec": batch / step.train_s,
                "throughput/steps_per_sec": 1 / (step.wait_s + step.train_s), "throughput/sec_per_step": step.wait_s + step.train_s, "rl/reward": step.reward, "rl/ess": 0.981, "rl/clamp_log_ratio_new_old_indicator": 0.021,
            }
            console.print(f"[finetune]: {clock.stamp('%m/%d/%Y %H:%M:%S')}.{int(clock.now() % 1 * 1000):03d} - INFO - pipelinerl.finetune.logging_ - Completed steps {step.step}: { {k: _format(v) for k, v in metrics.items()} }")
            finetune.log(metrics, step=step.step)
            clock.at(step.done_s)
            if finished:
                took = [r["end_s"] - r["start_s"] for r in finished]
                stats = _stats(took, "latency") | _stats([r["spans"][0][0] * batch for r in finished], "model_version") | {"reward_mean": mean(r["reward"] for r in finished), "success_mean": mean(r["reward"] > 0 for r in finished),
                        "output_tokens_mean": mean(r["tokens"] for r in finished), "published_samples": published, "problem_queue_size": 64, "result_queue_size": step.queued, "finished_groups": groups,
                        "trainer_model_version": step.version * batch, "time_since_start": step.done_s}
                actor.log({f"actor/{k}": v for k, v in stats.items()})
                stats_stream.write(json.dumps(stats) + "\n")
            preprocess.log({"preprocessor/published_samples": step.step * batch, "preprocessor/published_model_version": max(versions), "preprocessor/queue/raw_samples": 0, "preprocessor/queue/raw": 0,
                            "preprocessor/queue/output_samples": step.queued * n, "preprocessor/queue/output": step.queued, "preprocessor/filtered_out_samples": 0})
    for run in (actor, finetune, preprocess):
        run.finish()
    console.close()
    _streams(truth, out)
