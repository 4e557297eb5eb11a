"""Comparing runs: numbers worked out by hand, and runs that cannot be compared as asked."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import run_world
from assay import simple_evaluate
from assay.comparison.compare import compare
from assay.comparison.pairing import _by_content
from assay.errors import AssayError
from assay.evaluation.score import ScoreOptions
from assay.exchange.importers import score
from assay.report.comparison_text import comparison_summary, flip_lines
from assay.report.pictures import share_differences
from assay.runs.comparison import ComparedRow, Comparison
from compared_world import GROUP, MEAN, make_run, two_runs, write_tasks
from small_runs import choose, generate

pytestmark = pytest.mark.slow  # many runs: too long for `make quick`

A = [1, 1, 1, 1, 0, 0, 1, 0, 1, 1]
B = [1, 0, 0, 0, 1, 0, 1, 0, 1, 1]
"""Of ten documents three are lost (1, 2, 3) and one is won (4): 0.7 and 0.5. Mid-p of 1 in 4: 2 · 5/16 - 4/16 = 6/16."""


def row(comparison: Comparison, name: str = "t", metric: str = "x", run: int = 1) -> ComparedRow:
    [one] = [each for each in comparison.rows if (each.name, each.metric, each.run) == (name, metric, run)]
    return one


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# --- one task --------------------------------------------------------------------------------------------------------


def test_rates_are_compared_document_by_document(tmp_path: Path) -> None:
    result_row = row(compare(two_runs(tmp_path, A, B)))
    assert (result_row.a, result_row.b, result_row.difference.value) == (0.7, 0.5, pytest.approx(-0.2))
    assert (result_row.wins, result_row.losses, result_row.ties, result_row.difference.n) == (1, 3, 6, 10)
    assert (result_row.difference.p, result_row.difference.test) == (pytest.approx(0.375), "McNemar")
    spread = (4 - 4 / 10) * 10 / 9 / 100
    assert result_row.difference.stderr == pytest.approx(math.sqrt(spread))
    half = 1.959964 * math.sqrt(spread + 1 / 100) * 10 / 11
    assert result_row.difference.interval == pytest.approx((-2 / 11 - half, -2 / 11 + half), rel=1e-6)
    assert result_row.mde == pytest.approx((1.959964 + 0.841621) * math.sqrt(spread + 1 / 100) * 10 / 11, rel=1e-5)
    assert result_row.verdict == "unclear"


def test_scores_are_compared_as_scipy_compares_pairs(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    a, b = random.normal(0, 1, 30).round(3).tolist(), random.normal(0.4, 1, 30).round(3).tolist()
    result_row = row(compare(two_runs(tmp_path, a, b)))
    theirs = stats.ttest_rel(b, a)
    assert result_row.difference.value == pytest.approx(np.mean(b) - np.mean(a))
    assert result_row.difference.interval == pytest.approx(tuple(theirs.confidence_interval(0.95)), rel=1e-4)
    assert (result_row.difference.p, result_row.difference.test) == (
        pytest.approx(theirs.pvalue, abs=0.02),
        "permutation",
    )


def test_comparing_the_other_way_round_turns_every_sign(tmp_path: Path) -> None:
    runs = two_runs(tmp_path, A, B)
    one, other = row(compare(runs)), row(compare(runs[::-1]))
    assert other.difference.value == -one.difference.value
    assert (other.wins, other.losses, other.difference.p) == (one.losses, one.wins, one.difference.p)
    assert one.difference.interval is not None and other.difference.interval == pytest.approx(
        (-one.difference.interval[1], -one.difference.interval[0])
    )


def test_a_copy_of_a_run_does_not_differ_from_it(tmp_path: Path) -> None:
    first, _ = two_runs(tmp_path, A, B)
    copied = Path(shutil.copytree(first, tmp_path / "copy"))
    comparison = compare([first, copied])
    assert (row(comparison).difference.value, row(comparison).difference.p, row(comparison).ties) == (0.0, 1.0, 10)
    assert comparison.attributions[0].first is None


def test_lower_is_better_where_the_task_says_so(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 4}, MEAN.replace("true", "false"))
    runs = [
        make_run(folder, tmp_path / n, {"t": s}) for n, s in (("a", [1.5, 2.5, 3.0, 1.0]), ("b", [1.0, 1.0, 1.0, 2.0]))
    ]
    result_row = row(compare(runs))
    assert (result_row.wins, result_row.losses, result_row.higher_is_better) == (3, 1, False)


def test_perplexities_are_compared_by_their_influence_values(tmp_path: Path) -> None:
    """exp(-mean): the derivative is -perplexity, so documents move it by -perplexity times their score (delta method)."""
    folder = write_tasks(
        tmp_path / "tasks", {"t": [{}] * 40}, MEAN.replace("mean", "perplexity").replace("true", "false")
    )
    random = np.random.default_rng(2)
    a, b = random.normal(-2, 0.3, 40), random.normal(-1.9, 0.3, 40)
    runs = [make_run(folder, tmp_path / n, {"t": s.tolist()}) for n, s in (("a", a), ("b", b))]
    result_row = row(compare(runs))
    ppl_a, ppl_b = math.exp(-a.mean()), math.exp(-b.mean())
    assert result_row.difference.value == pytest.approx(ppl_b - ppl_a)
    assert result_row.difference.stderr == pytest.approx(np.std(-ppl_b * b + ppl_a * a, ddof=1) / math.sqrt(40))


def test_numbers_without_influence_values_are_recomputed(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 31}, MEAN.replace("mean", "median"))
    random = np.random.default_rng(3)
    a = random.normal(0, 1, 31)
    runs = [
        make_run(folder, tmp_path / n, {"t": s.tolist()})
        for n, s in (("a", a), ("b", a + 5 + random.normal(0, 0.1, 31)))
    ]
    result_row = row(compare(runs))
    assert result_row.difference.value == pytest.approx(5, abs=0.5)
    assert result_row.difference.interval is not None and result_row.difference.interval[0] > 3
    assert (result_row.difference.test, result_row.difference.p) == ("permutation", pytest.approx(0.0005, abs=0.002))


def test_an_aggregation_that_only_the_task_defines_is_reported_and_not_guessed(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 4}, MEAN.replace("mean", "!function helper.halved"))
    runs = [make_run(folder, tmp_path / n, {"t": s}) for n, s in (("a", [1, 1, 0, 1]), ("b", [0, 1, 0, 1]))]
    result_row = row(compare(runs))
    assert (result_row.difference.interval, result_row.difference.p) == (None, None)
    assert "a function of the task computes it" in result_row.difference.reason


# --- clusters --------------------------------------------------------------------------------------------------------


def test_clusters_are_one_draw_where_asked(tmp_path: Path) -> None:
    """Passages that win as a whole, three of three: with half a passage on either side 3/4 ± 1/4, of two degrees of freedom."""
    runs = two_runs(tmp_path, [0] * 6, [1, 1, 1, 1, 1, 1], passage=list("aabbcc"))
    result_row = row(compare(runs, cluster_by="passage"))
    assert (result_row.difference.clusters, result_row.difference.n, result_row.difference.p) == (
        3,
        6,
        pytest.approx(2 * stats.t.sf(3, 2)),
    )
    assert row(compare(runs)).difference.p == pytest.approx(1 / 64)


def test_clusters_are_one_draw_where_the_task_says_so(tmp_path: Path) -> None:
    rows = [{"passage": each} for each in "aabbcc"]
    folder = write_tasks(tmp_path / "tasks", {"t": rows}, MEAN + "cluster_by: passage\n")
    runs = [make_run(folder, tmp_path / n, {"t": s}) for n, s in (("a", [0] * 6), ("b", [1] * 6))]
    assert row(compare(runs)).difference.clusters == 3


def test_a_column_that_no_document_has_is_refused(tmp_path: Path) -> None:
    runs = two_runs(tmp_path, [0, 1], [1, 1], passage=["a", "b"])
    with pytest.raises(AssayError, match="no document has a column 'pasage' — did you mean 'passage'"):
        compare(runs, cluster_by="pasage")


# --- groups ----------------------------------------------------------------------------------------------------------


def grouped(tmp_path: Path, group: str = GROUP) -> list[Path]:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 4, "u": [{}] * 8}, group=group)
    first = {"t": [1, 1, 0, 0], "u": [1, 1, 1, 1, 0, 0, 0, 0]}
    second = {"t": [1, 0, 0, 0], "u": [1, 1, 1, 1, 1, 1, 0, 0]}
    options = {"tasks": ["g"]}
    return [make_run(folder, tmp_path / n, s, **options) for n, s in (("a", first), ("b", second))]


def test_a_group_is_compared_by_what_its_tasks_contribute(tmp_path: Path) -> None:
    """Alike: (0.25 + 0.75)/2 - (0.5 + 0.5)/2 = 0; by size: 7/12 - 6/12, one lost and two won, mid-p 2 · 4/8 - 3/8 = 5/8."""
    result_row = row(compare(grouped(tmp_path)), "g")
    assert (
        result_row.difference.value,
        result_row.difference.p,
        result_row.wins,
        result_row.losses,
        result_row.difference.n,
    ) == (
        0.0,
        1.0,
        2,
        1,
        12,
    )
    variance = (np.var([0, -1, 0, 0], ddof=1) / 4 + np.var([0] * 4 + [1, 1, 0, 0], ddof=1) / 8) / 4
    assert result_row.difference.stderr == pytest.approx(math.sqrt(variance))
    by_size = row(compare(grouped(tmp_path / "by_size", GROUP.replace("false", "true"))), "g")
    assert (by_size.difference.value, by_size.difference.p, by_size.difference.test) == (
        pytest.approx(1 / 12),
        pytest.approx(0.625),
        "McNemar",
    )


def same_data_twice(tmp_path: Path, more: str) -> Path:
    """Tasks t and u over the same 60 documents, in a group: each scores them as the other does."""
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 60}, more, GROUP)
    (folder / "u.yaml").write_text((folder / "t.yaml").read_text().replace("task: t\n", "task: u\n"))
    return folder


@pytest.mark.parametrize("aggregation", ["mean", "median"])
def test_a_group_of_the_same_documents_twice_varies_as_one_of_its_tasks(tmp_path: Path, aggregation: str) -> None:
    """Also where no document's part in a number is known: as independent ones they would have an error smaller by √2."""
    folder = same_data_twice(tmp_path, MEAN.replace("mean", aggregation))
    random = np.random.default_rng(0)
    a = random.normal(0, 1, 60)
    b = a + random.normal(0.1, 0.5, 60)
    runs = [make_run(folder, tmp_path / n, {"t": s.tolist()}, tasks=["g"]) for n, s in (("a", a), ("b", b))]
    comparison = compare(runs)
    assert row(comparison, "g").difference.stderr == pytest.approx(row(comparison, "t").difference.stderr)
    assert row(comparison, "g").difference.stderr == pytest.approx(row(comparison, "u").difference.stderr)
    results = run_world.results(runs[0])["results"]
    assert results["g"]["x_stderr,none"] == pytest.approx(results["t"]["x_stderr,none"])


