"""Slips that would be sent as constant prompts: refused before any request, with the columns and the nearest name."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import assay
from assay import ConfigError, TaskManager
from assay.models import Scripted
from assay.tasks.validate import validate
from commands import Run
from conftest import Write
from kinds import mostly_nightly

DATA = {"dataset_path": "json", "dataset_kwargs": "{data_files: {test: d.jsonl}}", "test_split": "test"}
GENERATE = {**DATA, "task": "t", "doc_to_text": "question", "doc_to_target": "answer"}
CHOICE = {**GENERATE, "output_type": "multiple_choice", "doc_to_choice": "choices", "doc_to_target": "gold"}
ROWS = [
    {"question": f"q{n}", "answer": "x", "choices": ["x", "y"], "gold": 0, "label": "x", "Question Text": "t", "full text": "u", "a": 1, "meta": {"text": "m"}}
    for n in range(4)
]  # fmt: skip


def yaml(fields: dict[str, str]) -> str:
    return "".join(f"{key}: {value}\n" for key, value in fields.items())


def folder_with(write: Write, fields: dict[str, str], count: int = 4) -> Path:
    rows = "".join(json.dumps(row) + "\n" for row in ROWS[:count])
    helper = "def text(doc):\n    return 'f ' + doc['question']\n"
    return write({"t.yaml": yaml(fields), "d.jsonl": rows, "utils.py": helper})


def asked(folder: Path, name: str = "t", **options: Any) -> list[str]:
    """Every prompt that a run sends, or the continuations of choices."""
    sent: list[str] = []

    def answer(prompt: str, params: Any, repeat: int) -> str:
        sent.append(prompt)
        return "x"

    def loglikelihood(context: str, continuation: str) -> tuple[float, bool]:
        sent.append(context + continuation)
        return -1.0, False

    model = Scripted(generate=answer, loglikelihood=loglikelihood)
    fixed: dict[str, Any] = {"include_path": str(folder), "include_defaults": False, "bootstrap_iters": 0}
    assay.simple_evaluate(model, tasks=[name], **(fixed | options))
    return sent


SLIPS: dict[str, tuple[dict[str, str], str]] = {
    "a misspelt column": ({"doc_to_text": "questoin"}, r"t\.yaml:\d+:14: doc_to_text: .*'questoin'; they have: question, answer.* — did you mean 'question'\?"),
    "another case": ({"doc_to_text": "Question"}, "did you mean 'question'"),
    "a word that is like no column": ({"doc_to_text": "zebra"}, "no column 'zebra'; they have"),
    "a line break behind it": ({"doc_to_text": '"question\\n"'}, "did you mean 'question'"),
    "a column with a space": ({"doc_to_text": "Questoin Text"}, "did you mean 'Question Text'"),
    "a path into a column": ({"doc_to_text": "meta.text"}, r'write "\{\{meta\.text\}\}"'),
    "single braces": ({"doc_to_text": '"Q: {question}\\nA:"'}, r"\{question\} is not filled in — write \{\{question\}\}"),
    "single braces with spaces": ({"doc_to_text": '"Q: { question }"'}, r"\{question\} is not filled in — write \{\{question\}\}"),
    "single braces and an item": ({"doc_to_text": '"Q: {choices[0]}"'}, r"write \{\{choices\[0\]\}\}"),
    "a misspelt column in single braces": ({"doc_to_text": '"Q: {questoin}\\nA:"'}, r"did you mean \{\{question\}\}"),
    "another case in single braces": ({"doc_to_text": '"Q: {Question}"'}, r"did you mean \{\{question\}\}"),
    "a dollar before braces": ({"doc_to_text": '"Q: ${question}"'}, "is not filled in"),
    "a column of one letter": ({"doc_to_text": '"{a} + {a} = "'}, "is not filled in"),
    "single braces beside a template": ({"doc_to_text": '"{{meta.text}} {question}"'}, "is not filled in"),
    "single braces in a target": ({"doc_to_target": '"{answer}"'}, "doc_to_target: .* is not filled in"),
    "single braces in a prefix": ({"gen_prefix": '"The {answer}"'}, "gen_prefix: .* is not filled in"),
    "single braces in a description": ({"description": '"About {question}"'}, "description: .* is not filled in"),
    "a space for an underscore": ({"doc_to_text": "question text"}, "did you mean 'Question Text'"),
    "an underscore for a space": ({"doc_to_text": "Question_Text"}, "did you mean 'Question Text'"),
    "a hyphen for a space": ({"doc_to_text": "full-text"}, "did you mean 'full text'"),
    "a function without its tag": ({"doc_to_text": "utils.text"}, "not a function — write !function utils.text"),
    "a function without its exclamation mark": ({"doc_to_text": "function utils.text"}, "write it without quotes: !function utils.text"),
    "a target without its tag": ({"doc_to_target": "utils.text"}, "doc_to_target: .* write !function utils.text"),
    "a filter outside of a template": ({"doc_to_text": "question|trim"}, r'write "\{\{question\|trim\}\}"'),
    "a sum of columns": ({"doc_to_text": "question + answer"}, r'write "\{\{question \+ answer\}\}"'),
    "a quoted function": ({"doc_to_text": '"!function utils.text"'}, "without quotes: !function utils.text"),
    "a function in a block": ({"doc_to_text": "|\n  !function utils.text"}, "without quotes: !function utils.text"),
    "a misspelt target": ({"doc_to_target": "answr"}, "doc_to_target: .* did you mean 'answer'"),
    "a quoted function as target": ({"doc_to_target": "'!function utils.text'"}, "not a function"),
    "templates in a list of targets": ({"doc_to_target": "['{{answer}}', '{{label}}']"}, r"\{\{\[answer, label\]\}\}"),
    "a quoted function as description": ({"description": "'!function utils.text'"}, "not a function"),
    "a quoted function as prefix": ({"gen_prefix": "'!function utils.text'"}, "not a function"),
    "a misspelt prefix": ({"gen_prefix": "answr"}, "gen_prefix: .* did you mean 'answer'"),
    "a template as delimiter": ({"target_delimiter": '" {{question}} "'}, "a delimiter is not filled in"),
    "a misspelt target beside a function": ({"doc_to_text": "!function utils.text", "doc_to_target": "answr"}, "doc_to_target: .* did you mean 'answer'"),
    "a target template beside a function": ({"doc_to_text": "!function utils.text", "doc_to_target": '"{{zebra}}"'}, r"t\.yaml:6:19: doc_to_target: the documents have no column 'zebra'; they have: question"),
    "an attribute of a target": ({"doc_to_target": '"{{meta.txet}}"'}, r"t\.yaml:6:24: doc_to_target: 'meta' has no 'txet'; it has: text — did you mean 'text'"),
    "an item of a column": ({"doc_to_text": """"{{question}} {{meta['txet']}}\""""}, r"t\.yaml:5:36: doc_to_text: 'meta' has no 'txet'"),
    "a column that a loop goes over": ({"doc_to_text": '"{{question}}{% for c in chioces %}{{c}}{% endfor %}"'}, r"t\.yaml:5:39: .*'chioces'.* did you mean 'choices'"),
    "a misspelt prefix of examples": (
        {"num_fewshot": "1", "fewshot_split": "test", "fewshot_config": '{gen_prefix: "{{zebra}}"}'}, "gen_prefix: the documents have no column 'zebra'",
    ),
    "a slip in the examples": (
        {"num_fewshot": "1", "fewshot_split": "test", "fewshot_config": "{doc_to_text: questoin}"}, "did you mean 'question'",
    ),
    "a misspelt target of examples": (
        {"num_fewshot": "1", "fewshot_split": "test", "fewshot_config": "{doc_to_target: answr}"}, "did you mean 'answer'",
    ),
    "a quoted function in the examples": ({"fewshot_config": "{doc_to_target: '!function utils.text'}"}, "not a function"),
}  # fmt: skip

