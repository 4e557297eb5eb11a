"""A task that is a graph: records go through it, and what their unit metrics say are its scores."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.graphs.binding import Binder
from assay.graphs.files import Estimated, make_processors
from assay.graphs.keys import has_hidden_keys, produced, undeclared
from assay.graphs.models import UNDER_TEST, GraphModels
from assay.graphs.output import make_finish
from assay.graphs.reading import GraphFile, graph_of
from assay.graphs.scores import (
    GraphScores,
    aggregator_problems,
    result_columns,
    row_problems,
    scored_columns,
    unit_fields,
)
from assay.graphs.sources import GraphSources
from assay.graphs.spec import LambdaNode
from assay.graphs.walk import Graph
from assay.records import Asking, Estimate, Sample, ScoreKey
from assay.samples.data import Split, columns_of
from assay.samples.rows import DataError
from assay.tasks.documents import chosen, count, is_in
from assay.tasks.prepare import check_clusters
from assay.tasks.settings import Helpers, Settings
from assay.tasks.task import Task

UNMEASURED = "no metric: nothing is measured; add a UnitMetrics node or a post-processor"
ReadGraph = Callable[[str, Place], GraphFile]
"""Finds the graph of another file by its name."""


def prepare_graph(task: Task, settings: Settings, helpers: Helpers, read: ReadGraph) -> "GraphTask":
    """The graph, bound to its records, its models and its code. All that can fail before the first request does so here."""
    file = graph_of(task)
    folder = file.fields.origin("graph_config").folder
    models = GraphModels(file, settings.graphs, helpers, settings.gen_kwargs, folder)
    sources = GraphSources(settings, helpers)
    binder = Binder(file, models, helpers, folder, read, sources.column)
    problems: list[Problem] = []
    graph = processors = None
    try:
        graph = binder.bind(make_finish(file, helpers, folder))
    except ConfigError as error:
        problems += error.problems
    try:
        processors = make_processors(file, helpers, folder)
    except ConfigError as error:
        problems += error.problems
    fields = unit_fields(file, helpers, folder, problems)
    problems += sources.missing_files(file, folder)
    if problems:  # what its source says is looked at all the same
        sources.transforms(file, folder, problems)
        raise ConfigError(problems)
    rows, name = sources.records(file, folder)
    problems += [*undeclared(file, columns_of(rows)), *lacking_sides(file, columns_of(rows))]
    problems += aggregator_problems(file, processors or (), columns_written(file, columns_of(rows)), settings)
    problems += [] if problems else row_problems(file, fields, processors or (), settings)
    if problems or graph is None or processors is None:
        raise ConfigError(problems)
    made = GraphTask(
        task=task,
        settings=settings,
        processors=processors,
        scored=scored_columns(file, fields, processors),
        docs=rows,
        fingerprint=sources.named(name),
        graph=graph,
        graph_models=models,
    )
    if not made.scored and not processors and not result_columns(file) and not settings.predict_only:
        logging.getLogger("assay").warning("%s: %s", task.name, UNMEASURED)
    check_clusters(task, rows)
    if not made.size:
        raise DataError("there are no records")
    return made


def columns_written(file: GraphFile, columns: Sequence[str]) -> set[str] | None:
    """The columns that records will have; None where code decides."""
    if file.config.output_config.generator is not None or (not file.outputs and has_hidden_keys(file)):
        return None
    return set(file.outputs) or {*columns, *produced(file)}


def lacking_sides(file: GraphFile, columns: Sequence[str]) -> Iterator[Problem]:
    """Unit metrics that compare what is never there."""
    known = {*columns, *produced(file)}
    for name, node in file.nodes.items():
        for key in (
            ("golden_key", "predicted_key") if isinstance(node, LambdaNode) and not has_hidden_keys(file) else ()
        ):
            wanted = node.settings.get(key)
            if isinstance(wanted, str) and "unit_metrics_map" in node.settings and wanted not in known:
                what = f"nothing produces {wanted!r}: no column of the records, no output_keys"
                yield Problem(file.node_place(name, key), what, did_you_mean(wanted, known))


@dataclass(kw_only=True)
class GraphTask(GraphScores):
    """A graph, ready to be run."""

    docs: Split
    fingerprint: str
    graph: Graph
    graph_models: GraphModels

    @cached_property
    def original(self) -> int:
        return len(self.docs)

    @cached_property
    def size(self) -> int:
        return count(self.docs, self.task.name, self.settings)

    @cached_property
    def _golden(self) -> str | None:
        """The column that answers are compared with, where unit metrics say so."""
        nodes = graph_of(self.task).nodes.values()
        found = (node.settings.get("golden_key") for node in nodes if isinstance(node, LambdaNode))
        return next((str(key) for key in found if key is not None), None)

    @property
    def source(self) -> str:
        return self.fingerprint

    @property
    def needs(self) -> frozenset[str]:
        return self.needs_of(UNDER_TEST)

    def needs_of(self, role: str) -> frozenset[str]:
        """What the model of a role must be able to do."""
        return frozenset(self.graph_models.needs.get(role, ()))

    def samples(self) -> Iterator[Sample]:
        for number, (doc_id, doc) in enumerate(chosen(self.docs, self.task.name, self.settings)):
            if not is_in(self.settings.shard, number):
                continue
            target = doc.get(self._golden) if self._golden is not None else None
            yield Sample(doc_id, doc, (), target, target)

    def plan(self, sample: Sample) -> Asking:
        return self.graph.plan(sample.doc, f"{self.task.name}\0{sample.doc_id}", sample.doc_id)

    def models(self) -> Mapping[str, object]:
        return self.graph_models.wanted

    def role_needs(self) -> Mapping[str, frozenset[str]]:
        return {role: self.needs_of(role) for role in self.models()}

    def conclude(self, estimated: Estimated) -> Mapping[ScoreKey, Estimate]:
        """Further copies of the output, and the numbers of all records together."""
        if self._files is not None and self.settings.shard is None:
            self._files.write_copies()
        return super().conclude(estimated)
