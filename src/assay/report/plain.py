"""A report as markdown for a pull request, as JSON for a program, as CSV for a spreadsheet."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import orjson

from assay.comparison.comparison import ComparedRow, Comparison
from assay.report.document import Document, RunPart, Shown
from assay.report.reading import Line
from assay.report.texts import cut, decimal, ends, fenced, in_cell, in_markdown
from assay.runs.run import ResultRow

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


def _failed(line: Line, number: ResultRow) -> int:
    return line.failed if number.failed is None else number.failed


def _difference(row: ComparedRow | None) -> tuple[Any, ...]:
    if row is None:
        return (None, None, None, None)
    return (row.difference, *(row.interval or (None, None)), row.p)


def _numbers(lines: Sequence[Line]) -> Iterator[tuple[Line, ResultRow]]:
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


def _compared(row: ComparedRow) -> tuple[str, ...]:
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
