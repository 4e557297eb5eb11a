"""Aggregators: a group's numbers from those of its members, each with the standard error of just that number."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from assay.config.group import AggMetricConfig, GroupConfig
from assay.errors import ConfigError, Place, Problem, collect, did_you_mean, some
from assay.groups.group import Group, TaskT
from assay.groups.pooled_means import pooled_means
from assay.groups.rows import GroupRow, MemberSelection, filters_asked, member_names, rows
from assay.groups.task_results import (
    NONE,
    EstimatedFloat,
    MemberRows,
    Members,
    Rows,
    TaskResults,
    add_rows,
    as_estimate,
    as_float,
    guarded,
    known_floats,
    user_rows,
)
from assay.records import Function, UserFunction, UserValue
from assay.redaction import reveal
from assay.registry import AdaptedMembers, RegistryWithOthers, subclass_of
from assay.score_keys import ScoreKey, metric_name_problem
from assay.signatures import Accepted, accepted, dress, parameter_problems
from assay.statistics.aggregations import AGGREGATIONS, Aggregation
from assay.statistics.evidence import NO_EVIDENCE, Estimate, with_evidence
from assay.statistics.members import (
    difference,
    geometric_mean,
    greatest,
    harmonic_mean,
    least,
    mean_by_weight,
    mean_of_scores,
    middle,
    weighted_sum,
)
from assay.statistics.pass_at_k import pass_at_k
from assay.statistics.spread import MemberEstimate, smooth, unknown
from assay.user_code import is_overridden

BIASED = "the members were chosen by their scores: the number is biased and has no standard error"


class Aggregator(ABC):
    """Computes a group's numbers. `strict`: a member without the metric leaves the row without a number."""

    strict = False

    def __init__(self, config: GroupConfig) -> None:
        self.config = config
        self.agg_metric_configs: Sequence[AggMetricConfig] = tuple(config.aggregate_metric_list or ())

    @abstractmethod
    def aggregate(self, group: Group[Any], task_results: TaskResults) -> dict[str, float]:
        """The rows of the group by `metric,filter`; those that have no number are absent."""

    def estimates(self, group: Group[TaskT], members: Members) -> dict[ScoreKey, Estimate]:
        """The rows of the group, also those that have no number, each with the reason."""
        return user_rows(self.aggregate(group, members.results()), members, group.config.rules)

    def check(self, names: Sequence[str]) -> tuple[str, str] | None:  # noqa: ARG002  # subclasses that can check override it
        """The problem with these members and its fix, where it is known before a run."""
        return None

    def of_entry(self, number: int) -> "Aggregator":  # noqa: ARG002  # AggregatorList overrides it
        """The one that computes an entry of the list."""
        return self


class NoOpAggregator(Aggregator):
    """For a group without numbers."""

    def aggregate(self, group: Group[TaskT], task_results: TaskResults) -> dict[str, float]:  # noqa: ARG002
        return {}


class CustomAggregator(Aggregator):
    """A user's function: it takes the group and the results, and returns rows or one number."""

    def __init__(self, config: GroupConfig, agg_fn: UserFunction, **kwargs: UserValue) -> None:
        super().__init__(config)
        self.agg_fn, self.kwargs = agg_fn, kwargs

    def aggregate(self, group: Group[TaskT], task_results: TaskResults) -> dict[str, float]:
        value_or_rows = self.agg_fn(group, task_results, **self.kwargs)
        if isinstance(value_or_rows, Mapping):
            return {str(key): user_number(value) for key, value in value_or_rows.items()}
        entries = self.agg_metric_configs or [AggMetricConfig(metric="value")]
        return {str(ScoreKey(entry.row_metric, NONE)): user_number(value_or_rows) for entry in entries}


def user_number(value: Any) -> float:
    """The number that a user's function returned; what float() refuses is an error of the function."""
    own = as_float(value)
    return own if isinstance(own, EstimatedFloat) else float(own)


