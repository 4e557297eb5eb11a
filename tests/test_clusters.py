"""`cluster_by`: documents that were drawn together are one draw for the standard error.

Literals of statsmodels are `OLS(x, 1).fit(cov_type="cluster", cov_kwds={"groups": ...}).bse` of its version 0.15.0.
"""

import math
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from assay import ConfigError
from assay.config.group import GroupConfig
from assay.groups.aggregators import HarmonicMeanAggregator, MedianAggregator, RowAggregator
from assay.score_keys import ScoreKey
from assay.statistics.aggregations import AGGREGATIONS
from assay.statistics.board import Board, ScoreColumn
from assay.statistics.evidence import Estimate
from assay.statistics.intervals import interval
from assay.statistics.spread import MemberEstimate
from group_world import UNSURE, attempts, group_row
from interval_oracles import bell_and_mccaffrey
from run_world import rows_of
from small_runs import ANYTHING, noting, run, write_task

RIGHT = [1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0]
OTHER = [0, 1, 0, 0, 0, 1, 1, 0, 1, 0, 1, 1]
PASSAGES = list("aaabbccccdde")
KEY = ScoreKey("x", "none")


def passages(
    folder: Path, columns: Mapping[str, Sequence[Any]], more: str = "cluster_by: passage\n", *,
    name: str = "t", score: str = "x", aggregation: str = "mean",
) -> None:  # fmt: skip
    """A task whose documents carry their score in one column, and what else is said of them in others."""
    folder.mkdir(exist_ok=True)
    rows = [{"q": f"{n}", **dict(zip(columns, row, strict=True))}
            for n, row in enumerate(zip(*columns.values(), strict=True))]  # fmt: skip
    (folder / f"helper_{name}.py").write_text(
        f"def values(doc, results):\n    return {{'x': doc[{score!r}]}}\n\n\ndef average(x):\n    return sum(x) / len(x)\n"
    )
    yaml = (
        f"output_type: generate_until\ndoc_to_text: q\ndoc_to_target: q\nprocess_results: !function helper_{name}.values\n"
        f"metric_list: [{{metric: x, aggregation: {aggregation}}}]\n"
    )
    write_task(folder, rows, yaml + more, name)


def row_of(folder: Path, **options: Any) -> dict[str, Any]:
    data: dict[str, Any] = rows_of(run(folder, ANYTHING, **options), "t")["x,none"]
    return data


def estimate(
    values: Sequence[Any], clusters: Sequence[object], aggregation: str = "mean", draws: int = 1000, source: str = "s"
) -> Estimate:
    """The number of documents with these values, put together by these."""
    board = Board(columns={KEY: ScoreColumn(list(values), array("q", range(len(values))))})
    for document, value in enumerate(clusters):
        board.put_together(document, value)
    chosen = AGGREGATIONS[aggregation]
    return board.estimates(lambda _: chosen, bootstrap_iters=draws, source=source)[KEY]


# --- one task ------------------------------------------------------------------------------------------------------


def test_two_passages_with_two_equal_questions_each_are_two_draws(tmp_path: Path) -> None:
    """By hand: each passage is ½ off the mean, so √(2/1 · (¼² + ¼²)) = ½; as four draws it would be √(0.25/3)."""
    passages(tmp_path, {"x": [1, 1, 0, 0], "passage": list("aabb")})
    row = row_of(tmp_path)
    assert (row["value"], row["stderr"], row["n"]) == (0.5, pytest.approx(0.5), 4)


def test_the_error_is_that_of_statsmodels_clustered_by_passage(tmp_path: Path) -> None:
    passages(tmp_path, {"x": RIGHT, "passage": PASSAGES})
    assert row_of(tmp_path)["stderr"] == pytest.approx(0.103586346459558, rel=1e-12)


