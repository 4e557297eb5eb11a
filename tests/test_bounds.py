"""Bounds of metrics, reductions and scorers: declared, checked, and kept by every interval of a run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import assay
from assay import ConfigError
from assay.comparison.compare import compare, gate
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.plugins import registry
from assay.scoring.combined import EnsembleScorer
from assay.scoring.filters import Pipeline
from assay.scoring.judges import LLMJudgeScorer
from assay.scoring.loop import ScoringStep
from assay.scoring.results import GENERATE, ResultBuilder
from assay.scoring.scorer import bind, row_bounds, scorer_step
from assay.statistics import compare as compare_arrays
from assay.statistics import estimate
from assay.viewer.task_charts import slice_score
from interval_oracles import bounded
from run_world import rows_of
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
    return {row.partition(",")[0]: about for row, about in rows_of(results, name).items()}


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
    own, together = rows(results), rows_of(results, "g")
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
    assert row.difference.interval == pytest.approx((expected.low, expected.high), rel=1e-9)
    assert row.difference.p == pytest.approx(expected.p)


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
        del registry("metrics")["tenths"]
        del registry("reductions")["middle_half"]


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
    assert row_bounds("llm_judge", bound(plain)) == (1, 5)
    assert row_bounds("llm_judge", bound(share)) == (0, 1)
    both = EnsembleScorer([plain, share], [3, 1])
    assert row_bounds("ensemble", bound(both)) == (0.75 * 1, 0.75 * 5 + 0.25 * 1)
    assert row_bounds("llm_judge#2", bound(both)) == (0, 1)


def bound(scorer: Any) -> ScoringStep:
    bind(scorer, "none", ())
    return scorer_step(scorer, Pipeline("none"), ("none",), ResultBuilder(GENERATE), "t")


@pytest.mark.parametrize("scores", [[0.5, 1.0, 1.0, 0.25, 1.0, 0.75] * 4, [1.0] * 9 + [0.0], [1.0] * 12])
def test_a_slice_in_the_viewer_has_the_interval_of_its_scores(scores: list[float]) -> None:
    """From sums alone: n over the kurtosis is by how many documents the spread is carried."""
    summary = (
        len(scores), np.mean(scores), np.std(scores, ddof=1), stats.kurtosis(scores) if np.ptp(scores) else None, min(scores), max(scores),
        set(scores) <= {0.0, 1.0},
    )  # fmt: skip
    part = slice_score(summary, (0.0, 1.0))
    number = estimate(scores, bounds=(0, 1))
    assert (part.low, part.high) == (pytest.approx(number.low), pytest.approx(number.high))


# --- rounding, and bounds that cannot be used -----------------------------------------------------------------------

ABOVE = 100.00000000000004
"""What sacrebleu gives for an exact answer."""


def test_a_score_beyond_its_bound_by_rounding_is_on_it() -> None:
    rounded, plain = (estimate([each, 0.5, 0.7, 1.0], bounds=(0, 1)) for each in (1.0000000000000002, 1.0))
    assert (rounded.value, rounded.low, rounded.high) == (plain.value, plain.low, plain.high)
    assert compare_arrays([-1e-12, 0.5, 1], [0.5, 0.5, 0], bounds=(0, 1)).high <= 1
    with pytest.raises(ValueError, match="not within 0 to 1"):
        estimate([1.000001, 0.5], bounds=(0, 1))


def gated(run: Path, condition: str) -> tuple[str, str]:
    [verdict] = gate(run, [condition]).verdicts
    return verdict.decision, verdict.reason


def test_rounding_beyond_a_bound_changes_no_number_of_a_run_its_gates_groups_and_comparisons(tmp_path: Path) -> None:
    """Expected is what the same scores without the rounding give."""
    yaml = "metric_list: [{metric: !function helper.marks, aggregation: mean, bounds: [0, 100]}]\n"
    (tmp_path / "g.yaml").write_text("group: g\ntask: [t]\naggregate_metric_list: [{metric: marks}]\n")
    seen = {}
    for name, best in (("plain", 100.0), ("rounded", ABOVE)):
        scores = [best] * 27 + [5.0, 40.0, 60.0]
        marked(tmp_path, scores, yaml)
        results = run(tmp_path, says([str(score) for score in scores]), "g", output_path=str(tmp_path / name))
        group = rows_of(results, "g")["marks,none"]
        seen[name] = (
            rows(results)["marks"],
            group["value"],
            group["interval"],
            gated(tmp_path / name, "t/marks >= 80"),
        )
    assert rows(lm_eval_layout(assay.score(tmp_path / "rounded").results))["marks"] == seen["plain"][0]
    assert seen["rounded"] == seen["plain"]
    [row] = compare([tmp_path / "plain", tmp_path / "rounded"]).rows[:1]
    assert row.difference.value == pytest.approx(0, abs=1e-9)


def test_thirty_exact_answers_have_an_interval_and_a_gate_near_the_bound_is_open(tmp_path: Path) -> None:
    yaml = "metric_list: [{metric: !function helper.marks, aggregation: mean, bounds: [0, 100]}]\n"
    about = marked(tmp_path, [ABOVE] * 17 + [100.0] * 13, yaml, output_path=str(tmp_path / "run"))["marks"]
    assert (about["value"], about["interval"][0] < 99, about["interval"][1]) == (100.0, True, 100.0)
    assert gated(tmp_path / "run", "marks >= 99.9")[0] == "inconclusive"


@pytest.mark.parametrize("scores", [[1.5] * 30, [1.1] * 15 + [1.1 + 2e-16] * 15, [1.5] * 15 + [1.4] * 15])
def test_of_scores_beyond_their_bounds_nothing_is_decided(scores: list[float], tmp_path: Path) -> None:
    yaml = "metric_list: [{metric: !function helper.marks, aggregation: mean, bounds: [0, 1]}]\n"
    about = marked(tmp_path, scores, yaml, output_path=str(tmp_path / "run"))["marks"]
    assert about["interval"] is None or about["interval"][1] - about["interval"][0] > 0.01
    for condition in ("marks >= 0.9", "marks <= 0.9", "marks >= 1.2"):
        decision, reason = gated(tmp_path / "run", condition)
        assert decision == "inconclusive"
        assert "not within the declared bounds, 0 to 1" in reason
    marked(tmp_path, scores[::-1], yaml, output_path=str(tmp_path / "other"))
    [verdict] = gate(tmp_path / "other", ["marks >= baseline - 0.05"], baseline=tmp_path / "run").verdicts
    assert verdict.decision == "inconclusive"


def test_scores_that_differ_by_rounding_alone_have_no_interval_without_bounds() -> None:
    number = estimate([ABOVE] * 20 + [100.0] * 10)
    assert (number.low, number.reason) == (None, "all scores are the same, which gives no interval")


# --- most scores alike, and inside the bounds -----------------------------------------------------------------------


def held(centre: float, n: int, share: float, bounds: tuple[float, float] = (0, 1)) -> float:
    """How often the 95 % interval holds the truth where a share of the documents scores 0 and all others the same: exact."""
    truth, total = centre * (1 - share), 0.0
    for zeros in range(n + 1):
        chance = float(stats.binom.pmf(zeros, n, share))
        if chance > 1e-5:
            number = estimate([0.0] * zeros + [centre] * (n - zeros), bounds=bounds)
            total += chance * (number.low <= truth <= number.high)
    return total


@pytest.mark.parametrize(
    ("centre", "n", "share"), [(0.95, 120, 0.01), (0.9, 30, 0.05), (0.8, 50, 0.03), (0.9, 200, 0.005)]
)
def test_where_most_scores_are_one_inside_the_bounds_the_interval_holds_the_truth(
    centre: float, n: int, share: float
) -> None:
    """The pseudo-documents alone: 69 %, 77 %, 77 % and 63 %."""
    assert held(centre, n, share) >= 0.88


def test_the_lower_bound_of_scores_that_are_all_alike_follows_from_their_number(tmp_path: Path) -> None:
    """Of 120 documents with 0.9, 5 % of the cases leave room for 1.6 % with 0 (Jeffreys): 0.9 · Beta(0.5, 120.5)."""
    number = estimate([0.9] * 120, bounds=(0, 1), level=0.95, side="lower")
    assert number.low == pytest.approx(0.9 * (1 - stats.beta.ppf(0.95, 0.5, 120.5)), abs=0.001)
    yaml = "metric_list: [{metric: !function helper.marks, aggregation: mean, bounds: [0, 1]}]\n"
    marked(tmp_path, [0.9] * 120, yaml, output_path=str(tmp_path / "run"))
    assert gated(tmp_path / "run", "marks >= 0.89")[0] == "inconclusive"
    assert gated(tmp_path / "run", "marks >= 0.88")[0] == "pass"
