"""The rows of a server are transformers' own choices at every token, through all that happens to a sequence."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from engine import Answer, Engine, Truth, apart

BLOCK = 32
#: Log-probs of single precision differ by less, with other kernels.
ROUNDING = 1e-4


def prompt(seed: int, length: int) -> list[int]:
    draw = random.Random(seed)
    return [8 + draw.randrange(48) for _ in range(length)]


def check(answer: Answer, tokens: list[int], rows: np.ndarray, logprobs: np.ndarray) -> None:
    """An answer that ends `tokens` has the rows and log-probs of these."""
    assert answer.rows is not None
    assert answer.rows.dtype == np.uint8
    assert not answer.rows[:, 0].any(), "the dense layer has zeros"
    assert apart(answer.rows, rows[answer.start : len(tokens) - 1]) == []
    assert np.abs(logprobs[len(tokens) - len(answer.tokens) :] - answer.logprobs).max() < ROUNDING


def joined(known: np.ndarray, answer: Answer) -> np.ndarray:
    """Rows of a sequence: those that are known stay, and the answer's follow."""
    assert answer.rows is not None
    assert answer.start == len(known)
    return np.concatenate([known, answer.rows])


def test_every_token(engine: Engine, truth: Truth) -> None:
    """Of many requests at once, which the server computes together. A stream loses its rows now and then.

    That happens where the server has joined the last chunk to one that was not sent yet.
    """

    def one(seed: int) -> Answer:
        return engine.generate(prompt(seed, 1 + 7 * seed % 90), 20 + seed % 60, seed=seed, stream=seed % 3 == 0)

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(one, range(48)))
    lost = [seed for seed, answer in enumerate(answers) if answer.rows is None]
    assert all(seed % 3 == 0 for seed in lost), "an answer that is no stream has its rows"
    for seed in set(range(48)) - set(lost):
        tokens = prompt(seed, 1 + 7 * seed % 90) + answers[seed].tokens
        check(answers[seed], tokens, *truth(tokens))
    print(f"{len(lost)} of 16 streams have lost their rows")


def test_turns(engine: Engine, truth: Truth) -> None:
    """Each turn asks for rows from the last one's end on: there the boundary row is, and those of what came between."""
    sequence, rows = prompt(1, 45), np.zeros((0, 4, 2), dtype=np.uint8)
    for turn in range(4):
        answer = engine.generate(sequence, 17, seed=turn, salt="turns", start=len(rows))
        sequence, rows = sequence + answer.tokens, joined(rows, answer)
        check(answer, sequence, *truth(sequence))
        sequence = sequence + prompt(100 + turn, 9)
    wanted, _ = truth(sequence)
    assert apart(rows, wanted[: len(rows)]) == []
    assert len(rows) == len(sequence) - 9 - 1


def test_cache_hits(engine: Engine, truth: Truth) -> None:
    """A prompt that is cached has its rows again, with and without a start."""
    asked = prompt(2, 80)
    for start in (0, 0, 33, 64, 80):
        answer = engine.generate(asked, 10, seed=start, salt="cached", start=start)
        check(answer, asked + answer.tokens, *truth(asked + answer.tokens))


@pytest.mark.parametrize("most", [1, 2])
def test_shortest_answers(engine: Engine, truth: Truth, most: int) -> None:
    """The last token has no pass, and so no row."""
    asked = prompt(3, 40)
    answer = engine.generate(asked, most, start=40)
    assert answer.rows is not None
    assert answer.rows.shape == (most - 1, 4, 2)
    check(answer, asked + answer.tokens, *truth(asked + answer.tokens))


def test_aborts(engine: Engine, truth: Truth) -> None:
    """Rows until an abort come back, and the next request's follow them."""
    sequence, rows = prompt(4, 40), np.zeros((0, 4, 2), dtype=np.uint8)
    for attempt in range(3):
        asked = partial(engine.generate, sequence, 150, salt="aborts", start=len(rows), name=f"aborted-{attempt}")
        with engine.frozen(asked, 5) as answers:
            engine.abort(f"aborted-{attempt}")
        (answer,) = answers
        assert answer.finish == "abort"
        sequence, rows = sequence + answer.tokens, joined(rows, answer)
        check(answer, sequence, *truth(sequence))
    wanted, _ = truth(sequence)
    assert apart(rows, wanted[:-1]) == []