CHOICE_SLIPS: dict[str, tuple[dict[str, str], str]] = {
    "a misspelt list": ({"doc_to_choice": "chioces"}, "doc_to_choice: .* did you mean 'choices'"),
    "single braces in a list": ({"doc_to_choice": '["{answer}", "{label}"]'}, r'doc_to_choice: \{answer\} is not filled in — write one template that gives the list: "\{\{\[answer, label\]\}\}"'),
    "single braces in a mapping": ({"doc_to_choice": '{a: "{answer}", b: "{label}"}'}, r"\{answer\} is not filled in"),
    "one template in a list": ({"doc_to_choice": '["none of {{ x }} these", b]'}, "t.yaml:8:29: doc_to_choice: the documents have no column 'x'"),
    "a quoted function": ({"doc_to_choice": "'!function utils.text'"}, "not a function"),
    "a quoted function in a list": ({"doc_to_choice": "['!function utils.text', b]"}, "not a function"),
    "a misspelt target": ({"doc_to_target": "glod"}, "did you mean 'gold'"),
    "a target that is not a choice": ({"doc_to_target": "label", "doc_to_choice": "[u, v]"}, "doc_to_target: the right answer, 'x', is none of the 2 choices"),
    "an index beyond the choices": ({"doc_to_target": "7"}, "the right answer, 7, is none of the 2 choices"),
    "in the choices of examples": (
        {"num_fewshot": "1", "fewshot_split": "test", "fewshot_config": "{doc_to_choice: chioces}"}, "did you mean 'choices'",
    ),
}  # fmt: skip


