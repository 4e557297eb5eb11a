"""Unit metrics: what a record's prediction is worth, as seed 003 has it; every expected value is written by hand."""

import json
import math
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import assay
from assay import UnitMetric, UnitMetricRegistry, UnitMetricResult, UnitMetrics, unit_metric
from assay.compat.modules import HelperCode, resolve_dotted
from assay.dialect import dialect_of
from assay.errors import ConfigError, Place
from assay.graphs.sygra import parse_response_as_json
from assay.graphs.transforms import CombineRecords, RenameFieldsTransform, SkipRecords
from assay.graphs.unit_node import check_unit_metrics, runs_code, unit_metric_fields
from assay.scoring.metrics.registry import METRICS

HERE = Place("graph_config.yaml", 7, 3)


def here(*path: str | int) -> Place:  # the shape of what finds places
    return HERE


NODE = {
    "node_type": "lambda",
    "lambda": "tasks.eval.utils.UnitMetrics",
    "golden_key": "answer",
    "predicted_key": "predicted_answer",
    "unit_metrics_map": [{"name": "exact_match", "params": {"key": "text"}}],
    "output_keys": ["exact_match_result"],
}


@pytest.fixture(autouse=True)
def own_registry() -> Any:
    """What a test registers is forgotten after it."""
    yield
    UnitMetricRegistry.clear()


def scored(name: str, golden: Any, predicted: Any, **params: Any) -> UnitMetricResult:
    [result] = UnitMetricRegistry.get_metric(name, **params).evaluate([golden], [predicted])
    return result


# --- results ------------------------------------------------------------------------------------------------------------


def test_a_result_has_a_score_that_follows_from_the_verdict_unless_it_is_given() -> None:
    assert UnitMetricResult(True, {}, {}).score == 1.0
    assert UnitMetricResult(correct=False, golden={}, predicted={}).score == 0.0
    assert UnitMetricResult(False, {}, {}, {}, 0.7).score == 0.7


def test_a_result_of_sygra_which_has_no_score_can_be_read() -> None:
    read = UnitMetricResult.from_dict({"correct": True, "golden": {"text": "a"}, "predicted": {"text": "A"}})
    assert read == UnitMetricResult(True, {"text": "a"}, {"text": "A"}, {}, 1.0)


