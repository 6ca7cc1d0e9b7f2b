"""Images go from a chat through a control plane and a real vLLM into a trainer that sees what the engine has seen."""

from __future__ import annotations

import base64
import io
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import headway
import httpx
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, AutoProcessor

torch.set_num_threads(1)
SIDE = 56
STEPS = 6


def drawn(group: int, turn: int) -> bytes:
    """One of two images for each turn: as PNG, or as JPEG."""
    draw = np.random.default_rng([group % 2, turn])
    pixels = draw.integers(0, 256, (4, 4, 3), dtype=np.uint8).repeat(SIDE // 4, 0).repeat(SIDE // 4, 1)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG" if turn else "PNG")
    return out.getvalue()


def part(data: bytes) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(data).decode()}}


@headway.environment("look")
def look(task: headway.Task) -> float:
    """Two turns with an image each, a third without, and another beginning with the images of the first two."""
    with httpx.Client(base_url=task.openai().base_url, headers=task.openai().headers, timeout=300) as http:

        def ask(messages: list[dict[str, object]]) -> None:
            reply = http.post("/chat/completions", json={"messages": messages, "max_tokens": 6})
            assert reply.status_code == 200, reply.text
            messages.append(reply.json()["choices"][0]["message"])

        images = [drawn(task.group, turn) for turn in range(2)]
        chat: list[dict[str, object]] = []
        for said in ([{"type": "text", "text": "a "}, part(images[0])], [part(images[1])], "and?"):
            chat.append({"role": "user", "content": said})
            ask(chat)
        ask([{"role": "user", "content": [part(images[1]), {"type": "text", "text": " or "}, part(images[0])]}])
    return float(task.sample % 2)


@pytest.fixture(scope="module")
def directories() -> list[str]:
    return os.environ["HEADWAY_TEST_WEIGHTS"].split(":")


@pytest.fixture(scope="module")
def directory(directories: list[str]) -> str:
    return directories[0]


@pytest.fixture(scope="module")
def client(directory: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[headway.Client]:
    document = {
        "model": {"path": directory},
        "engines": [{"kind": "vllm", "url": os.environ["HEADWAY_TEST_VLLM_VISION"], "slots": 8}],
        "environment": {"name": "look", "prompt_tokens_max": 200, "response_tokens_max": 8},
        "rollout": {"group_size": 4}, "train": {"batch": 16}, "trainer": {"steps": STEPS},
    }  # fmt: skip
    stop = threading.Event()
    with headway.serve(document, dir=tmp_path_factory.mktemp("runs")) as plane:
        worker = threading.Thread(target=headway.work, args=(plane.url, look), kwargs={"stop": stop, "grace_s": 1})
        worker.start()
        try:
            yield plane.client
        finally:
            stop.set()
            worker.join()


def leased(client: headway.Client) -> headway.Batch:
    found = client.lease()
    while found is None:
        found = client.lease()
    return found


@pytest.fixture(scope="module")
def batch(client: headway.Client) -> headway.Batch:
    client.load()
    return leased(client)


class Trainer:
    """The same weights in transformers."""

    def __init__(self, directory: str) -> None:
        self.model = AutoModelForImageTextToText.from_pretrained(directory, dtype=torch.float32).eval()
        self.processor = AutoProcessor.from_pretrained(directory).image_processor

    @torch.no_grad()
    def score(self, tokens: Sequence[int], images: Sequence[bytes]) -> np.ndarray:
        """Log-probs of each token, 0 for the first; without images the ids of placeholders are tokens like others."""
        ids = torch.tensor([list(map(int, tokens))])
        seen = {}
        if images:
            opened = [Image.open(io.BytesIO(data)).convert("RGB") for data in images]
            seen = dict(self.processor(images=opened, return_tensors="pt"))
            seen["mm_token_type_ids"] = (ids == self.model.config.image_token_id).int()
        scores = torch.log_softmax(self.model(input_ids=ids, **seen).logits[0, :-1], -1)
        return np.concatenate(([0.0], scores.gather(-1, ids[0, 1:, None])[:, 0].numpy()))


def scored(batch: headway.Batch, trainer: Trainer, *, blind: bool = False) -> np.ndarray:
    packed = []
    for r, (begin, end) in enumerate(zip(batch.offsets[:-1], batch.offsets[1:], strict=True)):
        images = [] if blind else [m.bytes() for m in batch.media if m.sequence == r]
        packed.append(trainer.score(batch.tokens[begin:end].tolist(), images))
    return np.concatenate(packed)


def test_a_blind_run_is_named_and_one_that_sees_agrees(batch: headway.Batch, directory: str) -> None:
    trainer = Trainer(directory)
    blind = batch.compare(scored(batch, trainer, blind=True))
    print("blind:", blind)
    assert blind.agrees is False and blind.cause == "blind", blind
    seen = batch.compare(scored(batch, trainer))
    print("seen:", seen)
    assert seen.agrees and seen.difference < 1e-4, seen
    assert blind.difference > 100 * seen.difference


def test_ids_are_expanded_as_the_processor_does(batch: headway.Batch, directory: str) -> None:
    """Each rollout left two sequences of two images, whose placeholders have the ids that they are said to have."""
    pad = Trainer(directory).model.config.image_token_id
    assert len(batch) == 2 * batch.metadata.rollouts and len(batch.media) == 2 * len(batch)
    for r, (begin, end) in enumerate(zip(batch.offsets[:-1], batch.offsets[1:], strict=True)):
        tokens, media = batch.tokens[begin:end], [m for m in batch.media if m.sequence == r]
        inside = np.zeros(end - begin, bool)
        for m in media:
            inside[m.offset : m.offset + m.length] = True
            assert m.length == 4 and m.processor.name
        prompt = batch.loss_mask[begin:end] == 0
        assert ((tokens == pad) & prompt == inside).all()
        group = int(batch.groups[r])
        wanted = [drawn(group, 0), drawn(group, 1)]
        assert [m.bytes() for m in media] in (wanted, wanted[::-1])


def test_images_from_before_a_switch_are_seen_by_the_new_weights(
    client: headway.Client, batch: headway.Batch, directories: list[str]
) -> None:
    """The server has embeddings of all images by the old weights. It drops them, and neither uses them nor ends."""
    weights, known = load_file(Path(directories[1]) / "model.safetensors"), {m.sha256 for m in batch.media}
    for _ in range(STEPS - 1):
        client.publish(batch, weights)
        batch = leased(client)
        assert {m.sha256 for m in batch.media} <= known
        sampled = batch.loss_mask == 1
        rows = np.repeat(np.arange(len(batch)), np.diff(batch.offsets))
        new = sampled & ~np.isin(rows, rows[sampled & (batch.versions < 1)])
        if new.any():
            break
    apart = np.abs(scored(batch, Trainer(directories[1])) - batch.logprobs)[new]
    print(f"after a switch: {apart.mean():.2g} nats over {len(apart)} tokens")
    assert len(apart) and apart.mean() < 1e-4
