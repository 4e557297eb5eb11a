"""Comparisons and backend verifications as text: tables, a summary of eight lines, JSON, CSV; and verdicts of gates for CI: JUnit
XML, a summary in Markdown, and annotations of GitHub."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal
from xml.etree import ElementTree

from assay.comparison.verification import (
    DIFFER,
    DRIFTS,
    EDGES,
    NOTHING,
    POSITIONS,
    REASONING,
    SAME,
    Divergence,
    Verification,
    VerificationRow,
    Where,
    counts_by_kind,
    histogram,
    spread,
)
from assay.config.record_json import json_values
from assay.errors import grouped, some
from assay.number_text import (
    format_count,
    format_decimal,
    format_figures,
    format_level,
    format_p,
    format_points,
    format_share,
    format_signed,
)
from assay.records import AnyJSON, JSONDict
from assay.report.report_table import (
    Cell,
    Column,
    CountCell,
    IntervalCell,
    NumberCell,
    PartsCell,
    PValueCell,
    ReportTable,
    ShareCell,
    Style,
    TableLine,
    TextCell,
    make_table,
    number_columns,
)
from assay.report.table import metric_cell, shorten_table
from assay.report.table_writers import csv_text, direction_arrow, write_markdown
from assay.runs.comparison import Attribution, ComparedRow, Comparison, Flip, GateVerdict, decision_of
from assay.runs.results import tasks_text
from assay.safe_text import cut, markdown_text
from assay.score_keys import metric_title, shown_filter
from assay.statistics.intervals import Decision

VERDICT_STYLES: Mapping[str, Style] = {"better": "better", "worse": "worse", "differs": "warning"}
DrawTable = Callable[[ReportTable], str]
DECISIONS = {"pass": "PASS", "fail": "FAIL", "inconclusive": "INCONCLUSIVE"}
DECISION_MARKS = {"pass": "✓", "fail": "✗", "inconclusive": "?"}
MAX_SUMMARY_LINES = 8
MAX_GATES = 3
BAR_WIDTH = 40
MAX_EXAMPLES = 3
CONTEXT = 24
"""Characters shown on either side of where two texts diverge."""
KIND_NAMES = {"generate": "greedy generations", "sampled": "sampled generations", "loglikelihood": "log-likelihoods",
           "rolling": "log-likelihoods of whole texts"}  # fmt: skip
VERDICT_TEXTS = {
    SAME: "same: every answer is within the tolerance",
    DRIFTS: "drifts: answers differ, but no score is known to differ by more than chance explains",
    DIFFER: "differ",
    NOTHING: "nothing: there is nothing to compare",
}


COLUMNS = ("kind", "name", "alias", "metric", "filter", "run", "depth", "higher_is_better", "n", "a", "b", "difference", "stderr",
           "interval", "p", "p_holm", "test", "wins", "losses", "ties", "mde", "clusters", "only_a", "only_b", "reason", "verdict",
           "same", "recovery", "recovery_low", "recovery_high")  # fmt: skip
"""The keys of a row in JSON and its columns in CSV, in the order that people read them."""


def metric_of(row: ComparedRow) -> Cell:
    return metric_cell(row, is_group=row.kind == "group")


def interval_of(row: ComparedRow) -> Cell:
    """The interval of a row's difference, or the reason why it has none."""
    change = row.difference
    if change.interval is not None:
        return IntervalCell(*change.interval, is_signed=True, digits=4)
    return TextCell(change.reason, "dim")


def conclusion_of(row: ComparedRow) -> Cell:
    """What a row says of the second run: better, worse, different, unclear, or the same."""
    text = f"same {row.same}" if row.same else row.verdict if row.verdict != "unknown" else ""
    return TextCell(text, VERDICT_STYLES.get(row.verdict, ""))


def _difference_of(row: ComparedRow) -> Cell:
    return NumberCell(row.difference.value, digits=4, is_signed=True, style=VERDICT_STYLES.get(row.verdict, ""))