class TypedAggregator(Aggregator):
    """Computes estimates. Their names and floats are for the code of users, which may call `aggregate`, or replace it."""

    @abstractmethod
    def compute(self, group: Group[TaskT], members: Members) -> dict[ScoreKey, Estimate]:
        """The rows of the group, also those that have no number, each with the reason."""

    def aggregate(self, group: Group[TaskT], task_results: TaskResults) -> dict[str, float]:
        return known_floats(group.name, self.compute(group, Members(task_results)))

    def estimates(self, group: Group[TaskT], members: Members) -> dict[ScoreKey, Estimate]:
        if is_overridden(self, "aggregate", TypedAggregator):
            return super().estimates(group, members)
        return self.compute(group, members)


class AggregatorList(TypedAggregator):
    """One aggregator for each entry of the list."""

    def __init__(self, config: GroupConfig, aggregators: Sequence[Aggregator]) -> None:
        super().__init__(config)
        self.aggregators = aggregators

    def compute(self, group: Group[TaskT], members: Members) -> dict[ScoreKey, Estimate]:
        numbers: dict[ScoreKey, Estimate] = {}
        for aggregator in self.aggregators:
            aggregator.strict = self.strict
            names = [entry.row_metric for entry in aggregator.agg_metric_configs]
            add_rows(numbers, guarded(partial(aggregator.estimates, group, members), names), group.config.rules)
        return numbers

    def of_entry(self, number: int) -> Aggregator:
        return self.aggregators[number]


def has_methods_set(aggregator: Aggregator) -> bool:
    """Whether a user set a method on an aggregator, or on one of those that it consists of."""
    own = any(callable(getattr(type(aggregator), name, None)) for name in vars(aggregator))
    return own or any(has_methods_set(part) for part in getattr(aggregator, "aggregators", ()))


def follows_entries(aggregator: Aggregator) -> bool:
    """Whether an aggregator makes the rows of the entries of its configuration, and no others."""
    return isinstance(aggregator, TypedAggregator) and not is_overridden(aggregator, "aggregate", TypedAggregator)


class RowAggregator(TypedAggregator):
    """Computes row by row. A subclass overrides `combine`, which is given the members that have a number."""

    by_size = False
    """Whether members count by size where an entry says nothing."""

    @abstractmethod
    def combine(self, members: Sequence[MemberEstimate], weights: Sequence[float]) -> Estimate:
        """The number of a row."""

    def compute(self, group: Group[TaskT], members: Members) -> dict[ScoreKey, Estimate]:
        numbers: dict[ScoreKey, Estimate] = {}
        selection = MemberSelection.of(group.config)
        names_by_level = {
            entry.levels: selection.names(member_names(group, entry)) for entry in self.agg_metric_configs
        }
        members_by_level = {level: members.of(names) for level, names in names_by_level.items()}
        for entry in self.agg_metric_configs:
            known = self.derived(entry, members_by_level[entry.levels])
            computed = rows(entry, names_by_level[entry.levels], known)
            group_rows = [row for row in computed if row.members or entry.missing == "error"]
            numbers |= {ScoreKey(entry.row_metric, row.filter): self._number(group, entry, row) for row in group_rows}
            named = entry.filters is None or len(entry.filters) > 0
            if not group_rows and named and self.strict and entry.missing != "skip":
                lost = unknown(None, (), f"no member has {entry.metric_name!r}")
                numbers[ScoreKey(entry.row_metric, NONE)] = lost
        return numbers

    def derived(self, entry: AggMetricConfig, known: Mapping[str, MemberRows]) -> Mapping[str, MemberRows]:  # noqa: ARG002
        """The rows of members, with those that follow from them."""
        return known

    def _number(self, group: Group[TaskT], entry: AggMetricConfig, row: GroupRow) -> Estimate:
        strict = entry.missing == "error" or (self.strict and entry.missing is None)
        if row.missing and strict:
            return unknown(None, row.members, f"{some(row.missing)}: no {entry.metric_name!r} of filter {row.filter!r}")
        present = [member for member in row.members if member.estimate.value is not None]
        lost = next((member for member in row.members if member.estimate.value is None), None)
        if lost is not None and (entry.missing != "skip" or not present):
            return unknown(None, present, f"{lost.name}: {lost.estimate.reason or 'it is not a number'}")
        better = entry.higher_is_better
        better = group.directions.get(entry.metric_name) is not False if better is None else better
        chosen = MemberSelection.of(group.config).best(present, higher_is_better=better)
        if not chosen:
            return unknown(None, (), "no member has a number")
        by_size = self.by_size if entry.by_size is None else entry.by_size
        combined = self.combine(chosen, [member.size if by_size else 1.0 for member in chosen])
        number = as_estimate(combined, sum(member.estimate.n for member in chosen), partial(_member_of, chosen))
        if len(chosen) < len(present):
            names = [member.name for member in chosen]
            number = with_evidence(unknown(number.value, chosen, f"{BIASED} (of {some(names)})"), chosen=names)
        without_value = [member.name for member in row.members if member.estimate.value is None]
        missing = (*row.missing, *without_value)
        return with_evidence(number, missing=missing) if missing else number


