"""What a report says of runs: their numbers, parts of their samples, those that went worst, and how the runs compare."""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from assay.comparison.compare import compare
from assay.comparison.comparison import Comparison
from assay.comparison.flips import answer, target
from assay.config.row_names import row_name, sample_scores
from assay.errors import AssayError, ConfigError, Place, Problem
from assay.records import Estimate, ScoreKey
from assay.report.plots import Interval
from assay.report.reading import UNREADABLE, Line, RunReading
from assay.runs.folder import no_run
from assay.runs.rows import Row
from assay.runs.run import RUNNING, Number, Run
from assay.statistics.aggregations import mean
from assay.statistics.estimates import sample_deviation
from assay.statistics.intervals import interval

MOST, LEAST = 12, 5
"""A column that nobody asked for is shown with at most so many values, of at least so many samples each."""
BEYOND = 1000
"""Values of a column after which it is no column of parts."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What a report tells beside the numbers: how many of the worst tasks and samples, and parts by which columns."""

    tasks: int = 5
    samples: int = 2
    columns: Sequence[str] = ()
    flips: int = 5
    allow_different_prompts: bool = False


@dataclass(frozen=True, slots=True)
class Slices:
    """The number of a task for each value of a column of its documents."""

    task: str
    column: str
    metric: str
    parts: Sequence[Interval]


@dataclass(frozen=True, slots=True)
class Shown:
    """A sample that went badly: what was asked, answered, left of it and right; its scores, and what deserves a look."""

    task: str
    doc_id: int
    question: str
    said: str
    left: str
    target: str
    scores: Mapping[str, Any]
    audit: Sequence[str]
    failed: str = ""


@dataclass(frozen=True)
class RunPart:
    """One run of a report."""

    reading: RunReading
    slices: Sequence[Slices]
    worst: Sequence[Shown]


@dataclass(frozen=True)
class Document:
    """A report: runs, and where there are several how each compares with the first, or why that cannot be said."""

    runs: Sequence[RunPart]
    comparison: Comparison | None = None
    notes: Sequence[str] = ()


def document(folders: Sequence[str | Path], options: ReportOptions | None = None) -> Document:
    """What there is to say of these runs."""
    options = options or ReportOptions()
    readings = [_read(Path(folder)) for folder in folders]
    parts = [_part(reading, options) for reading in readings]
    if len(readings) < 2:
        return Document(parts)
    try:
        found = compare(
            [reading.path for reading in readings],
            allow_different_prompts=options.allow_different_prompts,
            flips=options.flips,
        )
    except AssayError as error:
        return Document(parts, notes=[f"not compared: {problem}" for problem in error.problems])
    return Document(parts, found)


def _read(folder: Path) -> RunReading:
    if folder.is_file():
        raise ConfigError([no_run(folder)])
    reading = RunReading(folder)
    if reading.problem:  # a damaged file is told with the place in it
        Run.open(folder).results  # noqa: B018
    if reading.status in (UNREADABLE, RUNNING) or not reading.results:
        what = "the run is still going on" if reading.status == RUNNING else "the folder holds no run that has ended"
        fix = (
            "wait for its end"
            if reading.status == RUNNING
            else "name the folder that --output_path gave to `assay run`"
        )
        raise ConfigError([Problem(Place(str(folder)), what, fix)])
    return reading


def _part(reading: RunReading, options: ReportOptions) -> RunPart:
    lines = {line.name: line for line in reading.lines if not line.is_group and line.main is not None}
    lowest = lowest_tasks(lines.values(), options.tasks)
    slices: list[Slices] = []
    worst: list[Shown] = []
    for line in lines.values():
        if line.main is None:
            continue
        number = line.main
        values = Values(number.key)
        shown = _Lowest(line, number, options.samples if line in lowest else 0)
        for row in reading.samples(line.name):
            values.add(row)
            shown.add(row)
        worst += shown.found()
        several = sliced(values, number.value, options.columns)
        slices += [Slices(line.name, column, number.name, parts) for column, parts in several.items()]
    order = {line.name: place for place, line in enumerate(lowest)}
    return RunPart(reading, slices, sorted(worst, key=lambda each: order[each.task]))


