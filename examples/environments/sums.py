"""The environment: two numbers, to be added. Put your question and your judge here."""

import random

import headway


@headway.single_turn("sums", max_tokens=256)
def sums(task: headway.Task) -> headway.Question:
    """Ask for a sum. It follows from the task alone, so that all rollouts of a group get the same."""
    draw = random.Random(f"{task.seed}/{task.prompt}")
    a, b = draw.randint(0, 999), draw.randint(0, 999)
    asked = f"What is {a} + {b}? Say the number alone in the last line."
    return headway.Question(asked, lambda said: judge(said, str(a + b)), answer=str(a + b))


def judge(said: str, answer: str) -> float:
    """The reward: 1 where the last line is the answer. What raises here fails the attempt and is never scored 0."""
    return float(said.strip().rpartition("\n")[2].strip() == answer)
