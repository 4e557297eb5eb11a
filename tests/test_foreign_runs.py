"""Runs of other people: scoring them runs no code from a path that they name."""

import dataclasses
import json
import shutil
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from assay import ScoreOptions, score, simple_evaluate
from assay.config.run import RunConfig
from assay.errors import AssayError
from assay.evaluation import answers
from assay.evaluation.answers import imported, is_known, without_paths
from assay.evaluation.merge import merge
from assay.exchange.archive import pack
from assay.exchange.importers import import_runs
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.models import Scripted
from assay.runs.signature import is_signed_by_user
from run_world import manifest, results

pytestmark = pytest.mark.slow  # whole runs: too long for `make quick`

INSPECT = Path(__file__).parent / "inspect_logs"
TASK = """task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: sums.jsonl}}
test_split: test
doc_to_text: q
doc_to_target: a
process_results: !function helper.points
metric_list: [{metric: points, aggregation: mean}]
"""
HELPER = """from pathlib import Path

Path({canary!r}).touch()


def points(doc, results):
    return {{"points": float(results[0] == doc["a"])}}
"""
ASKS = "--include_path"


@dataclasses.dataclass
class World:
    """A folder of tasks whose helper leaves a mark when it is loaded, and a run of them."""

    tasks: Path
    run: Path
    canary: Path

    @property
    def was_loaded(self) -> bool:
        """Whether the code of the tasks ran since the last look."""
        result = self.canary.exists()
        self.canary.unlink(missing_ok=True)
        return result


def write_tasks(folder: Path, canary: Path, name: str = "sums") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_text(TASK.replace("task: sums", f"task: {name}"))
    (folder / "helper.py").write_text(HELPER.format(canary=str(canary)))
    (folder / "sums.jsonl").write_text('{"q": "1+1", "a": "2"}\n{"q": "1+2", "a": "3"}\n')
    return folder


@pytest.fixture
def world(tmp_path: Path) -> World:
    small_world = World(write_tasks(tmp_path / "tasks", tmp_path / "canary"), tmp_path / "run", tmp_path / "canary")
    evaluate(small_world, "sums")
    assert small_world.was_loaded
    return small_world


def evaluate(world: World, tasks: object, output: Path | None = None, **more: Any) -> None:
    model = Scripted(generate=lambda prompt, params, repeat: "2", identity="two")
    options = {"include_path": str(world.tasks), "include_defaults": False, **more}
    simple_evaluate(model, tasks=tasks, output_path=str(output or world.run), **options)


def rewrite(run: Path, **changes: Any) -> None:
    """Say something else in the options of a run, as anyone with an editor can."""
    known = manifest(run)
    known["options"] = {**known["options"], **changes}
    (run / "manifest.json").write_text(json.dumps(known))


def evil(world: World, archive: Path, **changes: Any) -> Path:
    """An archive that names whatever its sender likes, with hashes that are right."""
    packed = pack(world.run, archive).path
    with zipfile.ZipFile(packed) as file:
        content = {name: file.read(name) for name in file.namelist()}
    [reported] = [name for name in content if name.endswith("/manifest.json")]
    [note] = [name for name in content if name.endswith("packed.json")]
    known = json.loads(content[reported])
    known["options"] |= changes
    content[reported] = json.dumps(known).encode()
    hashes = json.loads(content[note])
    hashes["files"]["manifest.json"] = sha256(content[reported]).hexdigest()
    content[note] = json.dumps(hashes).encode()
    with zipfile.ZipFile(archive, "w") as file:
        for name, each in content.items():
            file.writestr(name, each)
    return archive


def refused(world: World, run: Path, options: ScoreOptions | None = None) -> str:
    """What is said when a run is scored that is not trusted: it is not scored, and no code of its tasks was run."""
    with pytest.raises(AssayError, match=ASKS) as error:
        score(run, options)
    assert not world.was_loaded
    return str(error.value)


