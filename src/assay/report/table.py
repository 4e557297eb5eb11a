"""Tables of results, with n and failures beside each value; checkpoints side by side; safe texts for cells."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from assay.config.option import NOTHING
from assay.number_text import (
    NO_VALUE,
    format_decimal,
    format_duration,
    format_end,
    format_money,
    relative_error,
)
from assay.records import AnyJSON, JSONDict, JSONObject
from assay.report.terminal import TOGETHER, TableView
from assay.results import Entry, Estimate, GroupEntry, Results, Row, TaskEntry
from assay.runs.results import failure_lines
from assay.runs.results_json import encode
from assay.runs.run import SETTINGS
from assay.score_keys import ScoreKey, shown_filter

HEADER = ("Tasks", "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr", "95 %", "n", "failed")

MOST_COLUMNS = 4
"""Checkpoints that are columns of their table."""


class CheckpointRow(NamedTuple):
    """A row of the table of checkpoints: its task or group, the texts of its first cells, and the arrow of its direction."""

    name: str
    key: ScoreKey
    label: tuple[str, str, str]
    arrow: str


def results_table(results: Results, *, groups: bool = False, depth: int | None = None) -> str:
    """The results as a markdown table: groups with their members below them, then the other tasks; or groups alone.

    Below `depth`, one line gives the number of members.
    """
    rows = _group_lines(results, depth) if groups else [row for _, row in _named_lines(results, depth)]
    title = ("Groups", *HEADER[1:]) if groups else HEADER
    return markdown_table(title, rows) if rows else ""


DROP = ("Version", "n-shot", "Stderr", "Filter")
"""Columns that a narrow terminal does without; a Filter only where every line has the same."""


def results_view(results: Results, depth: int | None = None) -> TableView:
    """The results as one table for a terminal: groups with their members below them, each once; groups are bold."""
    header = ("Tasks", "Version", "Filter", "n-shot", "Metric", "Value", "Stderr", "95 %", "n", "failed")
    rows: list[tuple[str, ...]] = []
    styles: dict[tuple[int, str | None], str] = {}
    for name, row in _named_lines(results, depth):
        alias, version, chosen, shots, metric, arrow, value, sign, stderr, interval, count, failed = row
        error = f"{sign} {stderr}".strip() if stderr not in ("", "N/A", NO_VALUE) else ""
        if name in results.groups:
            styles[len(rows), None] = "bold"
        if failed.strip("0"):
            styles[len(rows), "failed"] = "red" if failed.endswith("*") else "yellow"
        rows.append(
            (
                alias,
                version,
                chosen,
                shots,
                f"{metric}{TOGETHER}{arrow}".rstrip(TOGETHER),
                value,
                error,
                interval.replace(" …", f"{TOGETHER}…"),
                count,
                failed,
            )
        )
    filters = {row[2] for row in rows}
    return TableView(header, rows, DROP if len(filters - {"", "none"}) <= 0 else DROP[:-1], styles)


def _named_lines(results: Results, depth: int | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The lines of the table of all tasks and groups, each with the name of its task or group."""
    for path in results.paths:
        entry, level = results.find(path[-1]), len(path) - 1
        if entry is not None and (depth is None or level <= depth):
            yield from ((entry.name, line) for line in _entry_lines(path, entry))
            if level == depth and isinstance(entry, GroupEntry) and entry.members:
                yield "", _members_row(level, len(entry.members))


def _group_lines(results: Results, depth: int | None) -> list[tuple[str, ...]]:
    """The lines of groups with numbers, and of those that contain them, so that every number is listed under its group."""
    with_rows = {group.name for group in results.groups.values() if group.rows is not None}
    above = {name for path in results.paths if path[-1] in with_rows for name in path}
    return [
        line
        for path in results.paths
        if path[-1] in above and (depth is None or len(path) - 1 <= depth)
        for line in _entry_lines(path, results.entry(path[-1]))
    ]


