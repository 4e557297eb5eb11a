"""What each metric makes of answers, end to end. Expected values are worked out by hand, or come from lm_eval 0.4.13,
scikit-learn, sacrebleu or rouge_score, as said beside them."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, matthews_corrcoef

from assay import ConfigError
from assay.models import Scripted
from assay.scoring.metrics.registry import exact_match
from run_world import failed_in, rows_of
from small_runs import ANYTHING, SAMPLED, choose, continue_, generate, noting, processed, roll, run, says, write_task


def row(results: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of the one task, without their errors."""
    result_row = results["results"]["t"]
    return {key.removesuffix(",none"): result_row[key] for key in result_row if "," in key and "_stderr," not in key}


def metrics(*names: str) -> str:
    return f"metric_list: [{', '.join(f'{{metric: {name}}}' for name in names)}]\n"


# --- choices ------------------------------------------------------------------------------------------------------


def test_acc_is_the_share_of_rows_whose_likeliest_choice_is_right(tmp_path: Path) -> None:
    lls = [[-1.0, -2.0], [-1.0, -2.0], [-3.0, -2.5], [-9.0, -0.1]]
    assert row(choose(tmp_path, lls, [0, 1, 1, 1], ["a", "b"], metrics("acc"))) == {"acc": 0.75}


def test_of_equally_likely_choices_the_first_is_taken(tmp_path: Path) -> None:
    lls = [[-2.0, -1.0, -1.0]] * 2
    assert row(choose(tmp_path, lls, [1, 2], ["a", "b", "c"], metrics("acc"))) == {"acc": 0.5}


def test_acc_norm_divides_by_characters_and_acc_bytes_by_bytes(tmp_path: Path) -> None:
    """-4, -5 and -5 over 1, 2, 4 characters are -4, -2.5, -1.25; over 1, 8, 4 bytes -4, -0.625, -1.25. The space before a choice does not count."""
    lls = [[-4.0, -5.0, -5.0]]
    result_row = row(choose(tmp_path, lls, [2], ["a", "🙂🙂", "abcd"], metrics("acc", "acc_norm", "acc_bytes")))
    assert result_row == {"acc": 0.0, "acc_norm": 1.0, "acc_bytes": 0.0}


def test_each_way_to_count_has_its_own_winner(tmp_path: Path) -> None:
    for number, right in enumerate(["acc", "acc_bytes", "acc_norm"]):
        result_row = row(choose(tmp_path / right, [[-4.0, -5.0, -5.0]], [number], ["a", "🙂🙂", "abcd"], metrics("acc", "acc_norm", "acc_bytes")))  # fmt: skip
        assert result_row == {"acc": 0.0, "acc_norm": 0.0, "acc_bytes": 0.0} | {right: 1.0}


def test_choices_are_scored_by_acc_and_acc_norm_by_default(tmp_path: Path) -> None:
    assert row(choose(tmp_path, [[-1.0, -1.5]], [1], ["a", "bb"])) == {"acc": 0.0, "acc_norm": 1.0}


def test_acc_mutual_info_subtracts_the_unconditional_loglikelihood_of_a_choice(tmp_path: Path) -> None:
    """Gains are -1 + 2 = 1 and -4 + 3 = -1 in the first row, 0 and 2 in the second: choices 0 and 1."""
    lls, alone = [[-1.0, -4.0], [-2.0, -1.0]], [-2.0, -3.0]
    result_row = row(choose(tmp_path, lls, [0, 1], ["a", "b"], metrics("acc", "acc_mutual_info"), alone=alone))
    assert result_row == {"acc": 1.0, "acc_mutual_info": 1.0}
    lls = [[-1.0, -1.5], [-1.0, -1.5]]
    result_row = row(
        choose(tmp_path / "2", lls, [1, 1], ["a", "b"], metrics("acc", "acc_mutual_info"), alone=[-0.5, -3.0])
    )
    assert result_row == {"acc": 0.0, "acc_mutual_info": 1.0}


def test_exact_match_of_a_choice_is_whether_the_model_would_say_it(tmp_path: Path) -> None:
    lls = [[-1.0, -2.0]] * 3
    greedy = {(0, 0), (1, 0)}
    result = choose(
        tmp_path, lls, [0, 1, 1], ["a", "b"], metrics("exact_match", "exact_match_mc"), greedy=lambda *at: at in greedy
    )
    assert row(result) == {"exact_match": 1 / 3, "exact_match_mc": 1 / 3}


