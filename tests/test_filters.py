"""What filters leave of the model's words. Expected values were computed with lm_eval 0.4.13's filter classes."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import assay
from assay import ConfigError, TaskManager
from assay.config.task import FilterConfig, FilterStep
from assay.models import Scripted
from assay.scoring.filters import FILTERS, answers_left
from assay.tasks.validate import validate
from run_world import failed_in
from small_runs import SAMPLED, filtered, generate, noting, run, says, write_task

CASES: dict[str, tuple[str, Mapping[str, Any], list[Any], list[Any]]] = {
    "a number after hashes is the default pattern": ("regex", {}, ["2+2\n#### 4", "#### -1,200.5 apples"], ["4", "-1,200.5"]),
    "no match gives the fallback": ("regex", {}, ["four", "###4", "####4"], ["[invalid]"] * 3),
    "an empty answer has no match": ("regex", {}, [""], ["[invalid]"]),
    "no text at all has no match": ("regex", {}, [None, 4, ("a",)], ["[invalid]"] * 3),
    "another fallback": ("regex", {"regex_pattern": "x", "fallback": "none"}, ["y", "x"], ["none", "x"]),
    "an empty fallback": ("regex", {"regex_pattern": "x", "fallback": ""}, ["y"], [""]),
    "the first of several matches": ("regex", {"regex_pattern": r"\d+"}, ["1 2 3"], ["1"]),
    "the last of several matches": ("regex", {"regex_pattern": r"(\d+)", "group_select": -1}, ["1 2 3"], ["3"]),
    "the second of several matches": ("regex", {"regex_pattern": r"(\d+)", "group_select": 1}, ["1 2 3"], ["2"]),
    "of several groups the first that is not empty": (
        "regex",
        {"regex_pattern": r"answer is (\d+)|(\d+) it is", "group_select": -1},
        ["answer is 4", "so 5 it is", "answer is 1, no: 2 it is"],
        ["4", "5", "2"],
    ),
    "groups that are all empty give the fallback": ("regex", {"regex_pattern": "(x)?(y)?"}, ["a"], ["[invalid]"]),
    "a group of blanks is a match": ("regex", {"regex_pattern": "=( +);|(b)"}, ["=  ;", "b"], ["", "b"]),
    "an empty match of a pattern without groups is a match": ("regex", {"regex_pattern": "a*"}, ["b"], [""]),
    "white space around a match goes": ("regex", {"regex_pattern": r"=(.*)"}, ["x =\t 5\u00a0 \ny"], ["5"]),
    "signs of all scripts": ("regex", {"regex_pattern": r"答えは(\w+)"}, ["答えは東京です", "答えは ٣"], ["東京です", "[invalid]"]),
    "digits of all scripts are digits": ("regex", {"regex_pattern": r"\d+"}, ["٣٤"], ["٣٤"]),
    "flags within a pattern": ("regex", {"regex_pattern": "(?i)yes|no"}, ["NO or yes"], ["NO"]),
    "small letters": ("lowercase", {}, ["ÄB", "", "İ", "ΣΑΣ"], ["äb", "", "i̇", "σας"]),
    "capital letters": ("uppercase", {}, ["äb", "", "straße"], ["ÄB", "", "STRASSE"]),
    "no white space around": ("remove_whitespace", {}, ["  a b\n", "\u00a0x\u2003", "", " "], ["a b", "x", "", ""]),
    "a table": ("map", {"mapping_dict": {"A": 0, "B": 1}, "default_value": -1}, ["B", "A", "a", ""], [1, 0, -1, -1]),
    "a table without default": ("map", {"mapping_dict": {"A": "x"}}, ["A", "B"], ["x", None]),
    "a table of nothing": ("map", {}, ["A"], [None]),
    "the first k": ("take_first_k", {"k": 2}, ["c", "a", "b"], ["c", "a"]),
    "the first k of just k": ("take_first_k", {"k": 2}, ["c", "a"], ["c", "a"]),
    "the most frequent": ("majority_vote", {}, ["a", "b", "b"], ["b"]),
    "of equally frequent the one seen first": ("majority_vote", {}, ["b", "a", "a", "b", "c"], ["b"]),
    "one voter": ("majority_vote", {}, [""], [""]),
    "tags of words": (
        "regex_pos",
        {},
        ["[('the', 'DET'), ('cat', 'NOUN')]", "[('été', 'NOUN')]", "no tags", ""],
        [["DET", "NOUN"], ["NOUN"], ["invalid"], ["invalid"]],
    ),
    "tags with another fallback": ("regex_pos", {"fallback": ["?"]}, ["", "('a', 'X')"], [["?"], ["X"]]),
    "spans with one word for each kind": (
        "format_span",
        {},
        ["Person: Ada $$ Country: Kenya, Uganda", "LOC: Nairobi\nDATE: Monday", "organization : UN $$ time: none", "", "no span"],
        ["per: ada $ loc: kenya $ loc: uganda", "loc: nairobi $ date: monday", "org: un", "", ""],
    ),
    "only text before a colon is a kind": ("format_span", {}, ["PER: time lord"], ["per: time lord"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_filter_by_itself(case: str) -> None:
    name, kwargs, responses, expected = CASES[case]
    assert FILTERS[name](**kwargs)(responses, {}) == expected


PEOPLE = {"choices": ["Guilty", "Guilty of Romance", "Not this", "Émile"]}
LETTERS: dict[str, tuple[Mapping[str, Any], list[Any], list[str]]] = {
    "by the pattern": ({"regex_pattern": r"(\([A-Z]\))"}, ["I say (B), not (A)"], ["(B)"]),
    "the last by the pattern": ({"regex_pattern": r"(\([A-Z]\))", "group_select": -1}, ["I say (B), not (A)"], ["(A)"]),
    "by the words of a choice": ({}, ["It is Guilty.", "Not this"], ["(A)", "(C)"]),
    "by the longer of two choices": ({}, ["Guilty of Romance"], ["(B)"]),
    "by the letter after a colon": ({}, ["Answer: D", "Answer:\n B", "Answer: E"], ["(D)", "(B)", "[invalid]"]),
    "case counts": ({}, ["guilty"], ["[invalid]"]),
    "case does not count": ({"ignore_case": True}, ["NOT THIS", "émile"], ["(C)", "(D)"]),
    "punctuation of all scripts does not count": ({"ignore_punctuation": True}, ["«Not» „this“", "No-t this!"], ["(C)", "(C)"]),
    "patterns to ignore": ({"regexes_to_ignore": ["really ", r"\s*\(.*?\)"]}, ["Not really this", "Not (at all) this"], ["(C)", "(C)"]),
    "nothing": ({"fallback": "?"}, ["", "maybe"], ["?", "?"]),
}  # fmt: skip


@pytest.mark.parametrize("case", LETTERS)
def test_the_letter_of_a_choice(case: str) -> None:
    kwargs, responses, expected = LETTERS[case]
    assert FILTERS["multi_choice_regex"](**kwargs)(responses, PEOPLE) == expected


def test_with_compat_and_without_a_filter_list_the_first_response_is_taken(tmp_path: Path) -> None:
    answers = [["a", "b"], ["b", "a"]]
    results = generate(tmp_path, answers, ["a", "a"], SAMPLED + "repeats: 2\n", compat="lm-eval")
    assert filtered(results) == ["a", "b"]
    assert results["results"]["t"]["exact_match,none"] == 0.5


TWO_WAYS = r"""
    filter_list:
      - name: strict
        filter: [{function: regex, regex_pattern: '#### (\d+)'}, {function: take_first}]
      - name: flexible
        filter: [{function: regex, regex_pattern: '(\d+)', group_select: -1, fallback: none}, {function: take_first}]
