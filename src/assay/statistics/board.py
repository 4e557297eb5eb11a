"""The scores of one task as they come in: a list per metric and filter, and what failed."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from assay.config.source import digest
from assay.records import EVERY_ROW, FilterScores, UserValue
from assay.score_keys import ScoreKey
from assay.statistics.aggregations import Aggregation, AggregationOrFunction, Values, known_aggregation, within
from assay.statistics.calibration import less_bias
from assay.statistics.estimates import StderrMethod, estimate, with_draws
from assay.statistics.evidence import Estimate, with_evidence
from assay.statistics.influence import SHARE, clip_to_bounds
from assay.statistics.intervals import with_interval


class RowFailures(NamedTuple):
    """Number of documents without a value in a row, and the reasons of those that failed in this row only."""

    documents: int
    reasons: Mapping[str, int] = MappingProxyType({})


@dataclass(slots=True)
class ScoreColumn:
    """The values of one metric and filter, the documents they are of, and their repeats' scores where there are any.

    As long as all values are floats they are in an array, at a quarter of the memory.
    """

    values: "list[Any] | array[float]" = field(default_factory=list)
    documents: "array[int]" = field(default_factory=lambda: array("q"))
    repeats: list[Sequence[Any]] | None = None


@dataclass(slots=True)
class Board:
    """Values by metric and filter, one per document that was scored, in the order of the documents.

    `clusters` has, by document, the number of its cluster, where documents are not separate draws.
    """

    columns: dict[ScoreKey, ScoreColumn] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)
    """Documents that failed, as a whole or in some rows, by reason."""
    lost: int = 0
    """Documents that failed as a whole."""
    lost_in: dict[ScoreKey, Counter[str]] = field(default_factory=dict)
    """By row the documents that failed there alone; under EVERY_ROW those that failed in all rows of a filter."""
    noticed: Counter[str] = field(default_factory=Counter)
    documents: int = 0
    clusters: dict[int, int] = field(default_factory=dict)

    def add(self, doc_id: int, scores: FilterScores) -> None:
        for metric, value in scores.values.items():
            column = self.columns.get((metric, scores.filter))  # type: ignore[call-overload]  # a key is such a pair
            if column is None:
                row = ScoreKey(metric, scores.filter)
                column = ScoreColumn(
                    array("d") if type(value) is float else [], repeats=[] if metric in scores.repeats else None
                )
                self.columns[row] = column
            elif type(value) is not float and type(column.values) is array:
                column.values = list(column.values)
            column.values.append(value)
            column.documents.append(doc_id)
            if column.repeats is not None:
                column.repeats.append(scores.repeats.get(metric, (value,)))

    def put_together(self, doc_id: int, value: UserValue) -> None:
        """Count a document as one draw with all others of this value: in other tasks of the same data, too. None is alone."""
        if value is not None:
            self.clusters[doc_id] = cluster_number(value)

    def fail(self, reason: str) -> None:
        """Count a document that failed as a whole."""
        self.failed[reason] += 1
        self.lost += 1

    def fail_rows(self, scores: Sequence[FilterScores]) -> str:
        """Count a document in the rows that it failed in, and return the reasons; nothing where it has all values."""
        failed = {ScoreKey(row, each.filter): reason for each in scores for row, reason in each.failed.items()}
        if not failed:
            return ""
        for row, reason in failed.items():
            self.lost_in.setdefault(row, Counter())[reason] += 1
        reasons = "; ".join(dict.fromkeys(failed.values()))
        self.failed[reasons] += 1
        return reasons

    def failures(self, parents: Mapping[str, str], known: Sequence[ScoreKey] = ()) -> dict[ScoreKey, RowFailures]:
        """The failures of every row, also of rows that have no value at all: `known` are those that the task declares.

        `parents` has, of values that came in a mapping, the metric that gave them. Where it fails, all of them fail; and
        where one of them failed that never had a value, so has the metric.
        """
        own: dict[ScoreKey, ScoreKey] = {}
        for row in self.lost_in:
            parent = ScoreKey(parents.get(row.metric, row.metric), row.filter)
            own[row] = parent if row not in self.columns and parent in self.columns else row
        hidden = {*parents.values()}
        lost = [row for row in own.values() if row.metric != EVERY_ROW and row.metric not in hidden]
        lost += [row for row in known if row.metric not in hidden and self._has_lost_all(row.filter)]
        return {row: self._failures(row, own, parents) for row in (*self.columns, *lost)}

    def _has_lost_all(self, filter_name: str) -> bool:
        """Whether a filter has no value, because every document failed in it or as a whole."""
        in_filter = self.lost_in.get(ScoreKey(EVERY_ROW, filter_name), Counter()).total()
        return 0 < self.documents <= self.lost + in_filter

    def _failures(self, row: ScoreKey, own: Mapping[ScoreKey, ScoreKey], parents: Mapping[str, str]) -> RowFailures:
        names = {row, ScoreKey(parents.get(row.metric, row.metric), row.filter), ScoreKey(EVERY_ROW, row.filter)}
        reasons: Counter[str] = Counter()
        for each, counted in self.lost_in.items():
            if each in names or own[each] == row:
                reasons += counted
        known = len(self.columns[row].values) if row in self.columns else 0
        documents = min(self.lost + reasons.total(), self.documents - known)  # one may have failed in two of its values
        return RowFailures(documents, dict(sorted(reasons.items())))

    @property
    def scored(self) -> int:
        """How many documents have a value: the most that any metric has."""
        return max((len(column.values) for column in self.columns.values()), default=0)

    def estimates(
        self,
        aggregation: Callable[[ScoreKey], AggregationOrFunction | None],
        *,
        bootstrap_iters: int,
        source: str,
        stderr: StderrMethod = "influence",
        rows: Iterable[ScoreKey] | None = None,
    ) -> dict[ScoreKey, Estimate]:
        """The number of each row, or of these. A metric without a declared aggregation is averaged. `source` names the data."""
        numbers = {}
        for row in self.columns if rows is None else rows:
            column = self.columns[row]
            drawn = self.estimated(
                _of_repeats(aggregation(row), column.repeats),
                list(column.values),
                column.documents,
                bootstrap_iters=bootstrap_iters,
                stderr=stderr,
                source=source,
                metric=row.metric,
            )
            numbers[row] = with_evidence(drawn, repeats=column.repeats) if column.repeats is not None else drawn
        return numbers

    def estimated(  # noqa: PLR0913  # a number, and all that its error depends on
        self,
        aggregation: AggregationOrFunction | None,
        values: Values,
        documents: Sequence[int],
        *,
        bootstrap_iters: int,
        source: str,
        stderr: StderrMethod = "influence",
        metric: str = "",
    ) -> Estimate:
        """The number that values of documents give, finished: with its error, its draws and its interval."""
        known = known_aggregation(aggregation)
        if isinstance(known, Aggregation) and known.bounds is not None:
            values = clip_to_bounds(values, known.bounds)
        clusters = None if stderr == "lm-eval" or not self.clusters else self._clusters(documents)
        number = estimate(
            known,
            values,
            bootstrap_iters=bootstrap_iters,
            stderr=stderr,
            metric=metric,
            clusters=clusters,
        )
        drawn = with_draws(number, known, values, documents, source, clusters)
        bias = known.bias if isinstance(known, Aggregation) and stderr != "lm-eval" else None
        if bias is not None and drawn.stderr is not None:
            drawn = less_bias(drawn, bias(values))
        return with_interval(drawn)

    def _clusters(self, documents: Sequence[int]) -> "array[int]":
        """The cluster of each document; one in none is its own."""
        return array("q", (self.clusters.get(document, document) for document in documents))


def _of_repeats(
    aggregation: AggregationOrFunction | None, repeats: Sequence[Sequence[Any]] | None
) -> AggregationOrFunction | None:
    """The aggregation; of scores that are means of rights and wrongs, with the bounds of these."""
    known = known_aggregation(aggregation)
    declared = isinstance(known, Aggregation) and known.bounds is not None
    if repeats is None or declared or not all(score in (0, 1) for each in repeats for score in each):
        return aggregation
    return within(aggregation, SHARE)


def cluster_number(value: UserValue) -> int:
    """The number of the cluster with this value: the same in every task and run, and no number of a document."""
    return -1 - int(digest(repr(value).encode())[:15], 16)
