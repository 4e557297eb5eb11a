"""Groups over numbers that are there: whoever made them, the members need only their rows."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.config.group import GroupConfig
from assay.config.loader import load
from assay.config.task import TaskConfig
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.outcome import group_result
from assay.groups.group import Group
from assay.groups.manager import GroupManager
from assay.groups.results import bottom_up, group_numbers
from assay.records import Function
from assay.runs.results import GroupResult, TaskResult
from assay.tasks.aggregates import doubled, lacking
from assay.tasks.preflight import ready_group
from assay.tasks.task import Task


def groups_over_imports(
    files: Sequence[Path], tasks: Mapping[str, TaskResult], told: Sequence[GroupResult] = ()
) -> list[GroupResult]:
    """The groups of YAML files, with the numbers that their members give them; those in others come first.

    Members are tasks, or groups that were `told`, whose own numbers stay as they are.
    """
    if not files:
        return []
    manager: GroupManager[Task] = GroupManager()
    known = {each.name: GroupConfig(group=each.name, task=tuple(each.members)) for each in told}
    for result in tasks.values():
        manager.register_task(Task(TaskConfig(task=result.name, task_alias=result.alias), name=result.name))
    manager.build_hierarchy({**known, **dict(_read(file, known) for file in files)})
    ordered = [group for group in bottom_up(manager.groups.values()) if group.name not in known]
    rows = {name: frozenset(result.rows) for name, result in tasks.items()}
    problems: list[Problem] = []
    for group in ordered:
        ready_group(group, _refuse)
        group.directions = _directions(group, tasks)
        problems += [*lacking(group, rows), *doubled(group)]
    if problems:
        raise ConfigError(problems)
    numbers = group_numbers(ordered, tasks, like_lm_eval=False)
    return [group_result(group, tasks, numbers[group.name]) for group in ordered]


def _read(file: Path, known: Iterable[str]) -> tuple[str, Mapping[str, object]]:
    """The name of the group in a file, and what it says."""
    try:
        value, problems = load(file.read_bytes(), str(file), lenient=False)
    except OSError as error:
        raise ConfigError(
            [Problem(Place(str(file)), f"cannot be read: {error.strerror}", "name a YAML file")]
        ) from None
    if problems:
        raise ConfigError(problems)
    if not isinstance(value, dict) or not isinstance(value.get("group"), str):
        raise ConfigError([Problem(Place(str(file)), "is no group", "give a file with `group:` and `task:`")])
    name = value["group"]
    if name in known:
        what = f"the runs have a group {name!r} already"
        raise ConfigError([Problem(Place(str(file)), what, "give it another name")])
    return name, {key: each for key, each in value.items() if key != "group"}


def _refuse(function: Function) -> Any:
    what, fix = (
        f"{function} cannot be used here",
        "take an aggregation that has a name, or `assay score RUN --with FILE`",
    )
    raise ConfigError([Problem(function.place, what, fix)])


def _directions(group: Group[Any], tasks: Mapping[str, TaskResult]) -> dict[str, bool | None]:
    """By metric whether more is better, where the members agree."""
    found: dict[str, bool | None] = {}
    for task in group.get_all_tasks():
        for metric, better in tasks[task.name].higher_is_better.items():
            found[metric] = better if found.get(metric, better) == better else None
    return found