"""


def test_two_pipelines_look_at_the_same_raw_responses(tmp_path: Path) -> None:
    results = generate(tmp_path, ["1 and #### 2, so 3", "4", "none"], ["2", "4", "5"], TWO_WAYS)
    assert filtered(results, "strict") == ["2", "[invalid]", "[invalid]"]
    assert filtered(results, "flexible") == ["3", "4", "none"]
    row = results["results"]["t"]
    assert (row["exact_match,strict"], row["exact_match,flexible"]) == (1 / 3, 1 / 3)
    assert [sample["resps"] for sample in results["samples"]["t"]][:2] == [[["1 and #### 2, so 3"]], [["4"]]]


def test_steps_are_applied_in_their_order(tmp_path: Path) -> None:
    yaml = """
        filter_list:
          - name: cut_first
            filter: [{function: regex, regex_pattern: '[a-z]+'}, {function: lowercase}, {function: take_first}]
          - name: small_first
            filter: [{function: lowercase}, {function: regex, regex_pattern: '[a-z]+'}, {function: take_first}]
    """
    results = generate(tmp_path, ["ABc"], ["abc"], yaml)
    assert (filtered(results, "cut_first"), filtered(results, "small_first")) == (["c"], ["abc"])


VOTES = SAMPLED + """repeats: 5
filter_list:
  - name: maj5
    filter: [{function: regex, regex_pattern: '(\\d+)'}, {function: majority_vote}, {function: take_first}]
  - name: maj3
    filter: [{function: take_first_k, k: 3}, {function: regex, regex_pattern: '(\\d+)'}, {function: majority_vote}, {function: take_first}]
  - name: first
    filter: [{function: regex, regex_pattern: '(\\d+)'}, {function: take_first}]
