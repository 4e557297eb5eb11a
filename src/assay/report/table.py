"""The table of results: lm-eval's layout, with the number of documents and of failures beside each value."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay.config.row_names import row_key, row_name, rows_of, stderr_name
from assay.records import ScoreKey
from assay.runs.results import coverage, failure_lines, names_with_depth

HEADER = ("Tasks", "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr", "95 %", "n", "failed")
NAMES = ("name", "alias", "sample_len", "sample_count")

SETTINGS = ("gen_kwargs", "limit", "sample", "num_fewshot", "repeats", "apply_chat_template", "system_instruction")

Results = Mapping[str, Any]


def results_table(results: Results, *, groups: bool = False, depth: int | None = None) -> str:
    """The results as a markdown table: groups with their members below them, then the other tasks; or groups alone.

    Below `depth` a tree is not shown: one line says how much is there.
    """
    rows = list(_rows(results, groups=groups, depth=depth))
    title = ("Groups", *HEADER[1:]) if groups else HEADER
    return markdown(title, rows) if rows else ""


def heading(results: Results) -> str:
    """The line above the tables: which model, asked how."""
    config = results.get("config", {})
    arguments = ",".join(f"{key}={value}" for key, value in (config.get("model_args") or {}).items())
    parts = [f"{config.get('model')} ({arguments})" if arguments else str(config.get("model"))]
    parts += [f"{key}: {_setting(config[key])}" for key in SETTINGS if config.get(key) not in (None, False)]
    return ", ".join(parts)


def footing(results: Results) -> list[str]:
    """What must be said below the tables: what it took, what failed, and what could not be run at all."""
    own = results.get("assay", {})
    return [*_took(own.get("account", {})), *failure_lines(own)]


def _took(account: Mapping[str, Any]) -> list[str]:
    """What a run took, as a line; with further models, a line for each."""
    lines = [_spent("requests", account)] if account else []
    return lines + [_spent(f"  as {role}", spent) for role, spent in account.get("roles", {}).items()]


def _spent(name: str, spent: Mapping[str, Any]) -> str:
    if "device_seconds" in spent:
        return _computed(name, spent)
    tokens, seconds = spent["tokens"], spent.get("seconds", {})
    parts = [f"{name}: {spent['requests']:,} answered" + (f", {spent['failed']:,} failed" if spent["failed"] else "")]
    parts += [f"{spent['retries']:,} asked again"] if spent["retries"] else []
    parts += [f"tokens: {tokens['in']:,} in, {tokens['out']:,} out"] if tokens["in"] or tokens["out"] else []
    parts += [f"cost: {spent['cost']:.{4 if spent['cost'] >= 0.01 else 6}f}"] if "cost" in spent else []
    parts += (
        ["latency " + ", ".join(f"{name} {_duration(value)}" for name, value in seconds.items())] if seconds else []
    )
    return "; ".join(parts)


def _computed(name: str, spent: Mapping[str, Any]) -> str:
    """What a model on this machine had to do, and what it was spared."""
    tokens = spent["tokens"]
    asked, computed = tokens["in"] + tokens["out"], tokens["computed"]
    parts = [f"{name}: {spent['requests']:,} answered" + (f", {spent['failed']:,} failed" if spent["failed"] else "")]
    fewer = asked / max(computed, 1)
    spared = f" ({fewer:.{0 if fewer >= 10 else 1}f} × fewer)" if fewer >= 1.05 else ""
    parts += [f"asked {asked:,} tokens, computed {computed:,}{spared}"]
    parts += [f"{_duration(spent['device_seconds'])} on the device"]
    return f"{parts[0]}; {', '.join(parts[1:])}"


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _rows(results: Results, *, groups: bool, depth: int | None) -> Iterator[tuple[str, ...]]:
    shown = results.get("groups", {}) if groups else results["results"]
    members = results.get("group_subtasks", {})
    for name, level in names_with_depth(results):
        if name in shown and (depth is None or level <= depth):
            yield from _task_rows(name, level, shown[name], results)
            if level == depth and members.get(name) and not groups:
                yield (" " * (level + 1) + f"… {len(members[name])} members", *[""] * (len(HEADER) - 1))


def _failed(own: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """How many documents failed in a row, with `*` where it is incomplete; of runs before 0.2, in its task."""
    counted = row if "failed" in row else own
    return f"{counted['failed']}*" if counted.get("incomplete") else str(counted["failed"])


def _task_rows(name: str, depth: int, row: Mapping[str, Any], results: Results) -> Iterator[tuple[str, ...]]:
    alias = " " * depth + ("- " if depth else "") + str(row.get("alias", name))
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
        yield (alias, version, "", shots, "", "", "", "", "", "", covered, failed)
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
            key.filter,
            shots,
            key.metric,
            arrow,
            number(row.get(written)),
            "±",
            number(stderr),
            _interval(about.get("interval")),
            f"{count} in {covered}" if covered else str(count),
            _failed(own, about) if own else "",
        )
        alias = version = ""


def metrics_of(row: Mapping[str, Any]) -> list[ScoreKey]:
    """The metrics and filters that a task or group has values of, in the order of the table."""
    return sorted(key for key, _ in rows_of(row))


def _setting(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _interval(ends: Sequence[float | None] | None) -> str:
    return " … ".join("–" if end is None else f"{end:.3f}" for end in ends) if ends is not None else ""


def number(value: Any) -> str:
    """A value as tables show it."""
    if value is None or value != value:
        return "–"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number(each)}" for name, each in value.items())
    return f"{value:.4f}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows as a markdown table with columns of even width."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
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
