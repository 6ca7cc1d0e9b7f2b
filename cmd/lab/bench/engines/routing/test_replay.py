"""Replay brings a trainer in single precision closer to an engine in half precision."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from headway import routing
from transformers import AutoConfig, AutoModelForCausalLM

from engine import Answer, Engine, Truth, choices, sets

PROMPT = 20


def k3(trainer: np.ndarray, engine: np.ndarray) -> float:
    """An estimate of the divergence that is never negative."""
    apart = trainer - engine
    return float((np.exp(apart) - 1 - apart).mean())


def score(model: torch.nn.Module, tokens: list[int]) -> np.ndarray:
    """Log-probs of what was sampled."""
    ids = torch.tensor([tokens])
    with torch.no_grad():
        scores = torch.log_softmax(model(input_ids=ids).logits[0, :-1], -1)
    found: np.ndarray = scores.gather(-1, ids[0, 1:, None])[PROMPT - 1 :, 0].numpy()
    return found


def test_replay_lowers_the_divergence(half: Engine, truth: Truth) -> None:
    """By more than half, and rows shifted by one show: it rises a hundredfold, and few choices are its own."""
    model, answers = truth.models[0], list[tuple[list[int], Answer]]()
    for seed in range(12):
        draw = random.Random(seed)
        asked = [8 + draw.randrange(48) for _ in range(PROMPT)]
        answers.append((asked, half.generate(asked, 120, seed=seed)))
    engine, plain, replayed, shifted = [], [], [], []
    same, same_shifted = [], []
    for asked, answer in answers:
        tokens = asked + answer.tokens
        rows = np.full((1, len(tokens), 4, 2), -1)
        rows[0, :-1] = answer.rows
        engine.append(np.array(answer.logprobs))
        plain.append(score(model, tokens))
        with routing.replay(model, rows) as replay:
            replayed.append(score(model, tokens))
        same.append(replay.same)
        rows[0, 1:] = rows[0, :-1].copy()
        rows[0, 0] = -1
        with routing.replay(model, rows) as replay:
            shifted.append(score(model, tokens))
        same_shifted.append(replay.same)
    sampled = np.concatenate(engine)
    found = {name: np.concatenate(x) for name, x in (("without", plain), ("replayed", replayed), ("shifted", shifted))}
    for name, x in found.items():
        print(f"{name}: k3 {k3(x, sampled):.5f}, mean gap {np.abs(x - sampled).mean():.4f} over {len(x)} tokens")
    print(f"choices that are the trainer's own: {np.mean(same):.4f}, shifted {np.mean(same_shifted):.4f}")
    assert k3(found["replayed"], sampled) < k3(found["without"], sampled) / 2
    assert k3(found["shifted"], sampled) > 100 * k3(found["replayed"], sampled)
    assert k3(found["shifted"], sampled) > 10 * k3(found["without"], sampled)
    assert np.mean(same) > 0.95
    assert np.mean(same_shifted) < 0.5


def test_replay_of_half_precision(truth: Truth, directories: list[str]) -> None:
    """A trainer that rounds otherwise takes its choices from rows: with those of single precision it computes these."""
    tokens = [8 + random.Random(3).randrange(48) for _ in range(60)]
    wanted, _ = truth(tokens)
    model = AutoModelForCausalLM.from_pretrained(directories[0], dtype=torch.bfloat16)
    with routing.replay(model, wanted[None, :, 1:]), choices(model) as seen:
        model(input_ids=torch.tensor([tokens]))
    for layer, chosen in seen.items():
        assert (sets(chosen) == sets(wanted[:, layer])).all()


FAMILIES = {
    "qwen3_moe": {"norm_topk_prob": True, "moe_intermediate_size": 32, "mlp_only_layers": [0]},
    "qwen2_moe": {"norm_topk_prob": False, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32},
    "mixtral": {},
    "olmoe": {},
    "gpt_oss": {"head_dim": 16},
    "deepseek_v3": {
        "moe_intermediate_size": 32, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "n_shared_experts": 1,
        "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
    },
    "glm4_moe": {"moe_intermediate_size": 32, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str) -> None:
    """Every family's own choices, replayed, change nothing, and others change the outcome."""
    torch.manual_seed(5)
    experts = {name: 8 for name in ("num_experts", "num_local_experts", "n_routed_experts")}
    config = AutoConfig.for_model(
        family, vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=4, num_experts_per_tok=2, initializer_range=0.3, max_position_embeddings=64, pad_token_id=0,
        **experts, **FAMILIES[family],
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    tokens = torch.randint(8, 64, (2, 15))
    rows, hooks = [], []
    for _, _, router in routing._routers(model):
        hooks.append(router.register_forward_hook(lambda _, __, out: rows.append(out[2].reshape(2, 15, 2))))
    with torch.no_grad():
        plain = model(input_ids=tokens).logits
        for hook in hooks:
            hook.remove()
        own = torch.stack(rows, dim=2)
        with routing.replay(model, own) as replayed:
            torch.testing.assert_close(model(input_ids=tokens).logits, plain)
        assert replayed.same == 1
        with routing.replay(model, (own + 1) % 8):
            assert not torch.allclose(model(input_ids=tokens).logits, plain)