def test_a_harmonic_mean_is_compared_by_its_derivatives(tmp_path: Path) -> None:
    """2/(1/t + 1/u): by t it is h²/(2 t²)."""
    result_row = row(compare(grouped(tmp_path, GROUP.replace("aggregation: mean", "aggregation: harmonic_mean"))), "g")
    assert result_row.difference.value == pytest.approx(2 / (4 + 4 / 3) - 0.5)
    assert result_row.difference.stderr is not None and result_row.difference.stderr > 0


def test_a_group_without_an_error_says_why(tmp_path: Path) -> None:
    result_row = row(compare(grouped(tmp_path, GROUP.replace("aggregation: mean", "aggregation: min"))), "g")
    assert (result_row.difference.value, result_row.difference.interval) == (-0.25, None)
    assert "least" in result_row.difference.reason


def test_a_run_that_does_not_note_a_group_s_members_is_reported_with_the_remedy(tmp_path: Path) -> None:
    runs = grouped(tmp_path)
    run_world.change_results(runs[1], lambda content: content["groups"]["g"]["rows"][0].pop("shares"))
    result_row = row(compare(runs), "g")
    assert (result_row.difference.value, result_row.difference.interval) == (0.0, None)
    assert "`assay score RUN` notes it" in result_row.difference.reason
    again = score([runs[1]]).folder
    assert row(compare([runs[0], again]), "g").difference.interval is not None


