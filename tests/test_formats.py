"""Formats: the same question asked in another way. Expected prompts are those of lm-eval 0.5, or worked by hand."""

import ast
from collections.abc import Callable

import pytest
from jinja2 import Environment, StrictUndefined

from assay import ConfigError, Task, TaskManager
from assay.records import Function
from conftest import a_task

Manage = Callable[..., TaskManager]
JINJA = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)  # prompts
ROW = {"question": "Q?", "choices": ["x", "y"], "answer": 1}


def render(template: object, row: dict[str, object]) -> str:
    return JINJA.from_string(str(template)).render(row)


def asked(manager: TaskManager, spec: str) -> Task:
    return next(iter(manager.load(spec)["tasks"].values()))


def rendered(task: Task, row: dict[str, object] = ROW) -> tuple[str, object, str]:
    """The prompt, the choices and the target of a row."""
    choice = task.config.doc_to_choice
    if isinstance(choice, str):
        choice = row[choice] if choice in row else ast.literal_eval(render(choice, row))
    return render(task.config.doc_to_text, row), choice, render(task.config.doc_to_target, row)


def test_mcqa_lists_the_choices_and_asks_for_the_letter(manage: Manage) -> None:
    task = asked(manage({"t.yaml": a_task("t")}), "t@mcqa")
    assert rendered(task) == ("Question: Q?\nA. x\nB. y\nAnswer:", ["A", "B"], "1")
    assert (task.config.output_type, task.config.target_delimiter) == ("multiple_choice", " ")


def test_cloze_asks_for_the_words(manage: Manage) -> None:
    assert rendered(asked(manage({"t.yaml": a_task("t")}), "t@cloze")) == ("Question: Q?\nAnswer:", ["x", "y"], "1")


def test_generate_asks_for_the_letter_in_words(manage: Manage) -> None:
    task = asked(manage({"t.yaml": a_task("t")}), "t@generate")
    text, choice, target = rendered(task)
    assert text.startswith("Given the following question and 2 candidate answers (A and B), choose the best answer.\n")
    assert "\nQuestion: Q?\nA. x\nB. y\nYour response should end with " in text
    assert text.endswith("one of A or B.")
    assert (choice, target, task.config.gen_prefix, task.config.target_delimiter) == (
        None,
        "B",
        "The best answer is",
        "\n",
    )
    assert (task.config.output_type, task.config.scorer) == ("generate_until", "first_token")


def test_cot_asks_for_the_words_after_some_thought(manage: Manage) -> None:
    text, _, target = rendered(asked(manage({"t.yaml": a_task("t")}), "t@cot"))
    assert text.startswith("Given the following problem, reason step by step")
    assert "Problem: Q?" in text
    assert target == "y"


def test_a_task_may_name_its_format_in_yaml(manage: Manage) -> None:
    manager = manage(
        {
            "by_name.yaml": a_task("by_name", formats="cloze"),
            "by_suffix.yaml": a_task("by_suffix@cloze"),
            "typed.yaml": a_task("typed", formats='{type: mcqa, question_prefix: "Q: ", answer_prompt: "A:"}'),
            "table.yaml": a_task(
                "table", formats="{short: {type: cloze, question_prefix: null}, mcqa: null, long: generate}"
            ),
        }
    )
    assert rendered(asked(manager, "by_name"))[0] == "Question: Q?\nAnswer:"
    assert rendered(asked(manager, "by_suffix"))[0] == "Question: Q?\nAnswer:"
    assert rendered(asked(manager, "typed"))[0] == "Q: Q?\nA. x\nB. y\nA:"
    assert rendered(asked(manager, "table"))[0] == "Q?\nAnswer:"
    assert rendered(asked(manager, "table@mcqa"))[0] == "Question: Q?\nA. x\nB. y\nAnswer:"
    assert asked(manager, "table@long").config.output_type == "generate_until"
    assert rendered(asked(manager, "by_name@mcqa"))[0] == "Question: Q?\nA. x\nB. y\nAnswer:"


