"""Reductions: the scores of a document's repeats to one; and what can be said of drawing k of them.

`pass@k`, `pass^k` and `maj@k` are averages over all ways to choose k of the n repeats, so that more repeats make them
sharper and not different.
"""

import math
import random
import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

from assay.errors import Place
from assay.records import Answers, MetricValue, UserFunction, UserValue, number
from assay.registry import Registry, must_be_callable
from assay.signatures import accepted, dress
from assay.statistics.aggregations import Repeated
from assay.statistics.influence import SHARE, Bounds, read_bounds
from assay.statistics.pass_at_k import pass_all_k, pass_at_k

Reduction = Callable[[Sequence[MetricValue], Answers], MetricValue]
"""The scores of a document's repeats, and the answers they are of, to one."""
SUBSETS = 2000
"""So many ways to choose k of n are looked at by `maj@k`: all of them where there are no more, else so many at random."""


def mean(scores: Sequence[MetricValue], answers: Answers = ()) -> MetricValue:  # noqa: ARG001  # the shape of a reduction
    """The mean; of scores that are mappings, key by key."""
    if isinstance(scores[0], Mapping):
        return {key: mean([score[key] for score in scores]) for key in scores[0]}
    return sum(scores) / len(scores)


def first(scores: Sequence[MetricValue], answers: Answers = ()) -> MetricValue:  # noqa: ARG001
    """The score of the first repeat."""
    return scores[0]


def greatest(scores: Sequence[MetricValue], answers: Answers = ()) -> MetricValue:  # noqa: ARG001
    """The greatest score."""
    return max(scores)


def least(scores: Sequence[MetricValue], answers: Answers = ()) -> MetricValue:  # noqa: ARG001
    """The least score."""
    return min(scores)


def median(scores: Sequence[MetricValue], answers: Answers = ()) -> MetricValue:  # noqa: ARG001
    """The middle score; of an even number, the mean of the two in the middle."""
    return statistics.median(scores)


def by_repeat(scores: Sequence[MetricValue], answers: Answers = ()) -> MetricValue:  # noqa: ARG001  # the shape of a reduction
    """The mean of numbers; anything else, of which an aggregation makes a number for each repeat, as it is."""
    if all(number(each) is not None for each in scores):
        return mean(scores)
    return Repeated(scores)


def pass_at(scores: Sequence[MetricValue], answers: Answers, *, k: int) -> float:  # noqa: ARG001
    """The probability that at least one of k answers is right.

    >>> round(pass_at([1, 0, 0, 0], [], k=2), 3)
    0.5
    """
    n, right = len(scores), _right(scores, f"pass@{k}")
    _enough(n, k, "pass@")
    return pass_at_k(n, right, k)


def pass_all(scores: Sequence[MetricValue], answers: Answers, *, k: int) -> float:  # noqa: ARG001
    """The probability that all of k answers are right.

    >>> pass_all([1, 1, 1, 0], [], k=2)
    0.5
    """
    n, right = len(scores), _right(scores, f"pass^{k}")
    _enough(n, k, "pass^")
    return pass_all_k(n, right, k)


def majority(scores: Sequence[MetricValue], answers: Answers, *, k: int) -> float:
    """The score of the answer that most of k say. Of answers that tie, the mean of their scores.

    >>> majority([1, 1, 0], ["a", "a", "b"], k=3)
    1.0
    >>> majority([1, 0], ["a", "b"], k=2)
    0.5
    """
    n = len(scores)
    _enough(n, k, "maj@")
    if len(answers) != n:
        raise ValueError(f"maj@{k} needs an answer for each of {n} scores, and there are {len(answers)}")
    keys = [repr(answer) for answer in answers]
    if comb(n, k) <= SUBSETS:
        subsets = list(combinations(range(n), k))
    else:
        draw = random.Random(n * 1000 + k)
        subsets = [tuple(draw.sample(range(n), k)) for _ in range(SUBSETS)]
    return sum(_vote(chosen, keys, scores) for chosen in subsets) / len(subsets)


USUAL_K = (1, 3, 5, 10, 20, 50, 100)


