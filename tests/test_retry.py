"""How requests are sent again, and how many are in flight: by a model that is a list of what it says, without a server."""

import asyncio
import time
from collections.abc import Callable, Sequence

import pytest

from assay import ConfigError
from assay.engine.retry import ConcurrencyWindow, ModelUnreachable, Retrier, RetryLimits, retry_before_run
from assay.models.protocol import RetryableError
from assay.records import Failed, Generate, Request, Response, Text

ASKED = Generate("q", {})
BUSY, GONE = RetryableError("busy"), RetryableError("connection refused", unreachable=True)


class Model:
    """Says one thing after the other, and the last one for ever; `is_up` are its answers to probes."""

    def __init__(self, *said: RetryableError | str, is_up: Sequence[bool] = ()) -> None:
        self.said, self.is_up, self.asked, self.probed = list(said), list(is_up), 0, 0

    async def send(self, requests: Sequence[Request]) -> Sequence[Response]:
        self.asked += 1
        said = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        if isinstance(said, RetryableError):
            raise said
        return [Text(said) for _ in requests]

    async def probe(self) -> bool:
        self.probed += 1
        return self.is_up.pop(0) if len(self.is_up) > 1 else self.is_up[0]


def answer_of(model: Model, **limits: float) -> Response:
    """What becomes of a request; a pause is a millisecond."""
    allowed = RetryLimits(**{"first_wait": 0.001, "max_wait": 0.002, **limits})  # type: ignore[arg-type]
    window = ConcurrencyWindow(8, 8)
    [answer] = asyncio.run(Retrier(model.send, model.probe if model.is_up else None, allowed, window).answer([ASKED]))
    return answer


# --- requests in flight --------------------------------------------------------------------------------------------------

Event = Callable[[ConcurrencyWindow], None]


def answered(seconds: float = 0.1) -> Event:
    return lambda window: window.on_answer(seconds)


@pytest.mark.parametrize(
    ("events", "size"),
    [
        ([], 8.0),
        ([answered()] * 3, 11.0),  # one more for each answer: twice as many after a round
        ([answered()] * 99, 64.0),
        ([ConcurrencyWindow.on_tick], 16.0),
        ([ConcurrencyWindow.on_tick] * 2, 32.0),
        ([ConcurrencyWindow.on_tick] * 9, 64.0),
        ([ConcurrencyWindow.on_rate_limit], 4.0),
        ([ConcurrencyWindow.on_rate_limit] * 5, 4.0),  # those that were in flight together count once
        ([ConcurrencyWindow.on_rate_limit, ConcurrencyWindow.on_tick], 4.0),
        ([ConcurrencyWindow.on_rate_limit, answered()], 4.25),  # from then on one more a round
        ([answered(0.1), answered(0.46)], 9 + 1 / 9),  # beyond 4 times the quickest and 50 ms
        ([answered(0.1), answered(0.44)], 10.0),
    ],
)
def test_requests_in_flight_double_until_a_rate_limit_or_slower_answers(events: list[Event], size: float) -> None:
    window = ConcurrencyWindow(limit=64, first=8)
    for event in events:
        event(window)
    assert window.now == pytest.approx(size)


def test_a_window_is_never_empty_nor_larger_than_its_limit() -> None:
    assert ConcurrencyWindow(limit=2, first=8).size == 2
    window = ConcurrencyWindow(limit=8, first=1)
    window.on_rate_limit()
    assert (window.now, window.size) == (1.0, 1)


def test_a_second_later_a_rate_limit_halves_again() -> None:
    window = ConcurrencyWindow(limit=64, first=16)
    window.on_rate_limit()
    window._halved_at = time.monotonic() - 1.1
    window.on_rate_limit()
    assert window.now == 4.0


# --- one request ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "limits", "asked"),
    [
        (Model(BUSY, BUSY, "yes"), {"attempts": 3}, 3),
        (Model("yes"), {"attempts": 1}, 1),
        (Model(GONE, "yes"), {"attempts": 2}, 2),  # nothing to probe: an attempt like any other
        (Model(GONE, GONE, GONE, "yes", is_up=[True]), {"attempts": 4}, 4),
        # an outage does not count as an attempt, one that is over at the first probe does
        (Model(GONE, "yes", is_up=[False, True]), {"attempts": 2, "failures_before_probe": 1}, 2),
        (Model(GONE, BUSY, "yes", is_up=[False, True]), {"attempts": 2 + 1, "failures_before_probe": 1}, 3),
    ],
)
def test_a_request_is_sent_again_until_it_is_answered(model: Model, limits: dict[str, float], asked: int) -> None:
    answer = answer_of(model, **limits)
    assert isinstance(answer, Text)
    assert (answer.text, model.asked) == ("yes", asked)
    assert answer.usage is not None


@pytest.mark.parametrize(
    ("model", "limits", "reason"),
    [
        (Model(BUSY), {"attempts": 3}, "busy (after 3 attempts)"),
        (Model(GONE), {"attempts": 3}, "connection refused (after 3 attempts)"),
        (Model(BUSY), {"attempts": 8, "min_retries": 0}, "busy (after 2 attempts)"),  # the budget of the run is spent
        (Model(GONE, is_up=[False, True, False, True]), {"attempts": 2, "failures_before_probe": 1},
         "connection refused (the model became unreachable 2 times)"),
    ],
)  # fmt: skip
def test_a_request_that_is_never_answered_fails_with_the_last_reason(
    model: Model, limits: dict[str, float], reason: str
) -> None:
    answer = answer_of(model, **limits)
    assert isinstance(answer, Failed)
    assert answer.reason == reason


def test_a_model_that_stays_away_ends_the_run() -> None:
    with pytest.raises(ModelUnreachable, match="model unreachable for"):
        answer_of(Model(GONE, is_up=[False]), failures_before_probe=1, max_downtime=0.02)


def test_the_delay_that_a_server_asks_for_is_kept() -> None:
    start = time.monotonic()
    answer_of(Model(RetryableError("busy", retry_after=0.15), "yes"))
    assert time.monotonic() - start >= 0.15


# --- the first request ---------------------------------------------------------------------------------------------------


def greeting(*said: RetryableError | str) -> int:
    """How often a model was asked until it answered."""
    model = Model(*said)

    async def greet() -> None:
        await model.send([ASKED])

    asyncio.run(retry_before_run(greet))
    return model.asked


def test_a_model_that_is_busy_is_greeted_again() -> None:
    assert greeting(RetryableError("busy", retry_after=0.0), "yes") == 2
    assert greeting(BUSY, "yes") == 2


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (RetryableError("nothing listens", unsent=True), 1),
        (RetryableError("no JSON", malformed=True, retry_after=0.0), 2),
        (RetryableError("busy", retry_after=0.0), 8),
    ],
)
def test_a_model_that_does_not_answer_is_refused_before_the_run(error: RetryableError, asked: int) -> None:
    said = [error] * asked
    with pytest.raises(ConfigError, match=f"the model does not answer: {error}"):
        greeting(*said, "too late")
    assert greeting(*said[1:], "yes") == asked