"""  # fmt: skip


def test_a_vote_over_repeats_beside_the_first_answer(tmp_path: Path) -> None:
    answers = [["it is 1", "2", "2!", "3", "3 or 3"], ["7", "no", "7.", "nothing", "none"]]
    results = generate(tmp_path, answers, ["2", "7"], VOTES)
    assert filtered(results, "maj5") == ["2", "[invalid]"]
    assert filtered(results, "maj3") == ["2", "7"]
    assert filtered(results, "first") == ["1", "7"]
    row = results["results"]["t"]
    assert [row[f"exact_match,{name}"] for name in ("maj5", "maj3", "first")] == [0.5, 1.0, 0.5]


def test_a_vote_alone_needs_no_take_first(tmp_path: Path) -> None:
    yaml = SAMPLED + "repeats: 3\nfilter_list: [{name: vote, filter: [{function: majority_vote}]}]\n"
    results = generate(tmp_path, [["a", "b", "a"], ["b", "b", "c"]], ["a", "c"], yaml)
    assert results["results"]["t"]["exact_match,vote"] == 0.5


def test_more_responses_than_there_are_is_never_a_score(tmp_path: Path) -> None:
    """lm-eval stops with an assertion; here it is refused, or every document counts as failed."""
    yaml = SAMPLED + "repeats: 2\nfilter_list: [{name: k, filter: [{function: take_first_k, k: 3}]}]\n"
    try:
        results = generate(tmp_path, [["a", "b"], ["b", "b"]], ["a", "c"], yaml)
    except ConfigError as error:
        assert "take_first_k" in str(error)
    else:
        assert "exact_match,k" not in results["results"]["t"]
        assert failed_in(results) == 2


def test_a_match_that_is_not_there_is_no_match(tmp_path: Path) -> None:
    """lm-eval stops with an IndexError."""
    yaml = "filter_list: [{name: r, filter: [{function: regex, regex_pattern: b, group_select: 1}, {function: take_first}]}]\n"
    results = generate(tmp_path, ["b b", "b", ""], ["b", "b", "[invalid]"], yaml)
    assert filtered(results, "r") == ["b", "[invalid]", "[invalid]"]
    assert (results["results"]["t"]["exact_match,r"], results["results"]["t"]["sample_len"]) == (2 / 3, 3)
    assert failed_in(results) == 0
    assert results["assay"]["tasks"]["t"]["noticed"]["no match by filter r"] == 2


SELECTIONS = {
    "the second match, not the group 1": ("'Answer: (.*)', group_select: 1", "is the match number 2"),
    "beyond the groups": ("'Answer: (.*)', group_select: 4", "is the match number 5"),
    "anchored at the start": ("'^(a)', group_select: 1", "never finds anything"),
    "anchored at the start, from the end": ("'^(a)', group_select: -2", "never finds anything"),
    "anchored at the end": ("'b$', group_select: 1", "never finds anything"),
    "anchored to each line": ("'(?m)^b', group_select: 1", ""),
    "without groups": ("'b', group_select: 1", ""),
    "the first": ("'(b)'", ""),
    "the last": ("'^(b)', group_select: -1", ""),
}


@pytest.mark.parametrize("case", SELECTIONS)
def test_validate_notes_a_group_select_that_looks_like_the_number_of_a_group(case: str, tmp_path: Path) -> None:
    written, expected = SELECTIONS[case]
    steps = f"[{{function: regex, regex_pattern: {written}}}, {{function: take_first}}]"
    write_task(
        tmp_path,
        [{"q": "0", "gold": "a"}],
        f"doc_to_text: q\ndoc_to_target: gold\nfilter_list: [{{name: f, filter: {steps}}}]\n",
    )
    problems = validate(TaskManager(include_path=str(tmp_path), include_defaults=False), ["t"])
    assert [problem.serious for problem in problems] == ([False] if expected else [])
    assert all(expected in problem.what and problem.place.line == 7 for problem in problems)


@pytest.mark.parametrize("number", [1, 2, -2, -3])
def test_a_letter_beyond_the_matches_gives_the_fallback(number: int) -> None:
    step = FILTERS["multi_choice_regex"](group_select=number)
    assert step(["it is blue"], {"choices": ["red", "blue"]}) == ["[invalid]"]


def test_a_function_of_ones_own_sees_all_responses_and_documents(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def longest(resps, docs):\n"
        "    most = max(len(r) for several in resps for r in several)\n"
        "    return [[f'{doc[\"gold\"]}{most}' for _ in several] for several, doc in zip(resps, docs)]\n"
    )
    yaml = "filter_list: [{name: own, filter: [{function: custom, filter_fn: !function own.longest}, {function: take_first}]}]\n"
    results = generate(tmp_path, ["a", "bbb"], ["x", "x3"], yaml)
    assert filtered(results, "own") == ["x3", "x33"]


def test_a_class_of_ones_own_takes_its_parameters(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from lm_eval.api.filter import Filter\n"
        "class Cut(Filter):\n"
        "    def __init__(self, length):\n"
        "        self.length = length\n"
        "    def apply(self, resps, docs):\n"
        "        return [[r[: self.length] for r in several] for several in resps]\n"
    )
    yaml = "filter_list: [{name: own, filter: [{function: !function own.Cut, length: 2}, {function: take_first}]}]\n"
    assert filtered(generate(tmp_path, ["abc", "é"], ["ab", "é"], yaml), "own") == ["ab", "é"]


def test_a_letter_is_found_by_the_choices_of_each_document(tmp_path: Path) -> None:
    rows = [
        {"q": "0", "choices": ["red", "blue"], "gold": "(B)"},
        {"q": "1", "choices": ["blue", "red"], "gold": "(B)"},
    ]
    yaml = """
        doc_to_text: q
        doc_to_target: gold
        filter_list: [{name: letter, filter: [{function: multi_choice_regex}, {function: take_first}]}]
    """
    write_task(tmp_path, rows, yaml)
    results = run(tmp_path, says(["it is blue", "it is blue"]))
    assert filtered(results, "letter") == ["(B)", "(A)"]
    assert results["results"]["t"]["exact_match,letter"] == 0.5


def test_likelihoods_pass_through_a_filter_as_pairs(tmp_path: Path) -> None:
    """Filters see each request of a document by itself, also those of choices."""
    (tmp_path / "own.py").write_text(
        "def halve(resps, docs):\n    return [[(ll / 2, greedy) for ll, greedy in several] for several in resps]\n"
    )
    rows = [{"q": "0", "choices": ["a", "b"], "gold": 0}]
    yaml = """
        output_type: multiple_choice
        doc_to_text: q
        doc_to_choice: choices
        doc_to_target: gold
        filter_list: [{name: half, filter: [{function: custom, filter_fn: !function own.halve}, {function: take_first}]}]
    """
    write_task(tmp_path, rows, yaml)
    model = Scripted(loglikelihood=lambda context, continuation: (-1.0 if continuation == " a" else -3.0, False))
    [sample] = run(tmp_path, model)["samples"]["t"]
    assert [tuple(answer) for answer in sample["filtered_resps"]] == [(-0.5, False), (-1.5, False)]


WRONG = {
    "no filter named 'regx'": "{function: regx}",
    "no filter named 'decontaminate'": "{function: decontaminate, path: x}",
    "has no parameter 'regex_patern'": "{function: regex, regex_patern: x}",
    "needs the parameter 'k'": "{function: take_first_k}",
    "filter 'regex' cannot be made": "{function: regex, regex_pattern: '('}",
    "needs filter_fn": "{function: custom}",
}


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_filter_is_refused_before_any_request(said: str, tmp_path: Path) -> None:
    asked: list[str] = []
    write_task(
        tmp_path,
        [{"q": "0", "gold": "a"}],
        f"doc_to_text: q\ndoc_to_target: gold\nfilter_list: [{{name: f, filter: [{WRONG[said]}]}}]\n",
    )
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        run(tmp_path, noting(asked))
    assert asked == []


VOTERS = st.lists(st.sampled_from("abc"), min_size=1, max_size=12)


def voted(responses: list[str]) -> str:
    [winner] = FILTERS["majority_vote"]()(responses, {})
    return str(winner)


@given(VOTERS)
def test_no_answer_has_more_votes_than_the_winner(responses: list[str]) -> None:
    counts = Counter(responses)
    assert counts[voted(responses)] == max(counts.values())


@given(VOTERS, st.integers(2, 4))
def test_a_vote_counted_several_times_has_the_same_winner(responses: list[str], times: int) -> None:
    assert voted(responses * times) == voted(responses)


@given(VOTERS)
def test_one_more_vote_for_the_winner_changes_nothing(responses: list[str]) -> None:
    assert voted([*responses, voted(responses)]) == voted(responses)


@given(VOTERS, st.permutations("abc"))
def test_a_vote_does_not_depend_on_names(responses: list[str], names: list[str]) -> None:
    other = dict(zip("abc", names, strict=True))
    assert voted([other[each] for each in responses]) == other[voted(responses)]


@given(st.data(), VOTERS)
def test_the_order_of_votes_matters_only_for_a_tie(data: st.DataObject, responses: list[str]) -> None:
    counts = sorted(Counter(responses).values(), reverse=True)
    shuffled = data.draw(st.permutations(responses))
    assert voted(shuffled) == voted(responses) or counts[0] == counts[1]


@given(st.sampled_from(["lowercase", "remove_whitespace"]), st.lists(st.text(), max_size=4))
def test_clean_text_is_unchanged(name: str, responses: list[str]) -> None:
    step = FILTERS[name]()
    once = step(responses, {})
    assert step(once, {}) == once


@given(st.lists(st.text(), min_size=1, max_size=5), st.sampled_from(["regex", "lowercase", "uppercase", "remove_whitespace", "map"]))  # fmt: skip
def test_a_step_takes_each_response_by_itself(responses: list[str], name: str) -> None:
    step = FILTERS[name]()
    assert step(responses, {}) == [step([response], {})[0] for response in responses]


def test_what_a_users_filter_declares_is_checked_before_the_run(tmp_path: Path) -> None:
    def first_word() -> Any:
        return lambda responses, doc: [str(response).split()[0] for response in responses]

    assay.filter("first_word_of_text", reads="text")(first_word)
    assay.filter("first_word_alone", keeps="one")(first_word)
    try:
        choice = {"output_type": "multiple_choice", "doc_to_choice": ["a", "b"], "doc_to_text": "q", "doc_to_target": 0,
                  "dataset_path": "json", "test_split": "test", "dataset_kwargs": {"data_files": {"test": "x.jsonl"}}}  # fmt: skip
        (tmp_path / "x.jsonl").write_text('{"q": "q"}\n')
        steps = [{"name": "f", "filter": [{"function": "first_word_of_text"}]}]
        with pytest.raises(
            ConfigError, match="'first_word_of_text' reads text, and the answers of multiple_choice are"
        ):
            assay.simple_evaluate(model="dummy", tasks=[{"task": "t", **choice, "filter_list": steps}])
        declared = FilterConfig(name="f", filter=(FilterStep(function="first_word_alone"),))
        assert answers_left(declared, 4) == 1
        unknown = FilterConfig(name="f", filter=(FilterStep(function="first_word_of_text"),))
        assert answers_left(unknown, 4) is None
    finally:
        del FILTERS["first_word_of_text"], FILTERS["first_word_alone"]
