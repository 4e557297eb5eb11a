"""Ratings of players from games between two of them, by Bradley and Terry: a win is as likely as the logistic of the difference.

A tie, and a game that judges see differently, is a share of a win. Standard errors are the sandwich's, summed over clusters: games
on one document are one draw. Without a loss, or between players whose games all end alike, the likelihood has no maximum; then
half a win and half a loss are added to every pair that met, and the open end is marked.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from assay.errors import some
from assay.records import Floats
from assay.statistics.evidence import Estimate, keys
from assay.statistics.intervals import student, student_tail
from assay.statistics.paired import holm

ELO = 400 / math.log(10)
"""Points of a rating for one unit of log-odds: 400 points are odds of 10 to 1."""
MIDDLE = 1000.0
"""The mean rating of the players of a pool."""


Places = npt.NDArray[np.intp]
Reaches = npt.NDArray[np.bool_]


class Game(NamedTuple):
    """A game: `score` is what the first player has of the win, `cluster` what it was drawn with."""

    first: str
    second: str
    score: float
    cluster: Hashable


@dataclass(frozen=True, slots=True)
class Rating:
    """A player's rating with its interval, its rank with the ranks it may have, and how its games ended.

    `pool` numbers the players that are connected by games. An end of the interval is infinite where no game limits it; n are the
    documents of its games.
    """

    name: str
    pool: int
    rank: int
    ranks: tuple[int, int]
    estimate: Estimate = field(metadata=keys("rating=value", "stderr", "low", "high", "documents=n", "reason"))
    wins: int
    ties: int
    losses: int


def bradley_terry(games: Sequence[Game], level: float = 0.95) -> list[Rating]:
    """Rate the players of these games, best first; pools that never met follow one another.

    >>> [(each.name, round(float(each.estimate)), each.ranks) for each in bradley_terry([Game("a", "b", 1, n) for n in range(29)]
    ...     + [Game("a", "b", 0, 29)])]
    [('a', 1292, (1, 1)), ('b', 708, (2, 2))]
    """
    for game in games:
        if game.first == game.second or not 0 <= game.score <= 1:
            raise ValueError(f"a game needs two players and a score from 0 to 1, got {game[:3]}")
    pools = _pools(games)
    rated = [_rate([game for game in games if game.first in pool], sorted(pool), level) for pool in pools]
    return [replace(rating, pool=number) for number, ratings in enumerate(rated) for rating in ratings]


def _pools(games: Sequence[Game]) -> list[set[str]]:
    """The players that are connected by games, the largest pool first."""
    pools: list[set[str]] = []
    for first, second in {(game.first, game.second) for game in games}:
        met = [pool for pool in pools if first in pool or second in pool]
        pools = [pool for pool in pools if pool not in met] + [{first, second}.union(*met)]
    return sorted(pools, key=lambda pool: (-len(pool), min(pool)))


@dataclass(frozen=True, slots=True)
class _Fit:
    """Strengths of players in log-odds, with mean 0, and their covariance from so many clusters."""

    strengths: Floats
    covariance: Floats
    clusters: int


def _rate(games: Sequence[Game], players: Sequence[str], level: float) -> list[Rating]:
    place = {name: number for number, name in enumerate(players)}
    table = _tabulated(games, place)
    won = table.won(len(players), table.weights)
    reaches = _reaches(won)
    pseudo = 0.0 if reaches.all() else 0.5
    fit = _fit(table, won, pseudo)
    ps = {pair: _p_by_likelihood(_padded(table.won(len(players), table.alone), pseudo), *pair) if pseudo else _p(fit, *pair)
          for pair in combinations(range(len(players)), 2)}  # fmt: skip
    better = surely_better(
        ps, {(one, other): fit.strengths[one] - fit.strengths[other] for one, other in ps}, 1 - level
    )
    ranks, reasons = rank_intervals(better, len(players)), _reasons(games, players, reaches)
    ratings = []
    for name, number in place.items():
        error = math.sqrt(max(fit.covariance[number, number], 0.0)) if fit.clusters > 1 else None
        ends = None
        if error is not None:
            half = student(level, float(fit.clusters - 1)) * error
            low, high = (MIDDLE + ELO * float(fit.strengths[number] + sign * half) for sign in (-1, 1))
            ends = low if reaches[number].all() else -math.inf, high if reaches[:, number].all() else math.inf
        estimate = Estimate(
            MIDDLE + ELO * float(fit.strengths[number]),
            None if error is None else ELO * error,
            len({game.cluster for game in games if name in game[:2]}),
            reasons.get(name, "") or ("" if error is not None else "one document has no spread"),
            ends,
        )
        rank = 1 + int((fit.strengths > fit.strengths[number] + 1e-9).sum())
        scores = [game.score if game.first == name else 1 - game.score for game in games if name in game[:2]]
        wins, losses = sum(score > 0.5 for score in scores), sum(score < 0.5 for score in scores)
        ratings.append(Rating(name, 0, rank, ranks[number], estimate, wins, scores.count(0.5), losses))
    return sorted(ratings, key=lambda each: (each.rank, each.name))


class _Table(NamedTuple):
    """Games as columns; `alone` is the weight of each where all games of a pair on one document count as one."""

    first: Places
    second: Places
    scores: Floats
    clusters: Places
    alone: Floats

    @property
    def weights(self) -> Floats:
        return np.ones(len(self.scores))

    def won(self, count: int, weights: Floats) -> Floats:
        """By player and player, how many games the one has won of the other."""
        won = np.zeros((count, count))
        np.add.at(won, (self.first, self.second), weights * self.scores)
        np.add.at(won, (self.second, self.first), weights * (1 - self.scores))
        return won


def _tabulated(games: Sequence[Game], place: Mapping[str, int]) -> _Table:
    first, second = (
        np.array([place[name] for name in side]) for side in zip(*(game[:2] for game in games), strict=True)
    )
    numbers: dict[Hashable, int] = {}
    clusters = np.array([numbers.setdefault(game.cluster, len(numbers)) for game in games])
    kinds = np.stack([np.minimum(first, second), np.maximum(first, second), clusters])
    _, kind, repeated = np.unique(kinds, axis=1, return_inverse=True, return_counts=True)
    scores = np.array([game.score for game in games], dtype=np.float64)
    return _Table(first, second, scores, clusters, 1 / repeated[kind.ravel()])


def _padded(won: Floats, pseudo: float) -> Floats:
    """With as many wins more on both sides of every pair that met."""
    return won + pseudo * ((won + won.T) > 0)


def _reaches(won: Floats) -> Reaches:
    """Whether one player scored against another, or against one who did so; all pairs have a finite difference if all do."""
    scored = (won > 0) | np.eye(len(won), dtype=bool)
    for middle in range(len(won)):
        scored |= np.outer(scored[:, middle], scored[middle])
    return scored


def _reasons(games: Sequence[Game], players: Sequence[str], reaches: Reaches) -> dict[str, str]:
    """Why a rating has an open end, by player."""
    reasons = {}
    for number, name in enumerate(players):
        own = [game.score if game.first == name else 1 - game.score for game in games if name in game[:2]]
        every = "its only game" if len(own) == 1 else f"all {len(own)} games"
        above = [other for place, other in enumerate(players) if not reaches[number, place]]
        below = [other for place, other in enumerate(players) if not reaches[place, number]]
        if all(score == 1 for score in own):
            reasons[name] = f"won {every}: nothing limits its rating from above"
        elif all(score == 0 for score in own):
            reasons[name] = f"lost {every}: nothing limits its rating from below"
        elif above or below:
            known = [f"no win or tie leads from it to {some(above)}"] if above else []
            known += [f"none leads from {some(below)} to it"] if below else []
            reasons[name] = f"{', and '.join(known)}: how far apart they are is open"
    return reasons


def _fit(table: _Table, won: Floats, pseudo: float) -> _Fit:
    padded = _padded(won, pseudo)
    strengths = _strengths(padded)
    chances = _chances(strengths)
    inverse = _inverse(padded, chances)
    off = table.scores - chances[table.first, table.second]
    together = np.zeros((int(table.clusters.max()) + 1, len(won)))
    np.add.at(together, (table.clusters, table.first), off)
    np.add.at(together, (table.clusters, table.second), -off)
    groups = len(together)
    meat = together.T @ together * (groups / max(groups - 1, 1))
    # where all games of a pair end alike their residuals say nothing, and what the model expects is taken
    return _Fit(strengths, inverse if pseudo else inverse @ meat @ inverse, groups)


def _chances(strengths: Floats) -> Floats:
    """By player and player, how likely the one wins against the other."""
    chances: Floats = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
    return chances


def _strengths(won: Floats) -> Floats:
    """The most likely strengths, with mean 0, by Newton's steps of at most 2."""
    strengths = np.zeros(len(won))
    for _ in range(100):
        chances = _chances(strengths)
        step = _inverse(won, chances) @ (won - (won + won.T) * chances).sum(axis=1)
        strengths = strengths + step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-300))
        if np.abs(step).max() < 1e-10:
            break
    return strengths - strengths.mean()  # type: ignore[no-any-return]  # an array of floats


