"""Slips in YAML that everybody makes: each is named, at its place, with the line that is right."""

from pathlib import Path

import pytest

from assay import TaskManager
from assay.cli import main
from assay.config.loader import load
from assay.dialect import OURS
from assay.errors import nearest
from assay.tasks.validate import validate
from small_runs import write_task

SLIPS = {
    # the text below `task: t`; line and column; the problem; the remedy
    "tab": ("metric_list:\n\t- metric: acc\n", "3:1", "a tab", "replace it by spaces"),
    "tab below a value": ("metadata:\n  a: 1\n\tb: 2\n", "4:1", "a tab", "replace it by spaces"),
    "tab in a file of Windows": ("metadata:\r\n\tversion: 1\r\n", "3:1", "a tab", "replace it by spaces"),
    "template": ("doc_to_text: {{question}}\n", "2:14", "begins with {{ must be in quotes", 'write `doc_to_text: "{{question}}"`'),
    "template and text": ("doc_to_text: {{q}} Answer:\n", "2:14", "begins with {{", 'write `doc_to_text: "{{q}} Answer:"`'),
    "template and quotes": ("doc_to_text: {{q}} \"x\"\n", "2:14", "begins with {{", "write `doc_to_text: '{{q}} \"x\"'`"),
    "statement": ("description: {% if a %}b{% endif %}\n", "2:14", "begins with {%", '"{% if a %}b{% endif %}"'),
    "templates in a list": ("doc_to_choice: [{{a}}, {{b}}]\n", "2:16", "begins with {{", 'write `doc_to_choice: ["{{a}}", "{{b}}"]`'),
    "templates as items": ("doc_to_choice:\n  - {{a}}\n  - {{b}}\n", "3:5", "begins with {{", 'write `- "{{a}}"`'),
    "colon": ("doc_to_text: Question: {{question}}\n", "2:14", "a colon and a space in it must be in quotes",
              'write `doc_to_text: "Question: {{question}}"`'),
    "sign": ("description: @me\n", "2:14", "a value cannot begin with @", 'write `description: "@me"`'),
    "star": ("tag: *all\n", "2:6", "begins with * is read as an alias", 'write `tag: "*all"`'),
    "two documents": ("---\ntask: u\n", "2:1", "a second document begins here", "to its own file"),
    "open quote": ('description: "abc\noutput_type: x\n', "2:14", "a quote that opens here is not closed", "close it"),
    "apostrophe": ("description: 'it's here'\n", "2:18", "text behind the closing quote", "a ' inside of single quotes is written twice"),
    "open list": ("tag: [a, b\noutput_type: x\n", "2:6", "a list that opens here is not closed", "close it with ]"),
    "open mapping": ("metadata: {version: 1\noutput_type: x\n", "2:11", "a mapping that opens here is not closed", "close it with }"),
    "no space": ("metric_list:\n  - metric:acc\n    aggregation: mean\n", "3:5", "a colon needs a space", "write `metric: acc`"),
    "indented": ("  output_type: x\n", "2:3", "this line is indented", "in the same column as the line above"),
    "indented between": ("metadata:\n  a: 1\n b: 2\n", "4:2", "the indentation of this line fits none above", "in the same column"),
    "indented entry": ("metric_list:\n  - metric: acc\n   aggregation: mean\n", "4:4", "the indentation", "in the same column"),
    "backslash": ('doc_to_text: "a\\d+"\n', "2:16", "this backslash means nothing in double quotes", "use single quotes"),
    "no key": ("tag:\n-a\n- b\n", "3:1", "this line has no key", "`- item` with a space"),
    "python's tag": ("doc_to_text: !!python/name:os.system\n", "2:14", "unknown tag '!!python/name:os.system'", "only `!function`"),
}  # fmt: skip


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_named_at_its_place_with_the_remedy(name: str) -> None:
    text, place, what, fix = SLIPS[name]
    _, [problem] = load(f"task: t\n{text}".encode(), "t.yaml", OURS)
    assert str(problem.place) == f"t.yaml:{place}"
    assert what in problem.what
    assert fix in problem.fix


