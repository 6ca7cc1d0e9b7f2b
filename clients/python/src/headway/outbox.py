"""What a sender has still to say of the commands that it has carried out."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from . import errors

_log = logging.getLogger("headway.sender")

#: How much one request says of commands that were carried out: a model's list of tensors may be megabytes long.
_TOLD_BYTES = 4 << 20
#: What is said of a command that failed is about as long.
_SHORT_BYTES = 4 << 10
#: Commands that were carried out, and that a reply on its way may still name.
_OVER_MAX = 1024


class Outbox:
    """How commands ended, as JSON by their number, until the control plane has been told. For one thread at a time."""

    def __init__(self, sender: str) -> None:
        self._sender = sender
        self._waiting: dict[int, str] = {}  # what the plane has not been told, or not answered
        self._bytes_max = _TOLD_BYTES  # of one request, less where that was too large
        self._over: dict[int, int] = {}  # what it has been told, with the number of requests by then

    def __contains__(self, seq: int) -> bool:
        return seq in self._waiting

    def put(self, seq: int, done: str) -> None:
        """A command has ended, and `done` says how."""
        self._waiting[seq] = done

    def clear(self) -> None:
        """Nobody wants to know any more."""
        self._waiting.clear()

    def load(self) -> tuple[dict[int, str], bool]:
        """What goes into one request, one ending at least, and whether there is more."""
        told: dict[int, str] = {}
        size = 0
        for seq, done in self._waiting.items():
            size += len(done)
            if told and size > self._bytes_max:
                return told, True
            told[seq] = done
        return told, False

    def answered(self, told: Mapping[int, str], requests: int) -> None:
        """A request that said it was answered, when so many had been made."""
        for seq, done in told.items():
            if self._waiting.get(seq) is done:
                del self._waiting[seq]
                self._over[seq] = requests
        while len(self._over) > _OVER_MAX:
            del self._over[next(iter(self._over))]

    def over(self, seq: int, request: int) -> bool:
        """The plane had not been told yet how the command ended when that request was made."""
        return request <= self._over.get(seq, -1)

    def say_less(self, told: Mapping[int, str], error: errors.TooLarge) -> bool:
        """What one request said is too large for who takes it: say half, or why a single one cannot be said.

        False where neither helps, as what is done is not what is large.
        """
        size = sum(map(len, told.values()))
        if len(told) > 1:
            self._bytes_max = size // 2
            return True
        if size <= _SHORT_BYTES:
            return False
        for seq, done in told.items():
            _log.warning("sender %s: what was done of command %d cannot be said: %s", self._sender, seq, error)
            if self._waiting.get(seq) is done:
                why = f"what it answers, {size} bytes, is refused: {error.message:.500}"
                self._waiting[seq] = json.dumps({"seq": seq, "error": why})
        return True
