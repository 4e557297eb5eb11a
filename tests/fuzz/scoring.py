"""Texts that nobody expects: answers of models through all filters and metrics, and templates."""

import json
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

from hypothesis import strategies as st
from jinja2.defaults import DEFAULT_FILTERS, DEFAULT_TESTS

from fuzz.doors import Files, command, placed, refused
from fuzz.mutations import ODD, mutated_text
from hostile_answers import HOSTILE
from small_runs import run, says

ROWS = [{"q": "0", "gold": "\\frac{1}{2}"}, {"q": "1", "gold": "B"}, {"q": "2", "gold": "the answer is 42"}]
SCORING = r"""
    task: t
    dataset_path: json
    dataset_kwargs: {data_files: {test: t.jsonl}}
    test_split: test
    output_type: generate_until
    doc_to_text: q
    doc_to_target: gold
    filter_list:
      - {name: plain, filter: [{function: take_first}]}
      - {name: number, filter: [{function: regex, regex_pattern: '(-?[$0-9.,]{2,})|(-?[0-9]+)', group_select: -1}, {function: take_first}]}
      - {name: choice, filter: [{function: choice, choices: [A, B, C]}, {function: take_first}]}
      - {name: options, filter: [{function: multi_choice_regex, regex_pattern: '(\([A-Z]\))', ignore_case: true, ignore_punctuation: true}, {function: take_first}]}
      - {name: json, filter: [{function: json_path, path: a.b}, {function: take_first}]}
      - {name: math, filter: [{function: math}, {function: take_first}]}
      - {name: thought, filter: [{function: think}, {function: lowercase}, {function: remove_whitespace}, {function: take_first}]}
      - {name: slow, filter: [{function: regex, regex_pattern: '(a+)+$'}, {function: majority_vote}, {function: take_first}]}
    metric_list:
      - {metric: exact_match, ignore_case: true, ignore_punctuation: true, ignore_numbers: true, regexes_to_ignore: [',', '\$']}
      - {metric: math_equal}
      - {metric: token_f1}
      - {metric: edit_distance}
      - {metric: edit_similarity}
      - {metric: rougeL}
      - {metric: bleu}
      - {metric: chrf}
      - {metric: ter}
"""  # fmt: skip
MATHS = ["\\frac{", "}{", "}", "{", "\\sqrt[3]{", "^{", "_", "\\boxed{", "\\text{", "\\left(", "\\right)", "\\pi", "\\infty", "10^{9999999}", "2**", "1/0", "0x", "9" * 400,
         "1e400", "!", "x", "=", "<", "\\in", "\\cup", "[", "(", ",", "]", ")", "%", "$", "\\begin{pmatrix}", "\\end{pmatrix}", "&", "\\\\", "\\pm", "½", "٣", "−", "°", "\\circ", " and ", ":", "|", "i", "e", "..."]  # fmt: skip
TYPICAL = [
    "#### 42",
    "The answer is (B).",
    "<think>hm</think>\nA",
    '{"a": {"b": [1, "x"]}}',
    "\\boxed{\\frac{1}{2}}",
    "```json\n{}\n```",
]
texts = st.one_of(
    st.sampled_from(sorted(HOSTILE.values(), key=len)),
    st.sampled_from([value for value in ODD if isinstance(value, str)]),
    st.sampled_from(TYPICAL).flatmap(mutated_text),
    st.lists(st.sampled_from(MATHS), max_size=14).map("".join),
    st.text(max_size=60),
    st.text(alphabet="a(){}[]<>\\/|$%&\"'`#*_~\n\t 0-9", max_size=99).map(lambda text: text * 20),
).map(lambda text: text[:2000])  # long ones take long in bleu, chrf and ter, and are tried elsewhere


def answer_inputs() -> st.SearchStrategy[Files]:
    return st.lists(texts, min_size=3, max_size=3).map(lambda said: {"answers.json": json.dumps(said).encode()})


