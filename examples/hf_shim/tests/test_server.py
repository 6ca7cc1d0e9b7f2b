"""The server through its HTTP: streams, aborts, pauses, updates, refusals."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Checkpoints, Shim, reference
from safetensors.torch import load_file

from hf_shim import groups
from hf_shim.errors import Lost
from hf_shim.request import Request

Start = Callable[..., Shim]
PROMPT = [3, 43, 41, 27, 40, 53]
LONG = {"max_new_tokens": 100, "ignore_eos": True}


def body(rid: str, **sampling: Any) -> dict[str, Any]:
    return {"rid": rid, "input_ids": PROMPT, "sampling_params": {**LONG, **sampling}, "return_logprob": True}


class Held:
    """A streamed response, read by a thread of its own."""

    def __init__(self, shim: Shim, request: dict[str, Any]) -> None:
        self.events: list[dict[str, Any]] = []
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._read, args=(shim.stream(request),), daemon=True)
        self._thread.start()

    def _read(self, events: Iterator[dict[str, Any]]) -> None:
        try:
            self.events.extend(events)
        except BaseException as problem:
            self._failed = problem

    def end(self) -> dict[str, Any]:
        """The last event."""
        self._thread.join(300)
        assert not self._thread.is_alive()
        if self._failed is not None:
            raise self._failed
        return self.events[-1]


def hold(shim: Shim, *requests: dict[str, Any], tokens: int = 5) -> list[Held]:
    """Begins responses together, and returns when the server stands still (in place) at that many tokens of each."""
    engine, still = shim.service.engine, threading.Event()
    step = engine.step

    def stepping() -> list[Request]:
        changed = step()
        if all(len(r.output) >= tokens for r in engine.running):
            engine.pause("in_place")
            engine.step = step  # type: ignore[method-assign]
            still.set()
        return changed

    shim.ask("/pause_generation", {"mode": "in_place"})
    engine.step = stepping  # type: ignore[method-assign]
    held = [Held(shim, request) for request in requests]
    while len(engine.waiting) < len(requests):
        shim.ask("/v1/loads")
    shim.ask("/continue_generation", {})
    assert still.wait(300)
    return held


def test_streams_and_wholes_agree(shim: Start) -> None:
    """One seed: the same tokens whole, cumulative and incremental."""
    whole = shim("--seed", "5").ask("/generate", body("r|"))
    cumulative = list(shim("--seed", "5").stream(body("r|")))
    incremental = list(shim("--seed", "5", "--incremental-streaming-output").stream(body("r|")))
    assert len(whole["output_ids"]) == 100
    assert len(cumulative) == len(incremental) == 100
    for n, event in enumerate(cumulative, 1):
        assert event["output_ids"] == whole["output_ids"][:n]
        assert event["meta_info"]["output_token_logprobs"] == whole["meta_info"]["output_token_logprobs"][:n]
    assert [t for e in incremental for t in e["output_ids"]] == whole["output_ids"]
    assert "".join(e["text"] for e in incremental) == whole["text"] == cumulative[-1]["text"]
    for end in (whole, cumulative[-1], incremental[-1]):
        assert end["meta_info"]["finish_reason"] == {"type": "length", "length": 100}
        assert end["meta_info"]["weight_versions"] == [{"version": "default", "start": 0, "end": 100}]
    assert all(e["meta_info"]["finish_reason"] is None for e in cumulative[:-1])


def test_ends(shim: Start) -> None:
    """Responses end by the end of sequence, stop tokens and stop strings."""
    server = shim()
    first = server.ask("/generate", body("a|", temperature=0))
    ids = first["output_ids"]
    stop = next(t for i, t in enumerate(ids) if t not in ids[:i] and i > 2) if len(set(ids)) > 3 else ids[0]
    at = ids.index(stop)
    ended = server.ask("/generate", body("b|", temperature=0, stop_token_ids=[stop]))
    assert ended["output_ids"] == ids[: at + 1]
    assert ended["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    text = first["text"]
    if len(text) > 4:
        mark = text[2:4]
        ended = server.ask("/generate", body("c|", temperature=0, stop=[mark]))
        assert ended["text"] == text[: text.index(mark)]
        assert ended["meta_info"]["finish_reason"] == {"type": "stop", "matched": mark}


def test_prompt_logprobs(shim: Start, checkpoint: Checkpoints) -> None:
    """logprob_start_len 0 scores the prompt, with and without a new token."""
    server = shim()
    scores = reference(checkpoint("llama", 0), PROMPT)
    wanted = [scores[i, t].item() for i, t in enumerate(PROMPT[1:])]
    for new in (0, 1):
        asked = {**body(f"{new}|", max_new_tokens=new), "logprob_start_len": 0}
        meta = server.ask("/generate", asked)["meta_info"]
        assert [entry[1] for entry in meta["input_token_logprobs"]] == PROMPT
        assert meta["input_token_logprobs"][0][0] is None
        assert [entry[0] for entry in meta["input_token_logprobs"][1:]] == pytest.approx(wanted, abs=2e-5)
        assert meta["completion_tokens"] == new
    part = server.ask("/generate", {**body("p|", max_new_tokens=1), "logprob_start_len": 3})["meta_info"]
    assert part["input_token_logprobs"][0][0] is None
    assert [entry[0] for entry in part["input_token_logprobs"][1:]] == pytest.approx(wanted[3:], abs=2e-5)


def test_abort_by_prefix(shim: Start) -> None:
    """An abort takes every rid that begins with it, and returns what there is."""
    server = shim()
    rids = ("a1|", "a10|", "b|")
    held = dict(zip(rids, hold(server, *map(body, rids)), strict=True))
    server.ask("/abort_request", {"rid": "a1"})
    server.ask("/abort_request", {})  # of nobody: an empty rid is the beginning of all
    server.ask("/continue_generation", {})
    for rid, response in held.items():
        end = response.end()["meta_info"]
        assert end["finish_reason"]["type"] == ("abort" if rid.startswith("a1") else "length")
        assert len(end["output_token_logprobs"]) == end["completion_tokens"] >= 5
        assert end["weight_versions"] == [{"version": "default", "start": 0, "end": end["completion_tokens"]}]


def test_pause_stands_still(shim: Start) -> None:
    """From the answer to a pause on no token is sampled, in any mode; an aborting one ends what there was."""
    server = shim()
    for mode in ("in_place", "retract", "abort"):
        (held,) = hold(server, body(f"{mode}|"))
        server.ask("/pause_generation", {"mode": mode})
        sampled = server.service.engine.sampled_tokens
        with concurrent.futures.ThreadPoolExecutor() as pool:
            waiting = pool.submit(server.ask, "/generate", body("later|", max_new_tokens=2))
            for _ in range(20):
                server.ask("/server_info")
            assert server.service.engine.sampled_tokens == sampled and not waiting.done()
            server.ask("/continue_generation", {})
            assert waiting.result(60)["meta_info"]["completion_tokens"] == 2
        end = held.end()["meta_info"]
        assert end["finish_reason"]["type"] == ("abort" if mode == "abort" else "length")
        assert end["num_retractions"] == (1 if mode == "retract" else 0)


def test_update_in_the_middle(shim: Start, checkpoint: Checkpoints) -> None:
    """Spans are those of the log of steps; retracted, all that follows is the new model's."""
    server, new = shim(), checkpoint("llama", 1)
    held = hold(server, *(body(f"{i}|") for i in range(4)))
    server.ask("/pause_generation", {"mode": "retract"})
    update = {"model_path": str(new), "weight_version": "v1", "flush_cache": True}
    assert server.ask("/update_weights_from_disk", update)["num_paused_requests"] == 4
    assert server.ask("/model_info")["weight_version"] == server.ask("/get_weight_version")["weight_version"] == "v1"
    server.ask("/continue_generation", {})
    for i, response in enumerate(held):
        end = response.end()
        versions = server.ask(f"/steps?rid={i}%7C")["versions"]
        cut = versions.index("v1")
        assert versions == ["default"] * cut + ["v1"] * (100 - cut)
        assert end["meta_info"]["weight_versions"] == [
            {"version": "default", "start": 0, "end": cut}, {"version": "v1", "start": cut, "end": 100},
        ]  # fmt: skip
        scores = reference(new, PROMPT + end["output_ids"])[len(PROMPT) - 1 :]
        sampled = [entry[0] for entry in end["meta_info"]["output_token_logprobs"]]
        own = [scores[at, token].item() for at, token in enumerate(end["output_ids"])]
        assert sampled[cut:] == pytest.approx(own[cut:], abs=2e-5)
        assert max(abs(a - b) for a, b in zip(sampled[:cut], own[:cut], strict=True)) > 1e-3


