"""The same documents in two runs: by data-set fingerprint and row, or where the data differ, by what they say."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from assay.comparison.run_scores import TaskScores, task_scores
from assay.errors import ConfigError, Place, Problem, some
from assay.runs.run import Run

PROMPT_OPTIONS = ("apply_chat_template", "system_instruction", "fewshot_as_multiturn", "fewshot_random_seed", "num_fewshot",
                  "over_length")  # fmt: skip
"""Options of a run that change what is asked."""


@dataclass(frozen=True)
class PairedTask:
    """A task that two runs share: the samples that are of the same document, by their places in either file."""

    name: str
    name_b: str
    scores_a: TaskScores
    scores_b: TaskScores
    places_a: Any
    places_b: Any
    source: str
    by_content: bool

    @property
    def documents(self) -> Any:
        return self.scores_a.documents[self.places_a]

    @cached_property
    def prompts_that_differ(self) -> list[int]:
        """The documents that were asked about in other words."""
        a, b = self.scores_a.prompts[self.places_a], self.scores_b.prompts[self.places_b]
        found: list[int] = self.documents[(a != b) & (a != 0) & (b != 0)].tolist()
        return found

    @cached_property
    def has_same_answers(self) -> bool:
        """Whether every document was answered in the same words."""
        return bool((self.scores_a.responses[self.places_a] == self.scores_b.responses[self.places_b]).all())


def shared_tasks(a: Run, b: Run) -> dict[str, str]:
    """The tasks of the first run that the other has, too: by name, else the one that is the same in another format."""
    there = set(b.scored_tasks)
    found = {name: name for name in a.scored_tasks if name in there}
    left, other = [n for n in a.scored_tasks if n not in found], [n for n in b.scored_tasks if n not in found]
    for name in left:
        same = [each for each in other if _plain(each) == _plain(name)]
        if len(same) == 1 and sum(_plain(each) == _plain(name) for each in left) == 1:
            found[name] = same[0]
    return found


def _plain(name: str) -> str:
    return name.partition("@")[0]


def pair_tasks(a: Run, b: Run, names: Collection[str], notes: list[str]) -> list[PairedTask]:
    """The shared tasks of these names with their documents paired; what is in one run alone is noted."""
    every = shared_tasks(a, b)
    shared = {name: other for name, other in every.items() if name in names}
    if not shared:
        what = f"the runs share no task: {some(a.scored_tasks)} there, {some(b.scored_tasks)} here"
        raise ConfigError([Problem(Place(str(b.path)), what, "name runs of the same tasks")])
    _note_tasks(
        "the first run alone has", [each for each in a.scored_tasks if each in names and each not in every], notes
    )
    _note_tasks(f"{b.path} alone has", [n for n in b.scored_tasks if n in names and n not in every.values()], notes)
    found = []
    for name, other in shared.items():
        scores_a, scores_b = task_scores(a, name), task_scores(b, other)
        if scores_a is None or scores_b is None:
            lacking = a if scores_a is None else b
            notes.append(f"{name}: its samples are not in {lacking.path}: it is not compared")
            continue
        paired = _pair(name, other, (a, scores_a), (b, scores_b))
        found.append(paired)
        _note_documents(paired, notes)
    return found


def _note_tasks(who: str, names: Sequence[str], notes: list[str]) -> None:
    if names:
        notes.append(f"{who} the task{'s' if len(names) > 1 else ''} {some(names)}: not compared")


def _pair(name: str, other: str, of_a: tuple[Run, TaskScores], of_b: tuple[Run, TaskScores]) -> PairedTask:
    (a, scores_a), (b, scores_b) = of_a, of_b
    source = a.source(name)
    if source and source == b.source(other):
        _, places_a, places_b = np.intersect1d(scores_a.documents, scores_b.documents, return_indices=True)
        return PairedTask(name, other, scores_a, scores_b, places_a, places_b, source, by_content=False)
    places_a, places_b = _by_content(scores_a.contents, scores_b.contents)
    return PairedTask(name, other, scores_a, scores_b, places_a, places_b, source or name, by_content=True)


def _by_content(a: Any, b: Any) -> tuple[Any, Any]:
    """Places of equal documents, in the order of the first run; of several that are equal, the first goes with the first."""
    _, places_a, places_b = np.intersect1d(_counted(a), _counted(b), assume_unique=True, return_indices=True)
    order = np.argsort(places_a)
    return places_a[order], places_b[order]


def _counted(contents: Any) -> Any:
    """Each content with how many times it came before: no two are equal."""
    order = np.argsort(contents, kind="stable")
    ordered = contents[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else np.empty(0, int)
    before = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.append(starts, len(ordered))))
    found = np.empty(len(contents), [("content", np.uint64), ("before", np.int64)])
    found["content"], found["before"][order] = contents, before
    return found


def _note_documents(paired: PairedTask, notes: list[str]) -> None:
    n, of_a, of_b = len(paired.places_a), len(paired.scores_a.documents), len(paired.scores_b.documents)
    if paired.by_content:
        notes.append(f"{paired.name}: the data are not the same, or not known to be: paired by what documents say")
    if n < of_a or n < of_b:
        notes.append(f"{paired.name}: {n} documents are in both runs, {of_a - n} only there and {of_b - n} only here")


class OtherPrompts(ConfigError):
    """Documents were asked about in other words, and nobody said that they may be compared all the same."""


def refuse_other_prompts(tasks: Sequence[PairedTask], a: Run, b: Run) -> None:
    """An error that names the tasks whose documents were asked about in other words, and the settings that may be why."""
    found = {task.name: task.prompts_that_differ for task in tasks if task.prompts_that_differ}
    if not found:
        return
    first = next(task for task in tasks if task.name in found)
    ids = found[first.name]
    if len(found) == 1:
        place = f"task {first.name!r}"
        told = ", ".join(map(str, ids[:3])) + (" …" if len(ids) > 3 else "")
        what = f"the prompts of {len(ids)} of {len(first.places_a)} documents differ between the runs ({told})"
    else:
        place, what = str(b.path), f"the prompts of {len(found)} tasks differ between the runs: {some(list(found))}"
    settings = [
        f"{key} {'–' if one is None else f'{one}'[:60]} → {'–' if other is None else f'{other}'[:60]}"
        for key in PROMPT_OPTIONS
        if (one := a.answers_manifest.get("spec", {}).get(key))
        != (other := b.answers_manifest.get("spec", {}).get(key))
    ]
    fix = f"`assay samples {b.path} --task {first.name_b} --doc {ids[0]} --full` shows one;"
    fix += " --allow_different_prompts compares them all the same"
    raise OtherPrompts([Problem(Place(place), what + (f" ({', '.join(settings)})" if settings else ""), fix)])
