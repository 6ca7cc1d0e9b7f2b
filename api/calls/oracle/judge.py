"""Asks the parsers of others what they make of generated responses: python judge.py ORACLE.

ORACLE is renderers, openai-harmony or vllm, or cases for the responses alone. The responses are the same
for all; they, or the answers, go to standard output, one JSON object a line. The tokenizer is made here: a
token for every byte, and one for every word of a family's frame. gpt-oss alone has a vocabulary of its own,
which openai_harmony reads from the directory in TIKTOKEN_ENCODINGS_BASE. Where it has none, judge.py writes
it there from the package quicktok.
"""

import json
import random
import sys

# The words of a family's frame that are tokens.
THINK = ["<think>", "</think>"]
DEEPSEEK = ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"]
KIMI = ["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"]
HARMONY = ["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"]
TAGS = ["<tool_call>", "</tool_call>"]
WORDS = {
    "hermes": TAGS + THINK,
    "qwen3_coder": TAGS + THINK,
    "llama3": ["<|python_tag|>"],
    "pythonic": ["<|python_start|>", "<|python_end|>"],
    "mistral": ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"],
    "deepseek_v3": DEEPSEEK + THINK,
    "deepseek_v31": DEEPSEEK + THINK,
    "deepseek_v32": ["｜DSML｜"] + THINK,
    "deepseek_v4": ["｜DSML｜"] + THINK,
    "deepseek_v41": ["｜DSML｜"] + THINK,
    "glm45": TAGS + THINK + ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
    "kimi_k2": KIMI + THINK,
    "harmony": HARMONY,
    "minimax_m2": ["<minimax:tool_call>", "</minimax:tool_call>"] + THINK,
}
CASES = 24
TOOLS = [
    {"name": "look", "parameters": {"type": "object", "properties": {
        "place": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"},
        "tags": {"type": "array"}, "more": {"type": "object"}, "ratio": {"type": "number"}}}},
    {"name": "list_all", "parameters": {"type": "object", "properties": {}}},
]
TEXTS = ["Paris", "São Paulo", "two words", 'a "quoted" text', "a < b && c > d", "line one\nline two", "{braces}", "42", "true", "back\\slash", "🙂"]


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


def arguments(draw):
    """Arguments of the tool look, of the types that its schema asks for."""
    made = {
        "place": lambda: draw.choice(TEXTS),
        "days": lambda: draw.randint(-3, 400),
        "metric": lambda: draw.random() < 0.5,
        "tags": lambda: [draw.choice(TEXTS) for _ in range(draw.randint(0, 2))],
        "more": lambda: {"k": draw.choice([None, 1, "x", [True]])},
        "ratio": lambda: draw.choice([0.5, -1.25, 1e-3]),
    }
    return {k: made[k]() for k in sorted(draw.sample(sorted(made), draw.randint(1, 4)))}


def spelled(value):
    return value if isinstance(value, str) else dumps(value)


def tags(calls, opens, closes, name, name_end, end, param, key_end, value_end, line="", typed=False, wrap=True):
    """Calls whose arguments stand between tags."""
    out = []
    for tool, given in calls:
        body = name.replace("N", tool) + name_end
        for key, value in given.items():
            kind = (' string="true">' if isinstance(value, str) else ' string="false">') if typed else ""
            body += param + key + key_end + kind + line + spelled(value) + line + value_end + "\n"
        out.append(body + end)
    if wrap:
        return opens + "\n" + "\n".join(out) + "\n" + closes
    return "\n".join(opens + "\n" + call + "\n" + closes for call in out)


def dsml(space, section):
    o, c = "<｜DSML｜" + space, "</｜DSML｜" + space
    return lambda calls: tags(calls, o + section + ">", c + section + ">", o + 'invoke name="N', '">\n', c + "invoke>",
                              o + 'parameter name="', '"', c + "parameter>", typed=True)


def pythonic(calls):
    return "[" + ", ".join(f"{n}({', '.join(f'{k}={v!r}' for k, v in a.items())})" for n, a in calls) + "]"


def deepseek(call):
    return lambda calls: DEEPSEEK[0] + "".join(DEEPSEEK[2] + call(n, dumps(a)) + DEEPSEEK[3] for n, a in calls) + DEEPSEEK[1]


