"""A task that is a graph: records go through it, and what their unit metrics say are its scores."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from assay.catalog.functions import registered_names
from assay.checks import Check, Level, list_problems
from assay.errors import ConfigError, Place, Problem, collect, did_you_mean, nearest
from assay.graphs.agent_metrics import unknown_tools
from assay.graphs.aggregator_metrics import REPEAT, REPEAT_OF
from assay.graphs.binding import GraphBinder
from assay.graphs.collate import LACKING
from assay.graphs.models import GraphModels
from assay.graphs.output import Finish, Processor, make_finish, make_processors
from assay.graphs.reading import GraphFile, graph_of, has_hidden_keys, produced, undeclared
from assay.graphs.scores import (
    GraphScores,
    aggregator_problems,
    result_columns,
    row_problems,
    scored_columns,
    unit_fields,
)
from assay.graphs.sources import GraphSources
from assay.graphs.spec import AgentSpec, LambdaSpec, SubgraphSpec
from assay.graphs.tools import find_tools, tool_spec
from assay.graphs.transforms import TRANSFORMS
from assay.graphs.unit_node import read_unit_entries
from assay.graphs.walk import Graph
from assay.records import Function, Plan, Sample, UserValue
from assay.samples.data import Split, columns_of
from assay.samples.rows import DataError
from assay.score_keys import ScoreKey
from assay.scoring.helper_code import Helpers
from assay.statistics.evidence import Estimate
from assay.tasks.checks import unknown_clusters
from assay.tasks.documents import chosen, count, is_in
from assay.tasks.kinds import FindDotted
from assay.tasks.rescore import StoredTask
from assay.tasks.runnable import UNDER_TEST, Estimator, TaskFacts
from assay.tasks.settings import Settings
from assay.tasks.stand_ins import UnloadedMethods, is_written_function, unloaded_function
from assay.tasks.task import Task

NO_RECORDS = "the source has no records"
UNMEASURED = "no metric: nothing is measured; add a UnitMetrics node or a post-processor"
ReadGraph = Callable[[str, Place], GraphFile]
"""Finds the graph of another file by its name."""


def prepare_graph(task: Task, settings: Settings, helpers: Helpers, read: ReadGraph) -> "GraphTask":
    """The graph, bound to its records, its models and its code. All that can fail before the first request does so here."""
    file = graph_of(task)
    folder = file.folder
    models = GraphModels(file, settings, helpers)
    sources = GraphSources(settings, helpers)
    binder = GraphBinder(file, models, helpers, read, sources.column)
    problems: list[Problem] = []
    graph = collect(problems, lambda: binder.bind(_finish_for(file, make_finish(file, helpers, folder), settings)))
    processors = collect(problems, make_processors, file, helpers, folder)
    fields = unit_fields(file, helpers, folder, problems)
    problems += sources.missing_files(file, folder)
    if problems:  # what its source says is looked at all the same
        sources.transforms(file, folder, problems)
        raise ConfigError(problems)
    rows, name = sources.records(file, folder)
    if not len(rows) and not settings.dialect.reports_without_records:
        raise DataError(NO_RECORDS)
    columns = (*columns_of(rows), *(REPEAT_COLUMNS if _repeats(settings) > 1 else ())) if len(rows) else ()
    checked = CheckedGraph(task, file, settings, models, processors or (), columns)
    problems += list_problems(GRAPH_CHECKS, checked, Level.BOUND)
    tools = {
        tool for node in (graph.nodes if graph is not None else {}).values() for tool in getattr(node, "tools", ())
    }
    problems += [each for each in unknown_tool_problems(file, tools) if each.serious]
    problems += (
        [] if any(problem.serious for problem in problems) else row_problems(file, fields, processors or (), settings)
    )
    serious = [problem for problem in problems if problem.serious]
    if serious or graph is None or processors is None:
        raise ConfigError(serious)
    for note in problems:
        logging.getLogger("assay").warning("%s", note)
    prepared = GraphTask(
        task=task,
        settings=settings,
        processors=processors,
        scored=scored_columns(file, fields, processors),
        docs=rows,
        fingerprint=sources.named(name),
        graph=graph,
        graph_models=models,
    )
    if not prepared.scored and not processors and not result_columns(file) and not settings.run.predict_only:
        logging.getLogger("assay").warning("%s: %s", task.name, UNMEASURED)
    if not prepared.facts.size and len(rows):
        raise DataError("there are no records")
    return prepared


REPEAT_COLUMNS = (REPEAT_OF, REPEAT)


def _repeats(settings: Settings) -> int:
    return settings.run.repeats or 1


def _finish_for(file: GraphFile, finish: Finish, settings: Settings) -> Finish:
    """Return output records with the columns that tell the repeats of a record apart, and like SyGra's without those of
    agents that no output_map names."""
    agents = [node for node in file.nodes.values() if isinstance(node, AgentSpec)]
    is_hidden = settings.dialect.hides_trajectories and not file.outputs
    hidden = {key for node in agents for key in node.further_keys} if is_hidden else set()
    added = REPEAT_COLUMNS if _repeats(settings) > 1 else ()
    if not hidden and not added:
        return finish
    return lambda state: {
        **{key: value for key, value in finish(state).items() if key not in hidden},
        **{column: state[column] for column in added},
    }


class CheckedGraph(NamedTuple):
    """A graph as far as it is known: of records that come over a network, or from user code that is not run, no column is."""

    task: Task
    file: GraphFile
    settings: Settings
    models: GraphModels
    processors: Sequence[Processor]
    columns: tuple[str, ...]


def _taken_columns(graph: CheckedGraph) -> Iterator[Problem]:
    for column in REPEAT_COLUMNS:
        if graph.columns.count(column) > 1:
            what = f"the records have a column {column!r}, which --repeats writes"
            yield Problem(graph.file.place("graph_config"), what, "rename the column, or run without --repeats")


def _unasked_model(graph: CheckedGraph) -> Iterator[Problem]:
    """Find the model of a run that the graph does not ask: table and manifest would credit it with the graph's numbers."""
    file, models = graph.file, graph.models
    if not models.settings.graphs.whole or UNDER_TEST in models.needs:
        return
    roles = " and ".join(sorted(models.backends))
    asked = f"the roles {roles} only" if roles else "no model"
    what = f"the graph asks {asked}, and the run names a model under test, which would be credited with its numbers"
    fix = "leave --model out (model=None in Python), and run tasks that ask it by another command"
    yield Problem(file.place("graph_config"), what, fix, serious=not roles)


