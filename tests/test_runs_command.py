"""Every run is kept: where it goes without --output_path, and `assay runs`."""

import json
import time
from pathlib import Path

import pytest

from commands import Run
from run_world import RecordingModel, run, start

COMMAND = ("run", "--tasks", "sums", "--no_defaults", "--model", "dummy", "--include_path")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def folders(runs: Path) -> list[str]:
    return sorted(path.name for path in runs.iterdir()) if runs.is_dir() else []


def test_the_default_folder_is_named_after_day_model_and_tasks(tasks: Path, run_assay: Run, runs: Path) -> None:
    ended = run_assay(*COMMAND, tasks)
    name = f"{time.strftime('%Y-%m-%d')}-dummy-sums"
    assert (ended.returncode, folders(runs)) == (0, [name])
    assert f"run: {runs / name}" in ended.stdout
    assert (runs / name / "results.json").is_file()


def test_a_finished_run_is_left_alone_and_the_next_gets_a_new_folder(tasks: Path, run_assay: Run, runs: Path) -> None:
    for _ in range(2):
        assert run_assay(*COMMAND, tasks).returncode == 0
    first, second = folders(runs)
    assert second == f"{first}-2"


@pytest.mark.parametrize("status", ["running", "interrupted", "stopped", "partial", "incomplete"])
def test_the_same_command_resumes_its_unfinished_run(status: str, tasks: Path, run_assay: Run, runs: Path) -> None:
    run_assay(*COMMAND, tasks)
    [name] = folders(runs)
    manifest = json.loads((runs / name / "manifest.json").read_text())
    (runs / name / "manifest.json").write_text(json.dumps({**manifest, "status": status}))
    assert run_assay(*COMMAND, tasks).returncode == 0
    assert folders(runs) == [name]
    assert json.loads((runs / name / "manifest.json").read_text())["status"] == "complete"


def test_another_command_does_not_resume_an_unfinished_run(tasks: Path, run_assay: Run, runs: Path) -> None:
    run_assay(*COMMAND, tasks)
    [name] = folders(runs)
    path = runs / name / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "interrupted"}))
    assert run_assay(*COMMAND, tasks, "--num_fewshot", 1).returncode == 0
    assert folders(runs) == [name, f"{name}-2"]


def test_the_folder_of_runs_comes_from_flag_environment_or_working_directory(
    tasks: Path, run_assay: Run, tmp_path: Path, runs: Path
) -> None:
    assert run_assay(*COMMAND, tasks, "--runs_dir", tmp_path / "by_flag").returncode == 0
    assert run_assay(*COMMAND, tasks, ASSAY_RUNS_DIR=str(tmp_path / "by_name")).returncode == 0
    (tmp_path / "here").mkdir()
    assert run_assay(*COMMAND, tasks, cwd=tmp_path / "here", ASSAY_RUNS_DIR="").returncode == 0
    assert [len(folders(tmp_path / each)) for each in ("by_flag", "by_name", "here/runs")] == [1, 1, 1]
    assert folders(runs) == []


def test_no_output_writes_nothing(tasks: Path, run_assay: Run, runs: Path) -> None:
    ended = run_assay(*COMMAND, tasks, "--no_output")
    assert (ended.returncode, folders(runs), "run:" in ended.stdout) == (0, [], False)


@pytest.mark.parametrize("flags", [["--output_path", "x"], ["--log_samples"], ["--predict_only"]])
def test_no_output_excludes_what_needs_a_folder(flags: list[str], tasks: Path, run_assay: Run) -> None:
    ended = run_assay(*COMMAND, tasks, "--no_output", *flags)
    assert ended.returncode == 2
    assert f"--no_output excludes {flags[0]}" in ended.stderr


def test_python_writes_nothing_unless_asked(tasks: Path, runs: Path) -> None:
    run(RecordingModel(), tasks)
    assert folders(runs) == []
    run(RecordingModel(), tasks, runs_dir=str(runs))
    assert len(folders(runs)) == 1


def test_runs_are_listed_shown_and_removed(tasks: Path, run_assay: Run, runs: Path) -> None:
    assert "no runs in" in run_assay("runs", "list").stdout
    run_assay(*COMMAND, tasks)
    [name] = folders(runs)
    listed = run_assay("runs", "list").stdout.splitlines()
    assert [word in listed[1] for word in (name, "dummy", "sums", "complete", "exact_match")] == [True] * 5
    assert run_assay("runs", "--runs_dir", runs).stdout.splitlines() == listed
    assert run_assay("runs", "--runs_dir", runs, "list").stdout.splitlines() == listed
    assert "exact_match" in run_assay("runs", "show", name).stdout
    assert run_assay("runs", "rm", name).returncode == 0
    assert folders(runs) == []


def test_only_a_folder_with_a_manifest_and_without_a_running_process_is_removed(
    tasks: Path, run_assay: Run, runs: Path, tmp_path: Path
) -> None:
    (runs / "photos").mkdir(parents=True)
    (runs / "photos/cat.png").write_text("meow")
    refused = run_assay("runs", "rm", "photos")
    assert (refused.returncode, (runs / "photos/cat.png").exists()) == (2, True)
    assert "holds no run" in refused.stderr
    unknown = run_assay("runs", "rm", "nothing")
    assert (unknown.returncode, "no run named 'nothing'" in unknown.stderr) == (2, True)
    run_assay(*COMMAND, tasks)
    name = next(each for each in folders(runs) if each != "photos")
    script = "import sys, time; from pathlib import Path; from assay.runs.lease import Lease; Lease(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    holder = start("-c", script, str(runs / name), cwd=tmp_path)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "held"
        held = run_assay("runs", "rm", name)
        assert (held.returncode, (runs / name).exists()) == (2, True)
        assert "another run uses this folder" in held.stderr
    finally:
        holder.kill()
        holder.communicate()
    assert run_assay("runs", "rm", name).returncode == 0


def test_of_several_names_none_is_removed_where_one_is_unknown(tasks: Path, run_assay: Run, runs: Path) -> None:
    run_assay(*COMMAND, tasks)
    [name] = folders(runs)
    assert run_assay("runs", "rm", name, "other").returncode == 2
    assert folders(runs) == [name]
