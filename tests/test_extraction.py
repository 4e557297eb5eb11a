"""What is found within the model's words: behind its thinking, within JSON, at the end of a calculation. By hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay import ConfigError
from assay.scoring.filters import FILTERS
from small_runs import SAMPLED, filtered, generate, noting, run, write_task


def cleaned(name: str, response: Any, **kwargs: Any) -> Any:
    [answer] = FILTERS[name](**kwargs)([response], {})
    return answer


# --- thinking -------------------------------------------------------------------------------------------------------

UNFINISHED = "[unfinished thinking]"
THOUGHTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "what comes after the closing tag": ({}, "<think>2+2, so 4</think>\n\n4", "4"),
    "the opening tag may be in the prompt": ({}, "2+2, so 4</think> 4 ", "4 "),
    "no tags, no thinking": ({}, " 4", " 4"),
    "thinking without end": ({}, "<think>2+2, is that", UNFINISHED),
    "thinking twice": ({}, "<think>a</think> b <think>c</think> d", "d"),
    "thinking again without end": ({}, "<think>a</think> b <think>c", UNFINISHED),
    "nothing after the thinking": ({}, "<think>a</think>", ""),
    "begun in the prompt and never ended": ({"begun": True}, "2+2, is that", UNFINISHED),
    "begun in the prompt and ended": ({"begun": True}, "2+2</think>4", "4"),
    "other tags": ({"start": "[THINK]", "end": "[/THINK]"}, "[THINK]<think>[/THINK]4", "4"),
    "other tags without end": ({"start": "[THINK]", "end": "[/THINK]"}, "[THINK]4</think>", UNFINISHED),
}


@pytest.mark.parametrize("case", THOUGHTS)
def test_thinking_is_taken_off(case: str) -> None:
    kwargs, response, expected = THOUGHTS[case]
    assert cleaned("think", response, **kwargs) == expected


THEN_A_NUMBER = """
    filter_list:
      - name: number
        filter: [{function: think}, {function: regex, regex_pattern: '\\d+'}, {function: take_first}]
