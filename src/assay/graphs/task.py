"""A task that is a graph: records go through it, and what their unit metrics say are its scores."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from assay.catalog.functions import leave_registered, registered_names
from assay.checks import Check, Level, list_problems
from assay.errors import ConfigError, Place, Problem, collect, did_you_mean, nearest
from assay.graphs.agent_metrics import unknown_tools
from assay.graphs.aggregator_metrics import REPEAT, REPEAT_OF
from assay.graphs.binding import GraphBinder, ReadColumn
from assay.graphs.collate import LACKING
from assay.graphs.models import GraphModels
from assay.graphs.output import Finish, Processor, make_finish, make_processors
from assay.graphs.reading import GraphFile, graph_of, has_hidden_keys, produced, undeclared, unproduced_fields
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
from assay.tasks.kinds import FindDefinition, FindDotted
from assay.tasks.rescore import StoredTask
from assay.tasks.runnable import UNDER_TEST, Estimator, TaskFacts
from assay.tasks.settings import GraphSettings, Settings
from assay.tasks.stand_ins import UnloadedMethods, is_written_function, unloaded_function
from assay.tasks.task import Task

NO_GRAPH = Graph({}, {})
"""The graph of records that are there."""
NO_RECORDS = "the source has no records"
UNMEASURED = "no metric: nothing is measured; add a UnitMetrics node or a post-processor"


def prepare_graph(task: Task, settings: Settings, helpers: Helpers, find: FindDefinition) -> "GraphTask":
    """The graph, bound to its records, its models and its code. All that can fail before the first request does so here."""
    file = graph_of(task)
    sources = GraphSources(settings, helpers)
    problems: list[Problem] = []
    bound = _bind(task, settings, helpers, find, sources.column, problems)
    problems += sources.missing_files(file)
    if problems:
        collect(problems, sources.transforms, file)  # what its source says is looked at all the same
        raise ConfigError(problems)
    rows, name = sources.records(file)
    if not len(rows) and not settings.dialect.reports_without_records:
        raise DataError(NO_RECORDS)
    columns = (*columns_of(rows), *(REPEAT_COLUMNS if _repeats(settings) > 1 else ())) if len(rows) else ()
    problems = list_problems(GRAPH_CHECKS, bound._replace(columns=columns), Level.BOUND)
    tools = {tool for node in bound.graph.nodes.values() for tool in getattr(node, "tools", ())}
    problems += [problem for problem in unknown_tool_problems(file, tools) if problem.serious]
    if not any(problem.serious for problem in problems):
        problems += row_problems(file, bound.fields, bound.processors, settings)
    serious = [problem for problem in problems if problem.serious]
    if serious:
        raise ConfigError(serious)
    for note in problems:
        logging.getLogger("assay").warning("%s", note)
    repeats, scored = _repeats(settings), scored_columns(file, bound.fields, bound.processors)
    prepared = GraphTask(
        task=task,
        settings=settings,
        processors=bound.processors,
        scored=scored,
        size=count(rows, task.name, settings) * repeats,
        original=len(rows) * repeats,
        source=sources.named(name),
        is_repeated=repeats > 1,
        docs=rows,
        graph=bound.graph,
        graph_models=bound.models,
    )
    if not scored and not bound.processors and not result_columns(file) and not settings.run.predict_only:
        logging.getLogger("assay").warning("%s: %s", task.name, UNMEASURED)
    if not prepared.size and len(rows):
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


class BoundGraph(NamedTuple):
    """A graph as far as it is known: of records that come over a network, or from user code that is not run, no column is."""

    task: Task
    file: GraphFile
    settings: Settings
    models: GraphModels
    graph: Graph
    processors: Sequence[Processor]
    fields: Sequence[str]
    """The columns of unit results that its nodes write."""
    columns: tuple[str, ...] = ()


def _bind(
    task: Task,
    settings: Settings,
    helpers: Helpers,
    find: FindDefinition | None,
    column: ReadColumn,
    problems: list[Problem],
) -> BoundGraph:
    """Bind a graph to its code and models, as far as that goes. Without `find`, one with subgraphs is not looked at."""
    file, graph = graph_of(task), None
    models = GraphModels(file, settings, helpers)
    if find is not None or not any(isinstance(node, SubgraphSpec) for node in file.nodes.values()):
        finish = collect(problems, make_finish, file, helpers, file.folder) or dict
        binder = GraphBinder(file, models, helpers, find, column)
        graph = collect(problems, binder.bind, _finish_for(file, finish, settings))
    processors = collect(problems, make_processors, file, helpers, file.folder) or ()
    fields = unit_fields(file, helpers, file.folder, problems)
    return BoundGraph(task, file, settings, models, graph or NO_GRAPH, processors, fields)


def _taken_columns(graph: BoundGraph) -> Iterator[Problem]:
    for column in REPEAT_COLUMNS:
        if graph.columns.count(column) > 1:
            what = f"the records have a column {column!r}, which --repeats writes"
            yield Problem(graph.file.place("graph_config"), what, "rename the column, or run without --repeats")


def _unasked_model(graph: BoundGraph) -> Iterator[Problem]:
    """Find the model of a run that the graph does not ask: table and manifest would credit it with the graph's numbers."""
    file, models = graph.file, graph.models
    if not graph.settings.graphs.whole or UNDER_TEST in models.needs:
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