def _change_of(row: ComparedRow) -> Cell:
    """The difference with its interval, or the reason why it has none."""
    change = row.difference
    reason = change.reason if change.interval is None else ""
    return NumberCell(change.value, interval=change.interval, is_signed=True, reason=reason)


def _counts_of(row: ComparedRow) -> Cell:
    if row.wins is None:
        return ""
    counts = [CountCell(count) for count in (row.wins, row.losses, row.ties)]
    return PartsCell(counts, keys=("better", "worse", "same"), separator=" / ")


def _documents_of(row: ComparedRow) -> Cell:
    """The number of documents, and of clusters that they are in."""
    n, clusters = row.difference.n, row.difference.clusters
    return CountCell(n, mark=f" in {format_count(clusters)}" if clusters else "")


RowColumn = tuple[Column, Callable[[ComparedRow], Cell]]
ROW_COLUMNS: Mapping[str, RowColumn] = {
    "metric": (Column("Metric"), metric_of),
    "filter": (Column("Filter"), lambda row: shown_filter(row.filter, is_group=row.kind == "group")),
    "metric_name": (Column("Metric"), lambda row: row.metric),
    "direction": (Column("", "direction"), lambda row: direction_arrow(row.higher_is_better)),
    "a": (Column("a", "a", "right"), lambda row: NumberCell(row.a, digits=4)),
    "b": (Column("b", "b", "right"), lambda row: NumberCell(row.b, digits=4)),
    "short_a": (Column("a", align="right"), lambda row: NumberCell(row.a)),
    "short_b": (Column("b", align="right"), lambda row: NumberCell(row.b)),
    "difference": (Column("b − a", "difference", "right"), _difference_of),
    "change": (Column("b − a", "difference"), _change_of),
    "interval": (Column("", "interval"), interval_of),
    "p": (Column("p", align="right"), lambda row: PartsCell([PValueCell(row.difference.p)], hint=row.difference.test)),
    "p_holm": (
        Column("p (Holm)", align="right", hint="corrected for the number of task metrics; groups are not included"),
        lambda row: PValueCell(row.p_holm),
    ),
    "test": (Column("test"), lambda row: row.difference.test),
    "counts": (
        Column("better / worse / same", align="right", hint="documents that score better, worse, the same"),
        _counts_of,
    ),
    "n": (Column("n", align="right"), _documents_of),
    "mde": (
        Column("detectable", align="right", hint="the smallest true difference that would be detected"),
        lambda row: NumberCell(row.mde, digits=4),
    ),
    "conclusion": (Column("b is", "b_is"), conclusion_of),
}
"""The columns that a table of a comparison can have, each with its cell of a row."""
SHORT = ("metric", "short_a", "short_b", "change", "conclusion", "n")
WIDE = (
    *("filter", "metric_name", "direction", "a", "b", "difference", "interval", "p", "p_holm", "test"),
    *("counts", "n", "mde", "conclusion"),
)
IN_PYTHON = ("metric", "a", "b", "difference", "interval", "p_holm", "n", "conclusion")


def row_columns(names: Sequence[str], titles: Mapping[str, str]) -> list[RowColumn]:
    """The columns of these names; some with another title."""
    chosen = [(name, *ROW_COLUMNS[name]) for name in names]
    return [(replace(column, title=titles.get(name, column.title)), make_cell) for name, column, make_cell in chosen]


def compared_table(
    rows: Sequence[ComparedRow],
    columns: Sequence[RowColumn],
    make_name: Callable[[ComparedRow], Cell] | None = None,
    title: str = "",
) -> ReportTable:
    """Rows of a comparison under columns. Without `make_name`, a name is written once for the numbers below each other."""
    lines = []
    for above, row in zip([None, *rows], rows, strict=False):
        is_repeated = above is not None and (row.name, row.run) == (above.name, above.run)
        name = make_name(row) if make_name is not None else TextCell(row.alias, is_repeated=is_repeated)
        cells = [name, *(make_cell(row) for _, make_cell in columns)]
        lines.append(TableLine(cells, row.depth, "bold" if row.kind == "group" else ""))
    return ReportTable([Column("Tasks"), *(column for column, _ in columns)], lines, title)