def _columns_written(file: GraphFile, columns: Sequence[str]) -> set[str] | None:
    """The columns that records will have; None where code decides."""
    if not columns or file.config.output_config.generator is not None or (not file.outputs and has_hidden_keys(file)):
        return None
    return (set(file.outputs) or {*columns, *produced(file)}) | set(REPEAT_COLUMNS).intersection(columns)


def _wrong_aggregators(graph: CheckedGraph) -> list[Problem]:
    written = _columns_written(graph.file, graph.columns)
    return aggregator_problems(graph.file, graph.processors, written, graph.settings)


def _undeclared_keys(graph: CheckedGraph) -> Iterator[Problem]:
    if graph.columns:
        yield from undeclared(graph.file, graph.columns, graph.settings.dialect)


def _lacking_sides(graph: CheckedGraph) -> Iterator[Problem]:
    """Find unit metrics that compare values which nothing produces."""
    file, columns = graph.file, graph.columns
    if not columns:
        return
    known = {*columns, *produced(file)}
    for name, node in file.nodes.items():
        for key in (
            ("golden_key", "predicted_key") if isinstance(node, LambdaSpec) and not has_hidden_keys(file) else ()
        ):
            column = node.settings.get(key)
            if isinstance(column, str) and "unit_metrics_map" in node.settings and column not in known:
                what = f"nothing produces {column!r}: no column of the records, no output_keys"
                yield Problem(file.node_place(name, key), what, did_you_mean(column, known))


