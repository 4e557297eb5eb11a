"""Gates never pass for want of evidence: what a run lacks, what failed in it, what too few documents say."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

import run_world
from assay.cli import main
from assay.comparison.compare import compare
from assay.comparison.gates import Plain, parse_gate
from assay.errors import AssayError
from assay.report.comparison_text import comparison_summary, comparison_tables
from assay.report.table_writers import write_markdown
from assay.runs.comparison import Comparison
from compared_world import GROUP, make_run, two_runs, write_tasks


def decided(comparison: Comparison) -> dict[str, str]:
    return {each.name: each.decision for each in comparison.verdicts}


# --- what the other run lacks ----------------------------------------------------------------------------------------


def lacking(tmp_path: Path, group: str = "") -> list[Path]:
    """The first run has t and u, the other one t alone, with the same scores."""
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 200, "u": [{}] * 200}, group=group)
    scores = {"t": [1, 0] * 100, "u": [1] * 200}
    whole = make_run(folder, tmp_path / "a", scores, tasks=["g"] if group else ["t", "u"])
    return [whole, make_run(folder, tmp_path / "b", {"t": scores["t"]})]


def test_a_run_that_lacks_a_task_passes_no_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = lacking(tmp_path)
    comparison = compare(runs, gates=["x > -2pp"])
    assert decided(comparison) == {"t": "pass", "u": "inconclusive"}
    assert "the other run has no such number" in comparison.verdicts[1].reason
    assert any("the first run alone has the task u" in note for note in comparison.notes)
    assert main(["compare", *map(str, runs), "--gate", "x > -2pp", "--summary"]) == 4
    assert "INCONCLUSIVE" in capsys.readouterr().out


def test_a_run_that_lacks_a_group_passes_no_gate(tmp_path: Path) -> None:
    comparison = compare(lacking(tmp_path, GROUP), gates=["x > -2pp"])
    assert decided(comparison) == {"t": "pass", "g": "inconclusive"}
    assert {each.name for each in comparison.rows} == {"t"}


def test_a_named_row_that_the_other_run_lacks_is_inconclusive(tmp_path: Path) -> None:
    runs = lacking(tmp_path)
    assert decided(compare(runs, gates=["u/x > -2pp"])) == {"u": "inconclusive"}
    assert decided(compare(runs, gates=["*/x > -2pp"])) == {"t": "pass", "u": "inconclusive"}


def test_tasks_that_are_not_asked_for_are_not_missed(tmp_path: Path) -> None:
    comparison = compare(lacking(tmp_path), tasks=["t"], gates=["x > -2pp"])
    assert (decided(comparison), list(comparison.notes)) == ({"t": "pass"}, [])


def test_missing_samples_pass_no_gate(tmp_path: Path) -> None:
    runs = two_runs(tmp_path, [1, 0] * 100, [1, 0] * 100)
    (runs[1] / "samples/t.parquet").unlink()
    assert decided(compare(runs, gates=["x > -50pp"])) == {"t": "inconclusive"}


def test_a_task_that_only_the_other_run_has_is_reported(tmp_path: Path) -> None:
    comparison = compare(lacking(tmp_path)[::-1], gates=["x > -2pp"])
    assert decided(comparison) == {"t": "pass"}
    assert any("alone has the task u" in note for note in comparison.notes)


# --- runs that are not whole ---------------------------------------------------------------------------------------


def failing(tmp_path: Path, failed: int, group: str = "", **options: Any) -> list[Path]:
    """Two runs of 200 documents that agree, all of them right; the last ones failed in the second."""
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 200, "u": [{}] * 200}, group=group, **options)
    right = {"t": [1] * 200, "u": [1] * 200}
    broken: dict[str, Any] = {**right, "u": [1] * (200 - failed) + ["broken"] * failed}
    tasks = ["g"] if group else ["t", "u"]
    return [make_run(folder, tmp_path / n, s, tasks=tasks) for n, s in (("a", right), ("b", broken))]


def test_documents_that_failed_are_counted_at_their_worst(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half of u failed: were those all wrong, u would be half a point lower. 100 documents that agree: 1 − 0.05^(1/100) of others
    may differ, 2.95pp."""
    runs = failing(tmp_path, 100)
    comparison = compare(runs, gates=["u/x > -2pp"])
    assert decided(comparison) == {"u": "inconclusive"}
    assert comparison.verdicts[0].bound == pytest.approx(-0.5 - 0.0295130, rel=1e-6)
    worst = "assuming the worst for the 100 documents not scored in both runs"
    assert comparison.verdicts[0].reason == f"none of 100 documents differs; {worst}"
    assert decided(compare(runs, gates=["u/x > -60pp"])) == {"u": "pass"}
    assert decided(compare(runs, gates=["u/x < 2pp"])) == {"u": "inconclusive"}
    assert decided(compare(runs, gates=["u/x < 3pp"])) == {"u": "pass"}  # were they all right, no more
    assert main(["compare", *map(str, runs), "--gate", "u/x > -3pp"]) == 4
    assert main(["compare", *map(str, runs), "--gate", "u/x > -3pp", "--allow_incomplete"]) == 0
    capsys.readouterr()


