"""A judge corrected by labels: values of another implementation and by hand, intervals against the truth. `bench labels` has the
whole grid. Facts of ppi-python 0.2.3 (which needs numba, so it is not installed here), scikit-learn, SciPy and krippendorff."""

import math

import numpy as np
import pytest
from bench.labels import Cell, measured, ranking
from scipy.stats import t  # type: ignore[import-untyped]

from assay.statistics import combine, estimate
from assay.statistics.aggregations import krippendorff_alpha
from assay.statistics.agreement import kappa, spearman
from assay.statistics.jackknife import jackknifed
from assay.statistics.labels import corrected

NONE = math.nan


def with_labels(labels: list[float], verdicts: list[float], others: list[float]) -> tuple[list[float], list[float]]:
    return [*verdicts, *others], [*labels, *[NONE] * len(others)]


SCORES = with_labels(
    [0.2, 0.5, 0.9, 0.4, 0.7, 0.65, 0.1, 0.8],
    [0.3, 0.6, 0.8, 0.5, 0.9, 0.7, 0.3, 0.9],
    [0.5, 0.6, 0.8, 0.2, 0.9, 0.4, 0.7, 0.75, 0.35, 0.65, 0.5, 0.85],
)


def test_the_value_is_that_of_ppi_python_with_the_same_tuning() -> None:
    number = corrected(*SCORES)
    assert number.method == "ppi++"
    assert number.tuning == pytest.approx(0.6632530120481928, abs=1e-12)
    assert number.value == pytest.approx(0.51466867, abs=1e-8)


def test_of_right_and_wrong_it_is_the_share_of_right_in_either_verdict_by_how_many_there_are() -> None:
    verdicts, labels = [1.0] * 60 + [0.0] * 40, [NONE] * 100
    labels[:12] = [1] * 9 + [0] * 3  # of 12 that the judge passed, people pass 9
    labels[60:68] = [1] + [0] * 7  # of 8 that it failed, 1
    number = corrected(verdicts, labels)
    assert number.value == pytest.approx(0.6 * 9 / 12 + 0.4 * 1 / 8)
    assert (number.judge, number.labels, number.n) == (0.6, 20, 100)


def test_with_many_labels_the_interval_is_the_published_one() -> None:
    random = np.random.default_rng(5)
    labels = np.round(random.random(300), 3)
    verdicts = np.clip(np.round(0.6 * labels + 0.3 + random.normal(0, 0.1, 300), 3), 0, 1)
    others = np.clip(np.round(0.6 * random.random(1700) + 0.3 + random.normal(0, 0.1, 1700), 3), 0, 1)
    number = corrected(*with_labels(labels.tolist(), verdicts.tolist(), others.tolist()))
    assert number.value == pytest.approx(0.50226569, abs=0.001)  # with its λ of at most 1; ours is 1.07
    assert (number.low, number.high) == pytest.approx((0.48264496, 0.52188641), abs=0.0025)


def test_the_standard_error_is_that_of_the_residuals_and_of_the_verdicts() -> None:
    verdicts, labels = [1.0] * 60 + [0.0] * 40, [NONE] * 100
    labels[:12], labels[60:68] = [1] * 9 + [0] * 3, [1] + [0] * 7
    residuals = [0.25] * 9 + [-0.75] * 3 + [0.875] + [-0.125] * 7
    slope = 9 / 12 - 1 / 8  # verdicts of the 20 have the mean of all, so every label counts 1/20
    of_labels = sum(each**2 for each in residuals) / 20**2
    assert corrected(verdicts, labels).stderr == pytest.approx(
        math.sqrt((of_labels + slope**2 * 0.24 / 100) * 20 / 18), rel=1e-9
    )


def test_noise_of_the_judge_is_in_the_standard_error() -> None:
    random = np.random.default_rng(6)
    people = random.beta(2, 2, 1000)
    labels = np.where(np.arange(1000) < 100, people, NONE)
    judges = [np.clip(people + random.normal(0, noise, 1000), 0, 1) for noise in (0.05, 0.2, 0.8)]
    errors = [corrected(judge, labels).stderr or 0.0 for judge in judges]
    assert errors == sorted(errors)
    alone = estimate(people[:100], bounds=(0.0, 1.0)).stderr or 0.0
    expected = [alone * math.sqrt(1 - share * 0.9) for share in (0.05 / (0.05 + 0.05**2), 0.05 / (0.05 + 0.2**2))]
    assert errors[:2] == pytest.approx(
        expected, rel=0.15
    )  # variance .05 of people; the judge explains this share of it


