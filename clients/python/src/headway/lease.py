"""A lease that is kept by a thread while its batch is trained on."""

from __future__ import annotations

import logging
import threading
import time

from . import errors
from .transport import Transport

_log = logging.getLogger("headway.lease")


class Renewal:
    """Renews one lease until it is stopped, lost, or kept for longer than a step may take.

    The thread is a daemon: a trainer that dies stops renewing, and its batch goes back. A server that does
    not answer is asked on and on: it may have been restarted with the lease still ours.
    """

    def __init__(
        self, transport: Transport, lease: int, message: dict[str, object], deadline_s: float,
        longest_s: float | None = None,
    ) -> None:  # fmt: skip
        self._transport, self._path, self._message = transport, f"/api/v1/batches/{lease}/renew", message
        self._lease, self._deadline_s, self._longest_s = lease, deadline_s, longest_s
        self._stop = threading.Event()
        self._finished = False
        #: Set once the lease is lost.
        self.lost = threading.Event()
        #: What the server said when it was.
        self.error: errors.HeadwayError | None = None
        self._thread = threading.Thread(target=self._run, name=f"headway-lease-{lease}", daemon=True)
        self._thread.start()

    @property
    def expired(self) -> bool:
        """The server has said that the lease is lost."""
        return self.lost.is_set()

    def finish(self) -> None:
        """This rank's share is done. The lease is kept until its step has ended, which is no loss any more."""
        self._finished = True

    def stop(self) -> None:
        """End the renewals. It may be called again."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(max(self._deadline_s / 3, 0.02)):
            if self._longest_s is not None and time.monotonic() - began > self._longest_s:
                _log.warning("lease %d has been kept for %g s, the longest that a step may take (step_s_max): it is "
                             "renewed no more, and its batch goes back", self._lease, self._longest_s)  # fmt: skip
                return
            try:
                reply = self._transport.post(
                    self._path, self._message, patience_s=self._deadline_s, timeout_s=max(self._deadline_s / 3, 1.0),
                    stop=self._stop,
                )  # fmt: skip
                self._deadline_s = float(reply.get("deadline_s", self._deadline_s))
            except (errors.Unavailable, errors.Busy, errors.DiskFull, errors.Internal):
                continue
            except errors.HeadwayError as error:
                if not self._stop.is_set() and not self._finished:
                    self.error = error
                    self.lost.set()
                return
            except RuntimeError:  # the connection pool was closed
                return
