"""Tokens per second of a running server: python tests/throughput.py URL [concurrency] [requests] [new tokens]."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit


async def respond(host: str, port: int, work: asyncio.Queue[int], new_tokens: int) -> int:
    """Asks for one streamed response after the other, and counts events."""
    reader, writer = await asyncio.open_connection(host, port)
    events = 0
    while not work.empty():
        rid = work.get_nowait()
        body = json.dumps({
            "rid": f"{rid:06d}|", "input_ids": [1 + (rid + i) % 60 for i in range(24)], "stream": True,
            "return_logprob": True, "sampling_params": {"max_new_tokens": new_tokens, "ignore_eos": True},
        }).encode()  # fmt: skip
        writer.write(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        tail = b""
        while not tail.endswith(b"\r\n0\r\n\r\n"):
            piece = await reader.read(1 << 16)
            if not piece:
                raise ConnectionError("the server closed the connection")
            events += piece.count(b"data: {")
            tail = (tail + piece)[-16:]
    writer.close()
    return events


async def main(url: str, concurrency: int = 64, requests: int = 256, new_tokens: int = 128) -> None:
    """Prints one line."""
    address = urlsplit(url)
    work: asyncio.Queue[int] = asyncio.Queue()
    for rid in range(requests):
        work.put_nowait(rid)
    began = time.perf_counter()
    counts = await asyncio.gather(
        *(respond(address.hostname or "", address.port or 80, work, new_tokens) for _ in range(concurrency))
    )
    took = time.perf_counter() - began
    print(f"{concurrency} at once: {requests * new_tokens / took:.0f} tokens/s, {sum(counts)} events in {took:.2f} s")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *(int(a) for a in sys.argv[2:])))