def test_a_right_choice_may_be_given_by_its_words(tmp_path: Path) -> None:
    assert row(choose(tmp_path, [[-1.0, -2.0]] * 2, ["red", "blue"], ["red", "blue"], metrics("acc"))) == {"acc": 0.5}


def test_of_several_right_choices_any_counts(tmp_path: Path) -> None:
    lls = [[-1.0, -2.0, -3.0], [-3.0, -2.0, -1.0], [-3.0, -1.0, -2.0]]
    names = metrics("acc", "acc_norm", "exact_match")
    result = choose(
        tmp_path, lls, [[0, 1], [0, 1], [1, 2]], ["a", "b", "c"], names, greedy=lambda r, c: (r, c) == (1, 1)
    )
    assert row(result) == {"acc": 2 / 3, "acc_norm": 2 / 3, "exact_match": 1 / 3}


LABELS = ([0, 0, 1, 1, 1, 0, 1, 1, 0, 1], [0, 1, 1, 0, 1, 0, 1, 1, 1, 1])
"""Right and chosen: 5 true positives, 2 false ones, 1 false negative, 2 true negatives."""


def as_lls(chosen: list[int], count: int = 2) -> list[list[float]]:
    return [[-1.0 if choice == best else -2.0 for choice in range(count)] for best in chosen]


def test_f1_and_mcc_of_two_choices(tmp_path: Path) -> None:
    golds, chosen = LABELS
    result_row = row(choose(tmp_path, as_lls(chosen), golds, ["no", "yes"], metrics("f1", "mcc"), bootstrap_iters=0))
    assert result_row["f1"] == pytest.approx(10 / 13, abs=1e-12)  # 2·5 / (2·5 + 2 + 1)
    assert result_row["mcc"] == pytest.approx((5 * 2 - 2 * 1) / math.sqrt(7 * 6 * 4 * 3), abs=1e-12)
    assert result_row == {"f1": f1_score(golds, chosen), "mcc": matthews_corrcoef(golds, chosen)}


def test_mcc_of_three_choices(tmp_path: Path) -> None:
    golds, chosen = [0, 1, 2, 2, 1, 0, 2], [0, 2, 2, 2, 1, 1, 0]
    result_row = row(choose(tmp_path, as_lls(chosen, 3), golds, ["a", "b", "c"], metrics("mcc"), bootstrap_iters=0))
    assert result_row["mcc"] == pytest.approx(float(matthews_corrcoef(golds, chosen)), abs=1e-12)


def test_mcc_is_nothing_where_all_is_one_class(tmp_path: Path) -> None:
    result_row = row(choose(tmp_path, as_lls([0, 0, 0]), [0, 1, 0], ["a", "b"], metrics("mcc"), bootstrap_iters=0))
    assert result_row["mcc"] == 0.0


def test_brier_score_is_the_square_distance_to_certainty(tmp_path: Path) -> None:
    """0.7, 0.3 for the first choice: 0.3² + 0.3² = 0.18; 0.2, 0.8 for the first: 0.8² + 0.8² = 1.28."""
    lls = [[math.log(0.7), math.log(0.3)], [math.log(0.2) - 5, math.log(0.8) - 5]]
    result_row = row(choose(tmp_path, lls, [0, 0], ["a", "b"], metrics("brier_score")))
    assert result_row["brier_score"] == pytest.approx((0.18 + 1.28) / 2, abs=1e-12)


def test_a_document_that_the_model_is_most_wrong_about_keeps_all_its_scores(tmp_path: Path) -> None:
    """The right choice is e^-799 as likely as the other, which is 0 as a float: by bytes the half of it."""
    names = metrics("acc", "choice_logprob", "choice_logprob_norm", "choice_prob_norm", "bpb")
    results = choose(tmp_path, [[-1.0, -800.0], [-800.0, -1.0]], [1, 1], ["aa", "bb"], names)
    expected = {"acc": 0.5, "choice_logprob": -399.5, "choice_logprob_norm": -199.75, "choice_prob_norm": 0.5}
    expected["bpb"] = 801 / 4 / math.log(2)
    assert row(results) == pytest.approx(expected, rel=1e-12)
    assert failed_in(results) == 0


