"""Several runs in order: rated by the verdicts of pairwise judges, ranked by their scores on the same documents; and who is best
in a number, which a paper prints in bold."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import combinations
from os import PathLike
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

from assay.comparison.compare import check_shares, compare
from assay.comparison.contrasts import below, compared_members, paired_rows
from assay.comparison.pairing import (
    OtherPrompts,
    pair_tasks,
    refuse_other_prompts,
    scoring_configs,
    shared_tasks,
    task_scores,
    values,
)
from assay.errors import ConfigError, some
from assay.records import JSONObject
from assay.results import Estimate, Row, keys
from assay.runs.comparison import ComparedRow
from assay.runs.run import Run
from assay.runs.samples.encode import from_json
from assay.runs.storage import short_names
from assay.score_keys import ScoreKey, spellings
from assay.statistics.board import cluster_number
from assay.statistics.paired import PairedDifference, holm, significance
from assay.statistics.ratings import Game, Rating, bradley_terry, rank_intervals, surely_better

Key = tuple[str, str, str]
"""A number: the name of its task or group, its metric and its filter."""
Rows = Mapping[tuple[str, str], ComparedRow]
"""By the names of two runs how they compare in one number."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A run in a ranking: its rank with the ranks it may have, its number with the run's interval (95 %), and its difference to
    the first."""

    name: str
    rank: int
    ranks: tuple[int, int]
    estimate: Estimate = field(metadata=keys("value", "low", "high", "n"))
    difference: PairedDifference | None = field(
        default=None, metadata=keys("difference=value", "difference_low=low", "difference_high=high", "p")
    )


@dataclass(frozen=True, slots=True)
class Ranking:
    """Runs by one number of a task or group, best first."""

    name: str
    metric: str
    filter: str
    higher_is_better: bool
    standings: Sequence[Standing]


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """Ratings from pairwise verdicts, rankings by scores, and notes for the reader."""

    ratings: Sequence[Rating]
    rankings: Sequence[Ranking]
    notes: Sequence[str]
    level: float

    def __repr__(self) -> str:
        first = [f"{each.name} leads the ratings" for each in self.ratings if each.rank == 1]
        first += [
            f"{each.standings[0].name} leads {each.name} {each.metric}" for each in self.rankings if each.standings
        ]
        return f"<Leaderboard: {len(self.ratings)} rated, {len(self.rankings)} rankings; {some(first) or 'empty'}>"


@dataclass(frozen=True, slots=True)
class LeaderboardOptions:
    """Which tasks and metrics count, other names of models, and how sure ranks are."""

    tasks: Sequence[str]
    metrics: Sequence[str]
    names: Mapping[str, str]
    level: float
    allow_different_prompts: bool


def leaderboard(
    runs: Sequence[str | PathLike[str]], *, tasks: Sequence[str] = (), metrics: Sequence[str] = (),
    names: Mapping[str, str] | None = None, level: float = 0.95, allow_different_prompts: bool = False,
) -> Leaderboard:  # fmt: skip
    """Rank the models of these runs.

    Verdicts of pairwise judges give ratings; the baseline of a judge is a player, too, by the name in the document's column
    `BASELINE_model`, else by that of its column. Other scores give a ranking for each task and group that runs share. `names`
    gives runs and baselines other names; `level` is that of intervals, and of all ranks of a board together.
    """
    check_shares(level)
    options = LeaderboardOptions(tasks, metrics, names or {}, level, allow_different_prompts)
    by_name = label_runs([Path(each) for each in runs], options.names, "assay leaderboard")
    for pattern in tasks:
        if not any(_has(run, pattern) for run in by_name.values()):
            below(
                next(iter(by_name.values())), pattern, {name for run in by_name.values() for name in run.scored_tasks}
            )
    games = [game for name, run in by_name.items() for game in _games(name, run, options)]
    ratings = bradley_terry(games, level) if games else []
    notes: list[str] = []
    rankings = _rankings(by_name, options, notes) if len(by_name) > 1 and (metrics or not games) else []
    if not ratings and not rankings:
        what, fix = "one run has nothing to be ranked against", "name two runs or more"
        if len(by_name) > 1:
            what = f"the runs share no number to rank by{': ' + notes[0] if notes else ''}"
            fix = "name runs of the same tasks, or numbers of which more or less is better: --metrics NAME"
        raise ConfigError.at("assay leaderboard", what, fix)
    return Leaderboard(ratings, rankings, [*_notes(ratings), *dict.fromkeys(notes)], level)


def _notes(ratings: Sequence[Rating]) -> Iterator[str]:
    if any(each.pool for each in ratings):
        count = 1 + max(each.pool for each in ratings)
        yield f"no game connects the {count} pools of models: ratings of different pools cannot be compared"
    yield from (f"{each.name}: {each.estimate.reason}" for each in ratings if each.estimate.reason)


def label_runs(folders: Sequence[Path], names: Mapping[str, str], command: str) -> dict[str, Run]:
    """Open the runs, each by the shortest end of its path that differs from the others', or the name given for that."""
    ends = short_names(folders)
    if len(set(ends)) < len(ends):
        raise ConfigError.at(command, "the same run is named twice", "name each run once")
    labels = [names.get(end, end) for end in ends]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise ConfigError.at("--name", f"two runs are named {twice!r}", "give each run another name")
    return dict(zip(labels, (Run.open(folder).finished() for folder in folders), strict=True))


