"""The model that comes with assay: a small transformer on the CPU, without torch, network or key."""

import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from assay.models.conversations import in_text
from assay.models.local.generation import KNOWN
from assay.models.local.llama import REAL, Cache, Llama, log_softmax
from assay.models.local.prefixes import Cluster, Tree, clusters
from assay.models.local.windows import Windows
from assay.models.protocol import Answered, Can
from assay.models.tokenizer import Vocabulary
from assay.models.tokens import cut_at_stop, encode_pair, stops_of
from assay.records import (
    DEFAULT_MAX_GEN_TOKS,
    Failed,
    Generate,
    Message,
    Request,
    Response,
    Text,
    Usage,
    limit_of,
)  # fmt: skip

BUNDLED = Path(__file__).parents[2] / "bundled/model"
MAX_TOKENS = 2048
"""Tokens of one pass: more are no faster and take memory."""
ROWS = 16
"""Generations at once: what they look at fits the processor's cache."""
NEVER = REAL(-1e30)
DECIMALS = 6
"""Of a log-likelihood: the same whatever else was in the batch."""


class Embedded:
    """A Llama of a folder in Hugging Face's layout; without a path, the bundled one."""

    name = "embedded"
    precision = "float64"
    can = Can(chat=True)
    window = 2048
    generation = KNOWN - {"top_k"}

    def __init__(self, path: str | None = None, over_length: Literal["error", "truncate"] = "error") -> None:
        self.cuts = over_length == "truncate"
        self._folder = Path(path) if path is not None else BUNDLED
        self._llama = Llama(self._folder)
        self._words = Vocabulary(self._folder)
        self._tokenizer = self._words.tokenizer
        self._end = self._words.end
        generation = self._folder / "generation_config.json"
        ends = json.loads(generation.read_text())["eos_token_id"] if generation.is_file() else self._end
        self._ends = frozenset(ends if isinstance(ends, list) else [ends])
        self.max_length: int | None = self._llama.max_length

    @cached_property
    def identity(self) -> str:
        """The content of the folder: another model, another identity."""
        made = hashlib.blake2b(digest_size=16)
        for file in sorted(self._folder.iterdir()):
            if file.suffix in (".json", ".safetensors"):
                made.update(file.name.encode() + file.read_bytes())
        return f"embedded {made.hexdigest()}" + (" of cut prompts" if self.cuts else "")

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        return self._words.chat_template(messages, add_generation_prompt)

    def count_tokens(self, text: str) -> int | None:
        return len(self._encode(text))

    def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        return in_text(requests, self.chat_template, self._answer)

    async def _answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        from threadpoolctl import threadpool_limits

        scored = [(n, r) for n, r in enumerate(requests) if not isinstance(r, Generate)]
        written = [(n, r) for n, r in enumerate(requests) if isinstance(r, Generate)]
        with threadpool_limits(
            1, user_api="blas"
        ):  # threads would wait for each other, and long where others work, too
            for answered in self._score(scored):
                yield answered
            for start in range(0, len(written), ROWS):
                yield self._write(written[start : start + ROWS])

    def _encode(self, text: str) -> list[int]:
        return self._words.encode(text)

    def _pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        return encode_pair(self._encode, context, continuation, self._end)

    # log-likelihoods

    def _score(self, requests: Sequence[tuple[int, Request]]) -> Iterator[list[tuple[int, Response]]]:
        """Responses cluster by cluster."""
        windows = Windows(self._encode, self._pair, self._end, self._llama.max_length, self.cuts, is_counted=False)
        pieces: list[tuple[tuple[int, ...], int]] = []
        known: list[tuple[int, Response]] = []
        for number, request in requests:
            made = windows.pairs(number, request)
            if isinstance(made, list):
                pieces += [((*context, *continuation), len(continuation)) for _, context, continuation in made]
            else:
                known.append((number, made))
        yield known
        for cluster in clusters([tokens[:-1] for tokens, _ in pieces], [length for _, length in pieces]):
            scored = self._score_cluster(cluster, pieces)
            landed = (windows.land(piece, value, greedy) for piece, value, greedy in scored)
            yield [each for several in landed for each in several]

    def _score_cluster(self, cluster: Cluster, pieces: Sequence[Any]) -> Iterator[tuple[int, float, bool]]:
        cache, last = self._read_prefix(cluster.prefix)
        trees = sorted(cluster.trees, key=lambda tree: len(tree.tokens))
        start = 0
        while start < len(trees):
            end = start + 1
            while end < len(trees) and (end - start + 1) * max(len(trees[end].tokens), 1) <= MAX_TOKENS:
                end += 1
            batch = trees[start:end]
            hidden = self._read_trees(batch, len(cluster.prefix), cache)
            for row, tree in enumerate(batch):
                for piece, path in tree.paths.items():
                    tokens, length = pieces[piece]
                    nodes = [
                        *([-1] if len(path) < length else []),
                        *path[len(path) - length if len(path) >= length else 0 :],
                    ]
                    states = np.stack([last if node < 0 else hidden[row, node] for node in nodes])
                    yield piece, *self._likelihood(states, tokens[len(tokens) - length :])
            start = end

    def _likelihood(self, states: Any, continuation: Sequence[int]) -> tuple[float, bool]:
        scores = log_softmax(self._llama.logits(states))
        wanted = np.asarray(continuation)
        chosen = scores[np.arange(len(wanted)), wanted]
        return round(float(chosen.sum()), DECIMALS), bool((scores.argmax(axis=-1) == wanted).all())

    def _read_prefix(self, prefix: Sequence[int]) -> tuple[Cache | None, Any]:
        if not prefix:
            return None, None
        tokens = np.asarray([prefix])
        count = len(prefix)
        mask = np.triu(np.full((count, count), NEVER, dtype=REAL), 1)[None]
        hidden, cache = self._llama.forward(tokens, np.arange(count)[None], mask, None)
        return cache, hidden[0, -1]

    def _read_trees(self, trees: Sequence[Tree], before: int, cache: Cache | None) -> Any:
        """The hidden states of packed rows: each token sees the prefix, its ancestors and itself."""
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
                mask[row, node, before + node] = 0  # padding sees itself: a row without any sight would not be a number
        hidden, _ = self._llama.forward(tokens, positions, mask, cache)
        return hidden

    # generation

    def _write(self, requests: Sequence[tuple[int, Request]]) -> list[tuple[int, Response]]:
        """Generations of a batch, token by token, each with its own stops and random numbers."""
        answered: list[tuple[int, Response]] = []
        rows: list[_Writing] = []
        for number, request in requests:
            assert isinstance(request, Generate)
            row = _Writing(number, request, self._encode(request.text) or [self._end])
            if self.cuts:
                row.cut_to(self._llama.max_length - row.left)
            room = self._llama.max_length - len(row.tokens)
            if room <= 0:
                reason = f"{len(row.tokens)} tokens are more than the model's {self._llama.max_length}"
                answered.append((number, Failed(reason)))
            else:
                row.left = min(row.left, room)
                rows.append(row)
        if rows:
            self._fill(rows)
        return [
            *answered,
            *((row.number, Text(row.text, row.finish, usage=Usage(cut=row.cut) if row.cut else None)) for row in rows),
        ]

    def _fill(self, rows: list["_Writing"]) -> None:
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
            if len(alive) < len(rows):  # what has ended is not carried on
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

    def _next(self, row: "_Writing", logits: Any) -> int:
        if row.finish:
            return self._end
        token = row.choose(logits)
        row.take(token, self._ends, self._tokenizer)
        return token


