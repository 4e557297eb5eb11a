"""`assay compare` and `assay plan` as they are used: gates, exit codes, formats, and what is not accepted."""

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from statsmodels.stats.power import NormalIndPower

from assay import simple_evaluate
from assay.cli import main
from assay.comparison.compare import compare
from assay.comparison.gates import parse_gate
from assay.errors import AssayError
from assay.models import Scripted
from assay.report.comparison_text import comparison_csv, comparison_summary, gate_line
from assay.runs.comparison import ComparedRow, ComparedRun, Comparison
from assay.statistics.paired import PairedDifference
from compared_world import GROUP, MEAN, make_run, two_runs, write_tasks
from small_runs import SAMPLED

pytestmark = pytest.mark.slow  # whole runs: too long for `make quick`

WORSE = [1] * 60 + [0] * 40
BETTER = [1] * 90 + [0] * 10
"""Thirty of a hundred documents won, none lost: one-sided 95 % bounds of 30/101 ± 1.645 · √(21.2 + 1)/101."""


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    return [str(each) for each in two_runs(tmp_path, WORSE, BETTER)]


def bounds(z: float = 1.644854) -> tuple[float, float]:
    half = z * math.sqrt((30 - 9) * 100 / 99 / 100**2 + 1 / 100**2) * 100 / 101
    return 30 / 101 - half, 30 / 101 + half


# --- gates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "code", "decision"),
    [
        ("x > -0.5pp", 0, "pass"),
        ("x >= 20pp", 0, "pass"),
        ("t/x > 0.2", 0, "pass"),
        ("x > 30pp", 4, "inconclusive"),
        ("x > 50pp", 1, "fail"),
        ("x < 50pp", 0, "pass"),
        ("x <= 10pp", 1, "fail"),
        ("x > 30% rel", 0, "pass"),
        ("x > 0.5rel", 4, "inconclusive"),
        ("x > 90%rel", 1, "fail"),
    ],
)
def test_a_gate_decides_by_the_one_sided_bound(
    gate: str, code: int, decision: str, runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *runs, "--gate", gate, "--format", "json"]) == code
    loaded = json.loads(capsys.readouterr().out)
    assert loaded["decision"] == decision
    assert loaded["gates"][0]["decision"] == decision


def test_the_bound_that_decides_a_gate_is_printed(runs: list[str]) -> None:
    [passed] = compare([Path(run) for run in runs], gates=["x > -0.5pp"]).verdicts
    [failed] = compare([Path(run) for run in runs], gates=["x > 50pp"]).verdicts
    assert (passed.bound, failed.bound) == (pytest.approx(bounds()[0], rel=1e-6), pytest.approx(bounds()[1], rel=1e-6))


def test_the_worst_of_several_gates_counts(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *runs, "--gate", "x > 0pp", "--gate", "x > 30pp"]) == 4
    assert main(["compare", *runs, "--gate", "x > 0pp", "--gate", "x > 30pp", "--gate", "x > 50pp"]) == 1
    assert "FAIL: b against a" in capsys.readouterr().out


def test_runs_that_agree_pass_a_gate_that_allows_a_little(tmp_path: Path) -> None:
    scores = [0.25, 0.5, 0.75, 1.5]
    comparison = compare(_twins(tmp_path, scores), gates=["x > -0.5pp"])
    assert comparison.decision == "pass"
    assert comparison.verdicts[0].reason == "same model, and no document differs"


def _twins(tmp_path: Path, scores: list[float]) -> list[Path]:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * len(scores)})
    return [make_run(folder, tmp_path / name, {"t": scores}) for name in "ab"]


