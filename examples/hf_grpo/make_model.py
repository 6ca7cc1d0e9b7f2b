"""Make a small model in the layout of Hugging Face, and show it additions until it has an idea of them.

A policy that never finds a reward learns nothing from rewards. This one is stopped when it is right about a third
of the time. It is saved as it goes, and when it is interrupted.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from task import question
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers import Qwen3MoeConfig as MixtureConfig
from transformers import Qwen3MoeForCausalLM as Mixture
from transformers.utils import logging

MARKS = ["<pad>", "<bos>", "<eos>", "<|im_start|>", "<|im_end|>", "<unk>"]
LETTERS = "0123456789+-*=() abcdefghijklmnopqrstuvwxyz.,?!\n"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: Of the supervised examples: a seed that no run has.
SEED = -1
#: Train steps between two times that the model is saved.
SAVE_EVERY = 200


def tokenizer() -> PreTrainedTokenizerFast:
    """A letter a token."""
    vocabulary = {token: i for i, token in enumerate([*MARKS, *LETTERS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    special = {"bos_token": "<bos>", "eos_token": "<|im_end|>", "pad_token": "<pad>", "unk_token": "<unk>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=made, additional_special_tokens=["<|im_start|>"], **special)
    fast.chat_template = TEMPLATE
    return fast


def rows(words: PreTrainedTokenizerFast, numbers: range) -> tuple[torch.Tensor, torch.Tensor, list[list[int]]]:
    """Tokens and labels of chats in which the answer is given, and the prompts alone."""
    prompts, answers = [], []
    for number in numbers:
        asked, right = question(SEED, number)
        text = words.apply_chat_template([{"role": "user", "content": asked}], add_generation_prompt=True, tokenize=False)
        prompts.append(words.encode(text, add_special_tokens=False))
        answers.append(words.encode(right + "<|im_end|>", add_special_tokens=False))
    length = max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True))
    tokens, labels = torch.zeros(len(prompts), length, dtype=torch.long), torch.full((len(prompts), length), -100)
    for i, (p, a) in enumerate(zip(prompts, answers, strict=True)):
        tokens[i, : len(p) + len(a)] = torch.tensor(p + a)
        labels[i, len(p) : len(p) + len(a)] = torch.tensor(a)
    return tokens, labels, prompts


@torch.no_grad()
def expected(model: PreTrainedModel, tokens: torch.Tensor, labels: torch.Tensor) -> float:
    """The mean probability that a sampled answer is the right one."""
    scores = torch.log_softmax(model(input_ids=tokens).logits[:, :-1], -1)
    wanted = labels[:, 1:]
    found = scores.gather(-1, wanted.clamp(min=0)[..., None]).squeeze(-1).masked_fill(wanted < 0, 0)
    return found.sum(-1).exp().mean().item()


def untrained(mixture: bool) -> PreTrainedModel:
    """The model as it begins: a Llama, or four layers of which one is dense and the others have eight experts."""
    both: dict[str, Any] = {
        "vocab_size": 64, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4,
        "num_key_value_heads": 4, "head_dim": 32, "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 4,
        "pad_token_id": 0, "tie_word_embeddings": False,
    }  # fmt: skip
    if not mixture:
        return LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, **both))
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}
    return Mixture(MixtureConfig(num_hidden_layers=4, mlp_only_layers=[0], **experts, **both))


def warm_up(
    model: PreTrainedModel, words: PreTrainedTokenizerFast, wanted: float, steps: int, save: Callable[[], None]
) -> float:
    """Train to a solve rate, for so many steps at most, and return the rate. The model is saved now and then."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    held, answers, _ = rows(words, range(10**9, 10**9 + 256))
    began = time.monotonic()
    for step in range(steps + 1):
        if step % 20 == 0 or step == steps:
            rate = expected(model, held, answers)
            if step % 100 == 0 or rate >= wanted or step == steps:
                print(f"step {step}: solve rate {rate:.3f} of {wanted}, {time.monotonic() - began:.0f} s", flush=True)
            if rate >= wanted or step == steps:
                return rate
            if step % SAVE_EVERY == 0:
                save()
        tokens, labels, _ = rows(words, range(step * 128, step * 128 + 128))
        loss = model(input_ids=tokens, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    raise AssertionError("the last step returns")


def main() -> None:
    """Train to the wanted rate, and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rate", type=float, default=0.33, help="solve rate at which to stop (default 0.33)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=5000, help="most train steps (default 5000)")
    parser.add_argument("--threads", type=int, default=1, help="torch's (default 1: it is a very small model)")
    parser.add_argument("--mixture", action="store_true", help="make a mixture of experts (Qwen3-MoE)")
    said = parser.parse_args()
    torch.set_num_threads(said.threads)
    torch.manual_seed(said.seed)
    logging.disable_progress_bar()
    words, model = tokenizer(), untrained(said.mixture)

    def save() -> None:
        model.save_pretrained(said.directory)
        words.save_pretrained(said.directory)

    try:
        rate = warm_up(model, words, said.rate, said.steps, save)
    except KeyboardInterrupt:
        save()
        sys.exit(f"interrupted: {said.directory} has the model as far as it came; start again for a better one")
    save()
    print(f"saved to {said.directory}")
    if rate < said.rate:
        sys.exit(f"the solve rate is {rate:.3f} after {said.steps} steps, want {said.rate}: give more --steps, or another --seed")


if __name__ == "__main__":
    main()
