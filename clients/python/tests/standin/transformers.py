"""What examples/fsdp_grpo takes of transformers, where that is not installed: a Llama out of a directory, and back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headway import tensors as arrays
from headway.torch import tensors


def turned(x: Tensor) -> Tensor:
    """Channels turned by their place in the sequence."""
    half = x.shape[-1] // 2
    speeds = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[-2], dtype=torch.float32)[:, None] * speeds
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, c: dict[str, Any]) -> None:
        super().__init__()
        width, self.size = c["hidden_size"], c["hidden_size"] // c["num_attention_heads"]
        kept = c["num_key_value_heads"] * self.size
        self.q_proj, self.o_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = nn.Linear(width, kept, bias=False), nn.Linear(width, kept, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (p(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for t in (k, v))
        said = nn.functional.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        return self.o_proj(said.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, c: dict[str, Any]) -> None:
        super().__init__()
        width, inner = c["hidden_size"], c["intermediate_size"]
        self.gate_proj, self.up_proj = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c: dict[str, Any]) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(c), Mlp(c)
        self.input_layernorm = nn.RMSNorm(c["hidden_size"], eps=1e-6)
        self.post_attention_layernorm = nn.RMSNorm(c["hidden_size"], eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    def __init__(self, c: dict[str, Any]) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = nn.RMSNorm(c["hidden_size"], eps=1e-6)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class AutoModelForCausalLM(nn.Module):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        c = json.loads((directory / "config.json").read_text())
        self.model, self.lm_head = Trunk(c), nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)

    @classmethod
    def from_pretrained(cls, directory: Path, dtype: torch.dtype) -> AutoModelForCausalLM:
        made, found = cls(directory), {}
        for file in directory.glob("*.safetensors"):
            found |= arrays.decode(file.read_bytes(), str(file))[0]
        made.load_state_dict(tensors(found))
        return made.to(dtype)

    def gradient_checkpointing_enable(self, **_: Any) -> None:
        """Layers this small are kept."""

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.lm_head(self.model(input_ids))

    def save_pretrained(self, directory: Path, state_dict: dict[str, Tensor]) -> None:
        directory.mkdir(parents=True)
        shutil.copy(self.directory / "config.json", directory)
        file = directory / "model.safetensors"
        file.write_bytes(b"".join(arrays.File(file.name, state_dict).chunks()))
