"""Why a row of a comparison has no interval: every reason is the true one."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from assay.comparison.compare import compare
from compared_world import GROUP, MEAN, make_run, write_tasks
from run_world import change_results

FUNCTIONS = """
import math


def numbers(doc, results):
    return {"x": float(results[0])}


def pairs(doc, results):
    return {"x": (doc["gold"], int(results[0]))}


def texts(doc, results):
    return {"x": ("one two three four five", f"one two three four {results[0]}")}


def no_number(values):
    return math.nan


def endless(values):
    return math.inf


def halved(values):
    return sum(values) / len(values) / 2
"""
MCC = "metric_list: [{metric: x, aggregation: matthews_corrcoef, higher_is_better: true}]\n"
OWN = "metric_list: [{{metric: x, aggregation: !function helper.{}, higher_is_better: true}}]\n".format
FAILED = "failed"


class Because(NamedTuple):
    """Scores of two runs, what else the task says, and what the row of a comparison must say."""

    a: Sequence[object]
    b: Sequence[object]
    reason: str
    n: int
    more: str = MEAN
    same: str = ""
    samples: tuple[list[int], list[int]] | None = None
    ties: int | None = None


REASONS = {
    "every document failed in the first run": Because(
        [FAILED] * 3, [1, 0, 1], "the first run has no number: every document failed in this row", 0
    ),
    "every document failed in the other run": Because(
        [1, 0, 1], [FAILED] * 3, "the other run has no number: every document failed in this row", 0
    ),
    "no document has a score in both": Because(
        [1, 0, 1, FAILED, FAILED], [FAILED, FAILED, FAILED, 1, 0], "no document has a score in both runs", 0
    ),
    "other documents": Because(
        [1, 0, 1, 0], [1, 0, 1, 0], "no document has a score in both runs", 0, samples=([0, 1], [2, 3])
    ),
    "one document, which scores alike": Because([1], [1], "one document has no spread", 1, same="answers", ties=1),
    "one document in both": Because(
        [1, 0, 1], [0, 0, 1], "one document has no spread", 1, samples=([0, 1], [0, 2]), ties=0
    ),
    "not a number": Because([1, 0], [1, 0], "the first run has no number", 2, OWN("no_number")),
    "an infinite number": Because([1, 0], [1, 0], "an infinite number has no standard error", 2, OWN("endless")),
    "a function of the task": Because([1, 0], [1, 1], "a function of the task computes it", 2, OWN("halved")),
    "all alike": Because([0.5, 0.25], [0.5, 0.25], "no document differs", 2, same="answers", ties=2),
    "all one better": Because([1.5, 3, 2], [2.5, 4, 3], "all documents differ alike", 3, ties=0),
    "one cluster": Because(
        [1, 0, 1], [1, 1, 1], "all documents are of one cluster", 3, MEAN + "cluster_by: c\n", ties=2
    ),
    "texts that are alike": Because(
        [5, 6], [5, 6], "no document differs", 2, MEAN.replace("mean", "bleu"), same="answers"
    ),
}


def run_twice(because: Because, function: str, tmp_path: Path, **columns: Sequence[int]) -> list[Path]:
    """Two runs of a task whose scores the function makes of the answers."""
    documents = [{"c": 1, **{name: own[place] for name, own in columns.items()}} for place in range(len(because.a))]
    folder = write_tasks(tmp_path / "tasks", {"t": documents}, because.more)
    (folder / "helper.py").write_text(f"{FUNCTIONS}\n\nvalues = {function}\n")
    runs = []
    for place, (name, scores) in enumerate((("a", because.a), ("b", because.b))):
        chosen = {} if because.samples is None else {"samples": {"t": because.samples[place]}}
        runs.append(make_run(folder, tmp_path / name, {"t": scores}, **chosen))
    return runs


@pytest.mark.parametrize("case", REASONS)
def test_the_reason_why_a_row_has_no_interval_is_the_true_one(case: str, tmp_path: Path) -> None:
    because = REASONS[case]
    [row] = compare(run_twice(because, "texts" if "bleu" in because.more else "numbers", tmp_path)).rows
    assert because.reason in row.difference.reason
    assert (row.difference.interval, row.difference.n, row.same) == (None, because.n, because.same)
    assert because.ties is None or row.ties == because.ties


@pytest.mark.filterwarnings("ignore")  # of sklearn, about resamples of one class
def test_answers_that_are_wrong_in_another_way_are_not_the_same_scores(tmp_path: Path) -> None:
    """Of class 0 the first run says 1 and the other one 2: both are wrong, and the coefficients differ."""
    because = Because([1, 1, 1, 2, 0], [2, 1, 1, 2, 0], "", 5, MCC)
    [row] = compare(run_twice(because, "pairs", tmp_path, gold=[0, 1, 1, 2, 0])).rows
    assert row.difference.value
    assert (row.same, row.ties) == ("", 5)


@pytest.mark.parametrize("lacks", [0, 1])
def test_the_reason_of_a_group_is_that_of_the_run_that_does_not_note_its_members(lacks: int, tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 3, "u": [{}] * 3}, group=GROUP)
    runs = [make_run(folder, tmp_path / name, {"t": [1, 0, 1], "u": [0, 1, 1]}, tasks=["g"]) for name in ("a", "b")]
    change_results(runs[lacks], lambda content: content["groups"]["g"]["rows"][0].pop("shares"))
    change_results(runs[1 - lacks], lambda content: content["groups"]["g"]["rows"][0].update(reason="another reason"))
    [row] = [row for row in compare(runs).rows if row.name == "g"]
    assert "`assay score RUN` notes it" in row.difference.reason
