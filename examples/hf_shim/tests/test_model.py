"""The forward pass, the sampling and the reading of checkpoints against transformers and arithmetic."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from conftest import CONFIGS, Checkpoints, reference

from hf_shim import checkpoint as checkpoints
from hf_shim.engine import Engine
from hf_shim.errors import Refusal
from hf_shim.model import Cache, Model
from hf_shim.request import Request
from hf_shim.sampling import Cuts, Sampler
from hf_shim.text import Tail, Tokenizer

CPU = torch.device("cpu")
PROMPTS = [[3, 17, 9, 41], [5] * 11, list(range(6, 60)), [8]]


def load(directory: Path) -> Model:
    return checkpoints.load(directory, torch.float32, CPU)


def request(prompt: list[int], limit: int = 20, **more: object) -> Request:
    tail = Tail(None, [], True, True)
    return Request(f"{prompt}|{limit}", prompt, limit, Cuts(), frozenset(), tail, **more)  # type: ignore[arg-type]


def finish(engine: Engine) -> None:
    for _ in range(1000):
        if not engine.ready:
            return
        engine.step()
    raise AssertionError("the engine does not come to an end")


@pytest.mark.parametrize("kind", CONFIGS)
def test_equals_transformers(checkpoint: Checkpoints, kind: str) -> None:
    """Every sampled token's log-prob, and every prompt token's, whatever shares the batch."""
    directory = checkpoint(kind, 0)
    engine = Engine(load(directory), rows=3, ends=frozenset())
    requests = [request(p, 10 + i, logprob_start=0) for i, p in enumerate(PROMPTS)]
    for r in requests:
        engine.submit(r)
    finish(engine)
    for i, r in enumerate(requests):
        assert len(r.output) == 10 + i
        scores = reference(directory, r.tokens)
        wanted = [scores[at, token].item() for at, token in enumerate(r.tokens[1:])]
        assert r.input_logprobs[1:] + r.output_logprobs == pytest.approx(wanted, abs=2e-5)


def test_prefill_in_pieces(checkpoint: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that is taken in piece by piece gives the same hidden states."""
    monkeypatch.setattr("hf_shim.engine.PREFILL_TOKENS", 7)
    directory = checkpoint("llama", 0)
    engine = Engine(load(directory), rows=4, ends=frozenset())
    requests = [request(p, 3, logprob_start=0) for p in PROMPTS]
    for r in requests:
        engine.submit(r)
    finish(engine)
    for r in requests:
        scores = reference(directory, r.tokens)
        wanted = [scores[at, token].item() for at, token in enumerate(r.tokens[1:])]
        assert r.input_logprobs[1:] + r.output_logprobs == pytest.approx(wanted, abs=2e-5)


def test_retract_computes_anew(checkpoint: Checkpoints) -> None:
    """After a retraction every later token is the new model's, with all that came before."""
    old, new = checkpoint("llama", 0), checkpoint("llama", 1)
    engine = Engine(load(old), rows=4, ends=frozenset(), label="v0")
    requests = [request(p) for p in PROMPTS]
    for r in requests:
        engine.submit(r)
    for _ in range(6):
        engine.step()
    engine.pause("retract")
    engine.replace(checkpoints.tensors(new, engine.model), "v1")
    engine.resume()
    finish(engine)
    for r in requests:
        cut = r.spans[0][2]
        assert r.spans == [("v0", 0, cut), ("v1", cut, 20)] and r.retractions == 1
        for directory, part in ((old, range(cut)), (new, range(cut, 20))):
            scores = reference(directory, r.tokens)
            wanted = [scores[len(r.prompt) + i - 1, r.output[i]].item() for i in part]
            assert [r.output_logprobs[i] for i in part] == pytest.approx(wanted, abs=2e-5)


def test_in_place_keeps_the_cache(checkpoint: Checkpoints) -> None:
    """In place, the next token is the new model's over the old one's keys and values: neither model's own."""
    old, new = checkpoint("llama", 0), checkpoint("llama", 1)
    engine = Engine(load(old), rows=4, ends=frozenset(), label="v0")
    r = request(PROMPTS[2])
    engine.submit(r)
    for _ in range(6):
        engine.step()
    engine.pause("in_place")
    engine.replace(checkpoints.tensors(new, engine.model), "v1")
    engine.resume()
    finish(engine)
    assert r.spans == [("v0", 0, 6), ("v1", 6, 20)]
    # The same by hand: the cache of the old weights, one step of the new ones.
    model = load(old)
    cache = Cache(model, 1)
    before = torch.tensor([r.tokens[: len(r.prompt) + 5]])
    model.forward(cache, 0, before, torch.arange(before.shape[1])[None])
    model.replace(checkpoints.tensors(new, model))
    at = torch.tensor([[before.shape[1]]])
    hidden = model.forward(cache, 0, torch.tensor([[r.output[5]]]), at)[:, 0]
    wanted = torch.log_softmax(model.logits(hidden)[0], dim=-1)[r.output[6]].item()
    assert r.output_logprobs[6] == pytest.approx(wanted, abs=2e-5)
    own = reference(new, r.tokens)[len(r.prompt) + 5, r.output[6]].item()
    assert abs(own - wanted) > 1e-3


