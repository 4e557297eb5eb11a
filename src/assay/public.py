"""The Python API. `assay.NAME` is looked up here and imported at its first use, so that `import assay` costs nothing.

Editors and type checkers read text: the imports below repeat HOMES, and RunOptions the options of a run. A test compares them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_type_hints

HOMES: Mapping[str, tuple[str, ...]] = {
    "assay.comparison.compare": ("compare",),
    "assay.comparison.leaderboard": (
        "Leaderboard",
        "leaderboard",
    ),
    "assay.config.group": (
        "AggMetricConfig",
        "GroupConfig",
    ),
    "assay.config.run": ("RunConfig",),
    "assay.config.task": (
        "FilterConfig",
        "FormatConfig",
        "TaskConfig",
    ),
    "assay.errors": (
        "AssayError",
        "ConfigError",
        "Problem",
    ),
    "assay.evaluation.merge": ("merge",),
    "assay.evaluation.score": ("ScoreOptions",),
    "assay.exchange.archive": ("pack",),
    "assay.exchange.exporters": ("export",),
    "assay.exchange.importers": (
        "import_runs",
        "score",
    ),
    "assay.fleet.replicas": ("Fleet",),
    "assay.graphs.aggregator_registry": (
        "AggregatorMetricRegistry",
        "aggregator_metric",
    ),
    "assay.graphs.collate": ("MetricCollatorPostProcessor",),
    "assay.graphs.sygra": ("GraphPostProcessor",),
    "assay.graphs.transforms": ("DataTransform",),
    "assay.graphs.sygra_classes": ("AggregatorMetric", "UnitMetric", "UnitMetricResult"),
    "assay.graphs.unit_metrics": (
        "UnitMetricRegistry",
        "unit_metric",
    ),
    "assay.graphs.unit_node": ("UnitMetrics",),
    "assay.groups": (
        "Group",
        "GroupManager",
        "StandardGroup",
        "TagGroup",
    ),
    "assay.groups.aggregators": (
        "Aggregator",
        "AggregatorFactory",
        "CustomAggregator",
        "DifferenceAggregator",
        "GeometricMeanAggregator",
        "HarmonicMeanAggregator",
        "MaxAggregator",
        "MeanAggregator",
        "MedianAggregator",
        "MinAggregator",
        "NoOpAggregator",
        "PassAtKAggregator",
        "RowAggregator",
        "WeightedSumAggregator",
        "register_aggregator",
    ),
    "assay.models": (
        "Can",
        "Model",
        "Scripted",
    ),
    "assay.plugins": (
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
    "assay.records": (
        "Failed",
        "Generate",
        "Likelihood",
        "Loglikelihood",
        "Message",
        "Rolling",
        "Text",
    ),
    "assay.report.pictures": (
        "Picture",
        "plot",
    ),
    "assay.report.write": ("write_report",),
    "assay.runs.comparison": ("Comparison",),
    "assay.runs.extensions": ("ReportOptions",),
    "assay.runs.run": ("Run",),
    "assay.score_keys": ("ScoreKey",),
    "assay.scoring.scorer_models": (
        "get_model",
        "load_reward_model",
    ),
    "assay.scoring.combined": (
        "CrossFilterScorer",
        "EnsembleScorer",
    ),
    "assay.scoring.judges": (
        "LLMJudgeScorer",
        "RewardModelScorer",
    ),
    "assay.scoring.metric_binding": ("MetricConfig",),  # its `fn` is bound there
    "assay.scoring.named": (
        "SCORER_REGISTRY",
        "register_scorer",
    ),
    "assay.scoring.results": (
        "GenResult",
        "Instance",
        "MCResult",
        "Results",
    ),
    "assay.scoring.scorer": (
        "GenerationScorer",
        "LoglikelihoodScorer",
        "PerplexityScorer",
        "ProcessResultsScorer",
        "Scorer",
    ),
    "assay.statistics.evidence": ("Estimate",),
    "assay.tasks": (
        "Task",
        "TaskManager",
    ),
    "assay.tasks.instances": (
        "GenerateTask",
        "MultipleChoiceTask",
    ),
    "assay.tasks.scoring": ("ScorerFactory",),
}
"""The public names by the module that defines them."""

if TYPE_CHECKING:
    from assay.comparison.compare import compare as compare
    from assay.comparison.leaderboard import Leaderboard as Leaderboard
    from assay.comparison.leaderboard import leaderboard as leaderboard
    from assay.config.group import AggMetricConfig as AggMetricConfig
    from assay.config.group import GroupConfig as GroupConfig
    from assay.config.run import RunConfig as RunConfig
    from assay.config.task import FilterConfig as FilterConfig
    from assay.config.task import FormatConfig as FormatConfig
    from assay.config.task import TaskConfig as TaskConfig
    from assay.errors import AssayError as AssayError
    from assay.errors import ConfigError as ConfigError
    from assay.errors import Problem as Problem
    from assay.evaluation.api import MakeStopRule
    from assay.evaluation.merge import merge as merge
    from assay.evaluation.score import ScoreOptions as ScoreOptions
    from assay.exchange.archive import pack as pack
    from assay.exchange.exporters import export as export
    from assay.exchange.importers import import_runs as import_runs
    from assay.exchange.importers import score as score
    from assay.fleet.replicas import Fleet as Fleet
    from assay.graphs.aggregator_registry import AggregatorMetricRegistry as AggregatorMetricRegistry
    from assay.graphs.aggregator_registry import aggregator_metric as aggregator_metric
    from assay.graphs.collate import MetricCollatorPostProcessor as MetricCollatorPostProcessor
    from assay.graphs.sygra import GraphPostProcessor as GraphPostProcessor
    from assay.graphs.sygra_classes import AggregatorMetric as AggregatorMetric
    from assay.graphs.sygra_classes import UnitMetric as UnitMetric
    from assay.graphs.sygra_classes import UnitMetricResult as UnitMetricResult
    from assay.graphs.transforms import DataTransform as DataTransform
    from assay.graphs.unit_metrics import UnitMetricRegistry as UnitMetricRegistry
    from assay.graphs.unit_metrics import unit_metric as unit_metric
    from assay.graphs.unit_node import UnitMetrics as UnitMetrics
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
    from assay.models.protocol import AnyModel
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
    from assay.records import Failed as Failed
    from assay.records import Generate as Generate
    from assay.records import Likelihood as Likelihood
    from assay.records import Loglikelihood as Loglikelihood
    from assay.records import Message as Message
    from assay.records import Rolling as Rolling
    from assay.records import Text as Text
    from assay.report.pictures import Picture as Picture
    from assay.report.pictures import plot as plot
    from assay.report.write import write_report as write_report
    from assay.runs.comparison import Comparison as Comparison
    from assay.runs.extensions import ReportOptions as ReportOptions
    from assay.runs.run import Run as Run
    from assay.score_keys import ScoreKey as ScoreKey
    from assay.scoring.combined import CrossFilterScorer as CrossFilterScorer
    from assay.scoring.combined import EnsembleScorer as EnsembleScorer
    from assay.scoring.judges import LLMJudgeScorer as LLMJudgeScorer
    from assay.scoring.judges import RewardModelScorer as RewardModelScorer
    from assay.scoring.metric_binding import MetricConfig as MetricConfig
    from assay.scoring.named import SCORER_REGISTRY as SCORER_REGISTRY
    from assay.scoring.named import register_scorer as register_scorer
    from assay.scoring.results import GenResult as GenResult
    from assay.scoring.results import Instance as Instance
    from assay.scoring.results import MCResult as MCResult
    from assay.scoring.results import Results as Results
    from assay.scoring.scorer import GenerationScorer as GenerationScorer
    from assay.scoring.scorer import LoglikelihoodScorer as LoglikelihoodScorer
    from assay.scoring.scorer import PerplexityScorer as PerplexityScorer
    from assay.scoring.scorer import ProcessResultsScorer as ProcessResultsScorer
    from assay.scoring.scorer import Scorer as Scorer
    from assay.scoring.scorer_models import get_model as get_model
    from assay.scoring.scorer_models import load_reward_model as load_reward_model
    from assay.statistics.evidence import Estimate as Estimate
    from assay.tasks import Task as Task
    from assay.tasks import TaskManager as TaskManager
    from assay.tasks.instances import GenerateTask as GenerateTask
    from assay.tasks.instances import MultipleChoiceTask as MultipleChoiceTask
    from assay.tasks.scoring import ScorerFactory as ScorerFactory

Tasks = str | Mapping[str, object] | Sequence[object] | None
"""Names, paths, configurations or objects of tasks and groups: one, or a list of them."""
ModelArgs = str | Mapping[str, object] | None


class RunOptions(TypedDict, total=False):
    """The options of a run as keywords: those of `RunConfig`, where a sequence may be written for a tuple. A test compares them."""

    models_file: str | None
    model_role: Mapping[str, object] | None
    num_fewshot: int | None
    repeats: int | None
    gen_kwargs: str | Mapping[str, object] | None
    system_instruction: str | None
    apply_chat_template: bool | str
    fewshot_as_multiturn: bool
    over_length: Literal["error", "drop_shots", "truncate"]
    max_cost: float | None
    max_time: float | None
    max_failures: int | None
    resume_calls: Literal["retry", "skip", "fail"]
    stop_when: str | None
    limit: float | None
    start_index: int
    sample: int | None
    samples: Mapping[str, object] | None
    shard: str | None
    include_path: str | Sequence[str] | None
    plugins: str | Sequence[str]
    include_defaults: bool
    data_dir: str | None
    output_path: str | None
    runs_dir: str | None
    run_name: str | None
    force: bool
    log_samples: bool
    use_cache: str | None
    batch_size: int | str | None
    max_batch_size: int | None
    device: str | None
    trust_remote_code: bool
    replicas: int | str | None
    gpus_per_replica: float | None
    ray: str | None
    serve: str | None
    serve_timeout: float
    compat: Literal["lm-eval", "sygra"] | None
    bootstrap_iters: int | None
    predict_only: bool
    max_failed: float
    confirm_run_unsafe_code: bool
    seed: Sequence[int | None] | int | None
    random_seed: int | None
    numpy_random_seed: int | None
    torch_random_seed: int | None
    fewshot_random_seed: int | None
    write_out: bool
    show_config: bool
    dry_run: bool
    metadata: str | Mapping[str, object] | None
    cache_requests: bool | str
    rewrite_requests_cache: bool
    delete_requests_cache: bool
    check_integrity: bool
    verbosity: str | None


def simple_evaluate(
    model: "AnyModel | str | None",
    model_args: ModelArgs = None,
    tasks: Tasks = None,
    *,
    task_manager: "TaskManager | None" = None,
    evaluation_tracker: object = None,  # noqa: ARG001  # lm-eval's parameter
    **options: Unpack[RunOptions],
) -> dict[str, Any]:
    """Evaluate a model on tasks; returns lm-eval's dict of results, with `samples` unless `log_samples` is false.

    `model` is a model object or a name of `assay ls models`. The options are those of `assay run` and of lm-eval's function of
    this name; docs/reference/run.md explains each. `evaluation_tracker` has no effect: results are stored in `output_path`.
    """
    own = {**DEFAULTS["simple_evaluate"], **options, "model_args": model_args, "tasks": tasks}
    return _evaluate(model, own, task_manager)


def run(
    model: "AnyModel | str | None",
    model_args: ModelArgs = None,
    tasks: Tasks = None,
    *,
    task_manager: "TaskManager | None" = None,
    progress: bool = True,
    **options: Unpack[RunOptions],
) -> "Run":
    """Evaluate a model on tasks, as `assay run` does; returns the finished run, read with `.table`, `.scores()`, `.plot()` ….

    Without `output_path` it is stored below `runs_dir`, as by `assay run`; the same call resumes a run that was stopped. Where
    documents failed or a limit was reached, `.status` is not `complete`. `progress=False` shows nothing meanwhile.
    """
    from assay.evaluation.api import evaluate_stored
    from assay.report.progress import Progress

    own = {**options, "model_args": model_args, "tasks": tasks}
    with Progress(from_python=True) if progress else nullcontext() as watch:
        return evaluate_stored(model, own, task_manager, _stop_rule(own), watch or _unseen)


def _unseen(_: object) -> None:
    """Show nothing of a run's progress."""


