"""What a sender does with torch: copies of a version's tensors, and groups in which they are broadcast.

How gloo and NCCL behave when the other side fails decides the form of this module.

gloo: where a member's process ends, what is being sent to it fails at once. Where it lives and receives
nothing, a broadcast stands until the group's timeout, and nothing ends it earlier: neither `abort` nor
dropping the group, which waits for it (without the interpreter's lock). So who has given a broadcast up
leaves its group to a thread that drops it, and goes on.

NCCL: a broadcast is a kernel, which nothing but `abort` ends. torch would take the whole process down when
one fails or times out, a trainer for the sake of one engine: the groups of a sender only have their
communicator aborted. The first broadcast makes the communicator, and does not return before the engine is in
it: a thread of its own calls it, so that an engine that is gone holds nothing else up.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from . import tensors as arrays
from .errors import Invalid
from .tensors import Array, BFloat16

_c10d: Any = dist  # some of what it has, it does not say to have

#: Types that are broadcast by both backends, and by NCCL alone.
_TYPES = {
    torch.float64: "float64", torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16",
    torch.int64: "int64", torch.int32: "int32", torch.int8: "int8", torch.uint8: "uint8", torch.bool: "bool",
}  # fmt: skip
_TYPES_NCCL = {torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2"}
#: The word of each for a type that safetensors call so.
STORED_TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I8": "int8", "U8": "uint8", "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
#: Broadcasts under way at once: enough that the next one is there when one ends.
_WINDOW = 16
#: Words of eight bytes that are folded at once: 8 MiB of memory beside the tensors.
_CHUNK = 1 << 20
#: NCCL's own timeout ends more than the broadcast, so ours has to come first.
_NEVER = timedelta(days=30)
_environment = threading.Lock()


class GivenUp(Exception):
    """Nobody wants it any more."""


class Held:
    """A version's tensors, in the order of their names, so that equal weights are sent in the same order."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.tensors = dict(sorted(tensors.items()))
        self._lock = threading.Lock()
        self._digest = ""
        #: What reads the tensors on another stream has to wait for the one that made them.
        self._made: torch.cuda.Event | None = None
        device = next(iter(self.tensors.values())).device
        if device.type == "cuda":
            self._made = torch.cuda.current_stream(device).record_event()

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """On a GPU, a stream of its own: a trainer's kernels, queued on theirs, are not waited for."""
        if self._made is None:
            yield
            return
        device = next(iter(self.tensors.values())).device
        own: Any = torch.cuda.Stream
        with torch.cuda.device(device), torch.cuda.stream(own(device)):
            torch.cuda.current_stream(device).wait_event(self._made)
            yield

    def words(self) -> list[dict[str, Any]]:
        """Name, type and shape of each."""
        return [{"name": n, "dtype": type_name(t.dtype), "shape": list(t.shape)} for n, t in self.tensors.items()]

    def digest(self) -> str:
        """Tells versions apart, and is equal where the weights are. It protects from nothing: a sum is easily met.

        Each chunk of words is summed where it lies, every word times an odd number of its place, so that the memory is
        read once. The high halves are summed again: a change of high bits alone, such as of two signs, could cancel.
        """
        with self._lock:
            if not self._digest:
                with torch.no_grad(), self.stream():
                    self._digest = _digest(self.tensors)
            return self._digest


def _digest(tensors: Mapping[str, torch.Tensor]) -> str:
    found = hashlib.sha256()
    places: torch.Tensor | None = None
    for name, tensor in tensors.items():
        found.update(json.dumps([name, type_name(tensor.dtype), list(tensor.shape)]).encode())
        raw = tensor.reshape(-1).view(torch.uint8)
        even = raw.numel() // 8 * 8
        words, sums = raw[:even].view(torch.int64), []
        if places is None or places.numel() < min(words.numel(), _CHUNK):
            places = torch.arange(min(words.numel(), _CHUNK), dtype=torch.int64, device=tensor.device) * 2 + 1
        for at in range(0, words.numel(), _CHUNK):
            piece = words[at : at + _CHUNK]
            odd = places[: piece.numel()]
            sums += [(piece * odd).sum(), ((piece >> 32) * odd).sum()]
        if sums:
            found.update(np.asarray(torch.stack(sums).tolist(), dtype="<i8").tobytes())
        found.update(bytes(raw[even:].tolist()))
    return "sum-sha256:" + found.hexdigest()


def type_name(dtype: torch.dtype) -> str:
    """torch's word for a type, as engines are told it: bfloat16."""
    return str(dtype).removeprefix("torch.")


