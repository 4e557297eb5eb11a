"""The report of a graph evaluation: aggregator metrics over the unit results of all records, read once.

A record without a unit result is not counted as wrong: it is reported, and makes the report incomplete. An aggregator that
fails has an error in place of its number; the others keep theirs.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

from assay.dialect import OURS, Dialect, dialect_of
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.graphs.aggregator_metrics import REPEAT_OF, STEP, Collation, is_correct
from assay.graphs.aggregator_registry import make_aggregator
from assay.graphs.spec import Record, Value
from assay.graphs.sygra import GraphPostProcessor
from assay.graphs.sygra_classes import UnitMetricResult, finite, why_lost
from assay.graphs.unit_node import Places, shape_problems
from assay.records import Failed, JSONDict
from assay.score_keys import metric_name_problem
from assay.statistics.aggregations import Aggregation
from assay.user_code import call_user_code

ENTRY_KEYS = ("name", "params", "unit_metrics_results", "metadata", "as")
LACKING = ("aggregator", "lacking")
"""Cause of the problem of an aggregator that lacks a column; the run may add it, as --repeats does."""


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """Outcomes of the requested records."""

    requested: int
    ok: int
    failed: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class AggregatorEntry:
    """One number of the report: an aggregator metric over a column of unit results.

    `key` is what it is called there; `metadata` takes columns of the record into the unit results' metadata.
    """

    key: str
    name: str
    column: str
    params: Record = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    number: int = 0
    """Which of those that are written it is, counted from 0."""


def read_entries(
    written: Sequence[Record], dialect: Dialect, *, field_names: bool = False
) -> Iterator[AggregatorEntry]:
    """The entries of an `aggregator_metrics_map`: one for every column. With `field_names`, and where one aggregator is over
    several columns, keys name the column, too."""
    listed = [_columns_of(entry, dialect) for entry in written]
    columns_of: dict[str, set[str]] = {}
    for each, columns in zip(written, listed, strict=True):
        if not each.get("as"):
            columns_of.setdefault(str(each.get("name")), set()).update(columns)
    for number, (each, columns) in enumerate(zip(written, listed, strict=True)):
        name = str(each.get("name"))
        for column in columns:
            # SyGra's first version called its columns *_result, and the second entry overwrote the first
            is_shared = len(columns_of.get(name, ())) > 1 and not (
                dialect.keeps_last_of_equal_results and column.endswith("_result")
            )
            key = f"{column}-{name}" if field_names or len(columns) > 1 or is_shared else name
            key = str(each["as"]) if each.get("as") and len(columns) == 1 else key
            yield AggregatorEntry(key, name, column, each.get("params") or {}, each.get("metadata") or {}, number)


def _columns_of(entry: Record, dialect: Dialect) -> list[str]:
    columns = entry.get("unit_metrics_results") or ()
    listed = [columns] if isinstance(columns, str) else list(map(str, columns))
    return listed[:1] if dialect.aggregates_first_column_alone else listed


class CollatedValues(NamedTuple):
    """The values behind a number, and the indices of the records that they come from."""

    aggregation: Aggregation
    values: Sequence[Value]
    records: Sequence[int]


class EntryValues:
    """An entry at work: the values that its aggregator keeps of the records so far, and what went wrong."""

    def __init__(self, entry: AggregatorEntry, dialect: Dialect) -> None:
        self.entry = entry
        self.missing = 0
        self._has_column = False
        self._values, self._records = list[Value](), array("q")
        made = call_user_code("", make_aggregator, entry.name, entry.params, Place(entry.key), dialect)
        self.error = made.reason if isinstance(made, Failed) else ""
        self.collation = Collation(read=is_correct, summarize=dict) if isinstance(made, Failed) else made
        ids = {"id": "id"} if self.collation.reads_ids else {}  # rows with the id of one record are attempts at it
        self._columns = {**ids, REPEAT_OF: REPEAT_OF, **_metadata_columns(entry, self.collation)}

    def take(self, number: int, record: Record) -> None:
        """Look at one record; they are counted from 0."""
        cell = _cell(record, self.entry.column)
        self._has_column = self._has_column or self.entry.column in record
        if cell is None:
            self.missing += 1
        if cell is None or self.error:
            return
        value = call_user_code("", self._read, cell, record)
        if isinstance(value, Failed):
            self.error = value.reason
        else:
            self._values.append(value)
            self._records.append(number)

    def _read(self, cell: Value, record: Record) -> Value:
        return self.collation.read(_with_columns(_result(cell, self.entry.column), record, self._columns))

    def numbers(self, columns: Sequence[str]) -> JSONDict:
        """Return the numbers for the report, or the error instead of them."""
        if not self._has_column and not self.error:
            known = ", ".join(map(str, columns))
            self.error = f"Missing unit metric results field {self.entry.column!r} in data. Available columns: {known}"
        if not self.error:
            report: JSONDict | Failed = call_user_code("", lambda: finite(self.collation.aggregate(self._values)))
            if not isinstance(report, Failed):
                return report
            self.error = report.reason
        return {"error": self.error}

    def evidence(self) -> dict[str, CollatedValues]:
        """By number what it was made of, and of which records; nothing where that is not known."""
        known = Failed("") if self.error else call_user_code("", self.collation.evidence, self._values)
        if isinstance(known, Failed):
            return {}  # a number without an error is still a number
        return {name: CollatedValues(*evidence, self._records) for name, evidence in known.items()}


def _cell(record: Record, column: str) -> Value:
    """The unit result in a column; None where there is none, and where computing it failed."""
    cell = record.get(column)
    return None if why_lost(cell) is not None else cell


def _result(cell: Value, column: str) -> UnitMetricResult:
    if isinstance(cell, UnitMetricResult):
        return cell
    if not isinstance(cell, Mapping) or "correct" not in cell:
        raise ValueError(f"{column!r} holds something else than results of a unit metric: {cell!r:.60}")
    return UnitMetricResult.from_dict(cell)


def _with_columns(result: UnitMetricResult, record: Record, columns: Mapping[str, str]) -> UnitMetricResult:
    more = {key: record[column] for key, column in columns.items() if column in record}
    return replace(result, metadata={**result.metadata, **more}) if more else result


def _metadata_columns(entry: AggregatorEntry, collation: Collation) -> dict[str, str]:
    """By key of the metadata, the column of the record that it comes from."""
    return {**{column: column for column in collation.columns}, **entry.metadata}


class CollatedReport(NamedTuple):
    """A report as it is written, and what made it."""

    written: list[JSONDict]
    collected: Sequence[EntryValues]


def collate(
    records: Iterable[Record],
    entries: Sequence[Record],
    counts: RecordCounts | None = None,
    *,
    dialect: Dialect = OURS,
    field_names: bool = False,
) -> CollatedReport:
    """The report of records, which are looked at once, in order; `counts` are the outcomes of all requested records."""
    read = read_entries(entries, dialect, field_names=field_names)
    collected = [EntryValues(entry, dialect) for entry in read]
    columns: Sequence[str] = ()
    total = unscored = 0
    for record in records:
        columns = columns or tuple(record)
        for each in collected:
            each.take(total, record)
        total += 1
        unscored += any(_cell(record, each.entry.column) is None for each in collected)
    if not total:
        nothing = {"evaluation_summary": _summary(total, "no_data", counts, dialect), "results": {}}
        return CollatedReport([nothing], ())
    results = {each.entry.key: each.numbers(columns) for each in collected}
    known = counts or RecordCounts(total, total - unscored, unscored)
    return CollatedReport([_report(total, collected, results, known, dialect)], collected)


def _report(
    total: int, collected: Sequence[EntryValues], results: Record, counts: RecordCounts, dialect: Dialect
) -> JSONDict:
    errors = {each.entry.key: each.error for each in collected if each.error}
    without = {each.entry.key: each.missing for each in collected if each.missing and not each.error}
    if errors and dialect.loses_report_to_one_error:
        summary = {**_summary(total, "fatal_error", counts, dialect), "error": next(iter(errors.values()))}
        return {"evaluation_summary": summary, "results": {}}
    incomplete = without or counts.failed or counts.skipped
    if errors and len(errors) == len(collected):
        status = "fatal_error"
    elif errors or (incomplete and not dialect.reports_success_despite_failures):
        status = "incomplete"
    else:
        status = "success"
    summary = _summary(total, status, counts, dialect)
    if without and not dialect.counts_records_alone:
        summary["without_result"] = without
    if errors:
        summary["error"] = "; ".join(f"{key}: {error}" for key, error in errors.items())
    return {"evaluation_summary": summary, "results": dict(results)}


def _summary(total: int, status: str, counts: RecordCounts | None, dialect: Dialect) -> JSONDict:
    more = {} if dialect.counts_records_alone else asdict(counts or RecordCounts(total, total))
    return {"total_records": total, "status": status, **more}


class MetricCollatorPostProcessor(GraphPostProcessor):
    """The post-processor that makes the report. Its parameters are those of the YAML file.

    `unit_metrics_results` is the column of entries that name none. Of the metadata that `process` is given it looks at
    `counts`, a Counts, and at `compat`, which names the dialect: with "sygra" the report is SyGra's.
    """

    def __init__(
        self,
        aggregator_metrics_map: list[JSONDict] | None = None,
        *,
        unit_metrics_results: str | None = None,
        field_names: bool = False,
        use_previous_output: bool = False,
    ) -> None:
        own = {"unit_metrics_results": unit_metrics_results} if unit_metrics_results else {}
        written = aggregator_metrics_map or []
        self.aggregator_metrics_map = [{**own, **each} if isinstance(each, Mapping) else each for each in written]
        self.field_names = field_names
        self.use_previous_output = use_previous_output
        self._collected: Sequence[EntryValues] = ()

    def evidence(self) -> dict[str, dict[str, CollatedValues]]:
        """By aggregator and number what the numbers of the latest report were made of, where that is known."""
        return {each.entry.key: each.evidence() for each in self._collected}

    def numbers(self, dialect: Dialect) -> dict[str, Sequence[str]] | None:
        """By aggregator the names of the numbers that the report will have; None where only code of users knows."""
        entries = read_entries(self.aggregator_metrics_map, dialect, field_names=self.field_names)
        numbers: dict[str, Sequence[str]] = {}
        for entry in entries:
            named = make_aggregator(entry.name, entry.params, Place(entry.key), dialect).numbers
            if named is None:
                return None
            numbers[entry.key] = named
        return numbers

    def higher_is_better(self, key: str) -> bool | None:
        """Whether more of the numbers of an aggregator is better, by the metadata of a user's class, after a report was made."""
        known = {each.entry.key: each.collation.higher_is_better for each in self._collected}
        return known.get(key)

    def process(self, data: Iterable[Record], metadata: JSONDict) -> list[Value]:
        written, self._collected = collate(
            data,
            self.aggregator_metrics_map,
            metadata.get("counts"),
            dialect=dialect_of(metadata.get("compat")),
            field_names=self.field_names,
        )
        return list(written)