@given(
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.dictionaries(st.text(), st.integers() | st.text()),
)
def test_a_result_written_and_read_is_the_same(correct: bool, score: float, said: dict[str, Any]) -> None:
    result = UnitMetricResult(correct, {"text": "a"}, {"text": "b"}, said, score)
    assert UnitMetricResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_infinities_never_reach_json() -> None:
    result = UnitMetricResult(False, {"x": math.inf}, {"x": [math.nan, 1.0]}, {"deep": {"er": -math.inf}})
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == {
        "correct": False, "golden": {"x": None}, "predicted": {"x": [None, 1.0]}, "metadata": {"deep": {"er": None}}, "score": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("score", [math.inf, -math.inf, math.nan])
def test_a_score_that_is_not_finite_is_refused(score: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        UnitMetricResult(True, {}, {}, {}, score)


def test_golden_and_predicted_values_of_a_result_are_mappings() -> None:
    with pytest.raises(ValueError, match="golden must be a mapping"):
        UnitMetricResult(True, "a", {})  # type: ignore[arg-type]


# --- the metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("golden", "predicted", "params", "correct"),
    [
        ({"text": "New  York"}, {"text": " new york\n"}, {"key": "text"}, True),
        ({"text": "New York"}, {"text": "new york"}, {"key": "text", "case_sensitive": True}, False),
        ({"text": "New  York"}, {"text": "new york"}, {"key": "text", "normalize_whitespace": False}, False),
        ({"text": "3"}, {"text": 3}, {"key": "text"}, True),
        ("Paris", "paris", {}, True),
        ({"a": 1}, {"a": 1}, {}, True),
        ({"text": "None"}, {"text": None}, {"key": "text"}, False),
        ({"text": ""}, {"other": "x"}, {"key": "text"}, False),
    ],
)
def test_exact_match(golden: Any, predicted: Any, params: dict[str, Any], correct: bool) -> None:
    result = scored("exact_match", golden, predicted, **params)
    assert (result.correct, result.score) == (correct, float(correct))


def test_exact_match_reports_what_it_compared() -> None:
    assert scored("exact_match", {"text": " A b"}, {"text": "a  B"}, key="text").metadata == {
        "validator": "exact_match", "golden_text": "a b", "predicted_text": "a b", "case_sensitive": False, "normalize_whitespace": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("golden", "predicted", "exact", "alike"),
    [
        ({"text": "London"}, {"text": "Lisbon"}, False, 0.5),  # l and on: 2 * 3 of 12 letters
        ({"text": ["Paris", "Paris city"]}, {"text": "paris"}, True, 1.0),
        ({"text": ["ab", "abcd"]}, {"text": "BCDE"}, False, 0.75),  # bcd of the second: 2 * 3 of 8
        ({"text": ["a", None]}, {"text": "a"}, True, 1.0),
        ({"text": ["a", "b"]}, {"text": ["a", "b"]}, True, 1.0),  # two lists, as a whole
        ({"text": ["a", "b"]}, {"text": None}, False, 0.0),
        (["a", "b"], "b", True, 1.0),
        ({"text": "x", "more": 1}, {"text": "x", "more": 1}, True, 1.0),  # not a lone text: all of it
    ],
)
def test_a_lone_text_is_the_text_and_of_a_list_any_may_match(
    golden: Any, predicted: Any, exact: bool, alike: float
) -> None:
    for key in (None, "text"):
        if key is None or isinstance(golden, dict):
            assert scored("exact_match", golden, predicted, key=key).correct is exact
            assert scored("fuzzy_match", golden, predicted, key=key).score == alike


def test_a_list_without_a_golden_text_is_an_error_of_the_data() -> None:
    with pytest.raises(ValueError, match="the golden value has no text"):
        scored("exact_match", {"text": [None]}, {"text": "a"})


def test_fuzzy_match_scores_the_share_of_letters_in_matching_runs() -> None:
    # abcd and bcde have bcd in common: 2 * 3 / 8
    result = scored("fuzzy_match", {"text": "abcd"}, {"text": "BCDE"}, key="text")
    assert (result.score, result.correct) == (0.75, False)
    assert scored("fuzzy_match", {"text": "abcd"}, {"text": "BCDE"}, key="text", threshold=0.75).correct


@pytest.mark.parametrize(
    ("x", "y", "correct"), [(10, 20, True), (110, 70, True), (111, 70, False), (9.9, 30, False), ("50", "30", True), (None, 30, False), ("left", 30, False)]
)  # fmt: skip
def test_an_action_is_within_a_box_with_its_edges(x: Any, y: Any, correct: bool) -> None:
    golden = {"bbox": {"x": 10, "y": 20, "width": 100, "height": 50}}
    assert scored("action_within_bbox", golden, {"x": x, "y": y}).correct is correct


def test_an_action_may_be_outside_the_box_by_the_tolerance() -> None:
    golden = {"bbox": {"x": 10, "y": 20, "width": 100, "height": 50}}
    assert scored("action_within_bbox", golden, {"x": 113, "y": 72}, tolerance=3).correct


def test_a_typed_value_matches_where_it_is_similar() -> None:
    # 'hello word' and 'hello world': 10 letters in common of 10 and 11, so 20 / 21
    result = scored("typed_value_match", {"text": "Hello  World"}, {"text": "hello word"})
    assert result.correct
    assert result.score == pytest.approx(20 / 21)
    assert result.metadata["differences"] == [{"operation": "delete", "golden": "l", "predicted": ""}]
    assert not scored(
        "typed_value_match", {"text": "hello world"}, {"text": "hello word"}, fuzzy_match_threshold=0.99
    ).correct


def test_two_typed_values_that_are_missing_do_not_match() -> None:
    with pytest.raises(ValueError, match="the golden value has no 'text'"):
        scored("typed_value_match", {}, {})
    assert not scored("typed_value_match", {"text": ""}, {}).correct


@pytest.mark.parametrize(("predicted", "correct"), [("up", True), ("down", False), ("Up", False), (None, False)])
def test_scroll_direction(predicted: Any, correct: bool) -> None:
    assert scored("scroll_direction", {"direction": "up"}, {"direction": predicted}).correct is correct


@pytest.mark.parametrize(
    ("golden", "predicted", "correct"),
    [
        (100, 80, True),
        (100, 79, False),
        (-100, -120, True),
        (0, 10, True),
        (0, -11, False),
        (50, None, False),
        (50, "60", True),
    ],
)
def test_scroll_amount_within_20_percent_and_of_zero_within_10(golden: Any, predicted: Any, correct: bool) -> None:
    result = scored("scroll_amount", {"amount": golden}, {"amount": predicted})
    assert result.correct is correct
    json.dumps(result.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("name", "golden"),
    [
        ("exact_match", {"other": "a"}),
        ("action_within_bbox", {"bbox": {"x": 1}}),
        ("scroll_direction", {"direction": "north"}),
        ("scroll_amount", {"amount": "far"}),
        ("token_f1", {}),
    ],
)
def test_a_golden_value_that_cannot_be_read_is_an_error_and_no_wrong_answer(name: str, golden: Any) -> None:
    params = {"key": "text"} if name == "exact_match" else {}
    with pytest.raises(ValueError, match="golden"):
        scored(name, golden, {"text": "a"}, **params)


# --- assay's metrics --------------------------------------------------------------------------------------------------------


def test_metrics_of_assay_are_unit_metrics_by_name() -> None:
    # 'cat' is in common: 2 * 1 / (2 + 1)
    result = scored("token_f1", {"text": "the cat sat"}, {"text": "a cat"})
    assert (result.score, result.correct) == (pytest.approx(2 / 3), False)
    assert scored("token_f1", {"text": "the cat sat"}, {"text": "a cat"}, threshold=0.6).correct
    assert scored("edit_distance", {"text": "kitten"}, {"text": "sitting"}).score == 3
    assert scored("edit_distance", {"text": "kitten"}, {"text": "kitten"}).correct
    assert not scored("edit_distance", {"text": "kitten"}, {"text": "sitting"}).correct


def test_several_references_are_a_list() -> None:
    assert scored("token_f1", {"text": ["dog", "cat"]}, {"text": "cat"}).correct


@pytest.mark.parametrize(
    ("name", "best"),
    [("bleu", 100), ("chrf", 100), ("ter", 0), ("wer", 0), ("ndcg", 1), ("rougeL", 1), ("edit_similarity", 1)],
)
def test_an_answer_that_is_the_reference_is_correct_by_every_metric(name: str, best: float) -> None:
    result = scored(name, {"text": "the cat sat on the mat"}, {"text": "the cat sat on the mat"})
    assert result.score == pytest.approx(best)
    assert result.correct


def test_every_metric_that_gives_a_number_for_an_answer_is_there() -> None:
    numbers = {"token_f1", "f1_score", "rouge1", "rouge2", "rougeL", "rougeLsum", "edit_distance", "edit_similarity", "math_equal", "code_exec", "bleu", "chrf", "chrf++", "ter", "exact_match", "json_schema", "wer", "cer", "ndcg", "mrr", "recall_at_k", "precision_at_k"}  # fmt: skip
    assert numbers <= set(UnitMetricRegistry.list_metrics())
    for_answers = {name for name, declared in METRICS.items() if "generate_until" in declared.functions}
    of_all_documents = {
        name
        for name in for_answers
        if name.startswith(("macro_", "micro_", "weighted_", "precision", "recall", "f1_by", "kappa", "spearman"))
    }
    assert for_answers - numbers - of_all_documents == {"bypass", "rouge"}


@pytest.fixture
def registered() -> Iterator[None]:
    """What a test registers as metrics of tasks is forgotten after it."""
    yield
    for name in METRICS.added:
        del METRICS[name]


@pytest.mark.usefixtures("registered")
def test_a_metric_that_users_register_after_the_import_is_a_unit_metric_by_its_name() -> None:
    @assay.metric("same_end", bounds=(0, 4))
    def same_end(references: list[str], prediction: str, *, letters: int = 1) -> float:
        return 4.0 * (references[0][-letters:] == prediction[-letters:])

    @assay.metric("letters_apart", higher_is_better=False)
    def letters_apart(reference: str, prediction: str) -> float:
        return abs(len(reference) - len(prediction))

    result = scored("same_end", {"text": "house"}, {"text": "mouse"}, letters=4)
    assert (result.score, result.correct) == (4.0, True)  # the best score of its bounds
    assert scored("same_end", {"word": "house"}, {"word": "horse"}, key="word", letters=4).score == 0.0
    assert (
        scored("letters_apart", {"text": ["abc", "abcdef"]}, {"text": "abcde"}).score == 1.0
    )  # of the nearer reference
    assert not scored("letters_apart", {"text": "abc"}, {"text": "abcde"}).correct
    assert scored("letters_apart", {"text": "abc"}, {"text": "abcde"}, threshold=2).correct
    with pytest.raises(ConfigError, match="has no parameter 'letter' — did you mean 'letters'"):
        UnitMetricRegistry.get_metric("same_end", letter=2)
    node = {**NODE, "unit_metrics_map": [{"name": "same_end"}], "output_keys": ["same_end_result"]}
    assert check_unit_metrics(node, here) == []


@pytest.mark.usefixtures("registered")
def test_a_metric_of_all_documents_is_no_unit_metric() -> None:
    @assay.metric("of_all", aggregation="f1")
    def of_all(references: list[str], prediction: str) -> float:
        return 0.0

    assert not UnitMetricRegistry.has_metric("of_all")
    with pytest.raises(ConfigError, match="no unit metric named 'of_all'"):
        UnitMetricRegistry.get_metric("of_all")


WORDS = 'task: words\ncustom_dataset: !function data.rows\noutput_type: generate_until\ndoc_to_text: "{{q}}"\ndoc_to_target: "{{gold}}"\n'
ROWS = "def rows(**_):\n    return {'test': [{'q': q, 'gold': g} for q, g in (('kit', 'cat'), ('dog', 'horse'), ('Cow', 'cow'), ('a', 'ab'))]}\n"


def test_a_unit_metric_works_in_a_metric_list_and_on_a_stored_run(tmp_path: Path) -> None:
    """The model repeats q. By hand: lengths are at most `slack` 1 apart in all but dog and horse; kit and cat have t alone
    in common, 2 * 1 of 6 letters, dog and horse o, 2 * 1 of 8, cow all, a and ab 2 * 1 of 3."""

    @unit_metric("about_as_long")
    def about_as_long(golden: dict[str, Any], predicted: dict[str, Any], *, slack: int = 0) -> bool:
        return abs(len(golden["text"]) - len(predicted["text"])) <= slack

    metrics = "metric_list:\n  - {metric: about_as_long, slack: 1}\n  - {metric: fuzzy_match}\n"
    (tmp_path / "words.yaml").write_text(WORDS + metrics + "test_split: test\n")
    (tmp_path / "data.py").write_text(ROWS)
    model = assay.Scripted(generate=lambda prompt, *_: prompt, identity="repeats")
    run = tmp_path / "run"
    results = assay.simple_evaluate(model, tasks=["words"], include_path=str(tmp_path), output_path=str(run))
    row = results["results"]["words"]
    assert row["about_as_long,none"] == 0.75
    assert row["fuzzy_match,none"] == pytest.approx((1 / 3 + 1 / 4 + 1 + 2 / 3) / 4)
    (tmp_path / "words.yaml").write_text(WORDS + metrics.replace("slack: 1", "slack: 0") + "test_split: test\n")
    again = assay.score(run).results
    assert {r.key.metric: r.estimate.value for r in again.tasks["words"].rows}["about_as_long"] == 0.5
    (tmp_path / "words.yaml").write_text(WORDS + metrics.replace("slack", "slak") + "test_split: test\n")
    with pytest.raises(ConfigError, match=r"words.yaml:7:.*has no parameter 'slak' — did you mean 'slack'"):
        assay.simple_evaluate(model, tasks=["words"], include_path=str(tmp_path))


# --- names ------------------------------------------------------------------------------------------------------------------


def test_a_class_written_for_sygra_works_as_it_is() -> None:
    @unit_metric("starts_alike")
    class StartsAlike(UnitMetric):
        def __init__(self, **config: Any) -> None:
            super().__init__(**config)
            self.validate_config()

        def validate_config(self) -> None:
            self.letters = int(self.config.get("letters", 1))

        def evaluate(self, golden: list[Any], predicted: list[Any]) -> list[UnitMetricResult]:
            pairs = zip(golden, predicted, strict=True)
            return [UnitMetricResult(g["text"][: self.letters] == p["text"][: self.letters], g, p) for g, p in pairs]

    assert scored("starts_alike", {"text": "apple"}, {"text": "ape"}, letters=2).correct
    assert not scored("starts_alike", {"text": "apple"}, {"text": "ape"}, letters=3).correct
    assert UnitMetricRegistry.unregister("starts_alike")
    assert not UnitMetricRegistry.has_metric("starts_alike")


def test_a_function_is_a_unit_metric_and_its_keywords_are_the_parameters() -> None:
    @unit_metric("shorter")
    def shorter(golden: dict[str, Any], predicted: dict[str, Any], *, by: int = 0) -> bool:
        return len(predicted["text"]) + by < len(golden["text"])

    assert scored("shorter", {"text": "abc"}, {"text": "a"}, by=1).correct
    assert not scored("shorter", {"text": "abc"}, {"text": "a"}, by=2).correct
    with pytest.raises(ConfigError, match="has no parameter 'bye' — did you mean 'by'"):
        UnitMetricRegistry.get_metric("shorter", bye=2)
    with pytest.raises(ConfigError, match="'by' cannot be 'two'"):
        UnitMetricRegistry.get_metric("shorter", by="two")


def test_built_in_unit_metrics_cannot_be_replaced_and_only_unit_metrics_are_accepted() -> None:
    with pytest.raises(ConfigError, match="the name 'exact_match' is that of a built-in unit metric"):
        unit_metric("exact_match")(lambda golden, predicted: True)
    with pytest.raises(TypeError, match="must be a class derived from UnitMetric"):
        unit_metric("mine")(dict)


@pytest.mark.parametrize(
    ("name", "params", "reported"),
    [
        ("exact_mach", {}, "no unit metric named 'exact_mach' — did you mean 'exact_match'?"),
        ("exact_match", {"case_sensitve": True}, "no parameter 'case_sensitve' — did you mean 'case_sensitive'?"),
        ("exact_match", {"case_sensitive": "yes"}, "'case_sensitive' cannot be 'yes'"),
        ("fuzzy_match", {"threshold": 1.5}, "threshold must be between 0 and 1"),
        ("math_equal", {"digit": 3}, "did you mean 'digits'?"),
        ("scroll_amount", {"tolerance_percent": True}, "'tolerance_percent' cannot be True"),
    ],
)
def test_wrong_names_and_parameters_are_refused_with_a_remedy(name: str, params: dict[str, Any], reported: str) -> None:
    with pytest.raises(ConfigError) as refused:
        UnitMetricRegistry.get_metric(name, **params)
    assert reported in str(refused.value)


# --- the lambda ---------------------------------------------------------------------------------------------------------------


def test_the_lambda_of_the_seed_writes_a_result_into_the_record() -> None:
    state = UnitMetrics.apply(NODE, {"answer": "Paris", "predicted_answer": "paris", "problem": "?"})
    assert state["problem"] == "?"
    assert state["exact_match_result"]["correct"] is True
    assert state["exact_match_result"]["golden"] == {"text": "Paris"}
    assert state["exact_match_result"]["score"] == 1.0


def test_the_field_is_called_as_the_node_declares_it() -> None:
    assert unit_metric_fields(NODE) == ["exact_match_result"]
    assert unit_metric_fields({**NODE, "output_keys": ["exact_match"]}) == ["exact_match"]
    assert unit_metric_fields({**NODE, "output_keys": "exact_match_result"}) == ["exact_match_result"]
    named = {**NODE, "unit_metrics_map": [{"name": "exact_match", "as": "same"}]}
    assert unit_metric_fields(named) == ["same"]


def test_a_mapping_is_compared_as_it_is_so_that_boxes_can_be_used() -> None:
    node = {"golden_key": "g", "predicted_key": "p", "unit_metrics_map": [{"name": "action_within_bbox"}]}
    box = {"bbox": {"x": 0, "y": 0, "width": 2, "height": 2}}
    state = {"g": box, "p": {"x": 1, "y": 1}}
    assert UnitMetrics.apply(node, state)["action_within_bbox_result"]["correct"] is True
    assert UnitMetrics.apply({**node, "compat": "sygra"}, state)["action_within_bbox_result"]["correct"] is False


def test_incomparable_values_fail_the_record_and_are_wrong_only_with_compat_sygra() -> None:
    node = {**NODE, "unit_metrics_map": [{"name": "scroll_amount"}]}
    state = {"answer": "far", "predicted_answer": "3"}
    with pytest.raises(ValueError, match="golden value has no 'amount'"):
        UnitMetrics.apply(node, state)
    reported = UnitMetrics.apply({**node, "compat": "sygra"}, state)["scroll_amount_result"]
    assert (reported["correct"], reported["metadata"]["validator"]) == (False, "scroll_amount")
    assert "error" in reported["metadata"]


@pytest.mark.parametrize(
    ("metric", "params", "golden", "predicted"),
    [("typed_value_match", {"golden_text_key": "a", "predicted_text_key": "b"}, "x", "y"), ("exact_match", {"key": "answer"}, "x", "y"), ("exact_match", {"key": "text"}, "None", None)],
)  # fmt: skip
def test_values_missing_on_both_sides_are_equal_only_with_compat_sygra(metric: str, params: dict[str, Any], golden: Any, predicted: Any) -> None:  # fmt: skip
    node = {**NODE, "unit_metrics_map": [{"name": metric, "params": params, "as": "found"}], "compat": "sygra"}
    state = {"answer": golden, "predicted_answer": predicted}
    assert UnitMetrics.apply(node, state)["found"]["correct"] is True
    ours = {key: value for key, value in node.items() if key != "compat"}
    if golden == "None":
        assert UnitMetrics.apply(ours, state)["found"]["correct"] is False
    else:
        with pytest.raises(ValueError, match="the golden value has no"):
            UnitMetrics.apply(ours, state)


def test_long_texts_are_compared_letter_by_letter_and_with_the_usual_difflib_only_as_sygra_has_it() -> None:
    golden, predicted = "ab" * 150, "ba" * 150
    node = {**NODE, "unit_metrics_map": [{"name": "typed_value_match", "as": "found"}]}
    state = {"answer": golden, "predicted_answer": predicted}
    assert UnitMetrics.apply(node, state)["found"]["score"] == pytest.approx(299 / 300)
    theirs = SequenceMatcher(None, golden, predicted).ratio()
    assert theirs < 0.5
    assert UnitMetrics.apply({**node, "compat": "sygra"}, state)["found"]["score"] == theirs


def test_a_state_without_the_predicted_value_is_an_error_that_lists_what_there_is() -> None:
    with pytest.raises(KeyError, match=r"has no 'predicted_answer', which predicted_key names; it has answer"):
        UnitMetrics.apply(NODE, {"answer": "a"})


def messages_of(problems: list[Any]) -> str:
    assert all(problem.place == HERE and problem.fix for problem in problems)
    return "\n".join(map(str, problems))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"golden_key": None}, "UnitMetrics needs 'golden_key'"),
        ({"unit_metrics_map": []}, "UnitMetrics has no unit metrics"),
        ({"unit_metrics_map": [{"params": {}}]}, "entry 1 of unit_metrics_map names no metric"),
        ({"unit_metrics_map": [{"name": "exact_mach"}]}, "did you mean 'exact_match'?"),
        ({"unit_metrics_map": [{"name": "exact_match", "param": {}}]}, "unknown key 'param' — did you mean 'params'?"),
        ({"unit_metrics_map": [{"name": "exact_match", "params": {"keys": "text"}}]}, "did you mean 'key'?"),
        ({"unit_metrics_map": [{"name": "fuzzy_match", "params": {"threshold": 2}}]}, "must be between 0 and 1"),
        ({"unit_metrics_map": [{"name": "exact_match"}, {"name": "exact_match", "params": {"case_sensitive": True}}]}, "two unit metrics write 'exact_match_result'"),
        ({"output_keys": ["exact_match_results"]}, "writes 'exact_match_result', which is none of its output_keys"),
        ({"output_keys": ["exact_match_results", "exact_match_result"]}, "no unit metric writes the output key 'exact_match_results'"),
    ],
)  # fmt: skip
def test_problems_of_the_node_are_reported_before_the_run(change: dict[str, Any], expected: str) -> None:
    assert check_unit_metrics(NODE, here) == []
    assert expected in messages_of(check_unit_metrics({**NODE, **change}, here))


