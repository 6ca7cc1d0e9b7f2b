"""How the next tokens of a batch are drawn, and with what log-probs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

#: Temperatures below it take the likeliest token.
GREEDY_BELOW = 1e-6

#: What a token's log-prob is of: the distribution it was drawn from, cuts included (sampled); the same without cuts,
#: as SGLang has it (scaled); or the model's own at temperature 1, as SGLang has it on SGLANG_RETURN_ORIGINAL_LOGPROB.
LOGPROBS = ("sampled", "scaled", "original")


@dataclass(frozen=True)
class Cuts:
    """How one request's distribution is shaped; top_k 0 cuts nothing."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    @property
    def greedy(self) -> bool:
        """Nothing is drawn: the log-prob is then the model's own."""
        return self.temperature < GREEDY_BELOW

    @property
    def cutting(self) -> bool:
        """Some tokens are never drawn."""
        return not self.greedy and (self.top_p < 1.0 or self.top_k > 0 or self.min_p > 0.0)


class Sampler:
    """Draws for a batch whose requests it keeps until they change."""

    def __init__(self, seed: int, logprobs: str, device: torch.device) -> None:
        self._generator = torch.Generator(device)
        self._generator.manual_seed(seed)
        self._logprobs, self._device = logprobs, device
        self._cuts: list[Cuts] = []
        self._temperatures = torch.ones(0, 1, device=device)

    def draw(self, logits: torch.Tensor, cuts: Sequence[Cuts]) -> tuple[list[int], list[float]]:
        """A token for each row of logits [rows, vocabulary], and its log-prob in nats."""
        if self._cuts != list(cuts):
            self._cuts = list(cuts)
            self._temperatures = self._column([1.0 if c.greedy else c.temperature for c in cuts])
        scaled = torch.log_softmax(logits / self._temperatures, dim=-1)
        sampled = scaled
        rows = [i for i, c in enumerate(cuts) if c.cutting]
        if rows:
            sampled = scaled.clone()
            sampled[rows] = self._cut(scaled[rows], [cuts[i] for i in rows])
        # The largest of log p + Gumbel noise is a draw from p; without noise it is the likeliest.
        noise = -torch.empty_like(sampled).exponential_(generator=self._generator).log_()
        greedy = [i for i, c in enumerate(cuts) if c.greedy]
        if greedy:
            noise[greedy] = 0.0
        tokens = (sampled + noise).argmax(dim=-1, keepdim=True)
        reported = {"sampled": sampled, "scaled": scaled}.get(self._logprobs)
        if reported is None:
            reported = torch.log_softmax(logits, dim=-1)
        return tokens.squeeze(-1).tolist(), reported.gather(-1, tokens).squeeze(-1).tolist()

    def _column(self, values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32, device=self._device).unsqueeze(-1)

    def _cut(self, logprobs: torch.Tensor, cuts: list[Cuts]) -> torch.Tensor:
        """Cuts in the order top_k, top_p, min_p and normalises again."""
        vocabulary = logprobs.shape[-1]
        ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
        rank = torch.arange(vocabulary, device=self._device)
        top_k = self._column([float(c.top_k or vocabulary) for c in cuts])
        ordered = ordered.masked_fill(rank >= top_k, -torch.inf)
        shares = torch.softmax(ordered, dim=-1)
        before = shares.cumsum(dim=-1) - shares  # what the likelier ones make up
        # Rounding must not cut anything where nothing is to be cut, and the likeliest stays.
        top_p = self._column([c.top_p if c.top_p < 1.0 else 2.0 for c in cuts])
        ordered = ordered.masked_fill((before >= top_p) & (rank > 0), -torch.inf)
        floor = shares[:, :1] * self._column([c.min_p for c in cuts])
        ordered = ordered.masked_fill(shares < floor, -torch.inf)
        cut = torch.full_like(logprobs, -torch.inf).scatter_(-1, order, ordered)
        return torch.log_softmax(cut, dim=-1)
