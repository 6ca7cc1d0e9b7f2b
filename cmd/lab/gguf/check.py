"""Compares a running llama-server with transformers: log-probs of the same tokens, and the tokens of texts and chats.

    python check.py URL DIRECTORY [--tokens 48] [--responses 8]

The server serves a GGUF that convert.py made of DIRECTORY, best as f32 with -ctk f32 -ctv f32. Every
response is sampled by the server at temperature 1; transformers says what log-probs its tokens have.
It prints one line of JSON, and ends with 1 where the mean difference is above 1e-3 nats or a token
differs. Run with a Python that has torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import urllib.request
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MEAN_MAX = 1e-3
TEXTS = ["1+2=3, and then\nsome more", "hello world (again)", "a - b * c"]
CHAT = [{"role": "user", "content": "what is 3*4?"}]


def ask(url: str, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url + path, data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)


def sample(url: str, prompt: list[int], seed: int, tokens: int) -> tuple[list[int], list[float]]:
    reply = ask(url, "/completion", {
        "prompt": prompt, "n_predict": tokens, "n_probs": 1, "return_tokens": True, "post_sampling_probs": True, "seed": seed,
        "samplers": ["temperature"], "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0})
    shown = reply["completion_probabilities"]
    if [p["id"] for p in shown] != reply["tokens"]:
        return [], []  # a token inside a character is not shown
    return reply["tokens"], [math.log(p["prob"]) for p in shown]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("directory")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--responses", type=int, default=8)
    given = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(given.directory, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(given.directory)
    differences, skipped, unlike = [], 0, []
    for seed in range(given.responses):
        prompt = tokenizer(TEXTS[seed % len(TEXTS)]).input_ids
        tokens, logprobs = sample(given.url, prompt, seed, given.tokens)
        skipped += not tokens
        with torch.no_grad():
            rows = model(torch.tensor([prompt + tokens])).logits[0].double().log_softmax(-1)
        differences += [p - rows[len(prompt) - 1 + i, t].item() for i, (t, p) in enumerate(zip(tokens, logprobs))]
    for text in TEXTS:
        if ask(given.url, "/tokenize", {"content": text, "add_special": True})["tokens"] != tokenizer(text).input_ids:
            unlike.append(text)
    rendered = ask(given.url, "/apply-template", {"messages": CHAT})["prompt"]
    ours = ask(given.url, "/tokenize", {"content": rendered, "add_special": True})["tokens"]
    theirs = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, tokenize=False)
    if ours != tokenizer(theirs, add_special_tokens=False).input_ids:
        unlike.append("the chat")
    absolute = [abs(d) for d in differences]
    mean = sum(absolute) / max(len(absolute), 1)
    print(json.dumps({"tokens": len(differences), "responses_skipped": skipped, "mean_absolute": mean, "mean": sum(differences) / max(len(differences), 1),
                      "greatest": max(absolute, default=math.nan), "texts_unlike": unlike}))
    return int(not differences or mean > MEAN_MAX or bool(unlike))


if __name__ == "__main__":
    sys.exit(main())
