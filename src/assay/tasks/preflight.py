"""Checks before the first request: of tasks, of a model for these tasks, of groups' aggregates."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from assay.checks import Check, Level
from assay.config.option import YAMLMapping
from assay.config.run import RunConfig
from assay.config.task import TaskConfig
from assay.dialect import Dialect
from assay.errors import ConfigError, Place, Problem, SelfExplanatory, did_you_mean
from assay.groups.checks import MemberAnswers, group_problems, place_in, ready_group
from assay.groups.group import Group, TaskT
from assay.groups.results import counted_metric
from assay.groups.rows import MemberSelection
from assay.models.protocol import AnyModel, Remote
from assay.models.reasoning import template_thinks
from assay.records import DEFAULT_MAX_GEN_TOKS, limit_of
from assay.scoring.helper_code import Resolve
from assay.scoring.metrics.registry import METRICS
from assay.scoring.scorer import members_of, need_of, roles_of
from assay.signatures import argument_names
from assay.tasks.runnable import UNDER_TEST, Runnable
from assay.tasks.task import Task, set_group_rules
from assay.user_code import user_code

SMALL_LIMIT = 512
"""Tokens that thinking alone may take."""
MEANING = {
    "generate": "generate text",
    "loglikelihood": "give log-likelihoods",
    "rolling": "give the log-likelihood of whole texts",
    "chat": "apply a chat template",
    "tools": "call tools",
}


def refuse_unsafe(tasks: Iterable[Task], *, confirmed: bool) -> None:
    """Tasks that execute what the model writes run only when that was asked for."""
    unsafe = [task for task in tasks if task.config.unsafe_code or _runs_code(task.config)]
    if unsafe and not confirmed:
        names = ", ".join(task.name for task in unsafe[:5])
        what = f"scoring executes code that the model writes ({names})"
        raise ConfigError.at("tasks", what, "give --confirm_run_unsafe_code if that is what you want")


def _runs_code(config: TaskConfig) -> bool:
    """Whether a metric of the task, or of one of its filters, executes what the model writes."""
    lists = [config.metric_list, *(entry.metric_list for entry in config.filter_list or ())]
    names = [metric.name for metrics in lists for metric in metrics or () if isinstance(metric.name, str)]
    return any(name in METRICS and METRICS[name].runs_code for name in names)


class OpenModels(NamedTuple):
    """The models of a run by role, and the tasks that ask them."""

    models: Mapping[str, AnyModel]
    tasks: Sequence[Runnable]
    config: RunConfig


def unable_models(run: OpenModels) -> Iterator[Problem]:
    """Find models that cannot do what a task needs of their role."""
    for task in run.tasks:
        for role in (UNDER_TEST, *task.facts.models):
            model = run.models[role]
            for need in sorted(task.needs(role)):
                if getattr(model.can, need):
                    continue
                who = "a model" if role == UNDER_TEST else f"a model {role!r}"
                what = f"task {task.task.name!r} needs {who} that can {MEANING[need]}, and {model.name!r} cannot"
                formats = role == UNDER_TEST and need == "loglikelihood" and task.task.definition is None
                fix = f"ask for {task.task.name}@generate" if formats else "choose another model"
                place = Place("model" if role == UNDER_TEST else f"model_role.{role}")
                yield Problem(place, what + model.can.why_not(need), fix)


def unable_scorer_models(run: OpenModels) -> Iterator[Problem]:
    """Find models that cannot do what the scorers ask of their role."""
    for scorer in (scorer for task in run.tasks for scorer in task.facts.scorers if not members_of(scorer)):
        for role in roles_of(scorer):
            need, model = need_of(scorer, role), run.models[role]
            if not getattr(model.can, need):
                what = f"scorer {scorer.name!r} needs a model that can {MEANING[need]}, and {model.name!r} cannot"
                fix = f"give the role {role!r} another model"
                yield Problem(Place(f"model_role.{role}"), what + model.can.why_not(need), fix)


def impossible_lengths(run: OpenModels) -> Iterator[Problem]:
    """Find `drop_shots` for a model that does not count tokens, and `truncate` for one that does not cut prompts."""
    model, place = run.models[UNDER_TEST], Place("over_length")
    if run.config.over_length == "drop_shots" and (model.max_length is None or model.count_tokens("a") is None):
        what = f"model {model.name!r} does not count tokens, or has no known context length"
        yield Problem(place, what, "give tokenizer=FOLDER and max_length=N in --model_args")
    cuts = getattr(model, "cuts", False)  # models of users need not know of it
    if run.config.over_length == "truncate" and not cuts:
        what = f"model {model.name!r} does not cut prompts"
        yield Problem(place, what, "create it with over_length='truncate', or use drop_shots")


def unknown_prices(run: OpenModels) -> Iterator[Problem]:
    """Find remote models without a price, where the run has a cost limit."""
    for role, model in run.models.items() if run.config.max_cost is not None else ():
        if isinstance(model, Remote) and getattr(model, "price", None) is None:
            where = "model_args" if role == UNDER_TEST else f"model_role {role}"
            fix = "add price_in=… and price_out=… (per million tokens), or prices=FILE"
            yield Problem(Place("max_cost"), f"the price of the model in {where} is not known", fix)


MODEL_CHECKS: tuple[Check[OpenModels], ...] = (
    Check(Level.BOUND, unable_models),
    Check(Level.BOUND, unable_scorer_models),
    Check(Level.BOUND, impossible_lengths),
    Check(Level.BOUND, unknown_prices),
)


def warn_thinking(tasks: Sequence[Runnable], model: AnyModel) -> None:
    """Warn of tasks whose token limit may end before a model that thinks has answered."""
    known = {task.task.name: token_limit(task) for task in tasks if "generate" in task.needs()}
    small = {name: limit for name, limit in known.items() if limit is not None and limit <= SMALL_LIMIT}
    if small:
        name, limit = min(small.items(), key=lambda each: each[1])
        which = f"task {name!r}" if len(small) == 1 else f"{len(small)} tasks, such as {name!r},"
        takes = "enable_thinking" in argument_names(type(model).__init__)
        logging.getLogger("assay").warning(
            "the model thinks before it answers, and %s may end before the answer, with a limit of %d tokens: give --gen_kwargs"
            " max_gen_toks=4096 or more%s",
            f"the texts of {which}", limit,
            ", or switch thinking off, with enable_thinking=False in --model_args" if takes else "",
        )  # fmt: skip


def token_limit(task: Runnable) -> int | None:
    """The limit of a task's generated texts; None for a graph, whose nodes have their own."""
    if task.task.definition is not None:
        return None
    params = task.described().get("generation_kwargs")
    return (limit_of(params) if isinstance(params, Mapping) else None) or DEFAULT_MAX_GEN_TOKS