def refused(write: Write, fields: dict[str, str], message: str) -> None:
    sent: list[str] = []
    model = Scripted(
        generate=lambda prompt, *_: sent.append(prompt) or "x", loglikelihood=lambda *_: sent.append("") or (0.0, True)
    )
    folder = folder_with(write, fields)
    with pytest.raises(ConfigError, match=message):
        assay.simple_evaluate(model, tasks=["t"], include_path=str(folder), include_defaults=False)
    assert sent == []
    manager = TaskManager(include_path=folder, include_defaults=False)
    listed = [str(problem) for problem in validate(manager) if problem.serious]
    assert any(re.search(message, problem) for problem in listed), listed


@pytest.mark.parametrize("name", SLIPS)
def test_a_typo_in_a_question_or_answer_is_refused_before_any_request(name: str, write: Write) -> None:
    changes, message = SLIPS[name]
    refused(write, GENERATE | changes, message)


@pytest.mark.parametrize("name", CHOICE_SLIPS)
def test_a_typo_in_choices_is_refused_before_any_request(name: str, write: Write) -> None:
    changes, message = CHOICE_SLIPS[name]
    refused(write, CHOICE | changes, message)


@pytest.mark.parametrize("format", ["mcqa", "cloze", "generate"])
@pytest.mark.parametrize("changes", [{"doc_to_text": "questoin"}, {"doc_to_text": "'!function utils.text'"}])
def test_typos_are_refused_in_every_format(format: str, changes: dict[str, str], write: Write) -> None:
    with pytest.raises(ConfigError, match=r"questoin|not a function"):
        asked(folder_with(write, CHOICE | changes), f"t@{format}")


def test_a_quoted_function_in_a_format_is_refused(write: Write) -> None:
    with pytest.raises(ConfigError, match="instruction is the text"):
        asked(folder_with(write, CHOICE | {"formats": "{type: mcqa, instruction: '!function utils.text'}"}))


