"""The page of a comparison: what `assay compare` says, with flipped samples side by side."""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from starlette.datastructures import QueryParams

from assay.comparison.compare import compare
from assay.comparison.comparison import Comparison, Flip
from assay.comparison.pairing import OtherPrompts
from assay.errors import AssayError
from assay.report.plots import drawn, forest
from assay.runs.links import refuse_strays
from assay.runs.versions import NAME as SCORED
from assay.viewer.library import Library, stamp_of
from assay.viewer.pages import NotThere, known_run, known_task
from assay.viewer.query import address
from assay.viewer.sample_page import Piece, aligned

MOST = 6
"""Runs that are compared at once."""
OF_EACH, OF_ONE = 5, 30
"""Flipped samples that are read, in each direction: of every task, and of one that is asked for."""
KEPT = 8
Key = tuple[tuple[Path, ...], tuple[object, ...], bool, str]
SHOWN = 40
"""Flipped samples on the page of a comparison, of all tasks together."""
BEGINNING = 400
"""Characters of an answer that stand in a list: aligning long ones takes a while, and is done for the one that is opened."""


class Comparisons:
    """Comparisons by runs and options. One is made at a time: two at once would take twice the memory."""

    def __init__(self) -> None:
        self._known: dict[Key, Comparison] = {}
        self._lock = threading.Lock()

    def of(self, paths: tuple[Path, ...], *, different_prompts: bool) -> Comparison:
        """The comparison of these runs as they are now."""
        return self._made(paths, different_prompts, "")

    def of_task(self, paths: tuple[Path, ...], task: str, *, different_prompts: bool) -> Sequence[Flip]:
        """The flipped samples of one task; none where the runs cannot be compared in it."""
        try:
            return self._made(paths, different_prompts, task).flips
        except AssayError:
            return ()

    def _made(self, paths: tuple[Path, ...], different_prompts: bool, task: str) -> Comparison:
        key = (paths, tuple(map(stamp_of, paths)), different_prompts, task)
        with self._lock:
            known = self._known.pop(key, None)
            if known is None:
                _refuse_links(paths)
                known = compare(
                    paths,
                    tasks=[task] if task else (),
                    flips=OF_ONE if task else OF_EACH,
                    allow_different_prompts=different_prompts,
                )
                known = replace(known, flips=[flip for flip in known.flips if task in ("", flip.task)])
            while len(self._known) >= KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[key] = known
            return known


def _refuse_links(paths: Sequence[Path]) -> None:
    """See to it that runs are read from their folders only; a scoring is told more by the run that it lies in."""
    for path in paths:
        refuse_strays(path)
        if path.parent.name == SCORED:
            refuse_strays(path.parent.parent)


def compare_page(library: Library, comparisons: Comparisons, query: QueryParams) -> dict[str, Any]:
    """The others of the runs that are named against the first; without two of them, which there are to choose from."""
    runs = [known_run(library, name) for name in list(dict.fromkeys(query.getlist("run")))[:MOST]]
    if query.get("baseline") == "oldest":
        runs.sort(key=lambda run: run.head.created or 0.0)
    names = [run.name for run in runs]
    different = query.get("different_prompts") == "1"
    page: dict[str, Any] = {"names": names, "heads": [run.head for run in library.runs()], "comparison": None, "problem": "",
                            "different": different, "live": "",
                            "has_other_prompts": False, "is_itself": len(query.getlist("run")) > len(names) == 1}  # fmt: skip
    if len(runs) < 2:
        return page
    try:
        found = comparisons.of(tuple(run.path for run in runs), different_prompts=different)
    except OtherPrompts as error:
        return {**page, "problem": "\n".join(f"{each.what}." for each in error.problems), "has_other_prompts": True}
    except AssayError as error:
        return {**page, "problem": "\n".join(str(problem) for problem in error.problems)}
    plots = {number: forest(drawn(found, number)) for number in range(1, len(runs))}
    shown = in_turn(found.flips, SHOWN)
    return {
        **page, "comparison": found, "plots": plots, "flips": listed(shown, names, different_prompts=different),
        "more": _more(found, shown, names, different_prompts=different),
        "swapped": address("compare", [("run", name) for name in (names[1], names[0], *names[2:])],
                           different_prompts="1" if different else ""),
    }  # fmt: skip


