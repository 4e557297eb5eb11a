"""The folder of a run: what it holds, whose it is, what never gets into it. Expected numbers are worked out in run_world."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import assay
from assay import AssayError
from assay.models import Scripted
from assay.runs.folder import git_state
from commands import Run
from conftest import Write
from run_world import (
    ACC,
    ACC_STDERR,
    CHOICES,
    COLOURS,
    EXACT_MATCH,
    EXACT_MATCH_STDERR,
    FILES,
    REQUESTS,
    SUMS,
    RecordingModel,
    everything,
    journal,
    keys,
    manifest,
    results,
    run,
    samples,
)
from small_runs import write_task

pytestmark = pytest.mark.slow  # whole runs: too long for `make quick`


# What a finished run leaves


@pytest.mark.parametrize("logged", [False, True])
def test_a_finished_run_leaves_these_files_and_no_others(logged: bool, tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output, log_samples=logged)
    always = {"manifest.json", "responses.jsonl", "results.json", "samples/sums.parquet", "samples/colours.parquet"}
    assert set(everything(output)) == always | ({"samples_sums.jsonl", "samples_colours.jsonl"} if logged else set())


def test_the_command_writes_lm_evals_samples_only_when_asked_to(tasks: Path, output: Path, run_assay: Run) -> None:
    command = ("run", "--tasks", "sums", "--model", "dummy", "--include_path", tasks, "--output_path", output)
    assert run_assay(*command).returncode == 0
    assert not list(output.glob("samples_*"))
    assert run_assay(*command, "--log_samples").returncode == 0
    assert [path.name for path in output.glob("samples_*")] == ["samples_sums.jsonl"]


def test_the_numbers_are_those_of_the_script(tasks: Path, output: Path) -> None:
    returned = run(RecordingModel(), tasks, output)
    for content in (returned, results(output)):
        sums, colours = content["results"]["sums"], content["results"]["colours"]
        assert sums["exact_match,none"] == pytest.approx(EXACT_MATCH, abs=1e-12)
        assert sums["exact_match_stderr,none"] == pytest.approx(EXACT_MATCH_STDERR, abs=1e-12)
        assert colours["acc,none"] == pytest.approx(ACC, abs=1e-12)
        assert colours["acc_stderr,none"] == pytest.approx(ACC_STDERR, abs=1e-12)
        assert content["n-samples"] == {
            name: {"original": n, "effective": n} for name, n in (("sums", 5), ("colours", 4))
        }


def test_returned_results_equal_results_json(tasks: Path, output: Path) -> None:
    returned = run(RecordingModel(), tasks, output, log_samples=True)
    assert sorted(returned.pop("samples")) == ["colours", "sums"]
    assert len(json.loads((output / "results.json").read_text())["crc32"]) == 8
    assert json.loads(json.dumps(returned)) == json.loads(json.dumps(results(output)))


def test_the_journal_holds_each_response_once(tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output)
    assert len(set(keys(output))) == len(keys(output)) == REQUESTS == 13
    responses = [line["r"] for line in journal(output)]
    texts = [response["text"] for response in responses if isinstance(response, dict)]
    likelihoods = [response[0] for response in responses if isinstance(response, list)]
    assert sorted(texts) == sorted(said for _, said in SUMS.values())
    assert sorted(likelihoods) == sorted(value for _, *both in COLOURS.values() for value in both)


def test_the_parquet_samples_hold_each_document_with_its_responses_and_scores(tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output)
    rows = samples(output, "sums")
    assert [row["doc_id"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["prefix"] + row["prompt"] for row in rows] == list(SUMS)
    assert [json.loads(row["doc"])["a"] for row in rows] == [right for right, _ in SUMS.values()]
    assert [row["responses"] for row in rows] == [[[said]] for _, said in SUMS.values()]
    assert [row["scores"]["exact_match,none"] for row in rows] == [1, 1, 0, 1, 0]
    rows = samples(output, "colours")
    assert [row["choices"] for row in rows] == [CHOICES] * 4
    assert [[one[0][0] for one in row["responses"]] for row in rows] == [list(both) for _, *both in COLOURS.values()]
    assert [row["scores"]["acc,none"] for row in rows] == [1, 1, 1, 0]


def test_lm_evals_samples_hold_the_same(tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output, log_samples=True)
    lines = [json.loads(line) for line in (output / "samples_sums.jsonl").read_text().splitlines()]
    assert [line["doc_id"] for line in lines] == [0, 1, 2, 3, 4]
    assert [line["arguments"]["gen_args_0"]["arg_0"] for line in lines] == list(SUMS)
    assert [line["resps"] for line in lines] == [[[said]] for _, said in SUMS.values()]
    assert [line["exact_match"] for line in lines] == [1, 1, 0, 1, 0]
    lines = [json.loads(line) for line in (output / "samples_colours.jsonl").read_text().splitlines()]
    assert [line["acc"] for line in lines] == [1, 1, 1, 0]


def test_the_manifest_records_how_the_run_was_made(tasks: Path, output: Path) -> None:
    asked = RecordingModel()
    run(asked, tasks, output, seed=[1, 22, 333, 4444])
    written = manifest(output)
    assert written["status"] == "complete"
    assert written["model"]["identity"] == asked.model.identity
    assert set(written["spec"]["tasks"]) == {"sums", "colours"}
    assert written["environment"]["packages"]["assay"] == assay.__version__
    assert written["environment"]["python"] == "{}.{}.{}".format(*sys.version_info[:3])
    seeds = ("random_seed", "numpy_random_seed", "torch_random_seed", "fewshot_random_seed")
    assert [written["spec"][name] for name in seeds] == [1, 22, 333, 4444]


def test_the_manifest_of_a_command_holds_the_command_and_the_state_of_git(
    tasks: Path, output: Path, run_assay: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GIT_DIR")  # with which tests have no repository
    git = ("git", "-C", tasks, "-c", "user.name=n", "-c", "user.email=e")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-qm", "m")):
        subprocess.run([*git, *arguments], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    run_assay("run", "-t", "sums", "-M", "dummy", "--include_path", tasks, "-o", output, cwd=tasks)
    assert manifest(output)["environment"]["git"] == {"commit": commit, "dirty": False}
    assert assay.Run.open(output).results.facts["git_hash"] == commit
    command = ["run", "-t", "sums", "-M", "dummy", "--include_path", str(tasks), "-o", str(output)]
    assert manifest(output)["command"][-len(command) :] == command


def test_the_state_of_git_is_read_without_writing_to_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`git status` locks the index to refresh it: other commands fail meanwhile, and for good where it was killed."""
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("text")
    for arguments in (("init", "-q"), ("add", "."), ("-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m")):
        subprocess.run(["git", *arguments], check=True)
    os.utime("file", (1, 1))
    before = Path(".git/index").read_bytes()
    assert git_state() is not None
    assert Path(".git/index").read_bytes() == before


