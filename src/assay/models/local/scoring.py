"""Log-likelihoods from a torch model that takes rows of pieces: every token that contexts share is computed once."""

import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from assay.models.local.attention import Layers, Pieces, looking, on_device
from assay.models.local.generation import NOT_NUMBERS
from assay.models.local.memory import short_of_memory
from assay.models.local.packing import Row, Span
from assay.models.local.prefixes import MIN_SHARED, Bunch, Family, common_tokens, families
from assay.models.local.windows import Pair

MOST_TOKENS = 32_768
"""Of one pass: more are no faster."""
FIRST_TOKENS = 8_192
"""Of the first pass, from which the memory of the others is told."""
LOOKED_UP = 16
"""Looking up so many tokens takes about the memory of computing one."""
KEPT, KEPT_TOKENS = 8, 32_768
"""So many prefixes are kept for later passes, and so many tokens of them."""
ROWS = 8_192
"""So many positions of a pass are read out at most: each has a number for every word of the vocabulary."""
SOFTMAX_ROWS = 1_024
SPARE = 0.7
"""The part of the free memory that a pass may take."""


class Found(NamedTuple):
    """The log-likelihood of a continuation. Its tokens were read for it, but for `stored` that were read for others;
    `reason` is why there is none."""

    number: int
    value: float
    greedy: bool
    read: int
    stored: int
    seconds: float
    reason: str = ""


