"""The parameters of a URL: filters, order and position in a list of samples; and which runs a list, a matrix or a chart shows."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from assay.report.index import IndexedRun
from assay.runs.folder import is_moved_aside
from assay.score_keys import ScoreKey

OPERATORS = {
    "eq": "is",
    "ne": "is not",
    "has": "contains",
    "lt": "below",
    "gt": "above",
    "empty": "is empty",
}
"""The operators of a condition, with their labels."""
PAGE = 50
SHOWS = ("all", "wrong", "right", "failed")


class Condition(NamedTuple):
    """A condition on a column: `doc.level`, `answer.strict`, `score.acc,none`, `target`, `audit`."""

    column: str
    operator: str
    value: str

    def __str__(self) -> str:
        return "~".join(self)


@dataclass(frozen=True, slots=True)
class SampleQuery:
    """Selects samples by text, score and column conditions, with sort order and page."""

    text: str = ""
    show: str = "all"
    audit: str = ""
    conditions: tuple[Condition, ...] = ()
    sort: str = ""
    descending: bool = False
    page: int = 1
    slice: str = ""
    metric: ScoreKey | None = None

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """The query as URL parameters; defaults are left out."""
        plain = {
            "q": self.text,
            "show": self.show if self.show != "all" else "",
            "audit": self.audit,
            "sort": self.sort,
            "desc": "1" if self.descending else "",
            "page": str(self.page) if self.page > 1 else "",
            "slice": self.slice,
            "metric": str(self.metric) if self.metric is not None else "",
        }
        return [(key, value) for key, value in plain.items() if value] + [
            ("f", str(condition)) for condition in self.conditions
        ]

    def replace(self, **changes: str | int | bool | ScoreKey | tuple[Condition, ...]) -> "SampleQuery":
        """Return the query with some fields changed, at its first page."""
        return replace(self, **{"page": 1, **changes})  # type: ignore[arg-type]  # its own fields


def read_query(query: QueryParams) -> SampleQuery:
    """Parse the parameters of a URL. Invalid ones are ignored: a page must not break because of its URL."""
    show = query.get("show", "all")
    return SampleQuery(
        query.get("q", "")[:1000],
        show if show in SHOWS else "all",
        query.get("audit", "")[:100],
        tuple(condition for text in query.getlist("f")[:20] if (condition := _condition(text)) is not None),
        query.get("sort", "")[:200],
        query.get("desc") == "1",
        page_number(query),
        query.get("slice", "")[:200],
        ScoreKey.parse(metric) if (metric := query.get("metric", "")[:200]) else None,
    )


def page_number(query: QueryParams) -> int:
    """The page of a list that a URL asks for."""
    page = query.get("page", "1")
    return min(max(int(page), 1), 10**9) if page.isdecimal() and page.isascii() and len(page) < 12 else 1


def _condition(text: str) -> Condition | None:
    column, _, rest = text.partition("~")
    operator, _, value = rest.partition("~")
    return Condition(column[:200], operator, value[:1000]) if column and operator in OPERATORS else None


def url_for(page: str, *parameters: Sequence[tuple[str, str]], **named: str | int | None) -> str:
    """Build a URL of this server: a page with its parameters; those without a value are left out.

    >>> url_for("run", run="a b")
    '/run?run=a+b'
    """
    pairs = [(key, str(value)) for key, value in named.items() if value not in (None, "")]
    encoded = urlencode([*pairs, *(pair for more in parameters for pair in more)])
    return f"/{page}?{encoded}" if encoded else f"/{page}"


DAY = 86400.0
MAX_NAMES = 2000


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Conditions on runs; an empty one is met by all. Dates are days, as pages show them, both ends included."""

    words: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    models: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    tasks: tuple[str, ...] = ()
    """Patterns of tasks and groups: runs that have none of them are left out."""
    old: bool = False
    """Also runs that `--force` moved aside."""

    @classmethod
    def of(cls, query: QueryParams) -> "RunFilter":
        """Read a URL. An invalid date is ignored: a page must not break because of its URL."""
        since, until = (text if _day(text := query.get(key, "")) is not None else "" for key in ("since", "until"))
        return cls(
            tuple(query.get("q", "").lower().split()[:20]),
            frozenset(query.getlist("run")[:MAX_NAMES]),
            _values(query, "model"),
            _values(query, "tag"),
            since,
            until,
            _values(query, "task"),
            query.get("old") == "1",
        )

    def matches(self, entry: IndexedRun) -> bool:
        """Whether a run is shown."""
        if entry.name not in self.names and (self.names or (not self.old and is_moved_aside(entry.name))):
            return False
        if self.models and not any(model.lower() in entry.model.lower() for model in self.models):
            return False
        if self.tags and not all(tag in entry.tags for tag in self.tags):
            return False
        if self.tasks and not self.has_task([*entry.tasks, *entry.sources]):
            return False
        if self.words:
            text = " ".join((entry.name, entry.model, *entry.tasks, entry.status, *entry.tags, entry.note)).lower()
            if not all(word in text for word in self.words):
                return False
        return self._is_in_time(entry.created)

    def _is_in_time(self, created: float | None) -> bool:
        since, until = _day(self.since), _day(self.until)
        if since is None and until is None:
            return True
        if created is None:
            return False
        return (since is None or created >= since) and (until is None or created < until + DAY)

    def has_task(self, names: Sequence[str]) -> bool:
        """Whether one of these names is chosen."""
        return not self.tasks or any(fnmatchcase(name, pattern) for name in names for pattern in self.tasks)

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """The conditions as URL parameters."""
        pairs = [
            ("q", " ".join(self.words)),
            ("since", self.since),
            ("until", self.until),
            ("old", "1" if self.old else ""),
        ]
        pairs += [("run", name) for name in sorted(self.names)]
        pairs += [("model", name) for name in self.models] + [("tag", name) for name in self.tags]
        return [(key, value) for key, value in (*pairs, *(("task", name) for name in self.tasks)) if value]


def _values(query: QueryParams, key: str) -> tuple[str, ...]:
    """The values of a parameter: repeated, or one field with commas between them."""
    values = [part.strip() for text in query.getlist(key) for part in text.split(",")]
    return tuple(value[:200] for value in values if value)[:100]


@lru_cache(100)
def _day(text: str) -> float | None:
    """The start of a day, `2026-11-16`, as seconds; None for another text."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%d"))
    except (ValueError, OverflowError):
        return None
