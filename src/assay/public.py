"""The Python API. `assay.NAME` is looked up here and imported at its first use, so that `import assay` costs nothing.

The blocks between `<generated …>` and `</generated>` are written by tools/make_public.py (`make docs`): editors and type
checkers read text. A test fails when they are out of date.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Never

from assay.late import late

HOMES: Mapping[str, tuple[str, ...]] = {
    "assay.comparison.compare": ("compare",),
    "assay.comparison.comparison": ("Comparison",),
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
        "MetricConfig",
        "TaskConfig",
    ),
    "assay.errors": (
        "AssayError",
        "ConfigError",
        "Problem",
    ),
    "assay.evaluation.merge": ("merge",),
    "assay.evaluation.score": (
        "ScoreOptions",
        "score",
    ),
    "assay.exchange.archive": ("pack",),
    "assay.exchange.exporters": ("export",),
    "assay.exchange.importers": ("import_runs",),
    "assay.fleet.replicas": ("Fleet",),
    "assay.graphs.aggregator_metrics": ("AggregatorMetric",),
    "assay.graphs.aggregator_registry": (
        "AggregatorMetricRegistry",
        "aggregator_metric",
    ),
    "assay.graphs.collate": ("MetricCollatorPostProcessor",),
    "assay.graphs.sygra": ("GraphPostProcessor",),
    "assay.graphs.transforms": ("DataTransform",),
    "assay.graphs.unit_metrics": (
        "UnitMetric",
        "UnitMetricRegistry",
        "UnitMetricResult",
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
    "assay.report.document": ("ReportOptions",),
    "assay.report.pictures": (
        "Picture",
        "plot",
    ),
    "assay.report.write": ("write_report",),
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
    "assay.statistics.estimate": ("Estimate",),
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
    # <generated imports>
    from assay.comparison.compare import compare as compare
    from assay.comparison.comparison import Comparison as Comparison
    from assay.comparison.leaderboard import Leaderboard as Leaderboard
    from assay.comparison.leaderboard import leaderboard as leaderboard
    from assay.config.group import AggMetricConfig as AggMetricConfig
    from assay.config.group import GroupConfig as GroupConfig
    from assay.config.run import RunConfig as RunConfig
    from assay.config.task import FilterConfig as FilterConfig
    from assay.config.task import FormatConfig as FormatConfig
    from assay.config.task import MetricConfig as MetricConfig
    from assay.config.task import TaskConfig as TaskConfig
    from assay.errors import AssayError as AssayError
    from assay.errors import ConfigError as ConfigError
    from assay.errors import Problem as Problem
    from assay.evaluation.merge import merge as merge
    from assay.evaluation.score import ScoreOptions as ScoreOptions
    from assay.evaluation.score import score as score
    from assay.exchange.archive import pack as pack
    from assay.exchange.exporters import export as export
    from assay.exchange.importers import import_runs as import_runs
    from assay.fleet.replicas import Fleet as Fleet
    from assay.graphs.aggregator_metrics import AggregatorMetric as AggregatorMetric
    from assay.graphs.aggregator_registry import AggregatorMetricRegistry as AggregatorMetricRegistry
    from assay.graphs.aggregator_registry import aggregator_metric as aggregator_metric
    from assay.graphs.collate import MetricCollatorPostProcessor as MetricCollatorPostProcessor
    from assay.graphs.sygra import GraphPostProcessor as GraphPostProcessor
    from assay.graphs.transforms import DataTransform as DataTransform
    from assay.graphs.unit_metrics import UnitMetric as UnitMetric
    from assay.graphs.unit_metrics import UnitMetricRegistry as UnitMetricRegistry
    from assay.graphs.unit_metrics import UnitMetricResult as UnitMetricResult
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
    from assay.report.document import ReportOptions as ReportOptions
    from assay.report.pictures import Picture as Picture
    from assay.report.pictures import plot as plot
    from assay.report.write import write_report as write_report
    from assay.runs.run import Run as Run
    from assay.score_keys import ScoreKey as ScoreKey
    from assay.scoring.combined import CrossFilterScorer as CrossFilterScorer
    from assay.scoring.combined import EnsembleScorer as EnsembleScorer
    from assay.scoring.judges import LLMJudgeScorer as LLMJudgeScorer
    from assay.scoring.judges import RewardModelScorer as RewardModelScorer
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
    from assay.statistics.estimate import Estimate as Estimate
    from assay.tasks import Task as Task
    from assay.tasks import TaskManager as TaskManager
    from assay.tasks.instances import GenerateTask as GenerateTask
    from assay.tasks.instances import MultipleChoiceTask as MultipleChoiceTask
    from assay.tasks.scoring import ScorerFactory as ScorerFactory
    # </generated>

Tasks = str | Mapping[str, object] | Sequence[object] | None
"""Names, paths, configurations or objects of tasks and groups: one, or a list of them."""


# <generated simple_evaluate>
def simple_evaluate(  # noqa: PLR0913  # the options of a run
    model: "AnyModel | str | None", model_args: str | Mapping[str, object] | None = None, tasks: Tasks = None, *,
    task_manager: "TaskManager | None" = None, evaluation_tracker: object = None, models_file: str | None = None,
    model_role: Mapping[str, object] | None = None, num_fewshot: int | None = None, repeats: int | None = None,
    gen_kwargs: str | Mapping[str, object] | None = None, system_instruction: str | None = None,
    apply_chat_template: bool | str = False, fewshot_as_multiturn: bool = True,
    over_length: Literal["error", "drop_shots", "truncate"] = "error", max_cost: float | None = None,
    max_time: float | None = None, max_failures: int | None = None,
    resume_calls: Literal["retry", "skip", "fail"] = "fail", stop_when: str | None = None, limit: float | None = None,
    start_index: int = 0, sample: int | None = None, samples: Mapping[str, object] | None = None,
    shard: str | None = None, include_path: str | Sequence[str] | None = None, plugins: str | Sequence[str] = (),
    include_defaults: bool = True, data_dir: str | None = None, output_path: str | None = None,
    runs_dir: str | None = None, run_name: str | None = None, force: bool = False, log_samples: bool = True,
    use_cache: str | None = None, batch_size: int | str | None = None, max_batch_size: int | None = None,
    device: str | None = None, trust_remote_code: bool = False, replicas: int | str | None = None,
    gpus_per_replica: float | None = None, ray: str | None = None, serve: str | None = None,
    serve_timeout: float = 1800.0, compat: Literal["lm-eval", "sygra"] | None = None,
    bootstrap_iters: int | None = 100000, predict_only: bool = False, max_failed: float = 0.01,
    confirm_run_unsafe_code: bool = False, seed: Sequence[int | None] | int | None = None, random_seed: int | None = 0,
    numpy_random_seed: int | None = 1234, torch_random_seed: int | None = 1234, fewshot_random_seed: int | None = 1234,
    write_out: bool = False, show_config: bool = False, dry_run: bool = False,
    metadata: str | Mapping[str, object] | None = None, cache_requests: bool | str = False,
    rewrite_requests_cache: bool = False, delete_requests_cache: bool = False, check_integrity: bool = False,
    verbosity: str | None = None, **unknown: Never,
) -> dict[str, Any]:  # fmt: skip
    # </generated>
    """Evaluate a model on tasks; returns lm-eval's dict of results, with `samples` unless `log_samples` is false.

    `model` is a model object or a name of `assay ls models`. The options are those of `assay run` and of lm-eval's function of
    this name; docs/reference/run.md explains each. `evaluation_tracker` has no effect: results are stored in `output_path`.
    """
    options = _options(locals())
    from assay.exchange.lm_eval_api import simple_evaluate as start

    return start(**options, **_stop_rule(options))


# <generated run>
def run(  # noqa: PLR0913  # the options of a run
    model: "AnyModel | str | None", model_args: str | Mapping[str, object] | None = None, tasks: Tasks = None, *,
    task_manager: "TaskManager | None" = None, progress: bool = True, models_file: str | None = None,
    model_role: Mapping[str, object] | None = None, num_fewshot: int | None = None, repeats: int | None = None,
    gen_kwargs: str | Mapping[str, object] | None = None, system_instruction: str | None = None,
    apply_chat_template: bool | str = False, fewshot_as_multiturn: bool = True,
    over_length: Literal["error", "drop_shots", "truncate"] = "error", max_cost: float | None = None,
    max_time: float | None = None, max_failures: int | None = None,
    resume_calls: Literal["retry", "skip", "fail"] = "fail", stop_when: str | None = None, limit: float | None = None,
    start_index: int = 0, sample: int | None = None, samples: Mapping[str, object] | None = None,
    shard: str | None = None, include_path: str | Sequence[str] | None = None, plugins: str | Sequence[str] = (),
    include_defaults: bool = True, data_dir: str | None = None, output_path: str | None = None,
    runs_dir: str | None = None, run_name: str | None = None, force: bool = False, log_samples: bool = False,
    use_cache: str | None = None, batch_size: int | str | None = None, max_batch_size: int | None = None,
    device: str | None = None, trust_remote_code: bool = False, replicas: int | str | None = None,
    gpus_per_replica: float | None = None, ray: str | None = None, serve: str | None = None,
    serve_timeout: float = 1800.0, compat: Literal["lm-eval", "sygra"] | None = None,
    bootstrap_iters: int | None = 100000, predict_only: bool = False, max_failed: float = 0.01,
    confirm_run_unsafe_code: bool = False, seed: Sequence[int | None] | int | None = None, random_seed: int | None = 0,
    numpy_random_seed: int | None = 1234, torch_random_seed: int | None = 1234, fewshot_random_seed: int | None = 1234,
    write_out: bool = False, show_config: bool = False, dry_run: bool = False,
    metadata: str | Mapping[str, object] | None = None, cache_requests: bool | str = False,
    rewrite_requests_cache: bool = False, delete_requests_cache: bool = False, check_integrity: bool = False,
    verbosity: str | None = None, **unknown: Never,
) -> "Run":  # fmt: skip
    # </generated>
    """Evaluate a model on tasks, as `assay run` does; returns the finished run, read with `.table`, `.scores()`, `.plot()` ….

    Without `output_path` it is stored below `runs_dir`, as by `assay run`; the same call resumes a run that was stopped. Where
    documents failed or a limit was reached, `.status` is not `complete`. `progress=False` shows nothing meanwhile.
    """
    options = _options(locals())
    from assay.evaluation.api import stored_run

    around = {
        "task_manager": options.pop("task_manager"),
        "model_role": options.pop("model_role"),
        **_stop_rule(options),
    }
    with late("shown_progress")() if options.pop("progress") else nullcontext() as watch:
        return stored_run(options.pop("model"), options, watch=watch or _unseen, **around)


def _unseen(_: object) -> None:
    """Show nothing of a run's progress."""