# --- verdicts of pairwise judges --------------------------------------------------------------------------------------------


def _games(name: str, run: Run, options: LeaderboardOptions) -> Iterator[Game]:
    """The verdicts of a run: a game for each document of its tasks that have a pairwise judge."""
    every = set(run.scored_tasks)
    known = [pattern for pattern in options.tasks if _has(run, pattern)]
    selected = set().union(*(below(run, pattern, every) for pattern in known)) if options.tasks else every
    for task in (each for each in run.scored_tasks if each in selected):
        judged = _pairwise(run.config(task))
        rows = [key for key in run.rows(task) if key.metric in judged and _is_named(key, options.metrics)]
        scores = task_scores(run, task) if rows else None
        if scores is None:
            continue
        key = rows[0]
        column, baseline = scores.values[key], judged[key.metric]
        clusters = run.config(task).get("cluster_by")
        place = 0
        for part in scores.file.columns(["prefix", "prompt", "doc"]):
            for prefix, prompt, text in zip(part["prefix"], part["prompt"], part["doc"], strict=True):
                if column.present[place]:
                    doc = from_json(text)
                    other = str(doc.get(f"{baseline}_model") or baseline)
                    drawn = cluster_number(doc.get(str(clusters))) if clusters else f"{prefix}{prompt}"
                    other = options.names.get(other, other)
                    if other != name:
                        yield Game(
                            name, other, _score(column.values[place]), (run.source(task) if clusters else task, drawn)
                        )
                place += 1


def _has(run: Run, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in (*run.scored_tasks, *run.members))


def _is_named(key: ScoreKey, metrics: Sequence[str]) -> bool:
    return not metrics or any(metric in spellings(key) for metric in metrics)


def _score(value: float | Sequence[float]) -> float:
    """The share of a win: of several answers, the mean."""
    return float(sum(value) / len(value)) if isinstance(value, list) else float(value)  # type: ignore[arg-type]  # a number


def _pairwise(config: JSONObject) -> dict[str, str]:
    """By name the scorers of a task that compare two answers, with the column of the other one."""
    scorers = [part.get("scorer") for part in scoring_configs(config)]
    judged = {}
    for scorer in (each for each in scorers if isinstance(each, Mapping)):
        kwargs = scorer.get("kwargs")
        if isinstance(kwargs, Mapping) and kwargs.get("pairwise") and kwargs.get("baseline"):
            judged[str(scorer.get("type"))] = str(kwargs["baseline"])
    return judged


# --- scores on the same documents ---------------------------------------------------------------------------------------------


