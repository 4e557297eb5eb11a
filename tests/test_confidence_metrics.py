"""Calibration, curves and agreement: from task files to results, report and comparison; against scikit-learn and scipy."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import spearmanr
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    brier_score_loss,
    cohen_kappa_score,
    roc_auc_score,
)

from assay import ConfigError, compare
from assay.exchange.importers import score
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.report.write import report_text
from assay.scoring.metrics.confidence import SURE, log_odds
from assay.statistics.aggregations import AGGREGATIONS
from assay.statistics.board import Board
from assay.statistics.calibration import brier_part, less_bias, reliability_curve
from assay.statistics.estimates import estimate, with_draws
from assay.statistics.intervals import interval, with_interval
from interval_oracles import bounded
from run_world import rows_of
from small_runs import choose, generate, noting, run, write_task

ALL = ("ece", "brier_score", "brier_reliability", "brier_resolution", "brier_uncertainty", "roc_auc", "pr_auc",
       "selective_accuracy", "risk_coverage_area", "kappa", "spearman", "ndcg", "mrr")  # fmt: skip


def drawn(seed: int, n: int, *, ties: bool = False) -> tuple[Any, Any]:
    """Confidences, and whether answers are right: less often than the model thinks."""
    draw = np.random.default_rng(seed)
    confidence = draw.beta(3, 1.5, n)
    confidence = np.round(confidence, 1) if ties else confidence
    return confidence, (draw.random(n) < confidence**1.4).astype(int)


def rows_by_metric(results: Any) -> dict[str, Any]:
    rows = rows_of(results, "t")
    return {name.removesuffix(",none"): row for name, row in rows.items()}


def binary(tmp_path: Path, shares: Sequence[float], golds: Sequence[int], yaml: str, **options: Any) -> Any:
    """The results of questions with two choices, the second of which has these shares of the likelihood."""
    lls = [[math.log(1 - share), math.log(share)] for share in shares]
    return choose(tmp_path, lls, [int(gold) for gold in golds], ["no", "yes"], yaml, **options)


# --- task files ------------------------------------------------------------------------------------------------------

SHARES, GOLDS = [0.9, 0.8, 0.3, 0.6], [1, 0, 0, 1]
"""Confidence 0.9 right, 0.8 wrong, 0.7 right (of no), 0.6 right."""


def test_every_metric_of_confidence_by_hand(tmp_path: Path) -> None:
    """ece of ten bins: (.1 + .8 + .3 + .4)/4. Among the surest half, one of two is right. Risks 0, 1/2, 1/3, 1/4.
    Of four pairs of yes and no, .9 and .6 beat .3, .9 beats .8. Precision at .9 is 1, at .6 two of three."""
    entries = "".join(f"{{metric: {name}}}, " for name in ALL)
    half = "{metric: selective_accuracy, coverage: 0.5, name: half}"
    results = binary(tmp_path, SHARES, GOLDS, f"metric_list: [{entries}{half}]\n")
    rows = rows_by_metric(results)
    assert {name: row["value"] for name, row in rows.items()} == pytest.approx({
        "ece": 0.4, "brier_score": 2 * (0.01 + 0.64 + 0.09 + 0.16) / 4, "brier_reliability": 2 * (0.01 + 0.64 + 0.09 + 0.16) / 4,
        "brier_resolution": 0.5, "brier_uncertainty": 0.5, "roc_auc": 0.75, "pr_auc": (1 + 2 / 3) / 2,
        "selective_accuracy": (1 + 0 + 1 + 0.2) / 3.2, "half": 0.5, "risk_coverage_area": (0 + 1 / 2 + 1 / 3 + 1 / 4) / 4,
        "kappa": 0.5, "spearman": 1 / math.sqrt(3), "ndcg": (3 + 1 / math.log2(3)) / 4, "mrr": (3 + 0.5) / 4,
    })  # fmt: skip
    better = results["higher_is_better"]["t"]
    assert [name for name in ALL if not better[name]] == [
        "ece", "brier_score", "brier_reliability", "brier_uncertainty", "risk_coverage_area",
    ]  # fmt: skip
    assert all(0 <= end <= 1 for name in ("ece", "roc_auc", "pr_auc", "half") for end in rows[name]["interval"] or ())


def test_the_reliability_curve_is_in_results_and_report(tmp_path: Path) -> None:
    shares, golds = [0.9] * 8 + [0.6] * 4, [1] * 6 + [0] * 2 + [1] * 3 + [0]
    results = binary(
        tmp_path, shares, golds, "metric_list: [{metric: ece, bins: 2}]\n", output_path=str(tmp_path / "r")
    )
    [point] = rows_by_metric(results)["ece"]["reliability"]
    assert (point["confidence"], point["accuracy"], point["n"]) == pytest.approx((0.8, 0.75, 12))
    assert point["interval"][0] < 0.75 < point["interval"][1]
    assert json.loads(report_text([tmp_path / "r"], "json"))["runs"][0]["curves"][0]["points"][0]["n"] == 12
    assert "|0.8000|0.7500|" in report_text([tmp_path / "r"], "md").replace(" ", "")
    page = report_text([tmp_path / "r"], "html")
    assert (
        'aria-label="calibration of t"' in page
        and "confidence 0.80, 0.75 right of 12" in page
        and "<h3>Calibration</h3>" in page
    )


def test_equal_bins_hold_equal_numbers(tmp_path: Path) -> None:
    shares, golds = [0.99, 0.98, 0.97, 0.6], [1, 1, 0, 1]
    entry = "metric_list: [{metric: ece, bins: 2, equal_mass: true}]\n"
    assert [each["n"] for each in rows_by_metric(binary(tmp_path, shares, golds, entry))["ece"]["reliability"]] == [
        2,
        2,
    ]


def test_groups_comparisons_and_rescoring_know_them(tmp_path: Path) -> None:
    confidence, right = drawn(1, 60)
    yaml = "metric_list: [{metric: ece, bins: 5}, {metric: roc_auc}]\n"
    first = binary(tmp_path, confidence, right, yaml, output_path=str(tmp_path / "a"))
    binary(tmp_path, np.sqrt(confidence), right, yaml, output_path=str(tmp_path / "b"))
    rows = {row.metric: row for row in compare([tmp_path / "a", tmp_path / "b"]).rows}
    assert rows["roc_auc"].difference.value == 0  # the order is the same
    ece = rows["ece"].difference
    assert (ece.low or 0) < float(ece) < (ece.high or 0)
    again = lm_eval_layout(score(tmp_path / "a").results)
    assert rows_by_metric(again) == rows_by_metric(first)
    (tmp_path / "g.yaml").write_text("group: g\ntask: [t]\naggregate_metric_list: [{metric: ece}, {metric: roc_auc}]\n")
    grouped = binary(tmp_path, confidence, right, yaml, tasks="g")
    own = rows_of(grouped, "g")["ece,none"]
    assert (own["value"], own["stderr"]) == pytest.approx(
        (rows_by_metric(first)["ece"]["value"], rows_by_metric(first)["ece"]["stderr"])
    )


def test_classes_of_choices_are_named_by_label(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    shares = draw.dirichlet([1, 1, 1], 40)
    golds = [int(draw.choice(3, p=each)) for each in shares]
    entries = "{metric: roc_auc}, {metric: roc_auc, label: b, name: b}, {metric: pr_auc, label: 2, name: c}"
    rows = rows_by_metric(
        choose(tmp_path, np.log(shares).tolist(), golds, ["a", "b", "c"], f"metric_list: [{entries}]\n")
    )
    gold = np.array(golds)
    assert {name: row["value"] for name, row in rows.items()} == pytest.approx({
        "roc_auc": roc_auc_score(gold, shares, multi_class="ovr"),
        "b": roc_auc_score(gold == 1, shares[:, 1]),
        "c": average_precision_score(gold == 2, shares[:, 2]),
    })  # fmt: skip


def test_agreement_of_texts(tmp_path: Path) -> None:
    golds, answers = ["low", "mid", "high", "low", "mid"], ["low", "high", "high", "mid", "mid"]
    entries = "{metric: kappa}, {metric: kappa, weights: quadratic, labels: [low, mid, high], name: weighted}"
    rows = rows_by_metric(generate(tmp_path, answers, golds, f"metric_list: [{entries}]\n"))
    order = ["low", "mid", "high"]
    assert rows["kappa"]["value"] == pytest.approx(cohen_kappa_score(golds, answers))
    expected = cohen_kappa_score(golds, answers, labels=order, weights="quadratic")
    assert rows["weighted"]["value"] == pytest.approx(expected)
    numbers = generate(tmp_path, ["4", "2.5", "none", "1"], ["5", "2", "3", "1"], "metric_list: [{metric: spearman}]\n")
    assert rows_by_metric(numbers)["spearman"]["value"] == pytest.approx(1.0)
    assert rows_by_metric(numbers)["spearman"]["failed"] == 1  # "none" is not a number


@pytest.mark.parametrize(
    ("said", "entry"),
    [
        ("bins must be 1 or more, got 0", "{metric: ece, bins: 0}"),
        ("'bins' cannot be 'many'", "{metric: ece, bins: many}"),
        ("has no parameter 'bin'.*bins", "{metric: ece, bin: 5}"),
        ("coverage must be above 0 and at most 1, got 80", "{metric: selective_accuracy, coverage: 80}"),
        ("weights must be none, linear or quadratic, got 'cubic'", "{metric: kappa, weights: cubic}"),
        ("k must be 1 or more, got 0", "{metric: ndcg, k: 0}"),
        ("put it in quotes", "{metric: roc_auc, label: yes}"),
    ],
)
def test_wrong_parameters_are_refused_before_any_request(said: str, entry: str, tmp_path: Path) -> None:
    asked: list[str] = []
    start = "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: [a, b]\ndoc_to_target: gold\n"
    write_task(tmp_path, [{"q": "0", "gold": 0}], f"{start}metric_list: [{entry}]\n")
    with pytest.raises(ConfigError, match=said):
        run(tmp_path, noting(asked))
    assert asked == []


def test_metrics_without_a_number_give_a_reason(tmp_path: Path) -> None:
    entries = "{metric: roc_auc}, {metric: kappa}, {metric: spearman}"
    results = binary(tmp_path, [0.9, 0.8], [1, 1], f"metric_list: [{entries}]\n")
    reasons = {key: row["reason"] for key, row in rows_of(results, "t").items() if row["lacks_number"]}
    assert "all documents are of one class" in reasons["roc_auc,none"]
    assert "all labels are the same" in reasons["kappa,none"]
    assert "no correlation" in reasons["spearman,none"]


# --- against other implementations ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_areas_are_those_of_scikit_learn(seed: int, ties: bool) -> None:
    scores, truth = drawn(seed, 80, ties=ties)
    pairs = list(zip(truth.tolist(), scores.tolist(), strict=True))
    assert AGGREGATIONS["roc_auc"](pairs) == pytest.approx(roc_auc_score(truth, scores))
    assert AGGREGATIONS["pr_auc"](pairs) == pytest.approx(average_precision_score(truth, scores))


@pytest.mark.parametrize(("equal_mass", "strategy"), [(False, "uniform"), (True, "quantile")])
@pytest.mark.parametrize("bins", [1, 5, 15])
def test_the_curve_is_that_of_scikit_learn(bins: int, equal_mass: bool, strategy: str) -> None:
    confidence, right = drawn(7, 200)
    curve = reliability_curve(list(zip(confidence, right, strict=True)), bins=bins, equal_mass=equal_mass)
    accuracy, sure = calibration_curve(right, confidence, n_bins=bins, strategy=strategy)
    assert [each.accuracy for each in curve] == pytest.approx(accuracy.tolist())
    assert [each.confidence for each in curve] == pytest.approx(sure.tolist())
    expected = sum(each.n / 200 * abs(each.accuracy - each.confidence) for each in curve)
    error = AGGREGATIONS["ece"].bound({"bins": bins, "equal_mass": equal_mass})
    assert error(list(zip(confidence, right, strict=True))) == pytest.approx(expected)


def test_the_parts_of_the_brier_score_add_up() -> None:
    """Where all shares of a bin are equal, exactly to scikit-learn's score (of one class; of two it is twice that)."""
    confidence, right = drawn(11, 300, ties=True)
    confidence = np.clip(confidence, 0.05, 0.95)
    values = [(int(truth), [1 - share, share]) for share, truth in zip(confidence, right, strict=True)]
    reliability, resolution, uncertainty = (
        brier_part(part, values, bins=100) for part in ("reliability", "resolution", "uncertainty")
    )
    assert reliability - resolution + uncertainty == pytest.approx(2 * brier_score_loss(right, confidence))
    assert uncertainty == pytest.approx(2 * right.mean() * (1 - right.mean()))


