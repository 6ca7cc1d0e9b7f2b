"""A response in SGLang's words: whole, or as events that repeat or extend each other."""

from __future__ import annotations

import json
import time
from typing import Any

from .request import Request


def compact(value: Any) -> str:
    """JSON without spaces, as SGLang writes it."""
    return json.dumps(value, separators=(",", ":"))


class Events:
    """Writes one request's events. What was written once is kept as text, so that an event is a few joins."""

    def __init__(self, request: Request, incremental: bool) -> None:
        self._request, self._incremental = request, incremental
        self._head = f'"id":{compact(request.rid)},"finish_reason":'
        self._ids, self._logprobs = "", ""
        self._tokens = self._shown = 0

    def next(self, label: str, now: float) -> str:
        """The JSON of what has changed, or of everything, as the mode has it."""
        r = self._request
        shown = len(r.tail.text) if r.finish is not None else r.tail.shown
        ids = "".join(f",{t}" for t in r.output[self._tokens :])
        logprobs = ""
        if r.logprobs:
            new = zip(r.output_logprobs[self._tokens :], r.output[self._tokens :], strict=True)
            logprobs = "".join(f",[{p!r},{t},null]" for p, t in new)
        if self._incremental:
            text = r.tail.text[self._shown : shown]
        else:
            text = r.tail.text[:shown]
            self._ids, self._logprobs = self._ids + ids, self._logprobs + logprobs
            ids, logprobs = self._ids, self._logprobs
        self._tokens, self._shown = len(r.output), shown
        return (
            f'{{"text":{compact(text)},"output_ids":[{ids[1:]}],"meta_info":{{{self._head}'
            f'{compact(r.finish)},"prompt_tokens":{len(r.prompt)},"weight_version":{compact(label)},'
            f'"num_retractions":{r.retractions},{self._asked(logprobs)}"reasoning_tokens":0,'
            f'"completion_tokens":{len(r.output)},"cached_tokens":0{self._end(now)}}}}}'
        )

    def _asked(self, logprobs: str) -> str:
        """The log-probs, where they are asked for."""
        r = self._request
        if not r.logprobs:
            return ""
        inputs: list[Any] = []
        if r.logprob_start >= 0:
            inputs = [[p, t, None] for p, t in zip(r.input_logprobs, r.prompt[r.logprob_start :], strict=False)]
        return (
            f'"input_token_logprobs":{compact(inputs)},"output_token_logprobs":[{logprobs[1:]}],'
            f'"output_token_logprobs_length":{len(r.output)},'
        )

    def _end(self, now: float) -> str:
        """What only the last event says."""
        r = self._request
        if r.finish is None:
            return ""
        spans = [{"version": label, "start": start, "end": end} for label, start, end in r.spans]
        return f',"weight_versions":{compact(spans)},"e2e_latency":{now - r.started!r}'


def whole(request: Request, label: str) -> str:
    """The reply to a request that is not streamed."""
    return Events(request, incremental=False).next(label, time.monotonic())
