"""What people really write: every one of these once made a command end in a traceback, or pass for right."""

import copy
import dataclasses
import itertools
import os
import pickle
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from glob import glob
from pathlib import Path

import pytest

from assay import ConfigError, GroupConfig, StandardGroup, TagGroup, Task, TaskConfig, TaskManager
from assay.catalog.catalog import Catalog
from assay.cli import main
from assay.config.source import Source
from assay.samples import data
from assay.samples.rows import DataError
from assay.tasks.validate import validate
from commands import Run
from conftest import Write, a_task

Manage = Callable[..., TaskManager]

WRONG_VALUES = {
    "an empty tag": a_task("t") + "tag:\n",
    "a number as a tag": a_task("t") + "tag: 5\n",
    "a date as a tag": a_task("t") + "tag: 2020-01-01\n",
    "a list with a number as tags": a_task("t") + "tag: [1]\n",
    "metadata of a task that is a number": a_task("t") + "metadata: 1.0\n",
    "metadata of a group that is a number": "group: t\ntask: [ok]\nmetadata: 1.0\n",
    "metadata of a group that is a list": "group: t\ntask: [ok]\nmetadata:\n  - version: 1.0\n",
    "an aggregate that is a word": "group: t\ntask: [ok]\naggregate_metric_list: acc\n",
    "a format by number": a_task("t") + "formats: {1: mcqa, 2: nosuch}\n",
    "few-shot settings that are a word": a_task("t") + "fewshot_config: abc\n",
    "an include with a NUL": 'task: t\ninclude: "a\\0b.yaml"\n',
    "an include of numbers": "task: t\ninclude: {1: 2}\n",
    "a function with a name without end": f"task: t\ndataset_path: d\nprocess_docs: !function {'x' * 5000}.f\n",
    "a key that YAML reads as a truth": "task: t\ndataset_path: d\non: 2\n",
}


@pytest.mark.parametrize("name", WRONG_VALUES)
@pytest.mark.parametrize("compat", [None, "lm-eval"])
def test_a_wrong_value_is_reported_and_the_rest_works(name: str, compat: str | None, manage: Manage) -> None:
    manager = manage({"wrong.yaml": WRONG_VALUES[name], "ok.yaml": a_task("ok")}, compat=compat)
    said = [problem for problem in validate(manager) if "wrong.yaml:" in str(problem.place)]
    assert said, name
    if compat is None:
        assert any(problem.serious and problem.place.line > 0 for problem in said), said
        if name not in ("a format by number", "a function with a name without end"):  # those show when they are used
            with pytest.raises(ConfigError):
                manager.load("t")
    assert list(manager.load("ok")["tasks"]) == ["ok"]


@pytest.mark.parametrize("text", list(WRONG_VALUES.values()))
def test_no_command_ends_in_a_traceback(text: str, write: Write, run_assay: Run) -> None:
    folder = write({"wrong.yaml": text, "ok.yaml": a_task("ok")})
    for command in (("ls",), ("show", "t"), ("validate",)):
        said = run_assay(*command, "--no_defaults", "--include_path", folder)
        assert "Traceback" not in said.stderr, said.stderr
    assert "ok" in run_assay("ls", "--no_defaults", "--include_path", folder).stdout.split()


def test_links_that_lead_to_each_other_or_to_themselves(write: Write) -> None:
    folder = write({"ok.yaml": a_task("ok")})
    (folder / "a").symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / "a")
    (folder / "self.yaml").symlink_to(folder / "self.yaml")
    assert TaskManager(include_path=folder, include_defaults=False).load("ok")["tasks"]


def test_a_broken_format_fails_only_tasks_that_use_it(manage: Manage) -> None:
    manager = manage(
        {
            "ok.yaml": a_task("ok"),
            "a.yaml": "format: one\ntype: mqca\n",
            "b.yaml": "format: two\nquestion_prefx: x\n",
            "c.yaml": "format: three\ntype: one\n",
            "d.yaml": "format: mcqa\n",
        }
    )
    assert manager.load("ok@cloze")["tasks"]
    said = [str(problem) for problem in validate(manager) if problem.serious]
    assert [Path(line.split(":")[0]).name for line in said] == ["a.yaml", "b.yaml", "c.yaml", "d.yaml"]
    with pytest.raises(ConfigError, match="no format named 'mqca'"):
        manager.load("ok@one")


