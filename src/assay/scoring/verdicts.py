"""Verdicts: the requests of scorers that ask other models about an answer, and the rows that follow from the responses."""

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from assay.errors import SelfExplanatory
from assay.records import Failed, MetricValue, Request, Response
from assay.scoring.results import StepInput
from assay.user_code import TIME_LIMIT, alarmed, user_code, written

T = TypeVar("T")
Asks = Generator[Sequence[Request], Sequence[Response], MetricValue]
"""A plan that asks other models about an answer: yields requests, is sent their responses, and returns the score, or why there
is none."""
PartNumber = tuple[int, int]
"""A part of a scoring loop, by the number of its step and its own."""
VerdictPlan = Generator[Sequence[Request], Sequence[Response], dict[PartNumber, MetricValue]]
"""A plan of all parts that ask other models; returns their values."""
JUDGE = "judge"


def answered(place: str, ask: Callable[[StepInput], Asks], result: StepInput) -> Asks:
    """The score that follows from what other models answer, or why there is none: asking, or a request of it, failed."""
    try:
        with user_code(place):
            plan, responses = ask(result), None
            while True:
                try:
                    requests = alarmed(TIME_LIMIT, "a scorer", plan.send, responses)  # type: ignore[arg-type]  # begins with None
                except StopIteration as stop:
                    return stop.value
                responses = yield requests
                if len(responses) != len(requests):
                    what = f"{len(requests)} questions were to be asked about this answer, and {len(responses)} were"
                    raise ValueError(f"{what} answered")
                for request, response in zip(requests, responses, strict=True):
                    if isinstance(response, Failed):
                        role = getattr(request, "role", JUDGE)
                        return Failed(f"{role if role == JUDGE else f'role {role!r}'}: {response.reason}")
    except SelfExplanatory as error:
        return Failed(written(str(error)))


def together(plans: Mapping[PartNumber, Asks | Failed]) -> VerdictPlan:
    """One plan of those of several parts: what they ask in a round is asked at once."""
    values: dict[PartNumber, MetricValue] = {number: each for number, each in plans.items() if isinstance(each, Failed)}
    sent: dict[PartNumber, Sequence[Response] | None] = {number: None for number in plans if number not in values}
    while sent:
        requests: dict[PartNumber, Sequence[Request]] = {}
        for number, responses in sent.items():
            plan: Any = plans[number]
            try:
                requests[number] = plan.send(responses)
            except StopIteration as stop:
                values[number] = stop.value
        whole = [request for asked in requests.values() for request in asked]
        replies = iter((yield whole) if whole else ())
        sent = {number: list(islice(replies, len(asked))) for number, asked in requests.items()}
    return values


def replay(plan: Generator[Sequence[Request], Sequence[Response], T], responses: Sequence[Response] = ()) -> T:
    """The value of a plan whose requests were answered before; of one that asks nothing."""
    replies = iter(responses)
    try:
        requests = next(plan)
        while True:
            requests = plan.send(list(islice(replies, len(requests))))
    except StopIteration as stop:
        value: T = stop.value
        return value
