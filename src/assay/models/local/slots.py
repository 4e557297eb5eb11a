"""Batched generation with a torch model: one slot per text, and a new text into every slot that becomes free."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import NamedTuple

import numpy as np
import torch

from assay.models.local.attention import HostCopy, Integers, PackedPattern, PackedRow, on_device, using_pattern
from assay.models.local.fallbacks import DeviceAttempt, Fallbacks
from assay.models.local.generation import NO_TOKEN, Decode, Generation
from assay.models.local.prefixes import MIN_SHARED, prefix_groups
from assay.models.local.recording import WithoutHostCopies
from assay.models.local.scoring import CausalLM, on_cuda_device, uniform_memory_errors
from assay.models.local.slot_attention import PromptPattern, SlotPattern

BLOCK = 16
"""Steps between two checks whether a text has ended."""
MOST_SLOTS = {"cuda": 512}
SLOTS = 64
ROUND = 64
"""Slot lengths are multiples of this."""
LEADS = {"cuda": 2}
"""Steps of the next block that a GPU computes while the tokens of a block are collected."""
REFILL = 8
"""Share of the slots (1 / 8) that must be free before new texts start."""
SPARE = 0.6
"""Share of the free memory that slots may take."""
MIN_PREFIX, MIN_TEXTS = 64, 4
"""Tokens that texts must share, and the number of such texts, for the slots to share the keys and values of those tokens."""
WITHOUT_GRAPHS = "texts are generated without CUDA graphs, which is slower"
WARM = 3
"""Warm-up steps before a step is recorded as a CUDA graph."""


class SlotGenerator:
    """Generate texts in slots. `tokens` limits a pass over prompts."""

    def __init__(self, net: CausalLM, ends: frozenset[int], decode: Decode, *, most_slots: int | None = None) -> None:
        self._net, self._ends, self._decode = net, ends, decode
        self._most = most_slots or MOST_SLOTS.get(net.device.type, SLOTS)
        self._recorder = GraphRecorder(net.device, net.fallbacks)

    @property
    def records(self) -> bool:
        """Whether steps are recorded."""
        return self._recorder.is_able and self._recorder.is_allowed

    def record(self, is_allowed: bool) -> None:
        """Set whether steps are recorded where the device can."""
        self._recorder.is_allowed = is_allowed

    def generate(self, generations: Sequence[Generation], tokens: int) -> Iterator[list[Generation]]:
        """Yield texts as they finish, the longest first."""
        waiting = deque(sorted(generations, key=lambda each: -each.size))
        while waiting:
            length = -(-(waiting[0].size + BLOCK) // ROUND) * ROUND
            similar = deque[Generation]()
            while waiting and waiting[0].size * 2 > length - ROUND:
                similar.append(waiting.popleft())
            for prefix, texts in self._by_prefix(similar, length):
                yield from self._generate_similar(texts, prefix, length - len(prefix), tokens)

    def _by_prefix(
        self, similar: Sequence[Generation], length: int
    ) -> Iterator[tuple[Sequence[int], deque[Generation]]]:
        """Split texts into those that share a prefix and fill many of the slots, and the others."""
        if self._net.shortest_limit < length:  # layers that see a part of the prefix only
            yield (), deque(similar)
            return
        enough = max(min(self._most, len(similar)) // 2, MIN_TEXTS)
        others: list[Generation] = []
        for group in prefix_groups([(each.tokens, ()) for each in similar]):
            texts = [similar[number] for context in group.contexts for numbers in context.numbers for number in numbers]
            if group.shared >= MIN_PREFIX and len(texts) >= enough:
                yield group.prefix, deque(sorted(texts, key=lambda each: -each.size))
            else:
                others += texts
        yield (), deque(sorted(others, key=lambda each: -each.size))

    def _generate_similar(
        self, waiting: deque[Generation], prefix: Sequence[int], length: int, tokens: int
    ) -> Iterator[list[Generation]]:
        count = most = min(self._most, len(waiting), self._fitting_slots(length))
        while waiting:
            batch = _SlotBatch(self._net, count, length, prefix, self._recorder)
            batch.last = max(each.size for each in waiting) - len(prefix) - 1
            try:
                yield from self._fill(batch, waiting, tokens)
                return
            except torch.OutOfMemoryError:
                restarted = batch.drop()
            finally:
                batch.end()
            del batch
            for each in restarted:
                each.restart()
            if count == 1:
                restarted[0].problem = f"{restarted[0].size} tokens do not fit into device memory"
                yield [restarted.pop(0)]
            waiting.extendleft(reversed(restarted))
            count = count // 2 or most
            torch.cuda.empty_cache()

    def _fill(self, batch: "_SlotBatch", waiting: deque[Generation], tokens: int) -> Iterator[list[Generation]]:
        while waiting or batch.is_busy:
            started = time.perf_counter()
            free = batch.free
            if waiting and free and (not batch.is_busy or len(free) * REFILL >= batch.slots.count):
                batch.start([waiting.popleft() for _ in range(min(len(free), len(waiting)))], tokens)
            block = batch.run_block()
            seconds = (time.perf_counter() - started) / max(batch.busy, 1)
            yield batch.collect(block, self._ends, self._decode, seconds)

    def _fitting_slots(self, length: int) -> int:
        """Number of slots of a length that fit into memory."""
        if self._net.device.type != "cuda":
            return self._most
        free = torch.cuda.mem_get_info(self._net.device)[0] + (
            torch.cuda.memory_reserved(self._net.device) - torch.cuda.memory_allocated(self._net.device)
        )
        return max(1, int(free * SPARE / (self._net.bytes_of_token() * length)))


class Block(NamedTuple):
    """Tokens of a block of steps, (steps, slots), and the step at which the text of each slot began."""

    tokens: Integers
    first: list[int]


class _SlotBatch:
    """A batch of slots and the generations in them, whose prompts all begin with `prefix`."""

    def __init__(
        self, net: CausalLM, count: int, length: int, prefix: Sequence[int], recorder: "GraphRecorder"
    ) -> None:
        self._net, self._recorder, self._prefix = net, recorder, prefix
        self.slots = SlotPattern(count, length, net.device, net.flash, len(prefix), kernel=net.kernel)
        self.last = length - 1
        """End of the longest text: a model may have no positions beyond."""
        self._generations: list[Generation | None] = [None] * count
        self._starting: Sequence[Generation] = ()
        device = net.device
        self._next = torch.zeros(count, dtype=torch.long, device=device)
        self._all = torch.arange(count, device=device)
        self._history = torch.zeros(BLOCK, count, dtype=torch.long, device=device)
        self._step_index = torch.zeros(1, dtype=torch.long, device=device)
        self._is_bad = torch.zeros(count, dtype=torch.bool, device=device)
        self._draw = TokenSampler(count, device)
        self._recorded_steps: dict[bool, Callable[[], None]] = {}
        self._first = [0] * count
        """Steps of the block before the text of each slot started."""
        self._lead = 0
        """Steps of the block that have been launched."""

    @property
    def free(self) -> list[int]:
        return [slot for slot, generation in enumerate(self._generations) if generation is None]

    @property
    def busy(self) -> int:
        return sum(generation is not None for generation in self._generations)

    @property
    def is_busy(self) -> bool:
        return any(generation is not None for generation in self._generations)

    @property
    def ahead(self) -> int:
        """Maximum number of tokens that a generation may still get."""
        return max(generation.left for generation in self._generations if generation is not None)

    def end(self) -> None:
        """Drop the recorded steps, which hold the slots' memory."""
        self._recorded_steps.clear()

    def drop(self) -> list[Generation]:
        """Return the unfinished generations: those in slots, then those that were about to start."""
        return list(
            dict.fromkeys(
                (*(generation for generation in self._generations if generation is not None), *self._starting)
            )
        )

    def start(self, new: Sequence[Generation], tokens: int) -> None:
        """Compute prompts into free slots, shared prefixes once."""
        free = iter(self.free)
        self._starting = new
        is_first = bool(self._prefix) and not self.slots.prefix
        if is_first:
            self._read_prefix()
        for group in prefix_groups([(each.tokens, ()) for each in new]):
            members = [[new[number] for numbers in context.numbers for number in numbers] for context in group.contexts]
            start = 0
            while start < len(members):
                end, size = start, group.shared
                while end < len(members) and (end == start or size < tokens):
                    size += len(members[end][0].tokens) - group.shared
                    end += 1
                self._start_batch(group.shared, members[start:end], free)
                start = end
        if is_first:
            new[0].stored -= min(new[0].stored, len(self._prefix))
        self._starting = ()

    def _start_batch(self, shared: int, members: Sequence[Sequence[Generation]], free: Iterator[int]) -> None:
        row, before = PackedRow(), len(self._prefix)
        seen = [row.attend_cached(before)] if before else []
        if shared - before >= MIN_SHARED and len(members) > 1:
            seen.append(row.add(members[0][0].tokens[before:shared], seen))
        else:
            shared = before
        last, slots, source, place = [], [], [], []
        gathered = row.attended
        for same in members:
            prompt = same[0].tokens
            span = row.add(prompt[shared:], seen)
            for index, generation in enumerate(same):
                slot = next(free)
                slots.append(slot)
                last.append(span[1] - 1)
                source.append(np.arange(gathered + before, gathered + len(prompt)))
                place.append(np.arange(len(prompt) - before) + slot * self.slots.length)
                self._generations[slot], self._first[slot] = generation, self._lead
                generation.stored = len(prompt) if index else shared if same is not members[0] else before
            gathered += len(prompt)
        self._read(row, last, slots, np.concatenate(source), np.concatenate(place))

    def _read_prefix(self) -> None:
        device, row = self._net.device, PackedRow()
        span = row.add(self._prefix, [])
        with on_cuda_device(device), torch.inference_mode():
            pattern = PackedPattern.of(row, device, flash=self._net.flash, to_cache=[[span]])
            with using_pattern(pattern):
                read = (np.asarray(row.tokens), row.positions(), np.asarray([span[1] - 1]))
                self._net.logits(*(on_device(each, device) for each in read))
        self.slots.prefix = pattern.cached[0]

    def _read(
        self, row: PackedRow, last: Sequence[int], slots: Sequence[int], source: Integers, place: Integers
    ) -> None:
        device = self._net.device
        with on_cuda_device(device), torch.inference_mode():
            pattern = PromptPattern.of(row, device, flash=self._net.flash, before=self.slots.prefix or None)
            pattern.slots = self.slots
            pattern.source, pattern.place = (on_device(each, device) for each in (source, place))
            with using_pattern(pattern):
                read = (np.asarray(row.tokens), row.positions(), np.asarray(last))
                logits = self._net.logits(*(on_device(each, device) for each in read))
            at = on_device(np.asarray(slots), device)
            generations = [each for slot in slots if (each := self._generations[slot]) is not None]
            self._draw.set(at, generations)
            self._is_bad[at] = is_bad(logits)
            self._next[at] = self._draw.first(logits, at, generations)
            self.slots.lengths[at] = on_device(
                np.asarray([len(each.tokens) - self.slots.shared for each in generations]), device
            )

    def run_block(self) -> Block:
        """Run a block of generation steps and return its tokens. The first of a text was chosen by the step before."""
        steps = max(min(BLOCK, self.ahead + self._lead), self._lead)
        is_drawn = any(generation is not None and generation.temperature > 0 for generation in self._generations)
        if is_drawn:
            self._draw.prepare(self._generations, steps, self._first)
        with on_cuda_device(self._net.device):
            self._play(is_drawn, steps - self._lead)
            tokens = HostCopy(self._history[:steps])
            lead = LEADS.get(self._net.device.type, 0)
            first = self._block_ended(lead if self.ahead > steps and not is_drawn else 0)
            self._play(is_drawn, self._lead)
        return Block(np.asarray(tokens.array(), dtype=np.int64), first)

    def _block_ended(self, lead: int) -> list[int]:
        """Begin the next block; returns the first steps of the texts in the one before."""
        first, self._first = self._first, [0] * len(self._first)
        self._lead = lead
        self._step_index.zero_()
        return first

    def _play(self, is_drawn: bool, steps: int) -> None:
        play = self._recorded_steps.get(is_drawn)
        if play is None:
            play = self._recorded_steps[is_drawn] = self._recorded(is_drawn)
        for _ in range(steps):
            play()

    def _step(self, is_drawn: bool) -> None:
        self._history.index_copy_(0, self._step_index, torch.where(self._is_bad, NO_TOKEN, self._next)[None])
        self.slots.begin_step()
        with using_pattern(self.slots):
            logits = self._net.logits(self._next, self.slots.positions(), self._all)
        uniform = self._draw.uniforms.index_select(0, self._step_index)[0]
        highest, likeliest = logits.max(-1)
        self._is_bad |= ~(highest < torch.inf)
        self._next.copy_(self._draw.choose(logits, self._all, uniform) if is_drawn else likeliest)
        self.slots.lengths.add_(1).clamp_(max=self.last)
        self._step_index.add_(1).clamp_(max=BLOCK - 1)

    def _recorded(self, is_drawn: bool) -> Callable[[], None]:
        def step() -> None:
            with torch.inference_mode():
                self._step(is_drawn)

        return self._recorder.record(
            step, (self._next, self.slots.lengths, self._history, self._step_index, self._is_bad)
        )

    def collect(self, block: Block, ends: frozenset[int], decode: Decode, seconds: float) -> list[Generation]:
        """Give the tokens of a block to their generations; return those that have finished."""
        ended = []
        for slot, generation in enumerate(self._generations):
            if generation is not None:
                generation.seconds += seconds
                generation.take(block.tokens[block.first[slot] :, slot].tolist(), ends, decode)
                if generation.finish or generation.problem:
                    ended.append(generation)
                    self._generations[slot] = None
        return ended