def test_a_format_may_start_from_any_other_and_circles_are_refused(manage: Manage) -> None:
    manager = manage(
        {
            "ok.yaml": a_task("ok"),
            "a.yaml": 'format: afmt\ntype: zfmt\nanswer_prompt: "A:"\n',
            "z.yaml": 'format: zfmt\ntype: cloze\nquestion_prefix: "Z "\n',
            "x.yaml": "format: x\ntype: y\n",
            "y.yaml": "format: y\ntype: x\n",
        }
    )
    assert manager.formats["afmt"].question_prefix == "Z "
    assert manager.formats["afmt"].answer_prompt == "A:"
    assert any("in a circle" in problem.what for problem in manager.format_problems)


def test_every_entry_of_a_table_of_formats_is_checked(manage: Manage) -> None:
    table = '{a: mcqa, b: nosuch, c: {type: mcqa, instruction: "{{ bad"}, d: {type: mcqa, choice_labels: roman}}'
    said = [problem.what for problem in validate(manage({"t.yaml": a_task("t", formats=table)})) if problem.serious]
    assert len(said) == 3
    assert "no format named 'nosuch'" in said[0]
    assert "not a valid template" in said[1]
    assert "no labels named 'roman'" in said[2]


def test_a_cycle_of_groups_is_reported_when_a_folder_is_selected(write: Write) -> None:
    folder = write({"a.yaml": "group: a\ntask: [b]\n", "b.yaml": "group: b\ntask: [a, t]\n", "t.yaml": a_task("t")})
    with pytest.raises(ConfigError, match="circle"):
        TaskManager(include_defaults=False).load(str(folder))


@pytest.mark.parametrize(
    "asked", ["./nope/*.yaml", "./nope.yaml", "~nobody-of-that-name/x.yaml", "./" + "x" * 5000, "./a\0b.yaml"]
)
def test_a_path_that_leads_nowhere_is_an_error(asked: str, manage: Manage) -> None:
    with pytest.raises(ConfigError):
        manage({"ok.yaml": a_task("ok")}).load(asked)


def test_a_path_through_a_tag_leads_to_its_tasks(manage: Manage) -> None:
    manager = manage({"a.yaml": a_task("a", tag="x"), "b.yaml": a_task("b", tag="x")})
    for asked in ("x::a", "tag:x::a"):
        assert list(manager.load(asked)["tasks"]) == ["a"]
    with pytest.raises(ConfigError, match="'x' has no member 'nonsense'"):
        manager.load("x::nonsense")


def test_paths_may_have_globs_in_every_part(manage: Manage) -> None:
    manager = manage(
        {
            "a.yaml": a_task("a"), "b.yaml": a_task("b"), "g1.yaml": "group: g1\ntask: [a]\n",
            "g2.yaml": "group: g2\ntask: [b]\n", "top.yaml": "group: top\ntask: [g1, g2]\n",
        }
    )  # fmt: skip
    assert list(manager.load("top::*::a")["tasks"]) == ["a"]
    assert list(manager.load("g*::b")["tasks"]) == ["b"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("top::*::bta", "no member below 'top' is named '*::bta' — did you mean beta?"),
        ("g*::bta", "no member below 'g*' is named 'bta' — did you mean beta?"),
        ("g*::zzz", "no member below 'g*' is named 'zzz' — `assay ls` lists every name"),
        ("top::bta", "'top' has no member 'bta' — did you mean beta?"),
        ("top::zzz", "'top' has no member 'zzz' — `assay show top` draws its members"),
    ],
)
def test_a_path_to_no_member_is_refused_with_the_name_that_is_meant(path: str, said: str, manage: Manage) -> None:
    manager = manage(
        {
            "a.yaml": a_task("alpha"), "b.yaml": a_task("beta"), "g1.yaml": "group: g1\ntask: [alpha]\n",
            "g2.yaml": "group: g2\ntask: [beta]\n", "top.yaml": "group: top\ntask: [g1, g2]\n",
        }
    )  # fmt: skip
    with pytest.raises(ConfigError) as refused:
        manager.load(path)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["../../etc/x", "/abs", "", "x::y", "sp ace", "x\\e[31m", "tag:", "x.yaml"])
