"""Runs that an earlier version made: every later one opens, compares and exports them, scores them again to equal numbers, and
resumes them without asking anything twice."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from assay import ScoreOptions, score
from assay.cli import main
from assay.comparison.compare import compare
from assay.errors import AssayError
from assay.evaluation.merge import merge
from assay.exchange.archive import pack
from assay.exchange.exporters import export
from assay.exchange.importers import import_runs
from assay.report.table import results_table
from assay.report.write import report_text
from assay.runs.lm_eval_layout import lm_eval_layout
from assay.runs.run import Run
from old_runs import (
    EXPECTED,
    FOLDERS,
    KILLED_AFTER,
    RECIPES,
    WORLD,
    RequestCount,
    copied,
    folders,
    numbers,
    write_world,
)
from run_world import everything

pytestmark = pytest.mark.slow  # whole runs: too long for `make quick`

NAMES = folders()
ENDED = [name for name in NAMES if RECIPES[name].has_ended]
KINDS = {"choice", "text", "chat", "rolling", "repeats", "judge", "graph", "shard_1", "shard_2", "merged", "compressed", "failed",
         "killed", "imported_lm_eval", "imported_inspect", "rescored"}  # fmt: skip


def expected(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((FOLDERS / EXPECTED).read_text())["folders"][name]
    return data


def same(data: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether numbers are equal, but for the last bit of a sum."""
    if data.keys() != expected.keys():
        return False
    for key, value in expected.items():
        if isinstance(value, dict):
            if not same(data[key], value):
                return False
        elif isinstance(value, float) and isinstance(data[key], float):
            if not math.isclose(data[key], value, rel_tol=1e-9, abs_tol=1e-12):
                return False
        elif data[key] != value:
            return False
    return True


def test_every_kind_of_run_is_there() -> None:
    if not NAMES:
        pytest.skip("the folders are made by tools/make_run_folders.py when version 0.1.1 is ready")
    assert set(NAMES) == set(RECIPES) >= KINDS
    assert set(json.loads((FOLDERS / EXPECTED).read_text())["folders"]) == set(NAMES)


def test_nothing_in_them_names_a_folder_of_a_machine() -> None:
    absolute = re.compile(r'"(?:/(?!\d)[^"\s]*/[^"]*|~/[^"]*|[A-Z]:\\[^"]*)"')
    for name in NAMES:
        for file in (FOLDERS / name).rglob("*"):
            if file.is_file() and file.suffix in (".json", ".jsonl", ".lock"):
                assert absolute.findall(file.read_text()) == [], file
            elif ".parquet" in file.suffixes:
                assert absolute.findall(json.dumps(pq.read_table(file).to_pylist(), default=str)) == [], file
            elif file.is_file():
                assert file.suffix == ".zst", file


def test_the_tasks_beside_them_are_those_they_were_made_of(tmp_path: Path) -> None:
    if NAMES:
        built = everything(write_world(tmp_path / WORLD))
        assert {name: text for name, text in everything(FOLDERS / WORLD).items() if "__pycache__" not in name} == built


@pytest.mark.parametrize("name", ENDED)
def test_a_run_opens(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, run = copied(name, tmp_path)
    before = everything(run)
    results = lm_eval_layout(Run.open(run).results)
    assert same(numbers(results), expected(name))
    table = results_table(results)
    assert all(task in table for task in results["n-samples"])
    assert main(["samples", str(run), "-n", "0", "--full"]) == 0
    assert capsys.readouterr().out.count("━━") == sum(each["documents"] for each in results["assay"]["tasks"].values())
    for each in ("html", "md", "json", "csv"):
        assert report_text([run], each)
    assert everything(run) == before, "whoever reads changes nothing"


@pytest.mark.parametrize("name", ENDED)
def test_a_run_compares_with_itself(name: str, tmp_path: Path) -> None:
    runs = [copied(name, tmp_path / each)[1] for each in "ab"]
    comparison = compare(runs)
    assert comparison.rows
    assert {row.difference for row in comparison.rows} <= {0.0, None}
    assert [each.first for each in comparison.attributions] in ([None], [""], [])


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDED)
def test_a_run_is_exported_and_packed(name: str, tmp_path: Path) -> None:
    _, run = copied(name, tmp_path)
    rows = expected(name)["rows"]
    tasks = lm_eval_layout(Run.open(run).results)["n-samples"]
    written = [Path(path) for path in export(run, "lm-eval", tmp_path / "lm_eval")]
    loaded = json.loads(next(path for path in written if path.name.startswith("results_")).read_text())
    for task in rows:
        assert same({key: loaded["results"][task][key] for key in rows[task]}, rows[task])
    logs = export(run, "inspect", tmp_path / "inspect")
    assert len(logs) == len(tasks)
    back = lm_eval_layout(import_runs(logs, tmp_path / "back"))
    assert {task: back["n-samples"][task]["effective"] for task in tasks} == {
        task: each["effective"] for task, each in tasks.items()
    }
    tables = [pq.read_table(path) for path in export(run, "parquet", tmp_path / "parquet")]
    assert len(tables) == 3 and sum(table.num_rows > 0 for table in tables) >= 2, (
        "a rolling text has no separate scores"
    )
    again = lm_eval_layout(import_runs([pack(run, tmp_path / "run.zip").path], tmp_path / "unpacked"))
    assert same(numbers(again), expected(name))


