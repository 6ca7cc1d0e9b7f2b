"""Write words.jsonl and sums.jsonl: 120 tasks each, every one once, in an order that never changes."""

import json
import random
from collections.abc import Callable
from pathlib import Path

LETTERS, COUNT = "abcdefghijklmnopqrstuvwxyz", 120


def word(draw: random.Random) -> tuple[str, str]:
    """A word, and the same backwards."""
    drawn = "".join(draw.choices(LETTERS, k=draw.randint(2, 5)))
    return drawn, drawn[::-1]


def addition(draw: random.Random) -> tuple[str, str]:
    """A sum, and the number that it makes."""
    a, b = draw.randint(0, 999), draw.randint(0, 999)
    return f"What is {a} + {b}? Say the number alone in the last line.", str(a + b)


def main() -> None:
    """Draw the tasks and write them beside this file."""
    kinds: dict[str, Callable[[random.Random], tuple[str, str]]] = {"words": word, "sums": addition}
    for name, make in kinds.items():
        draw, rows = random.Random(7), dict[str, str]()
        while len(rows) < COUNT:
            prompt, answer = make(draw)
            rows[prompt] = answer
        lines = [json.dumps({"prompt": prompt, "answer": answer}) + "\n" for prompt, answer in rows.items()]
        Path(__file__).with_name(f"{name}.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main()
