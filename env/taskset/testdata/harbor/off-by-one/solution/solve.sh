#!/bin/bash
cat > window.py <<'PY'
def largest_window(numbers, size):
    """The largest sum of size neighbours, None where there are fewer."""
    sums = [sum(numbers[first:first + size]) for first in range(len(numbers) - size + 1)]
    return max(sums) if sums else None
PY