def lowest_tasks(lines: Iterable[Line], count: int) -> list[Line]:
    """The tasks with the lowest numbers, of those that lie between 0 and 1 and of which less is not better."""
    shares = [(line.main.value, line) for line in lines if line.main is not None and _is_share(line.main)]
    return [line for _, line in sorted(shares, key=lambda each: each[0] or 0.0)[:count]]


def _is_share(number: Number) -> bool:
    return number.value is not None and 0 <= number.value <= 1 and number.higher_is_better is not False


class _Lowest:
    """The samples of a task with the lowest values; of equals first those that deserve a look."""

    def __init__(self, line: Line, number: Number, count: int) -> None:
        self._line, self._number, self._count = line, number, count
        self._held: list[tuple[float, int, int, Row]] = []

    def add(self, row: Row) -> None:
        value = row.scores.get(self._number.name) if self._count else None
        if isinstance(value, int | float) and value < 1:
            key = (-float(value), 1 if row.audit else 0, -row.doc_id, row)
            heapq.heappush(self._held, key)
            if len(self._held) > self._count:
                heapq.heappop(self._held)

    def found(self) -> list[Shown]:
        ordered: Iterable[tuple[float, int, int, Row]] = sorted(self._held, key=lambda each: each[:3], reverse=True)
        return [_shown(self._line.name, row, self._number) for *_, row in ordered]


def _shown(task: str, row: Row, number: Number) -> Shown:
    texts = [str(each) for several in row.responses for each in several if isinstance(each, str)]
    scores = {row_name(key): value for key, value in sample_scores(row.scores).items()}
    left = answer(row._asdict(), number.filter)
    said = "\n".join(texts) if texts else left
    kinds = list(row.audit)
    return Shown(
        task,
        row.doc_id,
        row.prompt,
        said,
        left if texts else "",
        target(row._asdict()),
        scores,
        kinds,
        row.failed or "",
    )


class Values:
    """The scores of a task under one name, by column and value of the documents."""

    def __init__(self, key: ScoreKey) -> None:
        self._name = row_name(key)
        self.columns: dict[str, dict[str, list[float]]] = {}
        self._dropped: set[str] = set()
        self._total, self._count = 0.0, 0

    @property
    def mean(self) -> float:
        return self._total / self._count if self._count else math.nan

    def add(self, row: Row) -> None:
        value = row.scores.get(self._name)
        if not isinstance(value, int | float):
            return
        self._total, self._count = self._total + value, self._count + 1
        doc = orjson.loads(row.doc)
        for column, told in doc.items() if isinstance(doc, dict) else ():
            if column not in self._dropped and isinstance(told, str | bool | int) and len(str(told)) <= 80:
                parts = self.columns.setdefault(str(column), defaultdict(list))
                parts[str(told)].append(float(value))
                if len(parts) > BEYOND:
                    self._dropped.add(column)
                    del self.columns[column]


def sliced(values: Values, number: float | None, wanted: Sequence[str] = ()) -> Mapping[str, Sequence[Interval]]:
    """By column its parts, the lowest first. A number that is no mean of its documents has none."""
    if number is None or not math.isclose(values.mean, number, rel_tol=1e-9, abs_tol=1e-12):
        return {}
    found = {
        column: parts for column, parts in values.columns.items() if column in wanted or (not wanted and _speaks(parts))
    }
    return {
        column: sorted((_slice(name, own) for name, own in parts.items()), key=lambda each: each.value)
        for column, parts in found.items()
    }


def _speaks(parts: Mapping[str, Sequence[float]]) -> bool:
    """Whether a column divides the samples into a few parts of some size."""
    return 2 <= len(parts) <= MOST and all(len(own) >= LEAST for own in parts.values())


def _slice(name: str, own: Sequence[float]) -> Interval:
    deviation = sample_deviation(own) if len(own) > 1 else None
    return part(name, mean(own), deviation, len(own), is_rate=set(own) <= {0, 1})


def part(name: str, value: float, deviation: float | None, count: int, *, is_rate: bool) -> Interval:
    """A part of the samples: their mean, with the interval that a task of these samples alone would have."""
    error = deviation / math.sqrt(count) if deviation is not None and count > 1 else None
    ends = interval(Estimate(value, error, count, is_rate=is_rate))
    low, high = ends if ends is not None else (None, None)
    return Interval(name, value, low, high, f"n {count:,}")
