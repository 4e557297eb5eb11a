"""Whether two answers mean the same number, set or expression. Needs the extra `math`."""

import re
from collections.abc import Sequence
from typing import Any

from assay.scorers.clock import clock_stopped, in_main_thread
from assay.scorers.metrics import Declared
from assay.scorers.results import GENERATE

SECONDS = 5
"""What one comparison may take: some expressions never end."""

_LATEX = ("\\", "^", "_", "{")
_MARKED = ("$", r"\boxed", r"\(", r"\[")
_FUNCTIONS = {"sin", "cos", "tan", "cot", "sec", "csc", "log", "exp", "sqrt", "arcsin", "arccos", "arctan", "inf"}


def math_equal(references: Sequence[Any], prediction: Any, *, digits: int = 6, strict: bool = True) -> float:
    r"""Whether the answer equals a reference, by computing with both: 0.5, 1/2 and \frac{2}{4} are the same.

    Numbers are compared to so many digits after the point. `strict`: variables must have the same names.
    """
    from math_verify.errors import TimeoutException

    try:
        with clock_stopped():
            return float(any(_equal(str(each), str(prediction), digits, strict) for each in references))
    except TimeoutException as error:
        raise TimeoutError(f"math_equal: {error}") from None


def _equal(right: str, given: str, digits: int, strict: bool) -> bool:
    from math_verify import verify

    if right.strip() == given.strip():
        return True
    return bool(
        verify(
            _parsed(right),
            _parsed(given),
            float_rounding=digits,
            strict=strict,
            timeout_seconds=_seconds(),
            raise_on_error=True,  # what cannot be compared is a failure and no wrong answer
        )
    )


def _parsed(text: str) -> list[Any]:
    """What a text says in numbers and formulas; a formula that does not say it is LaTeX is taken for it, words are not."""
    from math_verify import parse

    is_marked = any(mark in text for mark in _MARKED)
    has_words = not set(re.findall(r"[A-Za-z]{3,}", text)) <= _FUNCTIONS
    computes = re.search(r"[A-Za-z]", text) is not None and re.search(r"[-+*/=]|\d[A-Za-z]\b", text) is not None
    if not is_marked and ((computes and not has_words) or any(sign in text for sign in _LATEX)):
        written = [f"${text}$"]
    else:
        written = [text] if is_marked or has_words else [text, f"${text}$"]
    for each in written:
        found = list(parse(each, parsing_timeout=_seconds(), raise_on_error=True))
        if found:
            return found
    return []


def _seconds() -> int | None:
    return SECONDS if in_main_thread() else None


MATH_METRICS: dict[str, Declared] = {"math_equal": Declared({GENERATE: math_equal}, needs="math_verify")}
