"""Reports as HTML, markdown, JSON and CSV; the file name chooses the format."""

import base64
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path

import orjson
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from assay.comparison.labelling import CardEntry
from assay.config.record_json import json_values
from assay.errors import ConfigError, did_you_mean
from assay.number_text import format_decimal, format_duration, format_money
from assay.records import JSONDict, JSONObject
from assay.report.charts import CARD_WIDTH, Series, draw_part, reliability_panel, reliability_points
from assay.report.comparison_text import row_json
from assay.report.document import Curve, RunPart, RunsReport, Slices, WorstSample, build_report
from assay.report.drawing import STYLE, Drawing, as_svg
from assay.report.page_tables import SHORT_COLUMNS, comparison_page_table, results_page_table, short_cells, slices_table
from assay.report.pictures import draw_differences, forest_panel, slices_panel
from assay.report.report_table import (
    Column,
    CountCell,
    NumberCell,
    ReportTable,
    TableLine,
    make_table,
    number_columns,
)
from assay.report.table import summary_table
from assay.report.table_writers import cell_text, csv_text, write_markdown, write_page_table
from assay.results import Row, keys
from assay.runs.comparison import ComparedRow, Comparison
from assay.runs.extensions import ReportOptions
from assay.runs.files import new_file
from assay.runs.lines import ResultLine
from assay.runs.run import Run
from assay.runs.storage import refuse_url
from assay.safe_text import fenced, markdown_text, shorten, visible
from assay.score_keys import join_scores
from assay.tasks.audit import audit_counts
from assay.version import __version__

PAGE_STYLE = """\
:root { color-scheme: light dark; --page: #ffffff; --panel: #f4f5f7; --ink: #1b1f24; --faint: #57606a; --line: #c8ccd2;
  --track: #d9dde3; --spread: #9ec1ea; --accent: #0550ae; --good: #116329; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --page: #14171b; --panel: #1e2329; --ink: #e8eaed; --faint: #a9b1ba;
  --line: #3c444d; --track: #333a42; --spread: #2f5d92; --accent: #7ab7ff; --good: #5fd07f; --bad: #ff8f85; } }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; font: 15px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--page); }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; }
a { color: var(--accent); } .faint { color: var(--faint); } .bad { color: var(--bad); } .good { color: var(--good); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .15rem .7rem .15rem 0; vertical-align: top; } th { color: var(--faint); font-weight: 600; }
tr.group td { font-weight: 600; } td.right, th.right { text-align: right; } td.num, td.nowrap { white-space: nowrap; }
small { color: var(--faint); font-weight: 400; }
td, th { font-size: .87rem; padding-right: .5rem; } th { max-width: 7rem; overflow-wrap: break-word; vertical-align: bottom; }
 tbody tr:hover { background: var(--panel); }
pre { background: var(--panel); padding: .6rem .8rem; margin: .2rem 0 .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .4rem 0; } summary { cursor: pointer; } dt { color: var(--faint); } dd { margin: 0 0 .3rem 0; }
.depth1 { padding-left: 1.2rem; } .depth2 { padding-left: 2.4rem; } .depth3 { padding-left: 3.6rem; }
.depth4, .depth5, .depth6, .depth7, .depth8 { padding-left: 4.8rem; }
@media print { details { display: block; } }
"""
"""CSS of the HTML report: light or dark as the reader's system."""
NO_BREAK = "\N{NO-BREAK SPACE}" * 2
MAX_CELL_TEXT = 400
"""Characters of a text in a table row."""


