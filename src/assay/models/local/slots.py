"""Texts written by a torch model, many at a time: a slot for each, and the next one into a slot that has become free."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from assay.models.local.attention import Pieces, looking, on_device
from assay.models.local.generation import NO_TOKEN, Decode, Writing
from assay.models.local.memory import short_of_memory
from assay.models.local.packing import Row, Span
from assay.models.local.prefixes import MIN_SHARED, families
from assay.models.local.scoring import Net, at_work

BLOCK = 16
"""So many tokens are written in every slot before somebody looks whether a text has ended."""
MOST_SLOTS = {"cuda": 512}
SLOTS = 64
ROUND = 64
"""The length of slots is a multiple of this."""
REFILL = 8
"""The part of the slots (1 / 8) that must be free before new texts are begun."""
SPARE = 0.6
"""The part of the free memory that slots may take."""
WARM = 3
"""Steps before one is recorded for the device to play again."""


@dataclass(slots=True)
class Slots:
    """The sight of texts that are being written: a token each, which sees what stands in its slot before it."""

    count: int
    length: int
    device: torch.device
    flash: bool
    lengths: torch.Tensor = field(init=False)
    layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    _starts: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.lengths = torch.zeros(self.count, dtype=torch.long, device=self.device)
        self._starts = torch.arange(self.count + 1, device=self.device) * self.length

    def layer(self, number: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and values of a layer, (slots × tokens, heads, size); made when first asked for."""
        if number not in self.layers:
            rows = self.count * self.length
            self.layers[number] = (key.new_zeros(rows, *key.shape[1:]), value.new_zeros(rows, *value.shape[1:]))
        return self.layers[number]

    def look(self, layer: int, query: Any, key: Any, value: Any, scale: float) -> torch.Tensor:
        keys, values = self.layer(layer, key, value)
        at = self._starts[:-1] + self.lengths
        keys.index_copy_(0, at, key)
        values.index_copy_(0, at, value)
        heads, size = key.shape[1:]
        groups = query.shape[1] // heads  # heads of a group see the same: they are taken for tokens
        grouped = query.view(self.count, heads, groups, size)
        if self.flash:
            seen: torch.Tensor = self._flash(
                grouped.transpose(1, 2).reshape(-1, heads, size), keys, values, groups, scale
            )
            return seen.view(self.count, groups, heads, -1).transpose(1, 2).reshape(self.count, heads * groups, -1)
        mask = torch.arange(self.length, device=self.device)[None] <= self.lengths[:, None]
        rows = [each.view(self.count, self.length, heads, -1).transpose(1, 2) for each in (keys, values)]
        seen = torch.nn.functional.scaled_dot_product_attention(
            grouped, rows[0], rows[1], mask[:, None, None], scale=scale
        )
        return seen.reshape(self.count, heads * groups, -1)

    def _flash(self, query: Any, keys: Any, values: Any, groups: int, scale: float) -> Any:
        ends = torch.arange(self.count + 1, device=self.device, dtype=torch.int32) * groups
        return torch.ops.aten._flash_attention_forward(
            query, keys, values, ends, self._starts.int(), groups, self.length, 0.0, False, False, scale=scale,
            seqused_k=(self.lengths + 1).int(),
        )[0]  # fmt: skip


@dataclass(slots=True)
class Beginning(Pieces):
    """The sight of prompts, of which everything is put into slots, too."""

    slots: Slots | None = None
    source: Any = None
    place: Any = None

    def looked_up(self, layer: int, key: Any, value: Any) -> None:
        assert self.slots is not None
        for held, new in zip(self.slots.layer(layer, key, value), (key, value), strict=True):
            held.index_copy_(0, self.place, new.index_select(0, self.source))


