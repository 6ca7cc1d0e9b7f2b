"""What a program that speaks OpenAI's API needs to know to play a rollout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OpenAI:
    """Where a rollout's calls go, and the key that names it: `openai.OpenAI(**task.openai().client)`.

    Calls of one rollout are sampled one after the other. Those that go on from the messages of an earlier one
    are one sequence with it; a history that was changed begins another, with the same reward.
    """

    base_url: str
    #: The claim's key: it samples for this rollout while the claim lasts, and can do nothing else.
    api_key: str
    rollout: str
    #: PEM file of the authority that signed the server's certificate; empty where the system knows it. For a client
    #: in this process: `http_client=httpx.Client(verify=ssl.create_default_context(cafile=…))`.
    ca: str = ""
    #: Who speaks in these calls, and whether it is trained: see `Task.openai`. Empty where nobody is named.
    agent: str = ""
    train: bool = True

    @property
    def labels(self) -> dict[str, str]:
        """Headers that name the agent; a program that is started with `environ` alone has to send them itself."""
        if not self.agent:  # the server refuses an agent that is not trained and has no name
            return {} if self.train else {"X-Headway-Train": "false"}
        return {"X-Headway-Agent": self.agent, "X-Headway-Train": str(self.train).lower()}

    @property
    def headers(self) -> dict[str, str]:
        """Headers of a request, for a client that is given headers alone."""
        return {"Authorization": f"Bearer {self.api_key}"} | self.labels

    @property
    def client(self) -> dict[str, Any]:
        """Arguments of `openai.OpenAI` and `openai.AsyncOpenAI`."""
        named = {"default_headers": self.labels} if self.labels else {}
        return {"base_url": self.base_url, "api_key": self.api_key} | named

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables of a program that is started for the rollout.

        With an authority of its own, the program trusts that one alone: httpx, openai and requests read these.
        """
        named = {"OPENAI_BASE_URL": self.base_url, "OPENAI_API_KEY": self.api_key}
        if self.ca:
            named |= {"SSL_CERT_FILE": self.ca, "REQUESTS_CA_BUNDLE": self.ca}
        return named

    def __repr__(self) -> str:
        return f"OpenAI(base_url={self.base_url!r}, rollout={self.rollout!r})"
