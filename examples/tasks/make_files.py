"""Write files.jsonl: small jobs on files that are too long to do by reading, each with a hidden judge.

What is judged is a file with the result, which is data: nothing that the policy wrote is run for it.
"""

import json
import random
from collections import Counter
from pathlib import Path

#: Compares /work/answer.txt with what is wanted. It runs isolated (-I), in a folder of its own, and says what passed
#: in a line with the token that it is given on standard input. It follows no link, which might lead to want.txt.
JUDGE = """\
import os, stat
token = input()
want = open("want.txt").read().split()
try:
    answer = os.open("/work/answer.txt", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    said = os.read(answer, 65536).decode().split() if stat.S_ISREG(os.fstat(answer).st_mode) else []
except (OSError, UnicodeDecodeError):
    said = []
right = sum(a == b for a, b in zip(want, said)) if len(said) == len(want) else 0
print("headway-result", token, f"{right}/{len(want)}")
"""
TEST = "python3 -I judge.py"
ASK = "Leave only that in answer.txt, in the folder where you are."


def task(name: str, ask: str, files: dict[str, str], want: str) -> dict[str, object]:
    """One line of the file."""
    hidden = {"judge.py": JUDGE, "want.txt": want + "\n"}
    return {"id": name, "prompt": f"{ask} {ASK}", "files": files, "hidden": hidden, "test": TEST}


def jobs(seed: int) -> list[dict[str, object]]:
    """One job of each kind, with data of the seed."""
    draw = random.Random(f"files/{seed}")
    numbers = [draw.randint(-999, 999) for _ in range(400)]
    words = ["".join(draw.choice("abcde") for _ in range(draw.randint(2, 4))) for _ in range(500)]
    sales = [(draw.choice(["north", "south", "east", "west"]), draw.randint(1, 99)) for _ in range(300)]
    total: Counter[str] = Counter()
    for region, count in sales:
        total[region] += count
    often, _ = min(Counter(words).items(), key=lambda item: (-item[1], item[0]))
    column = {"numbers.txt": "".join(f"{n}\n" for n in numbers)}
    text = {"words.txt": " ".join(words) + "\n"}
    table = {"sales.csv": "region,count\n" + "".join(f"{region},{count}\n" for region, count in sales)}

    add = "numbers.txt has a number a line. What is their sum?"
    largest = "numbers.txt has a number a line. What are the five largest, the largest first, a line each?"
    word = "Which word is the most frequent in words.txt? Of several take the first of the alphabet."
    regions = "sales.csv has a region and a count a line. Write each region and its total in a line, by the alphabet."
    return [
        task(f"sum-{seed}", add, column, str(sum(numbers))),
        task(f"largest-{seed}", largest, column, "\n".join(map(str, sorted(numbers, reverse=True)[:5]))),
        task(f"word-{seed}", word, text, often),
        task(f"regions-{seed}", regions, table, "\n".join(f"{region} {total[region]}" for region in sorted(total))),
    ]


def main() -> None:
    """Write the tasks beside this file."""
    rows = [row for seed in range(2) for row in jobs(seed)]
    Path(__file__).with_name("files.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
