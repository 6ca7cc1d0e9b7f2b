"""jax beside the client: pytrees to flat names and back, log-probs of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from . import distill
from .batch import Batch
from .errors import Invalid
from .tensors import Array, BFloat16, to_numpy

Tree = TypeVar("Tree")

jax.tree_util.register_pytree_node(
    distill.Teacher,
    lambda found: ((found.ids, found.logprobs, found.own, found.present, found.absent), None),
    lambda _, parts: distill.Teacher(*parts),
)


def _name(path: tuple[Any, ...]) -> str:
    parts = (getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))) for key in path)
    return ".".join(str(part) for part in parts)


def flatten(tree: Any) -> dict[str, Array]:
    """The leaves of a pytree by name: keys, indices and attributes joined by dots, `layers.0.weight`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    flat: dict[str, Array] = {}
    for path, leaf in leaves:
        name = _name(path)
        if name in flat:
            raise Invalid(f"two leaves of the tree are called {name!r}: rename one")
        flat[name] = to_numpy(name, leaf)
    return flat


def unflatten(like: Tree, arrays: Mapping[str, Array]) -> Tree:
    """The tree whose leaves are `arrays`, of the structure, shapes and types of `like`."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    made = []
    for path, leaf in leaves:
        name = _name(path)
        if name not in arrays:
            raise Invalid(f"there is no tensor {name!r}; there are {', '.join(sorted(arrays)) or 'none'}")
        array = from_numpy(arrays[name])
        if array.shape != jnp.shape(leaf):
            raise Invalid(f"tensor {name!r} has the shape {array.shape}, want {jnp.shape(leaf)}")
        made.append(array.astype(jnp.result_type(leaf)))
    result: Tree = jax.tree_util.tree_unflatten(structure, made)
    return result


def from_numpy(array: Array) -> jax.Array:
    """The jax array of an array."""
    if isinstance(array, BFloat16):
        return jnp.asarray(np.asarray(array).view(jnp.bfloat16))
    return jnp.asarray(array)


def padded(batch: Batch, max_len: int | None = None) -> dict[str, jax.Array]:
    """`Batch.padded` as jax arrays."""
    return {name: jnp.asarray(array) for name, array in batch.padded(max_len).items()}


def channel(batch: Batch, name: str, fill: float = 0, max_len: int | None = None) -> tuple[jax.Array, jax.Array]:
    """A side channel as `Channel.padded`: rows [R, L, row...] and where there are any [R, L]."""
    rows, present = batch.channel(name).padded(fill, max_len)
    return from_numpy(rows), jnp.asarray(present)


def teacher(batch: Batch, max_len: int | None = None) -> distill.Teacher:
    """`distill.teacher` as jax arrays: a tree, so that compiled functions take it."""
    return distill.teacher(batch, max_len).map(from_numpy)


def kept(batch: Batch, max_len: int | None = None) -> jax.Array:
    """[R, L, K] ids that each token was drawn from, −1 behind them and where there is no mask: `kept` of `logprobs`.

    It needs `sampling_mask` in `rollout.channels`. Invalid names a token that is not in its own mask.
    """
    mask = batch.channel("sampling_mask")
    mask.kept(batch.padded(max_len)["tokens"])
    return from_numpy(mask.padded(-1, max_len)[0])


def logprobs(
    logits: jax.Array, tokens: jax.Array, *, temperature: float = 1.0, kept: jax.Array | None = None
) -> jax.Array:
    """[R, L] log-probs of tokens [R, L] by logits [R, L, V], aligned with tokens: column 0 is 0.

    With `kept` [R, L, K] a token's log-prob is that among its kept ids, as the engine's is; over all ids without any.
    """
    scores = logits[:, :-1].astype(jnp.float32) / temperature
    norms = jax.nn.logsumexp(scores, axis=-1)
    if kept is not None:
        there = kept[:, 1:] >= 0
        some = jnp.take_along_axis(scores, jnp.maximum(kept[:, 1:], 0), axis=-1)
        cut = there.any(-1)
        # Where nothing is kept the sum is over something, so that its gradient is a number.
        some = jnp.where(there | ~cut[..., None], some, -jnp.inf)
        norms = jnp.where(cut, jax.nn.logsumexp(some, axis=-1), norms)
    found = jnp.take_along_axis(scores, tokens[:, 1:, None], axis=-1)[..., 0] - norms
    return jnp.pad(found, ((0, 0), (1, 0)))
