def largest_window(numbers, size):
    """The largest sum of size neighbours, None where there are fewer."""
    if len(numbers) <= size:
        return None
    best = 0
    for first in range(len(numbers) - size):
        best = max(best, sum(numbers[first:first + size]))
    return best