def test_formats_inside_a_group(manage: Manage) -> None:
    manager = manage(
        {
            "bench.yaml": """
                group: my_benchmark
                task:
                  - task: subtask_a@mcqa
                    dataset_path: json
                    doc_to_text: question
                    doc_to_target: answer
                    doc_to_choice: choices
                  - task: subtask_b
                    formats: generate
                    dataset_path: json
                    doc_to_text: question
                    doc_to_target: answer
                    doc_to_choice: choices
            """,
        }
    )
    loaded = manager.load("my_benchmark")
    types = {key: task.config.output_type for key, task in loaded["tasks"].items()}
    assert types == {"my_benchmark::subtask_a@mcqa": "multiple_choice", "my_benchmark::subtask_b": "generate_until"}
    forced = manager.load("my_benchmark@cloze")
    assert {task.config.output_type for task in forced["tasks"].values()} == {"multiple_choice"}


def test_a_format_of_ones_own_is_a_yaml_file(manage: Manage, run_assay: Callable[..., object]) -> None:
    manager = manage(
        {
            "exam.yaml": 'format: exam\ntype: mcqa\nquestion_prefix: "Exam: "\nchoice_labels: numbers\n',
            "t.yaml": a_task("t"),
        }
    )
    assert rendered(asked(manager, "t@exam")) == ("Exam: Q?\n1. x\n2. y\nAnswer:", ["1", "2"], "1")
    assert "exam" in manager.formats


@pytest.mark.parametrize(
    ("labels", "text", "choices"),
    [
        ("letters", "Question: Q?\nA. x\nB. y\nAnswer:", ["A", "B"]),
        ("numbers", "Question: Q?\n1. x\n2. y\nAnswer:", ["1", "2"]),
        ("[i, ii, iii]", "Question: Q?\ni. x\nii. y\nAnswer:", ["i", "ii"]),
    ],
)
def test_labels(labels: str, text: str, choices: list[str], manage: Manage) -> None:
    task = asked(manage({"t.yaml": a_task("t", formats=f"{{type: mcqa, choice_labels: {labels}}}")}), "t")
    assert rendered(task) == (text, choices, "1")


def test_generated_targets_carry_the_labels(manage: Manage) -> None:
    manager = manage({f"{n}.yaml": a_task(f"t{n}", formats=f"{{type: generate, choice_labels: {labels}}}")
                      for n, labels in enumerate(["numbers", "[i, ii]", "null"])})  # fmt: skip
    assert [rendered(asked(manager, f"t{n}"))[2] for n in range(3)] == ["2", "ii", "y"]


def test_more_than_26_choices_go_on_with_two_letters(manage: Manage) -> None:
    row = {"question": "Q?", "choices": [f"c{n}" for n in range(60)], "answer": 28}
    text, choices, target = rendered(asked(manage({"t.yaml": a_task("t")}), "t@mcqa"), row)
    assert (choices[25], choices[26], choices[28], choices[52]) == ("Z", "AA", "AC", "BA")  # type: ignore[index]
    assert "\nAC. c28\n" in text
    assert target == "28"
    assert rendered(asked(manage({"t.yaml": a_task("t")}), "t@generate"), row)[2] == "AC"


@pytest.mark.parametrize(
    ("answer", "choices", "index"),
    [
        (1, ["x", "y"], "1"),
        ("y", ["x", "y"], "1"),
        ("B", ["x", "y"], "1"),
        ("1", ["x", "y"], "1"),
        ("3", ["2", "3"], "1"),  # a choice that looks like a number is a choice
        (True, ["no", "yes"], "1"),
        (0, ["x", "y"], "0"),
    ],
)
def test_the_target_is_found_by_index_words_or_label(
    answer: object, choices: list[str], index: str, manage: Manage
) -> None:
    row = {"question": "Q?", "choices": choices, "answer": answer}
    assert rendered(asked(manage({"t.yaml": a_task("t")}), "t@mcqa"), row)[2] == index


def test_templates_lists_and_constants_are_taken_as_they_are(manage: Manage) -> None:
    manager = manage(
        {
            "t.yaml": """
                task: t
                dataset_path: json
                output_type: multiple_choice
                doc_to_text: "{{ctx}}: {{question|upper}}"
                doc_to_choice: ["yes {maybe}", 'say "no"']
                doc_to_target: "{{label + 0}}"
            """,
            "u.yaml": """
                task: u
                dataset_path: json
                output_type: multiple_choice
                doc_to_text: question
                doc_to_choice: "{{[first, second]}}"
                doc_to_target: 1
            """,
        }
    )
    row = {"ctx": "C", "question": "q", "label": 1, "first": "x", "second": "y"}
    assert rendered(asked(manager, "t@mcqa"), row) == (
        'Question: C: Q\nA. yes {maybe}\nB. say "no"\nAnswer:',
        ["A", "B"],
        "1",
    )
    assert rendered(asked(manager, "u@mcqa"), row)[2] == "1"
    assert asked(manager, "t@cloze").config.doc_to_choice == ("yes {maybe}", 'say "no"')


