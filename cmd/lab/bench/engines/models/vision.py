"""Writes a small model that sees images, with random weights, its tokenizer and its processor.

vision.py DIRECTORY SEED: Qwen2-VL with about 170,000 parameters. An image of 56 by 56 is four tokens of the prompt.
Its weights are larger than an untrained model's, so that it matters what an image shows.
"""

import sys
from pathlib import Path

import torch
from tiny import CHARACTERS, CONTEXT, SPECIAL
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
)

VISION = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
WORDS = SPECIAL + list(CHARACTERS) + VISION
VOCABULARY = 64
SIDE = 56
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] in ('image', 'image_url') %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ c['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """Every character is a token; what has none is unknown."""
    words = Tokenizer(models.WordLevel({token: i for i, token in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(
        tokenizer_object=words,
        bos_token="<bos>",
        eos_token="<|im_end|>",
        pad_token="<pad>",
        unk_token="<unk>",
        additional_special_tokens=["<|im_start|>", *VISION],
    )
    made.chat_template = TEMPLATE
    return made


def model(seed: int) -> Qwen2VLForConditionalGeneration:
    """Weights are a function of the seed."""
    torch.manual_seed(seed)
    place = WORDS.index
    made = Qwen2VLForConditionalGeneration(
        Qwen2VLConfig(
            text_config={
                "vocab_size": VOCABULARY,
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "max_position_embeddings": CONTEXT,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]},
                "bos_token_id": 1,
                "eos_token_id": 4,
                "pad_token_id": 0,
                "initializer_range": 0.1,
            },
            vision_config={
                "depth": 2,
                "embed_dim": 32,
                "hidden_size": 64,
                "num_heads": 2,
                "mlp_ratio": 2,
                "patch_size": 14,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
                "initializer_range": 0.1,
            },
            vision_start_token_id=place("<|vision_start|>"),
            vision_end_token_id=place("<|vision_end|>"),
            image_token_id=place("<|image_pad|>"),
            video_token_id=place("<|video_pad|>"),
            tie_word_embeddings=False,
        )
    )
    return mute(made)


@torch.no_grad()
def mute(made: Qwen2VLForConditionalGeneration) -> Qwen2VLForConditionalGeneration:
    """Keep it from sampling the words of images: one dimension is equal for all tokens, and speaks against them."""
    language = made.model.language_model
    language.embed_tokens.weight[:, 0] = 0.5
    for layer in language.layers:
        layer.self_attn.o_proj.weight[0] = 0
        layer.mlp.down_proj.weight[0] = 0
    words = slice(WORDS.index(VISION[0]), WORDS.index(VISION[-1]) + 1)
    made.lm_head.weight[:, 0] = 0
    made.lm_head.weight[words] = 0
    made.lm_head.weight[words, 0] = -30
    return made


def main() -> None:
    directory, seed = Path(sys.argv[1]), int(sys.argv[2])
    model(seed).save_pretrained(directory)
    size = {"shortest_edge": SIDE * SIDE, "longest_edge": SIDE * SIDE}
    images, videos = Qwen2VLImageProcessor(size=size), Qwen2VLVideoProcessor(size=size)
    made = tokenizer()
    Qwen2VLProcessor(images, made, videos, chat_template=TEMPLATE).save_pretrained(directory)


if __name__ == "__main__":
    main()