def test_in_a_group_failed_documents_count_with_the_weight_of_their_task(tmp_path: Path) -> None:
    """Half of the worst case of u. Of the documents that agree, one of u moves the mean furthest, by ½/100: 1 − 0.05^0.005."""
    [verdict] = compare(failing(tmp_path, 100, GROUP), gates=["x > -2pp"]).verdicts
    assert (verdict.name, verdict.decision) == ("g", "inconclusive")
    assert verdict.bound == pytest.approx(-0.25 - 0.0148669, rel=1e-6)


def test_a_few_documents_that_failed_leave_a_gate_decidable(tmp_path: Path) -> None:
    assert decided(compare(failing(tmp_path, 1), gates=["u/x > -2pp"])) == {"u": "pass"}


def test_a_relative_gate_counts_them_as_well(tmp_path: Path) -> None:
    runs = failing(tmp_path, 100)
    [verdict] = compare(runs, gates=["u/x > -40% rel"]).verdicts
    assert verdict.decision == "inconclusive"
    assert decided(compare(runs, gates=["u/x > -60% rel"])) == {"u": "pass"}


def test_of_scores_without_bounds_one_in_a_hundred_may_lack(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 200})
    a = make_run(folder, tmp_path / "a", {"t": [0.5, 1.5] * 100})
    for failed, expected in ((2, "pass"), (3, "inconclusive")):
        scores: list[Any] = [0.6, 1.7] * 100
        b = make_run(folder, tmp_path / f"b{failed}", {"t": [*scores[:-failed], *["broken"] * failed]})
        assert decided(compare([a, b], gates=["x > 0"])) == {"t": expected}
        assert decided(compare([a, b], gates=["x > 0"], allow_incomplete=True)) == {"t": "pass"}


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_run_that_is_begun_again_is_refused_and_one_that_was_stopped_passes_no_gate(tmp_path: Path) -> None:
    runs = two_runs(tmp_path, [1, 0] * 100, [1, 0] * 100)
    edit(runs[1] / "manifest.json", status="stopped")
    comparison = compare(runs, gates=["x > -2pp"])
    assert decided(comparison) == {"t": "inconclusive"}
    assert any("the run is stopped" in note for note in comparison.notes)
    edit(runs[1] / "manifest.json", status="running")
    with pytest.raises(AssayError, match=r"has not finished \(status: running\)"):
        compare(runs, gates=["x > -2pp"])


def test_documents_that_were_not_asked_leave_a_gate_open(tmp_path: Path) -> None:
    runs = two_runs(tmp_path, [1, 0] * 100, [1, 0] * 100)
    run_world.change_results(runs[1], lambda content: content["tasks"]["t"].update(not_asked=50))
    assert decided(compare(runs, gates=["x > -2pp"])) == {"t": "inconclusive"}


# --- too few documents to say anything -----------------------------------------------------------------------------


def test_documents_that_all_differ_by_the_same_amount_decide_nothing(tmp_path: Path) -> None:
    """Two documents that are better by a half, and answers that are not the same: what others would be is unknown."""
    comparison = compare(two_runs(tmp_path, [0.5, 1.5], [1.0, 2.0]), gates=["x > -0.5pp"])
    assert (decided(comparison), comparison.verdicts[0].difference) == ({"t": "inconclusive"}, 0.5)
    assert comparison.verdicts[0].reason == "all documents differ alike"


