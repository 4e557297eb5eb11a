"""A report written down: in the format that the name of its file says."""

import base64
import csv
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

import assay
from assay.comparison.comparison import Comparison, Row
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.report.document import Document, ReportOptions, RunPart, Shown, Slices, document
from assay.report.plots import STYLE, Interval, forest, interval_bar, slices
from assay.report.reading import Line
from assay.report.table import cut, decimal, ends, fenced, in_cell, in_markdown, visible
from assay.runs.run import Number

RULES = """\
:root { color-scheme: light dark; --paper: #ffffff; --panel: #f4f5f7; --ink: #1b1f24; --faint: #57606a; --line: #c8ccd2;
  --track: #d9dde3; --spread: #9ec1ea; --accent: #0550ae; --good: #116329; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --panel: #1e2329; --ink: #e8eaed; --faint: #a9b1ba;
  --line: #3c444d; --track: #333a42; --spread: #2f5d92; --accent: #7ab7ff; --good: #5fd07f; --bad: #ff8f85; } }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; font: 15px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; }
a { color: var(--accent); } .faint { color: var(--faint); } .bad { color: var(--bad); } .good { color: var(--good); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .15rem .7rem .15rem 0; vertical-align: top; } th { color: var(--faint); font-weight: 600; }
tr.group td { font-weight: 600; } td.n, th.n { text-align: right; } td.n, td.i { white-space: nowrap; }
td, th { font-size: .87rem; padding-right: .5rem; } th { max-width: 7rem; overflow-wrap: break-word; vertical-align: bottom; }
 tbody tr:hover { background: var(--panel); }
pre { background: var(--panel); padding: .6rem .8rem; margin: .2rem 0 .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .4rem 0; } summary { cursor: pointer; } dt { color: var(--faint); } dd { margin: 0 0 .3rem 0; }
.d1 { padding-left: 1.2rem; } .d2 { padding-left: 2.4rem; } .d3 { padding-left: 3.6rem; } .d4 { padding-left: 4.8rem; }
@media print { details { display: block; } }
"""
"""The page's own rules: light or dark as the reader's system is."""
LINES = 400
"""Characters of a text in a line of a table."""


def page(document: Document) -> str:
    """The report as HTML. Whatever a model, a task or a file said stands in it as text."""
    style = RULES + STYLE
    policy = f"default-src 'none'; style-src '{_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    made: str = _template().render(
        document=document,
        style=Markup(style),  # our own, and what the policy allows
        policy=policy,
        title=", ".join(part.reading.name for part in document.runs),
        version=assay.__version__,
    )
    return made


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _template() -> Any:
    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {
        "safe_text": visible,
        "cut": lambda text: visible(cut(str(text))),
        "decimal": decimal,
        "json": lambda value: visible(orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2).decode()),
        "short": lambda value: visible(cut(str(value), LINES)),
    }
    made.globals |= {"bar": bar, "ends": ends, "depth": depth, "parts": parts, "forest": differences, "arrow": arrow}
    return made.from_string(files("assay.report").joinpath("page.html.jinja").read_text("utf-8"))


def bar(number: Number) -> Markup:
    """The line of a share; other numbers have no scale that all would understand."""
    if number.value is None or not number.is_share:
        return Markup("")
    return Markup(interval_bar(Interval(visible(number.metric), number.value, number.low, number.high)))


def parts(found: Slices) -> Markup:
    return Markup(slices([each._replace(name=visible(each.name)) for each in found.parts]))


def differences(comparison: Comparison, run: int) -> Markup:
    """The differences of all tasks and groups to the first run, on their first metric of which more is better."""
    rows = [
        Interval(visible(row.alias or row.name), row.difference, row.interval[0], row.interval[1], f"n {row.n:,}")
        for row in first_rows(comparison, run)
        if row.difference is not None and row.interval is not None
    ]
    return Markup(forest(rows)) if rows else Markup("")


def first_rows(comparison: Comparison, run: int) -> Sequence[Any]:
    """One row for each task and group: of its first metric of which more is better."""
    found: dict[str, Any] = {}
    for row in comparison.rows:
        if row.run == run and row.higher_is_better is not False:
            found.setdefault(row.name, row)
    return list(found.values())


def depth(line: Line) -> int:
    return min(line.depth, 4)


def arrow(better: bool | None) -> str:
    return {True: "↑", False: "↓"}.get(better, "") if better is not None else ""