def _unknown_clusters(graph: CheckedGraph) -> Iterator[Problem]:
    if graph.columns:
        yield from unknown_clusters(graph.task, graph.columns)


GRAPH_CHECKS: tuple[Check[CheckedGraph], ...] = (
    Check(Level.BOUND, _undeclared_keys),
    Check(Level.BOUND, _lacking_sides),
    Check(Level.BOUND, _taken_columns),
    Check(Level.BOUND, _unasked_model),
    Check(Level.BOUND, _unknown_clusters),
    Check(Level.BOUND, _wrong_aggregators),
)


def unknown_tool_problems(file: GraphFile, tools: Collection[str]) -> Iterator[Problem]:
    """Yield the problems of unit metrics that name tools which no node of the graph has: they would never be called.

    Names far from those of all tools are only notes: a model may call what is not there. `tools` are those of all nodes;
    none where they are not known without running code.
    """
    if not tools or any(isinstance(node, SubgraphSpec) for node in file.nodes.values()):
        return
    for name, node in file.nodes.items():
        if isinstance(node, LambdaSpec) and node.settings.get("predicted_key") in produced(file):
            for at, entry in enumerate(read_unit_entries(node.settings)):
                for key, tool in unknown_tools(entry.name, entry.written.get("params"), tools):
                    place = file.node_place(name, "unit_metrics_map", at, "params", key)
                    is_slip = bool(nearest(tool, tools, count=1))
                    what = f"no node has a tool named {tool!r}"
                    yield Problem(place, what, did_you_mean(tool, tools), serious=is_slip)


@dataclass(kw_only=True)
class GraphTask(GraphScores):
    """A graph, ready to be run."""

    docs: Split
    fingerprint: str
    graph: Graph
    graph_models: GraphModels

    @cached_property
    def facts(self) -> TaskFacts:
        repeats = _repeats(self.settings)
        size = count(self.docs, self.task.name, self.settings) * repeats
        facts = self._facts(size, len(self.docs) * repeats, self.fingerprint)
        return replace(
            facts,
            cluster_column=facts.cluster_column or (REPEAT_OF if repeats > 1 else None),
            keeps_records=self.graph.keeps_records,
            models=self.graph_models.backends,
        )

    def needs(self, role: str = UNDER_TEST) -> frozenset[str]:
        return frozenset(self.graph_models.needs.get(role, ()))

    @cached_property
    def _golden(self) -> str | None:
        """The column that answers are compared with, where unit metrics say so."""
        nodes = graph_of(self.task).nodes.values()
        keys = (node.settings.get("golden_key") for node in nodes if isinstance(node, LambdaSpec))
        return next((str(key) for key in keys if key is not None), None)

    def samples(self) -> Iterator[Sample]:
        repeats = _repeats(self.settings)
        for number, (doc_id, doc) in enumerate(chosen(self.docs, self.task.name, self.settings)):
            if not is_in(self.settings.shard, number):
                continue
            target = doc.get(self._golden) if self._golden is not None else None
            if repeats == 1:
                yield Sample(doc_id, doc, (), target, target)
                continue
            for repeat in range(repeats):
                repeated = {**doc, REPEAT_OF: doc_id, REPEAT: repeat + 1}
                yield Sample(doc_id * repeats + repeat, repeated, (), target, target)

    def plan(self, sample: Sample) -> Plan:
        return self.graph.plan(sample.doc, f"{self.task.name}\0{sample.doc_id}", sample.doc_id)

    def conclude(self, estimated: Estimator) -> Mapping[ScoreKey, Estimate]:
        """Further copies of the output, and the numbers of all records together."""
        if self._files is not None and self.settings.shard is None:
            self._files.write_copies()
        return super().conclude(estimated)