def test_a_mean_of_groups_is_taken_over_the_documents_that_both_runs_have(tmp_path: Path) -> None:
    """By size, on two of t's four and all of u's eight: (1 + 6)/... - (2 + 4)/..., over ten documents."""
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 4, "u": [{}] * 8}, group=GROUP.replace("false", "true"))
    first = {"t": [1, 1, 0, 0], "u": [1, 1, 1, 1, 0, 0, 0, 0]}
    second = {"t": [1, 0, 0, 0], "u": [1, 1, 1, 1, 1, 1, 0, 0]}
    a = make_run(folder, tmp_path / "a", first, tasks=["g"])
    b = make_run(folder, tmp_path / "b", second, tasks=["g"], samples={"t": [0, 1], "u": list(range(8))})
    comparison = compare([a, b])
    assert (row(comparison, "g").a, row(comparison, "g").b) == (pytest.approx(6 / 10), pytest.approx(7 / 10))
    assert (row(comparison).difference.n, row(comparison).only_a) == (2, 2)
    assert any("2 documents are in both runs, 2 only there" in note for note in comparison.notes)
    assert comparison.attributions[0].first == "data"


# --- several runs, several tests -----------------------------------------------------------------------------------


def test_several_runs_are_each_compared_with_the_first_and_corrected_together(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 10})
    scores = (A, B, [0] * 10)
    runs = [make_run(folder, tmp_path / name, {"t": s}) for name, s in zip("abc", scores, strict=True)]
    comparison = compare(runs)
    assert [each.run for each in comparison.rows] == [1, 2]
    # mid-p of 0 in 7: 1/128; of two tests the smaller counts double
    assert (row(comparison, run=2).difference.p, row(comparison, run=2).p_holm) == (
        pytest.approx(1 / 128),
        pytest.approx(2 / 128),
    )
    assert row(comparison).p_holm == pytest.approx(0.375)
    assert [run.label for run in comparison.runs] == ["a", "b", "c"]