def check_aggregators(
    entries: Sequence[Record],
    produced_columns: Collection[str] | None,
    place: Place,
    at: Places | None = None,
    *,
    dialect: Dialect = OURS,
    field_names: bool = False,
) -> list[Problem]:
    """All that is wrong with an `aggregator_metrics_map`: unknown metrics, parameters and columns, and names that clash.

    `produced_columns` are the columns of the records; None where they are only known from the data. `at` returns the
    place of an entry, by its number.
    """
    at = at or (lambda *_: place)
    if not entries:
        what = f"{MetricCollatorPostProcessor.__name__} aggregates nothing"
        return [Problem(place, what, "add `aggregator_metrics_map:`")]
    problems = [problem for number, each in enumerate(entries) for problem in _shape_problems(each, number, at(number))]
    if problems:
        return problems
    read = list(read_entries(entries, dialect, field_names=field_names))
    for entry in read:
        problems += _entry_problems(entry, produced_columns, at(entry.number), dialect)
    return problems + ([] if dialect.keeps_last_of_equal_results else list(_key_problems(read, at)))


def _key_problems(entries: Sequence[AggregatorEntry], at: Places) -> Iterator[Problem]:
    """Names in the report that come twice, or that results read otherwise."""
    seen: dict[str, AggregatorEntry] = {}
    for entry in entries:
        wrong = metric_name_problem(entry.key)
        if wrong is not None:
            yield Problem(at(entry.number), f"an aggregator cannot be called {entry.key!r}: {wrong[0]}", wrong[1])
        if entry.key in seen:
            what = f"two aggregators are called {entry.key!r} in the report: the other one is at {at(seen[entry.key].number)}"
            yield Problem(at(entry.number), what, "give one another name with `as:`")
        seen.setdefault(entry.key, entry)