def _inverse(won: Floats, chances: Floats) -> Floats:
    """The inverse of the information, but for adding the same to all strengths."""
    off = (won + won.T) * chances * (1 - chances)
    information = np.diag(off.sum(axis=1)) - off
    count, size = len(information), float(np.trace(information)) / len(information) or 1.0
    return np.asarray(np.linalg.inv(information + size / count) - 1 / (size * count), dtype=np.float64)


def surely_better(
    ps: Mapping[tuple[int, int], float], differences: Mapping[tuple[int, int], float], alpha: float
) -> set[tuple[int, int]]:
    """The pairs of which the first is better than the second beyond doubt, in either order: by Holm's correction over all
    pairs, so that the ranks of all hold together."""
    corrected = dict(zip(ps, holm(list(ps.values())), strict=True))
    sure = [(pair, differences[pair]) for pair, p in corrected.items() if p <= alpha and differences[pair]]
    return {pair if difference > 0 else (pair[1], pair[0]) for pair, difference in sure}


def rank_intervals(better: set[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """Of each place the best and the worst rank.

    >>> rank_intervals({(0, 2)}, 3)
    [(1, 2), (1, 3), (2, 3)]
    """
    return [
        (1 + sum(other == number for _, other in better), count - sum(one == number for one, _ in better))
        for number in range(count)
    ]


def _p(fit: _Fit, one: int, other: int) -> float:
    """How likely two equally strong players would be so far apart."""
    spread = fit.covariance[one, one] + fit.covariance[other, other] - 2 * fit.covariance[one, other]
    apart = abs(fit.strengths[one] - fit.strengths[other])
    if fit.clusters < 2 or spread <= 0:
        return 1.0
    return student_tail(float(apart / math.sqrt(spread)), float(fit.clusters - 1))


def _p_by_likelihood(won: Floats, one: int, other: int) -> float:
    """The same where a strength is infinite: by how much likelier the games are if the two are not equally strong."""

    def likelihood(strengths: Floats) -> float:
        return float((won * np.log(_chances(strengths))).sum())

    left = [number for number in range(len(won)) if number != other]
    joined = won.copy()
    joined[one] += joined[other]
    joined[:, one] += joined[:, other]
    joined[one, one] = 0.0
    alike: Floats = np.zeros(len(won))
    alike[left] = _strengths(joined[np.ix_(left, left)])
    alike[other] = alike[one]
    return math.erfc(math.sqrt(max(likelihood(_strengths(won)) - likelihood(alike), 0.0)))