def test_a_task_is_better_only_after_correction_for_multiple_tests(tmp_path: Path) -> None:
    """Six documents won of ten, none lost: p 1/64, and of five such tests 5/64, though the interval leaves 0 out."""
    tasks = ("t", "u", "v", "w", "y")
    folder = write_tasks(tmp_path / "tasks", {name: [{}] * 10 for name in tasks})
    a = make_run(folder, tmp_path / "a", dict.fromkeys(tasks, [0] * 10))
    b = make_run(folder, tmp_path / "b", {**dict.fromkeys(tasks, [0] * 10), "t": [1] * 6 + [0] * 4})
    result_row = row(compare([a, b]))
    assert (result_row.difference.p, result_row.p_holm) == (pytest.approx(1 / 64), pytest.approx(5 / 64))
    assert result_row.difference.interval is not None and result_row.difference.interval[0] > 0
    assert result_row.verdict == "unclear"
    assert row(compare([a, b], tasks=["t"])).verdict == "better"


def test_without_a_direction_a_difference_is_neither_better_nor_worse(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 10}, MEAN.replace(", higher_is_better: true", ""))
    runs = [make_run(folder, tmp_path / n, {"t": s}) for n, s in (("a", [0] * 10), ("b", [1] * 10))]
    comparison = compare(runs, flips=1)
    assert (row(comparison).higher_is_better, row(comparison).verdict) == (None, "differs")
    assert (row(comparison).wins, row(comparison).losses, row(comparison).ties) == (None, None, 0)
    assert [(flip.is_loss, flip.direction) for flip in comparison.flips] == [(None, "higher")]
    assert flip_lines(comparison.flips)[0].startswith("higher t · document")
    assert {point.verdict for series in share_differences(comparison, 1).series for point in series.points} == {""}
    assert "0 better, 0 worse, 1 different, 0 unclear" in comparison_summary(comparison)