def device_of(backend: str, device: torch.device | str | None) -> torch.device:
    """Where the copies lie: gloo reads the host's memory, NCCL a GPU's."""
    if backend not in ("gloo", "nccl"):
        raise Invalid(f"the backend {backend!r} cannot be: want gloo or nccl")
    if not dist.is_available() or not dist.is_backend_available(backend):
        raise Invalid(f"this torch ({torch.__version__}) has no {backend}")
    if backend == "gloo":
        found = torch.device(device or "cpu")
        if found.type != "cpu":
            raise Invalid(f"gloo sends from the host's memory, not from {found}: leave the device out, or take nccl")
        return found
    found = torch.device(device or "cuda")
    if found.type != "cuda" or not torch.cuda.is_available():
        raise Invalid(f"nccl sends from a GPU's memory, and {found} is none that torch sees: take gloo")
    return found if found.index is not None else torch.device("cuda", torch.cuda.current_device())


def checked(state: Mapping[str, Any], backend: str) -> dict[str, torch.Tensor]:
    """The tensors of a state dict, in the memory that they have. What cannot be sent is refused."""
    if not state:
        raise Invalid("there are no tensors to hold: the state dict is empty")
    with torch.no_grad():
        return {name: _checked(name, value, backend) for name, value in state.items()}


def copied(tensors: Mapping[str, torch.Tensor], device: torch.device) -> Held:
    """A copy that the optimizer's next step does not change. Tensors that are tied have a name each, and one copy."""
    made: dict[tuple[Any, ...], torch.Tensor] = {}
    out: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        same = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        if same not in made:
            with torch.no_grad():
                made[same] = torch.empty(tensor.shape, dtype=tensor.dtype, device=device).copy_(tensor)
        out[name] = made[same]
    return Held(out)


def _checked(name: object, value: Any, backend: str) -> torch.Tensor:
    """The tensor of a value, of its own memory or not."""
    if not isinstance(name, str) or not name:
        raise Invalid(f"{name!r} cannot name a tensor: want a text that is not empty")
    tensor = value.detach() if isinstance(value, torch.Tensor) else _shared(arrays.to_numpy(name, value))
    if hasattr(tensor, "full_tensor"):
        raise Invalid(f"tensor {name!r} is spread over ranks: gather it on all of them first (full_tensor())")
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
        raise Invalid(f"tensor {name!r} is sparse, quantized or on meta: want one that has its numbers in memory")
    known = {**_TYPES, **_TYPES_NCCL} if backend == "nccl" else _TYPES
    if tensor.dtype not in known:
        raise Invalid(
            f"tensor {name!r} has the type {tensor.dtype}, which {backend} does not broadcast: want one of "
            + ", ".join(sorted(known.values()))
        )
    if tensor.is_floating_point() and not _finite(tensor):
        good = (tensor if tensor.itemsize > 1 else tensor.float()).isfinite()
        bad = int((~good).sum())
        if bad:
            raise Invalid(
                f"tensor {name!r} holds {bad} of {tensor.numel()} numbers that are not finite, the first at "
                f"{tuple((~good).nonzero()[0].tolist())}: it is not sent",
                detail={"tensor": name, "count": bad},
            )
    return tensor


def _finite(tensor: torch.Tensor) -> bool:
    """All numbers are finite, by their sum, which needs no memory beside them. False may also be a sum too large."""
    wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return bool((tensor if tensor.itemsize > 1 else tensor.float()).sum(dtype=wide).isfinite())


def _shared(array: Array) -> torch.Tensor:
    """The tensor of an array, in the same memory."""
    if not array.flags.writeable:
        array = array.copy() if not isinstance(array, BFloat16) else array.copy().view(BFloat16)
    if isinstance(array, BFloat16):
        return torch.from_numpy(np.asarray(array).view(np.int16)).view(torch.bfloat16)
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise Invalid(f"torch has no tensor of {array.dtype}: {error}") from error


def fetched(state: Mapping[str, Any], backend: str, device: torch.device) -> Held:
    """The tensors of arrays that nobody writes to: on the host they stay where they are."""
    return Held({name: tensor.to(device).contiguous() for name, tensor in checked(state, backend).items()})


def listen() -> Any:
    """The store over which the members of one group find each other, on a port that is free now and then is ours."""
    return _c10d.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=60), wait_for_workers=False)