@pytest.mark.parametrize("seed", range(3))
def test_selective_accuracy_is_that_of_the_first(seed: int) -> None:
    confidence, right = drawn(seed, 50)
    pairs = list(zip(confidence.tolist(), right.tolist(), strict=True))
    first = np.argsort(-confidence)[:20]
    expected = accuracy_score(np.ones(20), right[first])
    assert AGGREGATIONS["selective_accuracy"].bound({"coverage": 0.4})(pairs) == pytest.approx(expected)
    risks = [1 - right[np.argsort(-confidence)[:count]].mean() for count in range(1, 51)]
    assert AGGREGATIONS["risk_coverage_area"](pairs) == pytest.approx(np.mean(risks))


@pytest.mark.parametrize("weights", ["none", "linear", "quadratic"])
def test_kappa_and_spearman(weights: str) -> None:
    draw = np.random.default_rng(13)
    one = draw.integers(0, 5, 90)
    other = np.clip(one + draw.integers(-1, 2, 90), 0, 4)
    expected = cohen_kappa_score(one, other, labels=[*range(5)], weights=None if weights == "none" else weights)
    pairs = list(zip(one.tolist(), other.tolist(), strict=True))
    assert AGGREGATIONS["kappa"].bound({"weights": weights})(pairs) == pytest.approx(expected)
    texts = [(str(a), str(b)) for a, b in pairs]
    assert AGGREGATIONS["kappa"].bound({"weights": weights})(texts) == pytest.approx(expected)
    assert AGGREGATIONS["spearman"](pairs) == pytest.approx(spearmanr(one, other).statistic)