class SlotWriter:
    """Writes texts in slots. `tokens` is how many a pass over prompts may have."""

    def __init__(self, net: Net, ends: frozenset[int], decode: Decode, *, most_slots: int | None = None) -> None:
        self._net, self._ends, self._decode = net, ends, decode
        self._most = most_slots or MOST_SLOTS.get(net.device.type, SLOTS)
        self._recorder = Recorder(net.device)

    def write(self, wanted: Sequence[Writing], tokens: int) -> Iterator[list[Writing]]:
        """The texts as they end, the longest first."""
        waiting = deque(sorted(wanted, key=lambda each: -each.size))
        while waiting:
            length = -(-(waiting[0].size + BLOCK) // ROUND) * ROUND
            alike = deque[Writing]()
            while waiting and waiting[0].size * 2 > length - ROUND:
                alike.append(waiting.popleft())
            yield from self._write_alike(alike, length, tokens)

    def _write_alike(self, waiting: deque[Writing], length: int, tokens: int) -> Iterator[list[Writing]]:
        count = most = min(self._most, len(waiting), self._room(length))
        while waiting:
            board = _Board(self._net, count, length, max(each.size for each in waiting), self._recorder)
            try:
                yield from self._fill(board, waiting, tokens)
                return
            except torch.OutOfMemoryError:
                again = board.drop()
            finally:
                board.end()
            del board
            for each in again:
                each.restart()
            if count == 1:
                again[0].problem = f"{again[0].size} tokens are more than the device has memory for"
                yield [again.pop(0)]
            waiting.extendleft(reversed(again))
            count = count // 2 or most
            torch.cuda.empty_cache()

    def _fill(self, board: "_Board", waiting: deque[Writing], tokens: int) -> Iterator[list[Writing]]:
        while waiting or board.is_busy:
            began = time.perf_counter()
            free = board.free
            if waiting and free and (not board.is_busy or len(free) * REFILL >= board.slots.count):
                board.begin([waiting.popleft() for _ in range(min(len(free), len(waiting)))], tokens)
            block = board.go_on(min(BLOCK, board.ahead))
            seconds = (time.perf_counter() - began) / max(board.busy, 1)
            yield board.settle(block, self._ends, self._decode, seconds)

    def _room(self, length: int) -> int:
        """How many slots of a length there is memory for."""
        if self._net.device.type != "cuda":
            return self._most
        free = torch.cuda.mem_get_info(self._net.device)[0] + (
            torch.cuda.memory_reserved(self._net.device) - torch.cuda.memory_allocated(self._net.device)
        )
        return max(1, int(free * SPARE / (self._net.bytes_of_token() * length)))


class _Board:
    """Slots with who is writing in them."""

    def __init__(self, net: Net, count: int, length: int, longest: int, recorder: "Recorder") -> None:
        self._net, self._recorder = net, recorder
        self.slots = Slots(count, length, net.device, net.flash)
        self._last = longest - 1  # where the longest text ends: a model may have no positions beyond
        self._who: list[Writing | None] = [None] * count
        self._coming: Sequence[Writing] = ()
        device = net.device
        self._next = torch.zeros(count, dtype=torch.long, device=device)
        self._all = torch.arange(count, device=device)
        self._history = torch.zeros(BLOCK, count, dtype=torch.long, device=device)
        self._at = torch.zeros(1, dtype=torch.long, device=device)
        self._is_bad = torch.zeros(count, dtype=torch.bool, device=device)
        self._draw = Draw(count, device)
        self._played: dict[bool, Callable[[], None]] = {}

    @property
    def free(self) -> list[int]:
        return [slot for slot, who in enumerate(self._who) if who is None]

    @property
    def busy(self) -> int:
        return sum(who is not None for who in self._who)

    @property
    def is_busy(self) -> bool:
        return any(who is not None for who in self._who)

    @property
    def ahead(self) -> int:
        """The most tokens that anybody may still write."""
        return max(who.left for who in self._who if who is not None)

    def end(self) -> None:
        """Let go of what was recorded, which holds the slots."""
        self._played.clear()

    def drop(self) -> list[Writing]:
        """Those that have not ended, in the order they began in."""
        return list(dict.fromkeys((*(who for who in self._who if who is not None), *self._coming)))

    def begin(self, new: Sequence[Writing], tokens: int) -> None:
        """Read prompts into free slots; what they share is read once."""
        free = iter(self.free)
        self._coming = new
        for family in families([(each.tokens, ()) for each in new]):
            members = [[new[number] for numbers in bunch.numbers for number in numbers] for bunch in family.bunches]
            start = 0
            while start < len(members):
                end, size = start, family.shared
                while end < len(members) and (end == start or size < tokens):
                    size += len(members[end][0].tokens) - family.shared
                    end += 1
                self._begin_some(family.shared, members[start:end], free)
                start = end
        self._coming = ()

    def _begin_some(self, shared: int, members: Sequence[Sequence[Writing]], free: Iterator[int]) -> None:
        row, seen = Row(), list[Span]()
        if shared >= MIN_SHARED and len(members) > 1:
            seen = [row.add(members[0][0].tokens[:shared], [])]
        else:
            shared = 0
        last, slots, source, place = [], [], [], []
        looked = len(row.tokens)
        for same in members:
            prompt = same[0].tokens
            span = row.add(prompt[shared:], seen)
            for index, who in enumerate(same):
                slot = next(free)
                slots.append(slot)
                last.append(span[1] - 1)
                source.append(np.arange(looked, looked + len(prompt)))
                place.append(np.arange(len(prompt)) + slot * self.slots.length)
                self._who[slot] = who
                who.stored = len(prompt) if index else shared if same is not members[0] else 0
            looked += len(prompt)
        self._read(row, last, slots, np.concatenate(source), np.concatenate(place))

    def _read(self, row: Row, last: Sequence[int], slots: Sequence[int], source: Any, place: Any) -> None:
        device = self._net.device
        with at_work(device), torch.inference_mode():
            sight = Beginning.of(row, device, flash=self._net.flash)
            sight.slots = self.slots
            sight.source, sight.place = (on_device(each, device) for each in (source, place))
            with looking(sight):
                read = (np.asarray(row.tokens), row.positions(), np.asarray(last))
                logits = self._net.logits(*(on_device(each, device) for each in read))
            at = on_device(np.asarray(slots), device)
            who = [each for slot in slots if (each := self._who[slot]) is not None]
            self._draw.set(at, who)
            self._is_bad[at] = is_bad(logits)
            self._next[at] = self._draw.first(logits, at, who)
            self.slots.lengths[at] = on_device(np.asarray([len(each.tokens) for each in who]), device)

    def go_on(self, steps: int) -> Any:
        """Write so many tokens in every slot: (steps, slots). The first is the one the last step has chosen."""
        is_drawn = any(who is not None and who.temperature > 0 for who in self._who)
        if is_drawn:
            self._draw.prepare(self._who, steps)
        self._at.zero_()
        with at_work(self._net.device):
            play = self._played.get(is_drawn)
            if play is None:
                play = self._played[is_drawn] = self._recorded(is_drawn)
            for _ in range(steps):
                play()
        return self._history[:steps].cpu().numpy()

    def _step(self, is_drawn: bool) -> None:
        self._history.index_copy_(0, self._at, torch.where(self._is_bad, NO_TOKEN, self._next)[None])
        with looking(self.slots):
            logits = self._net.logits(self._next, self.slots.lengths, self._all)
        uniform = self._draw.uniforms.index_select(0, self._at)[0]
        highest, likeliest = logits.max(-1)
        self._is_bad |= ~(highest < torch.inf)
        self._next.copy_(self._draw.choose(logits, self._all, uniform) if is_drawn else likeliest)
        self.slots.lengths.add_(1).clamp_(max=self._last)
        self._at.add_(1).clamp_(max=BLOCK - 1)

    def _recorded(self, is_drawn: bool) -> Callable[[], None]:
        def step() -> None:
            with torch.inference_mode():
                self._step(is_drawn)

        return self._recorder.record(step, (self._next, self.slots.lengths, self._history, self._at, self._is_bad))

    def settle(self, block: Any, ends: frozenset[int], decode: Decode, seconds: float) -> list[Writing]:
        """Hand what was written to its writers; those that have ended."""
        ended = []
        for slot, who in enumerate(self._who):
            if who is not None:
                who.seconds += seconds
                who.take(block[:, slot].tolist(), ends, decode)
                if who.finish or who.problem:
                    ended.append(who)
                    self._who[slot] = None
        return ended


class Recorder:
    """Records a step as a CUDA graph, since launching its kernels one by one takes longer than they run.

    A step that cannot be recorded, such as one of a mixture of experts that reads on the CPU which experts were chosen,
    is run as it is from then on, and that is logged once.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.is_able = device.type == "cuda"

    def record(self, step: Callable[[], None], state: Sequence[torch.Tensor]) -> Callable[[], None]:
        """The step, recorded where that is possible. `state` is what it writes to: it is afterwards as it was before."""
        if not self.is_able:
            return step
        held = [each.clone() for each in state]
        try:
            with short_of_memory():
                return self.captured(step)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.is_able = False
            reason = str(error).strip().partition("\n")[0]
            logging.getLogger("assay").warning("texts are generated without CUDA graphs, which is slower: %s", reason)
            return step
        finally:
            for each, was in zip(state, held, strict=True):
                each.copy_(was)

    def captured(self, step: Callable[[], None]) -> Callable[[], None]:
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM):
                step()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay


def is_bad(logits: torch.Tensor) -> torch.Tensor:
    """Which rows hold what is no number, or is beyond all of them."""
    return ~(logits.amax(-1) < torch.inf)


class Draw:
    """How the next token is chosen in every slot: the most likely one, or drawn by its probability."""

    def __init__(self, count: int, device: torch.device) -> None:
        self._temperature = torch.zeros(count, device=device)
        self._top_p = torch.ones(count, device=device)
        self._top_k = torch.zeros(count, dtype=torch.long, device=device)
        self.uniforms = torch.zeros(BLOCK, count, device=device)

    def set(self, slots: torch.Tensor, who: Sequence[Writing]) -> None:
        told = torch.tensor([(each.temperature, each.top_p, each.top_k) for each in who], device=self.uniforms.device)
        self._temperature[slots], self._top_p[slots], self._top_k[slots] = told[:, 0], told[:, 1], told[:, 2].long()

    def first(self, logits: torch.Tensor, slots: torch.Tensor, who: Sequence[Writing]) -> torch.Tensor:
        """The first token of each text."""
        if not any(each.temperature > 0 for each in who):
            return logits.argmax(-1)
        numbers = [each.uniforms(1)[0] if each.temperature > 0 else 0.0 for each in who]
        return self.choose(logits, slots, torch.tensor(numbers, device=logits.device))

    def prepare(self, who: Sequence[Writing | None], steps: int) -> None:
        nothing = [0.0] * steps
        drawn = [each.uniforms(steps) if each is not None and each.temperature > 0 else nothing for each in who]
        self.uniforms[:steps].copy_(torch.tensor(drawn).T)

    def choose(self, logits: torch.Tensor, slots: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
        """The token of each row: where its probabilities, summed from the likeliest on, pass a number from 0 to 1."""
        temperature = self._temperature[slots]
        scaled = logits.float() / temperature.clamp(min=1e-6)[:, None]
        sums, order = torch.softmax(scaled, -1).sort(dim=-1, descending=True, stable=True)
        rank = torch.arange(sums.shape[-1], device=sums.device)[None]
        top_k = self._top_k[slots][:, None]
        sums = sums.masked_fill((top_k > 0) & (rank >= top_k), 0)
        sums = sums / sums.sum(-1, keepdim=True)  # `top_p` is of what `top_k` leaves
        is_out = sums.cumsum(-1) - sums >= self._top_p[slots][:, None]
        reached = sums.masked_fill(is_out & (rank > 0), 0).cumsum(-1)
        at = (reached < uniform[:, None] * reached[:, -1:]).sum(-1, keepdim=True).clamp(max=sums.shape[-1] - 1)
        drawn = order.gather(-1, at)[:, 0]
        return torch.where(temperature > 0, drawn, logits.argmax(-1))