def comparison_tables(comparison: Comparison, *, wide: bool = False) -> list[ReportTable]:
    """For each run compared with the first a table: seven columns, or all of them."""
    level = format_level(comparison.level)
    columns = row_columns(WIDE if wide else SHORT, {"interval": level, "change": f"b − a [{level}]"})
    first = comparison.runs[0]
    return [
        compared_table(
            rows_of_run(comparison, number),
            columns,
            title=f"a: {first.label} — {first.model}\nb: {run.label} — {run.model}",
        )
        for number, run in enumerate(comparison.runs[1:], 1)
    ]


def rows_of_run(comparison: Comparison, run: int) -> list[ComparedRow]:
    """The rows of one run against the first, in the order in which its results are printed: by metric and filter."""
    rows = [row for row in comparison.rows if row.run == run]
    places = {row.name: place for place, row in reversed(list(enumerate(rows)))}
    return sorted(rows, key=lambda row: (places[row.name], row.metric, row.filter))


def table_of_comparison(comparison: Comparison) -> ReportTable:
    """The rows of a comparison as Python shows them; with several runs, each row with the run that is compared with the first."""
    first, others = comparison.runs[0], comparison.runs[1:]
    title = f"a: {first.label}, {first.model}; " + "; ".join(f"b: {run.label}, {run.model}" for run in others)
    columns = row_columns(IN_PYTHON, {"interval": format_level(comparison.level)})
    if len(others) > 1:
        columns.insert(0, (Column("Run"), lambda row: others[row.run - 1].label))
    rows = [row for run in range(1, len(comparison.runs)) for row in rows_of_run(comparison, run)]
    table = compared_table(rows, columns, title=title)
    return shorten_table(replace(table, notes=comparison.notes))


def attribution_lines(comparison: Comparison) -> list[str]:
    """List where each run first differs from the first run, and in what."""
    lines: list[str] = []
    for attribution in comparison.attributions:
        name = comparison.runs[attribution.run].label
        if attribution.first is None:
            lines.append(f"{name}: same data, prompts, sampling, model, filters and scorers")
            continue
        lines.append(f"{name}: first difference: {attribution.first}")
        for difference in attribution.differences:
            values = f": {difference.a or '–'} → {difference.b or '–'}" if difference.a or difference.b else ""
            tasks = f" ({some(list(difference.tasks))})" if difference.tasks else ""
            lines.append(f"  {difference.stage}: {difference.what}{values}{tasks}")
    return lines


def flip_lines(flips: Sequence[Flip]) -> list[str]:
    """List flipped documents, each with both answers."""
    lines = []
    for flip in flips:
        lines += [
            f"{flip.direction:6} {flip.task} · document {flip.doc_id} · {flip.metric} {flip.score_a:g} → {flip.score_b:g}",
            f"  a: {_one_line(flip.answer_a)}",
            f"  b: {_one_line(flip.answer_b)}",
            f"  target: {_one_line(flip.target)}",
        ]
    return lines


def _one_line(text: str) -> str:
    return cut(text.replace("\n", "⏎"), 160)


def comparison_summary(comparison: Comparison) -> str:
    """Summarize the comparison in at most eight lines, for a chat message."""
    names = " and ".join(run.label for run in comparison.runs[1:])
    verdict = f"{DECISIONS[comparison.decision]}: " if comparison.decision is not None else ""
    lines = [f"{verdict}{names} against {comparison.runs[0].label}"]
    lines += _gate_lines(comparison.verdicts)
    lines += [_headline(comparison.rows), _task_counts(comparison), _attribution_summary(comparison)]
    if comparison.notes:
        more = f" (and {len(comparison.notes) - 1} more notes)" if len(comparison.notes) > 1 else ""
        lines.append(f"note: {comparison.notes[0]}{more}")
    return "\n".join([line for line in lines if line][:MAX_SUMMARY_LINES])


