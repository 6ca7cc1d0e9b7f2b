"""verl's fully_async_policy and its v1 async trainer, at 1dda039b9c63 (verl-project/verl).

FullyAsyncTrainer adds up MetricsAggregator's figures over the train steps of a weight sync and logs
them once, under the count of syncs. It counts prompts and calls one a sample.
"""

from __future__ import annotations

import json
from typing import Any

from . import clock, sinks
from .truth import Step, Truth, mean, percentile, served


def _tracking(out: str, project: str, config: dict[str, Any]):
    run = sinks.Wandb(f"{out}/wandb/run-{project}.wandb", config, project, project)
    board = sinks.TorchWriter(f"{out}/tensorboard/events.out.tfevents.{int(clock.START)}.node-0.1.0")
    console = sinks.Console(f"{out}/console.log")
    file = open(f"{out}/{project}.jsonl", "w", encoding="utf-8")
    return run, board, console, file


def _log(sinks_: Any, values: dict[str, Any], step: int, pid: int) -> None:
    run, board, console, file = sinks_
    run.log(values, step=step)
    for key, value in values.items():
        board.add_scalar(key, value, step)
    console.print(" - ".join([f"step:{step}"] + [f"{k}:{v!r}" for k, v in values.items()]), actor="TaskRunner", pid=pid)
    file.write(json.dumps({"step": step, "data": values}) + "\n")


def _finish(sinks_: Any) -> None:
    for sink in sinks_[:1]:
        sink.finish()
    for sink in sinks_[1:]:
        sink.close()


def _batch(step: Step, cap: int) -> dict[str, float]:
    """What both trainers log of a batch."""
    return {
        "critic/score/mean": step.reward, "critic/rewards/mean": step.reward,
        "response_length/mean": step.response_tokens,
        "response_length/max": float(max(r["tokens"] for r in step.rollouts)),
        "response_length/min": float(min(r["tokens"] for r in step.rollouts)),
        "response_length/clip_ratio": step.truncated(cap),
    }


