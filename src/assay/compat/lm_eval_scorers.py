"""Lm-eval 0.5's classes of scorers over ours: their defaults in class attributes, and scores of documents as ScoredDoc.

@register_scorer("runs")
@dataclass
class Runs(GenScorer):
    timeout: int = 10                                    # `scorer: {type: runs, kwargs: {timeout: 5}}`
    def score(self, reference, predictions, **kwargs):
        return {"pass": [float(runs(code, self.timeout)) for code in predictions]}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from assay.compat.lm_eval_metrics import Metric
from assay.config.decode import decode
from assay.config.fields import Fields, Origin
from assay.config.option import YAMLMapping
from assay.config.task import FilterConfig, FilterStep, MetricConfig
from assay.errors import ConfigError, Problem
from assay.records import Answer, MetricValue, UserFunction, UserValue
from assay.scoring.results import CHOICE, LIKELIHOOD, ROLLING, Instance, Reference, Result
from assay.scoring.scorer import GenerationScorer, Scorer, score_by_hooks
from assay.scoring.scores import Scores

RecordT = TypeVar("RecordT", FilterStep, MetricConfig)


@dataclass(frozen=True, slots=True)
class ScoredDoc:
    """The scores of a document by metric: a list, with a value for each answer."""

    doc_id: int
    reference: Reference
    scores: dict[str, list[MetricValue]]


@dataclass(frozen=True, slots=True)
class MetricKey:
    """The name of a number in lm-eval's results: `metric,filter`, or `metric_stderr,filter`."""

    metric: str
    scorer: str
    is_stderr: bool = False

    def __str__(self) -> str:
        return f"{self.metric}{'_stderr' * self.is_stderr},{self.scorer}"

    @property
    def parent_metric(self) -> str | None:
        """The metric of `pass@1(metric)`."""
        return self.metric.partition("(")[2][:-1] if self.metric.endswith(")") and "(" in self.metric else None

    @classmethod
    def parse(cls, key: str) -> "MetricKey | None":
        metric, comma, scorer = key.partition(",")
        plain = metric.removesuffix("_stderr")
        return cls(plain, scorer, plain != metric) if comma else None


class LMEvalScorer(Scorer):
    """What GenScorer and LLScorer add to ours. `score_doc` and `score_instances` are called as lm-eval calls them."""

    default_filter_cfg: ClassVar[Sequence[YAMLMapping | UserFunction] | None] = None
    default_metric_cfg: ClassVar[Sequence[YAMLMapping | Metric] | None] = None

    def __init_subclass__(cls, **kwargs: UserValue) -> None:
        own = vars(cls)
        if "score_doc" in own:
            cls.score_instances = score_by_document  # type: ignore[assignment,method-assign]  # ours
        elif "score_instances" in own and cls.__module__ != __name__:
            cls.score_all, cls.score_batch = own["score_instances"], score_together  # type: ignore[assignment,method-assign]
            del cls.score_instances
        super().__init_subclass__(**kwargs)

    def score_doc(self, doc_id: int, doc_instances: Sequence[Instance]) -> ScoredDoc:
        """The scores of a document, where a subclass computes them from its requests."""
        raise NotImplementedError

    def score_all(self, instances: Mapping[int, Sequence[Instance]]) -> Mapping[int, ScoredDoc]:
        """The scores of all documents by number: what a subclass calls `score_instances`."""
        raise NotImplementedError

    def default_filters(self) -> tuple[FilterConfig, ...] | None:
        if self.default_filter_cfg is None:
            return super().default_filters()
        return (FilterConfig(name="none", filter=tuple(map(read_step, self.default_filter_cfg))),)

    def default_metrics(self) -> tuple[MetricConfig, ...] | None:
        if self.default_metric_cfg is None:
            return () if type(self).score_doc is not LMEvalScorer.score_doc else super().default_metrics()
        return tuple(map(read_metric, self.default_metric_cfg))

    def _extract_inputs(self, instances: Sequence[Instance]) -> tuple[Reference, list[Answer], dict[str, UserValue]]:
        """Reference and answers of a document."""
        [answers] = {id(left): left for left in instances[0].filtered_resps.values()}.values()
        return instances[0].target, answers if isinstance(answers, list) else [answers], {}


class GenScorer(LMEvalScorer, GenerationScorer):
    """Scores generated text: `score` takes the reference and all answers, and returns lists of scores by metric."""


class LLScorer(LMEvalScorer):
    """Scores log-likelihoods."""

    output_types = (CHOICE, LIKELIHOOD, ROLLING)

    def score_instances(self, instances: Sequence[Instance], filter_name: str) -> UserValue:
        return score_by_hooks(self, instances, filter_name)


def score_by_document(scorer: LMEvalScorer, instances: Sequence[Instance], filter_name: str) -> Scores:  # noqa: ARG001
    """The rows of a document as `score_doc` gives them."""
    scores: Scores = scorer.score_doc(instances[0].doc_id, instances).scores
    return scores


def score_together(scorer: LMEvalScorer, results: Sequence[Result]) -> list[MetricValue]:
    """The rows of all documents as a function of all instances gives them."""
    documents = {number: [instance_of(result, number)] for number, result in enumerate(results)}
    scored = scorer.score_all(documents)
    return [scored[number].scores for number in documents]


def instance_of(result: Result, number: int) -> Instance:
    target = result.target[0] if isinstance(result.target, list) and len(result.target) == 1 else result.target
    return Instance(result.doc, number, (), target, filtered_resps={"none": result.results})


def read_step(written: YAMLMapping | UserFunction) -> FilterStep:
    """A step of a filter: a mapping as in a file, or a class."""
    if not isinstance(written, Mapping):
        step: Any = written
        return FilterStep(function=step)
    return read_record(FilterStep, {**written, **as_mapping(written.get("kwargs"))})


DECLARED = ("aggregation", "higher_is_better", "reduction")


def read_metric(written: YAMLMapping | Metric) -> MetricConfig:
    """A metric: a mapping as in a file, or lm-eval's record."""
    if isinstance(written, Metric):
        parts: dict[str, Any] = {key: getattr(written, key) for key in ("name", "fn", "kwargs", *DECLARED)}
        return MetricConfig(**parts)
    return read_record(MetricConfig, {**written, **as_mapping(written.get("kwargs"))})


def read_record(kind: type[RecordT], keys: YAMLMapping) -> RecordT:
    """A record of a task from the keys that a file would have; what is wrong with them is raised."""
    problems: list[Problem] = []
    without = {key: value for key, value in keys.items() if key != "kwargs"}
    record = decode(kind, Fields.of(without, Origin("a scorer's defaults")), problems)
    if record is None or problems:
        raise ConfigError(problems)
    return record


def as_mapping(written: UserValue) -> YAMLMapping:
    return written if isinstance(written, Mapping) else {}


NAMES = (ScoredDoc, MetricKey, Scorer, GenScorer, LLScorer)
