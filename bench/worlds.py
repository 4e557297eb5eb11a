"""Worlds whose truth is known: members with documents, of which each has a chance for every score.

A `Block` is a number of like documents that some members share. How often each of its outcomes comes up is multinomial, so
that tens of thousands of draws of all members' numbers cost no more than a few hundred data sets.
"""

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from assay.config.group import AggMetricConfig, GroupConfig
from assay.groups.group import StandardGroup
from assay.groups.manager import GroupManager
from assay.groups.task_results import EstimatedFloat
from assay.score_keys import ScoreKey
from assay.statistics.aggregations import AGGREGATIONS
from assay.statistics.board import Board, ScoreColumn
from assay.statistics.evidence import Estimate

Array = Any
MEMBERS = "abcde"
SIZES = (1.0, 1.5, 1.2, 2.0, 1.1)
"""Documents of the members, times n: the smallest has n."""
APART = (-0.4, 0.2, 0.0, 0.4, -0.2)
"""How far the members' expected scores are from p, in logits: for 0.1 from 0.07 to 0.14."""
WEIGHTS = (0.5, 1.0, 2.0, 1.0, 0.25)
CLUSTERINGS = ("independent", "repeats", "shared", "nested")
TOGETHER = 0.6
"""The share of shared documents that are as hard for the one member as for the other."""
CHILDREN = {"first": "ab", "second": "bc"}
"""The inner groups of a nested world: one task is in both."""


@dataclass(frozen=True, slots=True)
class Block:
    """Documents that are alike: whose they are, how many, and how likely each outcome is (right answers by member)."""

    members: str
    first: int
    size: int
    chances: Array
    right: Array


@dataclass(frozen=True, slots=True)
class World:
    """Members with documents; a document is answered `answers` times and scores by how many of them are right."""

    clustering: str
    blocks: Sequence[Block]
    answers: int
    k: int | None = None

    @property
    def sizes(self) -> Array:
        return np.array([sum(block.size for block in self.blocks if name in block.members) for name in MEMBERS])

    @property
    def scores(self) -> Array:
        """The score of a document by its right answers: their share, or pass@k."""
        return np.array([_score(count, self.answers, self.k) for count in range(self.answers + 1)])


def _score(right: int, answers: int, k: int | None) -> float:
    """The share that is right; or the chance that k of the answers hold a right one, as a product."""
    if k is None:
        return right / answers
    return 1.0 - math.prod(max(0, answers - right - i) / (answers - i) for i in range(k))


def world(clustering: str, n: int, p: float, *, of_k: bool = False) -> World:
    """A world of five members around p. Answers are 1 (right or wrong), 64 for repeats, 8 where pass@k is asked for."""
    answers = 64 if clustering == "repeats" else 8 if of_k else 1
    empty = World(clustering, (), answers, (8 if answers == 64 else 4) if of_k else None)
    rates = [_rates(1 / (1 + math.exp(-math.log(p / (1 - p)) - apart)), empty) for apart in APART]
    sizes = [round(n * times) for times in SIZES]
    blocks = [
        Block(name, 0, size, *_outcomes([rate], answers))
        for name, size, rate in zip(MEMBERS, sizes, rates, strict=True)
    ]
    if clustering == "shared":  # all documents of a are in b too
        both = Block("ab", 0, sizes[0], *_outcomes(rates[:2], answers))
        blocks[:2] = [both, replace(blocks[1], first=sizes[0], size=sizes[1] - sizes[0])]
    return replace(empty, blocks=tuple(blocks))


def _rates(p: float, like: World) -> Array:
    """How often a document is answered right, from the hardest to the easiest, so that the expected score is p."""
    places = (np.arange(500) + 0.5) / 500
    if like.answers == 1:
        return (places > 1 - p).astype(float)
    low, high = -40.0, 40.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        rates = 1 / (1 + np.exp(-middle - 2 * np.log(places / (1 - places))))
        low, high = (middle, high) if (_chances(rates, like.answers) @ like.scores).mean() < p else (low, middle)
    return rates


