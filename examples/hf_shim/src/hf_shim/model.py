"""The forward pass of a Llama-style model over a cache of keys and values, a row for each request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .architecture import Architecture, rotary_frequencies
from .errors import Refusal


@dataclass
class Layer:
    """The tensors of one layer; what is multiplied with the same input stands in one of them."""

    attention_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    output: torch.Tensor
    output_bias: torch.Tensor | None
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None


class Model:
    """A model whose weights can be replaced between two steps. One thread at a time may use it."""

    def __init__(self, architecture: Architecture, dtype: torch.dtype, device: torch.device) -> None:
        self.architecture = a = architecture
        self.dtype, self.device = dtype, device
        #: Every tensor by its name in the checkpoint: parts of the fused ones are views into them.
        self.parameters: dict[str, torch.Tensor] = {}
        self.embedding = self._parameter("model.embed_tokens.weight", a.vocabulary, a.width)
        self.layers = [self._layer(f"model.layers.{i}.") for i in range(a.layers)]
        self.norm = self._parameter("model.norm.weight", a.width)
        self.head = self.embedding if a.tied else self._parameter("lm_head.weight", a.vocabulary, a.width)
        angles = torch.outer(torch.arange(a.context, dtype=torch.float32), rotary_frequencies(a))
        angles = torch.cat((angles, angles), dim=-1)
        self.cosines = angles.cos().to(device=device, dtype=dtype)
        self.sines = angles.sin().to(device=device, dtype=dtype)

    def _parameter(self, name: str, *shape: int) -> torch.Tensor:
        tensor = torch.zeros(shape, dtype=self.dtype, device=self.device)
        self.parameters[name] = tensor
        return tensor

    def _fused(self, prefix: str, suffix: str, parts: Mapping[str, int], *inputs: int) -> torch.Tensor:
        """One tensor whose rows are those of several, each of which is a view into it."""
        whole = torch.zeros((sum(parts.values()), *inputs), dtype=self.dtype, device=self.device)
        start = 0
        for part, rows in parts.items():
            self.parameters[prefix + part + suffix] = whole[start : start + rows]
            start += rows
        return whole

    def _layer(self, prefix: str) -> Layer:
        a = self.architecture
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        qkv = {"q_proj": a.heads * a.head_dim, "k_proj": a.kv_heads * a.head_dim, "v_proj": a.kv_heads * a.head_dim}
        gate_up = {"gate_proj": a.mlp_width, "up_proj": a.mlp_width}
        return Layer(
            attention_norm=self._parameter(prefix + "input_layernorm.weight", a.width),
            qkv=self._fused(attention, ".weight", qkv, a.width),
            qkv_bias=self._fused(attention, ".bias", qkv) if a.qkv_bias else None,
            query_norm=self._parameter(attention + "q_norm.weight", a.head_dim) if a.qk_norm else None,
            key_norm=self._parameter(attention + "k_norm.weight", a.head_dim) if a.qk_norm else None,
            output=self._parameter(attention + "o_proj.weight", a.width, a.heads * a.head_dim),
            output_bias=self._parameter(attention + "o_proj.bias", a.width) if a.output_bias else None,
            mlp_norm=self._parameter(prefix + "post_attention_layernorm.weight", a.width),
            gate_up=self._fused(mlp, ".weight", gate_up, a.width),
            gate_up_bias=self._fused(mlp, ".bias", gate_up) if a.mlp_bias else None,
            down=self._parameter(mlp + "down_proj.weight", a.width, a.mlp_width),
            down_bias=self._parameter(mlp + "down_proj.bias", a.width) if a.mlp_bias else None,
        )

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Refuses a tensor that the model does not have, or has in another shape."""
        mine = self.parameters.get(name)
        if mine is None:
            raise Refusal(f"the model has no tensor {name}; it has such as {', '.join(list(self.parameters)[:3])}")
        if tuple(mine.shape) != shape:
            raise Refusal(f"the tensor {name} has the shape {list(shape)}, the model's has {list(mine.shape)}")

    @torch.no_grad()
    def replace(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Takes over tensors, all of which have been checked."""
        for name, tensor in tensors.items():
            self.parameters[name].copy_(tensor)

    @torch.no_grad()
    def forward(self, cache: Cache, first_row: int, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The last hidden states [rows, columns, width] of tokens [rows, columns] at their positions.

        The rows are those of the cache from first_row on; keys and values are written there.
        """
        a = self.architecture
        rows, columns = tokens.shape
        reach = int(positions.max()) + 1
        cache.reserve(reach)
        view = cache.view(first_row, rows, reach)
        cosines, sines = self.cosines[positions].unsqueeze(2), self.sines[positions].unsqueeze(2)
        # A query sees the keys up to its own position. The query heads of a group share their keys, so they
        # stand side by side as further queries.
        mask = torch.arange(reach, device=self.device) <= positions.unsqueeze(-1)
        mask = mask[:, None, None].expand(rows, 1, a.groups, columns, reach)
        mask = mask.reshape(rows, 1, a.groups * columns, reach)
        place = (torch.arange(rows, device=self.device)[:, None], slice(None), positions)
        x = F.embedding(tokens, self.embedding)
        for i, layer in enumerate(self.layers):
            x = x + self._attention(layer, x, view[0][i], view[1][i], place, cosines, sines, mask)
            h = F.rms_norm(x, (a.width,), layer.mlp_norm, a.norm_eps)
            gate, up = F.linear(h, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, layer.down, layer.down_bias)
        return x

    def _attention(
        self, layer: Layer, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor,
        place: tuple[torch.Tensor, slice, torch.Tensor], cosines: torch.Tensor, sines: torch.Tensor, mask: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        a = self.architecture
        rows, columns, _ = x.shape
        h = F.rms_norm(x, (a.width,), layer.attention_norm, a.norm_eps)
        heads = F.linear(h, layer.qkv, layer.qkv_bias).view(rows, columns, -1, a.head_dim)
        qk, v = heads[:, :, : a.heads + a.kv_heads], heads[:, :, a.heads + a.kv_heads :]
        if layer.query_norm is not None and layer.key_norm is not None:
            q, k = qk[:, :, : a.heads], qk[:, :, a.heads :]
            q = F.rms_norm(q, (a.head_dim,), layer.query_norm, a.norm_eps)
            k = F.rms_norm(k, (a.head_dim,), layer.key_norm, a.norm_eps)
            qk = torch.cat((q, k), dim=2)
        left, right = qk.chunk(2, dim=-1)
        qk = qk * cosines + torch.cat((-right, left), dim=-1) * sines
        q, k = qk[:, :, : a.heads], qk[:, :, a.heads :]
        keys[place], values[place] = k, v
        q = q.view(rows, columns, a.kv_heads, a.groups, a.head_dim).permute(0, 2, 3, 1, 4)
        q = q.reshape(rows, a.kv_heads, a.groups * columns, a.head_dim)
        out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        out = out.view(rows, a.kv_heads, a.groups, columns, a.head_dim).permute(0, 3, 1, 2, 4)
        return F.linear(out.reshape(rows, columns, a.heads * a.head_dim), layer.output, layer.output_bias)

    @torch.no_grad()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits in float32 of last hidden states."""
        a = self.architecture
        return F.linear(F.rms_norm(hidden, (a.width,), self.norm, a.norm_eps), self.head).float()


class Cache:
    """Keys and values of running requests: row i is the i-th of them, so that a step copies none."""

    def __init__(self, model: Model, rows: int) -> None:
        a = model.architecture
        self._context = a.context
        shape = (a.layers, rows, a.kv_heads, 0, a.head_dim)
        self._tensors = [torch.zeros(shape, dtype=model.dtype, device=model.device) for _ in "kv"]

    @property
    def reach(self) -> int:
        """How many positions there is room for in a row."""
        return int(self._tensors[0].shape[3])

    def reserve(self, positions: int) -> None:
        """Makes room for that many positions in every row."""
        if positions <= self.reach:
            return
        # Doubling keeps what growth copies below what is written.
        room = min(max(positions, 2 * self.reach, 64), self._context) - self.reach
        self._tensors = [F.pad(t, (0, 0, 0, room)) for t in self._tensors]

    def view(self, first_row: int, rows: int, reach: int) -> list[torch.Tensor]:
        """Keys and values of some rows, [layers, rows, heads, reach, head_dim]."""
        return [t[:, first_row : first_row + rows, :, :reach] for t in self._tensors]

    def move(self, source: int, target: int, length: int) -> None:
        """Copies a row's first positions to another row."""
        for t in self._tensors:
            t[:, target, :, :length] = t[:, source, :, :length]

    def clear(self) -> None:
        """Gives the room back."""
        self._tensors = [t[:, :, :, :0].clone() for t in self._tensors]
