"""The reward is the share of directories for which totals.py prints the right sums."""

import json
import pathlib
import subprocess
import sys
import tempfile

CASES = [
    {"a.csv": "rent,-90000\nwages,250000\n\nfood,-1250\n", "b.csv": "rent,-90000\nfood,-2075\n"},
    {"only.csv": "x,1\nx,2\nx,-3\n"},
    {"empty.csv": "\n\n"},
    {f"{n}.csv": f"k{n % 3},{n}\n" for n in range(40)},
]


def wanted(files: dict[str, str]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for text in files.values():
        for line in text.split():
            account, amount = line.rsplit(",", 1)
            sums[account] = sums.get(account, 0) + int(amount)
    return sums


def right(files: dict[str, str]) -> bool:
    with tempfile.TemporaryDirectory() as name:
        for file, text in files.items():
            pathlib.Path(name, file).write_text(text)
        try:
            done = subprocess.run([sys.executable, "totals.py", name], capture_output=True, timeout=10)
            return json.loads(done.stdout) == wanted(files)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return False


share = sum(right(files) for files in CASES) / len(CASES)
pathlib.Path("/logs/verifier/reward.json").write_text(json.dumps({"reward": share}))
