"""The pages of a comparison: the table of `assay compare`, and flipped samples with both answers side by side."""

import os
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

from starlette.datastructures import QueryParams

from assay.comparison.pairing import OtherPrompts
from assay.errors import AssayError
from assay.report.page_tables import comparison_page_table
from assay.report.pictures import draw_differences, share_differences
from assay.runs.comparison import Comparison, Flip
from assay.runs.run import Run
from assay.safe_text import cut
from assay.viewer.library import RunLibrary
from assay.viewer.pages import MissingPage, Page, PageSources, compared_name, find_task, markup_links
from assay.viewer.query import url_for
from assay.viewer.sample_page import DiffPart, SampleView, diff_parts, sample_view
from assay.viewer.task_charts import ChartCard, paired_card

MAX_RUNS = 6
"""Runs compared at once."""
MAX_OFFERED = 200
"""Runs that are offered to be compared."""
MAX_FLIPS = 40
"""Flipped samples on the page of a comparison, over all tasks."""
SHOWN_AFTER = 41
"""Characters shown from where two texts begin to differ, with the sign that there are more."""
ANSWER_START = 400
"""Characters of an answer in a list: aligning long answers is slow, and is done for the one that is opened."""


def compare_page(sources: PageSources, query: QueryParams) -> Page:
    """Compare the named runs with the first; with fewer than two, list the runs to choose from."""
    runs = [sources.run(name) for name in list(dict.fromkeys(query.getlist("run")))[:MAX_RUNS]]
    if query.get("baseline") == "oldest":
        runs.sort(key=lambda run: run.created or 0.0)
    names = [run.name for run in runs]
    different = query.get("different_prompts") == "1"
    offered, is_every = _offered(sources.library)
    page: Page = {"names": names, "offered": offered, "is_every": is_every, "comparison": None, "problem": "",
                            "different": different, "live": "",
                            "has_other_prompts": False, "is_itself": len(query.getlist("run")) > len(names) == 1}  # fmt: skip
    if len(runs) < 2:
        return page
    try:
        comparison = sources.comparisons.of(tuple(run.path for run in runs), different_prompts=different)
    except OtherPrompts as error:
        return {
            **page,
            "problem": "\n".join(f"{problem.what}." for problem in error.problems),
            "has_other_prompts": True,
        }
    except AssayError as error:
        return {**page, "problem": "\n".join(str(problem) for problem in error.problems)}
    panels = {number: share_differences(comparison, number) for number in range(1, len(runs))}
    plots = {
        number: draw_differences(comparison, panel, number) if panel.rows else None for number, panel in panels.items()
    }
    tables = {
        number: comparison_page_table(comparison, number, partial(compared_name, names[number])) for number in plots
    }
    shown = round_robin(comparison.flips, MAX_FLIPS)
    return {
        **page, "comparison": comparison, "plots": plots, "tables": tables,
        "flips": list_flips(shown, names, different_prompts=different),
        "more": _further_flips(comparison, shown, names, different_prompts=different),
        "swapped": url_for("compare", [("run", name) for name in (names[1], names[0], *names[2:])],
                           different_prompts="1" if different else ""),
    }  # fmt: skip


def _offered(library: RunLibrary) -> tuple[list[str], bool]:
    """The names of the runs to choose from, and whether these are all; of many, the latest, and others can be typed."""
    entries = library.runs()
    latest = sorted(entries, key=lambda entry: entry.created or 0.0, reverse=True)[:MAX_OFFERED]
    return [entry.name for entry in (latest if len(entries) > MAX_OFFERED else entries)], len(entries) <= MAX_OFFERED


def _further_flips(
    comparison: Comparison, shown: Sequence[Flip], names: Sequence[str], *, different_prompts: bool
) -> list[tuple[str, int, str]]:
    """List the tasks with more flipped samples than are shown: name, number, URL."""
    known = Counter((flip.run, flip.task) for flip in shown)
    first_metric = {(flip.run, flip.task): (flip.metric, flip.filter) for flip in comparison.flips}
    return [
        (
            row.alias if len(names) == 2 else f"{row.alias} in {names[row.run]}",
            count,
            flips_url((names[0], names[row.run]), row.name, different_prompts=different_prompts),
        )
        for row in comparison.rows
        if first_metric.get((row.run, row.name)) == (row.metric, row.filter)
        and row.ties is not None
        and (count := row.difference.n - row.ties) > known[row.run, row.name]
    ]


class ListedFlip(NamedTuple):
    """A flipped sample in a list: the start of both answers as diff parts, and the URL of the full ones."""

    flip: Flip
    left: Sequence[DiffPart]
    right: Sequence[DiffPart]
    is_cut: bool
    whole: str
    sample_a: str
    sample_b: str
    differs: str = ""
    """Where the answers begin to differ."""


def first_difference(one: str, two: str) -> tuple[int, str, str] | None:
    """Where two texts begin to differ, and how each continues from the word that is not the same.

    >>> first_difference("It is four.", "It is five.")
    (7, 'four.', 'five.')
    >>> first_difference("same", "same")
    """
    if one == two:
        return None
    at = len(os.path.commonprefix([one, two]))  # noqa: RUF071  # letters, not folders
    word = max(one.rfind(sign, 0, at) for sign in " \n\t") + 1
    return at, cut(one[word:], SHOWN_AFTER), cut(two[word:], SHOWN_AFTER)


