"""What a page is asked for: filters, order and place in a list of samples, as they stand in an address."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

OPERATORS = {
    "eq": "is",
    "ne": "is not",
    "has": "contains",
    "lt": "below",
    "gt": "above",
    "empty": "is empty",
}
"""What a column can be asked, with how it is said."""
PAGE = 50
SHOWS = ("all", "wrong", "right", "failed")


class Condition(NamedTuple):
    """What must hold of a column: `doc.level`, `answer.strict`, `score.acc,none`, `target`, `audit`."""

    column: str
    operator: str
    value: str

    def __str__(self) -> str:
        return "~".join(self)


@dataclass(frozen=True, slots=True)
class Wish:
    """Which samples are wanted: those that hold a text, by score, by what columns say; sorted how; from where on."""

    text: str = ""
    show: str = "all"
    audit: str = ""
    conditions: tuple[Condition, ...] = ()
    sort: str = ""
    descending: bool = False
    page: int = 1
    slice: str = ""
    metric: str = ""

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """As an address has them; what is as usual is not said."""
        plain = {
            "q": self.text,
            "show": self.show if self.show != "all" else "",
            "audit": self.audit,
            "sort": self.sort,
            "desc": "1" if self.descending else "",
            "page": str(self.page) if self.page > 1 else "",
            "slice": self.slice,
            "metric": self.metric,
        }
        return [(key, value) for key, value in plain.items() if value] + [("f", str(each)) for each in self.conditions]

    def but(self, **changes: object) -> "Wish":
        """The same with something changed, from its first page on."""
        return replace(self, **{"page": 1, **changes})  # type: ignore[arg-type]  # its own fields


def read_wish(query: QueryParams) -> Wish:
    """What an address asks for. What it says that means nothing is left out: a page must not break over its address."""
    show, page = query.get("show", "all"), query.get("page", "1")
    return Wish(
        query.get("q", "")[:1000],
        show if show in SHOWS else "all",
        query.get("audit", "")[:100],
        tuple(found for text in query.getlist("f")[:20] if (found := _condition(text)) is not None),
        query.get("sort", "")[:200],
        query.get("desc") == "1",
        min(max(int(page), 1), 10**9) if page.isdecimal() and len(page) < 12 else 1,
        query.get("slice", "")[:200],
        query.get("metric", "")[:200],
    )


def _condition(text: str) -> Condition | None:
    column, _, rest = text.partition("~")
    operator, _, value = rest.partition("~")
    return Condition(column[:200], operator, value[:1000]) if column and operator in OPERATORS else None


def address(page: str, *several: Sequence[tuple[str, str]], **named: object) -> str:
    """An address of this server: a page with its parameters; those without a value are left out.

    >>> address("run", run="a b")
    '/run?run=a+b'
    """
    given = [(key, str(value)) for key, value in named.items() if value not in (None, "")]
    asked = urlencode([*given, *(pair for pairs in several for pair in pairs)])
    return f"/{page}?{asked}" if asked else f"/{page}"


def changed(query: Mapping[str, str], **changes: object) -> list[tuple[str, str]]:
    """Parameters of an address with some of them changed or taken out."""
    merged: dict[str, object] = {**query, **changes}
    return [(key, str(value)) for key, value in merged.items() if value not in (None, "")]
