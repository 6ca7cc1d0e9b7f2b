"""A server that answers as a script says, at the place of a connection, and notes what differs from it."""

from __future__ import annotations

import email
import email.policy
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import httpx
import numpy as np
from virtual import Virtual

from headway import tensors

TYPES = {
    "tokens": np.int32, "offsets": np.int64, "loss_mask": np.uint8, "logprobs": np.float32, "versions": np.int32,
    "advantages": np.float32, "rewards": np.float32, "groups": np.int64, "samples": np.int32,
}  # fmt: skip
EPSILON_S = 1e-6


def read(kind: Any, said: Mapping[str, Any]) -> Any:
    """A dataclass of an object of a script. A key that it has not is a mistake of the script."""
    known = {f.name.rstrip("_") for f in fields(kind)}
    assert said.keys() <= known, f"{kind.__name__} has no {sorted(said.keys() - known)}"
    return kind(**{(k + "_" if k == "json" else k): v for k, v in said.items()})


@dataclass
class Reply:
    status: int = 200
    json_: Any = None
    text: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    refusal: str = ""
    detail: dict[str, Any] | None = None
    batch: dict[str, Any] | None = None
    model: dict[str, list[float]] | None = None
    after_s: float = 0.0
    body_s: float = 0.0
    pieces: int = 1
    lost: str = ""
    flip: int = 0
    #: The script's words "from", "bytes" and "break" are Python's, too.
    skip: int = 0
    sent: int = 0
    broken: bool = False

    @property
    def flipped(self) -> bytes:
        body = bytearray(self.body)
        if self.flip:
            body[-self.flip] ^= 1
        return bytes(body)

    @property
    def body(self) -> bytes:
        if self.text:
            return self.text.encode()
        if self.batch is not None:
            return batch(**self.batch)
        if self.model is not None:
            return b"".join(tensors.File("", arrays(self.model)).chunks())
        if self.refusal:
            said = {"error": {"code": self.refusal, "message": "it is refused", "detail": self.detail}}
            return json.dumps(said).encode()
        return b"" if self.json_ is None else json.dumps(self.json_).encode()


@dataclass
class Exchange:
    ask: str
    lane: str = ""
    name: str = ""
    to: str = ""
    json_: Any = None
    manifest: dict[str, Any] | None = None
    parts: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    again: bool = False
    wait: tuple[float, float] = (0.0, 0.0)
    since: str = ""
    repeat: bool = False
    spread: tuple[float, float] | None = None
    answer: Any = None


def arrays(lists: Mapping[str, list[float]]) -> dict[str, Any]:
    """Tensors of lists by name, in the order of the names."""
    return {name: np.array(lists[name], np.float32) for name in sorted(lists)}


def batch(
    lease: int = 0, attempt: int = 0, version: int = 0, deadline_s: float = 0.0, kind: str = "train", rank: int = 0,
    world_size: int = 1, without: str = "", references: bool = False, **more: Any,
) -> bytes:  # fmt: skip
    """A batch of a group of two rollouts."""
    header = {
        "lease": lease, "attempt": attempt, "kind": kind, "version": version, "deadline_s": deadline_s, "rank": rank,
        "world_size": world_size, "tokens": 9, "response_tokens": 3, "rollouts": 2, "groups": 1, "staleness_mean": 0,
        "staleness_max": 0,
        "stamps": [{"group": 7, "start_version": version, "ready_version": version, "rollouts": 2}],
    }  # fmt: skip
    if references:
        group = batch(version=version)
        named = {"group": 7, "rollouts": 2, "bytes": len(group), "sha256": hashlib.sha256(group).hexdigest()}
        return json.dumps({**header, "references": [named]}).encode()
    v = version
    content: dict[str, list[float]] = {
        "tokens": [0, 5, 1, 7, 2, 0, 5, 1, 9], "offsets": [0, 5, 9], "loss_mask": [0, 0, 0, 1, 1, 0, 0, 0, 1],
        "logprobs": [0, 0, 0, -0.25, -0.25, 0, 0, 0, -0.25], "versions": [-1, -1, -1, v, v, -1, -1, -1, v],
        "advantages": [1, -1], "rewards": [1, 0], "groups": [7, 7], "samples": [0, 1],
    }  # fmt: skip
    content |= more.pop("tensors", {})
    assert not more, f"a batch has no {sorted(more)}"
    made = {name: np.array(content[name], kind) for name, kind in TYPES.items() if name != without}
    return b"".join(tensors.File("", made, {"headway": json.dumps(header)}).chunks())