def as_html(report: RunsReport) -> str:
    """The report as one HTML page without scripts or external resources. All run content is escaped."""
    style = PAGE_STYLE + STYLE
    policy = f"default-src 'none'; style-src '{_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    text: str = _template().render(
        report=report,
        style=Markup(style),  # our own, and what the policy allows
        policy=policy,
        title=", ".join(part.run.name for part in report.runs),
        version=__version__,
    )
    return text


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "safe_text": visible,
        "cut": lambda text: visible(shorten(str(text))),
        "decimal": format_decimal,
        "duration": format_duration,
        "money": format_money,
        "json": lambda value: visible(orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2).decode()),
        "short": lambda value: visible(shorten(str(value), MAX_CELL_TEXT)),
    }
    environment.globals |= {
        "parts": slices_plot,
        "curve": curve_plot,
        "table": write_page_table,
        "results_table": results_page_table,
        "audit_table": audit_table,
        "curve_table": curve_table,
        "card_table": card_table,
        "comparison_table": comparison_page_table,
        "forest": differences_plot,
    }
    return environment.from_string(files("assay.report").joinpath("page.html.jinja").read_text("utf-8"))


def slices_plot(task_slices: Slices) -> Markup:
    panel = slices_panel(task_slices.parts, task_slices.metric)
    return _svg(draw_part(panel, f"{task_slices.task} by {task_slices.column}"))


def curve_plot(curve: Curve) -> Markup:
    panel = reliability_panel("", [Series("", reliability_points(curve.points))])
    return _svg(draw_part(panel, f"calibration of {curve.task}", CARD_WIDTH))


def _svg(drawing: Drawing) -> Markup:
    return Markup(as_svg(drawing, embedded=True))


def curve_table(curve: Curve) -> ReportTable:
    """The table of a reliability curve: confidence, accuracy, its interval and the number of documents of every bin."""
    rows = [[NumberCell(point.confidence, digits=4), *short_cells(point.accuracy)] for point in curve.points]
    return make_table([*number_columns("Confidence", "Accuracy"), *SHORT_COLUMNS[1:]], rows)


def audit_table(run: Run) -> ReportTable:
    """The table of the audit: how many documents of every task have each flag, and those of all tasks."""
    totals = audit_counts(run.results)
    columns = [Column("Task"), *number_columns(*totals)]
    lines = [
        TableLine([line.alias, *(CountCell(line.audit.get(flag) or None) for flag in totals)])
        for line in run.lines
        if not line.is_group and any(line.audit.values())
    ]
    lines.append(TableLine(["all", *map(CountCell, totals.values())], style="bold"))
    return ReportTable(columns, lines)


def card_table(card: Sequence[CardEntry]) -> ReportTable:
    """The table of a judge's card: each property with its interval, and how to read it."""
    return make_table(
        ["task", "what", *number_columns("value"), *SHORT_COLUMNS[1:], Column("", "meaning")],
        ([entry.task, entry.name, *short_cells(entry.number), entry.meaning] for entry in card),
    )


def differences_plot(comparison: Comparison, run: int) -> Markup:
    """The differences of all tasks and groups to the first run, on their first metric that is not lower-is-better."""
    rows = [row for row in first_metric_rows(comparison, run) if row.difference.interval is not None]
    panel = forest_panel(
        rows, comparison.level, lambda row: row.alias or row.name, lambda row: f"n {row.difference.n:,}"
    )
    return _svg(draw_differences(comparison, panel, run)) if rows else Markup("")


def first_metric_rows(comparison: Comparison, run: int) -> Sequence[ComparedRow]:
    """One row per task and group: its first metric that is not lower-is-better."""
    by_name: dict[str, ComparedRow] = {}
    for row in comparison.rows:
        if row.run == run and row.higher_is_better is not False:
            by_name.setdefault(row.name, row)
    return list(by_name.values())


COLUMNS = (
    "run", "model", "kind", "path", "name", "metric", "filter", "value", "stderr", "low", "high", "n", "failed",
    "difference", "difference_low", "difference_high", "p", "incomplete",
)  # fmt: skip
MAX_MARKDOWN_TEXT = 600
"""Characters of a text in a pull request."""


def as_markdown(report: RunsReport) -> str:
    """The report for a pull request: tables, with the worst samples folded."""
    blocks = [f"> **{markdown_text(note)}**" for note in report.notes]
    if report.comparison is not None:
        blocks += _comparison(report.comparison)
    for part in report.runs:
        blocks += _run(part)
    return "\n\n".join(blocks) + "\n"