def test_rounding_does_not_count_as_spread(tmp_path: Path) -> None:
    """0.1 more for each: as numbers of the machine the differences are not all equal."""
    a = [0.1 * n for n in range(30)]
    comparison = compare(two_runs(tmp_path, a, [each + 0.1 for each in a]), gates=["x > 0"])
    assert (comparison.rows[0].difference.stderr, comparison.rows[0].difference.interval) == (0.0, None)
    assert decided(comparison) == {"t": "inconclusive"}


def test_two_clusters_that_agree_pass_no_gate(tmp_path: Path) -> None:
    """Of two clusters that agree nothing much follows: 1 − 0.05^½ of others may differ, and they count for all."""
    runs = two_runs(tmp_path, [1, 0] * 250, [1.0, 0.0] * 250, c=[n // 250 for n in range(500)])
    assert decided(compare(runs, gates=["x > -2pp"])) == {"t": "pass"}
    comparison = compare(runs, gates=["x > -2pp"], cluster_by="c")
    assert decided(comparison) == {"t": "inconclusive"}
    assert comparison.verdicts[0].bound == pytest.approx(-0.7763932, rel=1e-6)


# --- runs that score alike --------------------------------------------------------------------------------------------


def test_no_difference_passes_if_the_margin_is_wider_than_what_so_many_documents_leave_open(tmp_path: Path) -> None:
    """0.98^148 = 0.0503 and 0.98^149 = 0.0493: of 149 documents without a difference, at most 2 % of all can differ."""
    for n, expected in ((148, "inconclusive"), (149, "pass")):
        runs = two_runs(tmp_path / str(n), [1] * n, [1.0] * n)  # two models, by what they are known by
        [verdict] = compare(runs, gates=["x > -2pp"]).verdicts
        assert (verdict.decision, verdict.reason.partition(";")[0]) == (expected, f"none of {n} documents differs")
    runs = two_runs(tmp_path / "few", [1, 0] * 10, [1.0, 0.0] * 10)
    [verdict] = compare(runs, gates=["x > -2pp"]).verdicts
    assert (verdict.decision, verdict.reason) == ("inconclusive", "none of 20 documents differs; 149 would decide it")
    [verdict] = compare(runs, gates=["x > -2% rel"]).verdicts  # of 0.5, half as wide
    assert verdict.reason == "none of 20 documents differs; 299 would decide it"
    [verdict] = compare(runs, gates=["x >= 0"]).verdicts
    assert (verdict.decision, verdict.reason) == ("inconclusive", "none of 20 documents differs")
    assert decided(compare(runs, gates=["x > 20pp"])) == {"t": "fail"}  # 1 − 0.05^(1/20) = 13.9pp at most
    assert main(["compare", *map(str, runs), "--gate", "x > -2pp"]) == 4


def test_the_same_model_without_a_difference_passes_any_gate_that_lets_no_difference_pass(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 4})
    runs = [make_run(folder, tmp_path / name, {"t": [0.2, 3.0, 0.0, 1.0]}) for name in "ab"]
    for gate, expected in (("x >= 0", "pass"), ("x > -0.001", "pass"), ("x > 0", "fail")):
        [verdict] = compare(runs, gates=[gate]).verdicts
        assert (verdict.decision, verdict.reason) == (expected, "same model, and no document differs")
    other = make_run(folder, tmp_path / "c", {"t": [0.2, 3, 0, 1]})  # the same scores of another model, without bounds
    [verdict] = compare([runs[0], other], gates=["x > -0.1"]).verdicts
    assert verdict.decision == "inconclusive"
    assert verdict.reason == "no document differs, and nothing bounds how far others could"


def test_scores_within_bounds_follow_the_rule_of_rates(tmp_path: Path) -> None:
    """From 0 to 4: half a point is an eighth of the scale, and 0.875^22 = 0.053, 0.875^23 = 0.046."""
    more = "metric_list: [{metric: x, aggregation: mean, higher_is_better: true, bounds: [0, 4]}]\n"
    for n, expected in ((22, "inconclusive"), (23, "pass")):
        folder = write_tasks(tmp_path / str(n) / "tasks", {"t": [{}] * n}, more)
        scores: list[list[float]] = [[2.0, 3.5] * n, [2, 3.5] * n]
        runs = [make_run(folder, tmp_path / str(n) / name, {"t": s[:n]}) for name, s in zip("ab", scores, strict=True)]
        assert decided(compare(runs, gates=["x > -0.5"])) == {"t": expected}


def test_gates_of_one_command_are_decided_together(tmp_path: Path) -> None:
    """149 documents alike pass a margin of 2pp alone; of two such gates each has α/2, and 0.98^149 > 0.025: neither passes.
    If one has 300 documents it passes at α/2, which leaves α for the other (Holm)."""
    for sizes, expected in (
        ((149, 149), ["inconclusive"] * 2),
        ((149, 300), ["pass"] * 2),
        ((148, 300), ["inconclusive", "pass"]),
    ):
        where = tmp_path / f"{sizes[0]}-{sizes[1]}"
        folder = write_tasks(where / "tasks", {name: [{}] * size for name, size in zip("tu", sizes, strict=True)})
        scores = {name: [1] * size for name, size in zip("tu", sizes, strict=True)}
        again = {name: [1.0] * size for name, size in zip("tu", sizes, strict=True)}
        runs = [make_run(folder, where / name, each) for name, each in (("a", scores), ("b", again))]
        comparison = compare(runs, gates=["t/x > -2pp", "u/x > -2pp"])
        assert [each.decision for each in comparison.verdicts] == expected
        assert "2 gates are decided together: the level of each is raised for that (Holm)" in comparison.notes
        assert decided(compare(runs, gates=["u/x > -2pp"])) == {"u": "pass"}


def test_runs_that_do_not_differ_are_called_the_same(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 4})
    runs = [make_run(folder, tmp_path / name, {"t": [0.5] * 4}) for name in "ab"]
    [row] = compare(runs).rows
    assert (row.verdict, row.same, row.difference.reason) == ("same", "answers", "no document differs")
    [row] = compare(two_runs(tmp_path / "other", [1, 0, 1], [1.0, 0.0, 1.0])).rows  # in other words, at that
    assert (row.verdict, row.same, row.difference.interval is not None) == ("same", "scores", True)
    table = write_markdown(*comparison_tables(compare(runs)))
    assert "same answers" in table and "no document differs" in table
    assert "0 better, 0 worse, 1 the same, 0 unclear" in comparison_summary(compare(runs))


