"""What a run supplies to graphs: conversations as the models want them, and graphs within graphs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.catalog.graphs import FILE, graph_file
from assay.config.graph_reading import GraphFile
from assay.config.run import RunConfig
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.answers import Answers
from assay.models.protocol import AnyModel
from assay.models.scripted import NoModel
from assay.records import Message, Prompt
from assay.runs.parquet import file_name
from assay.tasks import TaskManager
from assay.tasks.graph_files import GraphFiles
from assay.tasks.graph_scores import GraphScores
from assay.tasks.run import TaskRun
from assay.tasks.settings import GraphSettings


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

    named = frozenset({**(config.model_role or {}), **roles})
    return GraphSettings(write, takes_schema, named, whole, config.models_file, config.compat == "sygra")


def nobody(config: RunConfig, runs: Sequence[TaskRun]) -> AnyModel | None:
    """What stands for the model under test where no task asks it and nobody named it."""
    if config.model_named or not runs or any(run.runnable.needs for run in runs):
        return None
    roles = sorted({role for run in runs for role in run.runnable.models()})
    return NoModel(" and ".join(roles) or "no model")


def label_of(run: TaskRun, several: bool, run_name: str | None) -> str:
    """What stands before the names of a graph's files."""
    own = f"{file_name(run.runnable.task.name)}_" if several else ""
    return (f"{file_name(run_name)}_" if run_name else "") + own


def graph_files(answers: Answers, runs: Sequence[TaskRun], folder: Path, created: float) -> list[GraphFiles]:
    """What takes the records of the graphs among tasks whose answers are there, called as in a run of that time."""
    graphs = [run for run in runs if isinstance(run.runnable, GraphScores)]
    found = []
    for run in graphs:
        label = label_of(run, len(graphs) > 1, answers.config.run_name)
        made = run.runnable.files(folder, created, label)
        assert isinstance(made, GraphFiles)
        run.keep = made.add
        found.append(made)
    return found


def read_inner(manager: TaskManager) -> Any:
    """What finds the graph of a subgraph: by name of a task, dotted name, folder or file."""

    def read(name: str, place: Place) -> GraphFile:
        folder = Path(place.file).parent
        found = graph_file(name, [root.path for root in manager.catalog.roots])
        ways = (folder / name, folder / name / FILE)
        path = found or next((way for way in ways if way.is_file()), None)
        try:
            loaded = manager.load(str(path.resolve()) if path is not None else name)["tasks"]
        except ConfigError as error:
            raise ConfigError([Problem(place, f"the subgraph {name}: {each}") for each in error.problems]) from None
        graphs = [task.graph for task in loaded.values() if task.graph is not None]
        if len(graphs) != 1:
            raise ConfigError([Problem(place, f"{name} is no graph", "name a graph_config.yaml, or its folder")])
        return graphs[0]

    return read
