"""The scripts to which the client in Go is held, too (cmd/lab/world/client), under virtual time."""

from __future__ import annotations

import importlib
import importlib.util
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import scripted
import virtual
from conftest import ROOT

import headway
from headway import claims, client, errors, groups, play
from headway.transport import Transport

single_turn = importlib.import_module("headway.single_turn")  # headway has a function of that name
SCRIPTS = sorted((ROOT / "cmd" / "lab" / "world" / "client" / "testdata").glob("*.json"))


class Posting:
    """Makes calls of a transport."""

    state = None

    def __init__(self, world: virtual.Virtual, said: Mapping[str, Any], _: Path) -> None:
        self._world = world
        self._transport = Transport(said["urls"], said.get("token", ""), patience_s=said["patience_s"])

    def do(self, do: str, *, path: str = "", json: Any = None, s: float = 0.0, **options: Any) -> Any:
        if do == "post":
            return self._transport.post(path, {} if json is None else json, **options)
        if do == "get":
            return self._transport.get(path, **options)
        assert do == "stop"

        def stop() -> None:
            self._world.sleep(s)
            self._transport.stopped.set()

        virtual.Thread(self._world, stop).start()
        return None

    def close(self) -> None:
        self._transport.close()


class Training:
    """Makes calls of a trainer."""

    def __init__(self, world: virtual.Virtual, said: Mapping[str, Any], directory: Path) -> None:
        self._world, self._said, self._directory = world, said, directory
        transport = Transport(said["urls"], said.get("token", ""), patience_s=said["patience_s"])
        self._hw = client.Client(
            transport, said.get("name", "trainer"), said.get("rank", 0), said.get("world_size", 1),
            said.get("step_s_max"), groups.Groups(transport) if said.get("references") else None,
        )  # fmt: skip
        self._batch: Any = None
        self._loop: Iterator[Any] | None = None

    @property
    def state(self) -> dict[str, Any]:
        return {key: getattr(self._hw, key) for key in ("action", "version", "newest", "next", "stored")}

    def close(self) -> None:
        self._hw.close()

    def _leased(self, found: Any) -> dict[str, Any]:
        self._batch = found
        return {key: getattr(found.metadata, key) for key in ("lease", "attempt", "version", "kind")}

    def do(self, do: str, **said: Any) -> Any:
        return getattr(self, "do_" + do)(**said)

    def do_connect(self, version: int | None = None) -> None:
        self._hw.reconnect(version)

    def do_load(self) -> dict[str, list[float]]:
        return {name: array.tolist() for name, array in self._hw.load().items()}

    def do_lease(self) -> dict[str, Any]:
        return self._leased(self._hw.lease())

    def do_loop(self) -> dict[str, Any]:
        self._loop = self._loop or self._hw.batches()
        try:
            return self._leased(next(self._loop))
        except StopIteration:
            raise errors.RunEnded("the loop has ended") from None

    def do_leave(self) -> None:
        assert self._loop is not None
        self._loop.close()  # type: ignore[attr-defined]
        self._loop = None

    def do_validation(self, prompts: int = 0) -> dict[str, Any]:
        return self._leased(self._hw.validation(prompts))

    def do_stamp_forward(self) -> None:
        self._batch.stamp_forward()

    def do_stamp_step(self) -> None:
        self._batch.stamp_step()

    def do_lost(self) -> bool:
        return bool(self._batch.expired)

    def do_part(self, kind: str, name: str) -> str:
        return str(self._batch._fetch(kind, name).decode())

    def do_nack(self, reason: str = "", failed: bool = False) -> None:
        self._hw.nack(self._batch, reason, failed=failed)

    def do_ack(self) -> int:
        return self._hw.ack(self._batch)

    def do_publish(self, model: Any = None, optimizer: Any = None, no_batch: bool = False) -> int:
        batch = None if no_batch else self._batch
        return self._hw.publish(
            batch, scripted.arrays(model or {}), optimizer=scripted.arrays(optimizer) if optimizer else None
        )

    def do_directory(self, files: Mapping[str, int]) -> int:
        for name, size in files.items():
            (self._directory / name).write_bytes(bytes(size))
        return self._hw.publish(self._batch, weights_dir=self._directory)

    def do_restore(self, version: int, model: Any = None, optimizer: Any = None) -> int:
        return self._hw.restore(
            version, scripted.arrays(model), optimizer=scripted.arrays(optimizer) if optimizer else None
        )

    def do_run(self, s: float = 0.0) -> int:
        """The loop of the example, which Trainer.Run restates."""
        spec = importlib.util.spec_from_file_location("numpy_trainer", ROOT / "examples" / "numpy_trainer" / "train.py")
        assert spec is not None
        assert spec.loader is not None
        example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(example)
        example.time = client.time  # type: ignore[attr-defined]
        arguments = ["--url", ",".join(self._said["urls"]), "--step-s", str(s)]
        return int(example.main([*arguments, "--patience-s", str(self._said["patience_s"])]))


