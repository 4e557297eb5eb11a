"""Patience with a model that is somewhere else: how much at once, what is asked again and when, waiting for one that is gone."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from assay.errors import AssayError, ConfigError, Place, Problem
from assay.records import Failed, Request, Response, Trouble, Usage


class Absent(AssayError):
    """A model that did not come back."""


Ask = Callable[[Sequence[Request]], Awaitable[Sequence[Response]]]
"""The responses to requests that go together: one, or the repeats of one."""
Probe = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how often. `attempts` is for one request; for the whole run, `again` times what was answered, and
    `at_least`."""

    attempts: int = 8
    again: float = 2.0
    at_least: int = 1000
    first_wait: float = 0.5
    longest_wait: float = 30.0
    gone_after: int = 16
    """So many failures to connect in a row, with nothing answered between them, and the model counts as gone."""
    longest_absence: float = 600.0


@dataclass(slots=True)
class Room:
    """How many requests are under way at once: more while answers stay quick, half as many when the model says stop.

    It starts small and doubles, with every round of answers and every second, until answers slow down or `most` is reached;
    after a setback it grows by one a round.
    """

    most: int
    now: float = 0.0
    _doubling: bool = True
    _quickest: float = float("inf")
    _cut: float = 0.0

    def __post_init__(self) -> None:
        self.now = float(min(16, self.most))

    @property
    def size(self) -> int:
        return max(1, int(self.now))

    def answered(self, seconds: float) -> None:
        self._quickest = min(self._quickest, seconds)
        if seconds > 4 * self._quickest + 0.05:
            self._doubling = False
        self.now = min(self.most, self.now + (1.0 if self._doubling else 1.0 / max(self.now, 1.0)))

    def pass_second(self) -> None:
        """A second without a setback: answers that take minutes must not hold up those that could be asked."""
        if self._doubling:
            self.now = min(self.most, self.now * 2)

    def refused(self) -> None:
        """The model asked for less: half, but once for all that was under way when it said so."""
        if time.monotonic() - self._cut > 1.0:
            self.now, self._cut, self._doubling = max(1.0, self.now / 2), time.monotonic(), False


@dataclass(slots=True)
class Patience:
    """Asks a model until it answers or has failed for good. All that waits for it waits here."""

    ask: Ask
    probe: Probe | None = None
    limits: Limits = field(default_factory=Limits)
    room: Room = field(default_factory=lambda: Room(1))
    retries: int = 0
    answered: int = 0
    waiting_since: float | None = None
    _lost: int = 0
    _absences: int = 0
    _back: asyncio.Event = field(default_factory=asyncio.Event)
    _random: random.Random = field(default_factory=lambda: random.Random(0))

    def __post_init__(self) -> None:
        self._back.set()

    async def answer(self, requests: Sequence[Request]) -> Sequence[Response]:
        """The responses to requests that go together; a Failed with the last reason when patience is at its end."""
        attempt = absences = 0
        while True:
            await self._back.wait()
            start = time.monotonic()
            try:
                responses = await self.ask(requests)
            except Trouble as trouble:
                if trouble.gone:
                    before, is_first = self._absences, await self._look()
                    was_gone = self._absences > before
                    if was_gone or (is_first and trouble.unsent):  # and is back: that attempt does not count
                        absences += is_first
                        if absences < max(2, self.limits.attempts):
                            continue
                        return [Failed(f"{trouble} (the model went away {absences} times)")] * len(requests)
                attempt += 1
                if attempt >= self.limits.attempts or self._is_exhausted:
                    return [Failed(f"{trouble} (asked {attempt} times)")] * len(requests)
                await self._wait(trouble, attempt)
                continue
            self._lost = 0
            self.answered += 1
            seconds = time.monotonic() - start
            self.room.answered(seconds)
            return [_timed(response, seconds, attempt + 1) for response in responses]

    @property
    def _is_exhausted(self) -> bool:
        """Whether so much was asked again in this run that asking again does not help."""
        return self.retries > self.limits.at_least + self.limits.again * self.answered

    async def _wait(self, trouble: Trouble, attempt: int) -> None:
        self.retries += 1
        if trouble.slow_down:
            self.room.refused()
        pause = min(self.limits.longest_wait, self.limits.first_wait * 2 ** (attempt - 1))
        pause = pause * (0.5 + self._random.random()) if trouble.after is None else trouble.after
        await asyncio.sleep(pause)

    def _gone_for_good(self) -> str:
        return f"the model was gone for {_seconds(self.limits.longest_absence)}: the run ends here, and can go on"

    async def _look(self) -> bool:
        """Wait until the model is there, if it may have gone; absences are counted. The first to notice probes, and all
        others wait; whether this was the first.

        A model that is there when it is probed had not gone: it was the request that it could not bear, and that attempt
        counts. Else a prompt at which a server resets the connection would be asked for ever.
        """
        self._lost += 1
        enough = min(self.limits.gone_after, self.room.size, max(1, self.limits.attempts - 1))
        if not self._back.is_set():
            await self._back.wait()
            return False
        if self.probe is None or self._lost < enough:
            return False
        self._back.clear()
        self.waiting_since = time.monotonic()
        pause = self.limits.first_wait
        is_gone = False
        try:
            while time.monotonic() - self.waiting_since < self.limits.longest_absence:
                await asyncio.sleep(pause)
                if await self.probe():
                    self._lost = 0
                    self._absences += is_gone
                    return True
                is_gone = True
                pause = min(pause * 1.5, 5.0)
            raise Absent([Problem(Place("model"), self._gone_for_good(), "start it, and give the same command again")])
        finally:
            self.waiting_since = None
            self._back.set()


def _seconds(number: float) -> str:
    return f"{number / 60:.0f} minutes" if number >= 120 else f"{number:.0f} s"


def _timed(response: Response, seconds: float, tries: int) -> Response:
    if isinstance(response, Failed):
        return response
    return response._replace(usage=(response.usage or Usage())._replace(seconds=seconds, tries=tries))


async def before_the_run(ask: Callable[[], Awaitable[None]]) -> None:
    """What a model is asked before anything counts; one that cannot be reached, or does not calm down, is an error."""
    limits = Limits()
    for attempt in range(limits.attempts):
        try:
            return await ask()
        except Trouble as trouble:
            if trouble.gone or attempt + 1 == limits.attempts:
                fix = "start the server, or correct base_url in --model_args"
                raise ConfigError([Problem(Place("model"), f"the model does not answer: {trouble}", fix)]) from None
            await asyncio.sleep(limits.first_wait * 2**attempt if trouble.after is None else trouble.after)
