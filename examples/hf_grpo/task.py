"""The task that the model is made for and the worker plays: adding two numbers below 50."""

import random

LARGEST = 49


def question(seed: int, number: int) -> tuple[str, str]:
    """What is asked, and the right answer: a function of the run's seed and the prompt's number alone."""
    draw = random.Random(f"{seed}/{number}")
    a, b = draw.randint(0, LARGEST), draw.randint(0, LARGEST)
    return f"{a}+{b}=", str(a + b)