def test_flush(shim: Start, checkpoint: Checkpoints) -> None:
    """No flush while requests run or stand in place. With an update it is refused after the weights have changed."""
    server = shim()
    (held,) = hold(server, body("r|"))
    status, said = server.call("/flush_cache", {})
    assert status == 400 and "1 running" in said
    update = {"model_path": str(checkpoint("llama", 1)), "weight_version": "v1"}
    status, answer = server.call("/update_weights_from_disk", update)
    assert status == 400 and not answer["success"] and "Weights were updated" in answer["message"]
    assert server.ask("/model_info")["weight_version"] == "v1"
    server.ask("/continue_generation", {})
    assert [s["version"] for s in held.end()["meta_info"]["weight_versions"]] == ["default", "v1"]
    assert "flushed" in server.ask("/flush_cache")


def test_session(shim: Start) -> None:
    """Tensors of a group are taken within a session alone, and there is one session at a time."""
    server = shim()
    for path, wanted, word in (
        ("/update_weights_from_distributed", update_of({}, "g"), "must run between"),
        ("/end_weight_update", {}, "no weight-update session is open"),
        ("/begin_weight_update", {"selector": "all"}, ""),
        ("/begin_weight_update", {}, "already open"),
        ("/update_weights_from_distributed", update_of({}, "g"), "no group g"),
        ("/end_weight_update", {}, ""),
        ("/update_weights_from_distributed", update_of({}, "g"), "must run between"),
    ):
        status, answer = server.call(path, wanted)
        assert (status, answer["success"]) == ((400, False) if word else (200, True)) and word in answer["message"]
    status, answer = server.call("/begin_weight_update", {"selector": "other"})
    assert status == 400 and "selector" in answer["error"]["message"]