def write_fully_async(truth: Truth, out: str) -> None:
    s = truth.settings
    every, n = s["sync_every"], s["group_size"]
    prompts = s["batch"] // n
    threshold = 0.5
    required = prompts
    max_required = int(required * (1 + threshold) * every)
    config = {
        "data": {"train_batch_size": 0, "gen_batch_size": 1, "max_response_length": s["cap_tokens"]},
        "actor_rollout_ref": {"hybrid_engine": False, "actor": {"ppo_mini_batch_size": prompts, "use_rollout_log_probs": True}, "rollout": {"n": n, "name": "sglang", "mode": "async"}},
        "rollout": {"nnodes": 1, "n_gpus_per_node": 8, "total_rollout_steps": 512, "test_freq": 10},
        "trainer": {"nnodes": 1, "n_gpus_per_node": 8, "logger": ["console", "wandb", "tensorboard", "file"], "project_name": "verl-fa", "experiment_name": "golden"},
        "async_training": {"staleness_threshold": threshold, "trigger_parameter_sync_step": every, "require_batches": 1, "partial_rollout": True,
                           "use_dynamic_resource_scheduling": False, "concurrent_samples_per_replica": 16},
        "algorithm": {"rollout_correction": {"bypass_mode": True}},
    }
    sinks_ = _tracking(out, "verl-fa", config)
    console = sinks_[2]
    stale_trajectories = generated = 0
    cycles = [truth.steps[i:i + every] for i in range(0, len(truth.steps), every)]
    cycle_began = 0.0
    for version, cycle in enumerate(cycles, start=1):
        done = max(step.done_s for step in cycle)
        clock.at(done)
        finished = sum(step.finished for step in cycle) // n
        generated += finished
        span = done - cycle_began
        cycle_began = done
        idle = 0.0  # rollouts never paused
        after = {"fully_async/rollouter/active_time": span * (1 - idle), "fully_async/rollouter/version_time": span,
                 "fully_async/rollouter/idle_ratio": idle, "fully_async/rollouter/step_generated_samples": finished,
                 "dynamic_resource/rollout_resource_utilization": 0.98}
        console.print(f"[FullyAsyncRollouter][Public][reset_staleness] reset staleness_samples to: {cycle[-1].in_flight_end // n} idle_ratio: {idle:.4f} step_generated_samples(this_step): {finished} recent_history(last 5 steps): [({version}, {finished})]", actor="FullyAsyncRollouter", pid=4343)
        _log(sinks_, after, version, 4242)
        rollouts = [r for step in cycle for r in step.rollouts]
        times = [r["generate_s"] for r in rollouts]
        spans = [abs(served(r, "last") - served(r, "first")) // every for r in rollouts]
        for step in cycle:
            # Versions are syncs here, and a trajectory counts by the last that it saw.
            current = step.version // every
            stale_trajectories += sum(current - served(r, "last") // every >= 1 for r in step.rollouts)
        first = cycle[0]
        metrics: dict[str, float] = {key: mean(_batch(step, s["cap_tokens"])[key] for step in cycle) for key in ("critic/score/mean", "critic/rewards/mean", "response_length/mean", "response_length/clip_ratio")}
        metrics["response_length/max"] = float(max(r["tokens"] for r in rollouts))
        metrics["response_length/min"] = float(min(r["tokens"] for r in rollouts))
        gen, update = sum(step.wait_s for step in cycle), sum(step.train_s for step in cycle)
        sync = sum(step.sync_s for step in cycle)
        step_s = gen + update + sync
        metrics |= {
            "training/global_step": float(cycle[-1].step), "training/epoch": 0.0,
            "fully_async/count/stale_trajectory_processed": float(stale_trajectories),
            "fully_async/count/current_param_version": float(version - 1),
            "fully_async/total_wait_time": mean(step.wait_s for step in cycle),
            "fully_async/processing_time/avg": mean(times), "fully_async/processing_time/max": max(times), "fully_async/processing_time/min": min(times),
            "fully_async/processing_time/tp50": percentile(times, 50), "fully_async/processing_time/tp95": percentile(times, 95), "fully_async/processing_time/tp99": percentile(times, 99),
            "fully_async/partial/total_partial_num": float(sum(d > 0 for d in spans)), "fully_async/partial/partial_ratio": mean(d > 0 for d in spans), "fully_async/partial/max_partial_span": float(max(spans)),
            "fully_async/monitor/active_tasks_size": mean(step.in_flight // n for step in cycle),
            "fully_async/monitor/queue/pending_queue_size": 1.0, "fully_async/monitor/queue/mq_queue_size": mean(step.queued for step in cycle),
            "fully_async/count/total_generated_samples": float(generated), "fully_async/count/staleness_samples": mean(step.in_flight // n + step.queued for step in cycle),
            "fully_async/count/dropped_stale_samples": 0.0,
            "fully_async/static/max_required_samples": float(max_required), "fully_async/static/required_samples": float(required),
            "fully_async/static/staleness_threshold": threshold, "fully_async/static/max_queue_size": float(max_required),
            "fully_async/static/max_concurrent_samples": float(s["concurrency"] // n),
            "timing_s/gen": gen, "timing_s/update_actor": update, "timing_s/timing_s/param_sync": sync, "timing_s/step": step_s,
            "perf/time_per_step": step_s, "perf/total_num_tokens": float(sum(step.tokens() for step in cycle)),
            "perf/throughput": sum(step.tokens() for step in cycle) / step_s / 16,
            "actor/pg_clipfrac": 0.012 + 0.001 * (first.step % 5), "actor/ppo_kl": 0.0021,
            "fully_async/trainer/idle_ratio": gen / step_s,
        }
        _log(sinks_, metrics, version, 4242)
        console.bar(version, len(cycles), "Training Progress", actor="FullyAsyncTrainer", pid=4444)
    _finish(sinks_)


def write_v1(truth: Truth, out: str) -> None:
    s = truth.settings
    n = s["group_size"]
    config = {
        "data": {"train_batch_size": s["batch"] // n, "max_response_length": s["cap_tokens"]},
        "actor_rollout_ref": {"actor": {"ppo_mini_batch_size": s["batch"] // n}, "rollout": {"n": n, "name": "vllm", "mode": "async", "agent": {"num_workers": 8}}},
        "trainer": {"nnodes": 1, "n_gpus_per_node": 8, "project_name": "verl-v1", "experiment_name": "golden", "use_v1": True,
                    "v1": {"trainer_mode": "separate_async", "separate_async": {"num_warmup_batches": s["concurrency"] // s["batch"], "parameter_sync_step": 1},
                           "sampler": {"max_off_policy_threshold": int(s["budget"]) + 1, "max_off_policy_strategy": "drop", "sync_refill_failed_groups": False}}},
    }
    sinks_ = _tracking(out, "verl-v1", config)
    console = sinks_[2]
    for step in truth.steps:
        clock.at(step.done_s)
        spans = [served(r, "last") - served(r, "first") + 1 for r in step.rollouts]
        last = [step.version - served(r, "last") for r in step.rollouts]
        worst = [step.version - served(r, "first") for r in step.rollouts]
        metrics = _batch(step, s["cap_tokens"])
        for name, values in (("trajectory_spans", spans), ("trajectory_staleness", last), ("trajectory_staleness_worst", worst)):
            metrics |= {f"training/off_policy/{name}/mean": mean(values), f"training/off_policy/{name}/max": float(max(values)), f"training/off_policy/{name}/min": float(min(values))}
        if step.dropped:
            metrics["training/off_policy/evicted_samples"] = step.dropped // n
        step_s = step.wait_s + step.train_s + step.sync_s
        metrics |= {"training/global_step": step.step, "training/epoch": 0, "timing_s/gen": step.wait_s, "timing_s/update_actor": step.train_s, "timing_s/update_weights": step.sync_s, "timing_s/step": step_s,
                    "perf/total_num_tokens": step.tokens(), "perf/time_per_step": step_s, "perf/throughput": step.tokens() / step_s / 8, "actor/pg_clipfrac": 0.02, "rollout_corr/rollout_is_eff_sample_size": 0.97}
        _log(sinks_, metrics, step.step, 5252)
        console.bar(step.step, len(truth.steps), "Training Progress", actor="TaskRunner", pid=5252)
    _finish(sinks_)
