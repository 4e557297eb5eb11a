"""`models:` in a run file: every model on the same tasks, a run folder each, and one table."""

import json
import os
import tempfile
from pathlib import Path

import pytest
import yaml

import run_world
from assay.cli import main
from assay.models.local.embedded import BUNDLED
from assay.report.table import checkpoints_table
from assay.results import Estimate, Results, Row, TaskEntry
from checkpoint_world import NOISE, TASK, checkpoint, value
from small_runs import write_task

WORSE_THAN_CHANCE_BY_LUCK = 0.6
"""Of four choices, so many are not right by chance: P(acc > 0.6) < 1e-6 for 48 questions."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints step-9, which answers by chance, and step-10, which is the bundled model; and a folder without a model."""
    folder = tmp_path_factory.mktemp("trained")
    checkpoint(folder / "step-9", NOISE)
    checkpoint(folder / "step-10")
    (folder / "broken").mkdir()
    (folder / "broken/config.json").write_text("{}")
    return folder


def written(folder: Path, **keys: object) -> Path:
    """A run file of one task."""
    file = folder / "sweep.yaml"
    file.write_text(yaml.safe_dump({"tasks": [TASK], **keys}, sort_keys=False))
    return file


def run(folder: Path, models: object, *more: object, **keys: object) -> int:
    return main(["run", "--config", str(written(folder, models=models, **keys)), *map(str, more)])


