"""Tables of results in lm-eval's layout, with n and failures beside each value; checkpoints side by side; safe texts
for cells.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from assay.config.option import NOTHING
from assay.config.row_names import row_key, row_name, rows_of, shown_filter, stderr_name
from assay.number_text import (
    NO_VALUE,
    format_decimal,
    format_duration,
    format_end,
    format_money,
    relative_error,
)
from assay.records import AnyJSON, JSONDict, JSONObject, ScoreKey
from assay.report.terminal import TOGETHER, TableView
from assay.runs.results import ResultsJSON, coverage, failure_lines, result_paths

HEADER = ("Tasks", "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr", "95 %", "n", "failed")

SETTINGS = ("gen_kwargs", "limit", "sample", "num_fewshot", "repeats", "apply_chat_template", "system_instruction")

CheckpointRow = tuple[str, str, ScoreKey, str]
"""Name of a task, its alias, its metric with the filter, and the arrow of its direction."""
MOST_COLUMNS = 4
"""Checkpoints that are columns of their table."""


def results_table(results: ResultsJSON, *, groups: bool = False, depth: int | None = None) -> str:
    """The results as a markdown table: groups with their members below them, then the other tasks; or groups alone.

    Below `depth`, one line gives the number of members.
    """
    rows = list(_rows(results, groups=groups, depth=depth))
    title = ("Groups", *HEADER[1:]) if groups else HEADER
    return markdown_table(title, rows) if rows else ""


DROP = ("Version", "n-shot", "Stderr", "Filter")
"""Columns that a narrow terminal does without; a Filter only where every line has the same."""


def results_view(results: ResultsJSON, depth: int | None = None) -> TableView:
    """The results as one table for a terminal: groups with their members below them, each once; groups are bold."""
    header = ("Tasks", "Version", "Filter", "n-shot", "Metric", "Value", "Stderr", "95 %", "n", "failed")
    rows: list[tuple[str, ...]] = []
    styles: dict[tuple[int, str | None], str] = {}
    groups = results.get("groups", {})
    for name, row in _named_rows(results, {**results["results"], **groups}, depth):
        alias, version, chosen, shots, metric, arrow, value, sign, stderr, interval, count, failed = row
        error = f"{sign} {stderr}".strip() if stderr not in ("", "N/A", NO_VALUE) else ""
        if name in groups or name in results.get("group_subtasks", {}):
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


def _named_rows(results: ResultsJSON, rows: JSONObject, depth: int | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The rows of the table of all lines, each with the name of its task or group."""
    members = results.get("group_subtasks", {})
    for path in result_paths(results):
        name, level = path[-1], len(path) - 1
        if name in rows and (depth is None or level <= depth):
            yield from ((name, row) for row in _task_rows(path, rows[name], results))
            if level == depth and members.get(name):
                yield "", _members_row(level, len(members[name]))


def _members_row(level: int, count: int) -> tuple[str, ...]:
    return (" " * (level + 1) + f"… {count} members", *[""] * (len(HEADER) - 1))


def table_heading(results: ResultsJSON) -> str:
    """The line above the tables: the model and its settings."""
    config = results.get("config", {})
    arguments = ",".join(f"{key}={value}" for key, value in (config.get("model_args") or {}).items())
    parts = [f"{config.get('model')} ({arguments})" if arguments else str(config.get("model"))]
    parts += [f"{key}: {_setting(config[key])}" for key in SETTINGS if config.get(key) not in (None, False)]
    return ", ".join(parts)


def table_footing(results: ResultsJSON, *, with_broken: bool = True) -> list[str]:
    """The lines below the tables: usage, failures, and, unless it was said before, tasks that could not run."""
    own = results.get("assay", {})
    return [*_usage_lines(own.get("account", {})), *failure_lines(own, with_broken=with_broken)]


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


def _rows(results: ResultsJSON, *, groups: bool, depth: int | None) -> Iterator[tuple[str, ...]]:
    if not groups:
        yield from (row for _, row in _named_rows(results, results["results"], depth))
        return
    rows = _group_rows(results)
    for path in result_paths(results):
        if path[-1] in rows and (depth is None or len(path) - 1 <= depth):
            yield from _task_rows(path, rows[path[-1]], results)


