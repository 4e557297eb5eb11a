"""Verdicts: the requests of scorers that ask other models about an answer, and the rows that follow from the responses."""

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import islice
from typing import Any

from assay.errors import SelfExplanatory
from assay.records import Failed, Request, Response
from assay.scoring.results import Scores, StepInput
from assay.user_code import TIME_LIMIT, alarmed, user_code, written

Asks = Generator[Sequence[Request], Sequence[Response], Scores]
"""A plan that asks other models about an answer: yields requests, is sent their responses, and returns rows."""
StepPlan = Generator[Sequence[Request], Sequence[Response], Scores | Failed]
"""The same, guarded: returns rows, or why there are none."""
VerdictPlan = Generator[Sequence[Request], Sequence[Response], dict[int, Scores | Failed]]
"""A plan of all steps that ask other models; returns their rows by the number of the step."""
JUDGE = "judge"


def answered(place: str, ask: Callable[[StepInput], Asks], result: StepInput) -> StepPlan:
    """The rows that follow from what other models answer, or why there are none: asking, or a request of it, failed."""
    try:
        with user_code(place):
            plan, responses = ask(result), None
            while True:
                try:
                    requests = alarmed(TIME_LIMIT, "a scorer", plan.send, responses)  # type: ignore[arg-type]  # begins with None
                except StopIteration as stop:
                    rows: Scores = stop.value
                    return rows
                responses = yield requests
                for request, response in zip(requests, responses, strict=True):
                    if isinstance(response, Failed):
                        role = getattr(request, "role", JUDGE)
                        return Failed(f"{role if role == JUDGE else f'role {role!r}'}: {response.reason}")
    except SelfExplanatory as error:
        return Failed(written(str(error)))


def together(plans: Mapping[int, StepPlan | Failed]) -> VerdictPlan:
    """One plan of those of several steps: what they ask in a round is asked at once."""
    rows: dict[int, Scores | Failed] = {number: each for number, each in plans.items() if isinstance(each, Failed)}
    sent: dict[int, Sequence[Response] | None] = {number: None for number in plans if number not in rows}
    while sent:
        requests: dict[int, Sequence[Request]] = {}
        for number, responses in sent.items():
            plan: Any = plans[number]
            try:
                requests[number] = plan.send(responses)
            except StopIteration as stop:
                rows[number] = stop.value
        whole = [request for asked in requests.values() for request in asked]
        replies = iter((yield whole) if whole else ())
        sent = {number: list(islice(replies, len(asked))) for number, asked in requests.items()}
    return rows


def replayed(plan: VerdictPlan, responses: Sequence[Response], steps: Sequence[int]) -> dict[int, Scores | Failed]:
    """The rows of a plan whose requests were answered before; `steps` are the numbers of its steps."""
    replies = iter(responses)
    try:
        requests = next(plan)
        while True:
            known = list(islice(replies, len(requests)))
            if len(known) != len(requests):
                what = f"{len(requests)} questions were to be asked about this answer, and {len(known)} were answered"
                return dict.fromkeys(steps, Failed(f"scoring: ValueError: {what}"))
            requests = plan.send(known)
    except StopIteration as stop:
        rows: dict[int, Scores | Failed] = stop.value
        return rows