def alike(want: Any, have: Any) -> bool:
    """The value is the wanted one. Of an object only the wanted keys count, if any; a wanted null is an absent key."""
    if not isinstance(want, dict) or not want:
        return bool(want == have)
    if not isinstance(have, dict):
        return False
    return all((k not in have) if v is None else (k in have and alike(v, have[k])) for k, v in want.items())


def within(seconds: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] - EPSILON_S <= seconds <= bounds[1] + EPSILON_S


@dataclass
class _Lane:
    places: list[int] = field(default_factory=list)
    next: int = 0
    key: str = ""
    ended: float = 0.0


class Server(httpx.BaseTransport):
    """Answers the requests of one test."""

    def __init__(self, world: Virtual, exchanges: list[dict[str, Any]], directory: str) -> None:
        self._world, self._directory = world, directory
        self._exchanges: list[Exchange] = []
        self._lanes: dict[str, _Lane] = {}
        for at, said in enumerate(exchanges):
            one = read(Exchange, said)
            words = {"from": "skip", "bytes": "sent", "break": "broken"}
            one.answer = read(Reply, {words.get(key, key): value for key, value in (one.answer or {}).items()})
            self._exchanges.append(one)
            self._lanes.setdefault(one.lane, _Lane(ended=world.now)).places.append(at)
        self._waits: list[list[float]] = [[] for _ in self._exchanges]
        self._taken = [0] * len(self._exchanges)
        self._ended: dict[str, float] = {}
        self._keys: set[str] = set()
        self._began = world.now
        self.faults: list[str] = []

    def over(self) -> None:
        """Note the exchanges that have not taken place."""
        for at, one in enumerate(self._exchanges):
            if not self._taken[at]:
                self.faults.append(f"exchange {at} ({one.ask}) has not taken place")
            waits = self._waits[at][:-1]
            if one.spread and not (len(waits) >= 20 and _fills(waits, *one.spread)):
                self.faults.append(f"exchange {at} ({one.ask}): waits {waits} do not spread over {one.spread} s")

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        at = self._expect(request, body)
        said: Reply = self._exchanges[at].answer
        limits = {name: math.inf if limit is None else limit for name, limit in request.extensions["timeout"].items()}
        if said.lost:
            try:
                self._lose(request, said, limits)
            finally:
                self._end(at)
        if said.after_s > limits["read"]:
            self._world.sleep(limits["read"])
            self._end(at)
            raise httpx.ReadTimeout("no answer", request=request)
        self._world.sleep(said.after_s)
        stream = _Stream(said, limits["read"], self._world.sleep, request, lambda: self._end(at))
        return httpx.Response(said.status, headers=said.headers, stream=stream)

    def _lose(self, request: httpx.Request, said: Reply, limits: Mapping[str, float]) -> None:
        if said.lost == "refused":
            raise httpx.ConnectError("connection refused", request=request)
        if said.lost == "unreachable":
            self._world.sleep(limits["connect"])
            raise httpx.ConnectTimeout("no connection", request=request)
        if said.lost == "silent":
            self._world.sleep(limits["read"])
            raise httpx.ReadTimeout("no answer", request=request)
        assert said.lost == "dropped", said.lost
        self._world.sleep(said.after_s)
        raise httpx.RemoteProtocolError("the connection was closed", request=request)

    def _expect(self, request: httpx.Request, body: bytes) -> int:
        asked = f"{request.method} {request.url.raw_path.decode()}"
        for at, one in enumerate(self._exchanges):
            lane = self._lanes[one.lane]
            if lane.next >= len(lane.places) or lane.places[lane.next] != at or one.ask != asked:
                continue
            if any(request.headers.get(name, "") != value for name, value in one.headers.items()):
                continue
            self._check(at, one, lane, request, body)
            self._taken[at] += 1
            lane.next += not one.repeat
            return at
        now = self._world.now - self._began
        self.faults.append(f"{now:g} s: unexpected: {asked} at {request.url.host}: {body[:300]!r}")
        raise AssertionError(self.faults[-1])

    def _check(self, at: int, one: Exchange, lane: _Lane, request: httpx.Request, body: bytes) -> None:
        def wrong(what: str) -> None:
            self.faults.append(f"exchange {at} ({one.ask}), at {self._world.now - self._began:g} s: {what}")

        waited = self._world.now - (self._ended[one.since] if one.since else lane.ended)
        self._waits[at].append(waited)
        if not within(waited, one.wait):
            wrong(f"comes after {waited:g} s, want {one.wait}")
        if one.to and f"http://{request.url.host}" != one.to:
            wrong(f"goes to {request.url.host}, want {one.to}")
        if request.method != "GET":
            key = request.headers.get("Idempotency-Key", "")
            if not re.fullmatch("[0-9a-f]{32}", key):
                wrong(f"the Idempotency-Key is {key!r}")
            elif one.again and key != lane.key:
                wrong("the Idempotency-Key is not that of the try before")
            elif not one.again and key in self._keys:
                wrong("the Idempotency-Key has been used before")
            lane.key = key
            self._keys.add(key)
        if one.json_ is not None:
            want = {k: self._directory if v == "$DIR" else v for k, v in one.json_.items()}
            if not alike(want, json.loads(body or b"null")):
                wrong(f"says {body[:500]!r}, want {one.json_}")
            if request.headers.get("Content-Type") != "application/json":
                wrong(f"is of type {request.headers.get('Content-Type')}")
        if one.manifest is not None and (fault := manifest(request, body, one.manifest, one.parts)):
            wrong(fault)

    def _end(self, at: int) -> None:
        one = self._exchanges[at]
        self._lanes[one.lane].ended = self._world.now
        if one.name:
            self._ended[one.name] = self._world.now