def _group_rows(results: ResultsJSON) -> JSONDict:
    """The groups with numbers, and the groups that contain them, so that every number is listed under its group."""
    rows = dict(results.get("groups", {}))
    above = {name for path in result_paths(results) if path[-1] in rows for name in path}
    return {**{name: results["results"].get(name, {}) for name in above}, **rows}


def _label(path: Sequence[str], row: ResultsJSON) -> str:
    """The name in a table; below a group without the part of it that the group's lines show already."""
    name, depth = path[-1], len(path) - 1
    shown = str(row.get("alias", name))
    if shown == name:
        shown = next(
            (name.removeprefix(f"{each}::") for each in reversed(path[:-1]) if name.startswith(f"{each}::")), name
        )
    return " " * depth + ("- " if depth else "") + shown


def _failed(own: ResultsJSON, row: ResultsJSON) -> str:
    """The number of failed documents of a row, with `*` where it is incomplete; else of its task or group."""
    counted = row if "failed" in row else own
    return f"{counted['failed']}*" if counted.get("incomplete") else str(counted["failed"])


def _task_rows(path: Sequence[str], row: ResultsJSON, results: ResultsJSON) -> Iterator[tuple[str, ...]]:
    name, alias = path[-1], _label(path, row)
    version = str(results.get("versions", {}).get(name, "N/A"))
    shots = str(results.get("n-shot", {}).get(name, ""))
    account = results.get("assay", {})
    of_group: Mapping[str, Any] = account.get("groups", {}).get(name, {})
    own = account.get("tasks", {}).get(name) or (of_group if of_group.get("incomplete") else None)
    failed = _failed(own, own) if own else ""
    known = {**account.get("tasks", {}), **account.get("groups", {})}.get(name, {}).get("rows", {})
    lost = [
        row_key(each) for each, about in known.items() if each not in row and about.get("failed")
    ]  # all failed there
    metrics, covered = [*metrics_of(row), *lost], coverage(of_group)
    if not metrics:
        answered = own["documents"] - own.get("failed", 0) if own and "documents" in own else ""
        yield (alias, version, "", shots, "", "", "", "", "", "", covered or str(answered), failed)
    for key in metrics:
        better = results.get("higher_is_better", {}).get(name, {}).get(key.metric)
        arrow = {True: "↑", False: "↓"}.get(better, "")
        stderr, written = row.get(stderr_name(key), "N/A"), row_name(key)
        about = known.get(written, {})
        counts = row.get("sample_count", {})
        count = counts.get(written, "") if counts else about.get("n", row.get("sample_len", ""))
        yield (
            alias,
            version,
            shown_filter(key.filter, is_group=name in results.get("groups", {})),
            shots,
            key.metric,
            arrow,
            format_value(row.get(written)),
            *_spread_cells(row.get(written), stderr, about.get("method")),
            _interval_cell(about.get("interval"), about.get("method")),
            f"{count} in {covered}" if covered else str(count),
            _failed(own, about) if own else "",
        )
        alias = version = ""


def metrics_of(row: ResultsJSON) -> list[ScoreKey]:
    """The metrics and filters of a task or group that have values, in table order."""
    return sorted(key for key, _ in rows_of(row))


def _setting(value: AnyJSON) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _interval_cell(ends: Sequence[float | None] | None, method: str | None) -> str:
    if ends is None:
        return ""
    return " … ".join(format_end(end, is_logarithmic=is_logarithmic(method or "")) for end in ends)