def test_rows_are_chosen_by_task_group_and_metric(tmp_path: Path) -> None:
    runs = grouped(tmp_path)
    assert [each.name for each in compare(runs, tasks=["u"]).rows] == ["u"]
    assert [each.name for each in compare(runs, tasks=["g"]).rows] == ["g", "t", "u"]
    with pytest.raises(AssayError, match="no shared task or group named 'gg'"):
        compare(runs, tasks=["gg"])
    with pytest.raises(AssayError, match="no shared metric named 'y'"):
        compare(runs, metrics=["y"])


# --- documents and prompts -----------------------------------------------------------------------------------------


def test_other_prompts_are_refused_unless_allowed(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 10})
    a = make_run(folder, tmp_path / "a", {"t": A})
    text = (folder / "t.yaml").read_text()
    (folder / "t.yaml").write_text(text.replace("doc_to_text: n", 'doc_to_text: "Now: {{n}}"'))
    b = make_run(folder, tmp_path / "b", {"t": B})
    with pytest.raises(
        AssayError, match=r"task 't': the prompts of 10 of 10 documents differ.*--allow_different_prompts"
    ):
        compare([a, b])
    comparison = compare([a, b], allow_different_prompts=True)
    assert row(comparison).difference.value == pytest.approx(-0.2)
    assert comparison.attributions[0].first == "prompt"
    assert any(
        (each.stage, each.what, each.b) == ("prompt", "doc_to_text", "Now: {{n}}")
        for each in comparison.attributions[0].differences
    )


def test_data_that_grew_are_paired_by_what_documents_say(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 10})
    a = make_run(folder, tmp_path / "a", {"t": A})
    lines = (folder / "t.jsonl").read_text().splitlines(keepends=True)
    (folder / "t.jsonl").write_text("".join(['{"n": "t 10"}\n', *lines]))
    b = make_run(folder, tmp_path / "b", {"t": [*B, 1]})
    comparison = compare([a, b])
    assert (row(comparison).difference.n, row(comparison).only_b, row(comparison).difference.value) == (
        10,
        1,
        pytest.approx(-0.2),
    )
    assert any("paired by content" in note for note in comparison.notes)
    assert comparison.attributions[0].first == "data"


def test_documents_that_failed_in_one_run_are_left_out_of_both(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 10})
    a = make_run(folder, tmp_path / "a", {"t": A})
    b = make_run(folder, tmp_path / "b", {"t": ["broken", *B[1:]]})  # type: ignore[list-item]
    comparison = compare([a, b])
    assert (row(comparison).difference.n, row(comparison).only_a, row(comparison).a) == (9, 1, pytest.approx(6 / 9))
    assert any("the run is incomplete" in note for note in comparison.notes)


# --- what runs differ in -------------------------------------------------------------------------------------------


def test_another_model_is_where_runs_begin_to_differ(tmp_path: Path) -> None:
    [attribution] = compare(two_runs(tmp_path, A, B)).attributions
    assert (attribution.first, [each.stage for each in attribution.differences]) == ("model", ["model"])