def test_a_run_that_was_made_here_is_scored_with_the_folders_it_names(world: World, tmp_path: Path) -> None:
    assert is_signed_by_user(manifest(world.run))
    assert lm_eval_layout(score(world.run).results)["results"]["sums"]["points,none"] == 0.5
    assert world.was_loaded
    shutil.move(world.run, tmp_path / "elsewhere")  # it is the same run, wherever it is put
    score(tmp_path / "elsewhere")
    shutil.copytree(tmp_path / "elsewhere", tmp_path / "copy")
    score(tmp_path / "copy")


@pytest.mark.parametrize("named", ["file", "folder", "format of a file"])
def test_a_task_that_was_asked_for_by_its_path_is_found_again_in_a_run_made_here(named: str, world: World) -> None:
    path = {"file": "sums.yaml", "folder": "", "format of a file": "sums.yaml"}[named]
    output = world.run.with_name("by_path")
    evaluate(world, str(world.tasks / path), output, include_path=None)
    assert lm_eval_layout(score(output).results)["results"]["sums"]["points,none"] == 0.5
    archive = pack(output, world.run.with_name("p.zip")).path
    import_runs([archive], world.run.with_name("there"))
    world.canary.unlink()
    assert str(world.tasks) in refused(world, world.run.with_name("there")).replace("~", str(Path.home()))
    scores = score(world.run.with_name("there"), ScoreOptions(include_path=[str(world.tasks)]))
    assert lm_eval_layout(scores.results)["results"]["sums"]["points,none"] == 0.5


def test_an_archive_that_was_imported_runs_no_code_of_its_sender(world: World, tmp_path: Path, run_assay: Any) -> None:
    archive = evil(world, tmp_path / "evil.zip", include_path=[str(world.tasks)])
    import_runs([archive], tmp_path / "there")
    assert "made elsewhere" in refused(world, tmp_path / "there")
    ended = run_assay("score", tmp_path / "there", cwd=Path("/"))
    assert (ended.returncode, world.was_loaded) == (2, False)
    assert "--include_path DIR" in ended.stderr and str(world.tasks) in ended.stderr
    assert "Traceback" not in ended.stderr
    ended = run_assay("score", tmp_path / "there", "--include_path", world.tasks)
    assert (ended.returncode, world.was_loaded) == (0, True), ended.stderr
    assert "the run was made elsewhere; the paths it names are not used" in ended.stderr


def test_nothing_that_was_imported_is_named_under_the_name_that_is_used(world: World, tmp_path: Path) -> None:
    import_runs([evil(world, tmp_path / "evil.zip", data_dir="/tmp/x", models_file="/tmp/m.yaml")], tmp_path / "there")
    run_manifest = manifest(tmp_path / "there")
    assert run_manifest["options"].keys().isdisjoint({"include_path", "data_dir", "models_file"})
    assert {*run_manifest["left_out"]} == {str(world.tasks), "/tmp/x", "/tmp/m.yaml"}
    assert "signature" not in run_manifest


@pytest.mark.parametrize("with_note", [True, False])
def test_an_archive_that_is_unpacked_by_hand_runs_no_code_of_its_sender(
    with_note: bool, world: World, tmp_path: Path
) -> None:
    archive = evil(world, tmp_path / "evil.zip", include_path=[str(world.tasks)])
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path / "there")
    [run] = (tmp_path / "there").iterdir()
    if not with_note:
        (run / "packed.json").unlink()
    refused(world, run)


@pytest.mark.parametrize("changes", [{}, {"signature": "0" * 64}, {"signature": 3}, {"signature": "ü"}])
def test_a_manifest_that_was_changed_is_nobodys(changes: dict[str, Any], world: World) -> None:
    known = manifest(world.run)
    options = {**known["options"], "include_path": [str(world.tasks), "/tmp"]}
    (world.run / "manifest.json").write_text(json.dumps({**known, "options": options, **changes}))
    assert not is_signed_by_user(manifest(world.run))
    refused(world, world.run)


def test_a_run_of_another_user_or_of_a_user_without_a_key_names_nothing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "another"))
    refused(world, world.run)
    evaluate(world, "sums", tmp_path / "theirs")
    assert is_signed_by_user(manifest(tmp_path / "theirs"))
    key = tmp_path / "another/run.key"
    assert key.stat().st_mode & 0o777 == 0o600
    key.chmod(0o644)  # whoever can read it can sign
    assert not is_signed_by_user(manifest(tmp_path / "theirs"))