@pytest.mark.parametrize("member", ['{{task: "{0}", dataset_path: d}}', '{{group: "{0}", task: [ok]}}'])
def test_names_of_inline_members_are_checked_like_all_others(name: str, member: str, manage: Manage) -> None:
    manager = manage({"ok.yaml": a_task("ok"), "g.yaml": f"group: g\ntask:\n  - {member.format(name)}\n"})
    assert any(problem.serious and "the name" in problem.what for problem in validate(manager))


@pytest.mark.parametrize("tag", ["a b", "c,d", "e::f", "", "x\\e[31m"])
def test_names_of_tags_are_checked(tag: str, manage: Manage) -> None:
    manager = manage({"t.yaml": a_task("t") + f'tag: ["{tag}"]\n'})
    assert any("the tag" in problem.what for problem in validate(manager))


def test_a_slip_in_a_key_of_a_mapping_is_one_of_that_key(manage: Manage) -> None:
    """What makes a file a graph is a key with a mapping, too."""
    [problem] = validate(manage({"t.yaml": a_task("t") + "generation_kwarg: {temperature: 0}\n"}))
    assert (problem.what, problem.fix) == ("unknown key 'generation_kwarg'", "did you mean 'generation_kwargs'?")


def test_a_module_whose_name_no_file_can_have_is_reported(manage: Manage) -> None:
    name = "x" * 300
    problems = validate(
        manage({"t.yaml": f"task: t\ndataset_path: d\ndoc_to_text: !function {name}.f\ndoc_to_target: a\n"})
    )
    assert [problem.what for problem in problems] == [f"module '{name[:60]}' cannot be found: File name too long"]


def test_an_include_from_a_folder_that_is_not_there_is_reported(manage: Manage) -> None:
    with pytest.raises(
        ConfigError, match=r"t.yaml:2:10: no file .*gone/x.yaml to include — give a path relative to this file"
    ):
        manage({"t.yaml": "task: t\ninclude: gone/x.yaml\n"}).load("t")


@pytest.mark.parametrize(("keys", "more"), [(0, []), (1, ["(and 1 more)"]), (2, ["(and 2 more)"])])
def test_the_list_of_broken_files_says_how_many_problems_each_has(keys: int, more: list[str], write: Write) -> None:
    """The first is that of its name."""
    wrong = "".join(f"wrong_key_{number}: 1\n" for number in range(keys))
    catalog = Catalog(write({"t.yaml": "task: 'a b'\n" + wrong}), include_defaults=False)
    [broken] = catalog.index.broken
    assert re.findall(r"\(and \d+ more\)$", broken.error) == more


def test_a_metric_list_stays_where_the_task_does_not_say_what_is_asked(manage: Manage) -> None:
    text = "task: t\ndataset_path: d\ndoc_to_choice: choices\nformats: mcqa\nmetric_list: [{metric: acc}]\n"
    task = manage({"t.yaml": text}).load("t")["tasks"]["t"]
    assert [metric.name for metric in task.config.metric_list or ()] == ["acc"]
    assert task.notes == ()


def test_a_format_with_its_own_metrics_uses_them_and_says_so(manage: Manage) -> None:
    task = manage({"t.yaml": a_task("t", formats="{type: mcqa, metric_list: [{metric: acc_norm}]}")}).load("t")[
        "tasks"
    ]["t"]
    assert [metric.name for metric in task.config.metric_list or ()] == ["acc_norm"]
    assert "is replaced by that of format" in task.notes[0]


