"""Gates never pass for want of evidence: what a run lacks, what failed in it, what too few documents say."""

from pathlib import Path

import pytest

from assay.cli import main
from assay.report.compare import Comparison, compare
from compared_world import GROUP, make_run, two_runs, write_tasks


def decided(found: Comparison) -> dict[str, str]:
    return {each.name: each.decision for each in found.verdicts}


# --- what the other run lacks ----------------------------------------------------------------------------------------


def lacking(tmp_path: Path, group: str = "") -> list[Path]:
    """The first run has t and u, the other one t alone, with the same scores."""
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 200, "u": [{}] * 200}, group=group)
    scores = {"t": [1, 0] * 100, "u": [1] * 200}
    whole = make_run(folder, tmp_path / "a", scores, tasks=["g"] if group else ["t", "u"])
    return [whole, make_run(folder, tmp_path / "b", {"t": scores["t"]})]


def test_a_run_that_lacks_a_task_passes_no_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = lacking(tmp_path)
    found = compare(runs, gates=["x > -2pp"])
    assert decided(found) == {"t": "pass", "u": "inconclusive"}
    assert "the other run has no such number" in found.verdicts[1].reason
    assert any("the first run alone has the task u" in note for note in found.notes)
    assert main(["compare", *map(str, runs), "--gate", "x > -2pp", "--summary"]) == 2
    assert "INCONCLUSIVE" in capsys.readouterr().out


def test_a_run_that_lacks_a_group_passes_no_gate(tmp_path: Path) -> None:
    found = compare(lacking(tmp_path, GROUP), gates=["x > -2pp"])
    assert decided(found) == {"t": "pass", "g": "inconclusive"}
    assert {each.name for each in found.rows} == {"t"}


def test_a_named_row_that_the_other_run_lacks_is_inconclusive(tmp_path: Path) -> None:
    runs = lacking(tmp_path)
    assert decided(compare(runs, gates=["u/x > -2pp"])) == {"u": "inconclusive"}
    assert decided(compare(runs, gates=["*/x > -2pp"])) == {"t": "pass", "u": "inconclusive"}


def test_tasks_that_are_not_asked_for_are_not_missed(tmp_path: Path) -> None:
    found = compare(lacking(tmp_path), tasks=["t"], gates=["x > -2pp"])
    assert (decided(found), list(found.notes)) == ({"t": "pass"}, [])


def test_samples_that_are_gone_pass_no_gate(tmp_path: Path) -> None:
    runs = two_runs(tmp_path, [1, 0] * 100, [1, 0] * 100)
    (runs[1] / "samples/t.parquet").unlink()
    assert decided(compare(runs, gates=["x > -50pp"])) == {"t": "inconclusive"}


def test_a_task_that_the_other_run_alone_has_is_told(tmp_path: Path) -> None:
    found = compare(lacking(tmp_path)[::-1], gates=["x > -2pp"])
    assert decided(found) == {"t": "pass"}
    assert any("alone has the task u" in note for note in found.notes)
