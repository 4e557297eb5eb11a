"""Runs on object storage: written at the end, resumed from anywhere, read by every command; and folders of many runs."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay import Run, simple_evaluate
from assay.cli import main
from assay.comparison.compare import gate
from assay.errors import AssayError, ConfigError
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.runs.folder import RunError
from assay.runs.run import run_name
from assay.runs.storage import Storage, UploadError, is_url, local_folder, push, uploaded, url_of, working_folder
from run_world import EXACT_MATCH, SUMS, RecordingModel, run
from serving import Arrived, loopback

fsspec = pytest.importorskip("fsspec")
URL = "memory://bucket/team/run"


@pytest.fixture(autouse=True)
def store() -> Iterator[dict[str, Any]]:
    """The objects of the storage in memory, by name."""
    from fsspec.implementations.memory import MemoryFileSystem

    MemoryFileSystem.store.clear()
    yield MemoryFileSystem.store
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_sums(asked: RecordingModel, folder: Path, output: str | None, **options: object) -> dict[str, Any]:
    return run(asked, folder, output, tasks=["sums"], **options)  # type: ignore[arg-type]


def content(store: dict[str, Any], name: str) -> bytes:
    return bytes(store[f"/bucket/team/run/{name}"].getvalue())


def move_to_another_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither copies nor cache are there."""
    for name, folder in (("ASSAY_RUNS_DIR", "other/runs"), ("ASSAY_CACHE_DIR", "other/cache")):
        monkeypatch.setenv(name, str(tmp_path / folder))


def test_a_run_is_uploaded_at_its_end_and_opened_by_its_url(tasks: Path, store: dict[str, Any]) -> None:
    run_sums(RecordingModel(), tasks, URL)
    names = {name.removeprefix("/bucket/team/run/") for name in store}
    assert names == {
        "manifest.json",
        "results.json",
        "responses.jsonl",
        "samples/sums.parquet",
        "samples_sums.jsonl",
        "uploaded.json",
    }
    [row] = Run.open(URL).rows("sums").values()
    assert row.estimate.value == EXACT_MATCH
    assert Run.open(URL).status == "complete"
    assert len(Run.open(Path(URL)).sample_files()["sums"].path.read_bytes()) == len(
        content(store, "samples/sums.parquet")
    )