class StepFailed(Exception):
    """A step raises this error whether it is recorded or not."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _warm_up(step: Callable[[], None], mode: WithoutHostCopies | None) -> None:
    with DeviceAttempt() as attempt:
        for _ in range(WARM):
            if mode is not None:
                mode.begin()
            step()
    if attempt.error is not None:
        raise StepFailed(attempt.error)


class GraphRecorder:
    """Record a step as a CUDA graph, since launching its kernels one by one takes longer than they run.

    A step that cannot be recorded, such as a mixture of experts that reads the chosen experts on the CPU, runs unrecorded
    from then on; a warning is logged once.
    """

    def __init__(self, device: torch.device, fallbacks: Fallbacks | None = None) -> None:
        self.device, self._fallbacks = device, fallbacks or Fallbacks()
        self.is_able, self.is_allowed = device.type == "cuda", True

    def record(self, step: Callable[[], None], state: Sequence[torch.Tensor]) -> Callable[[], None]:
        """Return the step, recorded if possible. `state`, which it writes to, is restored."""
        if not (self.is_able and self.is_allowed):
            return step
        first: Exception | None = None
        for capture in (self.captured, self.captured_without_host_copies):
            held = [each.clone() for each in state]
            with DeviceAttempt() as attempt, uniform_memory_errors():
                recorded = capture(step)
            for each, was in zip(state, held, strict=True):
                each.copy_(was)
            if attempt.error is None:
                return recorded
            if isinstance(attempt.error, torch.OutOfMemoryError):
                raise attempt.error
            if isinstance(attempt.error, StepFailed) and first is None:
                raise attempt.error.error from None
            first = first or attempt.error
        assert first is not None
        self.is_able = False
        self._fallbacks.note(WITHOUT_GRAPHS, first)
        return step

    def captured(self, step: Callable[[], None]) -> Callable[[], None]:
        """Record a step as it is."""
        return self._captured(step, None)

    def captured_without_host_copies(self, step: Callable[[], None]) -> Callable[[], None]:
        """Record a step that copies tensors between CPU and GPU. Not the first choice: its context compiles layers again."""
        mode = WithoutHostCopies(self.device)
        with mode:
            mode.graph = self._captured(step, mode)
        return mode.replay

    def _captured(self, step: Callable[[], None], mode: WithoutHostCopies | None) -> Callable[[], None]:
        """Record without `torch.cuda.graph`, which waits for the device and empties its cache of memory."""
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(stream):
                _warm_up(step, mode)
                if mode is not None:
                    mode.record()
                graph.capture_begin(capture_error_mode="thread_local")
                is_recorded = False
                try:
                    step()
                    is_recorded = True
                finally:
                    with (
                        nullcontext() if is_recorded else suppress(RuntimeError)
                    ):  # else the step's own error is raised
                        graph.capture_end()
        finally:
            torch.cuda.current_stream(self.device).wait_stream(stream)
        return graph.replay


def is_bad(logits: torch.Tensor) -> torch.Tensor:
    """Rows with NaN or infinite logits."""
    return ~(logits.amax(-1) < torch.inf)


class TokenSampler:
    """Choose the next token of every slot: the most likely one, or one drawn by its probability."""

    def __init__(self, count: int, device: torch.device) -> None:
        self._temperature = torch.zeros(count, device=device)
        self._top_p = torch.ones(count, device=device)
        self._top_k = torch.zeros(count, dtype=torch.long, device=device)
        self.uniforms = torch.zeros(BLOCK, count, device=device)

    def set(self, slots: torch.Tensor, generations: Sequence[Generation]) -> None:
        listed = np.asarray([(each.temperature, each.top_p, each.top_k) for each in generations], dtype=np.float32)
        options = on_device(listed, self.uniforms.device)
        self._temperature[slots], self._top_p[slots], self._top_k[slots] = (
            options[:, 0],
            options[:, 1],
            options[:, 2].long(),
        )

    def first(self, logits: torch.Tensor, slots: torch.Tensor, generations: Sequence[Generation]) -> torch.Tensor:
        """Choose the first token of each text."""
        if not any(each.temperature > 0 for each in generations):
            return logits.argmax(-1)
        numbers = [each.uniforms(1)[0] if each.temperature > 0 else 0.0 for each in generations]
        return self.choose(logits, slots, torch.tensor(numbers, device=logits.device))

    def prepare(self, generations: Sequence[Generation | None], steps: int, first: Sequence[int] | None = None) -> None:
        """Draw the random numbers of a block, for each text from its first step on."""
        nothing = [0.0] * steps
        drawn = [
            [*nothing[:start], *each.uniforms(steps - start)] if each is not None and each.temperature > 0 else nothing
            for each, start in zip(generations, first or [0] * len(generations), strict=True)
        ]
        self.uniforms[:steps].copy_(torch.tensor(drawn).T)

    def choose(self, logits: torch.Tensor, slots: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
        """Choose the token of each row at which the cumulated probabilities, likeliest first, pass `uniform`."""
        temperature = self._temperature[slots]
        scaled = logits.float() / temperature.clamp(min=1e-6)[:, None]
        sums, order = torch.softmax(scaled, -1).sort(dim=-1, descending=True, stable=True)
        rank = torch.arange(sums.shape[-1], device=sums.device)[None]
        top_k = self._top_k[slots][:, None]
        sums = sums.masked_fill((top_k > 0) & (rank >= top_k), 0)
        sums = sums / sums.sum(-1, keepdim=True)  # `top_p` applies to what `top_k` leaves
        is_out = sums.cumsum(-1) - sums >= self._top_p[slots][:, None]
        reached = sums.masked_fill(is_out & (rank > 0), 0).cumsum(-1)
        at = (reached < uniform[:, None] * reached[:, -1:]).sum(-1, keepdim=True).clamp(max=sums.shape[-1] - 1)
        drawn = order.gather(-1, at)[:, 0]
        return torch.where(temperature > 0, drawn, logits.argmax(-1))
