"""The bundled model and any small Llama, in NumPy on the CPU: without torch, network or key.

In double precision: how a matrix product rounds depends on the batch, and at 1e-15 that is below the reported decimals.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from assay.errors import ConfigError
from assay.models.conversations import answer_rendered
from assay.models.local.generation import GENERATION_PARAMETERS, Generation
from assay.models.local.prefixes import PrefixTrees, TokenTree, prefix_trees
from assay.models.local.windows import Windows
from assay.models.protocol import Answered, Can
from assay.models.tokenizer import FolderTokenizer, encode_pair
from assay.records import (
    Failed,
    Generate,
    Message,
    Request,
    Response,
    Text,
    Usage,
)  # fmt: skip
from assay.statistics.softmax import log_softmax, softmax_in_place
from assay.user_code import user_code

Array = Any
REAL = np.float64
Cache = list[tuple[Array, Array]]
"""Keys and values of every layer, (rows, heads, positions, size)."""

BUNDLED = Path(__file__).parents[2] / "bundled/model"
MAX_TOKENS = 2048
"""Tokens of one pass: more are not faster and take memory."""
ROWS = 16
"""Texts per generation batch: their keys and values fit the CPU cache."""
NEVER = REAL(-1e30)
DECIMALS = 6
"""Decimals of a log-likelihood: the same in every batch."""


class Llama:
    """A Llama with the weights of a folder in Hugging Face's layout."""

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file
        from threadpoolctl import ThreadpoolController

        # matrices this small are slower on several threads, by far on a busy machine
        self._threads = ThreadpoolController()

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
        """Return the last hidden states of (rows, new tokens), and the keys and values that were added.

        `mask` is (rows, new, old + new): 0 where a token attends, minus infinity where not. A cache of one row serves
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
            projected = x @ self._weights[f"{layer}self_attn.{name}_proj.weight"].T
            return projected.reshape(rows, new, heads, self.size).transpose(0, 2, 1, 3)

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
        mixed = (softmax_in_place(scores) @ all_values).transpose(0, 2, 1, 3).reshape(rows, new, -1)
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


def _refused(reason: str) -> ConfigError:
    fix = "give a folder with config.json, model.safetensors and tokenizer.json of a Llama"
    return ConfigError.at("model_args.path", reason, fix)


class Embedded:
    """A Llama from a folder in Hugging Face's layout; without a path, the bundled one."""

    name = "embedded"
    precision = "float64"
    can = Can(chat=True)
    window = 2048
    generation = GENERATION_PARAMETERS - {"top_k"}

    def __init__(self, path: str | None = None, over_length: Literal["error", "truncate"] = "error") -> None:
        self.cuts = over_length == "truncate"
        self._folder = Path(path) if path is not None else BUNDLED
        with user_code(f"{self._folder} cannot be loaded", _refused):  # whatever the libraries raise
            self._llama = Llama(self._folder)
            self._tokenizer = FolderTokenizer(self._folder)
        self._end = self._tokenizer.end
        generation = self._folder / "generation_config.json"
        ends = json.loads(generation.read_text())["eos_token_id"] if generation.is_file() else self._end
        self._ends = frozenset(ends if isinstance(ends, list) else [ends])
        self.max_length: int | None = self._llama.max_length
        self.facts = {"path": str(self._folder)}

    @cached_property
    def identity(self) -> str:
        """Digest of the folder's content."""
        digest = hashlib.blake2b(digest_size=16)
        for file in sorted(self._folder.iterdir()):
            if file.suffix in (".json", ".safetensors"):
                digest.update(file.name.encode() + file.read_bytes())
        return f"embedded {digest.hexdigest()}" + (" of cut prompts" if self.cuts else "")

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        return self._tokenizer.chat_template(messages, add_generation_prompt)

    def count_tokens(self, text: str) -> int | None:
        return self._tokenizer.count_tokens(text)

    def tokenizer_digest(self) -> str:
        return self._tokenizer.tokenizer_digest()

    @staticmethod
    def tokenizer_alone(path: str | None = None, **_: object) -> FolderTokenizer:
        """The tokenizer without the weights."""
        return FolderTokenizer(Path(path) if path is not None else BUNDLED)

    def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        return answer_rendered(requests, self.chat_template, self._answer)

    async def _answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        from threadpoolctl import threadpool_limits

        scored = [(n, r) for n, r in enumerate(requests) if not isinstance(r, Generate)]
        generated = [(n, r) for n, r in enumerate(requests) if isinstance(r, Generate)]
        # more threads wait for each other, and for long on a busy machine
        with threadpool_limits(1, user_api="blas"):
            for answered in self._score(scored):
                yield answered
            for start in range(0, len(generated), ROWS):
                yield self._generate(generated[start : start + ROWS])

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text)

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.tokenizer.decode(tokens, skip_special_tokens=False))

    def _pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        return encode_pair(self._encode, context, continuation, self._end)

    # log-likelihoods

    def _score(self, requests: Sequence[tuple[int, Request]]) -> Iterator[list[tuple[int, Response]]]:
        """Yield responses, one prefix group at a time."""
        windows = Windows(self._encode, self._pair, self._end, self._llama.max_length, self.cuts, is_counted=False)
        sequences: list[tuple[tuple[int, ...], int]] = []
        known: list[tuple[int, Response]] = []
        for number, request in requests:
            pairs = windows.pairs(number, request)
            if isinstance(pairs, list):
                sequences += [((*context, *continuation), len(continuation)) for _, context, continuation in pairs]
            else:
                known.append((number, pairs))
        yield known
        for group in prefix_trees([tokens[:-1] for tokens, _ in sequences], [length for _, length in sequences]):
            scored = self._score_group(group, sequences)
            complete = (windows.add(number, value, greedy) for number, value, greedy in scored)
            yield [numbered for responses in complete for numbered in responses]

    def _score_group(
        self, group: PrefixTrees, sequences: Sequence[tuple[tuple[int, ...], int]]
    ) -> Iterator[tuple[int, float, bool]]:
        cache, last = self._read_prefix(group.prefix)
        trees = sorted(group.trees, key=lambda tree: len(tree.tokens))
        start = 0
        while start < len(trees):
            end = start + 1
            while end < len(trees) and (end - start + 1) * max(len(trees[end].tokens), 1) <= MAX_TOKENS:
                end += 1
            batch = trees[start:end]
            hidden = self._read_trees(batch, len(group.prefix), cache)
            for row, tree in enumerate(batch):
                for number, path in tree.paths.items():
                    tokens, length = sequences[number]
                    nodes = [
                        *([-1] if len(path) < length else []),
                        *path[len(path) - length if len(path) >= length else 0 :],
                    ]
                    states = np.stack([last if node < 0 else hidden[row, node] for node in nodes])
                    yield number, *self._likelihood(states, tokens[len(tokens) - length :])
            start = end

    def _likelihood(self, states: Array, continuation: Sequence[int]) -> tuple[float, bool]:
        scores = log_softmax(self._llama.logits(states))
        targets = np.asarray(continuation)
        chosen = scores[np.arange(len(targets)), targets]
        return round(float(chosen.sum()), DECIMALS), bool((scores.argmax(axis=-1) == targets).all())

    def _read_prefix(self, prefix: Sequence[int]) -> tuple[Cache | None, Array]:
        if not prefix:
            return None, None
        tokens = np.asarray([prefix])
        count = len(prefix)
        mask = np.triu(np.full((count, count), NEVER, dtype=REAL), 1)[None]
        hidden, cache = self._llama.forward(tokens, np.arange(count)[None], mask, None)
        return cache, hidden[0, -1]

    def _read_trees(self, trees: Sequence[TokenTree], before: int, cache: Cache | None) -> Array:
        """Return the hidden states of packed rows: each token attends to the prefix, its ancestors and itself."""
        width = max(max(len(tree.tokens) for tree in trees), 1)
        tokens = np.zeros((len(trees), width), dtype=np.int64)
        positions = np.zeros((len(trees), width), dtype=np.int64)
        mask = np.full((len(trees), width, before + width), NEVER, dtype=REAL)
        mask[:, :, :before] = 0
        for row, tree in enumerate(trees):
            count = len(tree.tokens)
            tokens[row, :count] = tree.tokens
            positions[row, :count] = np.asarray(tree.depths) + before if count else 0
            for node, parent in enumerate(tree.parents):
                if parent >= 0:
                    mask[row, node, before:] = mask[row, parent, before:]
                mask[row, node, before + node] = 0
            for node in range(count, width):
                mask[row, node, before + node] = 0  # padding attends to itself: a row without any key would be NaN
        hidden, _ = self._llama.forward(tokens, positions, mask, cache)
        return hidden

    # generation

    def _generate(self, requests: Sequence[tuple[int, Generate]]) -> list[tuple[int, Response]]:
        """Generate a batch, token by token, each text with its own stop strings and random numbers."""
        rows = [
            _EmbeddedGeneration(number, request, self._encode(request.text) or [self._end])
            for number, request in requests
        ]
        for row in rows:
            row.fit(self._llama.max_length, self.cuts)
        fitting = [row for row in rows if not row.problem]
        if fitting:
            self._fill(fitting)
        return [(row.number, row.response()) for row in rows]

    def _fill(self, rows: list["_EmbeddedGeneration"]) -> None:
        longest = max(len(row.tokens) for row in rows)
        lengths = np.asarray([len(row.tokens) for row in rows])
        tokens = np.zeros((len(rows), longest), dtype=np.int64)
        for index, row in enumerate(rows):
            tokens[index, : len(row.tokens)] = row.tokens
        causal = np.triu(np.full((longest, longest), NEVER, dtype=REAL), 1)
        positions = np.broadcast_to(np.arange(longest), tokens.shape)
        hidden, cache = self._llama.forward(
            tokens, positions, np.broadcast_to(causal, (len(rows), longest, longest)), None
        )
        last = hidden[np.arange(len(rows)), lengths - 1]
        seen = np.arange(longest)[None, :] < lengths[:, None]
        while True:
            chosen = [self._next(row, logits) for row, logits in zip(rows, self._llama.logits(last), strict=True)]
            alive = [index for index, row in enumerate(rows) if not row.finish]
            if not alive:
                return
            if len(alive) < len(rows):  # finished texts leave the batch
                rows, chosen = [rows[index] for index in alive], [chosen[index] for index in alive]
                seen, lengths = seen[alive], lengths[alive]
                cache = [(keys[alive], values[alive]) for keys, values in cache]
            mask = np.where(np.concatenate([seen, np.ones((len(rows), 1), bool)], axis=1), REAL(0), NEVER)[:, None]
            new = np.asarray(chosen)[:, None]
            hidden, added = self._llama.forward(new, lengths[:, None], mask, cache)
            cache = [
                (np.concatenate([k, nk], axis=2), np.concatenate([v, nv], axis=2))
                for (k, v), (nk, nv) in zip(cache, added, strict=True)
            ]
            seen = np.concatenate([seen, np.ones((len(rows), 1), bool)], axis=1)
            lengths, last = lengths + 1, hidden[:, 0]

    def _next(self, row: "_EmbeddedGeneration", logits: Array) -> int:
        if row.finish:
            return self._end
        token = row.choose(logits)
        row.take([token], self._ends, self._decode)
        return token


class _EmbeddedGeneration(Generation):
    """A generation of the embedded model, which ignores parameters that it does not have."""

    def __init__(self, number: int, request: Generate, tokens: Sequence[int]) -> None:
        super().__init__(number, request, tokens)
        self.problem = ""

    def choose(self, logits: Array) -> int:
        """Return the most likely token; or one drawn by its probability, reproducible for prompt, repeat and draw."""
        if self.temperature <= 0:
            return int(np.argmax(logits))
        chances = np.exp(log_softmax(logits.astype(np.float64) / self.temperature))
        if self.top_p < 1:
            order = np.argsort(-chances)
            kept = order[: int(np.searchsorted(np.cumsum(chances[order]), self.top_p)) + 1]
            limited = np.zeros_like(chances)
            limited[kept] = chances[kept]
            chances = limited
        return int(self._random.choice(len(chances), p=chances / chances.sum()))

    def response(self) -> Text | Failed:
        """Return the response, with usage only where the prompt was truncated."""
        return (
            Failed(self.problem)
            if self.problem
            else Text(self.text, self.finish, usage=Usage(cut=self.cut) if self.cut else None)
        )