def test_a_judge_that_says_the_same_of_all_adds_nothing_to_the_labels() -> None:
    labels = [1.0] * 30 + [0.0] * 20
    number, alone = corrected([1.0] * 500, [*labels, *[NONE] * 450]), estimate(labels)
    assert (number.value, number.low, number.high) == (alone.value, alone.low, alone.high)
    assert (number.method, number.tuning) == ("labels alone, mid-p", 0.0)


def test_a_bound_at_infinity_is_none() -> None:
    number, plain = corrected(*SCORES, bounds=(0.0, math.inf)), corrected(*SCORES, bounds=None)
    assert (number.value, number.stderr, number.high) == (plain.value, plain.stderr, plain.high)


def test_a_judge_that_is_right_is_not_believed_without_an_interval() -> None:
    verdicts = [1.0] * 300 + [0.0] * 200
    number = corrected(verdicts, [each if place % 10 == 0 else NONE for place, each in enumerate(verdicts)])
    assert number.value == pytest.approx(0.6)
    assert number.low is not None
    assert number.high is not None
    assert 0.45 < number.low < 0.58 < 0.62 < number.high < 0.75


def test_labels_at_the_end_of_the_scale_stay_within_it() -> None:
    verdicts = [5.0] * 90 + [4.0] * 10
    number = corrected(verdicts, [5.0] * 20 + [NONE] * 80, bounds=(1.0, 5.0))
    assert number.value == 5.0
    assert number.high == 5.0
    assert number.low is not None
    assert 3.5 < number.low < 5.0


