#!/bin/bash
cat > totals.py <<'PY'
import collections, json, pathlib, sys

sums = collections.Counter()
for file in pathlib.Path(sys.argv[1]).iterdir():
    for line in file.read_text().splitlines():
        if line:
            account, amount = line.rsplit(",", 1)
            sums[account] += int(amount)
print(json.dumps(sums))
PY
