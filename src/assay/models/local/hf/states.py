"""Models whose layers keep a state, or that have custom attention code: the state after shared tokens is computed once, with
transformers' caches, and copied to the texts that begin with them.

A recurrent layer cannot skip padding. Texts of different lengths are therefore read in blocks of 2ⁿ tokens: each block is one
batch of all texts whose length has it, without any padding.
"""

import copy
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from assay.models.local.generation import NAN_LOGITS, Generation
from assay.models.local.hf.loading import LoadedHFModel
from assay.models.local.hf.padded import PaddedRunner, too_long
from assay.models.local.prefixes import MIN_SHARED, ContextGroup, PrefixGroup, Tokens, prefix_groups
from assay.models.local.scoring import ScoredPair, likelihoods, uniform_memory_errors
from assay.models.local.slots import is_bad
from assay.models.local.tokenizer import HFTokenizer
from assay.models.local.windows import Pair
from assay.signatures import argument_names

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROWS = {"cuda": 256}
"""Texts that are read together on a GPU: a pass over recurrent layers takes about as long for one as for many."""
CONTEXT_TOKENS = 32_768
"""Tokens of contexts that are read together by a model that computes the last logits alone."""
PAIRS = 2_048
"""Pairs that are grouped by prefix at a time."""
KEPT = 4
"""Number of prefixes whose states are kept for later requests."""


class UnsupportedCache(Exception):
    """The model's cache cannot be copied row by row."""


@dataclass(slots=True)
class States:
    """Rows with the state of the model after their tokens. `is_token` is false where the caches of attention layers have
    an entry without a token of the row; None: all are tokens."""

    cache: Any
    lengths: list[int]
    is_token: torch.Tensor | None = None

    def take(self, rows: Sequence[int]) -> "States":
        """A copy of some rows, each as often as it is named."""
        lengths = [self.lengths[row] for row in rows]
        if self.cache is None:
            return States(None, lengths)
        index = torch.tensor(rows, device=_device_of(self.cache))
        cache = copy.copy(self.cache)
        cache.layers = [_selected(layer, index, len(self.lengths)) for layer in self.cache.layers]
        return States(cache, lengths, None if self.is_token is None else self.is_token[index])


class StatefulModel:
    """Reads tokens after a state, and returns logits and the state after them."""

    def __init__(self, model: "PreTrainedModel", *, with_gaps: bool = True, by_token: bool = False) -> None:
        """`with_gaps`: its attention layers skip entries of their caches that are masked out. `by_token`: after a state, it
        reads one token at a time only."""
        self._model, self.with_gaps, self._by_token = model, with_gaps, by_token
        takes = argument_names(model.forward)
        self._cache_name = "cache_params" if "cache_params" in takes else "past_key_values"
        self._takes_positions, self.keeps_logits = "position_ids" in takes, "logits_to_keep" in takes

    @property
    def device(self) -> torch.device:
        return self._model.device

    def empty(self, rows: int) -> States:
        return States(None, [0] * rows)

    def forward(self, states: States, tokens: Sequence[Tokens], *, last: bool) -> torch.Tensor:
        """Read as many tokens in every row; returns their logits, or those of the last one. The states move on."""
        if self._by_token and states.cache is not None and len(tokens[0]) > 1:
            logits = [
                self.forward(states, [text[at : at + 1] for text in tokens], last=True) for at in range(len(tokens[0]))
            ]
            return logits[-1] if last else torch.cat(logits, 1)
        read = torch.tensor([list(each) for each in tokens], device=self.device)
        if states.is_token is not None:
            states.is_token = torch.cat([states.is_token, torch.ones_like(read, dtype=torch.bool)], 1)
        asked: dict[str, Any] = {"input_ids": read, "use_cache": True}
        if states.is_token is not None:
            asked["attention_mask"] = states.is_token.long()
        if states.cache is not None:
            asked[self._cache_name] = states.cache
        if self._takes_positions:
            starts = torch.tensor(states.lengths, device=self.device)[:, None]
            asked["position_ids"] = starts + torch.arange(read.shape[1], device=self.device)
        if last and self.keeps_logits:
            asked["logits_to_keep"] = 1
        with uniform_memory_errors():
            output = self._model(**asked)
        states.cache = getattr(output, self._cache_name, None)
        states.lengths = [length + read.shape[1] for length in states.lengths]
        return output.logits[:, -1:] if last else output.logits  # type: ignore[no-any-return]

    def read(self, states: States, texts: Sequence[Tokens]) -> torch.Tensor:
        """Read a text in every row, of whatever lengths; returns the logits after each. The states move on."""
        done = [0] * len(texts)
        logits: torch.Tensor | None = None
        while left := [len(text) - at for text, at in zip(texts, done, strict=True)]:
            longest = max(left)
            if not longest:
                break
            is_even = all(each in (0, longest) for each in left)
            size = longest if is_even else 1 << (longest.bit_length() - 1)
            rows = [row for row, each in enumerate(left) if each >= size]
            new = self._read_block(states, rows, [texts[row][done[row] : done[row] + size] for row in rows])
            for row in rows:
                done[row] += size
            logits = new.new_empty(len(texts), new.shape[1]) if logits is None else logits
            logits[torch.tensor(rows, device=new.device)] = new
        assert logits is not None
        return logits

    def _read_block(self, states: States, rows: Sequence[int], tokens: Sequence[Tokens]) -> torch.Tensor:
        if len(rows) == len(states.lengths):
            return self.forward(states, tokens, last=True)[:, 0]
        if not self.with_gaps:
            raise UnsupportedCache("texts of different lengths")
        part = states.take(rows)
        if part.is_token is None and part.cache is not None and (entries := cache_length(part.cache)):
            part.is_token = torch.ones(len(rows), entries, dtype=torch.bool, device=self.device)
        logits = self.forward(part, tokens, last=True)[:, 0]
        _put(states, rows, part, len(tokens[0]))
        return logits


