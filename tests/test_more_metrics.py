"""Metrics that lm-eval does not have, as task files name them, end to end. Expected values are worked out by hand."""

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from assay import ConfigError
from assay.scoring.filters import FILTERS
from assay.scoring.metrics.registry import METRICS
from run_world import failed_in, rows_of, sample_rows
from small_runs import choose, generate, noting, run, says, write_task


def row(results: Any) -> dict[str, Any]:
    result_row = results["results"]["t"]
    return {key.removesuffix(",none"): result_row[key] for key in result_row if "," in key and "_stderr," not in key}


def metric(entry: str) -> str:
    return f"metric_list: [{{{entry}}}]\n"


# --- texts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["token_f1", "f1_score"])
def test_f1_score_is_that_of_words(name: str, tmp_path: Path) -> None:
    """`the black cat` has 2 words of which 1 is right; of 1 wanted it is found: 2·1/(2+1). Articles do not count."""
    assert row(generate(tmp_path, ["The black cat.", "dog"], ["a cat", "cat"], metric(f"metric: {name}"))) == {
        name: pytest.approx((2 / 3 + 0) / 2)
    }


def test_rouge_gives_a_row_for_each_kind(tmp_path: Path) -> None:
    """`the cat` against `the cat sat`: 2 of 2 and 2 of 3 words, 0.8; 1 of 1 and 1 of 2 pairs of words, 2/3."""
    result_row = row(generate(tmp_path, ["the cat"], ["the cat sat"], metric("metric: rouge")))
    assert result_row == pytest.approx({"rouge1": 0.8, "rouge2": 2 / 3, "rougeL": 0.8, "rougeLsum": 0.8}, abs=1e-12)
    assert row(generate(tmp_path, ["the cat"], ["the cat sat"], metric("metric: rouge, rouge_types: [rouge2]"))) == {
        "rouge2": pytest.approx(2 / 3)
    }
    assert row(generate(tmp_path, ["the cat"], ["the cat sat"], metric("metric: rougeL"))) == {
        "rougeL": pytest.approx(0.8)
    }


def test_rouge_of_several_references_is_that_of_the_best(tmp_path: Path) -> None:
    result_row = row(generate(tmp_path, ["the cat"], [["a dog", "the cat"]], metric("metric: rouge1")))
    assert result_row == {"rouge1": 1.0}


def test_a_group_can_aggregate_a_kind_of_rouge(tmp_path: Path) -> None:
    """What a metric of several values gives is known before the run, so a group may name it."""
    write_task(tmp_path, [{"q": "0", "gold": "a b"}], "doc_to_text: q\ndoc_to_target: gold\n" + metric("metric: rouge"))
    group = "group: g\ntask: [t]\naggregate_metric_list: [{metric: NAME, filter_list: none}]\n"
    (tmp_path / "g.yaml").write_text(group.replace("NAME", "rouge1"))
    assert run(tmp_path, says(["a"]), "g")["results"]["g"]["rouge1,none"] == pytest.approx(2 / 3)
    (tmp_path / "g.yaml").write_text(group.replace("NAME", "rouge3"))
    with pytest.raises(ConfigError, match="rouge3"):
        run(tmp_path, says(["a"]), "g")


def test_bleu_with_mean_is_that_of_each_sentence(tmp_path: Path) -> None:
    """A sentence of four words that is equal has 100, one without a word in common 0."""
    answers, golds = ["a b c d", "x y z w"], ["a b c d", "a b c d"]
    result_row = row(generate(tmp_path, answers, golds, metric("metric: bleu, aggregation: mean")))
    assert result_row == {"bleu": pytest.approx(50.0)}
    result_row = row(generate(tmp_path, answers, golds, metric("metric: ter, aggregation: mean")))
    assert result_row == {"ter": pytest.approx(50.0)}


def test_edits_as_number_and_as_similarity(tmp_path: Path) -> None:
    """kitten to sitting: two replaced, one put in; 1 - 3/7."""
    yaml = "metric_list: [{metric: edit_distance}, {metric: edit_similarity}]\n"
    results = generate(tmp_path, ["sitting", ""], ["kitten", ""], yaml)
    assert row(results) == pytest.approx({"edit_distance": 1.5, "edit_similarity": (4 / 7 + 1) / 2})
    assert results["higher_is_better"]["t"] == {"edit_distance": False, "edit_similarity": True}


