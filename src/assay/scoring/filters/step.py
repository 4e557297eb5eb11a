"""What a step of a filter is, and what it leaves where there is no answer to find."""

from collections.abc import Callable, Mapping
from typing import Any

Step = Callable[[list[Any], Mapping[str, Any]], list[Any]]
"""The responses to one request (one per repeat) and the document, to cleaner responses."""

INVALID = "[invalid]"
"""A response in which nothing was found. lm-eval's word."""
UNFINISHED = "[unfinished thinking]"
"""A response that was still thinking when it ended. Later steps leave it as it is, so that it can be counted."""


def each(function: Callable[[Any], Any]) -> Step:
    """A step that does the same to every response."""

    def step(responses: list[Any], doc: Mapping[str, Any]) -> list[Any]:  # noqa: ARG001  # the shape of a step
        return [response if is_unfinished(response) else function(response) for response in responses]

    return step


def is_unfinished(response: object) -> bool:
    return isinstance(response, str) and response == UNFINISHED


def contains(answers: Any, mark: str) -> bool:
    """Whether one of a document's answers is a mark like `[invalid]`; answers may stand in lists of lists."""
    if isinstance(answers, str):
        return answers == mark
    if not isinstance(answers, list | tuple):
        return False
    for answer in answers:  # a loop without calls: it looks at every answer of every document
        if type(answer) is float or (type(answer) is tuple and answer and type(answer[0]) is float):
            continue  # a log-likelihood
        if contains(answer, mark):
            return True
    return False