def test_a_plug_in_without_its_folder_stops_nothing(tmp_path: Path, run_assay_process: Run) -> None:
    metadata = tmp_path / "site/gone-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: gone\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[assay.tasks]\none = gone.nowhere\ntwo = zzz_nope.evals\n")
    listed = run_assay_process("ls", PYTHONPATH=str(tmp_path / "site"))
    assert "first_steps" in listed.stdout.split()
    said = run_assay_process("validate", PYTHONPATH=str(tmp_path / "site"))
    assert said.returncode == 1
    assert [line.split(":")[0] for line in said.stdout.splitlines()[:2]] == ["plugin one", "plugin two"]


def test_a_file_whose_name_is_taken_still_shows_its_other_problems(manage: Manage) -> None:
    manager = manage({"b.yaml": a_task("a1"), "c.yaml": a_task("a1") + "num_fewshto: 1\n"})
    said = [str(problem) for problem in validate(manager) if problem.serious]
    assert any("c.yaml:1:7: task 'a1' is also defined in" in line for line in said)
    assert any("c.yaml:10:1: unknown key 'num_fewshto'" in line for line in said)


def test_a_name_that_is_only_included_makes_no_second_task(manage: Manage) -> None:
    manager = manage({"good.yaml": a_task("good"), "more.yaml": "include: good.yaml\nnum_fewshot: 3\n"})
    assert not [problem for problem in validate(manager) if problem.serious]
    assert manager.load("good")["tasks"]["good"].config.num_fewshot is None


def test_a_file_asked_for_by_path_does_not_change_what_names_mean(write: Write, tmp_path: Path) -> None:
    registered = write({"t.yaml": a_task("shared", num_fewshot="2")})
    other = write({"../other/s.yaml": a_task("shared", num_fewshot="1")}).parent / "other/s.yaml"
    manager = TaskManager(include_path=registered, include_defaults=False)
    assert manager.load(str(other))["tasks"]["shared"].config.num_fewshot == 1
    assert manager.load("shared")["tasks"]["shared"].config.num_fewshot == 2
    both = manager.load([str(other), "shared"])["tasks"]
    assert sorted(task.config.num_fewshot or 0 for task in both.values()) == [1, 2]


def test_numbered_names_can_be_asked_for(manage: Manage) -> None:
    members = "".join(f"  - task: t\n    num_fewshot: {n}\n" for n in (1, 5))
    manager = manage({"t.yaml": a_task("t"), "g.yaml": f"group: g\ntask:\n{members}"})
    [task] = manager.load("g::t#2")["tasks"].values()
    assert task.config.num_fewshot == 5


def test_what_was_asked_for_by_a_path_is_called_by_it_where_names_collide(manage: Manage) -> None:
    manager = manage({"t.yaml": a_task("t"), "g.yaml": "group: g\nnum_fewshot: 3\ntask: [t]\n"})
    assert sorted(manager.load(["t", "g::t"])["tasks"]) == ["g::t", "t"]


def test_match_tasks_takes_a_name_and_formats(manage: Manage) -> None:
    manager = manage({"a.yaml": a_task("t_a"), "b.yaml": a_task("t_b")})
    assert manager.match_tasks(["t_*@cloze"]) == ["t_a@cloze", "t_b@cloze"]
    assert manager.match_tasks("t_a") == ["t_a"]


@pytest.mark.parametrize("typo", ["incldue", "includes", "INCLUDE", "inclde"])
def test_a_typo_in_include_is_reported_with_a_suggestion(typo: str, manage: Manage) -> None:
    manager = manage({"t.yaml": a_task("t") + f"{typo}: base.yaml\n", "base.yaml": "test_split: x\n"})
    assert any("did you mean 'include'?" in problem.fix for problem in validate(manager))


def test_a_key_from_a_yaml_merge_is_reported_at_its_own_line(manage: Manage) -> None:
    manager = manage({"t.yaml": "task: t\ndataset_path: d\n<<: {num_fewshto: 4}\n"})
    [problem] = [problem for problem in validate(manager) if problem.serious]
    assert (problem.place.line, problem.place.column) == (3, 6)


