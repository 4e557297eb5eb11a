"""The folder of a run for those that write it: what is in its way is named, and other errors stay as they are."""

import shutil
from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.records import FilterScores, Generate, Sample
from assay.results import NO_RESULTS
from assay.runs.folder import RunError, open_run
from assay.runs.notes import NOTES, Notes, read_notes, write_notes
from assay.runs.run import Run
from assay.runs.samples import writer
from assay.runs.samples.records import SampleRecord


def test_a_run_whose_folder_is_removed_is_told_from_one_with_something_in_its_way(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with (
        pytest.raises(RunError, match="files of the run were removed while it was written — keep other programs away"),
        open_run(path, {}, {}, force=False) as folder,
    ):
        shutil.rmtree(path)
        folder.finish(NO_RESULTS, {})
    with (
        pytest.raises(RunError, match=r"run/results\.json: the run cannot be written: Is a directory — remove what is"),
        open_run(path, {}, {}, force=False) as folder,
    ):
        (path / "results.json").mkdir()
        folder.finish(NO_RESULTS, {})
    with pytest.raises(IsADirectoryError), open_run(path, {}, {}, force=False):
        tmp_path.read_bytes()


def test_a_run_that_is_interrupted_leaves_samples_of_the_tasks_that_had_ended_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROWS", 1)
    path = tmp_path / "run"
    sample = Sample(0, {"q": 0}, [Generate("p", {})], "x", "x")
    record = SampleRecord(sample, [["a"]], [FilterScores("none", ["a"], {"m": 1.0})])
    with pytest.raises(KeyboardInterrupt), open_run(path, {}, {}, force=False) as folder:
        ended, begun = (folder.keeper(task, True, lambda number, doc_id: number) for task in ("ended", "begun"))
        for add in (*ended.adders, *begun.adders):
            add(record)
        ended.end()
        assert {file.name for file in path.rglob("*.part")} == {
            "ended.parquet.part", "samples_ended.jsonl.whole.part", "begun.parquet.part", "samples_begun.jsonl.0.part",
        }  # fmt: skip
        raise KeyboardInterrupt
    assert {file.name for file in path.rglob("*.part")} == {"ended.parquet.part"}
    assert {"manifest.json", "responses.jsonl", "samples"} == {file.name for file in path.iterdir()}
    assert Run.open(path).status == "interrupted"


def test_a_run_has_the_name_of_its_folder_or_the_one_that_it_is_given(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", {}, {}, force=False) as folder:
        folder.finish(NO_RESULTS, {})
    assert [Run.try_open(folder.path).name, Run.try_open(folder.path, "first").name] == ["run", "first"]


def test_notes_are_what_was_written_and_a_file_that_is_none_is_a_problem_of_the_run(tmp_path: Path) -> None:
    assert read_notes(tmp_path) == read_notes(tmp_path / "none") == Notes()
    (tmp_path / "file").touch()
    assert read_notes(tmp_path / "file") == Notes()
    kept = write_notes(tmp_path, [" paper ", "", "b", "paper"], "the last")
    assert kept == read_notes(tmp_path) == Notes(("paper", "b"), "the last")
    (tmp_path / NOTES).unlink()
    (tmp_path / NOTES).mkdir()
    assert read_notes(tmp_path) == Notes(problem="notes.json: Is a directory")
    with pytest.raises(RunError, match="notes cannot be written: Is a directory — make the folder of the run writable"):
        write_notes(tmp_path, [], "")


@pytest.mark.parametrize(
    ("tags", "note", "problem"),
    [
        (["a" * 41], "", "a tag has at most 40 characters, and no comma"),
        (["a,b"], "", "a tag has at most 40 characters, and no comma"),
        (["a\x00"], "", "a tag has at most 40 characters, and no comma"),
        ([str(number) for number in range(51)], "", "a run has at most 50 tags, and 20,000 characters of a note"),
        ([], "a" * 20_001, "a run has at most 50 tags, and 20,000 characters of a note"),
    ],
)
def test_notes_that_are_too_long_are_refused(tags: list[str], note: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        write_notes(tmp_path, tags, note)
    write_notes(tmp_path, ["a" * 40, *map(str, range(49))], "a" * 20_000)