class Working:
    """Plays rollouts."""

    def __init__(self, world: virtual.Virtual, said: Mapping[str, Any], _: Path) -> None:
        self._world, self._stop = world, virtual.Event(world)
        environments = [self._playing(name, moves) for name, moves in said["environments"].items()]
        options: dict[str, Any] = {"grace_s": said["grace_s"]} if "grace_s" in said else {}
        self._worker = claims.Worker(
            said["urls"], environments, said.get("concurrency", 8), worker=said["name"], token=said.get("token", ""),
            patience_s=said["patience_s"], stop=self._stop, **options,
        )  # fmt: skip

    @property
    def state(self) -> dict[str, int]:
        return {key: getattr(self._worker, key) for key in ("finished", "failed", "given_up")}

    def close(self) -> None:
        """It has ended."""

    def do(self, do: str, stop_s: float | None = None) -> int:
        assert do == "run"
        if stop_s is not None:

            def stop() -> None:
                self._world.sleep(stop_s)
                self._stop.set()

            virtual.Thread(self._world, stop).start()
        return self._worker.run()

    def _playing(self, name: str, moves: list[dict[str, Any]]) -> play.Environment:
        if "ask" in moves[0]:
            return self._asking(name, **moves[0])

        @headway.environment(name)
        def played(task: headway.Task, sample: Any) -> object:
            for move in moves:
                if "sleep_s" in move:
                    self._world.sleep(move["sleep_s"])
                elif "chat" in move:
                    single_turn.chat(task, [{"role": "user", "content": move["chat"]}], move.get("most"))
                elif "tokens" in move:
                    sample(move["tokens"], move["most"])
                elif "fail" in move:
                    fails(move["fail"])
                else:
                    return float(move["reward"])
            raise AssertionError("a play without a reward")

        return played

    def _asking(self, name: str, ask: str, most: int | None = None, verdict: str = "") -> play.Environment:
        def verify(text: str) -> object:
            if verdict == "crash":
                raise ValueError("it crashes")
            if verdict == "data":
                raise headway.DataFailure("no answer is known")
            return 2e39 if verdict == "protocol" else headway.Result(float(len(text)), exact=True)

        made = headway.single_turn(name, max_tokens=most)
        return made(lambda _: headway.Question(ask, verify, answer="4"))


def fails(how: str) -> None:
    if how == "timeout":
        raise TimeoutError("it takes too long")
    if how == "raise":
        raise ValueError("it fails")
    raise {"infra": headway.InfraFailure, "data": headway.DataFailure}[how]("it fails")


ACTORS = {"transport": Posting, "trainer": Training, "worker": Working}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = json.loads(path.read_text(encoding="utf-8"))
    assert said.keys() <= {"about", "actor", "options", "calls", "exchanges"}
    world = virtual.enter(monkeypatch)
    server = scripted.Server(world, said["exchanges"], str(tmp_path))
    make = httpx.Client
    monkeypatch.setattr(
        httpx, "Client", lambda **options: make(transport=server, headers=options["headers"], follow_redirects=False)
    )
    random.seed(7)
    options = {"urls": ["http://a"], "patience_s": 600.0, **said.get("options", {})}
    actor = ACTORS[said["actor"]](world, options, tmp_path)
    try:
        for at, call in enumerate(said["calls"]):
            check(world, server, actor, at, dict(call))
            assert not server.faults
        actor.close()
        server.over()
        assert not server.faults
    finally:
        world.end()


def check(world: virtual.Virtual, server: scripted.Server, actor: Any, at: int, call: dict[str, Any]) -> None:
    """Make a call, and compare how it ends."""
    want, error, took, state = (call.pop(key, None) for key in ("want", "error", "took", "state"))
    unanswered = call.pop("unanswered", False)
    if call["do"] == "sleep":
        world.sleep(call["s"])
        return
    began, found = world.now, None
    where = f"call {at} ({call['do']})"
    try:
        found = actor.do(**call)
    except errors.HeadwayError as raised:
        assert not server.faults
        assert error is not None, f"{where}: {raised}"
        assert type(raised).default_code == error, f"{where}: {raised!r}"
        assert raised.unanswered == unanswered, f"{where}: unanswered"
    else:
        assert not server.faults
        assert error is None, f"{where}: no error, want {error}"
    assert want is None or scripted.alike(want, found), f"{where}: got {found}, want {want}"
    assert state is None or scripted.alike(state, actor.state), f"{where}: {actor.state}, want {state}"
    assert took is None or scripted.within(world.now - began, took), f"{where}: took {world.now - began} s, want {took}"