def test_functions_are_called_under_names_of_their_own(manage: Manage) -> None:
    task = asked(
        manage(
            {
                "t.yaml": """
                    task: t
                    dataset_path: json
                    doc_to_text: !function utils.text
                    doc_to_choice: !function utils.choices
                    doc_to_target: !function utils.target
                """,
            }
        ),
        "t@mcqa",
    )
    assert {name: function.name for name, function in task.config.derived.items()} == {
        "_question": "text", "_choices": "choices", "_target": "target",
    }  # fmt: skip
    assert all(isinstance(function, Function) for function in task.config.derived.values())
    row = {"_question": "Q?", "_choices": ["x", "y"], "_target": "y"}
    assert rendered(task, row) == ("Question: Q?\nA. x\nB. y\nAnswer:", ["A", "B"], "1")


def test_choices_that_are_letters_are_not_listed_again(manage: Manage) -> None:
    text = 'task: t\ndataset_path: json\ndoc_to_text: "{{question}}\\nA. x\\nB. y\\nAnswer:"\ndoc_to_choice: [A, B]\ndoc_to_target: answer\n'
    prompt, _, target = rendered(asked(manage({"t.yaml": text}), "t@generate"))
    assert prompt.count("A. x") == 1
    assert "A. A" not in prompt
    assert target == "B"


def test_a_question_without_choices_can_be_generated_but_not_chosen(manage: Manage) -> None:
    manager = manage({"t.yaml": "task: t\ndataset_path: json\ndoc_to_text: question\ndoc_to_target: answer\n"})
    text, _, target = rendered(asked(manager, "t@generate"), {"question": "Q?", "answer": "42"})
    assert (text, target) == ("Question: Q?", "42")
    with pytest.raises(ConfigError, match="needs doc_to_choice"):
        manager.load("t@mcqa")


def test_an_explicit_metric_list_is_never_set_aside_silently(manage: Manage) -> None:
    manager = manage({"t.yaml": a_task("t")})
    kept = asked(manager, "t@cloze")
    assert [metric.name for metric in kept.config.metric_list or ()] == ["acc"]
    assert kept.notes == ()
    changed = asked(manager, "t@generate")
    assert changed.config.metric_list is None
    assert "metric_list of 't' is ignored: it is for multiple_choice" in changed.notes[0]


def test_examples_with_fields_of_their_own_are_in_the_format_too(manage: Manage) -> None:
    task = asked(manage({"t.yaml": a_task("t", fewshot_config="{doc_to_text: shot_question}")}), "t@mcqa")
    assert task.config.fewshot_config is not None
    row = {"shot_question": "S?", "choices": ["x", "y"], "answer": 0}
    assert render(task.config.fewshot_config.doc_to_text, row) == "Question: S?\nA. x\nB. y\nAnswer:"


@pytest.mark.parametrize(
    ("formats", "at", "what", "fix"),
    [
        ("mcaq", "10:10", "no format named 'mcaq'", "did you mean 'mcqa'?"),
        ("{type: mcaq}", "10:17", "no format named 'mcaq'", "did you mean 'mcqa'?"),
        ("{type: mcqa, question_prefx: x}", "10:23", "unknown key 'question_prefx'", "did you mean 'question_prefix'?"),
        ("{mine: {question_prefix: x}}", "10:17", "no format named 'mine'", "name its base format with `type`"),
        ("{type: mcqa, output_type: chat}", "10:36", "output_type must be", "got 'chat'"),
        ("5", "10:10", "formats must be text or a mapping", ""),
    ],
)
def test_a_slip_in_a_format_is_refused_with_its_place(
    formats: str, at: str, what: str, fix: str, manage: Manage
) -> None:
    with pytest.raises(ConfigError) as error:
        manage({"t.yaml": a_task("t", formats=formats)}).load("t")
    assert any(f"t.yaml:{at}: {what}" in str(p) and fix in str(p) for p in error.value.problems), error.value.problems


def test_a_format_that_does_not_fit_process_results_is_refused(manage: Manage) -> None:
    manager = manage({"t.yaml": a_task("t", process_results="!function utils.f")})
    with pytest.raises(ConfigError, match="process_results expects multiple_choice"):
        manager.load("t@generate")
    assert manager.load("t@cloze")["tasks"]
