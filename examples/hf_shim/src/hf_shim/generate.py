"""/generate: a request read strictly, and its answer whole or as a stream."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any

from .errors import Refusal
from .events import Events, whole
from .http import Reply, Stream
from .request import (
    FIELDS,
    LABELS,
    NEUTRAL,
    NEUTRAL_SAMPLING,
    SAMPLING_FIELDS,
    Request,
    flag,
    integer,
    read_cuts,
    refuse_unknown,
    refuse_unsupported,
    texts,
    tokens,
)
from .service import Service
from .text import Tail, Tokenizer

#: What max_new_tokens is when it is left out.
NEW_TOKENS_DEFAULT = 128


class Generate:
    """Answers /generate."""

    def __init__(self, service: Service, tokenizer: Tokenizer | None, incremental: bool) -> None:
        self._service, self._tokenizer, self._incremental = service, tokenizer, incremental
        #: Aborts of clients that went away, kept from being collected.
        self._aborting: set[asyncio.Task[None]] = set()

    async def answer(self, given: dict[str, Any]) -> Reply | Stream:
        """Samples a response, or refuses what cannot be meant."""
        request = self.read(given)
        if not request.stream:
            await self._finished(request, lambda _: None)
            return Reply(whole(request, self._service.engine.label))
        events = Events(request, self._incremental)

        async def begin(write: Callable[[str], None]) -> None:
            engine = self._service.engine

            def changed(_: Request) -> None:
                write(events.next(engine.label, time.monotonic()))

            try:
                await self._finished(request, changed)
            except Refusal as problem:  # the status has been sent: SGLang says it inside the stream
                error = {"message": str(problem), "type": "invalid_request_error", "code": problem.status}
                write(Reply.of({"error": error}).body)
            write("[DONE]")

        return Stream(begin)

    async def _finished(self, request: Request, changed: Callable[[Request], None]) -> None:
        """Waits for the response; a client that goes away aborts it."""
        done = asyncio.get_running_loop().create_future()

        def note(_: Request) -> None:
            changed(request)
            if request.finish is not None and not done.done():
                done.set_result(None)

        request.changed = note
        try:
            await self._service.submit(request)
            await done
        except asyncio.CancelledError:
            request.changed = lambda _: None
            # The gate may be held by a step, and this task is not to wait any more.
            task = asyncio.get_running_loop().create_task(self._service.abort(request.rid, "the client went away"))
            self._aborting.add(task)
            task.add_done_callback(self._aborting.discard)
            raise

    def read(self, given: dict[str, Any]) -> Request:
        """The request that a body asks for."""
        refuse_unknown(given, FIELDS, "/generate")
        refuse_unsupported(given, NEUTRAL)
        for name in LABELS:
            if not isinstance(given.get(name, ""), str | None):
                raise Refusal(f"{name}: want a text")
        sampling = {} if given.get("sampling_params") is None else given["sampling_params"]
        if not isinstance(sampling, dict):
            raise Refusal("sampling_params: want an object")
        refuse_unknown(sampling, SAMPLING_FIELDS, "sampling_params")
        refuse_unsupported(sampling, NEUTRAL_SAMPLING)
        prompt = self._prompt(given)
        logprobs, start = flag(given, "return_logprob", False), integer(given, "logprob_start_len", -1, -1, len(prompt))
        engine = self._service.engine
        room = engine.model.architecture.context - len(prompt)
        if room < 0:
            context = len(prompt) + room
            raise Refusal(f"the prompt has {len(prompt)} tokens, and the context is {context}: send a shorter one")
        limit = integer(sampling, "max_new_tokens", min(NEW_TOKENS_DEFAULT, max(room, 0)), 0, 1 << 31)
        if limit > room:
            raise Refusal(
                f"{len(prompt)} prompt tokens and max_new_tokens {limit} are more than the context of "
                f"{len(prompt) + room} tokens: send at most {max(room, 0)}"
            )
        stops = texts(sampling.get("stop"), "stop")
        if stops and self._tokenizer is None:
            raise Refusal("stop: this server has no tokenizer; send stop_token_ids")
        vocabulary = engine.model.architecture.vocabulary
        stop_tokens = tokens(sampling.get("stop_token_ids") or [], "stop_token_ids", vocabulary)
        ends = frozenset() if flag(sampling, "ignore_eos", False) else engine.ends
        rid = given.get("rid") or uuid.uuid4().hex
        if not isinstance(rid, str):
            raise Refusal("rid: want a text")
        trim, skip = not flag(sampling, "no_stop_trim", False), flag(sampling, "skip_special_tokens", True)
        return Request(
            rid=rid, prompt=prompt, limit=limit, cuts=read_cuts(sampling), stop_tokens=ends | frozenset(stop_tokens),
            tail=Tail(self._tokenizer, stops, skip, trim), stream=flag(given, "stream", False), logprobs=logprobs,
            logprob_start=start if logprobs else -1,
        )  # fmt: skip

    def _prompt(self, given: dict[str, Any]) -> list[int]:
        ids, text = given.get("input_ids"), given.get("text")
        if (ids is None) == (text is None):
            raise Refusal("want either input_ids or text")
        if text is not None:
            if not isinstance(text, str) or self._tokenizer is None:
                raise Refusal("text: want one text, and a server with a tokenizer; send input_ids")
            ids = self._tokenizer.encode(text, special=True)
        prompt = tokens(ids, "input_ids", self._service.engine.model.architecture.vocabulary)
        if not prompt:
            raise Refusal("input_ids is empty: want at least one token to begin with")
        return prompt