@pytest.mark.parametrize("value", ["2020-99-99", "!!int abc", "!!float abc"])
def test_an_invalid_scalar_is_reported_at_its_line(value: str, manage: Manage) -> None:
    manager = manage({"t.yaml": f"task: t\ndataset_path: d\ndescription: {value}\n"})
    assert any(problem.place.line == 3 for problem in validate(manager) if problem.serious)


def test_a_format_in_a_file_is_refused_with_its_place(manage: Manage) -> None:
    manager = manage({"t.yaml": a_task("t@mqca"), "g.yaml": "group: g\ntask:\n  - ok@mqca\n", "ok.yaml": a_task("ok")})
    said = sorted(f"{Path(p.place.file).name}:{p.place.line}:{p.place.column}" for p in validate(manager) if p.serious)
    assert said == ["g.yaml:3:5", "t.yaml:1:7"]


@pytest.mark.parametrize(
    "text", ["group: g@cloze\ntask: [ok]\n", "group: g\ntask:\n  - group: h@cloze\n    task: [ok]\n"]
)
def test_a_group_cannot_have_a_format_in_its_name(text: str, manage: Manage) -> None:
    assert any("'@'" in problem.what for problem in validate(manage({"g.yaml": text, "ok.yaml": a_task("ok")})))


@pytest.mark.parametrize(
    ("format", "answer", "target"),
    [("cot", "B", "y"), ("cloze", "B", "1"), ("generate", "y", "B"), ("mcqa", False, "0")],
)
def test_labels_serve_as_targets_in_every_format(format: str, answer: object, target: str, manage: Manage) -> None:
    from test_formats import asked, render

    task = asked(manage({"t.yaml": a_task("t")}), f"t@{format}")
    assert render(task.config.doc_to_target, {"question": "Q", "choices": ["x", "y"], "answer": answer}) == target


@pytest.mark.parametrize("answer", ["Z", None, "", [0, 1], 7, "9"])
@pytest.mark.parametrize("format", ["mcqa", "cloze", "generate", "cot"])
def test_a_target_that_is_not_a_choice_is_an_error_and_never_the_first_choice(
    answer: object, format: str, manage: Manage
) -> None:
    from jinja2 import UndefinedError

    from test_formats import asked, render

    task = asked(manage({"t.yaml": a_task("t")}), f"t@{format}")
    with pytest.raises(UndefinedError, match="the_target_is_none_of_the_choices"):
        render(task.config.doc_to_target, {"question": "Q", "choices": ["x", "y"], "answer": answer})


def test_a_column_may_have_any_name(manage: Manage) -> None:
    from test_formats import asked, render

    text = 'task: t\ndataset_path: d\ndoc_to_text: "my col"\ndoc_to_choice: "the choices"\ndoc_to_target: answer\n'
    task = asked(manage({"t.yaml": text}), "t@mcqa")
    row = {"my col": "Q?", "the choices": ["x", "y"], "answer": 1}
    derived = {name: function(row) for name, function in task.config.derived.items()}  # type: ignore[operator]
    assert render(task.config.doc_to_text, {**row, **derived}) == "Question: Q?\nA. x\nB. y\nAnswer:"


def test_a_task_without_data_and_a_missing_data_file_are_reported(manage: Manage) -> None:
    manager = manage(
        {
            "a.yaml": "task: a\ndoc_to_text: q\n",
            "b.yaml": "task: b\ndataset_path: json\ndataset_kwargs:\n  data_files: {test: no.jsonl}\n",
        }
    )
    said = [str(problem) for problem in validate(manager)]
    assert "names no data" in said[0]
    assert "b.yaml:4:22: no data file 'no.jsonl'" in said[1]