def _gate_lines(verdicts: Sequence[GateVerdict]) -> list[str]:
    """The gates, failing ones first; at most MAX_GATES of many."""
    order = ("fail", "inconclusive", "pass")
    ranked = sorted(verdicts, key=lambda verdict: order.index(verdict.decision))
    lines = [gate_line(verdict) for verdict in ranked[: MAX_GATES if len(ranked) > MAX_GATES + 1 else MAX_GATES + 1]]
    left = Counter(verdict.decision for verdict in ranked[len(lines) :])
    return lines + ([f"further gates: {', '.join(f'{n} {what}' for what, n in left.items())}"] if left else [])


def gate_line(verdict: GateVerdict) -> str:
    """Format the verdict of a gate as one line.

    >>> gate_line(GateVerdict("acc > -0.5pp", "t", "acc", "none", 1, "pass", 0.01, 0.002, -0.005, unit="pp"))
    '✓ acc > -0.5pp: t +1.00pp, bound +0.20pp'
    >>> gate_line(GateVerdict("acc > -1pp", "t", "acc", "strict", 1, "fail", -0.1, -0.05, -0.01, unit="pp"))
    '✗ acc > -1pp: t acc,strict -10.00pp, bound -5.00pp'
    >>> gate_line(GateVerdict("failed <= 1%", "first", "failed", "", 1, "fail", 0.02, None, 0.01, unit="%", kind="count"))
    '✗ failed <= 1%: first 2.00%'
    >>> gate_line(GateVerdict("acc > 0.5", "g", "acc", "none", 1, "inconclusive", None, None, 0.5, reason="no number"))
    '? acc > 0.5: g: no number'
    """

    difference = [gate_number(verdict, verdict.difference)] if verdict.difference is not None else []
    bound = [f"bound {gate_number(verdict, verdict.bound)}"] if verdict.bound is not None else []
    measured = " ".join([verdict.row, ", ".join([*difference, *bound])]).strip()
    # of the whole run the reason is the rest of the sentence
    joint = ", " if difference or bound else " " if verdict.kind == "run" else ": "
    text = joint.join([measured, verdict.reason]) if verdict.reason else measured
    return f"{DECISION_MARKS[verdict.decision]} {verdict.gate}: {text}"


def gate_number(verdict: GateVerdict, value: float) -> str:
    """A number of a verdict in the unit of its gate."""
    is_signed = verdict.kind == "difference" and verdict.unit != "% of baseline"
    if verdict.unit:
        return format_points(value, unit=verdict.unit, is_signed=is_signed)
    if verdict.kind == "count":
        return f"{format_decimal(value, 1)} s" if verdict.metric == "time" else format_figures(value, 6)
    return format_decimal(value, is_signed=is_signed)


def _headline(rows: Sequence[ComparedRow]) -> str:
    """The headline: the first row, which is the top group or the first task."""
    if not rows:
        return ""
    row = rows[0]
    change = row.difference
    ends = f" [{format_signed(change.low)}, {format_signed(change.high)}]" if change.interval is not None else ""
    p = f", p {format_p(change.p)}" if change.p is not None else ""
    counts = f"; {row.wins} documents better, {row.losses} worse, {row.ties} same" if row.wins is not None else ""
    return f"{row.name} {row.metric}: {format_signed(change.value)}{ends}{p}{counts}"


def _task_counts(comparison: Comparison) -> str:
    """Count the task metrics that differ, corrected for their number."""
    rows = [row for row in comparison.rows if row.kind == "task" and row.p_holm is not None]
    counts = Counter(row.verdict for row in rows)
    worse = sorted(
        (r for r in rows if r.verdict == "worse"), key=lambda row: (row.p_holm, -abs(row.difference.value or 0))
    )
    names = list(dict.fromkeys(f"{row.name} {row.metric} {format_signed(row.difference.value)}" for row in worse))
    more = f", {counts['differs']} different" if counts["differs"] else ""
    more += f", {counts['same']} the same" if counts["same"] else ""
    summary = f"{counts['better']} better, {counts['worse']} worse{more}, {counts['unclear']} unclear"
    return f"task metrics (Holm): {summary}" + (f"; worst: {some(names)}" if names else "")


