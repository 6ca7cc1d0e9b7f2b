"""Trainer and engines meet by the server, and weights go from one to the others over gloo."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from conftest import Serve
from faulty import as_json, serving

import headway
from headway import meeting

Start = Callable[..., Serve]

MEMBER = '''
import sys
import torch, torch.distributed as dist
import headway

url, role = sys.argv[1:]
member = f"{role}-{sys.argv[0]}-{__import__('os').getpid()}"
met = headway.rendezvous(url, "weights", role, member=member, backend="gloo",
                         engines=2 if role == "trainer" else 0, wait_s=10, patience_s=60)
dist.init_process_group("gloo", init_method=met.init_method, world_size=met.world_size, rank=met.rank_offset)
rank = dist.get_rank()
assert (rank == 0) == (role == "trainer"), (rank, role)
torch.manual_seed(rank)
state = {name: torch.randn(shape) for name, shape in (("a", (3, 5)), ("b", (1000,)), ("c", ()))}
for tensor in state.values():
    dist.broadcast(tensor, src=0)
dist.barrier()
print(met.world_size, " ".join(f"{float(t.sum()):.6f}" for t in state.values()), flush=True)
dist.destroy_process_group()
'''


def test_gloo(serve: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    server = serve()
    monkeypatch.setenv("PYTHONPATH", str(__import__("conftest").ROOT / "clients" / "python" / "src"))
    members = [
        subprocess.Popen([sys.executable, "-c", MEMBER, server.url, role], stdout=subprocess.PIPE, text=True)
        for role in ("engine", "trainer", "engine")
    ]
    said = [member.communicate(timeout=120)[0].strip() for member in members]
    assert [member.returncode for member in members] == [0, 0, 0]
    assert len(set(said)) == 1, said
    assert said[0].startswith("3 ")


def test_engines_reach_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an address the trainer names the one by which it reaches the control plane."""
    monkeypatch.setattr(meeting, "own_address", lambda url: "127.0.0.2" if url.startswith("http://127.0.0.1:") else url)
    met = {"epoch": 1, "master_address": "::1", "master_port": 7, "world_size": 2, "rank_offset": 0, "backend": "gloo"}
    with serving() as server:
        server.routes["POST /api/v1/rendezvous/r"] = lambda _: as_json(met)
        assert headway.rendezvous(server.url, "r", "trainer").init_method == "tcp://[::1]:7"
        headway.rendezvous(server.url, "r", "engine")
        trainer, engine = server.seen("/api/v1/rendezvous/r")
    assert trainer.json["address"].startswith("127.0.0.2:")
    assert "address" not in engine.json


def test_role() -> None:
    with pytest.raises(headway.Invalid, match="role"):
        headway.rendezvous("http://127.0.0.1:1", "r", "boss")


def test_missing(serve: Start) -> None:
    """Who is missing is said."""
    server = serve()
    headway.connect(server.url).close()  # it has started
    with pytest.raises(headway.Unavailable) as caught:
        headway.rendezvous(server.url, "w", "trainer", engines=2, wait_s=0.1, patience_s=0.0)
    assert caught.value.detail["missing"]
