"""The page of a comparison: what `assay compare` says, with flipped samples side by side."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from starlette.datastructures import QueryParams

from assay.comparison.comparison import Comparison, Flip
from assay.comparison.pairing import OtherPrompts
from assay.errors import AssayError
from assay.report.drawn import drawn
from assay.report.plots import forest
from assay.viewer.asking import address
from assay.viewer.comparisons import Comparisons
from assay.viewer.flips_page import SHOWN, flips_address, in_turn, listed
from assay.viewer.library import Library
from assay.viewer.pages import known_run

MOST = 6
"""Runs that are compared at once."""


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
