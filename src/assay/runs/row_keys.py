"""Names of rows in lm-eval's layout, `"metric,filter"`: split and joined here, and nowhere between reader and writer."""

from collections.abc import Iterator, Mapping
from typing import Any

from assay.config.row_names import STDERR
from assay.records import ScoreKey

BYPASS = "bypass"
"""The metric of a run that scores nothing: lm-eval writes 999 under it."""
REPEATS = ",repeats"
"""The end of a name in the scores of a sample that holds the score of every repeat."""


def row_name(key: ScoreKey) -> str:
    """The name of a row in results and samples.

    >>> row_name(ScoreKey("exact_match", "strict"))
    'exact_match,strict'
    """
    return f"{key.metric},{key.filter}"


def stderr_name(key: ScoreKey) -> str:
    """The name under which a row's standard error is written beside it."""
    return f"{key.metric}{STDERR},{key.filter}"


def repeats_name(key: ScoreKey) -> str:
    """The name under which a sample has the score of every repeat."""
    return row_name(key) + REPEATS


def row_key(name: str) -> ScoreKey:
    """The metric and filter that a name of a row joins; without a comma it is of the filter that every task has.

    >>> row_key("exact_match,strict"), row_key("acc")
    (ScoreKey(metric='exact_match', filter='strict'), ScoreKey(metric='acc', filter='none'))
    """
    metric, _, filter_name = name.partition(",")
    return ScoreKey(metric, filter_name or "none")


def spellings(key: ScoreKey) -> frozenset[str]:
    """How an option may name a row: by its metric, or by metric and filter.

    >>> sorted(spellings(ScoreKey("acc", "none")))
    ['acc', 'acc,none']
    """
    return frozenset((key.metric, row_name(key)))


def rows_of(written: Mapping[str, Any]) -> Iterator[tuple[ScoreKey, Any]]:
    """The rows of a task or group in results, without standard errors, aliases and counts.

    >>> dict(rows_of({"alias": "a", "acc,none": 0.5, "acc_stderr,none": 0.1}))
    {ScoreKey(metric='acc', filter='none'): 0.5}
    """
    for name, value in written.items():
        if "," in name:
            key = row_key(name)
            if not _is_stderr(key, written) and key.metric != BYPASS:
                yield key, value


def _is_stderr(key: ScoreKey, written: Mapping[str, Any]) -> bool:
    base = key._replace(metric=key.metric.removesuffix(STDERR))
    return base != key and row_name(base) in written


def sample_scores(written: Mapping[str, Any]) -> dict[ScoreKey, Any]:
    """The scores of a sample by row, without those of its repeats."""
    return {row_key(name): value for name, value in written.items() if not name.endswith(REPEATS)}
