"""Tokens as text: chats rendered, responses read as they grow, stop strings found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .errors import Refusal

#: What a decoder writes where the bytes of a character are not complete.
INCOMPLETE = "\ufffd"

#: Tokens that an incomplete character is waited for; none is made of more.
WAIT_TOKENS = 8


#: What a template that knows content in parts has: it goes through them, or asks what they are.
PARTS = re.compile(
    r"""content\b[^%}]*\bis\s+(not\s+)?(string|iterable|sequence)|\[['"]type['"]\]|\.type\b"""
    r"""|\bin\s+\w+(\.content\b|\[['"]content['"]\])"""
)


def joined(message: dict[str, Any]) -> dict[str, Any]:
    """A message with its parts of text as one text, for templates that would print a list as Python does."""
    parts = message.get("content") if isinstance(message, dict) else None
    if not isinstance(parts, list):
        return message
    texts = []
    for part in parts:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise Refusal("content: this model's chat template takes text alone, and a part is something else")
        texts.append(part["text"])
    return {**message, "content": "\n".join(texts)}


class Tokenizer:
    """A checkpoint's own tokenizer and chat template."""

    def __init__(self, directory: Path) -> None:
        from transformers import AutoTokenizer  # takes seconds

        try:
            self._tokenizer = AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
        except (OSError, ValueError) as problem:
            raise Refusal(f"the tokenizer in {directory} cannot be read: {problem}") from None
        self._backend = self._tokenizer.backend_tokenizer
        self.end = self._tokenizer.eos_token_id

    @property
    def template(self) -> str | None:
        """The chat template; None without one."""
        template: str | None = self._tokenizer.chat_template
        return template

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The tokens of a text, with those that stand for its beginning and end where special is set."""
        if any("\ud800" <= c <= "\udfff" for c in text):
            raise Refusal("the text has half of a pair of UTF-16 surrogates, which is no character: leave it out")
        ids: list[int] = self._backend.encode(text, add_special_tokens=special).ids
        return ids

    def decode(self, tokens: list[int], skip_special: bool = True) -> str:
        """The text of tokens."""
        text: str = self._backend.decode(tokens, skip_special_tokens=skip_special)
        return text

    def render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, generation: bool, more: dict[str, Any]
    ) -> list[int]:
        """The tokens of a chat."""
        if not self.template:
            raise Refusal("this model has no chat template: send a prompt")
        if not PARTS.search(self.template):
            messages = [joined(message) for message in messages]
        try:
            text = self._tokenizer.apply_chat_template(
                messages, tools=tools, tokenize=False, add_generation_prompt=generation, **more
            )
        except Exception as problem:  # a template is a program of the model's author
            raise Refusal(f"the chat template refuses these messages: {problem}") from None
        return self.encode(text)


class Tail:
    """The text of a response as it grows: what will not change any more, up to a stop string."""

    def __init__(self, tokenizer: Tokenizer | None, stops: list[str], skip_special: bool, trim: bool) -> None:
        self._tokenizer, self._stops, self._skip, self._trim = tokenizer, stops, skip_special, trim
        self.text = ""
        #: The stop string that was found.
        self.stop: str | None = None
        self._pending: list[int] = []  # tokens whose text stands at the end and gives the next its context
        self._known = ""  # their text, of which all is in self.text
        self._settled = 0

    def add(self, token: int) -> None:
        """Takes a token in. A character whose bytes are incomplete waits for the rest."""
        if self._tokenizer is None:
            return
        self._pending.append(token)
        text = self._tokenizer.decode(self._pending, self._skip)
        if text.endswith(INCOMPLETE) and len(self._pending) - self._settled < WAIT_TOKENS:
            return
        before = len(self.text)
        self.text += text[len(self._known) :]
        # The last token stays, as how a token is written may depend on the one before it.
        self._pending = self._pending[self._settled :] if self._settled else self._pending
        self._settled = len(self._pending)
        self._known = self._tokenizer.decode(self._pending, self._skip)
        self._find(before)

    def _find(self, before: int) -> None:
        for stop in self._stops:
            at = self.text.find(stop, max(0, before - len(stop) + 1))
            if at >= 0:
                self.stop = stop
                self.text = self.text[: at if self._trim else at + len(stop)]
                return

    @property
    def shown(self) -> int:
        """How much of the text may be shown: the rest could become a stop string, which is cut off."""
        held = 0
        for stop in self._stops if self._trim and self.stop is None else ():
            for n in range(min(len(stop) - 1, len(self.text)), held, -1):
                if self.text.endswith(stop[:n]):
                    held = n
                    break
        return len(self.text) - held