def cache_length(cache: Any) -> int:
    """Number of entries in the caches of attention layers; 0 where there are none."""
    return max((layer.keys.shape[-2] for layer in cache.layers if _has_keys(layer)), default=0)


def _has_keys(layer: Any) -> bool:
    keys = getattr(layer, "keys", None)
    return isinstance(keys, torch.Tensor) and keys.numel() > 0


def _device_of(cache: Any) -> torch.device:
    for layer in cache.layers:
        for value in _tensors(vars(layer).values()):
            return value.device
    raise UnsupportedCache("an empty cache")


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor) and value.numel():
            yield value
        elif isinstance(value, dict):
            yield from _tensors(value.values())


def _selected(layer: Any, index: torch.Tensor, rows: int) -> Any:
    """A copy of a layer's cache with some rows."""

    def selected(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: selected(each) for key, each in value.items()}
        if not isinstance(value, torch.Tensor) or not value.numel():
            return value
        if value.shape[0] != rows:
            raise UnsupportedCache(f"a cache of {tuple(value.shape)} for {rows} rows")
        return value.index_select(0, index)

    new = copy.copy(layer)
    for name, value in vars(layer).items():
        setattr(new, name, selected(value))
    return new


def _put(states: States, rows: Sequence[int], part: States, size: int) -> None:
    """Put rows that have read `size` tokens back among the others, which have not."""
    count, is_first = len(states.lengths), states.cache is None
    if is_first:
        states.cache = copy.copy(part.cache)
        states.cache.layers = [copy.copy(layer) for layer in part.cache.layers]
    if any(getattr(layer, "is_sliding", False) for layer in part.cache.layers):
        raise UnsupportedCache("a window and rows of different lengths")
    index = torch.tensor(rows, device=_device_of(part.cache))
    before = cache_length(part.cache) - size if cache_length(part.cache) else 0
    for whole, new in zip(states.cache.layers, part.cache.layers, strict=True):
        for name, value in vars(new).items():
            old = None if is_first else getattr(whole, name)
            setattr(whole, name, _merged(old, value, (count, index, name in ("keys", "values"))))
    for row, length in zip(rows, part.lengths, strict=True):
        states.lengths[row] = length
    if cache_length(part.cache):
        old_mask = states.is_token
        if old_mask is None:
            old_mask = torch.ones(count, before, dtype=torch.bool, device=index.device)
        added = torch.zeros(count, size, dtype=torch.bool, device=index.device)
        added[index] = True
        states.is_token = torch.cat([old_mask, added], 1)