def check_answers(files: Files, folder: Path) -> None:
    placed({"t.yaml": dedent(SCORING).encode(), "t.jsonl": _lines(ROWS)}, folder)
    said = json.loads(files["answers.json"])
    refused(lambda: run(folder, says(said), output_path=str(folder / "run"), log_samples=True, bootstrap_iters=2))


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


# ---- templates

WORDS = ["q", "gold", "doc", "choices", "items", "self", "loop", "range(3)", "range(10**9)", "namespace()", "cycler(1)", "lipsum()", "dict(a=1)", "none", "true", "1", "0", "-1", "10**99", "2**62", "1.5",
         "'x'", "''", "[]", "{}", "[1, 'a']", "q.__class__", "q[0]", "q[99]", "q['x']", "items[0].a", "q.upper()", "q.split('=')", "q.format(q)", "'%s' % q", "'x' * 10**8", "q ~ gold", "q + 1", "q / 0", "missing", "missing.x", "q is string"]  # fmt: skip


@cache
def template() -> st.SearchStrategy[str]:
    filters, tests = sorted(DEFAULT_FILTERS), sorted(DEFAULT_TESTS)

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.tuples(inner, st.sampled_from(filters)).map(lambda each: f"{each[0]}|{each[1]}"),
            st.tuples(inner, st.sampled_from(filters), inner).map(lambda each: f"{each[0]}|{each[1]}({each[2]})"),
            st.tuples(inner, st.sampled_from(["+", "*", "**", "%", "~", "and", "in", "==", "<", "//"]), inner).map(
                " ".join
            ),
            st.tuples(inner, st.sampled_from(tests)).map(lambda each: f"({each[0]} is {each[1]})"),
            st.tuples(inner, inner).map(lambda each: f"({each[0]} if {each[1]} else {each[0]})"),
        )

    expression = st.recursive(st.sampled_from(WORDS), larger, max_leaves=4)
    piece = st.one_of(
        expression.map(lambda inside: "{{ " + inside + " }}"),
        expression.map(lambda inside: "{% for x in " + inside + " %}{{ x }}{{ loop.index }}{% endfor %}"),
        expression.map(lambda inside: "{% if " + inside + " %}a{% else %}b{% endif %}"),
        expression.map(lambda inside: "{% set y = " + inside + " %}{{ y }}"),
        expression.map(lambda inside: "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(" + inside + ") }}"),
        st.sampled_from(["{{", "}}", "{%", "%}", "{#", "{% raw %}", "{% include 'x' %}", "{% extends q %}", "{% import 'os' as os %}", "{% for x in range(99999) %}{% for y in range(99999) %}{% endfor %}{% endfor %}"]),
        st.text(max_size=5),
    )  # fmt: skip
    return st.lists(piece, min_size=1, max_size=3).map("".join)


def template_inputs() -> st.SearchStrategy[Files]:
    place = st.sampled_from(
        ["doc_to_text", "doc_to_target", "doc_to_choice", "description", "fewshot_delimiter", "target_delimiter"]
    )

    def file(drawn: tuple[str, str, bool]) -> Files:
        key, text, is_choice = drawn
        task: dict[str, Any] = {
            "task": "t", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": "t.jsonl"}}, "test_split": "test", "doc_to_text": "{{q}}",
            "doc_to_target": "gold", "metric_list": [{"metric": "acc" if is_choice else "exact_match"}], "num_fewshot": 1, "fewshot_split": "test",
        }  # fmt: skip
        if is_choice:
            task |= {"output_type": "multiple_choice", "doc_to_choice": ["B", "C"], "doc_to_target": 0}
        return {"t.yaml": json.dumps({**task, key: text}).encode()}

    return st.tuples(place, template(), st.booleans()).map(file)


def check_template(files: Files, folder: Path) -> None:
    placed({**files, "t.jsonl": _lines(ROWS)}, folder)
    known = ("--include_path", folder, "--no_defaults")
    command("validate", *known)
    command("run", "--model", "dummy", "--tasks", "t", *known, "--output_path", folder / "run", "--limit", 2)