# --- what is written -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written", ["acc > 1e400", "cost <= 1e400", "acc >= -1e999pp", "tokens <= 1e305M", "time < 1e307d"]
)
@pytest.mark.parametrize("plain", ["difference", "value"])
def test_a_threshold_that_is_not_finite_is_refused(written: str, plain: Plain) -> None:
    if plain == "difference" and written[-1] in "Md":
        return  # a difference has no such unit
    with pytest.raises(AssayError, match="the threshold must be a finite number"):
        parse_gate(written, plain=plain)


@pytest.mark.parametrize(
    "start, end",
    [(">" + " " * 50_000, "x"), ("acc >" + " " * 50_000, "x"), ("acc > " + "1" * 50_000, "x"), ("a/" * 25_000, "> 1"),
     ("a,b/" * 12_000, " ! 1"), ("acc > 1e" + "1" * 50_000, "x"), ("acc > 1 %" + " " * 50_000, "of"), (" " * 50_000, "")],
)  # fmt: skip
def test_a_long_text_that_is_no_gate_is_refused_in_linear_time(start: str, end: str) -> None:
    began = time.process_time()
    with pytest.raises(AssayError, match="invalid gate"):
        parse_gate(start + end)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    "written, name, metric, filter, threshold",
    [("a/b/acc,strict > 0.5", "a/b", "acc", "strict", 0.5), (" g / acc>=-.5 ", "g", "acc", None, -0.5),
     ("acc , > 1", None, None, None, None), ("/acc > 1", None, None, None, None), ("a b/acc < 1e-3", "a b", "acc", None, 1e-3)],
)  # fmt: skip
def test_a_gate_is_a_name_a_metric_a_filter_and_a_threshold(
    written: str, name: str | None, metric: str | None, filter: str | None, threshold: float | None
) -> None:
    if metric is None:
        with pytest.raises(AssayError, match="invalid gate"):
            parse_gate(written)
        return
    gate = parse_gate(written)
    assert (gate.name, gate.metric, gate.filter, gate.threshold) == (name, metric, filter, threshold)
