"""The query of a page: filters, order and position in a list of samples, as URL parameters."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

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