def _attribution_summary(comparison: Comparison) -> str:
    firsts = {attribution.first or "nothing" for attribution in comparison.attributions}
    values = [
        f"{difference.what}: {difference.a} → {difference.b}"
        for difference in _first_differences(comparison.attributions)
        if difference.a or difference.b
    ]
    return f"first difference: {', '.join(sorted(firsts))}" + (f" ({values[0]})" if values else "")


def _first_differences(attributions: Sequence[Attribution]) -> list[AnyJSON]:
    return [
        difference
        for attribution in attributions
        for difference in attribution.differences
        if difference.stage == attribution.first
    ]


def comparison_json(comparison: Comparison) -> JSONDict:
    """The comparison as a JSON object."""
    return {
        "decision": comparison.decision,
        "level": comparison.level,
        "power": comparison.power,
        "runs": [{**asdict(run), "folder": str(run.folder)} for run in comparison.runs],
        "rows": [row_json(row) for row in comparison.rows],
        "attributions": [{**asdict(each), "first": each.first} for each in comparison.attributions],
        "gates": [asdict(each) for each in comparison.verdicts],
        "flips": [asdict(each) for each in comparison.flips],
        "notes": list(comparison.notes),
    }


def row_json(row: ComparedRow) -> JSONDict:
    """A row as a JSON object."""
    values = json_values(row)
    return {name: values[name] for name in COLUMNS}


def comparison_csv(comparison: Comparison) -> str:
    """The rows as CSV; an interval has two columns."""
    columns = [name for name in COLUMNS if name not in ("interval", "verdict")]
    rows = []
    for row in comparison.rows:
        values, ends = json_values(row), row.difference.interval or (None, None)
        labels = comparison.runs[0].label, comparison.runs[row.run].label
        rows.append([*labels, *(values[name] for name in columns), *ends, row.verdict])
    return csv_text(["run_a", "run_b", *columns, "low", "high", "verdict"], rows)


def verification_text(of: Verification, draw: DrawTable = write_markdown) -> str:
    """The verification as text; `draw` makes its tables."""
    parts = [
        _heading(of),
        _kinds(of, draw),
        _texts(of),
        _likelihoods(of),
        _choices(of),
        _rows(of.rows, draw),
        _failures(of),
        _verdict(of),
    ]
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part)


def _heading(of: Verification) -> Iterator[str]:
    yield f"A: {of.of.labels[0]}"
    yield f"B: {of.of.labels[1]}"
    yield f"tolerance: {of.tolerance.per_token:g} per token, {format_share(of.tolerance.texts, 0)} of greedy texts"


def _kinds(of: Verification, draw: DrawTable) -> Iterator[str]:
    rows = [
        (KIND_NAMES[kind], CountCell(asked), CountCell(compared), CountCell(left or None))
        for kind, asked, compared, left in counts_by_kind(of)
    ]
    yield draw(make_table(["requests", *number_columns("asked", "compared", "not comparable")], rows))
    if of.answers.requests["sampled"]:
        yield "sampled generations differ by chance: only their scores are compared"
    for each in of.of.left_out:
        yield f"not comparable: {each.task}: {each.reason}"


def _texts(of: Verification) -> Iterator[str]:
    divergences, compared = of.answers.divergences, of.answers.compared["generate"]
    if not compared:
        return
    yield f"greedy generations: {compared - len(divergences)} of {compared} are equal"
    if divergences:
        by_token = all(each.tokens is not None for each in divergences)
        yield f"the others diverge after this many {'tokens' if by_token else 'characters'}:"
        yield from _bars(
            [each.tokens if each.tokens is not None else each.characters for each in divergences], POSITIONS
        )
        for each in sorted(divergences, key=lambda each: each.characters)[:MAX_EXAMPLES]:
            part = " of the reasoning" if each.part == REASONING else ""
            yield f"  {_location(each.where)}, after {each.characters} characters{part}:"
            yield f"    A {_excerpt(each, each.a)}"
            yield f"    B {_excerpt(each, each.b)}"


