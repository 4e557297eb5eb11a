"""Leaderboards: models rated by the verdicts of pairwise judges, and ranked by their scores on the same documents."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import combinations
from os import PathLike
from pathlib import Path

from assay.comparison.compare import check_shares, compare
from assay.comparison.pairing import OtherPrompts, scoring_configs, task_scores
from assay.comparison.rows import below
from assay.errors import ConfigError, some
from assay.records import JSONObject
from assay.results import Estimate, keys
from assay.runs.comparison import ComparedRow
from assay.runs.run import Run
from assay.runs.samples.encode import from_json
from assay.runs.storage import short_names
from assay.score_keys import ScoreKey, spellings
from assay.statistics.board import cluster_number
from assay.statistics.paired import PairedDifference
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
