"""Asynchronous reinforcement learning as a plain SimPy program.

C slots generate rollouts, each for as long as its response is; a group is the S
rollouts of one prompt and bears the version of the policy at its first start; a
group whose rollouts are all done goes to a queue of at most Q groups, which drops
the oldest when it is full; the trainer takes the G oldest as soon as they are
there, and makes a version of them.

Written from the model's description, sharing nothing with Headway: it is timed
beside it, and its staleness is an independent check.
"""

import argparse
import collections
import json
import math
import random
import time

import simpy


class Group:
    def __init__(self, version, size):
        self.version = version  # of the policy when its first rollout started
        self.left_to_start = size
        self.left_to_end = size


class Training:
    def __init__(self, env, args):
        self.env = env
        self.args = args
        self.random = random.Random(args.seed)
        self.sigma = 1.3 * args.tailness / 100
        self.mu = math.log(args.mean_tokens) - self.sigma**2 / 2
        self.version = 0
        self.open_group = None
        self.queue = collections.deque()
        self.batch_ready = None
        self.events = 0
        self.staleness = 0
        self.trained = 0
        self.window_start = 0.0
        for _ in range(args.concurrency):
            env.process(self.slot())
        self.trainer_process = env.process(self.trainer())

    def length(self):
        tokens = round(self.random.lognormvariate(self.mu, self.sigma))
        return min(max(tokens, 1), self.args.cap_tokens)

    def next_rollout(self):
        group = self.open_group
        if group is None:
            group = self.open_group = Group(self.version, self.args.group_size)
        group.left_to_start -= 1
        if group.left_to_start == 0:
            self.open_group = None
        return group

    def slot(self):
        while True:
            group = self.next_rollout()
            yield self.env.timeout(self.length() / self.args.tokens_per_s)
            self.events += 1
            group.left_to_end -= 1
            if group.left_to_end == 0:
                self.enqueue(group)

    def enqueue(self, group):
        if len(self.queue) == self.args.queue_groups:
            self.queue.popleft()
        self.queue.append(group)
        if self.batch_ready is not None and len(self.queue) >= self.args.batch_groups:
            self.batch_ready.succeed()
            self.batch_ready = None

    def trainer(self):
        args = self.args
        for step in range(args.warmup + args.measured):
            if step == args.warmup:
                self.staleness = self.trained = 0
                self.window_start = self.env.now
            if len(self.queue) < args.batch_groups:
                self.batch_ready = self.env.event()
                yield self.batch_ready
            batch = [self.queue.popleft() for _ in range(args.batch_groups)]
            yield self.env.timeout(args.step_s)
            self.staleness += sum(self.version - group.version for group in batch)
            self.trained += len(batch)
            self.version += 1
            self.events += 1


def main():
    parser = argparse.ArgumentParser()
    for name, kind in [
        ("concurrency", int), ("group-size", int), ("batch-groups", int), ("queue-groups", int),
        ("mean-tokens", float), ("tailness", float), ("cap-tokens", int), ("tokens-per-s", float),
        ("step-s", float), ("warmup", int), ("measured", int), ("seed", int),
    ]:  # fmt: skip
        parser.add_argument("--" + name, type=kind, required=True)
    args = parser.parse_args()
    began = time.perf_counter()
    env = simpy.Environment()
    training = Training(env, args)
    env.run(until=training.trainer_process)
    print(json.dumps({
        "staleness": training.staleness / training.trained,
        "period_s": (env.now - training.window_start) / args.measured,
        "events": training.events,
        "loop_s": time.perf_counter() - began,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
