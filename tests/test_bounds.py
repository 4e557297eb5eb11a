"""Bounds of metrics, reductions and scorers: declared, checked, and kept by every interval of a run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import assay
from assay import ConfigError
from assay.comparison.compare import compare
from assay.plugins import table
from assay.scoring.combined import EnsembleScorer
from assay.scoring.judges import LLMJudgeScorer
from assay.statistics import compare as compare_arrays
from assay.statistics import estimate
from assay.tasks.metrics import row_bounds
from assay.viewer.distributions import slice_of
from interval_oracles import bounded
from small_runs import SAMPLED, generate, processed, run, says

RIGHT = [8] * 19 + [3]
"""Of eight answers to each of twenty questions so many are right."""
REPEATS = """
repeats: 8
metric_list:
  - metric: exact_match
    reduction: [pass@4, pass^2, maj@5, max, median]
"""


def rows(results: dict[str, Any], name: str = "t") -> dict[str, Any]:
    return {row.partition(",")[0]: about for row, about in results["assay"]["tasks"][name]["rows"].items()}


def answers() -> list[list[str]]:
    return [["yes"] * right + ["no"] * (8 - right) for right in RIGHT]


def test_repeats_and_their_reductions_stay_within_0_and_1(tmp_path: Path) -> None:
    """pass@4 of 3 in 8 is 1 - C(5,4)/C(8,4) = 13/14, pass^2 C(3,2)/C(8,2) = 3/28, maj@5 C(5,2)·C(3,3)/C(8,5) = 10/56."""
    numbers = rows(generate(tmp_path, answers(), ["yes"] * 20, SAMPLED + REPEATS))
    last = {"exact_match": 3 / 8, "pass@4": 13 / 14, "pass^2": 3 / 28, "maj@5": 10 / 56, "median": 0.0}
    for name, score in last.items():
        about = numbers[name]
        assert about["value"] == pytest.approx((19 + score) / 20), name
        expected = bounded([1.0] * 19 + [score])
        if name != "median":  # rights and wrongs: exact counts
            assert (about["interval"], about["method"]) == (pytest.approx(expected, rel=1e-9), "wilson"), name
        assert 0 <= about["interval"][0] < about["interval"][1] <= 1
        assert about["scale"] == [0, 1]
    assert (numbers["median"]["method"], numbers["max"]["method"]) == ("mid-p", "mid-p")


def test_a_group_has_the_interval_of_its_task(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(
        "group: g\ntask: [t]\naggregate_metric_list:\n"
        "  - {metric: pass@4, aggregation: pass@k, kwargs: {k: 4}}\n  - {metric: exact_match}\n"
    )
    generate(tmp_path, answers(), ["yes"] * 20, SAMPLED + REPEATS)
    results = run(tmp_path, says(answers()), "g")
    own, together = rows(results), results["assay"]["groups"]["g"]["rows"]
    for name in ("pass@4", "exact_match"):
        assert together[f"{name},none"]["interval"] == pytest.approx(own[name]["interval"], rel=1e-12)


def test_comparisons_have_the_interval_of_two_arrays(tmp_path: Path) -> None:
    worse = [["yes"] * max(right - number % 4, 0) + ["no"] * 8 for number, right in enumerate(RIGHT)]
    for name, said in (("a", answers()), ("b", worse)):
        generate(tmp_path, said, ["yes"] * 20, SAMPLED + REPEATS, output_path=str(tmp_path / name))
    numbers = compare([tmp_path / "a", tmp_path / "b"])
    [row] = [each for each in numbers.rows if each.metric == "exact_match"]
    shares = [[each.count("yes") / 8 for each in [one[:8] for one in said]] for said in (answers(), worse)]
    expected = compare_arrays(*shares, bounds=(0, 1))
    assert row.interval == pytest.approx((expected.low, expected.high), rel=1e-9)
    assert row.p == pytest.approx(expected.p)


HELPER = "def marks(references, predictions):\n    return float(predictions[0])\n"


def marked(folder: Path, marks: list[float], yaml: str, **options: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    (folder / "helper.py").write_text(HELPER)
    return rows(generate(folder, [str(mark) for mark in marks], ["x"] * len(marks), yaml, **options))


MARKS = [10.0] * 17 + [9.5, 4.0, 10.0]


def test_a_task_file_declares_the_bounds_of_a_metric(tmp_path: Path) -> None:
    yaml = "metric_list: [{metric: !function helper.marks, aggregation: mean, bounds: [0, 10]}]\n"
    about = marked(tmp_path, MARKS, yaml)["marks"]
    assert about["interval"] == pytest.approx(bounded(MARKS, 0, 10), rel=1e-9)
    assert about["interval"][1] <= 10
    plain = marked(tmp_path / "plain", MARKS, "metric_list: [{metric: !function helper.marks, aggregation: mean}]\n")[
        "marks"
    ]
    assert (plain["method"], "scale" in plain, plain["interval"][1] > 10) == ("student-skew", False, True)


@pytest.mark.parametrize("written", ["[1, 0]", "[0]", "[0, 1, 2]", "[a, b]", "5", "[0, .nan]", "[true, x]"])
def test_wrong_bounds_are_refused_where_they_are_written(written: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"t\.yaml:\d+:\d+: .*bounds"):
        marked(
            tmp_path,
            MARKS,
            f"metric_list: [{{metric: !function helper.marks, aggregation: mean, bounds: {written}}}]\n",
        )


def test_a_registered_metric_and_reduction_declare_theirs(tmp_path: Path) -> None:
    @assay.metric("tenths", bounds=(0, 10))
    def tenths(references: list[str], prediction: str) -> float:
        return float(prediction)

    @assay.reduction("middle_half", bounds=(2.5, 7.5))
    def middle_half(scores: list[float]) -> float:
        return 2.5 + sum(scores) / len(scores) / 2

    try:
        said = [[str(mark)] * 2 for mark in MARKS]
        yaml = SAMPLED + "repeats: 2\nmetric_list: [{metric: tenths, reduction: [middle_half, max]}]\n"
        numbers = rows(generate(tmp_path, said, ["x"] * 20, yaml))
        halves = [2.5 + mark / 2 for mark in MARKS]
        assert numbers["tenths"]["interval"] == pytest.approx(bounded(MARKS, 0, 10), rel=1e-9)
        assert numbers["max"]["interval"] == pytest.approx(bounded(MARKS, 0, 10), rel=1e-9)
        assert numbers["middle_half"]["interval"] == pytest.approx(bounded(halves, 2.5, 7.5), rel=1e-9)
        with pytest.raises(ValueError, match="least and the greatest"):
            assay.metric("others", bounds=(1, 1))
    finally:
        del table("metrics")["tenths"]
        del table("reductions")["middle_half"]


SCORER = """
from assay import Scorer

