"""What a scoring makes otherwise than the one before: which samples, and which numbers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from assay.config.row_names import row_name, rows_of, sample_scores
from assay.records import ScoreKey
from assay.runs.samples.reader import AnsweredSample
from assay.runs.samples.records import SampleRecord

NAME = "changes.jsonl"
NAMED = 20


class Number(NamedTuple):
    """A number before and after, and how many documents score otherwise. None where there is none."""

    name: str
    key: ScoreKey
    before: float | None
    after: float | None
    changed: int

    @property
    def row(self) -> str:
        return row_name(self.key)

    def written(self) -> dict[str, Any]:
        """As results have it."""
        return {"name": self.name, "row": self.row, "before": self.before, "after": self.after, "changed": self.changed}


@dataclass
class Changes:
    """The samples of tasks that score otherwise than before; every one is written down as a line of JSON.

    A sample has changed when a row that both scorings have has another value, or when it failed in one of them.
    """

    folder: Path
    documents: dict[str, list[int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    rows: Counter[tuple[str, ScoreKey]] = field(default_factory=Counter)
    _waiting: dict[int, AnsweredSample] = field(default_factory=dict)
    _lines: list[bytes] = field(default_factory=list)

    def expect(self, stored: AnsweredSample) -> None:
        """Remember what a sample scored, until it is scored again."""
        self._waiting[stored.sample.doc_id] = stored

    def compare(self, task: str, kept: SampleRecord) -> None:
        """Note what has changed about a sample."""
        found = _difference(self._waiting.pop(kept.sample.doc_id), kept)
        if not found:
            return
        self.counts[task] += 1
        named = self.documents.setdefault(task, [])
        if len(named) < NAMED:
            named.append(kept.sample.doc_id)
        scores = found.pop("scores", {})
        self.rows.update((task, key) for key in scores)
        if scores:
            found["scores"] = {row_name(key): values for key, values in scores.items()}
        self._lines.append(orjson.dumps({"task": task, "doc_id": kept.sample.doc_id, **found}) + b"\n")
        if len(self._lines) >= 1000:
            self.write()

    def write(self) -> None:
        """Write down what has gathered."""
        with (self.folder / NAME).open("ab") as file:
            file.writelines(self._lines)
        self._lines = []

    def told(self) -> dict[str, Any]:
        """As results have it."""
        return {task: {"count": count, "ids": self.documents[task]} for task, count in self.counts.items()}


def _difference(before: AnsweredSample, kept: SampleRecord) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if before.failed != kept.failed:
        found["failed"] = [before.failed or None, kept.failed or None]
    old = sample_scores(before.scores)
    new = {ScoreKey(metric, each.filter): value for each in kept.scores for metric, value in each.values.items()}
    changed = {
        key: [old[key], _plain(value)]
        for key, value in new.items()
        if key in old and value != old[key] and _plain(value) != old[key]
    }
    if changed:
        found["scores"] = changed
    return found


def _plain(value: Any) -> Any:
    """A value as it would be read back."""
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    return orjson.loads(orjson.dumps(value, default=str, option=options))


def numbers(
    before: Mapping[str, Any], after: Mapping[str, Any], changed: Mapping[tuple[str, ScoreKey], int]
) -> list[Number]:
    """Every number that both results have, or one of them: groups first, as the headline."""
    old, new = before.get("results", {}), after["results"]
    order = [*after.get("groups", {}), *(name for name in new if name not in after.get("groups", {}))]
    found: list[Number] = []
    for name in order:
        mine, others = dict(rows_of(old.get(name, {}))), dict(rows_of(new[name]))
        found += [
            Number(name, key, _number(mine.get(key)), _number(others.get(key)), changed.get((name, key), 0))
            for key in dict.fromkeys((*mine, *others))
        ]
    return found


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value == value else None