def pass_at_several(
    references: object,  # noqa: ARG001  # the shape of such reductions
    predictions: Sequence[MetricValue],
    *,
    k: int | list[int] | None = None,
) -> Mapping[str, float]:
    """pass@k for each of several k in place of the metric's row; by default 1, 3, 5, 10, …, and all answers.

    >>> pass_at_several("", [1, 0, 0, 0], k=[1, 4])
    {'pass@1': 0.25, 'pass@4': 1.0}
    """
    if k is None:
        n = len(predictions)
        parts = max(2, int(math.log10(n / 100)) * 3) if n > USUAL_K[-1] else 0  # as lm-eval 0.5 spaces those above 100
        beyond = (int(100 * (n / 100) ** (part / parts)) for part in range(1, parts))
        k = sorted({*(count for count in USUAL_K if count < n), *beyond, n})
    return {f"pass@{count}": pass_at(predictions, (), k=count) for count in ([k] if isinstance(k, int) else k)}


def _vote(chosen: Sequence[int], keys: Sequence[str], scores: Sequence[MetricValue]) -> float:
    votes = Counter(keys[at] for at in chosen)
    most = max(votes.values())
    winners = {key for key, count in votes.items() if count == most}
    by_key = {keys[at]: scores[at] for at in chosen if keys[at] in winners}
    return float(sum(by_key.values()) / len(by_key))


def _right(scores: Sequence[MetricValue], name: str) -> int:
    if not set(scores) <= {0, 1}:
        raise ValueError(f"{name} needs scores of 0 and 1, and there is {next(s for s in scores if s not in (0, 1))!r}")
    return int(sum(scores))


def _enough(n: int, k: int, name: str) -> None:
    if n < k:
        raise ValueError(f"{name}{k} needs {k} repeats, and there are {n}")


def _of_scores(function: UserFunction) -> Reduction:
    """A function of scores alone as a reduction, with its parameters."""

    def reduced(scores: Sequence[MetricValue], answers: Answers, **params: UserValue) -> MetricValue:  # noqa: ARG001
        return function(scores, **params)

    reduced.bounds = getattr(function, "bounds", None)  # type: ignore[attr-defined]
    return dress(reduced, function, [accepted(function, 1)], ("scores", "answers"))


def _adopted(name: str, thing: UserValue) -> Reduction:
    """A function of scores, or of scores and answers, as a reduction."""
    function: Callable[..., Any] = must_be_callable(name, thing)
    REDUCTIONS.refuse_shape(function, 1)
    if takes_references(function):
        return function
    takes, second = accepted(function, 2), next(iter(accepted(function, 1).named.values()), None)
    is_own = second is not None and second.default is not second.empty and second.name != "answers"
    return _of_scores(function) if takes.lacking or is_own or set(accepted(function, 1).named) <= {"k"} else function


REDUCTIONS: Registry[Callable[..., Any], Reduction] = Registry(
    "reduction",
    {
        "mean": mean,
        "take_first": first,
        "max": greatest,
        "min": least,
        "median": median,
        "pass@": pass_at,
        "pass@k": pass_at_several,
        "pass^": pass_all,
        "maj@": majority,
    },
    group="assay.reductions",
    supplied=("scores", "answers"),
    adopt=_adopted,
    build=partial,
)
"""Each adds a row of its name; the metric's own row is the mean. One that has a parameter `k` is written with a number
behind its name, `pass@4`."""
WITHIN = ("mean", "take_first", "max", "min", "median", "maj@")
"""Reductions that give a value between the least and the greatest score: they have the bounds of the metric."""
_COUNTED = re.compile(r"(.*\D)([1-9]\d*)")


@dataclass(frozen=True, slots=True)
class MetricReductions:
    """How the scores of repeats become one: for the metric's own row their mean, and for rows that are added beside it.

    `least` repeats are needed for all of them. `bounds` are those of added rows that have other ones than the metric: None where
    they are not known.
    """

    plain: Reduction = mean
    added: Mapping[str, Reduction] = field(default_factory=dict)
    least: int = 1
    bounds: Mapping[str, Bounds | None] = field(default_factory=dict)
    replacing: UserFunction | None = None
    """A function of references and scores, whose number, or numbers by name, are in place of the metric's row; its bounds are
    those of `""`."""


def takes_references(function: UserFunction) -> bool:
    """Whether a function reduces as those of lm-eval 0.5 do: of `references` and `predictions`, which are the scores."""
    return {"references", "predictions"} <= {*accepted(function).named}


