"""The protocol of a task during a run: documents, samples, scores."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from assay.config.option import YAMLMapping, YAMLValue
from assay.records import Failed, FilterScores, Plan, Response, Sample
from assay.runs.folder import SampleSink
from assay.score_keys import ScoreKey
from assay.scoring.results import AnsweredSample, ModelRoles
from assay.scoring.scorer import Scorer
from assay.statistics.aggregations import Aggregation
from assay.statistics.evidence import Estimate
from assay.tasks.task import Task

AggregationOrFunction = Aggregation | Callable[..., Any]
"""Combines the values of samples: one of assay's, or a function of the user."""
Estimator = Callable[[Aggregation, Sequence[Any], Sequence[int]], Estimate]
"""Estimates a number with its error from an aggregation, its values, and the documents that they belong to."""


class Runnable(Protocol):
    """A task, bound to its data. Every kind of task has this protocol, and a run uses nothing else."""

    @property
    def task(self) -> Task: ...
    @property
    def original(self) -> int:
        """How many documents there are, evaluated or not."""
        ...

    @property
    def size(self) -> int:
        """How many of them are evaluated."""
        ...

    @property
    def is_batch(self) -> bool:
        """Whether its documents can only be scored all together."""
        ...

    @property
    def cluster_column(self) -> str | None:
        """The column by whose values documents are put together: those with the same are one draw."""
        ...

    @property
    def keeps_records(self) -> bool:
        """Whether its plans run tools or lambdas of users, so that those that ended are journaled and not driven again."""
        ...

    @property
    def needs(self) -> frozenset[str]:
        """The kinds of request it makes: generate, loglikelihood, rolling, chat."""
        ...

    @property
    def repeats(self) -> int: ...

    @property
    def num_fewshot(self) -> int: ...

    @property
    def version(self) -> YAMLValue: ...

    @property
    def multiple_targets(self) -> bool:
        """Whether a list of targets means several right answers."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes when the data does."""
        ...

    @property
    def source(self) -> str:
        """A name for the evaluated documents: tasks of one source share those with one number."""
        ...

    def samples(self) -> Iterator[Sample]:
        """The evaluated documents with what is asked about each, one at a time."""
        ...

    def plan(self, sample: Sample) -> Plan:
        """Return the plan of a sample, which yields its requests step by step."""
        ...

    def models(self) -> ModelRoles:
        """Further models that its scorers ask, by role."""
        ...

    def role_needs(self) -> Mapping[str, frozenset[str]]:
        """The kinds of request it makes to the models of further roles, where that is known before the run."""
        ...

    def scorers(self) -> Sequence[Scorer]:
        """Return the scorers of its answers."""
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

    @property
    def listed_rows(self) -> Sequence[ScoreKey]:
        """The rows that results list even if every document fails."""
        ...

    def rows(self) -> frozenset[ScoreKey] | None:
        """The rows its results will have; None where only user code knows."""
        ...

    def remarks(self, *, differ: bool) -> Sequence[str]:
        """Sentences about its numbers for below the table; `differ` says whether answers to one request ever differed."""
        ...

    def answers(self) -> Mapping[str, int]:
        """By filter how many answers to a document it leaves, where that is known before the run."""
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
