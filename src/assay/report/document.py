"""The content of a report: results of runs, slices, worst samples, and how the runs compare."""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from assay.comparison.compare import answer, compare, target
from assay.comparison.labelling import CardEntry, judge_card, labelled_rows
from assay.errors import AssayError
from assay.results import ReliabilityPoint, Row, keys
from assay.runs.comparison import Comparison
from assay.runs.extensions import ReportOptions
from assay.runs.folder import CUT_OFF, RunError, no_run
from assay.runs.lines import ResultLine, worst_tasks
from assay.runs.run import Run
from assay.runs.samples.encode import from_json
from assay.runs.samples.records import StoredSample, call_text, made_calls, shown_texts
from assay.runs.samples.turns import shown_prompt
from assay.score_keys import ScoreKey
from assay.statistics.arrays import estimate
from assay.statistics.evidence import Estimate
from assay.statistics.influence import Bounds, clip_to_bounds

MAX_VALUES, MIN_SAMPLES = 12, 5
"""Default slicing columns have at most so many values, with at least so many samples each."""
MAX_COLUMN_VALUES = 1000
"""A column with more values is not a slicing column."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The documents of a task with one value of a column, and their score."""

    name: str
    number: Estimate = field(metadata=keys("value", "low", "high"))


@dataclass(frozen=True, slots=True)
class Slices:
    """The score of a task for each value of a document column."""

    task: str
    column: str
    metric: ScoreKey
    parts: Sequence[Slice]


@dataclass(frozen=True, slots=True)
class WorstSample:
    """A sample with a low score: prompt, response, filtered answer, target, scores and audit."""

    task: str
    doc_id: int
    question: str
    said: str
    left: str
    target: str
    scores: Mapping[ScoreKey, Any]
    audit: Sequence[str]
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """The reliability curve of a task: confidence and accuracy of each bin, with the interval of the accuracy."""

    task: str
    metric: ScoreKey
    points: Sequence[ReliabilityPoint]


@dataclass(frozen=True)
class RunPart:
    """One run of a report."""

    run: Run
    slices: Sequence[Slices]
    worst: Sequence[WorstSample]
    curves: Sequence[Curve] = ()
    card: Sequence[CardEntry] = ()
    """Of judges with labels."""


@dataclass(frozen=True)
class RunsReport:
    """A report of runs; with several, each compared with the first, or the reason why they cannot be compared."""

    runs: Sequence[RunPart]
    comparison: Comparison | None = None
    notes: Sequence[str] = ()


def build_report(folders: Sequence[str | PathLike[str]], options: ReportOptions | None = None) -> RunsReport:
    """Build the report of these runs."""
    options = options or ReportOptions()
    runs = [open_with_results(Path(folder)) for folder in folders]
    parts = [_run_part(run, options) for run in runs]
    if len(runs) < 2:
        return RunsReport(parts)
    try:
        comparison = compare(
            runs,
            allow_different_prompts=options.allow_different_prompts,
            flips=options.flips,
        )
    except AssayError as error:
        return RunsReport(parts, notes=[f"not compared: {problem}" for problem in error.problems])
    return RunsReport(parts, comparison)


def open_with_results(folder: Path) -> Run:
    """Open a run to report or draw it; a RunError where there is none, or it has no results."""
    if folder.is_file():
        raise RunError([no_run(folder)])
    run = Run.open(folder)
    if run.is_running:
        fix = "wait until it is finished"
        raise RunError.at(folder, "the run is still in progress", fix)
    if run.results.is_empty and run.status in CUT_OFF:
        what = f"the run was {run.status} before its end and has no results yet"
        fix = "repeat its command with the same --output_path: it goes on where it ended, and then has results"
        raise RunError.at(folder, what, fix)
    if run.results.is_empty:
        fix = "give the folder that was the --output_path of `assay run`"
        raise RunError.at(folder, "the folder holds no finished run", fix)
    return run


def _run_part(run: Run, options: ReportOptions) -> RunPart:
    lines = {line.name: line for line in run.lines if not line.is_group and line.main is not None}
    lowest = worst_tasks([*lines.values()], options.tasks)
    slices: list[Slices] = []
    worst: list[WorstSample] = []
    for line in lines.values():
        if line.main is None:
            continue
        number = line.main
        values = ColumnScores(number.key)
        samples = _LowestSamples(line, number, options.samples if line in lowest else 0)
        file = run.sample_file(line.name)
        for row in file.rows() if file is not None else ():
            values.add(row)
            samples.add(row)
        worst += samples.samples()
        by_column = slices_of(values, number.estimate.value, options.columns, number.estimate.scale)
        slices += [Slices(line.name, column, number.key, parts) for column, parts in by_column.items()]
    order = {line.name: place for place, line in enumerate(lowest)}
    return RunPart(run, slices, sorted(worst, key=lambda each: order[each.task]), curves_of(run), _card(run))