def _likelihoods(of: Verification) -> Iterator[str]:
    likelihoods = of.answers.likelihoods
    if not likelihoods:
        return
    for name, values in (
        ("request", [each.difference for each in likelihoods]),
        ("token", [each.per_token for each in likelihoods]),
    ):
        summary = ", ".join(f"{key} {format_figures(value, 2)}" for key, value in spread(values).items())
        yield f"log-likelihoods, difference per {name}: {summary}"
        yield from _bars(values, EDGES)
    if of.of.count_tokens is None:
        yield "neither model counts tokens: each difference counts as one token"
    if of.answers.greedy_changed:
        yield f"{of.answers.greedy_changed} continuations are greedy for one of the two alone"
    for each in sorted(likelihoods, key=lambda each: -each.per_token)[:MAX_EXAMPLES]:
        if each.difference:
            yield f"  {_location(each.where)}: A {each.a:.6f} B {each.b:.6f} ({each.tokens} tokens)"


def _choices(of: Verification) -> Iterator[str]:
    if of.answers.questions:
        flips, count = of.answers.flips, of.answers.questions
        share = format_share(len(flips) / count, 2)
        yield f"choices: {len(flips)} of {count} questions ({share}) have a different likeliest choice"
        for each in flips[:MAX_EXAMPLES]:
            yield f"  {each.where.task} document {each.where.doc_id}: A choice {each.a} B choice {each.b}"


def _rows(rows: Sequence[VerificationRow], draw: DrawTable) -> Iterator[str]:
    if rows:
        numbers = number_columns("n", "A", "B", "Drift")
        yield draw(
            make_table(
                ["Task", "Metric", "Filter", *numbers, Column("95 %", "interval"), Column("", "is_off")],
                map(_row, rows),
            )
        )


def _row(row: VerificationRow) -> list[Cell]:
    change = row.drift.change
    ends = change.reason if change.interval is None else IntervalCell(*change.interval, is_signed=True, digits=4)
    numbers = (NumberCell(row.drift.before, digits=4), NumberCell(row.drift.after, digits=4))
    moved = NumberCell(change.value, digits=4, is_signed=True)
    return [row.task, row.metric, row.filter, CountCell(change.n), *numbers, moved, ends, "off" if row.is_off else ""]


def _failures(of: Verification) -> Iterator[str]:
    for side in (0, 1):
        reasons = Counter(filter(None, (failure.b if side else failure.a for failure in of.answers.failures)))
        if reasons:
            yield f"{'AB'[side]} failed {reasons.total()} requests:"
            yield from (f"  {count} × {reason}" for reason, count in reasons.most_common(MAX_EXAMPLES))
    for names, reason in grouped(of.of.broken.items()):
        yield (
            f"{tasks_text(names)} cannot be run: {reason}"
            if len(names) > 1
            else f"task {names[0]!r} cannot be run: {reason}"
        )
    yield from of.of.remarks


def _verdict(of: Verification) -> Iterator[str]:
    is_part = of.of.left_out or of.answers.failures
    yield f"verdict: {VERDICT_TEXTS[of.verdict]}" + (" (of what can be compared)" if is_part else "")
    yield from (f"  {reason}" for reason in of.because)


def _bars(values: Iterable[float], edges: Sequence[float]) -> Iterator[str]:
    """A histogram as text, from its first to its last filled bar."""
    counts = list(zip(histogram(values, edges), (0.0, *edges), strict=False))
    filled = [number for number, ((_, count), _) in enumerate(counts) if count]
    most = max((count for (_, count), _ in counts), default=0)
    for (edge, count), below in counts[filled[0] : filled[-1] + 1] if filled else ():
        name = "= 0" if edge == 0 else f"> {below:g}" if math.isinf(edge) else f"≤ {edge:g}"
        yield f"  {name:>8} {'█' * math.ceil(BAR_WIDTH * count / most):{BAR_WIDTH}} {count}"


def _location(where: Where) -> str:
    return f"{where.task} document {where.doc_id} request {where.number}"


def _excerpt(of: Divergence, text: str) -> str:
    start = max(0, of.characters - CONTEXT)
    end = of.characters + CONTEXT
    return repr(("…" if start else "") + text[start:end] + ("…" if end < len(text) else ""))


