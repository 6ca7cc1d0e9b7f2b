"""Writes a small Llama with random weights, and a tokenizer of single characters.

tiny.py DIRECTORY SEED: two seeds make two models that differ in nothing but their weights,
which is what a server is switched between. Standing for a model of a real size, it is large
enough that every token of its vocabulary has a log-prob of its own.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ["<pad>", "<bos>", "<eos>", "<|im_start|>", "<|im_end|>", "<unk>"]
CHARACTERS = "0123456789+-*=() abcdefghijklmnopqrstuvwxyz.,?!\n"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTEXT = 256
VOCABULARY = 64


def tokenizer() -> PreTrainedTokenizerFast:
    """Every character is a token; what has none is unknown."""
    vocabulary = {token: i for i, token in enumerate(SPECIAL + list(CHARACTERS))}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(
        tokenizer_object=words,
        bos_token="<bos>",
        eos_token="<|im_end|>",
        pad_token="<pad>",
        unk_token="<unk>",
        additional_special_tokens=["<|im_start|>"],
    )
    made.chat_template = TEMPLATE
    return made


def model(seed: int) -> LlamaForCausalLM:
    """Weights are a function of the seed."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=32,
            max_position_embeddings=CONTEXT,
            bos_token_id=1,
            eos_token_id=4,
            pad_token_id=0,
            tie_word_embeddings=False,
        )
    )


def main() -> None:
    directory, seed = Path(sys.argv[1]), int(sys.argv[2])
    model(seed).save_pretrained(directory)
    tokenizer().save_pretrained(directory)


if __name__ == "__main__":
    main()
