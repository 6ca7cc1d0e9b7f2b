"""What the server refuses, and what ends it."""

from __future__ import annotations


class Refusal(Exception):
    """A request that cannot be meant; its message says what was expected. The HTTP status goes with it."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Lost(Exception):
    """The engine is lost, and with it the server: what is under way gets no answer."""