def _shape_problems(written: Record, number: int, place: Place) -> Iterator[Problem]:
    wrong = list(shape_problems(written, number, "aggregator_metrics_map", ENTRY_KEYS, place))
    if wrong:
        yield from wrong
        return
    columns = written.get("unit_metrics_results")
    if not (columns and isinstance(columns, str | list)):
        fix = "add `unit_metrics_results:` with a column of unit results, such as exact_match_result"
        yield Problem(place, f"aggregator {written['name']!r} aggregates nothing", fix)


def _entry_problems(
    entry: AggregatorEntry, produced: Collection[str] | None, place: Place, dialect: Dialect
) -> list[Problem]:
    try:
        collation = make_aggregator(entry.name, entry.params, place, dialect)
    except ConfigError as error:
        return list(error.problems)
    named, problems = f"aggregator {entry.name!r}", []
    uses = {**dict.fromkeys(_metadata_columns(entry, collation).values(), "reads"), entry.column: "aggregates"}
    for column, does in uses.items():
        if produced is not None and column not in produced:
            fix = f"{did_you_mean(column, produced)}; add a value of the state to output_map"
            problems.append(Problem(place, f"{named} {does} {column!r}, which the records do not have", fix))
    known = {*entry.metadata, *({REPEAT_OF} & set(produced or ()))}
    if collation.needs_groups and produced is not None and REPEAT_OF not in known and not known.issuperset(STEP):
        what = f"{named} must know which records are attempts at the same problem"
        fix = "add `group_by:` with a column of the records, or --repeats to the run"
        problems.append(Problem(place, what, fix, cause=LACKING))
    return problems
