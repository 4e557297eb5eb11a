"""The definitions of tasks that were run before, found again: as they are today, or as a file gives them."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from assay.errors import ConfigError, Place, Problem, did_you_mean, some
from assay.evaluation.answers import Answers
from assay.groups import Group
from assay.tasks import Task, TaskManager

FIX = "give the folder that has it with --include_path DIR, or a file with --with FILE"


class Definitions(NamedTuple):
    """Tasks and groups by name, and the groups that cannot be computed, each with why."""

    tasks: dict[str, Task]
    groups: dict[str, Group[Task]]
    left_out: dict[str, str]


def definitions(answers: Answers, files: Sequence[str] = (), wanted: Sequence[str] = ()) -> Definitions:
    """What the tasks of answers are, of which `wanted` may choose some by name, glob or group; all problems at once."""
    manager, names = answers.manager, answers.names
    loaded, problems = manager.attempt(answers.config.tasks)
    tasks, groups = dict(loaded["tasks"]), dict(loaded["groups"])
    for file in files:
        _replace(tasks, groups, manager, file, names)
    chosen = _chosen(wanted, names, groups)
    what = "its definition is not found any more"
    if answers.left_out:
        what = f"its definition is not found: the run was made elsewhere, and what it names is not used ({some(answers.left_out)})"
    wrong = [Problem(Place(f"task {name!r}"), what, FIX) for name in chosen if name not in tasks]
    if wrong:
        raise ConfigError([*wrong, *(problem for problem in problems if problem.serious)])
    left_out = {name: why for name, group in groups.items() if (why := _lacking(group, [*chosen, *answers.broken]))}
    return Definitions(
        {name: tasks[name] for name in chosen},
        {name: group for name, group in groups.items() if name not in left_out},
        left_out,
    )


def _replace(
    tasks: dict[str, Task], groups: dict[str, Group[Task]], manager: TaskManager, file: str, names: Sequence[str]
) -> None:
    """Put the tasks and groups of a file in the place of those that have their names."""
    if not Path(file).is_file():
        raise ConfigError(
            [Problem(Place("--with"), f"there is no file {file!r}", "give a YAML file of a task or group")]
        )
    loaded = manager.load([str(Path(file).resolve())])
    given = _meant(loaded["tasks"], tasks)
    unknown = [name for name in given if name not in names]
    if unknown:
        what = f"{file} speaks of a task that was not run: {unknown[0]!r}"
        raise ConfigError([Problem(Place("--with"), what, did_you_mean(unknown[0], names))])
    tasks.update(given)
    for group in groups.values():
        group.children = [loaded["groups"].get(child.name, child) for child in group.children]
    groups.update(loaded["groups"])


def _meant(given: dict[str, Task], known: Mapping[str, Task]) -> dict[str, Task]:
    """The tasks of a file; a graph is called after its folder, and so the only one stands for the only one of a run."""
    graphs = [name for name, task in known.items() if task.definition is not None]
    [name, task] = next(iter(given.items()), ("", None))
    if task is None or len(given) > 1 or task.definition is None or name in known or len(graphs) != 1:
        return given
    return {graphs[0]: Task.from_kind(task.definition.fields, name=graphs[0])}


def _chosen(wanted: Sequence[str], names: Sequence[str], groups: Mapping[str, Group[Any]]) -> list[str]:
    """The tasks that are meant; everything where nothing is said."""
    if not wanted:
        return list(names)
    found: set[str] = set()
    for each in wanted:
        below = [task.name for task in groups[each].get_all_tasks()] if each in groups else []
        matched = [name for name in names if fnmatchcase(name, each) or name in below]
        if not matched:
            fix = f"{did_you_mean(each, [*names, *groups])} (there are: {_some(names)})"
            raise ConfigError([Problem(Place("--tasks"), f"no task of this run is called {each!r}", fix)])
        found.update(matched)
    return [name for name in names if name in found]


def _lacking(group: Group[Any], chosen: Iterable[str]) -> str:
    there = set(chosen)
    without = [task.name for task in group.get_all_tasks() if task.name not in there]
    return f"not scored here: {_some(without)}" if without else ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