def _wrong_aggregators(graph: BoundGraph) -> list[Problem]:
    written = _columns_written(graph.file, graph.columns)
    return aggregator_problems(graph.file, graph.processors, written, graph.settings)


def _unknown_columns(graph: BoundGraph) -> Iterator[Problem]:
    """Find keys and columns that are read and that nothing produces."""
    if graph.columns:
        yield from undeclared(graph.file, graph.columns, graph.settings.dialect)
        yield from unproduced_fields(graph.file, graph.columns)
        yield from unknown_clusters(graph.task, graph.columns)


GRAPH_CHECKS: tuple[Check[BoundGraph], ...] = (
    Check(Level.BOUND, _unknown_columns),
    Check(Level.BOUND, _taken_columns),
    Check(Level.BOUND, _unasked_model),
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
    """A graph, ready to be run; or to take the records that went through it in an earlier run: then it has no documents."""

    size: int
    original: int
    source: str
    is_repeated: bool
    docs: Split = ()
    graph: Graph = NO_GRAPH
    graph_models: GraphModels

    @cached_property
    def facts(self) -> TaskFacts:
        facts = self._facts(self.size, self.original, self.source)
        return replace(
            facts,
            cluster_column=facts.cluster_column or (REPEAT_OF if self.is_repeated else None),
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
            for repeat in range(repeats):
                repeated = {**doc, REPEAT_OF: doc_id, REPEAT: repeat + 1} if repeats > 1 else doc
                yield Sample(doc_id * repeats + repeat, repeated, (), target, target)

    def plan(self, sample: Sample) -> Plan:
        return self.graph.plan(sample.doc, f"{self.task.name}\0{sample.doc_id}", sample.doc_id)

    def conclude(self, estimated: Estimator) -> Mapping[ScoreKey, Estimate]:
        """Further copies of the output, and the numbers of all records together."""
        if self._files is not None and self.graph is not NO_GRAPH and self.settings.shard is None:
            self._files.write_copies()
        return super().conclude(estimated)


def prepare_graph_scoring(task: Task, settings: Settings, helpers: Helpers, stored: StoredTask) -> GraphTask:
    """The graph, ready to take its records; `stored.first` is one of them, and has the columns that can be aggregated."""
    file = graph_of(task)
    processors = make_processors(file, helpers, file.folder)
    problems: list[Problem] = []
    fields = unit_fields(file, helpers, file.folder, problems)
    columns = stored.first
    problems += aggregator_problems(file, processors, columns, settings)
    if problems:
        raise ConfigError(problems)
    scored = scored_columns(file, fields, processors)
    there = {name: column for name, column in scored.items() if columns is None or column in columns}
    return GraphTask(
        task=task,
        settings=settings,
        processors=processors,
        scored=there,
        size=stored.size,
        original=stored.original,
        source=stored.source,
        is_repeated=REPEAT_OF in (columns or ()),
        graph_models=GraphModels(file, settings, helpers),
    )


def _function(name: str, folder: str | None, place: Place) -> Function:
    """What a dotted name means, before it is looked at."""
    module, _, last = name.rpartition(".")
    return Function(folder or "", module, last, place)


def _shows_function(function: Function) -> bool:
    """Whether the source of its module shows that it is a function."""
    return bool(function.module) and is_written_function(function)


def check_graph(task: Task, helpers: Helpers, find_dotted: FindDotted) -> list[Problem]:
    """The problems that a run would refuse the graph for, all that show."""
    file, settings = graph_of(task), Settings()
    nodes = file.nodes.values()
    tools = {tool_spec(tool).name for node in nodes for tool in getattr(node, "tools", ())}
    named, unseen = set[str](), set[str]()

    def dotted(name: str, folder: str | None, place: Place) -> UserValue:
        named.add(name)
        known = find_dotted(name, folder, place)
        if known is not None:
            return known
        unseen.add(name)
        function = _function(name, folder, place)
        return unloaded_function(function) if name in tools or _shows_function(function) else UnloadedMethods

    looked = replace(helpers, dotted=dotted)
    sources = GraphSources(settings, looked)
    problems: list[Problem] = []
    answering = Settings(graphs=GraphSettings(whole=True))  # models are of the run
    bound = _bind(task, answering, looked, helpers.definition, lambda *_: (), problems)
    processors, fields = bound.processors, bound.fields
    is_hidden = any(isinstance(node, LambdaSpec) and node.function in unseen for node in nodes)  # it may measure
    if not problems and not is_hidden and not scored_columns(file, fields, processors) and not processors:
        what, _, fix = UNMEASURED.partition("; ")
        problems.append(Problem(file.place("graph_config"), what, fix, serious=False))
    problems += unknown_tool_problems(file, _seen_tools(file, looked, find_dotted))
    missing = list(sources.missing_files(file))
    columns = () if missing else _columns(file, sources, find_dotted, problems)
    problems += missing
    problems += list_problems(GRAPH_CHECKS, bound._replace(settings=settings, columns=columns), Level.BOUND)
    problems = [replace(problem, serious=False) if problem.cause == LACKING else problem for problem in problems]
    declared = registered_names(_files(named, file.folder))
    problems = list(leave_registered(problems, declared))
    if not problems and declared.keys().isdisjoint(("aggregator metric", "aggregation")):
        problems += row_problems(file, fields, processors, settings)
    return problems


def _seen_tools(file: GraphFile, helpers: Helpers, find_dotted: FindDotted) -> Collection[str]:
    """The tools of all nodes; none if some are those of a module or class that is not imported."""
    tools: set[str] = set()
    for node_name, node in file.nodes.items():
        place, written = file.node_place(node_name, "tools"), getattr(node, "tools", ())
        try:
            for name in [tool_spec(tool).name for tool in written]:
                is_seen = _shows_function(_function(name, file.folder, place))
                if not is_seen and find_dotted(name, file.folder, place) is None:
                    return ()
            tools.update(find_tools(written, helpers, file.folder, place))
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


def _columns(
    file: GraphFile, sources: GraphSources, find_dotted: FindDotted, problems: list[Problem]
) -> tuple[str, ...]:
    """The columns of the records; none where they come over a network, or user code would have to run."""
    place = file.place("data_config" if "data_config" in file.fields else "graph_config")
    own = file.config.data_config.source or ()
    names = [change.transform for source in own for change in source.transformations]
    is_right = collect(problems, sources.transforms, file) is not None
    if not is_right or not own or any(source.type != "disk" for source in own):
        return ()
    kinds = [TRANSFORMS.get(name) or find_dotted(name, file.folder, place) for name in names]
    if not all(str(getattr(kind, "__module__", "")).startswith("assay.") for kind in kinds):
        return ()
    try:
        rows = sources.records(file)[0]
        if not len(rows):
            raise DataError(NO_RECORDS)
        return tuple(columns_of(rows))
    except DataError as error:
        problems.append(Problem(place, str(error), "correct the records, or their source in the file"))
        return ()