def _chances(rates: Array, answers: int) -> Array:
    """For each rate how likely each number of right answers is."""
    ways = np.array([math.comb(answers, count) for count in range(answers + 1)], dtype=float)
    counts = np.arange(answers + 1)
    return ways * rates[:, None] ** counts * (1 - rates[:, None]) ** (answers - counts)


def _outcomes(rates: Sequence[Array], answers: int) -> tuple[Array, Array]:
    """The chances of all outcomes of a document, and its right answers in each, for one member or two."""
    each = [_chances(rate, answers) for rate in rates]
    if len(each) == 1:
        return each[0].mean(axis=0), np.arange(answers + 1)[:, None]
    alike = each[0].T @ each[1] / len(rates[0])
    chances = TOGETHER * alike + (1 - TOGETHER) * np.outer(each[0].mean(axis=0), each[1].mean(axis=0))
    return chances.ravel(), np.stack(np.indices(chances.shape), axis=-1).reshape(-1, 2)


def expected(world: World) -> Array:
    """The members' true numbers, as a row."""
    sums = np.zeros(len(MEMBERS))
    for block in world.blocks:
        sums[[MEMBERS.index(name) for name in block.members]] += block.size * (
            block.chances @ world.scores[block.right]
        )
    return (sums / world.sizes)[None, :]


def drawn(world: World, draws: int, random: np.random.Generator) -> Array:
    """The members' numbers over so many draws of all documents: a row for each."""
    sums = np.zeros((draws, len(MEMBERS)))
    for block in world.blocks:
        counts = random.multinomial(block.size, block.chances / block.chances.sum(), size=draws)
        sums[:, [MEMBERS.index(name) for name in block.members]] += counts @ world.scores[block.right]
    return sums / world.sizes


def data_set(world: World, random: np.random.Generator) -> dict[str, dict[str, float]]:
    """The numbers of every member for one draw of documents, computed as a run computes them."""
    columns = {name: ScoreColumn(repeats=[] if world.k else None) for name in MEMBERS}
    answers = [(1.0,) * count + (0.0,) * (world.answers - count) for count in range(world.answers + 1)]
    for block in world.blocks:
        result = random.choice(len(block.chances), size=block.size, p=block.chances / block.chances.sum())
        for place, name in enumerate(block.members):
            column, right = columns[name], block.right[result, place]
            column.values += (right / world.answers).tolist()
            column.documents += array("q", range(block.first, block.first + block.size))
            if column.repeats is not None:
                column.repeats += [answers[count] for count in right.tolist()]
    return {name: _numbers(name, column, world) for name, column in columns.items()}


def _numbers(name: str, column: ScoreColumn, world: World) -> dict[str, float]:
    source = "ab" if world.clustering == "shared" and name in "ab" else name
    board = Board(columns={ScoreKey("acc", "none"): column})
    [result] = board.estimates(lambda _: AGGREGATIONS["mean"], bootstrap_iters=1, source=source).values()
    return {"acc,none": EstimatedFloat(result), "samples": result.n}


class Leaf:
    """A task, as far as groups are concerned."""

    def __init__(self, name: str) -> None:
        self.name = name

    def add_to_group(self, group: object) -> None:
        """Unused here."""

    def add_tag(self, tag: str) -> None:
        """Unused here."""


def shares(world: World) -> Array:
    """What the members of the group are in terms of the tasks: themselves, or the inner groups' means by size."""
    if world.clustering != "nested":
        return np.eye(len(MEMBERS))
    inner = [[world.sizes[MEMBERS.index(task)] * (task in tasks) for task in MEMBERS] for tasks in CHILDREN.values()]
    rows = [np.array(row) / sum(row) for row in inner]
    return np.array([*rows, *np.eye(len(MEMBERS))[3:]])


def member_sizes(world: World) -> Array:
    if world.clustering != "nested":
        return world.sizes
    inner = [sum(world.sizes[MEMBERS.index(task)] for task in tasks) for tasks in CHILDREN.values()]
    return np.array([*inner, *world.sizes[3:]])


