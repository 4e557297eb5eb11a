"""Run a model by the fastest way that works. If one fails in the middle of a run, what has no result yet is computed again:
the same way once, then by slower ways, down to the padded batches of plain transformers."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import torch

from assay.models.local.fallbacks import DeviceAttempt, Fallbacks, reason_of
from assay.models.local.generation import Generation
from assay.models.local.scoring import ScoredPair
from assay.models.local.windows import Pair, Windows
from assay.models.protocol import ModelLost
from assay.records import Request, Response
from assay.user_code import explain

LOST = (
    "device-side assert", "illegal memory access", "illegal instruction", "misaligned address", "launch failure",
    "launch timed out", "uncorrectable ECC", "hardware stack error", "invalid program counter",
)  # fmt: skip
"""In the messages of CUDA errors after which every operation of the process fails."""
WITHOUT_FLASH = "attention runs without the flash kernel, which is slower"
RETRIED = "a pass over the model failed and was computed again"
MOST_FAILED = 3
"""Requests that fail alone, one after the other: then the model is broken, not they."""

Item = TypeVar("Item")
Done = TypeVar("Done")


class HFRunner(Protocol):
    """Score pairs of tokens and generate texts. `remarks` are notes for the user."""

    remarks: dict[str, str]

    @property
    def way(self) -> str:
        """How it computes: packed, states, padded, encoder-decoder."""
        ...

    def expect(self, seconds: float) -> None: ...
    def pairs(self, windows: Windows, number: int, request: Request) -> list[Pair] | Response: ...
    def score(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[list[ScoredPair]]: ...
    def generate(self, generations: Sequence[Generation]) -> Iterator[list[Generation]]: ...
    def forget(self) -> None:
        """Drop what is kept for later requests."""
        ...


class Way(NamedTuple):
    """A way of computing: `begin` prepares the model for it, `end` undoes what others do not expect, and `loss` is the
    sentence for the user."""

    runner: HFRunner
    begin: Callable[[], None] = lambda: None
    loss: str = ""
    end: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class _Work(Generic[Item, Done]):
    """Log-likelihoods or texts: how a runner computes them, their numbers, and the result of one that fails. `restart` returns
    the result of an item that has one."""

    run: Callable[[HFRunner, Iterable[Sequence[Item]]], Iterator[list[Done]]]
    number: Callable[[Item | Done], int]
    fail: Callable[[Item, str], Done]
    restart: Callable[[Item], Done | None]


def _generate(runner: HFRunner, chunks: Iterable[Sequence[Generation]]) -> Iterator[list[Generation]]:
    for generations in chunks:
        yield from runner.generate(generations)


def _failed_generation(generation: Generation, reason: str) -> Generation:
    generation.problem = reason
    return generation


def _restarted(generation: Generation) -> Generation | None:
    if generation.finish or generation.problem:
        return generation
    generation.restart()
    generation.stored = 0
    return None


SCORES = _Work[Pair, ScoredPair](
    lambda runner, chunks: runner.score(chunks),
    lambda each: each[0],
    lambda pair, reason: ScoredPair(pair[0], 0.0, False, 0, 0, 0.0, reason),
    lambda _: None,
)
TEXTS = _Work[Generation, Generation](_generate, lambda each: each.number, _failed_generation, _restarted)


class _Feed(Generic[Item, Done]):
    """Chunks on their way to a runner, and those of their items that have no result yet."""

    def __init__(self, work: _Work[Item, Done], chunks: Iterable[Sequence[Item]]) -> None:
        self._number, self._chunks = work.number, iter(chunks)
        self._pending: dict[int, Item] = {}
        self.is_over = False
        self.has_failed = False
        """Whether making the next chunk failed."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Sequence[Item]:
        self.has_failed = True
        chunk = next(self._chunks, None)
        self.has_failed = False
        if chunk is None:
            self.is_over = True
            raise StopIteration
        self._pending.update((self._number(item), item) for item in chunk)
        return chunk

    def take(self, done: Sequence[Done]) -> Sequence[Done]:
        """Note results; those of items that had one are left out."""
        return [each for each in done if self._pending.pop(self._number(each), None) is not None]

    @property
    def pending(self) -> list[Item]:
        return list(self._pending.values())

    def left(self, items: Sequence[Item]) -> list[Item]:
        return [item for item in items if self._number(item) in self._pending]