def table(text: str) -> list[list[str]]:
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_model_has_a_run_folder_and_a_column_of_the_table(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [
        {"model": "embedded", "name": "reference"},
        f"embedded,path={trained}/step-*",
        {"model": "dummy"},
    ]
    assert run(tmp_path, models, "-o", tmp_path / "out") == 0
    header, _, accuracy, *_ = table(capsys.readouterr().out)
    assert header[4:] == ["reference", "step-9", "step-10", "dummy"], "in the order of the file, numbers as numbers"
    values = dict(zip(header[4:], accuracy[4:], strict=True))
    for name in header[4:]:
        assert values[name].startswith(f"{value(tmp_path / 'out' / name):.4f} ±")
    assert values["step-10"] == values["reference"], "the same weights"
    assert value(tmp_path / "out/step-9") < WORSE_THAN_CHANCE_BY_LUCK < value(tmp_path / "out/step-10")
    assert main(["run", "--tasks", TASK, "-o", str(tmp_path / "alone")]) == 0
    alone, swept = (run_world.results(tmp_path / name) for name in ("alone", "out/step-10"))
    assert alone["results"] == swept["results"]
    assert alone["n-samples"] == swept["n-samples"]


def test_a_model_that_cannot_be_loaded_is_one_row_and_the_others_are_evaluated(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [f"embedded,path={trained}/broken", "embedded", "dummy"]
    assert run(tmp_path, models, "-o", tmp_path / "out", "--limit", 4) == 2
    ended = capsys.readouterr()
    assert "broken: could not be evaluated: " in ended.err
    assert "cannot be loaded: KeyError: 'num_hidden_layers'" in ended.err
    header, _, accuracy, *_ = table(ended.out)
    assert [header[4:], accuracy[4]] == [["broken", "embedded", "dummy"], "–"]
    assert "–" not in accuracy[5:]
    noted = json.loads((tmp_path / "out/checkpoints.json").read_text())["checkpoints"]
    assert [each["status"] for each in noted] == ["failed", "complete", "complete"]
    assert "num_hidden_layers" in noted[0]["reason"]


def test_the_same_command_opens_no_model_whose_run_is_complete_and_evaluates_one_that_changed(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changing = checkpoint(tmp_path / "steps/step-2")
    models = [f"embedded,path={trained}/step-10", f"embedded,path={changing}"]
    more = ("--runs_dir", tmp_path / "runs", "--limit", 6)
    assert run(tmp_path, models, *more) == 0
    first = capsys.readouterr().out
    folders = sorted(each.name for each in (tmp_path / "runs").iterdir())
    assert [each.rpartition("-")[0] for each in folders] == [f"step-10-{TASK}", f"step-2-{TASK}"]
    assert run(tmp_path, models, *more) == 0
    again = capsys.readouterr()
    assert again.out == first
    assert again.err.count("finished before: nothing is asked") == 2
    assert sorted(each.name for each in (tmp_path / "runs").iterdir()) == folders
    checkpoint(changing, NOISE)
    assert run(tmp_path, models, *more) == 0
    third = capsys.readouterr()
    assert third.err.count("finished before: nothing is asked") == 1
    assert len(list((tmp_path / "runs").iterdir())) == 3, "other weights are another run"
    assert third.out != first
    assert run(tmp_path, models, *more, "--num_fewshot", 1) == 0
    assert "finished" not in capsys.readouterr().err, "another option is another run"


def test_a_sweep_without_a_folder_is_not_evaluated_again_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASSAY_RUNS_DIR", str(tmp_path / "runs"))
    models = [f"embedded,path={BUNDLED}", "dummy"]
    assert [run(tmp_path, models, "--limit", 4) for _ in range(2)] == [0, 0]
    assert len(list((tmp_path / "runs").iterdir())) == 2
    assert "finished before: nothing is asked" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ("embedded", "3:9: must be a list of models"),
        ([], "must be a list of models"),
        ([{"model": "embedded", "modle_args": {}}], "5:3: unknown key 'modle_args' — did you mean 'model_args'?"),
        ([{"name": "a"}], "4:3: key 'model' is missing"),
        ([["embedded"]], "must be a model, got ['embedded']"),
        (["embeded"], "4:3: no model named 'embeded' — did you mean 'embedded'?"),
        (["embedded,pth=x"], "4:3: model 'embedded' has no argument 'pth' — did you mean 'path'?"),
        (["embedded,path=nosuch/step-*"], "4:3: no checkpoint matches 'nosuch/step-*'"),
        (["dummy", "dummy"], "5:3: two models are named 'dummy', and they are the same one — remove one"),
        (
            ["embedded", "embedded,over_length=truncate"],
            "5:3: two models are named 'embedded' — give each another name",
        ),
        ([{"model": "dummy", "name": "x"}, {"model": "embedded", "name": "x"}], "two models are named 'x'"),
        ([{"model": "dummy", "name": "../x"}], "name '../x' cannot be that of a folder"),
    ],
)
def test_a_wrong_entry_is_refused_before_a_model_is_opened(
    tmp_path: Path, models: object, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, models, "-o", tmp_path / "out") == 2
    err = capsys.readouterr().err
    assert said in err
    assert not (tmp_path / "out").exists()


def test_every_wrong_entry_is_reported_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, ["embeded", "dummy", {"model": "dummy", "nam": "x"}, "hf,pretrained=no/step-*"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(".yaml:")[2].partition(": ")[0] for line in lines] == ["4:3", "7:3", "8:3"]


@pytest.mark.parametrize(
    ("keys", "more", "said"),
    [
        ({"model": "dummy"}, [], "model and models exclude each other"),
        ({"model_args": {"path": "x"}}, [], "model_args and models exclude each other"),
        ({}, ["--model", "dummy"], "model and models exclude each other"),
        ({"taskss": ["x"]}, [], "sweep.yaml:6:1: unknown key 'taskss' — did you mean 'tasks'?"),
        ({}, ["--gate", "acc > 0.5"], "--gate: is for one model, and there are several"),
    ],
)
def test_a_sweep_has_no_other_model(
    tmp_path: Path, keys: dict[str, object], more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, ["embedded", "dummy"], *more, **keys) == 2
    assert said in capsys.readouterr().err


def test_a_mistyped_models_is_suggested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--config", str(written(tmp_path, modles=["dummy"]))]) == 2
    assert "sweep.yaml:3:1: unknown key 'modles' — did you mean 'models'" in capsys.readouterr().err


def test_many_models_are_rows_of_the_table(tmp_path: Path) -> None:
    def results(right: float) -> Results:
        row = Row("t", "acc", "none", Estimate(right, 0.05), higher_is_better=True)
        return Results({"t": TaskEntry("t", "t", [row])})

    many = {**{f"step-{n}": results(n / 10) for n in range(5)}, "bad": None}
    header, _, *rows = table(str(checkpoints_table(many)))
    assert header == ["Model", "t none acc ↑"]
    assert rows[3] == ["step-3", "0.3000 ± 0.0500"]
    assert rows[5] == ["bad (failed)", "–"]


WAITING = """
import time
from pathlib import Path

import assay
from assay.models import Scripted

@assay.model("waiting")
def waiting(file: str, writes: bool = False) -> Scripted:
    def answer(prompt, params, repeat):
        if writes:
            Path(file).touch()
        end = time.monotonic() + 90
        while prompt == "0" and not Path(file).exists():
            assert time.monotonic() < end, "the next model was not asked"
            time.sleep(0.05)
        return prompt

    return Scripted(generate=answer, identity=f"waiting {writes}")
"""


@pytest.mark.process
@pytest.mark.skipif("ASSAY_CLUSTER_TESTS" not in os.environ, reason="needs a quiet machine: make test-cluster")
@pytest.mark.xdist_group("ray")
def test_over_a_cluster_the_next_model_starts_on_replicas_that_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first model answers its first document when the next one has answered something, on the place of its other replica."""
    pytest.importorskip("ray")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as short:  # sockets have short paths
        monkeypatch.setenv("RAY_TMPDIR", short)
        write_task(
            tmp_path / "tasks",
            [{"q": str(n)} for n in range(6)],
            "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: q\nmetric_list: [{metric: exact_match}]\n",
        )
        (tmp_path / "waiting.py").write_text(WAITING)
        models = [
            {"model": "waiting", "model_args": {"file": str(tmp_path / "asked")}, "name": "slow"},
            {"model": "waiting", "model_args": {"file": str(tmp_path / "asked"), "writes": True}, "name": "next"},
            {"model": "embedded", "model_args": {"path": str(tmp_path)}, "name": "broken"},
        ]
        more = ("--plugin", tmp_path / "waiting.py", "--include_path", tmp_path / "tasks", "-o", tmp_path / "out")
        assert run(tmp_path, models, *more, "--replicas", 2, tasks=["t"]) == 2
    ended = capsys.readouterr()
    header, _, row = table(ended.out)
    assert header[4:] == ["slow", "next", "broken"]
    assert row[4:] == ["1.0000 ± 0.0000", "1.0000 ± 0.0000", "–"], ended.err
    assert "broken: could not be evaluated: " in ended.err