def test_refused_update(shim: Start, tmp_path: Path) -> None:
    """A directory without a checkpoint changes nothing, and says what it lacks."""
    server = shim()
    before = server.ask("/generate", body("a|", temperature=0))
    status, answer = server.call("/update_weights_from_disk", {"model_path": str(tmp_path), "weight_version": "v1"})
    assert status == 400 and not answer["success"] and "model.safetensors" in answer["message"]
    assert server.ask("/model_info")["weight_version"] == "default"
    after = server.ask("/generate", body("b|", temperature=0))
    assert after["output_ids"] == before["output_ids"]
    assert after["meta_info"]["output_token_logprobs"] == before["meta_info"]["output_token_logprobs"]


@pytest.mark.parametrize("broken", ["another architecture", "no tensors"])
def test_lost_update(shim: Start, checkpoint: Checkpoints, tmp_path: Path, broken: str) -> None:
    """A checkpoint that does not load ends the server without an answer, to the update and to what is under way."""
    directory = checkpoint("qwen3", 0)
    if broken == "no tensors":
        directory = Path(shutil.copytree(checkpoint("llama", 1), tmp_path / "cut"))
        whole = (directory / "model.safetensors").read_bytes()
        (directory / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    server = shim()
    (held,) = hold(server, body("r|"))
    with pytest.raises(ConnectionError):
        server.call("/update_weights_from_disk", {"model_path": str(directory), "flush_cache": False})
    assert isinstance(server.failure(), Lost)
    with pytest.raises((ConnectionError, http.client.HTTPException, AssertionError)):  # the stream has no end
        held.end()
    with pytest.raises(ConnectionError):
        server.call("/health")


def test_update_waits_for_what_runs(shim: Start, checkpoint: Checkpoints) -> None:
    """A server that is not paused ends what is under way under the old weights first."""
    server = shim()
    (held,) = hold(server, body("r|"))
    update = {"model_path": str(checkpoint("llama", 1)), "weight_version": "v1"}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        server.ask("/continue_generation", {})
        assert pool.submit(server.ask, "/update_weights_from_disk", update).result(300)["success"]
    end = held.end()["meta_info"]
    assert [s["version"] for s in end["weight_versions"]] == ["default"] and end["completion_tokens"] == 100


def test_update_weight_version(shim: Start) -> None:
    """Naming the weights aborts everything, unless it is told not to."""
    server = shim()
    for abort in (False, True):
        (held,) = hold(server, body("r|"))
        more = {} if abort else {"abort_all_requests": False}
        server.ask("/update_weight_version", {"new_version": f"named-{abort}", **more})
        server.ask("/continue_generation", {})
        assert held.end()["meta_info"]["finish_reason"]["type"] == ("abort" if abort else "length")
        assert server.ask("/model_info")["weight_version"] == f"named-{abort}"


def meeting(name: str) -> dict[str, Any]:
    """Where a group of a trainer and this server meets."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        "master_address": "127.0.0.1", "master_port": port, "rank_offset": 1, "world_size": 2, "backend": "gloo",
        "group_name": name,
    }  # fmt: skip


def update_of(tensors: dict[str, torch.Tensor], name: str) -> dict[str, Any]:
    """The request for tensors of a group."""
    return {
        "names": list(tensors), "dtypes": [str(t.dtype).removeprefix("torch.") for t in tensors.values()],
        "shapes": [list(t.shape) for t in tensors.values()], "group_name": name,
    }  # fmt: skip


def served(server: Shim, directory: Path, label: str) -> None:
    """A response is sampled by a checkpoint's weights, under their label."""
    end = server.ask("/generate", body("r|"))
    assert end["meta_info"]["weight_versions"] == [{"version": label, "start": 0, "end": 100}]
    scores = reference(directory, PROMPT + end["output_ids"])[len(PROMPT) - 1 :]
    own = [scores[at, token].item() for at, token in enumerate(end["output_ids"])]
    assert [entry[0] for entry in end["meta_info"]["output_token_logprobs"]] == pytest.approx(own, abs=2e-5)


def test_update_by_a_group(shim: Start, checkpoint: Checkpoints) -> None:
    """Tensors broadcast over gloo, in two requests, are served; what does not fit is refused before anybody waits."""
    server, new = shim(), checkpoint("llama", 1)
    server.ask("/begin_weight_update", {})
    tensors = load_file(new / "model.safetensors")
    with Trainer(meeting("g"), new) as trainer:
        assert server.ask("/init_weights_update_group", trainer.meeting)["success"]
        update = update_of(tensors, "g")
        wrong = {**update, "names": ["none", *update["names"][1:]]}
        status, answer = server.call("/update_weights_from_distributed", wrong)
        assert status == 400 and "no tensor none" in answer["message"]
        trainer.say("go")
        first = {key: update[key][:3] for key in ("names", "dtypes", "shapes")}
        rest = {key: update[key][3:] for key in ("names", "dtypes", "shapes")}
        assert server.ask("/update_weights_from_distributed", {**update, **first, "flush_cache": False})["success"]
        assert server.ask("/model_info")["weight_version"] == "default"
        assert server.ask("/update_weights_from_distributed", {**update, **rest, "weight_version": "v1"})["success"]
        assert server.ask("/destroy_weights_update_group", {"group_name": "g"})["success"]
    served(server, new, "v1")


def test_a_tied_head_that_is_sent(shim: Start, checkpoint: Checkpoints) -> None:
    """Some senders repeat the embedding: it is taken, and is no tensor of the model's."""
    server, new = shim(model=checkpoint("tied", 0)), checkpoint("tied", 1)
    server.ask("/begin_weight_update", {})
    tensors = load_file(new / "model.safetensors")
    assert "lm_head.weight" not in tensors
    with Trainer(meeting("g"), new, "tensors['lm_head.weight'] = tensors['model.embed_tokens.weight']") as trainer:
        server.ask("/init_weights_update_group", trainer.meeting)
        trainer.say("go")
        update = update_of({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"]}, "g")
        assert server.ask("/update_weights_from_distributed", {**update, "weight_version": "v1"})["success"]
    served(server, new, "v1")


def test_a_trainer_that_is_killed(shim: Start, checkpoint: Checkpoints) -> None:
    """The update fails, the old weights are served, and another group is joined."""
    server, new = shim(), checkpoint("llama", 1)
    server.ask("/begin_weight_update", {})
    update = {**update_of(load_file(new / "model.safetensors"), "g"), "weight_version": "v1"}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        trainer = Trainer(meeting("g"), new)
        server.ask("/init_weights_update_group", trainer.meeting)
        answer = pool.submit(server.call, "/update_weights_from_distributed", update)
        while not server.service._gate.locked():
            server.ask("/health")
        trainer.kill()
        status, said = answer.result()
    assert status == 400 and "the old weights are served" in said["message"]
    served(server, checkpoint("llama", 0), "default")
    server.ask("/destroy_weights_update_group", {"group_name": "g"})
    with Trainer(meeting("g"), new) as trainer:
        server.ask("/init_weights_update_group", trainer.meeting)
        trainer.say("go")
        server.ask("/update_weights_from_distributed", update)
    served(server, new, "v1")


def test_a_trainer_that_sends_nothing(shim: Start, checkpoint: Checkpoints) -> None:
    """Leaving the group ends the update, and so does the client that asked for it when it goes away."""
    server, new = shim(), checkpoint("llama", 1)
    server.ask("/begin_weight_update", {})
    tensors = load_file(new / "model.safetensors")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        trainer = Trainer(meeting("g"), new)
        server.ask("/init_weights_update_group", trainer.meeting)
        answer = pool.submit(server.call, "/update_weights_from_distributed", update_of(tensors, "g"))
        while not server.service._gate.locked():
            server.ask("/health")
        server.ask("/destroy_weights_update_group", {"group_name": "g"})
        status, said = answer.result()
    assert status == 400 and "was left" in said["message"]
    served(server, checkpoint("llama", 0), "default")
    trainer.kill()
    trainer = Trainer(meeting("h"), new)
    server.ask("/init_weights_update_group", trainer.meeting)
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/update_weights_from_distributed", json.dumps(update_of(tensors, "h")))
    while not server.service._gate.locked():
        server.ask("/health")
    connection.close()
    served(server, checkpoint("llama", 0), "default")
    trainer.kill()


def test_a_group_that_does_not_come_about(
    shim: Start, checkpoint: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group may be left while others are still awaited; its name may be used again, and the server ends."""
    server, new = shim(), checkpoint("llama", 1)
    server.ask("/begin_weight_update", {})
    monkeypatch.setattr(groups, "PATIENCE", timedelta(seconds=15))
    with socket.create_server(("127.0.0.1", 0)) as nobody, concurrent.futures.ThreadPoolExecutor() as pool:
        nowhere = {**meeting("g"), "master_port": nobody.getsockname()[1]}
        answer = pool.submit(server.call, "/init_weights_update_group", nowhere)
        while "g" not in server.service.groups._members:
            server.ask("/health")
        [joining] = [t for t in threading.enumerate() if t.name == "group"]
        status, said = server.call("/update_weights_from_distributed", update_of({}, "g"))
        assert status == 400 and "no group g" in said["message"]
        server.ask("/destroy_weights_update_group", {"group_name": "g"})
        with Trainer(meeting("g"), new) as trainer:
            assert server.ask("/init_weights_update_group", trainer.meeting)["success"]
        server.close()
        nobody.close()
        joining.join(300)
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer.result()


TRAINER = """
import sys
sys.path.insert(0, "{source}")
import torch.distributed as dist
from safetensors.torch import load_file
from hf_shim.groups import join
tensors = load_file("{directory}/model.safetensors")
{change}
group = join("127.0.0.1", {port}, 0, 2, "{name}", "gloo")
for _ in sys.stdin:
    for tensor in tensors.values():
        dist.broadcast(tensor, src=0, group=group)
"""


class Trainer:
    """A program, as groups are the process's, that broadcasts a checkpoint each time that it is told to."""

    def __init__(self, meeting: dict[str, Any], directory: Path, change: str = "") -> None:
        self.meeting = meeting
        program = TRAINER.format(
            source=Path(groups.__file__).parents[1], port=meeting["master_port"], name=meeting["group_name"],
            directory=directory, change=change,
        )  # fmt: skip
        self._process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, text=True)

    def say(self, word: str) -> None:
        """Lets it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Ends it as it is."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


def test_a_client_that_leaves(shim: Start) -> None:
    """Its request is aborted, and its row is free."""
    server = shim("--max-running", "1")
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/generate", json.dumps({**body("gone|", max_new_tokens=120), "stream": True}))
    connection.getresponse().readline()
    server.ask("/pause_generation", {"mode": "in_place"})
    connection.close()
    server.ask("/continue_generation", {})
    assert server.ask("/generate", body("next|", max_new_tokens=2))["meta_info"]["completion_tokens"] == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"input_ids": [3, 64]}, "outside the vocabulary of 64"),
        ({"input_ids": []}, "at least one token"),
        ({"input_ids": [[3], [4]]}, "list of token ids"),
        ({"input_ids": [5] * 100}, "more than the context of 128"),
        ({"sampling_params": {"max_tokens": 5}}, "has no parameter max_tokens; it has max_new_tokens"),
        ({"sampling_params": {"temperature": -1}}, "temperature is -1: want 0"),
        ({"sampling_params": {"top_k": 0}}, "top_k is 0"),
        ({"sampling_params": {"n": 2}}, "n is 2"),
        ({"sampling_params": []}, "sampling_params: want an object"),
        ({"input_ids": [5] * 129}, "the prompt has 129 tokens, and the context is 128"),
        ({"inputs": [1]}, "/generate has no parameter inputs"),
        ({"extra_key": 3}, "extra_key: want a text"),
        ({"text": "a"}, "either input_ids or text"),
    ],
)
def test_refusals(refusing: Shim, change: dict[str, Any], said: str) -> None:
    """What cannot be meant is refused by name, whole or inside a stream's reply."""
    status, answer = refusing.call("/generate", {**body("r|"), **change})
    assert status == 400 and said in answer["error"]["message"]


@pytest.fixture(scope="module")
def refusing(checkpoint: Checkpoints) -> Iterator[Shim]:
    server = Shim("--model", str(checkpoint("llama", 0)))
    yield server
    server.close()


def test_what_it_says_of_itself(refusing: Shim) -> None:
    assert refusing.ask("/model_info") == refusing.ask("/get_model_info")
    info = refusing.ask("/server_info")
    assert info["vocab_size"] == 64 and info["context_length"] == 128
    assert refusing.ask("/v1/loads")["loads"][0]["num_running_reqs"] == 0
    assert refusing.ask("/get_load")[0]["num_reqs"] == 0
    assert "sglang:num_running_reqs{" in refusing.ask("/metrics")
    assert "/generate" in refusing.ask("/openapi.json")["paths"]
    assert refusing.ask("/v1/models")["data"][0]["owned_by"] == "sglang"
    assert refusing.call("/health")[0] == refusing.call("/health_generate")[0] == 200
    assert refusing.call("/nothing")[0] == 404
    assert refusing.call("/generate")[0] == 405
    status, answer = refusing.call("/pause_generation", {"mode": "now"})
    assert status == 400 and "abort, retract, in_place" in answer["error"]["message"]


def test_tokens_and_chats(refusing: Shim) -> None:
    text = "one, two"
    ids = refusing.ask("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
    assert refusing.ask("/detokenize", {"tokens": ids})["text"] == text
    chat = [{"role": "user", "content": text}]
    whole = refusing.ask("/tokenize", {"messages": chat, "tools": [{"type": "function"}]})["tokens"]
    without = refusing.ask("/v1/tokenize", {"messages": chat, "add_generation_prompt": False})["tokens"]
    said = refusing.ask("/detokenize", {"tokens": whole, "skip_special_tokens": False})["text"]
    assert said.startswith("<|im_start|>tools\n1<|im_end|>") and said.endswith("<|im_start|>assistant\n")
    assert len(without) < len(whole)
    halves = [{"role": "user", "content": [{"type": "text", "text": "one,"}, {"type": "text", "text": " two"}]}]
    lines = [{"role": "user", "content": "one,\n two"}]
    assert refusing.ask("/tokenize", {"messages": halves}) == refusing.ask("/tokenize", {"messages": lines})
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    half = [{"role": "user", "content": "a\ud83cb"}]
    for refused in ({"messages": picture}, {"messages": half}, {"prompt": "\ud83c"}):
        status, answer = refusing.call("/tokenize", refused)
        assert status == 400 and answer["error"]["message"]
    assert refusing.call("/tokenize", {"messages": "no"})[0] == 400
    assert refusing.call("/tokenize", {})[0] == 400


def test_stops(shim: Start) -> None:
    """A stopping server ends what is under way with what there is of it."""
    server = shim()
    (held,) = hold(server, body("r|", max_new_tokens=120))
    server.close()
    assert held.end()["meta_info"]["finish_reason"]["type"] == "abort"
    assert not torch.distributed.is_initialized()