MEANT: dict[str, tuple[dict[str, str], str]] = {
    "nothing": ({"doc_to_text": '""'}, ""),
    "a sentence": ({"doc_to_text": "Say something."}, "Say something."),
    "a sentence about a column": ({"doc_to_text": "Answer the question"}, "Answer the question"),
    "a word and a colon": ({"doc_to_text": '"Question:"'}, "Question:"),
    "a constant word, written as such": ({"doc_to_text": "\"{{ 'questoin' }}\""}, "questoin"),
    "a word of another script": ({"doc_to_text": "回答问题"}, "回答问题"),
    "a column": ({"doc_to_text": "question"}, "q0"),
    "a column with a space": ({"doc_to_text": "Question Text"}, "t"),
    "a function": ({"doc_to_text": "!function utils.text"}, "f q0"),
    "braces that mean no column": ({"doc_to_text": '"Write \\\\boxed{answer} or {nothing}"'}, "Write \\boxed{answer} or {nothing}"),
    "a set": ({"doc_to_text": "'Is 4 in {x | x > 3}?'"}, "Is 4 in {x | x > 3}?"),
    "LaTeX": ({"doc_to_text": "'Half of \\frac{a}{a} is x^{a}.'"}, "Half of \\frac{a}{a} is x^{a}."),
    "JSON": ({"doc_to_text": """'Reply as {"answer": 1}.'"""}, 'Reply as {"answer": 1}.'),
    "braces in a template that has the column": ({"doc_to_text": "'{{question}}, as {question}'"}, "q0, as {question}"),
    "a set in a description": ({"description": '"Sets as {a}. "'}, "Sets as {a}. q0"),
    "a sum that has other words": ({"doc_to_text": "1 + answer"}, "1 + answer"),
    "a file that is not there": ({"doc_to_text": "example.com"}, "example.com"),
    "words of a function": ({"doc_to_text": "function of x"}, "function of x"),
    "a prefix of two words": ({"gen_prefix": "Question text"}, "q0 Question text"),
    "a prefix that begins an answer": ({"gen_prefix": "Answer"}, "q0 Answer"),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANT)
def test_texts_that_are_meant_are_sent(name: str, write: Write) -> None:
    changes, first = MEANT[name]
    assert asked(folder_with(write, GENERATE | changes, count=1))[0] == first


SOME = "def some(split):\n    return [dict(row, hint='h') if row['question'] == 'q3' else dict(row) for row in split]\n"
OPTIONAL: dict[str, tuple[str, int]] = {
    "a column that the first documents lack": ("{{question}} {{hint}}", 1),
    "a default": ("{{question}} {{hint | default('none')}}", 4),
    "a test": ("{{question}} {% if hint is defined %}{{hint}}{% endif %}", 4),
    "a negated test": ("{{question}} {% if hint is not defined %}-{% else %}{{hint}}{% endif %}", 4),
    "a variable that the template sets": ("{% set quetsion = question %}{{quetsion}}", 4),
    "a variable of a loop": ("{{question}}{% for choice in choices %} {{choice}}{% endfor %}", 4),
    "another column in a branch": ("{% if gold is defined %}{{question}}{% else %}{{elsewhere}}{% endif %}", 4),
}


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_column_that_only_some_documents_have_may_be_named(name: str, write: Write) -> None:
    text, asks = OPTIONAL[name]
    folder = folder_with(write, GENERATE | {"doc_to_text": json.dumps(text), "process_docs": "!function own.some"})
    (folder / "own.py").write_text(SOME)
    assert len(asked(folder)) == asks
    assert validate(TaskManager(include_path=folder, include_defaults=False)) == []


def test_equal_prompts_are_a_note_in_a_lenient_folder(write: Write) -> None:
    folder = folder_with(write, GENERATE | {"doc_to_text": "Say something."})
    [strict] = validate(TaskManager(include_path=folder, include_defaults=False))
    [lenient] = validate(TaskManager(include_path=folder, include_defaults=False, compat="lm-eval"))
    assert strict.what == lenient.what == "all 4 documents are asked the same: their prompts and choices are equal"
    assert (strict.serious, lenient.serious) == (True, False)


def test_equal_questions_with_different_choices_are_asked(write: Write) -> None:
    folder = folder_with(write, CHOICE | {"doc_to_text": "Which?", "doc_to_choice": '"{{[answer, question]}}"'})
    assert len(asked(folder)) == 5  # the choice that all have is asked once
    same = folder_with(write, CHOICE | {"doc_to_text": "Which?"})
    with pytest.raises(ConfigError, match="all 4 documents are asked the same"):
        asked(same)


