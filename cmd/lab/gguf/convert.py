"""Makes a GGUF file of a model in the layout of Hugging Face, for llama-server.

    python convert.py DIRECTORY FILE.gguf [--type f32|f16|bf16] [--vocabulary OTHER.gguf]

It is what engines.N.convert runs for every new version: it reads config.json, the safetensors files
and tokenizer.json, and puts the finished file in its place with one rename, so that a server that
starts meanwhile reads the old one or the new one. Models are of the architecture of Llama. A tokenizer
that is not understood here is taken from another GGUF of the same model, which --vocabulary names:
training changes weights, never the vocabulary.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any, Iterator

import gguf
import numpy as np

from vocabulary import add_vocabulary, copy_vocabulary

TYPES = {
    "f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "f16": (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16),
    "bf16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
}

# Names of a layer's tensors there and here.
LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


class Refusal(Exception):
    """What the input lacks, in a sentence for whoever started the program."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--type", choices=TYPES, default="f32", help="of the matrices; vectors are f32")
    parser.add_argument("--vocabulary", type=Path, help="a GGUF of the same model to take the tokenizer from")
    given = parser.parse_args()
    # Of this process alone, so that two at work do not write into one another's.
    part = given.file.with_name(f"{given.file.name}.{os.getpid()}.part")
    try:
        convert(given.directory, part, given.type, given.vocabulary)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(part, given.file)
    except (Refusal, OSError, ValueError) as error:
        print(f"convert.py: {error}", file=sys.stderr)
        return 1
    finally:
        part.unlink(missing_ok=True)
    return 0


def convert(directory: Path, file: Path, kind: str, vocabulary: Path | None) -> None:
    config = read_json(directory / "config.json")
    architectures = config.get("architectures") or [config.get("model_type")]
    if architectures[0] not in ("LlamaForCausalLM", "llama"):
        raise Refusal(f"{directory}: the architecture is {architectures[0]}, and only LlamaForCausalLM is converted here; "
                      "llama.cpp's own convert_hf_to_gguf.py knows the others")
    writer = gguf.GGUFWriter(file, "llama")
    quantization, file_type = TYPES[kind]
    heads = add_shape(writer, config)
    writer.add_file_type(file_type)
    if vocabulary:
        copy_vocabulary(writer, vocabulary, config["vocab_size"])
    else:
        add_vocabulary(writer, directory, config)
    add_tensors(writer, directory, config, heads, quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise Refusal(f"{path}: {error}") from error


def add_shape(writer: gguf.GGUFWriter, config: dict[str, Any]) -> tuple[int, int]:
    """Writes sizes and constants; returns the heads of queries and of keys."""
    if config.get("hidden_act", "silu") != "silu":
        raise Refusal(f"hidden_act is {config['hidden_act']}, want silu")
    queries = config["num_attention_heads"]
    keys = config.get("num_key_value_heads") or queries
    size = config.get("head_dim") or config["hidden_size"] // queries
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(queries)
    writer.add_head_count_kv(keys)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_rope_dimension_count(size)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    add_positions(writer, config, size)
    return queries, keys


def add_positions(writer: gguf.GGUFWriter, config: dict[str, Any], size: int) -> None:
    """Writes how positions are encoded, under the names of older and newer documents."""
    how = dict(config.get("rope_scaling") or {}) | dict(config.get("rope_parameters") or {})
    base = how.get("rope_theta") or config.get("rope_theta", 10000.0)
    writer.add_rope_freq_base(base)
    kind = how.get("rope_type") or how.get("type") or "default"
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(how["factor"])
    elif kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(how, base, size))
    elif kind != "default":
        raise Refusal(f"positions are scaled by {kind}, want default, linear or llama3")


def llama3_factors(how: dict[str, Any], base: float, size: int) -> np.ndarray:
    """By how much each frequency is lowered: long waves by the factor, short ones not, between them smoothly."""
    low, high, length = how["low_freq_factor"], how["high_freq_factor"], how["original_max_position_embeddings"]
    factors = []
    for i in range(0, size, 2):
        turns = length / (2 * math.pi * base ** (i / size))
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - kept) / how["factor"] + kept))
    return np.array(factors, dtype=np.float32)


def add_tensors(writer: gguf.GGUFWriter, directory: Path, config: dict[str, Any], heads: tuple[int, int],
                quantization: gguf.GGMLQuantizationType) -> None:
    seen = set()
    for name, tensor in tensors(directory):
        if name.endswith("rotary_emb.inv_freq") or name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue  # it is computed, or is the embedding once more
        here = renamed(name)
        if here in seen:
            raise Refusal(f"{directory}: the tensor {name} is there twice")
        seen.add(here)
        module = name.rsplit(".", 1)[0]
        if module.endswith("q_proj"):
            tensor = interleaved(tensor, heads[0])
        elif module.endswith("k_proj"):
            tensor = interleaved(tensor, heads[1])
        wanted = quantization if tensor.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(here, gguf.quants.quantize(tensor, wanted), raw_dtype=wanted)
    expected = {"token_embd.weight", "output_norm.weight"} | {
        f"blk.{layer}.{part}.weight" for layer in range(config["num_hidden_layers"]) for part in LAYER.values()}
    if not config.get("tie_word_embeddings"):
        expected.add("output.weight")
    if missing := sorted(expected - seen):
        raise Refusal(f"{directory}: {len(missing)} tensors are missing, {missing[0]} among them")


def renamed(name: str) -> str:
    module, kind = name.rsplit(".", 1)
    if kind in ("weight", "bias"):
        if module in WHOLE:
            return f"{WHOLE[module]}.{kind}"
        parts = module.split(".", 3)
        if parts[:2] == ["model", "layers"] and len(parts) == 4 and parts[3] in LAYER:
            return f"blk.{int(parts[2])}.{LAYER[parts[3]]}.{kind}"
    raise Refusal(f"the tensor {name} belongs to no Llama model")


def interleaved(tensor: np.ndarray, heads: int) -> np.ndarray:
    """Puts the two halves of each head, which are turned against each other, side by side as llama.cpp has them."""
    shape = tensor.shape
    return tensor.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def tensors(directory: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yields every tensor of a directory's safetensors files, as f32."""
    index = directory / "model.safetensors.index.json"
    names = sorted(set(read_json(index)["weight_map"].values())) if index.exists() else ["model.safetensors"]
    for name in names:
        path = directory / name
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > path.stat().st_size - 8:
                raise Refusal(f"{path}: it is no safetensors file, or was cut off")
            header = json.loads(file.read(length))
        data = np.memmap(path, mode="r", offset=8 + length)
        for tensor, about in header.items():
            if tensor != "__metadata__":
                begin, end = about["data_offsets"]
                if end > len(data):
                    raise Refusal(f"{path}: it was cut off: {tensor} ends at byte {end} of {len(data)}")
                yield tensor, floats(data[begin:end], about, f"{path}: {tensor}").reshape(about["shape"])


def floats(data: np.ndarray, about: dict[str, Any], where: str) -> np.ndarray:
    kind = about["dtype"]
    if kind == "BF16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if kind in ("F32", "F16"):
        return data.view({"F32": np.float32, "F16": np.float16}[kind]).astype(np.float32)
    raise Refusal(f"{where} is of type {kind}, want F32, F16 or BF16")


if __name__ == "__main__":
    sys.exit(main())
