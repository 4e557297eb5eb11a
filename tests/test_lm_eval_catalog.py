"""lm-eval's own task folder: the same names, the same configurations, key for key, as its own code reads them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay import TaskManager
from assay.catalog.lm_eval_names import FILE, lm_eval_names
from assay.compat.evaluate_names import find_metric
from assay.records import Function
from assay.tasks.validate import validate

pytestmark = pytest.mark.xdist_group(
    "lm_eval_catalog"
)  # reading the folder, here and by lm-eval, takes long: once is enough
Reference = dict[str, dict[str, object]]

CORRECTED = {
    "flan_held_in": "two inline tasks share one name: lm-eval keeps the last, here both run; their includes are read",
    "openllm": "lm-eval hands the member's own name down to 57 children and recurses without end; here it loads",
    "t0_eval": "members without a name: lm-eval raises on loading, here the file is listed with that reason",
    "toksuite_abridged": "an inline group called like a task: lm-eval raises TypeError, here it is an inline group",
}
"""The groups of the folder whose tasks differ from lm-eval's, and why."""


SAMPLE = ("arc", "bbh", "glue", "gsm8k", "hellaswag", "mmlu", "wikitext", "xcopa")
"""Task folders with groups, groups of groups, tags, includes and functions, which name nothing outside themselves."""
BROKEN = {
    "t0_eval.yaml",  # members without a name
    "summarization_common_yaml",  # a metric without an aggregation: lm-eval fails on it, too
}


@pytest.fixture(scope="module", params=["sample", pytest.param("whole", marks=pytest.mark.nightly)])
def folder(request: pytest.FixtureRequest, lm_eval_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """lm-eval's package with a sample of its task folders, or with all of them."""
    if request.param == "whole":
        return lm_eval_folder
    top, package = tmp_path_factory.mktemp("sample"), lm_eval_folder / "lm_eval"
    shutil.copytree(package, top / "lm_eval", ignore=shutil.ignore_patterns("tasks"))
    (top / "lm_eval/tasks").mkdir()
    for path in (package / "tasks").glob("*.py"):
        shutil.copy(path, top / "lm_eval/tasks")
    for name in SAMPLE:
        shutil.copytree(package / "tasks" / name, top / "lm_eval/tasks" / name)
    return top


@pytest.fixture(scope="module")
def reference(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    out = tmp_path_factory.mktemp("reference") / "lm_eval.json"
    script = Path(__file__).parent / "reference_lm_eval.py"
    subprocess.run([sys.executable, str(script), str(folder), str(out)], check=True, capture_output=True)
    loaded: Reference = json.loads(out.read_text())
    return loaded


@pytest.fixture(scope="module")
def manager(folder: Path) -> TaskManager:
    return TaskManager(include_path=folder / "lm_eval/tasks", include_defaults=False)


@pytest.fixture(scope="module")
def whole(lm_eval_folder: Path) -> TaskManager:
    return TaskManager(include_path=lm_eval_folder / "lm_eval/tasks", include_defaults=False)


def plain(value: object) -> object:
    if isinstance(value, Function):
        return f"!function {value.folder} {value.module}.{value.name}"
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def test_the_names_are_the_same_sets(manager: TaskManager, reference: Reference) -> None:
    kinds = reference["kinds"]
    assert manager.all_subtasks == sorted(name for name, kind in kinds.items() if kind in ("TASK", "PY_TASK"))
    assert manager.all_groups == sorted(name for name, kind in kinds.items() if kind == "GROUP")
    assert manager.all_tags == sorted(name for name, kind in kinds.items() if kind == "TAG")
    assert {tag: manager.catalog.index.tags[tag] for tag in manager.all_tags} == reference["tags"]


def test_the_bundled_list_of_names_is_that_of_lm_eval_by_its_own_code(
    reference: Reference, folder: Path, lm_eval_folder: Path
) -> None:
    """After another version of lm_eval: tools/make_lm_eval_names.py."""
    kinds = {"TASK": "task", "PY_TASK": "task", "GROUP": "group", "TAG": "tag"}
    expected = {name: kinds[str(kind)] for name, kind in reference["kinds"].items()}
    bundled = lm_eval_names()
    assert {name: bundled.get(name) for name in expected} == expected
    assert len(expected) == len(bundled) or folder != lm_eval_folder
    assert FILE.stat().st_size < 50_000


def test_the_bundled_list_of_names_is_that_of_the_folder(whole: TaskManager) -> None:
    assert (len(whole.all_subtasks), len(whole.all_groups), len(whole.all_tags)) == (13_123, 855, 705)
    names = {"task": whole.all_subtasks, "group": whole.all_groups, "tag": whole.all_tags}
    assert {name: kind for kind, each in names.items() for name in each} == lm_eval_names()


def test_the_merged_configuration_of_every_file_is_equal_key_for_key(
    manager: TaskManager, reference: Reference
) -> None:
    named = manager.catalog.index.named
    differing = [
        name
        for name, config in reference["configs"].items()
        if plain(dict(manager.catalog.read(named[name])[0])) != config
    ]
    assert differing == []


def test_every_task_below_every_group_gets_the_same_settings(manager: TaskManager, reference: Reference) -> None:
    differing = []
    for name, leaves in reference["leaves"].items():
        loaded, _ = manager.attempt([name])
        group = loaded["groups"].get(name)
        ours = {task.name: _comparable(plain(dict(task.fields))) for task in (group.get_all_tasks() if group else [])}
        theirs = {leaf["task"]: _comparable(leaf) for leaf in leaves} if isinstance(leaves, list) else leaves
        if ours != theirs:
            differing.append(name)
    assert differing == sorted(set(CORRECTED) & set(reference["leaves"]))


def _comparable(config: object) -> dict[str, object]:
    """A task's settings without what only names it, and without the source that lm-eval notes in the metadata."""
    assert isinstance(config, dict)
    metadata = {key: value for key, value in (config.get("metadata") or {}).items() if key != "config_source"}
    rest = {key: value for key, value in config.items() if key not in ("task", "tag", "group", "task_list", "metadata")}
    return {**rest, **({"metadata": metadata} if metadata else {})}


def test_tasks_that_lm_eval_cannot_load_are_loaded(whole: TaskManager) -> None:
    loaded = whole.load("openllm")
    assert len(loaded["tasks"]) == 64
    assert loaded["tasks"]["mmlu_anatomy"].config.num_fewshot == 5
    assert whole.load("toksuite_abridged")["groups"]
    assert len(whole.load("flan_held_in")["tasks"]) == 60


def test_paths_lead_through_registered_groups(manager: TaskManager) -> None:
    assert list(manager.load(["mmlu::mmlu_stem::mmlu_anatomy"])["tasks"]) == ["mmlu_anatomy"]
    assert list(manager.load(["mmlu_stem::mmlu_anatomy"])["tasks"]) == ["mmlu_anatomy"]
    assert list(manager.load(["mmlu::mmlu_anatomy"])["tasks"]) == ["mmlu_anatomy"]  # the levels between may be left out


def test_validate_finds_only_what_is_wrong_with_the_folder(
    manager: TaskManager, folder: Path, lm_eval_folder: Path
) -> None:
    problems = validate(manager, find_metric=find_metric)
    serious = {Path(problem.place.file).name for problem in problems if problem.serious}
    assert serious == {path.name for path in folder.rglob("*yaml") if path.name in BROKEN}
    twice = [problem for problem in problems if "is written twice" in problem.what]
    assert not any(problem.serious for problem in twice)
    if folder == lm_eval_folder:
        assert len(twice) == 16  # 15 in separate files, one in a template that others include
