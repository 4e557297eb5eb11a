"""Damaged runs: whatever a file of a run says, a command reports what is wrong, and the viewer shows the others."""

import json
import os
import shutil
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from time import time as now
from typing import Any

import pytest

import run_world
from assay import ScoreOptions, score
from assay.cli import main
from assay.errors import AssayError
from assay.exchange.archive import pack
from assay.exchange.importers import import_runs
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.runs.lease import is_held
from assay.runs.run import Run as RunReader
from assay.viewer.app import Viewer
from conftest import Write
from fuzz.targets import good_run
from run_world import RecordingModel
from viewer_world import fetched, read_pages, serving

pytestmark = pytest.mark.slow  # whole runs: too long for `make quick`

Run = Callable[..., Any]
GROUP = """
    group: both
    task: [sums, colours]
    aggregate_metric_list:
      - {metric: exact_match, aggregation: mean, filter_list: none, missing: skip}
"""
JUDGED = {"verdict": "good", "usage": [1, 2, 0, 0.5, 1], "finish": "stop"}


@pytest.fixture(scope="module")
def good() -> Path:
    """A run with a group, a document that failed, usage and a further scoring; and the folder of its tasks beside it."""
    return good_run()


def copied(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("any") / "runs"
    shutil.copytree(run.parent, folder)
    shutil.copytree(run, folder / "damaged")
    return folder / "damaged"


def pages(folder: Path) -> Mapping[str, str]:
    """What the pages of a viewer show: the front page always; of the others what can be shown, or a sentence that it cannot."""
    queries = ("/", "/run?run=damaged", "/task?run=damaged&task=sums", "/sample?run=damaged&task=sums&doc=0",
               "/matrix", "/run.json?run=damaged", "/compare?run=damaged&run=good")  # fmt: skip
    answers = read_pages(folder, queries)
    assert answers["/"].status_code == 200
    assert {page: answer.text[-500:] for page, answer in answers.items() if answer.status_code >= 500} == {}
    return {page.partition("?")[0]: answer.text for page, answer in answers.items()}


# ---- what is said


def first_row(content: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = content["tasks"]["sums"]["rows"][0]
    return row


DAMAGES: Mapping[str, Any] = {
    "a row whose n is a mapping": lambda content: first_row(content).update(n={}),
    "a number as a task": lambda content: content["tasks"].update(sums=3),
    "no tasks": lambda content: content.update(tasks=None),
    "an interval of one": lambda content: first_row(content).update(interval=[1]),
    "a value that is a text": lambda content: first_row(content).update(value="much"),
    "a row without a metric": lambda content: first_row(content).pop("metric"),
    "rows that are no list": lambda content: content["tasks"]["sums"].update(rows={}),
    "shares of nothing": lambda content: content["groups"]["both"]["rows"][0].update(shares=[["sums"]]),
    "tokens that are hidden": lambda content: content["usage"].update(tokens="***"),
    "a usage that is a text": lambda content: content.update(usage="much"),
    "a group within itself": lambda content: content["groups"]["both"].update(members=["both"]),
    "two groups within each other": lambda content: (
        content["groups"]["both"].update(members=["a"]),
        content["groups"].update(a={"alias": "a", "members": ["both"], "rows": None}),
    ),
    "invalid members": lambda content: content["groups"]["both"].update(members=[["x"]]),
    "an invalid time": lambda content: content["facts"].update(date=1e300),
    "invalid directions": lambda content: content["tasks"]["sums"].update(directions=3),
    "invalid settings": lambda content: content["tasks"]["sums"].update(config=[1]),
    "a task without its alias": lambda content: content["tasks"]["sums"].pop("alias"),
    "a count that is a text": lambda content: content["tasks"]["sums"].update(scored="5"),
    "something far too deep": lambda content: content["tasks"]["sums"]["config"].update(
        x=json.loads("[" * 300 + "]" * 300)
    ),
}


def damage(run: Path, name: str) -> Path:
    run_world.change_results(run, DAMAGES[name])
    return run


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_run_is_reported_with_its_file_and_the_place_in_it(
    name: str, good: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    run = damage(copied(good, tmp_path_factory), name)
    with pytest.raises(AssayError, match=r"results\.json.*damaged: \S+ (must be|is a member|is missing|is nested)"):
        assert lm_eval_layout(RunReader.open(run).results)
    for command in (["report", run, "--format", "md"], ["compare", run.parent / "good", run], ["samples", run],
                    ["export", run, "--to", "parquet", "-o", run.parent / "x"], ["pack", run, "-o", run.parent / "x.zip"]):  # fmt: skip
        assert main([str(each) for each in command]) == 2
        said = capsys.readouterr().err
        assert "results.json" in said and "damaged" in said
    assert "cannot be read: results.json: the file is damaged" in pages(run.parent)["/"]


@pytest.mark.parametrize("name", ["a row whose n is a mapping", "two groups within each other"])
def test_one_damaged_run_leaves_the_front_page_and_the_other_runs_as_they_are(
    name: str, good: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = damage(copied(good, tmp_path_factory), name)
    with serving(run.parent) as at:
        status, text, headers = fetched(at, "/")
        assert (status, "cannot be read: results.json" in text) == (200, True)
        assert headers["x-content-type-options"] == "nosniff"
        assert fetched(at, "/run", run="good")[0] == 200
        status, text, _ = fetched(at, "/run", run="damaged")
        assert (status, "results.json: the file is damaged" in text) == (200, True)
        status, text, headers = fetched(at, "/compare?run=good&run=damaged")
        assert (status, "the file is damaged" in text) == (200, True)


def test_a_page_that_fails_shows_an_error_page(good: Path) -> None:
    """Whatever goes wrong: the handler of unexpected errors makes a page like any other."""
    from starlette.requests import Request

    viewer = Viewer(good.parent)
    scope = {"type": "http", "method": "GET", "path": "/run", "query_string": b"", "headers": []}
    answer = viewer.broken(Request(scope), KeyError("<b>n</b>"))
    text = bytes(answer.body).decode()
    assert answer.status_code == 500
    assert "This page cannot be shown" in text and "KeyError" in text and "<b>n</b>" not in text


def test_an_invalid_lock_file_is_ignored(tmp_path: Path) -> None:
    for time in ('"abc"', "null", "{}", "[1]", "1e300", "-5"):
        (tmp_path / "run.lock").write_text(f'{{"host": "elsewhere", "pid": 3, "time": {time}}}')
        assert not is_held(tmp_path)
    (tmp_path / "run.lock").write_text('{"host": "elsewhere", "pid": 3, "time": 1e11}')
    assert not is_held(tmp_path), "a time that has not come is a clock that is wrong"


@pytest.mark.parametrize(
    "manifest", [b"", b"{", b"[]", b'"x"', b'{"format": 3, "tasks": 3}', b'{"format": 3, "created": "x"}']
)
def test_a_run_is_not_begun_in_a_folder_whose_manifest_is_damaged_but_moves_it_aside_if_asked(
    manifest: bytes, tasks: Path, output: Path
) -> None:
    run_world.run(RecordingModel(), tasks, output)
    (output / "manifest.json").write_bytes(manifest)
    _, *lines = (output / "responses.jsonl").read_bytes().splitlines(keepends=True)  # no header to restore it from
    (output / "responses.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(AssayError, match=r"manifest\.json.*damaged"):
        run_world.run(RecordingModel(), tasks, output)
    assert (output / "manifest.json").read_bytes() == manifest
    run_world.run(RecordingModel(), tasks, output, force=True)
    assert RunReader.open(output).manifest["status"] == "complete"
    assert len(list(output.parent.glob("run.old-*"))) == 1


def test_files_of_another_format_are_reported_as_such(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": 7, "tasks": []}')
    with pytest.raises(AssayError, match="it has format 7, and this version of assay reads format 3"):
        RunReader.open(tmp_path)


# ---- archives


def repacked(run: Path, archive: Path, change: Callable[[dict[str, Any]], Any], file: str = "results.json") -> Path:
    """An archive in which a file says something else, with a hash that is right."""
    pack(run, archive)
    with zipfile.ZipFile(archive) as source:
        content = {name: source.read(name) for name in source.namelist()}
    [member] = [name for name in content if name.partition("/")[2] == file]
    [note] = [name for name in content if name.endswith("packed.json")]
    loaded = json.loads(content[member])
    change(loaded)
    content[member] = json.dumps(loaded).encode()
    hashes = json.loads(content[note])
    hashes["files"][file] = sha256(content[member]).hexdigest()
    content[note] = json.dumps(hashes).encode()
    with zipfile.ZipFile(archive, "w") as target:
        for name, each in content.items():
            target.writestr(name, each)
    return archive


@pytest.mark.parametrize("name", DAMAGES)
def test_an_archive_that_cannot_be_read_is_refused_and_leaves_nothing(
    name: str, good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = repacked(good, tmp_path / "bad.zip", DAMAGES[name])
    assert main(["import", str(archive), "-o", str(tmp_path / "there/run")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{archive}: results.json: ") and "damaged" in said
    assert [path.name for path in tmp_path.iterdir() if path.name != "there"] == ["bad.zip"]
    assert not any((tmp_path / "there").iterdir())


@pytest.mark.parametrize(
    ("file", "change"),
    [("results.json", lambda content: content.clear()), ("manifest.json", lambda content: content.clear()),
     ("scored/001/results.json", lambda content: content.update(tasks=3)), ("scored/001/manifest.json", lambda content: content.clear()),
     ("manifest.json", lambda content: content.update(tasks=3))],
)  # fmt: skip
def test_an_archive_of_a_run_that_has_not_ended_or_is_damaged_leaves_nothing(
    file: str, change: Callable[[dict[str, Any]], Any], good: Path, tmp_path: Path
) -> None:
    with pytest.raises(AssayError):
        import_runs([repacked(good, tmp_path / "bad.zip", change, file)], tmp_path / "there")
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["bad.zip"]


def test_leftovers_of_killed_processes_are_removed(good: Path, tmp_path: Path) -> None:
    import os
    import socket
    import subprocess
    import sys

    missing = subprocess.Popen([sys.executable, "-c", ""])
    missing.wait()
    host = socket.gethostname()
    run = tmp_path / "run"
    shutil.copytree(good, run)
    kept = [f".part-{host}-{os.getpid()}-x", f".part-elsewhere-{missing.pid}-x", ".part-old"]
    for folder in (tmp_path, run / "scored"):
        for name in (*kept, f".part-{host}-{missing.pid}-x"):
            (folder / name).mkdir()
            (folder / name / "file").touch()
    import_runs([pack(good, tmp_path / "p.zip").path], tmp_path / "there")
    score(run, ScoreOptions(include_path=[str(good.parent.parent / "tasks")]))
    for folder in (tmp_path, run / "scored"):
        assert sorted(path.name for path in folder.glob(".part-*")) == sorted(kept)


def test_samples_of_lm_evals_with_numbers_that_json_does_not_have_are_imported(tmp_path: Path) -> None:
    line = {"doc_id": 0, "doc": {"q": "1+1", "odd": float("nan")}, "target": "2", "resps": [["2"]], "filtered_resps": ["2"],
            "arguments": {"gen_args_0": {"arg_0": "1+1", "arg_1": {}}}, "filter": "none", "metrics": ["acc"], "acc": 1.0}  # fmt: skip
    (tmp_path / "samples_t.jsonl").write_text(json.dumps(line) + "\n")
    assert lm_eval_layout(import_runs([tmp_path], tmp_path / "run"))["results"]["t"]["acc,none"] == 1.0
    (tmp_path / "samples_t.jsonl").write_text(json.dumps(line) + "\n{NaN\n")
    with pytest.raises(AssayError, match=r"samples_t\.jsonl:2:1: invalid JSON"):
        import_runs([tmp_path], tmp_path / "other")


def test_runs_of_every_kind_are_in_the_layout(write: Write, tmp_path: Path) -> None:
    tasks = write({**run_world.FILES, "both.yaml": GROUP})
    for name, options in {"shard": {"shard": "1/2"}, "asked": {"predict_only": True}, "few": {"limit": 1}}.items():
        run_world.run(RecordingModel(failing={"1+1="}), tasks, tmp_path / name, tasks=["both"], **options)
        assert (
            lm_eval_layout(RunReader.open(tmp_path / name).results)["results"]
            and RunReader.open(tmp_path / name).manifest["tasks"]
        )


# ---- many runs, each bad in another way


def content(file: str, data: bytes) -> Callable[[Path], object]:
    return lambda run: (run / file).write_bytes(data)


def changed(file: str, **keys: Any) -> Callable[[Path], object]:
    def change(run: Path) -> None:
        (run / file).write_text(json.dumps({**json.loads((run / file).read_text()), **keys}))

    return change


def instead(file: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    def replace(run: Path) -> None:
        path = run / file
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        make(path)

    return replace


def link(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


def held(**lock: Any) -> Callable[[Path], object]:
    def hold(run: Path) -> None:
        changed("manifest.json", status="running")(run)
        (run / "run.lock").write_text(
            json.dumps({key: each() if callable(each) else each for key, each in lock.items()})
        )

    return hold


BAD_RUNS: dict[str, Callable[[Path], object]] = {
    "empty_results": content("results.json", b""), "null_results": content("results.json", b"null"),
    "list_results": content("results.json", b"[]"), "number_results": content("results.json", b"5"),
    "torn_results": content("results.json", b'{"tasks": {"sums"'), "binary_results": content("results.json", b"\xff\0" * 99),
    "other_results": content("results.json", b'{"loss": 3}'), "empty_object": content("results.json", b"{}"),
    "nan_results": content("results.json", b'{"tasks": {"sums": {"scored": NaN}}}'),
    "null_tasks": changed("results.json", tasks=None), "number_tasks": changed("results.json", tasks=5),
    "number_facts": changed("results.json", facts=5), "text_config": changed("results.json", config="x"),
    "list_status": changed("results.json", status=[1]), "number_groups": changed("results.json", groups=5),
    "no_results": instead("results.json", lambda path: None), "folder_results": instead("results.json", Path.mkdir),
    "loop_results": instead("results.json", link("results.json")), "dangling_results": instead("results.json", link("gone")),
    "empty_manifest": content("manifest.json", b""), "null_manifest": content("manifest.json", b"null"),
    "list_manifest": content("manifest.json", b"[1]"), "torn_manifest": content("manifest.json", b'{"format": 3, '),
    "other_format": changed("manifest.json", format=99), "text_format": changed("manifest.json", format="two"),
    "list_of_tasks": changed("manifest.json", tasks=[1]), "mapping_status": changed("manifest.json", status={"a": 1}),
    "far_time": changed("manifest.json", created=1e30), "text_time": changed("manifest.json", created="today"),
    "folder_manifest": instead("manifest.json", Path.mkdir), "loop_manifest": instead("manifest.json", link("manifest.json")),
    "held_elsewhere": held(host="elsewhere", pid=1, time=now, documents={"sums": "x"}),
    "empty_folder": instead("", Path.mkdir), "a_file": instead("", Path.touch), "a_loop": instead("", link("a_loop")),
    "a_dangling_link": instead("", link("nowhere")), "the_folder_above": instead("", link("..")),
}  # fmt: skip
"""How the copy of a good run is damaged, by its name; nothing of it can be reported."""
STRANGE_RUNS: dict[str, Callable[[Path], object]] = {
    "dead_lock": held(host="elsewhere", pid=1, time=5), "future_lock": held(host="elsewhere", pid=1, time=lambda: now() + 1e7),
    "text_lock": held(host="elsewhere", pid="x", time="abc"), "endless_lock": held(host="elsewhere", pid=10**30, time=10**400),
    "null_lock": held(time=None), "list_lock": held(host=[1], pid={}, time=now),
    "junk_lock": content("run.lock", b"\xff\0"), "folder_lock": lambda run: (run / "run.lock").mkdir(),
    "no_samples": instead("samples", lambda path: None), "samples_file": instead("samples", Path.touch),
    "other_manifest": content("manifest.json", b'{"name": "an app", "icons": []}'),
    "scored_file": instead("scored", Path.touch), "scored_junk": content("scored/001/manifest.json", b"{"),
}  # fmt: skip
"""Runs that have their numbers, and something odd beside them."""


@pytest.fixture
def many(good: Path, tmp_path: Path) -> Path:
    """A folder with two good runs among fifty that are not."""
    runs = tmp_path / "runs"
    for name in ("good", "other", *BAD_RUNS, *STRANGE_RUNS):
        shutil.copytree(good, runs / name)
    for name, make in {**BAD_RUNS, **STRANGE_RUNS}.items():
        make(runs / name)
    return runs


def test_every_command_over_many_runs_works_for_those_that_can_be_read_and_reports_the_others(
    many: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(many.parent)
    assert main(["runs", "list"]) == 0
    listed = capsys.readouterr()
    rows = {line.split()[0]: line for line in listed.out.splitlines()}
    assert "complete" in rows["good"] and "complete" in rows["other"] and "complete" in rows["no_samples"]
    assert all("runs/torn_results: results.json" in listed.err for name in rows if "unreadable" in rows[name])
    names = ["good", *BAD_RUNS, "other", *STRANGE_RUNS]
    assert main(["report", *(f"runs/{name}" for name in names), "--format", "csv"]) == 1
    reported = capsys.readouterr()
    assert {"good", "other"} <= {line.split(",")[0] for line in reported.out.splitlines()}
    unreported = [name for name in BAD_RUNS if f"left out: runs/{name}" not in reported.err]
    assert unreported == []
    assert main(["compare", *(f"runs/{name}" for name in names)]) == 2
    compared = capsys.readouterr()
    assert "other" in compared.out
    assert [name for name in BAD_RUNS if f"left out: runs/{name}" not in compared.err] == []
    assert "Traceback" not in listed.err + reported.err + compared.err
    assert main(["compare", "runs/torn_results", "runs/good", "runs/other"]) == 2
    assert capsys.readouterr().out == "", "nothing is compared with another run than the first"


def test_the_viewer_shows_good_runs_among_many_bad_ones(many: Path) -> None:
    with serving(many) as at:
        status, text, _ = fetched(at, "/")
        assert status == 200
        assert text.count("cannot be read: ") >= 20
        for name in ("good", "other", "no_samples"):
            assert fetched(at, "/run", run=name)[0] == 200
        shown = {name: fetched(at, "/run", run=name)[0] for name in (*BAD_RUNS, *STRANGE_RUNS)}
        assert {name for name, status in shown.items() if status not in (200, 404)} == set()
        assert fetched(at, "/compare?run=good&run=other")[0] == 200
        for name in ("torn_results", "a_loop", "the_folder_above", "scored_junk"):
            assert fetched(at, f"/compare?run=good&run={name}")[0] in (200, 404)


# ---- many archives, each bad in another way

Members = dict[str, bytes]


def zipped(path: Path, members: Sequence[tuple[str, bytes]]) -> None:
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, each in members:
            file.writestr(name, each)


def with_member(name: str, data: bytes = b"x") -> Callable[[Path, Members], object]:
    return lambda path, members: zipped(path, [*members.items(), (name, data)])


def with_note(**keys: Any) -> Callable[[Path, Members], object]:
    def make(path: Path, members: Members) -> None:
        note = {**json.loads(members["good/packed.json"]), **keys}
        zipped(path, list({**members, "good/packed.json": json.dumps(note).encode()}.items()))

    return make


def with_file(file: str, data: bytes) -> Callable[[Path, Members], object]:
    """A file that was packed as it is: its hash is right."""

    def make(path: Path, members: Members) -> None:
        note = json.loads(members["good/packed.json"])
        note["files"][file] = sha256(data).hexdigest()
        changed_members = {f"good/{file}": data, "good/packed.json": json.dumps(note).encode()}
        zipped(path, list({**members, **changed_members}.items()))

    return make


def with_bytes(at: int, value: bytes) -> Callable[[Path, Members], object]:
    """Other bytes in each entry of the directory at the end of the archive, `at` bytes from its start."""

    def make(path: Path, members: Members) -> None:
        zipped(path, list(members.items()))
        data, start = bytearray(path.read_bytes()), 0
        while (start := data.find(b"PK\x01\x02", start)) >= 0:
            data[start + at : start + at + len(value)] = value
            start += 4
        path.write_bytes(data)

    return make


def link_member(path: Path, members: Members) -> None:
    zipped(path, list(members.items()))
    about = zipfile.ZipInfo("good/samples/x.parquet")
    about.create_system, about.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(about, "/etc/passwd")


BAD_ARCHIVES: dict[str, tuple[Callable[[Path, Members], object], str]] = {
    "empty": (lambda path, _: path.touch(), "not a zip file"), "junk": (lambda path, _: path.write_bytes(b"junk" * 99), "not a zip file"),
    "no_members": (lambda path, _: zipped(path, []), "it has no packed.json"), "a_folder": (lambda path, _: path.mkdir(), "not a regular file"),
    "a_pipe": (lambda path, _: os.mkfifo(path), "not a regular file"), "a_device": (lambda path, _: path.symlink_to("/dev/zero"), "not a regular file"),
    "a_loop": (lambda path, _: path.symlink_to(path.name), "symbolic links"), "missing": (lambda path, _: None, "No such file"),
    "cut": (lambda path, members: (zipped(path, list(members.items())), os.truncate(path, path.stat().st_size - 40)), "not a zip file"),
    "upward": (with_member("good/../../evil"), "never writes"), "absolute": (with_member("/etc/evil"), "never writes"),
    "backslash": (with_member("good\\..\\evil"), "never writes"), "nested": (with_member("good/x.zip"), "never writes"),
    "capitals": (with_member("good/RESULTS.JSON"), "never writes"), "other_files": (with_member("good/readme.txt"), "never writes"),
    "twice": (with_member("good/results.json"), "'results.json' twice"), "two_folders": (with_member("other/results.json"), "twice"),
    "unlisted": (with_member("good/samples/x.parquet"), "differs from what was packed"), "link": (link_member, "differs from what was packed"),
    "control_characters": (with_member("good/samples/\x1b[31m.parquet"), "differs from what was packed"),
    "long_name": (with_member(f"good/samples/{'a' * 5000}.parquet"), "File name too long"),
    "bomb": (with_member("good/samples/x.parquet", bytes(200 << 20)), "too much for a packed run"),
    "password": (with_bytes(8, b"\x01"), "encrypted"), "method": (with_bytes(10, b"\x63"), "compression method"), "sizes": (with_bytes(24, b"\x05\0\0\0"), "cannot be unpacked"),
    "note_list": (with_note(files=[1]), "differs from what was packed"), "note_text": (with_note(files="x"), "differs from what was packed"),
    "note_empty": (with_note(files=None), "differs from what was packed"), "note_numbers": (with_note(files={"results.json": 5}), "differs from what was packed"),
    "null_results": (with_file("results.json", b"null"), "results.json: the file is damaged"), "no_numbers": (with_file("results.json", b'{"tasks": null}'), "results.json"),
    "null_manifest": (with_file("manifest.json", b"null"), "manifest.json: the file is damaged"), "no_manifest": (with_file("manifest.json", b"{}"), "holds no run"),
    "newer": (with_file("manifest.json", b'{"format": 99}'), "format 99"), "empty_samples": (with_file("samples/sums.parquet", b""), "sums.parquet: the samples cannot be read"),
    "junk_samples": (with_file("samples/sums.parquet", b"junk" * 9), "sums.parquet: the samples cannot be read"),
}  # fmt: skip


def test_bad_archives_of_every_kind_are_refused_and_leave_nothing(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = tmp_path / "whole.zip"
    pack(good, whole)
    with zipfile.ZipFile(whole) as file:
        members = {name: file.read(name) for name in file.namelist()}
    archives, runs = tmp_path / "archives", tmp_path / "runs"
    archives.mkdir()
    for name, (make, said) in BAD_ARCHIVES.items():
        archive = archives / f"{name}.zip"
        make(archive, members)
        assert main(["import", str(archive), "-o", str(runs / name)]) == 2, name
        printed = capsys.readouterr().err
        assert printed.startswith(f"{archive}: ") and said in printed and " — " in printed, printed
        assert not runs.exists() or not any(runs.iterdir()), name
    assert not list(tmp_path.rglob("evil"))
    assert main(["import", str(whole), "-o", str(runs / "whole")]) in (0, 1)
    assert (runs / "whole" / "results.json").is_file()
