"""The rows that two runs share, of tasks and groups, each with its members."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

import numpy as np

from assay.comparison.contrasts import FIRST, OTHER, ComparedTask, Part, contrast, member_of, why_no_number
from assay.comparison.pairing import Array, PairedTask, shared_tasks, values
from assay.errors import ConfigError, did_you_mean, some
from assay.records import json_number, mapping
from assay.results import names_below
from assay.runs.comparison import ComparedRow
from assay.runs.run import Run
from assay.score_keys import ScoreKey, spellings
from assay.statistics.influence import Spread
from assay.statistics.paired import Contrast, PairedDifference, detectable, paired_difference

Runs = tuple[Run, Run]
Known = Mapping[tuple[str, ScoreKey], ComparedTask]
"""The tasks' numbers in both runs; tasks by their names in the first run."""
SCORE_AGAIN = "how it follows from its tasks is not noted; `assay score RUN` notes it"

NO_SPREAD = {True: "no document differs", False: "all documents differ alike"}
LONE = "the other run has no such number, or no samples of it"


class RunNoise(NamedTuple):
    """The variance between whole runs of the baseline, beyond that of single answers, and how many runs it is known from."""

    variance: float
    runs: int

    @classmethod
    def of(cls, run: Run, name: str, key: ScoreKey) -> "RunNoise | None":
        """As a baseline of several runs has it."""
        row = run.results.row(name, key)
        noise = mapping(row.noise if row is not None else None)
        variance, runs = json_number(noise.get("between_runs")), int(noise.get("runs") or 0)
        return cls(variance, runs) if variance and runs > 1 else None

    def added(self, plain: Contrast, scale: float) -> Contrast:
        """The difference of another run to the mean of these: one more draw of a run, and the mean of as many."""
        more, own = (
            self.variance * (1 + scale**2 / self.runs),
            plain.spread.variance if plain.spread else plain.variance,
        )
        total = own + more
        freedom = total**2 / (own**2 / plain.freedom + more**2 / (self.runs - 1))
        return replace(plain, contributions=None, variance=plain.variance + more, spread=Spread(total, freedom, 0.0))


@dataclass(frozen=True)
class PairedRow:
    """A number of a task or group in both runs; `reason` explains why its spread is unknown.
    A lone one is in the first run alone."""

    kind: Literal["task", "group"]
    name: str
    alias: str
    key: ScoreKey
    depth: int
    better: bool | None
    a: float | None
    b: float | None
    parts: Sequence[Part] = ()
    reason: str = ""
    is_lone: bool = False
    noise: RunNoise | None = None

    @property
    def is_alike(self) -> bool:
        """Whether every document scores the same in both runs."""
        return bool(self.parts) and all(part.member.is_alike for part in self.parts)

    def contrast(self, scale: float = 1.0) -> Contrast | None:
        if self.reason or not self.parts or self.a is None or self.b is None:
            return None
        plain = contrast(self.parts, self.a, self.b, scale)
        return plain if plain is None or self.noise is None else self.noise.added(plain, scale)


def compared_members(tasks: Sequence[PairedTask], runs: Runs, cluster_by: str | None, notes: list[str]) -> Known:
    """Every number of the tasks that both runs have."""
    members: dict[tuple[str, ScoreKey], ComparedTask] = {}
    clustered = [(task, _clusters(task, cluster_by or runs[0].config(task.name).get("cluster_by"))) for task in tasks]
    if cluster_by is not None:
        _check_clusters(cluster_by, clustered, notes)
    for task, clusters in clustered:
        mine, others = values(runs[0], task.name), values(runs[1], task.name_b)
        _note_lone(task.name, mine, others, notes)
        for key in mine:
            if key in others:
                members[task.name, key] = member_of(task, key, runs, clusters)
    return members


def _clusters(task: PairedTask, column: str | None) -> Array | None:
    """The draw of each paired document; None where each is its own."""
    clusters = task.scores_a.clusters(str(column)) if column else None
    return None if clusters is None else clusters[task.places_a]


def _check_clusters(column: str, clustered: Sequence[tuple[PairedTask, Array | None]], notes: list[str]) -> None:
    without = [task.name for task, clusters in clustered if clusters is None]
    if len(without) == len(clustered):
        from orjson import loads

        docs = [loads(row.doc) for task, _ in clustered for row in task.scores_a.some([0]).values()]
        fix = did_you_mean(column, {name for doc in docs for name in doc})
        raise ConfigError.at("--cluster_by", f"no document has a column {column!r}", fix)
    if without:
        notes.append(f"no column {column!r}, so each document is its own cluster: {some(without)}")