@pytest.mark.parametrize("name", [name for name in NAMES if RECIPES[name].is_scored_again])
def test_a_run_is_scored_again_to_equal_numbers(name: str, tmp_path: Path) -> None:
    world, run = copied(name, tmp_path)
    scores = score(run, ScoreOptions(include_path=[str(world)], include_defaults=False))
    assert same(numbers(lm_eval_layout(scores.results))["rows"], expected(name)["rows"])
    assert lm_eval_layout(scores.results)["assay"]["failed"] == expected(name)["failed"]
    assert lm_eval_layout(scores.results)["assay"]["scored"]["changed"] == {}


@pytest.mark.process
@pytest.mark.parametrize("name", [name for name in NAMES if RECIPES[name].evaluate is not None])
def test_a_run_is_resumed_and_asks_only_missing_requests(name: str, tmp_path: Path) -> None:
    world, run = copied(name, tmp_path)
    recipe, asked = RECIPES[name], RequestCount()
    assert recipe.evaluate is not None
    lines = (run / "responses.jsonl").read_bytes().count(b"\n") if name == "killed" else 0
    results = recipe.evaluate(world, run, asked)
    assert same(numbers(results), expected(name))
    assert same(numbers(lm_eval_layout(Run.open(run).results)), expected(name))
    if name == "killed":
        assert KILLED_AFTER - 1 <= lines <= KILLED_AFTER
        assert asked.count == 6 + 18 - lines
    else:
        assert asked.count == recipe.asks_again


@pytest.mark.skipif("killed" not in NAMES, reason="the folders are not made yet")
def test_the_killed_run_says_that_it_has_not_ended(tmp_path: Path) -> None:
    _, run = copied("killed", tmp_path)
    result = lm_eval_layout(
        score(run, ScoreOptions(include_path=[str(tmp_path / WORLD)], include_defaults=False)).results
    )
    assert (result["assay"]["status"], list(result["n-samples"])) == ("partial", ["old_text"])
    assert same(numbers(result)["rows"]["old_text"], expected("killed")["rows"]["old_text"])
    for reads in (
        lambda: report_text([run], "md"),
        lambda: compare([run, tmp_path]),
        lambda: export(run, "parquet", tmp_path / "x"),
    ):
        with pytest.raises(AssayError):
            reads()


@pytest.mark.skipif("merged" not in NAMES, reason="the folders are not made yet")
def test_the_shards_are_merged_again_to_the_same(tmp_path: Path) -> None:
    world, one = copied("shard_1", tmp_path / "one")
    _, two = copied("shard_2", tmp_path / "two")
    assert same(
        numbers(lm_eval_layout(merge(tmp_path / "whole", [two, one], include_path=[str(world)]))), expected("merged")
    )


@pytest.mark.skipif("rescored" not in NAMES, reason="the folders are not made yet")
def test_a_further_scoring_is_read_like_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, run = copied("rescored", tmp_path)
    version = run / "scored/001"
    rows = lm_eval_layout(Run.open(version).results)["results"]["old_text"]
    assert {"exact_match,strict", "exact_match,number", "exact_match,last"} <= rows.keys()
    assert main(["samples", str(version), "-n", "1"]) == 0
    assert "filtered by last" in capsys.readouterr().out
    assert compare([run, version]).rows
    assert export(version, "parquet", tmp_path / "parquet")