def test_the_interval_of_few_unequal_clusters_is_bell_and_mccaffreys(tmp_path: Path) -> None:
    """Four clusters: the error is statsmodels' `conf_int` with `use_t`, the interval that of the jackknife over clusters."""
    passages(tmp_path, {"x": [0.5, 1.25, 3.0, 0.75, 2.0, 1.5, 0.25, 4.0], "passage": list("aabbbcdd")})
    row = row_of(tmp_path)
    assert row["stderr"] == pytest.approx(0.287049579232404, rel=1e-12)
    *ends, freedom = bell_and_mccaffrey([0.5, 1.25, 3.0, 0.75, 2.0, 1.5, 0.25, 4.0], list("aabbbcdd"))
    assert row["interval"] == pytest.approx(ends, rel=1e-9)
    assert (row["method"], row["df"]) == ("student", pytest.approx(freedom, abs=1e-3))


def test_a_ratio_is_clustered_as_statsmodels_clusters_a_weighted_mean(tmp_path: Path) -> None:
    """`WLS(above / below, 1, weights=below)`, in bits."""
    pairs = [[-4.0, 2], [-12.0, 6], [-9.0, 3], [-1.0, 1], [-6.0, 4], [-2.5, 2]]
    passages(tmp_path, {"x": pairs, "passage": list("aabbcd")}, aggregation="bits_per_byte")
    assert row_of(tmp_path)["stderr"] == pytest.approx(0.20731920523144 / math.log(2), rel=1e-12)


def test_a_document_without_a_cluster_value_is_a_cluster_by_itself(tmp_path: Path) -> None:
    passages(tmp_path / "a", {"x": RIGHT, "passage": [*PASSAGES[:10], None, None]})
    passages(tmp_path / "b", {"x": RIGHT, "passage": [*PASSAGES[:10], "y", "z"]})
    assert row_of(tmp_path / "a")["stderr"] == pytest.approx(row_of(tmp_path / "b")["stderr"], rel=1e-12)


def test_one_cluster_has_no_standard_error_and_says_why(tmp_path: Path) -> None:
    passages(tmp_path, {"x": [1, 0, 1], "passage": ["a"] * 3})
    row = row_of(tmp_path)
    assert (row["stderr"], row["interval"]) == (None, None)
    assert "one cluster" in row["reason"]