def test_a_gate_without_a_name_applies_to_the_top_level_rows(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 4, "u": [{}] * 4}, group=GROUP)
    scores = {"t": [1, 0, 1, 0], "u": [1, 1, 0, 0]}
    runs = [make_run(folder, tmp_path / name, scores, tasks=["g"]) for name in "ab"]
    assert [each.name for each in compare(runs, gates=["x > -1pp"]).verdicts] == ["g"]
    assert [each.name for each in compare(runs, gates=["*/x > -1pp"]).verdicts] == ["g", "t", "u"]


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ("x", "invalid gate 'x'"),
        ("x > much", "invalid gate"),
        ("x > -1%", "does not say of what it is a percentage"),
        ("xx > -1pp", "no shared metric named 'xx' — did you mean 'x'?"),
        ("tt/x > -1pp", "no shared task or group named 'tt' has 'x' — did you mean 't'?"),
        ("x,strict > -1pp", "no shared metric named 'x,strict'"),
    ],
)
def test_a_gate_that_means_nothing_is_refused(
    gate: str, said: str, runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *runs, "--gate", gate]) == 2
    assert said in capsys.readouterr().err


def test_a_gate_is_read_with_its_filter_and_unit() -> None:
    gate = parse_gate(" a/b/exact_match,strict >= −2.5% rel ")
    assert (gate.name, gate.metric, gate.filter, gate.sign) == ("a/b", "exact_match", "strict", ">=")
    assert (gate.threshold, gate.relative) == (-0.025, True)


@pytest.mark.parametrize(
    ("metric", "written", "shown"),
    [
        ("ppl", "ppl < 0.5", "+0.3000, bound "),
        ("relevance", "relevance > -0.1", "+0.3000, bound "),
        ("relevance", "relevance > -10pp", "+30.00pp, bound "),
        ("ppl", "ppl > -10% rel", "+50.00% rel, bound "),
    ],
)
def test_a_gate_is_printed_in_its_own_unit_whatever_the_metric_is_called(
    metric: str, written: str, shown: str, tmp_path: Path
) -> None:
    """0.6 to 0.9: 0.3 more, 30 points, half as much again."""
    more = MEAN.replace("metric: x", f"metric: {metric}") + "process_results: !function named.values\n"
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 100}, more)
    text = (folder / "t.yaml").read_text().replace("process_results: !function helper.values\n", "")
    (folder / "t.yaml").write_text(text)
    (folder / "named.py").write_text(f"def values(doc, results):\n    return {{{metric!r}: float(results[0])}}\n")
    runs = [make_run(folder, tmp_path / name, {"t": s}) for name, s in (("a", WORSE), ("b", BETTER))]
    assert f": t {shown}" in gate_line(compare(runs, gates=[written]).verdicts[0])


# --- what is said ----------------------------------------------------------------------------------------------------


def test_the_summary_has_eight_lines_at_most(tmp_path: Path) -> None:
    tasks = {name: [{}] * 12 for name in "tuvwyz"}
    folder = write_tasks(tmp_path / "tasks", tasks)
    scores = [{name: [number] * 12 for name in tasks} for number in (1, 0)]
    runs = [make_run(folder, tmp_path / name, each) for name, each in zip("ab", scores, strict=True)]
    text = comparison_summary(compare(runs, gates=["*/x > -0.5pp", "x > -100pp"]))
    assert len(text.splitlines()) <= 8
    assert text.startswith("FAIL: b against a\n✗ */x > -0.5pp: t -100.00pp")
    assert "6 worse" in text
    assert "further gates" in text
    assert "first difference: model" in text


def test_the_table_shows_both_numbers_their_difference_and_why(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *runs, "--flips", "1"]) == 0
    said = capsys.readouterr().out
    [line] = [line for line in said.splitlines() if line.startswith("|t ")]
    low, high = (f"{end:+.3f}" for end in bounds(1.959964))
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        "t", "x ↑", "0.6000", "0.9000", f"+0.3000 [{low}, {high}]", "better", "100"
    ]  # fmt: skip
    assert "b: first difference: model" in said
    assert "better t · document 60 · x 0 → 1" in said
    assert main(["compare", *runs, "--wide"]) == 0
    wide = capsys.readouterr().out
    assert "|0.6000|0.9000|+0.3000|" in wide
    assert "|          30 / 0 / 70|" in wide


