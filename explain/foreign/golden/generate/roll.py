"""ROLL's RLVR pipeline at 8eb27cc2dc34 (alibaba/ROLL).

scheduler/off_policy_ratio is a mean gap of steps, and stands under the domain, as does everything that its scheduler measures.
time/step_total is that of the step before, 0 in the first. Steps count from 0.
"""

from __future__ import annotations

import json

from . import clock, sinks
from .truth import Truth, mean


def write(truth: Truth, out: str) -> None:
    s = truth.settings
    n = s["group_size"]
    config = {"exp_name": "golden", "rollout_batch_size": s["batch"] // n, "num_return_sequences_in_group": n, "async_generation_ratio": int(s["budget"]), "is_use_additional_prompts": False, "max_running_requests": s["concurrency"] // 4,
              "response_length": s["cap_tokens"], "num_gpus_per_node": 8, "actor_train": {"device_mapping": "list(range(0,4))"}, "actor_infer": {"device_mapping": "list(range(4,8))", "num_gpus_per_worker": 1}, "track_with": "tensorboard"}
    run = sinks.Wandb(f"{out}/wandb/run-roll.wandb", {}, "roll", "roll")
    run.run.config.update(config, allow_val_change=True)
    board = sinks.TorchWriter(f"{out}/tensorboard/events.out.tfevents.{int(clock.START)}.node-0.1.0")
    console = sinks.Console(f"{out}/log_rank_DRIVER_0_1.log")

    def info(text: str) -> None:
        console.print(f"[{clock.stamp('%Y-%m-%d %H:%M:%S')}] [rlvr_pipeline.py (845)] [INFO] [DRIVER 0 / 1][PID 4242] {text}")

    before = 0.0
    for step in truth.steps:
        i = step.step - 1
        domain, groups = "math_rule", step.groups()
        # Weights are updated first thing in a step: the update before it made this step's version.
        update = truth.steps[i - 1].sync_s if i else 0.0
        generate = [r["generate_s"] for r in step.rollouts]
        metrics = {"time/step_total": before, "time/step_stop_server": 0.0, "time/step_model_update": update, "time/step_generate": step.wait_s, "time/step_train": step.train_s,
                   "critic/score/mean": step.reward, "token/response_length/mean": step.response_tokens, "token/response_length/max": float(max(r["tokens"] for r in step.rollouts)),
                   "token/total_response_length/clip": sum(r["tokens"] >= s["cap_tokens"] for r in step.rollouts), "actor/pg_clipfrac": 0.013, "system/tps": step.tokens() / (update + step.wait_s + step.train_s), "system/samples": step.step * s["batch"] // n,
                   f"{domain}/scheduler/collect_query_count": len(groups), f"{domain}/scheduler/query_use_count": len(groups),
                   f"{domain}/scheduler/off_policy_ratio": mean(step.version - r["stamp"] for r in step.rollouts),
                   f"{domain}/scheduler/{domain}/time/generate/count": len(generate), f"{domain}/scheduler/{domain}/time/generate/min": min(generate), f"{domain}/scheduler/{domain}/time/generate/max": max(generate),
                   f"{domain}/scheduler/{domain}/time/generate/mean": mean(generate), f"{domain}/scheduler/{domain}/time/reward/mean": mean(r["environment_s"] for r in step.rollouts),
                   f"{domain}/scheduler/{domain}/score/mean": step.reward}
        before = update + step.wait_s + step.train_s
        clock.at(step.end_s)
        info(f"pipeline step {i} start...")
        run.log(metrics, step=i)
        for key, value in metrics.items():
            board.add_scalar(key, value, i)
        info(json.dumps([{"prompt": "Say {\"time/step_total\": 1e9}: \x1b[31mred\x1b[0m", "response": "<script>"}], ensure_ascii=False))
        info(json.dumps(metrics, ensure_ascii=False))
        info(f"pipeline step {i} finished")
    run.finish()
    board.close()
    console.close()
