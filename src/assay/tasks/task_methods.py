"""Methods of a task class of the user's that replace steps of the scoring loop, in runs and for instances."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from assay.config.task import TaskConfig
from assay.errors import ConfigError, Place, Problem
from assay.extension_points import ExtensionPoint
from assay.registry import refused
from assay.scoring.helper_code import Helpers
from assay.scoring.loop import ScorePart, ScoringStep, metric_parts
from assay.scoring.results import CHOICE, LIKELIHOOD, Instance
from assay.scoring.scorer import Documents, ProcessResultsScorer
from assay.scoring.scores import ScoreDict
from assay.tasks.task import Task, class_place
from assay.user_code import is_overridden

STEPS = ("_create_result", "_compute_metric")


def typed(config: TaskConfig, kind: object = None) -> TaskConfig:
    """The configuration with the output type of the task's own class, where it has one that says so."""
    own = kind or config.class_
    output_type = own.OUTPUT_TYPE if isinstance(own, type) and issubclass(own, Task) else None
    if (
        output_type == LIKELIHOOD and config.output_type == CHOICE
    ) or output_type is None:  # what lm-eval asks for choices
        return config
    return replace(config, output_type=output_type)  # type: ignore[arg-type]  # one of them


def own_task(task: Task, config: TaskConfig, helpers: Helpers) -> Task:
    """The object of the user's own class that a task is, or is made of; else the task itself."""
    own = task
    at = class_place(task)
    kind = config.class_ if isinstance(config.class_, type) and issubclass(config.class_, Task) else type(task)
    if not isinstance(task, kind):
        with refused(at, f"the class {kind.__name__} cannot be made", "it must take the configuration of the task"):
            own = kind.__new__(kind)
            own.helpers = helpers  # its `__init__` may need them
            own.__init__(config)  # type: ignore[misc]  # as the class has it
            set_on_task = {name: each for name, each in vars(task).items() if name in METHODS}
            vars(own).update(set_on_task)
            own._set.update(task.set_keys)
    _refuse(own, at, TASK_POINT.uncallable(own))
    return own


METHODS = {
    "_create_result": ("instances", "filter_name"),
    "_compute_metric": ("result", "metric"),
    "_process_with_custom_fn": ("instances_by_doc",),
    "process_instances": ("instances",),
}
"""The methods of a task that take part in scoring, and how they are called."""


_AS_KEY = "write `{name}: !function …` in the task"
_LM_EVALS = "derive the class from lm_eval.api.task.ConfigurableTask, which has it"
TASK_POINT = ExtensionPoint(
    Task,
    METHODS,
    ("OUTPUT_TYPE", "_scorer", "_filters"),
    {
        "scorer": "set `_scorer`, or write `scorer` in the task",
        **dict.fromkeys(("_scorer", "_filters"), "set it in `__init__`, after `super().__init__(config)`"),
        **{
            name: _AS_KEY.format(name=name)
            for name in ("process_results", "process_docs", "doc_to_text", "doc_to_target", "doc_to_choice")
        },
        "aggregation": "write `aggregation` beside the metric",
        "higher_is_better": "write `higher_is_better` beside the metric",
        "compute_aggregations": "a run aggregates each metric by itself: write `aggregation: !function …` beside it",
        "sort_instances": "override process_instances",
        "_process_instances": "override process_instances",
        **dict.fromkeys(
            (
                "construct_requests", "fewshot_context", "apply_filters", "build_all_requests", "download", "test_docs",
                "validation_docs", "training_docs", "fewshot_docs", "has_test_docs", "has_validation_docs",
                "has_training_docs", "VERSION", "DATASET_PATH", "DATASET_NAME",
            ),
            _LM_EVALS,
        ),
    },
)  # fmt: skip
"""What users' classes of tasks may define, and what lm-eval asks its own for."""


def refuse_unasked(task: Task, own: Task) -> None:
    """Refuse what a user's class defines, or was set on a task or the object of its class, and a run asks for nowhere."""
    for owner in (task, own):
        _refuse(owner, class_place(task), TASK_POINT.unasked(owner))
    if "OUTPUT_TYPE" in vars(task):
        what = "OUTPUT_TYPE has no effect on an object"
        fix = "write it in the class, or give `output_type` in the configuration"
        raise ConfigError.at(class_place(task), f"task {task.name!r}: {what}", fix)


def _refuse(task: Task, place: Place, wrong: Iterable[tuple[str, str]]) -> None:
    problems = [Problem(place, f"class {type(task).__name__!r}: {what}", fix) for what, fix in wrong]
    if problems:
        raise ConfigError(problems)


def takes_part(task: Task) -> bool:
    """Whether a method of the task's class takes part in scoring."""
    return any(_overrides(task, method) for method in METHODS)


def _overrides(task: Task, method: str) -> bool:
    return is_overridden(task, method, Task)


def step_with_methods(task: Task, step: ScoringStep, documents: Documents, *, steps_only: bool) -> ScoringStep:
    """A step of the loop as the methods of the user's class compute it; `steps_only` where one of these runs the loop."""
    name, place = step.filter.name, f"scoring: task class {type(task).__name__!r} of filter {step.filter.name!r}"
    of_instances = _overrides(task, "process_instances")

    def rows(instances: Sequence[Instance]) -> ScoreDict:
        by_document = task.sort_instances(instances)
        scores = task.process_instances(instances) if of_instances else task._process_with_custom_fn(by_document)
        return {metric: values[0] for (metric, of_filter), values in scores.items() if of_filter == name}

    processes = isinstance(step.scorer, ProcessResultsScorer)
    by_answer = [metric.name for metric in step.metrics]
    if not steps_only and (of_instances or (processes and _overrides(task, "_process_with_custom_fn"))):
        parts = [ScorePart("", place, (), rows)]
        return replace(step, result=documents.instances, parts=parts, by_answer=by_answer, place=place)
    if processes or not any(_overrides(task, method) for method in STEPS):
        return step  # a task's own function comes first
    result = partial(documents.created_result, task._create_result)
    own = [part for part in step.parts if part.rows is step.own_rows]  # the scorer's score stays
    parts = [*metric_parts(step.metrics, name, task._compute_metric), *own]
    return replace(step, result=result, parts=parts, by_answer=by_answer)
