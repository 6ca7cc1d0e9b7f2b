"""Writes a small mixture of experts with random weights, and the tokenizer of tiny.py.

moe.py DIRECTORY SEED: four layers of Qwen3-MoE of which the first is dense, eight experts, two for each token. Its
weights are larger than an untrained model's, so that it matters which expert a token goes to.
"""

import sys
from pathlib import Path

import torch
from tiny import CONTEXT, VOCABULARY, tokenizer
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM


def model(seed: int) -> Qwen3MoeForCausalLM:
    """Weights are a function of the seed."""
    torch.manual_seed(seed)
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=128,
            moe_intermediate_size=64,
            num_hidden_layers=4,
            mlp_only_layers=[0],
            num_experts=8,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=CONTEXT,
            initializer_range=0.15,
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