# Whose folder it is

OTHER_SPECS = {
    "fewer documents": {"limit": 2},
    "other documents": {"samples": {"sums": [0, 1], "colours": [0]}},
    "another seed": {"seed": 7},
    "other parameters of generation": {"gen_kwargs": "max_gen_toks=7"},
    "another system message": {"system_instruction": "Be brief."},
    "fewer tasks": {"tasks": ["sums"]},
    "lm-eval's errors": {"compat": "lm-eval"},
}

OTHER_FILES = {
    "another template": {"sums.yaml": FILES["sums.yaml"].replace("{{q}}=", "{{q}} =")},
    "another target": {"sums.yaml": FILES["sums.yaml"].replace("doc_to_target: a", "doc_to_target: q")},
    "another metric": {"colours.yaml": FILES["colours.yaml"].replace("metric: acc", "metric: acc_norm")},
    "other data": {"sums.jsonl": FILES["sums.jsonl"].replace('"9"', '"8"')},
    "other helper code": {"tools.py": "def same(docs):\n    return docs.select([1, 0, 2, 3])\n"},
}


def refused(folder: Path, output: Path, **options: object) -> str:
    """What is said when a run is refused: nothing was asked, and nothing in the folder has changed."""
    before, asked = everything(output), RecordingModel()
    with pytest.raises(AssayError) as refusal:
        run(asked, folder, output, **options)
    assert asked.calls == []
    assert everything(output) == before
    return str(refusal.value)