# --- error bars ----------------------------------------------------------------------------------------------------------


def pairs_of(name: str, n: int, seed: int) -> list[Any]:
    confidence, right = drawn(seed, n)
    if name in ("roc_auc", "pr_auc"):
        return list(zip(right.tolist(), confidence.tolist(), strict=True))
    if name.startswith("brier"):
        return [(int(truth), [1 - share, share]) for share, truth in zip(confidence, right, strict=True)]
    if name == "kappa":
        return list(zip(right.tolist(), (confidence > 0.6).astype(int).tolist(), strict=True))
    return list(zip(confidence.tolist(), right.tolist(), strict=True))


NAMES = ["ece", "brier_reliability", "brier_resolution", "brier_uncertainty", "roc_auc", "pr_auc", "kappa", "spearman",
         "risk_coverage_area"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_error_is_that_of_a_jackknife(name: str) -> None:
    known, values = AGGREGATIONS[name], pairs_of(name, 150, 5)
    assert known.influence is not None
    left_out = [known(values[:at] + values[at + 1 :]) for at in range(len(values))]
    jackknife = math.sqrt((len(values) - 1) / len(values) * np.sum((np.array(left_out) - np.mean(left_out)) ** 2))
    influence = known.influence(values)
    assert np.std(influence, ddof=1) / math.sqrt(len(values)) == pytest.approx(jackknife, rel=0.08)
    # and document by document: to leave out one that pulls upwards lowers the number; of bins near 0 a sign may change
    assert np.corrcoef(influence, left_out)[0, 1] < -{"ece": 0.8, "brier_reliability": 0.99}.get(name, 0.999)


@pytest.mark.parametrize("name", ["selective_accuracy", "roc_auc", "pr_auc", "risk_coverage_area"])
def test_the_error_is_that_of_new_documents(name: str) -> None:
    """The spread of 400 samples of 200 documents, and the mean standard error of these."""
    known = AGGREGATIONS[name]
    assert known.influence is not None
    samples = [pairs_of(name, 200, seed) for seed in range(400)]
    spread = np.std([known(values) for values in samples], ddof=1)
    errors = [np.std(known.influence(values), ddof=1) / math.sqrt(200) for values in samples[:100]]
    assert np.mean(errors) == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize(("power", "truth"), [(1.0, 0.0), (1.6, 0.1192)])
def test_intervals_of_ece_contain_the_true_error(power: float, truth: float) -> None:
    """Of a calibrated model it is 0; of one that is right with the probability c^1.6, 0.1192 (400,000 documents). Without its
    correction for few documents, 86 % of the second ones were in the interval of 50."""
    known, board, hits = AGGREGATIONS["ece"], Board(), 0
    for seed in range(200):
        draw = np.random.default_rng(seed)
        sure = draw.beta(3, 1.5, 60)
        values = list(zip(sure.tolist(), (draw.random(60) < sure**power).astype(int).tolist(), strict=True))
        number = board.estimated(known, values, range(60), bootstrap_iters=1, source="s")
        ends = interval(number)
        assert ends is not None and 0 <= ends[0] <= float(number) <= ends[1] <= 1
        hits += ends[0] <= truth <= ends[1]
    assert hits >= 186  # 93 %


def test_delongs_variance_by_hand() -> None:
    """Placements of 3, 1 among 2, 0: 1 and 1/2; of 2, 0 among 3, 1: 1/2 and 1. Variances 1/8 each, over 2 and 2."""
    known = AGGREGATIONS["roc_auc"]
    assert known.influence is not None
    values = [(1, 3.0), (1, 1.0), (0, 2.0), (0, 0.0)]
    assert known(values) == 0.75
    assert np.var(known.influence(values), ddof=1) / 4 == pytest.approx(1 / 8)


SCORED = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 99).map(lambda n: n / 100)), min_size=4, max_size=25
).filter(lambda pairs: 0 < sum(truth for truth, _ in pairs) < len(pairs))


