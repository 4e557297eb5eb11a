"""The parts of the seam matrix: what a user extends, and each part of assay that has to use the extension.

A `Seam` is an extension with the way it is brought in; a consumer is a function of `CONSUMERS`, which returns the number that
it computes. `Refused` is the message it gives instead, before the first request.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal

import assay
from assay import GroupManager, Instance, Run, TaskManager
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.merge import merge as merge_shards
from assay.evaluation.score import ScoreOptions
from assay.exchange.importers import score as score_again
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.models import Scripted
from assay.plugins import registry
from assay.registry import load_plugins
from assay.tasks.validate import validate as problems_of
from commands import run_command

RIGHT = {"a": [1, 0], "b": [1, 0, 0, 0, 0, 0, 0, 0]}
"""Task a: 1 of 2 answers is right; b: 1 of 8. By hand: micro mean 2/10, macro mean 5/16, geometric mean √(1/2 · 1/8) = 1/4."""
MICRO, GEOMETRIC = 0.2, 0.25
MARK = "seam"
"""The model says `x`, but `y` to a prompt with this word."""
SCORES = {name: {"exact_match,none": sum(right) / len(right), "samples": len(right)} for name, right in RIGHT.items()}
TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {name}.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: q
doc_to_target: gold
metric_list: [{{metric: exact_match}}]
"""


@dataclass
class World:
    """A folder with the tasks a and b and the files of a seam, and what the model was asked in it."""

    folder: Path
    asked: list[str] = field(default_factory=list)
    include: Sequence[str] = (".",)
    """The folders whose tasks are known, below `folder`."""

    def model(self) -> Scripted:
        return Scripted(generate=self._answer, loglikelihood=self._weigh, identity="says x")

    def _answer(self, prompt: str, params: dict[str, object], repeat: int) -> str:  # the shape of a model
        self.asked.append(prompt)
        return "y" if MARK in prompt else "x"

    def _weigh(self, context: str, continuation: str) -> tuple[float, bool]:
        self.asked.append(context)
        return (-1.0 if continuation == " x" else -2.0), False

    @property
    def manager(self) -> TaskManager:
        return TaskManager(**self.options)

    @property
    def options(self) -> dict[str, Any]:
        return {"include_path": [str(self.folder / each) for each in self.include], "include_defaults": False}


Specs = Sequence[Any]
"""Names, paths, configurations, or objects of tasks and groups."""


class Names(tuple[str, ...]):
    """What is selected by name, which a command can do, too."""

    def __call__(self, _: World) -> Specs:
        return list(self)


@dataclass(frozen=True)
class Refused:
    """The message of a refusal: it has all of these texts, one of which is its location."""

    texts: Sequence[str]


Outcome = float | Refused | str | None
"""A number, a refusal, why there is no such cell, or None: nothing of its own."""


@dataclass(frozen=True)
class Seam:
    """An extension and the way it is brought in: the files it is in, and what is selected with it.

    `number` is that of `row` of `name`, by hand. `others` has consumers with another outcome: that cannot have the extension,
    as code in memory when answers are scored later, or that do not apply (None, or the reason).
    """

    extension: str
    way: str
    number: Outcome
    select: Callable[[World], Specs]
    files: Mapping[str, str] = field(default_factory=dict)
    _: KW_ONLY
    name: str = "g"
    golds: str = "xyyyyyyy"
    """The targets of the instances that are made by hand: those of b."""
    row: str = "exact_match,none"
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the run; `plugins` are relative to the folder of the world, which is the current one."""
    model: Callable[[World], Any] = World.model
    include: Sequence[str] = (".",)
    of: Literal["group", "task"] = "group"
    others: Mapping[str, Outcome] = field(default_factory=dict)
    wrong: str | None = None
    """A known bug: what its cells do today and should not."""

    @property
    def title(self) -> str:
        return f"{self.extension}, {self.way}"

    def outcome(self, consumer: str) -> Outcome:
        """What the consumer gives."""
        if (consumer, self.of) in IMPOSSIBLE:
            return IMPOSSIBLE[consumer, self.of]
        if consumer == "command" and not isinstance(self.select, Names):
            return "a command takes names"
        return self.others.get(consumer, self.number)


IMPOSSIBLE = {
    ("compute_metrics", "task"): "a method of groups",
    ("process_instances", "group"): "a method of tasks",
}


def world_of(folder: Path, files: Mapping[str, str], include: Sequence[str] = (".",)) -> World:
    """Write the two tasks and the files of a seam."""
    for name, right in RIGHT.items():
        rows = [{"q": f"{name}{number}", "gold": "x" if is_right else "y"} for number, is_right in enumerate(right)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / f"{name}.yaml").write_text(TASK.format(name=name))
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return World(folder, include=include)


# --- consumers -------------------------------------------------------------------------------------------------------


def compute_metrics(world: World, seam: Seam) -> float:
    """The group's own method, from the numbers of its tasks."""
    load_plugins(seam.options.get("plugins", ()))
    loaded = world.manager.load(seam.select(world))
    manager: GroupManager[Any] = GroupManager()
    for group in loaded["groups"].values():
        manager.register_group(group)
    return manager.compute_all_group_metrics(SCORES)[seam.name][seam.row]