def _rankings(runs: Mapping[str, Run], options: LeaderboardOptions, notes: list[str]) -> list[Ranking]:
    """A ranking by each number that is compared: of every task and group that is in no other, its first one."""
    compared: dict[Key, dict[tuple[str, str], ComparedRow]] = {}
    for one, other in combinations(runs, 2):
        for row in _paired(runs[one], runs[other], options, notes):
            compared.setdefault((row.name, row.metric, row.filter), {})[one, other] = row
    if options.metrics:
        chosen = list(compared)
    else:
        first: dict[str, Key] = {}
        for key, rows in compared.items():
            if not any(row.depth for row in rows.values()):
                first.setdefault(key[0], key)
        chosen = list(first.values())
    rankings = [_ranking(key, compared[key], runs, 1 - options.level, notes) for key in chosen]
    return [ranking for ranking in rankings if ranking is not None]


def _paired(one: Run, other: Run, options: LeaderboardOptions, notes: list[str]) -> Sequence[ComparedRow]:
    try:
        comparison = compare(
            [one, other], tasks=options.tasks, metrics=options.metrics, level=options.level,
            allow_different_prompts=options.allow_different_prompts,
        )  # fmt: skip
    except OtherPrompts:
        raise
    except ConfigError as error:
        notes += [problem.what for problem in error.problems]
        return ()
    return [row for row in comparison.rows if row.difference.value is not None]


def _difference_to(rows: Rows, one: str, other: str) -> PairedDifference | None:
    """How much more one run has than another on the same documents."""
    if (other, one) in rows:
        return rows[other, one].difference
    return rows[one, other].difference.reversed() if (one, other) in rows else None


def _ranking(key: Key, rows: Rows, runs: Mapping[str, Run], alpha: float, notes: list[str]) -> Ranking | None:
    """The runs by one number; None where it is not known whether more or less of it is better."""
    name, metric, filter_name = key
    better = next(iter(rows.values())).higher_is_better
    if better is None:
        notes.append(f"{name}: not ranked by {metric}: its task does not say whether more is better (higher_is_better)")
        return None
    sign = 1.0 if better else -1.0
    known = {each: run.results.row(name, ScoreKey(metric, filter_name)) for each, run in runs.items()}
    numbers = {each: row for each, row in known.items() if row is not None and row.estimate.value is not None}
    without = [each for each in runs if each not in numbers]
    if without:
        notes.append(f"{name}: not ranked by {metric}, for want of a number: {some(without)}")
    order = sorted(numbers, key=lambda each: -sign * (numbers[each].estimate.value or 0.0))
    ps: dict[tuple[int, int], float] = {}
    differences: dict[tuple[int, int], float] = {}
    for one, other in combinations(range(len(order)), 2):
        difference = _difference_to(rows, order[one], order[other])
        if difference is not None and difference.value is not None:
            ps[one, other] = 1.0 if difference.p is None else difference.p
            differences[one, other] = sign * difference.value
    sure = surely_better(ps, differences, alpha)
    ranks = rank_intervals(sure, len(order))
    values = [numbers[run].estimate.value for run in order]
    standings = [
        Standing(
            run,
            1 + values.index(numbers[run].estimate.value),
            ranks[place],
            numbers[run].estimate,
            _difference_to(rows, run, order[0]),
        )
        for place, run in enumerate(order)
    ]
    return Ranking(name, metric, filter_name, better, standings)


class NumberKey(NamedTuple):
    """Names a number: that of a task or group, by a metric and a filter."""

    name: str
    row: ScoreKey


@dataclass(frozen=True, slots=True)
class Best:
    """Who is best in one number; runs by their labels.

    `best` are the best run and all that are not significantly worse than it, by a paired test over the documents that both have;
    by their standard errors alone where they are in `unpaired`. Runs in `untested` can be compared in neither way. Incomplete
    numbers are not compared. Without a direction, and with fewer than two numbers, no run is best.
    """

    best: frozenset[str] = frozenset()
    unpaired: frozenset[str] = frozenset()
    untested: frozenset[str] = frozenset()


