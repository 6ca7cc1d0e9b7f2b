"""TRL's async GRPO at f2cd57710ae3 (huggingface/trl), with the queue figures of its pull request 6715.

Trainer.log puts every figure under train/ for W&B and TensorBoard, and bare into trainer_state.json and what it prints.
"""

from __future__ import annotations

import json

from . import clock, sinks
from .truth import Truth, mean


def write(truth: Truth, out: str) -> None:
    s = truth.settings
    config = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": s["batch"] // 8, "num_generations": s["group_size"], "max_completion_length": s["cap_tokens"],
              "max_inflight_tasks": s["concurrency"], "max_staleness": int(s["budget"]), "queue_maxsize": 1024, "weight_sync_steps": 1, "world_size": 1, "logging_steps": 1}
    run = sinks.Wandb(f"{out}/wandb/run-trl.wandb", config, "trl", "trl")
    run.run.define_metric("train/global_step")
    run.run.define_metric("*", step_metric="train/global_step", step_sync=True)
    board = sinks.TorchWriter(f"{out}/tensorboard/events.out.tfevents.{int(clock.START)}.node-0.1.0")
    console = sinks.Console(f"{out}/console.log")
    history = []
    for step in truth.steps:
        clock.at(step.done_s)
        waits = [step.start_s - r["end_s"] for r in step.rollouts]
        logs = {
            "loss": 0.0, "grad_norm": 0.21, "learning_rate": 1e-06, "reward": step.reward, "completions/mean_length": step.response_tokens, "completions/clipped_ratio": step.truncated(s["cap_tokens"]),
            "clip_ratio/region_mean": 0.015, "kl": 0.0009, "weight_sync_time_s": step.sync_s, "queue_wait_time_s": step.wait_s / step.trained,
            "sample/time_in_queue_s": mean(waits), "sample/rollout_queue_size": step.queued * s["group_size"], "perf/rollout_wait_s": step.wait_s, "rollout/backpressure_s": 0.0,
            "forward_time_s": step.train_s, "training_tok/s": step.tokens() / step.train_s, "epoch": round(step.step / 100, 4),
        }
        run.log({f"train/{k}": v for k, v in logs.items()} | {"train/global_step": step.step})
        for key, value in logs.items():
            board.add_scalar(f"train/{key}", value, step.step)
        history.append(logs | {"step": step.step})
        console.print(str(logs))
        console.bar(step.step, len(truth.steps), "")
    with open(f"{out}/trainer_state.json", "w", encoding="utf-8") as file:
        json.dump({"best_metric": None, "epoch": history[-1]["epoch"], "global_step": len(history), "log_history": history, "logging_steps": 1, "max_steps": len(history)}, file, indent=2)
    run.finish()
    board.close()
    console.close()
