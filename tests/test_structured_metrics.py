"""Word errors, JSON by its schema, rankings: by hand, by jiwer 4.0.0, rapidfuzz and scikit-learn."""

import json
import math
import random
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein
from sklearn.metrics import label_ranking_average_precision_score, ndcg_score

from assay import ConfigError
from assay.scoring.metrics.structured import STRUCTURED_METRICS, read_gains, read_items, schema_validator
from assay.scoring.results import GENERATE
from run_world import rows_of
from small_runs import generate, noting, run, write_task


def values(results: Any) -> dict[str, Any]:
    return {name.removesuffix(",none"): row["value"] for name, row in rows_of(results, "t").items()}


def called(name: str, references: list[str], answer: str, **parameters: Any) -> Any:
    return STRUCTURED_METRICS[name].functions[GENERATE](references, answer, **parameters)


# --- word errors -------------------------------------------------------------------------------------------------------

SAID = ["the cat sat on the mat", "hello world", "one two three four five", "it is  a test", "naïve café"]
HEARD = ["the cat sat mat", "hello there big world", "one two three four five", "it was a Test", "naive cafe"]
WER, CER = 0.42105263157894735, 0.2911392405063291
"""Of all five by jiwer 4.0.0, which normalizes nothing but spaces."""
EACH = [1 / 3, 1.0, 0.0, 0.5, 1.0]
"""wer of each by jiwer 4.0.0."""


def test_error_rates_are_those_of_jiwer(tmp_path: Path) -> None:
    results = generate(tmp_path, HEARD, SAID, "metric_list: [{metric: wer}, {metric: cer}]\n")
    # jiwer counts the second of two spaces as a character of the reference
    characters = round(CER * 79)
    assert values(results) == pytest.approx({"wer": WER, "cer": (characters - 1) / 78})
    assert [above / below for above, below in (called("wer", [r], h) for r, h in zip(SAID, HEARD, strict=True))] == EACH
    assert results["higher_is_better"]["t"] == {"wer": False, "cer": False}


def test_a_line_break_between_words_joins_them_as_in_jiwer() -> None:
    """jiwer 4.0.0: `b\\nc` is one word that is wrong, of three; of more white space than one character every word ends."""
    assert called("wer", ["a b c"], "a b\nc") == (2, 3)
    assert called("wer", ["a b c"], "a b \n c") == (0, 3)


def test_the_error_of_a_rate_is_that_of_a_ratio(tmp_path: Path) -> None:
    """By hand: edits 2, 2, 0, 2, 2 of words 6, 2, 5, 4, 2, so r = 8/19; residuals e − r·w over the mean of 3.8 words."""
    row = rows_of(generate(tmp_path, HEARD, SAID, "metric_list: [{metric: wer}]\n"), "t")["wer,none"]
    off = np.array([2, 2, 0, 2, 2]) - 8 / 19 * np.array([6, 2, 5, 4, 2])
    assert row["stderr"] == pytest.approx(np.std(off / 3.8, ddof=1) / math.sqrt(5))
    assert row["interval"][0] >= 0


def test_words_are_compared_as_asked(tmp_path: Path) -> None:
    entry = "metric_list: [{metric: wer, ignore_case: true, ignore_punctuation: true}]\n"
    assert values(generate(tmp_path, ["Hello, World!"], ["hello world"], entry)) == {"wer": 0.0}


def test_with_mean_it_is_the_rate_of_each_document(tmp_path: Path) -> None:
    """As in lm-eval's wmt16-ro-en-t5, which takes it from `evaluate`."""
    entry = "metric_list: [{metric: wer, aggregation: mean, higher_is_better: false}]\n"
    results = generate(tmp_path, HEARD, SAID, entry)
    assert values(results) == {"wer": pytest.approx(sum(EACH) / 5)}


def test_the_nearest_reference_counts() -> None:
    assert called("wer", ["a b c", "x y z"], "x y") == (1, 3)