@pytest.mark.parametrize("options", OTHER_SPECS.values(), ids=OTHER_SPECS)
def test_another_spec_is_refused_and_the_way_out_is_named(
    options: dict[str, object], tasks: Path, output: Path
) -> None:
    run(RecordingModel(), tasks, output)
    said = refused(tasks, output, **options)
    assert str(output) in said
    assert "force" in said
    assert "--output_path" in said


@pytest.mark.parametrize("files", OTHER_FILES.values(), ids=OTHER_FILES)
def test_a_changed_file_of_a_task_is_another_spec(
    files: dict[str, str], write: Write, tasks: Path, output: Path
) -> None:
    run(RecordingModel(), tasks, output)
    write(files)
    assert "force" in refused(tasks, output)


def test_a_helper_module_that_another_imports_is_part_of_the_spec(write: Write, output: Path) -> None:
    helpers = {"tools.py": "from deeper import same\n", "deeper.py": FILES["tools.py"]}
    tasks = write({**FILES, **helpers})
    run(RecordingModel(), tasks, output)
    write({"deeper.py": "def same(docs):\n    return docs.select([0, 1])\n"})
    assert "force" in refused(tasks, output)


def test_another_model_is_refused(tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output, tasks=["sums"])
    other = assay.models.Scripted(generate=lambda prompt, params, repeat: "2")
    with pytest.raises(AssayError, match=r"model.*force"):
        assay.simple_evaluate(
            other, tasks=["sums"], include_path=str(tasks), include_defaults=False, output_path=str(output)
        )


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 3},
        {"batch_size": "auto"},
        {"log_samples": True},
        {"write_out": True},
        {"show_config": True},
        {"force": False},
    ],
    ids=str,
)
def test_options_that_do_not_change_results_are_not_part_of_the_spec(
    options: dict[str, object], tasks: Path, output: Path
) -> None:
    run(RecordingModel(), tasks, output, log_samples=False)
    asked = RecordingModel()
    returned = run(asked, tasks, output, **{"log_samples": False, **options})
    assert asked.calls == []
    assert returned["results"]["sums"]["exact_match,none"] == pytest.approx(EXACT_MATCH, abs=1e-12)


def test_the_same_tasks_in_another_place_are_the_same_spec(tasks: Path, output: Path, tmp_path: Path) -> None:
    run(RecordingModel(), tasks, output)
    moved, asked = shutil.copytree(tasks, tmp_path / "elsewhere"), RecordingModel()
    shutil.rmtree(tasks)
    run(asked, moved, output)
    assert asked.calls == []


def test_force_moves_the_old_run_aside_and_loses_nothing(tasks: Path, output: Path) -> None:
    kept: list[dict[str, bytes]] = []
    for limit in (None, 1, 2, 3):  # quicker than one a second: every old run keeps a separate folder
        run(RecordingModel(), tasks, output, limit=limit, force=True)
        kept.append(everything(output))
    result = [everything(folder) for folder in output.parent.iterdir() if (folder / "manifest.json").exists()]
    assert all(run in result for run in kept)
    assert len(result) == 4
    assert results(output)["n-samples"]["sums"]["effective"] == 3


def test_other_files_in_the_output_folder_are_kept(tasks: Path, output: Path) -> None:
    output.mkdir()
    (output / "notes.txt").write_text("mine")
    try:
        run(RecordingModel(), tasks, output)
    except AssayError as refusal:
        assert str(output) in str(refusal)  # either way is fine, but for the loss of the file
    assert (output / "notes.txt").read_text() == "mine"


# What is refused before the first request


@pytest.mark.parametrize("place", ["{tmp}/a_file/run", "{tmp}/a_file", "/proc/assay/run"])
def test_a_folder_that_cannot_be_written_is_refused_before_any_request(place: str, tasks: Path, tmp_path: Path) -> None:
    (tmp_path / "a_file").write_text("mine")
    asked, expected = RecordingModel(), Path(place.format(tmp=tmp_path))
    with pytest.raises(AssayError, match=f"{expected}.*--output_path"):
        run(asked, tasks, expected)
    assert asked.calls == []
    assert (tmp_path / "a_file").read_text() == "mine"


