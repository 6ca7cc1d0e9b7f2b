"""SkyRL's fully asynchronous trainer at a9564572eb8e (NovaSky-AI/SkyRL)."""

from __future__ import annotations

from . import clock, sinks
from .truth import Truth, mean, percentile


def write(truth: Truth, out: str) -> None:
    s = truth.settings
    n = s["group_size"]
    config = {
        "trainer": {"project_name": "skyrl", "run_name": "golden", "train_batch_size": s["batch"] // n, "policy_mini_batch_size": s["batch"] // n,
                    "placement": {"colocate_all": False, "policy_num_gpus_per_node": 4, "policy_num_nodes": 1},
                    "fully_async": {"enabled": True, "max_staleness_steps": int(s["budget"]), "num_parallel_generation_workers": s["concurrency"] // n, "sample_full_batch": False}},
        "generator": {"n_samples_per_prompt": n, "inference_engine": {"num_engines": 4, "tensor_parallel_size": 1}},
    }
    run = sinks.Wandb(f"{out}/wandb/run-skyrl.wandb", config, "skyrl", "skyrl")
    board = sinks.TorchWriter(f"{out}/tensorboard/events.out.tfevents.{int(clock.START)}.node-0.1.0")
    for step in truth.steps:
        clock.at(step.done_s)
        groups = step.groups()
        staleness = [step.version - group[0]["stamp"] for group in groups]
        took = [max(r["end_s"] for r in group) - min(r["start_s"] for r in group) for group in groups]
        metrics = {
            "reward/avg_raw_reward": step.reward, f"reward/avg_pass_at_{n}": mean(any(r["reward"] > 0 for r in group) for group in groups),
            "generate/avg_num_tokens": step.response_tokens, "generate/max_num_tokens": max(r["tokens"] for r in step.rollouts),
            "generate/group_completion_time_mean": mean(took), "generate/group_completion_time_p90": percentile(took, 90), "generate/group_completion_time_max": max(took),
            "async/staleness_mean": mean(staleness), "async/staleness_max": max(staleness), "async/staleness_min": min(staleness),
            "async/staleness_ratio": mean(v > 0 for v in staleness), "async/staleness_violation_count": sum(v > s["budget"] for v in staleness),
            "async/gen_buffer_qsize_at_wait_start": step.queued + step.trained // n if step.wait_s == 0 else step.queued,
            "policy/is_ratio_mean": 1.001, "policy/ppo_clip_ratio": 0.018, "trainer/epoch": 0, "trainer/global_step": step.step,
        }
        # As the loop: metrics first, then the timings of the same step.
        run.log(metrics, step=step.step, commit=False)
        timings = {"timing/wait_for_generation_buffer": step.wait_s, "timing/convert_to_training_input": 0.0, "timing/run_training": step.train_s,
                   "timing/sync_weights": step.sync_s, "timing/step": step.wait_s + step.train_s + step.sync_s}
        run.log(timings, step=step.step, commit=True)
        for key, value in (metrics | timings).items():
            board.add_scalar(key, value, step.step)
    run.finish()
    board.close()
