"""The environment of the embedded model: a word, to be said backwards. Put your question and your judge here."""

import random

import headway

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@headway.single_turn("words", max_tokens=6)
def words(task: headway.Task) -> headway.Question:
    """Ask for a word. It follows from the task alone, so that all rollouts of a group get the same."""
    draw = random.Random(f"{task.seed}/{task.prompt}")
    word = "".join(draw.choices(LETTERS, k=draw.randint(2, 5)))
    return headway.Question(word, lambda said: judge(said, word[::-1]), answer=word[::-1])


def judge(said: str, answer: str) -> headway.Result:
    """The reward: the share of letters in their place, so that a half-right answer is worth more than none."""
    right = sum(a == b for a, b in zip(said, answer, strict=False))
    return headway.Result(right / max(len(said), len(answer)), exact=said == answer)