def verification_json(of: Verification) -> JSONDict:
    """The verification as a JSON object."""
    answers = of.answers
    return {
        "verdict": of.verdict,
        "because": list(of.because),
        "a": {"model": of.of.labels[0], "identity": of.of.identities[0]},
        "b": {"model": of.of.labels[1], "identity": of.of.identities[1]},
        "tolerance": asdict(of.tolerance),
        "requests": {
            kind: {"asked": asked, "compared": compared, "not_comparable": left}
            for kind, asked, compared, left in counts_by_kind(of)
        },
        "not_comparable": [
            {"task": each.task, "reason": each.reason, "requests": dict(each.requests)} for each in of.of.left_out
        ],
        "texts": {
            "compared": answers.compared["generate"],
            "equal": answers.compared["generate"] - len(answers.divergences),
            "divergences": [*map(asdict, answers.divergences)],
        },
        "likelihoods": {
            "compared": len(answers.likelihoods),
            "counted_tokens": of.of.count_tokens is not None,
            "greedy_changed": answers.greedy_changed,
            "per_request": _differences_json([each.difference for each in answers.likelihoods]),
            "per_token": _differences_json([each.per_token for each in answers.likelihoods]),
        },
        "choices": {
            "questions": answers.questions,
            "flips": [*map(asdict, answers.flips)],
        },
        "scores": [_score_json(row) for row in of.rows],
        "failures": [*map(asdict, answers.failures)],
        "broken": dict(of.of.broken),
        "remarks": list(of.of.remarks),
    }


def _differences_json(values: Sequence[float]) -> JSONDict:
    counts = [{"up_to": edge, "count": count} for edge, count in histogram(values, EDGES)]
    return {**spread(values), "histogram": counts}


def _score_json(row: VerificationRow) -> JSONDict:
    drift = row.drift
    return {
        "task": row.task,
        "metric": row.metric,
        "filter": row.filter,
        "n": drift.change.n,
        "a": drift.before,
        "b": drift.after,
        "drift": drift.change.value,
        "interval": drift.change.interval,
        "reason": drift.change.reason,
        "off": row.is_off,
    }


Policy = Literal["pass", "fail"] | None
"""How an inconclusive gate counts: None as itself, with its own exit code."""
MARKS: dict[Decision, str] = {"pass": "✅", "fail": "❌", "inconclusive": "⚠️"}
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class GateOutcome:
    """All verdicts of a command, and what inconclusive ones count as."""

    title: str
    verdicts: Sequence[GateVerdict]
    policy: Policy = None
    notes: Sequence[str] = ()

    def counted(self, verdict: GateVerdict) -> Decision:
        """Apply the policy to a verdict. A run that is not complete passes by no policy."""
        if verdict.decision != "inconclusive" or self.policy is None or (verdict.kind, self.policy) == ("run", "pass"):
            return verdict.decision
        return self.policy

    @property
    def decision(self) -> Decision | None:
        return decision_of([replace(each, decision=self.counted(each)) for each in self.verdicts])


def gates_text(outcome: GateOutcome) -> str:
    """The verdicts as lines, and the one of all in front."""
    return "\n".join(line.replace("\n", "⏎") for line in (headline(outcome), *map(gate_line, outcome.verdicts)))


def headline(outcome: GateOutcome) -> str:
    decision = decision_of(outcome.verdicts)
    if decision is None:
        return outcome.title
    counts = f" (counts as {outcome.policy}: --inconclusive {outcome.policy})" if decision != outcome.decision else ""
    return f"{DECISIONS[decision]}{counts}: {outcome.title}"


def gates_markdown(outcome: GateOutcome) -> str:
    """The verdicts as Markdown, for GitHub's step summary or a comment."""
    counts = Counter(each.decision for each in outcome.verdicts)
    rows = []
    for each in outcome.verdicts:
        value, bound = ("" if n is None else gate_number(each, n) for n in (each.difference, each.bound))
        rows.append([MARKS[each.decision], each.gate, each.row, value, bound, each.reason])
    parts = [
        f"### {MARKS[outcome.decision or 'pass']} {markdown_text(headline(outcome))}",
        write_markdown(
            make_table([Column("", "decision"), "gate", "row", *number_columns("value", "bound"), "note"], rows)
        ),
        ", ".join(f"{counts[name]} {name}" for name in MARKS if counts[name]),
        *(f"> {markdown_text(note)}" for note in outcome.notes),
    ]
    return "\n\n".join(parts) + "\n"