@settings(max_examples=60, deadline=None)
@given(SCORED)
def test_laws_of_the_areas(pairs: list[tuple[int, float]]) -> None:
    """Within 0 to 1; the order alone counts; turned scores and classes give the same area, turned scores its rest."""
    area: Callable[..., float] = AGGREGATIONS["roc_auc"]
    assert area(pairs) == pytest.approx(area([(truth, math.log(score)) for truth, score in pairs]))
    assert area([(truth, -score) for truth, score in pairs]) == pytest.approx(1 - area(pairs))
    assert area([(1 - truth, -score) for truth, score in pairs]) == pytest.approx(area(pairs))
    rate = sum(truth for truth, _ in pairs) / len(pairs)
    assert 0 < AGGREGATIONS["pr_auc"](pairs) <= 1
    assert AGGREGATIONS["pr_auc"]([(truth, 0.5) for truth, _ in pairs]) == pytest.approx(rate)
    confident = [(score, truth) for truth, score in pairs]
    whole = AGGREGATIONS["selective_accuracy"].bound({"coverage": 1.0})(confident)
    assert whole == pytest.approx(rate)
    assert AGGREGATIONS["ece"].bound({"bins": 1})(confident) == pytest.approx(
        abs(rate - sum(score for score, _ in confident) / len(confident))
    )


