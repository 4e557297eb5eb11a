"""Kinds of task: graphs are one entry of a table, and another kind is one more entry."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import assay
from assay import ConfigError, Task, TaskManager
from assay.config.decode import decode
from assay.config.fields import Fields
from assay.config.kinds import KINDS, kind_key
from assay.config.option import NOTHING, option
from assay.config.task import TaskConfig
from assay.errors import Problem
from assay.scoring.helper_code import Helpers
from assay.tasks.kinds import FindDefinition, FindDotted, TaskKind, kind_of
from assay.tasks.prepare import prepare
from assay.tasks.rescore import StoredTask, prepare_scoring
from assay.tasks.runnable import Runnable
from assay.tasks.settings import Settings
from assay.tasks.validate import validate


@dataclass(frozen=True)
class SumsConfig:
    """Keys of a file of sums."""

    sums: tuple[str, ...] = option(NOTHING, "sums whose results are asked for, as `1+2`")
    task: str | None = option(None, "the name")


@dataclass(frozen=True)
class SumsFile:
    config: SumsConfig
    fields: Fields

    def task_config(self, name: str) -> TaskConfig:
        return TaskConfig(task=self.config.task or name, doc_to_text="{{sum}} =", doc_to_target="{{result}}")


class SumsKind:
    name, config, hint_keys = "sums", SumsConfig, ()

    def read(self, fields: Fields, problems: list[Problem]) -> SumsFile | None:
        config = decode(SumsConfig, fields, problems, known=("include",))
        return SumsFile(config, fields) if config is not None and not problems else None

    def default_name(self, path: str) -> str:
        return Path(path).stem

    def prepare(self, task: Task, settings: Settings, helpers: Helpers, find: FindDefinition) -> Runnable:
        assert isinstance(task.definition, SumsFile)
        sums = [{"sum": text, "result": sum(map(int, text.split("+")))} for text in task.definition.config.sums]
        config = {"dataset_path": "json", "test_split": "test", "custom_dataset": lambda **_: {"test": sums}}
        plain = Task.from_config(
            {"task": task.name, "doc_to_text": "{{sum}} =", "doc_to_target": "{{result}}", **config}
        )
        return prepare(plain, settings, helpers)

    def prepare_scoring(self, task: Task, settings: Settings, helpers: Helpers, stored: StoredTask) -> Runnable:
        return prepare_scoring(task, settings, helpers, stored)

    def check(self, task: Task, helpers: Helpers, find_dotted: FindDotted) -> list[Problem]:
        assert isinstance(task.definition, SumsFile)
        wrong = [text for text in task.definition.config.sums if "+" not in text]
        return [Problem(task.fields.place("sums"), f"{text!r} must be a sum", "write `1+2`") for text in wrong]


@pytest.fixture
def sums() -> Iterator[TaskKind]:
    kind: TaskKind = SumsKind()
    KINDS["sums"] = kind
    yield kind
    del KINDS["sums"]


def manager(tmp_path: Path, text: str) -> TaskManager:
    (tmp_path / "small.yaml").write_text(text)
    return TaskManager(include_path=str(tmp_path), include_defaults=False)


def test_a_graph_is_a_kind_of_task() -> None:
    assert isinstance(KINDS["graph_config"], TaskKind)
    assert KINDS["graph_config"].name == "graph"


def test_a_file_with_the_key_of_a_kind_is_read_by_it(sums: TaskKind, tmp_path: Path) -> None:
    known = manager(tmp_path, "task: small\nsums: [1+2, 3+4]\n")
    task = known.load("small")["tasks"]["small"]
    assert known.catalog.index.named["small"].output_type == "sums"
    assert task.output_type == "sums"
    assert kind_of(task) is sums
    assert kind_key(task.fields) == "sums"


def test_a_plain_task_is_of_no_kind() -> None:
    assert kind_of(Task.from_config({"task": "plain", "dataset_path": "json"})) is None


def test_the_kind_refuses_unknown_keys_and_checks_what_it_has_read(sums: TaskKind, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown key 'smus'"):
        manager(tmp_path, "task: small\nsums: [1+2]\nsmus: 3\n").load("small")
    assert [str(p) for p in validate(manager(tmp_path, "task: small\nsums: [1-2]\n"), "small")] == [
        f"{tmp_path / 'small.yaml'}:2:7: '1-2' must be a sum — write `1+2`"
    ]


def test_a_task_of_another_kind_has_no_formats(sums: TaskKind, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a sums has no formats"):
        manager(tmp_path, "task: small\nsums: [1+2]\n").load("small@generate")


def test_a_task_of_another_kind_is_run(sums: TaskKind, tmp_path: Path) -> None:
    known = manager(tmp_path, "task: small\nsums: [1+2, 3+4]\n")
    model = assay.Scripted(generate=lambda prompt, params, repeat: "3")
    results = assay.simple_evaluate(model, tasks=["small"], task_manager=known, log_samples=True)
    assert [sample["target"] for sample in results["samples"]["small"]] == ["3", "7"]


def test_a_kind_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    class Unfinished:
        name, config, hint_keys, read, default_name = "sums", SumsConfig, (), SumsKind.read, SumsKind.default_name

    KINDS["sums"] = Unfinished()
    try:
        task = manager(tmp_path, "task: small\nsums: [1+2]\n").load("small")["tasks"]["small"]
        with pytest.raises(TypeError, match="must have prepare, prepare_scoring and check"):
            kind_of(task)
    finally:
        del KINDS["sums"]
