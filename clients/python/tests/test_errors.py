"""Every refusal becomes its class, with what the server said."""

from __future__ import annotations

import copy
import pickle

import pytest
from faulty import Reply, refusal, serving

import headway
from headway import errors
from headway.single_turn import VerifierTimeout
from headway.view import Result

CODES = {
    "invalid": (400, headway.Invalid), "unauthorized": (401, headway.Unauthorized),
    "forbidden": (403, headway.Forbidden), "not_found": (404, headway.NotFound),
    "conflict": (409, headway.Conflict), "expired": (410, headway.LeaseExpired),
    "too_large": (413, headway.TooLarge), "busy": (429, headway.Busy), "internal": (500, headway.Internal),
    "unavailable": (503, headway.Unavailable), "disk_full": (507, headway.DiskFull),
}  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_typed(code: str) -> None:
    status, kind = CODES[code]
    with serving() as server:
        server.routes["POST /api/v1/trainers/connect"] = lambda _: refusal(code, status, limit=7)
        with pytest.raises(kind) as caught:
            headway.connect(server.url, patience_s=0)
    error = caught.value
    assert (error.code, error.status, error.message) == (code, status, f"it is {code}")
    assert error.detail == {"limit": 7}
    assert isinstance(error, headway.HeadwayError)
    assert str(error) == f"{code}: it is {code}"


@pytest.mark.parametrize(
    ("status", "kind"), [(502, headway.Unavailable), (431, headway.TooLarge), (418, headway.Invalid)]
)
def test_no_body(status: int, kind: type[headway.HeadwayError]) -> None:
    """A proxy in between answers without a code."""
    with serving() as server:
        server.routes["POST /api/v1/trainers/connect"] = lambda _: Reply(status, b"<html>a proxy</html>")
        with pytest.raises(kind, match="a proxy"):
            headway.connect(server.url, patience_s=0)


@pytest.mark.parametrize(
    "error",
    [
        headway.Conflict("m", detail={"limit": 7}, status=409),
        headway.Refused("m", hint="h", faults=[{"key": "a.b"}], exit_code=2, command=["run"]),
        headway.NotSettled("m", result=Result({"a": 1}), hint="h"),
        headway.Died("m", exit_code=-9, log="the end"),
        errors.MissingLibrary("m"),
        VerifierTimeout("m"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_between_processes(error: headway.HeadwayError) -> None:
    """An error that cannot be unpickled hangs multiprocessing.Pool."""
    for found in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(found) is type(error)
        assert (found.args, str(found)) == (error.args, str(error))
        assert found.__dict__ == error.__dict__


def test_unknown_code() -> None:
    error = errors.from_response(409, {"error": {"code": "brand_new", "message": "m"}})
    assert isinstance(error, headway.Conflict)
    assert error.code == "brand_new"


def test_not_headway() -> None:
    with serving() as server:
        server.routes["POST /api/v1/trainers/connect"] = lambda _: Reply(200, b"<html>hello</html>")
        with pytest.raises(headway.Internal, match="is it a Headway control plane"):
            headway.connect(server.url)


def test_nobody_listens() -> None:
    """The message says all: nothing of the HTTP library stands before it."""
    with pytest.raises(headway.Unavailable, match="no answer") as found:
        headway.connect("http://127.0.0.1:1", patience_s=0)
    assert found.value.__suppress_context__
    assert found.value.__cause__ is None


@pytest.mark.parametrize("url", ["localhost:7070", "", [], None, 7070])
def test_url(url: str | list[str]) -> None:
    with pytest.raises(headway.Invalid, match=r"url|address"):
        headway.connect(url)


def test_names_and_ranks() -> None:
    with pytest.raises(headway.Invalid, match="name 'a b'"):
        headway.connect(trainer="a b")
    with pytest.raises(headway.Invalid, match="rank 2 of 2"):
        headway.connect(rank=2, world_size=2)
