"""Which runs a list, a matrix or a chart shows: by name, model, task, date, tag, or words, as URL parameters."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from starlette.datastructures import QueryParams

from assay.report.index import IndexedRun
from assay.runs.folder import is_moved_aside

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
