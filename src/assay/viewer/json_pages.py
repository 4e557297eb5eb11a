"""Every page as JSON: typed records, one document for each kind of page, and their JSON Schema (docs/viewing.md)."""

import dataclasses
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from assay.config.record_json import json_values, type_schema
from assay.config.schema import Schema
from assay.records import AnyJSON
from assay.report.index import IndexedRun, index_run
from assay.results import Row, keys
from assay.runs.comparison import Attribution, ComparedRow, Comparison, Flip
from assay.runs.lines import LiveProgress, ResultLine
from assay.runs.run import Run
from assay.runs.samples.records import StoredSample
from assay.score_keys import join_scores
from assay.tasks.audit import audit_counts
from assay.viewer.matrix import Matrix, MatrixNumber, ScatterPoint, Shown, TrendPoint, matrix_numbers
from assay.viewer.pages import Page
from assay.viewer.query import url_for
from assay.viewer.sample_page import MAX_DEPTH, TOO_DEEP, VerdictView, parse_json, stored_columns, target_of
from assay.viewer.samples import Samples
from assay.viewer.task_charts import ChartCard

VERSION = 1
"""Of all documents: it grows when a field is renamed, removed or changes its meaning; further fields may come at any time."""


@dataclass(frozen=True)
class NumberRecord:
    """A number with its interval: one metric of one filter."""

    row: Row = field(
        metadata=keys("metric", "filter", "value=estimate.value", "stderr=estimate.stderr", "low=estimate.low",
                      "high=estimate.high", "n=estimate.n", "failed", "higher_is_better", "reason=estimate.reason",
                      "method=estimate.method")
    )  # fmt: skip


@dataclass(frozen=True)
class RunRecord:
    """A run in one line."""

    run: IndexedRun = field(
        metadata=keys("name", "model", "tasks", "status", "settings", "headline_of", "samples=n", "failed", "cost", "seconds",
                      "created", "done", "expected", "tags", "note", "problem")
    )  # fmt: skip
    url: str
    headline: NumberRecord | None


@dataclass(frozen=True)
class RunsDocument:
    """`/runs.json`: a page of the runs, filtered and sorted by the same parameters: `matching` of `count` ones. `old` ones are
    left out."""

    count: int
    matching: int
    old: int
    page: int
    pages: int
    runs: list[RunRecord]
    version: int = VERSION


@dataclass(frozen=True)
class LineRecord:
    """A task or group in the tree of results; `not_run` says why a task could not be run, `note` why it has no number yet."""

    line: ResultLine = field(
        metadata=keys("path", "alias", "is_group", "num_fewshot=shots", "documents", "done", "failed", "incomplete", "not_run",
                      "audit", "note")
    )  # fmt: skip
    numbers: list[NumberRecord]


@dataclass(frozen=True)
class ProgressRecord:
    """How far a run in progress is; its numbers are provisional."""

    live: LiveProgress = field(
        metadata=keys("documents", "failures", "reasons", "requests_done", "requests_left", "requests_per_second=rate",
                      "time_left", "time")
    )  # fmt: skip


@dataclass(frozen=True)
class RunDocument:
    """`/run.json`: a run, the tree of its results, remarks, audit, usage and provenance."""

    run: RunRecord
    lines: list[LineRecord]
    remarks: list[str]
    audit: dict[str, int]
    usage: dict[str, object]
    provenance: dict[str, object]
    progress: ProgressRecord | None
    version: int = VERSION


@dataclass(frozen=True)
class SampleLine:
    """A sample in one line of a list: the end of its prompt, the beginning of its answer, its scores."""

    doc: int
    url: str
    question: str
    answer: str
    filtered: str
    target: str
    failed: str
    scores: dict[str, float | None]
    audit: list[str]


@dataclass(frozen=True)
class ChartRecord:
    """The numbers of a chart, as its table shows them."""

    card: ChartCard = field(metadata=keys("name", "title", "about", "columns=head", "rows"))


@dataclass(frozen=True)
class TaskDocument:
    """`/task.json`: the numbers of a task and one page of its samples; `samples` is null where none are stored."""

    run: str
    task: str
    not_run: str
    numbers: list[NumberRecord]
    settings: dict[str, object]
    metric: str
    total: int
    page: int
    pages: int
    samples: list[SampleLine] | None
    downloads: dict[str, str]
    charts: list[ChartRecord]
    version: int = VERSION


@dataclass(frozen=True)
class VerdictRecord:
    """The verdict of a judge, with its question; fields that the run did not store are empty."""

    verdict: VerdictView = field(metadata=keys("role", "model", "score", "reason", "question", "text"))