def test_different_sampling_is_reported_before_a_different_model(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 10})
    a = make_run(folder, tmp_path / "a", {"t": A})
    b = make_run(folder, tmp_path / "b", {"t": B}, gen_kwargs="temperature=0.5,do_sample=true")
    attribution = compare([a, b]).attributions[0]
    assert attribution.first == "sampling"
    assert "model" in {each.stage for each in attribution.differences}


def test_a_scoring_of_a_run_differs_from_it_by_its_filter(tmp_path: Path) -> None:
    answers, golds = ["a.", "b", "c"], ["a", "b", "d"]
    generate(tmp_path / "tasks", answers, golds, output_path=str(tmp_path / "a"))
    scored = score([tmp_path / "a"], ScoreOptions(filters=["none=regex:([a-z])"])).folder
    comparison = compare([tmp_path / "a", scored], flips=3)
    assert row(comparison, metric="exact_match").difference.value == pytest.approx(1 / 3)
    assert comparison.attributions[0].first == "filter"
    [flip] = comparison.flips
    assert (flip.doc_id, flip.answer_a, flip.answer_b, flip.target, flip.is_loss) == (0, "a.", "a", "a", False)
    assert [run.label for run in comparison.runs] == ["a", "001"]


def test_flips_of_choices_name_the_likeliest_one(tmp_path: Path) -> None:
    for name, lls in (("a", [[-1.0, -2.0], [-1.0, -2.0]]), ("b", [[-3.0, -2.0], [-1.0, -2.0]])):
        choose(tmp_path / "tasks", lls, [0, 0], ["yes", "no"], output_path=str(tmp_path / name))
    [flip] = [each for each in compare([tmp_path / "a", tmp_path / "b"], flips=5).flips if each.metric == "acc"]
    assert (flip.doc_id, flip.answer_a, flip.answer_b, flip.target, flip.is_loss) == (0, "yes", "no", "yes", True)


@pytest.mark.slow
def test_a_real_model_with_fewer_examples_is_asked_in_other_words(tmp_path: Path) -> None:
    runs = [tmp_path / "three", tmp_path / "none"]
    for output, shots in zip(runs, (3, 0), strict=True):
        options = {"limit": 12, "num_fewshot": shots, "log_samples": False, "output_path": str(output)}
        simple_evaluate("embedded", tasks=["first_steps_arithmetic"], **options)
    with pytest.raises(
        AssayError, match=r"prompts of 4 tasks differ between the runs: .* and 1 more \(num_fewshot 3 → 0\) — "
    ):
        compare(runs)
    comparison = compare(runs, allow_different_prompts=True, gates=["acc > -100pp"])
    names = {each.name for each in comparison.rows}
    assert {"first_steps_arithmetic", "first_steps_sums", "first_steps_larger"} <= names
    assert all(row.difference.interval is not None for row in comparison.rows)
    attribution = {
        (each.what, each.a, each.b) for each in comparison.attributions[0].differences if each.stage == "prompt"
    }
    assert (comparison.attributions[0].first, comparison.decision) == ("prompt", "pass")
    assert ("num_fewshot", "3", "0") in attribution


# --- what cannot be compared ---------------------------------------------------------------------------------------


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    first, _ = two_runs(tmp_path, A, B)
    with pytest.raises(AssayError, match="the folder holds no run"):
        compare([first, tmp_path])


def test_a_run_that_has_not_ended_is_refused(tmp_path: Path) -> None:
    first, second = two_runs(tmp_path, A, B)
    (second / "results.json").unlink()
    edit(second / "manifest.json", status="running")
    with pytest.raises(AssayError, match=r"has not finished \(status: running\)"):
        compare([first, second])


def test_a_run_of_another_format_is_refused(tmp_path: Path) -> None:
    first, second = two_runs(tmp_path, A, B)
    edit(second / "manifest.json", format=2)
    with pytest.raises(AssayError, match="it has format 2, and this version of assay reads format 3"):
        compare([first, second])


def test_the_same_run_twice_is_refused(tmp_path: Path) -> None:
    first, _ = two_runs(tmp_path, A, B)
    with pytest.raises(AssayError, match="the same run is named twice"):
        compare([first, first / ".." / "a"])
    with pytest.raises(AssayError, match="takes two runs or more"):
        compare([first])


