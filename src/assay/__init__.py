"""assay: evaluate language models; YAML in, numbers with honest error bars out.

Everything a user needs can be imported from here; a name is loaded at its first use, so `import assay` costs nothing.
"""

from typing import TYPE_CHECKING

__version__ = "0.2.0.dev0"

_HOME = {
    "AssayError": "assay.errors",
    "ConfigError": "assay.errors",
    "Problem": "assay.errors",
    "AggMetricConfig": "assay.config.group",
    "GroupConfig": "assay.config.group",
    "TaskConfig": "assay.config.task",
    "FormatConfig": "assay.config.format",
    "RunConfig": "assay.config.run",
    "Group": "assay.groups",
    "StandardGroup": "assay.groups",
    "TagGroup": "assay.groups",
    "GroupManager": "assay.groups",
    "Aggregator": "assay.groups.aggregators",
    "CustomAggregator": "assay.groups.aggregators",
    "DifferenceAggregator": "assay.groups.aggregators",
    "GeometricMeanAggregator": "assay.groups.aggregators",
    "HarmonicMeanAggregator": "assay.groups.aggregators",
    "MaxAggregator": "assay.groups.aggregators",
    "MeanAggregator": "assay.groups.aggregators",
    "MedianAggregator": "assay.groups.aggregators",
    "MinAggregator": "assay.groups.aggregators",
    "NoOpAggregator": "assay.groups.aggregators",
    "PassAtKAggregator": "assay.groups.aggregators",
    "RowAggregator": "assay.groups.aggregators",
    "WeightedSumAggregator": "assay.groups.aggregators",
    "AggregatorFactory": "assay.groups.aggregators",
    "register_aggregator": "assay.groups.aggregators",
    "Estimate": "assay.records",
    **dict.fromkeys(
        (
            "aggregation",
            "aggregator",
            "exporter",
            "filter",
            "format",
            "metric",
            "model",
            "reduction",
            "sampler",
            "scorer",
            "transform",
        ),
        "assay.plugins",
    ),
    "DataTransform": "assay.samples.transforms",
    "CrossFilterScorer": "assay.scoring.combined",
    "EnsembleScorer": "assay.scoring.combined",
    "LLMJudgeScorer": "assay.scoring.judges",
    "RewardModelScorer": "assay.scoring.judges",
    "Instance": "assay.scoring.results",
    "Scorer": "assay.scoring.scorer",
    "GenerationScorer": "assay.scoring.scorer",
    "LoglikelihoodScorer": "assay.scoring.scorer",
    "PerplexityScorer": "assay.scoring.scorer",
    "ProcessResultsScorer": "assay.scoring.scorer",
    "SCORER_REGISTRY": "assay.scoring.scorer",
    "register_scorer": "assay.scoring.scorer",
    "GenResult": "assay.scoring.results",
    "MCResult": "assay.scoring.results",
    "Results": "assay.scoring.results",
    "ScorerFactory": "assay.tasks.scorers",
    "GenerateTask": "assay.tasks.instances",
    "MultipleChoiceTask": "assay.tasks.instances",
    "FilterConfig": "assay.config.task",
    "MetricConfig": "assay.config.task",
    "UnitMetric": "assay.scoring.unit",
    "UnitMetricResult": "assay.scoring.unit",
    "UnitMetricRegistry": "assay.scoring.unit_table",
    "unit_metric": "assay.scoring.unit_table",
    "AggregatorMetric": "assay.aggregate.collected",
    "AggregatorMetricRegistry": "assay.aggregate.collected_table",
    "aggregator_metric": "assay.aggregate.collected_table",
    "UnitMetrics": "assay.tasks.collate",
    "MetricCollatorPostProcessor": "assay.tasks.collate",
    "GraphPostProcessor": "assay.tasks.collate",
    "simple_evaluate": "assay.evaluation",
    "evaluate": "assay.evaluation",
    "merge": "assay.evaluation.merge",
    "score": "assay.evaluation.score",
    "export": "assay.exchange.formats",
    "import_runs": "assay.exchange.formats",
    "pack": "assay.exchange.pack",
    "Run": "assay.runs.run",
    "write_report": "assay.report.write",
    "ScoreOptions": "assay.evaluation.score",
    "ReportOptions": "assay.report.document",
    "compare": "assay.comparison.compare",
    "Comparison": "assay.comparison.comparison",
    **dict.fromkeys(("Can", "Model", "Scripted"), "assay.models"),
    **dict.fromkeys(
        ("Failed", "Generate", "Likelihood", "Loglikelihood", "Message", "Rolling", "ScoreKey", "Text"), "assay.records"
    ),
    "Task": "assay.tasks",
    "TaskManager": "assay.tasks",
}

__all__ = ["__version__", *sorted(_HOME)]

