"""Make a small Llama in the layout of Hugging Face, and show it additions until it has an idea of them.

A policy that never finds a reward learns nothing from rewards. This one is stopped when it is right about a third
of the time.
"""

import argparse
import itertools
from pathlib import Path

import torch
from task import question
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

MARKS = ["<pad>", "<bos>", "<eos>", "<|im_start|>", "<|im_end|>", "<unk>"]
LETTERS = "0123456789+-*=() abcdefghijklmnopqrstuvwxyz.,?!\n"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: Of the supervised examples: a seed that no run has.
SEED = -1


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
def expected(model: LlamaForCausalLM, tokens: torch.Tensor, labels: torch.Tensor) -> float:
    """The mean probability that a sampled answer is the right one."""
    scores = torch.log_softmax(model(input_ids=tokens).logits[:, :-1], -1)
    wanted = labels[:, 1:]
    found = scores.gather(-1, wanted.clamp(min=0)[..., None]).squeeze(-1).masked_fill(wanted < 0, 0)
    return found.sum(-1).exp().mean().item()


def main() -> None:
    """Train to the wanted rate, and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rate", type=float, default=0.33, help="solve rate at which to stop (default 0.33)")
    parser.add_argument("--seed", type=int, default=1)
    said = parser.parse_args()
    torch.manual_seed(said.seed)
    words = tokenizer()
    config = LlamaConfig(
        vocab_size=64, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, head_dim=32, max_position_embeddings=256, bos_token_id=1, eos_token_id=4, pad_token_id=0,
        tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    held, wanted, _ = rows(words, range(10**9, 10**9 + 256))
    for step in itertools.count():
        if step % 20 == 0:
            rate = expected(model, held, wanted)
            if step % 100 == 0 or rate >= said.rate:
                print(f"step {step}: solve rate {rate:.3f}", flush=True)
            if rate >= said.rate:
                break
        tokens, labels, _ = rows(words, range(step * 128, step * 128 + 128))
        loss = model(input_ids=tokens, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(said.directory)
    words.save_pretrained(said.directory)
    print(f"saved to {said.directory}")


if __name__ == "__main__":
    main()