def test_an_impossible_right_choice_has_no_finite_mean_and_no_error(tmp_path: Path) -> None:
    lls = [[-1.0, -math.inf], [-1.0, -2.0]]
    results = choose(tmp_path, lls, [1, 1], ["aa", "bb"], metrics("acc", "choice_logprob", "choice_prob_norm"))
    row = results["results"]["t"]
    assert (row["acc,none"], row["acc_stderr,none"], failed_in(results)) == (0.0, 0.0, 0)
    assert (row["choice_logprob,none"], row["choice_logprob_stderr,none"]) == (-math.inf, "N/A")
    assert row["choice_prob_norm,none"] == pytest.approx(math.exp(-1) / (math.exp(-0.5) + math.exp(-1)) / 2)


@pytest.mark.parametrize("ll", [-1e6, -math.inf])
def test_a_perplexity_beyond_all_floats_is_infinite_and_has_no_error(ll: float, tmp_path: Path) -> None:
    results = roll(tmp_path / "roll", {"b": ll, "aa": -3.0})["results"]["t"]
    for name in ("word_perplexity", "byte_perplexity"):
        assert (results[f"{name},none"], results[f"{name}_stderr,none"]) == (math.inf, "N/A")
    results = continue_(tmp_path / "continue", [(ll, False), (-1.0, True)])["results"]["t"]
    assert (results["perplexity,none"], results["perplexity_stderr,none"], results["acc,none"]) == (
        math.inf,
        "N/A",
        0.5,
    )


def test_likelihoods_of_the_right_choice(tmp_path: Path) -> None:
    """Probabilities 0.2 and 0.6 of 0.8: among the choices 0.25 and 0.75. `éé` has 4 bytes, `a` one."""
    lls = [[math.log(0.2), math.log(0.6)]]
    names = metrics("logprob", "bpb", "choice_logprob", "choice_prob_norm", "choice_logprob_norm")
    result_row = row(choose(tmp_path, lls, [1], ["a", "éé"], names))
    by_byte = 0.6**0.25 / (0.2 + 0.6**0.25)
    expected = {
        "logprob": math.log(0.6),
        "bpb": -math.log2(0.6) / 4,
        "choice_logprob": math.log(0.75),
        "choice_prob_norm": by_byte,
        "choice_logprob_norm": math.log(by_byte),
    }
    assert result_row == pytest.approx(expected, abs=1e-12)


def test_an_aggregation_of_ones_own_is_given_the_right_choice_and_all_likelihoods(tmp_path: Path) -> None:
    """lm-eval's `likelihood` is (gold, lls); its task mmlu_early_training aggregates that. lm_eval gives -4 here."""
    (tmp_path / "own.py").write_text("def total(items):\n    return sum(lls[gold] for gold, lls in items)\n")
    yaml = "metric_list: [{metric: likelihood, aggregation: !function own.total}]\n"
    assert row(choose(tmp_path, [[-1.0, -2.0], [-3.0, -1.0]], [0, 0], ["a", "b"], yaml)) == {"likelihood": -4.0}


# --- likelihoods --------------------------------------------------------------------------------------------------


def test_acc_and_perplexity_of_continuations(tmp_path: Path) -> None:
    result_row = row(continue_(tmp_path, [(-1.0, True), (-2.0, False), (-3.0, True), (-0.5, False)]))
    assert result_row == pytest.approx({"acc": 0.5, "perplexity": math.exp(6.5 / 4)}, abs=1e-12)


def test_an_impossible_continuation_has_an_infinite_perplexity_and_no_crash(tmp_path: Path) -> None:
    result_row = row(continue_(tmp_path, [(-2000.0, False), (-1.0, False)], metrics("perplexity"), bootstrap_iters=0))
    assert result_row == {"perplexity": math.inf}


def test_perplexities_of_texts_are_weighted_by_words_and_bytes(tmp_path: Path) -> None:
    """Words are what splitting at white space gives, so a blank at the end makes one more, and so does an empty text."""
    texts = {"one two  three ": -10.0, "été\n東京": -6.0}  # 4 and 2 words; 15 and 5 + 1 + 6 = 12 bytes
    assert row(roll(tmp_path, texts)) == pytest.approx(
        {
            "word_perplexity": math.exp(16 / 6),
            "byte_perplexity": math.exp(16 / 27),
            "bits_per_byte": 16 / 27 / math.log(2),
        },
        abs=1e-12,
    )