def as_json(report: RunsReport) -> str:
    """The report as JSON."""
    content = {
        "runs": [_run_json(part) for part in report.runs],
        "comparison": _comparison_json(report.comparison) if report.comparison is not None else None,
        "notes": list(report.notes),
    }
    return orjson.dumps(content, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode() + "\n"


def _comparison_json(comparison: Comparison) -> JSONDict:
    return {**asdict(replace(comparison, rows=())), "rows": [row_json(row) for row in comparison.rows]}


def as_csv(report: RunsReport) -> str:
    """Every result of every run, one row each; of later runs with the difference to the first. Notes, for which it has no
    place, are logged."""
    lost = [
        f"{part.run.name}: the samples of {each!r} are missing"
        for part in report.runs
        for each in part.run.lost_samples
    ]
    for note in (*report.notes, *lost):
        logging.getLogger("assay").warning("%s", note)
    compared = (
        {(row.run, row.name, row.metric, row.filter): row for row in report.comparison.rows}
        if report.comparison
        else {}
    )
    rows = []
    for run, part in enumerate(report.runs):
        for line in part.run.lines:
            kind = "group" if line.is_group else "task"
            about = (part.run.name, part.run.model, kind, "/".join(line.path), line.name)
            mark = (line.coverage or "incomplete") if line.incomplete else ""
            for number in line.numbers:
                key, estimate = number.key, number.estimate
                values = (estimate.value, estimate.stderr, estimate.low, estimate.high, estimate.n)
                failed = "" if line.is_group else number.failed
                difference = _difference(compared.get((run, line.name, *key)))
                rows.append([*about, *key, *values, failed, *difference, mark])
            if not line.numbers and not line.is_group:  # a task that was not run, or has no metric
                rows.append([*about, *[None] * 12, "not run" if line.not_run else mark])
    return csv_text(COLUMNS, rows)


def _difference(row: ComparedRow | None) -> tuple[float | None, ...]:
    if row is None:
        return (None, None, None, None)
    return (row.difference.value, row.difference.low, row.difference.high, row.difference.p)


def _comparison(comparison: Comparison) -> Iterator[str]:
    first = comparison.runs[0]
    for number, run in enumerate(comparison.runs[1:], 1):
        yield f"## {markdown_text(run.label)} against {markdown_text(first.label)}"
        yield _indented_markdown(comparison_page_table(comparison, number))
        for attribution in comparison.attributions:
            if attribution.run == number and attribution.first:
                differences = "; ".join(
                    f"{difference.stage}: {difference.what}" for difference in attribution.differences[:8]
                )
                yield f"First difference: **{attribution.first}** ({markdown_text(differences)})."
    yield from (f"_{markdown_text(note)}_" for note in comparison.notes)


def _run(part: RunPart) -> Iterator[str]:
    run = part.run
    yield f"## {markdown_text(run.name)}"
    about = f"{run.model}, {run.status}, {run.scored:,} documents, {run.failed:,} failed"
    yield markdown_text(about)
    yield _indented_markdown(summary_table(run, "Task or group"))
    counts = [f"{kind} {count:,}" for kind, count in audit_counts(run.results).items() if count]
    yield markdown_text("Audit: " + (", ".join(counts) if counts else "nothing"))
    yield from (f"- {markdown_text(shorten(line, MAX_MARKDOWN_TEXT))}" for line in run.remarks)
    for task_slices in part.slices:
        title = f"{markdown_text(task_slices.task)} by {markdown_text(task_slices.column)}"
        yield f"{title}:\n\n{write_markdown(slices_table(task_slices.column, task_slices.parts))}"
    for curve in part.curves:
        title = f"{markdown_text(curve.task)}, calibration ({markdown_text(str(curve.metric))})"
        yield f"{title}:\n\n{write_markdown(curve_table(curve))}"
    if part.card:
        yield f"Judge and people:\n\n{write_markdown(card_table(part.card))}"
    if part.worst:
        yield "<details><summary>Worst samples</summary>"
        yield from map(_sample, part.worst)
        yield "</details>"


def _indented_markdown(table: ReportTable) -> str:
    """A table in which names are indented by their depth in the tree: Markdown drops other spaces than these."""
    lines = []
    for line in table.lines:
        name = cell_text(line.cells[0])
        lines.append(TableLine([NO_BREAK * line.level + name if name else "", *line.cells[1:]]))
    return write_markdown(replace(table, lines=lines))


def _sample(sample: WorstSample) -> str:
    marks = f" ({', '.join(sample.audit)})" if sample.audit else ""
    fields = [("prompt", sample.question), ("response", sample.said), ("target", sample.target)]
    if sample.left and sample.left != sample.said:
        fields.insert(2, ("filtered answer", sample.left))
    texts = "\n\n".join(f"{name}:\n{fenced(shorten(text, MAX_MARKDOWN_TEXT))}" for name, text in fields)
    return f"**{markdown_text(sample.task)}, document {sample.doc_id}**{markdown_text(marks)}\n\n{texts}"


def _run_json(part: RunPart) -> JSONObject:
    run = part.run
    return {
        "name": run.name,
        "model": run.model,
        "status": run.status,
        "audit": audit_counts(run.results),
        "troubles": run.remarks,
        "lines": [_line_json(line) for line in run.lines],
        "slices": [
            {
                "task": each.task,
                "column": each.column,
                "metric": str(each.metric),
                "parts": [{**json_values(part), "note": f"n {part.number.n:,}"} for part in each.parts],
            }
            for each in part.slices
        ],
        "worst": [{**asdict(sample), "scores": join_scores(sample.scores)} for sample in part.worst],
        "curves": [
            {"task": each.task, "metric": str(each.metric), "points": [*map(json_values, each.points)]}
            for each in part.curves
        ],
        "card": [*map(json_values, part.card)],
        "provenance": run.provenance,
    }  # fmt: skip


def _line_json(line: ResultLine) -> JSONDict:
    numbers = [json_values(_NumberRecord(row)) for row in line.numbers]
    return {**asdict(replace(line, numbers=())), "name": line.name, "numbers": numbers}


@dataclass(frozen=True)
class _NumberRecord:
    row: Row = field(
        metadata=keys("metric", "filter", "value=estimate.value", "stderr=estimate.stderr", "low=estimate.low",
                      "high=estimate.high", "n=estimate.n", "higher_is_better", "reason=estimate.reason", "bounds=failure_bounds")
    )  # fmt: skip


FILE_TYPES: Mapping[str, Callable[[RunsReport], str]] = {
    "html": as_html,
    "md": as_markdown,
    "json": as_json,
    "csv": as_csv,
}


def report_text(runs: Sequence[str | PathLike[str]], format: str = "html", options: ReportOptions | None = None) -> str:
    """Render a report of runs as text: `html`, `md`, `json` or `csv`."""
    if format not in FILE_TYPES:
        raise ConfigError.at("format", f"no format named {format!r}", did_you_mean(format, FILE_TYPES))
    return FILE_TYPES[format](build_report(runs, options))


def write_report(
    runs: Sequence[str | PathLike[str]],
    path: str | PathLike[str],
    *,
    format: str | None = None,
    options: ReportOptions | None = None,
) -> Path:
    """Write a report of runs; without `format` the file name decides, and html is the default."""
    refuse_url(path)
    target = Path(path)
    text = report_text(runs, format or format_of_file(target), options)
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_file(target) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    return target


def format_of_file(path: Path) -> str:
    """The format of a file name: html where it has no suffix."""
    ending = path.suffix.lower().removeprefix(".")
    if ending and ending not in FILE_TYPES:
        what, fix = f"unsupported report format '.{ending}'", f"use .{', .'.join(FILE_TYPES)}, or give --format"
        raise ConfigError.at(path, what, fix)
    return ending or "html"
