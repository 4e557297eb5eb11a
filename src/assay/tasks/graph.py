"""A task that is a graph: records go through it, and what their unit metrics say are its scores."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.aggregate.functions import AGGREGATIONS, Aggregation
from assay.config.graph import LambdaNode, SourceConfig
from assay.config.graph_keys import has_hidden_keys, produced, undeclared
from assay.config.graph_reading import GraphFile
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.plans.graph import Graph
from assay.records import Asking, Estimate, Failed, FilterScores, Response, Sample, ScoreKey, Text
from assay.runs.redact import HIDDEN, redacted_text
from assay.samples.data import Split, columns_of
from assay.samples.graph_rows import Transform, graph_rows
from assay.samples.rows import DataError
from assay.scorers.loop import Document
from assay.tasks.collate import MetricCollatorPostProcessor, UnitMetrics, check_aggregators, check_unit_metrics
from assay.tasks.documents import chosen, count
from assay.tasks.graph_binding import Binder
from assay.tasks.graph_files import GraphFiles, Processor, make_processors, outcome_of
from assay.tasks.graph_models import UNDER_TEST, GraphModels
from assay.tasks.graph_output import make_finish
from assay.tasks.prepare import check_clusters
from assay.tasks.settings import Helpers, Settings
from assay.tasks.task import Task
from assay.tasks.unit_metrics import unit_metric_fields

SUFFIX = "_result"
SECRETS = ("auth_token", "token", "api_key", "password")
"""Keys of graph files whose values are written nowhere."""
ReadGraph = Callable[[str, Place], GraphFile]
"""Finds the graph of another file by its name."""


def prepare_graph(task: Task, settings: Settings, helpers: Helpers, read: ReadGraph) -> "GraphTask":
    """The graph, bound to its records, its models and its code. All that can fail before the first request does so here."""
    file = task.graph
    assert file is not None
    folder = file.fields.origin("graph_config").folder
    models = GraphModels(file, settings.graphs, helpers, settings.gen_kwargs, folder)
    binder = Binder(file, models, helpers, folder, read)
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
    fields = _unit_fields(file, helpers, folder, problems)
    rows, name = _records(file, settings, helpers, folder, problems)
    problems += [*undeclared(file, columns_of(rows)), *_lacking_sides(file, columns_of(rows))]
    problems += _aggregator_problems(file, processors or (), columns_of(rows), settings)
    if problems or graph is None or processors is None:
        raise ConfigError(problems)
    made = GraphTask(task, settings, rows, name, graph, models, processors, _scored(file, fields, processors))
    check_clusters(task, rows)
    if not made.size:
        raise DataError("there are no records")
    return made


def _unit_fields(file: GraphFile, helpers: Helpers, folder: str | None, problems: list[Problem]) -> list[str]:
    """The columns of unit results that its nodes write, checked."""
    found: list[str] = []
    for name, node in file.nodes.items():
        if not isinstance(node, LambdaNode) or node.node_state == "idle":
            continue
        place = file.node_place(name, "lambda")
        try:
            function = helpers.dotted(node.function, folder, place)
        except ConfigError:
            continue  # said where the node was bound
        if isinstance(function, type) and issubclass(function, UnitMetrics):
            raw: Any = file.config.graph_config.nodes[name]
            problems += check_unit_metrics(raw, file.node_place(name))
            found += unit_metric_fields(raw)
    return found


def _lacking_sides(file: GraphFile, columns: Sequence[str]) -> Iterator[Problem]:
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


def _records(
    file: GraphFile, settings: Settings, helpers: Helpers, folder: str | None, problems: list[Problem]
) -> tuple[Split, str]:
    config = file.config.data_config
    transforms = []
    for number, source in enumerate(config.source or ()):
        transforms.append(_transforms(file, source, number, helpers, folder, problems))
    if problems:
        raise ConfigError(problems)
    wanted = int(settings.limit) + settings.start if settings.limit is not None and settings.limit >= 1 else None
    return graph_rows(config, transforms, folder=folder, data_dir=settings.data_dir, wanted=wanted)


def _transforms(
    file: GraphFile, source: SourceConfig, number: int, helpers: Helpers, folder: str | None, problems: list[Problem]
) -> list[Transform]:
    written: Any = file.fields["data_config"]
    several = isinstance(written["source"], list)
    at: tuple[str | int, ...] = ("data_config", "source", *([number] if several else []), "transformations")
    made: list[Transform] = []
    for index, each in enumerate(source.transformations):
        place = file.place(*at, index, "transform")
        try:
            kind = helpers.dotted(each.transform, folder, place)
        except ConfigError as error:
            problems += error.problems
            continue
        if not isinstance(kind, type) or not hasattr(kind, "transform"):
            problems.append(Problem(place, f"{each.transform} has no `transform`", "derive it from DataTransform"))
            continue
        change = kind()
        if hasattr(change, "problems"):
            problems += change.problems(each.params, file.place(*at, index))
        made.append(_transform(change, dict(each.params)))
    return made


def _transform(made: Any, params: dict[str, Any]) -> Transform:
    return lambda rows: made.transform(rows, params)


def _aggregator_problems(
    file: GraphFile, processors: Sequence[Processor], columns: Sequence[str], settings: Settings
) -> list[Problem]:
    """What is wrong with what the report is to say: metrics, parameters, columns that no record has."""
    outputs: set[str] | None = set(file.outputs) or {*columns, *produced(file)}
    if file.config.output_config.generator is not None or (not file.outputs and has_hidden_keys(file)):
        outputs = None
    problems: list[Problem] = []
    for number, each in enumerate(processors):
        if isinstance(each.made, MetricCollatorPostProcessor):
            place = file.place("graph_post_process", number, "params")
            known = None if each.takes_previous else outputs
            problems += check_aggregators(
                each.made.aggregator_metrics_map, known, place, like_sygra=settings.graphs.like_sygra,
                field_names=each.made.field_names,
            )  # fmt: skip
    return problems


def _scored(file: GraphFile, fields: Sequence[str], processors: Sequence[Processor]) -> dict[str, str]:
    """By name of a row, the column of the output that it is the mean of."""
    outputs = {field.source: name for name, field in file.outputs.items() if field.source is not None}
    columns = [outputs.get(each, each) for each in fields]
    for each in processors:
        if isinstance(each.made, MetricCollatorPostProcessor) and not each.takes_previous:
            for entry in each.made.aggregator_metrics_map:
                named = entry.get("unit_metrics_results") or ()
                columns += [named] if isinstance(named, str) else list(named)
    shown = columns if not file.outputs else [column for column in columns if column in file.outputs]
    return {column.removesuffix(SUFFIX): column for column in dict.fromkeys(shown)}


def _without_secrets(value: Any, name: str) -> Any:
    """A value of the file; `golden_key` and its like are no secrets, and prompts stay as they are."""
    if name in SECRETS:
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: _without_secrets(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_secrets(inner, name) for inner in value]
    return redacted_text(value) if isinstance(value, str) and name in ("url", "base_url") else value


@dataclass
class GraphTask:
    """A graph, ready to be run. `scored` are its rows: each the mean of a column of unit results."""

    task: Task
    settings: Settings
    docs: Split
    fingerprint: str
    graph: Graph
    graph_models: GraphModels
    processors: Sequence[Processor]
    scored: Mapping[str, str]
    is_batch: bool = False
    repeats: int = 1
    num_fewshot: int = 0
    _files: GraphFiles | None = field(default=None, repr=False)

    @cached_property
    def original(self) -> int:
        return len(self.docs)

    @cached_property
    def size(self) -> int:
        return count(self.docs, self.task.name, self.settings)

    @cached_property
    def _golden(self) -> str | None:
        """The column that answers are compared with, where unit metrics say so."""
        assert self.task.graph is not None
        nodes = self.task.graph.nodes.values()
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
        tools = {"tools"} if role in self.graph_models.with_tools else set()
        return frozenset({"generate", "chat", *tools} if role in self.graph_models.used else ())

    @property
    def version(self) -> object:
        return (self.task.config.metadata or {}).get("version", "Yaml")

    def samples(self) -> Iterator[Sample]:
        for doc_id, doc in chosen(self.docs, self.task.name, self.settings):
            target = doc.get(self._golden) if self._golden is not None else None
            yield Sample(doc_id, doc, (), target, target)

    def plan(self, sample: Sample) -> Asking:
        return self.graph.plan(sample.doc, f"{self.task.name}\0{sample.doc_id}")

    def models(self) -> Mapping[str, object]:
        return self.graph_models.wanted

    multiple_targets = False

    def scorers(self) -> Sequence[Any]:
        """A graph scores within itself: its unit metrics are nodes."""
        return ()

    def document(self, sample: Sample, responses: Sequence[Response]) -> Document:
        """The record with what was asked on its way."""
        outcome = outcome_of(responses)
        texts = [[response.text] for response in responses if isinstance(response, Text)]
        return Document(sample._replace(requests=outcome.asked), texts, [outcome])

    def score(self, documents: Sequence[Document]) -> list[list[FilterScores] | Failed]:
        return [self._score(outcome_of(list(document.verdicts)).record) for document in documents]

    def _score(self, record: Mapping[str, Any]) -> list[FilterScores] | Failed:
        values: dict[str, float] = {}
        for name, column in self.scored.items() if not self.settings.predict_only else ():
            cell = record.get(column)
            if not isinstance(cell, Mapping) or "correct" not in cell:
                return Failed(f"scoring: the record has no result in {column!r}, but {cell!r:.60}")
            score = cell.get("score")
            values[name] = float(cell["correct"] if score is None else score)
        return [FilterScores("none", [record], values)]

    def aggregation(self, metric: str) -> Aggregation | Callable[..., Any] | None:
        return AGGREGATIONS["mean"] if metric in self.scored else None

    def rows(self) -> frozenset[ScoreKey] | None:
        return None if self.processors else frozenset(ScoreKey(name, "none") for name in self.scored)

    def higher_is_better(self) -> Mapping[str, bool | None]:
        return dict.fromkeys(self.scored, True)

    def described(self) -> Mapping[str, object]:
        """The file, without its secrets."""
        return {key: _without_secrets(value, key) for key, value in self.task.fields.items()}

    def files(self, folder: Path | None, created: float, label: str) -> GraphFiles:
        """What takes its records in a run."""
        assert self.task.graph is not None
        form = self.task.graph.config.output_config.format
        compat = "sygra" if self.settings.graphs.like_sygra else None
        sinks = self.task.graph.config.data_config.sink
        self._files = GraphFiles(folder, created, self.processors, form, self.size, label, compat, sinks)
        return self._files

    def conclude(self) -> Mapping[ScoreKey, Estimate]:
        """The numbers of all records together."""
        return self._files.conclude() if self._files is not None else {}