def test_the_command_ends_with_2_when_the_folder_cannot_be_written(tasks: Path, run_assay: Run) -> None:
    ended = run_assay("run", "-t", "sums", "-M", "dummy", "--include_path", tasks, "-o", "/proc/assay/run")
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)
    assert "/proc/assay/run" in ended.stderr


# What leaves no trace

QUIET = """
import sys
sys.path.insert(0, {here!r})
from pathlib import Path
from run_world import RecordingModel, run
content = run(RecordingModel(), Path({tasks!r}), log_samples=True)
print(content["results"]["sums"]["exact_match,none"], len(content["samples"]["colours"]))
"""


def test_the_python_api_without_an_output_path_leaves_nothing_on_disk(tasks: Path, tmp_path: Path) -> None:
    """The index of task files is a cache of the catalog and has its own place, ASSAY_CACHE_DIR: it is not the run's."""
    watched = {name: tmp_path / "watched" / name for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "cwd")}
    for folder in watched.values():
        folder.mkdir(parents=True)
    before = everything(tasks)
    environment = {
        **{name: str(folder) for name, folder in watched.items()},
        "ASSAY_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    code = QUIET.format(here=str(Path(__file__).parent), tasks=str(tasks))
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=watched["cwd"], env=environment, capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == ["0.6", "4"]
    assert set((tmp_path / "watched").rglob("*")) == set(watched.values())
    assert everything(tasks) == before


# What others do to a folder while the run goes on


def cut_off(folder: Path) -> None:
    os.truncate(folder / "responses.jsonl", 50)


def remove(folder: Path) -> None:
    (folder / "responses.jsonl").unlink()


def replace(folder: Path) -> None:
    (folder / "responses.jsonl").rename(folder / "old.jsonl")
    (folder / "responses.jsonl").touch()


@pytest.mark.parametrize(
    ("harm", "what"),
    [(cut_off, "cut off"), (remove, "removed"), (replace, "replaced"), (shutil.rmtree, "removed")],
    ids=["cut off", "removed", "replaced", "the folder removed"],
)
def test_a_journal_that_is_harmed_during_the_run_is_noticed_and_the_numbers_are_right(
    harm: Callable[[Path], None], what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The model answers 20 questions at once, and is asked the first ones again by a second task."""
    for name in ("t", "u"):
        rows = [{"q": f"{number}", "gold": "x"} for number in range(20)]
        write_task(tmp_path / "tasks", rows, "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n", name)
    asked: list[str] = []

    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        asked.append(prompt)
        if len(asked) == 15:
            harm(tmp_path / "run")
        return "x" if int(prompt) % 2 else "y"

    options = {"include_path": str(tmp_path / "tasks"), "include_defaults": False, "output_path": str(tmp_path / "run")}
    done = assay.simple_evaluate(
        Scripted(generate=answer, identity="m"), tasks=["t", "u"], log_samples=False, **options
    )
    assert [done["results"][name]["exact_match,none"] for name in ("t", "u")] == [0.5, 0.5]
    [said] = [record.getMessage() for record in caplog.records if "during the run" in record.getMessage()]
    assert f"responses.jsonl was {what} during the run: the numbers are right" in said
    assert manifest(tmp_path / "run")["lost"] == f"responses.jsonl was {what} during the run"


def test_a_folder_that_is_removed_before_the_end_is_reported_as_such(tmp_path: Path) -> None:
    rows = [{"q": f"{number}", "gold": "x"} for number in range(4000)]
    write_task(tmp_path / "tasks", rows, "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n")
    asked: list[str] = []

    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        asked.append(prompt)
        if len(asked) == 3990:
            shutil.rmtree(tmp_path / "run")
        return "x"

    options = {"include_path": str(tmp_path / "tasks"), "include_defaults": False, "output_path": str(tmp_path / "run")}
    with pytest.raises(
        AssayError, match="files of the run were removed while it was written — keep other programs away"
    ):
        assay.simple_evaluate(Scripted(generate=answer, identity="m"), tasks=["t"], **options)
