"""Log-likelihoods from a torch model with packed attention: every token that contexts share is computed once."""

import math
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from assay.models.local.attention import (
    HostCopy,
    Layers,
    PackedPattern,
    PackedRow,
    Span,
    layer_limits,
    on_device,
    using_pattern,
)
from assay.models.local.fallbacks import Fallbacks
from assay.models.local.generation import NAN_LOGITS
from assay.models.local.prefixes import MIN_SHARED, ContextGroup, PrefixGroup, common_tokens, prefix_groups
from assay.models.local.windows import Pair

SIGNS = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")
"""Messages of CPUs, Macs and libraries that do not raise torch's own error."""


@contextmanager
def uniform_memory_errors() -> Iterator[None]:
    """Raise torch.OutOfMemoryError for every kind of out-of-memory error."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except MemoryError as error:
        raise torch.OutOfMemoryError(str(error)) from error
    except RuntimeError as error:
        if any(sign in str(error) for sign in SIGNS):
            raise torch.OutOfMemoryError(str(error)) from error
        raise


MOST_TOKENS = 32_768
"""Tokens of one pass: more are not faster."""
FIRST_TOKENS = 8_192
"""Tokens of the first pass, which measures memory for the others."""
GATHERED_PER_TOKEN = 16
"""Gathering this many tokens takes about the memory of computing one."""
CACHED_PREFIXES, CACHED_TOKENS = 8, 32_768
"""Limits on the prefixes cached for later passes: their number, and their tokens."""
ROWS = 8_192
"""Maximum number of output positions of a pass: each has a logit for every token of the vocabulary."""
SOFTMAX_ROWS = 1_024
SPARE = 0.7
"""Share of the free memory that a pass may take."""


AHEAD = 3
"""Passes launched before the first of them is waited for: the device works while the next ones are prepared."""


class ScoredPair(NamedTuple):
    """The log-likelihood of a continuation. Of the `read` tokens of context and continuation, `stored` were computed for
    other requests; `reason` says why there is no value."""

    number: int
    value: float
    greedy: bool
    read: int
    stored: int
    seconds: float
    reason: str = ""


@dataclass(slots=True)
class CausalLM:
    """A transformers model with packed attention: a row of tokens in, logits at some positions out."""

    model: Any
    device: torch.device
    flash: bool
    kernel: bool = True
    """Whether slots may attend by the Triton kernel."""
    fallbacks: Fallbacks = field(default_factory=Fallbacks)

    def bytes_of_token(self) -> int:
        """Size of the keys and values of one token."""
        config = self.model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        return int(2 * config.num_hidden_layers * heads * head_size(config) * self.model.dtype.itemsize)

    @property
    def shortest_limit(self) -> float:
        """The shortest window or chunk of a layer: shorter texts do not notice them."""
        config = self.model.config.get_text_config()
        limits = (layer_limits(config, layer) for layer in range(config.num_hidden_layers))
        return min((limit for both in limits for limit in both if limit is not None), default=math.inf)

    def logits(self, tokens: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        with uniform_memory_errors():
            output = self.model(
                input_ids=tokens[None], position_ids=positions[None], use_cache=False, logits_to_keep=rows
            ).logits[0]
        return output  # type: ignore[no-any-return]


def head_size(config: Any) -> int:
    """Size of a head's keys. Those of latent attention (DeepSeek) have a part with positions and one without."""
    size = getattr(config, "qk_head_dim", None) or getattr(config, "head_dim", None)
    return int(size or config.hidden_size // config.num_attention_heads)


@dataclass(slots=True)
class TokenBudget:
    """Number of tokens a pass may have: measured on the first pass, halved after running out of memory."""

    device: torch.device
    tokens: int = FIRST_TOKENS
    most: int = MOST_TOKENS
    is_measured: bool = False

    def measure(self, count: int, before: int) -> None:
        """Set the limit after a pass of `count` tokens; `before` bytes had been in use."""
        if self.is_measured or self.device.type != "cuda":
            return
        a_token = max(torch.cuda.max_memory_allocated(self.device) - before, 1) / count
        free = torch.cuda.mem_get_info(self.device)[0] + torch.cuda.memory_reserved(self.device) - before
        self.tokens = int(min(self.most, max(free * SPARE / a_token, 256)))
        self.is_measured = True

    def shrink(self) -> None:
        self.most = self.tokens = max(self.tokens // 2, 1)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def on_cuda_device(device: torch.device) -> AbstractContextManager[None]:
    """Select a CUDA device, if it is one: streams, events and graphs belong to one device."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class CachedPrefix(NamedTuple):
    """A prefix with its keys and values."""

    tokens: Sequence[int]
    layers: Layers


@dataclass(slots=True)
class ForwardPass:
    """A forward pass under construction: the row, its output positions, and the target tokens there."""

    row: PackedRow = field(default_factory=PackedRow)
    seen: dict[int, Span] = field(default_factory=dict)
    """Cached prefixes in use, by number, with their spans."""
    prefixes: dict[int, tuple[list[Span], int]] = field(default_factory=dict)
    to_cache: list[tuple[Sequence[int], list[Span]]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    targets: list[tuple[int, int, int]] = field(default_factory=list)
    """Index into `rows`, target token, and number of its pair."""
    read: dict[int, tuple[int, int]] = field(default_factory=dict)
    """For each pair its number of tokens, and how many were computed for others."""


class LaunchedPass(NamedTuple):
    """A forward pass running on the device."""

    forward: ForwardPass
    picked: HostCopy
    greedy: HostCopy
    seconds: float
    events: tuple[Any, Any] | None
    """Start and end on an asynchronous device, for its time."""


class PackedScorer:
    """Score pairs of context and continuation, preparing the next pass while one runs."""

    def __init__(self, net: CausalLM, most_tokens: int | None = None) -> None:
        self._net = net
        self.budget = TokenBudget(net.device)
        if most_tokens is not None:
            self.budget.tokens = self.budget.most = most_tokens
        self._cached: OrderedDict[int, CachedPrefix] = OrderedDict()
        self._count = 0

    def forget(self) -> None:
        """Drop the cached prefixes."""
        self._cached.clear()

    def score(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[list[ScoredPair]]:
        running: deque[LaunchedPass] = deque()
        for pairs in chunks:
            groups = prefix_groups([(context, continuation) for _, context, continuation in pairs])
            waiting = deque((group, context_group) for group in groups for context_group in group.contexts)
            while waiting:
                launched = self._launch(waiting, pairs)
                if isinstance(launched, LaunchedPass):
                    running.append(launched)
                else:
                    yield launched
                if len(running) > AHEAD:
                    yield self._collect(running.popleft())
        while running:
            yield self._collect(running.popleft())

    # one pass

    def _launch(
        self, waiting: deque[tuple[PrefixGroup, ContextGroup]], pairs: Sequence[Pair]
    ) -> LaunchedPass | list[ScoredPair]:
        """Launch a pass over as many waiting contexts as fit; over fewer after running out of memory."""
        while True:
            forward, count = self._build(waiting, pairs)
            try:
                launched = self._forward(forward)
            except torch.OutOfMemoryError:
                is_alone = not self._cached
                self.forget()
                if count == 1 and len(waiting[0][1].branches) == 1 and is_alone:
                    return _out_of_memory(waiting.popleft()[1], pairs)
                if count == 1 and len(waiting[0][1].branches) > 1:
                    group, context_group = waiting.popleft()
                    waiting.extendleft((group, half) for half in _halves(context_group))
                self.budget.shrink()
                continue
            for _ in range(count):
                waiting.popleft()
            return launched

    def _build(
        self, waiting: deque[tuple[PrefixGroup, ContextGroup]], pairs: Sequence[Pair]
    ) -> tuple[ForwardPass, int]:
        forward = ForwardPass()
        count = 0
        for group, context_group in waiting:
            if count and self._is_full(forward, group, context_group):
                break
            self._add(forward, group, context_group, pairs)
            count += 1
        return forward, count

    def _is_full(self, forward: ForwardPass, group: PrefixGroup, context_group: ContextGroup) -> bool:
        branches = sum(map(len, context_group.branches))
        own = len(context_group.context) - (group.shared if id(group) in forward.prefixes else 0) + branches
        gathered = forward.row.attended + (1 + len(context_group.branches)) * len(context_group.context) + branches
        tokens = len(forward.row.tokens) + own
        return tokens + gathered // GATHERED_PER_TOKEN > self.budget.tokens * 1.5 or tokens > self.budget.tokens or (
            len(forward.rows) + branches + 1 > ROWS
        )  # fmt: skip

    def _add(
        self, forward: ForwardPass, group: PrefixGroup, context_group: ContextGroup, pairs: Sequence[Pair]
    ) -> None:
        before = len(forward.row.tokens)
        seen, shared = self._prefix(forward, group)
        trunk = forward.row.add(context_group.context[shared:], seen)
        last = len(forward.rows)
        forward.rows.append(trunk[1] - 1)
        for branch, numbers in zip(context_group.branches, context_group.numbers, strict=True):
            first = len(forward.rows)
            if branch:
                span = forward.row.add(branch, [*seen, trunk])
                forward.rows.extend(range(*span))
            for number in numbers:
                name, context, continuation = pairs[number]
                places = [last, *range(first, first + len(branch))]
                forward.targets.extend(zip(places, continuation, [name] * len(places), strict=True))
                length = len(context) + len(continuation) - 1
                new = len(forward.row.tokens) - before
                forward.read[name] = (length, max(length - new, 0))
                before += min(new, length)

    def _prefix(self, forward: ForwardPass, group: PrefixGroup) -> tuple[list[Span], int]:
        """Return the spans of a group's shared prefix and its length, from the cache or added to the row."""
        known = forward.prefixes.get(id(group))
        if known is not None:
            return known
        beginning = group.prefix if len(group.contexts) > 1 else group.contexts[0].context[:-1]
        number, length = max(
            ((number, common_tokens(beginning, each.tokens)) for number, each in self._cached.items()),
            key=lambda candidate: candidate[1],
            default=(-1, 0),
        )
        spans: list[Span] = []
        if length >= MIN_SHARED:
            self._cached.move_to_end(number)
            if number not in forward.seen:
                forward.seen[number] = forward.row.attend_cached(len(self._cached[number].tokens))
            start = forward.seen[number][0]
            spans = [(start, start + length)]
        else:
            length = 0
        if group.shared - length >= MIN_SHARED:
            spans.append(forward.row.add(beginning[length : group.shared], list(spans)))
            length = group.shared
            forward.to_cache.append((beginning[:length], list(spans)))
        forward.prefixes[id(group)] = (spans, length)
        return spans, length

    def _forward(self, forward: ForwardPass) -> LaunchedPass:
        net, device = self._net, self._net.device
        before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
        if device.type == "cuda" and not self.budget.is_measured:
            torch.cuda.reset_peak_memory_stats(device)
        started = time.perf_counter()
        with on_cuda_device(device), torch.inference_mode():
            events = _events(device)
            pattern = PackedPattern.of(
                forward.row,
                device,
                flash=net.flash,
                before=_before([self._cached[number] for number in forward.seen]),
                to_cache=[spans for _, spans in forward.to_cache],
            )
            tokens, rows, targets = (np.asarray(each) for each in (forward.row.tokens, forward.rows, forward.targets))
            with using_pattern(pattern):
                logits = net.logits(*(on_device(each, device) for each in (tokens, forward.row.positions(), rows)))
            picked, greedy = likelihoods(logits, *(on_device(targets[:, part], device) for part in (0, 1)))
            if events is not None:
                events[1].record()
            results = HostCopy(picked), HostCopy(greedy)
        self.budget.measure(len(forward.row.tokens) + forward.row.attended // GATHERED_PER_TOKEN, before)
        for (beginning, _), layers in zip(forward.to_cache, pattern.cached, strict=True):
            self._cache(beginning, layers)
        return LaunchedPass(forward, *results, time.perf_counter() - started, events)

    def _cache(self, beginning: Sequence[int], layers: Layers) -> None:
        self._count += 1
        self._cached[self._count] = CachedPrefix(beginning, layers)
        while len(self._cached) > CACHED_PREFIXES or (
            len(self._cached) > 1 and sum(len(each.tokens) for each in self._cached.values()) > CACHED_TOKENS
        ):
            self._cached.popitem(last=False)

    def _collect(self, launched: LaunchedPass) -> list[ScoredPair]:
        """Wait for a pass and return its results."""
        forward = launched.forward
        picked, greedy = launched.picked.array().astype(np.float64), launched.greedy.array()
        events = launched.events
        seconds = launched.seconds if events is None else events[0].elapsed_time(events[1]) / 1000
        values: dict[int, float] = dict.fromkeys(forward.read, 0.0)
        is_greedy = dict.fromkeys(forward.read, True)
        for (_, _, name), value, same in zip(forward.targets, picked.tolist(), greedy.tolist(), strict=True):
            values[name] += value
            is_greedy[name] &= same
        share = seconds / max(len(forward.read), 1)
        return [
            ScoredPair(name, values[name], is_greedy[name], read, stored, share, _nan_reason(values[name]))
            for name, (read, stored) in forward.read.items()
        ]


def _before(cached: Sequence[CachedPrefix]) -> Layers | None:
    """Concatenate the keys and values of cached prefixes."""
    if not cached:
        return None
    return {
        layer: tuple(torch.cat([each.layers[layer][part] for each in cached]) for part in (0, 1))  # type: ignore[misc]
        for layer in cached[0].layers
    }


def likelihoods(logits: torch.Tensor, at: torch.Tensor, token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probability of each target token at its position, and whether it is the most likely."""
    whole, best = [], []
    for start in range(0, len(logits), SOFTMAX_ROWS):
        some = logits[start : start + SOFTMAX_ROWS].float()
        whole.append(some.logsumexp(-1))
        best.append(some.argmax(-1))
    wholes = torch.cat(whole)
    wholes = wholes.masked_fill(wholes == torch.inf, torch.nan)  # an infinite logit has no likelihood
    return logits[at, token].float() - wholes[at], torch.cat(best)[at] == token


def _nan_reason(value: float) -> str:
    return "" if value == value else NAN_LOGITS


def _events(device: torch.device) -> tuple[torch.cuda.Event, torch.cuda.Event] | None:
    if device.type != "cuda":
        return None
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    first.record()
    return first, last


def _halves(context_group: ContextGroup) -> list[ContextGroup]:
    middle = len(context_group.branches) // 2
    return [
        ContextGroup(context_group.context, context_group.branches[part], context_group.numbers[part])
        for part in (slice(middle, None), slice(None, middle))
    ]


def _out_of_memory(context_group: ContextGroup, pairs: Sequence[Pair]) -> list[ScoredPair]:
    reason = f"{len(context_group.context) + len(context_group.branches[0])} tokens do not fit into device memory"
    return [
        ScoredPair(pairs[number][0], 0.0, False, 0, 0, 0.0, reason) for each in context_group.numbers for number in each
    ]
