"""Prints 1 where window.py is right on random lists, 0 otherwise."""

import random
import sys

sys.path.insert(0, ".")
from window import largest_window  # noqa: E402

draw = random.Random(11)
for _ in range(int(sys.argv[1])):
    numbers = [draw.randint(-9, 9) for _ in range(draw.randint(0, 8))]
    size = draw.randint(1, 5)
    sums = [sum(numbers[i : i + size]) for i in range(len(numbers) - size + 1)]
    if largest_window(list(numbers), size) != (max(sums) if sums else None):
        print(0)
        break
else:
    print(1)
