"""The parts of the seam matrix: what a user extends, and each part of assay that has to use the extension.

A `Seam` is an extension with the way it is brought in; a consumer is a function of `CONSUMERS`, which returns the number that
it computes. `Refused` is the message it gives instead, before the first request.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

import assay
from assay import GroupManager, TaskManager
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.merge import merge as merge_shards
from assay.evaluation.score import ScoreOptions
from assay.exchange.importers import score as score_again
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.models import Scripted
from assay.registry import load_plugins
from assay.tasks.validate import validate as problems_of

RIGHT = {"a": [1, 0], "b": [1, 0, 0, 0, 0, 0, 0, 0]}
"""Task a: 1 of 2 answers is right; b: 1 of 8. By hand: micro mean 2/10, macro mean 5/16, geometric mean √(1/2 · 1/8) = 1/4."""
MICRO, GEOMETRIC = 0.2, 0.25
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
        return Scripted(generate=self._answer, identity="says x")

    def _answer(self, prompt: str, params: dict[str, object], repeat: int) -> str:  # the shape of a model
        self.asked.append(prompt)
        return "x"

    @property
    def manager(self) -> TaskManager:
        return TaskManager(**self.options)

    @property
    def options(self) -> dict[str, Any]:
        return {"include_path": [str(self.folder / each) for each in self.include], "include_defaults": False}


Specs = Sequence[Any]
"""Names, paths, configurations, or objects of tasks and groups."""


@dataclass(frozen=True)
class Refused:
    """The message of a refusal: it has all of these texts, one of which is its location."""

    texts: Sequence[str]


@dataclass(frozen=True)
class Seam:
    """An extension and the way it is brought in: the files it is in, and what is selected with it.

    `number` is that of `row` of `name`, by hand. `others` has consumers with another outcome: that cannot have the extension,
    as code in memory when answers are scored later, or that do not apply (None).
    """

    extension: str
    way: str
    number: float | Refused
    select: Callable[[World], Specs]
    files: Mapping[str, str] = field(default_factory=dict)
    _: KW_ONLY
    name: str = "g"
    row: str = "exact_match,none"
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the run; `plugins` are relative to the folder of the world, which is the current one."""
    model: Callable[[World], Any] = World.model
    include: Sequence[str] = (".",)
    others: Mapping[str, float | Refused | None] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.extension}, {self.way}"

    def outcome(self, consumer: str) -> float | Refused | None:
        return self.others.get(consumer, self.number)


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
    loaded = world.manager.load(seam.select(world))
    manager: GroupManager[Any] = GroupManager()
    for group in loaded["groups"].values():
        manager.register_group(group)
    return manager.compute_all_group_metrics(SCORES)[seam.name][seam.row]


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
    "run": run,
    "evaluate": evaluate,
    "score": score,
    "merge": merge,
    "validate": validate,
}
