"""Strict decoding: every problem of every file at once, with its place and its remedy."""

from collections.abc import Callable
from pathlib import Path

import pytest

from assay import ConfigError, TaskManager
from assay.config.decode import decode
from assay.config.fields import Fields, Origin
from assay.config.group import GroupConfig
from assay.config.run import RunConfig
from assay.config.source import Source
from assay.config.task import TaskConfig
from assay.errors import Place, Problem
from assay.records import Function
from assay.tasks.validate import validate
from conftest import Write, a_task

TASK_TYPOS = [
    # kind of typo, the file, line:column of it, what must be said, what must be suggested
    ("a key", "task: t\ndoc_to_txt: q\n", "2:1", "unknown key 'doc_to_txt'", "doc_to_text"),
    ("the first key", "taks: t\ndataset_path: json\ndoc_to_text: q\n", "1:1", "unknown key 'taks'", "task"),
    ("a key in capitals", "task: t\nDataset_Path: json\n", "2:1", "unknown key 'Dataset_Path'", "dataset_path"),
    ("a hyphen", "task: t\nnum-fewshot: 3\n", "2:1", "unknown key 'num-fewshot'", "num_fewshot"),
    ("a key written twice", "task: t\nrepeats: 1\nrepeats: 2\n", "3:1", "key 'repeats' is written twice", "delete one"),
    ("an output type", "task: t\noutput_type: multiple_choise\n", "2:14", "output_type must be one of", "multiple_choice"),
    ("a word for a number", "task: t\nnum_fewshot: five\n", "2:14", "num_fewshot must be a whole number", ""),
    ("a quoted number", 'task: t\nrepeats: "3"\n', "2:10", "repeats must be a whole number", "without quotes"),
    ("a number for a text", "task: t\ndataset_name: 2024\n", "2:15", "dataset_name must be text", "in quotes"),
    ("no, which YAML reads as false", "task: t\ndataset_name: no\n", "2:15", "must be text, got false", "in quotes"),
    ("a number below its range", "task: t\nnum_fewshot: -1\n", "2:14", "must be at least 0", ""),
    ("no repeats", "task: t\nrepeats: 0\n", "2:10", "must be at least 1", ""),
    ("a metric's key", "task: t\nmetric_list:\n  - metrc: acc\n", "3:5", "unknown key 'metrc'", "did you mean 'metric'"),
    ("a key beside a metric", "task: t\nmetric_list:\n  - metric: acc\n    agregation: mean\n", "4:5", "agregation", "aggregation"),
    ("a mapping for a list", "task: t\nmetric_list: {metric: acc}\n", "2:14", "metric_list must be a list", ""),
    ("a filter's key", "task: t\nfilter_list:\n  - nmae: x\n    filter: []\n", "3:5", "unknown key 'nmae'", "name"),
    ("a step's key", "task: t\nfilter_list:\n  - name: x\n    filter: [{fuction: regex}]\n", "4:15", "unknown key 'fuction'", "did you mean 'function'"),
    ("a few-shot key", "task: t\nfewshot_config:\n  smapler: first_n\n", "3:3", "unknown key 'smapler'", "sampler"),
    ("a generation key", "task: t\ngeneration_kwargs:\n  max_gen_tok: 5\n", "3:3", "max_gen_tok", "max_gen_toks"),
    ("a function without a module", "task: t\nprocess_docs: !function utils\n", "2:15", "malformed !function", "utils.process_docs"),
    ("a function as plain text", "task: t\nprocess_docs: utils.f\n", "2:15", "must be a `!function`", "!function module.name"),
    ("a list as the name", "task: [a, b]\n", "1:7", "task must be text", ""),
    ("an include that is not there", "task: t\ninclude: basis.yaml\n", "2:10", "no file", "base.yaml"),
    ("a tag that is a mapping", "task: t\ntag: {a: b}\n", "2:6", "tag must be text", ""),
]  # fmt: skip

GROUP_TYPOS = [
    ("a group's key", "group: g\ntask: [t]\nagregate_metric_list: []\n", "3:1", "agregate_metric_list", "aggregate_metric_list"),
    ("a default for members", "group: g\ntask: [t]\nnum_fewshots: 3\n", "3:1", "num_fewshots", "num_fewshot"),
    ("an aggregate's key", "group: g\ntask: [t]\naggregate_metric_list:\n  - metric: acc\n    wieght_by_size: true\n", "5:5", "wieght_by_size", "weight_by_size"),
    ("an aggregate's truth", "group: g\ntask: [t]\naggregate_metric_list: [{metric: acc, weight_by_size: truez}]\n", "3:55", "must be true or false", ""),
    ("a member's name", "group: g\ntask:\n  - anatomi\n", "3:5", "no task, group or tag named 'anatomi'", "anatomy"),
    ("a member's override", "group: g\ntask:\n  - task: anatomy\n    num_fewshto: 3\n", "4:5", "num_fewshto", "num_fewshot"),
    ("a member's override's type", "group: g\ntask:\n  - task: anatomy\n    num_fewshot: many\n", "4:18", "must be a whole number", ""),
    ("a member without a name", "group: g\ntask:\n  - tsak: anatomy\n", "3:5", "a member needs `task` or `group`", "tsak"),
    ("an inline group's key", "group: g\ntask:\n  - group: h\n    task: [anatomy]\n    group_alais: H\n", "5:5", "group_alais", "group_alias"),
    ("a tag on a group", "group: g\ntask: [anatomy]\ntag: x\n", "3:1", "a group cannot have a tag", "on the tasks"),
    ("the old way to join a group", "task: t\ngroup: g\ndataset_path: json\n", "2:1", "cannot have `group`", "tag: g"),
]  # fmt: skip