def _merged(old: Any, new: Any, how: tuple[int, torch.Tensor, bool]) -> Any:
    """The value of a cache with new rows at an index; entries of attention layers are appended to all rows."""
    count, index, is_attention = how
    if isinstance(new, dict):
        return {key: _merged((old or {}).get(key), value, how) for key, value in new.items()}
    if not isinstance(new, torch.Tensor) or not new.numel():
        return new
    if old is None or not old.numel():
        whole = new.new_zeros(count, *new.shape[1:])
    elif is_attention:
        whole = torch.cat([old, old.new_zeros(*old.shape[:-2], new.shape[-2] - old.shape[-2], old.shape[-1])], -2)
    else:
        whole = old
    whole[index] = new
    return whole


class StateRunner(PaddedRunner):
    """Runs a causal model by its states: what texts share is read once."""

    def __init__(
        self, loaded: LoadedHFModel, tokenizer: HFTokenizer, max_batch: int | None, net: StatefulModel
    ) -> None:
        super().__init__(loaded, tokenizer, max_batch)
        self._net = net
        self._rows = max_batch or ROWS.get(net.device.type, self._rows)
        self._context_tokens = CONTEXT_TOKENS if net.keeps_logits else self._tokens
        self._is_tried = True  # with its states
        self._kept: OrderedDict[tuple[int, ...], States] = OrderedDict()

    @property
    def way(self) -> str:
        return "states"

    def forget(self) -> None:
        """Drop the states of prefixes."""
        self._kept.clear()

    def score(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[list[ScoredPair]]:
        for pairs in _joined(chunks):
            groups = prefix_groups([(context, continuation) for _, context, continuation in pairs])
            for prefix, contexts in _with_prefixes(groups):
                waiting = sorted(contexts, key=lambda each: -len(each.context))
                while waiting:
                    some = self._some([len(each.context) - len(prefix) for each in waiting], self._context_tokens)
                    some = self._even([len(each.context) for each in waiting[:some]])
                    try:
                        yield self._score_contexts(prefix, waiting[:some], pairs)
                    except torch.OutOfMemoryError:
                        self.forget()
                        if some > 1:
                            self._rows = some // 2
                            continue
                        yield [too_long(pairs[number]) for numbers in waiting[0].numbers for number in numbers]
                    waiting = waiting[some:]

    def _even(self, lengths: Sequence[int]) -> int:
        """Number of texts that are read together: all of them, or those as long as the first."""
        return len(lengths) if self._net.with_gaps else lengths.count(lengths[0])

    def _score_contexts(
        self, prefix: Tokens, contexts: Sequence[ContextGroup], pairs: Sequence[Pair]
    ) -> list[ScoredPair]:
        started = time.perf_counter()
        with torch.inference_mode():
            states, new = self._after(prefix, len(contexts))
            logits = [self._net.read(states, [each.context[len(prefix) :] for each in contexts])]
            branches = [(row, branch) for row, each in enumerate(contexts) for branch in each.branches if branch]
            places = self._read_branches(states, branches, logits)
            targets = _targets(contexts, places, pairs)
            at, token = (torch.tensor([each[part] for each in targets], device=self._net.device) for part in (0, 1))
            picked, greedy = likelihoods(torch.cat(logits), at, token)
            values, is_greedy = picked.cpu().double().tolist(), greedy.cpu().tolist()
        seconds = (time.perf_counter() - started) / max(sum(len(n) for each in contexts for n in each.numbers), 1)
        return _scored(contexts, pairs, targets, (values, is_greedy, seconds, new, len(prefix)))

    def _after(self, prefix: Tokens, rows: int) -> tuple[States, int]:
        """States after a prefix, and the number of tokens that were read for them."""
        if not prefix:
            return self._net.empty(rows), 0
        known = self._kept.get(tuple(prefix))
        if known is None:
            known = self._net.empty(1)
            self._net.read(known, [prefix])
            self._kept[tuple(prefix)] = known
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return known.take([0] * rows), len(prefix)
        self._kept.move_to_end(tuple(prefix))
        return known.take([0] * rows), 0

    def _read_branches(
        self, states: States, branches: Sequence[tuple[int, Tokens]], logits: list[torch.Tensor]
    ) -> dict[tuple[int, tuple[int, ...]], int]:
        """Read continuations after their contexts, padded at the end; appends their logits, returns where each begins."""
        places: dict[tuple[int, tuple[int, ...]], int] = {}
        waiting = sorted(branches, key=lambda each: -len(each[1]))
        start = len(logits[0])
        while waiting:
            some = waiting[: self._some([len(branch) for _, branch in waiting])]
            waiting = waiting[len(some) :]
            longest = len(some[0][1])
            after = states.take([row for row, _ in some])
            padded = [[*branch, *[0] * (longest - len(branch))] for _, branch in some]
            read = self._net.forward(after, padded, last=False)
            logits.append(read.flatten(0, 1))
            for number, (row, branch) in enumerate(some):
                places[row, tuple(branch)] = start + number * longest
            start += len(some) * longest
        return places

    # texts

    def generate(self, generations: Sequence[Generation]) -> Iterator[list[Generation]]:
        self.forget()
        groups = prefix_groups([(each.tokens, ()) for each in generations])
        for prefix, contexts in _with_prefixes(groups):
            members = [generations[number] for each in contexts for numbers in each.numbers for number in numbers]
            for index, each in enumerate(members):
                each.stored = len(prefix) if index else 0
            self._prefix, self._pads = prefix, self._net.with_gaps
            yield from super().generate(members)

    def _started(self, batch: Sequence[Generation]) -> "_StateBatch":  # type: ignore[override]
        states, _ = self._after(self._prefix, len(batch))
        return _StateBatch(self._net, states, [each.tokens[len(self._prefix) :] for each in batch], self._length)


class _StateBatch:
    """Rows in generation."""

    def __init__(self, net: StatefulModel, states: States, texts: Sequence[Tokens], length: int) -> None:
        self._net, self._states, self._length = net, states, length
        self.logits = net.read(states, texts)
        self.is_bad = is_bad(self.logits)

    def step(self, chosen: torch.Tensor) -> None:
        self.logits = self._net.forward(self._states, chosen[:, None].tolist(), last=True)[:, 0]
        self._states.lengths = [min(length, self._length - 1) for length in self._states.lengths]
        self.is_bad |= is_bad(self.logits)


def _joined(chunks: Iterable[Sequence[Pair]]) -> Iterator[list[Pair]]:
    """Chunks in larger ones, so that more texts after one prefix are read together."""
    pairs: list[Pair] = []
    for chunk in chunks:
        pairs += chunk
        if len(pairs) >= PAIRS:
            yield pairs
            pairs = []
    yield pairs


def _with_prefixes(groups: Sequence[PrefixGroup]) -> Iterator[tuple[Tokens, list[ContextGroup]]]:
    """Contexts by the prefix that they share; those that share none together."""
    alone: list[ContextGroup] = []
    for group in groups:
        if len(group.contexts) > 1 and group.shared >= MIN_SHARED:
            yield group.prefix, group.contexts
        else:
            alone += group.contexts
    if alone:
        yield (), alone


Targets = list[tuple[int, int, int]]
"""Index of the logits, target token, number of its pair."""


def _targets(
    contexts: Sequence[ContextGroup], places: dict[tuple[int, tuple[int, ...]], int], pairs: Sequence[Pair]
) -> Targets:
    targets: Targets = []
    for row, each in enumerate(contexts):
        for branch, numbers in zip(each.branches, each.numbers, strict=True):
            first = places.get((row, tuple(branch)), 0)
            indices = [row, *range(first, first + len(branch))]
            for number in numbers:
                targets += zip(indices, pairs[number][2], [number] * len(indices), strict=True)
    return targets


def _scored(
    contexts: Sequence[ContextGroup],
    pairs: Sequence[Pair],
    targets: Targets,
    read: tuple[list[float], list[bool], float, int, int],
) -> list[ScoredPair]:
    values, is_greedy, seconds, new, shared = read
    sums: dict[int, float] = {}
    greedy: dict[int, bool] = {}
    for (_, _, number), value, same in zip(targets, values, is_greedy, strict=True):
        sums[number] = sums.get(number, 0.0) + value
        greedy[number] = greedy.get(number, True) and same
    out: list[ScoredPair] = []
    for each in contexts:
        new += len(each.context) - shared
        for branch, numbers in zip(each.branches, each.numbers, strict=True):
            new += len(branch)
            for number in numbers:
                name, context, continuation = pairs[number]
                length = len(context) + len(continuation) - 1
                own = min(new, length)
                new -= own
                reason = "" if sums[number] == sums[number] else NAN_LOGITS
                out.append(ScoredPair(name, sums[number], greedy[number], length, length - own, seconds, reason))
    return out