def test_runs_without_a_common_task_are_refused(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 2, "u": [{}] * 2})
    runs = [make_run(folder, tmp_path / name, {task: [0, 1]}) for name, task in (("a", "t"), ("b", "u"))]
    with pytest.raises(AssayError, match="the runs share no task: t there, u here"):
        compare(runs)


def test_missing_samples_are_reported(tmp_path: Path) -> None:
    runs = grouped(tmp_path)
    (runs[1] / "samples/u.parquet").unlink()
    comparison = compare(runs)
    assert {each.name for each in comparison.rows} == {"g", "t"}
    assert row(comparison, "g").difference.interval is None
    assert any(note.startswith("u: its samples are not in") for note in comparison.notes)


def test_a_number_computed_differently_in_the_other_run_is_reported_and_passes_no_gate(tmp_path: Path) -> None:
    """A mean of 0.48, a median of 0.3: neither is compared with what the other aggregation would have given."""
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 5})
    a = make_run(folder, tmp_path / "a", {"t": [0.1, 0.2, 0.3, 0.9, 0.9]})
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 5}, MEAN.replace("mean", "median"))
    b = make_run(folder, tmp_path / "b", {"t": [0.1, 0.2, 0.3, 0.9, 0.95]})
    comparison = compare([a, b], gates=["x > -50pp"])
    assert (row(comparison).a, row(comparison).b) == (pytest.approx(0.48), 0.3)
    assert (row(comparison).difference.interval, row(comparison).difference.p) == (None, None)
    assert (
        "the other run does not make its number of the documents' scores by mean" in row(comparison).difference.reason
    )
    assert comparison.decision == "inconclusive"


def test_scores_that_are_pairs_are_compared(tmp_path: Path) -> None:
    """Log-likelihoods with lengths: exp(-(sum of the first)/(sum of the second)), 12 over 12 and 9 over 12."""
    more = "metric_list: [{metric: x, aggregation: weighted_perplexity, higher_is_better: false}]\n"
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 4}, more)
    (folder / "helper.py").write_text("def values(doc, results):\n    return {'x': (-float(results[0]), 3)}\n")
    runs = [make_run(folder, tmp_path / n, {"t": s}) for n, s in (("a", [1, 5, 2, 4]), ("b", [1, 4, 2, 2]))]
    result_row = row(compare(runs))
    assert (result_row.a, result_row.b) == (pytest.approx(math.exp(12 / 12)), pytest.approx(math.exp(9 / 12)))
    assert (result_row.wins, result_row.losses, result_row.ties) == (2, 0, 2)
    assert result_row.difference.interval is not None


def test_equal_documents_are_paired_in_their_order() -> None:
    """Documents 1, 1, 2, 1 and then 2, 1, 1, 1 of other data: the first 1 goes with the first, the only 2 with the other."""
    first, second = np.array([1, 1, 2, 1], np.uint64), np.array([2, 1, 1, 7, 1, 1], np.uint64)
    a, b = _by_content(first, second)
    assert (a.tolist(), b.tolist()) == ([0, 1, 2, 3], [1, 2, 0, 4])
    nothing = _by_content(np.empty(0, np.uint64), second)
    assert [each.tolist() for each in nothing] == [[], []]


@given(st.lists(st.integers(1, 4), max_size=12), st.lists(st.integers(1, 4), max_size=12))
def test_pairs_of_equal_documents_are_those_that_a_list_would_give(first: list[int], second: list[int]) -> None:
    left: list[int | None] = list(second)
    expected = []
    for place, content in enumerate(first):
        if content in left:
            expected.append((place, left.index(content)))
            left[left.index(content)] = None
    a, b = _by_content(np.array(first, np.uint64), np.array(second, np.uint64))
    assert list(zip(a.tolist(), b.tolist(), strict=True)) == expected