def _card(run: Run) -> list[CardEntry]:
    checked = labelled_rows(run) if run.labels else []
    return judge_card(run, checked) if checked else []


def curves_of(run: Run) -> list[Curve]:
    """The reliability curves that the results of a run have."""
    return [
        Curve(task.name, row.key, row.reliability)
        for task in run.results.tasks.values()
        for row in task.rows
        if row.reliability
    ]


class _LowestSamples:
    """The samples of a task with the lowest scores; of equal ones, those with audit flags first."""

    def __init__(self, line: ResultLine, number: Row, count: int) -> None:
        self._line, self._number, self._count = line, number, count
        self._held: list[tuple[float, int, int, StoredSample]] = []

    def add(self, row: StoredSample) -> None:
        value = row.scores.get(self._number.key) if self._count else None
        if isinstance(value, int | float) and value < 1:
            key = (-float(value), 1 if row.audit else 0, -row.doc_id, row)
            heapq.heappush(self._held, key)
            if len(self._held) > self._count:
                heapq.heappop(self._held)

    def samples(self) -> list[WorstSample]:
        ordered: Iterable[tuple[float, int, int, StoredSample]] = sorted(
            self._held, key=lambda each: each[:3], reverse=True
        )
        return [_worst_sample(self._line.name, row, self._number) for *_, row in ordered]


def _worst_sample(task: str, row: StoredSample, number: Row) -> WorstSample:
    texts = shown_texts(row.responses, row.replies)
    texts += [call_text(call) for call in made_calls(row.replies)]
    left = answer(row, number.filter)
    response = "\n".join(texts) if texts else left
    kinds = list(row.audit)
    return WorstSample(
        task,
        row.doc_id,
        shown_prompt(row),
        response,
        left if texts else "",
        target(row),
        row.scores,
        kinds,
        row.failed or "",
    )


class ColumnScores:
    """The scores of a task under one row name, by column and value of the documents."""

    def __init__(self, key: ScoreKey) -> None:
        self._key = key
        self.columns: dict[str, dict[str, list[float]]] = {}
        self._dropped: set[str] = set()
        self._total, self._count = 0.0, 0

    @property
    def mean(self) -> float:
        return self._total / self._count if self._count else math.nan

    def add(self, row: StoredSample) -> None:
        value = row.scores.get(self._key)
        if not isinstance(value, int | float):
            return
        self._total, self._count = self._total + value, self._count + 1
        doc = from_json(row.doc)
        for column, cell in doc.items() if isinstance(doc, dict) else ():
            if column not in self._dropped and isinstance(cell, str | bool | int) and len(str(cell)) <= 80:
                parts = self.columns.setdefault(str(column), defaultdict(list))
                parts[str(cell)].append(float(value))
                if len(parts) > MAX_COLUMN_VALUES:
                    self._dropped.add(column)
                    del self.columns[column]


def slices_of(
    values: ColumnScores, number: float | None, columns: Sequence[str] = (), scale: Bounds | None = None
) -> Mapping[str, Sequence[Slice]]:
    """By column its slices, the lowest first. A result that is not the mean over documents has none."""
    if (
        number is None
        or not math.isfinite(number)
        or not math.isclose(values.mean, number, rel_tol=1e-9, abs_tol=1e-12)
    ):
        return {}
    chosen = {
        column: parts
        for column, parts in values.columns.items()
        if column in columns or (not columns and _is_slicing_column(parts))
    }
    return {
        column: sorted((_slice(name, own, scale) for name, own in parts.items()), key=lambda part: float(part.number))
        for column, parts in chosen.items()
    }


def _is_slicing_column(parts: Mapping[str, Sequence[float]]) -> bool:
    """Whether a column divides the samples into a few slices of some size."""
    return 2 <= len(parts) <= MAX_VALUES and all(len(own) >= MIN_SAMPLES for own in parts.values())


def _slice(name: str, own: Sequence[float], scale: Bounds | None) -> Slice:
    """A slice of the samples: their mean, with the interval of a task made of these samples alone."""
    own = clip_to_bounds(own, scale) if scale is not None else own
    within = scale if scale is not None and scale[0] <= min(own) and max(own) <= scale[1] else None
    return Slice(name, estimate(own, bounds=within))
