"""A number with its standard error and interval: the one record of it, from statistics to results.json and the viewer.

    number = estimate([1, 0, 1, 1])                      # assay.statistics: a finished number, with its interval
    print(float(number), number.stderr, number.low, number.high, number.method)

    row = results.row("gsm8k", ScoreKey("exact_match", "strict"))
    print(row.estimate.reason if row.estimate.value is None else row.estimate.interval)

What an interval is made of travels with the number as its `evidence`: groups, comparisons and gates compute with it. It is not
compared, printed or written: a number that was read from a file has none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.number_text import format_figures
from assay.statistics.influence import Bounds, Influence, Spread

Interval = tuple[float | None, float | None]
"""The ends of an interval; None for an end that is open."""
WRITTEN: Mapping[str, bool] = {"always": True}
"""Marks a field that results.json has even where it says nothing: others are left out there."""
UNWRITTEN: Mapping[str, bool] = {"unwritten": True}
"""Marks a field that results.json has not."""


def keys(*written: str) -> Mapping[str, Mapping[str, str]]:
    """Mark a field: JSON has these attributes of its value as keys of the record; `accuracy=value` where the key has another name.

    number: Estimate = field(metadata=keys("value", "low", "high"))
    """
    pairs = (entry.partition("=") for entry in written)
    return {"keys": {key: path or key for key, _, path in pairs}}


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What is known of how a number varies: its interval is made of it, and that of every number made of this one."""

    parts: Mapping[Influence, float] = field(default_factory=dict)
    """The influence of the documents, with a weight each."""
    draws: int | None = None
    """How many independent draws there are, documents or clusters; None where they are the documents."""
    is_rate: bool = False
    """Whether it is the share of documents that are right."""
    is_power: bool = False
    """Whether it is a power of e, such as a perplexity."""
    spread: Spread | None = None
    """The spread of its interval, where it does not follow from the parts."""
    center: float | None = None
    """The middle of its interval, where that is not the value."""
    ranked: Sequence[float] | None = None
    """Of a median: the values in their order."""
    repeats: Sequence[Sequence[Any]] | None = None
    """The scores of every answer, by document."""
    tasks: int = 1
    """Of a group's number: how many tasks it is made of."""
    missing: Sequence[str] = ()
    """Of a group's number: members that have no such number."""
    chosen: Sequence[str] = ()
    """Of a group's number: the members it is made of, where it is of the best alone."""
    code_failed: bool = False
    """Whether a user's code was to compute it and did not: the run is incomplete without it."""


NO_EVIDENCE = Evidence()


USER_INTERVAL = "user"
"""The method of an interval that user code gave. Nothing is known of it but that its author calls it one of 95 %."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number computed from `n` documents, and how far it may be from that of all documents of their kind.

    `value` is None where there is no number; `reason` says why it, or its standard error, is missing. The interval is computed
    once, when the number is finished (`with_interval`).
    """

    value: float | None
    stderr: float | None = field(default=None, metadata=WRITTEN)
    n: int = field(default=0, metadata=WRITTEN)
    reason: str = ""
    interval: Interval | None = field(default=None, metadata=WRITTEN)
    method: str = ""
    """The way the interval was made; empty where there is none."""
    df: float | None = None
    """Degrees of freedom of the interval, where it uses them; in results only where they are fewer than n - 1."""
    scale: Bounds | None = None
    """The least and the greatest value the number can have, where they are known."""
    unused_bounds: Bounds | None = None
    """Declared bounds that its scores are not within, so that the interval does not use them."""
    note: str = ""
    """What a reader should know about the number."""
    clusters: int | None = None
    """How many independent draws the documents are, where that is fewer than n."""
    named_values: Mapping[str, float] | None = None
    """Numbers by name, of an aggregation that returns several; `value` is None then."""
    evidence: Evidence = field(default=NO_EVIDENCE, compare=False, repr=False, metadata=UNWRITTEN)

    def __post_init__(self) -> None:
        value = self.value
        if type(value) is float and value == value:  # as nearly always
            return
        is_number = value is not None and value == value  # NaN is none
        object.__setattr__(self, "value", float(value) if value is not None and is_number else None)

    def __float__(self) -> float:
        return float("nan") if self.value is None else self.value

    def __format__(self, style: str) -> str:
        """In texts it is its value, as of a float."""
        return format(float(self), style)

    def __str__(self) -> str:
        return str(float(self))

    def __repr__(self) -> str:
        """The value, then its interval and documents: `0.5 (0.25 … 0.75, n 20)`."""
        ends = self.reason or "no interval"
        if self.low is not None and self.high is not None:
            ends = f"{format_figures(self.low)} … {format_figures(self.high)}"
        return f"{float(self)!r} ({ends}, n {self.n:,})"

    @property
    def low(self) -> float | None:
        """The lower end of the interval."""
        return None if self.interval is None else self.interval[0]

    @property
    def high(self) -> float | None:
        return None if self.interval is None else self.interval[1]

    @property
    def is_share(self) -> bool:
        """Whether it and its interval are between 0 and 1: then a bar of that length shows it."""
        numbers = [number for number in (self.value, self.low, self.high) if number is not None]
        return bool(numbers) and all(0 <= number <= 1 for number in numbers)

    @property
    def draws(self) -> int:
        """How many independent draws its documents are."""
        return (self.clusters or self.n) if self.evidence.draws is None else self.evidence.draws

    @property
    def center(self) -> float:
        """The middle of its interval, where that is even."""
        return float(self) if self.evidence.center is None else self.evidence.center


def with_evidence(number: Estimate, **known: Any) -> Estimate:
    """The number with some fields of its evidence changed."""
    return replace(number, evidence=replace(number.evidence, **known))
