"""The shape of a Llama-style checkpoint, read from its config.json."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .errors import Refusal

#: Architectures whose layers are RMSNorm, rotary attention and a gated SiLU MLP, with what each adds.
KNOWN = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


@dataclass(frozen=True)
class Architecture:
    """Sizes and switches; two checkpoints with equal ones can replace each other in a running server."""

    name: str
    vocabulary: int
    width: int
    mlp_width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    norm_eps: float
    tied: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    rope_theta: float
    #: Sorted items of the rotary scaling, hashable; empty for none.
    rope_scaling: tuple[tuple[str, Any], ...]

    @property
    def groups(self) -> int:
        """Query heads for each head of keys and values."""
        return self.heads // self.kv_heads


def read(directory: Path) -> Architecture:
    """The architecture of a checkpoint; a Refusal names what is wrong with it."""
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError:
        raise Refusal(f"{directory} is no checkpoint: it has no config.json") from None
    except (OSError, ValueError) as problem:
        raise Refusal(f"{path} cannot be read: {problem}") from None
    name = (config.get("architectures") or ["none"])[0]
    if name not in KNOWN:
        raise Refusal(f"{path}: the architecture {name} is not known; known are {', '.join(KNOWN)}")
    try:
        return _architecture(name, config)
    except KeyError as missing:
        raise Refusal(f"{path} lacks {missing}") from None


def _architecture(name: str, config: dict[str, Any]) -> Architecture:
    if config.get("hidden_act", "silu") != "silu":
        raise Refusal(f"the activation {config['hidden_act']} is not known; known is silu")
    window = config.get("sliding_window")
    if window and config.get("use_sliding_window", name == "MistralForCausalLM"):
        raise Refusal(f"attention in a sliding window (of {window}) is not known")
    qwen2, qwen3 = name == "Qwen2ForCausalLM", name == "Qwen3ForCausalLM"
    attention_bias = bool(config.get("attention_bias", False))
    # transformers 5 writes rope_parameters; before, there were rope_theta and rope_scaling.
    rope = dict(config.get("rope_parameters") or {})
    rope.update(config.get("rope_scaling") or {})
    theta = float(rope.pop("rope_theta", config.get("rope_theta", 10000.0)))
    rope["rope_type"] = rope.pop("type", rope.get("rope_type", "default"))
    heads = int(config["num_attention_heads"])
    return Architecture(
        name=name, vocabulary=int(config["vocab_size"]), width=int(config["hidden_size"]),
        mlp_width=int(config["intermediate_size"]), layers=int(config["num_hidden_layers"]), heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
        context=int(config["max_position_embeddings"]), norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        tied=bool(config.get("tie_word_embeddings", False)), qkv_bias=attention_bias or qwen2,
        output_bias=attention_bias and not qwen2, mlp_bias=bool(config.get("mlp_bias", False)), qk_norm=qwen3,
        rope_theta=theta, rope_scaling=tuple(sorted((k, v) for k, v in rope.items() if v is not None)),
    )  # fmt: skip


def rotary_frequencies(a: Architecture) -> torch.Tensor:
    """The angle that each pair of channels turns by from one position to the next."""
    exponents = torch.arange(0, a.head_dim, 2, dtype=torch.float32) / a.head_dim
    frequencies = 1.0 / (a.rope_theta**exponents)
    scaling = dict(a.rope_scaling)
    kind = scaling.get("rope_type", "default")
    if kind == "default":
        return frequencies
    if kind == "linear":
        return frequencies / float(scaling["factor"])
    if kind == "llama3":
        return _llama3(frequencies, scaling)
    raise Refusal(f"the rotary scaling {kind} is not known; known are default, linear and llama3")


def _llama3(frequencies: torch.Tensor, scaling: dict[str, Any]) -> torch.Tensor:
    """Slow channels are slowed by the factor, fast ones kept, and those between are blended."""
    factor, original = float(scaling["factor"]), float(scaling["original_max_position_embeddings"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = original * frequencies / (2 * math.pi)  # in the original context
    keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * (keep + (1.0 - keep) / factor)
