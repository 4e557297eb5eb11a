"""The charts of the viewer: counted by DuckDB, with values worked out by hand, and a table beside each."""

import math
import time
from dataclasses import replace
from pathlib import Path

import pytest

from assay.records import FilterScores, Generate, Loglikelihood, Sample
from assay.report.drawing import as_svg
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import SampleRecord
from assay.runs.samples.writer import SampleWriter
from assay.score_keys import ScoreKey
from assay.viewer.compare_page import first_difference
from assay.viewer.samples import Database, Samples
from assay.viewer.task_charts import (
    ChartCard,
    length_card,
    margin_card,
    paired_card,
    pass_at_k_card,
    reliability_card,
    score_card,
    task_charts,
)

pytestmark = pytest.mark.xdist_group("viewer")


def written(folder: Path, records: list[SampleRecord], metric: str, repeats: int = 1) -> Samples:
    writer = SampleWriter(folder, "t")
    for record in records:
        writer.add(record)
    writer.end()
    writer.place()
    database = Database(folder)
    return Samples(database, database.samples(SampleFile(folder / "t.parquet", repeats)), ScoreKey.parse(metric), True)


def choice(number: int, likelihoods: list[float], gold: int) -> SampleRecord:
    asked = [Loglikelihood("q", f" {place}") for place in range(len(likelihoods))]
    sample = Sample(number, {"n": number}, asked, gold, gold, [str(place) for place in range(len(likelihoods))])
    right = float(max(range(len(likelihoods)), key=likelihoods.__getitem__) == gold)
    answers = [(value, False) for value in likelihoods]
    return SampleRecord(sample, [[each] for each in answers], [FilterScores("none", answers, {"acc": right})])


def text(number: int, said: str, score: float) -> SampleRecord:
    sample = Sample(number, {"n": number}, [Generate("q", {})], "x", "x")
    return SampleRecord(sample, [[said]], [FilterScores("none", [said], {"f1": score})])


def svg(chart: ChartCard) -> str:
    return as_svg(chart.drawing, embedded=True)


def card(chart: ChartCard | None) -> ChartCard:
    assert chart is not None
    return chart


LOG3 = math.log(3)
CHOICES = [
    choice(0, [-1.0, -1.0 - LOG3], 0),  # shares 3/4 and 1/4, right, margin log 3
    choice(1, [-1.0 - LOG3, -1.0], 0),  # the same, wrong, margin −log 3
    choice(2, [0.0, -LOG3], 0),
    choice(3, [0.0, 0.0, 0.0], 2),  # shares of 1/3: the first counts, wrong, margin 0
    choice(4, [-math.inf, -1.0], 0),  # no number: left out
]


def test_reliability_is_by_confidence_how_often_the_likeliest_choice_is_right(tmp_path: Path) -> None:
    chart = card(reliability_card(written(tmp_path, CHOICES, "acc,none")))
    assert [(row[0], row[1], row[3]) for row in chart.rows] == [("0.333", "0.000", "1"), ("0.750", "0.667", "3")]
    # (1 × |1/3 − 0| + 3 × |3/4 − 2/3|) / 4
    assert "expected calibration error 0.1458 over 4 samples" in chart.about


def test_margins_are_the_right_choice_minus_the_best_other(tmp_path: Path) -> None:
    chart = card(margin_card(written(tmp_path, CHOICES, "acc,none")))
    assert dict(chart.rows) == {"-2 … -1": "1", "-1 … +0": "0", "+0 … +1": "1", "+1 … +2": "2"}  # log 3 is 1.0986
    assert "mean +0.275; above 0 in 2 of 4" in chart.about  # log 3 / 4
    assert svg(chart).count('class="worse fill"') == 2 and svg(chart).count('class="better fill"') == 2


def test_scores_of_0_and_1_are_one_bar_and_others_a_histogram(tmp_path: Path) -> None:
    both = card(score_card(written(tmp_path / "a", CHOICES, "acc,none")))
    assert both.rows == [("0", "3", "60.0 %"), ("1", "2", "40.0 %")]
    assert "1: 2 (40.0 %)" in svg(both)
    many = [text(number, "x", number / 40) for number in range(40)]
    drawn = card(score_card(written(tmp_path / "b", many, "f1,none")))
    assert len(drawn.rows) == 20 and {row[1] for row in drawn.rows} == {"2"}
    assert drawn.about == "mean 0.4875 of 40 samples"