def test_perplexities_have_no_note_about_classes(tmp_path: Path) -> None:
    """Their aggregation is called `weighted_perplexity`, and is no `weighted_f1`: log-likelihoods are no classes."""
    rows = rows_of(roll(tmp_path, {"one": -1.0, "two words": -2.0, "now three words": -3.5}), "t")
    assert {name: about.get("note") for name, about in rows.items()} == {
        f"{metric},none": None for metric in ("word_perplexity", "byte_perplexity", "bits_per_byte")
    }


# --- generation ---------------------------------------------------------------------------------------------------

EXACT: dict[str, tuple[str, str, str, float]] = {
    "equal": ("", "Paris", "Paris", 1.0),
    "another case": ("", "paris", "Paris", 0.0),
    "white space counts": ("", "Paris ", "Paris", 0.0),
    "an empty answer": ("", "", "Paris", 0.0),
    "nothing for nothing": ("", "", "", 1.0),
    "case ignored": ("ignore_case: true", "pARIS", "Paris", 1.0),
    "case of all scripts ignored": ("ignore_case: true", "ÉTÉ ΑΣ", "été ας", 1.0),
    "case ignored does not fold ß": ("ignore_case: true", "STRASSE", "straße", 0.0),
    "punctuation ignored": ("ignore_punctuation: true", "It's, (so) to-day!", "Its so today", 1.0),
    "punctuation beyond ASCII counts": ("ignore_punctuation: true", "«Paris»", "Paris", 0.0),
    "blanks are not punctuation": ("ignore_punctuation: true", "a - b", "a b", 0.0),
    "numbers ignored": ("ignore_numbers: true", "in 1984", "in 2001", 1.0),
    "numbers beyond ASCII count": ("ignore_numbers: true", "x²", "x", 0.0),
    "a pattern ignored": ("regexes_to_ignore: [',', '\\$']", "$1,200", "1200", 1.0),
    "patterns are ignored one after the other": ("regexes_to_ignore: [b, ac]", "abcx", "x", 1.0),
    "patterns come before case": ("ignore_case: true, regexes_to_ignore: ['The ']", "The cat", "the cat", 0.0),
    "patterns come before punctuation": ("ignore_punctuation: true, regexes_to_ignore: ['ab']", "a.b", "ab", 0.0),
    "no patterns": ("regexes_to_ignore: []", "a", "a", 1.0),
    "all at once": (
        "ignore_case: true, ignore_punctuation: true, ignore_numbers: true, regexes_to_ignore: ['(?s)#.*']",
        "Room 101!#\nx",
        "room ",
        1.0,
    ),
}
"""Options, answer, reference, and what lm_eval 0.4.13 gives."""


@pytest.mark.parametrize("case", EXACT)
def test_exact_match_with_its_options(case: str, tmp_path: Path) -> None:
    options, answer, gold, expected = EXACT[case]
    yaml = f"metric_list: [{{metric: exact_match, {options}}}]\n" if options else ""
    assert row(generate(tmp_path, [answer], [gold], yaml)) == {"exact_match": expected}


def test_one_of_several_references_is_enough(tmp_path: Path) -> None:
    answers, golds = ["B", "c", "x"], [["a", "b"], ["c"], ["y", "z"]]
    yaml = "metric_list: [{metric: exact_match, ignore_case: true}]\n"
    assert row(generate(tmp_path, answers, golds, yaml)) == {"exact_match": 2 / 3}


def test_a_number_as_reference_is_compared_as_text(tmp_path: Path) -> None:
    assert row(generate(tmp_path, ["42", "42.0", " 42"], [42, 42, 42])) == {"exact_match": 1 / 3}


def test_a_reference_is_converted_to_the_type_of_the_answer(tmp_path: Path) -> None:
    """lm-eval casts the reference to the type of the answer, here int: it gives 2/3."""
    yaml = """
        filter_list:
          - name: none
            filter: [{function: map, mapping_dict: {A: 0, B: 1}, default_value: -1}, {function: take_first}]
        metric_list: [{metric: exact_match}]
    """
    assert row(generate(tmp_path, ["A", "B", "C"], ["0", "1", "0"], yaml)) == {"exact_match": 2 / 3}


def test_a_reference_may_be_the_index_of_a_choice(tmp_path: Path) -> None:
    rows = [{"q": "0", "choices": ["x", "y"], "gold": 1}, {"q": "1", "choices": ["y", "x"], "gold": 1}]
    write_task(tmp_path, rows, "doc_to_text: q\ndoc_to_choice: choices\ndoc_to_target: gold\n")
    assert row(run(tmp_path, says(["y", "y"]))) == {"exact_match": 0.5}


