"""A Llama in numpy: small models without torch.

In double precision: how a matrix product rounds depends on what else is in the batch, and at 1e-15 that is below what is told.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

Array = Any
REAL = np.float64
Cache = list[tuple[Array, Array]]
"""Keys and values of every layer, (rows, heads, positions, size)."""


class Llama:
    """The weights of a folder in Hugging Face's layout, and how they are applied."""

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file
        from threadpoolctl import ThreadpoolController

        self._threads = (
            ThreadpoolController()
        )  # matrices this small are slower on several, by far where others work, too

        config = json.loads((folder / "config.json").read_text())
        self.layers = int(config["num_hidden_layers"])
        self.heads = int(config["num_attention_heads"])
        self.kv_heads = int(config.get("num_key_value_heads") or self.heads)
        self.size = int(config.get("head_dim") or config["hidden_size"] // self.heads)
        self.epsilon = float(config["rms_norm_eps"])
        self.max_length = int(config["max_position_embeddings"])
        weights = load_file(folder / "model.safetensors")
        self._weights = {name: np.ascontiguousarray(value.astype(REAL)) for name, value in weights.items()}
        self.embedding = self._weights["model.embed_tokens.weight"]
        self.head = self._weights.get("lm_head.weight", self.embedding)
        theta = float(config.get("rope_theta") or 10000.0)
        frequencies = 1.0 / theta ** (np.arange(0, self.size, 2, dtype=REAL) / self.size)
        angles = np.arange(self.max_length + 1, dtype=REAL)[:, None] * frequencies[None, :]
        angles = np.concatenate([angles, angles], axis=1)
        self._cos, self._sin = np.cos(angles), np.sin(angles)

    def forward(self, tokens: Array, positions: Array, mask: Array, cache: Cache | None) -> tuple[Array, Cache]:
        """The last hidden states of (rows, new tokens), and the cache with what was added.

        `mask` is (rows, new, old + new): 0 where a token may look, minus infinity where not. A cache of one row serves
        all rows.
        """
        hidden = self.embedding[tokens]
        cos, sin = self._cos[positions][:, None], self._sin[positions][:, None]
        added: Cache = []
        for number in range(self.layers):
            layer = f"model.layers.{number}."
            normed = self._norm(hidden, layer + "input_layernorm.weight")
            attended, keys, values = self._attend(normed, layer, cos, sin, mask, cache[number] if cache else None)
            added.append((keys, values))
            hidden = hidden + attended
            normed = self._norm(hidden, layer + "post_attention_layernorm.weight")
            hidden = hidden + self._mlp(normed, layer)
        return self._norm(hidden, "model.norm.weight"), added

    def logits(self, hidden: Array) -> Array:
        return hidden @ self.head.T

    def _attend(
        self, x: Array, layer: str, cos: Array, sin: Array, mask: Array, past: tuple[Array, Array] | None
    ) -> tuple[Array, Array, Array]:
        rows, new, _ = x.shape

        def project(name: str, heads: int) -> Array:
            made = x @ self._weights[f"{layer}self_attn.{name}_proj.weight"].T
            return made.reshape(rows, new, heads, self.size).transpose(0, 2, 1, 3)

        queries = _rotated(project("q", self.heads), cos, sin)
        keys, values = _rotated(project("k", self.kv_heads), cos, sin), project("v", self.kv_heads)
        all_keys, all_values = keys, values
        if past is not None:
            shape = (rows, self.kv_heads, past[0].shape[2], self.size)
            all_keys = np.concatenate([np.broadcast_to(past[0], shape), keys], axis=2)
            all_values = np.concatenate([np.broadcast_to(past[1], shape), values], axis=2)
        if self.kv_heads != self.heads:
            all_keys = np.repeat(all_keys, self.heads // self.kv_heads, axis=1)
            all_values = np.repeat(all_values, self.heads // self.kv_heads, axis=1)
        scores = queries @ all_keys.transpose(0, 1, 3, 2) * self.size**-0.5 + mask[:, None]
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ all_values).transpose(0, 2, 1, 3).reshape(rows, new, -1)
        return mixed @ self._weights[f"{layer}self_attn.o_proj.weight"].T, keys, values

    def _mlp(self, x: Array, layer: str) -> Array:
        gate = x @ self._weights[f"{layer}mlp.gate_proj.weight"].T
        up = x @ self._weights[f"{layer}mlp.up_proj.weight"].T
        return (gate / (1 + np.exp(-gate)) * up) @ self._weights[f"{layer}mlp.down_proj.weight"].T

    def _norm(self, x: Array, name: str) -> Array:
        variance = np.mean(x * x, axis=-1, keepdims=True)
        return x / np.sqrt(variance + self.epsilon) * self._weights[name]


def _rotated(x: Array, cos: Array, sin: Array) -> Array:
    half = x.shape[-1] // 2
    turned = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    return x * cos + turned * sin


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
