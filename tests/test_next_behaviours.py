"""Behaviours of lm-eval's next version that differ from 0.4: choices filled in a list, digits as an index, a system text."""

from pathlib import Path
from typing import Any

import pytest

from assay.models import Scripted
from small_runs import run, write_task

ROWS: list[dict[str, object]] = [
    {"q": "one", "a": "x", "b": "y", "gold": "1"},
    {"q": "two", "a": "u", "b": "v", "gold": "0"},
]
SECOND = Scripted(loglikelihood=lambda prompt, text: (-1.0 if text in (" y", " v") else -2.0, False))


def evaluated(folder: Path, choices: str, target: str = "gold", more: str = "", **options: Any) -> dict[str, Any]:
    yaml = f"output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: {choices}\ndoc_to_target: {target}\n{more}"
    write_task(folder, ROWS, yaml)
    return run(folder, SECOND, **options)


def asked(results: dict[str, Any]) -> list[list[str]]:
    return [[text for _, text in sample["arguments"]] for sample in results["samples"]["t"]]


@pytest.mark.parametrize(
    "choices", ['["{{a}}", "{{b}}"]', '{A: "{{a}}", B: "{{b}}"}', '["{% if a %}{{a}}{% endif %}", "{{b}}"]']
)
def test_templates_in_a_list_of_choices_are_filled_in(choices: str, tmp_path: Path) -> None:
    results = evaluated(tmp_path, choices)
    assert asked(results) == [[" x", " y"], [" u", " v"]]
    assert results["results"]["t"]["acc,none"] == 0.5, (
        "the second is right of the first document, the first of the other"
    )


def test_under_compat_they_are_sent_as_written(tmp_path: Path) -> None:
    assert asked(evaluated(tmp_path, '["{{a}}", "{{b}}"]', "0", compat="lm-eval"))[0] == [" {{a}}", " {{b}}"]


def test_digits_in_a_column_are_the_index_of_a_choice(tmp_path: Path) -> None:
    results = evaluated(tmp_path, "[u, y]")
    assert [sample["target"] for sample in results["samples"]["t"]] == [1, 0]
    # Both times y is likelier: right of the first document, whose answer is 1, wrong of the second.
    assert results["results"]["t"]["acc,none"] == 0.5


def test_digits_that_are_a_choice_mean_that_choice(tmp_path: Path) -> None:
    model = Scripted(loglikelihood=lambda prompt, text: (-1.0 if text == " 1" else -2.0, False))
    yaml = 'output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: ["1", "0"]\ndoc_to_target: gold\n'
    write_task(tmp_path, ROWS, yaml)
    assert run(tmp_path, model)["results"]["t"]["acc,none"] == 0.5, "'1' is the first choice here, and right once"


def test_examples_show_the_choice_that_digits_mean(tmp_path: Path) -> None:
    results = evaluated(tmp_path, '["{{a}}", "{{b}}"]', more="num_fewshot: 1\nfewshot_split: test\n")
    prompts = {sample["doc"]["q"]: sample["arguments"][0][0] for sample in results["samples"]["t"]}
    assert prompts["one"] in ("two u\n\none", "one y\n\none")


@pytest.mark.parametrize(
    ("system", "options", "expected"),
    [
        ("Be brief.", {}, "Be brief.\n\none"),
        ("Be brief.\n", {}, "Be brief.\none"),
        ("Be brief.", {"compat": "lm-eval"}, "Be brief.one"),
    ],
)
def test_a_system_instruction_alone_is_set_apart(
    system: str, options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    results = evaluated(tmp_path, "[x, y]", "0", system_instruction=system, **options)
    assert results["samples"]["t"][0]["arguments"][0][0] == expected


def test_a_description_is_joined_as_it_is_written(tmp_path: Path) -> None:
    results = evaluated(tmp_path, "[x, y]", "0", 'description: "Look: "\n', system_instruction="Be brief.")
    assert results["samples"]["t"][0]["arguments"][0][0] == "Be brief.\n\nLook: one"