class Group:
    """A group of this process, rank 0, and the ranks of one engine."""

    def __init__(self, backend: str, members: Any, store: Any, timeout_s: float) -> None:
        self._backend, self._members, self._store, self._timeout_s = backend, members, store, timeout_s
        self._together = backend != "nccl"  # a broadcast only begins when it is called

    @classmethod
    def join(
        cls, store: Any, name: str, world: int, backend: str, host: str, timeout_s: float, stop: threading.Event
    ) -> Group:
        """Meet the others, at the keys of the store at which torch's own constructor of groups would.

        That is what engines use: rendezvous, a prefix of the group's name, `_new_process_group_helper`. It is not used
        here because it keeps groups in tables of the process that know no threads, and would split a communicator
        off the trainer's own, which engines are not in.
        """
        # The constructor of a group cannot be left. So it is entered once the engine has come.
        deadline = time.monotonic() + timeout_s
        while not store.num_keys():
            if stop.wait(0.01):
                raise GivenUp
            if time.monotonic() > deadline:
                raise TimeoutError(f"the engine did not come to the group within {timeout_s:g} s")
        from torch.distributed.distributed_c10d import Backend, BackendConfig  # not in every torch

        device = next(iter(BackendConfig(Backend(backend)).get_device_backend_map()))
        keys = store
        for prefix in (name, f"{name}/", f"{device}/"):
            keys = _c10d.PrefixStore(prefix, keys)
        made = _nccl(keys, world) if backend == "nccl" else _gloo(keys, world, host, timeout_s)
        return cls(backend, made, store, timeout_s)

    def broadcast(self, held: Held, stop: threading.Event) -> None:
        """Send a version's tensors, some at once. GivenUp when `stop` is set; whatever fails, the group is broken."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor, options.asyncOp = 0, 0, True
        under_way: deque[Any] = deque()
        with held.stream():
            for tensor in held.tensors.values():
                if len(under_way) >= _WINDOW:
                    self._await(under_way.popleft(), stop)
                raw = tensor.view(torch.uint8) if tensor.dtype in _TYPES_NCCL else tensor
                begin = partial(self._members.broadcast, [raw], options)
                under_way.append(begin() if self._together else self._first(begin, raw.device, stop))
            while under_way:
                self._await(under_way.popleft(), stop)

    def _first(self, begin: Callable[[], Any], device: torch.device, stop: threading.Event) -> Any:
        """Begin a broadcast that makes the communicator. Given up, its thread is left to itself: nothing ends it."""
        begun: Future[Any] = Future()
        stream = torch.cuda.current_stream(device) if device.type == "cuda" else None

        def work() -> None:
            try:
                with contextlib.nullcontext() if stream is None else torch.cuda.stream(stream):
                    begun.set_result(begin())
            except BaseException as error:  # NCCL's own
                begun.set_exception(error)

        threading.Thread(target=work, name="headway-communicator", daemon=True).start()
        self._until(begun.done, stop)
        self._together = True
        return begun.result()

    def _await(self, work: Any, stop: threading.Event) -> None:
        self._until(work.is_completed, stop)
        work.wait()  # raises what went wrong

    def _until(self, done: Callable[[], bool], stop: threading.Event) -> None:
        pause, deadline = 5e-5, time.monotonic() + self._timeout_s
        while not done():
            if stop.wait(pause):
                raise GivenUp
            if time.monotonic() > deadline:
                raise TimeoutError(f"the engine took nothing of what was sent for {self._timeout_s:g} s")
            pause = min(pause * 1.5, 0.01)

    def part(self) -> None:
        """Leave it. With gloo it waits for what is under way, which may take as long as the timeout."""
        members, self._members = self._members, None
        if self._backend == "nccl":
            members.abort()
        del members
        self._store = None


def _gloo(keys: Any, world: int, host: str, timeout_s: float) -> Any:
    """By itself gloo listens where the host's name leads to, which often is its own loopback."""
    kind = _c10d.ProcessGroupGloo
    options = kind._Options()
    options._timeout = timedelta(seconds=timeout_s)
    if os.environ.get("GLOO_SOCKET_IFNAME"):
        devices = [kind.create_default_device()]
    else:
        try:
            devices = [kind.create_device(hostname=host)]
        except RuntimeError:  # an address that leads here and is not this host's
            devices = [kind.create_default_device()]
    options._devices = devices
    return kind(keys, 0, world, options)


def _nccl(keys: Any, world: int) -> Any:
    kind = _c10d.ProcessGroupNCCL
    options = kind.Options()
    options._timeout = _NEVER
    name = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    with _environment:
        before = os.environ.get(name)
        os.environ[name] = "2"  # abort the communicator, and leave the process alone
        try:
            return kind(keys, 0, world, options)
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before
