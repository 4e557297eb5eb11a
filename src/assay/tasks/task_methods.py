"""Methods of a task class of the user's that replace steps of the scoring loop, in runs and for instances."""

from collections.abc import Sequence
from dataclasses import replace

from assay.config.task import TaskConfig
from assay.errors import ConfigError, Place
from assay.records import Answers, Failed
from assay.registry import refused
from assay.scoring.loop import ScoringLoop, ScoringStep
from assay.scoring.named import method_problem
from assay.scoring.results import CHOICE, LIKELIHOOD, Filtered, Instance, ScoreDict, StepInput, with_answers
from assay.scoring.scorer import AnsweredSample, ProcessResultsScorer, Scorer, bound_metrics, computed, shown
from assay.tasks.settings import Helpers
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


def own_task(task: Task, config: TaskConfig, helpers: Helpers) -> Task | None:
    """The object of the user's own class that a task is, or is made of; None where no method of it takes part in scoring."""
    own = task
    at = class_place(task)
    kind = config.class_ if isinstance(config.class_, type) and issubclass(config.class_, Task) else type(task)
    if not isinstance(task, kind):
        with refused(at, f"the class {kind.__name__} cannot be made", "it must take the configuration of the task"):
            own = kind.__new__(kind)
            own.helpers = helpers  # its `__init__` may need them
            own.__init__(config)  # type: ignore[misc]  # as the class has it
            vars(own).update({name: each for name, each in vars(task).items() if name in METHODS})  # set on the object
    _check_methods(own, at)
    return own if takes_part(own) else None


METHODS = {
    "_create_result": ("instances", "filter_name"),
    "_compute_metric": ("result", "metric"),
    "_process_with_custom_fn": ("instances_by_doc",),
    "process_instances": ("instances",),
}
"""The methods of a task that take part in scoring, and how they are called."""


def _check_methods(task: Task, place: Place) -> None:
    """Refuse methods that cannot be called as they will be."""
    for method, arguments in METHODS.items():
        what = method_problem(getattr(task, method), len(arguments)) if _overrides(task, method) else None
        if what is not None:
            fix = f"write `def {method}(self, {', '.join(arguments)})`"
            raise ConfigError.at(place, f"class {type(task).__name__!r}: {method} {what}", fix)


def takes_part(task: Task) -> bool:
    """Whether a method of the task's class takes part in scoring."""
    return any(_overrides(task, method) for method in METHODS)


def _overrides(task: Task, method: str) -> bool:
    return is_overridden(task, method, Task)


def with_methods(task: Task, steps_only: bool, loop: ScoringLoop, step: ScoringStep, scorer: Scorer) -> ScoringStep:
    """A step of the loop as the methods of the user's class compute it; `steps_only` where one of these runs the loop."""
    name, filters = step.filter.name, [pipeline.name for pipeline, _ in loop.pipelines]

    def instances(document: AnsweredSample, own: Answers, answers: Sequence[Filtered]) -> Sequence[Instance]:  # noqa: ARG001  # the shape of a result
        if document.instances:
            return with_answers(document.instances, filters, answers)
        left = {key: each for key, each in zip(filters, answers, strict=True) if not isinstance(each, Failed)}
        return shown(document, left, loop.reading, loop.task)

    def rows(instances_of_one: Sequence[Instance]) -> ScoreDict:
        by_itself = _overrides(task, "process_instances")
        by_document = task.sort_instances(instances_of_one)
        scores = task.process_instances(instances_of_one) if by_itself else task._process_with_custom_fn(by_document)
        return {metric: values[0] for (metric, of), values in scores.items() if of == name}

    by_answer = [metric.name for metric in step.metrics]
    processes = isinstance(scorer, ProcessResultsScorer)
    whole = _overrides(task, "process_instances") or (processes and _overrides(task, "_process_with_custom_fn"))
    if whole and not steps_only:
        place = f"scoring: task class {type(task).__name__!r} of filter {name!r}"
        changed = replace(step, result=instances, compute=rows, by_answer=by_answer, place=place)
        return replace(changed, score=None, batch=None, ask=None)
    if processes or not any(_overrides(task, method) for method in STEPS):
        return step  # a task's own function comes first
    bound = bound_metrics(scorer, step.metrics, name, task._compute_metric)

    def result(document: AnsweredSample, own: Answers, answers: Sequence[Filtered]) -> StepInput:
        return task._create_result(instances(document, own, answers), name)

    return replace(step, result=result, compute=lambda created: computed(created, bound, scorer), by_answer=by_answer)