def test_odds_differ_where_shares_are_rounded() -> None:
    assert log_odds([-1.0, -800.0], 0) < log_odds([-1.0, -900.0], 0)
    assert log_odds([-math.inf, -1.0], 1) > 1e200 > -1e200 > log_odds([-math.inf, -1.0], 0)
    assert log_odds([math.log(0.2), math.log(0.5), math.log(0.3)], 0) == pytest.approx(math.log(0.25))


NAN = math.nan


@pytest.mark.parametrize(
    ("names", "values", "reason"),
    [
        (("ece", "selective_accuracy", "risk_coverage_area"), [(NAN, 1), (0.5, 0)], "a confidence must be a number"),
        (("ece", "selective_accuracy", "risk_coverage_area"), [(0.4, 2), (0.5, 0)], "must be from 0 to 1"),
        (("ece", "selective_accuracy", "risk_coverage_area"), [(0.4, NAN), (0.5, 0)], "must be from 0 to 1"),
        (("ece", "selective_accuracy", "risk_coverage_area"), [0.4, 0.5], "every document needs a pair"),
        (("roc_auc", "pr_auc"), [(1, NAN), (0, 0.5), (1, 0.2)], "every document needs a pair"),
        (("roc_auc", "pr_auc"), [(0.5, 0.3), (0, 0.5), (1, 0.2)], "every document needs a pair"),
        (("roc_auc", "pr_auc"), [(2, 0.3), (0, 0.5), (1, 0.2)], "every document needs a pair"),
        (("spearman",), [(1, NAN), (0, 0.5), (2, 1)], "1 of 3 pairs are not of two numbers"),
        (("kappa",), [(1, NAN), (0, 1), (2, 1)], "a label is NaN"),
        (("brier_reliability", "brier_resolution"), [(0, [NAN, 0.5]), (1, [0.5, 0.5])], "is not a number"),
    ],
)
def test_invalid_values_of_user_code_have_a_reason_and_no_number(
    names: tuple[str, ...], values: list[Any], reason: str
) -> None:
    for name in names:
        number = estimate(AGGREGATIONS[name], values, bootstrap_iters=10)
        assert math.isnan(number)
        assert reason in number.reason


