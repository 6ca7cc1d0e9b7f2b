"""Write additions.jsonl: 120 additions of two numbers below 50, each once, in an order that never changes."""

import json
import random
from pathlib import Path

LARGEST, COUNT = 49, 120


def main() -> None:
    """Draw the pairs and write them beside this file."""
    pairs = [(a, b) for a in range(LARGEST + 1) for b in range(LARGEST + 1)]
    chosen = random.Random(7).sample(pairs, COUNT)
    rows = [{"id": f"add-{a}-{b}", "prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in chosen]
    Path(__file__).with_name("additions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
