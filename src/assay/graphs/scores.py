"""Scores of a graph's records: by its unit metrics, and the numbers of its reports."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from assay.dialect import OURS
from assay.errors import ConfigError, Place, Problem
from assay.graphs.collate import MetricCollatorPostProcessor
from assay.graphs.output import GraphFiles, Processor, outcome_of, row_labels
from assay.graphs.reading import GraphFile, graph_of, produced
from assay.graphs.spec import LambdaSpec, Record
from assay.graphs.sygra_classes import is_unit_result, unit_value, why_lost
from assay.graphs.unit_node import SUFFIX, UnitMetrics, check_unit_metrics, read_unit_entries, unit_metric_fields
from assay.records import Answers, Failed, FilterScores, Response, Sample
from assay.score_keys import ScoreKey
from assay.scoring.declarations import Metric
from assay.scoring.helper_code import Helpers
from assay.scoring.results import AnsweredSample, grouped
from assay.statistics.aggregations import AGGREGATIONS, AggregationOrFunction, within
from assay.statistics.evidence import Estimate
from assay.tasks.runnable import Estimator, TaskFacts
from assay.tasks.settings import Settings
from assay.tasks.task import Task
from assay.user_code import call_user_code

UNFILTERED = "none"
"""The filter of a graph's rows: its records are answers already."""
BETTER = ("accuracy", "average_f1_score", "average_precision", "average_recall", "pass@", "pass^", "success_rate",
          "step_efficiency")  # fmt: skip
"""How the names of numbers begin of which more is better."""


def unit_fields(file: GraphFile, helpers: Helpers, folder: str | None, problems: list[Problem]) -> list[str]:
    """The columns of unit results that its nodes write, checked."""
    names: list[str] = []
    for name, node in file.nodes.items():
        if not isinstance(node, LambdaSpec) or node.node_state == "idle":
            continue
        place = file.node_place(name, "lambda")
        try:
            function = helpers.dotted(node.function, folder, place)
        except ConfigError:
            continue  # said where the node was bound
        if isinstance(function, type) and issubclass(function, UnitMetrics):
            raw: Any = file.config.graph_config.nodes[name]
            problems += check_unit_metrics(raw, partial(file.node_place, name))
            names += unit_metric_fields(raw)
    return names


def aggregator_problems(
    file: GraphFile, processors: Sequence[Processor], columns: Collection[str] | None, settings: Settings
) -> list[Problem]:
    """List the problems of the aggregators: metrics, parameters, columns that no record has.

    `columns` are those of the records; None where only the code that writes them knows.
    """
    problems: list[Problem] = []
    for at, each in enumerate(processors):
        if isinstance(each.instance, MetricCollatorPostProcessor):
            produced = None if each.takes_previous else columns
            place_of = partial(file.place, "graph_post_process", at, "params")
            problems += each.instance.problems(produced, place_of, settings.dialect)
    return problems


def row_problems(
    file: GraphFile, fields: Sequence[str], processors: Sequence[Processor], settings: Settings
) -> Iterator[Problem]:
    """Rows of one name: of two columns of unit results, or of a column and a report."""
    writers = {
        field: file.node_place(name)
        for name, node in file.nodes.items()
        if isinstance(node, LambdaSpec)
        for field in unit_metric_fields(node.settings)
    }
    place = file.place("graph_config")
    units: dict[str, Place] = {}
    fix = "give the unit metric or the aggregator another name with `as:`"
    for column in _columns(file, fields, processors) if not settings.dialect.keeps_last_of_equal_results else ():
        name, at = column.removesuffix(SUFFIX), writers.get(column, place)
        if name in units:
            yield Problem(at, f"two columns make the row {name!r}: the other one is written at {units[name]}", fix)
        units.setdefault(name, at)
    for nth, each in enumerate(processors if units else ()):
        for label in _report_rows(each, settings) or ():
            if label in units:
                what = f"two rows are named {label!r}: the other one is of the unit metric at {units[label]}"
                yield Problem(file.place("graph_post_process", nth), what, fix)


def _report_rows(processor: Processor, settings: Settings) -> Collection[str] | None:
    """The rows of its report; nothing of one that makes none, None where only code of users knows."""
    if not isinstance(processor.instance, MetricCollatorPostProcessor):
        return ()
    numbers = processor.instance.numbers(settings.dialect)
    return None if numbers is None else row_labels(numbers).values()


def scored_columns(file: GraphFile, fields: Sequence[str], processors: Sequence[Processor]) -> dict[str, str]:
    """By name of a row, the column of the output that it is the mean of."""
    return {column.removesuffix(SUFFIX): column for column in _columns(file, fields, processors)}


def _columns(file: GraphFile, fields: Sequence[str], processors: Sequence[Processor]) -> list[str]:
    """The columns of the output that hold unit results."""
    outputs = {field.source: name for name, field in file.outputs.items() if field.source is not None}
    columns = [outputs.get(column, column) for column in fields]
    for processor in processors:
        if isinstance(processor.instance, MetricCollatorPostProcessor) and not processor.takes_previous:
            columns += [entry.column for entry in processor.instance.entries(OURS)]
    return [column for column in dict.fromkeys(columns) if not file.outputs or column in file.outputs]


def result_columns(file: GraphFile) -> list[str]:
    """The columns of the output that are called as those of unit results are, whoever writes them."""
    return sorted(name for name in file.outputs or produced(file) if name.endswith(SUFFIX))