def process_instances(world: World, seam: Seam) -> float:
    """The task's own methods, with instances as seed 001 makes them by hand."""
    load_plugins(seam.options.get("plugins", ()))
    task = world.manager.load(seam.select(world))["tasks"][seam.name]
    instances = [instance for number, gold in enumerate(seam.golds) for instance in _instances(task, number, gold)]
    task.process_instances(instances)
    metric, _, name = seam.row.partition(",")
    number: float = task.compute_aggregations()[metric, name]
    return number


def _instances(task: Any, number: int, gold: str) -> list[Instance]:
    doc = {"q": f"b{number}", "gold": gold, "choices": ["x", "y"]}
    if task.config.output_type == "multiple_choice":
        return [
            Instance(doc, number, (doc["q"], f" {choice}"), doc["choices"].index(gold), index, [(likelihood, False)],
                     request_type="loglikelihood", choices=("x", "y"))
            for index, (choice, likelihood) in enumerate((("x", -1.0), ("y", -2.0)))
        ]  # fmt: skip
    return [Instance(doc, number, (doc["q"],), gold, 0, ["x"] * task.config.repeats, task_name=task.name)]


def run(world: World, seam: Seam) -> float:
    """`assay.run`, which stores the run in a folder."""
    folder = world.folder / "run"
    stored = assay.run(
        seam.model(world),
        tasks=seam.select(world),
        output_path=str(folder),
        progress=False,
        **world.options,
        **seam.options,
    )
    return _number(lm_eval_layout(stored.results), seam)


def evaluate(world: World, seam: Seam) -> float:
    """`assay.evaluate` of what `TaskManager.load` returned, twice: no object is changed by the first time."""
    loaded = world.manager.load(seam.select(world))
    first, second = (
        assay.evaluate(seam.model(world), loaded, task_manager=world.manager, **seam.options) for _ in range(2)
    )
    assert _number(first, seam) == _number(second, seam)
    return _number(second, seam)


def command(world: World, seam: Seam) -> float:
    """The command `assay run`."""
    folder = world.folder / "run"
    registry("models").add("says_x", lambda: seam.model(world), replacing=True)
    include = [word for path in world.options["include_path"] for word in ("--include_path", path)]
    plugins = [word for plugin in seam.options.get("plugins", ()) for word in ("--plugin", plugin)]
    options = [f"--{name}={value}" for name, value in seam.options.items() if name != "plugins"]
    words = ["--model", "says_x", "--no_defaults", *include, *plugins, *options, "--output_path", folder]
    ended = run_command("run", "--tasks", *seam.select(world), *words, cwd=world.folder)
    if ended.returncode != 0:
        raise ConfigError([Problem(Place("command"), ended.stderr)])
    return _number(lm_eval_layout(Run.open(folder).results), seam)


def score(world: World, seam: Seam) -> float:
    """`assay score` of the folder of a run."""
    run(world, seam)
    world.asked.clear()
    rescored = score_again(world.folder / "run", ScoreOptions(plugins=seam.options.get("plugins", ())))
    assert not world.asked
    left_out = next((remark for remark in rescored.remarks if remark.startswith("left out: ")), None)
    if left_out is not None:
        raise ConfigError([Problem(Place("score"), left_out)])
    return _number(lm_eval_layout(rescored.results), seam)


def merge(world: World, seam: Seam) -> float:
    """`assay merge` of a run in two shards."""
    shards = [world.folder / "one", world.folder / "two"]
    for number, shard in enumerate(shards, 1):
        options = {**world.options, **seam.options, "shard": f"{number}/2", "output_path": str(shard)}
        assay.run(seam.model(world), tasks=seam.select(world), progress=False, **options)
    world.asked.clear()
    return _number(lm_eval_layout(merge_shards(world.folder / "whole", shards)), seam)


def validate(world: World, seam: Seam) -> float:
    """`assay validate`, which runs nothing: it has no number of its own, and refuses what a run refuses."""
    load_plugins(seam.options.get("plugins", ()))
    problems = [each for each in problems_of(world.manager, list(seam.select(world))) if each.serious]
    if problems:
        raise ConfigError(problems)
    outcome = seam.outcome("validate")
    assert isinstance(outcome, float), f"nothing is refused, and a run refuses {outcome}"
    return outcome


def _number(results: Mapping[str, Any], seam: Seam) -> float:
    number: float = results["results"][seam.name][seam.row]
    return number


CONSUMERS: Mapping[str, Callable[[World, Seam], float]] = {
    "compute_metrics": compute_metrics,
    "process_instances": process_instances,
    "run": run,
    "evaluate": evaluate,
    "command": command,
    "score": score,
    "merge": merge,
    "validate": validate,
}


def count_cells(seam: Seam) -> tuple[int, int, int, int]:
    """How many of its cells are used, refused, impossible and wrong."""
    outcomes = [seam.outcome(consumer) for consumer in CONSUMERS]
    impossible = sum(isinstance(outcome, str | None) for outcome in outcomes)
    refused = sum(isinstance(outcome, Refused) for outcome in outcomes)
    cells = len(outcomes) - impossible
    return (0, 0, impossible, cells) if seam.wrong is not None else (cells - refused, refused, impossible, 0)
