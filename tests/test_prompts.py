"""From a row to a prompt: fields, examples, chat. What lm-eval 0.4.13 asked for the same files is written beside each case.

The expected texts were made by `lm_eval.simple_evaluate` 0.4.13 (datasets 5.2.0) on the very files written here, with a model
that writes a chat as `<role>content…`, and `<open>` where the model's turn is to be opened.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import assay
from assay import ConfigError
from assay.models import Scripted
from conftest import Write

HELPER = """
from lm_eval.api.samplers import ContextSampler


def text(doc): return "fn " + doc["q"]
def target(doc): return doc["a"].lower()
def choices(doc): return ["x", doc["a"]]
def sentences(doc): return [doc["q"] + " he", doc["q"] + " she"]
def examples(): return [{"q": "own1", "a": "1"}, {"q": "own2", "a": "2"}, {"q": "own3", "a": "3"}]
def last_four(split): return split.select(range(len(split) - 4, len(split)))


class Last(ContextSampler):
    def sample(self, n, eval_doc=None, **kwargs): return self.df[-n:]
"""
DEFAULTS = {
    "task": "t",
    "dataset_path": "json",
    "dataset_kwargs": "{data_files: {test: test.jsonl, train: train.jsonl}}",
    "test_split": "test",
    "training_split": "train",
    "output_type": "generate_until",
    "doc_to_text": "q",
    "doc_to_target": "a",
}
PARAMS = {"temperature": 0.0, "do_sample": False, "max_gen_toks": 256, "until": ["\n\n"]}
CHOICE = {"output_type": "multiple_choice", "doc_to_choice": "c", "doc_to_target": "n"}
INPUTS = CHOICE | {"doc_to_text": "n", "doc_to_choice": "!function helper.sentences", "doc_to_target": '"{{a}} end"'}
FROM_VALIDATION = {"test_split": "", "validation_split": "test"}


def rows(letter: str, count: int) -> list[dict[str, Any]]:
    """e0, e1, … with the answers E0, E1, …; `c` holds two choices, of which the first is right in even rows."""
    big = letter.upper()
    return [
        {"q": f"{letter}{n}", "a": f"{big}{n}", "c": [f"{big}{n}", "no"], "n": n % 2, "d": "3", "l": [f"{big}{n}", "also"]}
        for n in range(count)
    ]  # fmt: skip


def lines(items: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in items)


def files(fields: Mapping[str, str]) -> dict[str, str]:
    """A task called t; `fields` are lines of its YAML, an empty one leaves out what is usual here."""
    written = "".join(f"{key}: {value}\n" for key, value in (DEFAULTS | fields).items() if value)
    return {
        "t.yaml": written,
        "helper.py": HELPER,
        "test.jsonl": lines(rows("e", 4)),
        "train.jsonl": lines(rows("t", 6)),
    }


def as_chat(messages: list[dict[str, str]], opened: bool) -> str:
    return "".join(f"<{each['role']}>{each['content']}" for each in messages) + ("<open>" if opened else "")


def asked(folder: Path, **options: Any) -> list[dict[str, Any]]:
    """The samples of the task, as they are logged."""
    model = Scripted(
        generate=lambda prompt, params, repeat: "2",
        loglikelihood=lambda context, continuation: (-1.0 * len(continuation), False),
        loglikelihood_rolling=lambda text: -1.0,
        chat_template=as_chat,
    )
    fixed = {"include_path": str(folder), "include_defaults": False, "bootstrap_iters": 0}
    results = assay.simple_evaluate(model, tasks=["t"], **(fixed | options))
    return list(results["samples"]["t"])


def first_asked(folder: Path, **options: Any) -> list[tuple[Any, ...]]:
    return [tuple(each) for each in asked(folder, limit=1, **options)[0]["arguments"]]


def prompts(folder: Path, **options: Any) -> list[str]:
    return [sample["arguments"][0][0] for sample in asked(folder, **options)]


QUESTIONS = [
    ({"doc_to_text": "q"}, "e0"),
    ({"doc_to_text": '"Q: {{q}}\\nA:\\n"'}, "Q: e0\nA:\n"),
    ({"doc_to_text": "hello there", "gen_prefix": "q"}, "hello there e0"),
    ({"doc_to_text": "!function helper.text"}, "fn e0"),
    ({"doc_to_text": """'{{q | regex_replace("e", "E")}}'"""}, "E0"),
    ({"doc_to_text": '"{{d}}"', "gen_prefix": "q"}, "3 e0"),
    ({"doc_to_text": '"{# c #}x{{q}}"'}, "xe0"),
    ({"doc_to_text": '"{% for i in range(2) %}{{i}}{{q}}\\n{% endfor %}"'}, "0e0\n1e0\n"),
    ({"description": '"About {{q}}:\\n"'}, "About e0:\ne0"),
    ({"description": "About"}, "Aboute0"),
    ({"description": "d"}, "3e0"),
    ({"gen_prefix": '"Thus {{d}}"'}, "e0 Thus 3"),
    ({"gen_prefix": "d"}, "e0 3"),
    ({"gen_prefix": "Thus", "doc_to_text": '"{{q}}\\n"'}, "e0\nThus"),
    ({"gen_prefix": "Thus", "target_delimiter": '" = "'}, "e0 = Thus"),
]


@pytest.mark.parametrize(("fields", "prompt"), QUESTIONS)
def test_a_question_is_a_column_a_template_or_the_result_of_a_function(
    fields: dict[str, str], prompt: str, write: Write
) -> None:
    assert first_asked(write(files(fields))) == [(prompt, PARAMS)]


TARGETS = [
    ("a", "E0"), ('"<{{a}}>"', "<E0>"), ('"{{d}}"', "3"), ("!function helper.target", "e0"), ('"{{l}}"', ["E0", "also"]),
    ('"[{{a}} or so]"', "[E0 or so]"), ("l", ["E0", "also"]), ('["2", "3"]', ["2", "3"]),
]  # fmt: skip


@pytest.mark.parametrize(("written", "target"), TARGETS)
def test_a_target_is_a_column_a_template_a_list_or_the_result_of_a_function(
    written: str, target: object, write: Write
) -> None:
    assert asked(write(files({"doc_to_target": written})), limit=1)[0]["target"] == target


CHOICES = [
    ({"doc_to_choice": "c"}, [" E0", " no"], 0),
    ({"doc_to_choice": """'{{["no", a]}}'"""}, [" no", " E0"], 0),
    ({"doc_to_choice": "[yes it is, b]"}, [" yes it is", " b"], 0),
    ({"doc_to_choice": "{A: first, B: second}"}, [" first", " second"], 0),
    ({"doc_to_choice": "!function helper.choices"}, [" x", " E0"], 0),
    ({"doc_to_target": "1"}, [" E0", " no"], 1),
    ({"doc_to_target": '"{{n}}"'}, [" E0", " no"], 0),
    ({"doc_to_target": "a"}, [" E0", " no"], "E0"),
    ({"doc_to_target": "[0, 1]"}, [" E0", " no"], [0, 1]),
    ({"target_delimiter": '" = "'}, [" = E0", " = no"], 0),
    ({"target_delimiter": '""'}, ["E0", "no"], 0),
]


@pytest.mark.parametrize(("fields", "continuations", "target"), CHOICES)
def test_choices_are_a_column_a_template_a_list_a_mapping_or_the_result_of_a_function(
    fields: dict[str, str], continuations: list[str], target: object, write: Write
) -> None:
    [sample] = asked(write(files(CHOICE | fields)), limit=1)
    assert sample["arguments"] == [("e0", each) for each in continuations]
    assert sample["target"] == target


def test_any_of_several_right_choices_counts(write: Write) -> None:
    folder = write(files(CHOICE | {"doc_to_target": "[0, 1]", "metric_list": "[{metric: acc}]"}))
    assert [sample["acc"] for sample in asked(folder)] == [1.0] * 4


OTHER_REQUESTS = {
    "a text is not set off from what is scored": (
        {"output_type": "loglikelihood", "doc_to_target": '" {{a}}"'}, [("e0", " E0")],
    ),
    "rolling scores the target alone": (
        {"output_type": "loglikelihood_rolling", "doc_to_text": '""', "doc_to_target": '"{{q}} {{a}}"'}, [("e0 E0",)],
    ),
    "a prefix precedes the choice": (CHOICE | {"gen_prefix": "So"}, [("e0 So", " E0"), ("e0 So", " no")]),
    "a number as text means one context per choice": (INPUTS, [("e0 he", " E0 end"), ("e0 she", " E0 end")]),
    "contexts share description and examples": (
        INPUTS | {"num_fewshot": "1", "description": '"D. "'},
        [("D. t3 she T3 end\n\ne0 he", " E0 end"), ("D. t3 she T3 end\n\ne0 she", " E0 end")],
    ),
    "contexts have a delimiter before the continuation only": (
        INPUTS | {"target_delimiter": '"="'}, [("e0 he", "=E0 end"), ("e0 she", "=E0 end")],
    ),
    "mutual information asks for each choice alone, too": (
        CHOICE | {"metric_list": "[{metric: acc_mutual_info}]"}, [("e0", " E0"), ("e0", " no"), ("", " E0"), ("", " no")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_REQUESTS)
def test_requests_of_the_other_kinds_are_those_of_lm_eval(name: str, write: Write) -> None:
    fields, expected = OTHER_REQUESTS[name]
    assert first_asked(write(files(fields))) == expected


@pytest.mark.parametrize(
    ("written", "params"),
    [
        ("{temperature: 0, max_gen_toks: 5}", {"temperature": 0.0, "max_gen_toks": 5, "until": ["###"]}),
        ("{until: [x]}", {"until": ["x"]}),
    ],
)
def test_generation_parameters_are_completed_with_the_delimiter_only(
    written: str, params: dict[str, object], write: Write
) -> None:
    folder = write(files({"generation_kwargs": written, "fewshot_delimiter": '"###"'}))
    assert first_asked(folder) == [("e0", params)]


def shown(*examples: str) -> list[str]:
    """The prompts for e0, e1, … with these examples: `t3 t0` stands for both, each with its answer."""
    return [
        "".join(f"{each} {each.upper()}\n\n" for each in items.split()) + f"e{number}"
        for number, items in enumerate(examples)
    ]


STREAMS = {
    "one from train": ({}, {"num_fewshot": 1}, ("t3", "t0", "t0", "t0")),
    "three from train": ({}, {"num_fewshot": 3}, ("t3 t0 t4", "t0 t4 t5", "t5 t0 t4", "t2 t1 t0")),
    "seed 1": ({}, {"num_fewshot": 2, "fewshot_random_seed": 1}, ("t1 t4", "t0 t2", "t0 t3", "t3 t5")),
    "seed 42": ({}, {"num_fewshot": 2, "fewshot_random_seed": 42}, ("t5 t0", "t0 t2", "t1 t5", "t1 t0")),
    "in the file": ({"num_fewshot": "2"}, {}, ("t3 t0", "t0 t5", "t4 t0", "t5 t0")),
    "limited": ({"num_fewshot": "2"}, {"limit": 2}, ("t3 t0", "t0 t5")),
    "a named split": ({"fewshot_split": "train", "training_split": ""}, {"num_fewshot": 2}, ("t3 t0", "t0 t5", "t4 t0", "t5 t0")),
    "in fewshot_config": ({"fewshot_config": "{split: train}", "training_split": ""}, {"num_fewshot": 2}, ("t3 t0", "t0 t5", "t4 t0", "t5 t0")),
    "the evaluated split": ({"fewshot_split": "test"}, {"num_fewshot": 2}, ("e3 e2", "e0 e2", "e0 e3", "e1 e0")),
    "the evaluated split, seed 7": ({"fewshot_split": "test"}, {"num_fewshot": 2, "fewshot_random_seed": 7}, ("e2 e1", "e0 e3", "e3 e0", "e1 e0")),
    "validation only, from train": (FROM_VALIDATION, {"num_fewshot": 2}, ("t3 t0", "t0 t4", "t5 t0", "t2 t1")),
    "prepared rows": ({"process_docs": "!function helper.last_four"}, {"num_fewshot": 2}, ("t5 t2", "t2 t5", "t2 t4", "t2 t5")),
    "prepared examples": ({"fewshot_config": "{split: train, process_docs: !function helper.last_four}"}, {"num_fewshot": 2}, ("t5 t2", "t2 t5", "t2 t4", "t2 t5")),
    "first_n": ({"fewshot_config": "{sampler: first_n}"}, {"num_fewshot": 2}, ("t0 t1",) * 4),
    "first_n, evaluated split": ({"fewshot_config": "{sampler: first_n, split: test}"}, {"num_fewshot": 2}, ("e1 e2", "e0 e2", "e0 e1", "e0 e1")),
    "a sampler class": ({"fewshot_config": "{sampler: !function helper.Last}"}, {"num_fewshot": 2}, ("t4 t5",) * 4),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("compat", [None, "lm-eval"])
def test_examples_are_drawn_as_lm_eval_draws_them(name: str, compat: str | None, write: Write) -> None:
    fields, options, examples = STREAMS[name]
    assert prompts(write(files(fields)), compat=compat, **options) == shown(*examples)


LEAKS = {
    "validation split named for examples": FROM_VALIDATION | {"fewshot_split": "test"},
    "nothing but a test split": {"training_split": ""},
}


@pytest.mark.parametrize("name", LEAKS)
def test_lm_eval_shows_a_document_its_own_answer_and_compat_does_so_too(name: str, write: Write) -> None:
    folder = write(files(LEAKS[name]))
    assert prompts(folder, compat="lm-eval", num_fewshot=2) == shown("e3 e0", "e0 e3", "e0 e2", "e0 e3")
    for number, prompt in enumerate(prompts(folder, num_fewshot=2)):
        assert f"E{number}" not in prompt


@pytest.mark.slow
@given(
    count=st.integers(2, 7), shots=st.integers(1, 6), seed=st.integers(0, 2**32), sampler=st.sampled_from(["default", "first_n"]),
    where=st.sampled_from(["fewshot_split: test", "validation_split: test", "training_split: test", "fewshot_config: {split: test}"]),
)  # fmt: skip
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_document_is_ever_among_its_own_examples(
    count: int, shots: int, seed: int, sampler: str, where: str, write: Write
) -> None:
    shots = min(shots, count - 1)
    key, _, value = where.partition(": ")
    config = f"{{sampler: {sampler}, split: test}}" if key == "fewshot_config" else f"{{sampler: {sampler}}}"
    world = files({"training_split": ""} | {key: value} | {"fewshot_config": config})
    folder = write(world | {"test.jsonl": lines(rows("e", count))})
    values = prompts(folder, num_fewshot=shots, fewshot_random_seed=seed)
    assert len(values) == count
    for number, prompt in enumerate(values):
        examples = re.findall(r"E(\d)", prompt)
        assert len(set(examples)) == shots
        assert str(number) not in examples


def test_zero_examples_in_a_file_can_be_overridden_but_not_in_lm_eval(write: Write) -> None:
    folder = write(files({"num_fewshot": "0"}))
    assert prompts(folder, num_fewshot=1) == shown("t3", "t0", "t0", "t0")
    assert prompts(folder, num_fewshot=1, compat="lm-eval") == shown("", "", "", "")


def test_fewshot_indices_are_the_rows_that_may_serve(write: Write) -> None:
    folder = write(files({"fewshot_config": "{sampler: first_n, fewshot_indices: [4, 1]}"}))
    assert prompts(folder, num_fewshot=2) == shown(*["t4 t1"] * 4)


LAYOUTS = {
    "own examples": ({"fewshot_config": "{sampler: first_n, samples: [{q: own, a: mine}, {q: two, a: ours}]}"}, 2, "own mine\n\ntwo ours\n\ne0"),
    "examples of a function": ({"fewshot_config": "{samples: !function helper.examples}"}, 2, "own2 2\n\nown1 1\n\ne0"),
    "a split before own examples": ({"fewshot_config": "{sampler: first_n, split: train, samples: [{q: own, a: mine}]}"}, 1, "t0 T0\n\ne0"),
    "their own fields": (
        {"fewshot_config": """{sampler: first_n, doc_to_text: '"{{q}}"', doc_to_target: '({{a}})', gen_prefix: 'It is', target_delimiter: ' -> ', fewshot_delimiter: ' | '}"""},
        2, '"t0" -> It is (T0) | "t1" -> It is (T1) | e0',
    ),
    "their own functions": ({"fewshot_config": "{sampler: first_n, doc_to_text: !function helper.text, doc_to_target: !function helper.target}"}, 1, "fn t0 t0\n\ne0"),
    "their own choices": (CHOICE | {"fewshot_config": "{sampler: first_n, doc_to_choice: [zero, one]}"}, 2, "t0 zero\n\nt1 one\n\ne0"),
    "their own prefix": ({"fewshot_config": "{sampler: first_n, gen_prefix: '{{d}}'}"}, 1, "t0 3 T0\n\ne0"),
    "delimiters": ({"target_delimiter": '": "', "fewshot_delimiter": '"###"'}, 2, "t3: T3###t0: T0###e0"),
    "a prefix": ({"gen_prefix": '"So {{d}}"'}, 1, "t3 So 3 T3\n\ne0 So 3"),
    "the right choice": (CHOICE, 1, "t3 no\n\ne0"),
    "the first of several right answers": ({"doc_to_target": "l"}, 1, "t3 T3\n\ne0"),
    "a description": ({"description": '"Look.\\n\\n"'}, 1, "Look.\n\nt3 T3\n\ne0"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_examples_are_written_as_lm_eval_writes_them(name: str, write: Write) -> None:
    fields, number, prompt = LAYOUTS[name]
    assert first_asked(write(files(fields)), num_fewshot=number)[0][0] == prompt


def test_more_examples_than_there_are_is_a_clear_error_that_names_the_task(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"num_fewshot: 7 examples .* holds 6 — ask for fewer"):
        asked(write(files({})), num_fewshot=7)


CHATS = {
    "a question": ({}, {}, "<user>e0<open>"),
    "a system message": ({}, {"system_instruction": "Be brief."}, "<system>Be brief.<user>e0<open>"),
    "joined with the description": ({"description": "About sums."}, {"system_instruction": "Be brief."}, "<system>Be brief.\n\nAbout sums.<user>e0<open>"),
    "joined at white space": ({"description": '"About sums.\\n"'}, {"system_instruction": "Be brief.\n"}, "<system>Be brief.\nAbout sums.\n<user>e0<open>"),
    "examples as turns": ({}, {"num_fewshot": 2, "system_instruction": "S"}, "<system>S<user>t3<assistant>T3<user>t0<assistant>T0<user>e0<open>"),
    "examples in one turn": ({}, {"num_fewshot": 2, "system_instruction": "S", "fewshot_as_multiturn": False}, "<system>S<user>t3 T3\n\nt0 T0\n\ne0<open>"),
    "a prefilled answer": ({"gen_prefix": "So"}, {"num_fewshot": 1}, "<user>t3<assistant>So T3<user>e0<assistant>So"),
    "a prefilled answer after one turn": ({"gen_prefix": "So"}, {"num_fewshot": 1, "fewshot_as_multiturn": False}, "<user>t3 So T3\n\ne0<assistant>So"),
    "no template": ({"description": "About sums."}, {"num_fewshot": 1, "apply_chat_template": False, "system_instruction": "Be brief."}, "Be brief.\n\nAbout sums.t3 T3\n\ne0"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHATS)
def test_a_chat_is_held_as_lm_eval_holds_it(name: str, write: Write) -> None:
    fields, options, prompt = CHATS[name]
    assert first_asked(write(files(fields)), **({"apply_chat_template": True} | options)) == [(prompt, PARAMS)]


@pytest.mark.parametrize(
    ("prefix", "context", "delimiter"),
    [
        ("", "<user>t3<assistant>no<user>e0<open>", ""),
        ("So", "<user>t3<assistant>So no<user>e0<assistant>So", " "),
        ('"So "', "<user>t3<assistant>So no<user>e0<assistant>So ", ""),
    ],
)
def test_in_a_chat_choices_have_a_delimiter_only_after_a_prefix_without_one(
    prefix: str, context: str, delimiter: str, write: Write
) -> None:
    folder = write(files(CHOICE | {"gen_prefix": prefix}))
    result = first_asked(folder, apply_chat_template=True, num_fewshot=1)
    assert result == [(context, f"{delimiter}E0"), (context, f"{delimiter}no")]


@pytest.mark.parametrize("written", ['{{q.__class__.__mro__}}', '{{ "".__class__.__base__.__subclasses__() }}', "{{ q.format.__globals__ }}"])  # fmt: skip
def test_a_template_cannot_reach_out_of_its_sandbox(written: str, write: Write) -> None:
    with pytest.raises(ConfigError, match=r"unsafe|access|no attribute '__globals__'"):
        asked(write(files({"doc_to_text": json.dumps(written)})))


@pytest.mark.parametrize("field", ["doc_to_text", "doc_to_target", "description", "gen_prefix"])
def test_an_undefined_variable_is_an_error_that_names_it(field: str, write: Write) -> None:
    with pytest.raises(
        ConfigError, match=rf"t\.yaml:\d+:\d+: {field}: the documents have no column 'nope'; they have: q, a, "
    ):
        asked(write(files({field: '"{{nope}}"'})))


def test_a_digit_character_that_int_cannot_read_is_an_error_that_names_the_task(write: Write) -> None:
    """`"²".isdigit()` is true and `int("²")` fails: lm-eval ends in a SyntaxError here."""
    with pytest.raises(ConfigError, match=r"t\.yaml:\d+:16: '²' is not the index of a choice"):
        asked(write(files(CHOICE | {"doc_to_target": '"²"'})))
