"""Bodies that were changed at random: each is read, or refused by an error of the client's own."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from headway import batch, errors, figures, metrics, tensors, transport

GOLDEN = Path(__file__).resolve().parents[3] / "train" / "batch" / "testdata"
TIMES = 20_000 if os.environ.get("HEADWAY_LONG") else 400

#: Texts that stand where others are wanted.
ODD = [
    b"null", b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1", b"0", b"9" * 30, b"1" * 5000, b'""', b"[]", b"{}", b"true", b"[" * 3000,
    b'{"a":' * 3000, b'"\\ud800"', b"\xff\xfe", b"\x00", b"9223372036854775807", b"-9223372036854775808", b'"F64"', b"18446744073709551616",
]  # fmt: skip


def mutations(seed: int, originals: list[bytes]) -> Iterator[bytes]:
    """Originals with one to four changes: bytes flipped, cut, doubled, or replaced by odd texts. The length before a
    safetensors header is kept right half of the time, since most else is refused there."""
    draw = random.Random(seed)
    for _ in range(TIMES):
        body = bytearray(draw.choice(originals))
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(body)) if body else 0
            match draw.randrange(6):
                case 0:
                    body[at : at + 1] = bytes([draw.randrange(256)])
                case 1:
                    del body[at : at + draw.randint(1, 40)]
                case 2:
                    body[at:at] = body[at : at + draw.randint(1, 40)]
                case 3:
                    body[at : at + draw.randint(0, 8)] = draw.choice(ODD)
                case 4:
                    digits = [i for i, c in enumerate(body) if chr(c).isdigit()]
                    if digits:
                        i = draw.choice(digits)
                        body[i : i + 1] = draw.choice(ODD)
                case _:
                    body[at:at] = draw.choice(ODD)
        yield bytes(body)


def framed(body: bytes) -> bytes:
    """A safetensors body whose length is that of its header, as far as one can be told."""
    end = body.find(b"}}", 8)
    return body if end < 0 else (end + 2 - 8).to_bytes(8, "little") + body[8:]


def survives(read: Callable[[bytes], object], bodies: Iterator[bytes]) -> int:
    """How many bodies were read. Any error but the client's own is a failure that shows the body."""
    taken = 0
    for body in bodies:
        try:
            read(body)
            taken += 1
        except errors.HeadwayError:
            pass
        except Exception as error:
            pytest.fail(f"{error!r} of {body[:4000]!r}")
    return taken


def test_batches() -> None:
    originals = [f.read_bytes() for f in sorted(GOLDEN.glob("*.safetensors"))]

    def read(body: bytes) -> None:
        for content in (body, framed(body)):
            found = batch.parse(content)
            found.padded(1 << 20)
            assert len(list(found)) == len(found)

    assert survives(read, mutations(1, originals)) < TIMES


def test_tensors() -> None:
    originals = [f.read_bytes() for f in sorted(GOLDEN.glob("*.safetensors"))]
    survives(lambda body: tensors.decode(framed(body), "a file"), mutations(2, originals))


def test_lease() -> None:
    """The JSON inside a batch's header, which the outer one quotes."""
    lease = {
        "lease": 3, "attempt": 1, "kind": "train", "version": 12, "deadline_s": 60.5, "rank": 0, "world_size": 1, "tokens": 18,
        "response_tokens": 9, "rollouts": 3, "groups": 2, "staleness_mean": 1.5, "staleness_max": 2,
        "stamps": [{"group": 1, "start_version": 10, "ready_version": 11, "rollouts": 2}],
    }  # fmt: skip
    bodies = mutations(3, [json.dumps(lease).encode()])
    survives(lambda body: batch._metadata(body.decode(errors="surrogateescape")), bodies)


def test_replies() -> None:
    """Refusals and answers of whatever stands at the server's address."""
    originals = [
        b'{"error":{"code":"expired","message":"m","detail":{"a":1}}}', b'{"lease":1,"config":"{}"}', b"<html>", b'{"error":"x"}',
    ]  # fmt: skip

    def read(body: bytes) -> None:
        for status in (200, 204, 400, 410, 500, 999):
            response = httpx.Response(status, content=body, request=httpx.Request("POST", "http://h/"))
            assert isinstance(transport.refusal(response), errors.HeadwayError)
            transport._object(response)

    survives(read, mutations(4, originals))


def test_lines() -> None:
    """Lines of figures, and events of a stream."""
    originals = [b'{"step":3,"figures":{"a":1,"b":{"c":2.5}}}']
    survives(
        lambda body: figures.lines([body.decode(errors="replace")], lambda step, values: None), mutations(5, originals)
    )

    def follow(body: bytes) -> None:
        for _, event in metrics._parse(iter(["id: 1", "data: " + body.decode(errors="replace"), ""]), ""):
            metrics.figures(event)

    survives(follow, mutations(6, originals))