def evaluate(
    lm: "AnyModel",
    task_dict: Mapping[str, Any],
    *,
    model_args: ModelArgs = None,
    task_manager: "TaskManager | None" = None,
    **options: Unpack[RunOptions],
) -> dict[str, Any]:
    """Evaluate a model on tasks that `TaskManager.load` returned; returns the content of results.json."""
    from assay.exchange.lm_eval_api import tasks_in

    own = {**DEFAULTS["evaluate"], **options, "model_args": model_args, "tasks": tasks_in(task_dict)}
    return _evaluate(lm, own, task_manager)


def _evaluate(
    model: "AnyModel | str | None", options: Mapping[str, Any], manager: "TaskManager | None"
) -> dict[str, Any]:
    from assay.evaluation.api import evaluate as start
    from assay.exchange.lm_eval_api import in_lm_eval_layout

    return in_lm_eval_layout(start(model, options, manager, _stop_rule(options)))


def _stop_rule(options: Mapping[str, Any]) -> "MakeStopRule | None":
    """The function that makes the rule of `stop_when`, where that is given: it compares runs, which the evaluation does not."""
    if options.get("stop_when") is None:
        return None
    from assay.comparison.gate_checks import stop_rule

    return stop_rule


DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "run": {},
    "simple_evaluate": {"log_samples": True},
    "evaluate": {"log_samples": True, "fewshot_as_multiturn": False},
}
"""The functions that this module defines, with their defaults that differ from those of the command line, as in lm-eval."""
NAMES = sorted([*DEFAULTS, *(name for names in HOMES.values() for name in names)])


def load(name: str) -> object:
    """Import a public name."""
    if name in DEFAULTS:
        return _with_signature(globals()[name])
    home = next((module for module, names in HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    return value


def _with_signature(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose signature lists every option of a run with its default: `help` and notebooks show it."""
    from assay.config.option import yaml_fields
    from assay.config.run import RunConfig
    from assay.signatures import with_options

    defaults = {**{item.name: item.default for item in yaml_fields(RunConfig)}, **DEFAULTS[function.__name__]}
    kinds = get_type_hints(RunOptions)
    return with_options(function, {name: (kind, defaults[name]) for name, kind in kinds.items()})
