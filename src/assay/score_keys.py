"""The names of rows: a metric and a filter, joined by a comma where lm-eval's layout or a user writes them as one text.

Nothing else joins or splits them: between readers and writers a row is a `ScoreKey`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeVar

T = TypeVar("T")

RESERVED = frozenset((
    "alias", "name", "sample_len", "sample_count", "samples",
    "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash", "prompt_hash",
    "target_hash", "scores_per_repeat", "verdicts",
))  # fmt: skip
"""Other keys of results, and of samples as lm-eval logs them: a metric of that name would overwrite them."""
STDERR = "_stderr"
BYPASS = "bypass"
"""The metric of a run that scores nothing: lm-eval writes 999 under it."""
REPEATS = ",repeats"
"""The end of the text under which users find the scores of a sample's repeats."""


NO_REPEATS: Mapping[Any, Any] = MappingProxyType({})


class ScoreKey(NamedTuple):
    """A row of results: a metric of the answers after a filter.

    >>> str(ScoreKey("exact_match", "strict"))
    'exact_match,strict'
    """

    metric: str
    filter: str

    def __str__(self) -> str:
        return f"{self.metric},{self.filter}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of a key; without a comma it is of the filter that every task has.

        >>> ScoreKey.parse("exact_match,strict"), ScoreKey.parse("acc")
        (ScoreKey(metric='exact_match', filter='strict'), ScoreKey(metric='acc', filter='none'))
        """
        metric, comma, filter_name = text.rpartition(",")  # lm-eval's metrics may have a comma, filters none
        return cls(metric, filter_name) if comma else cls(text, "none")


@cache
def metric_name_problem(name: str) -> tuple[str, str] | None:
    """Return the problem of a metric's name, or of a value that it returns, and the fix; None if there is none."""
    if name in RESERVED:
        return f"{name!r} is reserved: results or samples use it for something else", "choose another name"
    if name.endswith(STDERR):
        return f"a name with {STDERR!r} at its end is read as a standard error", "choose another name"
    return filter_name_problem(name)


@cache
def filter_name_problem(name: str) -> tuple[str, str] | None:
    """Return the problem of a filter's name, and the fix; None if there is none."""
    if "," in name:
        return "a comma separates metric and filter in the results", f"write {name.replace(',', ';')!r}"
    return None if name.strip() else ("it is empty", "give it a name")


def shown_filter(name: str, *, is_group: bool) -> str:
    """A filter as tables show it: a group's number may be of several.

    >>> shown_filter("strict+flexible", is_group=True), shown_filter("strict", is_group=True)
    ('per task', 'strict')
    """
    return "per task" if is_group and "+" in name else name


def metric_title(metric: str, filter: str, *, is_group: bool = False) -> str:
    """A metric as people read it, with its filter where that has a name.

    >>> metric_title("acc", "none"), metric_title("acc", "a+b", is_group=True)
    ('acc', 'acc (per task)')
    """
    shown = shown_filter(filter, is_group=is_group)
    return metric if shown in ("", "none") else f"{metric} ({shown})"


def stderr_name(key: ScoreKey) -> str:
    """The name under which a row's standard error is written beside it."""
    return f"{key.metric}{STDERR},{key.filter}"


def spellings(key: ScoreKey) -> frozenset[str]:
    """How an option may name a row: by its metric, or by metric and filter.

    >>> sorted(spellings(ScoreKey("acc", "none")))
    ['acc', 'acc,none']
    """
    return frozenset((key.metric, str(key)))


def is_joined(name: str) -> bool:
    """Whether a name is the text of a key: others, such as `alias` and `sample_len`, have no comma."""
    return "," in name


def join_scores(
    scores: Mapping[ScoreKey, T], repeats: Mapping[ScoreKey, Sequence[T]] = NO_REPEATS
) -> dict[str, T | Sequence[T]]:
    """The scores of a sample as users see them; those of its repeats have a name of their own.

    >>> join_scores({ScoreKey("f1", "none"): 0.5}, {ScoreKey("f1", "none"): [0.0, 1.0]})
    {'f1,none': 0.5, 'f1,none,repeats': [0.0, 1.0]}
    """
    of_repeats = {f"{key}{REPEATS}": values for key, values in repeats.items()}
    return {**{str(key): value for key, value in scores.items()}, **of_repeats}


def split_rows(written: Mapping[str, T]) -> Iterator[tuple[ScoreKey, T]]:
    """The rows of a task or group in results, without standard errors, aliases and counts.

    A metric of lm-eval's may have a comma in its name: then the name of its standard error shows where the filter begins.

    >>> dict(split_rows({"alias": "a", "acc,none": 0.5, "acc_stderr,none": 0.1}))
    {ScoreKey(metric='acc', filter='none'): 0.5}
    >>> [key for key, _ in split_rows({"f1,macro,none": 0.5, "f1,macro_stderr,none": "N/A"})]
    [ScoreKey(metric='f1,macro', filter='none')]
    """
    for name, value in written.items():
        if is_joined(name) and not (STDERR in name and _is_stderr(name, written)):
            key = ScoreKey.parse(name)
            if name.count(",") > 1:
                key = next((each for each in _splits(name) if stderr_name(each) in written), key)
            if key.metric != BYPASS:
                yield key, value


def _is_stderr(name: str, written: Collection[str]) -> bool:
    """Whether a name is that of the standard error of a row beside it."""
    bases = (
        key._replace(metric=key.metric.removesuffix(STDERR)) for key in _splits(name) if key.metric.endswith(STDERR)
    )
    return any(str(base) in written for base in bases)


def _splits(name: str) -> Iterator[ScoreKey]:
    """Every way to take a name apart at a comma."""
    parts = name.split(",")
    return (ScoreKey(",".join(parts[:place]), ",".join(parts[place:])) for place in range(1, len(parts)))