@dataclass(slots=True)
class Net:
    """A model of transformers as far as it is used here: tokens in a row in, logits at some places out."""

    model: Any
    device: torch.device
    flash: bool

    def bytes_of_token(self) -> int:
        """What the keys and values of a token take."""
        config = self.model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return int(2 * config.num_hidden_layers * heads * size * self.model.dtype.itemsize)

    def logits(self, tokens: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        with short_of_memory():
            made = self.model(
                input_ids=tokens[None], position_ids=positions[None], use_cache=False, logits_to_keep=rows
            ).logits[0]
        return made  # type: ignore[no-any-return]


@dataclass(slots=True)
class Memory:
    """How many tokens a pass may have: learned from what the last one took, less after it was too much."""

    device: torch.device
    tokens: int = FIRST_TOKENS
    most: int = MOST_TOKENS
    is_learned: bool = False

    def learn(self, took: int, before: int) -> None:
        """A pass of so many tokens has ended; `before` bytes had been in use."""
        if self.is_learned or self.device.type != "cuda":
            return
        a_token = max(torch.cuda.max_memory_allocated(self.device) - before, 1) / took
        free = torch.cuda.mem_get_info(self.device)[0] + torch.cuda.memory_reserved(self.device) - before
        self.tokens = int(min(self.most, max(free * SPARE / a_token, 256)))
        self.is_learned = True

    def shrink(self) -> None:
        self.most = self.tokens = max(self.tokens // 2, 1)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def at_work(device: torch.device) -> AbstractContextManager[Any]:
    """Streams, events and recordings are those of a device, where there are several."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class Kept(NamedTuple):
    """A prefix whose keys and values are there."""

    tokens: Sequence[int]
    layers: Layers


@dataclass(slots=True)
class Pass:
    """A pass that is being put together: the row, which places of it are read out, and what is looked up there."""

    row: Row = field(default_factory=Row)
    seen: dict[int, Span] = field(default_factory=dict)
    """The kept prefixes that are seen, by number, and where they stand."""
    prefixes: dict[int, tuple[list[Span], int]] = field(default_factory=dict)
    wanted: list[tuple[Sequence[int], list[Span]]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    targets: list[tuple[int, int, int]] = field(default_factory=list)
    """The place among `rows`, the token looked up, and whose it is."""
    read: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of each sequence, how many tokens it has, and how many were read for others."""


class Launched(NamedTuple):
    """A pass under way on the device."""

    made: Pass
    picked: torch.Tensor
    greedy: torch.Tensor
    seconds: float
    events: tuple[Any, Any] | None
    """Where a device works on by itself, they tell the time."""


class PackedReader:
    """Reads pairs of contexts and continuations, the next pass being prepared while one is under way."""

    def __init__(self, net: Net, most_tokens: int | None = None) -> None:
        self._net = net
        self.memory = Memory(net.device)
        if most_tokens is not None:
            self.memory.tokens = self.memory.most = most_tokens
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self._count = 0

    def forget(self) -> None:
        """Let go of the prefixes that are kept."""
        self._kept.clear()

    def read(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[list[Found]]:
        under_way: deque[Launched] = deque()
        for pairs in chunks:
            found = families([(context, continuation) for _, context, continuation in pairs])
            waiting = deque((family, bunch) for family in found for bunch in family.bunches)
            while waiting:
                launched = self._launch(waiting, pairs)
                if isinstance(launched, Launched):
                    under_way.append(launched)
                else:
                    yield launched
                if len(under_way) > 1:
                    yield self._land(under_way.popleft())
        while under_way:
            yield self._land(under_way.popleft())

    # one pass

    def _launch(self, waiting: deque[tuple[Family, Bunch]], pairs: Sequence[Pair]) -> Launched | list[Found]:
        """Send off as many of those that wait as fit; fewer, where memory turns out too small."""
        while True:
            made, taken = self._put_together(waiting, pairs)
            try:
                launched = self._forward(made)
            except torch.OutOfMemoryError:
                is_alone = not self._kept
                self.forget()
                if taken == 1 and len(waiting[0][1].branches) == 1 and is_alone:
                    return _given_up(waiting.popleft()[1], pairs)
                if taken == 1 and len(waiting[0][1].branches) > 1:
                    family, bunch = waiting.popleft()
                    waiting.extendleft((family, half) for half in _halves(bunch))
                self.memory.shrink()
                continue
            for _ in range(taken):
                waiting.popleft()
            return launched

    def _put_together(self, waiting: deque[tuple[Family, Bunch]], pairs: Sequence[Pair]) -> tuple[Pass, int]:
        made = Pass()
        taken = 0
        for family, bunch in waiting:
            if taken and self._is_full(made, family, bunch):
                break
            self._add(made, family, bunch, pairs)
            taken += 1
        return made, taken

    def _is_full(self, made: Pass, family: Family, bunch: Bunch) -> bool:
        branches = sum(map(len, bunch.branches))
        own = len(bunch.context) - (family.shared if id(family) in made.prefixes else 0) + branches
        sight = made.row.sight + (1 + len(bunch.branches)) * len(bunch.context) + branches
        tokens = len(made.row.tokens) + own
        return tokens + sight // LOOKED_UP > self.memory.tokens * 1.5 or tokens > self.memory.tokens or (
            len(made.rows) + branches + 1 > ROWS
        )  # fmt: skip

    def _add(self, made: Pass, family: Family, bunch: Bunch, pairs: Sequence[Pair]) -> None:
        before = len(made.row.tokens)
        seen, shared = self._prefix(made, family)
        trunk = made.row.add(bunch.context[shared:], seen)
        last = len(made.rows)
        made.rows.append(trunk[1] - 1)
        for branch, numbers in zip(bunch.branches, bunch.numbers, strict=True):
            first = len(made.rows)
            if branch:
                span = made.row.add(branch, [*seen, trunk])
                made.rows.extend(range(*span))
            for number in numbers:
                name, context, continuation = pairs[number]
                places = [last, *range(first, first + len(branch))]
                made.targets.extend(zip(places, continuation, [name] * len(places), strict=True))
                length = len(context) + len(continuation) - 1
                new = len(made.row.tokens) - before
                made.read[name] = (length, max(length - new, 0))
                before += min(new, length)

    def _prefix(self, made: Pass, family: Family) -> tuple[list[Span], int]:
        """Where the tokens that a family shares stand, and how many they are: among those kept, or in the row."""
        known = made.prefixes.get(id(family))
        if known is not None:
            return known
        beginning = family.prefix if len(family.bunches) > 1 else family.bunches[0].context[:-1]
        number, length = max(
            ((number, common_tokens(beginning, each.tokens)) for number, each in self._kept.items()),
            key=lambda found: found[1],
            default=(-1, 0),
        )
        spans: list[Span] = []
        if length >= MIN_SHARED:
            self._kept.move_to_end(number)
            if number not in made.seen:
                made.seen[number] = made.row.see(len(self._kept[number].tokens))
            start = made.seen[number][0]
            spans = [(start, start + length)]
        else:
            length = 0
        if family.shared - length >= MIN_SHARED:
            spans.append(made.row.add(beginning[length : family.shared], list(spans)))
            length = family.shared
            made.wanted.append((beginning[:length], list(spans)))
        made.prefixes[id(family)] = (spans, length)
        return spans, length

    def _forward(self, made: Pass) -> Launched:
        net, device = self._net, self._net.device
        before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
        if device.type == "cuda" and not self.memory.is_learned:
            torch.cuda.reset_peak_memory_stats(device)
        began = time.perf_counter()
        with at_work(device), torch.inference_mode():
            events = _events(device)
            sight = Pieces.of(
                made.row,
                device,
                flash=net.flash,
                before=_before([self._kept[number] for number in made.seen]),
                wanted=[spans for _, spans in made.wanted],
            )
            tokens, rows, targets = (np.asarray(each) for each in (made.row.tokens, made.rows, made.targets))
            with looking(sight):
                logits = net.logits(*(on_device(each, device) for each in (tokens, made.row.positions(), rows)))
            picked, greedy = _likelihoods(logits, *(on_device(targets[:, part], device) for part in (0, 1)))
            if events is not None:
                events[1].record()
        self.memory.learn(len(made.row.tokens) + made.row.sight // LOOKED_UP, before)
        for (beginning, _), layers in zip(made.wanted, sight.kept, strict=True):
            self._keep(beginning, layers)
        return Launched(made, picked, greedy, time.perf_counter() - began, events)

    def _keep(self, beginning: Sequence[int], layers: Layers) -> None:
        self._count += 1
        self._kept[self._count] = Kept(beginning, layers)
        while len(self._kept) > KEPT or (
            len(self._kept) > 1 and sum(len(each.tokens) for each in self._kept.values()) > KEPT_TOKENS
        ):
            self._kept.popitem(last=False)

    def _land(self, launched: Launched) -> list[Found]:
        """What a pass came to, when it has ended."""
        made = launched.made
        picked, greedy = launched.picked.cpu().double().numpy(), launched.greedy.cpu().numpy()
        events = launched.events
        seconds = launched.seconds if events is None else events[0].elapsed_time(events[1]) / 1000
        values: dict[int, float] = dict.fromkeys(made.read, 0.0)
        is_greedy = dict.fromkeys(made.read, True)
        for (_, _, name), value, same in zip(made.targets, picked.tolist(), greedy.tolist(), strict=True):
            values[name] += value
            is_greedy[name] &= same
        share = seconds / max(len(made.read), 1)
        return [
            Found(name, values[name], is_greedy[name], read, stored, share, _why(values[name]))
            for name, (read, stored) in made.read.items()
        ]


def _before(kept: Sequence[Kept]) -> Layers | None:
    """The keys and values of all kept prefixes, one behind the other."""
    if not kept:
        return None
    return {
        layer: tuple(torch.cat([each.layers[layer][part] for each in kept]) for part in (0, 1))  # type: ignore[misc]
        for layer in kept[0].layers
    }


def _likelihoods(logits: torch.Tensor, at: torch.Tensor, token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The log-probability of each wanted token at its place, and whether it is the most likely one there."""
    whole, best = [], []
    for start in range(0, len(logits), SOFTMAX_ROWS):
        some = logits[start : start + SOFTMAX_ROWS].float()
        whole.append(some.logsumexp(-1))
        best.append(some.argmax(-1))
    wholes = torch.cat(whole)
    wholes = wholes.masked_fill(wholes == torch.inf, torch.nan)  # beyond all numbers there is no likelihood
    return logits[at, token].float() - wholes[at], torch.cat(best)[at] == token


def _why(value: float) -> str:
    return "" if value == value else NOT_NUMBERS


def _events(device: torch.device) -> tuple[Any, Any] | None:
    if device.type != "cuda":
        return None
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    first.record()
    return first, last


def _halves(bunch: Bunch) -> list[Bunch]:
    middle = len(bunch.branches) // 2
    return [
        Bunch(bunch.context, bunch.branches[part], bunch.numbers[part])
        for part in (slice(middle, None), slice(None, middle))
    ]


def _given_up(bunch: Bunch, pairs: Sequence[Pair]) -> list[Found]:
    reason = f"{len(bunch.context) + len(bunch.branches[0])} tokens are more than the device has memory for"
    return [Found(pairs[number][0], 0.0, False, 0, 0, 0.0, reason) for each in bunch.numbers for number in each]