TYPES = {
    "metric_list: acc": "8:14: metric_list must be a list, got the text 'acc' — write `metric_list: [{metric: acc}]`",
    "metric_list: [acc]": "8:15: an entry of metric_list must be a mapping, got the text 'acc' — write `- metric: acc`",
    "metric_list: {metric: acc}": "8:14: metric_list must be a list, got a mapping — begin it with `- `: it is an entry of a list",
    "metadata: 1.0": "8:11: metadata must be a mapping, got the number 1.0 — write `metadata: {version: 1.0}`",
    "metadata: [1]": "8:11: metadata must be a mapping, got a list — write `metadata: {version: 1.0}`",
    "filter_list: [{name: a, filter: take_first}]":
        "8:33: filter must be a list, got the text 'take_first' — write `filter: [{function: take_first}]`",
    "metric_list: [{metric: accuracy}]": "8:24: no metric named 'accuracy' — did you mean 'acc'?",
}  # fmt: skip


@pytest.mark.parametrize("line", TYPES)
def test_a_value_of_the_wrong_type_is_refused_with_what_to_write(line: str, tmp_path: Path) -> None:
    yaml = "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_target: gold\n" + f"{line}\ndoc_to_choice: [a, b]\n"
    write_task(tmp_path, [{"q": "one", "gold": 0}], yaml)
    [problem] = [each for each in validate(TaskManager(include_path=tmp_path, include_defaults=False)) if each.serious]
    assert str(problem).endswith(f"t.yaml:{TYPES[line]}")


def test_a_missing_include_is_not_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("task: t\ninclude: t.yml\n")
    [problem] = [
        each
        for each in validate(TaskManager(include_path=tmp_path, include_defaults=False))
        if "to include" in each.what
    ]
    assert problem.fix == "give a path relative to this file"
    (tmp_path / "_t.yaml").write_text("output_type: generate_until\n")
    [problem] = [
        each
        for each in validate(TaskManager(include_path=tmp_path, include_defaults=False))
        if "to include" in each.what
    ]
    assert problem.fix == "did you mean '_t.yaml'?"


def test_a_name_that_begins_like_a_short_one_suggests_it_after_nearer_ones() -> None:
    assert nearest("accuracy", ["acc", "acc_norm", "bleu"], count=1) == ["acc"]
    assert nearest("mmlu_anatomi", ["mmlu", "mmlu_anatomy"], count=1) == ["mmlu_anatomy"]


def test_a_parameter_of_the_wrong_type_is_reported_once_with_its_place_and_the_rest_is_checked(tmp_path: Path) -> None:
    yaml = "output_type: generate_until\ndoc_to_text: '{{q}}'\ndoc_to_target: '{{gold}}'\ngeneration_kwargs: {until: true}\n"
    write_task(tmp_path, [{"q": "one", "gold": "1"}], yaml + "metric_list: [{metric: exact_mach}]\n")
    problems = [
        str(each) for each in validate(TaskManager(include_path=tmp_path, include_defaults=False)) if each.serious
    ]
    assert len(problems) == 2
    assert "t.yaml:" in problems[0] and "until must be text" in problems[0]
    assert "exact_mach" in problems[1]


def test_columns_that_the_documents_do_not_have_are_all_named_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "d.jsonl").write_text('{"question": "a", "choices": ["x", "y"], "gold": 0, "passage": "p"}\n')
    path = tmp_path / "t.yaml"
    path.write_text(
        "task: t\ndataset_path: json\ndataset_kwargs: {data_files: {test: d.jsonl}}\ntest_split: test\n"
        "output_type: multiple_choice\ncluster_by: pasage\ndoc_to_text: '{{qestion}}?'\ndoc_to_choice: choises\n"
        "doc_to_target: gold\nmetric_list: [{metric: acc}]\n"
    )
    for command in (["validate", str(path)], ["run", "--model", "dummy", "--tasks", str(path), "--no_output"]):
        assert main(command) != 0
        printed = "".join(capsys.readouterr())
        for place, name in (("6:13", "passage"), ("7:17", "question"), ("8:16", "choices")):
            assert f"t.yaml:{place}" in printed and f"did you mean {name!r}?" in printed, (command, name)