def test_a_metric_that_runs_code_is_known_before_the_run() -> None:
    assert not runs_code(NODE)
    assert runs_code({**NODE, "unit_metrics_map": [{"name": "code_exec"}]})


# --- names of SyGra, and what is beside the metrics ---------------------------------------------------------------------------

HELPER = """
from tasks.eval.utils import UnitMetrics, parse_response_as_json
from sygra.core.eval.metrics.unit_metrics.base_unit_metric import BaseUnitMetric
from sygra.core.eval.metrics.unit_metrics.exact_match import ExactMatchMetric
from sygra.core.eval.metrics.unit_metrics.unit_metric_registry import unit_metric
from sygra.core.eval.metrics.unit_metrics.unit_metric_result import UnitMetricResult
from sygra.core.graph.functions.node_processor import NodePostProcessorWithState
from sygra.core.graph.sygra_message import SygraMessage
from sygra.core.graph.sygra_state import SygraState
from sygra.logger.logger_config import logger
from sygra.utils import constants
import sygra.processors.data_transform


class TopicPostProcessor(NodePostProcessorWithState):
    def apply(self, resp: SygraMessage, state: SygraState) -> SygraState:
        state["topic"] = parse_response_as_json(resp.message.content)["topic"]
        return state


@unit_metric("never")
class Never(BaseUnitMetric):
    def evaluate(self, golden, predicted):
        return [UnitMetricResult(correct=False, golden=g, predicted=p) for g, p in zip(golden, predicted)]


END = constants.SYGRA_END
"""


