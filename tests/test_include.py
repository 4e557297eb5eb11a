"""`include`: relative to the file, recursive, later over earlier, the file itself over all."""

from collections.abc import Callable
from pathlib import Path

import pytest

from assay import ConfigError, TaskManager
from assay.tasks.validate import validate
from conftest import a_task


def test_the_file_wins_over_what_it_includes_and_later_includes_over_earlier(
    manage: Callable[..., TaskManager],
) -> None:
    manager = manage(
        {
            "t.yaml": "task: t\ninclude: [one.yaml, sub/two.yaml]\nrepeats: 3\n",
            "one.yaml": "num_fewshot: 1\nrepeats: 1\ndescription: one\n",
            "sub/two.yaml": "include: three.yaml\nnum_fewshot: 2\n",
            "sub/three.yaml": "num_fewshot: 9\ndataset_path: three\n",
        }
    )
    task = manager.load("t")["tasks"]["t"]
    config = task.config
    assert (config.repeats, config.num_fewshot, config.description, config.dataset_path) == (3, 2, "one", "three")
    origins = {key: Path(task.fields.place(key).file).name for key in task.fields}
    assert origins == {
        "num_fewshot": "two.yaml", "repeats": "t.yaml", "description": "one.yaml", "dataset_path": "three.yaml",
        "task": "t.yaml",
    }  # fmt: skip


def test_merging_is_shallow_as_in_lm_eval(manage: Callable[..., TaskManager]) -> None:
    manager = manage(
        {"t.yaml": "task: t\ninclude: b.yaml\nmetadata: {x: 1}\n", "b.yaml": "metadata: {version: 2, y: 3}\n"}
    )
    assert manager.load("t")["tasks"]["t"].config.metadata == {"x": 1}


def test_a_function_in_an_included_file_belongs_to_the_folder_of_that_file(manage: Callable[..., TaskManager]) -> None:
    manager = manage(
        {
            "a/t.yaml": "task: t\ninclude: ../b/base.yaml\nprocess_results: !function utils.g\n",
            "b/base.yaml": "process_docs: !function utils.f\n",
        }
    )
    config = manager.load("t")["tasks"]["t"].config
    assert config.process_docs is not None
    assert config.process_results is not None
    assert (Path(config.process_docs.folder).name, Path(config.process_results.folder).name) == ("b", "a")


def test_two_ways_to_one_file_are_not_a_circle(manage: Callable[..., TaskManager]) -> None:
    files = {
        "t.yaml": "task: t\ninclude: [a.yaml, b.yaml]\n",
        "a.yaml": "include: c.yaml\n",
        "b.yaml": "include: c.yaml\n",
    }
    assert manage({**files, "c.yaml": "repeats: 4\n"}).load("t")["tasks"]["t"].config.repeats == 4


def test_a_circle_of_includes_is_refused_and_printed(manage: Callable[..., TaskManager]) -> None:
    manager = manage(
        {"t.yaml": "task: t\ninclude: a.yaml\n", "a.yaml": "include: b.yaml\n", "b.yaml": "include: a.yaml\n"}
    )
    with pytest.raises(ConfigError, match=r"b.yaml:1:10: .*circle: a.yaml → b.yaml → a.yaml"):
        manager.load("t")


def test_a_chain_of_250_files_works_and_one_more_is_too_many(manage: Callable[..., TaskManager]) -> None:
    files = {f"i{n}.yaml": f"include: i{n + 1}.yaml\nmetadata: {{level: {n}}}\n" for n in range(248)}
    manager = manage({"t.yaml": "task: t\ninclude: i0.yaml\n", **files, "i248.yaml": "repeats: 7\n"})
    config = manager.load("t")["tasks"]["t"].config
    assert (config.repeats, config.metadata) == (7, {"level": 0})
    more = manage({"u.yaml": "task: u\ninclude: t.yaml\n"})
    with pytest.raises(ConfigError, match="more than 250 files include each other"):
        more.load("u")


@pytest.mark.slow
def test_a_chain_without_end_is_refused(manage: Callable[..., TaskManager]) -> None:
    files = {f"i{n}.yaml": f"include: i{n + 1}.yaml\n" for n in range(400)}
    manager = manage(
        {"t.yaml": "task: t\ninclude: i0.yaml\n", **files, "i400.yaml": "repeats: 7\n", "ok.yaml": a_task("ok")}
    )
    with pytest.raises(ConfigError, match="more than 250 files include each other"):
        manager.load("t")
    assert manager.load("ok")["tasks"]


@pytest.mark.parametrize(("include", "at"), [("5", "2:10"), ("[base.yaml, 5]", "2:22"), ("{repeats: 2}", None)])
def test_include_must_name_a_file(include: str, at: str | None, manage: Callable[..., TaskManager]) -> None:
    manager = manage({"t.yaml": f"task: t\ninclude: {include}\ndataset_path: d\n", "base.yaml": "test_split: x\n"})
    said = [str(problem) for problem in validate(manager) if problem.serious]
    assert (at is None and not said) or f"t.yaml:{at}: include must name a file" in said[0]