def recovery_table(comparison: Comparison) -> ReportTable:
    """How much of the first run's number each other one keeps."""
    level = Column(format_level(comparison.level), "interval")
    rows: list[list[Cell]] = []
    for row in comparison.rows:
        if row.recovery is not None and row.a is not None and row.b is not None:
            low, high = row.recovery.low, row.recovery.high
            known = low is not None and high is not None
            ends = f"{format_share(low, 2)} … {format_share(high, 2)}" if known else "–"
            run = comparison.runs[row.run].label
            numbers = NumberCell(row.a, digits=4), NumberCell(row.b, digits=4), ShareCell(row.recovery.value, digits=2)
            rows.append([row.name, metric_title(row.metric, row.filter), run, *numbers, ends])
    return make_table(["Tasks", "Metric", "Run", *number_columns("a", "b", "b ÷ a"), level], rows)


def annotations(outcome: GateOutcome) -> list[str]:
    """A command of GitHub Actions for each gate that does not pass."""
    lines = []
    for each in outcome.verdicts:
        counted = outcome.counted(each)
        if each.decision != "pass":
            level = "error" if counted == "fail" else "warning"
            title = f"gate {each.decision}: {each.gate}"
            lines.append(f"::{level} title={_property(title)}::{_message(gate_line(each)[2:])}")
    return lines


def _message(text: str) -> str:
    r"""
    >>> _message("100% sure\n::error::x")
    '100%25 sure%0A::error::x'
    """
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def junit_xml(outcome: GateOutcome, seconds: float = 0.0, error: str = "") -> bytes:
    """The verdicts as JUnit XML, a test case for each. An inconclusive one is an error; a failure or skipped where the policy
    says so. `error` is that of a command without a verdict."""
    cases = [_case(outcome, each) for each in outcome.verdicts]
    if error:
        cases.append(
            _test_case("assay.gate", "configuration", ("error", "configuration", error.splitlines()[0], error))
        )
    counts = Counter(child.tag for case in cases for child in case if child.tag != "system-out")
    numbers = {
        "tests": str(len(cases)),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]),
        "time": f"{seconds:.3f}",
    }
    suite = ElementTree.Element("testsuite", {"name": _in_xml(f"assay gate {outcome.title}"), **numbers})
    suite.extend(cases)
    root = ElementTree.Element(
        "testsuites", {"name": "assay gate", **{k: v for k, v in numbers.items() if k != "skipped"}}
    )
    root.append(suite)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'.encode()


def _case(outcome: GateOutcome, verdict: GateVerdict) -> ElementTree.Element:
    line = gate_line(verdict)
    counted, kind = outcome.counted(verdict), None
    if verdict.decision != "pass":
        tag = {"fail": "failure", "pass": "skipped", "inconclusive": "error"}[counted]
        kind = (tag, verdict.decision, line[2:], line)
    name = f"{verdict.gate}: {verdict.row}"
    return _test_case(f"assay.gate.{verdict.name}", name, kind, line)


def _test_case(
    classname: str, name: str, kind: tuple[str, str, str, str] | None, said: str = ""
) -> ElementTree.Element:
    case = ElementTree.Element("testcase", {"classname": _in_xml(classname), "name": _in_xml(name), "time": "0"})
    if kind is not None:
        tag, type_name, message, text = kind
        about = {"message": _in_xml(message)} if tag == "skipped" else {"message": _in_xml(message), "type": type_name}
        ElementTree.SubElement(case, tag, about).text = _in_xml(text)
    else:
        ElementTree.SubElement(case, "system-out").text = _in_xml(said)
    return case


def _in_xml(text: str) -> str:
    """Replace characters that XML 1.0 cannot have."""
    return _NOT_IN_XML.sub("�", text)
