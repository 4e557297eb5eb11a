"""The whole flow, in the order it happens."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.aggregate.board import Row
from assay.aggregate.estimate import Estimate
from assay.compat import HelperCode
from assay.compat.class_task import ClassTask
from assay.config.group import AggMetricConfig
from assay.engine import Ended, Engine, Started
from assay.errors import ConfigError, Problem
from assay.groups import Group
from assay.groups.mean import TaskScore, mean_of_tasks
from assay.models.protocol import Model
from assay.plans.ask import ask
from assay.runs.journal import Journal
from assay.runs.results import GroupResult, TaskResult, lm_eval_results
from assay.runs.samples import Kept, lm_eval_records
from assay.samples.prompt import Chat
from assay.tasks import Task, TaskManager
from assay.tasks.prepare import prepare
from assay.tasks.randomness import seed_random
from assay.tasks.run import TaskRun
from assay.tasks.runnable import Runnable
from assay.tasks.settings import Settings

Loaded = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is made, beside which tasks and which model."""

    settings: Settings = field(default_factory=Settings)
    bootstrap_iters: int = 100_000
    log_samples: bool = True
    random_seed: int | None = 0
    numpy_seed: int | None = 1234
    lm_eval_folder: str | None = None


def evaluate_tasks(model: Model, loaded: Loaded, options: Options) -> dict[str, Any]:
    """Evaluate loaded tasks and groups; the result is the content of results.json."""
    runnables = prepared(loaded["tasks"].values(), options)
    kept: dict[str, list[Kept]] = {name: [] for name in loaded["tasks"]}
    runs = [TaskRun(each, kept[each.task.name].append if options.log_samples else None) for each in runnables]
    journal = Journal(None)
    asyncio.run(drive(model, journal, runs))
    tasks = [task_result(run, options) for run in runs]
    groups = group_results(loaded["groups"], {task.name: task for task in tasks}, options)
    results = lm_eval_results(tasks, groups)
    if options.log_samples:
        results["samples"] = {name: sample_log(several, name, options) for name, several in kept.items()}
    return results


def prepared(tasks: Any, options: Options) -> list[Runnable]:
    """Every task bound to its data. All problems of all tasks are raised together."""
    seed_random(options.random_seed, options.numpy_seed)
    helper = HelperCode(options.settings.data_dir, options.lm_eval_folder)
    made: list[Runnable] = []
    problems: list[Problem] = []
    for task in tasks:
        if not options.settings.like_lm_eval:  # a task draws the same numbers whatever stands before it
            seed_random(options.random_seed, options.numpy_seed)
        try:
            made.append(_runnable(task, options.settings, helper))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return made


def _runnable(task: Task, settings: Settings, helper: HelperCode) -> Runnable:
    if task.config.class_ is not None:
        return ClassTask.of(task, settings, helper.resolve(task.config.class_))
    return prepare(task, settings, helper.helpers())


async def drive(model: Model, journal: Journal, runs: Sequence[TaskRun]) -> None:
    """Ask everything; scores are noted as responses land."""

    def plans() -> Iterator[Started]:
        for run in runs:
            for number, sample in run.samples():
                name = f"{run.runnable.task.name}\0{sample.doc_id}".encode()
                yield Started((run, number, sample), name, ask(sample.requests))

    def end(ended: Ended) -> None:
        run, number, sample = ended.what
        run.end(number, sample, ended.responses)

    await Engine(model, journal).run(plans(), end)
    for run in runs:
        run.finish()


def task_result(run: TaskRun, options: Options) -> TaskResult:
    task, runnable = run.runnable.task, run.runnable
    rows = run.board.estimates(
        runnable.aggregation, bootstrap_iters=options.bootstrap_iters, like_lm_eval=options.settings.like_lm_eval
    )
    return TaskResult(
        name=task.name,
        alias=task.alias,
        rows=rows,
        scored=run.board.scored,
        failed=run.board.failed,
        original=runnable.original,
        num_fewshot=runnable.num_fewshot,
        version=runnable.version,
        higher_is_better=runnable.higher_is_better(),
        config=runnable.described(),
    )