def paired_rows(runs: Runs, known: Known, notes: list[str]) -> list[PairedRow]:
    """The shared numbers in the order of the table: groups with their members below them, then the other tasks."""
    rows: list[PairedRow] = []
    seen: set[str] = set()
    tasks = {name for name, _ in known}
    for entry, depth in runs[0].results.walk():
        name = entry.name
        if name in seen:
            continue
        seen.add(name)
        if name in tasks:
            rows += _task_rows(name, depth, runs, known)
        elif name in runs[0].groups and name in runs[1].groups:
            _note_lone(name, values(runs[0], name), values(runs[1], name), notes)
            rows += _group_rows(name, depth, runs, known)
    groups = {*runs[0].groups, *runs[1].groups}
    alone = sorted(groups - ({*runs[0].groups} & {*runs[1].groups}))
    if alone:
        notes.append(f"only one of the runs has the group {some(alone)}")
    return rows


def _note_lone(name: str, mine: Collection[ScoreKey], others: Collection[ScoreKey], notes: list[str]) -> None:
    """Note the numbers of a task or group that only one of the runs has."""
    lone = [str(key) for key in dict.fromkeys((*mine, *others)) if key not in mine or key not in others]
    if lone:
        notes.append(f"{name}: only one of the runs has {some(lone)}")


def lone_rows(run: Run, shared: Sequence[PairedRow]) -> list[PairedRow]:
    """Return the rows of the first run that the other lacks: they cannot be compared, and a gate must know."""
    known = {(row.name, row.key) for row in shared}
    rows = []
    for name, depth in {entry.name: depth for entry, depth in run.results.walk()}.items():
        kind: Literal["task", "group"] = "group" if name in run.groups else "task"
        for key, value in values(run, name).items():
            if (name, key) not in known:
                better = run.rows(name)[key].higher_is_better
                rows.append(PairedRow(kind, name, run.alias(name), key, depth, better, value, None, (), LONE, True))
    return rows


def _task_rows(name: str, depth: int, runs: Runs, known: Known) -> Iterator[PairedRow]:
    for (task, key), member in known.items():
        if task == name:
            a, b = (None if math.isnan(number) else number for number in (member.a, member.b))
            better, alias = runs[0].rows(name)[key].higher_is_better, runs[0].alias(name)
            noise = RunNoise.of(runs[0], name, key)
            yield PairedRow("task", name, alias, key, depth, better, a, b, (Part(member),), member.reason, noise=noise)


def _group_rows(name: str, depth: int, runs: Runs, known: Known) -> Iterator[PairedRow]:
    others = values(runs[1], name)
    for key, row in runs[0].rows(name).items():
        if key not in others:
            continue
        parts, a, b, reason = _group_parts(name, key, runs, known)
        noise = RunNoise.of(runs[0], name, key)
        alias, better = runs[0].alias(name), row.higher_is_better
        yield PairedRow("group", name, alias, key, depth, better, a, b, parts, reason, noise=noise)


def _group_parts(
    name: str, key: ScoreKey, runs: Runs, known: Known
) -> tuple[Sequence[Part], float | None, float | None, str]:
    """Return the members of a group's number, and its two values on the documents that both runs have."""
    a, b = values(runs[0], name)[key], values(runs[1], name)[key]
    shares = runs[0].rows(name)[key].slopes, runs[1].rows(name)[key].slopes
    lacking = why_no_number(runs[0], name, key, FIRST) or why_no_number(runs[1], name, key, OTHER)
    if lacking:
        return (), a, b, lacking
    if shares[0] is None or shares[1] is None:
        unknown = runs[0 if shares[0] is None else 1].rows(name)[key]
        return (), a, b, unknown.estimate.reason or SCORE_AGAIN
    mine = {other: name for name, other in shared_tasks(*runs).items()}
    slopes_a, slopes_b = shares[0], {(mine.get(task, task), row): slope for (task, row), slope in shares[1].items()}
    wrong = [f"{task} {row.metric}" for task, row in slopes_a.keys() ^ slopes_b.keys()]
    if wrong:
        return (), a, b, f"its members are not the same in both runs: {some(sorted(wrong))}"
    lost = [f"{task}: not compared" for task, row in slopes_a if (task, row) not in known]
    members = {share: known[share] for share in slopes_a if share in known}
    lost += [f"{member.task}: {member.reason}" for member in members.values() if member.reason]
    if lost:
        return (), a, b, some(lost)
    parts = [Part(member, slopes_a[share], slopes_b[share]) for share, member in members.items()]
    if all(part.member.is_whole for part in parts):
        return parts, a, b, ""
    shared = _on_shared_documents(parts)
    if shared is None:
        return (
            (),
            None,
            None,
            "runs with other documents: only means and sums of groups are compared on those they share",
        )
    return (
        shared,
        sum(part.slope_a * part.member.a for part in shared),
        sum(part.slope_b * part.member.b for part in shared),
        "",
    )