@pytest.mark.parametrize(
    "changes",
    [
        {"doc_to_target": "y", "doc_to_choice": "[x, y]"},
        {"doc_to_target": "y", "doc_to_choice": "\"{{['x', 'y']}}\""},
        {"doc_to_target": "label"},
        {"doc_to_target": "0"},
        {"doc_to_choice": "['{', '}']"},
    ],
)  # fmt: skip
def test_a_right_answer_may_be_one_of_the_choices_for_all_documents(changes: dict[str, str], write: Write) -> None:
    assert len(asked(folder_with(write, CHOICE | changes))) == 8


def test_a_target_that_a_task_does_not_use_may_be_any_word(write: Write) -> None:
    own = {
        "doc_to_target": "unused",
        "process_results": "!function utils.score",
        "metric_list": "[{metric: acc, aggregation: mean}]",
    }
    folder = folder_with(write, GENERATE | own)
    (folder / "utils.py").write_text("def score(doc, results):\n    return {'acc': 1}\n")
    assert len(asked(folder)) == 4


LIKE_LM_EVAL: dict[str, tuple[dict[str, str], str]] = {
    "a word": (GENERATE | {"doc_to_text": "questoin"}, "questoin"),
    "a quoted function": (GENERATE | {"doc_to_text": "'!function utils.text'"}, "!function utils.text"),
    "templates in a list": (CHOICE | {"doc_to_choice": '["{{answer}}", "{{label}}"]'}, "q0 {{answer}}"),
    "single braces": (GENERATE | {"doc_to_text": "'Q: { question }'"}, "Q: { question }"),
    "single braces in a list": (CHOICE | {"doc_to_choice": '["{answer}", "{label}"]'}, "q0 {answer}"),
    "a function without its tag": (GENERATE | {"doc_to_text": "utils.text"}, "utils.text"),
    "a function without its exclamation mark": (
        GENERATE | {"doc_to_text": "function utils.text"},
        "function utils.text",
    ),
}


BROKEN = [
    "{{question}",
    "{{ question",
    "{% question %}",
    "{% if question %}x",
    "{{ }}",
    "{{ question | upperr }}",
    "{# x",
]


@pytest.mark.parametrize("compat", [None, "lm-eval"])
@pytest.mark.parametrize("text", BROKEN)
def test_a_syntax_error_in_a_template_breaks_only_its_task(text: str, compat: str | None, write: Write) -> None:
    folder = folder_with(write, GENERATE | {"doc_to_text": json.dumps(text)})
    with pytest.raises(ConfigError, match=r"t\.yaml:5:14: doc_to_text is not a valid template: .*\(line 1 of"):
        asked(folder, compat=compat)
    (folder / "well.yaml").write_text(yaml(GENERATE | {"task": "well"}))
    fixed: dict[str, Any] = {"include_path": str(folder), "include_defaults": False, "compat": compat}
    results = assay.simple_evaluate(Scripted(generate=lambda *_: "x"), tasks=["t", "well"], **fixed)
    assert results["results"]["well"]["exact_match,none"] == 1.0
    assert "t.yaml:5:14: doc_to_text is not a valid template" in results["assay"]["broken"]["t"]


