"""slime at 624b824a898a (THUDM/slime): train_async.py with the fully asynchronous rollout function.

wandb.log is called without a step, from the rollout's process and from the trainer's: the step is in rollout/step
and train/step. Both count from 0. No staleness is logged, and the queue's depth is text.
"""

from __future__ import annotations

from . import clock, sinks
from .truth import Truth, mean, percentile


def _statistics(values: list[float], name: str) -> dict[str, float]:
    return {f"{name}/mean": mean(values), f"{name}/median": percentile(values, 50), f"{name}/max": max(values), f"{name}/min": min(values)}


def write(truth: Truth, out: str) -> None:
    s = truth.settings
    n = s["group_size"]
    args = {"rollout_batch_size": s["batch"] // n, "n_samples_per_prompt": n, "global_batch_size": s["batch"], "num_steps_per_rollout": 1, "over_sampling_batch_size": None, "update_weights_interval": 1,
            "partial_rollout": False, "rollout_function_path": "slime.rollout.fully_async_rollout.generate_rollout_fully_async", "sglang_server_concurrency": s["concurrency"] // n // 2, "rollout_num_gpus": 4, "rollout_num_gpus_per_engine": 2,
            "actor_num_nodes": 1, "actor_num_gpus_per_node": 4, "rollout_max_response_len": s["cap_tokens"], "colocate": False, "use_tis": False, "hf_checkpoint": "<a model>"}
    run = sinks.Wandb(f"{out}/wandb/run-slime.wandb", args, "slime", "slime")
    for metric, by in (("train", "train"), ("rollout", "rollout"), ("perf", "rollout")):
        run.run.define_metric(f"{by}/step")
        run.run.define_metric(f"{metric}/*", step_metric=f"{by}/step")
    board = sinks.TorchWriter(f"{out}/tensorboard/events.out.tfevents.{int(clock.START)}.node-0.1.0")
    console = sinks.Console(f"{out}/console.log")

    def log(values: dict[str, float], step_key: str, step: int) -> None:
        run.log(values | {step_key: step})
        for key, value in values.items():
            board.add_scalar(key, value, step)

    collected = 0.0
    for step in truth.steps:
        i = step.step - 1
        clock.at(collected)
        console.print(f"[{clock.stamp('%Y-%m-%d %H:%M:%S')}] fully_async_rollout.py:216 - fully-async rollout {i}: target={s['batch'] // n} queue_warm={step.queued}", actor="RolloutManager", pid=777)
        clock.at(step.start_s)
        took = [r["end_s"] - r["start_s"] for r in step.rollouts]
        rollout_time = step.start_s - collected
        collected = step.start_s
        rollout = _statistics([float(r["tokens"]) for r in step.rollouts], "rollout/response_len") | {"rollout/truncated_ratio": step.truncated(s["cap_tokens"]), "rollout/repetition_frac": 0.0}
        rollout |= {"perf/rollout_time": rollout_time, "perf/tokens_per_gpu_per_sec": step.tokens() / rollout_time / 4 if rollout_time else 0.0,
                    "perf/longest_sample_tokens_per_sec": max(r["tokens"] for r in step.rollouts) / rollout_time if rollout_time else 0.0}
        rollout |= _statistics(took, "perf/request/e2e_latency")
        zeros = [g for g in step.groups() if len({r["reward"] for r in g}) == 1]
        rollout |= {f"rollout/zero_std/count_{value}": float(sum(g[0]["reward"] == value for g in zeros)) for value in sorted({g[0]["reward"] for g in zeros})}
        console.print(f"[{clock.stamp('%Y-%m-%d %H:%M:%S')}] fully_async_rollout.py:260 - fully-async rollout {i}: done in {rollout_time:.1f}s, queue_left={step.queued}", actor="RolloutManager", pid=777)
        console.print(f"[{clock.stamp('%Y-%m-%d %H:%M:%S')}] rollout_metrics.py:268 - perf {i}: {rollout}", actor="RolloutManager", pid=777)
        log(rollout, "rollout/step", i)
        clock.at(step.end_s)
        # The raw reward is averaged by the trainer, from the rollouts' data.
        data = {"rollout/raw_reward": step.reward, "rollout/response_lengths": step.response_tokens, "rollout/rewards": 0.0}
        console.print(f"[{clock.stamp('%Y-%m-%d %H:%M:%S')}] train_metric_utils.py:135 - rollout {i}: {data}", actor="MegatronTrainRayActor", pid=888)
        log(data, "rollout/step", i)
        train = {"train/loss": 0.0, "train/pg_clipfrac": 0.011, "train/ppo_kl": 0.0008, "train/train_rollout_logprob_abs_diff": 0.013, "train/grad_norm": 0.3}
        console.print(f"[{clock.stamp('%Y-%m-%d %H:%M:%S')}] model.py:918 - step {i}: {train}", actor="MegatronTrainRayActor", pid=888)
        log(train, "train/step", i)
        # Timers of the step, reset when they are logged: the wait and the sync before it.
        before = truth.steps[i - 1].sync_s if i else 0.0
        perf = {"perf/update_weights_time": before, "perf/train_wait_time": step.wait_s + before, "perf/actor_train_time": step.train_s, "perf/train_time": step.train_s,
                "perf/actor_train_tok_per_s": step.tokens() / step.train_s, "perf/step_time": step.wait_s + before + step.train_s, "perf/wait_time_ratio": (step.wait_s + before) / (step.wait_s + before + step.train_s)}
        console.print(f"[{clock.stamp('%Y-%m-%d %H:%M:%S')}] train_metric_utils.py:401 - perf {i}: {perf}", actor="MegatronTrainRayActor", pid=888)
        log(perf, "rollout/step", i)
    run.finish()
    board.close()
    console.close()