def test_mathematics_from_the_whole_answer_to_the_score(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    yaml = "filter_list: [{name: none, filter: [{function: math}, {function: take_first}]}]\n" + metric(
        "metric: math_equal"
    )
    answers = [r"so \boxed{\frac{1}{2}}", "The answer is 0.5.", "it is 2", "no idea"]
    results = generate(tmp_path, answers, ["1/2"] * 4, yaml)
    assert row(results) == {"math_equal": 0.5}
    assert results["assay"]["tasks"]["t"]["noticed"] == {"no match by filter none": 1}


@pytest.mark.slow
def test_a_comparison_without_end_makes_the_answer_wrong(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    results = generate(tmp_path, ["9^{9^{9^{9}}}", "1"], ["1", "1"], metric("metric: math_equal"))
    assert (row(results), failed_in(results)) == ({"math_equal": 0.5}, 0)


# --- classes --------------------------------------------------------------------------------------------------------

GOLDS = ["a", "a", "a", "b", "b", "c"]
SAID = ["a", "a", "b", "b", "c", "a"]
"""a: 2 of 3 given and 2 of 3 right; b: 1 of 2 and 1 of 2; c: 0 of 1 and 0 of 1."""


def test_scores_of_each_class_and_over_all(tmp_path: Path) -> None:
    entries = "{metric: f1_by_class, labels: [a, b, c]}, {metric: macro_f1}, {metric: micro_f1}, {metric: weighted_f1}"
    result_row = row(generate(tmp_path, SAID, GOLDS, f"metric_list: [{entries}, {{metric: precision, label: a}}]\n"))
    of_class = {"f1[a]": 2 / 3, "f1[b]": 0.5, "f1[c]": 0.0}
    over = {"macro_f1": (2 / 3 + 0.5) / 3, "micro_f1": 0.5, "weighted_f1": (3 * 2 / 3 + 2 * 0.5) / 6}
    assert result_row == pytest.approx({**of_class, **over, "precision": 2 / 3})


def test_classes_of_choices_are_their_words(tmp_path: Path) -> None:
    lls = [[0.0 if choice == said else -1.0 for choice in "abc"] for said in SAID]
    yaml = "metric_list: [{metric: recall_by_class}, {metric: macro_recall}, {metric: recall, label: b}]\n"
    result_row = row(choose(tmp_path, lls, GOLDS, ["a", "b", "c"], yaml))
    assert result_row == pytest.approx(
        {"recall[a]": 2 / 3, "recall[b]": 0.5, "recall[c]": 0.0, "macro_recall": (2 / 3 + 0.5) / 3, "recall": 0.5}
    )


def test_invalid_answers_are_a_class_unless_labels_are_named(tmp_path: Path) -> None:
    """F1 is 1 for a, 2/3 for b (given once, right twice), 0 for [invalid]."""
    golds, said = ["a", "b", "b"], ["a", "b", "[invalid]"]
    yaml = "metric_list: [{metric: macro_f1}]\n"
    assert row(generate(tmp_path, said, golds, yaml))["macro_f1"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    yaml = "metric_list: [{metric: macro_f1, labels: [a, b]}]\n"
    assert row(generate(tmp_path, said, golds, yaml))["macro_f1"] == pytest.approx((1 + 2 / 3) / 2)


def test_scores_over_classes_have_errors(tmp_path: Path) -> None:
    results = generate(tmp_path, SAID, GOLDS, "metric_list: [{metric: micro_f1}]\n")
    assert results["results"]["t"]["micro_f1_stderr,none"] == pytest.approx(math.sqrt(0.25 * 6 / 5 / 6))


def test_scores_of_classes_are_kept_with_the_samples(tmp_path: Path) -> None:
    """By class a document has (found, given, right): a was right and b was given."""
    yaml = "metric_list: [{metric: f1_by_class, labels: [a, b]}, {metric: macro_f1}]\n"
    generate(tmp_path, ["b", "a"], ["a", "a"], yaml, output_path=str(tmp_path / "out"), log_samples=True)
    [first, _] = sample_rows(tmp_path / "out/samples/t.parquet")
    expected = {"f1[a],none": [0, 0, 1], "f1[b],none": [0, 1, 0], "macro_f1,none": ["a", "b"]}
    assert first["scores"] == expected


def test_a_choice_with_a_comma_has_a_row_that_can_be_read(tmp_path: Path) -> None:
    """Metric and filter are joined by a comma in results.json, as in lm-eval."""
    result = choose(tmp_path, [[-1.0, 0.0]], [1], ["no", "yes, it is"], "metric_list: [{metric: f1_by_class}]\n")
    assert row(result) == {"f1[no]": 0.0, "f1[yes; it is]": 1.0}


def test_evaluates_rouge_takes_the_parameters_that_evaluate_knows(tmp_path: Path) -> None:
    yaml = metric("metric: rouge, hf_evaluate: true, aggregation: mean, use_aggregator: true, rouge_types: [rouge1]")
    assert row(generate(tmp_path, ["the cat"], ["the cat sat"], yaml)) == {"rouge1": pytest.approx(0.8)}


def test_a_class_that_never_occurs_is_reported(tmp_path: Path) -> None:
    results = generate(tmp_path, SAID, GOLDS, "metric_list: [{metric: macro_f1, labels: [x, y]}]\n")
    assert "none of the right answers is one of the labels 'x', 'y'" in str(rows_of(results, "t"))


@pytest.mark.parametrize(
    ("counts", "labels", "note"),
    [
        ({"a": 8, "b": 2}, "", "classes with fewer than 5 documents ('b' 2)"),
        ({"a": 8, "b": 5}, "", None),
        ({"a": 8, "b": 5}, ", labels: [a, b, c]", "classes with fewer than 5 documents ('c' 0)"),
        ({"a": 8, "b": 1}, ", labels: [a]", None),
        ({"a": 3, "b": 4}, "", "classes with fewer than 5 documents ('a' 3, 'b' 4)"),
    ],
)
@pytest.mark.parametrize("named", ["macro_f1", "macro_recall", "weighted_f1"])
def test_a_class_with_fewer_than_five_documents_is_noted(
    named: str, counts: dict[str, int], labels: str, note: str | None, tmp_path: Path
) -> None:
    golds = [label for label, count in counts.items() for _ in range(count)]
    entry = f"metric_list: [{{metric: {named}{labels}}}]\n"
    about = rows_of(generate(tmp_path, [*golds[1:], "a"], golds, entry), "t")[f"{named},none"]
    assert about.get("note", "").startswith(note) if note else "note" not in about


def test_the_score_of_a_class_with_fewer_than_five_documents_is_noted(tmp_path: Path) -> None:
    yaml = "metric_list: [{metric: f1_by_class, labels: [a, b]}]\n"
    rows = rows_of(generate(tmp_path, ["a"] * 8 + ["b"] * 4, ["a"] * 9 + ["b"] * 3, yaml), "t")
    assert (rows["f1[b],none"]["note"].split(":")[0], "note" in rows["f1[a],none"]) == (
        "its class has 3 documents",
        False,
    )


# --- the page ------------------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parent.parent / "docs/metrics.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*METRICS, *FILTERS])
def test_every_metric_and_filter_is_on_its_page(name: str) -> None:
    assert f"`{name}`" in PAGE


# --- refusals -------------------------------------------------------------------------------------------------------

WRONG = {
    "no metric named 'token_f2'.*token_f1": "{metric: token_f2}",
    "no metric named 'rouge_l'.*rougeL": "{metric: rouge_l}",
    "no metric named 'macrof1'.*macro_f1": "{metric: macrof1}",
    "metric 'rouge1' has no parameter 'use_stemer'.*use_stemmer": "{metric: rouge1, use_stemer: true}",
    "unknown kind of ROUGE 'rougeX'": "{metric: rouge, rouge_types: [rougeX]}",
    "metric 'precision' needs the parameter 'label'": "{metric: precision}",
    "metric 'f1_by_class' needs the parameter 'labels'": "{metric: f1_by_class}",
    "a label must be a word or an integer, got True: put it in quotes": "{metric: macro_f1, labels: [yes, no]}",
    "'label' cannot be False — it must be of type str; put it in quotes": "{metric: recall, label: no}",
    "labels must be a list": "{metric: macro_f1, labels: a}",
    "metric 'macro_f1' has no parameter 'label'": "{metric: macro_f1, label: a}",
}


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_metric_is_refused_before_any_request(said: str, tmp_path: Path) -> None:
    asked: list[str] = []
    yaml = f"doc_to_text: q\ndoc_to_target: gold\nmetric_list: [{WRONG[said]}]\n"
    write_task(tmp_path, [{"q": "0", "gold": "a"}], yaml)
    with pytest.raises(ConfigError, match=said):
        run(tmp_path, noting(asked))
    assert asked == []


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("rouge", "rouge_score", "metrics"), ("bleu", "sacrebleu", "metrics"), ("math_equal", "math_verify", "math")],
)
def test_a_missing_library_is_reported_with_its_extra(
    name: str, module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as on a machine without it
    asked: list[str] = []
    write_task(tmp_path, [{"q": "0", "gold": "a"}], f"doc_to_text: q\ndoc_to_target: gold\n{metric(f'metric: {name}')}")
    with pytest.raises(ConfigError, match=rf"\[{extra}\]'"):
        run(tmp_path, noting(asked))
    assert asked == []


def test_a_metric_of_helper_code_keeps_its_name(tmp_path: Path) -> None:
    """A task that registers its own `token_f1` means that one."""
    (tmp_path / "own.py").write_text(
        "from lm_eval.api.registry import register_metric\n"
        "@register_metric(metric='token_f1', higher_is_better=True, aggregation='mean')\n"
        "def token_f1(references, predictions):\n    return 7.0\n"
        "def same(docs):\n    return docs\n"
    )
    yaml = "process_docs: !function own.same\n" + metric("metric: token_f1")
    assert row(generate(tmp_path, ["a"], ["a"], yaml)) == {"token_f1": 7.0}


def test_values_that_a_task_computes_itself_are_not_taken_for_ours(tmp_path: Path) -> None:
    """`precision` of process_results is a number that is averaged, as the file says."""
    (tmp_path / "own.py").write_text("def values(doc, results):\n    return {'precision': float(results[0])}\n")
    yaml = "process_results: !function own.values\nmetric_list: [{metric: precision, aggregation: mean}]\n"
    assert row(generate(tmp_path, ["1", "2"], ["a", "a"], yaml)) == {"precision": 1.5}