def test_the_score_is_drawn_by_the_length_of_the_answer(tmp_path: Path) -> None:
    """Twenty answers of 1 to 20 characters: tenths of two; the longer half is wrong."""
    records = [text(number, "x" * (number + 1), float(number < 10)) for number in range(20)]
    chart = card(length_card(written(tmp_path, records, "f1,none")))
    assert [row[0] for row in chart.rows][:2] == ["1 … 2", "3 … 4"]
    assert [row[1] for row in chart.rows] == ["1.0000"] * 5 + ["0.0000"] * 5
    tied = [text(number, "x" if number < 19 else "xx", float(number % 2)) for number in range(20)]
    rows = card(length_card(written(tmp_path / "tied", tied, "f1,none"))).rows
    assert [(row[0], row[3]) for row in rows] == [
        ("1 … 1", "19"),
        ("2 … 2", "1"),
    ]  # answers of one length stay together
    same = [text(number, "xx", 1.0) for number in range(20)]
    assert length_card(written(tmp_path / "same", same, "f1,none")) is None


def test_pass_at_k_is_that_of_all_ways_to_choose_k_answers(tmp_path: Path) -> None:
    """Of four answers each, two documents have one right, one has none, one has all."""
    rights = ([1, 0, 0, 0], [0, 0, 1, 0], [0] * 4, [1] * 4)
    records = []
    for number, own in enumerate(rights):
        sample = Sample(number, {"n": number}, [Generate("q", {}, repeat) for repeat in range(4)], "x", "x")
        repeats = {"exact_match": [float(each) for each in own]}
        scores = [FilterScores("none", ["x"] * 4, {"exact_match": sum(own) / 4}, repeats)]
        records.append(SampleRecord(sample, [["x"] * 4], scores, 4))
    chart = card(pass_at_k_card(written(tmp_path, records, "exact_match,none", 4)))
    # pass@2 of one right among four: 1 − C(3,2)/C(4,2) = 1/2; so (1/2 + 1/2 + 0 + 1) / 4
    assert [row[:2] for row in chart.rows] == [("1", "0.3750"), ("2", "0.5000"), ("3", "0.6250"), ("4", "0.7500")]
    assert "over 4 documents with 4 answers each" in chart.about


def test_a_task_has_the_charts_that_its_samples_allow(tmp_path: Path) -> None:
    assert [each.name for each in task_charts(written(tmp_path / "a", CHOICES, "acc,none"))] == [
        "scores",
        "reliability",
        "margins",
    ]
    texts = [text(number, "x" * number, number / 20) for number in range(20)]
    chart = task_charts(written(tmp_path / "b", texts, "f1,none"))
    assert [each.name for each in chart] == ["scores", "length"]
    assert all(each.rows and 'role="img"' in svg(each) and "style=" not in svg(each) for each in chart)
    assert task_charts(written(tmp_path / "c", texts[:1], "none,such")) == []


def test_two_runs_are_paired_document_by_document(tmp_path: Path) -> None:
    one = written(tmp_path / "a", [text(n, "x", float(n % 2)) for n in range(8)], "f1,none")
    two = written(tmp_path / "b", [text(n, "x", float(n < 6)) for n in range(7)], "f1,none")
    both = Samples(Database(tmp_path), one.stored, ScoreKey("f1", "none"), True)
    chart = card(paired_card(both, two, ("a", "b")))
    # 1, 3, 5: 1 and 1; 0, 2, 4: 0 and 1; 6: 0 and 0; 7 is in one alone
    assert sorted(chart.rows) == [("0", "0", "1"), ("0", "1", "3"), ("1", "1", "3")]
    assert chart.about == "7 documents: 3 score higher in b, 0 lower, 4 alike"
    assert svg(chart).count('class="better fill"') == 1 and 'class="worse fill"' not in svg(
        chart
    )  # one mark for each pair
    lower = card(paired_card(replace(both, is_more_better=False), two, ("a", "b")))
    assert svg(lower).count('class="worse fill"') == 1 and 'class="better fill"' not in svg(lower)
    unknown = svg(card(paired_card(replace(both, is_more_better=None), two, ("a", "b"))))
    assert 'class="worse fill"' not in unknown and 'class="better fill"' not in unknown


@pytest.mark.parametrize(
    ("one", "two", "where"),
    [
        ("It is four.", "It is five.", (7, "four.", "five.")),
        ("a", "a b", (1, "a", "a b")),
        ("", "x", (0, "", "x")),
        ("x" * 99, "y", (0, "x" * 40 + "…", "y")),
        ("same", "same", None),
    ],
)
def test_the_runs_begin_to_differ_at_a_character_with_the_word_around_it(one: str, two: str, where: object) -> None:
    assert first_difference(one, two) == where


def test_charts_of_thousands_of_choices_are_counted_and_not_read_one_by_one(tmp_path: Path) -> None:
    records = [choice(number, [-1.0, -2.0, -3.0, -4.0], number % 4) for number in range(20_000)]
    samples = written(tmp_path, records, "acc,none")
    begun = time.process_time()
    chart = {each.name: each for each in task_charts(samples)}
    assert time.process_time() - begun < 3  # of this process: read one by one they take longer
    assert [row[3] for row in chart["reliability"].rows] == ["20,000"]