class _Writing:
    """A generation under way."""

    def __init__(self, number: int, request: Generate, tokens: list[int]) -> None:
        self.number, self.tokens = number, tokens
        params = request.params
        self._stops = stops_of(params)
        self.left = limit_of(params) or DEFAULT_MAX_GEN_TOKS
        self._temperature = float(str(params.get("temperature", 1.0))) if request.is_sampled else 0.0
        self._top_p = float(str(params.get("top_p", 1.0)))
        seed = hashlib.blake2b(request.seed_bytes, digest_size=8).digest()
        self._random = np.random.default_rng(int.from_bytes(seed))
        self._written: list[int] = []
        self.text = ""
        self.finish = ""
        self.cut = 0

    def cut_to(self, room: int) -> None:
        """Leave out the beginning of a prompt that is too long, as lm-eval does."""
        if 0 < room < len(self.tokens):
            self.cut = len(self.tokens) - room
            self.tokens = self.tokens[self.cut :]

    def choose(self, logits: Any) -> int:
        """The most likely token; or one drawn by its probability, the same every time for the same prompt, repeat and draw."""
        if self._temperature <= 0:
            return int(np.argmax(logits))
        scaled = np.exp(log_softmax(logits.astype(np.float64) / self._temperature))
        if self._top_p < 1:
            order = np.argsort(-scaled)
            kept = order[: int(np.searchsorted(np.cumsum(scaled[order]), self._top_p)) + 1]
            limited = np.zeros_like(scaled)
            limited[kept] = scaled[kept]
            scaled = limited
        return int(self._random.choice(len(scaled), p=scaled / scaled.sum()))

    def take(self, token: int, ends: frozenset[int], tokenizer: Any) -> None:
        if token in ends:
            self.finish = "stop"
            return
        self._written.append(token)
        self.left -= 1
        text, stopped = cut_at_stop(tokenizer.decode(self._written, skip_special_tokens=False), self._stops)
        self.text = text
        if stopped:
            self.finish = "stop"
        elif self.left <= 0:
            self.finish = "length"
