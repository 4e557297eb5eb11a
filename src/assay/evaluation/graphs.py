"""Graphs in a run: their settings, their files, and subgraphs by name."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.catalog.selection import GRAPH_FILE, graph_file
from assay.config.run import RunConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.models.protocol import AnyModel, Remote
from assay.records import Message, Prompt, Response
from assay.tasks import TaskManager
from assay.tasks.kinds import FindDefinition
from assay.tasks.settings import GraphSettings

if TYPE_CHECKING:
    from assay.graphs.reading import GraphFile


def graph_settings(
    config: RunConfig, models: Mapping[str, AnyModel], roles: Mapping[str, AnyModel], *, whole: bool
) -> GraphSettings:
    """How the graphs of a run are set up. `models` is filled before they are asked; `roles` were handed over."""

    def write(role: str, messages: tuple[Message, ...]) -> Prompt:
        if role not in models:  # a dry run has none
            return messages
        return models[role].chat_template(messages, True)

    def takes_schema(role: str) -> bool:
        return role not in models or models[role].can.schema

    def cost(role: str, response: Response) -> float | None:
        model = models.get(role)
        return model.cost(response) if isinstance(model, Remote) else None

    named = frozenset({**(config.model_role or {}), **roles})
    return GraphSettings(write, takes_schema, named, whole, cost)


def _siblings(name: str, starts: Sequence[Path]) -> list[str]:
    """The names of graphs in the folder where a name looks for its own."""
    *above, last = re.split(r"[./]", name)
    folders = [Path(start, *more, *above) for start in starts for more in ((), ("tasks",))]
    names = [file.parent.name for folder in folders for file in folder.glob(f"*/{GRAPH_FILE}")]
    return [name.removesuffix(last) + each for each in dict.fromkeys(names)]


def read_inner(manager: TaskManager) -> FindDefinition:
    """Return the function that finds a subgraph by task name, dotted name, folder or file."""

    def read(name: str, place: Place) -> "GraphFile":
        from assay.graphs.reading import GraphFile  # imported for a graph that has another inside
        from assay.graphs.sygra import clone_around

        folder = Path(place.file).resolve().parent
        ways = (folder / name, folder / name / GRAPH_FILE)
        top = clone_around(folder)
        path = next((way for way in ways if way.is_file()), None)
        starts = [*(root.path for root in manager.catalog.roots), *([str(top)] if top is not None else [])]
        path = path or graph_file(name, starts)
        alike = _siblings(name, [folder, Path.cwd(), *map(Path, starts)]) if path is None else []
        if alike and name not in manager.catalog.index.named:
            raise ConfigError.at(place, f"there is no graph {name!r}", did_you_mean(name, alike))
        try:
            loaded = manager.load(str(path.resolve()) if path is not None else name)["tasks"]
        except ConfigError as error:
            raise ConfigError([Problem(place, f"the subgraph {name}: {each}") for each in error.problems]) from None
        graphs = [task.definition for task in loaded.values() if isinstance(task.definition, GraphFile)]
        if len(graphs) != 1:
            raise ConfigError.at(
                place, f"{name!r} must name one graph, not {len(graphs)}", "name a graph_config.yaml, or its folder"
            )
        return graphs[0]

    return read
