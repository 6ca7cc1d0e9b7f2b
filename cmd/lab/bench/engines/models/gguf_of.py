"""Writes a small Llama of tiny.py in llama.cpp's format: gguf_of.py DIRECTORY FILE.

The converter of llama.cpp itself knows the tokenizers of published models only; this one is
a word list. Weights stay float32, so that both servers compute with the same numbers.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def tensors(path: Path) -> dict[str, np.ndarray]:
    """The float32 tensors of a safetensors file."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length :]
    read = {}
    for name, entry in header.items():
        if entry["dtype"] != "F32":
            raise SystemExit(f"{path}: {name} is {entry['dtype']}, want F32")
        begin, end = entry["data_offsets"]
        read[name] = np.frombuffer(body[begin:end], dtype=np.float32).reshape(entry["shape"])
    return read


def interleaved(weights: np.ndarray, heads: int) -> np.ndarray:
    """Rotates pairs of neighbours instead of halves, as llama.cpp does for this architecture."""
    rows, columns = weights.shape
    halves = weights.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def renamed(name: str) -> str:
    """The name that llama.cpp has for a tensor."""
    stem = name.removesuffix(".weight")
    if stem in WHOLE:
        return WHOLE[stem] + ".weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{LAYER[part]}.weight"


def tokens(directory: Path) -> tuple[list[str], list[int]]:
    """The vocabulary in the order of its ids, and what kind each token is."""
    vocabulary = json.loads((directory / "tokenizer.json").read_text())["model"]["vocab"]
    size = json.loads((directory / "config.json").read_text())["vocab_size"]
    words = [f"<unused{i}>" for i in range(size)]
    for word, i in vocabulary.items():
        words[i] = "\u2581" if word == " " else word
    kinds = []
    for word in words:
        if word == "<unk>":
            kinds.append(gguf.TokenType.UNKNOWN)
        elif len(word) > 1:
            kinds.append(gguf.TokenType.CONTROL)
        else:
            kinds.append(gguf.TokenType.NORMAL)
    return words, kinds


def main() -> None:
    directory, path = Path(sys.argv[1]), Path(sys.argv[2])
    config = json.loads((directory / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(directory.name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    words, kinds = tokens(directory)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(words)
    writer.add_token_scores([0.0] * len(words))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_unk_token_id(words.index("<unk>"))
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    template = directory / "chat_template.jinja"
    if template.exists():
        writer.add_chat_template(template.read_text())
    for name, weights in tensors(directory / "model.safetensors").items():
        if ".q_proj." in name or ".k_proj." in name:
            weights = interleaved(weights, config["num_attention_heads"])
        writer.add_tensor(renamed(name), np.ascontiguousarray(weights))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