def _member_of(members: Sequence[MemberEstimate], number: Estimate) -> tuple[str, Estimate] | None:
    """The member that a number, or the evidence behind it, is of; None where it is of none."""
    for member in members:
        own = member.estimate
        if own is number or (own.evidence is number.evidence and own.evidence is not NO_EVIDENCE):
            return member.name, own
    return None


class FunctionOfScores(RowAggregator, CustomAggregator):
    """A function as lm-eval calls it: with the members' values, their sizes, and whether these count."""

    def combine(self, members: Sequence[MemberEstimate], weights: Sequence[float]) -> Estimate:  # noqa: ARG002
        [entry] = self.agg_metric_configs
        values, sizes = [float(each.estimate) for each in members], [each.size for each in members]
        value = self.agg_fn(values, sizes, entry.by_size is not False, **self.kwargs)
        return as_estimate(user_number(value), int(sum(sizes)))


@dataclass(frozen=True, slots=True)
class MemberAggregation:
    """The declaration of a number of a group: a function of the members and their weights, whose keyword parameters are keys
    of a file."""

    function: Callable[..., Estimate]
    weighs: bool = False
    """Whether the function reads the weights."""
    check: Callable[..., tuple[str, str] | None] | None = None
    """Takes the names of the members and the parameters; returns the problem with them, and its fix."""


class FunctionAggregator(RowAggregator):
    """Computes rows by the function that its class declares, with the parameters of the entry."""

    declared: ClassVar[MemberAggregation]

    def __init__(self, config: GroupConfig, **params: UserValue) -> None:
        super().__init__(config)
        about = f"aggregator {type(self).__name__!r}"
        problems = parameter_problems(self.declared.function, params, about, Place(f"group {config.group!r}"), 2)
        if problems:
            raise ConfigError(problems)
        self.params = params

    def combine(self, members: Sequence[MemberEstimate], weights: Sequence[float]) -> Estimate:
        return self.declared.function(members, weights, **self.params)

    def check(self, names: Sequence[str]) -> tuple[str, str] | None:
        if not self.declared.weighs and any(entry.by_size for entry in self.agg_metric_configs):
            return "this aggregation does not weight members by size", "remove `weight_by_size`"
        return self.declared.check(names, **self.params) if self.declared.check is not None else None


class MeanAggregator(FunctionAggregator):
    """The mean: by size (micro) unless an entry says `weight_by_size: false` (macro)."""

    declared = MemberAggregation(mean_by_weight, weighs=True)
    by_size = True


class HarmonicMeanAggregator(FunctionAggregator):
    """The harmonic mean: low members pull it down. There is none where a member is 0 or less."""

    declared = MemberAggregation(harmonic_mean, weighs=True)