def test_where_no_key_can_be_kept_a_run_is_made_and_asks_for_its_folders_later(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "file"))
    evaluate(world, "sums", tmp_path / "unsigned")
    world.canary.unlink()
    assert "signature" not in manifest(tmp_path / "unsigned")
    refused(world, tmp_path / "unsigned")
    score(tmp_path / "unsigned", ScoreOptions(include_path=[str(world.tasks)]))


@pytest.mark.parametrize(
    "name",
    ["{tasks}/sums.yaml", "{tasks}", "./sums.yaml", "sums.yaml", "sums.yaml x", "x,sums.yaml", "sums.yaml@x", "~/tasks",
     "../tasks/*.yaml", {"task": "sums", "include": "{tasks}/sums.yaml"}, {"class": "helper.Task", "task": "sums"}],
)  # fmt: skip
def test_a_task_of_a_foreign_run_is_never_a_file(
    name: Any, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.tasks)
    text = json.dumps(name).replace("{tasks}", str(world.tasks))
    rewrite(world.run, tasks=[json.loads(text)], include_path=None, confirm_run_unsafe_code=True)
    refused(world, world.run)
    import_runs([evil(world, tmp_path / "evil.zip", tasks=[json.loads(text)])], tmp_path / "there")
    refused(world, tmp_path / "there")


