"""Retries with backoff, the concurrency window, and waiting for a model that is unreachable."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from assay.engine.counts import TemporaryFailure
from assay.errors import AssayError, ConfigError
from assay.models.protocol import RetryableError
from assay.models.servers.remedies import busy_remedy, malformed_remedy
from assay.number_text import format_duration
from assay.records import Failed, Request, Response, Usage

MALFORMED_ATTEMPTS = 2
"""Number of answers to the greeting that are not of the protocol, after which the server counts as another kind of server."""


class ModelUnreachable(AssayError):
    """No response within `max_downtime`."""


Send = Callable[[Sequence[Request]], Awaitable[Sequence[Response]]]
"""Sends one request, or the repeats of one, and returns the responses."""
Probe = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """Limits on retries and waits.

    `attempts` is per request. The retry budget of a run is `retries_per_answer` times the answered requests, plus
    `min_retries`.
    """

    attempts: int = 8
    retries_per_answer: float = 2.0
    min_retries: int = 1000
    first_wait: float = 0.5
    max_wait: float = 30.0
    failures_before_probe: int = 16
    """Consecutive connection failures, without an answer between them, after which the model is probed."""
    max_downtime: float = 600.0


@dataclass(slots=True)
class ConcurrencyWindow:
    """Additive-increase, multiplicative-decrease limit on requests in flight.

    It starts small and doubles, with every round of answers and every second, until answers get slower or `limit` is
    reached; after a rate limit it grows by one a round.
    """

    limit: int
    first: int
    now: float = 0.0
    _doubling: bool = True
    _quickest: float = float("inf")
    _halved_at: float = 0.0

    def __post_init__(self) -> None:
        self.now = float(min(self.first, self.limit))

    @property
    def size(self) -> int:
        return max(1, int(self.now))

    def on_answer(self, seconds: float) -> None:
        self._quickest = min(self._quickest, seconds)
        if seconds > 4 * self._quickest + 0.05:
            self._doubling = False
        self.now = min(self.limit, self.now + (1.0 if self._doubling else 1.0 / max(self.now, 1.0)))

    def on_tick(self) -> None:
        """Grow after a second without a rate limit, so that answers that take minutes do not keep the window small."""
        if self._doubling:
            self.now = min(self.limit, self.now * 2)

    def on_rate_limit(self) -> None:
        """Halve the window, once for all requests that were in flight."""
        if time.monotonic() - self._halved_at > 1.0:
            self.now, self._halved_at, self._doubling = max(1.0, self.now / 2), time.monotonic(), False


@dataclass(slots=True)
class Retrier:
    """Send requests, retrying with backoff until they succeed, fail permanently, or the run's retry budget is spent."""

    send: Send
    probe: Probe | None = None
    limits: RetryLimits = field(default_factory=RetryLimits)
    window: ConcurrencyWindow = field(default_factory=lambda: ConcurrencyWindow(1, 1))
    retries: int = 0
    answered: int = 0
    unreachable_since: float | None = None
    _failed_connections: int = 0
    _outages: int = 0
    _reachable: asyncio.Event = field(default_factory=asyncio.Event)
    _random: random.Random = field(default_factory=lambda: random.Random(0))

    def __post_init__(self) -> None:
        self._reachable.set()

    async def answer(self, requests: Sequence[Request]) -> Sequence[Response]:
        """Return the responses to requests that are sent together; a Failed with the last reason when retries are spent."""
        attempt = outages = 0
        while True:
            await self._reachable.wait()
            start = time.monotonic()
            try:
                responses = await self.send(requests)
            except RetryableError as error:
                error.__traceback__ = error.__context__ = None  # their frames hold the answer, while this one waits
                if error.unreachable:
                    before, is_first = self._outages, await self._wait_until_reachable()
                    had_outage = self._outages > before
                    if had_outage or (is_first and error.unsent):  # and is back: that attempt does not count
                        outages += is_first
                        if outages < max(2, self.limits.attempts):
                            continue
                        return [TemporaryFailure(f"{error} (the model became unreachable {outages} times)")] * len(
                            requests
                        )
                attempt += 1
                if attempt >= self.limits.attempts or self._is_exhausted:
                    return [TemporaryFailure(f"{error} (after {attempt} attempts)")] * len(requests)
                await self._back_off(error, attempt)
                continue
            self._failed_connections = 0
            self.answered += 1
            seconds = time.monotonic() - start
            self.window.on_answer(seconds)
            return [timed(response, seconds, attempt + 1) for response in responses]

    @property
    def _is_exhausted(self) -> bool:
        """Whether the retry budget of the run is spent."""
        return self.retries > self.limits.min_retries + self.limits.retries_per_answer * self.answered

    async def _back_off(self, error: RetryableError, attempt: int) -> None:
        self.retries += 1
        if error.rate_limited:
            self.window.on_rate_limit()
        pause = min(self.limits.max_wait, self.limits.first_wait * 2 ** (attempt - 1))
        pause = pause * (0.5 + self._random.random()) if error.retry_after is None else error.retry_after
        await asyncio.sleep(pause)

    async def _wait_until_reachable(self) -> bool:
        """Probe the model after many failed connections and wait until it answers; return whether this call probed.

        The first to notice probes, all others wait. A model that answers the first probe was not down: the request itself
        broke the connection, and that attempt counts. Else a prompt at which a server resets the connection would be
        retried forever.
        """
        self._failed_connections += 1
        enough = min(self.limits.failures_before_probe, self.window.size, max(1, self.limits.attempts - 1))
        if not self._reachable.is_set():
            await self._reachable.wait()
            return False
        if self.probe is None or self._failed_connections < enough:
            return False
        self._reachable.clear()
        self.unreachable_since = time.monotonic()
        pause = self.limits.first_wait
        is_down = False
        try:
            while time.monotonic() - self.unreachable_since < self.limits.max_downtime:
                await asyncio.sleep(pause)
                if await self.probe():
                    self._failed_connections = 0
                    self._outages += is_down
                    return True
                is_down = True
                pause = min(pause * 1.5, 5.0)
            what = f"model unreachable for {format_duration(self.limits.max_downtime)}; stopped"
            raise ModelUnreachable.at("model", what, "run the same command to resume")
        finally:
            self.unreachable_since = None
            self._reachable.set()


def timed(response: Response, seconds: float, tries: int) -> Response:
    """The response with its latency and number of attempts."""
    if isinstance(response, Failed):
        return response
    used = response.usage or Usage()
    return response._replace(usage=Usage(used.read, used.written, seconds, tries, used.cut, used.stored))


async def retry_before_run(send: Callable[[], Awaitable[None]], role: str = "model") -> None:
    """Send the request that identifies a model, with retries; raise a ConfigError if the model of the role does not answer."""
    limits = RetryLimits()
    for attempt in range(limits.attempts):
        try:
            return await send()
        except RetryableError as error:
            is_malformed = error.malformed and attempt + 1 >= MALFORMED_ATTEMPTS
            if error.unsent or is_malformed or attempt + 1 == limits.attempts:
                is_own = role == "model"
                where, option = (
                    ("model", "--model_args") if is_own else (f"model_role.{role}", f"--model_role {role}=…")
                )
                fix = malformed_remedy(str(error)) if is_malformed else error.fix or busy_remedy(str(error), option)
                raise ConfigError.at(where, f"the model does not answer: {error}", fix) from None
            if attempt == 1:
                logging.getLogger("assay").warning("the model does not answer: %s; retrying for up to a minute", error)
            await asyncio.sleep(limits.first_wait * 2**attempt if error.retry_after is None else error.retry_after)