def member_names(world: World) -> list[str]:
    return [*CHILDREN, *MEMBERS[3:]] if world.clustering == "nested" else list(MEMBERS)


Truth = Callable[[Array, Array], Array]
TRUTHS: dict[str, Truth] = {
    "mean by size": lambda x, sizes: x @ (sizes / sizes.sum()),
    "mean unweighted": lambda x, _: x.mean(axis=1),
    "harmonic mean": lambda x, _: _above_zero(x, lambda y: 1 / np.mean(1 / y, axis=1)),
    "geometric mean": lambda x, _: _above_zero(x, lambda y: np.exp(np.mean(np.log(y), axis=1))),
    "median": lambda x, _: np.median(x, axis=1),
    "difference": lambda x, _: x[:, 0] - x[:, 1],
    "weighted sum": lambda x, _: x @ np.array(WEIGHTS[: x.shape[1]]),
}
"""The number of a group from those of its members, row by row, written once more and without assay."""
PASS_AT_K: dict[str, Truth] = {"pass@k": TRUTHS["mean by size"]}


def _above_zero(x: Array, compute: Callable[[Array], Array]) -> Array:
    """NaN where a member is 0: there the number is not defined."""
    return np.where((x > 0).all(axis=1), compute(np.where(x > 0, x, 1.0)), np.nan)


def truths(world: World) -> Mapping[str, Truth]:
    return PASS_AT_K if world.k else TRUTHS


def true_numbers(world: World, members: Array) -> dict[str, Array]:
    """Each aggregator's number for rows of the tasks' numbers."""
    own, sizes = members @ shares(world).T, member_sizes(world)
    return {name: compute(own, sizes) for name, compute in truths(world).items()}


def entries(world: World) -> list[AggMetricConfig]:
    names = member_names(world)
    levels = "children" if world.clustering == "nested" else "leaves"
    every: dict[str, dict[str, Any]] = {
        "mean by size": {"aggregation": "mean"},
        "mean unweighted": {"aggregation": "mean", "weight_by_size": False},
        "harmonic mean": {"aggregation": "harmonic_mean"},
        "geometric mean": {"aggregation": "geometric_mean"},
        "median": {"aggregation": "median"},
        "difference": {"aggregation": "difference", "kwargs": {"of": names[:2]}},
        "weighted sum": {
            "aggregation": "weighted_sum", "kwargs": {"weights": dict(zip(names, WEIGHTS, strict=False))}
        },
        "pass@k": {"aggregation": "pass@k", "metric": "pass@k", "kwargs": {"k": world.k, "of": "acc"}},
    }  # fmt: skip
    return [
        AggMetricConfig(**{"metric": "acc", "name": name, "levels": levels, **every[name]}) for name in truths(world)
    ]


@lru_cache
def _groups(clustering: str, k: int | None) -> "GroupManager[Leaf]":
    like = World(clustering, (), 1, k)
    manager: GroupManager[Leaf] = GroupManager()
    leaves = {name: Leaf(name) for name in MEMBERS}
    inner = AggMetricConfig(metric="acc")
    if k:
        inner = AggMetricConfig(metric="pass@k", aggregation="pass@k", kwargs={"k": k, "of": "acc"})
    group: StandardGroup[Leaf] = StandardGroup(GroupConfig(group="g", aggregate_metric_list=entries(like)))
    if clustering == "nested":
        for name, tasks in CHILDREN.items():
            child: StandardGroup[Leaf] = StandardGroup(GroupConfig(group=name, aggregate_metric_list=[inner]), group)
            manager.register_group(child)
            for task in tasks:
                child.add_child(leaves[task])
    for name in member_names(like):
        if name in leaves:
            group.add_child(leaves[name])
    manager.register_group(group)
    return manager


def group_estimates(world: World, results: Mapping[str, Mapping[str, float]]) -> dict[str, Estimate]:
    """Each aggregator's number with its error, as assay has it."""
    result = _groups(world.clustering, world.k).compute_all_group_metrics(results)["g"]
    return {key.partition(",")[0]: value.estimate for key, value in result.items() if isinstance(value, EstimatedFloat)}