def test_differences_are_drawn_where_that_is_asked_for(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *runs, "--plot"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if "●" in line]
    drawn = line.split()[2]
    assert line.startswith("t x")
    assert (
        drawn.index("│") == len(drawn) // 2 < drawn.index("─") < drawn.index("●")
    )  # all of the interval is above nothing
    assert main(["compare", *runs]) == 0
    assert "●" not in capsys.readouterr().out


def test_csv_has_a_line_for_every_row(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["compare", *runs, "--format", "csv"])
    [row] = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["name"], row["metric"], row["n"], row["wins"], row["verdict"]) == ("t", "x", "100", "30", "better")
    assert float(row["low"]) < 0.3 < float(row["high"])


def test_csv_marks_names_that_a_spreadsheet_would_compute(tmp_path: Path) -> None:
    row = ComparedRow("task", "=HYPERLINK(1)", "+a", "-m", "@f", 1, 0, True, 0.5, 0.25, PairedDifference(-0.25, n=2))
    runs = [ComparedRun(Path(name), name, "m", "complete") for name in ("=a", "b")]
    [result] = csv.DictReader(io.StringIO(comparison_csv(Comparison(runs, [row]))))
    reported = [result[name] for name in ("run_a", "name", "alias", "metric", "filter", "difference")]
    assert reported == ["'=a", "'=HYPERLINK(1)", "'+a", "'-m", "'@f", "-0.25"]


def test_json_is_the_whole_comparison(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["compare", *runs, "--format", "json"])
    loaded = json.loads(capsys.readouterr().out)
    assert set(loaded) == {"decision", "level", "power", "runs", "rows", "attributions", "gates", "flips", "notes"}
    assert loaded["decision"] is None
    assert loaded["attributions"][0]["first"] == "model"


@pytest.mark.parametrize(("option", "value"), [("--level", "0"), ("--power", "1.2")])
def test_an_invalid_level_is_refused(
    option: str, value: str, runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *runs, option, value]) == 2
    assert f"{option}: " in capsys.readouterr().err


@pytest.mark.parametrize("style", ["table", "md"])
def test_a_level_has_the_digits_that_it_was_given_with(
    style: str, runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *runs, "--level", "0.995", "--format", style]) == 0
    printed = capsys.readouterr().out
    assert "99.5 %" in printed
    assert "100 %" not in printed


# --- assay plan --------------------------------------------------------------------------------------------------------


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, object]]:
    assert main(["plan", *arguments, "--format", "json"]) == 0
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}


def test_a_plan_of_tasks_is_by_the_metric_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    bundled = ["first_steps_facts", "first_steps_opposites"]
    assert set(planned(capsys, *bundled, "--mde", "5pp", "--metric", "acc_norm")) == set(bundled)
    assert main(["plan", *bundled, "--mde", "5pp", "--metric", "acc_nrom"]) == 2
    assert "no task has a metric named 'acc_nrom' — did you mean 'acc_norm'?" in capsys.readouterr().err
    rows = planned(capsys, *bundled, "--mde", "5pp", "--metric", "acc_mutual_info")
    assert set(rows) == {"first_steps_facts"}  # the other one has no such metric


def needed(variance: float, effect: float, power: float = 0.8, alpha: float = 0.05) -> int:
    return math.ceil(NormalIndPower().solve_power(effect / math.sqrt(variance), alpha=alpha, power=power, ratio=0))