"""


def test_unfinished_thinking_is_counted_and_the_raw_answer_keeps_it(tmp_path: Path) -> None:
    """Steps after `think` do not take it for an answer without a match: each is counted by its own name."""
    answers = ["<think>5?</think> 4", "<think>so 4", "<think>4</think> four"]
    results = generate(tmp_path, answers, ["4", "4", "4"], THEN_A_NUMBER)
    assert filtered(results, "number") == ["4", UNFINISHED, "[invalid]"]
    assert results["results"]["t"]["exact_match,number"] == 1 / 3
    assert results["assay"]["tasks"]["t"]["noticed"] == {
        "no match by filter number": 1,
        "unfinished thinking by filter number": 1,
    }
    assert [sample["resps"] for sample in results["samples"]["t"]] == [[[answer]] for answer in answers]


def test_of_several_answers_one_unfinished_is_enough_to_count_the_document(tmp_path: Path) -> None:
    yaml = SAMPLED + "repeats: 2\nfilter_list: [{name: all, filter: [{function: think}]}]\n"
    results = generate(tmp_path, [["a", "<think>b"], ["a", "b"]], ["a", "a"], yaml)
    assert results["assay"]["tasks"]["t"]["noticed"] == {"unfinished thinking by filter all": 1}


def test_an_answer_with_unfinished_thinking_has_no_vote() -> None:
    vote = FILTERS["majority_vote"]()
    assert vote([UNFINISHED, UNFINISHED, "a"], {}) == ["a"]
    assert vote([UNFINISHED, UNFINISHED], {}) == [UNFINISHED]


@given(st.text("ab<> "), st.text("ab\n"))
def test_reasoning_of_any_text_does_not_change_the_answer(thought: str, answer: str) -> None:
    assert cleaned("think", f"<think>{thought}</think>{answer}") == answer.lstrip()


# --- JSON -----------------------------------------------------------------------------------------------------------

JSON: dict[str, tuple[str, str, str]] = {
    "a name": ("a", '{"a": "x"}', "x"),
    "names": ("a.b.c", '{"a": {"b": {"c": "x"}}}', "x"),
    "a number in brackets": ("a[1].b", '{"a": [0, {"b": "x"}]}', "x"),
    "from the end": ("[-1]", "[1, 2, 3]", "3"),
    "a list of lists": ("[1][0]", '[[1], ["x"]]', "x"),
    "a name in quotes": ("a['b.c'][\"d e\"]", '{"a": {"b.c": {"d e": "x"}}}', "x"),
    "a name with a blank": ("final answer", '{"final answer": "x"}', "x"),
    "with JSONPath's sign": ("$.a[0]", '{"a": ["x"]}', "x"),
    "the whole": ("$", "[1]", "[1]"),
    "a number as it is written in JSON": ("a", '{"a": 1.50}', "1.5"),
    "truth": ("a", '{"a": true}', "true"),
    "nothing": ("a", '{"a": null}', "null"),
    "an object": ("a", '{"a": {"b": ["é"]}}', '{"b": ["é"]}'),
    "in a fence": ("a", 'Here:\n```json\n{"a": "x"}\n```\nDone.', "x"),
    "in a sentence": ("a", 'I say {"a": "x"} and mean it', "x"),
    "after brackets that are not JSON": ("a", 'see [1, and {this}: {"a": "x"}', "x"),
    "the first that has the path": ("a", '{"b": 1} {"a": "x"} {"a": "y"}', "x"),
    "a line break within a text": ("a", '{"a": "x\ny"}', "x\ny"),
    "no JSON": ("a", "the answer is x", "[invalid]"),
    "cut off": ("a", '{"a": "x', "[invalid]"),
    "another name": ("a", '{"b": "x"}', "[invalid]"),
    "too few": ("a[2]", '{"a": [1, 2]}', "[invalid]"),
    "a name of a list": ("a.b", '{"a": [1]}', "[invalid]"),
    "nested beyond reason": ("a", "[" * 100_000, "[invalid]"),
    "begun beyond reason": ("a", '{"a":' * 20_000, "[invalid]"),
    "braces without end": ("a", "{a} " * 50_000, "[invalid]"),
}


@pytest.mark.parametrize("case", JSON)
def test_a_value_is_read_by_its_path_in_json(case: str) -> None:
    path, response, expected = JSON[case]
    assert cleaned("json_path", response, path=path) == expected


@pytest.mark.parametrize("path", ["a..b", "a[", "a[x]", ".", "a]", "a['b]"])
def test_a_malformed_path_is_refused_before_any_request(path: str, tmp_path: Path) -> None:
    asked: list[str] = []
    step = json.dumps({"function": "json_path", "path": path})
    yaml = f"doc_to_text: q\ndoc_to_target: gold\nfilter_list: [{{name: f, filter: [{step}]}}]\n"
    write_task(tmp_path, [{"q": "0", "gold": "a"}], yaml)
    with pytest.raises(ConfigError, match="invalid path"):
        run(tmp_path, noting(asked))
    assert asked == []


LEAVES = st.none() | st.booleans() | st.integers() | st.text()
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3)
)


@given(TREES, st.text("xyz \n"), st.text("xyz \n"))
def test_json_is_found_whatever_text_surrounds_it(tree: Any, before: str, after: str) -> None:
    result = cleaned("json_path", f"{before}{json.dumps({'k': tree})}{after}", path="k")
    assert result == tree if isinstance(tree, str) else json.loads(result) == tree


# --- mathematics ----------------------------------------------------------------------------------------------------

CALCULATIONS = {
    r"so we get \boxed{42}.": "42",
    r"\boxed{1} no, \boxed{\frac{1}{2}}": r"\frac{1}{2}",
    r"\boxed{x^{2^{3}}+1} done": "x^{2^{3}}+1",
    r"\boxed{7} and then \boxed{8": "7",
    r"\fbox{$3$}": "3",
    r"The price is \boxed{\$1,234.50}": "1234.50",
    "The answer is 12.": "12",
    "the final answer is: $x+1$.": "x+1",
    "The answer is 5 apples, not 6": "5",
    "Answer: Paris": "Paris",
    "The answer is **7**.": "7",
    "The answer is $1,200.": "1200",
    "The answer is (1,2)": "(1,2)",
    "The answer is 3.5": "3.5",
    "2+2\n#### 4": "4",
    "#### -1,200": "-1200",
    "first 3 then 1,500 and so 17": "17",
    "it costs $2,000,000": "2000000",
    "minus -3.25 degrees": "-3.25",
    "one half is 1/2": "1/2",
    "The answer is 1. No wait: the answer is 2.": "2",
    "10-3": "3",
    "Answer = 6": "6",
    "The answer:\n\nIs that 5?": "5",
    "The answer is 5, 2.": "5, 2",
    "The answer is 7, -7.": "7, -7",
    "The answer is 1 or 2.": "1 or 2",
    "The answer is 1 < x < 3.": "1 < x < 3",
    "The answer is 4 ≤ x": "4 ≤ x",
    "The answer is 2 3/4.": "2 3/4",
    "The answer is 5 / 6.": "5 / 6",
    "The answer is 3 : 4.": "3 : 4",
    "The answer is 2 + 3i.": "2 + 3i",
    "The answer is 5 x + 1.": "5 x + 1",
    "The answer is 10 - 2 = 8.": "10 - 2 = 8",
    "The answer is 5, a prime number.": "5",
    "The answer is 5, I think.": "5",
    "The answer is 5, because 2 + 3 is 5.": "5",
    "The answer is 5 - as everybody knows": "5",
    "The answer is 5 and not 6": "5",
    "The answer is 5 m.": "5",
    "The answer is 50%": "50",
    "Answer: 5 (approximately)": "5",
    "I do not know": "[invalid]",
    "\\boxed{" * 20_000: "[invalid]",
    "1," * 20_000 + "7": "7",
    "the answer is " * 20_000 + "7": "7",
    "": "[invalid]",
}


@pytest.mark.parametrize(("brackets", "expected"), [(0, "7"), (999, "7"), (1000, "[invalid]")])
def test_of_a_text_of_brackets_the_first_thousand_are_tried(brackets: int, expected: str) -> None:
    assert cleaned("json_path", "[" * brackets + '{"a": 7}', path="a") == expected


@pytest.mark.parametrize("response", CALCULATIONS, ids=lambda response: response[:30])
def test_the_final_answer_of_a_calculation(response: str) -> None:
    assert cleaned("math", response) == CALCULATIONS[response]


@given(st.integers(-(10**12), 10**12))
def test_a_number_is_extracted_from_every_wording(number: int) -> None:
    for written in (str(number), f"{number:,}"):
        for said in (rf"\boxed{{{written}}}", f"The answer is {written}.", f"#### {written}", f"so {written}"):
            assert cleaned("math", said) == str(number)


@given(st.text("ab{}^12 "))
def test_a_box_is_given_whole_where_its_braces_match(text: str) -> None:
    depth, least = 0, 0
    for letter in text:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        least = min(least, depth)
    if depth == least == 0 and text.strip():
        assert cleaned("math", rf"so \boxed{{{text}}} it is") == text.strip()