SHAPES = [Cuts(), Cuts(0.5), Cuts(top_k=3), Cuts(top_p=0.6), Cuts(min_p=0.3), Cuts(2.0, 0.9, 5, 0.05)]


@pytest.mark.parametrize("cuts", SHAPES)
def test_sampling(cuts: Cuts) -> None:
    """Drawn tokens follow the distribution that their log-probs say, cut as asked."""
    torch.manual_seed(0)
    logits = torch.randn(12) * 2
    expected = torch.softmax(logits / cuts.temperature, -1)
    ordered, order = expected.sort(descending=True)
    kept = torch.ones(12, dtype=torch.bool)
    if cuts.top_k:
        kept &= torch.arange(12) < cuts.top_k
        ordered = torch.where(kept, ordered, 0)
        ordered /= ordered.sum()
    kept &= ordered.cumsum(0) - ordered < cuts.top_p
    kept &= ordered >= cuts.min_p * ordered[0]
    shares = torch.zeros(12).scatter(0, order, torch.where(kept, ordered, 0))
    shares /= shares.sum()
    draws = 20000
    sampler = Sampler(1, "sampled", CPU)
    tokens, logprobs = sampler.draw(logits.expand(draws, -1), [cuts] * draws)
    assert torch.tensor(logprobs).exp().tolist() == pytest.approx(shares[tokens].tolist(), abs=1e-5)
    counts = torch.bincount(torch.tensor(tokens), minlength=12) / draws
    # Five standard deviations.
    assert ((counts - shares).abs() <= 5 * (shares * (1 - shares) / draws).sqrt() + 1e-9).all()


def test_logprobs_of_other_distributions() -> None:
    logits = torch.randn(4, 9)
    cuts = [Cuts(0.5, 1.0, 2), Cuts(), Cuts(0.0), Cuts(3.0)]
    scaled, original = (Sampler(1, kind, CPU).draw(logits, cuts) for kind in ("scaled", "original"))
    assert scaled[0] == original[0], "the same draws"
    temperatures = torch.tensor([[0.5], [1.0], [1.0], [3.0]])
    for (tokens, logprobs), divisor in ((scaled, temperatures), (original, torch.ones(4, 1))):
        wanted = torch.log_softmax(logits / divisor, -1)[range(4), tokens]
        assert logprobs == pytest.approx(wanted.tolist(), abs=1e-6)
    assert scaled[0][2] == logits[2].argmax().item()


def test_refused_checkpoints(checkpoint: Checkpoints, tmp_path: Path) -> None:
    """A bad directory says what is wrong with it and leaves the model as it was."""
    model = load(checkpoint("llama", 0))
    before = {name: t.clone() for name, t in model.parameters.items()}
    good = checkpoint("llama", 1)

    def damaged(name: str, change: str) -> Path:
        directory = Path(shutil.copytree(good, tmp_path / change))
        path = directory / name
        if change == "gone":
            path.unlink()
        elif change == "cut":
            path.write_bytes(path.read_bytes()[:-100])
        else:
            path.write_text(json.dumps({**json.loads(path.read_text()), "hidden_size": 48}))
        return directory

    for directory, said in (
        (tmp_path / "nowhere", "no config.json"), (damaged("model.safetensors", "gone"), "neither"),
        (damaged("model.safetensors", "cut"), "cannot be read"), (damaged("config.json", "wide"), "width 48"),
        (checkpoint("qwen2", 0), "another architecture"),
    ):  # fmt: skip
        with pytest.raises(Refusal, match=said):
            checkpoints.tensors(directory, model)
    assert all(torch.equal(before[name], t) for name, t in model.parameters.items())


def test_text_of_a_response(checkpoint: Checkpoints) -> None:
    """The text grows as the tokens do; a stop string is cut off, and its beginning is held back."""
    tokenizer = Tokenizer(checkpoint("llama", 0))
    ids = tokenizer.encode("one, two, three")
    assert tokenizer.decode(ids) == "one, two, three"
    tail = Tail(tokenizer, ["two", "xyz"], True, True)
    shown = []
    for token in ids:
        tail.add(token)
        shown.append(tail.text[: tail.shown])
        if tail.stop:
            break
    assert tail.stop == "two" and tail.text == "one, "
    assert shown == ["o", "on", "one", "one,", "one, ", "one, ", "one, ", "one, "]