def check_template(model: AnyModel, tasks: Sequence[Runnable]) -> None:
    """Warn where the chat template is that of a model that thinks, and token limits are small."""
    try:
        with user_code("the chat template"):
            thinks = template_thinks(model.chat_template)
    except SelfExplanatory:  # a template that refuses such a conversation: the run reports what it refuses
        return
    if thinks:
        warn_thinking(tasks, model)


def ready_groups(groups: Iterable[Group[TaskT]], tasks: Sequence[Runnable], resolve: Resolve, dialect: Dialect) -> None:
    """Give every group what computes its numbers, and refuse what cannot be computed; all problems at once."""
    known = {task.task.name: MemberAnswers(task.facts.rows, task.facts.answers, task.facts.repeats) for task in tasks}
    problems: list[Problem] = []
    for group in groups:
        set_group_rules(group, dialect)
        wrong = group_problems(group, resolve, known)
        problems += wrong
        if not wrong:
            ready_group(group, resolve)
            group.directions = _directions(group, tasks)
            problems += _undirected(group)
    if problems:
        raise ConfigError(problems)


def _undirected(group: Group[TaskT]) -> Iterator[Problem]:
    """Find rows of the best members where nobody said whether more is better."""
    best = MemberSelection.of(group.config).top_k
    if best is None or best >= len(group.children):
        return
    for number, entry in enumerate(group.aggregated_entries):
        metric = counted_metric(entry) or entry.metric_name
        if entry.higher_is_better is None and group.directions.get(metric) is None:
            what = f"top_k takes the best members, and whether more {metric!r} is better is not known"
            fix = "add `higher_is_better: true`, or false, to this entry"
            yield Problem(place_in(group, "aggregate_metric_list", number, "metric"), what, fix)


def _directions(group: Group[TaskT], tasks: Sequence[Runnable]) -> dict[str, bool | None]:
    """By metric whether more is better, where the members agree."""
    below = {task.name for task in group.get_all_tasks()}
    directions: dict[str, bool | None] = {}
    for task in tasks:
        if task.task.name in below:
            for metric, better in task.higher_is_better().items():
                directions[metric] = better if directions.get(metric, better) == better else None
    return directions


def check_samples(samples: YAMLMapping | None, tasks: Iterable[str]) -> None:
    """Refuse `samples` of tasks that the run does not have, or that are not lists of document numbers."""
    known, problems = list(tasks), []
    for name, numbers in (samples or {}).items():
        if name not in known:
            problems.append(
                Problem(Place("samples"), f"this run has no task named {name!r}", did_you_mean(name, known))
            )
        elif not isinstance(numbers, list | tuple) or not all(isinstance(n, int) and n >= 0 for n in numbers):
            problems.append(Problem(Place(f"samples.{name}"), "must be a list of document numbers", "write [0, 5, 7]"))
    if problems:
        raise ConfigError(problems)