class GeometricMeanAggregator(FunctionAggregator):
    """The geometric mean. There is none where a member is 0 or less."""

    declared = MemberAggregation(geometric_mean, weighs=True)


class MedianAggregator(FunctionAggregator):
    """The middle member; its spread over resampled documents."""

    declared = MemberAggregation(middle)


class MinAggregator(FunctionAggregator):
    """The least of the members."""

    declared = MemberAggregation(least)


class MaxAggregator(FunctionAggregator):
    """The greatest of the members."""

    declared = MemberAggregation(greatest)


def check_difference(names: Sequence[str], *, of: Sequence[str] | None = None) -> tuple[str, str] | None:
    """Find a difference that is not of two members."""
    if of is not None and (isinstance(of, str) or len(of) != 2):
        return "`of` takes the names of two members", f"write `of: [{', '.join(names[:2])}]`"
    unknown_names = [name for name in of or () if name not in names]
    if unknown_names:
        return f"no member named {unknown_names[0]!r}", did_you_mean(unknown_names[0], names)
    if of is not None or len(names) == 2:
        return None
    what = f"a difference takes two members, and the group has {len(names)}"
    return what, f"add `kwargs: {{of: [{', '.join([*names, 'b'][:2])}]}}`"


class DifferenceAggregator(FunctionAggregator):
    """One member minus another: the two of the group, or those that `of` names."""

    declared = MemberAggregation(difference, check=check_difference)


def sum_by_name(
    members: Sequence[MemberEstimate],
    sizes: Sequence[float],  # noqa: ARG001
    *,
    weights: Mapping[str, float],
    normalize: bool = False,
) -> Estimate:
    """The sum of the members, each times the weight of its name."""
    weight_of = {str(name): float(weight) for name, weight in weights.items()}
    without = [member.name for member in members if member.name not in weight_of]
    if without:
        return unknown(None, members, f"no weight is given for {', '.join(without[:3])}")
    return weighted_sum(members, [weight_of[member.name] for member in members], normalize=normalize)


def check_weights(
    names: Sequence[str],
    *,
    weights: Mapping[str, float],
    normalize: bool = False,  # noqa: ARG001
) -> tuple[str, str] | None:
    """Find members without a weight, and weights without a member."""
    given = [str(name) for name in weights]
    without = [name for name in names if name not in given]
    unknown_names = [name for name in given if name not in names]
    if unknown_names:
        return f"weights: no member named {unknown_names[0]!r}", did_you_mean(unknown_names[0], names)
    fix = f"add `{without[0]}: 1.0` to its weights" if without else ""
    return (f"no weight is given for {some(without)}", fix) if without else None


class WeightedSumAggregator(FunctionAggregator):
    """The sum of the members, each times its weight; with `normalize`, over the sum of the weights."""

    declared = MemberAggregation(sum_by_name, check=check_weights)


STEP = 1e-5
"""Part of a number by which it is moved to find the slope: rounding and curvature are both below 1e-9 then."""


def of_values(name: str, aggregation: Aggregation) -> type[Aggregator] | None:
    """The aggregator that applies an aggregation of scores to the members' numbers; None for one that takes other values."""
    if not aggregation.of_numbers and name not in AGGREGATIONS.added:
        return None

    def combine(members: Sequence[MemberEstimate], weights: Sequence[float], **params: UserValue) -> Estimate:  # noqa: ARG001
        bound = aggregation.bound(params)
        numbers = [float(member.estimate) for member in members]
        value = as_estimate(bound.function(numbers), sum(member.size for member in members))
        if value.value is None or bound.influence is None:
            return value if value.value is None else replace(value, reason=f"{name!r} declares no influence")
        slopes = []  # by each member, as the aggregation is smooth: it says how far a value moves it
        for place, number in enumerate(numbers):
            step = STEP * max(abs(number), STEP)
            above, below = ([*numbers[:place], number + by, *numbers[place + 1 :]] for by in (step, -step))
            slopes.append((bound.function(above) - bound.function(below)) / (2 * step))
        return smooth(value.value, members, slopes)

    function = dress(combine, aggregation.function, [AGGREGATIONS.accepts(aggregation)], ("members", "weights"))
    return type(name, (FunctionAggregator,), {"declared": MemberAggregation(function), "__doc__": function.__doc__})


