"""The protocol of a task during a run: documents, samples, scores."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from assay.config.option import YAMLMapping, YAMLValue
from assay.records import Failed, FilterScores, Plan, Response, Sample
from assay.runs.folder import SampleSink
from assay.score_keys import ScoreKey
from assay.scoring.results import AnsweredSample, ModelRoles
from assay.scoring.scorer import Scorer
from assay.statistics.aggregations import Aggregation, AggregationOrFunction
from assay.statistics.evidence import Estimate
from assay.tasks.task import Task

UNDER_TEST = "model"
"""The role of the model under test."""
Estimator = Callable[[Aggregation, Sequence[Any], Sequence[int]], Estimate]
"""Estimates a number with its error from an aggregation, its values, and the documents that they belong to."""


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """Facts of a task that is bound to its data: they stay the same during a run."""

    size: int
    """Number of documents that are evaluated."""
    original: int
    """Number of documents that there are, evaluated or not."""
    version: YAMLValue
    source: str = ""
    """A name for the evaluated documents: tasks of one source share those with one number."""
    fingerprint: str = ""
    """Changes when the data does."""
    repeats: int = 1
    num_fewshot: int = 0
    multiple_targets: bool = False
    """Whether a list of targets means several right answers."""
    cluster_column: str | None = None
    """The column by whose values documents are put together: those with the same are one draw."""
    keeps_records: bool = False
    """Whether its plans run tools or lambdas of users, so that those that ended are journaled and not driven again."""
    models: ModelRoles = field(default_factory=dict)
    """Further models that it asks, by role."""
    scorers: Sequence[Scorer] = ()
    """The scorers of its answers."""
    rows: frozenset[ScoreKey] | None = frozenset()
    """The rows its results will have; None where only user code knows."""
    listed_rows: Sequence[ScoreKey] = ()
    """The rows that results list even if every document fails."""
    answers: Mapping[str, int] = field(default_factory=dict)
    """By filter how many answers to a document it leaves, where that is known before the run."""
    remarks: Sequence[str] = ()
    """Sentences about its numbers for below the table."""
    copies: str = ""
    """The sentence for below the table where no two answers to one request differed."""


class Runnable(Protocol):
    """A task, bound to its data. Every kind of task has this protocol, and a run uses nothing else."""

    @property
    def task(self) -> Task: ...
    @property
    def facts(self) -> TaskFacts: ...
    @property
    def is_batch(self) -> bool:
        """Whether its documents can only be scored all together: by their filters, or since processes score them."""
        ...

    def needs(self, role: str = UNDER_TEST) -> frozenset[str]:
        """Return the kinds of request it makes to the model of a role: generate, loglikelihood, rolling, chat, tools.

        Of the models that scorers ask, this is not known before the run. Samples may have to be built to find out.
        """
        ...

    def samples(self) -> Iterator[Sample]:
        """The evaluated documents with what is asked about each, one at a time."""
        ...

    def plan(self, sample: Sample) -> Plan:
        """Return the plan of a sample, which yields its requests step by step."""
        ...

    def document(self, sample: Sample, responses: Sequence[Response]) -> AnsweredSample: ...

    def score(self, documents: Sequence[AnsweredSample]) -> list[list[FilterScores] | Failed]: ...

    def aggregation(self, row: ScoreKey) -> AggregationOrFunction | None:
        """How the values of a metric and filter become one number; None where the task does not say."""
        ...

    @property
    def parents(self) -> Mapping[str, str]:
        """Of values that came in a mapping, the metric that gave them. Known when documents have been scored."""
        ...

    def higher_is_better(self) -> Mapping[str, bool | None]: ...

    def files(self, folder: Path | None, created: float, label: str) -> SampleSink | None:
        """Return the writer of the task's further files; without a folder, the reader of all samples at the end."""
        ...

    def conclude(self, estimated: Estimator) -> Mapping[ScoreKey, Estimate]:
        """Further numbers, of all samples together, when all are there; `estimated` gives a number with its error, from an
        aggregation, its values and the documents they are of."""
        ...

    def described(self) -> YAMLMapping:
        """Its configuration, for the record."""
        ...
