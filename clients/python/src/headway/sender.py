"""The process that has the trainer's weights, as engines with `weights: distributed` need it.

A thread asks the control plane what to do and says what is done. Each command is carried out by a thread of
its own, so that an engine that is slow, or gone, keeps no other from its weights; there is one an engine at most.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from . import errors
from .batch import Batch
from .client import Client
from .collective import GivenUp, Group, device_of, listen
from .meeting import check_host, meet, own_address
from .outbox import Outbox
from .shelf import Promise, Shelf, model_stored
from .store import Store
from .transport import Transport

_log = logging.getLogger("headway.sender")

#: How long a poll waits for a command.
_WAIT_S = 20.0
#: Pause after a refusal: another sender may be gone by then.
_REFUSED_S = 2.0
#: How long an engine is waited for at a meeting, a call at a time.
_MEET_S = 30.0
#: Groups that were given up and still wait for an engine that takes nothing.
_LINGERING_MAX = 16
#: How long `close` waits for groups to be left.
_CLOSING_S = 5.0
#: How threads are called that leave groups.
_PARTING = "headway-part-"


@dataclass(eq=False)
class _Command:
    """Something to do."""

    seq: int
    kind: str
    engine: str
    version: int
    rendezvous: str
    group: str
    #: It was learned when so many requests had been made: a later one that does not bring it has it given up.
    since: int
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False)
class _Joined:
    """A group that stands."""

    group: Group
    engine: str
    since: int


class Sender:
    """Sends a trainer's weights to the engines, by a collective with each. Rank 0 of a trainer has one.

    `hold` the weights before the version is published; `publish` does both. The copies are tensors of `device`
    (gloo: the host; nccl: the current GPU) and cost `copies` times the model there, and as much again at worst while
    engines still take earlier versions. What is not held (version 0, or any after a restart) is fetched from the run's
    store, or from `source(version)`: a state dict of arrays that nobody writes to any more.

    `host` is the address at which engines reach this process, by default the one by which it reaches the control
    plane. `timeout_s` bounds how long an engine may take nothing of what is sent to it. `token` and `verify` are those
    of `connect`. One thread at a time may call its methods; it sends beside it until `close`. Closes as a context
    manager.
    """

    def __init__(
        self, url: str | Sequence[str] = "http://127.0.0.1:7070", name: str = "sender", *, backend: str = "gloo",
        device: Any = None, host: str | None = None, token: str | None = None, verify: bool | str = True,
        copies: int = 2, source: Callable[[int], Mapping[str, Any]] | None = None, patience_s: float = 600.0,
        timeout_s: float = 300.0,
    ) -> None:  # fmt: skip
        if copies < 1:
            raise errors.Invalid(f"{copies} copies hold nothing: want at least 1")
        if timeout_s <= 0:
            raise errors.Invalid(f"a timeout of {timeout_s:g} s sends nothing: want more than 0")
        if host is not None:
            check_host(host)
        self.name, self.backend, self.device = name, backend, device_of(backend, device)
        self._closing = threading.Event()
        self._transport = Transport(url, token, patience_s=patience_s, verify=verify, stopped=self._closing)
        self._instance, self._host = uuid.uuid4().hex, host
        self._copies, self._timeout_s = copies, timeout_s
        self._shelf = Shelf(copies, backend, self.device, source or Store(self._transport).arrays)
        #: What the control plane refused last, such as a second sender; None while all is well. `hold` raises it.
        #: With the code "expired" it stays: another process has come under this name, and this one sends no more.
        self.error: errors.HeadwayError | None = None
        self._lock = threading.Lock()  # of all that follows
        self._outlived = False  # another process has come under this name
        self._asked = 0  # requests that were made
        self._commands: dict[int, _Command] = {}
        self._outbox = Outbox(name)
        self._absent = -1  # the newest version of which was said that it is nowhere
        self._groups: dict[str, _Joined] = {}
        self._threads: list[threading.Thread] = []  # each carries a command out, or leaves a group
        self._thread = threading.Thread(target=self._run, name="headway-sender", daemon=True)
        self._thread.start()
        _at_exit(self)

    def __enter__(self) -> Sender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Say that it leaves, and stop sending. What is under way is given up; it may be called again."""
        if self._closing.is_set():
            return
        self._closing.set()
        try:
            if not self._outlived:
                self._ask(0.0, patience_s=0.0, timeout_s=5.0, leaving=True)
        except (errors.HeadwayError, RuntimeError) as error:
            _log.info("the control plane was not told that sender %s leaves: %s", self.name, error)
        with self._lock:
            self._give_all_up()
            ending = [t for t in (self._thread, *self._threads) if t is not threading.current_thread()]
        self._transport.close()
        until = time.monotonic() + _CLOSING_S
        for thread in ending:
            thread.join(max(until - time.monotonic(), 0.0))

    # The trainer's side

    @property
    def holds(self) -> list[int]:
        """The versions whose tensors it has."""
        return self._shelf.versions

    def hold(self, version: int, state_dict: Mapping[str, Any]) -> None:
        """Keep a copy of a version's weights, and tell the control plane, which accepts its publish from then on.

        They come as torch tensors, numpy or jax arrays by name. Tied ones are copied once and sent under each name;
        what is spread over ranks is to be gathered first. All versions have the same names, types and shapes: engines
        load them in place, and would cast other types without a word. Holding a version again replaces it. It returns
        when the control plane knows, and raises what that refuses.
        """
        self._check_open()
        if version < 0:
            raise errors.Invalid(f"version {version} cannot be: want 0 or more")
        self._shelf.put(version, state_dict)
        self._ask(0.0)

    def drop(self, version: int) -> None:
        """Forget a version that was held and has not become one of the run's. Engines are sent nothing of it."""
        self._shelf.drop(version)

    def publish(
        self, hw: Client, batch: Batch | None, state_dict: Mapping[str, Any], *,
        optimizer: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None, checkpoint_every: int = 20,
        metrics: Mapping[str, float] | None = None,
    ) -> int:  # fmt: skip
        """`Client.publish` by this sender: the weights are held and the batch is acknowledged; nothing is uploaded.

        One that is `checkpoint_every` versions or more (0: none is) after the last that is stored is uploaded as well,
        with the optimizer's state, and so is the run's last: a trainer that is restarted, or has lost a lease, goes on
        from the newest of these. `optimizer` may be a function, which is called for those alone. Returns the version.
        """
        version, asked = 0 if batch is None else batch.version + 1, False
        due = checkpoint_every > 0 and version - hw.stored >= checkpoint_every
        stores = batch is None or due or 0 < hw.steps <= version
        hw.attach(self)
        try:
            if self._shelf.model is None and hw.stored >= 0:
                self._shelf.model = model_stored(hw)
            self.hold(version, state_dict)
            if not stores:
                asked = True
                return hw.publish(batch, rendezvous=self.name, metrics=metrics)
            state = optimizer() if callable(optimizer) else optimizer
            asked = True
            return hw.publish(batch, state_dict, optimizer=state, metrics=metrics)
        except BaseException as error:
            # What nobody has committed may become another's version. What may have been committed is nowhere else:
            # it stays, until the version is published again or made by a restore.
            if not (asked and _in_doubt(error)):
                self.drop(version)
            raise

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise errors.Invalid(f"sender {self.name} is closed")
        if self._outlived and self.error is not None:
            raise self.error

    # What the control plane is told and says

    def _run(self) -> None:
        said = ""
        while not self._closing.is_set():
            try:
                self._ask(_WAIT_S)
                said = ""
            except errors.HeadwayError as error:
                if self._closing.is_set():
                    return
                if self._outlived:
                    _log.warning("sender %s ends: %s", self.name, error)
                    return
                if error.status and str(error) != said:
                    said = str(error)
                    _log.warning("sender %s is refused: %s", self.name, error)
                self._closing.wait(_REFUSED_S)
            except Exception:  # a defect, which is to end neither the trainer nor its sender
                if self._closing.is_set():  # the connection pool was closed
                    return
                _log.exception("sender %s: a reply could not be heeded", self.name)
                self._closing.wait(_REFUSED_S)

    def _ask(
        self, wait_s: float, *, patience_s: float | None = None, timeout_s: float = 30.0, leaving: bool = False
    ) -> None:
        """Say what is and what is done, in as many requests as that takes, and do what the replies say."""
        while self._ask_once(wait_s, patience_s, timeout_s, leaving):
            pass

    def _ask_once(self, wait_s: float, patience_s: float | None, timeout_s: float, leaving: bool) -> bool:
        """One request, and what its reply says done; True where there was more to say than fits in one.

        What is sent is put together at each try, as it then is.
        """
        number, more = 0, False
        told: dict[int, str] = {}

        def body() -> Iterator[bytes]:
            nonlocal number, told, more
            with self._lock:
                if self._closing.is_set() and not leaving:  # it would come back as a sender that is there
                    raise errors.Unavailable(f"sender {self.name} is closed")
                if self._outlived and self.error is not None:
                    raise self.error
                self._asked += 1
                number, (told, more) = self._asked, self._outbox.load()
                message = {
                    "instance": self._instance, "backend": self.backend, "holds": self._shelf.versions,
                    "knows": sorted(self._commands), "wait_s": 0.0 if more else wait_s, "leaving": leaving,
                }  # fmt: skip
            text = json.dumps(message, separators=(",", ":"))
            yield f'{text[:-1]},"done":[{",".join(told.values())}]}}'.encode()

        try:
            response = self._transport.call(
                "POST", f"/api/v1/senders/{self.name}", body=body, headers={"Content-Type": "application/json"},
                timeout_s=wait_s + timeout_s, patience_s=patience_s,
            )  # fmt: skip
            reply = response.json()
            if not isinstance(reply, dict):
                raise errors.Internal(f"a sender's word was answered with {reply!r:.80}", status=response.status_code)
        except (errors.Unavailable, errors.Busy, errors.Internal, errors.DiskFull):
            raise
        except errors.TooLarge as error:
            with self._lock:
                less = self._outbox.say_less(told, error)
            if not less:
                raise
            return True
        except errors.LeaseExpired as error:
            # A trainer that has lost a lease loads and goes on. This one is not to: another error, of the same code.
            ended = errors.Conflict(error.message, code=error.code, detail=error.detail, status=error.status)
            with self._lock:
                self._outlived = True
                self._refused(ended)
            raise ended from error
        except errors.HeadwayError as error:
            with self._lock:
                if not self._outlived:
                    self._refused(error)
            raise
        with self._lock:
            if self._outlived:  # this was answered before
                return False
            self.error = None
            self._outbox.answered(told, self._asked)
            if not self._closing.is_set():
                self._heed(number, reply)
        return more and not leaving

    def _heed(self, number: int, reply: Mapping[str, Any]) -> None:
        """Begin what is new and give up what is not wanted any more. The lock must be held.

        Replies may come in another order than they were made in: each is taken for what it says of the time from
        which its request was on its way.
        """
        listed = {int(c["seq"]): c for c in reply.get("commands") or ()}
        groups = set(reply.get("groups") or ())
        for command in [c for c in self._commands.values() if c.seq not in listed and number > c.since]:
            self._give_up(command)
        for name, joined in list(self._groups.items()):
            if name not in groups and number > joined.since:
                self._part(name)
        for seq, said in sorted(listed.items()):
            if seq in self._commands or seq in self._outbox or self._outbox.over(seq, number):
                continue
            command = _Command(
                seq, str(said["kind"]), str(said["engine"]), int(said.get("version", -1)),
                str(said.get("rendezvous", "")), str(said.get("group", "")), self._asked,
            )  # fmt: skip
            self._commands[seq] = command
            try:
                self._start(f"headway-sender-{command.engine}", self._carry_out, command)
            except RuntimeError as error:  # the process may have no more threads
                _log.warning("engine %s: %s of version %d cannot begin: %s", command.engine, command.kind,
                             command.version, error)  # fmt: skip
                del self._commands[seq]
                # The poll of now did not know the command, so it is answered at once, and the next one says this.
                self._outbox.put(seq, json.dumps({"seq": seq, "error": f"the sender could not begin: {error}"}))

    def _refused(self, error: errors.HeadwayError) -> None:
        self.error = error
        self._give_all_up()  # nobody wants it of this process any more

    def _give_all_up(self) -> None:
        for command in list(self._commands.values()):
            self._give_up(command)
        for name in list(self._groups):
            self._part(name)
        self._outbox.clear()

    def _give_up(self, command: _Command) -> None:
        command.stop.set()
        self._commands.pop(command.seq, None)
        if command.kind == "send":
            self._part(command.group, sending=True)

    def _part(self, name: str, sending: bool = False) -> None:
        """Leave a group. A thread does, as that waits for what is under way in it. The lock must be held."""
        joined = self._groups.pop(name, None)
        if joined is None:
            return
        for command in self._commands.values():
            if command.kind == "send" and command.group == name:
                command.stop.set()
                sending = True

        def leave(group: Group) -> None:
            try:
                group.part()
            except RuntimeError as error:
                _log.warning("group %s: leaving it failed: %s", name, error)

        try:
            self._start(_PARTING + name, leave, joined.group)
        except RuntimeError as error:
            if self._closing.is_set() and not sending:  # from 3.12 on Python starts no thread while it ends
                leave(joined.group)
                return
            _log.warning("group %s cannot be left now: %s", name, error)
            self._groups[name] = joined  # the next reply that does not name it has it left

    def _start(self, name: str, work: Callable[[Any], None], what: Any) -> None:
        """Begin a thread. The lock must be held."""
        thread = threading.Thread(target=work, args=(what,), name=name, daemon=True)
        thread.start()
        self._threads = [t for t in (*self._threads, thread) if t.is_alive()]

    # Commands, each in a thread of its own

    def _carry_out(self, command: _Command) -> None:
        done: dict[str, Any] = {"seq": command.seq}
        absent = False
        try:
            if command.kind == "hold":
                done |= self._hold(command)
            elif command.kind == "join":
                self._join(command)
            elif command.kind == "send":
                self._send(command)
            else:
                raise errors.Invalid(f"this client knows no command {command.kind!r}: it is older than the server")
        except GivenUp:
            done["error"] = "the group was given up"
        except Exception as error:  # whatever it is, the engine is told, and the trainer goes on
            done["error"] = str(error) or repr(error)
            absent = command.kind == "hold" and isinstance(error, errors.NotFound)
        text = json.dumps(done, separators=(",", ":"))
        with self._lock:
            if self._commands.pop(command.seq, None) is None:  # it was given up
                return
            if "error" in done:
                self._failed(command, done["error"], absent)
            self._outbox.put(command.seq, text)
        # The poll that is under way does not know it; the next one says it where this cannot.
        with contextlib.suppress(errors.HeadwayError, RuntimeError):
            self._ask(0.0, patience_s=0.0)

    def _failed(self, command: _Command, why: str, absent: bool) -> None:
        """Note that a command came to nothing. The lock must be held.

        A version that is nowhere is one that the process before this one had: engines ask for it until they know of
        another, and it is said once what becomes of it.
        """
        if command.kind == "send":
            self._part(command.group)
        if not absent:
            _log.warning("engine %s: %s of version %d failed: %s", command.engine, command.kind, command.version, why)
        elif command.version > self._absent:
            self._absent = command.version
            _log.warning(
                "version %d is neither held here nor stored, as after a restart: engines go on with what they serve "
                "until this trainer publishes, which goes on from the newest stored version (load)", command.version,
            )  # fmt: skip

    def _hold(self, command: _Command) -> dict[str, Any]:
        """What the engine is told of a version, which is promised to it with that."""
        promise = self._promise(command)
        try:
            held = self._shelf.have(command.version)
            promise.digest = held.digest()
        except BaseException:
            self._shelf.release(promise)
            raise
        return {"tensors": held.words(), "digest": promise.digest}

    def _promise(self, command: _Command) -> Promise:
        """Have a version kept for an engine, once there is room for it beside those that others were promised.

        They are all kept until they were sent, beside the newest ones: there are as many of them at most.
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            with self._lock:
                joined = {j.engine for j in self._groups.values()}
            if promise := self._shelf.promise(command.engine, command.version, joined):
                return promise
            if command.stop.wait(0.01):
                raise GivenUp
            if time.monotonic() > deadline:
                raise errors.Busy(
                    f"engines were promised versions {self._shelf.promised} and have not taken them for "
                    f"{self._timeout_s:g} s: there is no room for version {command.version} beside those, "
                    f"with copies={self._copies}"
                )

    def _join(self, command: _Command) -> None:
        with self._lock:
            lingering = sum(t.is_alive() and t.name.startswith(_PARTING) for t in self._threads)
            if lingering >= _LINGERING_MAX:
                raise errors.Busy(
                    f"{lingering} groups were given up and still wait for engines that take nothing, "
                    f"{self._timeout_s:g} s each: see what holds those engines up"
                )
        store = listen()
        host = self._host or own_address(self._transport.url)
        address = f"[{host}]:{store.port}" if ":" in host else f"{host}:{store.port}"
        message = {
            "member": f"sender-{self._instance[:16]}", "role": "trainer", "engines": 1, "ranks": 1,
            "address": address, "backend": self.backend, "epoch": 0, "wait_s": _MEET_S,
        }  # fmt: skip
        met = meet(self._transport, command.rendezvous, message, command.stop)
        name = command.group
        group = Group.join(store, name, met.world_size, self.backend, host, self._timeout_s, command.stop)
        with self._lock:
            wanted = not command.stop.is_set()
            if wanted:
                self._groups[name] = _Joined(group, command.engine, command.since)
        if not wanted:
            group.part()
            raise GivenUp
        _log.info("engine %s has joined group %s, of %d", command.engine, name, met.world_size)

    def _send(self, command: _Command) -> None:
        with self._lock:
            joined = self._groups.get(command.group)
        promise, held = self._shelf.promised_to(command.engine), self._shelf.find(command.version)
        if joined is None:
            raise errors.NotFound(f"this process is in no group {command.group}")
        if promise is None or promise.version != command.version or not promise.digest:
            raise errors.Conflict(f"version {command.version} was not asked for before it is to be sent: load it first")
        # The engine makes ready for what it was told. Under the same number there may be other weights since.
        if held is None or held.digest() != promise.digest:
            what = "is not held any more" if held is None else "has been held anew, with other weights"
            raise errors.Conflict(f"version {command.version} {what} since the engine asked for it: load it again")
        joined.group.broadcast(held, command.stop)
        self._shelf.release(promise)
        _log.debug("engine %s has been sent version %d", command.engine, command.version)


def _at_exit(sender: Sender) -> None:
    """Close it before the interpreter ends: a thread that is in torch's code by then would take the process down.

    That is early, while threads may still be started, as leaving a group needs one. A forked child has the callback
    too, such as a worker of a DataLoader: the sender is not its own, and stays.
    """
    alive, owner = weakref.ref(sender), os.getpid()

    def close() -> None:
        left = alive()
        if left is not None and os.getpid() == owner:
            left.close()

    getattr(threading, "_register_atexit", atexit.register)(close)


def _in_doubt(error: BaseException) -> bool:
    """A publish that ended like this may have been committed all the same."""
    if not isinstance(error, errors.HeadwayError):  # such as an interrupt while it was waited for
        return True
    return error.unanswered or isinstance(error, errors.Unavailable | errors.Internal)