def _spread_cells(value: AnyJSON, stderr: AnyJSON, method: str | None) -> tuple[str, str]:
    """The standard error; of a power of e, such as a perplexity, the factor that it is on that scale."""
    factor = error_factor(value, stderr, method or "")
    return ("±", format_value(stderr)) if factor is None else ("×/÷", format_end(factor, is_logarithmic=True))


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
    checkpoints: Mapping[str, ResultsJSON | None],
    draw: Callable[[Sequence[str], Sequence[Sequence[str]]], str] = markdown_table,
) -> str:
    """One row per metric of every task and group, one column per checkpoint; a dash where there is no value. Where there are
    more checkpoints than fit and than metrics, one row per checkpoint."""
    rows = _checkpoint_rows(checkpoints)
    if len(checkpoints) > max(MOST_COLUMNS, len(rows)):
        header = ("Model", *(" ".join(filter(None, (*_row_label(row, checkpoints), row[3]))) for row in rows))
        return draw(
            header,
            [
                (
                    name if results is not None else f"{name} (failed)",
                    *(_checkpoint_cell(results, row[0], row[2]) for row in rows),
                )
                for name, results in checkpoints.items()
            ],
        )
    header = ("Tasks", "Filter", "Metric", "", *checkpoints)
    return draw(header, [_checkpoint_row(row, checkpoints) for row in rows])


def headline(results: ResultsJSON, most: int = 3) -> str:
    """The first number of each task or group that is in no other: `acc 0.8750 ± 0.0482 (facts)`."""
    rows = {row[0]: row for row in reversed(_checkpoint_rows({"": results}))}
    names = [path[0] for path in result_paths(results) if len(path) == 1 and path[0] in rows]
    parts = [f"{rows[name][2].metric} {_checkpoint_cell(results, name, rows[name][2])} ({name})" for name in names]
    return ", ".join(parts[:most]) + (f" and {len(parts) - most} more" if len(parts) > most else "")


def checkpoints_json(checkpoints: Mapping[str, ResultsJSON | None], reasons: Mapping[str, str] = NOTHING) -> JSONDict:
    """By checkpoint its status and results, as JSON; of one that could not be evaluated the reason."""
    return {
        "checkpoints": [
            {"name": name, "status": "failed", **({"reason": reasons[name]} if name in reasons else {})}
            if results is None
            else {
                "name": name,
                "status": results["assay"]["status"],
                "pretrained": (results.get("config", {}).get("model_args") or {}).get("pretrained"),
                "results": results["results"],
                **({"groups": results["groups"]} if results.get("groups") else {}),
            }
            for name, results in checkpoints.items()
        ]
    }


def _checkpoint_rows(checkpoints: Mapping[str, ResultsJSON | None]) -> list[CheckpointRow]:
    rows: dict[tuple[str, ScoreKey], CheckpointRow] = {}
    for results in checkpoints.values():
        if results is None:
            continue
        for path in result_paths(results):
            name, row = path[-1], results["results"].get(path[-1], {})
            alias = _label(path, row)
            for key in metrics_of(row):
                better: bool | None = results["higher_is_better"].get(name, {}).get(key.metric)
                arrow = "" if better is None else "↑" if better else "↓"
                rows.setdefault((name, key), (name, alias, key, arrow))
    return list(rows.values())


def _checkpoint_row(row: CheckpointRow, checkpoints: Mapping[str, ResultsJSON | None]) -> tuple[str, ...]:
    name, _, key, arrow = row
    cells = [_checkpoint_cell(results, name, key) for results in checkpoints.values()]
    return *_row_label(row, checkpoints), arrow, *cells


def _row_label(row: CheckpointRow, checkpoints: Mapping[str, ResultsJSON | None]) -> tuple[str, str, str]:
    name, alias, key, _ = row
    is_group = any(name in (each or {}).get("groups", {}) for each in checkpoints.values())
    return alias, shown_filter(key.filter, is_group=is_group), key.metric


def _checkpoint_cell(results: ResultsJSON | None, name: str, key: ScoreKey) -> str:
    row = results["results"].get(name, {}) if results is not None else {}
    value = row.get(row_name(key))
    if value is None:
        return NO_VALUE
    stderr = row.get(stderr_name(key))
    account = results.get("assay", {}) if results is not None else {}
    known = {**account.get("tasks", {}), **account.get("groups", {})}
    method = known.get(name, {}).get("rows", {}).get(row_name(key), {}).get("method")
    has_error = isinstance(stderr, int | float) and stderr == stderr
    spread = f" {' '.join(_spread_cells(value, stderr, method))}" if has_error else ""
    return format_value(value) + spread + ("*" if known.get(name, {}).get("incomplete") else "")