def test_empty_references_have_no_rate(tmp_path: Path) -> None:
    results = generate(tmp_path, ["a", "b"], ["", ""], "metric_list: [{metric: wer}]\n")
    assert "all references are empty" in rows_of(results, "t")["wer,none"]["reason"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_edits_of_words_are_those_of_rapidfuzz(one: list[str], other: list[str]) -> None:
    assert called("wer", [" ".join(one)], " ".join(other)) == (Levenshtein.distance(one, other), len(one))


# --- JSON ----------------------------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 1}}}
ANSWERS = {
    '{"a": 1}': 1.0, ' {"a": 2, "b": []}\n': 1.0, '{"a": 0}': 0.0, '{"a": "1"}': 0.0, "{}": 0.0, "[]": 0.0, "": 0.0,
    '{"a": 1': 0.0, "Sure: {\"a\": 1}": 0.0, '{"a": NaN}': 0.0, "[" * 5000: 0.0, '```json\n{"a": 1}\n```': 0.0,
}  # fmt: skip


def test_json_fits_its_schema(tmp_path: Path) -> None:
    entry = f"metric_list: [{{metric: json_schema, schema: {json.dumps(SCHEMA)}}}]\n"
    results = generate(tmp_path, list(ANSWERS), ["x"] * len(ANSWERS), entry)
    assert values(results) == {"json_schema": pytest.approx(2 / len(ANSWERS))}
    assert [called("json_schema", ["x"], answer, schema=SCHEMA) for answer in ANSWERS] == list(ANSWERS.values())
    assert called("json_schema", ["x"], '```json\n{"a": 1}\n```', schema=SCHEMA, fenced=True) == 1.0


def test_every_document_may_have_its_own_schema(tmp_path: Path) -> None:
    golds = [json.dumps({"type": "integer"}), json.dumps({"type": "string"}), "no schema"]
    results = generate(tmp_path, ["3", "3", "3"], golds, "metric_list: [{metric: json_schema}]\n")
    assert values(results) == {"json_schema": 0.5}
    assert "the target is not a JSON Schema" in str(results["assay"]["tasks"]["t"]["reasons"])


@pytest.mark.parametrize(
    ("said", "schema"),
    [("the JSON Schema is invalid", "{type: integre}"), ("cannot be 'x.json'", "x.json")],
)
def test_a_wrong_schema_is_refused_before_any_request(said: str, schema: str, tmp_path: Path) -> None:
    asked: list[str] = []
    metric = f"metric_list: [{{metric: json_schema, schema: {schema}}}]\n"
    write_task(tmp_path, [{"q": "0", "gold": "a"}], f"doc_to_text: q\ndoc_to_target: gold\n{metric}")
    with pytest.raises(ConfigError, match=said):
        run(tmp_path, noting(asked))
    assert asked == []


def test_a_schema_elsewhere_is_not_fetched() -> None:
    with pytest.raises(ValueError, match=r"refers to 'http://localhost:1/x.json', which is not in it"):
        schema_validator({"$ref": "http://localhost:1/x.json"})(1)


JSON = st.recursive(st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2), lambda inner: st.lists(
    inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2), max_leaves=5)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_validity_is_that_of_jsonschema(value: Any) -> None:
    expected = jsonschema.Draft202012Validator(SCHEMA).is_valid(value)
    assert called("json_schema", ["x"], json.dumps(value), schema=SCHEMA) == float(expected)


# --- rankings --------------------------------------------------------------------------------------------------------------


def test_rankings_by_hand(tmp_path: Path) -> None:
    """The answers rank d1 first and d2 third; d4 is not found. The best three places would give 1 + 1/log2(3) + 1/2."""
    golds, yaml = (
        [["d1", "d2", "d4"]] * 2,
        """
        metric_list:
          - {metric: ndcg, k: 3, name: ndcg@3}
          - {metric: mrr}
          - {metric: recall_at_k, k: 3, name: recall@3}
          - {metric: precision_at_k, k: 5, name: precision@5}
    """,
    )
    answers = ["1. d1\n2. d3\n3. d2\n", '["d1", "d3", "d2"]']
    assert values(generate(tmp_path, answers, golds, yaml)) == pytest.approx({
        "ndcg@3": 1.5 / (1.5 + 1 / math.log2(3)), "mrr": 1.0, "recall@3": 2 / 3, "precision@5": 2 / 5,
    })  # fmt: skip


def test_lists_are_read_as_models_write_them() -> None:
    for text in ("1. b\n2. a", "- b\n- a\n", "b\n\n a ", '["b", "a"]', "* b\n* a\n* b", "1) b\n2) a"):
        assert read_items(text) == ["b", "a"], text
    assert read_gains(['{"b": 2, "a": 0}']) == {"b": 2.0, "a": 0.0}
    for wrong in ('{"b": -1}', '{"b": "high"}', '{"b": 0}', ""):
        with pytest.raises(ValueError, match=r"gain of 0 or more|no relevant item"):
            read_gains([wrong])


@pytest.mark.parametrize("seed", range(20))
def test_gains_are_those_of_scikit_learn(seed: int) -> None:
    draw = random.Random(seed)
    gains = [draw.choice([0, 0, 1, 2, 3]) for _ in range(8)]
    gains[draw.randrange(8)] = 3
    order = draw.sample(range(8), 8)
    scores = [[8 - order.index(item) for item in range(8)]]
    answer, target = "\n".join(f"d{item}" for item in order), json.dumps({f"d{i}": g for i, g in enumerate(gains)})
    for k in (None, 1, 3, 8, 20):
        assert called("ndcg", [target], answer, k=k) == pytest.approx(ndcg_score([gains], scores, k=k))
    one = [int(item == order[5]) for item in range(8)]
    expected = label_ranking_average_precision_score([one], scores)
    assert called("mrr", [f"d{order[5]}"], answer) == pytest.approx(expected)


@settings(max_examples=80, deadline=None)
@given(st.permutations([f"d{n}" for n in range(6)]), st.sets(st.integers(0, 5), min_size=1), st.integers(1, 8))
def test_laws_of_rankings(order: list[str], relevant: set[int], k: int) -> None:
    """Between 0 and 1; relevant items first are best; recall and precision count the same items."""
    targets, answer = [f"d{n}" for n in sorted(relevant)], "\n".join(order)
    scores = {name: called(name, targets, answer, k=k) for name in ("ndcg", "mrr", "recall_at_k", "precision_at_k")}
    assert all(0 <= score <= 1 for score in scores.values())
    assert scores["recall_at_k"] * len(relevant) == pytest.approx(scores["precision_at_k"] * k)
    best = "\n".join(sorted(order, key=lambda item: item not in targets))
    assert called("ndcg", targets, best, k=k) == pytest.approx(1.0) and called("mrr", targets, best, k=k) == 1.0
    assert (scores["mrr"] == 0) == (scores["recall_at_k"] == 0)
