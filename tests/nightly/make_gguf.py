"""Writes a Llama model in Hugging Face's layout as a GGUF file of float32, for llama.cpp's server.

usage: python make_gguf.py MODEL_FOLDER OUT.gguf      (with `gguf`, `safetensors` and `numpy`)
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

# Hugging Face's names of tensors, and llama.cpp's.
OUTSIDE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
IN_LAYER = {
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


def name_in_gguf(name: str) -> str:
    """The name that llama.cpp gives to a tensor of a Llama."""
    if name in OUTSIDE:
        return OUTSIDE[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{IN_LAYER[rest.removesuffix('.weight')]}.weight"


def interleave_rotary(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows in llama.cpp's order: it rotates neighbours, transformers the two halves of a head."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_gguf(folder: Path, out: Path) -> None:
    """One file with the configuration, the tokenizer and the weights."""
    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_vocab_size(config["vocab_size"])
    add_tokenizer(writer, tokenizer, json.loads((folder / "tokenizer_config.json").read_text()), config)
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, stored in load_file(folder / "model.safetensors").items():
        weight = stored.astype(np.float32)
        for projection, count in heads.items():
            if f".{projection}." in name:
                weight = interleave_rotary(weight, count)
        writer.add_tensor(name_in_gguf(name), np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: dict, settings: dict, config: dict) -> None:
    """Byte-level BPE; `smollm` is llama.cpp's name for the pre-tokenizer that takes digits one by one."""
    special = {token["content"] for token in tokenizer["added_tokens"] if token["special"]}
    tokens = [b""] * config["vocab_size"]
    kinds = [gguf.TokenType.UNUSED] * config["vocab_size"]
    for token, number in tokenizer["model"]["vocab"].items():
        tokens[number] = token.encode()
        kinds[number] = gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([token or b"[UNUSED%d]" % number for number, token in enumerate(tokens)])
    writer.add_token_types(kinds)
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(settings["chat_template"])


if __name__ == "__main__":
    write_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
