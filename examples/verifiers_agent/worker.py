"""Rollouts of a run, played by an agent of the `verifiers` library: only its base URL is Headway's.

    python examples/verifiers_agent/worker.py http://127.0.0.1:7070 [--concurrency N]
"""

import argparse
import random

import headway
import verifiers.v1 as vf
from verifiers.v1.clients import EvalClientConfig
from verifiers.v1.configs.agent import AgentConfig, TimeoutConfig
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.runtimes import SubprocessConfig
from verifiers.v1.utils.loaders import load_harness

#: By its id, or the library takes its default harness, which gives the policy a shell on this machine.
HARNESS = NullHarnessConfig(id="null")
#: A process of this machine, which is no boundary.
RUNTIME = SubprocessConfig()


class SumData(vf.TaskData):
    answer: str


class Sum(vf.Task[SumData]):
    """Add two numbers; partial credit for a number at all."""

    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        said = trace.last_reply.strip()
        return 1.0 if said == self.data.answer else 0.1 if said.isdigit() else 0.0


def problem(seed: int, prompt: int) -> SumData:
    """A function of the run's seed and the prompt's number alone, so that all siblings play the same."""
    draw = random.Random(f"{seed}-{prompt}")
    a, b = draw.randrange(10), draw.randrange(10)
    return SumData(prompt=f"{a}+{b}=", answer=str(a + b))


@headway.environment("sums")
async def play(task: headway.Task) -> headway.Result:
    point = task.openai()
    agent = vf.Agent(
        AgentConfig(
            harness=HARNESS, runtime=RUNTIME, model="policy", max_turns=1,
            # The headers have the rollout's key. No variable of the worker's, such as its token, is the agent's.
            client=EvalClientConfig(base_url=point.base_url, headers=point.headers, api_key_var="HEADWAY_UNSET"),
            timeout=TimeoutConfig(rollout=120),
        )
    )  # fmt: skip
    trace = await agent.run(Sum(problem(task.seed, task.prompt), vf.TaskConfig()))
    if not trace.ok:
        raise RuntimeError(f"the agent failed: {trace.errors}")
    return headway.Result(reward=trace.reward, exact=trace.reward == 1.0, response_text=trace.last_reply)


def unbounded() -> str:
    """Say why this agent may not play here; empty where it may."""
    if not load_harness(HARNESS).EXECUTES_CODE or not isinstance(RUNTIME, SubprocessConfig):
        return ""
    return (
        f"the harness {HARNESS.id} executes what the policy writes, in processes of this machine: set RUNTIME to a "
        "runtime of the library that is a sandbox, or run the worker in a container of its own and say --boundary none"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument(
        "--boundary", choices=["none"], help="none: take a harness that executes the policy's code here"
    )
    said = parser.parse_args()
    if said.boundary != "none" and (why := unbounded()):
        parser.error(why)
    print(headway.work(said.url, play, concurrency=said.concurrency), "rollouts played")