SHOTS = {"num_fewshot": "1", "fewshot_split": "test"}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"doc_to_choice": "'{{choices'"}, "doc_to_choice"),
        ({"doc_to_target": "'{{gold}'"}, "doc_to_target"),
        ({"gen_prefix": "'{% gold %}'"}, "gen_prefix"),
        ({"description": "'{{ gold | upperr }}'"}, "description"),
        (SHOTS | {"fewshot_config": "{doc_to_text: '{{question}'}"}, "doc_to_text"),
        ({"formats": "{type: mcqa, instruction: '{{question}'}"}, "instruction"),
        ({"formats": "{mine: {type: mcqa, answer_prompt: '{% if x %}'}}"}, "answer_prompt"),
    ],
)
def test_a_syntax_error_in_any_template_is_reported_at_its_place_by_run_and_validate(
    changes: dict[str, str], place: str, write: Write, run_assay: Run
) -> None:
    folder = folder_with(write, CHOICE | changes)
    with pytest.raises(ConfigError, match=rf"t\.yaml:\d+:\d+: {place} is not a valid template"):
        asked(folder)
    checked = run_assay("validate", "--include_path", folder, "--no_defaults")
    assert (checked.returncode, "is not a valid template" in checked.stdout) == (1, True)
    assert "Traceback" not in checked.stdout + checked.stderr


def test_a_broken_template_ends_a_run_with_its_place_and_no_traceback(write: Write, run_assay: Run) -> None:
    folder = folder_with(write, GENERATE | {"doc_to_text": "'{{question}'"})
    ended = run_assay("run", "--model", "dummy", "--tasks", "t", "--include_path", folder, "--no_defaults")
    assert ended.returncode != 0
    assert "t.yaml:5:14: doc_to_text is not a valid template: unexpected '}'" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("name", LIKE_LM_EVAL)
def test_under_compat_such_texts_are_sent_as_lm_eval_sends_them(name: str, write: Write) -> None:
    fields, first = LIKE_LM_EVAL[name]
    assert asked(folder_with(write, fields), compat="lm-eval")[0] == first


def test_a_class_that_follows_its_file_is_refused_for_typos_in_the_file(write: Write) -> None:
    folder = folder_with(write, {"class": "!function own.Own"} | GENERATE | {"doc_to_text": "questoin"})
    whole = "from lm_eval.api.task import ConfigurableTask\nclass Own(ConfigurableTask):\n"
    (folder / "own.py").write_text(whole + "    pass\n")
    with pytest.raises(ConfigError, match="did you mean 'question'"):
        asked(folder)
    well = (folder / "t.yaml").read_text()
    (folder / "t.yaml").write_text(well.replace("questoin", "'{{question}'"))
    with pytest.raises(ConfigError, match=r"t\.yaml:6:14: doc_to_text is not a valid template"):
        asked(folder)
    (folder / "t.yaml").write_text(well)
    (folder / "own.py").write_text(
        whole + "    def doc_to_text(self, doc, doc_to_text=None):\n        return 'own ' + doc['question']\n"
    )
    assert asked(folder)[0] == "own q0"


def test_a_typo_in_one_task_is_reported_with_its_place_and_exit_code_2(write: Write, run_assay: Run) -> None:
    folder = folder_with(write, GENERATE | {"doc_to_text": "questoin"})
    ended = run_assay("run", "--model", "dummy", "--tasks", "t", "--include_path", folder, "--no_defaults")
    assert ended.returncode == 2
    assert "t.yaml:5:14: doc_to_text: the documents have no column 'questoin'" in ended.stderr


def test_a_quoted_function_is_found_without_data(write: Write, run_assay: Run) -> None:
    folder = folder_with(write, GENERATE | {"doc_to_text": "'!function utils.text'", "dataset_path": "some/where"})
    checked = run_assay("validate", "--include_path", folder, "--no_defaults")
    assert (checked.returncode, "t.yaml:5:14: doc_to_text is the text" in checked.stdout) == (1, True)


@pytest.mark.parametrize("every", mostly_nightly([1, 20], kept=[20]))
def test_none_of_lm_evals_files_has_a_typo_that_is_visible_without_data(every: int, lm_eval_folder: Path) -> None:
    manager = TaskManager(include_path=lm_eval_folder / "lm_eval/tasks", include_defaults=False)
    _, problems = manager.attempt(manager.all_subtasks[::every])
    words = ("not a function", "templates inside a list", "delimiter is not filled in")
    assert not [problem for problem in problems if any(word in problem.what for word in words)]
