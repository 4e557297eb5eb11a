"""A graph bound to records that are there already: its post-processing, without its data, its nodes and its models."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from assay.errors import ConfigError, Problem
from assay.graphs.files import make_processors
from assay.graphs.reading import graph_of
from assay.graphs.scores import GraphScores, aggregator_problems, scored_columns, unit_fields
from assay.records import Asking, Sample
from assay.tasks.rescore import TaskFacts
from assay.tasks.settings import Helpers, Settings
from assay.tasks.task import Task


@dataclass(kw_only=True)
class RescoredGraph(GraphScores):
    """A graph whose records went through it in an earlier run."""

    facts: TaskFacts

    @property
    def original(self) -> int:
        return self.facts.original

    @property
    def size(self) -> int:
        return self.facts.size

    @property
    def fingerprint(self) -> str:
        return self.facts.source

    @property
    def source(self) -> str:
        return self.facts.source

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def samples(self) -> Iterator[Sample]:
        return iter(())

    def plan(self, sample: Sample) -> Asking:
        raise NotImplementedError("nothing is asked about records that are there")

    def models(self) -> Mapping[str, object]:
        return {}

    def role_needs(self) -> Mapping[str, frozenset[str]]:
        return {}


def prepare_graph_scoring(task: Task, settings: Settings, helpers: Helpers, facts: TaskFacts) -> RescoredGraph:
    """The graph, ready to take its records; `facts.first` is one of them, and has the columns that can be aggregated."""
    file = graph_of(task)
    folder = file.fields.origin("graph_config").folder
    processors = make_processors(file, helpers, folder)
    problems: list[Problem] = []
    fields = unit_fields(file, helpers, folder, problems)
    columns = facts.first
    problems += aggregator_problems(file, processors, columns, settings)
    if problems:
        raise ConfigError(problems)
    scored = scored_columns(file, fields, processors)
    there = {name: column for name, column in scored.items() if columns is None or column in columns}
    return RescoredGraph(task=task, settings=settings, processors=processors, scored=there, facts=facts)
