"""Contexts of records: a context variable that the code of one record sets is not seen by another record.

A lambda may run in place, in a thread or as a coroutine, and a fast one may move into a thread when it gets slow. So that the
values it sees do not depend on that, every call gets a copy of its record's context, and what it has set there is put into the
record's context when its step is over.
"""

from collections.abc import Generator, Iterable, Sequence
from contextvars import Context, copy_context
from typing import TypeVar

from assay.records import Call, Failed, Request, Response, Returned

T = TypeVar("T")
Steps = Generator[Sequence[Request | Call], Sequence[Response], T]
Result = Returned | Failed
_UNSET = object()


def steps_in(context: Context, steps: Steps[T]) -> Steps[T]:
    """The same steps, taken in a context."""
    responses: Sequence[Response] | None = None
    while True:
        try:
            requests = context.run(steps.send, responses)  # type: ignore[arg-type]  # None begins a generator
        except StopIteration as stop:
            result: T = stop.value
            return result
        responses = yield requests


def run_calls(calls: Sequence[Call]) -> Generator[Sequence[Call], Sequence[Result], Sequence[Result]]:
    """Yield calls of user code, each with a copy of this context; returns their responses."""
    before = copy_context()
    contexts = [before.copy() for _ in calls]
    responses = yield [call._replace(context=own) for call, own in zip(calls, contexts, strict=True)]
    finished = (own for own, response in zip(contexts, responses, strict=True) if isinstance(response, Returned))
    put_together(before, finished)
    return responses


def put_together(before: Context, copies: Iterable[Context]) -> None:
    """Set in this context what was set in copies of it, as it was `before`; of several values the last one counts."""
    for own in copies:
        for variable, value in own.items():
            if before.get(variable, _UNSET) is not value:
                variable.set(value)
