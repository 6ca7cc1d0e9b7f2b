"""A request to generate: what it asks for, read strictly, and what has become of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .errors import Refusal
from .sampling import Cuts
from .text import Tail

#: Fields of /generate that are read; further ones of SGLang's are refused by name, so that nothing is left out unseen.
FIELDS = (
    "rid", "input_ids", "text", "sampling_params", "return_logprob", "logprob_start_len", "top_logprobs_num",
    "return_text_in_logprobs", "stream", "priority", "session_id", "routing_key", "extra_key", "lora_path",
    "return_routed_experts", "model", "log_metrics", "return_hidden_states", "background", "no_logs", "return_bytes",
    "return_entropy", "token_ids_logprob",
)  # fmt: skip
SAMPLING_FIELDS = (
    "max_new_tokens", "temperature", "top_p", "top_k", "min_p", "stop", "stop_token_ids", "ignore_eos",
    "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim", "n", "frequency_penalty",
    "presence_penalty", "repetition_penalty", "min_new_tokens",
)  # fmt: skip
#: Fields that are accepted only with the value that they have when they are left out.
NEUTRAL = {
    "top_logprobs_num": 0, "return_text_in_logprobs": False, "lora_path": None, "return_routed_experts": False,
    "return_hidden_states": False, "background": False, "return_bytes": False, "return_entropy": False,
    "token_ids_logprob": None,
}  # fmt: skip
NEUTRAL_SAMPLING = {
    "frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1, "min_new_tokens": 0, "n": 1,
    "spaces_between_special_tokens": True,
}  # fmt: skip
#: Fields that change nothing here, and are texts.
LABELS = ("session_id", "routing_key", "extra_key", "model")
#: SGLang's own "all of the vocabulary".
TOP_K_ALL = 1 << 30


@dataclass
class Request:
    """One response under way. The engine alone changes it after it has been submitted."""

    rid: str
    prompt: list[int]
    limit: int
    cuts: Cuts
    stop_tokens: frozenset[int]
    tail: Tail
    stream: bool = False
    logprobs: bool = False
    #: From which prompt token on log-probs are wanted, -1 for none.
    logprob_start: int = -1
    #: Called after every step that changed it, on the server's own thread.
    changed: Callable[[Request], None] = lambda _: None
    output: list[int] = field(default_factory=list)
    output_logprobs: list[float] = field(default_factory=list)
    #: Of the prompt's tokens from logprob_start on; the first has none.
    input_logprobs: list[float | None] = field(default_factory=list)
    #: [label, first token, end] of stretches that one version sampled.
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    finish: dict[str, Any] | None = None
    retractions: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def tokens(self) -> list[int]:
        """Everything that the next token follows."""
        return self.prompt + self.output

    def record(self, token: int, logprob: float, label: str) -> None:
        """Appends a sampled token."""
        at = len(self.output)
        self.output.append(token)
        self.output_logprobs.append(logprob)
        if self.spans and self.spans[-1][0] == label:
            self.spans[-1] = (label, self.spans[-1][1], at + 1)
        else:
            self.spans.append((label, at, at + 1))


def refuse_unknown(given: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    """Names what is not known, and what is."""
    unknown = [name for name in given if name not in known]
    if unknown:
        raise Refusal(f"{where} has no parameter {', '.join(unknown)}; it has {', '.join(known)}")


def refuse_unsupported(given: dict[str, Any], neutral: dict[str, Any]) -> None:
    """Refuses values of fields that are known but do nothing here."""
    for name, value in neutral.items():
        if given.get(name) not in (None, value):
            raise Refusal(f"{name} is {given[name]!r}: this server knows only {value!r}")


def number(given: dict[str, Any], name: str, default: float, low: float, high: float) -> float:
    """A number in a range; null is the default."""
    value = given.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Refusal(f"{name} is {value!r}: want a number")
    if not low <= value <= high:
        raise Refusal(f"{name} is {value}: want {low:g} to {high:g}")
    return value


def integer(given: dict[str, Any], name: str, default: int, low: int, high: int) -> int:
    """A whole number in a range; null is the default."""
    value = number(given, name, default, low, high)
    if value != int(value):
        raise Refusal(f"{name} is {value}: want a whole number")
    return int(value)


def flag(given: dict[str, Any], name: str, default: bool) -> bool:
    """True or false; null is the default."""
    value = given.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise Refusal(f"{name} is {value!r}: want true or false")
    return value


def tokens(value: Any, name: str, vocabulary: int) -> list[int]:
    """Token ids, each of the vocabulary."""
    if not isinstance(value, list) or not all(type(t) is int for t in value):
        raise Refusal(f"{name}: want a list of token ids (of one request: send a batch as requests of their own)")
    outside = [t for t in value if not 0 <= t < vocabulary]
    if outside:
        raise Refusal(f"{name} has {outside[0]}, outside the vocabulary of {vocabulary} tokens (0 to {vocabulary - 1})")
    return value


def texts(value: Any, name: str) -> list[str]:
    """One text or several, none of them empty."""
    if value is None:
        return []
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(s, str) and s for s in found):
        raise Refusal(f"{name}: want a text or a list of texts, none of them empty")
    return found


def read_cuts(given: dict[str, Any]) -> Cuts:
    """How tokens are drawn."""
    top_k = integer(given, "top_k", -1, -1, TOP_K_ALL)
    if top_k == 0:
        raise Refusal("top_k is 0: want -1 for all tokens, or at least 1")
    top_p = number(given, "top_p", 1.0, 0.0, 1.0)
    if top_p == 0.0:
        raise Refusal("top_p is 0: want more, at most 1")
    return Cuts(
        temperature=number(given, "temperature", 1.0, 0.0, 1e6), top_p=top_p,
        top_k=0 if top_k in {-1, TOP_K_ALL} else top_k, min_p=number(given, "min_p", 0.0, 0.0, 1.0),
    )  # fmt: skip