# <generated evaluate>
def evaluate(  # noqa: PLR0913  # the options of a run
    lm: "AnyModel", task_dict: Mapping[str, Any], *, model_args: str | Mapping[str, object] | None = None,
    models_file: str | None = None, model_role: Mapping[str, object] | None = None, num_fewshot: int | None = None,
    repeats: int | None = None, gen_kwargs: str | Mapping[str, object] | None = None,
    system_instruction: str | None = None, apply_chat_template: bool | str = False, fewshot_as_multiturn: bool = False,
    over_length: Literal["error", "drop_shots", "truncate"] = "error", max_cost: float | None = None,
    max_time: float | None = None, max_failures: int | None = None,
    resume_calls: Literal["retry", "skip", "fail"] = "fail", stop_when: str | None = None, limit: float | None = None,
    start_index: int = 0, sample: int | None = None, samples: Mapping[str, object] | None = None,
    shard: str | None = None, include_path: str | Sequence[str] | None = None, plugins: str | Sequence[str] = (),
    include_defaults: bool = True, data_dir: str | None = None, output_path: str | None = None,
    runs_dir: str | None = None, run_name: str | None = None, force: bool = False, log_samples: bool = True,
    use_cache: str | None = None, batch_size: int | str | None = None, max_batch_size: int | None = None,
    device: str | None = None, trust_remote_code: bool = False, replicas: int | str | None = None,
    gpus_per_replica: float | None = None, ray: str | None = None, serve: str | None = None,
    serve_timeout: float = 1800.0, compat: Literal["lm-eval", "sygra"] | None = None,
    bootstrap_iters: int | None = 100000, predict_only: bool = False, max_failed: float = 0.01,
    confirm_run_unsafe_code: bool = False, seed: Sequence[int | None] | int | None = None, random_seed: int | None = 0,
    numpy_random_seed: int | None = 1234, torch_random_seed: int | None = 1234, fewshot_random_seed: int | None = 1234,
    write_out: bool = False, show_config: bool = False, dry_run: bool = False,
    metadata: str | Mapping[str, object] | None = None, cache_requests: bool | str = False,
    rewrite_requests_cache: bool = False, delete_requests_cache: bool = False, check_integrity: bool = False,
    verbosity: str | None = None, **unknown: Never,
) -> dict[str, Any]:  # fmt: skip
    # </generated>
    """Evaluate a model on tasks that `TaskManager.load` returned; returns the content of results.json."""
    options = _options(locals())
    from assay.exchange.lm_eval_api import evaluate as start

    return start(**options, **_stop_rule(options))


def _options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Join the parameters of a function with its unknown ones, which are refused with a suggestion like those of a file."""
    return {**{name: value for name, value in parameters.items() if name != "unknown"}, **parameters["unknown"]}


def _stop_rule(options: Mapping[str, Any]) -> dict[str, Any]:
    """The function that makes the rule of `stop_when`, where that is given: it compares runs, which the evaluation does not."""
    if options.get("stop_when") is None:
        return {}
    from assay.comparison.stopping import stop_rule

    return {"stop_rule": stop_rule}


HERE = ("evaluate", "run", "simple_evaluate")
"""The public names that this module defines."""
NAMES = sorted([*HERE, *(name for names in HOMES.values() for name in names)])


def load(name: str) -> object:
    """Import a public name."""
    home = __name__ if name in HERE else next((module for module, names in HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    return value
