"""Tables of results and of checkpoints side by side, and the lines above and below them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from assay.config.option import NOTHING
from assay.number_text import NO_VALUE, format_decimal, format_duration, format_end, format_money
from assay.records import AnyJSON, JSONDict, JSONObject
from assay.report.report_table import (
    Cell,
    Column,
    CountCell,
    IntervalCell,
    MetricCell,
    NumberCell,
    ReportTable,
    Style,
    TableLine,
    TextCell,
    make_table,
    number_columns,
)
from assay.report.table_writers import cell_text, direction_arrow, error_factor
from assay.results import Estimate, Results, Row
from assay.runs.comparison import ComparedRow
from assay.runs.lines import ResultLine, result_lines
from assay.runs.results import failure_lines
from assay.runs.results_json import encode
from assay.runs.run import SETTINGS, Run, model_with_arguments
from assay.safe_text import shorten, visible
from assay.score_keys import ScoreKey, shown_filter

MOST_COLUMNS = 4
"""Checkpoints that are columns of their table."""


def documents_cell(line: ResultLine, row: Row | None) -> Cell:
    """The number of documents; of an incomplete group also how much of it was scored."""
    if row is None:
        is_task = not line.is_group and line.documents is not None
        return CountCell((line.documents or 0) - line.failed) if is_task else TextCell(line.coverage, "worse")
    n = row.estimate.n
    if not line.coverage:
        return CountCell(n)
    if not n and any(other.estimate.n for other in line.numbers):
        return TextCell(line.coverage, "worse")
    is_part = not line.coverage.endswith("incomplete")
    return CountCell(n, mark=f" in {line.coverage}" if is_part else f" ({line.coverage})", style="worse")


def failed_cell(line: ResultLine, row: Row | None) -> Cell:
    """The number of failed documents, with `*` where too many failed; nothing for a complete group."""
    if line.is_group and not line.incomplete:
        return ""
    failed, is_incomplete = (line.failed, line.incomplete) if row is None else (row.failed, row.is_incomplete)
    if is_incomplete:
        return CountCell(failed, mark="*", style="worse")
    return CountCell(failed, style="warning" if failed else "")


MAX_TABLE_ROWS, MAX_NOTES, MAX_NOTE = 300, 12, 300
"""What a table shows at most where a notebook prints it."""


class CheckpointRow(NamedTuple):
    """A row of the table of checkpoints: its task or group, the texts of its first cells, and the arrow of its direction."""

    name: str
    key: ScoreKey
    label: tuple[str, str, str]
    arrow: str


def results_table(
    results: Results, *, is_fitted: bool = False, groups: bool = False, depth: int | None = None
) -> ReportTable:
    """The results as a table: groups with their members below them, then the other tasks; or groups alone.

    Below `depth`, one line gives the number of members. A table that is fitted to a terminal has the arrow of a metric and the
    sign of an error in one column with them; where output is piped they are apart, as lm-eval has them.
    """
    columns = _result_columns(is_fitted=is_fitted)
    if groups:
        columns[0] = Column("Groups")
    shown = set(_group_paths(results) if groups else results.paths)
    known = [line for line in result_lines(results) if line.path in shown and results.find(line.name) is not None]
    lines: list[TableLine] = []
    for line in known:
        if depth is not None and line.depth > depth:
            continue
        for number, row in enumerate(table_rows(line.numbers) or [None]):
            first = [_label(line), line.version]
            names = [TextCell(text, is_repeated=number > 0) for text in first]
            cells = [*names, *_result_cells(line, row, is_fitted=is_fitted)]
            lines.append(TableLine(cells, line.depth, "bold" if line.is_group else ""))
        members = results.groups[line.name].members if line.is_group else ()
        if line.depth == depth and members and not groups:
            lines.append(TableLine([f"{' ' * (line.depth + 1)}… {len(members)} members"]))
    if any(row.filter not in ("", "none") for line in known for row in line.numbers):
        # a terminal never leaves out what tells lines apart
        columns = [replace(column, drop=None) if column.title == "Filter" else column for column in columns]
    return ReportTable(columns, lines)


def _result_columns(*, is_fitted: bool) -> list[Column]:
    names = [
        Column("Tasks"),
        Column("Version", align="right", drop=1),
        Column("Filter", drop=4),
        Column("n-shot", align="right", drop=2),
        Column("Metric"),
    ]
    numbers = [Column("95 %", "interval"), *number_columns("n", "failed")]
    value = Column("Value", align="right")
    if is_fitted:
        return [*names, value, Column("Stderr", align="right", drop=3), *numbers]
    return [*names, Column("", "direction"), value, Column("", "sign"), Column("Stderr", align="right"), *numbers]


def _result_cells(line: ResultLine, row: Row | None, *, is_fitted: bool) -> list[Cell]:
    """The cells of a result after the name and the version of its task or group."""
    shots = "" if line.shots is None else str(line.shots)
    counts = [documents_cell(line, row), failed_cell(line, row)]
    if row is None:
        return ["", shots, *[""] * (4 if is_fitted else 6), *counts]
    filter_name, arrow = shown_filter(row.filter, is_group=line.is_group), direction_arrow(row.higher_is_better)
    value, interval = NumberCell(row.estimate.value, digits=4), interval_cell(row.estimate)
    sign, error = _spread_texts(row.estimate)
    if is_fitted:
        spread = "" if row.estimate.stderr is None else f"{sign} {error}"
        return [filter_name, shots, f"{row.metric} {arrow}".rstrip(), value, spread, interval, *counts]
    return [filter_name, shots, row.metric, arrow, value, sign, error, interval, *counts]


def _group_paths(results: Results) -> list[tuple[str, ...]]:
    """The paths of groups with numbers, and of those that contain them, so that every number is listed under its group."""
    with_rows = {group.name for group in results.groups.values() if group.rows is not None}
    above = {name for path in results.paths if path[-1] in with_rows for name in path}
    return [path for path in results.paths if path[-1] in above]


def table_heading(results: Results) -> str:
    """The line above the tables: the model and its settings."""
    config = results.config
    parts = [model_with_arguments(results)]
    parts += [f"{key}: {_setting(config[key])}" for key in SETTINGS if config.get(key) not in (None, False)]
    return ", ".join(parts)


def table_footing(results: Results, *, with_broken: bool = True) -> list[str]:
    """The lines below the tables: usage, failures, and, unless it was said before, tasks that could not run."""
    return [*_usage_lines(results.usage), *failure_lines(results, with_broken=with_broken)]


def _usage_lines(account: JSONObject) -> list[str]:
    """The usage of a run in a line; with several roles, one line for each."""
    lines = [_usage_line("requests", account)] if account else []
    lines += [_usage_line(f"  as {role}", spent) for role, spent in account.get("roles", {}).items()]
    return lines + _other_models(account.get("other_models", {}))


def _other_models(counts: JSONObject) -> list[str]:
    """The line about responses of a model with another name than was asked for."""
    if not counts:
        return []
    names = ", ".join(f"{name!r}: {count:,}" for name, count in counts.items())
    return [f"the server says that another model answered ({names}): check the model's name, or the server"]


def _usage_line(name: str, spent: JSONObject) -> str:
    if "device_seconds" in spent:
        return _local_usage(name, spent)
    tokens, seconds = spent["tokens"], spent.get("seconds", {})
    least = "at least " if spent.get("at_least") else ""
    parts = [
        f"{name}: {least}{spent['requests']:,} answered" + (f", {spent['failed']:,} failed" if spent["failed"] else "")
    ]
    parts += [f"{spent['unanswered']:,} canceled before their answer"] if spent.get("unanswered") else []
    parts += [f"{spent['retries']:,} asked again"] if spent["retries"] else []
    parts += [f"tokens: {least}{tokens['in']:,} in, {tokens['out']:,} out"] if tokens["in"] or tokens["out"] else []
    parts += [f"cost: {least}{format_money(spent['cost'])}"] if "cost" in spent else []
    parts += (
        ["latency " + ", ".join(f"{name} {format_duration(value)}" for name, value in seconds.items())]
        if seconds
        else []
    )
    return "; ".join(parts)


def _local_usage(name: str, spent: JSONObject) -> str:
    """Usage of a local model: tokens asked, computed and saved."""
    tokens = spent["tokens"]
    asked, computed = tokens["in"] + tokens["out"], tokens["computed"]
    parts = [f"{name}: {spent['requests']:,} answered" + (f", {spent['failed']:,} failed" if spent["failed"] else "")]
    fewer = asked / max(computed, 1)
    spared = f" ({fewer:.{0 if fewer >= 10 else 1}f} × fewer)" if fewer >= 1.05 else ""
    parts += [f"asked {asked:,} tokens, computed {computed:,}{spared}"]
    parts += [f"{format_duration(spent['device_seconds'])} on the device"]
    return f"{parts[0]}; {', '.join(parts[1:])}"


def _label(line: ResultLine) -> str:
    """The name in a table; below a group without the part of it that the group's lines show already."""
    if line.alias != line.name:
        return line.alias
    prefixes = (f"{group}::" for group in reversed(line.path[:-1]))
    return next((line.name.removeprefix(prefix) for prefix in prefixes if line.name.startswith(prefix)), line.name)


