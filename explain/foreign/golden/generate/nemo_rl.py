"""NeMo-RL at 7ea279abfbeb (NVIDIA-NeMo/RL): the legacy asynchronous GRPO, and the single controller.

The legacy loop logs its age, the mean over groups of the training version less the one they were generated with. The single
controller prints the lag of the oldest sample, and logs none.
"""

from __future__ import annotations

from typing import Any

from . import clock, sinks
from .truth import Step, Truth, mean


def _timing(step: Step) -> dict[str, float]:
    return {"total_step_time": step.wait_s + step.train_s + step.sync_s, "exposed_generation": step.wait_s, "policy_training": 0.8 * step.train_s,
            "policy_and_reference_logprobs": 0.2 * step.train_s, "weight_sync": step.sync_s}


def _print_timing(console: sinks.Console, timing: dict[str, float]) -> None:
    total = timing["total_step_time"]
    console.print("\n⏱️  Timing:")
    console.print(f"  • Total step time: {total:.2f}s")
    for key, value in sorted(timing.items(), key=lambda item: item[1], reverse=True):
        if key != "total_step_time":
            console.print(f"  • {key}: {value:.2f}s ({value / total * 100:.1f}%)")


def _logger(run: sinks.Wandb, board: sinks.TorchWriter, values: dict[str, Any], step: int, prefix: str, last: bool = False) -> None:
    named = {f"{prefix}/{k}" if prefix else k: v for k, v in values.items()}
    run.log(named, step=step, commit=True if last else None)
    for key, value in named.items():
        board.add_scalar(key, value, step)


def write_legacy(truth: Truth, out: str) -> None:
    s = truth.settings
    n = s["group_size"]
    config = {"grpo": {"num_prompts_per_step": s["batch"] // n, "num_generations_per_prompt": n, "async_grpo": {"enabled": True, "max_trajectory_age_steps": int(s["budget"]), "in_flight_weight_updates": False}},
              "policy": {"generation": {"backend": "vllm", "max_new_tokens": s["cap_tokens"], "colocated": {"enabled": False, "resources": {"gpus_per_node": 4, "num_nodes": 1}}}},
              "cluster": {"gpus_per_node": 8, "num_nodes": 1}}
    run = sinks.Wandb(f"{out}/wandb/run-nemo.wandb", {}, "nemo-rl", "nemo")
    run.run.config.update(config, allow_val_change=True)
    board = sinks.TorchWriter(f"{out}/tensorboard/events.out.tfevents.{int(clock.START)}.node-0.1.0")
    console = sinks.Console(f"{out}/console.log")
    for step in truth.steps:
        groups = step.groups()
        age = step.version - mean(group[0]["stamp"] for group in groups)
        took = sorted(max(r["end_s"] for r in group) - min(r["start_s"] for r in group) for group in groups)
        clock.at(step.start_s)
        console.print(f"\n{'=' * 25} Step {step.step}/{len(truth.steps)} {'=' * 25}")
        console.print(f"📊 Step coordination: training_step={step.version}, max_age={int(s['budget'])}, buffer_size={step.queued}")
        console.print(f"   ✅ Selected {len(groups)} trajectories all intended for step {step.version}", actor="ReplayBuffer", pid=901)
        console.print(f"📊 Average trajectory age: {age:.2f} steps", actor="ReplayBuffer", pid=901)
        clock.at(step.done_s)
        timing = _timing(step)
        metrics = {"loss": 0.01, "reward": step.reward, "mean_gen_tokens_per_sample": step.response_tokens, "gen_kl_error": 0.0012, "token_mult_prob_error": 1.02, "sampling_importance_ratio": 1.001, "probs_ratio_clamped_mean": 1.0,
                   "global_valid_toks": step.tokens(), "trajectory_duration_s": mean(took), "trajectory_duration_s/max": max(took), "trajectory_duration_s/p95": took[min(int(len(took) * 0.95), len(took) - 1)],
                   "buffer_size": step.queued_end, "avg_trajectory_age": age}
        console.print(f"\n📊 Training Results:\n  • Loss: 0.0100\n  • Generation KL Error: 0.0012\n  • Avg Reward: {step.reward:.4f}\n  • Buffer Size: {step.queued_end}\n  • Avg Trajectory Age: {age:.2f} steps")
        _print_timing(console, timing)
        _logger(run, board, {"valid_tokens_per_sec_per_gpu": step.tokens() / timing["total_step_time"] / 8}, step.step, "performance")
        _logger(run, board, metrics, step.step, "train")
        _logger(run, board, {"efficiency/idle/buffer_starvation_s": step.wait_s, "efficiency/idle/buffer_starvation_pct": 100 * step.wait_s / timing["total_step_time"]}, step.step, "")
        _logger(run, board, timing | {"idle/buffer_starvation": step.wait_s}, step.step, "timing/train", last=True)
    run.finish()
    board.close()
    console.close()


def write_single_controller(truth: Truth, out: str) -> None:
    s = truth.settings
    n = s["group_size"]
    config = {"grpo": {"num_prompts_per_step": s["batch"] // n, "num_generations_per_prompt": n, "max_num_steps": len(truth.steps)},
              "async_rl": {"sampler": {"name": "windowed", "max_staleness_versions": int(s["budget"])}, "max_inflight_prompts": s["concurrency"] // n, "max_buffered_rollouts": s["queue"] // n, "min_groups_for_streaming_train": s["batch"] // n},
              "policy": {"generation": {"backend": "vllm", "max_new_tokens": s["cap_tokens"]}}, "cluster": {"gpus_per_node": 8, "num_nodes": 1}}
    run = sinks.Wandb(f"{out}/wandb/run-nemo-sc.wandb", {}, "nemo-rl", "nemo-sc")
    run.run.config.update(config, allow_val_change=True)
    board = sinks.TorchWriter(f"{out}/tensorboard/events.out.tfevents.{int(clock.START)}.node-0.1.0")
    console = sinks.Console(f"{out}/console.log")
    for step in truth.steps:
        clock.at(step.done_s)
        timing = _timing(step)
        metrics = {"loss": 0.01, "reward": step.reward, "global_valid_toks": step.tokens(), "gen_kl_error": 0.0012, "evicted_stale_prompt_groups": step.dropped // n, "aborted_stale_inflight_groups": 0,
                   "dropped_prompt_groups": 0, "replaced_prompt_groups": 0, "promoted_prompt_groups": 0}
        _print_timing(console, timing)
        console.print(f"step_metrics={metrics}")
        _logger(run, board, metrics, step.step, "train")
        _logger(run, board, timing, step.step, "timing/train", last=False)
        # The watchdog's pump, on a clock of its own.
        _logger(run, board, {"rollout/inflight": float(step.in_flight_end // n), "rollout/idle_s": 0.0, "rollout/train_steps": float(step.step), "rollout/committed_total": float(step.step * s["batch"] // n)}, step.step, "")
        lag = step.version - min(r["stamp"] for r in step.rollouts)
        console.print(f"train step {step.step}/{len(truth.steps)}  trainer_v={step.step}  lag={lag}  ")
    run.finish()
    board.close()
    console.close()