class Marks(Scorer):
    bounds = BOUNDS

    def score(self, reference, predictions):
        return float(predictions[0])
"""


def test_a_scorer_declares_its_bounds_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    yaml = "scorer: !function own.Marks\n"
    for written, scale in (("(0, 10)", [0, 10]), ("{'Marks': (-10, 10)}", [-10, 10])):
        (tmp_path / "own.py").write_text(SCORER.replace("BOUNDS", written))
        about = rows(generate(tmp_path, [str(mark) for mark in MARKS], ["x"] * 20, yaml))["Marks"]
        assert (about["scale"], about["interval"]) == (scale, pytest.approx(bounded(MARKS, *scale), rel=1e-9))
    (tmp_path / "own.py").write_text(SCORER.replace("BOUNDS", "(10, 0)"))
    with pytest.raises(ConfigError, match="'Marks': bounds must be the least and the greatest score"):
        generate(tmp_path, ["1"] * 3, ["x"] * 3, yaml)


def test_scores_beyond_the_declared_bounds_are_noted_and_not_cut(tmp_path: Path) -> None:
    """Student's, as scipy's: the declaration is wrong, so nothing follows from it."""
    scores = [0.0, 1.0, 2.5, 1.5]
    processed(
        tmp_path, [{"x": score} for score in scores], "metric_list: [{metric: x, aggregation: mean, bounds: [0, 1]}]\n"
    )
    results = run(tmp_path, says(["x"] * 4))
    about = rows(results)["x"]
    theirs = stats.t.interval(0.95, 3, np.mean(scores), stats.sem(scores))
    assert about["interval"] == pytest.approx(theirs, rel=1e-6)
    assert about["note"].startswith("scores from 0 to 2.5 are not within the declared bounds, 0 to 1")


def test_judges_and_ensembles_declare_the_bounds_of_their_scale() -> None:
    plain = LLMJudgeScorer(judge_model="dummy", scale=[1, 5], normalize=False)
    share = LLMJudgeScorer(judge_model="dummy", scale=[1, 5])
    assert row_bounds("llm_judge", "none", bound(plain)) == (1, 5)
    assert row_bounds("llm_judge", "none", bound(share)) == (0, 1)
    both = EnsembleScorer([plain, share], [3, 1])
    assert row_bounds("ensemble", "none", bound(both)) == (0.75 * 1, 0.75 * 5 + 0.25 * 1)
    assert row_bounds("llm_judge#2", "none", bound(both)) == (0, 1)


def bound(scorer: Any) -> Any:
    scorer.bind("none", ())
    return scorer


@pytest.mark.parametrize("scores", [[0.5, 1.0, 1.0, 0.25, 1.0, 0.75] * 4, [1.0] * 9 + [0.0], [1.0] * 12])
def test_a_slice_in_the_viewer_has_the_interval_of_its_scores(scores: list[float]) -> None:
    """From sums alone: n over the kurtosis is by how many documents the spread is carried."""
    summary = (
        len(scores), np.mean(scores), np.std(scores, ddof=1), stats.kurtosis(scores) if np.ptp(scores) else None, min(scores), max(scores),
        set(scores) <= {0.0, 1.0},
    )  # fmt: skip
    part = slice_of("x", summary, (0.0, 1.0))
    number = estimate(scores, bounds=(0, 1))
    assert (part.low, part.high) == (pytest.approx(number.low), pytest.approx(number.high))
