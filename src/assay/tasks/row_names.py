"""The rows that a task will have: two of one name, and names that results read otherwise, are refused before any request."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from assay.config.row_names import filter_name_problem, row_name_problem
from assay.errors import ConfigError, Place, Problem
from assay.scoring.results import Metric
from assay.scoring.scorer import Scorer

T = TypeVar("T")


class Bound(NamedTuple):
    """A filter with its scorer and metrics; `place` says where the n-th entry of its metric_list is written."""

    name: str
    at: Place
    scorer: Scorer
    metrics: Sequence[Metric]
    place: Callable[..., Place]
    scorer_at: Place


def check_rows(filters: Sequence[Bound]) -> None:
    """Refuse filters and rows that cannot be told apart, all of them at once."""
    problems = [
        *_doubled(((each.name, each.at) for each in filters), "filter"),
        *(Problem(each.at, f"a filter cannot be named {each.name!r}: {wrong[0]}", wrong[1])
          for each in filters if (wrong := filter_name_problem(each.name)) is not None),
        *(problem for each in filters for problem in _row_problems(each)),
        *_directions(filters),
    ]  # fmt: skip
    if problems:
        raise ConfigError(problems)


def last_of_each(metrics: Iterable[Metric]) -> list[Metric]:
    """Metrics of different names: of two with one name the later, as in lm-eval."""
    return list({metric.name: metric for metric in metrics}.values())


def _row_problems(bound: Bound) -> Iterator[Problem]:
    rows = list(_rows(bound))
    yield from _doubled(rows, "row")
    for name, place in rows:
        wrong = row_name_problem(name)
        if wrong is not None:
            yield Problem(place, f"a row cannot be named {name!r}: {wrong[0]}", wrong[1])


def _rows(bound: Bound) -> Iterator[tuple[str, Place]]:
    """The rows of a filter that are known now, each with where it comes from."""
    for number, metric in enumerate(bound.metrics):
        for name in metric.gives or (metric.name,):
            yield name, bound.place(number, "metric")
        for name in metric.reductions.added:
            yield name, bound.place(number, "reduction")
    for name in bound.scorer.rows() or ():
        yield name, bound.scorer_at


def _doubled(named: Iterable[tuple[str, Place]], what: str) -> Iterator[Problem]:
    """Names that come twice, with both places."""
    seen: dict[str, Place] = {}
    for name, place in named:
        if name in seen:
            fix = (
                "rename one of them"
                if what == "filter"
                else "leave one out, rename its function, or give it a filter of its own"
            )
            yield Problem(place, f"two {what}s are named {name!r}: the other one is at {seen[name]}", fix)
        seen.setdefault(name, place)


def _directions(filters: Sequence[Bound]) -> Iterator[Problem]:
    """Metrics of one name of which more is better in one filter and less in another: results say it once for both."""
    seen: dict[str, tuple[bool, Place]] = {}
    for bound in filters:
        for number, metric in enumerate(bound.metrics):
            if metric.higher_is_better is None:
                continue
            place = bound.place(number, "metric")
            better, first = seen.setdefault(metric.name, (metric.higher_is_better, place))
            if better != metric.higher_is_better:
                what = f"higher_is_better of {metric.name!r} is {metric.higher_is_better}, and {better} at {first}"
                yield Problem(place, what, "say the same of both, or rename one of the metrics")