class FallbackRunner:
    """Runs a model by the first of several ways, the fastest first."""

    def __init__(self, ways: Sequence[Way], device: torch.device, fallbacks: Fallbacks, unscorable: str = "") -> None:
        """`unscorable`: why log-likelihoods by its passes would be wrong, if they would."""
        self._ways, self._device, self.fallbacks, self.unscorable = list(ways), device, fallbacks, unscorable
        self._begun = self._ways[0]
        self._is_retried = False
        self._doubts = 0

    @property
    def runner(self) -> HFRunner:
        """The runner in use."""
        return self._ways[0].runner

    def score(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[Sequence[ScoredPair]]:
        return self._run(SCORES, chunks)

    def generate(self, generations: Sequence[Generation]) -> Iterator[Sequence[Generation]]:
        return self._run(TEXTS, [generations])

    def _run(self, work: _Work[Item, Done], chunks: Iterable[Sequence[Item]]) -> Iterator[Sequence[Done]]:
        feed = _Feed(work, chunks)
        while not feed.is_over:
            with DeviceAttempt() as attempt:
                for done in work.run(self.runner, feed):
                    yield feed.take(done)
                return
            assert attempt.error is not None
            if feed.has_failed:
                raise attempt.error
            yield from self._recover(work, feed, attempt.error)

    def _recover(
        self, work: _Work[Item, Done], feed: _Feed[Item, Done], failure: Exception
    ) -> Iterator[Sequence[Done]]:
        """Compute what has no result: the same way once more, then by slower ones."""
        check_usable(self._device, failure)
        count = len(feed.pending)
        for way in self._ways[self._is_retried :]:
            self._begin(way)
            with DeviceAttempt() as attempt:
                yield from _attempt(work, way, feed, feed.pending)
            if attempt.error is None:
                self._settle(way, failure, count)
                return
            check_usable(self._device, attempt.error)
        try:
            yield from self._one_by_one(work, feed)
        finally:
            self._settle_doubt(failure, count)

    def _begin(self, way: Way) -> None:
        self._begun.end()
        self._begun = way
        way.runner.forget()
        way.begin()

    def _settle(self, way: Way, failure: Exception, count: int) -> None:
        """Stay with a way that worked."""
        self.fallbacks.note(way.loss if way is not self._ways[0] else RETRIED, failure, count)
        self._is_retried = way is self._ways[0]
        while self._ways[0] is not way:
            self._ways.pop(0)

    def _settle_doubt(self, failure: Exception, count: int) -> None:
        """Return to the fastest way, since plain transformers failed, too; not for ever."""
        self._doubts += 1
        if self._doubts >= MOST_FAILED and len(self._ways) > 1:
            self._settle(self._ways[-1], failure, count)
        self._begin(self._ways[0])

    def _one_by_one(self, work: _Work[Item, Done], feed: _Feed[Item, Done]) -> Iterator[Sequence[Done]]:
        """Compute by the last way, what fails in halves: a request that fails alone has failed."""
        parts, in_a_row = deque([feed.pending]), 0
        while parts:
            items = parts.popleft()
            with DeviceAttempt() as attempt:
                for done in _attempt(work, self._ways[-1], feed, items):
                    in_a_row = 0
                    yield done
            if attempt.error is None:
                continue
            check_usable(self._device, attempt.error)
            left = feed.left(items)
            if len(items) > 1:
                parts.extendleft(half for half in (left[len(left) // 2 :], left[: len(left) // 2]) if half)
                continue
            in_a_row += 1
            if in_a_row == MOST_FAILED:
                raise attempt.error
            yield feed.take([work.fail(left[0], explain("the model failed", attempt.error))])


def _attempt(
    work: _Work[Item, Done], way: Way, feed: _Feed[Item, Done], items: Sequence[Item]
) -> Iterator[Sequence[Done]]:
    """Restart items and compute them, but those that have a result."""
    finished = [result for item in items if (result := work.restart(item)) is not None]
    if finished:
        yield feed.take(finished)
    for done in work.run(way.runner, [feed.left(items)]):
        yield feed.take(done)


def check_usable(device: torch.device, error: BaseException) -> None:
    """Raise a ModelLost after an error that leaves the device unusable for this process."""
    if isinstance(error, ModelLost):
        raise error
    if not any(sign in str(error) for sign in LOST) and _computes(device):
        return
    what = f"the device {str(device)!r} failed, and can compute nothing more in this process: {reason_of(error)}"
    fix = "run the same command to resume; if it fails there again, with CUDA_LAUNCH_BLOCKING=1 or device=cpu to find the cause"
    raise ModelLost.at("model", what, fix) from error


def _computes(device: torch.device) -> bool:
    if device.type in ("cpu", "meta"):
        return True
    try:
        return bool(torch.ones(2, device=device).sum().item() == 2)
    except RuntimeError:
        return False