def test_helper_code_written_for_sygra_is_loaded_without_sygra(tmp_path: Path) -> None:
    (tmp_path / "task_executor.py").write_text(HELPER)
    helper = HelperCode()
    processor = resolve_dotted("task_executor.TopicPostProcessor", str(tmp_path), helper)()
    message = resolve_dotted("sygra.core.graph.sygra_message.SygraMessage", None, helper)

    class Said:
        content = 'It is {"topic": "Music"}'

    assert processor.apply(message(Said()), {}) == {"topic": "Music"}
    assert resolve_dotted("task_executor.END", str(tmp_path), helper) == "__end__"
    assert not scored("never", {"text": "a"}, {"text": "a"}).correct
    assert resolve_dotted("tasks.eval.utils.UnitMetrics", str(tmp_path), helper) is UnitMetrics


def test_a_users_tasks_package_takes_precedence_over_assays(tmp_path: Path) -> None:
    folder = tmp_path / "tasks" / "eval" / "mine"
    folder.mkdir(parents=True)
    (folder / "task_executor.py").write_text("from tasks.eval.utils import OWN\nfrom tasks.eval import utils\nimport tasks.eval.mine.other\nSUM = OWN + utils.OWN + tasks.eval.mine.other.MORE\n")  # fmt: skip
    (folder / "other.py").write_text("MORE = 1\n")
    (folder.parent / "utils.py").write_text("from sygra.utils.constants import SYGRA_END\nOWN = 20\n")
    helper = HelperCode()
    assert resolve_dotted("tasks.eval.mine.task_executor.SUM", str(folder), helper) == 41
    assert resolve_dotted("tasks.eval.utils.OWN", str(folder), helper) == 20


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "task_executor.TopicPostProcesor",
            "task_executor.py has no 'TopicPostProcesor' — did you mean 'TopicPostProcessor'?",
        ),
        ("task_executr.X", "no module named 'task_executr' — did you mean 'task_executor'?"),
        ("tasks.eval.utils.UnitMetric", "did you mean 'UnitMetrics'?"),
        ("UnitMetrics", "UnitMetrics: no module named 'UnitMetrics' — "),
        ("broken.X", "the module cannot be loaded: ZeroDivisionError"),
        ("needy.X", "pip install no_such_library"),
    ],
)
def test_a_dotted_name_that_means_nothing_is_refused_at_its_place(tmp_path: Path, path: str, expected: str) -> None:
    (tmp_path / "task_executor.py").write_text(HELPER)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "needy.py").write_text("import no_such_library\n")
    with pytest.raises(ConfigError) as refused:
        resolve_dotted(path, str(tmp_path), HelperCode(), HERE)
    assert expected in str(refused.value)
    assert str(refused.value).startswith("graph_config.yaml:7:3: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": {"b": 1}}', {"a": {"b": 1}}),
        ('so {x} then {"a": "}"} and {"a": 2}', {"a": "}"}),
        ("[1, 2]", {"value": [1, 2]}),
        ("no answer", None),
        (None, None),
        ("{" * 5000, None),
    ],
)
def test_the_first_object_in_a_reply_is_found(text: Any, expected: Any) -> None:
    assert parse_response_as_json(text) == expected


