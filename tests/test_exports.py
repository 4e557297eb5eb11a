"""A run exported: to lm-eval's tools, to Inspect, to an analysis, to trackers."""

import json
import math
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import run_world
from assay import Run, ScoreKey, simple_evaluate
from assay.cli import main
from assay.errors import AssayError
from assay.exchange.archive import write_archive
from assay.exchange.exporters import export
from assay.exchange.importers import import_runs
from assay.exchange.inspect.log_file import finite
from assay.models import Scripted
from conftest import Write
from exchange_world import HERE, LOGGED, TASKS
from run_world import ACC, ACC_STDERR, CHOICES, COLOURS, EXACT_MATCH, SUMS, RecordingModel


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", LOGGED)
def test_files_of_lm_eval_are_imported_and_exported_line_by_line(name: str, tmp_path: Path) -> None:
    """In and out again: the same keys in the same order, the same values, the same hash over all samples of a task."""
    source = HERE / "logged" / name
    import_runs([source], tmp_path / "run")
    results, *samples = map(Path, export(tmp_path / "run", "lm-eval", tmp_path / "out"))
    [theirs] = [json.loads(path.read_text()) for path in source.glob("results_*.json")]
    ours = json.loads(results.read_text())
    assert theirs.keys() - ours.keys() == set()
    for task, row in theirs["results"].items():
        for key, value in row.items():
            assert ours["results"][task][key] == (
                pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
            )
    assert ours["task_hashes"] == theirs["task_hashes"]
    written = {path.name.rpartition("_")[0]: lines(path) for path in samples}
    for path in source.glob("samples_*.jsonl"):
        expected, result = lines(path), written[path.name.rpartition("_")[0]]
        assert [list(record) for record in result] == [list(record) for record in expected]
        assert result == expected