def _members_row(level: int, count: int) -> tuple[str, ...]:
    return (" " * (level + 1) + f"… {count} members", *[""] * (len(HEADER) - 1))


def table_heading(results: Results) -> str:
    """The line above the tables: the model and its settings."""
    config = results.config
    arguments = ",".join(f"{key}={value}" for key, value in (config.get("model_args") or {}).items())
    parts = [f"{config.get('model')} ({arguments})" if arguments else str(config.get("model"))]
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


def _label(path: Sequence[str], shown: str) -> str:
    """The name in a table; below a group without the part of it that the group's lines show already."""
    name, depth = path[-1], len(path) - 1
    if shown == name:
        shown = next(
            (name.removeprefix(f"{each}::") for each in reversed(path[:-1]) if name.startswith(f"{each}::")), name
        )
    return " " * depth + ("- " if depth else "") + shown


def _failed(counted: Row | Entry) -> str:
    """The number of failed documents, with `*` where too many failed; empty for a complete group."""
    return f"{counted.failed}{'*' if counted.is_incomplete else ''}"


def _entry_lines(path: Sequence[str], entry: Entry) -> Iterator[tuple[str, ...]]:
    """A line for each row of a task or group; one for a group or task without rows."""
    alias, version = _label(path, entry.alias), str(entry.version)
    shots = "" if entry.num_fewshot is None else str(entry.num_fewshot)
    is_group = isinstance(entry, GroupEntry)
    coverage = entry.coverage if isinstance(entry, GroupEntry) else ""
    has_failures = isinstance(entry, TaskEntry) or entry.is_incomplete
    rows = table_rows(entry)
    is_counted = not is_group or not any(row.estimate.n for row in rows)
    if not rows:
        answered = str(entry.documents - entry.failed) if isinstance(entry, TaskEntry) else ""
        failed = _failed(entry) if has_failures else ""
        yield (alias, version, "", shots, "", "", "", "", "", "", coverage or answered, failed)
    for row in rows:
        number = row.estimate
        count = str(number.n) if number.n or is_counted else ""
        yield (
            alias,
            version,
            shown_filter(row.filter, is_group=is_group),
            shots,
            row.metric,
            direction_arrow(row.higher_is_better),
            shown_value(number),
            *_spread_cells(number),
            _interval_cell(number),
            f"{count} in {coverage}" if coverage else count,
            _failed(row) if has_failures else "",
        )
        alias = version = ""


def table_rows(entry: Entry) -> list[Row]:
    """The rows in the order of the table: by metric and filter, then those in which every document failed."""
    rows = entry.rows or ()
    return [*sorted((row for row in rows if not row.is_lost), key=lambda row: row.key), *(r for r in rows if r.is_lost)]


def direction_arrow(higher_is_better: bool | None) -> str:
    return "" if higher_is_better is None else "↑" if higher_is_better else "↓"


def shown_value(number: Estimate) -> str:
    """The value of a number, or its named values."""
    return format_value(number.value if number.named_values is None else number.named_values)


def _setting(value: AnyJSON) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _interval_cell(number: Estimate) -> str:
    if number.interval is None:
        return ""
    scale = is_logarithmic(number.method)
    return " … ".join(format_end(end, is_logarithmic=scale) for end in number.interval)


def _spread_cells(number: Estimate) -> tuple[str, str]:
    """The standard error; of a power of e, such as a perplexity, the factor that it is on that scale."""
    factor = error_factor(number.value, number.stderr, number.method)
    if factor is None:
        return ("±", "N/A" if number.stderr is None else format_value(number.stderr))
    return ("×/÷", format_end(factor, is_logarithmic=True))


LOG = "student-log"
"""How the methods of intervals begin that are even on the scale of logarithms."""


