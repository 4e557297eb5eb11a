"""What is brought in from elsewhere: tasks that somebody else ran, with their samples and the numbers that were told of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from assay.config.row_names import row_name, rows_of, stderr_name
from assay.records import ScoreKey
from assay.runs.samples.records import SampleRecord


class ReportedValue(NamedTuple):
    """A number as it was told, with its standard error and the number of its documents where those were told, too."""

    value: float
    stderr: float | None = None
    n: int | None = None


@dataclass(frozen=True, kw_only=True)
class ImportedTask:
    """One task: `samples` gives its samples in their order, as often as it is called; `told` the numbers of its results."""

    name: str
    samples: Callable[[], Iterator[SampleRecord]]
    told: Mapping[ScoreKey, ReportedValue] = field(default_factory=dict)
    alias: str = ""
    repeats: int = 1
    original: int | None = None
    expected: int = 0
    """How many documents were to be asked about, where more are told than there are samples."""
    ended: str = ""
    """Why the run of it came to no good end, where that is told."""
    num_fewshot: int = 0
    version: object = "N/A"
    source: str = ""
    """A name for its data: documents of one source and number are the same document."""
    higher_is_better: Mapping[str, bool | None] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    multiple_targets: bool = False


@dataclass(frozen=True, kw_only=True)
class ImportedGroup:
    """A group whose numbers were told."""

    name: str
    members: Sequence[str]
    told: Mapping[ScoreKey, ReportedValue]
    alias: str = ""
    version: str = "N/A"
    size: int = 0
    higher_is_better: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """A run from elsewhere: its tasks and groups, what is told about it under lm-eval's names, and the files it came in."""

    format: str
    tasks: Sequence[ImportedTask]
    groups: Sequence[ImportedGroup] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[Path] = ()


def reported_values(row: Mapping[str, Any]) -> dict[ScoreKey, ReportedValue]:
    """The numbers of a row of lm-eval's results: `{"acc,none": 0.5, "acc_stderr,none": 0.1}`.

    >>> told_rows({"alias": "a", "acc,none": 0.5, "acc_stderr,none": "N/A"})
    {ScoreKey(metric='acc', filter='none'): Told(value=0.5, stderr=None, n=None)}
    """
    found = {}
    counts = row.get("sample_count")
    counts = counts if isinstance(counts, Mapping) else {}
    for key, value in rows_of(row):
        if is_number(value):
            error = row.get(stderr_name(key))
            stderr, n = float(error) if is_number(error) else None, counts.get(row_name(key))
            found[key] = ReportedValue(float(value), stderr, n if isinstance(n, int) else None)
    return found


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def bottom_up(members: Mapping[str, Sequence[str]]) -> list[str]:
    """The groups among `members`, each after those it contains.

    >>> bottom_up({"all": ["some", "task_a"], "some": ["task_b"]})
    ['some', 'all']
    """
    ordered: dict[str, None] = {}

    def visit(name: str, above: tuple[str, ...] = ()) -> None:
        for member in members.get(name, ()):
            if member in members and member not in (*ordered, *above, name):
                visit(member, (*above, name))
        ordered.setdefault(name)

    for name in members:
        visit(name)
    return list(ordered)