@dataclass(frozen=True)
class SampleDocument:
    """`/sample.json`: one sample. `stored` has all columns of the file of samples, as text."""

    run: str
    task: str
    doc: int
    why: str
    document: object
    prompt: str
    prefix: str
    messages: list[dict[str, object]] | None
    target: str
    responses: object
    answers: dict[str, object]
    scores: dict[str, object]
    verdicts: list[VerdictRecord]
    failed: str
    audit: list[str]
    stored: dict[str, str]
    others: dict[str, str]
    version: int = VERSION


@dataclass(frozen=True)
class CompareDocument:
    """`/compare.json`: every other run against the first; `rows` and `flips` as in `assay compare --format json`."""

    runs: list[str]
    problem: str
    level: float | None
    rows: list[ComparedRow]
    differences: list[Attribution]
    notes: list[str]
    flips: list[Flip]
    version: int = VERSION


@dataclass(frozen=True)
class FlipsDocument:
    """`/flips.json`: samples of a task that two runs score differently."""

    runs: list[str]
    task: str
    flips: list[Flip]
    chart: ChartRecord | None
    version: int = VERSION


@dataclass(frozen=True)
class ListedRun:
    """A run of a matrix; `step` is the training step in its name."""

    run: IndexedRun = field(metadata=keys("run=name", "model", "created", "step", "status", "tags"))


@dataclass(frozen=True)
class MatrixDocument:
    """`/matrix.json`: runs × tasks; so many older runs are left out."""

    runs: list[ListedRun]
    numbers: list[MatrixNumber]
    runs_left_out: int
    version: int = VERSION


@dataclass(frozen=True)
class RowRecord:
    """A row that a chart draws."""

    task: str
    metric: str
    filter: str


@dataclass(frozen=True)
class TrendDocument:
    """`/trend.json`: a number over dates or training steps."""

    rows: list[RowRecord]
    over: typing.Literal["date", "step"]
    points: list[TrendPoint]
    version: int = VERSION


@dataclass(frozen=True)
class ScatterDocument:
    """`/scatter.json`: two numbers of each run that has both; the first of `rows` is `x`."""

    rows: list[RowRecord]
    points: list[ScatterPoint]
    version: int = VERSION


@dataclass(frozen=True)
class GraphDocument:
    """`/graph.json`: the nodes of a graph with what happened at each, over `records` records."""

    run: str
    task: str
    records: int
    nodes: list[dict[str, object]]
    version: int = VERSION


@dataclass(frozen=True)
class LabelDocument:
    """`/label.json`: how far the labels of a task are; `doc` is the next document of the person `by`."""

    run: str
    task: str
    by: str
    doc: int | None
    done: int
    left: int
    verdicts: dict[str, float]
    people: dict[str, int]
    agreement: dict[str, float | None]
    version: int = VERSION


@dataclass(frozen=True)
class ProblemDocument:
    """The JSON of a page that cannot be shown, with a status of 404 or 500."""

    error: str
    version: int = VERSION


def run_record(run: IndexedRun) -> RunRecord:
    headline = NumberRecord(run.headline) if run.headline is not None else None
    return RunRecord(run, url_for("run", run=run.name), headline)


def runs_document(page: Page) -> RunsDocument:
    runs = [run_record(run) for run in page["heads"]]
    return RunsDocument(page["count"], page["matching"], page["old"], page["page"], page["pages"], runs)


def run_document(page: Page) -> RunDocument:
    run: Run = page["run"]
    lines = [LineRecord(line, [*map(NumberRecord, line.numbers)]) for line in run.lines]
    progress = ProgressRecord(run.live) if run.is_running else None
    return RunDocument(
        run_record(index_run(run)),
        lines,
        [*run.remarks],
        audit_counts(run.results),
        dict(run.usage),
        run.provenance,
        progress,
    )


def task_document(page: Page) -> TaskDocument:
    run: Run = page["run"]
    task, line, shown = page["task"], page["line"], page["page"]
    numbers = [*map(NumberRecord, line.numbers)] if line is not None else []
    not_run = line.not_run if line is not None else ""
    if shown is None:
        return TaskDocument(run.name, task, not_run, numbers, dict(run.config(task)), "", 0, 1, 1, None, {}, [])
    samples: Samples = page["samples"]
    metric = str(samples.metric) if samples.metric is not None else ""
    lines = [
        SampleLine(
            row.doc_id, address, **brief,
            scores=dict(zip(map(str, samples.scores), samples.values(row), strict=True)), audit=[*row.audit],
        )
        for row, address, brief in page["shown"]
    ]  # fmt: skip
    return TaskDocument(
        run.name, task, not_run, numbers, dict(run.config(task)), metric, shown.total, shown.page, shown.pages, lines,
        page["downloads"], [*map(ChartRecord, page["charts"])],
    )  # fmt: skip