class PooledMeanAggregator(TypedAggregator):
    """The means of a group whose rules say that they are pooled, as lm-eval's are. It has no name in files."""

    def compute(self, group: Group[TaskT], members: Members) -> dict[ScoreKey, Estimate]:
        tasks = [task.name for task in group.get_all_tasks()]
        return pooled_means(self.agg_metric_configs, tasks, members.of(tasks))


class PassAtKAggregator(MeanAggregator):
    """pass@k: per problem from the scores of its answers, then the mean over problems.

    `metric` names the row; `of` is the metric whose answers are counted, right where they score 1. Members that have a
    row of that name already are averaged.
    """

    def __init__(self, config: GroupConfig, k: int = 1, of: str = "exact_match") -> None:
        super().__init__(config)
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ValueError(f"k must be an integer of at least 1, got {k!r}")
        self.k, self.of = k, of

    def derived(self, entry: AggMetricConfig, known: Mapping[str, MemberRows]) -> Mapping[str, MemberRows]:
        return {name: member._replace(rows=self._with_counted(entry, member.rows)) for name, member in known.items()}

    def _with_counted(self, entry: AggMetricConfig, own: Rows) -> Rows:
        counted = {
            ScoreKey(entry.metric_name, key.filter): self._of_repeats(value)
            for key, value in own.items()
            if key.metric == self.of
        }
        return {**own, **counted, **{key: value for key, value in own.items() if key.metric == entry.metric_name}}

    def _of_repeats(self, value: Estimate) -> Estimate:
        import numpy as np

        repeats = value.evidence.repeats or ()
        few = min(map(len, repeats), default=1)
        if few < self.k:
            answers = "1 answer" if few == 1 else f"{few} answers"
            reason = f"{answers} to a problem, and pass@{self.k} needs {self.k}"
            return Estimate(None, None, value.n, reason)
        if not repeats:
            return value  # one answer to each problem: the share of right ones
        scores = np.array([pass_at_k(len(each), sum(score >= 1 for score in each), self.k) for each in repeats])
        return mean_of_scores(scores, value)


class _Aggregators(RegistryWithOthers[type[Aggregator], Aggregator, Aggregation]):
    def accepts(self, member: UserFunction) -> Accepted:
        if getattr(member, "__init__", None) is FunctionAggregator.__init__:
            declared: MemberAggregation = member.declared  # type: ignore[attr-defined]  # a class of these
            return accepted(declared.function, 2)
        return super().accepts(member)


AGGREGATORS = _Aggregators(
    "aggregator",
    {
        "mean": MeanAggregator,
        "harmonic_mean": HarmonicMeanAggregator,
        "geometric_mean": GeometricMeanAggregator,
        "median": MedianAggregator,
        "min": MinAggregator,
        "max": MaxAggregator,
        "difference": DifferenceAggregator,
        "weighted_sum": WeightedSumAggregator,
        "pass@k": PassAtKAggregator,
        "none": NoOpAggregator,
    },
    AdaptedMembers(AGGREGATIONS, of_values),
    group="assay.aggregators",
    supplied=("config",),
    adopt=subclass_of(Aggregator),
)

Places = Callable[..., Place]
"""The place of an entry by its number, or of a key in it."""


def register_aggregator(name: str) -> Callable[[type[Aggregator]], type[Aggregator]]:
    """Have a class known by a name in YAML."""
    return AGGREGATORS.register(name)