REFERENCES = ["the cat sat on the mat", "a dog ran in the park", "it rains all day today"]
TRANSLATIONS = ["the cat sat on a mat", "a dog ran in the park", "it rained all day long"]


def test_translations_are_scored_over_all_documents_at_once(tmp_path: Path) -> None:
    """Values of lm_eval 0.4.13; sacrebleu by itself gives the same."""
    result_row = row(
        generate(tmp_path, TRANSLATIONS, REFERENCES, metrics("bleu", "chrf", "chrf++", "ter"), bootstrap_iters=0)
    )
    expected = {
        "bleu": 61.64254195185937,
        "chrf": 69.39992880431998,
        "chrf++": 70.3844350115011,
        "ter": 17.647058823529413,
    }
    assert result_row == pytest.approx(expected, abs=1e-9)
    assert result_row["bleu"] == pytest.approx(sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES]).score, abs=1e-9)


def test_bleu_of_several_references_takes_each_as_a_stream(tmp_path: Path) -> None:
    others = ["the cat sat on a rug", "a dog is in the park", "it rained all day long"]
    golds = [list(pair) for pair in zip(REFERENCES, others, strict=True)]
    result_row = row(generate(tmp_path, TRANSLATIONS, golds, metrics("bleu", "chrf", "ter"), bootstrap_iters=0))
    streams = [REFERENCES, others]
    assert result_row["bleu"] == pytest.approx(sacrebleu.corpus_bleu(TRANSLATIONS, streams).score, abs=1e-9)
    assert result_row["chrf"] == pytest.approx(sacrebleu.corpus_chrf(TRANSLATIONS, streams).score, abs=1e-9)
    assert result_row["ter"] == pytest.approx(sacrebleu.corpus_ter(TRANSLATIONS, streams).score, abs=1e-9)


def test_a_reference_that_only_one_document_has_is_not_dropped(tmp_path: Path) -> None:
    """sacrebleu takes None where a document has fewer references; the second document is matched by its second one."""
    answers = ["the cat sat on the mat", "a dog ran in the park"]
    golds = [["the cat sat on the mat"], ["some words of no use here", "a dog ran in the park"]]
    result_row = row(generate(tmp_path, answers, golds, metrics("bleu"), bootstrap_iters=0))
    streams: list[list[Any]] = [[golds[0][0], golds[1][0]], [None, golds[1][1]]]
    assert result_row["bleu"] == pytest.approx(sacrebleu.corpus_bleu(answers, streams).score, abs=1e-9)


def test_several_answers_to_one_document_are_never_half_a_translation(tmp_path: Path) -> None:
    """lm-eval stops with an assertion; here it is the mean of both repeats: 100 of the first, 0 of the second."""
    yaml = (
        SAMPLED
        + "repeats: 2\nfilter_list: [{name: none, filter: [{function: take_first_k, k: 2}]}]\n"
        + metrics("bleu")
    )
    results = generate(tmp_path, [["a b c d", "x"], ["a b c e", "y"]], ["a b c d", "a b c e"], yaml)
    assert row(results) == {"bleu": pytest.approx(50.0)}


def test_f1_of_generated_labels(tmp_path: Path) -> None:
    """lm-eval hands (reference, answer) on to the aggregation. It gives 0.5: one hit, one false alarm, one miss."""
    yaml = """
        filter_list:
          - name: none
            filter: [{function: map, mapping_dict: {A: 0, B: 1}, default_value: -1}, {function: take_first}]
        metric_list: [{metric: f1, aggregation: f1}]
    """
    assert row(generate(tmp_path, ["A", "B", "B", "A"], [0, 1, 0, 1], yaml, bootstrap_iters=0)) == {"f1": 0.5}