def test_the_uncertainty_of_even_classes_is_their_largest() -> None:
    """25 of 50 right: p(1 − p) is at its top, so the true one is below by twice the square of how far p may be off."""
    values = [(number % 2, [0.5, 0.5]) for number in range(50)]
    aggregation = AGGREGATIONS["brier_uncertainty"]
    number = estimate(aggregation, values, bootstrap_iters=10)
    assert aggregation.bias is not None
    drawn = less_bias(with_draws(number, aggregation, values, range(50), "s"), aggregation.bias(values))
    off = stats.t.ppf(0.975, 49) * 2 * 0.25 / 49
    assert interval(drawn) == (pytest.approx(0.5 - 2 * off), pytest.approx(0.5))


@pytest.mark.parametrize("name", ["roc_auc", "pr_auc"])
def test_an_area_is_as_sure_as_the_documents_of_the_rarer_kind(name: str) -> None:
    """Without a mistake it is a mean of four ones, whose interval statsmodels has; else Student's with their degrees of freedom."""

    def drawn(values: list[Any]) -> Any:
        number = estimate(AGGREGATIONS[name], values, bootstrap_iters=10)
        return with_interval(with_draws(number, AGGREGATIONS[name], values, range(len(values)), "s"))

    perfect = drawn([(1, 0.9)] * 4 + [(0, 0.1)] * 36)
    assert (perfect.value, perfect.stderr) == (1, 0)
    assert (perfect.low, perfect.high) == pytest.approx(bounded([1.0] * 4), abs=1e-7)
    assert drawn([(1, 0.9), (1, 0.4), (1, 0.6), (0, 0.5), (0, 0.7)] + [(0, 0.1)] * 35).df == 2


@pytest.mark.parametrize(
    ("lls", "odds"),
    [
        ([-1.0, -1.0], 0.0),
        ([-1.0, -3.0], 2.0),
        ([-1.0, -1.0, -1.0], -math.log(2)),
        ([-1.0], SURE),  # there is no other
        ([-1.0, -math.inf], SURE),
        ([-math.inf, -1.0], -SURE),
        ([-math.inf, -math.inf], math.nan),
    ],
)
def test_the_log_odds_of_a_choice_are_those_against_all_others(lls: list[float], odds: float) -> None:
    assert log_odds(lls, 0) == pytest.approx(odds, nan_ok=True)