def difference_text(one: str, two: str, what: str) -> str:
    """Where two texts begin to differ, in words; empty where they do not."""
    difference = first_difference(one, two)
    if difference is None:
        return ""
    at, left, right = difference
    return f"the {what} begin to differ at character {at + 1:,}: {left!r} → {right!r}"


def list_flips(flips: Sequence[Flip], names: Sequence[str], *, different_prompts: bool) -> list[ListedFlip]:
    """Prepare flipped samples of runs with these names for a list."""
    return [_list_flip(flip, (names[0], names[flip.run]), different_prompts=different_prompts) for flip in flips]


def _list_flip(flip: Flip, names: tuple[str, str], *, different_prompts: bool) -> ListedFlip:
    left, right = diff_parts(flip.answer_a[:ANSWER_START], flip.answer_b[:ANSWER_START])
    return ListedFlip(
        flip,
        left,
        right,
        max(len(flip.answer_a), len(flip.answer_b)) > ANSWER_START,
        flips_url(names, flip.task, doc=flip.doc_id, different_prompts=different_prompts),
        url_for("sample", run=names[0], task=flip.task, doc=flip.doc_id),
        url_for("sample", run=names[1], task=flip.task, doc=flip.doc_id if flip.doc_id_b is None else flip.doc_id_b),
        difference_text(flip.answer_a, flip.answer_b, "answers"),
    )


def round_robin(flips: Sequence[Flip], most: int) -> list[Flip]:
    """Return at most `most` flips: the first of every task, then the second, and so on; in their original order."""
    by_task: dict[tuple[int, str], list[int]] = {}
    for place, flip in enumerate(flips):
        by_task.setdefault((flip.run, flip.task), []).append(place)
    turns = [place for turn in zip_longest(*by_task.values()) for place in turn if place is not None]
    return [flips[place] for place in sorted(turns[:most])]


def flips_url(names: tuple[str, str], task: str, *, different_prompts: bool, doc: int | None = None) -> str:
    """The URL of the flipped samples of a task, or of one of them."""
    runs = [("run", name) for name in names]
    return url_for("flips", runs, task=task, doc=doc, different_prompts="1" if different_prompts else None)


def _paired(sources: PageSources, runs: Sequence[Run], task: str) -> ChartCard | None:
    """The chart of the same documents in two runs, where both are of the same data."""
    if task not in runs[1].tasks or not runs[0].source(task) or runs[0].source(task) != runs[1].source(task):
        return None
    one, two = (sources.samples(run, task) for run in runs[:2])
    if one is None or two is None:
        return None
    make = lambda: [paired_card(one, two, (runs[0].name, runs[1].name))]  # noqa: E731
    return one.remember(("paired", two.path, two.path.stat().st_mtime_ns, one.metric), make)[0]


def flips_page(sources: PageSources, query: QueryParams) -> Page:
    """The flipped samples of a task in two runs; with `doc`, that one with both answers side by side."""
    names = query.getlist("run")[:2]
    if len(names) < 2:
        raise MissingPage("flipped samples need two runs — name both in the URL")
    runs = [sources.run(name) for name in names]
    task, different = find_task(runs[0], query.get("task", "")), query.get("different_prompts") == "1"
    task_flips = sources.comparisons.of_task(tuple(run.path for run in runs), task, different_prompts=different)
    doc = query.get("doc")
    one = next((flip for flip in task_flips if str(flip.doc_id) == doc), None)
    if doc is not None and one is None:
        raise MissingPage(f"document {doc!r:.40} is not among the largest changes of {task}")
    pair = (names[0], names[1])
    return {
        "names": names, "task": task, "live": "", "one": one, "sides": diff_parts(one.answer_a, one.answer_b) if one else None,
        "flips": list_flips([one] if one else task_flips, names, different_prompts=different),
        "back": url_for("compare", [("run", name) for name in names], different_prompts="1" if different else None),
        "every": flips_url(pair, task, different_prompts=different),
        "paired": None if one else _paired(sources, runs, task),
        "prompts": diff_parts(one.question, one.question_b) if one and one.question_b else None,
        "prompts_differ": difference_text(one.question, one.question_b, "prompts") if one and one.question_b else "",
        "asked": _asked(sources, runs, task, one) if one else [],
        "markup": query.get("markup") == "1", "switch": markup_links("flips", query),
    }  # fmt: skip


def _asked(sources: PageSources, runs: Sequence[Run], task: str, flip: Flip) -> list[SampleView]:
    """The sample of a flip in each run, for its prompt; empty where a run has no such sample."""
    views = []
    for run, doc in zip(runs, (flip.doc_id, flip.doc_id if flip.doc_id_b is None else flip.doc_id_b), strict=True):
        samples = sources.samples(run, task) if task in run.tasks else None
        row = samples.document(doc) if samples is not None else None
        views += [sample_view(row, run.config(task), {})] if row is not None else []
    return views if len(views) == len(runs) else []