def _more(
    found: Comparison, shown: Sequence[Flip], names: Sequence[str], *, different_prompts: bool
) -> list[tuple[str, int, str]]:
    """The tasks of which more samples changed than are shown: how many, and where they stand."""
    known = Counter((flip.run, flip.task) for flip in shown)
    told = {(flip.run, flip.task): (flip.metric, flip.filter) for flip in found.flips}
    return [
        (
            row.alias if len(names) == 2 else f"{row.alias} in {names[row.run]}",
            changed,
            flips_address((names[0], names[row.run]), row.name, different_prompts=different_prompts),
        )
        for row in found.rows
        if told.get((row.run, row.name)) == (row.metric, row.filter)
        and (changed := (row.wins or 0) + (row.losses or 0)) > known[row.run, row.name]
    ]


class Listed(NamedTuple):
    """A flipped sample in a list: the beginnings of both answers in pieces, and where the whole of them stands."""

    flip: Flip
    left: Sequence[Piece]
    right: Sequence[Piece]
    is_cut: bool
    whole: str
    sample_a: str
    sample_b: str


def listed(flips: Sequence[Flip], names: Sequence[str], *, different_prompts: bool) -> list[Listed]:
    """Flipped samples of runs with these names, for a list."""
    return [_listed(flip, (names[0], names[flip.run]), different_prompts=different_prompts) for flip in flips]


def _listed(flip: Flip, names: tuple[str, str], *, different_prompts: bool) -> Listed:
    left, right = aligned(flip.answer_a[:BEGINNING], flip.answer_b[:BEGINNING])
    return Listed(
        flip,
        left,
        right,
        max(len(flip.answer_a), len(flip.answer_b)) > BEGINNING,
        flips_address(names, flip.task, doc=flip.doc_id, different_prompts=different_prompts),
        address("sample", run=names[0], task=flip.task, doc=flip.doc_id),
        address("sample", run=names[1], task=flip.task, doc=flip.doc_id if flip.doc_id_b is None else flip.doc_id_b),
    )


def in_turn(flips: Sequence[Flip], most: int) -> list[Flip]:
    """At most so many: the first of every task, then the second, and so on; in the order they were in."""
    by_task: dict[tuple[int, str], list[int]] = {}
    for place, flip in enumerate(flips):
        by_task.setdefault((flip.run, flip.task), []).append(place)
    turns = [place for turn in zip_longest(*by_task.values()) for place in turn if place is not None]
    return [flips[place] for place in sorted(turns[:most])]


def flips_address(names: tuple[str, str], task: str, *, different_prompts: bool, doc: object = None) -> str:
    """Where the flipped samples of a task stand, or one of them."""
    runs = [("run", name) for name in names]
    return address("flips", runs, task=task, doc=doc, different_prompts="1" if different_prompts else None)


def flips_page(library: Library, comparisons: Comparisons, query: QueryParams) -> dict[str, Any]:
    """The flipped samples of a task in two runs; with a document, that one with both answers side by side."""
    names = query.getlist("run")[:2]
    if len(names) < 2:
        raise NotThere("flipped samples are those of two runs")
    runs = [known_run(library, name) for name in names]
    task, different = known_task(runs[0], query.get("task", "")), query.get("different_prompts") == "1"
    found = comparisons.of_task(tuple(run.path for run in runs), task, different_prompts=different)
    doc = query.get("doc")
    one = next((flip for flip in found if str(flip.doc_id) == doc), None)
    if doc is not None and one is None:
        raise NotThere(f"document {doc!r:.40} is not among the samples of {task} that changed most")
    pair = (names[0], names[1])
    return {
        "names": names, "task": task, "live": "", "one": one, "sides": aligned(one.answer_a, one.answer_b) if one else None,
        "flips": listed([one] if one else found, names, different_prompts=different),
        "back": address("compare", [("run", name) for name in names], different_prompts="1" if different else None),
        "every": flips_address(pair, task, different_prompts=different),
    }  # fmt: skip