def test_an_aggregation_of_ones_own_is_computed_again_on_whole_clusters(tmp_path: Path) -> None:
    """A mean by another name has the error of the mean, but for 1,000 draws; as single documents it would be 0.071."""
    scores, names = [float(number // 5 % 2) for number in range(50)], [number // 5 for number in range(50)]
    passages(tmp_path, {"x": scores, "passage": names}, aggregation="!function helper_t.average")
    assert row_of(tmp_path)["stderr"] == pytest.approx(math.sqrt(0.25 / 9), rel=0.08)


def test_with_compat_lm_eval_the_error_stays_lm_evals(tmp_path: Path) -> None:
    """lm-eval's of 7 right of 12: √(7/12 · 5/12 / 11)."""
    passages(tmp_path, {"x": RIGHT, "passage": PASSAGES})
    assert row_of(tmp_path, compat="lm-eval")["stderr"] == pytest.approx(math.sqrt(7 / 12 * 5 / 12 / 11))


@pytest.mark.parametrize("where", ["at the start", "after process_docs"])
def test_a_column_that_is_not_there_is_refused_before_any_request(where: str, tmp_path: Path) -> None:
    more = "cluster_by: pasage\n" + ("process_docs: !function docs.same\n" if where != "at the start" else "")
    passages(tmp_path, {"x": RIGHT, "passage": PASSAGES}, more)
    (tmp_path / "docs.py").write_text("def same(docs):\n    return docs\n")
    asked: list[str] = []
    with pytest.raises(ConfigError, match=r"t\.yaml:\d+:13: .*no column 'pasage'.* — did you mean 'passage'\?"):
        run(tmp_path, noting(asked))
    assert asked == []


def test_a_class_task_may_be_clustered_and_is_refused_for_the_same_reasons(tmp_path: Path) -> None:
    passages(tmp_path, {"x": RIGHT, "passage": PASSAGES}, "cluster_by: passage\nclass: !function kind.Kind\n")
    (tmp_path / "kind.py").write_text("from lm_eval.api.task import ConfigurableTask\n\n\nclass Kind(ConfigurableTask):\n    pass\n")  # fmt: skip
    assert row_of(tmp_path)["stderr"] == pytest.approx(0.103586346459558, rel=1e-12)
    passages(tmp_path, {"x": RIGHT, "passage": PASSAGES}, "cluster_by: chapter\nclass: !function kind.Kind\n")
    with pytest.raises(ConfigError, match="no column 'chapter'"):
        run(tmp_path, ANYTHING)


def test_clusters_with_equal_scores_have_an_interval_with_a_width() -> None:
    """One of three right in each of ten: as if 30·(z/t₉)² documents were drawn, statsmodels' Wilson."""
    estimated = estimate([1.0, 0.0, 0.0] * 10, [number // 3 for number in range(30)])
    assert estimated.stderr == pytest.approx(0, abs=1e-12)
    count = 30 * (stats.norm.ppf(0.975) / stats.t.ppf(0.975, 9)) ** 2
    assert interval(estimated) == pytest.approx(proportion_confint(count / 3, count, method="wilson"), rel=1e-9)


def test_an_interval_of_clusters_that_are_all_right_counts_clusters() -> None:
    """Ten clusters, and a quarter of one at either bound, whose mean is m and spread v: m(1 - m)/v·(z/t₉)² documents, all right."""
    estimated = estimate([1.0] * 30, [number // 3 for number in range(30)])
    mean = (10 + 0.25) / 10.5
    spread = (10 * (1 - mean) ** 2 + 0.25 * (mean**2 + (1 - mean) ** 2)) / 9.5 / 10
    count = mean * (1 - mean) / spread * (1.959964 / 2.262157) ** 2
    assert interval(estimated) == pytest.approx((count / (count + 1.959964**2), 1.0), abs=1e-5)


# --- groups --------------------------------------------------------------------------------------------------------

DIFFERENCE = """
    group: g
    task: [one, other]
    aggregate_metric_list: [{metric: x, aggregation: difference}]
"""


@pytest.mark.parametrize("second", ["cluster_by: passage\n", ""], ids=["both say so", "one says so"])
def test_tasks_of_the_same_passages_are_paired_by_passage(second: str, tmp_path: Path) -> None:
    """As statsmodels has the mean of the differences, clustered by passage."""
    columns = {"one": RIGHT, "other": OTHER, "passage": PASSAGES}
    passages(tmp_path, columns, name="one", score="one")
    passages(tmp_path, columns, second, name="other", score="other")
    row = group_row(tmp_path, DIFFERENCE, "x,none")
    expected = 0.206297927465458
    if not second:  # then each has the correction for its number of draws: 5 passages, 12 documents
        expected = one_by_passage_one_by_document()
    assert row["stderr"] == pytest.approx(expected, rel=1e-12)


def one_by_passage_one_by_document() -> float:
    """The sum over passages of squared moves, written once more: √(5/4) for the one, √(12/11) for the other."""
    influences = [
        math.sqrt(5 / 4) * (one - 7 / 12) / 12 - math.sqrt(12 / 11) * (other - 6 / 12) / 12
        for one, other in zip(RIGHT, OTHER, strict=True)
    ]
    sums = [sum(m for m, name in zip(influences, PASSAGES, strict=True) if name == each) for each in "abcde"]
    return math.sqrt(sum(each**2 for each in sums))


def test_pass_at_k_counts_clusters_of_problems(tmp_path: Path) -> None:
    """2 of 2 right, 2 of 2, 0 and 0 in two clusters: pass@2 is 1, 1, 0, 0, and its error ½ as above."""
    attempts(tmp_path, "t", [2, 2, 0, 0], 2)
    lines = (tmp_path / "t.jsonl").read_text().splitlines()
    named = [f'{line[:-1]}, "contest": "{name}"}}\n' for line, name in zip(lines, "aabb", strict=True)]
    (tmp_path / "t.jsonl").write_text("".join(named))
    with (tmp_path / "t.yaml").open("a") as yaml:
        yaml.write("cluster_by: contest\n")
    (tmp_path / "g.yaml").write_text(
        "group: g\ntask: [t]\naggregate_metric_list: [{metric: p, aggregation: pass@k, kwargs: {k: 2}}]\n"
    )
    row = rows_of(run(tmp_path, UNSURE, "g"), "g")["p,none"]
    assert (row["value"], row["stderr"]) == (0.5, pytest.approx(0.5))


# --- laws ----------------------------------------------------------------------------------------------------------

NUMBERS = st.lists(st.integers(-400, 400).map(lambda number: number / 4), min_size=2, max_size=20)
NAMED = st.sampled_from(["mean", "median", "perplexity", "nanmean"])


@settings(max_examples=50, deadline=None)
@given(NUMBERS, NAMED)
def test_documents_in_clusters_of_one_are_documents(values: list[float], name: str) -> None:
    alone, named = estimate(values, [None] * len(values), name, 50), estimate(values, range(len(values)), name, 50)
    assert named.stderr == pytest.approx(alone.stderr, rel=1e-9, abs=1e-9)
    assert (interval(named) or ()) == pytest.approx(interval(alone) or (), rel=1e-9, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(NUMBERS, NAMED, st.sampled_from([1, 3, 5]))
def test_repeating_a_document_adds_no_information(values: list[float], name: str, times: int) -> None:
    items = [value for value in values for _ in range(times)]
    clusters = [number for number in range(len(values)) for _ in range(times)]
    once, often = estimate(values, [None] * len(values), name, 50), estimate(items, clusters, name, 50)
    rounding = 1e-9 * max(1.0, abs(float(once)))  # a perplexity may be 1e17, and its error 0 but for the last digits
    assert (float(often), often.stderr) == pytest.approx((float(once), once.stderr), rel=1e-9, abs=rounding)
    assert often.draws == once.draws


# --- against the truth ----------------------------------------------------------------------------------------------

SIZES = [2, 3, 4, 6, 10] * 6
"""Thirty passages with 150 questions; the passage decides three questions of five."""


GROUP = GroupConfig(group="g")


def drawn(random: np.random.Generator, p: float) -> tuple[list[float], list[int]]:
    """The scores of all questions, and the passage of each."""
    names = np.repeat(np.arange(len(SIZES)), SIZES)
    by_passage, alone = random.random(len(SIZES))[names] < p, random.random(len(names)) < p
    return np.where(random.random(len(names)) < 0.6, by_passage, alone).astype(float).tolist(), names.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.5, 0.8])
def test_the_mean_standard_error_is_the_spread_of_the_number(p: float) -> None:
    """Over 1,500 data sets; and 95 % intervals hold the truth in 91 to 97 of 100: CR1 knows thirty unlike clusters no better.

    As single documents it would be half of it.
    """
    random = np.random.default_rng(11)
    result = [estimate(*drawn(random, p)) for _ in range(1500)]
    spread = np.std([float(each) for each in result])
    assert np.mean([each.stderr for each in result]) / spread == pytest.approx(1, abs=0.06)
    ends = [interval(each) for each in result]
    assert 0.91 <= np.mean([both is not None and both[0] <= p <= both[1] for both in ends]) <= 0.97
    apart = [estimate(scores, [None] * len(scores)).stderr for scores, _ in (drawn(random, p) for _ in range(100))]
    assert np.mean([each or 0.0 for each in apart]) / spread < 0.7


@pytest.mark.slow
@pytest.mark.parametrize("aggregator", [MedianAggregator(GROUP, draws=1000), HarmonicMeanAggregator(GROUP)])
def test_a_group_of_clustered_tasks_has_the_spread_of_its_number(aggregator: RowAggregator) -> None:
    random, numbers = np.random.default_rng(12), []
    for _ in range(300):
        members = [MemberEstimate(f"{n}", estimate(*drawn(random, 0.6), source=f"{n}"), sum(SIZES)) for n in range(5)]
        numbers.append(aggregator.combine(members, [1.0] * 5))
    spread = np.std([float(each) for each in numbers])
    assert np.mean([each.stderr for each in numbers]) / spread == pytest.approx(1, abs=0.12)