class AggregatorFactory:
    """Makes the aggregator that a group's configuration describes."""

    @staticmethod
    def create_aggregator(config: GroupConfig, place: Places | None = None) -> Aggregator:
        """One for the whole list where all its entries are alike; else one for each. Every problem is reported at once."""
        entries = tuple(config.aggregate_metric_list or ())
        if not entries:
            return NoOpAggregator(config)
        if config.rules.means == "pooled":
            return PooledMeanAggregator(config)
        where = place or partial(_place_of_entry, config)
        problems: list[Problem] = []
        made = AggregatorFactory.of_entries(config, where, problems)
        problems += row_problems(config, where)
        if problems:
            raise ConfigError(problems)
        aggregators = [aggregator for aggregator in made if aggregator is not None]
        first, kinds = aggregators[0], {(entry.aggregation, repr(reveal(entry.kwargs))) for entry in entries}
        # a function of scores is given those of one entry
        if len(kinds) > 1 or (isinstance(first, FunctionOfScores) and len(entries) > 1):
            return AggregatorList(config, aggregators)
        first.config, first.agg_metric_configs = config, entries
        return first

    @staticmethod
    def of_entries(config: GroupConfig, place: Places | None, problems: list[Problem]) -> list[Aggregator | None]:
        """One for each entry; None for an entry with which something is wrong, or whose function is not loaded."""
        if config.rules.means == "pooled":
            return [PooledMeanAggregator(config)] * len(config.aggregate_metric_list or ())
        where = place or partial(_place_of_entry, config)
        made: list[Aggregator | None] = []
        for number, entry in enumerate(config.aggregate_metric_list or ()):
            alone = replace(config, aggregate_metric_list=(entry,))
            is_loaded = not isinstance(entry.aggregation, Function)
            made.append(collect(problems, _one, alone, entry, partial(where, number)) if is_loaded else None)
        return made


def _one(config: GroupConfig, entry: AggMetricConfig, place: Places) -> Aggregator:
    """The aggregator of one entry, with its parameters."""
    kwargs = dict(entry.kwargs or {})
    aggregation: Any = entry.aggregation

    def at(key: str) -> Place:
        return place("kwargs", key) if key else place("aggregation")

    if isinstance(aggregation, str) or (inspect.isclass(aggregation) and issubclass(aggregation, Aggregator)):
        return AGGREGATORS.bind(aggregation, kwargs, at, config)
    kind = FunctionOfScores if "weight_by_size" in accepted(aggregation, 2).named else CustomAggregator
    supplied = 3 if kind is FunctionOfScores else 2
    name = getattr(aggregation, "__name__", "function")
    problems = parameter_problems(aggregation, kwargs, f"aggregator {name!r}", at, supplied)
    if problems:
        raise ConfigError(problems)
    return kind(config, aggregation, **kwargs)


def _place_of_entry(config: GroupConfig, number: int, *_: str) -> Place:
    return Place(f"group {config.group!r}, aggregate_metric_list[{number}]")


def row_problems(config: GroupConfig, place: Places) -> Iterator[Problem]:
    """Entries that make the same row, of which one would overwrite the other, or a row that results read otherwise."""
    entries = config.aggregate_metric_list or ()
    for number, entry in enumerate(entries):
        wrong = metric_name_problem(entry.row_metric) if config.rules.row_names == "checked" else None
        if wrong is not None:
            yield Problem(place(number), f"a row cannot be named {entry.row_metric!r}: {wrong[0]}", wrong[1])
        first = next((n for n, other in enumerate(entries[:number]) if _make_one_row(other, entry)), None)
        if first is not None and config.rules.equal_rows == "error":
            what = f"two entries make the row {entry.row_metric!r}: the other one is at {place(first)}"
            yield Problem(place(number), what, "give one of them a `name`")


def _make_one_row(one: AggMetricConfig, other: AggMetricConfig) -> bool:
    """Whether two entries make rows of one name, of the same filter or of filters that only a run will show."""
    if one.row_metric != other.row_metric or not one.filters or not other.filters:
        return one.row_metric == other.row_metric
    if isinstance(one.filters, Mapping) or isinstance(other.filters, Mapping):
        return one.filters == other.filters
    return not set(filters_asked(one)).isdisjoint(filters_asked(other))