def _on_shared_documents(parts: Sequence[Part]) -> list[Part] | None:
    """Return the weights of members for fewer documents; None where the influences are not weights."""
    wholes = [(part.member.n + part.member.only_a, part.member.n + part.member.only_b) for part in parts]
    if _alike([(p.slope_a, p.slope_b) for p in parts]):
        return list(parts)
    of_a, of_b = sum(a for a, _ in wholes), sum(b for _, b in wholes)
    by_size = [(p.slope_a, a / of_a) for p, (a, _) in zip(parts, wholes, strict=True)]
    by_size += [(p.slope_b, b / of_b) for p, (_, b) in zip(parts, wholes, strict=True)]
    if not _alike(by_size):
        return None
    n = sum(part.member.n for part in parts)
    return [Part(part.member, part.member.n / n, part.member.n / n) for part in parts]


def _alike(pairs: Sequence[tuple[float, float]]) -> bool:
    return all(math.isclose(x, y, rel_tol=1e-9) for x, y in pairs)


def selected_rows(rows: Sequence[PairedRow], run: Run, tasks: Sequence[str], metrics: Sequence[str]) -> list[PairedRow]:
    """Select rows: tasks and groups by name or glob, with all below them; metrics by name."""
    selected = rows
    if tasks:
        names = set().union(*(below(run, pattern, {row.name for row in rows}) for pattern in tasks))
        selected = [row for row in selected if row.name in names]
    known = {name for row in rows for name in spellings(row.key)}
    for metric in metrics:
        if metric not in known:
            raise ConfigError.at("--metrics", f"no shared metric named {metric!r}", did_you_mean(metric, known))
    if metrics:
        selected = [each for each in selected if spellings(each.key) & set(metrics)]
    return list(selected)


def placed_rows(rows: Sequence[PairedRow], run: Run) -> list[PairedRow]:
    """The rows with their depth below the groups that have rows: others are not there to be indented under."""
    shown = {row.name for row in rows}
    depths: dict[str, int] = {}
    for path in run.results.paths:
        depths.setdefault(path[-1], sum(name in shown for name in path[:-1]))
    return [replace(row, depth=depths.get(row.name, row.depth)) for row in rows]


def below(run: Run, pattern: str, names: set[str]) -> set[str]:
    """Return the names that a pattern matches, and all below them."""
    tree = run.members
    matching = [name for name in {*names, *tree} if name == pattern or fnmatchcase(name, pattern)]
    if not matching:
        fix = did_you_mean(pattern, names | {*tree})
        raise ConfigError.at("--tasks", f"no shared task or group named {pattern!r}", fix)
    return {*matching, *names_below(tree, matching)}


def compared_row(row: PairedRow, run: int, level: float, power: float, *, has_same_answers: bool) -> ComparedRow:
    """Compute the row of the comparison from a paired row."""
    members = [part.member for part in row.parts]
    contrast, (wins, losses, ties) = row.contrast(), _counts(row)
    if contrast is not None:
        difference = paired_difference(contrast, level)
        reason = row.reason or (NO_SPREAD[row.is_alike] if difference.interval is None else "")
        difference = replace(difference, reason=reason)
    else:
        value = row.b - row.a if row.a is not None and row.b is not None else None
        difference = PairedDifference(value, n=sum(member.n for member in members), reason=row.reason)
    return ComparedRow(
        kind=row.kind,
        name=row.name,
        alias=row.alias,
        metric=row.key.metric,
        filter=row.key.filter,
        run=run,
        depth=row.depth,
        higher_is_better=row.better,
        a=row.a,
        b=row.b,
        difference=difference,
        wins=wins,
        losses=losses,
        ties=ties,
        mde=detectable(contrast, power, level) if contrast is not None else None,
        only_a=sum(member.only_a for member in members),
        only_b=sum(member.only_b for member in members),
        same=("answers" if has_same_answers else "scores") if row.is_alike else "",
    )


def _counts(row: PairedRow) -> tuple[int | None, int | None, int | None]:
    """How many documents the other run does better, worse and just as well; without a direction the last alone is known."""
    if not row.parts or any(part.member.scores_a is None or part.member.scores_b is None for part in row.parts):
        return None, None, None
    change = np.concatenate([part.member.scores_b - part.member.scores_a for part in row.parts])
    up, down = int((change > 0).sum()), int((change < 0).sum())
    same = len(change) - up - down
    if row.better is None:
        return None, None, same
    return (up, down, same) if row.better else (down, up, same)