class _Stream(httpx.SyncByteStream):
    """The body of an answer. It ends the exchange with its last byte."""

    def __init__(
        self, said: Reply, limit_s: float, sleep: Callable[[float], None], request: httpx.Request,
        end: Callable[[], None],
    ) -> None:  # fmt: skip
        self._said, self._limit_s, self._sleep, self._request, self._end = said, limit_s, sleep, request, end
        self._done = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            body = self._said.flipped[self._said.skip :][: self._said.sent or None]
            for place in range(self._said.pieces):
                self._sleep(min(self._said.body_s, self._limit_s))
                if self._said.body_s > self._limit_s:
                    raise httpx.ReadTimeout("no byte", request=self._request)
                yield body[place * len(body) // self._said.pieces : (place + 1) * len(body) // self._said.pieces]
            if self._said.broken:
                raise httpx.RemoteProtocolError("the connection was closed", request=self._request)
        finally:
            self.close()

    def close(self) -> None:
        if not self._done:
            self._done = True
            self._end()


def _fills(waits: list[float], low: float, high: float) -> bool:
    width = high - low
    return low <= min(waits) < low + width / 4 and high - width / 4 < max(waits) <= high


def manifest(request: httpx.Request, body: bytes, want: Mapping[str, Any], names: list[str]) -> str:
    """What is wrong with a publish; empty for nothing."""
    if request.headers.get("Content-Length") != str(len(body)):
        return f"the length is said to be {request.headers.get('Content-Length')}, and is {len(body)}"
    head = f"Content-Type: {request.headers['Content-Type']}\r\n\r\n".encode()
    message = email.message_from_bytes(head + body, policy=email.policy.HTTP)
    files = {}
    for part in message.iter_parts():
        found = part.get_payload(decode=True)
        assert isinstance(found, bytes)
        files[str(part.get_param("name", header="content-disposition"))] = found
    if list(files) != ["manifest", *names]:
        return f"the parts are {list(files)}, want the manifest and {names}"
    said = json.loads(files["manifest"])
    listed = [
        {"name": name, "size": len(files[name]), "hash": "sha256:" + hashlib.sha256(files[name]).hexdigest()}
        for name in names
    ]
    if said.get("files") != listed:
        return f"the manifest lists {said.get('files')}, and the parts are {listed}"
    for name in names:
        tensors.decode(files[name], name)
    return "" if alike(want, said) else f"the manifest is {said}, want {want}"
