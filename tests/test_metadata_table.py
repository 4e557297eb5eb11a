"""`assay table --by metadata.domain`: what is said of tasks and groups is used."""

import json
from math import sqrt
from pathlib import Path

import pytest

from assay import Scripted, run
from assay.cli import main
from assay.errors import ConfigError
from assay.report.report_table import NumberCell
from assay.report.runs_table import RunsTableOptions, metadata_table
from seam_world import RIGHT, TASK

GROUP = "group: g\ntask: [b]\nmetadata: {domain: math, difficulty: hard}\n"
SAID = {"a": "metadata: {domain: [math, code], difficulty: easy}\n", "b": ""}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a (1 of 2 right, of math and code), b (1 of 8, in a group of math) and c, of which nothing is said."""
    folder = tmp_path_factory.mktemp("said")
    for name, right in {**RIGHT, "c": [1]}.items():
        rows = [{"q": f"{name}{number}", "gold": "x" if is_right else "y"} for number, is_right in enumerate(right)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / f"{name}.yaml").write_text(TASK.format(name=name) + SAID.get(name, ""))
    (folder / "g.yaml").write_text(GROUP)
    model = Scripted(generate=lambda *_: "x", identity="says x")
    options = {"include_path": [str(folder)], "include_defaults": False, "progress": False}
    run(model, tasks=["a", "g", "c"], output_path=str(folder / "run"), **options)  # type: ignore[arg-type]  # of several types
    return folder


def cells(folder: Path, key: str, **options: object) -> dict[str, tuple[float | None, float | None]]:
    table = metadata_table([folder / "run"], key, RunsTableOptions(**options))  # type: ignore[arg-type]  # of several types
    [line] = table.lines
    pairs = zip(table.columns[1:], line.cells[1:], strict=True)
    return {head.title: (cell.value, cell.stderr) for head, cell in pairs if isinstance(cell, NumberCell)}


def test_numbers_by_domain_and_difficulty_are_means_by_size_of_their_tasks(folder: Path) -> None:
    """a: 1/2, standard error √(1/4 / 1); b: 1/8, √(7/64 / 7). Of math (a and b): 2/10, √((2/10 · 1/2)² + (8/10 · 1/8)²)."""
    easy, hard = (0.5, 0.5), (0.125, 0.125)
    both = (pytest.approx(0.2), pytest.approx(sqrt(0.1**2 + 0.1**2)))
    assert cells(folder, "metadata.domain") == {"code exact_match ↑": easy, "math exact_match ↑": both}
    assert cells(folder, "metadata.difficulty") == {"easy exact_match ↑": easy, "hard exact_match ↑": hard}
    assert cells(folder, "metadata.domain", tasks=["b"]) == {"math exact_match ↑": hard}


def test_the_command_prints_a_line_for_each_domain(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", str(folder / "run"), "--by", "metadata.domain", "--transpose", "--format", "md"]) == 0
    printed = capsys.readouterr().out
    assert "|code exact_match ↑|0.500 ± 0.500|" in printed
    assert "|math exact_match ↑|0.200 ± 0.141|" in printed
    assert "math exact_match: b, a." in printed


@pytest.mark.parametrize("key", ["metadata.domian", "domain"])
def test_a_key_that_no_task_has_is_refused_with_those_that_are_there(folder: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=r"--by: no task or group has .*metadata.domain"):
        metadata_table([folder / "run"], key, RunsTableOptions())


def test_metrics_that_no_such_task_has_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"no task with 'metadata.domain' has these numbers"):
        metadata_table([folder / "run"], "metadata.domain", RunsTableOptions(metrics=["acc"]))
