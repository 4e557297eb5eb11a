"""The report of a graph evaluation: aggregator metrics over the unit results of all records, read once.

A record without a unit result is not counted as wrong: it is reported, and makes the report incomplete. An aggregator that
fails has an error in place of its number; the others keep theirs.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from assay.dialect import OURS, Dialect, dialect_of
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.graphs.aggregator_metrics import REPEAT_OF, STEP, Collation, NumberEvidence
from assay.graphs.aggregator_registry import make_aggregator
from assay.graphs.spec import Record, Value
from assay.graphs.sygra import GraphPostProcessor
from assay.graphs.sygra_classes import UnitMetricResult, finite, is_unit_result, why_lost
from assay.graphs.unit_node import Places, name_problems, shape_problems
from assay.records import Failed, JSONDict
from assay.user_code import call_user_code

MAP_KEY = "aggregator_metrics_map"
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

    `key` is what it is called there; `metadata` takes columns of the record into the unit results' metadata; `number` is which
    of those that are written it is, counted from 0.
    """

    key: str
    name: str
    column: str
    params: Record
    metadata: Mapping[str, str]
    number: int

    def make(self, place: Place, dialect: Dialect) -> Collation:
        return make_aggregator(self.name, self.params, place, dialect)

    def metadata_columns(self, collation: Collation) -> dict[str, str]:
        """By key of the metadata, the column of the record that it comes from."""
        return {**{column: column for column in collation.columns}, **self.metadata}


class EntryValues:
    """An entry at work: the values that its aggregator keeps of the records so far, and what went wrong."""

    def __init__(self, entry: AggregatorEntry, dialect: Dialect) -> None:
        self.entry, self.error, self.missing = entry, "", 0
        self.values, self.records = list[Value](), array("q")
        self._has_column = False
        self.collation: Collation | None = self._attempt(entry.make, Place(entry.key), dialect)
        self._columns: dict[str, str] = {}
        if self.collation is not None:
            ids = {"id": "id"} if self.collation.reads_ids else {}  # rows with the id of one record are attempts at it
            self._columns = {**ids, REPEAT_OF: REPEAT_OF, **entry.metadata_columns(self.collation)}

    def _attempt(self, function: Callable[..., Value], *arguments: Value) -> Any:
        """Return what a function makes; None where it fails, which is the entry's error from then on."""
        made = call_user_code("", function, *arguments)
        if not isinstance(made, Failed):
            return made
        self.error = made.reason
        return None

    def take(self, number: int, record: Record) -> bool:
        """Look at one record, counted from 0; return whether it has a unit result."""
        cell = record.get(self.entry.column)
        self._has_column = self._has_column or self.entry.column in record
        if cell is None or why_lost(cell) is not None:
            self.missing += 1
            return False
        if not self.error:
            self.values.append(self._attempt(self._read, cell, record))
            self.records.append(number)
        return True

    def _read(self, cell: Value, record: Record) -> Value:
        if not is_unit_result(cell):
            what = "holds something else than results of a unit metric"
            raise ValueError(f"{self.entry.column!r} {what}: {cell!r:.60}")
        result = cell if isinstance(cell, UnitMetricResult) else UnitMetricResult.from_dict(cell)
        more = {key: record[column] for key, column in self._columns.items() if column in record}
        assert self.collation is not None
        return self.collation.read(replace(result, metadata={**result.metadata, **more}) if more else result)

    def numbers(self, columns: Sequence[str]) -> JSONDict:
        """Return the numbers for the report, or the error instead of them."""
        if not self._has_column and not self.error:
            known = ", ".join(map(str, columns))
            self.error = f"Missing unit metric results field {self.entry.column!r} in data. Available columns: {known}"
        collation = self.collation
        report: JSONDict | None = None
        if collation is not None and not self.error:
            report = self._attempt(lambda: finite(collation.aggregate(self.values)))
        return {"error": self.error} if report is None else report

    @cached_property
    def evidence(self) -> Mapping[str, NumberEvidence]:
        """By number what it was made of; nothing where that is not known. Asked for when all records are there."""
        if self.collation is None or self.error:
            return {}
        known = call_user_code("", self.collation.evidence, self.values)
        return {} if isinstance(known, Failed) else known  # a number without an error is still a number


