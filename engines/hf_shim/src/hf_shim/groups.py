"""Weights by a collective: groups that a trainer and this server meet in, and tensors that it broadcasts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from .errors import Refusal
from .model import Model

#: How long a member waits for the others, to join and in a broadcast.
PATIENCE = timedelta(minutes=5)


def join(address: str, port: int, rank: int, world: int, name: str, backend: str) -> dist.ProcessGroup:
    """Meets the others of a group. All members must join by the same construction, as SGLang's trainers do.

    The group stands beside the process's own one, so a trainer may be in several. It blocks until all are there.
    """
    found = distributed_c10d.rendezvous(f"tcp://{address}:{port}", rank, world, timeout=PATIENCE)
    store, rank, world = next(found)
    store.set_timeout(PATIENCE)
    group, _ = distributed_c10d._new_process_group_helper(
        world, rank, [], dist.Backend(backend), dist.PrefixStore(name, store), group_name=name, timeout=PATIENCE
    )
    distributed_c10d._world.pg_group_ranks[group] = {i: i for i in range(world)}
    return group


class Groups:
    """The groups that this server is in."""

    def __init__(self) -> None:
        self._groups: dict[str, dist.ProcessGroup] = {}

    def join(self, wanted: dict[str, Any]) -> None:
        """Joins the group of an /init_weights_update_group."""
        name, backend = wanted["group_name"], wanted["backend"]
        if name in self._groups:
            raise Refusal(f"the group {name} is there already: destroy it first")
        if not dist.is_backend_available(backend):
            raise Refusal(f"the backend {backend} is not available here: want gloo")
        try:
            self._groups[name] = join(
                wanted["master_address"], wanted["master_port"], wanted["rank_offset"], wanted["world_size"], name,
                backend,
            )  # fmt: skip
        except (RuntimeError, ValueError) as problem:
            raise Refusal(f"the group {name} did not come about: {problem}") from None

    def receive(self, wanted: dict[str, Any], model: Model) -> dict[str, torch.Tensor]:
        """The tensors that rank 0 broadcasts next. What does not fit the model is refused before any is awaited."""
        name, names, dtypes, shapes = (wanted[key] for key in ("group_name", "names", "dtypes", "shapes"))
        group = self._groups.get(name)
        if group is None:
            raise Refusal(f"there is no group {name}: /init_weights_update_group makes it")
        if not len(names) == len(dtypes) == len(shapes):
            raise Refusal(f"{len(names)} names, {len(dtypes)} dtypes and {len(shapes)} shapes: want as many of each")
        received = {}
        for tensor_name, dtype, shape in zip(names, dtypes, shapes, strict=True):
            model.check(tensor_name, tuple(shape))
            kind = getattr(torch, dtype.removeprefix("torch."), None)
            if not isinstance(kind, torch.dtype):
                raise Refusal(f"the dtype {dtype} of {tensor_name} is not known")
            received[tensor_name] = torch.empty(shape, dtype=kind, device=model.device)
        try:
            pending = [dist.broadcast(t, src=0, group=group, async_op=True) for t in received.values()]
            for work in pending:
                work.wait()
        except RuntimeError as problem:
            raise Refusal(f"the broadcast in {name} failed, the old weights are served: {problem}") from None
        return received

    def destroy(self, name: str) -> None:
        """Leaves a group."""
        group = self._groups.pop(name, None)
        if group is None:
            raise Refusal(f"there is no group {name}")
        dist.destroy_process_group(group)