SCORING_TYPOS = [
    ("metric_list: [{metric: exact_mach}]", "1:24", "no metric named 'exact_mach'", "exact_match"),
    ("metric_list: [{metric: exact_match, ignore_cas: true}]", "1:49", "no parameter 'ignore_cas'", "ignore_case"),
    ("metric_list: [{metric: exact_match, aggregation: maen}]", "1:50", "no aggregation named 'maen'", "mean"),
    ("metric_list: [{metric: acc}]", "1:24", "'acc' does not score generate_until", "multiple_choice"),
    ("filter_list: [{name: f, filter: [{function: rgex}]}]", "1:45", "no filter named 'rgex'", "regex"),
    (
        "filter_list: [{name: f, filter: [{function: regex, regex_patern: x}]}]",
        "1:66",
        "no parameter 'regex_patern'",
        "regex_pattern",
    ),
    ('filter_list: [{name: f, filter: [{function: regex, regex_pattern: "("}]}]', "1:45", "cannot be made", "correct"),
    ("filter_list: [{name: f, filter: [{function: take_first_k}]}]", "1:45", "needs the parameter 'k'", "k"),
    ("fewshot_config: {sampler: firstn}", "1:27", "no sampler named 'firstn'", "first_n"),
    ('doc_to_text: "{{ x | nofilter }}"', "1:14", "not a valid template", "correct"),
]


@pytest.mark.parametrize(("line", "at", "what", "fix"), SCORING_TYPOS)
def test_a_typo_in_metrics_filters_and_parameters_is_refused_with_its_place(
    line: str, at: str, what: str, fix: str, manage: Manage
) -> None:
    said = [str(p) for p in validate(manage({"slip.yaml": f"{line}\ntask: t\ndataset_path: d\n"})) if p.serious]
    assert [each for each in said if f"slip.yaml:{at}: " in each and what in each and fix in each], said


def test_configurations_can_be_copied_pickled_and_taken_apart() -> None:
    config = TaskConfig(task="t")
    assert copy.deepcopy(config) == config
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301  # our own
    assert dataclasses.asdict(config)["task"] == "t"


def test_groups_take_nothing_but_tasks_and_groups() -> None:
    group: StandardGroup[Task] = StandardGroup(GroupConfig(group="g"))
    with pytest.raises(TypeError, match="takes tasks and groups, not str"):
        group.add_child("x")  # type: ignore[arg-type]
    assert group.children == []


def test_the_whole_circle_is_printed() -> None:
    groups: list[StandardGroup[Task]] = [StandardGroup(GroupConfig(group=name)) for name in "abcd"]
    for outer, inner in itertools.pairwise(groups):
        outer.add_child(inner)
    with pytest.raises(ConfigError, match="d → a → b → c → d"):
        groups[3].add_child(groups[0])


def test_a_task_that_joins_a_tag_has_the_tag_and_no_group() -> None:
    task, tag = Task(TaskConfig(task="t")), TagGroup[Task]("x")
    task.add_to_group(tag)
    assert (task.tags, task.groups, tag.get_all_tasks()) == (["x"], [], [task])


@pytest.mark.parametrize("name", ["yes", "5", "null", "true", "0x10", "2020-01-01"])
def test_new_quotes_names_that_yaml_would_read_as_something_else(name: str, run_assay: Run, tmp_path: Path) -> None:
    assert run_assay("new", "task", name, "--dir", tmp_path).returncode == 0
    assert run_assay("validate", tmp_path / f"{name}.yaml").stdout == "0 problems, 0 notes\n"


def test_the_folder_one_is_in_can_be_validated(write: Write, run_assay: Run) -> None:
    folder = write({"t.yaml": a_task("t")})
    assert run_assay("validate", ".", cwd=folder).stdout == "0 problems, 0 notes\n"
    assert run_assay("validate", "nobody", "./nofile.yaml", cwd=folder).stdout.count("\n") == 3


def test_a_format_file_can_be_validated_by_path(write: Write, run_assay: Run) -> None:
    folder = write({"good.yaml": "format: good\ntype: mcqa\n", "bad.yaml": "format: bad\nquestion_prefx: x\n"})
    assert run_assay("validate", folder / "good.yaml").returncode == 0
    assert "did you mean 'question_prefix'" in run_assay("validate", folder / "bad.yaml").stdout