def error_factor(value: float | None, stderr: float | None, method: str) -> float | None:
    """By what factor a number of a logarithmic scale may well be more or less: e to its relative error; None of other numbers.

    >>> round(error_factor(198.66, 379.8, "student-log") or 0, 2), error_factor(0.5, 0.1, "wilson")
    (6.77, None)
    """
    known = is_logarithmic(method) and isinstance(value, float) and isinstance(stderr, float) and value > 0
    return relative_error(value, stderr) if known and stderr is not None and value is not None else None


def is_logarithmic(method: str) -> bool:
    """Whether an interval is even on the scale of logarithms, by its method."""
    return method.startswith(LOG)


def format_value(value: AnyJSON) -> str:
    """A value as tables show it."""
    if value is None:
        return NO_VALUE
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {format_value(each)}" for name, each in value.items())
    return format_decimal(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows as a markdown table with aligned columns."""
    cells = [[cell.replace("|", "\\|").replace("\n", "⏎") for cell in row] for row in rows]
    widths = [max(2, *(len(row[column]) for row in [list(header), *cells])) for column in range(len(header))]
    right = {"Value", "Stderr", "n", "failed", "n-shot", "Version"}

    def line(row: Sequence[str]) -> str:
        padded = [c.rjust(w) if h in right else c.ljust(w) for c, w, h in zip(row, widths, header, strict=True)]
        return "|" + "|".join(padded) + "|"

    rule = (
        "|"
        + "|".join("-" * (w - 1) + ":" if h in right and w else "-" * w for w, h in zip(widths, header, strict=True))
        + "|"
    )
    return "\n".join([line(header), rule, *map(line, cells)])


def checkpoints_table(
    checkpoints: Mapping[str, Results | None],
    draw: Callable[[Sequence[str], Sequence[Sequence[str]]], str] = markdown_table,
) -> str:
    """One row per metric of every task and group, one column per checkpoint; a dash where there is no value. Where there are
    more checkpoints than fit and than metrics, one row per checkpoint."""
    rows = _checkpoint_rows(checkpoints)
    if len(checkpoints) > max(MOST_COLUMNS, len(rows)):
        header = ("Model", *(" ".join(filter(None, (*row.label, row.arrow))) for row in rows))
        return draw(
            header,
            [
                (
                    name if results is not None else f"{name} (failed)",
                    *(_checkpoint_cell(results, row) for row in rows),
                )
                for name, results in checkpoints.items()
            ],
        )
    header = ("Tasks", "Filter", "Metric", "", *checkpoints)
    return draw(
        header,
        [(*row.label, row.arrow, *(_checkpoint_cell(each, row) for each in checkpoints.values())) for row in rows],
    )


def headline(results: Results, most: int = 3) -> str:
    """The first number of each task or group that is in no other: `acc 0.8750 ± 0.0482 (facts)`."""
    rows = {row.name: row for row in reversed(_checkpoint_rows({"": results}))}
    chosen = [rows[path[0]] for path in results.paths if len(path) == 1 and path[0] in rows]
    parts = [f"{row.key.metric} {_checkpoint_cell(results, row)} ({row.name})" for row in chosen]
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
        for path in results.paths:
            entry = results.find(path[-1])
            for row in table_rows(entry) if entry is not None else ():
                filter_name = shown_filter(row.filter, is_group=row.owner in with_rows)
                label = (_label(path, entry.alias if entry is not None else path[-1]), filter_name, row.metric)
                arrow = direction_arrow(row.higher_is_better)
                if not row.is_lost:
                    rows.setdefault((row.owner, row.key), CheckpointRow(row.owner, row.key, label, arrow))
    return list(rows.values())


def _checkpoint_cell(results: Results | None, wanted: CheckpointRow) -> str:
    row = results.row(wanted.name, wanted.key) if results is not None else None
    if results is None or row is None or row.is_lost or (row.estimate.value is None and not row.estimate.named_values):
        return NO_VALUE
    spread = f" {' '.join(_spread_cells(row.estimate))}" if row.estimate.stderr is not None else ""
    return shown_value(row.estimate) + spread + ("*" if results.entry(wanted.name).is_incomplete else "")
