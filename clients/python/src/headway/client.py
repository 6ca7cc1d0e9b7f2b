"""A trainer's connection to a run."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import re
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from . import batch as batches
from . import errors, publication
from .agreement import VAGUE
from .batch import Batch, Leased, Metadata
from .groups import Groups
from .lease import Renewal
from .store import Store
from .tensors import Array
from .transport import Transport

_log = logging.getLogger("headway.client")

_REASON_BYTES_MAX = 4096  # the server's bound
_ASK_S = 0.05  # between two requests for a batch that wait for less
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")


def connect(
    url: str | Sequence[str] = "http://127.0.0.1:7070", token: str | None = None, trainer: str = "trainer",
    rank: int = 0, world_size: int = 1, version: int | None = None, *, patience_s: float = 600.0,
    step_s_max: float | None = None, verify: bool | str = True, prefetch_mb: float | None = None,
    cache: str | Path | None = None,
) -> Client:  # fmt: skip
    """Say that a trainer has started, and learn where the run stands.

    `version` is that of the weights which the trainer holds by its own checkpoint; None if it has none. The
    answer is in `Client.action`: train, load, republish or initialize. Every data-parallel rank connects.
    A lease that this rank held goes back to the queue.

    `patience_s` is how long every call waits for a control plane that does not answer, or is not ready.
    `step_s_max` ends the renewal of a lease after that long, so that a trainer that hangs loses its batch.
    `token` defaults to the environment variable HEADWAY_TOKEN. `verify` is httpx's: a CA file, or False.

    With `prefetch_mb` batches come by reference: their groups are fetched in parallel, and verified. Groups that wait
    to be trained are fetched ahead, up to so many megabytes; with 0 none is. They are kept in memory, or as files in
    the directory `cache`, which the ranks of a node share. Without `prefetch_mb` a batch comes in one piece.
    """
    if not _NAME.match(trainer):
        raise errors.Invalid(f"the trainer's name {trainer!r} cannot be: want 1 to 128 letters, digits, '.', '_', '-'")
    if world_size < 1 or not 0 <= rank < world_size:
        raise errors.Invalid(f"rank {rank} of {world_size} cannot be: want 0 <= rank < world_size")
    if cache is not None and not prefetch_mb:
        raise errors.Invalid(f"cache={str(cache)!r} keeps nothing without prefetch_mb: say how many megabytes")
    transport = Transport(url, token, patience_s=patience_s, verify=verify)
    try:
        groups = None if prefetch_mb is None else Groups(transport, int(prefetch_mb * 1e6), cache)
        client = Client(transport, trainer, rank, world_size, step_s_max, groups)
        client.reconnect(version)
    except BaseException:
        transport.close()
        raise
    return client


class Holder(Protocol):
    """What keeps versions for engines: a sender."""

    def drop(self, version: int) -> None:
        """Forget a version."""


class Client:
    """What `connect` returns. One thread at a time; renewals run beside it. Closes as a context manager."""

    def __init__(
        self, transport: Transport, trainer: str, rank: int, world_size: int, step_s_max: float | None,
        groups: Groups | None = None,
    ) -> None:  # fmt: skip
        self._transport, self.trainer, self.rank, self.world_size = transport, trainer, rank, world_size
        self._store = Store(transport)
        self._step_s_max = step_s_max
        self._groups = groups  # what brings batches by reference
        self._gone: tuple[int, int] = (0, 0)  # a batch of which a group was not there
        self._open: Batch | None = None
        self._awaited: Renewal | None = None  # of a batch whose share is done, until rank 0 has published it
        self._ahead = False  # the weights have been trained on a batch that was not committed
        self._after: tuple[int, int] = (0, 0)
        self._claimed = False  # the version is what this rank expects rank 0 to have published
        self._holders: weakref.WeakSet[Holder] = weakref.WeakSet()
        self._sender_missed = False  # it was said that engines wait for a sender
        self._told: set[str] = set()  # what was said of the forward pass
        self._wrong = False  # it disagreed with the engines', and has not agreed on fresh tokens since
        self._sent = False  # versions went to the engines by a sender: the store has no weights of them
        #: What to do first: "train", "load", "republish" or "initialize".
        self.action = ""
        #: Version of the weights that the trainer holds; −1 for none.
        self.version = -1
        #: The newest committed version when it connected, and the one that the next publish makes.
        self.newest, self.next = -1, 0
        #: The newest version of which this trainer knows that its weights are stored; −1 for none.
        self.stored = -1
        #: The run's name, its resolved settings, and its number of train steps (0: no end).
        self.run = ""
        self.config: dict[str, Any] = {}
        self.steps = 0
        #: Versions that are multiples of it go to the engines; others may be acknowledged without weights.
        self.sync_every = 1
        #: Seconds that a lease lasts without a word.
        self.lease_s = 60.0

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def distributed(self) -> list[str]:
        """Names of the engines that take their weights from a sender (`weights: distributed`), by the run's config.

        Where there are any, rank 0 publishes by a `Sender` of headway.torch.
        """
        engines = [e for e in self.config.get("engines") or () if isinstance(e, dict)]
        return [str(e.get("name", "")) for e in engines if e.get("weights") == "distributed"]

    def close(self) -> None:
        """Stop renewing and free the connections. A batch that is open goes back when its lease runs out."""
        self._drop_open()
        self._transport.close()

    def reconnect(self, version: int | None = None) -> None:
        """Say again what `connect` said: with a new process group, or after going back to a checkpoint."""
        self._drop_open()
        message: dict[str, Any] = {
            "trainer": self.trainer, "version": -1 if version is None else version, "world_size": self.world_size,
        }  # fmt: skip
        if self.rank:
            message["rank"] = self.rank
        reply = self._transport.post("/api/v1/trainers/connect", message)
        self.action, self.newest, self.next = reply["action"], reply["version"], reply["next"]
        self.stored = self._load_version = int(reply.get("load", self.newest))
        self.run, self.steps = reply.get("run", ""), reply.get("steps", 0)
        self.sync_every, self.lease_s = reply.get("sync_every", 1), reply.get("lease_s", 60.0)
        text = reply.get("config") or "{}"
        try:
            self.config = json.loads(text)
        except (ValueError, RecursionError):
            self.config = {"text": text}
        self.version = self.newest if self.action == "train" else -1 if version is None else version
        self._ahead, self._after, self._claimed = False, (0, 0), False

    def attach(self, sender: Holder) -> None:
        """Have a sender forget what it holds under the number of a version that a restore makes anew.

        A publish that was not answered may leave one there that has not become the run's. `Sender.publish` sees to it;
        whoever calls its halves, `hold` and `publish(rendezvous=)`, calls this once before. `load` may restore, too.
        """
        self._holders.add(sender)

    # Versions

    def load(self) -> dict[str, Array]:
        """The weights that the trainer is to go on from: the newest version's. `optimizer` has its state.

        Needed where `action` is "load", and after `LeaseExpired`.
        """
        if self.newest < 0:
            raise errors.NotFound("nothing is published yet: make version 0 and publish it (action is 'initialize')")
        if (self.sync_every > 1 or self._sent) and self.action == "train":  # the newest version may have no weights
            if self.rank == 0:
                self.reconnect()
            else:
                self._await_weights()
        if self._load_version < self.newest and self.version < self.newest and not self._ahead:
            return self._load_skipped()
        found = self.weights()
        self.action = "train"
        return found

    def _await_weights(self) -> None:
        """Wait until rank 0 has made a version of the last one that has weights."""
        deadline, newest = time.monotonic() + self._transport.patience_s, self.newest
        while time.monotonic() < deadline and not self._transport.stopped.wait(0.1):
            newest = int(self.state()["version"])
            try:
                self.state(newest + 1)
            except errors.NotFound:
                return
        raise errors.Unavailable(
            f"versions after {newest} have no weights, and rank 0 did not go on from that one within "
            f"{self._transport.patience_s:g} s: have rank 0 load() or restore()"
        )

    def _load_skipped(self) -> dict[str, Array]:
        """Versions since `_load_version` had no weights: go on from it, as the next version."""
        older = self._load_version
        found = self.weights(older)
        optimizer = self.optimizer(older)
        try:
            if self.rank:  # no batch comes before rank 0 has sent it
                self._hold_restored(self.newest + 1)
            else:
                self.restore(older, found, optimizer=optimizer or None)
        except errors.RunEnded:  # nothing follows from it, as `batches` finds out
            self.version, self.action = older, "train"
        return found

    def weights(self, version: int | str = "latest") -> dict[str, Array]:
        """A version's model tensors by name. With "latest" the trainer now holds that version."""
        number, found = self._store.model(version)
        if version == "latest":
            if number < self.version:  # the batch that this rank has finished its share of is lost
                self._after = (0, 0)
                self._await(None)
            self.version = self.newest = self.stored = number
            self.next = number + 1
            self._ahead = self._claimed = False
        return found

    def optimizer(self, version: int | None = None) -> dict[str, Array]:
        """The optimizer's tensors of a version (the one the trainer holds); empty where it has none.

        Version 0 of an embedded model has the state of Headway's own trainer: `adam.mean` and `adam.variance`.
        """
        if version is None and self.version < 0:
            raise errors.Invalid("no version is held yet whose optimizer could be had: load() first, or name a version")
        return self._store.optimizer(self.version if version is None else version)

    def state(self, version: int | str = "latest") -> dict[str, Any]:
        """A version's manifest, where it is, and which engines serve it."""
        return self._store.state(version)

    def download(self, directory: str | Path, version: int | str = "latest") -> int:
        """Put a version's files in a directory, one after the other and as they come; return its number."""
        return self._store.download(directory, version)

    # Batches

    def batches(self, kind: str = "train", *, wait_s: float = 20.0) -> Iterator[Batch]:
        """Lease batches until the run has ended. Each must be published, acked or nacked before the next.

        A loop that is left early, by an exception say, gives its batch back at once.
        """
        if kind not in ("train", "validation"):
            raise errors.Invalid(f"batches of kind {kind!r} cannot be: want train or validation")
        try:
            while True:
                try:
                    found = self.lease(wait_s) if kind == "train" else self._lease(kind, wait_s)
                except errors.RunEnded:
                    return
                if found is not None:
                    yield found
        finally:
            if kind == "train":
                self._give_back()

    def lease(self, wait_s: float = 20.0) -> Batch:
        """The next batch, for loops of another form than `batches`; RunEnded when there will be none.

        It asks on and on, each time for `wait_s`, however long no batch is full.
        """
        while True:
            if self._open is not None and not self._open._done:
                raise errors.Invalid(f"batch {self._open.lease} was neither published, acked nor nacked")
            found = self._lease("train", wait_s)
            if found is not None:
                return found

    def validation(self, prompts: int = 0) -> Batch:
        """Held-out prompts, answered greedily by the newest served version. 0 prompts: as many as the run says."""
        deadline = time.monotonic() + self._transport.patience_s
        while time.monotonic() < deadline:
            found = self._lease("validation", 20.0, prompts)
            if found is not None:
                return found
        raise errors.Unavailable(
            f"no validation batch within {self._transport.patience_s:g} s (patience_s): `headway status` says what "
            "engines and workers do"
        )

    def _lease(self, kind: str, wait_s: float, prompts: int = 0) -> Batch | None:
        if kind == "train":
            self._check_held()
        message: dict[str, Any] = {"trainer": self.trainer, "wait_s": wait_s}
        if kind != "train":
            message["kind"] = kind
            if prompts:
                message["prompts"] = prompts
        else:
            if self.world_size > 1:
                message |= {"rank": self.rank, "world_size": self.world_size}
            if self._after[0]:
                message |= {"after": self._after[0], "after_attempt": self._after[1]}
            if self._groups is not None:
                self._groups.begin()
                message["form"] = "references"
        try:
            response = self._transport.call("POST", "/api/v1/batches/lease", message=message, timeout_s=wait_s + 30.0)
        except errors.Conflict as error:
            if self.rank and "next" in error.detail:  # rank 0 has to publish what it went back to first
                self._transport.stopped.wait(0.2)
                return None
            raise
        if response.status_code == 204:
            self._look_for_sender()
            if wait_s < _ASK_S:
                self._transport.stopped.wait(_ASK_S)
            return None
        if kind != "train":
            return batches.parse(response.content)
        return self._taken(Leased.read(response.content, by_reference=self._groups is not None))

    def _taken(self, leased: Leased) -> Batch | None:
        """Keep a lease, and bring its batch; None where there is none for now."""
        lease, attempt, version = leased.metadata.lease, leased.metadata.attempt, leased.metadata.version
        if (lease, attempt) == self._after:
            self._transport.stopped.wait(0.05)  # another rank's publish is on its way
            return None
        self._await(None)
        if self.version >= 0 and (version != self.version or (self._claimed and self._went_back())):
            raise self._apart(leased.metadata)
        self._claimed = False
        renew = {"trainer": self.trainer, "attempt": attempt, "rank": self.rank}
        renewal = Renewal(self._transport, lease, renew, leased.metadata.deadline_s, self._step_s_max)
        found = leased.batch if leased.batch is not None else self._gather(leased, renewal)
        if found is None:
            return None
        found._held_version = self.version if self.version >= 0 else found.version
        found._renewal = renewal
        share = {**renew, "world_size": self.world_size}
        found._fetch = functools.partial(self._fetch_part, found.lease, share)
        self._open = found
        return found

    def _gather(self, leased: Leased, renewal: Renewal) -> Batch | None:
        """A batch of the groups that its lease names. None where one is gone: the lease is lost then."""
        assert self._groups is not None
        name = (leased.metadata.lease, leased.metadata.attempt)
        try:
            return batches.pack(leased, self._groups.bodies(leased.references))
        except BaseException as error:
            renewal.stop()
            if isinstance(error, errors.NotFound) and self._gone != name:
                self._gone = name
                return None
            with contextlib.suppress(errors.HeadwayError, RuntimeError):
                message = {"trainer": self.trainer, "attempt": name[1], "reason": "its groups did not come whole"}
                self._transport.post(f"/api/v1/batches/{name[0]}/nack", {**message, "failed": False}, patience_s=1.0)
            raise

    def _fetch_part(self, lease: int, message: Mapping[str, Any], kind: str, name: str) -> bytes:
        path = f"/api/v1/batches/{lease}/{kind}/{name}"
        return self._transport.call("POST", path, message=message).content

    def _look_for_sender(self) -> None:
        """Say once why there is no batch, where engines wait for weights from a sender and none is there."""
        if self.rank or self._sender_missed or not self.distributed:
            return
        try:
            sender = self._transport.get("/api/v1/status", patience_s=0.0).get("sender") or {}
        except errors.HeadwayError:
            return
        if sender.get("state") == "serving" or not sender.get("waiting"):
            return
        self._sender_missed = True
        who = "none is there"
        if sender.get("name"):
            who = f"{sender['name']} was last heard of {sender.get('silent_s', 0):.0f} s ago"
        _log.warning(
            "no batch comes: %s of run %s take their weights from a sender (engines.*.weights: distributed), and %s. "
            "Publish by headway.torch.Sender(url).publish(hw, batch, …) here, or set engines.*.weights to disk",
            ", ".join(sender["waiting"]), self.run, who,
        )  # fmt: skip

    def _went_back(self) -> bool:
        """The version that rank 0 was to publish is another: an earlier one's state."""
        try:
            return self.state(self.version)["manifest"].get("restored_from") is not None
        except errors.NotFound:  # it was pruned: all is well since
            return False

    def _apart(self, found: Metadata) -> errors.Conflict:
        """What is wrong where a batch starts from another version than this rank holds."""
        message = f"batch {found.lease} starts from version {found.version}, and this trainer holds {self.version}: "
        if self.rank == 0:
            message += "load() the newest version, or restore() the one it holds"
        else:
            self._ahead = True  # what it holds is nobody's version
            message += f"rank {self.rank} is not where rank 0 is, whose publish was lost, or who went back: load()"
        return errors.Conflict(message, detail={"batch": found.version, "held": self.version})

    def _check_held(self) -> None:
        if self._ahead:
            raise errors.Conflict(
                f"the last batch was not committed, so this trainer's weights are ahead of version {self.newest}: "
                "load() before the next batch"
            )
        if self.version < 0 and self.action != "train":
            raise errors.Conflict(f"this trainer has no weights of the run yet: {self.action} first")

    def _give_back(self) -> None:
        left, self._open = self._open, None
        if left is None or left._done:
            return
        if left._renewal is not None:
            left._renewal.stop()
        with contextlib.suppress(errors.HeadwayError, RuntimeError):
            self._nack(left, "the trainer left its loop", failed=False, patience_s=1.0)

    def _drop_open(self) -> None:
        if self._open is not None and self._open._renewal is not None:
            self._open._renewal.stop()
        self._open = None
        self._await(None)

    def _await(self, renewal: Renewal | None) -> None:
        """Keep the lease of a batch that rank 0 has still to publish; None: it has ended, or is lost."""
        before, self._awaited = self._awaited, renewal
        if before is not None and before is not renewal:
            before.stop()

    def _end(self, done: Batch, committed: int | None) -> None:
        done._done = True
        if self._groups is not None:
            self._groups.drop(done._references)
        if done._renewal is not None:
            if self.rank and committed is not None:
                done._renewal.finish()
                self._await(done._renewal)
            else:
                done._renewal.stop()
        if self._open is done:
            self._open = None
        if committed is not None:
            self.version = self.newest = committed
            self.next = committed + 1
            self.action = "train"
            self._after = (done.lease, done.attempt)
            self._claimed = self.rank > 0

    # Ends of a train step

    def publish(
        self, batch: Batch | None = None, state_dict: Mapping[str, Any] | None = None, *,
        weights_dir: str | Path | None = None, optimizer: Mapping[str, Any] | None = None,
        rendezvous: str | None = None, metrics: Mapping[str, float] | None = None,
    ) -> int:  # fmt: skip
        """Publish what training the batch made as the next version, and acknowledge the batch with it.

        The weights come as arrays by name (numpy, torch or jax), or lie as safetensors in `weights_dir` on a
        disk that the server shares (an adapter's with its `adapter_config.json`, as peft saves it), or are held
        for the engines by the sender called `rendezvous`: then they are
        not stored, and a trainer that is restarted goes on from the newest version before that is (`Sender.publish` of
        headway.torch sees to both). `optimizer` is the trainer's own state, arrays by name: engines never load it, a
        restarted trainer does. Returns the version. Ranks above 0 send nothing. Without a batch it makes version 0
        (action "initialize").
        """
        for name, given in (("state_dict", state_dict), ("optimizer", optimizer), ("metrics", metrics)):
            if given is not None and not isinstance(given, Mapping):
                raise errors.Invalid(f"{name} is a {type(given).__name__}: want a mapping, each by its name")
        if sum(x is not None for x in (state_dict, weights_dir, rendezvous)) != 1:
            raise errors.Invalid("publish wants one of state_dict, weights_dir and rendezvous")
        if batch is None and self.next != 0:
            raise errors.Invalid(
                f"publish wants the batch that version {self.next} was trained on; to go back, restore()"
            )
        self._check_open(batch)
        version = 0 if batch is None else batch.version + 1
        self._sent = self._sent or rendezvous is not None
        if self.rank:
            if batch is not None:
                self._end(batch, version)
            else:
                self.version, self.newest, self.next, self.action, self._claimed = 0, 0, 1, "train", True
            return version
        manifest = self._manifest(version, batch, metrics)
        try:
            reply = publication.send(
                self._transport, manifest, state_dict=state_dict, weights_dir=weights_dir, rendezvous=rendezvous,
                optimizer=optimizer,
            )  # fmt: skip
        except (errors.LeaseExpired, errors.Conflict):
            self._lost(batch)
            raise
        committed = int(reply["version"])
        if rendezvous is None:
            self.stored = committed
        if batch is None:
            self.version, self.newest, self.next, self.action = committed, committed, committed + 1, "train"
        else:
            self._end(batch, committed)
        return committed

    def ack(self, batch: Batch, metrics: Mapping[str, float] | None = None) -> int:
        """End a train step without weights, where its version is not one that goes to the engines."""
        self._check_open(batch)
        if self.rank:
            self._end(batch, batch.version + 1)
            return batch.version + 1
        if (batch.version + 1) % self.sync_every == 0:
            raise errors.Conflict(
                f"version {batch.version + 1} goes to the engines (every {self.sync_every}), which need its weights: "
                "publish the batch instead",
                detail={"version": batch.version + 1, "sync_every": self.sync_every},
            )
        message = {
            "trainer": self.trainer, "attempt": batch.attempt, **publication.stamps(batch),
            **publication.measured(self._compared(batch, metrics)),
        }  # fmt: skip
        try:
            reply = self._transport.post(f"/api/v1/batches/{batch.lease}/ack", message)
        except (errors.LeaseExpired, errors.Conflict):
            self._lost(batch)
            raise
        self._end(batch, int(reply["version"]))
        return int(reply["version"])

    def nack(self, batch: Batch, reason: str = "", *, failed: bool = False) -> None:
        """Give a batch back untrained. `failed` counts it as a failed attempt of the step.

        A batch that was lost meanwhile is no error: it is back already. Several ranks decide a nack together: one that
        has published or acknowledged its share waits for the version, until the lease is over.
        """
        self._check_open(batch)
        with contextlib.suppress(errors.LeaseExpired):
            self._nack(batch, reason, failed)
        self._end(batch, None)

    def restore(
        self, version: int, state_dict: Mapping[str, Any], *, optimizer: Mapping[str, Any] | None = None
    ) -> int:
        """Go on from an earlier version's state, which the trainer holds: publish it as the next version.

        All ranks call it. Rank 0 sends, and the others wait until it has.
        """
        if self.rank:
            return self._hold_restored(self._await_restored(version))
        made = self.newest + 1
        message = {**self._manifest(made, None, None), "restored_from": version}
        for holder in list(self._holders):  # before engines may be told that there is one of this number
            holder.drop(made)
        reply = publication.send(self._transport, message, state_dict=state_dict, optimizer=optimizer)
        return self._hold_restored(int(reply["version"]))

    def _hold_restored(self, made: int) -> int:
        """Hold the version that was made of an earlier one's state."""
        self.version = self.newest = self.stored = made
        self.next, self.action, self._ahead, self._claimed = made + 1, "train", False, False
        return made

    def _await_restored(self, older: int) -> int:
        """Wait until rank 0 has made a version of an earlier one's state: up to then batches start from the newest.

        Where this rank connected after that, it is the newest.
        """
        deadline, after = time.monotonic() + self._transport.patience_s, self.newest + 1
        first = after if self.version == self.newest else self.newest
        while time.monotonic() < deadline and not self._transport.stopped.wait(0.1):
            for made in range(first, after + 1):
                try:
                    found = self.state(made)["manifest"].get("restored_from")
                except errors.NotFound:
                    continue
                if found == older:
                    return made
                if made == after:
                    raise errors.Conflict(f"version {made} is not made of version {older}: load() the newest version")
        raise errors.Unavailable(
            f"rank 0 did not go back to version {older} within {self._transport.patience_s:g} s: have it restore()"
        )

    def _nack(self, batch: Batch, reason: str, failed: bool, patience_s: float | None = None) -> None:
        reason = reason.encode(errors="replace")[:_REASON_BYTES_MAX].decode(errors="ignore")
        message = {"trainer": self.trainer, "attempt": batch.attempt, "reason": reason, "failed": failed}
        self._transport.post(f"/api/v1/batches/{batch.lease}/nack", message, patience_s=patience_s)

    def _lost(self, batch: Batch | None) -> None:
        self._ahead = True
        if batch is not None:
            self._end(batch, None)

    def _check_open(self, batch: Batch | None) -> None:
        if batch is None:
            return
        if not isinstance(batch, Batch):
            raise errors.Invalid(f"{batch!r:.200} is no batch: want what batches() or lease() gave")
        if batch.metadata.kind != "train":
            raise errors.Invalid(f"a batch of kind {batch.metadata.kind} is judged by, not trained on")
        if batch._done:
            raise errors.Invalid(f"batch {batch.lease} has been published, acked or nacked already")

    def _manifest(self, version: int, batch: Batch | None, metrics: Mapping[str, float] | None) -> dict[str, Any]:
        lease, attempt = (batch.lease, batch.attempt) if batch is not None else (0, 0)
        return {
            "trainer": self.trainer, "lease": lease, "attempt": attempt, "version": version, "kind": "full",
            "base_version": -1, **publication.stamps(batch),
            **publication.measured(self._compared(batch, metrics)),
        }  # fmt: skip

    def _compared(self, batch: Batch | None, metrics: Mapping[str, float] | None) -> Mapping[str, float] | None:
        """A step's metrics with what was found of its forward pass, which is said where it is new."""
        if batch is None:
            return metrics
        found = batch._agreement
        if found is None and not self._told:
            self._tell("none", "the trainer's log-probs are not compared with the engines', so that a wrong forward "
                       "pass goes unnoticed: call batch.compare(log_probs) before each step")  # fmt: skip
        if found is None:
            return metrics
        figures = found.metrics()
        if found.agrees is False:
            if found.cause not in VAGUE or not self._wrong:
                message = f"version {batch.version}: trainer and engines do not compute the same: {found}"
                self._tell(found.cause, message)
            self._wrong = True
        elif found.agrees and found.lag and self._wrong:  # a wrong pass of small differences looks like that, too
            figures.pop("forward/agrees")
        elif found.agrees:
            self._told, self._wrong = {"agreed"}, False
        return {**figures, **(metrics or {})}

    def _tell(self, what: str, message: str) -> None:
        if what not in self._told:
            self._told.add(what)
            _log.warning("%s", message)


__all__ = ["Client", "connect"]