def test_show_shows_everything_that_was_asked_for(write: Write, run_assay: Run) -> None:
    folder = write(
        {
            "a.yaml": a_task("a"),
            "b.yaml": a_task("b"),
            "g.yaml": "group: g\ntask: [a]\n",
            "h.yaml": "group: h\ntask: [b]\n",
        }
    )
    shown = run_assay("show", "g,h", "--include_path", folder).stdout
    assert "g  ·  group" in shown
    assert "h  ·  group" in shown
    assert run_assay("show", "", "--include_path", folder).returncode == 2


@pytest.mark.parametrize(
    "helper", ["raise RuntimeError('no')", "import nothing_of_that_name", "import sys; sys.exit(3)"]
)
def test_failing_helper_code_is_reported_when_a_prompt_is_rendered(helper: str, write: Write, run_assay: Run) -> None:
    folder = write(
        {"t.yaml": a_task("t", process_docs="!function utils.f"), "utils.py": f"{helper}\ndef f(x): return x\n"}
    )
    shown = run_assay("show", "t", "--render", "--include_path", folder)
    assert shown.returncode == 0
    assert "cannot be loaded" in shown.stdout


def test_output_that_cannot_be_written_is_reported(write: Write) -> None:
    folder = write({"t.yaml": a_task("t")})
    command = [sys.executable, "-m", "assay", "show", "t", "--include_path", str(folder)]
    latin = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "latin-1"}, check=False)
    assert latin.returncode == 0
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([*command[:3], "ls"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert "No space left" in ended.stderr
    assert "Traceback" not in ended.stderr


# ---- pipes, devices and loops in place of files: nothing is waited for

SPECIAL: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a loop of links": lambda path: path.symlink_to(path.name),
    "a folder": Path.mkdir,
}
RUN = ["run", "--model", "dummy", "--tasks", "t", "--include_path", ".", "--no_defaults"]
OPENED: dict[str, list[str]] = {
    "run.yaml": [*RUN, "--config", "run.yaml"],
    "plug.py": [*RUN, "--plugin", "plug.py"],
    "log.eval": ["import", "log.eval", "-o", "new"],
    "log.json": ["import", "log.json", "-o", "new"],
    "run.zip": ["import", "run.zip", "-o", "new"],
    "samples_t.jsonl": ["score", "samples_t.jsonl", "--include_path", ".", "--no_defaults"],
    "with.yaml": ["validate", "with.yaml", "--no_defaults"],
    "cache/responses.sqlite": [*RUN, "--use_cache", "cache"],
}
"""By the name of a file, a command that opens it."""


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("file", OPENED)
def test_what_is_not_a_file_is_refused_and_not_waited_for(
    kind: str, file: str, write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {"t.jsonl": '{"q": "x", "a": "y"}\n'}
    task = 'task: t\ndataset_path: json\ndataset_kwargs: {data_files: {test: t.jsonl}}\ntest_split: test\ndoc_to_text: "{{q}}"\ndoc_to_target: "{{a}}"\n'
    folder = write({"t.yaml": task, **rows})
    monkeypatch.chdir(folder)
    (folder / file).parent.mkdir(exist_ok=True)
    SPECIAL[kind](folder / file)
    assert main(OPENED[file]) in (1, 2)
    printed = capsys.readouterr()
    messages = printed.err + printed.out
    assert (file.partition("/")[0] in messages or "/dev/zero: " in messages) and " — " in messages


def unknown_keys(number: int, indent: str = "") -> str:
    return "".join(f"{indent}key_{each}: 1\n" for each in range(number))


MANY_KEYS: dict[str, Callable[[int], str]] = {
    "of a task": lambda number: a_task("t") + unknown_keys(number),
    "of a metric": lambda number: f"{a_task('t')}metric_list:\n  - metric: acc\n{unknown_keys(number, '    ')}",
    "of a group": lambda number: f"group: t\ntask: [ok]\n{unknown_keys(number)}",
    "of a member": lambda number: f"group: t\ntask:\n  - task: ok\n{unknown_keys(number, '    ')}",
    "of a filter step": lambda number: f"{a_task('t')}filter_list:\n  - name: x\n    filter:\n      - function: take_first\n"
                                       f"{unknown_keys(number, ' ' * 8)}",
}  # fmt: skip


@pytest.mark.parametrize("name", MANY_KEYS)
def test_unknown_keys_cost_linear_time(name: str, write: Write) -> None:
    """Four times as many cost four times as much; with the square it would be sixteen times."""

    def seconds(number: int) -> float:
        folder = (
            write({f"../{number}/t.yaml": MANY_KEYS[name](number), f"../{number}/ok.yaml": a_task("ok")})
            / f"../{number}"
        )
        manager, began = TaskManager(include_path=folder, include_defaults=False), time.process_time()
        assert any("key_0" in each.what for each in validate(manager))
        return time.process_time() - began

    assert seconds(8000) < 9 * seconds(2000) + 0.1


def test_the_first_hundred_unknown_keys_have_their_places_and_the_others_are_counted(manage: Manage) -> None:
    start = a_task("t")
    problems = [each for each in validate(manage({"t.yaml": start + unknown_keys(250)})) if "unknown key" in each.what]
    first = start.count("\n") + 1
    assert [each.place.line for each in problems] == list(range(first, first + 101))
    assert problems[0].what == "unknown key 'key_0'"
    assert problems[100].what == "150 more unknown keys, the first is 'key_100'"


def test_of_two_equal_keys_the_place_is_that_of_the_one_that_counts() -> None:
    source = Source("t.yaml", b"a: 1\non: 2\na: 3\n~: 4\n")
    assert [source.place([key], key=True).line for key in ("a", "True", "on", "None")] == [3, 2, 2, 4]


PATTERNS = ["*", "**/*", "**", "**/*.json", "p/**/*.json", "*/*/*.json", "**/p/**/c.json", "[pq]/*.json", "**/.h", ".hid/*",
            "./p/*.json", "**/x[[]1].json", "?/*", "**/**/*.json", "p/c.json", "p//*.json", "no/*"]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_the_files_that_glob_finds(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = random.Random(1)
    for _ in range(100):
        folder = tmp_path.joinpath(*chosen.choices(["p", "q", ".hid", "r"], k=chosen.randint(0, 4)))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / chosen.choice(["a", "c.json", "d.jsonl", ".h", "x[1].json", "e e.json"])).write_text("x")
    monkeypatch.chdir(tmp_path)
    for written in (pattern, f"{tmp_path}/{pattern}"):
        expected = {os.path.normpath(each) for each in glob(written, recursive=True) if Path(each).is_file()}  # noqa: PTH207
        assert {os.path.normpath(each) for each in data.matching_files(written)} == expected


def test_a_pattern_ends_at_links_that_form_a_loop(tmp_path: Path) -> None:
    (tmp_path / "p/q").mkdir(parents=True)
    (tmp_path / "p/q/a.json").write_text("x")
    (tmp_path / "p/q/up").symlink_to(tmp_path)
    assert [Path(each).name for each in data.matching_files(f"{tmp_path}/**/*.json")] == ["a.json"]


def test_a_pattern_that_would_read_the_whole_disk_is_refused_with_its_place(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "MOST_ENTRIES", 300)
    (tmp_path / "big").mkdir()
    for number in range(400):
        (tmp_path / f"big/{number}").touch()
    text = f"task: t\ndataset_path: json\ntest_split: test\ndataset_kwargs:\n  data_files: {{test: '{tmp_path}/**/*.none'}}\n"
    manager = TaskManager(include_path=write({"t.yaml": text}), include_defaults=False)
    [problem] = [each for each in validate(manager) if "looks at more than 300 files and folders" in each.what]
    assert (problem.place.line, problem.serious) == (5, True)
    with pytest.raises(DataError, match="name a folder that is nearer to the data"):
        data.matching_files(f"{tmp_path}/**/*")
