"""Groups through a Ray queue actor, or through TransferQueue, over the arrays of a group.

Producers are Ray actors, the consumer is this process. A group is R rollouts of N tokens:
ids, mask, log-probs and versions. With the Ray queue a group is one item of numpy arrays;
with TransferQueue it is a batch of R keys with tensor fields, read and cleared by key,
while the names of ready groups go by a Ray queue.
"""

import argparse
import json
import logging
import os
import time

os.environ.setdefault("RAY_DEDUP_LOGS", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("TQ_LOGGING_LEVEL", "ERROR")

import numpy as np
import ray
from ray.util.queue import Queue

PRODUCERS = 2
AHEAD = 128


def arrays(rollouts, tokens):
    rng = np.random.default_rng(1)
    shape = (rollouts, tokens)
    return {
        "tokens": rng.integers(0, 128_000, shape, dtype=np.int32),
        "mask": np.ones(shape, np.uint8),
        "logprobs": -rng.random(shape, dtype=np.float32),
        "versions": np.full(shape, 17, np.int32),
    }


@ray.remote(num_cpus=0)
class RayProducer:
    def run(self, queue, groups, rollouts, tokens):
        group = arrays(rollouts, tokens)
        for g in groups:
            queue.put((g, group))


def ray_queue(args, shares):
    queue = Queue(maxsize=AHEAD, actor_options={"num_cpus": 0})
    producers = [RayProducer.remote() for _ in shares]
    ray.get([p.run.remote(queue, [], args.rollouts, args.tokens) for p in producers])
    start = time.perf_counter()
    running = [p.run.remote(queue, s, args.rollouts, args.tokens) for p, s in zip(producers, shares)]
    for _ in range(args.groups):
        _, group = queue.get()
        assert group["tokens"].shape == (args.rollouts, args.tokens)
    seconds = time.perf_counter() - start
    ray.get(running)
    return seconds


@ray.remote(num_cpus=0)
class TransferProducer:
    def __init__(self):
        import transfer_queue

        transfer_queue.init()

    def run(self, ready, groups, rollouts, tokens):
        import torch
        import transfer_queue
        from tensordict import TensorDict

        fields = TensorDict({k: torch.from_numpy(v) for k, v in arrays(rollouts, tokens).items()}, batch_size=rollouts)
        for g in groups:
            keys = [f"{g}_{k}" for k in range(rollouts)]
            transfer_queue.kv_batch_put(keys=keys, partition_id="train", fields=fields)
            ready.put(keys)


def transfer_queue_(args, shares):
    import transfer_queue

    transfer_queue.init()
    ready = Queue(maxsize=AHEAD, actor_options={"num_cpus": 0})
    producers = [TransferProducer.remote() for _ in shares]
    ray.get([p.run.remote(ready, [], args.rollouts, args.tokens) for p in producers])
    start = time.perf_counter()
    running = [p.run.remote(ready, s, args.rollouts, args.tokens) for p, s in zip(producers, shares)]
    for _ in range(args.groups):
        keys = ready.get()
        data = transfer_queue.kv_batch_get(keys=keys, partition_id="train")
        assert len(data["tokens"]) == args.rollouts and data["tokens"][0].numel() == args.tokens
        transfer_queue.kv_clear(keys=keys, partition_id="train")
    seconds = time.perf_counter() - start
    ray.get(running)
    transfer_queue.close()
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queue", choices=["ray", "transferqueue"])
    parser.add_argument("--groups", type=int, required=True)
    parser.add_argument("--rollouts", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    args = parser.parse_args()
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    shares = [list(range(i, args.groups, PRODUCERS)) for i in range(PRODUCERS)]
    run = ray_queue if args.queue == "ray" else transfer_queue_
    seconds = run(args, shares)
    size = sum(a.nbytes for a in arrays(args.rollouts, args.tokens).values())
    print(json.dumps({"groups_per_s": args.groups / seconds, "group_bytes": size}))
    ray.shutdown()


if __name__ == "__main__":
    main()