COLUMNS = (
    "run", "model", "kind", "path", "name", "metric", "filter", "value", "stderr", "low", "high", "n", "failed",
    "difference", "difference_low", "difference_high", "p", "incomplete",
)  # fmt: skip
SHOWN = 600
"""Characters of a text in a pull request."""


def as_markdown(document: Document) -> str:
    """The report for a pull request: tables, and what went worst folded away."""
    blocks = [f"> **{in_markdown(note)}**" for note in document.notes]
    if document.comparison is not None:
        blocks += _comparison(document.comparison)
    for part in document.runs:
        blocks += _run(part)
    return "\n\n".join(blocks) + "\n"


def as_json(document: Document) -> str:
    """The report for a program."""
    made = {
        "runs": [_described(part) for part in document.runs],
        "comparison": asdict(document.comparison) if document.comparison is not None else None,
        "notes": list(document.notes),
    }
    return orjson.dumps(made, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode() + "\n"


def as_csv(document: Document) -> str:
    """Every number of every run, a row each; of runs after the first with the difference to it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    compared = (
        {(row.run, row.name, row.metric, row.filter): row for row in document.comparison.rows}
        if document.comparison
        else {}
    )
    for number, part in enumerate(document.runs):
        for line, found in _numbers(part.reading.lines):
            row = compared.get((number, line.name, found.metric, found.filter))
            about = (
                part.reading.name,
                part.reading.model,
                "group" if line.is_group else "task",
                "/".join(line.path),
                line.name,
            )
            told = (
                found.value,
                found.stderr,
                found.low,
                found.high,
                found.n,
                "" if line.is_group else _failed(line, found),
            )
            texts = [in_cell(each) for each in (*about, found.metric, found.filter)]
            mark = (line.coverage or "incomplete") if line.incomplete else ""
            writer.writerow([*texts, *told, *_difference(row), mark])
    return out.getvalue()


def _failed(line: Line, number: Number) -> int:
    return line.failed if number.failed is None else number.failed


def _difference(row: Row | None) -> tuple[Any, ...]:
    if row is None:
        return (None, None, None, None)
    return (row.difference, *(row.interval or (None, None)), row.p)


def _numbers(lines: Sequence[Line]) -> Iterator[tuple[Line, Number]]:
    return ((line, number) for line in lines for number in line.numbers)


def _comparison(comparison: Comparison) -> Iterator[str]:
    first = comparison.runs[0]
    for number, run in enumerate(comparison.runs[1:], 1):
        yield f"## {in_markdown(run.label)} against {in_markdown(first.label)}"
        header = (
            "",
            "Task or group",
            "Metric",
            in_markdown(first.label),
            in_markdown(run.label),
            "Difference",
            f"{comparison.level * 100:g} %",
            "p",
            "p (Holm), tasks",
            "n",
        )
        rows = [_compared(row) for row in comparison.rows if row.run == number]
        yield _table(header, rows)
        for found in comparison.attributions:
            if found.run == number and found.first:
                told = "; ".join(f"{each.stage}: {each.what}" for each in found.differences[:8])
                yield f"The runs begin to differ at **{found.first}** ({in_markdown(told)})."
    yield from (f"_{in_markdown(note)}_" for note in comparison.notes)


def _compared(row: Row) -> tuple[str, ...]:
    mark = {"better": "🟢", "worse": "🔴", "differs": "🔵"}.get(row.verdict, "")
    difference = "–" if row.difference is None else f"{row.difference:+.4f}"
    interval = f"{row.interval[0]:+.3f} … {row.interval[1]:+.3f}" if row.interval is not None else ""
    corrected = decimal(row.p_holm, 3) if row.kind == "task" else ""
    name = _indented(row.alias or row.name, row.depth)
    metric = in_markdown(row.metric + ("" if row.filter == "none" else f" ({row.filter})"))
    return (
        mark,
        name,
        metric,
        decimal(row.a),
        decimal(row.b),
        difference,
        interval,
        decimal(row.p, 3),
        corrected,
        str(row.n),
    )


def _run(part: RunPart) -> Iterator[str]:
    reading = part.reading
    yield f"## {in_markdown(reading.name)}"
    about = f"{reading.model}, {reading.status}, {reading.head.n:,} documents, {reading.head.failed:,} failed"
    yield in_markdown(about)
    yield _table(("Task or group", "Metric", "Value", "95 %", "n", "failed"), [*_rows(reading.lines)])
    counts = [f"{kind} {count:,}" for kind, count in reading.audit.items() if count]
    yield in_markdown("What deserves a look: " + (", ".join(counts) if counts else "nothing"))
    yield from (f"- {in_markdown(cut(line, SHOWN))}" for line in reading.troubles)
    for found in part.slices:
        rows = [
            (in_markdown(each.name), decimal(each.value), ends(each.low, each.high), each.note) for each in found.parts
        ]
        yield f"{in_markdown(found.task)} by {in_markdown(found.column)}:\n\n" + _table(
            (in_markdown(found.column), "Value", "95 %", "n"), rows
        )
    if part.worst:
        yield "<details><summary>Worst samples</summary>"
        yield from map(_sample, part.worst)
        yield "</details>"


def _rows(lines: Sequence[Line]) -> Iterator[tuple[str, ...]]:
    for line in lines:
        name = _indented(line.alias, line.depth)
        if not line.numbers:
            yield (name, "", "", "", line.coverage, line.failures)
        for number in line.numbers:
            metric = in_markdown(number.metric + ("" if number.filter == "none" else f" ({number.filter})"))
            arrow = (
                {True: " ↑", False: " ↓"}.get(number.higher_is_better, "")
                if number.higher_is_better is not None
                else ""
            )
            yield (
                name,
                metric + arrow,
                decimal(number.value),
                ends(number.low, number.high),
                line.count(number),
                line.failures_in(number),
            )
            name = ""


def _indented(text: str, depth: int) -> str:
    """A name at its place in a tree: what markdown does not take away."""
    return "&nbsp;&nbsp;" * depth + in_markdown(text)


def _sample(shown: Shown) -> str:
    marks = f" ({', '.join(shown.audit)})" if shown.audit else ""
    parts = [("asked", shown.question), ("answered", shown.said), ("right", shown.target)]
    if shown.left and shown.left != shown.said:
        parts.insert(2, ("left by the filter", shown.left))
    told = "\n\n".join(f"{name}:\n{fenced(cut(text, SHOWN))}" for name, text in parts)
    return f"**{in_markdown(shown.task)}, document {shown.doc_id}**{in_markdown(marks)}\n\n{told}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are markdown already."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _described(part: RunPart) -> Mapping[str, Any]:
    reading = part.reading
    return {
        "name": reading.name,
        "model": reading.model,
        "status": reading.status,
        "audit": reading.audit,
        "troubles": reading.troubles,
        "lines": [_line(line) for line in reading.lines],
        "slices": [
            {
                "task": each.task,
                "column": each.column,
                "metric": each.metric,
                "parts": [part._asdict() for part in each.parts],
            }
            for each in part.slices
        ],
        "worst": [asdict(each) for each in part.worst],
        "provenance": reading.provenance,
    }


NUMBER = (
    "metric", "filter", "value", "stderr", "low", "high", "n", "higher_is_better", "reason", "several", "bounds",
)  # fmt: skip


def _line(line: Line) -> dict[str, Any]:
    numbers = [{name: getattr(each, name) for name in NUMBER} for each in line.numbers]
    return {**asdict(replace(line, numbers=())), "name": line.name, "numbers": numbers}


FILE_TYPES: Mapping[str, Callable[[Document], str]] = {"html": page, "md": as_markdown, "json": as_json, "csv": as_csv}


def report_text(runs: Sequence[str | Path], format: str = "html", options: ReportOptions | None = None) -> str:
    """A report of runs as a text: `html`, `md`, `json` or `csv`."""
    if format not in FILE_TYPES:
        raise ConfigError(
            [Problem(Place("format"), f"no format is called {format!r}", did_you_mean(format, FILE_TYPES))]
        )
    return FILE_TYPES[format](document(runs, options))


def write_report(
    runs: Sequence[str | Path], path: str | Path, *, format: str | None = None, options: ReportOptions | None = None
) -> Path:
    """Write a report of runs; the name of the file says the format where nothing else does, and is a page if it says none."""
    target = Path(path)
    text = report_text(runs, format or named(target), options)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    return target


def named(path: Path) -> str:
    """The format that the name of a file says: a page where it says none."""
    ending = path.suffix.lower().removeprefix(".")
    if ending and ending not in FILE_TYPES:
        what, fix = f"a report is never a .{ending}", f"end its name in .{', .'.join(FILE_TYPES)}, or say --format"
        raise ConfigError([Problem(Place(str(path)), what, fix)])
    return ending or "html"
