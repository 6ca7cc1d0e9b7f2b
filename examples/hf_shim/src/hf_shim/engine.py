"""Continuous batching: requests wait for a row of the cache, take part in every step, and leave it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import torch

from .errors import Refusal
from .model import Cache, Model
from .request import Request
from .sampling import Sampler

#: Padded tokens that one prefill takes in at once: it bounds memory and how long others wait.
PREFILL_TOKENS = 4096
#: Steps that the log keeps.
STEPS_LOGGED = 1 << 16

#: Modes of a pause: what becomes of requests under way.
PAUSES = ("abort", "retract", "in_place")


class Engine:
    """Requests, weights and the cache. It is used by one thread at a time; between two steps anything may change."""

    def __init__(
        self, model: Model, *, rows: int, ends: frozenset[int], seed: int = 0, logprobs: str = "sampled",
        label: str = "default", log_steps: bool = False,
    ) -> None:  # fmt: skip
        self.model, self.rows, self.ends = model, rows, ends
        self.label = label
        self.waiting: deque[Request] = deque()
        #: Row i of the cache is the i-th of these.
        self.running: list[Request] = []
        self.paused: str | None = None
        self.sampled_tokens = self.prompt_tokens = self.updates = 0
        #: (weight version, rids that got a token) of every step, where it is asked for.
        self.steps: deque[tuple[str, list[str]]] | None = deque(maxlen=STEPS_LOGGED) if log_steps else None
        self._cache = Cache(model, rows)
        self._sampler = Sampler(seed, logprobs, model.device)

    @property
    def idle(self) -> bool:
        """No request is under way."""
        return not self.running and not self.waiting

    @property
    def ready(self) -> bool:
        """A step would do something."""
        return self.paused is None and not self.idle

    @property
    def usage(self) -> float:
        """The share of the cache that is in use."""
        held = sum(len(r.prompt) + len(r.output) for r in self.running)
        return held / (self.rows * self.model.architecture.context)

    def submit(self, request: Request) -> None:
        """Queues a request."""
        self.waiting.append(request)

    def step(self) -> list[Request]:
        """Takes waiting requests in, or samples a token for each running one; returns those that changed."""
        return self._prefill() if self.waiting and len(self.running) < self.rows else self._decode()

    def _prefill(self) -> list[Request]:
        batch: list[Request] = []
        longest = 0
        while self.waiting and len(self.running) + len(batch) < self.rows:
            longest = max(longest, len(self.waiting[0].tokens))
            if batch and longest * (len(batch) + 1) > PREFILL_TOKENS:
                break
            batch.append(self.waiting.popleft())
        first = len(self.running)
        self.running += batch
        self.prompt_tokens += sum(len(r.tokens) for r in batch)
        return self._sample(batch, self._read(first, batch, longest))

    @torch.no_grad()
    def _read(self, first_row: int, batch: list[Request], longest: int) -> torch.Tensor:
        """Takes the tokens of new rows in, in pieces, and returns the last hidden state of each."""
        device = self.model.device
        sequences = [r.tokens for r in batch]
        padded = torch.tensor([s + [0] * (longest - len(s)) for s in sequences], device=device)
        last = torch.tensor([len(s) - 1 for s in sequences], device=device)
        final = torch.zeros((len(batch), self.model.architecture.width), dtype=self.model.dtype, device=device)
        width = max(1, PREFILL_TOKENS // len(batch))
        for start in range(0, longest, width):
            piece = padded[:, start : start + width]
            positions = torch.arange(start, start + piece.shape[1], device=device).expand(len(batch), -1)
            hidden = self.model.forward(self._cache, first_row, piece, positions)
            ends_here = (last >= start) & (last < start + width)
            final[ends_here] = hidden[ends_here, last[ends_here] - start]
            for i, request in enumerate(batch):
                if request.logprob_start >= 0 and not request.output:
                    self._score(request, hidden[i], start)
        return final

    def _score(self, request: Request, hidden: torch.Tensor, start: int) -> None:
        """Notes the log-probs of the prompt's tokens that the hidden states from start on predict."""
        have = request.logprob_start + len(request.input_logprobs)
        if not request.input_logprobs and request.logprob_start < len(request.prompt):
            request.input_logprobs.append(None)
            have += 1
        until = min(start + hidden.shape[0] + 1, len(request.prompt))
        if have >= until:
            return
        targets = torch.tensor(request.prompt[have:until], device=self.model.device)
        logits = self.model.logits(hidden[have - 1 - start : until - 1 - start])
        scores = torch.log_softmax(logits, dim=-1).gather(-1, targets[:, None])
        request.input_logprobs += scores.squeeze(-1).tolist()

    @torch.no_grad()
    def _decode(self) -> list[Request]:
        device = self.model.device
        tokens = torch.tensor([[r.output[-1]] for r in self.running], device=device)
        positions = torch.tensor([[len(r.prompt) + len(r.output) - 1] for r in self.running], device=device)
        return self._sample(list(self.running), self.model.forward(self._cache, 0, tokens, positions)[:, 0])

    def _sample(self, batch: list[Request], hidden: torch.Tensor) -> list[Request]:
        """Samples a token for each request of a batch from its last hidden state."""
        tokens, logprobs = self._sampler.draw(self.model.logits(hidden), [r.cuts for r in batch])
        sampled = []
        for request, token, logprob in zip(batch, tokens, logprobs, strict=True):
            if request.limit == 0:
                request.finish = {"type": "length", "length": 0}
                continue
            request.record(token, logprob, self.label)
            sampled.append(request.rid)
            self._finish(request, token)
        self.sampled_tokens += len(sampled)
        if self.steps is not None:
            self.steps.append((self.label, sampled))
        self._leave()
        return batch

    def _finish(self, request: Request, token: int) -> None:
        """Ends a response that its newest token completes."""
        if token in request.stop_tokens:
            request.finish = {"type": "stop", "matched": token}
            return
        request.tail.add(token)
        if request.tail.stop is not None:
            request.finish = {"type": "stop", "matched": request.tail.stop}
        elif len(request.output) >= request.limit:
            request.finish = {"type": "length", "length": len(request.output)}

    def _leave(self) -> None:
        """Takes finished requests out; the last row moves into the place of each."""
        for row in range(len(self.running) - 1, -1, -1):
            if self.running[row].finish is None:
                continue
            last = self.running.pop()
            if row < len(self.running):
                self.running[row] = last
                self._cache.move(len(self.running), row, len(last.prompt) + len(last.output))

    def abort(self, prefix: str | None, message: str = "Abort in waiting queue") -> list[Request]:
        """Ends the requests whose rid begins with a prefix, None for all, with what there is of them."""
        hit = [r for r in (*self.running, *self.waiting) if prefix is None or r.rid.startswith(prefix)]
        for request in hit:
            request.finish = {"type": "abort", "message": message, "status_code": None, "err_type": None}
        self.waiting = deque(r for r in self.waiting if r.finish is None)
        self._leave()
        return hit

    def pause(self, mode: str) -> list[Request]:
        """Stands still until resume; returns the requests that it ended."""
        if mode not in PAUSES:
            raise Refusal(f"the mode {mode!r} is not known; known are {', '.join(PAUSES)}")
        ended = []
        if mode == "abort":
            ended = self.abort(None, "Aborted by a pause")
        elif mode == "retract":
            for request in self.running:
                request.retractions += 1
            self.waiting.extendleft(reversed(self.running))
            self.running = []
        self.paused = mode
        return ended

    def resume(self) -> None:
        """Goes on after a pause."""
        self.paused = None

    def check_flush(self) -> None:
        """Refuses to drop the cache while running requests stand in it."""
        if self.running or (self.waiting and self.paused is None):
            raise Refusal(
                f"Cache not flushed because there are pending requests: {len(self.running)} running, "
                f"{len(self.waiting)} waiting. Pause with mode retract or abort, or send flush_cache false."
            )

    def flush(self) -> None:
        """Drops the cache."""
        self.check_flush()
        self._cache.clear()

    def replace(self, tensors: Mapping[str, torch.Tensor], label: str | None) -> None:
        """Serves other weights from the next token on. The tensors have been checked."""
        self.model.replace(tensors)
        self.updates += 1
        if label is not None:
            self.label = label
