"""Runs side by side as a paper prints them: models by tasks, in bold the best numbers and those not significantly worse; or by what
the metadata of tasks say, as their domain."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from assay.comparison.compare import check_shares
from assay.comparison.leaderboard import Best, NumberKey, find_best, label_runs
from assay.errors import ConfigError, did_you_mean, some
from assay.number_text import format_count, format_level
from assay.report.report_table import Cell, Column, NumberCell, ReportTable, TableLine
from assay.report.table import is_logarithmic
from assay.report.table_writers import direction_arrow
from assay.results import Results, Row
from assay.runs.lines import ResultLine
from assay.runs.run import Run
from assay.score_keys import ScoreKey, metric_title, spellings
from assay.statistics.arrays import combine

Spread = Literal["stderr", "interval", "none"]
"""The uncertainty that is written beside a number."""
SPREADS: tuple[Spread, ...] = get_args(Spread)
INCOMPLETE = "*"


@dataclass(frozen=True, slots=True)
class RunsTableOptions:
    """Which numbers are columns, and how they are written.

    `tasks` are names or globs of tasks and groups (default: those that are in no other), `metrics` choose numbers (default: the
    main one of each). `names` gives runs other names, `level` is that of the tests. `transposed` has a line for each task.
    """

    tasks: Sequence[str] = ()
    metrics: Sequence[str] = ()
    names: Mapping[str, str] | None = None
    level: float = 0.95
    spread: Spread = "stderr"
    digits: int = 3
    transposed: bool = False
    allow_different_prompts: bool = False


@dataclass(frozen=True, slots=True)
class _Measure:
    """A column of the table: a number, and what its head is made of."""

    number: NumberKey
    alias: str
    is_group: bool
    higher_is_better: bool | None

    @property
    def metric(self) -> str:
        return metric_title(*self.number.row, is_group=self.is_group)


def runs_table(runs: Sequence[str | PathLike[str]], options: RunsTableOptions | None = None) -> ReportTable:
    """The numbers of runs side by side: a line for each run, a column for each task or group; or the other way round.

    table = runs_table(["runs/a", "runs/b"], RunsTableOptions(tasks=["mmlu", "gsm8k"]))
    Path("table.tex").write_text(write_latex(table))
    """
    options = options or RunsTableOptions()
    check_shares(options.level)
    opened = label_runs([Path(run) for run in runs], options.names or {}, "assay table")
    measures = _measures(opened, options)
    best = find_best(
        opened,
        [measure.number for measure in measures],
        level=options.level,
        allow_different_prompts=options.allow_different_prompts,
    )
    cells = {
        (label, measure.number): number_cell(
            run.results.row(measure.number.name, measure.number.row),
            options,
            "bold" if label in best[measure.number].best else "",
        )
        for label, run in opened.items()
        for measure in measures
    }
    has_metrics = len({measure.number.name for measure in measures}) < len(measures)
    names = [f"{measure.alias} {measure.metric}" if has_metrics else measure.alias for measure in measures]
    arrows = [direction_arrow(measure.higher_is_better) for measure in measures]
    titles = [f"{name} {arrow}".rstrip() for name, arrow in zip(names, arrows, strict=True)]
    notes = [*_metric_notes(measures, has_metrics), *_notes(opened, measures, best, options)]
    heads = [
        Column(title, _key(measure, has_metrics), "right") for title, measure in zip(titles, measures, strict=True)
    ]
    rows = {label: [cells[label, measure.number] for measure in measures] for label in opened}
    return laid_out(heads, rows, notes, "Task" if options.transposed else None)


def laid_out(
    heads: Sequence[Column], rows: Mapping[str, Sequence[Cell]], notes: Sequence[str], turned: str | None
) -> ReportTable:
    """A line for each run; or, `turned`, for each head, under that title."""
    if turned is None:
        return ReportTable(
            [Column("Model"), *heads], [TableLine([label, *cells]) for label, cells in rows.items()], notes=notes
        )
    columns = [Column(turned), *(Column(label, label, "right") for label in rows)]
    lines = [TableLine([head.title, *(cells[place] for cells in rows.values())]) for place, head in enumerate(heads)]
    return ReportTable(columns, lines, notes=notes)


def _key(measure: _Measure, has_metrics: bool) -> str:
    name, row = measure.number
    return f"{name}/{row.metric}/{row.filter}" if has_metrics else name


def _measures(runs: Mapping[str, Run], options: RunsTableOptions) -> list[_Measure]:
    """The numbers that the options choose: in the order in which they are named, else in that of the first run."""
    lines: dict[str, list[ResultLine]] = {}
    for run in runs.values():
        for line in run.lines:
            if line.numbers:
                lines.setdefault(line.name, []).append(line)
    for pattern in options.tasks:
        if not any(fnmatchcase(name, pattern) for name in lines):
            fix = did_you_mean(pattern, lines)
            raise ConfigError.at("--tasks", f"no task or group with numbers is named {pattern!r}", fix)
    names = [name for name, of_runs in lines.items() if not of_runs[0].depth]
    if options.tasks:
        names = list(dict.fromkeys(name for pattern in options.tasks for name in lines if fnmatchcase(name, pattern)))
    known = {text for name in names for line in lines[name] for row in line.numbers for text in spellings(row.key)}
    for metric in options.metrics:
        if metric not in known:
            fix = did_you_mean(metric, known)
            raise ConfigError.at("--metrics", f"these tasks have no metric named {metric!r}", fix)
    measures = [_measure(lines[name][0], row) for name in names for row in _chosen_rows(lines[name], options.metrics)]
    if not measures:
        what = f"the runs have no numbers: {some(list(runs))}"
        raise ConfigError.at("assay table", what, "name runs that have finished")
    return measures


def _chosen_rows(lines: Sequence[ResultLine], metrics: Sequence[str]) -> list[Row]:
    """The rows of these metrics in any run; without metrics the main one of most runs, whichever run comes first."""
    if metrics:
        rows = {row.key: row for line in lines for row in line.numbers if spellings(row.key) & set(metrics)}
        return list(rows.values())
    mains = [line.main for line in lines if line.main is not None]
    is_main, has_value = Counter(row.key for row in mains), Counter[ScoreKey]()
    for line in lines:
        has_value.update(row.key for row in line.numbers if row.estimate.value is not None)
    return [max(mains, key=lambda row: (has_value[row.key], is_main[row.key], row.key))] if mains else []


def _measure(line: ResultLine, row: Row) -> _Measure:
    return _Measure(NumberKey(line.name, row.key), line.alias, line.is_group, row.higher_is_better)


def number_cell(row: Row | None, options: RunsTableOptions, style: Literal["bold", ""] = "") -> Cell:
    """A number with what is written beside it."""
    if row is None or row.estimate.value is None:
        return NumberCell(None)
    estimate = row.estimate
    return NumberCell(
        estimate.value,
        stderr=estimate.stderr if options.spread == "stderr" else None,
        interval=estimate.interval if options.spread == "interval" else None,
        is_logarithmic=is_logarithmic(estimate.method),
        digits=options.digits,
        mark=INCOMPLETE if row.is_incomplete else "",
        style=style,
    )


def _metric_notes(measures: Sequence[_Measure], has_metrics: bool) -> list[str]:
    """The metric of each column, unless the heads name it."""
    if has_metrics:
        return []
    tasks: dict[str, list[str]] = defaultdict(list)
    for measure in measures:
        tasks[measure.metric].append(measure.alias)
    if len(tasks) == 1:
        return [f"Metric: {next(iter(tasks))}."]
    parts = [f"{metric} of {', '.join(names)}" for metric, names in tasks.items()]
    return [f"Metrics: {'; '.join(parts)}."]


def _notes(
    runs: Mapping[str, Run], measures: Sequence[_Measure], best: Mapping[NumberKey, Best], options: RunsTableOptions
) -> list[str]:
    """How the table is read: n, what is beside a number, what bold, marks and dashes mean."""
    rows = {
        (label, measure): row
        for label, run in runs.items()
        for measure in measures
        if (row := run.results.row(measure.number.name, measure.number.row)) is not None
    }
    notes = [_counts_note(rows, measures)]
    if options.spread == "stderr":
        notes.append("± standard error.")
    elif options.spread == "interval":
        notes.append("In brackets the 95 % confidence interval.")
    if any(each.best for each in best.values()):
        notes.append(
            "Bold: the best number of a task, and those that are not significantly worse"
            " (paired test on the documents of both runs, Holm-corrected within the task,"
            f" {format_level(1 - options.level)} level)."
        )
    for title, chosen in (
        (
            "Samples are missing, so these were tested by their standard errors, not document by document",
            {n: each.unpaired for n, each in best.items()},
        ),
        (
            "These have neither samples nor a standard error, and were not tested",
            {n: each.untested for n, each in best.items()},
        ),
    ):
        listed = [f"{label} in {number.name}" for number, labels in chosen.items() for label in runs if label in labels]
        if listed:
            notes.append(f"{title}: {some(listed)}.")
    if any(row.is_incomplete for row in rows.values()):
        notes.append(f"{INCOMPLETE} Documents failed or were not asked: this number is not compared.")
    if len(rows) < len(runs) * len(measures):
        notes.append("– The run has no such number.")
    without = [
        f"{label} in {measure.alias}: {row.estimate.reason}"
        for (label, measure), row in rows.items()
        if row.estimate.value is None
    ]
    if without:
        notes.append(f"– No number could be computed ({some(without)}).")
    return notes


def _counts_note(rows: Mapping[tuple[str, _Measure], Row], measures: Sequence[_Measure]) -> str:
    """The number of documents: the most frequent one, then the tasks that have another."""
    counts = {
        measure: _range({row.estimate.n for (_, own), row in rows.items() if own == measure}) for measure in measures
    }
    [(usual, _)] = Counter(counts.values()).most_common(1)
    others = [f"{measure.alias}: {count}" for measure, count in counts.items() if count != usual]
    return f"n = {usual} ({', '.join(others)})." if others else f"n = {usual}."


def _range(counts: set[int]) -> str:
    if not counts:
        return "0"
    low, high = min(counts), max(counts)
    return format_count(low) if low == high else f"{format_count(low)} to {format_count(high)}"


METADATA = "metadata."


class _Part(NamedTuple):
    """A value of the metadata, and a metric of the tasks that have it."""

    value: str
    metric: str


def metadata_table(runs: Sequence[str | PathLike[str]], key: str, options: RunsTableOptions) -> ReportTable:
    """The mean of the tasks of each value of a key such as `metadata.domain`, weighted by their documents."""
    opened = label_runs([Path(run) for run in runs], options.names or {}, "assay table")
    name = key.removeprefix(METADATA)
    known = sorted({f"{METADATA}{each}" for run in opened.values() for own in _metadata(run.results) for each in own})
    if key not in known:
        raise ConfigError.at("--by", f"no task or group has {key!r}", did_you_mean(key, known))
    found = {label: _parts(run, name, options) for label, run in opened.items()}
    parts = sorted({part for rows in found.values() for part in rows})
    if not parts:
        raise ConfigError.at(
            "--by", f"no task with {key!r} has these numbers", "choose others with --tasks and --metrics"
        )
    heads = [_head(part, [rows[part] for rows in found.values() if part in rows]) for part in parts]
    cells = {
        label: [number_cell(_mean(part, rows.get(part, ())), options) for part in parts]
        for label, rows in found.items()
    }
    return laid_out(heads, cells, _metadata_notes(found, parts, options), key if options.transposed else None)


def _metadata(results: Results) -> Iterator[Mapping[str, Any]]:
    yield from (task.config.get("metadata") or {} for task in results.tasks.values())
    yield from (group.metadata for group in results.groups.values())


def values_of(results: Results, task: str, name: str) -> list[str]:
    """What the metadata of a task say, else those of the groups nearest to it; of a list, every item.

    >>> from assay.results import GroupEntry, TaskEntry
    >>> groups = {"g": GroupEntry("g", "g", ["t"], metadata={"domain": ["math", "code"]})}
    >>> values_of(Results({"t": TaskEntry("t", "t")}, groups), "t", "domain")
    ['math', 'code']
    """
    entry = results.tasks[task]
    own = [(entry.config.get("metadata") or {}).get(name)]
    around = {task}
    while around and all(value is None for value in own):
        groups = {group: entry for group, entry in results.groups.items() if not around.isdisjoint(entry.members)}
        own, around = [entry.metadata.get(name) for entry in groups.values()], set(groups)
    listed = [
        item for value in own if value is not None for item in (value if isinstance(value, list | tuple) else [value])
    ]
    return list(dict.fromkeys(map(str, listed)))


def _parts(run: Run, name: str, options: RunsTableOptions) -> dict[_Part, list[Row]]:
    """The rows of every part: of each task its main one, or those of the metrics that the options name."""
    parts: dict[_Part, list[Row]] = {}
    lines = {line.name: line for line in run.lines if not line.is_group}
    for task, line in lines.items():
        if options.tasks and not any(fnmatchcase(task, pattern) for pattern in options.tasks):
            continue
        main = [line.main] if line.main is not None else []
        rows = [row for row in line.numbers if spellings(row.key) & set(options.metrics)] if options.metrics else main
        for value in values_of(run.results, task, name) if rows else ():
            for row in rows:
                if row.estimate.value is not None:
                    parts.setdefault(_Part(value, metric_title(*row.key)), []).append(row)
    return parts


def _head(part: _Part, of_runs: Sequence[Sequence[Row]]) -> Column:
    better = {row.higher_is_better for rows in of_runs for row in rows}
    title = f"{part.value} {part.metric} {direction_arrow(better.pop() if len(better) == 1 else None)}".rstrip()
    return Column(title, f"{part.value}/{part.metric}", "right")


def _mean(part: _Part, rows: Sequence[Row]) -> Row | None:
    """The mean of the tasks of a part, as of a group by size."""
    if not rows:
        return None
    estimate = combine([row.estimate for row in rows]) if len(rows) > 1 else rows[0].estimate
    return Row(part.value, part.metric, "none", estimate, is_incomplete=any(row.is_incomplete for row in rows))


def _metadata_notes(
    found: Mapping[str, Mapping[_Part, Sequence[Row]]], parts: Sequence[_Part], options: RunsTableOptions
) -> list[str]:
    """The tasks that each number is made of, and how."""
    tasks = {
        part: list(dict.fromkeys(row.owner for rows in found.values() for row in rows.get(part, ()))) for part in parts
    }
    made_of = "; ".join(f"{value} {metric}: {', '.join(names)}" for (value, metric), names in tasks.items())
    notes = [f"Means of tasks, weighted by their documents: {made_of}. Tasks are taken to share no document."]
    if options.spread != "none":
        notes.append("± standard error." if options.spread == "stderr" else "In brackets the 95 % confidence interval.")
    return notes
