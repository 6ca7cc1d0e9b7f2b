"""Rollouts on the procedural tasks of reasoning-gym, judged by their own scoring.

    python examples/reasoning_gym/worker.py http://127.0.0.1:7070 --task chain_sum --task basic_arithmetic

The difficulty is the level of the claim: with `filter.curriculum.levels` the run chooses it by what the policy
solves, and level 1 is the easiest of the task's own curriculum.

Some tasks evaluate an answer as Python to score it, in this process. They are refused without `--boundary none`.
"""

from __future__ import annotations

import argparse
import ast
import functools
import inspect
import random
import textwrap
import threading
from collections.abc import Sequence
from typing import Any

import reasoning_gym
from reasoning_gym.coaching.base_curriculum import DefaultCurriculumContext, RangeAttributeMode
from reasoning_gym.factory import DATASETS, create_curriculum, create_dataset, has_curriculum
from reasoning_gym.utils import SYSTEM_PROMPTS, extract_answer

import headway

#: Of a range that a curriculum widens, only the newest part: a level is as hard as it says.
_HARDEST = DefaultCurriculumContext(mode=RangeAttributeMode.UPPER_BOUND)
_making = threading.Lock()
#: Functions that evaluate their first argument as Python. sympy's two do so by eval.
_EVALUATES = frozenset({"eval", "exec", "parse_expr", "sympify"})


def levels(name: str) -> int:
    """How many levels a task has; 0 for one without a curriculum."""
    if not has_curriculum(name):
        return 0
    return max((len(one.levels) for one in create_curriculum(name).attributes.values()), default=0)


def evaluates(name: str) -> bool:
    """Whether a task's scoring evaluates an answer as Python, by the source of its score_answer.

    What is evaluated of the entry is the library's own. A source that cannot be read counts as one that evaluates.
    """
    try:
        source = textwrap.dedent(inspect.getsource(DATASETS[name][0].score_answer))
    except (OSError, TypeError):
        return True
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and node.args)
    named = (call for call in calls if getattr(call.func, "id", getattr(call.func, "attr", "")) in _EVALUATES)
    return any(not ast.unparse(call.args[0]).startswith("entry[") for call in named)


def checked(names: Sequence[str], wanted: int, boundary: str | None = None) -> None:
    """Refuse tasks that there are not, that evaluate answers, or that are not as hard as the run may ask for."""
    for name in names:
        if name not in DATASETS:
            raise headway.Invalid(f"reasoning-gym has no task {name!r}: it has {', '.join(sorted(DATASETS))}")
        if boundary != "none" and evaluates(name):
            raise headway.Invalid(
                f"the task {name} evaluates answers as Python in this process, with all its rights and its token: "
                "leave it out, or run the worker in a container of its own and say --boundary none"
            )
        if levels(name) < wanted:
            raise headway.Invalid(f"the task {name} has {levels(name)} levels, and the run may ask for {wanted}")


@functools.lru_cache(maxsize=4096)
def problem(names: tuple[str, ...], seed: int, prompt: int, level: int) -> tuple[Any, dict[str, Any]]:
    """A task and its one entry: a function of the arguments alone, so that all siblings play the same.

    The numbers of the prompts are drawn from, so that those of a run with another seed are others.
    """
    draw = random.Random(f"{seed}/{prompt}/{level}")
    name, own = draw.choice(names), draw.randrange(2**31)
    with _making:  # some tasks read their words from files when they are made
        if level == 0:
            dataset = create_dataset(name, seed=own, size=1)
        else:
            curriculum = create_curriculum(name)
            curriculum.set_global_level(level - 1)
            made = curriculum.generate_configuration({"seed": own, "size": 1}, context=_HARDEST)
            dataset = DATASETS[name][0](made)
        return dataset, dataset[0]


def environment(names: Sequence[str], plain: bool, max_tokens: int | None) -> headway.Environment:
    """The environment that plays these tasks. plain: the whole response is the answer, without tags."""

    @headway.single_turn(
        "reasoning-gym", system="" if plain else SYSTEM_PROMPTS["default"], max_tokens=max_tokens, low=0, high=1
    )
    def ask(task: headway.Task) -> headway.Question:
        dataset, entry = problem(tuple(names), task.seed, task.prompt, task.level)

        def score(said: str) -> float:
            return float(dataset.score_answer(said.strip() if plain else extract_answer(said), entry))

        return headway.Question(entry["question"], score, answer=str(entry["answer"]))

    return ask


def main() -> None:
    """Play until the run has ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="such as http://127.0.0.1:7070")
    parser.add_argument("--task", action="append", help="a task's name, as often as wanted (default chain_sum)")
    parser.add_argument("--levels", type=int, default=0, help="the run's filter.curriculum.levels, to be checked")
    parser.add_argument(
        "--boundary", choices=["none"], help="none: take tasks that evaluate what the policy writes, in this process"
    )
    parser.add_argument("--plain", action="store_true", help="the whole response is the answer, without tags")
    parser.add_argument("--max-tokens", type=int, help="longest response (default: the run's)")
    parser.add_argument("--concurrency", type=int, default=16)
    said = parser.parse_args()
    names = said.task or ["chain_sum"]
    try:
        checked(names, said.levels, said.boundary)
    except headway.Invalid as error:
        parser.error(error.message)
    print(f"reasoning-gym {reasoning_gym.__version__}: {', '.join(names)}", flush=True)
    played = headway.work(said.url, environment(names, said.plain, said.max_tokens), said.concurrency)
    print(played, "rollouts finished")


if __name__ == "__main__":
    main()
