"""Reasons of failures, counted: those that differ only in their numbers are one, with the range of each number."""

import re
from collections.abc import Mapping

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
TOO_LONG = "exceed the model's context length"
LONGER = "give max_length=… in --model_args if the model takes more, or --over_length"
"""The remedy where prompts are too long."""


def without_numbers(reason: str) -> str:
    return NUMBER.sub("#", reason)


def grouped_reasons(reasons: Mapping[str, int]) -> list[str]:
    """Return the reasons with their counts, the most frequent first.

    >>> grouped_reasons({"2074 tokens exceed 1024": 1, "no answer": 1, "2151 tokens exceed 1024": 2})
    ['3× 2,074–2,151 tokens exceed 1024', '1× no answer']
    """
    groups: dict[str, list[tuple[str, int]]] = {}
    for reason, count in reasons.items():
        groups.setdefault(without_numbers(reason), []).append((reason, count))
    lines = [(sum(count for _, count in group), _merged([reason for reason, _ in group])) for group in groups.values()]
    return [f"{count}× {text}" for count, text in sorted(lines, key=lambda line: -line[0])]


def _merged(reasons: list[str]) -> str:
    """One text for reasons that differ in their numbers."""
    columns = iter(list(zip(*(NUMBER.findall(reason) for reason in reasons), strict=True)))
    text = NUMBER.sub(lambda _: _range(next(columns)), reasons[0]) if len(reasons) > 1 else reasons[0]
    return f"{text}: {LONGER}" if TOO_LONG in text else text


def _range(numbers: tuple[str, ...]) -> str:
    if len(set(numbers)) == 1:
        return numbers[0]
    ordered = sorted(numbers, key=lambda number: float(number.replace(",", ".")) if number.count(",") < 2 else 0.0)
    return "–".join(f"{int(each):,}" if each.isdigit() else each for each in (ordered[0], ordered[-1]))