def test_without_a_run_the_worst_case_is_planned_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rates of ½ with a correlation of ½: a difference has the variance 2 · ¼ · ½. The mean of tasks with 40 and 20 documents,
    each alike, has ¼ · (1/40 + 1/20) of it, 9/8 of what 60 documents would give."""
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 40, "u": [{}] * 20}, group=GROUP)
    plan = planned(capsys, "g", "--mde", "5pp", "--include_path", str(folder), "--no_defaults")
    assert {name: row["documents"] for name, row in plan.items()} == {"g": 60, "t": 40, "u": 20}
    assert {plan[name]["needed"] for name in "tu"} == {needed(0.25, 0.05)}
    assert plan["g"]["needed"] == needed(0.25 * 60 * (1 / 40 + 1 / 20) / 4, 0.05)
    assert plan["t"]["enough"] is False
    other = planned(capsys, "t", "--mde", "5pp", "--include_path", str(folder), "--no_defaults", "--correlation", "0.8")
    assert other["t"]["needed"] == needed(0.1, 0.05)


def test_with_a_run_its_spread_is_planned_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = np.random.default_rng(1).normal(0, 2, 50).round(3).tolist()
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 50})
    baseline = make_run(folder, tmp_path / "a", {"t": scores})
    result = planned(capsys, "--mde", "0.5", "--baseline", str(baseline), "--power", "0.9", "--alpha", "0.01")["t"]
    assert result["needed"] == needed(float(np.var(scores, ddof=1)), 0.5, 0.9, 0.01)


def test_with_two_runs_their_differences_are_planned_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(2)
    a = random.normal(0, 2, 50)
    b = a + random.normal(0, 0.5, 50)
    paths = two_runs(tmp_path, a.tolist(), b.tolist())
    result = planned(capsys, "--mde", "0.1", "--baseline", *map(str, paths))["t"]
    assert result["needed"] == needed(float(np.var(b - a, ddof=1)), 0.1)


def test_repeats_reduce_only_the_spread_of_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twenty documents answered rightly in one of two answers: all spread is within them, 2 · ½ for a difference."""
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 20}, MEAN + SAMPLED + "repeats: 2\n")
    model = Scripted(generate=lambda prompt, params, repeat: str(repeat), identity="coin")
    yaml = (folder / "t.yaml").read_text().replace("process_results: !function helper.values\n", "")
    yaml = yaml.replace(
        MEAN,
        "metric_list: [{metric: exact_match}]\nfilter_list: [{name: all, filter: [{function: take_first_k, k: 2}]}]\n",
    )
    (folder / "t.yaml").write_text(yaml.replace("doc_to_target: n", 'doc_to_target: "1"'))
    options = {"include_path": str(folder), "include_defaults": False, "output_path": str(tmp_path / "a")}
    simple_evaluate(model, tasks=["t"], **options)
    result = planned(capsys, "--mde", "10pp", "--baseline", str(tmp_path / "a"))["t"]
    assert result["spread"] == {"documents": 0.0, "answers": 1.0}
    assert result["needed"] == needed(1.0, 0.1)
    assert result["repeats_needed"] == math.ceil(needed(1.0, 0.1) / 20)
    assert planned(capsys, "--mde", "10pp", "--repeats", "4", "--baseline", str(tmp_path / "a"))["t"][
        "needed"
    ] == needed(0.25, 0.1)


def test_a_task_with_too_few_documents_shows_its_detectable_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 40})
    assert main(["plan", "t", "--mde", "1pp", "--include_path", str(folder), "--no_defaults"]) == 0
    said = capsys.readouterr().out
    expected = (1.959964 + 0.841621) * math.sqrt(0.25 / 40) * 100
    assert f"too few documents in 1 of 1; t detects {expected:.1f}pp at best" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mde", "1pp"], "assay plan: no tasks"),
        (["t", "--mde", "much"], "invalid difference 'much'"),
        (["t", "--mde", "0pp"], "invalid difference '0pp'"),
        (["t", "--mde", "1pp", "--power", "2"], "--power: must be between 0 and 1, got 2.0"),
        (["t", "--mde", "1pp", "--repeats", "0"], "--repeats: must be at least 1, got 0"),
        (["t", "--mde", "1pp", "--baseline", "nowhere"], "the folder holds no run"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_metric_that_the_run_has_not_is_refused(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--mde", "1pp", "--baseline", runs[0], "--metric", "acc"]) == 2
    assert "no metric named 'acc'" in capsys.readouterr().err
    with pytest.raises(AssayError):
        compare([Path(runs[0])])