class MetricCollatorPostProcessor(GraphPostProcessor):
    """The post-processor that makes the report. Its parameters are those of the YAML file.

    `unit_metrics_results` is the column of entries that name none. Of the metadata that `process` is given it looks at
    `counts`, a RecordCounts, and at `compat`, which names the dialect: with "sygra" the report is SyGra's.
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
        self.collected: Mapping[str, EntryValues] = {}
        """By aggregator what the numbers of the latest report were made of."""

    def entries(self, dialect: Dialect) -> Iterator[AggregatorEntry]:
        """Yield what is written: an entry for every column. With `field_names`, and where one aggregator is over several columns,
        keys name the column, too."""
        mappings = [(n, entry) for n, entry in enumerate(self.aggregator_metrics_map) if isinstance(entry, Mapping)]
        listed = [(number, written, _columns_of(written, dialect)) for number, written in mappings]
        columns_of = defaultdict[str, set[str]](set)
        for _, written, columns in listed:
            if not written.get("as"):
                columns_of[str(written.get("name"))].update(columns)
        for number, written, columns in listed:
            name = str(written.get("name"))
            for column in columns:
                # SyGra's first version called its columns *_result, and the second entry overwrote the first
                overwrites = dialect.keeps_last_of_equal_results and column.endswith("_result")
                is_shared = len(columns_of[name]) > 1 and not overwrites
                if written.get("as") and len(columns) == 1:
                    key = str(written["as"])
                else:
                    key = f"{column}-{name}" if self.field_names or len(columns) > 1 or is_shared else name
                params, metadata = written.get("params") or {}, written.get("metadata") or {}
                yield AggregatorEntry(key, name, column, params, metadata, number)

    def process(self, data: Iterable[Record], metadata: JSONDict) -> list[Value]:
        """Return the report of records, which are looked at once, in order."""
        dialect = dialect_of(metadata.get("compat"))
        collected = [EntryValues(entry, dialect) for entry in self.entries(dialect)]
        columns: Sequence[str] = ()
        total = unscored = 0
        for record in data:
            columns = columns or tuple(record)
            has_results = [values.take(total, record) for values in collected]  # each of them looks at it
            unscored += not all(has_results)
            total += 1
        if not total:
            collected = []  # of no records there are no numbers
        results = {values.entry.key: values.numbers(columns) for values in collected}
        errors = {values.entry.key: values.error for values in collected if values.error}
        self.collected = {values.entry.key: values for values in collected}
        without = {values.entry.key: values.missing for values in collected if values.missing and not values.error}
        counts: RecordCounts = metadata.get("counts") or RecordCounts(total, total - unscored, unscored)
        is_incomplete = errors or (
            (without or counts.failed or counts.skipped) and not dialect.reports_success_despite_failures
        )
        is_lost = bool(errors) and dialect.loses_report_to_one_error
        if not total:
            status = "no_data"
        elif is_lost or (errors and len(errors) == len(collected)):
            status = "fatal_error"
        else:
            status = "incomplete" if is_incomplete else "success"
        summary = {"total_records": total, "status": status}
        if not dialect.counts_records_alone:
            summary |= {**asdict(counts), **({"without_result": without} if without else {})}
        if errors:
            named = "; ".join(f"{key}: {error}" for key, error in errors.items())
            summary["error"] = next(iter(errors.values())) if is_lost else named
        return [{"evaluation_summary": summary, "results": {} if is_lost else results}]

    def numbers(self, dialect: Dialect) -> dict[str, Sequence[str]] | None:
        """By aggregator the names of the numbers that the report will have; None where only code of users knows."""
        numbers: dict[str, Sequence[str]] = {}
        for entry in self.entries(dialect):
            named = entry.make(Place(entry.key), dialect).numbers
            if named is None:
                return None
            numbers[entry.key] = named
        return numbers

    def problems(
        self,
        produced_columns: Collection[str] | None,
        at: Places,
        dialect: Dialect = OURS,
    ) -> list[Problem]:
        """All that is wrong with the `aggregator_metrics_map`: unknown metrics, parameters and columns, and names that clash.

        `produced_columns` are the columns of the records; None where they are only known from the data. `at` returns the
        place of the processor's parameters, or of a key below them.
        """
        if not self.aggregator_metrics_map:
            what = f"{MetricCollatorPostProcessor.__name__} aggregates nothing"
            return [Problem(at(), what, "add `aggregator_metrics_map:`")]
        problems: list[Problem] = []
        for number, written in enumerate(self.aggregator_metrics_map):
            problems += _shape_problems(written, number, at(MAP_KEY, number))
        if problems:
            return problems
        entries = list(self.entries(dialect))
        for entry in entries:
            problems += _entry_problems(entry, produced_columns, at(MAP_KEY, entry.number), dialect)
        if not dialect.keeps_last_of_equal_results:
            named = [(entry.key, at(MAP_KEY, entry.number)) for entry in entries]
            problems += name_problems(named, "an aggregator cannot be called", "two aggregators are called")
        return problems


def _columns_of(written: Record, dialect: Dialect) -> list[str]:
    columns = written.get("unit_metrics_results") or ()
    listed = (
        [columns] if isinstance(columns, str) else list(map(str, columns if isinstance(columns, list | tuple) else ()))
    )
    return listed[:1] if dialect.aggregates_first_column_alone else listed


def _shape_problems(written: Record, number: int, place: Place) -> list[Problem]:
    wrong = list(shape_problems(written, number, MAP_KEY, ENTRY_KEYS, place))
    if wrong or (written.get("unit_metrics_results") and isinstance(written["unit_metrics_results"], str | list)):
        return wrong
    fix = "add `unit_metrics_results:` with a column of unit results, such as exact_match_result"
    return [Problem(place, f"aggregator {written['name']!r} aggregates nothing", fix)]


def _entry_problems(
    entry: AggregatorEntry, produced: Collection[str] | None, place: Place, dialect: Dialect
) -> list[Problem]:
    try:
        collation = entry.make(place, dialect)
    except ConfigError as error:
        return list(error.problems)
    if produced is None:
        return []
    named, problems = f"aggregator {entry.name!r}", []
    uses = {**dict.fromkeys(entry.metadata_columns(collation).values(), "reads"), entry.column: "aggregates"}
    for column, does in uses.items():
        if column not in produced:
            fix = f"{did_you_mean(column, produced)}; add a value of the state to output_map"
            problems.append(Problem(place, f"{named} {does} {column!r}, which the records do not have", fix))
    known = {*entry.metadata, *({REPEAT_OF} & set(produced))}
    if collation.needs_groups and REPEAT_OF not in known and not known.issuperset(STEP):
        what = f"{named} must know which records are attempts at the same problem"
        fix = "add `group_by:` with a column of the records, or --repeats to the run"
        problems.append(Problem(place, what, fix, cause=LACKING))
    return problems