def find_better(rows: Iterable[ScoreKey]) -> dict[str, bool | None]:
    """The rows of numbers of which more is better, whatever column, aggregator or report is named before the number.

    >>> find_better([ScoreKey("MetricCollatorPostProcessor_2.exact_match-accuracy", "none"), ScoreKey("total_steps", "none")])
    {'MetricCollatorPostProcessor_2.exact_match-accuracy': True}
    """
    return {row.metric: True for row in rows if re.split("[.-]", row.metric)[-1].startswith(BETTER)}


@dataclass(kw_only=True)
class GraphScores:
    """A graph as far as its records are there: `scored` are its rows, each the mean of a column of unit results."""

    task: Task
    settings: Settings
    processors: Sequence[Processor]
    scored: Mapping[str, str]
    is_batch: bool = False
    _files: GraphFiles | None = field(default=None, repr=False)

    @property
    def facts(self) -> TaskFacts:
        raise NotImplementedError

    def _facts(self, size: int, original: int, source: str) -> TaskFacts:
        """Return the facts of the graph with those of its records. Its scores are made within: it has no scorers."""
        return TaskFacts(
            size=size,
            original=original,
            version=(self.task.config.metadata or {}).get("version", "Yaml"),
            source=source,
            fingerprint=source,
            cluster_column=self.task.config.cluster_by,
            rows=self._rows(),
            listed_rows=[ScoreKey(name, UNFILTERED) for name in self.scored],
        )

    def document(self, sample: Sample, responses: Sequence[Response]) -> AnsweredSample:
        """The record with what was asked on its way."""
        outcome = outcome_of(responses)
        by_request = grouped(outcome.asked, responses[: len(outcome.asked)], 1)  # samples of nothing asked have one
        return AnsweredSample(
            sample._replace(requests=outcome.asked), by_request, filtered={UNFILTERED: [outcome.record]}
        )

    def score(self, documents: Sequence[AnsweredSample]) -> list[list[FilterScores] | Failed]:
        return [call_user_code("scoring", self._score, document.filtered[UNFILTERED]) for document in documents]

    def _score(self, answers: Answers) -> list[FilterScores] | Failed:
        """The row of each column of unit results: its score, or why it has none. Without any score, the record has failed.

        The columns that no UnitMetrics node is known to write are what users' own code has measured; others may be called so,
        and hold something else.
        """
        record: Record = answers[0]
        values: dict[str, float] = {}
        failed: dict[str, str] = {}
        if self.settings.run.predict_only:
            return [FilterScores(UNFILTERED, answers, values)]
        for name, column in self.scored.items():
            cell = record.get(column)
            score = unit_value(cell)
            if score is not None:
                values[name] = score
            else:
                why = why_lost(cell) or f"the record has no result in {column!r}, but {cell!r:.60}"
                failed[name] = f"scoring: {why}"
        for column, cell in record.items():
            name = str(column).removesuffix(SUFFIX)
            if name == column or name in self.scored:
                continue
            score = unit_value(cell)
            if score is not None:
                values[name] = score
            elif name in self._directions or is_unit_result(cell):
                failed[name] = f"scoring: {column!r} has no score that is a number"
            else:
                continue
            self._directions.setdefault(name, True)
        if failed and not values:
            return Failed("; ".join(dict.fromkeys(failed.values())))
        return [FilterScores(UNFILTERED, answers, values, failed=failed)]

    @property
    def parents(self) -> Mapping[str, str]:
        return {}

    def aggregation(self, row: ScoreKey) -> AggregationOrFunction | None:
        if row.metric not in self.scored and row.metric not in self._directions:
            return None
        declared = self._metrics.get(self.scored.get(row.metric, ""))
        return within(AGGREGATIONS["mean"], declared.bounds if declared is not None else None)

    def _rows(self) -> frozenset[ScoreKey] | None:
        """Its unit metrics, and the numbers of its reports; None where code of users names them."""
        names = {*self.scored, *(column.removesuffix(SUFFIX) for column in result_columns(graph_of(self.task)))}
        for each in self.processors:
            labels = _report_rows(each, self.settings)
            if labels is None:
                return None
            names.update(labels)
        return frozenset(ScoreKey(name, "none") for name in names)

    def higher_is_better(self) -> Mapping[str, bool | None]:
        return self._directions

    @cached_property
    def _directions(self) -> dict[str, bool | None]:
        """Rows of unit metrics, and those of a report of which more is known to be better."""
        # in order of their names: a set of texts is walked in another order by every process
        named = find_better(sorted(self.facts.rows or ()))
        worse = {column for column, declared in self._metrics.items() if not declared.higher_is_better}
        units = {name: column not in worse for name, column in self.scored.items()}
        return {**named, **units}

    @cached_property
    def _metrics(self) -> dict[str, Metric]:
        """By column of the output the unit metric that writes it."""
        nodes = [node for node in graph_of(self.task).nodes.values() if isinstance(node, LambdaSpec)]
        entries = [entry for node in nodes for entry in read_unit_entries(node.settings)]
        return {entry.field: entry.declared for entry in entries if entry.declared is not None}

    def described(self) -> Record:
        """The file."""
        return dict(self.task.fields)

    def files(self, folder: Path | None, created: float, label: str) -> GraphFiles:
        """Return the writer of its records."""
        form = graph_of(self.task).config.output_config.format
        compat = self.settings.run.compat
        sinks = graph_of(self.task).config.data_config.sink
        self._files = GraphFiles(folder, created, self.processors, form, self.facts.size, label, compat, sinks)
        return self._files

    def conclude(self, estimated: Estimator) -> Mapping[ScoreKey, Estimate]:
        """The numbers of all records together."""
        if self._files is None:
            return {}
        rows = self._files.conclude(estimated)
        self._directions.update({**find_better(rows), **self._files.directions})
        return rows
