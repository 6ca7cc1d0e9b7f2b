"""AReaL at cbff54d645d2 (areal-project/AReaL).

StatsLogger logs the step's stats under the count from 0, to W&B, tensorboardX and as a table. Its staleness is
of tokens, kept as scalars: each is the mean over micro-batches, the maximum too. The session tracer writes a line a
rollout, dump_to_file one with the versions of its tokens.
"""

from __future__ import annotations

import json
import os
from typing import Any

from tabulate import tabulate

from . import clock, sinks
from .truth import Truth, mean

MICRO_BATCH_TOKENS = 10240


def _micro_batches(rollouts: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Packs rollouts in order, as many as fit (first fit)."""
    batches: list[list[dict[str, Any]]] = []
    used: list[int] = []
    for r in rollouts:
        for i, tokens in enumerate(used):
            if tokens + r["tokens"] <= MICRO_BATCH_TOKENS:
                batches[i].append(r)
                used[i] += r["tokens"]
                break
        else:
            batches.append([r])
            used.append(r["tokens"])
    return batches


def _staleness(version: int, rollouts: list[dict[str, Any]]) -> tuple[float, float, float, int]:
    tokens = sum(n for r in rollouts for _, n in r["spans"])
    lags = [version - v for r in rollouts for v, _ in r["spans"]]
    return sum((version - v) * n for r in rollouts for v, n in r["spans"]) / tokens, max(lags), min(lags), tokens


def _stats(step: Any, truth: Truth) -> dict[str, float]:
    per = [_staleness(step.version, batch) for batch in _micro_batches(step.rollouts)]
    scope = "ppo_actor/update/version_stats"
    stats = {"ppo_actor/task_reward/avg": step.reward, "ppo_actor/seq_len/avg": step.response_tokens + 64.0, "ppo_actor/prompt_len/avg": 64.0, "ppo_actor/n_seqs": float(step.trained),
             "ppo_actor/n_valid_tokens": float(step.tokens()), "ppo_actor/no_eos_ratios/avg": step.truncated(truth.settings["cap_tokens"])}
    for name, shift in (("theta", 0), ("proximal", -1)):
        for what, i in (("avg", 0), ("max", 1), ("min", 2)):
            stats[f"{scope}/sample_staleness_{name}_{what}"] = mean(p[i] for p in per) + shift
    stats |= {
        f"{scope}/v_theta": float(step.version), f"{scope}/v_proximal": float(step.version - 1), f"{scope}/n_valid_generated_tokens": mean(p[3] for p in per),
        "ppo_actor/update/behave_imp_weight/avg": 1.003, "ppo_actor/update/behave_approx_kl/avg": 0.0011, "ppo_actor/update/clip_ratio/avg": 0.014, "ppo_actor/update/importance_weight/avg": 1.0,
        "timeperf/rollout": step.wait_s, "timeperf/recompute_logp": 0.25 * step.train_s, "timeperf/train_step": 0.75 * step.train_s, "timeperf/update_weights": step.sync_s,
        "rollout/accepted": 1.0, "rollout/reward": step.reward,
    }
    return stats


def _sessions(truth: Truth, out: str) -> None:
    """One task a group, one session a rollout; both files are appended to as groups are accepted."""
    tracer = f"{out}/session_tracer/sessions-r0.jsonl"
    os.makedirs(os.path.dirname(tracer), exist_ok=True)
    accepted: dict[int, list[dict[str, Any]]] = {}
    for r in truth.rollouts:
        if r["ready_s"]:
            accepted.setdefault(r["group"], []).append(r)
    session = 0
    with open(tracer, "w", encoding="utf-8") as file:
        for group, rollouts in sorted(accepted.items(), key=lambda item: (item[1][0]["ready_s"], item[0])):
            lines = []
            for r in sorted(rollouts, key=lambda r: r["sample"]):
                begin, end = clock.START + r["start_s"], clock.START + r["end_s"]
                done = clock.START + r["ready_s"]
                generated = end - r["environment_s"]
                file.write(json.dumps({
                    "task_id": group, "session_id": session, "rank": 0, "role": "rollout", "status": "accepted", "submit_ts": begin, "finalized_ts": done, "total_s": done - begin,
                    "generate_s": generated - begin, "reward_s": end - generated,
                    "phases": {"generate": [{"start_ts": begin, "end_ts": generated}], "reward": [{"start_ts": generated, "end_ts": end}]}}) + "\n")
                session += 1
                lines.append(json.dumps({"task_id": group, "sample_idx": r["sample"], "seqlen": r["tokens"] + 64, "prompt_len": 64, "head_version": r["spans"][0][0], "tail_version": r["spans"][-1][0],
                                         "version_rle": r["spans"], "reward": r["reward"], "prompt": "Reverse <b>abc</b>:", "completion": "cba"}))
            path = f"{out}/rollout/{max(r['spans'][-1][0] for r in rollouts)}/{group}.jsonl"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as dump:
                dump.write("\n".join(lines) + "\n")


def _trace(truth: Truth, out: str) -> None:
    """The performance tracer's events, in Chrome's form: microseconds."""
    path = f"{out}/perf_tracer/traces-r0.jsonl"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps({"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "Rank 0"}}) + "\n")
        for step in truth.steps:
            at = step.asked_s
            for name, took in (("rollout", step.wait_s), ("recompute_logp", 0.25 * step.train_s), ("ppo_update", 0.75 * step.train_s), ("update_weights", step.sync_s)):
                if took or name == "rollout":
                    file.write(json.dumps({"name": f"train.{name}", "ph": "X", "ts": int(at * 1e6), "dur": max(int(took * 1e6), 1), "pid": 0, "tid": 7, "cat": "compute",
                                           "args": {"global_step": step.step - 1, "epoch_step": step.step - 1}}) + "\n")
                at += took


def write(truth: Truth, out: str) -> None:
    s = truth.settings
    groups = s["batch"] // s["group_size"]
    config = {
        "experiment_name": "golden", "trial_name": "trial0", "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
        "rollout": {"backend": "sglang:d4p1t1", "max_concurrent_rollouts": s["concurrency"] // s["group_size"], "queue_size": None, "consumer_batch_size": groups,
                    "max_head_offpolicyness": int(s["budget"]), "enable_rollout_tracing": True, "dump_to_file": True},
        "gconfig": {"n_samples": s["group_size"], "max_new_tokens": s["cap_tokens"]},
        "actor": {"backend": "fsdp:d4p1t1", "ppo_n_minibatches": 1, "use_decoupled_loss": True, "eps_clip": 0.4, "mb_spec": {"max_tokens_per_mb": MICRO_BATCH_TOKENS}},
        "train_dataset": {"batch_size": groups},
        "perf_tracer": {"enabled": True, "session_tracer": {"enabled": True, "flush_threshold": 1}},
    }
    run = sinks.Wandb(f"{out}/wandb/run-areal.wandb", config, "areal", "areal")
    board = sinks.TensorboardX(f"{out}/tensorboard/events.out.tfevents.{int(clock.START)}.node-0")
    console = sinks.Console(f"{out}/console.log")
    head = "\x1b[1;38;2;180;140;80m(AReaL)\x1b[0m \x1b[92m"
    for step in truth.steps:
        clock.at(step.done_s)
        at = clock.stamp("%Y%m%d-%H:%M:%S") + f".{int(clock.now() % 1 * 1000):03d}"
        stats = _stats(step, truth)
        log_step = step.step - 1
        running = step.in_flight_end // s["group_size"]
        console.print(f"{head}{at} WorkflowExecutor INFO: Finish and accept rollout. enqueued: 3, running: {running}, accepted: {step.step * groups}, rejected: 0.\x1b[0m")
        console.print(f"{head}{at} StatsLogger INFO: Epoch 1/10 Step {step.step}/{len(truth.steps)} Train step {step.step}/{len(truth.steps)} done.\x1b[0m")
        console.print(f"{head}{at} StatsLogger INFO: Stats (1/1):\x1b[0m")
        items = list(stats.items())
        rows = -(-len(items) // 4)
        table = [[cell for j in range(4) if i + j * rows < len(items) for cell in items[i + j * rows]] for i in range(rows)]
        console.print(f"{head}{at} StatsLogger INFO: \n" + tabulate(table, floatfmt=".4e", tablefmt="fancy_grid") + "\x1b[0m")
        run.log(stats, step=log_step)
        for key, value in stats.items():
            board.add_scalar(key, value, log_step)
    run.finish()
    board.close()
    console.close()
    _sessions(truth, out)
    _trace(truth, out)