@pytest.mark.parametrize(("typo", "text", "at", "what", "fix"), TASK_TYPOS + GROUP_TYPOS, ids=lambda value: None)
def test_a_typo_is_refused_with_its_place_and_the_right_suggestion(
    typo: str, text: str, at: str, what: str, fix: str, manage: Callable[..., TaskManager]
) -> None:
    manager = manage({"slip.yaml": text, "anatomy.yaml": a_task("anatomy"), "base.yaml": "test_split: test\n"})
    said = [str(problem) for problem in validate(manager) if problem.serious]
    assert [line for line in said if f"slip.yaml:{at}: " in line and what in line and fix in line], (typo, said)


def test_all_problems_of_all_files_are_reported_at_once(manage: Callable[..., TaskManager]) -> None:
    manager = manage(
        {
            "a.yaml": "task: a\ndoc_to_txt: q\nnum_fewshot: x\ndataset_path: d\n",
            "b.yaml": "task: b\ninclude: gone.yaml\nrepeats: 0\ndataset_path: d\n",
            "c.yaml": "task: c\n  bad: [\n",
        }
    )
    places = [(Path(p.place.file).name, p.place.line) for p in validate(manager) if p.serious]
    assert places == [("a.yaml", 2), ("a.yaml", 3), ("b.yaml", 2), ("b.yaml", 3), ("c.yaml", 2)]


def test_loading_a_task_with_problems_raises_all_of_them(manage: Callable[..., TaskManager]) -> None:
    with pytest.raises(ConfigError) as error:
        manage({"a.yaml": "task: a\ndoc_to_txt: q\nnum_fewshot: x\n"}).load("a")
    assert len(error.value.problems) == 2


def test_a_problem_in_a_template_is_reported_once_and_at_its_line(manage: Callable[..., TaskManager]) -> None:
    files = {f"t{number}.yaml": f"task: t{number}\ninclude: base.yaml\n" for number in range(5)}
    problems = validate(manage({**files, "base.yaml": "dataset_path: some/data\nnum_fewshto: 5\n"}))
    assert [(Path(p.place.file).name, p.place.line) for p in problems if p.serious] == [("base.yaml", 2)]


def test_scalars_are_read_as_yaml_1_1(write: Write) -> None:
    source = Source(
        "x.yaml", b"a: yes\nb: off\nc: 1_000\nd: 0o17\ne: 010\nf: 1e3\ng: 1.0e+3\nh: ~\ni: 12:30\nj: .inf\n"
    )
    assert source.value == {
        "a": True, "b": False, "c": 1000, "d": "0o17", "e": 8, "f": "1e3", "g": 1000.0, "h": None, "i": 750,
        "j": float("inf"),
    }  # fmt: skip


def test_a_function_is_named_and_not_imported() -> None:
    source = Source("/folder/x.yaml", b"f: !function sub.module.name\n")
    assert source.value == {"f": Function("/folder", "sub.module", "name")}
    assert str(source.value["f"]) == "!function sub.module.name"  # type: ignore[index]


def test_merge_keys_and_anchors_work() -> None:
    source = Source("x.yaml", b"base: &b {x: 1, y: 2}\nother: {<<: *b, y: 3}\n")
    assert source.value == {"base": {"x": 1, "y": 2}, "other": {"x": 1, "y": 3}}
    assert not source.problems


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"task: \xff\xfe\xfa", "not readable as text"),
        (b"task: [", "parsing"),
        (b"a: 1\n\tb: 2\n", "a tab"),
        (b"a: !unknown x\n", "unknown tag '!unknown'"),
        (b"a: &x [*x]\n", "refers to itself"),
        (b"a: 2024-99-99\n", "cannot be read"),
        (b"a: 1\n---\nb: 2\n", "a second document"),
        (b"[" * 100_000 + b"]" * 100_000, "nested more than"),
        (b"a:\n" + b"".join(b"%s- \n" % (b" " * depth) for depth in range(400)), "nested more than"),
        (b"? [a]\n: 1\n", "unhashable"),
    ],
)
def test_text_that_cannot_be_read_is_a_problem_with_a_place(data: bytes, what: str) -> None:
    source = Source("x.yaml", data)
    assert [p for p in source.problems if what in p.what and p.place.line >= 1], source.problems
    assert all(problem.fix for problem in source.problems)


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    source = Source("bomb.yaml", "\n".join(lines).encode())
    assert "expand to more than 1,000,000 values" in source.problems[0].what


