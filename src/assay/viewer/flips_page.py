"""Flipped samples: a few in a list, those of a task on a page of their own, and one with its whole answers side by side."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from starlette.datastructures import QueryParams

from assay.comparison.comparison import Flip
from assay.viewer.asking import address
from assay.viewer.comparisons import Comparisons
from assay.viewer.differing import Piece, aligned
from assay.viewer.library import Library
from assay.viewer.pages import NotThere, known_run, known_task

SHOWN = 40
"""Flipped samples on the page of a comparison, of all tasks together."""
BEGINNING = 400
"""Characters of an answer that stand in a list: aligning long ones takes a while, and is done for the one that is opened."""


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
