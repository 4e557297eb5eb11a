"""The names of metrics and filters, which together name a row of the results: `exact_match,strict`."""

from functools import cache

RESERVED = frozenset((
    "alias", "name", "sample_len", "sample_count", "samples",
    "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash", "prompt_hash",
    "target_hash", "scores_per_repeat", "verdicts",
))  # fmt: skip
"""Names of other things in the results, and in the samples as lm-eval logs them: a metric of that name would replace them."""
STDERR = "_stderr"


@cache
def row_name_problem(name: str) -> tuple[str, str] | None:
    """What is wrong with the name of a metric, or of a value that it returns, and the remedy; None where nothing is."""
    if name in RESERVED:
        return f"{name!r} is reserved: results or samples have it for something else", "take another name"
    if name.endswith(STDERR):
        return f"a name with {STDERR!r} at its end is read as a standard error", "take another name"
    return filter_name_problem(name)


@cache
def filter_name_problem(name: str) -> tuple[str, str] | None:
    """What is wrong with the name of a filter, and the remedy; None where nothing is."""
    if "," in name:
        return "a comma separates metric and filter in the results", f"write {name.replace(',', ';')!r}"
    return None if name.strip() else ("it is empty", "give it a name")