def _read_replacing(written: UserValue) -> "partial[MetricValue] | None":
    """The function of references and scores that a file names alone: by its name, with parameters, or itself."""
    name: Any = written
    params: Any = {}
    if isinstance(written, Mapping) and len(written) == 1:
        [(name, params)] = written.items()
    function = REDUCTIONS[name] if isinstance(name, str) and name in REDUCTIONS else name
    if not callable(function) or not isinstance(params, Mapping) or not takes_references(function):
        return None
    known = accepted(function)
    known = replace(
        known, named={key: each for key, each in known.named.items() if key not in ("references", "predictions")}
    )
    problems = REDUCTIONS.problems(str(getattr(name, "__name__", name)), known, params, Place("reduction"))
    if problems:
        raise ValueError(problems[0].what)
    return partial(function, **params)


def read_reductions(written: UserValue) -> MetricReductions:
    """The reductions that a metric names: one, a list, or a mapping of rows to reductions. Invalid ones raise a ValueError.

    One of references and scores stands alone; `{pass@k: {k: [1, 5]}}` gives it parameters.
    """
    if written is None:
        return MetricReductions()
    replacing = _read_replacing(written)
    if replacing is not None:
        k = replacing.keywords.get("k") if replacing.func is pass_at_several else None
        counts = k if isinstance(k, list | tuple) else [1 if k is None else k]
        if min(counts, default=0) < 1:
            raise ValueError(f"reduction 'pass@k': k must be 1 or more, got {k!r}")
        return MetricReductions(replacing=replacing, least=max(counts), bounds={"": _bounds_of(replacing.func)})
    if isinstance(written, Mapping):
        named = {str(row): _read(each) for row, each in written.items()}
    else:
        listed = [_read(each) for each in (written if isinstance(written, list | tuple) else [written])]
        named = {each.row: each for each in listed}
        if len(named) < len(listed):
            raise ValueError("names a reduction twice")
    return MetricReductions(
        added={row: each.reduce for row, each in named.items()},
        least=max((each.least for each in named.values()), default=1),
        bounds={row: each.bounds for row, each in named.items() if each.name not in WITHIN},
    )


class _NamedReduction(NamedTuple):
    """A reduction with the row it makes, the name it is registered under, its own bounds, and how many repeats it needs."""

    row: str
    name: str
    reduce: Reduction
    bounds: Bounds | None = None
    least: int = 1


def _read(written: UserValue) -> _NamedReduction:
    if callable(written):
        return _NamedReduction(
            str(getattr(written, "__name__", "function")), "", _from_user(written), _bounds_of(written)
        )
    name, counted = str(written), _COUNTED.fullmatch(str(written))
    place = Place("reduction")
    if name in REDUCTIONS and takes_references(REDUCTIONS[name]):
        raise ValueError(f"reduction {name!r} is in place of the metric's row: name it alone")
    if name not in REDUCTIONS and counted is not None and counted[1] in REDUCTIONS:
        k = int(counted[2])
        reduction, bounds = REDUCTIONS.bind(counted[1], {"k": k}, place), _bounds_of(REDUCTIONS[counted[1]])
        return _NamedReduction(name, counted[1], reduction, bounds, k)
    if name not in REDUCTIONS or "k" in REDUCTIONS.accepts(REDUCTIONS[name]).named:
        raise LookupError(name)
    return _NamedReduction(name, name, REDUCTIONS[name], _bounds_of(REDUCTIONS[name]))


def _bounds_of(reduction: UserFunction) -> Bounds | None:
    """The least and the greatest value it can give: those that a user declares, as decorator or attribute of the function."""
    if reduction in (pass_at, pass_all, pass_at_several):
        return SHARE
    declared = getattr(reduction, "bounds", None)
    return read_bounds(declared) if declared is not None else None


def _from_user(function: UserFunction) -> Reduction:
    """A user's function in a file: nothing can be given to it but scores and answers."""
    if takes_references(function):
        raise ValueError(
            f"reduction {getattr(function, '__name__', 'function')!r} is in place of the metric's row: name it alone"
        )
    name = str(getattr(function, "__name__", "function"))
    try:
        reduction = _adopted(name, function)
    except TypeError as error:
        raise ValueError(str(error)) from None
    problems = REDUCTIONS.problems(name, reduction, {}, Place("reduction"))
    if problems:
        raise ValueError(problems[0].what)
    return reduction