def test_the_same_command_asks_nothing_again_on_any_machine(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = RecordingModel(), RecordingModel(), RecordingModel()
    run_sums(first, tasks, URL)
    run_sums(second, tasks, URL)
    move_to_another_machine(monkeypatch, tmp_path)
    run_sums(third, tasks, URL)
    assert [len(each.calls) for each in (first, second, third)] == [len(SUMS), 0, 0]


def test_what_is_fetched_and_uploaded_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    with uploaded(URL, said.append) as here:
        (here / "manifest.json").write_text("{}")
    with uploaded(URL, said.append):
        pass
    move_to_another_machine(monkeypatch, tmp_path)
    with uploaded(URL, said.append) as there:
        pass
    assert here != there and (there / "manifest.json").read_text() == "{}"
    assert said == [
        f"uploading to {URL} …",
        f"uploaded: {URL} (1 files; the local copy is in {here})",
        f"{URL}: continued from its copy in {here}",
        f"uploading to {URL} …",
        f"uploaded: {URL} (0 files; the local copy is in {here})",
        f"{URL}: a run is there, and is continued; 2 files are fetched to {there}",
        f"uploading to {URL} …",
        f"uploaded: {URL} (0 files; the local copy is in {there})",
    ]


def interrupt_the_fourth(asked: RecordingModel) -> None:
    if len(asked.calls) == 3:
        raise KeyboardInterrupt


def test_an_interrupted_run_is_uploaded_as_far_as_it_is_and_resumed_elsewhere(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: dict[str, Any]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_sums(RecordingModel(first=interrupt_the_fourth), tasks, URL)
    assert json.loads(content(store, "manifest.json"))["status"] == "interrupted"
    assert Run.open(URL).status == "interrupted"
    move_to_another_machine(monkeypatch, tmp_path)
    model = RecordingModel()
    results = run_sums(model, tasks, URL)
    assert results["results"]["sums"]["exact_match,none"] == EXACT_MATCH
    assert Run.open(URL).status == "complete"


def test_an_incomplete_run_is_uploaded_and_only_what_failed_is_asked_again_elsewhere(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_sums(RecordingModel(failing={"3*3=", "8/2="}), tasks, URL)
    assert Run.open(URL).status == "incomplete"
    move_to_another_machine(monkeypatch, tmp_path)
    model = RecordingModel()
    run_sums(model, tasks, URL)
    assert sorted(prompt for prompt, _ in model.calls) == ["3*3=", "8/2="]
    assert Run.open(URL).status == "complete"


def test_a_changed_run_is_never_read_from_an_old_copy(tasks: Path) -> None:
    run_sums(RecordingModel(), tasks, URL)
    assert lm_eval_layout(Run.open(URL).results)["n-samples"]["sums"]["effective"] == 5
    run_sums(RecordingModel(), tasks, "other", limit=2)
    push(Path("other"), URL, force=True)
    assert lm_eval_layout(Run.open(URL).results)["n-samples"]["sums"]["effective"] == 2
    assert len(list(Run.open(URL).responses())) == 2


@pytest.mark.parametrize("name", ["samples/sums.parquet", "results.json", "responses.jsonl", "manifest.json"])
@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_truncated_and_a_missing_object_are_noticed(
    name: str, damage: str, tasks: Path, store: dict[str, Any]
) -> None:
    run_sums(RecordingModel(), tasks, URL)
    files = fsspec.filesystem("memory")
    if damage == "missing":
        files.rm_file(f"/bucket/team/run/{name}")
    else:
        files.pipe_file(f"/bucket/team/run/{name}", content(store, name)[:-9])
    for _ in range(2):  # nor is the damaged copy taken the second time
        with pytest.raises(RunError, match=f"{name} is missing, or not as it was uploaded"):
            Run.open(URL)
    with pytest.raises(RunError, match="not as it was uploaded"):
        run_sums(RecordingModel(), tasks, URL)
    [folder] = Path("runs/remote").glob("*/run")
    assert Run.open(folder).rows("sums")  # the good copy is not replaced by a damaged one
    push(folder, URL, force=True)
    assert Run.open(URL).rows("sums")


def test_an_upload_that_fails_loses_nothing_and_can_be_repeated(
    tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The storage is a folder that becomes a file while the run is at work."""
    place = tmp_path / "storage"
    url = f"file://{place}/run"

    def breaking(_: RecordingModel) -> None:
        if place.is_dir():
            place.rename(tmp_path / "moved")
            place.write_text("")

    with pytest.raises(UploadError) as failed:
        run_sums(RecordingModel(first=breaking), tasks, url)
    folder = failed.value.folder
    assert Run.open(folder).rows("sums") and folder == working_folder(url)
    assert f"assay runs push {folder} {url}" in str(failed.value)
    place.unlink()
    assert main(["runs", "push", str(folder), url]) == 0
    assert "5 files uploaded" in capsys.readouterr().out
    assert Run.open(url).status == "complete"


def test_a_server_is_not_asked_again_after_an_upload_that_failed(tasks: Path, tmp_path: Path) -> None:
    """The answers are in the local copy only: no request is tried again before the run either."""
    place, asked = tmp_path / "storage", list[str]()

    def answer(arrived: Arrived) -> Any:
        asked.extend(re.findall(r"\d[-+*/]\d=", arrived.body.decode()))
        if place.is_dir() and not (tmp_path / "broken").exists():
            (tmp_path / "broken").touch()
            place.rename(tmp_path / "moved")
            place.write_text("")
        return {"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}

    with loopback(answer) as (url, _):
        options = {"tasks": ["sums"], "include_path": str(tasks), "include_defaults": False}
        model_args = {"model": "m", "base_url": url}
        with pytest.raises(UploadError):
            simple_evaluate("openai-chat", model_args, output_path=f"file://{place}/run", **options)
        place.unlink()
        (tmp_path / "moved").rename(place)
        simple_evaluate("openai-chat", model_args, output_path=f"file://{place}/run", **options)
    assert len(asked) == len(set(asked)) == len(SUMS)


def test_two_machines_that_write_one_run_do_not_overwrite_each_other(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first is at work, the second finishes: the first keeps its copy, and says so."""

    def meanwhile(_: RecordingModel) -> None:
        if not Path("done").exists():
            Path("done").touch()
            with monkeypatch.context() as other:
                move_to_another_machine(other, tmp_path)
                run_sums(RecordingModel(), tasks, URL)

    with pytest.raises(UploadError, match="another copy of this one was uploaded since"):
        run_sums(RecordingModel(first=meanwhile), tasks, URL)
    assert Run.open(URL).rows("sums")


def test_answers_that_were_never_uploaded_are_not_replaced_by_another_machines(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after kill -9: the copy has a response more than the storage, where another machine then finishes the run."""
    run_sums(RecordingModel(failing={"3*3="}), tasks, URL)
    [copy] = Path("runs/remote").glob("*/run")
    with (copy / "responses.jsonl").open("ab") as journal:
        journal.write(b"more\n")
    with monkeypatch.context() as other:
        move_to_another_machine(other, tmp_path)
        run_sums(RecordingModel(), tasks, URL)
    for _ in range(2):
        with pytest.raises(RunError, match=r"has changed since its copy in .* was made, and so has the copy"):
            run_sums(RecordingModel(), tasks, URL)
    assert b"more" in (copy / "responses.jsonl").read_bytes()


def test_runs_side_by_side_are_pushed_to_their_urls(tasks: Path) -> None:
    for name, limit in (("one", 1), ("two", 2)):
        run_sums(RecordingModel(), tasks, f"local/{name}", limit=limit)
        push(Path("local") / name, f"memory://bucket/{name}")
    assert push(Path("local/one"), "memory://bucket/one") == 0
    with pytest.raises(UploadError, match="another run is there"):
        push(Path("local/one"), "memory://bucket/two")
    counts = [
        lm_eval_layout(Run.open(f"memory://bucket/{name}").results)["n-samples"]["sums"]["effective"]
        for name in ("one", "two")
    ]
    assert counts == [1, 2]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nosuchscheme://bucket/run", "Protocol not known: nosuchscheme — such as s3://bucket/folder"),
        ("memory://bucket/nothing", "there is no run at this URL"),
        ("sftp://me:swordfish@host/run", r"install"),
    ],
)
def test_a_url_that_cannot_be_opened_is_explained(url: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paramiko", None)
    with pytest.raises((ConfigError, RunError), match=message) as refused:
        Run.open(url)
    assert "swordfish" not in str(refused.value)


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "fsspec"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        ConfigError, match=r"a URL needs fsspec, which is not installed — pip install .*\[object-storage\]"
    ):
        Run.open(URL)


def test_a_url_that_cannot_be_opened_is_refused_before_a_model_is_asked(tasks: Path) -> None:
    model = RecordingModel()
    with pytest.raises(AssayError, match="Protocol not known"):
        run_sums(model, tasks, "nosuchscheme://bucket/run")
    assert model.calls == []


def test_commands_read_and_write_runs_by_their_urls(
    tasks: Path, store: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run_sums(RecordingModel(), tasks, URL)
    run_sums(RecordingModel(), tasks, "memory://bucket/team/other")
    other = "memory://bucket/team/other"
    for command in (
        ["compare", URL, other], ["leaderboard", URL, other], ["report", URL, "-o", "r.html"], ["samples", URL],
        ["export", URL, "--to", "parquet", "-o", "exported"], ["pack", URL], ["runs", "show", URL],
        ["runs", "show", "run", "--runs_dir", "memory://bucket/team"], ["plan", "--mde", "0.5", "--baseline", URL],
        ["score", URL, "--metric", "exact_match"],
    ):  # fmt: skip
        assert main(command) == 0, (command, capsys.readouterr())
    assert "/bucket/team/run/scored/001/results.json" in store  # uploaded
    capsys.readouterr()
    assert main(["runs", "list", "--runs_dir", "memory://bucket/team"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == ["run", "other", "run"]
    assert main(["runs", "rm", URL]) == 2


def test_gates_read_runs_and_packs_by_their_urls(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The baseline is a folder, or a file of `assay pack`, on the storage; reports name the URL, not the copy that is read."""
    run_sums(RecordingModel(), tasks, URL)
    assert main(["pack", URL, "--baseline", "-o", "main.zip"]) == 0
    pack = "memory://bucket/main.zip"
    fsspec.filesystem("memory").put_file("main.zip", "/bucket/main.zip")
    move_to_another_machine(monkeypatch, tmp_path)
    run_sums(RecordingModel(), tasks, "memory://bucket/team/other")
    for baseline in ("memory://bucket/team/other", pack):
        capsys.readouterr()
        gates = ["exact_match >= baseline - 1pp", "--baseline", baseline, "--junit", "j.xml"]
        assert main(["gate", URL, *gates]) == 0, capsys.readouterr()
        assert f"PASS: {URL} against {baseline}" in capsys.readouterr().out
        assert f"{URL} against {baseline}" in Path("j.xml").read_text()
        report = gate(URL, gates[:1], baseline=baseline)
        assert report.decision == "pass"
    assert main(["compare", pack, URL]) == 0
    run_sums(RecordingModel(), tasks, "memory://bucket/second/run")
    for command in ("compare", "leaderboard"):  # runs of one name are labelled by their URLs
        capsys.readouterr()
        assert main([command, URL, "memory://bucket/second/run"]) == 0
        assert "second/run" in capsys.readouterr().out
    fsspec.filesystem("memory").rm_file("/bucket/main.zip")
    capsys.readouterr()
    assert main(["gate", URL, *gates]) == 2
    assert "there is no run at this URL" in capsys.readouterr().err
    assert "there is no run at this URL" in Path("j.xml").read_text()  # not the verdict of the command before


@pytest.mark.parametrize(
    "command",
    [
        ["pack", "run", "-o", URL], ["report", "run", "-o", URL], ["plot", "run", "-o", f"{URL}.svg"],
        ["compare", "run", "run", "--plot", f"{URL}.svg"], ["score", "run", "--metric", "exact_match", "-o", URL],
        ["export", "run", "--to", "parquet", "-o", URL], ["import", "run", "-o", URL],
        ["gate", "run", "exact_match > 0", "--junit", f"{URL}.xml"],
    ],
)  # fmt: skip
def test_a_url_is_not_taken_for_the_name_of_a_folder_here(
    command: list[str], tasks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_sums(RecordingModel(), tasks, "run")
    assert main(command) == 2
    assert "URL" in capsys.readouterr().err and not Path("memory:").exists()


def test_a_run_at_a_url_is_called_by_it_in_python(tasks: Path) -> None:
    run_sums(RecordingModel(), tasks, URL)
    opened = Run.open(URL)
    assert URL in repr(opened)
    for write in (lambda: opened.report(f"{URL}.html"), lambda: opened.plot().save(f"{URL}.svg")):
        with pytest.raises(ConfigError, match="is a URL"):
            write()


def test_an_archive_at_a_url_is_imported(tasks: Path) -> None:
    run_sums(RecordingModel(), tasks, "run")
    assert main(["pack", "run", "-o", "run.zip"]) == 0
    fsspec.filesystem("memory").put_file("run.zip", "/bucket/run.zip")
    assert main(["import", "memory://bucket/run.zip", "-o", "again"]) == 0
    assert Run.open("again").rows("sums") == Run.open("run").rows("sums")


def test_shards_at_urls_are_merged_into_a_run_at_a_url(tasks: Path) -> None:
    for part in (1, 2):
        run_sums(RecordingModel(), tasks, f"memory://bucket/part{part}", shard=f"{part}/2")
    assert main(["merge", "memory://bucket/whole", "memory://bucket/part1", "memory://bucket/part2"]) == 0
    assert lm_eval_layout(Run.open("memory://bucket/whole").results)["n-samples"]["sums"]["effective"] == 5


def test_a_name_that_leads_out_of_the_folder_is_not_fetched(tasks: Path, tmp_path: Path) -> None:
    run_sums(RecordingModel(), tasks, URL)
    fsspec.filesystem("memory").store["/bucket/team/run/../../../evil"] = fsspec.filesystem("memory").store.pop(
        "/bucket/team/run/uploaded.json"
    )
    assert Run.open(URL).rows("sums")
    assert not list(tmp_path.rglob("evil"))


# ---- folders of many runs

HOSTILE = [
    "org/llama-3", "other/llama-3", "llama:3", "llama 3", "../../etc/passwd", "..", ".", "", "/", "a" * 400, "a" * 401,
    "模型" * 100, "modèle-🦙", "CON", "x\ny", "$(rm -rf ~)", "a'b\"c`d", "\udc80", "-rf", "~root", "%2e%2e", "model\\name", "*?[x]",
]  # fmt: skip


def test_hostile_names_of_models_give_separate_folders(tmp_path: Path) -> None:
    folders = {
        name: run_name({"model": name.encode(errors="replace").hex()}, name, ["arc_easy", "模" * 90])
        for name in HOSTILE
    }
    for name in folders.values():
        (tmp_path / name).mkdir()
        assert (tmp_path / name).resolve().parent == tmp_path.resolve()
        assert len(name.encode()) <= 255 and name[0] not in ".-~"
    assert len({name.casefold() for name in folders.values()}) == len(HOSTILE)


def test_a_loop_over_models_has_a_folder_for_each_and_repeating_it_asks_nothing(tasks: Path) -> None:
    asked = []
    for _ in range(2):
        for name, limit in (("org/one", None), ("org/two", None), ("org/one", 2)):
            model = RecordingModel()
            run_sums(model, tasks, None, runs_dir="loop", model_args={"model": name}, limit=limit)
            asked.append(len(model.calls))
    assert sorted(path.name[:9] for path in Path("loop").iterdir()) == ["one-sums-", "one-sums-", "two-sums-"]
    assert asked == [5, 5, 2, 0, 0, 0]


def test_a_loop_on_the_command_line(tasks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "--include_path", str(tasks), "--tasks", "sums", "--runs_dir", "loop"]
    for model in ("dummy", "embedded", "dummy"):
        assert main([*arguments, "--model", model]) == 0
    said = capsys.readouterr().err
    first, second, third = [line for line in said.splitlines() if line.startswith("run folder: ")]
    assert (first.startswith("run folder: loop/dummy-sums-"), second.startswith("run folder: loop/embedded-sums-")) == (
        True,
        True,
    )
    assert third == f"{first} (resumed: 5 responses are there)"
    assert len(list(Path("loop").iterdir())) == 2


def test_urls_differ_from_paths() -> None:
    assert [is_url(each) for each in ("s3://b/r", "gs://b", "memory://x", "file:///tmp/x")] == [True] * 4
    assert [is_url(each) for each in ("runs/a", "C:/runs", "./s3:", "a:b", "model:8b/x", "/s3://x", "")] == [False] * 7
    assert url_of(Path("az://container/a b/run")) == "az://container/a b/run"
    assert Storage("s3://key:swordfish@bucket/run").shown == "s3://***@bucket/run"
    assert local_folder("runs/x") == Path("runs/x")


def test_secrets_of_a_url_are_in_no_path() -> None:
    folder = working_folder("az://me:swordfish@container/run?sig=opensesame")
    assert folder.name == "run"
    assert not any(secret in str(folder) for secret in ("swordfish", "opensesame"))