def test_a_graph_below_the_working_directory_is_not_what_a_foreign_run_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tasks/eval/mine").mkdir(parents=True)
    (tmp_path / "tasks/eval/mine/graph_config.yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert not is_known("tasks.eval.mine", [])
    assert not is_known("eval.mine", [str(tmp_path / "another")])
    assert is_known("tasks.eval.mine", [str(tmp_path)])
    assert is_known("tasks.eval.other", [])


@pytest.mark.parametrize("name", ["{tasks}/sums.yaml", "sums.yaml"])
def test_a_log_of_inspects_cannot_name_a_file_either(
    name: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from exchange_world import as_json

    log = json.loads(as_json(INSPECT / "sums.eval", tmp_path / "log.json").read_text())
    log["eval"]["task"] = name.replace("{tasks}", str(world.tasks))
    (tmp_path / "log.json").write_text(json.dumps(log))
    monkeypatch.chdir(world.tasks)
    import_runs([tmp_path / "log.json"], tmp_path / "there")
    refused(world, tmp_path / "there")


def test_samples_files_of_lm_evals_name_tasks_and_no_files(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = tmp_path / "logged"
    logged.mkdir()
    line = {"doc_id": 0, "doc": {"q": "1+1", "a": "2"}, "target": "2", "arguments": {"gen_args_0": {"arg_0": "1+1", "arg_1": {}}},
            "resps": [["2"]], "filtered_resps": ["2"], "filter": "none", "metrics": ["points"], "points": 1.0}  # fmt: skip
    (logged / "samples_sums.yaml.jsonl").write_text(json.dumps(line) + "\n")
    monkeypatch.chdir(world.tasks)
    refused(world, logged)
    scores = score(logged / "samples_sums.yaml.jsonl", ScoreOptions(tasks=["sums"], include_path=["."]))
    assert (lm_eval_layout(scores.results)["results"]["sums"]["points,none"], world.was_loaded) == (1.0, True)


def test_tasks_of_an_imported_run_are_looked_up_by_name_only(world: World, tmp_path: Path) -> None:
    import_runs([world.run], tmp_path / "there")
    refused(world, tmp_path / "there")
    score(tmp_path / "there", ScoreOptions(include_path=[str(world.tasks)]))
    assert world.was_loaded


def test_a_foreign_run_of_tasks_that_are_known_here_is_scored_without_asking(tmp_path: Path) -> None:
    model = Scripted(
        generate=lambda prompt, params, repeat: "2", loglikelihood=lambda context, continuation: (-1.0, False)
    )
    simple_evaluate(model, tasks=["first_steps_differences"], limit=2, output_path=str(tmp_path / "run"))
    import_runs([pack(tmp_path / "run", tmp_path / "p.zip").path], tmp_path / "there")
    assert lm_eval_layout(score(tmp_path / "there").results)["results"] == results(tmp_path / "run")["results"]


def test_shards_that_were_made_elsewhere_are_merged_with_folders_that_are_given(world: World, tmp_path: Path) -> None:
    parts = [tmp_path / "one", tmp_path / "two"]
    for number, part in enumerate(parts, 1):
        evaluate(world, "sums", part, shard=f"{number}/2")
    merge(tmp_path / "own", parts)
    assert is_signed_by_user(manifest(tmp_path / "own"))
    for part in parts:
        rewrite(part, include_path=[str(world.tasks), "/tmp"])
    world.canary.unlink()
    with pytest.raises(AssayError, match=ASKS):
        merge(tmp_path / "whole", parts)
    assert not world.was_loaded and not (tmp_path / "whole").exists()
    result = lm_eval_layout(merge(tmp_path / "whole", parts, include_path=[str(world.tasks)]))
    assert result["results"]["sums"]["points,none"] == 0.5
    assert manifest(tmp_path / "whole")["options"]["include_path"] == [str(world.tasks)]
    assert lm_eval_layout(score(tmp_path / "whole").results)["results"]["sums"]["points,none"] == 0.5


def test_ones_consent_to_run_code_is_not_anothers() -> None:
    arguments = {"tasks": ["a"], "confirm_run_unsafe_code": True, "trust_remote_code": True, "limit": 3}
    assert without_paths(arguments, ["a"]).options == {"tasks": ["a"], "limit": 3}


def test_every_option_of_a_run_is_either_data_or_left_out() -> None:
    """A new option that names a path, or allows code to run, must be put into one of the lists."""
    data = {
        "tasks", "model", "num_fewshot", "repeats", "gen_kwargs", "system_instruction", "apply_chat_template",
        "fewshot_as_multiturn", "over_length", "max_cost", "max_time", "max_failures", "resume_calls", "limit", "start_index", "sample",
        "samples", "shard", "include_defaults", "run_name", "log_samples", "batch_size", "max_batch_size", "device", "compat",
        "bootstrap_iters", "predict_only", "max_failed", "seed", "random_seed", "numpy_random_seed", "torch_random_seed",
        "fewshot_random_seed", "cache_requests", "rewrite_requests_cache", "delete_requests_cache", "check_integrity",
        "model_named", "records_at_once", "keep_finished",
    }  # fmt: skip
    known = data | answers.PATHS | answers.CONSENT | answers.UNUSED | answers.ARGUMENTS
    assert {field.name for field in dataclasses.fields(RunConfig)} == known


def test_arguments_that_are_not_paths_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    arguments = {"pretrained": "org/name", "revision": "main", "n": 3, "a": "/tmp/x", "b": "~/x", "c": "./x", "d": "here",
             "e": {"deep": ["../x"]}, "f": ["x", {"y": 2}]}  # fmt: skip
    kept = {"pretrained": "org/name", "revision": "main", "n": 3, "f": ["x", {"y": 2}]}
    for written in (arguments, json.dumps(arguments)):
        assert without_paths({"tasks": ["a"], "metadata": written}, ["a"]).options["metadata"] == kept
    assert without_paths({"tasks": ["a"], "model_args": "pretrained=/tmp/x,dtype=auto"}, []).options["model_args"] == {
        "dtype": "auto"
    }


@pytest.mark.parametrize("options", [None, 3, "x", [], {"tasks": 3}, {"tasks": [None, 3]}, {"model_args": "a b"}])
def test_no_value_in_place_of_options_breaks_a_command(options: Any) -> None:
    result = imported({"options": options, "signature": "x", "left_out": 3}, ["a"])
    assert "signature" not in result


def test_a_key_is_made_once_by_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from assay.runs.signature import with_signature

    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "new"))
    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(with_signature, [{"a": 1}] * 32))
    assert len({each.get("signature") for each in values if "signature" in each}) == 1
    assert (tmp_path / "new/run.key").stat().st_size == 32