def find_best(
    runs: Mapping[str, Run], numbers: Sequence[NumberKey], *, level: float, allow_different_prompts: bool
) -> dict[NumberKey, Best]:
    """Return for each number who is best. The p-values of one number are corrected for their count (Holm)."""
    known = {number: _complete_rows(runs, number) for number in numbers}
    leaders = {number: _leader(rows) if len(rows) > 1 else None for number, rows in known.items()}
    pairs: dict[tuple[str, str], list[NumberKey]] = defaultdict(list)
    for number, leader in leaders.items():
        if leader is not None:
            for label in known[number]:
                if label != leader:
                    pairs[leader, label].append(number)
    tests = {
        pair: _paired_tests(runs[pair[0]], runs[pair[1]], shared, allow_different_prompts=allow_different_prompts)
        for pair, shared in pairs.items()
    }
    best = {}
    for number, leader in leaders.items():
        if leader is None:
            best[number] = Best()
        else:
            paired = {label: tests.get((leader, label), {}).get(number) for label in known[number]}
            best[number] = _decide(known[number], leader, paired, 1 - level)
    return best


def _complete_rows(runs: Mapping[str, Run], number: NumberKey) -> dict[str, Row]:
    """The rows of the runs that have this number of all their documents."""
    rows = {}
    for label, run in runs.items():
        row = run.results.row(number.name, number.row)
        if row is not None and not row.is_incomplete and values(run, number.name).get(number.row) is not None:
            rows[label] = row
    return rows


def _leader(rows: Mapping[str, Row]) -> str | None:
    """The run with the best value; None where it is not known whether more or less is better."""
    directions = {row.higher_is_better for row in rows.values()}
    if len(directions) > 1 or directions == {None}:
        return None
    sign = 1.0 if directions == {True} else -1.0
    return max(rows, key=lambda label: sign * (rows[label].estimate.value or 0.0))


def _paired_tests(
    leader: Run, other: Run, numbers: Collection[NumberKey], *, allow_different_prompts: bool
) -> dict[NumberKey, PairedDifference]:
    """The tests of the numbers of which both runs have the documents' scores."""
    shared = set(shared_tasks(leader, other))
    named = [name for name, _ in numbers if name in shared or name in leader.members]
    tasks = set().union(*(below(leader, name, shared) for name in named))
    if not tasks & shared:
        return {}
    remarks: list[
        str
    ] = []  # what pairs leave out: `assay compare` prints them; a table of many pairs has no place for it
    pairs = pair_tasks(leader, other, tasks, remarks)
    if not allow_different_prompts:
        refuse_other_prompts(pairs, leader, other)
    tests = {}
    runs = (leader, other)
    for row in paired_rows(runs, compared_members(pairs, runs, None, remarks), remarks):
        number = NumberKey(row.name, row.key)
        contrast = row.contrast() if number in numbers else None
        if contrast is not None:
            tests[number] = PairedDifference(contrast.difference, p=significance(contrast).p)
    return tests


def _unpaired_test(leader: Estimate, other: Estimate) -> PairedDifference | None:
    """The test of two numbers as of other documents each, from their standard errors; None where one has none."""
    if leader.value is None or other.value is None:
        return None
    difference = other.value - leader.value
    if not difference:
        return PairedDifference(0.0, p=1.0)
    if leader.stderr is None or other.stderr is None or not math.hypot(leader.stderr, other.stderr) > 0:
        return None
    p = 2 * NormalDist().cdf(-abs(difference) / math.hypot(leader.stderr, other.stderr))
    return PairedDifference(difference, p=p)


def _decide(rows: Mapping[str, Row], leader: str, paired: Mapping[str, PairedDifference | None], alpha: float) -> Best:
    tests = {label: test for label, test in paired.items() if test is not None}
    unpaired = set()
    for label in rows:
        if label != leader and label not in tests:
            test = _unpaired_test(rows[leader].estimate, rows[label].estimate)
            if test is not None:
                tests[label] = test
                unpaired.add(label)
    corrected = dict(zip(tests, holm([1.0 if test.p is None else test.p for test in tests.values()]), strict=True))
    best = {leader}
    for label, test in tests.items():
        # on the documents that both have, a run may be better than the one with the best number
        is_less = (float(test) < 0) is (rows[leader].higher_is_better is True)
        if not (is_less and corrected[label] <= alpha):
            best.add(label)
    untested = set(rows) - set(tests) - {leader}
    return Best(frozenset(best), frozenset(unpaired), frozenset(untested))