def test_fields_are_renamed_and_a_taken_name_is_kept_unless_it_may_be_overwritten() -> None:
    params = {"mapping": {"task_id": "original_index", "b": "c"}, "overwrite": False}
    built = RenameFieldsTransform().transform([{"task_id": 1, "b": 2, "c": 3}], params)
    assert built == [{"original_index": 1, "b": 2, "c": 3}]
    assert RenameFieldsTransform().transform([{"b": 2, "c": 3}], {"mapping": {"b": "c"}, "overwrite": True}) == [
        {"c": 2}
    ]
    with pytest.raises(ConfigError, match="did you mean 'overwrite'"):
        RenameFieldsTransform().transform([], {"mapping": {}, "overwrit": True})


def test_records_are_skipped_by_ranges_and_by_counts() -> None:
    rows = [{"n": n} for n in range(6)]
    assert SkipRecords().transform(rows, {"range": "[:2],[-1:]"}) == [{"n": 2}, {"n": 3}, {"n": 4}]
    counted = {"skip_type": "count", "count": {"from_start": 1, "from_end": 2}}
    assert SkipRecords().transform(rows, counted) == [{"n": 1}, {"n": 2}, {"n": 3}]
    with pytest.raises(ConfigError, match="invalid range"):
        SkipRecords().transform(rows, {"range": "2-3"})


def test_records_are_combined_in_windows_the_last_included() -> None:
    rows = [{"n": n} for n in range(4)]
    params = {"combine": 2, "shift": 1, "join_column": {"n": "$1-$2"}}
    assert CombineRecords().transform(rows, params) == [{"n": "0-1"}, {"n": "1-2"}, {"n": "2-3"}]
    as_there = CombineRecords()
    as_there.run_dialect = dialect_of("sygra")
    assert as_there.transform(rows, params) == [{"n": "0-1"}, {"n": "1-2"}]