@dataclass(kw_only=True)
class RescoredGraph(GraphScores):
    """A graph whose records went through it in an earlier run."""

    stored: StoredTask

    @cached_property
    def facts(self) -> TaskFacts:
        facts = self._facts(self.stored.size, self.stored.original, self.stored.source)
        is_repeated = REPEAT_OF in (self.stored.first or ())
        return replace(facts, cluster_column=facts.cluster_column or (REPEAT_OF if is_repeated else None))

    def needs(self, role: str = UNDER_TEST) -> frozenset[str]:  # noqa: ARG002  # nothing is asked
        return frozenset()

    def samples(self) -> Iterator[Sample]:
        return iter(())

    def plan(self, sample: Sample) -> Plan:
        raise NotImplementedError("stored records are not asked about")


def prepare_graph_scoring(task: Task, settings: Settings, helpers: Helpers, stored: StoredTask) -> RescoredGraph:
    """The graph, ready to take its records; `stored.first` is one of them, and has the columns that can be aggregated."""
    file = graph_of(task)
    folder = file.folder
    processors = make_processors(file, helpers, folder)
    problems: list[Problem] = []
    fields = unit_fields(file, helpers, folder, problems)
    columns = stored.first
    problems += aggregator_problems(file, processors, columns, settings)
    if problems:
        raise ConfigError(problems)
    scored = scored_columns(file, fields, processors)
    there = {name: column for name, column in scored.items() if columns is None or column in columns}
    return RescoredGraph(task=task, settings=settings, processors=processors, scored=there, stored=stored)


def _stand_in(name: str, folder: str | None, place: Place, tools: Collection[str]) -> UserValue:
    """The stand-in for what a dotted name means."""
    module, _, last = name.rpartition(".")
    function = Function(folder or "", module, last, place)
    is_function = name in tools or (bool(module) and is_written_function(function))
    return unloaded_function(function) if is_function else UnloadedMethods


def _binding_problems(file: GraphFile, settings: Settings, helpers: Helpers, folder: str | None) -> list[Problem]:
    """The problems of nodes, edges and outputs. Models are of the run."""
    problems: list[Problem] = []
    if helpers.definition is None and any(isinstance(node, SubgraphSpec) for node in file.nodes.values()):
        return problems
    read = helpers.definition or _no_subgraph
    whole = replace(settings, graphs=replace(settings.graphs, whole=True))
    models = GraphModels(file, whole, helpers)
    collect(problems, make_finish, file, helpers, folder)
    collect(problems, GraphBinder(file, models, helpers, read, lambda *_: ()).bind)
    return problems


def _no_subgraph(name: str, place: Place) -> GraphFile:
    raise ConfigError.at(place, f"the subgraph {name} is not looked at", "run it")


def check_graph(task: Task, helpers: Helpers, find_dotted: FindDotted) -> list[Problem]:
    """The problems that a run would refuse the graph for, all that show."""
    file = graph_of(task)
    folder = file.folder
    tools = {tool_spec(tool).name for node in file.nodes.values() for tool in getattr(node, "tools", ())}
    named: set[str] = set()

    def dotted(name: str, folder: str | None, place: Place) -> UserValue:
        named.add(name)
        return find_dotted(name, folder, place) or _stand_in(name, folder, place, tools)

    looked = replace(helpers, dotted=dotted)
    sources = GraphSources(Settings(), looked)
    problems = _binding_problems(file, Settings(), looked, folder)
    processors = collect(problems, make_processors, file, looked, folder) or []
    fields = unit_fields(file, looked, folder, problems)
    hidden = _has_unseen_functions(file, folder, find_dotted, problems)
    if not problems and not hidden and not scored_columns(file, fields, processors) and not processors:
        what, _, fix = UNMEASURED.partition("; ")
        problems.append(Problem(file.place("graph_config"), what, fix, serious=False))
    problems += unknown_tool_problems(file, _seen_tools(file, looked, folder, find_dotted))
    missing = list(sources.missing_files(file, folder))
    columns = () if missing else _columns(task, sources, folder, find_dotted, problems)
    problems += missing
    models = GraphModels(file, Settings(), looked)
    checked = CheckedGraph(task, file, Settings(), models, processors, columns)
    problems += list_problems(GRAPH_CHECKS, checked, Level.BOUND)
    problems = [replace(each, serious=False) if each.cause == LACKING else each for each in problems]
    declared = registered_names(_files(named, folder))
    if declared:
        problems = [each for each in problems if not _is_declared(each, declared)]
    if not problems and declared.keys().isdisjoint(("aggregator metric", "aggregation")):
        problems += row_problems(file, fields, processors, Settings())
    return problems