@pytest.mark.slow
def test_five_megabytes_of_yaml_are_read() -> None:
    rows = "".join(
        f'  - {{question: "question number {number} {"x" * 60}", answer: {number}}}\n' for number in range(50_000)
    )
    source = Source("big.yaml", f"task: big\nrows:\n{rows}".encode())
    assert len(source.data) > 5_000_000
    assert len(source.value["rows"]) == 50_000  # type: ignore[index,call-overload]


def test_places_point_at_keys_and_values() -> None:
    source = Source("x.yaml", b"task: t\nmetric_list:\n  - metric: acc\n    kwargs: {k: 1}\n")
    assert source.place(("task",)) == Place("x.yaml", 1, 7)
    assert source.place(("task",), key=True) == Place("x.yaml", 1, 1)
    assert source.place(("metric_list", 0, "kwargs", "k"), key=True) == Place("x.yaml", 4, 14)
    assert source.place(("metric_list", 0, "nowhere")) == Place("x.yaml", 3, 5)


def test_configurations_are_frozen_and_carry_the_defaults_of_lm_eval() -> None:
    config = TaskConfig(task="t")
    assert (config.target_delimiter, config.fewshot_delimiter, config.output_type) == (" ", "\n\n", "generate_until")
    assert (config.repeats, config.num_fewshot, config.metric_list) == (1, None, None)
    with pytest.raises(AttributeError):
        config.task = "u"  # type: ignore[misc]


def test_keys_beside_a_metric_are_its_parameters() -> None:
    fields = Fields.of({"task": "t", "metric_list": [{"metric": "exact_match", "ignore_case": True}]}, Origin("here"))
    problems: list[Problem] = []
    config = decode(TaskConfig, fields, problems)
    assert config is not None
    assert config.metric_list is not None
    assert (config.metric_list[0].name, dict(config.metric_list[0].kwargs)) == ("exact_match", {"ignore_case": True})
    assert not problems


def test_a_single_value_is_accepted_in_place_of_a_list() -> None:
    problems: list[Problem] = []
    group = decode(
        GroupConfig,
        Fields.of({"group": "g", "task": "t", "aggregate_metric_list": {"metric": "acc"}}, Origin("x")),
        problems,
    )
    task = decode(TaskConfig, Fields.of({"task": "t", "tag": "x"}, Origin("x")), problems)
    assert group is not None
    assert task is not None
    assert (group.task, [entry.metric for entry in group.aggregate_metric_list or ()], task.tag) == (
        ("t",),
        ["acc"],
        ("x",),
    )
    assert not problems


def test_a_run_is_decoded_as_strictly() -> None:
    problems: list[Problem] = []
    fields = Fields.of({"tasks": "a,b", "model": "dummy", "num_fewshot": 3, "ouput_path": "x"}, Origin("run"))
    config = decode(RunConfig, fields, problems)
    assert config is not None
    assert (config.tasks, config.model, config.num_fewshot) == (("a,b",), "dummy", 3)
    assert [str(problem) for problem in problems] == [
        "run.ouput_path: unknown key 'ouput_path' — did you mean 'output_path'?"
    ]


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "a/b", "a b", "a,b", "a::b", "", ".hidden", "x\x1b[31m", "a*", "~x"]
)
def test_a_name_that_is_a_path_a_pattern_or_not_one_name_is_refused(
    name: str, manage: Callable[..., TaskManager]
) -> None:
    manager = manage({"t.yaml": f"task: {name!r}\n".replace("'", '"'), "ok.yaml": a_task("ok")})
    assert any("the name" in problem.what for problem in validate(manager))
    assert manager.load("ok")["tasks"]


def test_a_lenient_folder_keeps_the_last_of_two_keys_and_validate_reports_it(
    manage: Callable[..., TaskManager],
) -> None:
    files = {"lm_eval/tasks/t.yaml": a_task("t") + "num_fewshot: 1\nnum_fewshot: 2\n"}
    manager = manage(files)
    assert manager.load("t")["tasks"]["t"].config.num_fewshot == 2
    notes = validate(manager)
    assert [(p.serious, "written twice" in p.what) for p in notes] == [(False, True)]


def test_compat_lm_eval_makes_every_folder_lenient(manage: Callable[..., TaskManager]) -> None:
    files = {"t.yaml": a_task("t") + "num_fewshot: 1\nnum_fewshot: 2\n"}
    with pytest.raises(ConfigError, match="written twice"):
        manage(files).load("t")
    assert manage(files, compat="lm-eval").load("t")["tasks"]["t"].config.num_fewshot == 2
