"""Where trainer and engines learn how to start a collective together."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from . import errors
from .transport import Transport


@dataclass(frozen=True)
class RendezvousReply:
    """What a member initialises its process group with; the trainer is rank 0."""

    #: Counts the meetings of this name; a change of membership begins the next.
    epoch: int
    master_address: str
    master_port: int
    #: Ranks of all members together.
    world_size: int
    #: The first of this member's ranks.
    rank_offset: int
    backend: str
    members: tuple[str, ...]

    @property
    def init_method(self) -> str:
        """For torch.distributed."""
        host = f"[{self.master_address}]" if ":" in self.master_address else self.master_address
        return f"tcp://{host}:{self.master_port}"


def rendezvous(
    url: str | Sequence[str], name: str, role: str, *, member: str | None = None, ranks: int = 1, engines: int = 0,
    address: str | None = None, backend: str = "gloo", epoch: int = 0, wait_s: float = 60.0,
    patience_s: float = 600.0, token: str | None = None, verify: bool | str = True,
) -> RendezvousReply:  # fmt: skip
    """Meet at `name` and return when all are there, to all at once.

    `role` is "trainer" or "engine". The trainer says the `address`, host:port, that it will listen on, and how many
    `engines` it expects, 0 for the server's setting. Without an `address` a free port is taken, at this host's address
    towards the control plane.
    `epoch` is the one that the member was in; 0 for a new one, as after its process group broke.
    """
    if role not in ("trainer", "engine"):
        raise errors.Invalid(f"the role {role!r} cannot be: want trainer or engine")
    message = {
        "member": member or f"{role}-{socket.gethostname()}-{os.getpid()}", "role": role, "ranks": ranks,
        "backend": backend, "epoch": epoch, "wait_s": wait_s,
    }  # fmt: skip
    if engines:
        message["engines"] = engines
    transport = Transport(url, token, patience_s=patience_s, verify=verify)
    try:
        if role == "trainer" and address is None:
            address = free_address(own_address(transport.url))
        if address is not None:
            message["address"] = address
        return meet(transport, name, message)
    finally:
        transport.close()


def meet(
    transport: Transport, name: str, message: Mapping[str, Any], stop: threading.Event | None = None
) -> RendezvousReply:
    """Wait at `name` until all are there. `stop` ends the asking, not the call that is under way."""
    # While somebody is missing the answer is Unavailable, which names who: the transport asks again.
    timeout_s = float(message["wait_s"]) + 30.0
    reply = transport.post(f"/api/v1/rendezvous/{name}", message, timeout_s=timeout_s, stop=stop)
    return RendezvousReply(
        reply["epoch"], reply["master_address"], reply["master_port"], reply["world_size"], reply["rank_offset"],
        reply["backend"], tuple(reply.get("members") or ()),
    )  # fmt: skip


def free_address(host: str = "127.0.0.1") -> str:
    """host:port of a port that is free now."""
    wide = ":" in host  # IPv6
    with socket.socket(socket.AF_INET6 if wide else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return f"[{host}]:{probe.getsockname()[1]}" if wide else f"{host}:{probe.getsockname()[1]}"


def own_address(url: str) -> str:
    """The address by which this host reaches a control plane."""
    to = httpx.URL(url)
    port = to.port or {"http": 80, "https": 443}[to.scheme]
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(to.host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError as error:
        raise errors.Invalid(f"the address of this host towards {to.host} is not known ({error}): say host=") from error


def check_host(host: str) -> None:
    """Raise Invalid unless a host leads somewhere."""
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        raise errors.Invalid(f"host {host!r} leads nowhere, so no engine could reach this process: {error}") from None