def sample_document(page: Page) -> SampleDocument:
    row: StoredSample = page["row"]
    messages = row.requests[0].messages if row.requests else None
    scores = join_scores(row.scores, row.repeats)
    return SampleDocument(
        page["run"].name, page["task"], row.doc_id, page["sample"].why, parse_json(row.doc, {}), row.prompt, row.prefix,
        [dict(each) for each in messages] if messages else None, target_of(row), row.responses, dict(row.answers),
        scores, [*map(VerdictRecord, page["verdicts"])], row.failed or "", [*row.audit], stored_columns(row), dict(page["others"]),
    )  # fmt: skip


def compare_document(page: Page) -> CompareDocument:
    comparison: Comparison | None = page["comparison"]
    if comparison is None:
        return CompareDocument(page["names"], page["problem"], None, [], [], [], [])
    return CompareDocument(
        page["names"], page["problem"], comparison.level, [*comparison.rows], [*comparison.attributions], [*comparison.notes],
        [*comparison.flips],
    )  # fmt: skip


def flips_document(page: Page) -> FlipsDocument:
    chart = ChartRecord(page["paired"]) if page["paired"] is not None else None
    return FlipsDocument(page["names"], page["task"], [each.flip for each in page["flips"]], chart)


def matrix_document(page: Page) -> MatrixDocument:
    matrix: Matrix = page["matrix"]
    return MatrixDocument([ListedRun(run) for run in matrix.entries], [*matrix_numbers(matrix)], matrix.left_out[0])


def trend_document(page: Page) -> TrendDocument:
    shown: Shown[TrendPoint] = page["shown"]
    rows = [RowRecord(*key) for key in shown.keys]
    return TrendDocument(rows, shown.over, [*shown.points])


def scatter_document(page: Page) -> ScatterDocument:
    shown: Shown[ScatterPoint] = page["shown"]
    return ScatterDocument([RowRecord(*key) for key in shown.keys], [*shown.points])


def graph_document(page: Page) -> GraphDocument:
    return GraphDocument(
        page["run"].name, page["task"], page["known"], [dataclasses.asdict(node) for node in page["visits"]]
    )


def label_document(page: Page) -> LabelDocument:
    agreement = {name: None if number != number else float(number) for name, number, _ in page["agreement"]}
    return LabelDocument(
        page["run"].name, page["task"], page["by"], page["shown"]["doc"] if page["shown"] else None, page["done"], page["left"],
        {each.text: each.label for each in page["buttons"]}, page["people"], agreement,
    )  # fmt: skip


DOCUMENTS: dict[str, Callable[[Page], Any]] = {
    "/": runs_document, "/run": run_document, "/task": task_document, "/sample": sample_document, "/compare": compare_document,
    "/flips": flips_document, "/graph": graph_document, "/label": label_document,
    "/matrix": matrix_document, "/trend": trend_document, "/scatter": scatter_document,
}  # fmt: skip
"""By the path of a page, the function that makes its document from the content of the page."""


def json_path(path: str) -> str:
    """The path of a page's JSON.

    >>> json_path("/run"), json_path("/")
    ('/run.json', '/runs.json')
    """
    return "/runs.json" if path == "/" else f"{path}.json"


def json_bytes(document: Any) -> bytes:
    """A document as JSON text: not-a-number is null, a lone surrogate is escaped, and a number of more than 64 bits is a text."""
    options = (
        orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS
    )
    try:
        return orjson.dumps(document, option=options, default=_json_value)
    except TypeError:
        return orjson.dumps(_escaped(document), option=options, default=str)


def _json_value(value: object) -> object:
    return json_values(value) if dataclasses.is_dataclass(value) else str(value)


def _escaped(value: AnyJSON, depth: int = 0) -> AnyJSON:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    if depth > MAX_DEPTH:
        return TOO_DEEP
    if dataclasses.is_dataclass(value):
        value = json_values(value)
    if isinstance(value, Mapping):
        return {_escaped(key): _escaped(inner, depth + 1) for key, inner in value.items()}
    return [_escaped(inner, depth + 1) for inner in value] if isinstance(value, list | tuple) else value


def view_schema() -> Schema:
    """The JSON Schema of all documents, by the path of each under `$defs`."""
    kinds: dict[str, Any] = {json_path(path): typing.get_type_hints(make)["return"] for path, make in DOCUMENTS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "assay view",
        "description": f"The JSON of every page of the viewer, version {VERSION}: one definition for each path.",
        "$defs": {path.strip("/"): type_schema(kind) for path, kind in {**kinds, "problem": ProblemDocument}.items()},
    }
