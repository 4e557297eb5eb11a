"""What can be known to be wrong with a graph without running anybody's code, asking a model or a network."""

from dataclasses import replace
from typing import Any

from assay.errors import ConfigError, Problem
from assay.graphs.files import Processor, make_processors
from assay.graphs.keys import undeclared
from assay.graphs.reading import GraphFile, graph_of
from assay.graphs.scores import aggregator_problems, row_problems, scored_columns, unit_fields
from assay.graphs.sources import GraphSources
from assay.graphs.spec import LambdaNode
from assay.graphs.task import UNMEASURED, columns_written, lacking_sides
from assay.samples.data import columns_of
from assay.samples.rows import DataError
from assay.tasks.kinds import FindDotted
from assay.tasks.settings import Helpers, Settings
from assay.tasks.task import Task


class _Unseen:
    """Stands for somebody's class, of which nothing is known: it may be and take anything."""

    def __init__(self, **_: Any) -> None:
        pass

    def apply(self, *_: Any) -> Any:
        raise NotImplementedError

    process = transform = apply


def check_graph(task: Task, helpers: Helpers, find_dotted: FindDotted) -> list[Problem]:
    """The problems that a run would refuse the graph for, all that show."""
    file = graph_of(task)
    folder = file.fields.origin("graph_config").folder
    looked = replace(helpers, dotted=lambda name, folder, place: find_dotted(name, folder, place) or _Unseen)
    sources = GraphSources(Settings(), looked)
    problems: list[Problem] = []
    processors: list[Processor] = []
    try:
        processors = make_processors(file, looked, folder)
    except ConfigError as error:
        problems += error.problems
    fields = unit_fields(file, looked, folder, problems)
    hidden = _has_unseen_functions(file, folder, find_dotted, problems)
    if not problems and not hidden and not scored_columns(file, fields, processors) and not processors:
        what, _, fix = UNMEASURED.partition("; ")
        problems.append(Problem(file.place("graph_config"), what, fix, serious=False))
    missing = list(sources.missing_files(file, folder))
    columns = () if missing else _columns(task, sources, folder, find_dotted, problems)
    problems += missing
    if columns:
        problems += [*undeclared(file, columns), *lacking_sides(file, columns)]
        problems += aggregator_problems(file, processors, columns_written(file, columns), Settings())
    problems += [] if problems else row_problems(file, fields, processors, Settings())
    return problems


def _has_unseen_functions(
    file: GraphFile, folder: str | None, find_dotted: FindDotted, problems: list[Problem]
) -> bool:
    """Whether a lambda node calls code that is not looked at: it may measure. What is not there at all is a problem."""
    found = False
    for name, node in file.nodes.items():
        if isinstance(node, LambdaNode):
            try:
                found |= find_dotted(node.function, folder, file.node_place(name, "lambda")) is None
            except ConfigError as error:
                problems += error.problems
    return found


def _columns(
    task: Task, sources: GraphSources, folder: str | None, find_dotted: FindDotted, problems: list[Problem]
) -> tuple[str, ...]:
    """The columns of the records; none where they come over a network, or code of somebody's would have to be run."""
    file = graph_of(task)
    wrong: list[Problem] = []
    sources.transforms(file, folder, wrong)
    problems += wrong
    place = file.place("data_config" if "data_config" in file.fields else "graph_config")
    own = file.config.data_config.source or ()
    changes = [each.transform for source in own for each in source.transformations]
    if wrong or not own or any(source.type != "disk" for source in own):
        return ()
    if any(find_dotted(name, folder, place) is None for name in changes):
        return ()
    try:
        return tuple(columns_of(sources.records(file, folder)[0]))
    except DataError as error:
        problems.append(Problem(place, str(error), "correct the records, or what is said of them"))
        return ()
