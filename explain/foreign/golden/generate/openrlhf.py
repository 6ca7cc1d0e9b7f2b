"""OpenRLHF's PPOTrainerAsync at 3c3be6234e0c (OpenRLHF/OpenRLHF).

The config that W&B gets is args.__dict__ of nested namespaces, which the library writes as their text. No staleness, no
queue and no version is logged.
"""

from __future__ import annotations

from types import SimpleNamespace

from . import clock, sinks
from .truth import Truth


def write(truth: Truth, out: str) -> None:
    s = truth.settings
    n = s["group_size"]
    args = SimpleNamespace(
        actor=SimpleNamespace(num_nodes=1, num_gpus_per_node=4), critic=SimpleNamespace(freezing_steps=-1),
        rollout=SimpleNamespace(batch_size=s["batch"] // n, n_samples_per_prompt=n, vllm_generate_batch_size=None, temperature=1.0),
        train=SimpleNamespace(async_enable=True, async_queue_size=max(1, s["queue"] // s["batch"]), partial_rollout_enable=False, batch_size=s["batch"], num_episodes=1),
        algo=SimpleNamespace(dynamic_filtering_enable=False, advantage=SimpleNamespace(estimator="group_norm", is_correction_enable=False)),
        vllm=SimpleNamespace(num_engines=4, tensor_parallel_size=1, enable_sleep=False), logger=SimpleNamespace(logging_steps=1, wandb=SimpleNamespace(project="openrlhf", run_name="it's \"golden\"")),
        generate_max_len=s["cap_tokens"])
    run = sinks.Wandb(f"{out}/wandb/run-openrlhf.wandb", args.__dict__, "openrlhf", "openrlhf")
    run.run.define_metric("train/global_step")
    run.run.define_metric("train/*", step_metric="train/global_step", step_sync=True)
    board = sinks.TorchWriter(f"{out}/tensorboard/events.out.tfevents.{int(clock.START)}.node-0.1.0")
    console = sinks.Console(f"{out}/console.log")

    def info(text: str, actor: str, pid: int) -> None:
        console.print(f"INFO {clock.stamp('%m-%d %H:%M:%S')} ppo_trainer_async.py:244] {text}", actor=actor, pid=pid)

    info(f"queue_size={args.train.async_queue_size}", "PPOTrainerAsync", 611)
    iterated = 0.0
    generated = 0.0
    for step in truth.steps:
        clock.at(step.done_s)
        ready = max(r["ready_s"] for r in step.rollouts)
        status = {
            "policy_loss": 0.003, "actor_lr": 1e-06, "ppo_clip_ratio": 0.017, "ppo_kl": 0.0004, "vllm_kl": 0.0011, "reward": step.reward, "response_length": step.response_tokens,
            "timing/make_experience": 0.1 * step.train_s, "timing/ppo_train": 0.9 * step.train_s, "timing/broadcast": step.sync_s,
            "rollout/reward_mean": step.reward, "rollout/reward_std": 0.5, "rollout/response_length_mean": step.response_tokens, "rollout/truncated_rate": step.truncated(s["cap_tokens"]), "rollout/num_samples": float(step.trained),
            "timing/generation": max(ready - max(generated, min(r["start_s"] for r in step.rollouts)), 0.0), "timing/step_total": step.done_s - iterated,
        }
        generated, iterated = ready, step.done_s
        info(f"Global step {step.step}: {status}", "TrainingActor", 622)
        run.log({f"train/{k}": v for k, v in status.items()} | {"train/global_step": step.step})
        for key, value in status.items():
            board.add_scalar(f"train/{key}", value, step.step)
        console.bar(step.step, len(truth.steps), "Episode [1/1]", actor="GenerateSamplesActor", pid=633)
    run.finish()
    board.close()
    console.close()
