"""The tokenizer of a model, as a GGUF holds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf

# How a text is split before it is merged, as llama.cpp calls it, by what of it is told apart here.
DIGITS_THEN_BYTES = "smollm"
LLAMA3 = "llama-bpe"
BYTES = "gpt-2"


def add_vocabulary(writer: gguf.GGUFWriter, directory: Path, config: dict[str, Any]) -> None:
    """Writes the tokenizer of tokenizer.json: bytes that are merged, or single characters."""
    path = directory / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    model = tokenizer["model"]
    hint = ": give --vocabulary with a GGUF of the same model"
    if model["type"] == "BPE" and not model.get("byte_fallback"):
        splitting, merges = splits(tokenizer.get("pre_tokenizer")), [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
        known = dict(model["vocab"])
        if splitting is None:
            raise ValueError(f"{path}: how it splits a text is not known here{hint}")
    elif model["type"] == "WordLevel" and characters(tokenizer.get("pre_tokenizer")):
        # Characters are bytes that nothing merges; llama.cpp wants a merge, and this one makes no token.
        splitting, merges = BYTES, ["\u0120 \u0120"]
        known = {shown(t) if len(t) == 1 else t: i for t, i in model["vocab"].items()}
    else:
        raise ValueError(f"{path}: a tokenizer of the kind {model['type']} is not read here{hint}")
    kinds = {i: gguf.TokenType.NORMAL for i in known.values()}
    for token in tokenizer["added_tokens"]:
        known[token["content"]] = token["id"]
        kinds[token["id"]] = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
    write(writer, known, kinds, config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitting)
    writer.add_token_merges(merges)
    add_settings(writer, directory, config, known)


def characters(pre: dict[str, Any] | None) -> bool:
    """Whether a text is split into its characters."""
    return bool(pre) and pre["type"] == "Split" and pre["pattern"] == {"String": ""}


def splits(pre: dict[str, Any] | None) -> str | None:
    """The name of how a text is split, None for one that is not known."""
    steps = (pre or {}).get("pretokenizers", [pre] if pre else [])
    kinds = [step["type"] for step in steps]
    if kinds == ["Digits", "ByteLevel"] and steps[0].get("individual_digits") and steps[1].get("use_regex", True):
        return DIGITS_THEN_BYTES
    if kinds == ["ByteLevel"] and steps[0].get("use_regex", True):
        return BYTES
    if kinds == ["Split", "ByteLevel"] and "\\p{N}{1,3}" in json.dumps(steps[0]["pattern"]).replace("\\\\", "\\"):
        return LLAMA3
    return None


def shown(character: str) -> str:
    """The printable characters that stand for the bytes of one, in vocabularies of bytes."""
    out = []
    for byte in character.encode("utf-8"):
        printable = 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255
        out.append(chr(byte if printable else hidden(byte)))
    return "".join(out)


def hidden(byte: int) -> int:
    """The code point that stands for a byte that is not printable: they are counted from 256."""
    before = sum(1 for b in range(byte) if not (33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255))
    return 256 + before


def write(writer: gguf.GGUFWriter, known: dict[str, int], kinds: dict[int, gguf.TokenType], size: int) -> None:
    """Writes the tokens in order; ids of the model that nothing stands for are marked as unused."""
    by_id = {i: token for token, i in known.items()}
    if by_id and max(by_id) >= size:
        raise ValueError(f"the tokenizer has token {max(by_id)}, the model has {size}")
    writer.add_token_list([by_id.get(i, f"[unused{i}]") for i in range(size)])
    writer.add_token_types([kinds.get(i, gguf.TokenType.UNUSED) for i in range(size)])


def add_settings(writer: gguf.GGUFWriter, directory: Path, config: dict[str, Any], known: dict[str, int]) -> None:
    """Writes the special tokens, whether one begins a text, and the template of chats."""
    settings_file = directory / "tokenizer_config.json"
    settings = json.loads(settings_file.read_text(encoding="utf-8")) if settings_file.exists() else {}
    for name, add in (("bos", writer.add_bos_token_id), ("eos", writer.add_eos_token_id),
                      ("unk", writer.add_unk_token_id), ("pad", writer.add_pad_token_id)):
        token = settings.get(f"{name}_token")
        text = token["content"] if isinstance(token, dict) else token
        number = known.get(text, config.get(f"{name}_token_id"))
        if isinstance(number, list):
            number = number[0]
        if number is not None:
            add(number)
    writer.add_add_bos_token(bool(settings.get("add_bos_token", False)))
    template = directory / "chat_template.jinja"
    text = template.read_text(encoding="utf-8") if template.exists() else settings.get("chat_template")
    if isinstance(text, str):
        writer.add_chat_template(text)


def copy_vocabulary(writer: gguf.GGUFWriter, other: Path, size: int) -> None:
    """Writes what another file says of its tokenizer."""
    reader = gguf.GGUFReader(other)
    tokens = reader.get_field("tokenizer.ggml.tokens")
    if tokens is None:
        raise ValueError(f"{other}: it holds no vocabulary")
    if len(tokens.data) != size:
        raise ValueError(f"{other}: its vocabulary has {len(tokens.data)} tokens, the model has {size}: it is of another model")
    for name, field in reader.fields.items():
        if name.startswith("tokenizer."):
            kind = field.types[0]
            writer.add_key_value(name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
