"""Weights by a collective: groups that a trainer and this server meet in, and tensors that it broadcasts."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from .errors import Refusal
from .model import Model

#: How long a member waits for the others, to join and in a broadcast.
PATIENCE = timedelta(minutes=5)
#: How long the end of the server waits for groups to be dropped: a thread that ends in torch's code while the
#: interpreter does takes the process down.
CLOSING_S = 5.0
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


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


class Membership:
    """This server's place in a group; without one while it still joins."""

    def __init__(self) -> None:
        self.group: dist.ProcessGroup | None = None
        #: Held by who receives: the group is not dropped meanwhile, as who drops it waits for what is under way.
        self.receiving = threading.Lock()
        #: It is left, or nobody wants what is received any more.
        self.over = threading.Event()

    def broadcast(self, tensor: torch.Tensor) -> dist.Work:
        """Receives one tensor, when there is one."""
        if self.over.is_set():
            raise Refusal("the group was left")
        return dist.broadcast(tensor, src=0, group=self.group, async_op=True)

    def wait(self, work: dist.Work) -> None:
        """Waits for a broadcast; the sender's end ends it, and so does leaving the group."""
        pause = 5e-5
        while not work.is_completed():
            if self.over.wait(pause):
                raise Refusal("the group was left")
            pause = min(pause * 1.5, 0.01)
        work.wait()  # raises what went wrong


class Groups:
    """The groups that this server is in. Joining and receiving block; leaving ends both."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: dict[str, Membership] = {}
        self._leaving: list[threading.Thread] = []

    def join(self, wanted: dict[str, Any]) -> None:
        """Joins the group of an /init_weights_update_group."""
        name, backend = wanted["group_name"], wanted["backend"]
        if not dist.is_backend_available(backend):
            raise Refusal(f"the backend {backend} is not available here: want gloo")
        member = Membership()
        with self._lock:
            if name in self._members:
                raise Refusal(f"the group {name} is there already: destroy it first")
            self._members[name] = member
        try:
            group = join(
                wanted["master_address"], wanted["master_port"], wanted["rank_offset"], wanted["world_size"], name,
                backend,
            )  # fmt: skip
        except (RuntimeError, ValueError) as problem:
            with self._lock:
                if self._members.get(name) is member:
                    del self._members[name]
            raise Refusal(f"the group {name} did not come about: {problem}") from None
        with self._lock:
            member.group = group
            del group  # what an exception keeps of this frame is not to keep the group
            left = member.over.is_set()
        if left:
            self._leave(member)
            raise Refusal(f"the group {name} was left before it had come about")

    def receive(self, wanted: dict[str, Any], model: Model) -> dict[str, torch.Tensor]:
        """The tensors that rank 0 broadcasts next. What does not fit the model is refused before any is awaited."""
        name, names, dtypes, shapes = (wanted[key] for key in ("group_name", "names", "dtypes", "shapes"))
        with self._lock:
            member = self._members.get(name)
        if member is None or member.group is None:
            raise Refusal(f"there is no group {name}: /init_weights_update_group makes it")
        if not len(names) == len(dtypes) == len(shapes):
            raise Refusal(f"{len(names)} names, {len(dtypes)} dtypes and {len(shapes)} shapes: want as many of each")
        received = {}
        for tensor_name, dtype, shape in zip(names, dtypes, shapes, strict=True):
            tied = tensor_name == HEAD and model.architecture.tied
            model.check(EMBEDDING if tied else tensor_name, tuple(shape))
            kind = getattr(torch, dtype.removeprefix("torch."), None)
            if not isinstance(kind, torch.dtype):
                raise Refusal(f"the dtype {dtype} of {tensor_name} is not known")
            received[tensor_name] = torch.empty(shape, dtype=kind, device=model.device)
        try:
            with member.receiving:
                pending = [member.broadcast(t) for t in received.values()]
                for work in pending:
                    member.wait(work)
        except (RuntimeError, Refusal) as problem:
            raise Refusal(f"the broadcast in {name} failed, the old weights are served: {problem}") from None
        # Some senders repeat the embedding where the head is tied to it.
        return {n: t for n, t in received.items() if n != HEAD or not model.architecture.tied}

    def give_up(self, name: str) -> None:
        """Ends a receive that nobody waits for any more. The group is broken by it, and still to be destroyed."""
        with self._lock:
            if member := self._members.get(name):
                member.over.set()

    def destroy(self, name: str) -> None:
        """Leaves a group."""
        with self._lock:
            member = self._members.pop(name, None)
            if member is None:
                raise Refusal(f"there is no group {name}")
            member.over.set()
            joined = member.group is not None
        if joined:
            self._leave(member)

    def close(self) -> None:
        """Leaves all of them; one in which something is still under way is left to the end of the process."""
        with self._lock:
            names = list(self._members)
        for name in names:
            self.destroy(name)
        until = time.monotonic() + CLOSING_S
        for thread in self._leaving:
            thread.join(max(until - time.monotonic(), 0.0))

    def _leave(self, member: Membership) -> None:
        """Has torch forget a group. What is under way in it ends by its timeout, so a thread waits for that."""
        dist.destroy_process_group(member.group)

        def drop() -> None:
            with member.receiving:
                member.group = None

        thread = threading.Thread(target=drop, name="leave", daemon=True)
        thread.start()
        self._leaving = [t for t in (*self._leaving, thread) if t.is_alive()]