def table_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows in the order of all tables: by metric and filter, then those in which every document failed."""
    return sorted(rows, key=lambda row: (row.is_lost, row.key))


def interval_cell(number: Estimate) -> Cell:
    """The interval of a number, on its scale."""
    return IntervalCell(number.low, number.high, is_logarithmic=is_logarithmic(number.method))


def number_cell(number: Estimate, mark: str = "") -> NumberCell:
    """A number with its standard error."""
    return NumberCell(number.value, number.stderr, is_logarithmic=is_logarithmic(number.method), digits=4, mark=mark)


def _setting(value: AnyJSON) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _spread_texts(number: Estimate) -> tuple[str, str]:
    """The standard error with its sign; of a power of e, such as a perplexity, the factor that it is on that scale."""
    factor = error_factor(number_cell(number))
    if factor is None:
        return ("±", "N/A" if number.stderr is None else format_decimal(number.stderr))
    return ("×/÷", format_end(factor, is_logarithmic=True))


LOG = "student-log"
"""How the methods of intervals begin that are even on the scale of logarithms."""


def is_logarithmic(method: str) -> bool:
    """Whether an interval is even on the scale of logarithms, by its method."""
    return method.startswith(LOG)


def checkpoints_table(checkpoints: Mapping[str, Results | None]) -> ReportTable:
    """One row per metric of every task and group, one column per checkpoint; a dash where there is no value. Where there are
    more checkpoints than fit and than metrics, one row per checkpoint."""
    rows = _checkpoint_rows(checkpoints)
    if len(checkpoints) > max(MOST_COLUMNS, len(rows)):
        titles = [" ".join(filter(None, (*row.label, row.arrow))) for row in rows]
        names = [name if results is not None else f"{name} (failed)" for name, results in checkpoints.items()]
        by_run = [
            [name, *(_checkpoint_cell(results, row) for row in rows)]
            for name, results in zip(names, checkpoints.values(), strict=True)
        ]
        return make_table(["Model", *number_columns(*titles)], by_run)
    by_row = [
        [*row.label, row.arrow, *(_checkpoint_cell(results, row) for results in checkpoints.values())] for row in rows
    ]
    return make_table(["Tasks", "Filter", "Metric", Column("", "direction"), *number_columns(*checkpoints)], by_row)


def headline(results: Results, most: int = 3) -> str:
    """The first number of each task or group that is in no other: `acc 0.8750 ± 0.0482 (facts)`."""
    rows = {row.name: row for row in reversed(_checkpoint_rows({"": results}))}
    chosen = [rows[path[0]] for path in results.paths if len(path) == 1 and path[0] in rows]
    parts = [f"{row.key.metric} {cell_text(_checkpoint_cell(results, row))} ({row.name})" for row in chosen]
    return ", ".join(parts[:most]) + (f" and {len(parts) - most} more" if len(parts) > most else "")


def checkpoints_json(checkpoints: Mapping[str, Results | None], reasons: Mapping[str, str] = NOTHING) -> JSONDict:
    """By checkpoint its status and results, as JSON; of one that could not be evaluated the reason."""
    return {
        "checkpoints": [
            {"name": name, "status": "failed", **({"reason": reasons[name]} if name in reasons else {})}
            if results is None
            else {
                "name": name,
                "status": results.status,
                "pretrained": (results.config.get("model_args") or {}).get("pretrained"),
                **_entries(results),
            }
            for name, results in checkpoints.items()
        ]
    }


def _entries(results: Results) -> JSONDict:
    """The tasks and groups as results.json has them, without their settings."""
    tasks = {name: replace(task, config={}) for name, task in results.tasks.items()}
    content = encode(replace(results, tasks=tasks))
    return {key: content[key] for key in ("tasks", "groups")}


def _checkpoint_rows(checkpoints: Mapping[str, Results | None]) -> list[CheckpointRow]:
    """Every row with a value in one of the checkpoints."""
    known = [results for results in checkpoints.values() if results is not None]
    with_rows = {group.name for results in known for group in results.groups.values() if group.rows is not None}
    rows: dict[tuple[str, ScoreKey], CheckpointRow] = {}
    for results in known:
        for line in result_lines(results):
            for row in table_rows(line.numbers):
                filter_name = shown_filter(row.filter, is_group=row.owner in with_rows)
                indent = f"{' ' * line.depth}- " if line.depth else ""
                label = (indent + _label(line), filter_name, row.metric)
                arrow = direction_arrow(row.higher_is_better)
                if not row.is_lost:
                    rows.setdefault((row.owner, row.key), CheckpointRow(row.owner, row.key, label, arrow))
    return list(rows.values())


def _checkpoint_cell(results: Results | None, wanted: CheckpointRow) -> Cell:
    row = results.row(wanted.name, wanted.key) if results is not None else None
    if results is None or row is None or row.estimate.value is None:
        return NO_VALUE
    mark = "*" if results.entry(wanted.name).is_incomplete else ""
    return number_cell(row.estimate, mark)


def table_of_run(run: Run) -> ReportTable:
    """The results of a run as Python shows them: of one in progress how many documents of each task are answered."""
    title = f"{run.name}: {run.model}, {run.status}"
    if run.results.is_empty:
        rows = [(line.alias, CountCell(line.done or 0), CountCell(line.documents or 0)) for line in run.lines]
        table = make_table(["Task", *number_columns("answered", "documents")], rows, title)
        return shorten_table(replace(table, notes=[run.problem] if run.problem else []))
    return shorten_table(replace(summary_table(run), title=title, notes=run.remarks))


def summary_table(run: Run, first: str = "Task") -> ReportTable:
    """The results of a run in a few columns: groups with their members below them, then the other tasks."""
    columns = [
        *map(Column, (first, "Metric")),
        *number_columns("Value"),
        Column("95 %", "interval", align="right"),
        *number_columns("n", "failed"),
    ]
    lines = []
    for line in run.lines:
        style: Style = "bold" if line.is_group else ""
        for number, row in enumerate(table_rows(line.numbers)):
            cells: list[Cell] = [
                TextCell(line.alias, is_repeated=number > 0),
                metric_cell(row, is_group=line.is_group),
                NumberCell(row.estimate.value, digits=4),
                interval_cell(row.estimate),
                documents_cell(line, row),
                failed_cell(line, row),
            ]
            lines.append(TableLine(cells, line.depth, style))
        if not line.numbers:
            cells = [line.alias, "", "", "", TextCell(line.coverage, "worse"), failed_cell(line, None)]
            lines.append(TableLine(cells, line.depth, style))
    return ReportTable(columns, lines)


def metric_cell(row: Row | ComparedRow, *, is_group: bool) -> MetricCell:
    """The metric of a row with its filter, and an arrow in the better direction."""
    return MetricCell(row.metric, shown_filter(row.filter, is_group=is_group), row.higher_is_better)


def shorten_table(table: ReportTable) -> ReportTable:
    """The table with as many lines and notes as a reader looks at."""
    notes = [shorten(visible(note), MAX_NOTE) for note in table.notes[:MAX_NOTES]]
    notes += [f"{len(table.notes) - MAX_NOTES} notes more"] if len(table.notes) > MAX_NOTES else []
    left_out = len(table.lines) - MAX_TABLE_ROWS
    if left_out > 0:
        notes.insert(0, f"{left_out:,} rows more: .scores() of a run, or .rows of a comparison, has all")
    return replace(table, lines=table.lines[:MAX_TABLE_ROWS], notes=notes)
