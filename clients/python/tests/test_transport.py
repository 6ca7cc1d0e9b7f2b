"""Calls outlive a server that is away, with one idempotency key, and end when they should."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from faulty import CONNECTED, Reply, Request, as_json, refusal, serving

import headway
from headway.transport import Transport


def failing(times: int, failure: Callable[[], Reply]) -> Callable[[Request], Reply]:
    """Fails the first calls, then answers."""
    left = [times]

    def route(_: Request) -> Reply:
        left[0] -= 1
        return failure() if left[0] >= 0 else as_json(CONNECTED)

    return route


@pytest.mark.parametrize(
    "failure",
    [
        lambda: Reply(drop=True),
        lambda: refusal("unavailable", 503),
        lambda: refusal("disk_full", 507),
        lambda: refusal("busy", 429),
        lambda: Reply(503, b"", {"Retry-After": "0"}),
    ],
    ids=["dropped", "unavailable", "disk full", "busy", "empty"],
)
def test_again(failure: Callable[[], Reply]) -> None:
    with serving() as server:
        server.routes["POST /api/v1/trainers/connect"] = failing(3, failure)
        with headway.connect(server.url) as hw:
            assert hw.newest == 3
        keys = [r.headers["Idempotency-Key"] for r in server.requests]
        assert len(keys) == 4
        assert len(set(keys)) == 1
        assert all(r.json == server.requests[0].json for r in server.requests)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_no_proxy_is_asked_for_this_machine(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as proxy, serving() as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        with headway.connect(server.url.replace("127.0.0.1", host), patience_s=0) as hw:
            assert hw.newest == 3
        assert not proxy.requests


def test_defects_are_bounded() -> None:
    with serving() as server:
        server.routes["POST /api/v1/trainers/connect"] = lambda _: refusal("internal", 500)
        with pytest.raises(headway.Internal):
            headway.connect(server.url)
        assert len(server.requests) == 3


def test_refused_once() -> None:
    """What cannot be meant is not sent again."""
    with serving() as server:
        server.routes["POST /api/v1/trainers/connect"] = lambda _: refusal("conflict", 409)
        with pytest.raises(headway.Conflict):
            headway.connect(server.url)
        assert len(server.requests) == 1


def test_nobody_there() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(headway.Unavailable, match="no answer"):
        headway.connect(f"http://127.0.0.1:{port}", patience_s=0.1)


def test_standby() -> None:
    """Of several addresses the one that serves is found, and kept."""
    with serving() as deposed, serving() as writer:
        deposed.routes["POST /api/v1/trainers/connect"] = lambda _: refusal("unavailable", 503)
        with headway.connect([deposed.url, writer.url]) as hw:
            hw.reconnect()
        assert len(deposed.requests) == 1
        assert len(writer.requests) == 2


def test_stop_ends_waiting() -> None:
    stop = threading.Event()
    with serving() as server:
        server.routes["POST /x"] = lambda _: refusal("unavailable", 503)
        transport = Transport(server.url, stopped=stop)
        failures: list[BaseException] = []

        def call() -> None:
            try:
                transport.post("/x", {})
            except headway.Unavailable as error:
                failures.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        server.wait_for("/x", 2)
        stop.set()
        thread.join(timeout=20)
        assert len(failures) == 1
        transport.close()


def test_token() -> None:
    with serving() as server:
        headway.connect(server.url, token="secret").close()
        assert server.requests[0].headers["Authorization"] == "Bearer secret"


def test_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none is said; an empty one is none."""
    monkeypatch.setenv("HEADWAY_TOKEN", "secret")
    with serving() as server:
        for token in (None, "other", ""):
            headway.connect(server.url, token=token).close()
        said = [request.headers.get("Authorization") for request in server.requests]
    assert said == ["Bearer secret", "Bearer other", None]


def test_token_of_a_file() -> None:
    with serving() as server:
        headway.connect(server.url, token=" secret\n").close()
        assert server.requests[0].headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    "token", ["secr\nt", "se cret", "secré", "sec\x00ret"], ids=["newline", "space", "accent", "zero"]
)
def test_token_that_cannot_be(token: str) -> None:
    with pytest.raises(headway.Invalid) as caught:
        headway.connect("http://127.0.0.1:1", token=token)
    assert token[:3] not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["", "localhost:7070", "http://", "http://localhost:port", "http://localhost:70000", "http://[::1", "ftp://h"]
)
def test_url_that_cannot_be(url: str) -> None:
    with pytest.raises(headway.Invalid, match="http://"):
        headway.connect(url)


def test_tls_to_a_plain_port() -> None:
    """A mistake is raised at once, not after ten minutes."""
    with serving() as server, pytest.raises(headway.Invalid, match="SSL"):
        headway.connect(server.url.replace("http:", "https:"), patience_s=600)


def test_certificates_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(headway.Invalid, match="certificates"):
        headway.connect("https://127.0.0.1:1", verify=str(tmp_path / "nothing.pem"))


def test_outage_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Once when nobody answers, and once when somebody does again."""
    with serving() as server:
        server.routes["POST /api/v1/trainers/connect"] = failing(5, lambda: refusal("unavailable", 503))
        headway.connect(server.url).close()
        assert [r.getMessage() for r in caplog.records if r.name == "headway"] == [
            f"POST {server.url}/api/v1/trainers/connect: it is unavailable; it is tried again for 600 s in all",
            f"{server.url} answers again",
        ]
        caplog.clear()
        server.routes["POST /api/v1/trainers/connect"] = failing(1, lambda: Reply(drop=True))
        headway.connect(server.url).close()
        assert [r for r in caplog.records if r.name == "headway"] == []


def test_not_finite() -> None:
    transport = Transport("http://127.0.0.1:1")
    with pytest.raises(headway.Invalid, match="not finite"):
        transport.post("/x", {"a": float("nan")})


def test_connections_are_probed() -> None:
    """A machine that is gone ends a call without a time limit."""
    with serving() as server:
        server.routes["GET /x"] = lambda _: as_json({})
        with Transport(server.url).stream("/x") as response:
            connection = response.extensions["network_stream"].get_extra_info("socket")
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore")
def test_a_forked_child_has_connections_of_its_own() -> None:
    """As a worker of a DataLoader that reads images: parent and child got one another's answers."""
    with serving() as server:
        for name in "ab":
            server.routes[f"GET /{name}"] = lambda _, name=name: as_json({"is": name})  # type: ignore[misc]
        transport = Transport(server.url, patience_s=2.0)
        transport.get("/a")
        child = os.fork()
        name = "a" if child else "b"
        wrong = 1
        try:
            wrong = sum(transport.get(f"/{name}", timeout_s=2.0)["is"] != name for _ in range(50))
        finally:
            if not child:
                os._exit(min(wrong, 1))
        assert wrong == 0
        assert os.waitpid(child, 0)[1] == 0
        transport.close()


def test_authority_by_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(headway.Invalid, match="no file of certificates"):
        Transport("https://127.0.0.1:1", verify=tmp_path / "none.pem")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca").mkdir()
    transport = Transport("https://127.0.0.1:1", verify="ca")
    assert transport.openai("g", "key").environ["SSL_CERT_FILE"] == str(tmp_path / "ca")
    transport.close()