WRITE = {
    "hermes": lambda calls: "\n".join(f'<tool_call>\n{dumps({"name": n, "arguments": a})}\n</tool_call>' for n, a in calls),
    "qwen3_coder": lambda calls: tags(calls, TAGS[0], TAGS[1], "<function=N", ">\n", "</function>", "<parameter=", ">", "</parameter>", "\n", wrap=False),
    "llama3": lambda calls: "; ".join(dumps({"name": n, "parameters": a}) for n, a in calls),
    "pythonic": pythonic,
    "mistral": lambda calls: "".join(f"[TOOL_CALLS]{n}[ARGS]{dumps(a)}" for n, a in calls),
    "deepseek_v3": deepseek(lambda n, a: f"function{DEEPSEEK[4]}{n}\n```json\n{a}\n```"),
    "deepseek_v31": deepseek(lambda n, a: f"{n}{DEEPSEEK[4]}{a}"),
    "deepseek_v32": dsml("", "function_calls"),
    "deepseek_v4": dsml("", "tool_calls"),
    "deepseek_v41": dsml(" ", "calls"),
    "glm45": lambda calls: "\n".join("<tool_call>" + n + "".join(f"\n<arg_key>{k}</arg_key>\n<arg_value>{spelled(v)}</arg_value>" for k, v in a.items()) + "\n</tool_call>" for n, a in calls),
    "kimi_k2": lambda calls: KIMI[0] + "".join(f"{KIMI[2]}functions.{n}:{i}{KIMI[3]}{dumps(a)}{KIMI[4]}" for i, (n, a) in enumerate(calls)) + KIMI[1],
    "harmony": lambda calls: "".join(f"<|start|>assistant<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{dumps(a)}<|call|>" for n, a in calls),
    "minimax_m2": lambda calls: tags(calls, "<minimax:tool_call>", "</minimax:tool_call>", '<invoke name="N', '">\n', "</invoke>", '<parameter name="', '">', "</parameter>"),
}
# Families of which a response is calls or an answer, never both, and which have no reasoning.
BARE = {"llama3", "pythonic"}


def parts(family, text, quoted=False):
    """Splits a text into letters and words that are tokens, as ["text"] and [["word"], ...]."""
    out = []
    while text:
        word = next((w for w in sorted(WORDS[family], key=len, reverse=True) if text.startswith(w)), None) if not quoted else None
        if word:
            out.append([word])
            text = text[len(word):]
        elif out and isinstance(out[-1], str):
            out[-1] += text[0]
            text = text[1:]
        else:
            out.append(text[0])
            text = text[1:]
    return out


def case(family, draw, number):
    """One response: what it is made of, and what was done to it."""
    calls = [("list_all", {}) if draw.random() < 0.2 else ("look", arguments(draw)) for _ in range(draw.choice([0, 1, 1, 1, 2, 3]))]
    thinks = family not in BARE and draw.random() < 0.5
    content = draw.choice(["", "", "Let me look.", "Sure: 1 < 2.", "Ünïcode 🙂"])
    if family in BARE and calls:
        content = ""
    kind = draw.choice(["good", "good", "good", "quoted", "cut", "unknown", "broken"])
    if kind in ("cut", "broken", "unknown") and not calls:
        kind = "good"
    if kind == "quoted" and family in BARE:
        kind = "good"
    if kind == "unknown":
        calls[0] = ("nothing", calls[0][1])
    called = WRITE[family](calls) if calls else ""
    if kind == "broken":
        called = called.replace(":", ";").replace("=", "~").replace("arg_value", "arg_walue")
    think = draw.choice(["I should look.", "Hm,\nwell."]) if thinks else None
    out = []
    if family == "harmony":
        if think:
            out += parts(family, f"<|channel|>analysis<|message|>{think}<|end|>")
        if content or not calls or kind == "quoted":
            opens = "<|start|>assistant" if out else ""
            out += parts(family, opens + ("<|channel|>commentary<|message|>" if calls else "<|channel|>final<|message|>")) + [content]
            if kind == "quoted":
                out += parts(family, "<|call|>", True)
            out += [["<|end|>" if calls else "<|return|>"]]
        out += parts(family, called if out else called.removeprefix("<|start|>assistant"))
    else:
        if think:
            opens, closes = ("[THINK]", "[/THINK]") if family == "mistral" else THINK
            out += parts(family, f"{opens}{think}{closes}")
            if family != "mistral":
                out += ["\n\n"]
        out += [content]
        if kind == "quoted":
            out += parts(family, " " + WRITE[family]([("look", {"place": "x"})]), True)
        out += parts(family, called)
    out = [p for p in out if p]
    if kind == "cut":
        flat = [t for p in out for t in ([p] if isinstance(p, list) else list(p))]
        flat = flat[:max(1, len(flat) - draw.randint(2, 12))]
        out = []
        for t in flat:
            if isinstance(t, str) and out and isinstance(out[-1], str):
                out[-1] += t
            else:
                out.append(t)
    return {"family": family, "number": number, "kind": kind, "parts": out}