def test_lm_evals_files_are_in_a_folder_of_the_model_with_one_date(tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    paths = [Path(path) for path in export(output, "lm-eval", tmp_path / "out")]
    assert {path.parent for path in paths} == {tmp_path / "out/scripted"}
    [date] = {path.stem.rpartition("_")[2] for path in paths}
    assert [path.name.removesuffix(f"_{date}{path.suffix}") for path in paths] == [
        "results", "samples_sums", "samples_colours",
    ]  # fmt: skip
    results = json.loads(paths[0].read_text())
    assert results["results"]["colours"]["acc,none"] == ACC


def test_an_impossible_answer_is_minus_infinity_in_lm_evals_files(tasks: Path, output: Path, tmp_path: Path) -> None:
    model = Scripted(loglikelihood=lambda context, continuation: (-math.inf if "red" in continuation else -1.0, False))
    simple_evaluate(model, tasks=["colours"], include_path=str(tasks), include_defaults=False, output_path=str(output))
    first = lines(Path(export(output, "lm-eval", tmp_path / "out")[1]))[0]
    assert first["resps"] == [[["-1.0", "False"]], [["-inf", "False"]]]
    assert first["filtered_resps"] == [["-1.0", "False"], ["-inf", "False"]]


def members(path: str) -> dict[str, Any]:
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        return {name: json.loads(file.read(name)) for name in file.namelist()}


def test_a_log_for_inspect_has_its_members_and_our_numbers(tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    sums, colours = map(members, export(output, "inspect", tmp_path / "out"))
    assert next(iter(sums)) == "_journal/start.json"
    assert list(sums)[-3:] == ["summaries.json", "reductions.json", "header.json"]
    assert [name for name in sums if name.startswith("samples/")] == [f"samples/{n}_epoch_1.json" for n in range(5)]
    [score] = colours["header.json"]["results"]["scores"]
    assert score["metrics"]["acc"]["value"] == ACC
    assert score["metrics"]["stderr"]["value"] == pytest.approx(ACC_STDERR)
    for number, (thing, (gold, *likelihoods)) in enumerate(COLOURS.items()):
        sample = colours[f"samples/{number}_epoch_1.json"]
        assert sample["input"] == f"{thing} is"
        assert (sample["choices"], sample["target"]) == (CHOICES, "AB"[gold])
        assert [each["loglikelihood"] for each in sample["events"][0]["data"]["log-likelihoods"]] == likelihoods
        assert sample["output"]["completion"] == f" {CHOICES[likelihoods.index(max(likelihoods))]}"


def test_an_incomplete_task_is_not_a_success_in_inspects_logs(tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(failing={"3*3="}), tasks, output)
    changes = {"is_incomplete": True, "not_asked": 2}
    run_world.change_results(output, lambda content: content["tasks"]["colours"].update(changes))
    sums, colours = (members(path)["header.json"] for path in export(output, "inspect", tmp_path / "logs"))
    assert (sums["status"], sums["error"]["message"]) == (
        "error",
        "the task is incomplete; 1 of 5 documents failed",
    )
    assert (sums["results"]["total_samples"], sums["results"]["completed_samples"]) == (5, 4)
    assert colours["error"]["message"] == "the task is incomplete; 2 of 6 documents were not asked"
    assert (colours["results"]["total_samples"], colours["results"]["completed_samples"]) == (6, 4)


def test_a_document_without_a_score_is_exported_as_text(tmp_path: Path) -> None:
    """Inspect takes flat values only: what a perplexity is made of, a pair, is written out."""
    import_runs([HERE / "logged/synth_wiki"], tmp_path / "run")
    [log] = export(tmp_path / "run", "inspect", tmp_path / "out")
    sample = next(value for name, value in members(log).items() if name.startswith("samples/"))
    assert all(isinstance(each["value"], int | float | str) for each in sample["scores"].values())


@pytest.mark.parametrize("to", ["lm-eval", "inspect", "parquet"])
def test_the_same_run_gives_the_same_bytes(to: str, tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    first, second = [[Path(path) for path in export(output, to, tmp_path / name)] for name in ("a", "b")]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_three_tables_hold_samples_scores_and_numbers(write: Write, output: Path, tmp_path: Path) -> None:
    folder = write({**run_world.FILES, **TASKS})
    run_world.run(RecordingModel(), folder, output)
    samples, scores, numbers = (pq.read_table(path).to_pylist() for path in export(output, "parquet", tmp_path / "out"))
    assert [row["prompt"] for row in samples if row["task"] == "sums"] == list(SUMS)
    assert [json.loads(row["target"]) for row in samples if row["task"] == "sums"] == [
        right for right, _ in SUMS.values()
    ]
    first = [row for row in scores if (row["task"], row["filter"]) == ("sums", "first")]
    assert [row["value"] for row in first] == [1, 1, 0, 1, 0]
    repeats = [row["value"] for row in scores if row["filter"] == "each" and row["repeat"] == 1]
    assert repeats == [1, 1, 0, 1, 0]
    result = {(row["name"], row["metric"], row["filter"]): (row["value"], row["n"]) for row in numbers}
    assert result[("sums", "exact_match", "first")] == (EXACT_MATCH, 5)
    assert result[("colours", "acc", "none")] == (ACC, 4)


@pytest.fixture(scope="module")
def graph_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("graph") / "run"
    simple_evaluate("embedded", tasks=["first_steps_graph_tries"], limit=3, output_path=str(output))
    return output


@pytest.mark.parametrize("to", ["lm-eval", "inspect", "parquet"])
def test_a_graph_is_exported_though_it_asks_as_often_as_it_likes(to: str, graph_run: Path, tmp_path: Path) -> None:
    assert all(Path(path).stat().st_size for path in export(graph_run, to, tmp_path / "out"))
    if to == "inspect":
        import_runs([tmp_path / "out"], tmp_path / "back")
        task = "first_steps_graph_tries"
        assert run_world.samples(tmp_path / "back", task) == run_world.samples(graph_run, task)


def test_a_scoring_of_a_run_is_exported_like_a_run(write: Write, output: Path, tmp_path: Path) -> None:
    from assay import ScoreOptions, score

    run_world.run(RecordingModel(), write({**run_world.FILES, **TASKS}), output)
    again = score(output, ScoreOptions(filters=["last=regex:(.)$"])).folder
    rows = pq.read_table(export(again, "parquet", tmp_path / "out")[2]).to_pylist()
    assert {row["filter"] for row in rows if row["name"] == "sums"} == {"first", "each", "last"}


def test_what_cannot_be_exported_is_reported(tasks: Path, output: Path, tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="the folder holds no run"):
        export(tmp_path, "parquet", tmp_path / "out")
    run_world.run(RecordingModel(), tasks, output)
    with pytest.raises(AssayError, match="did you mean 'inspect'"):
        export(output, "inspekt", tmp_path / "out")
    with pytest.raises(AssayError, match="needs a folder"):
        export(output, "inspect")
    (output / "results.json").unlink()
    with pytest.raises(AssayError, match="has not finished"):
        export(output, "parquet", tmp_path / "out")


def test_the_command_prints_the_paths_of_its_output(run_assay: Any, tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    ended = run_assay("export", output, "--to", "inspect", "-o", tmp_path / "logs")
    assert ended.returncode == 0, ended.stderr
    assert [Path(line).is_file() for line in ended.stdout.splitlines()] == [True, True]
    assert run_assay("export", tmp_path, "--to", "parquet", "-o", "x").returncode == 2


@given(st.dictionaries(st.text("abc/._", min_size=1, max_size=8), st.binary(max_size=40), max_size=5))
def test_an_archive_gives_back_what_was_put_into_it(tmp_path_factory: Any, content: dict[str, bytes]) -> None:
    path = tmp_path_factory.mktemp("zip") / "a.zip"
    write_archive(path, content.items())
    with zipfile.ZipFile(path) as file:
        assert [(name, file.read(name)) for name in file.namelist()] == list(content.items())


def test_nan_in_somebodys_json_is_nothing() -> None:
    assert json.loads(finite(b'{"a": NaN, "b": [Infinity, 1], "c": "NaN"}')) == {"a": None, "b": [None, 1], "c": "NaN"}


@pytest.mark.filterwarnings("ignore")  # what its own libraries warn of is not ours
def test_mlflow_has_numbers_settings_and_files(tasks: Path, output: Path, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is an extra: pip install 'assay[mlflow]'")
    run_world.run(RecordingModel(), tasks, output, limit=4)
    export(output, "mlflow", tmp_path / "store", name="ours")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'store/mlflow.db'}")
    [built] = client.search_runs([client.get_experiment_by_name("ours").experiment_id])
    assert built.data.metrics["colours/acc/none"] == ACC
    assert built.data.metrics["colours/acc/none_stderr"] == pytest.approx(ACC_STDERR)
    assert built.data.metrics["colours/acc/none_n"] == 4
    assert built.data.params["limit"] == "4"
    assert {file.path for file in client.list_artifacts(built.info.run_id)} == {"results.json", "manifest.json"}


@pytest.mark.filterwarnings("ignore")  # what its own libraries warn of is not ours
def test_weights_and_biases_offline_has_the_table_of_numbers(
    tasks: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="Weights & Biases is an extra: pip install 'assay[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run_world.run(RecordingModel(), tasks, output)
    [where] = export(output, "wandb", tmp_path / "store", name="ours")
    [table] = [json.loads(path.read_text()) for path in Path(where).rglob("numbers*.table.json")]
    at = {name: place for place, name in enumerate(table["columns"])}
    result = {(row[at["name"]], row[at["metric"]]): row[at["value"]] for row in table["data"]}
    assert result == {("sums", "exact_match"): EXACT_MATCH, ("colours", "acc"): ACC}


def test_a_tracker_that_is_not_installed_is_reported(
    tasks: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    run_world.run(RecordingModel(), tasks, output)
    for name in ("mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(AssayError, match=rf"\[{name}\]'"):
            export(output, name)


def test_a_run_writes_lm_evals_files_beside_it(tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    place = ["--include_path", str(tasks)]
    command = ["run", "--model", "dummy", "--tasks", "sums", *place, "--output_path", str(out)]
    assert main([*command, "--export", "lm-eval", "--export", "parquet"]) == 0
    [results] = (out / "exports/lm-eval").rglob("results_*.json")
    row = Run.open(out).results.row("sums", ScoreKey("exact_match", "none"))
    assert row is not None
    assert json.loads(results.read_text())["results"]["sums"]["exact_match,none"] == row.estimate.value
    assert (out / "exports/parquet/numbers.parquet").is_file()
    assert f"lm-eval: {results}" in capsys.readouterr().out


def test_an_unknown_exporter_is_refused_before_the_run(
    tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "run",
        "--model",
        "dummy",
        "--tasks",
        "sums",
        "--include_path",
        str(tasks),
        "--output_path",
        str(tmp_path / "r"),
    ]
    assert main([*command, "--export", "lm-evil"]) == 2
    assert "did you mean 'lm-eval'" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