def group_results(groups: Mapping[str, Group[Task]], tasks: Mapping[str, TaskResult], options: Options) -> list[GroupResult]:
    """The numbers of every group, members before the groups that contain them."""
    return [_group_result(group, tasks, options) for group in _bottom_up(groups.values())]


def _bottom_up(groups: Any) -> list[Group[Task]]:
    ordered: dict[int, Group[Task]] = {}

    def visit(group: Group[Task]) -> None:
        if id(group) not in ordered:
            for child in group.children:
                if isinstance(child, Group):
                    visit(child)
            ordered[id(group)] = group

    for group in groups:
        visit(group)
    return list(ordered.values())


def _group_result(group: Group[Task], tasks: Mapping[str, TaskResult], options: Options) -> GroupResult:
    leaves = [task.name for task in group.get_all_tasks()]
    entries = group.config.aggregate_metric_list
    rows: dict[Row, Estimate] = {}
    for entry in entries or ():
        for filter_name in _filters(entry, leaves, tasks):
            row = Row(entry.metric, filter_name)
            found = {
                name: TaskScore(estimate.value, estimate.stderr, tasks[name].scored)
                for name in leaves
                if (estimate := tasks[name].rows.get(row)) is not None
            }
            like = options.settings.like_lm_eval
            score = mean_of_tasks(leaves, found, by_size=bool(entry.weight_by_size), like_lm_eval=like)
            if score is not None:
                rows[row] = Estimate(score.value, score.stderr, score.size)
    size = sum(tasks[name].scored for name in leaves)
    return GroupResult(group.name, group.alias, group.child_names, rows if entries else None, size, group.version)


def _filters(entry: AggMetricConfig, leaves: Sequence[str], tasks: Mapping[str, TaskResult]) -> list[str]:
    if entry.filter_list is None:
        return sorted({row.filter for name in leaves for row in tasks[name].rows if row.metric == entry.metric})
    return [entry.filter_list] if isinstance(entry.filter_list, str) else list(entry.filter_list)


def sample_log(kept: Sequence[Kept], name: str, options: Options) -> list[dict[str, Any]]:
    """The samples of a task as lm-eval logs them: filter by filter."""
    asked = (options.settings.samples or {}).get(name) if options.settings.like_lm_eval else None
    records = [
        list(lm_eval_records(each, asked[number] if asked else each.sample.doc_id)) for number, each in enumerate(kept)
    ]
    count = max(map(len, records), default=0)
    return [several[index] for index in range(count) for several in records if index < len(several)]


def simple_evaluate(  # noqa: PLR0913  # lm-eval's signature
    model: Model,
    tasks: Any,
    num_fewshot: int | None = None,
    limit: float | None = None,
    samples: Mapping[str, Sequence[int]] | None = None,
    bootstrap_iters: int = 100_000,
    log_samples: bool = True,
    system_instruction: str | None = None,
    apply_chat_template: bool | str = False,
    fewshot_as_multiturn: bool = True,
    gen_kwargs: Mapping[str, object] | None = None,
    predict_only: bool = False,
    confirm_run_unsafe_code: bool = False,
    include_path: Any = None,
    data_dir: str | None = None,
    compat: str | None = None,
    task_manager: TaskManager | None = None,
) -> dict[str, Any]:
    like_lm_eval = compat == "lm-eval"
    manager = task_manager or TaskManager(include_path=include_path, compat=compat)
    template: Callable[..., str] | None = model.chat_template if apply_chat_template else None
    chat = Chat(template, fewshot_as_multiturn, system_instruction)
    settings = Settings(
        num_fewshot=num_fewshot, gen_kwargs=gen_kwargs or {}, limit=limit, samples=samples, chat=chat, data_dir=data_dir,
        predict_only=predict_only, like_lm_eval=like_lm_eval,
    )  # fmt: skip
    options = Options(settings, bootstrap_iters, log_samples)
    return evaluate_tasks(model, manager.load(tasks), options)
