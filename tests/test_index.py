"""The index: built by reading alone, kept on disk, and right again after every change."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import assay
from assay import ConfigError, TaskManager
from assay.catalog import cache as caching
from assay.catalog.cache import read_cached, stamp_files, write_cached
from assay.catalog.catalog import Catalog
from assay.catalog.roots import broken_plugins, installed_folders
from assay.dialect import dialect_of
from assay.tasks.validate import validate
from commands import Run
from conftest import Write, a_task

DAY = 86_400
BOOBY_TRAP = "from pathlib import Path\nPath(__file__).with_name('sprung').write_text('x')\ndef f(x): return x\n"


def names(folder: Path) -> list[str]:
    return Catalog(folder, include_defaults=False).names("task", "group", "tag")


def test_tasks_groups_and_tags_are_found_below_a_folder(write: Write) -> None:
    folder = write(
        {
            "a.yaml": a_task("a", tag="[x, y]"),
            "deep/er/b.yaml": a_task("b", tag="x"),
            "g.yaml": "group: g\ntask: [a, b]\n",
            "template_yaml": "task: not_indexed\n",
            "base.yaml": "dataset_path: json\n",
            "__pycache__/c.yaml": a_task("c"),
            ".hidden/d.yaml": a_task("d"),
        }
    )
    catalog = Catalog(folder, include_defaults=False)
    assert catalog.names("task") == ["a", "b"]
    assert catalog.names("group") == ["g"]
    assert catalog.names("tag") == ["x", "y"]
    assert catalog.index.tags == {"x": ["a", "b"], "y": ["a"]}


def test_a_tag_may_come_from_an_included_file(write: Write) -> None:
    folder = write({"a.yaml": "task: a\ninclude: base.yaml\n", "base.yaml": "tag: shared\ndataset_path: json\n"})
    assert names(folder) == ["a", "shared"]


def test_building_the_index_imports_and_executes_nothing_and_opens_no_socket(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write({"t.yaml": a_task("t", process_docs="!function utils.f"), "utils.py": BOOBY_TRAP})

    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    manager = TaskManager(include_path=folder, include_defaults=False)
    assert manager.all_tasks == ["t"]
    assert manager.load("t")["tasks"]["t"].config.process_docs is not None
    assert validate(manager) == []
    assert not (folder / "sprung").exists()


def test_a_broken_file_stays_listed_by_its_stem_and_the_rest_works(
    write: Write, run_assay: Callable[..., object]
) -> None:
    folder = write({"good.yaml": a_task("good"), "bad_one.yaml": "task: [\n", "slip.yaml": "task: slip\nrepeets: 2\n"})
    rows = json.loads(run_assay("ls", "--json", "--no_defaults", "--include_path", folder).stdout)  # type: ignore[attr-defined]
    by_name = {row["name"]: row for row in rows}
    assert by_name["good"].get("error") is None
    assert by_name["bad_one"]["kind"] == "broken"
    assert "bad_one.yaml:2:1" in by_name["bad_one"]["error"]
    assert by_name["slip"]["kind"] == "task"
    assert "did you mean 'repeats'?" in by_name["slip"]["error"]
    manager = TaskManager(include_path=folder, include_defaults=False)
    assert list(manager.load("good")["tasks"]) == ["good"]
    with pytest.raises(ConfigError, match=r"bad_one.yaml:2:1"):
        manager.load("bad_one")


def test_an_unchanged_folder_is_answered_from_the_cache(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write({"a.yaml": a_task("a")})
    assert names(folder) == ["a"]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a file was read again")

    monkeypatch.setattr("assay.catalog.examine.examine", refuse)
    assert names(folder) == ["a"]


def test_new_changed_and_deleted_files_are_noticed(write: Write) -> None:
    folder = write({"a.yaml": a_task("a"), "b.yaml": a_task("b")})
    assert names(folder) == ["a", "b"]
    write({"c.yaml": a_task("c"), "a.yaml": a_task("renamed_a")})
    (folder / "b.yaml").unlink()
    assert names(folder) == ["c", "renamed_a"]


def test_a_changed_template_changes_the_tasks_that_include_it(write: Write) -> None:
    folder = write({"t.yaml": "task: t\ninclude: ../outside/base_yaml\n", "../outside/base_yaml": "tag: one\n"})
    assert names(folder) == ["one", "t"]
    write({"../outside/base_yaml": "tag: another\n"})
    assert names(folder) == ["another", "t"]


def test_a_missing_include_that_appears_fixes_the_task(write: Write) -> None:
    folder = write({"t.yaml": "task: t\ninclude: base_yaml\n"})
    catalog = Catalog(folder, include_defaults=False)
    assert "no file" in catalog.index.named["t"].error
    write({"base_yaml": "dataset_path: json\n"})
    assert Catalog(folder, include_defaults=False).index.named["t"].error == ""


def test_a_change_with_an_unchanged_stamp_is_noticed_when_the_task_is_used(write: Write) -> None:
    folder = write({"t.yaml": a_task("t", num_fewshot="1")})
    path = folder / "t.yaml"
    names(folder)
    before = path.stat()
    path.write_text(a_task("t", num_fewshot="7"), encoding="utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    manager = TaskManager(include_path=folder, include_defaults=False)
    assert manager.load("t")["tasks"]["t"].config.num_fewshot == 7
    path.write_text(a_task("u", num_fewshot="7"), encoding="utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ConfigError, match="no task, group or tag named 't'"):
        TaskManager(include_path=folder, include_defaults=False).load("t")
    assert names(folder) == ["u"]


def test_notes_about_a_valid_file_are_collected_where_they_are_asked_for(write: Write) -> None:
    folder = write({"g.yaml": "group: g\ntag: x\ntask: [t]\n", "t.yaml": a_task("t")})
    catalog = Catalog(folder, include_defaults=False, dialect=dialect_of(None, is_lm_evals_file=True))
    assert catalog.select(["g"]).problems == ()
    [note] = catalog.select(["g"], thorough=True).problems
    assert (note.what, note.serious) == ("a group cannot have a tag", False)
    assert str(note.place).endswith("g.yaml:2:1")
    [error] = Catalog(folder, include_defaults=False).select(["g"]).problems
    assert (error.what, error.serious) == ("a group cannot have a tag", True)


def test_a_task_that_sends_more_than_text_is_listed_with_the_reason_and_a_template_is_not(write: Write) -> None:
    folder = write({"t.yaml": a_task("t", doc_to_image="picture"), "base.yaml": "doc_to_image: picture\n"})
    catalog = Catalog(folder, include_defaults=False)
    errors = {entry.kind: entry.error for root, known in catalog.index.parts for entry in known.entries}
    assert "doc_to_image: assay does not send images" in errors.pop("task")
    assert errors == {"template": ""}


@pytest.mark.parametrize("damage", [b"", b"garbage", b"\x00\xff" * 50, None])
def test_a_damaged_cache_is_only_built_again(damage: bytes | None, write: Write, cache: Path) -> None:
    folder = write({"a.yaml": a_task("a"), "b.yaml": a_task("b", tag="x")})
    names(folder)
    [file] = (cache / "catalog").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert names(folder) == ["a", "b", "x"]
    assert file.read_bytes() == whole


def test_files_of_the_cache_that_were_not_used_for_long_and_the_oldest_of_too_many_are_removed(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def age(name: str, days: float) -> None:
        os.utime(cache / "catalog" / name, (time.time() - days * DAY,) * 2)

    def left() -> set[str]:
        return {file.name for file in (cache / "catalog").iterdir()}

    write_cached("a", b"content", "stamp")
    assert (read_cached("a", "stamp"), read_cached("a", "other"), read_cached("b")) == (b"content", None, None)
    write_cached("b", b"")
    write_cached("c", b"")
    for name, days in (("a", 31), ("b", 31), ("c", 29)):
        age(name, days)
    assert read_cached("a", "stamp") == b"content"
    write_cached("d", b"")
    assert left() == {"a", "c", "d"}, "b was not used for 30 days, and a just now"
    age("a", 0.5)
    before = (cache / "catalog/a").stat().st_mtime
    read_cached("a", "stamp")
    assert (cache / "catalog/a").stat().st_mtime == before, "it is written once a day at most"
    monkeypatch.setattr(caching, "MOST_FILES", 3)
    write_cached("e", b"")
    assert left() == {"a", "d", "e"}, "c is the oldest of four"
    monkeypatch.setattr(caching, "MOST_BYTES", 1)
    write_cached("f", b"")
    assert left() == {"f"}, "the newest is kept, whatever its size"


def test_a_cache_that_cannot_be_written_costs_time_and_nothing_else(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "file/not/possible"))
    assert names(write({"a.yaml": a_task("a")})) == ["a"]


def test_processes_that_build_the_index_at_once_all_get_it_right(write: Write, cache: Path) -> None:
    folder = write({f"t{number}.yaml": a_task(f"t{number}") for number in range(300)})
    command = [sys.executable, "-m", "assay", "ls", "--no_defaults", "--include_path", str(folder)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    outputs = {process.communicate()[0] for process in running}
    assert outputs == {"\n".join(sorted(f"t{number}" for number in range(300))) + "\n"}
    assert len(list((cache / "catalog").iterdir())) == 1  # no half-written file is left


def test_a_link_to_itself_that_is_named_as_a_task_is_listed_as_broken(write: Write) -> None:
    folder = write({"a.yaml": a_task("a")})
    for name in ("self.yaml", "self"):
        (folder / name).symlink_to(name)
    catalog = Catalog(folder, include_defaults=False)
    assert [(entry.name, "it is a link to a missing file" in entry.error) for entry in catalog.index.broken] == [
        ("self", True)
    ]
    assert catalog.names("task") == ["a"]


def test_links_that_form_a_loop_end_and_a_linked_folder_counts_once(write: Write, tmp_path: Path) -> None:
    folder = write({"a.yaml": a_task("a"), "sub/b.yaml": a_task("b"), "../elsewhere/c.yaml": a_task("c")})
    (folder / "sub/loop").symlink_to(folder)
    (folder / "again").symlink_to(folder / "sub")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    manager = TaskManager(include_path=folder, include_defaults=False)
    assert manager.all_tasks == ["a", "b", "c"]
    assert validate(manager) == []


def test_a_file_that_cannot_be_opened_is_listed_as_broken(write: Write) -> None:
    folder = write({"a.yaml": a_task("a")})
    (folder / "dangling.yaml").symlink_to(folder / "nowhere.yaml")
    os.mkfifo(folder / "pipe.yaml")
    catalog = Catalog(folder, include_defaults=False)
    assert catalog.names("task") == ["a"]
    assert sorted(entry.name for entry in catalog.index.broken) == ["dangling", "pipe"]


def test_one_name_in_two_files_of_a_folder_is_refused_with_both_named(write: Write) -> None:
    folder = write({"one.yaml": a_task("t"), "two.yaml": a_task("t")})
    manager = TaskManager(include_path=folder, include_defaults=False)
    with pytest.raises(ConfigError, match=r"two.yaml:1:7: task 't' is also defined in .*one.yaml"):
        manager.load("t")
    lenient = TaskManager(include_path=folder, include_defaults=False, compat="lm-eval")
    assert lenient.load("t")["tasks"]["t"].fields.place("task").file.endswith("one.yaml")


def test_files_that_take_their_name_from_an_included_one_are_named_as_the_place(write: Write) -> None:
    folder = write({"base.yaml": a_task("t"), "one.yaml": "include: base.yaml\n", "two.yaml": "include: base.yaml\n"})
    problems = validate(TaskManager(include_path=folder, include_defaults=False, compat="lm-eval"))
    base = f"task 't' is also defined in {folder / 'base.yaml'}"
    assert [(str(problem.place), problem.what) for problem in problems] == [
        (str(folder / "one.yaml"), base),
        (str(folder / "two.yaml"), base),
    ]


def test_a_later_folder_wins_over_an_earlier_one(write: Write, tmp_path: Path) -> None:
    first = write({"t.yaml": a_task("t", num_fewshot="1")})
    second = write({"../second/t.yaml": a_task("t", num_fewshot="2")}).parent / "second"
    for include_path in ([first, second], f"{first}:{second}", [str(first), str(second)]):
        manager = TaskManager(include_path=include_path, include_defaults=False)
        assert manager.load("t")["tasks"]["t"].config.num_fewshot == 2


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        TaskManager(include_path=tmp_path / "nowhere")


def test_tasks_of_an_installed_lm_eval_are_found_without_importing_it(tmp_path: Path, run_assay_process: Run) -> None:
    package = tmp_path / "site/lm_eval"
    (package / "tasks/x").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "tasks/x/t.yaml").write_text(a_task("from_lm_eval") + "num_fewshot: 1\nnum_fewshot: 2\n")
    metadata = tmp_path / "site/lm_eval-0.4.13.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lm_eval\nVersion: 0.4.13\n")
    result = run_assay_process("show", "from_lm_eval", "--json", PYTHONPATH=str(tmp_path / "site"))
    assert json.loads(result.stdout)["tasks"]["from_lm_eval"]["config"]["num_fewshot"] == 2, result.stderr


def test_a_plug_in_adds_a_folder_through_its_entry_point(tmp_path: Path, run_assay_process: Run) -> None:
    package = tmp_path / "site/my_plugin"
    (package / "evals").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "evals/t.yaml").write_text(a_task("from_plugin"))
    metadata = tmp_path / "site/my_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my_plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[assay.tasks]\nmine = my_plugin.evals\n")
    listed = run_assay_process("ls", "subtasks", PYTHONPATH=str(tmp_path / "site"))
    assert "from_plugin" in listed.stdout.split()


def test_names_do_not_depend_on_the_working_directory(write: Write, tmp_path: Path, run_assay: Run) -> None:
    folder = write({"a.yaml": a_task("a"), "b.yaml": "group: b\ntask: [a]\n"})
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "a").mkdir(parents=True)  # a folder that is called like the task
    here = run_assay("show", "b", "--include_path", folder, cwd=tmp_path)
    there = run_assay("show", "b", "--include_path", folder, cwd=elsewhere)
    assert here.returncode == 0
    assert here.stdout == there.stdout


def environment(folder: Path, changed: str = "") -> Path:
    """A copy of the package, as another environment has it: elsewhere, with other times, and perhaps with other rules."""
    shutil.copytree(Path(assay.__file__).parent, folder / "assay", ignore=shutil.ignore_patterns("bundled", "viewer"))
    for file in (folder / "assay").rglob("*.py"):
        os.utime(file, (0, len(changed)))
    with (folder / "assay/catalog/examine.py").open("a") as file:
        file.write(changed)
    return folder


@pytest.mark.parametrize("changed", ["", "# another rule\n"], ids=["of one version", "of two versions"])
def test_environments_do_not_build_each_others_index_again(
    changed: str, write: Write, tmp_path: Path, cache: Path
) -> None:
    folder = write({"a.yaml": a_task("a")})
    one, other = environment(tmp_path / "one"), environment(tmp_path / "other", changed)

    def listed(environment: Path) -> dict[Path, tuple[int, int]]:
        command = [sys.executable, "-m", "assay", "ls", "--no_defaults", "--include_path", str(folder)]
        ended = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(environment)}, capture_output=True, text=True, check=True
        )
        assert ended.stdout == "a\n"
        return {file: (file.stat().st_ino, file.stat().st_mtime_ns) for file in (cache / "catalog").iterdir()}

    listed(one)
    both = listed(other)
    assert len(both) == (2 if changed else 1)
    assert listed(one) == listed(other) == both, "a file that is written again is another one"


def test_the_folders_of_installed_packages_are_remembered_for_each_environment(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []
    for path in [str(tmp_path / "one"), str(tmp_path / "other"), str(tmp_path / "one")]:
        with monkeypatch.context() as environment:
            environment.setattr(sys, "path", [path, *sys.path])
            installed_folders()
        files.append({file: file.stat().st_mtime_ns for file in (cache / "catalog").iterdir()})
    assert [len(known) for known in files] == [1, 2, 2] and files[1] == files[2]


def test_the_cache_keeps_what_was_used_last_and_does_not_grow_without_bound(write: Write, cache: Path) -> None:
    folder, catalog, now = write({"a.yaml": a_task("a")}), cache / "catalog", time.time()
    names(folder)
    [used] = catalog.iterdir()
    os.utime(used, (now - 20 * DAY, now - 20 * DAY))
    names(folder)  # this reads it, and so it is new again
    for number in range(300):
        (catalog / f"{number}.json").write_text("x")
        os.utime(catalog / f"{number}.json", (now - 60 * number, now - 60 * number))
    (catalog / "old.json").write_text("x")
    os.utime(catalog / "old.json", (now - 31 * DAY, now - 31 * DAY))
    write({"b.yaml": a_task("b")})
    names(folder)
    left = {file.name for file in catalog.iterdir()}
    assert used.name in left
    assert left - {used.name} == {f"{number}.json" for number in range(199)}


def test_a_file_of_the_cache_that_is_not_used_for_a_month_is_removed(write: Write, cache: Path) -> None:
    names(write({"a.yaml": a_task("a")}))
    [unused] = (cache / "catalog").iterdir()
    os.utime(unused, (0, time.time() - 31 * DAY))
    names(write({"../elsewhere/b.yaml": a_task("b")}) / "../elsewhere")
    assert not unused.exists()


def test_a_stamp_changes_with_every_folder_that_is_there_also_behind_one_that_is_not(tmp_path: Path) -> None:
    folders = (str(tmp_path / "gone"), str(tmp_path))
    before = stamp_files(*folders)
    assert stamp_files(*folders) == before
    (tmp_path / "new.py").write_text("")
    assert stamp_files(*folders) != before


def test_plug_ins_without_their_folder_are_broken_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "two-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: two\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[assay.tasks]\nhere = json\naway = gone.nowhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert [str(problem.place) for problem in broken_plugins()] == ["plugin away"]