def cases():
    for family in WORDS:
        draw = random.Random(family)
        for number in range(CASES):
            yield case(family, draw, number)


def tokenizer(family):
    """A token for every byte, and one for every word."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(w, special=True) for w in WORDS[family] + ["<eos>"]])
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<eos>")


def ids_of(tok, case):
    """The tokens of a case. Letters are encoded one byte at a time, so that none of them is a word."""
    vocab = tok.get_vocab()
    from tokenizers import pre_tokenizers
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ids = []
    for p in case["parts"]:
        if isinstance(p, list):
            ids.append(vocab[p[0]])
        else:
            for piece, _ in level.pre_tokenize_str(p):
                ids += [vocab[c] for c in piece]
    return ids


def loads(text):
    try:
        return json.loads(text)
    except (TypeError, json.JSONDecodeError):
        return text


def answer(content, reasoning, calls, status=None):
    out = {"content": (content or "").strip(), "reasoning": (reasoning or "").strip(), "calls": calls}
    if status is not None:
        out["status"] = status
    return out


def by_renderers():
    """The functions of renderers, by family."""
    from renderers import parsing as r

    spec = [{"type": "function", "function": t} for t in TOOLS]
    def with_ids(parse, pairs, **more):
        def ask(tok, ids):
            vocab = tok.get_vocab()
            return parse(tok, ids, **{k: vocab[w] for k, w in pairs.items()}, **more)
        return ask
    stop = {"stop_ids": set()}
    call = {"tool_call_id": TAGS[0], "tool_call_end_id": TAGS[1]}
    think = {"think_id": THINK[0], "think_end_id": THINK[1]}
    deep = dict(zip(["tool_calls_begin_id", "tool_calls_end_id", "tool_call_begin_id", "tool_call_end_id", "tool_sep_id"], DEEPSEEK))
    kimi = dict(zip(["tool_calls_section_begin_id", "tool_calls_section_end_id", "tool_call_begin_id", "tool_call_argument_begin_id", "tool_call_end_id"], KIMI))
    glm = dict(zip(["arg_key_id", "arg_key_end_id", "arg_value_id", "arg_value_end_id"], WORDS["glm45"][4:]))
    gpt = dict(zip(["start_id", "channel_id", "constrain_id", "message_id", "end_id", "call_id", "return_id"], HARMONY))
    return {
        "hermes": with_ids(r.parse_qwen3, {**call, "reasoning_end_id": THINK[1]}, **stop),
        "qwen3_coder": with_ids(r.parse_qwen35, {**call, **think}, tools=spec, **stop),
        "llama3": with_ids(r.parse_llama_3, {}, **stop),
        "deepseek_v3": with_ids(r.parse_deepseek_v3, deep, **stop),
        "deepseek_v4": lambda tok, ids: with_ids(r.parse_deepseek_v4, {"think_start_id": THINK[0], "think_end_id": THINK[1]}, thinking_enabled=tok.get_vocab()[THINK[0]] in ids, **stop)(tok, ids),
        "glm45": with_ids(r.parse_glm, {**call, **think, **glm}, tools=spec, **stop),
        "kimi_k2": with_ids(r.parse_kimi_k2, kimi, **stop),
        "harmony": with_ids(r.parse_gpt_oss, gpt),
        "minimax_m2": with_ids(r.parse_minimax, {"tool_call_id": "<minimax:tool_call>", "tool_call_end_id": "</minimax:tool_call>", **think}, tools=spec, **stop),
    }


def ask_renderers():
    known = by_renderers()
    def ask(tok, case):
        if case["family"] == "harmony":  # its functions want the header's beginning, which stands in the prompt
            case = {**case, "parts": [["<|start|>"], "assistant", *case["parts"]]}
        got = known[case["family"]](tok, ids_of(tok, case))
        words = {"unclosed_block": "unclosed", "malformed_structure": "malformed"}
        ok = [[c.name, c.arguments] for c in got.tool_calls if c.status in ("ok", "unknown_tool")]
        return answer(got.content, got.reasoning_content, ok, [words.get(str(c.status), str(c.status)) for c in got.tool_calls])
    return known.keys(), ask


def harmony_ids(encoding, case):
    """The tokens of gpt-oss, whose vocabulary openai-harmony insists on."""
    return [i for p in case["parts"] for i in (encoding.encode(p[0], allowed_special="all") if isinstance(p, list) else encoding.encode(p, disallowed_special=()))]


def ask_harmony():
    from openai_harmony import HarmonyEncodingName, Role, StreamableParser, load_harmony_encoding

    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    def ask(_, case):
        parser = StreamableParser(encoding, role=Role.ASSISTANT)
        for i in harmony_ids(encoding, case):
            parser.process(i)
        parser.process_eos()
        content, thought, calls = [], [], []
        for m in parser.messages:
            text = m.content[0].text
            if (m.recipient or "").startswith("functions."):
                calls.append([m.recipient.removeprefix("functions."), loads(text)])
            elif m.channel == "analysis":
                thought.append(text)
            else:
                content.append(text)
        return answer("".join(content), "\n".join(thought), calls)
    return ["harmony"], ask


def ask_vllm():
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    tools = [{"type": "function", "function": t} for t in TOOLS]
    request = ChatCompletionRequest(model="x", messages=[{"role": "user", "content": "x"}], tools=tools)
    reasoning = {"hermes": "qwen3", "qwen3_coder": "qwen3", "deepseek_v3": "deepseek_r1", "deepseek_v31": "deepseek_r1", "deepseek_v32": "deepseek_r1",
                 "llama3": None, "pythonic": None, "harmony": "openai_gptoss"}
    named = {"llama3": "llama3_json", "harmony": "openai"}
    def ask(tok, case):
        family = case["family"]
        ids = ids_of(tok, case)
        if family == "harmony":
            ids = harmony_ids(encoding, case)
        thinks = ["<think>"] in case["parts"] or ["[THINK]"] in case["parts"]
        name = reasoning.get(family, family) if thinks or family == "harmony" else None
        made = ParserManager.get_parser(tool_parser_name=named.get(family, family), reasoning_parser_name=name, enable_auto_tools=True, is_harmony=family == "harmony")
        chat = {"enable_thinking": thinks, "thinking": thinks}
        parser = made(tok, request.tools, chat_template_kwargs=chat)
        thought, content, calls = parser.parse(tok.decode(ids), request, enable_auto_tools=True, model_output_token_ids=ids)
        return answer(content, thought, [[c.name, loads(c.arguments)] for c in calls or []])
    return WORDS.keys(), ask


def vocabulary():
    """Writes the vocabulary of gpt-oss where openai_harmony looks for it, which checks its hash."""
    import base64
    import importlib.util
    import os
    import struct

    at = os.path.join(os.environ["TIKTOKEN_ENCODINGS_BASE"], "o200k_base.tiktoken")
    if os.path.exists(at):
        return
    package = importlib.util.find_spec("quicktok").submodule_search_locations[0]
    with open(os.path.join(package, "data", "o200k.vocab"), "rb") as file:
        data = file.read()
    place, rows = 4, []
    for _ in range(struct.unpack_from("<I", data)[0]):
        size = struct.unpack_from("<H", data, place)[0]
        text = data[place + 2:place + 2 + size]
        rows.append((struct.unpack_from("<I", data, place + 2 + size)[0], text))
        place += 6 + size
    with open(at, "w") as file:
        file.writelines(f"{base64.b64encode(text).decode()} {rank}\n" for rank, text in sorted(rows))


def main(oracle):
    if oracle == "cases":
        for c in cases():
            print(dumps(c))
        return
    if oracle != "renderers":
        vocabulary()
    families, ask = {"renderers": ask_renderers, "openai-harmony": ask_harmony, "vllm": ask_vllm}[oracle]()
    made = {}
    for c in cases():
        if c["family"] not in families:
            continue
        tok = made.setdefault(c["family"], tokenizer(c["family"]))
        try:
            got = ask(tok, c)
        except Exception as e:  # an oracle that fails says so
            got = {"error": f"{type(e).__name__}: {e}"[:200]}
        print(dumps({"family": c["family"], "number": c["number"], **got}))


if __name__ == "__main__":
    main(sys.argv[1])