def test_an_aborted_stream(engine: Engine, truth: Truth) -> None:
    """It ends without rows and reason, or, by 0.32, with both. Under the same weights a resume brings all rows."""
    asked = prompt(5, 40)
    with engine.frozen(lambda: engine.generate(asked, 150, salt="stream", stream=True, name="stream"), 5) as answers:
        engine.abort("stream")
    (cut,) = answers
    assert len(cut.tokens) >= 5
    if cut.rows is None:
        assert cut.finish is None
    else:
        assert cut.finish == "abort"
        check(cut, asked + cut.tokens, *truth(asked + cut.tokens))
    again = engine.generate(asked + cut.tokens, 10, salt="stream")
    sequence = asked + cut.tokens + again.tokens
    check(again, sequence, *truth(sequence))


@pytest.mark.parametrize("reset", [False, True], ids=["cache-kept", "cache-dropped"])
def test_switch_under_way(engine: Engine, truth: Truth, directories: list[str], reset: bool) -> None:
    """Weights change within an answer: up to one pass rows and log-probs are the old model's, from there the new one's.

    With the cache kept, the new model goes on with the old one's keys and values.
    """
    asked = prompt(6, 50)
    with engine.frozen(lambda: engine.generate(asked, 180, salt="switch"), 8) as answers:
        engine.load(directories[1])
        if reset:
            engine.reset(running=True)
    (answer,) = answers
    sequence = asked + answer.tokens
    old, new = truth(sequence), truth(sequence, (1, len(sequence)))
    fits = []
    for at in range(len(asked), len(sequence)):
        rows, logprobs = truth(sequence, (0, at), (1, len(sequence)))
        if reset:
            rows = np.concatenate([old[0][:at], new[0][at:]])
            logprobs = np.concatenate([old[1][: at + 1], new[1][at + 1 :]])
        assert answer.rows is not None
        if not apart(answer.rows, rows[:-1]) and np.abs(logprobs[len(asked) :] - answer.logprobs).max() < ROUNDING:
            fits.append(at)
    assert len(fits) == 1, f"rows and log-probs change at one pass: {fits}"
    assert len(asked) + 8 <= fits[0] < len(sequence) - 5


def test_stale_cache(engine: Engine, truth: Truth, directories: list[str]) -> None:
    """After a switch that keeps the cache the rows of cached blocks are the old model's; after a reset none is."""
    asked = prompt(7, 80)
    engine.generate(asked, 10, salt="stale")
    engine.load(directories[1])
    stale = engine.generate(asked, 10, salt="stale")
    check(stale, asked + stale.tokens, *truth(asked + stale.tokens, (0, 80 // BLOCK * BLOCK), (1, 1000)))
    engine.reset()
    fresh = engine.generate(asked, 10, salt="stale")
    check(fresh, asked + fresh.tokens, *truth(asked + fresh.tokens, (1, 1000)))


def test_a_resume_after_a_switch_is_not_what_sampled(engine: Engine, truth: Truth, directories: list[str]) -> None:
    """Rows that an aborted stream has lost come back as the new weights' where they are computed again."""
    asked = prompt(8, 40)
    with engine.frozen(lambda: engine.generate(asked, 150, salt="lost", stream=True, name="lost"), 5) as answers:
        engine.abort("lost")
        engine.load(directories[1])
    (cut,) = answers
    again = engine.generate(asked + cut.tokens, 10, salt="lost")
    sampled, _ = truth(asked + cut.tokens)
    assert again.rows is not None
    differ = apart(again.rows[: len(sampled) - 1], sampled[:-1])
    cached = (len(asked) + len(cut.tokens) - 1) // BLOCK * BLOCK
    assert all(i >= cached for i in differ)
    assert len(differ) > (len(sampled) - 1 - cached) // 2