def test_acc_of_generated_text_is_what_its_aggregation_makes_of_the_pairs(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def share(items):\n    return sum(g == a for g, a in items) / len(items)\n")
    yaml = "metric_list: [{metric: acc, aggregation: !function own.share}]\n"
    assert row(generate(tmp_path, ["a", "b", "c"], ["a", "b", "x"], yaml)) == {"acc": 2 / 3}


HUGGING_FACE = {
    # `the cat` against `the cat sat`: 2 of 2 and 2 of 3 words, 0.8 for rouge1; 1 of 1 and 1 of 2 pairs, 2/3 for rouge2
    "rouge": ("rouge", "the cat", "the cat sat", {"rouge1": 0.8, "rouge2": 2 / 3, "rougeL": 0.8, "rougeLsum": 0.8}),
    "f1": ("f1, average: micro", "1", "1", {"f1": 1.0}),
    "accuracy": ("accuracy", "1", "2", {"accuracy": 0.0}),
    "exact_match": ("exact_match, ignore_case: true", "A", "a", {"exact_match": 1.0}),
}  # what `evaluate` documents; with one answer, micro-averaged F1 is the share that is right


@pytest.mark.parametrize("compat", ["lm-eval", None])
@pytest.mark.parametrize("name", HUGGING_FACE)
def test_metrics_by_their_hugging_face_names(name: str, compat: str | None, tmp_path: Path) -> None:
    written, answer, gold, expected = HUGGING_FACE[name]
    yaml = f"metric_list: [{{metric: {written}, aggregation: mean, higher_is_better: true, hf_evaluate: true}}]\n"
    assert row(generate(tmp_path, [answer], [gold], yaml, compat=compat)) == pytest.approx(expected, abs=1e-12)


def test_bypass_scores_nothing(tmp_path: Path) -> None:
    results = generate(tmp_path, ["a", "b"], ["a", "c"], metrics("bypass"))
    assert (row(results), results["results"]["t"]["bypass_stderr,none"]) == ({"bypass": 999}, "N/A")


def test_predict_only_asks_and_does_not_score(tmp_path: Path) -> None:
    results = generate(tmp_path, ["a", "b"], ["a", "c"], predict_only=True)
    assert row(results) == {"bypass": 999}
    assert [sample["resps"] for sample in results["samples"]["t"]] == [[["a"]], [["b"]]]


# --- user-defined metrics ----------------------------------------------------------------------------------------

OWN = """
def long(references, predictions, unit=1):
    return len(predictions[0]) / unit
def both(references, predictions):
    return {"long": float(len(predictions[0])), "twice": 2.0 * len(predictions[0])}
def pair_first(items):
    return float(items[0] == items[1])
"""


def own(folder: Path, entry: str) -> dict[str, Any]:
    (folder / "own.py").write_text(OWN)
    yaml = f"metric_list: [{{{entry}, higher_is_better: true}}]\n"
    return row(generate(folder, ["a", "bb", "cccccc"], ["a", "x", "x"], yaml, bootstrap_iters=0))


def test_a_function_is_a_metric_and_takes_its_parameters(tmp_path: Path) -> None:
    assert own(tmp_path, "metric: !function own.long, aggregation: mean, unit: 3") == {"long": 1.0}


def test_a_function_of_one_list_is_given_the_pair(tmp_path: Path) -> None:
    assert own(tmp_path, "metric: !function own.pair_first, aggregation: mean") == {"pair_first": 1 / 3}


def test_a_metric_that_gives_several_values_has_a_row_for_each(tmp_path: Path) -> None:
    assert own(tmp_path, "metric: !function own.both, aggregation: mean") == {"long": 3.0, "twice": 6.0}


def test_each_of_several_values_is_aggregated_as_its_metric_says(tmp_path: Path) -> None:
    """lm_eval 0.4.13 gives 2 and 4: the medians."""
    assert own(tmp_path, "metric: !function own.both, aggregation: median") == {"long": 2.0, "twice": 4.0}


def test_process_results_replaces_metrics_and_may_leave_some_out(tmp_path: Path) -> None:
    values = [{"a": 1.0, "b": 5.0}, {"a": 0.0}, {"a": 0.5, "b": 7.0}]
    processed(tmp_path, values, "metric_list: [{metric: a, aggregation: mean}, {metric: b, aggregation: mean}]\n")
    results = run(tmp_path, ANYTHING)
    assert row(results) == {"a": 0.5, "b": 6.0}
    assert results["results"]["t"]["sample_len"] == 3


# --- aggregations -------------------------------------------------------------------------------------------------

AGGREGATED: dict[str, tuple[str, list[Any], float]] = {
    "mean": ("mean", [1.0, 0.0, 0.5, 0.0], 0.375),
    "mean of truths": ("mean", [True, False, True], 2 / 3),
    "median of an odd number": ("median", [5.0, 1.0, 2.0], 2.0),
    "median of an even number is the mean of two": ("median", [5.0, 1.0, 2.0, 4.0], 3.0),
    "the upper median is the greater of two": ("median_high", [5.0, 1.0, 2.0, 4.0], 4.0),
    "nanmean": ("nanmean", [1.0, "nan", 5.0, 9.0, 4.0], 4.75),
    "nanmean of nothing": ("nanmean", ["nan", "nan"], math.nan),
    "perplexity": ("perplexity", [-1.0, -3.0], math.exp(2)),
    "weighted perplexity": ("weighted_perplexity", [[-1.0, 2], [-3.0, 6]], math.exp(0.5)),
    "bits per byte": ("bits_per_byte", [[-1.0, 2], [-3.0, 6]], 0.5 / math.log(2)),
    "f1": ("f1", [[1, 1], [0, 1], [1, 0], [1, 1], [0, 0]], 2 / 3),
    "matthews_corrcoef": ("matthews_corrcoef", [[1, 1], [0, 1], [1, 0], [1, 1], [0, 0]], 1 / 6),
    "brier_score": ("brier_score", [[0, [0.7, 0.3]], [1, [0.7, 0.3]]], (0.18 + 0.98) / 2),
    "bleu": ("bleu", [list(pair) for pair in zip(REFERENCES, TRANSLATIONS, strict=True)], 61.64254195185937),
    "chrf": ("chrf", [list(pair) for pair in zip(REFERENCES, TRANSLATIONS, strict=True)], 69.39992880431998),
    "chrf++": ("chrf++", [list(pair) for pair in zip(REFERENCES, TRANSLATIONS, strict=True)], 70.3844350115011),
    "ter": ("ter", [list(pair) for pair in zip(REFERENCES, TRANSLATIONS, strict=True)], 17.647058823529413),
    "bypass": ("bypass", [1.0, 2.0], 999),
}
"""By hand; bleu, chrf, chrf++ and ter by lm_eval 0.4.13."""

IN_HELPERS = "from lm_eval.api.metrics import median as imported\nfrom lm_eval.api.registry import get_aggregation\nasked = get_aggregation('median')\n"


@pytest.mark.parametrize("name", ["imported", "asked"])
def test_helper_code_has_the_median_of_lm_eval(name: str, tmp_path: Path) -> None:
    yaml = f"metric_list: [{{metric: x, aggregation: !function helper.{name}}}]\n"
    processed(tmp_path, [{"x": value} for value in (5.0, 1.0, 2.0, 4.0)], yaml, helper=IN_HELPERS)
    assert row(run(tmp_path, ANYTHING)) == {"x": 4.0}


AS_NUMBERS = "values_of = values\ndef values(doc, results):\n    return {k: float(v) if v == 'nan' else v for k, v in values_of(doc, results).items()}\n"


@pytest.mark.parametrize("case", AGGREGATED)
def test_each_aggregation_by_name(case: str, tmp_path: Path) -> None:
    name, values, expected = AGGREGATED[case]
    processed(tmp_path, [{"x": value} for value in values], f"metric_list: [{{metric: x, aggregation: {name}}}]\n", helper=AS_NUMBERS)  # fmt: skip
    assert row(run(tmp_path, ANYTHING, bootstrap_iters=0)) == pytest.approx({"x": expected}, abs=1e-9, nan_ok=True)


def test_a_metric_may_be_aggregated_in_another_way_than_its_own(tmp_path: Path) -> None:
    yaml = "metric_list: [{metric: perplexity, aggregation: median}]\n"
    assert row(continue_(tmp_path, [(-1.0, True), (-2.0, True), (-7.0, True)], yaml)) == {"perplexity": -2.0}


def test_one_aggregation_that_breaks_does_not_stop_the_other_tasks(tmp_path: Path) -> None:
    """Design: one broken task never stops the others of a run; a failure is never a score."""
    helper = "def broken(items):\n    raise KeyError('no such thing')\n"
    processed(tmp_path, [{"x": 1.0}, {"x": 0.0}], "metric_list: [{metric: x, aggregation: !function helper.broken}]\n", "bad", helper)  # fmt: skip
    processed(tmp_path, [{"x": 1.0}, {"x": 0.0}], "metric_list: [{metric: x, aggregation: mean}]\n", "good", helper)
    results = run(tmp_path, ANYTHING, ["bad", "good"])
    assert results["results"]["good"]["x,none"] == 0.5
    assert math.isnan(results["results"].get("bad", {}).get("x,none", math.nan))  # absent, or no number
    assert results["assay"]["status"] != "complete"


# --- directions, refusals, failures -------------------------------------------------------------------------------


def test_each_metric_says_which_way_is_better(tmp_path: Path) -> None:
    results = roll(tmp_path / "a", {"x": -1.0})
    assert results["higher_is_better"]["t"] == {"word_perplexity": False, "byte_perplexity": False, "bits_per_byte": False}  # fmt: skip
    results = choose(tmp_path / "b", [[-1.0, -2.0]], [0], ["a", "b"], metrics("acc", "brier_score"))
    assert results["higher_is_better"]["t"] == {"acc": True, "brier_score": False}
    results = generate(tmp_path / "c", ["a"], ["a"], metrics("exact_match", "ter", "bleu"), bootstrap_iters=0)
    assert results["higher_is_better"]["t"] == {"exact_match": True, "ter": False, "bleu": True}


WRONG = {
    "no metric named 'exact_mach'": "{metric: exact_mach}",
    "has no parameter 'ignore_cas'": "{metric: exact_match, ignore_cas: true}",
    "no aggregation named 'maen'": "{metric: exact_match, aggregation: maen}",
    "does not score generate_until": "{metric: acc_mutual_info}",
}


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_metric_is_refused_before_any_request(said: str, tmp_path: Path) -> None:
    asked: list[str] = []
    write_task(
        tmp_path, [{"q": "0", "gold": "a"}], f"doc_to_text: q\ndoc_to_target: gold\nmetric_list: [{WRONG[said]}]\n"
    )
    with pytest.raises(ConfigError, match=said):
        run(tmp_path, noting(asked))
    assert asked == []


def test_a_metric_of_one_filter_alone_is_computed_for_that_filter(tmp_path: Path) -> None:
    yaml = """
        filter_list:
          - name: raw
            filter: [{function: take_first}]
          - name: small
            filter: [{function: lowercase}, {function: take_first}]
            metric_list: [{metric: bleu}]
    """
    row = generate(tmp_path, ["A B C D", "x"], ["a b c d", "x"], yaml, bootstrap_iters=0)["results"]["t"]
    assert row["exact_match,raw"] == 0.5
    assert row["bleu,small"] == pytest.approx(100.0)
    assert "exact_match,small" not in row
    assert "bleu,raw" not in row


def test_a_failed_request_is_not_scored_as_zero(tmp_path: Path) -> None:
    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        if prompt == "1":
            raise TimeoutError("no answer")
        return "a"

    write_task(tmp_path, [{"q": str(n), "gold": "a"} for n in range(4)], "doc_to_text: q\ndoc_to_target: gold\n")
    results = run(tmp_path, Scripted(generate=answer))
    assert (row(results), results["results"]["t"]["sample_len"]) == ({"exact_match": 1.0}, 3)
    assert rows_of(results, "t")["exact_match,none"]["failure_bounds"] == [0.75, 1.0]


# --- properties ---------------------------------------------------------------------------------------------------

OPTIONS = st.fixed_dictionaries(
    {name: st.booleans() for name in ("ignore_case", "ignore_punctuation", "ignore_numbers")}
)


@given(st.text(), OPTIONS)
def test_a_text_matches_itself_under_all_ignore_options(text: str, options: dict[str, Any]) -> None:
    assert exact_match([text], text, **options) == 1.0


@given(st.text(), st.text(), OPTIONS)
def test_matching_is_symmetric(one: str, other: str, options: dict[str, Any]) -> None:
    assert exact_match([one], other, **options) == exact_match([other], one, **options)


@given(st.text("aAbB1.,"), st.text("aAbB1.,"), OPTIONS)
def test_ignoring_more_loses_no_match(one: str, other: str, options: dict[str, Any]) -> None:
    assert exact_match([one], other, **options) >= exact_match([one], other)


@given(st.lists(st.text("ab"), min_size=1, max_size=4), st.text("ab"), st.randoms())
def test_references_match_in_any_order_and_one_is_enough(references: list[str], answer: str, random: Any) -> None:
    shuffled = random.sample(references, len(references))
    assert exact_match(references, answer) == exact_match(shuffled, answer) == float(answer in references)