def _seen_tools(file: GraphFile, helpers: Helpers, folder: str | None, find_dotted: FindDotted) -> Collection[str]:
    """The tools of all nodes; none if some are those of a module or class that is not imported."""
    tools: set[str] = set()
    for name, node in file.nodes.items():
        for each in map(tool_spec, getattr(node, "tools", ())):
            module, _, last = each.name.rpartition(".")
            place = file.node_place(name, "tools")
            is_function = bool(module) and is_written_function(Function(folder or "", module, last, place))
            try:
                if find_dotted(each.name, folder, place) is None and not is_function:
                    return ()
                tools.update(find_tools([each], helpers, folder, place))
            except ConfigError:
                return ()  # reported where the node was bound
    return tools


def _files(names: Collection[str], folder: str | None) -> list[Path]:
    """The files of modules that dotted names mean, of those beside the graph, above it and in the working directory."""
    here = Path(folder) if folder is not None else Path.cwd()
    tops = (here, *here.parents, Path.cwd())
    parts = [name.split(".") for name in names]
    files = [
        Path(top, *each).with_suffix(".py") for name in parts for each in (name[:-1], name) if each for top in tops
    ]
    return [file for file in dict.fromkeys(files) if file.is_file()]


def _is_declared(problem: Problem, declared: Mapping[str, Collection[str]]) -> bool:
    """Whether a metric is unknown only because the module that registers it was not imported."""
    return any(
        problem.cause in ((kind, name), (ARE_ALSO.get(kind), name))
        for kind, names in declared.items()
        for name in names
    )


ARE_ALSO = {"metric": "unit metric", "aggregation": "aggregator metric"}
"""By kind, the kind of metric of graphs that its members are, too."""


def _has_unseen_functions(
    file: GraphFile, folder: str | None, find_dotted: FindDotted, problems: list[Problem]
) -> bool:
    """Whether a lambda node calls code that is not looked at: it may measure. What is not there at all is a problem."""
    is_hidden = False
    for name, node in file.nodes.items():
        if isinstance(node, LambdaSpec):
            try:
                is_hidden |= find_dotted(node.function, folder, file.node_place(name, "lambda")) is None
            except ConfigError as error:
                problems += error.problems
    return is_hidden


def _columns(
    task: Task, sources: GraphSources, folder: str | None, find_dotted: FindDotted, problems: list[Problem]
) -> tuple[str, ...]:
    """The columns of the records; none where they come over a network, or user code would have to run."""
    file = graph_of(task)
    wrong: list[Problem] = []
    sources.transforms(file, folder, wrong)
    problems += wrong
    place = file.place("data_config" if "data_config" in file.fields else "graph_config")
    own = file.config.data_config.source or ()
    changes = [each.transform for source in own for each in source.transformations]
    if wrong or not own or any(source.type != "disk" for source in own):
        return ()
    kinds = [TRANSFORMS.get(name) or find_dotted(name, folder, place) for name in changes]
    if not all(str(getattr(kind, "__module__", "")).startswith("assay.") for kind in kinds):
        return ()
    try:
        rows = sources.records(file, folder)[0]
        if not len(rows):
            raise DataError(NO_RECORDS)
        return tuple(columns_of(rows))
    except DataError as error:
        problems.append(Problem(place, str(error), "correct the records, or their source in the file"))
        return ()
