"""Every kind of row is in every place that numbers go to: tables, files, frames, comparisons, trackers, pages."""

import csv
import io
import json
import shutil
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

import assay
from assay.cli import main
from assay.exchange.exporters import export
from assay.exchange.trackers import tracked_metrics
from assay.report.index import entry_of
from assay.report.table import checkpoints_table, results_table
from assay.report.table_writers import write_markdown
from assay.report.write import report_text
from assay.runs.run import Run
from assay.trainer import logged_numbers
from every_row_world import NUMBERS, WITHOUT, write_every_row

Found = dict[tuple[str, str], float | None]
"""By task or group and metric the number that a place has."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [*write_every_row(tmp_path_factory.mktemp("rows"))]


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def number(text: str) -> float | None:
    return float(text) if text else None


def in_scores(run: Path, folder: Path) -> Found:
    return {(row["task"], row["metric"]): row["value"] for row in Run.open(run).scores().to_pylist()}


def in_report_csv(run: Path, folder: Path) -> Found:
    rows = read_csv(report_text([run], "csv"))
    return {(row["name"], row["metric"]): number(row["value"]) for row in rows}


def in_report_json(run: Path, folder: Path) -> Found:
    lines = json.loads(report_text([run], "json"))["runs"][0]["lines"]
    return {(line["name"], row["metric"]): row["value"] for line in lines for row in line["numbers"]}


def in_parquet(run: Path, folder: Path) -> Found:
    export(run, "parquet", folder)
    rows = parquet.read_table(folder / "numbers.parquet").to_pylist()
    return {(row["name"], row["metric"]): row["value"] for row in rows}


def in_table_command(run: Path, folder: Path) -> Found:
    """One task after another: a metric is chosen for all tasks, and these have the same ones."""
    metrics = [metric for name, metric in (*NUMBERS, *WITHOUT) if name == "t"]
    target = folder / "table.csv"
    main(["table", str(run), "--tasks", "t", "g", "--metrics", *metrics, "--output_path", str(target)])
    [line] = read_csv(target.read_text())
    heads = {key: key.split("/") for key in line if key.endswith("/none")}
    return {(parts[0], parts[1]): number(line[key]) for key, parts in heads.items()}


def in_index(run: Path, folder: Path) -> Found:
    _, packed = entry_of(Run.open(run))
    return {(line[0], line[5][0]): line[5][2] for line in json.loads(zlib.decompress(packed))}


PLACES: dict[str, Callable[[Path, Path], Found]] = {
    "scores() in Python": in_scores,
    "a report as CSV": in_report_csv,
    "a report as JSON": in_report_json,
    "Parquet": in_parquet,
    "assay table": in_table_command,
    "the index of runs": in_index,
}


@pytest.mark.parametrize("place", PLACES)
def test_every_row_is_in_every_file_with_its_number(place: str, runs: list[Path], tmp_path: Path) -> None:
    found = PLACES[place](runs[0], tmp_path)
    for row, value in NUMBERS.items():
        assert found[row] == pytest.approx(value), row
    for row in WITHOUT:
        assert found[row] is None, row


TEXTS: dict[str, Callable[[Path], str]] = {
    "the results of a run": lambda run: write_markdown(results_table(Run.open(run).results)),
    "the table of a run in Python": lambda run: str(Run.open(run).table),
    "checkpoints": lambda run: write_markdown(checkpoints_table({"a": Run.open(run).results})),
    "a report as Markdown": lambda run: report_text([run], "md"),
    "a report as a page": lambda run: report_text([run], "html"),
}


@pytest.mark.parametrize("place", TEXTS)
def test_every_row_is_in_every_table(place: str, runs: list[Path]) -> None:
    text = TEXTS[place](runs[0]).replace("\\", "")
    for _, metric in NUMBERS:
        assert metric in text, metric


def test_every_row_is_compared_or_says_why_not(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *map(str, runs), "--format", "json"]) == 0
    rows = {(row["name"], row["metric"]): row for row in json.loads(capsys.readouterr().out)["rows"]}
    for key, value in NUMBERS.items():
        assert rows[key]["a"] == pytest.approx(value), key
        assert rows[key]["b"] is not None
    for key in (*NUMBERS, *WITHOUT):
        assert rows[key]["interval"] or rows[key]["reason"], key
    assert rows["t", "several[low]"]["difference"] == 0.5  # the least score was 0, and is 0.5
    assert rows["t", "several[low]"]["higher_is_better"] is True


def test_trackers_and_trainers_log_every_number(runs: list[Path]) -> None:
    run = Run.open(runs[0])
    logged = dict(tracked_metrics(run))
    assert logged["t/several_low_/none"] == 0.0
    assert logged["t/several_high_/none"] == 1.0
    assert logged_numbers(run)["eval_assay/t/several[high]"] == 1.0


def test_lm_evals_and_inspects_files_have_every_number(runs: list[Path], tmp_path: Path) -> None:
    [results] = [file for file in map(Path, export(runs[0], "lm-eval", tmp_path / "lm")) if "results" in file.name]
    assert json.loads(results.read_text())["results"]["t"]["several,none"] == {"low": 0.0, "high": 1.0}
    [log] = [file for file in map(Path, export(runs[0], "inspect", tmp_path / "log")) if "_t_" in file.name]
    scores = {score["name"]: score["metrics"] for score in read_log(log)["results"]["scores"]}
    assert [each["value"] for name, values in scores.items() if "several[low]" in name for each in values.values()] == [
        0
    ]


def read_log(path: Path) -> Any:
    with zipfile.ZipFile(path) as log:
        return json.loads(log.read("header.json"))


def test_a_gate_decides_about_one_of_several_numbers(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", str(runs[0]), "t/several[low] >= 0", "--allow_incomplete"]) == 4
    assert "t 0.0000, it has no standard error" in capsys.readouterr().out
    assert main(["gate", str(runs[0]), "t/several >= 0", "--allow_incomplete"]) == 4
    assert capsys.readouterr().out.count("it has no standard error") == 2, "the least and the greatest"


@pytest.mark.parametrize(("metric", "code"), [("several[low]", 4), ("several", 4), ("sevral[low]", 2)])
def test_a_gate_about_one_of_several_numbers_is_accepted_before_the_run(
    metric: str, code: int, runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "run"
    world = ["--include_path", str(runs[0].parent), "--output_path", str(output), "--max_failed", "1"]
    assert main(["run", "--model", "dummy", "--tasks", "t", *world, "--gate", f"{metric} >= 0"]) == code
    assert output.exists() is (code == 4)


def test_a_task_that_was_not_run_is_in_a_report_as_csv(runs: list[Path]) -> None:
    [row] = [row for row in read_csv(report_text([runs[0]], "csv")) if row["name"] == "broken"]
    assert (row["kind"], row["value"], row["incomplete"]) == ("task", "", "not run")


def test_a_groups_number_that_one_run_lacks_is_noted(runs: list[Path], tmp_path: Path) -> None:
    other = shutil.copytree(runs[1], tmp_path / "other")
    content = json.loads((other / "results.json").read_text())
    content["groups"]["g"]["rows"][0]["metric"] = "y"
    (other / "results.json").write_text(json.dumps(content))
    manifest = json.loads((other / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps({**manifest, "checksums": {}}))
    assert "g: only one of the runs has x,none, y,none" in assay.compare([runs[0], other]).notes