@pytest.mark.parametrize(
    ("scores", "labels", "bounds", "message"),
    [
        ([1, 0], [1], (0.0, 1.0), "one per document"),
        ([1, 0], [NONE, NONE], (0.0, 1.0), "no document has one"),
        ([1, 7], [1, NONE], (0.0, 1.0), "scores from 1 to 7"),
        ([1, 1], [3, NONE], (0.0, 1.0), "labels from 3 to 3"),
        ([1, NONE], [1, NONE], (0.0, 1.0), "finite"),
    ],
)
def test_what_cannot_be_corrected_is_refused(
    scores: list[float], labels: list[float], bounds: tuple[float, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        corrected(scores, labels, bounds=bounds)


def test_few_labels_are_used_alone_and_one_has_no_interval() -> None:
    one = corrected([1, 0, 1], [1, NONE, NONE])
    assert (one.value, one.stderr, one.reason) == (1.0, None, "one document has no spread")
    assert corrected([1, 0, 1, 0], [1, 0, 1, NONE]).method == "labels alone, mid-p"


def test_clusters_that_are_labelled_and_judged_alike_count_once() -> None:
    random = np.random.default_rng(3)
    people = (random.random(200) < 0.6).astype(float)
    judge = np.where(random.random(200) < 0.15, 1 - people, people)
    labels = np.where(np.arange(200) < 80, people, NONE)
    single = corrected(judge, labels)
    fourfold = corrected(np.tile(judge, 4), np.tile(labels, 4), clusters=np.tile(np.arange(200), 4).tolist())
    assert fourfold.value == pytest.approx(single.value)
    assert fourfold.stderr == pytest.approx(single.stderr, rel=0.01)


@pytest.mark.parametrize(
    ("clusters", "numbers"),
    [
        ([7, 7, 8, 8, 9, 9] * 10, [7, 8, 9]),  # as runs number them: those of another task are the same
        (["a", "a", "b", "b", "c", "c"] * 10, [0, 1, 2]),
        (list(range(60)), list(range(60))),
        (None, None),
    ],
)
def test_documents_of_one_cluster_move_together_in_what_is_made_of_corrected_numbers(
    clusters: list[object] | None, numbers: list[int] | None
) -> None:
    people = [float(number % 3 > 0) for number in range(60)]
    judge = [float(number % 4 > 0) for number in range(60)]
    number = corrected(judge, [label if at < 30 else NONE for at, label in enumerate(people)], clusters=clusters)
    [influence] = number.evidence.parts
    known = None if influence.clusters is None else sorted({int(each) for each in influence.clusters})
    assert known == numbers


ALONE = [0.5] * 20, [0.2, 0.5, 0.9, 0.4, 0.7, 0.65, 0.1, 0.8, *[NONE] * 12]


@pytest.mark.parametrize("scores", [SCORES, ALONE], ids=["corrected", "labels alone"])
def test_for_comparisons_documents_are_as_far_apart_as_the_interval_is_wide(
    scores: tuple[list[float], list[float]],
) -> None:
    number = corrected(*scores)
    documents, low, high = number.for_contrasts, number.low, number.high
    assert low is not None
    assert high is not None
    assert documents.mean() == pytest.approx(number.value)
    error = math.sqrt(((documents - documents.mean()) ** 2).sum()) / len(documents)
    assert t.ppf(0.975, len(documents) - 1) * error == pytest.approx((high - low) / 2, rel=1e-6)


def test_a_group_of_corrected_numbers_has_their_errors() -> None:
    random = np.random.default_rng(4)
    members = []
    for share in (0.6, 0.8):
        people = (random.random(400) < share).astype(float)
        judge = np.where(random.random(400) < 0.1, 1 - people, people)
        members.append(corrected(judge, np.where(np.arange(400) < 100, people, NONE)))
    group = combine(members, by_size=False)
    assert group.value == pytest.approx((members[0].value + members[1].value) / 2)
    assert group.stderr == pytest.approx(math.hypot(members[0].stderr or 0, members[1].stderr or 0) / 2)
    assert group.df is not None
    assert group.df < 250  # that of the labels, not of the 800 documents


@pytest.mark.parametrize("kind", ["good verdicts", "scale 1 to 5"])
def test_intervals_of_fifty_labels_hold_the_truth(kind: str) -> None:
    result = measured(Cell(kind, 50, 0.8, -0.2), 400)
    assert result.coverage > 0.915  # of 400, two errors below 94 %
    assert result.wider < 1.05
    assert not result.outside


def test_labels_put_a_ranking_right() -> None:
    assert "corrected: terse" in ranking().actual
    assert ranking().actual.startswith("wordy")


ONE, OTHER = [0.1, 0.4, 0.4, 0.8, 0.9, 0.3, 0.7, 0.6, 0.2, 1.0], [0.2, 0.3, 0.6, 0.7, 1.0, 0.3, 0.4, 0.6, 0.1, 0.9]


def test_agreement_is_that_of_scikit_learn_scipy_and_krippendorff() -> None:
    pairs = list(zip(ONE, OTHER, strict=True))
    assert kappa([(int(x >= 0.5), int(y >= 0.5)) for x, y in pairs]) == pytest.approx(0.6)
    three = zip([1, 2, 3, 1, 2, 3, 3, 1], [1, 2, 2, 1, 3, 3, 3, 2], strict=True)
    assert kappa(list(three)) == pytest.approx(0.4418604651162791)
    assert spearman(pairs) == pytest.approx(0.9174354825988628)
    assert krippendorff_alpha([[[x, y]] for x, y in zip(ONE, OTHER, strict=True)]) == pytest.approx(0.8911010558069382)


def test_agreement_has_an_interval_within_its_bounds_or_a_reason() -> None:
    number = jackknifed(spearman, list(zip(ONE, OTHER, strict=True)))
    assert number.low is not None
    assert number.high is not None
    assert -1 <= number.low < 0.9174354825988628 < number.high <= 1
    assert jackknifed(spearman, [(1, x) for x in range(5)]).reason == "all labels or all scores are alike"
    assert jackknifed(spearman, [(x, x) for x in range(5)]).low is None


def test_few_labels_of_a_kind_do_not_outdo_a_judge_who_agrees_with_them() -> None:
    """One label in 100 is 1, and the judge has 6 there and 10 % of all: at 1 in 6 of those, 1.6 % are, and labels alone are too sure."""
    verdicts = [1.0] * 6 + [0.0] * 94 + [1.0] * 90 + [0.0] * 810
    labels = [1.0] + [0.0] * 99
    number = corrected(verdicts, labels + [float("nan")] * 900)
    assert (number.method, number.value) == ("ppi++", pytest.approx(96 / 1000 / 6))
    alone = estimate(labels)
    assert number.high is not None
    assert alone.high is not None
    assert number.high > 1.2 * alone.high
    other = corrected([0.0, 1.0] * 500, labels + [float("nan")] * 900)  # says nothing about them
    assert (other.method, other.high) == ("labels alone, mid-p", alone.high)
