"""`headway.serve`: a control plane within a script, started and ended by the real program."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import headway
import pytest
from headway import serving

SMALL: dict[str, Any] = {
    "train": {"batch": 16}, "rollout": {"group_size": 4, "concurrency": 16}, "trainer": {"steps": 3},
}  # fmt: skip
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")


@pytest.fixture(autouse=True)
def _program(binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_PROGRAM", str(binary))


def test_a_script_trains_and_leaves_nothing(tmp_path: Path) -> None:
    seen = []
    with headway.serve(SMALL, dir=tmp_path) as plane:
        weights = plane.client.load()
        for batch in plane.client.batches():
            seen.append(plane.client.publish(batch, weights))
            if seen == [1, 2]:
                break
        pid = plane._process.pid
    assert not Path(f"/proc/{pid}").exists()
    assert not plane.running
    assert any("listening on" in line for line in plane.log)
    with headway.serve(SMALL, dir=tmp_path) as plane:  # the same name goes on with the run
        weights = plane.client.load()
        seen += [plane.client.publish(batch, weights) for batch in plane.client.batches()]
    assert seen == [1, 2, 3]
    with pytest.raises(headway.Refused, match="began with other settings"):
        headway.serve(SMALL, dir=tmp_path, trainer__steps=4)


def test_a_proxy_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for a control plane of this machine."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with headway.serve(SMALL, dir=tmp_path, ready_s=30) as plane:
        assert plane.client.newest == 0


def test_connections_trust_what_serve_trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    connect = serving.connect
    monkeypatch.setattr(serving, "connect", lambda url, **said: made.append(said["verify"]) or connect(url, **said))
    with headway.serve(SMALL, dir=tmp_path, verify=False) as plane:
        assert plane.client.newest == 0
        plane.connect(verify=True)
    assert made == [False, True]


def test_tokens_are_taken_from_their_file(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("trainer\t " + "t" * 32 + "\nadmin " + "a" * 32 + "\n", encoding="utf-8-sig")
    tokens.chmod(0o600)
    with headway.serve(SMALL, dir=tmp_path / "runs", token_file=tokens) as plane:
        assert plane.token == "t" * 32
        assert plane.client.newest == 0
        with pytest.raises(headway.Unauthorized):
            plane.connect(token="wrong" * 8)


def test_a_refused_document_is_the_programs_error(tmp_path: Path) -> None:
    with pytest.raises(headway.Refused, match="did you mean group_size") as caught:
        headway.serve({"rollout": {"grop_size": 4}}, dir=tmp_path)
    assert caught.value.faults[0].key == "rollout.grop_size"
    with headway.serve(SMALL, dir=tmp_path) as plane:
        taken = plane.url.removeprefix("http://")
        with pytest.raises(headway.Refused, match="address already in use"):
            headway.serve(SMALL, dir=tmp_path / "other", listen=taken)


def test_a_plane_that_dies_hands_over_its_log(tmp_path: Path) -> None:
    with pytest.raises(headway.Died, match="ended by signal 9") as caught, headway.serve(SMALL, dir=tmp_path) as plane:
        os.kill(plane._process.pid, signal.SIGKILL)
        plane._process.wait()
    assert "listening on" in caught.value.log


def test_an_error_of_a_call_comes_with_the_log(tmp_path: Path) -> None:
    with pytest.raises(headway.HeadwayError) as caught, headway.serve(SMALL, dir=tmp_path) as plane:
        os.kill(plane._process.pid, signal.SIGKILL)
        plane._process.wait()
        plane.connect(patience_s=0.1)
    if sys.version_info >= (3, 11):
        assert "listening on" in caught.value.__notes__[0]


SCRIPT = """
import time, headway
with headway.serve({document}, dir={folder!r}) as plane:
    plane.client.load()
    for batch in plane.client.batches():
        print(plane._process.pid, flush=True)
        # The train step. Python misses a signal that comes just before a call that blocks, until that call returns.
        while True:
            time.sleep(0.01)
"""


@LINUX
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_script_leaves_no_plane(binary: Path, tmp_path: Path, how: signal.Signals) -> None:
    """Also in the middle of a train step: its batch is leased."""
    script = SCRIPT.format(document=SMALL, folder=str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(headway.__file__).parents[1])},
    )  # fmt: skip
    assert process.stdout is not None
    plane = os.pidfd_open(int(process.stdout.readline()))
    process.send_signal(how)
    assert process.wait(60) == -how, process.communicate()
    assert select.select([plane], [], [], 60)[0], "the control plane goes on without its script"
    os.close(plane)