if TYPE_CHECKING:
    from assay.aggregate.collected import AggregatorMetric as AggregatorMetric
    from assay.aggregate.collected_table import AggregatorMetricRegistry as AggregatorMetricRegistry
    from assay.aggregate.collected_table import aggregator_metric as aggregator_metric
    from assay.comparison.compare import compare as compare
    from assay.comparison.comparison import Comparison as Comparison
    from assay.config.format import FormatConfig as FormatConfig
    from assay.config.group import AggMetricConfig as AggMetricConfig
    from assay.config.group import GroupConfig as GroupConfig
    from assay.config.run import RunConfig as RunConfig
    from assay.config.task import FilterConfig as FilterConfig
    from assay.config.task import MetricConfig as MetricConfig
    from assay.config.task import TaskConfig as TaskConfig
    from assay.errors import AssayError as AssayError
    from assay.errors import ConfigError as ConfigError
    from assay.errors import Problem as Problem
    from assay.evaluation import evaluate as evaluate
    from assay.evaluation import simple_evaluate as simple_evaluate
    from assay.evaluation.merge import merge as merge
    from assay.evaluation.score import ScoreOptions as ScoreOptions
    from assay.evaluation.score import score as score
    from assay.exchange.formats import export as export
    from assay.exchange.formats import import_runs as import_runs
    from assay.exchange.pack import pack as pack
    from assay.groups import Group as Group
    from assay.groups import GroupManager as GroupManager
    from assay.groups import StandardGroup as StandardGroup
    from assay.groups import TagGroup as TagGroup
    from assay.groups.aggregators import Aggregator as Aggregator
    from assay.groups.aggregators import AggregatorFactory as AggregatorFactory
    from assay.groups.aggregators import CustomAggregator as CustomAggregator
    from assay.groups.aggregators import DifferenceAggregator as DifferenceAggregator
    from assay.groups.aggregators import GeometricMeanAggregator as GeometricMeanAggregator
    from assay.groups.aggregators import HarmonicMeanAggregator as HarmonicMeanAggregator
    from assay.groups.aggregators import MaxAggregator as MaxAggregator
    from assay.groups.aggregators import MeanAggregator as MeanAggregator
    from assay.groups.aggregators import MedianAggregator as MedianAggregator
    from assay.groups.aggregators import MinAggregator as MinAggregator
    from assay.groups.aggregators import NoOpAggregator as NoOpAggregator
    from assay.groups.aggregators import PassAtKAggregator as PassAtKAggregator
    from assay.groups.aggregators import RowAggregator as RowAggregator
    from assay.groups.aggregators import WeightedSumAggregator as WeightedSumAggregator
    from assay.groups.aggregators import register_aggregator as register_aggregator
    from assay.models import Can as Can
    from assay.models import Model as Model
    from assay.models import Scripted as Scripted
    from assay.plugins import aggregation as aggregation
    from assay.plugins import aggregator as aggregator
    from assay.plugins import exporter as exporter
    from assay.plugins import filter as filter  # noqa: A004  # used as assay.filter
    from assay.plugins import format as format  # noqa: A004  # used as assay.format
    from assay.plugins import metric as metric
    from assay.plugins import model as model
    from assay.plugins import reduction as reduction
    from assay.plugins import sampler as sampler
    from assay.plugins import scorer as scorer
    from assay.plugins import transform as transform
    from assay.records import Estimate as Estimate
    from assay.records import Failed as Failed
    from assay.records import Generate as Generate
    from assay.records import Likelihood as Likelihood
    from assay.records import Loglikelihood as Loglikelihood
    from assay.records import Message as Message
    from assay.records import Rolling as Rolling
    from assay.records import ScoreKey as ScoreKey
    from assay.records import Text as Text
    from assay.report.document import ReportOptions as ReportOptions
    from assay.report.write import write_report as write_report
    from assay.runs.run import Run as Run
    from assay.samples.transforms import DataTransform as DataTransform
    from assay.scoring.combined import CrossFilterScorer as CrossFilterScorer
    from assay.scoring.combined import EnsembleScorer as EnsembleScorer
    from assay.scoring.judges import LLMJudgeScorer as LLMJudgeScorer
    from assay.scoring.judges import RewardModelScorer as RewardModelScorer
    from assay.scoring.results import GenResult as GenResult
    from assay.scoring.results import Instance as Instance
    from assay.scoring.results import MCResult as MCResult
    from assay.scoring.results import Results as Results
    from assay.scoring.scorer import SCORER_REGISTRY as SCORER_REGISTRY
    from assay.scoring.scorer import GenerationScorer as GenerationScorer
    from assay.scoring.scorer import LoglikelihoodScorer as LoglikelihoodScorer
    from assay.scoring.scorer import PerplexityScorer as PerplexityScorer
    from assay.scoring.scorer import ProcessResultsScorer as ProcessResultsScorer
    from assay.scoring.scorer import Scorer as Scorer
    from assay.scoring.scorer import register_scorer as register_scorer
    from assay.scoring.unit import UnitMetric as UnitMetric
    from assay.scoring.unit import UnitMetricResult as UnitMetricResult
    from assay.scoring.unit_table import UnitMetricRegistry as UnitMetricRegistry
    from assay.scoring.unit_table import unit_metric as unit_metric
    from assay.tasks import Task as Task
    from assay.tasks import TaskManager as TaskManager
    from assay.tasks.collate import GraphPostProcessor as GraphPostProcessor
    from assay.tasks.collate import MetricCollatorPostProcessor as MetricCollatorPostProcessor
    from assay.tasks.collate import UnitMetrics as UnitMetrics
    from assay.tasks.instances import GenerateTask as GenerateTask
    from assay.tasks.instances import MultipleChoiceTask as MultipleChoiceTask
    from assay.tasks.scorers import ScorerFactory as ScorerFactory


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
