"""Runs side by side by what the metadata of tasks say: their domain, their difficulty."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from assay.comparison.leaderboard import label_runs
from assay.errors import ConfigError, did_you_mean
from assay.report.cell_text import direction_arrow
from assay.report.report_table import Column, ReportTable
from assay.report.runs_table import RunsTableOptions, laid_out, number_cell
from assay.results import Results, Row
from assay.runs.run import Run
from assay.score_keys import metric_title, spellings
from assay.statistics.arrays import combine

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
    return laid_out(heads, cells, _notes(found, parts, options), key if options.transposed else None)


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


def _notes(
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
