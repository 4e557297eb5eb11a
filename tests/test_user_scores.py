"""What users' metrics, scorers and `process_results` return: numbers of every kind, one for each answer, one for each reference; and invalid numbers."""

import math
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from assay.models import Scripted
from assay.records import Failed
from assay.scoring.metrics.convention import depends_on_order
from assay.scoring.metrics.registry import exact_match
from assay.scoring.results import GenResult
from assay.scoring.scores import RowRule, ScoreRules, check_scores
from run_world import rows_of, sample_rows
from small_runs import SAMPLED, generate, run, says, write_task


def code(folder: Path, text: str, name: str = "own") -> None:
    (folder / f"{name}.py").write_text(dedent(text), encoding="utf-8")


# --- several references: the best by higher_is_better ------------------------------------------------------------------

TARGETS = {"abcd": 0.3, "ab": 0.6}
"""References and what the metrics below give for them."""
OF_REFERENCES = """
    VALUES = {"abcd": 0.3, "ab": 0.6, "x": 0.0}

    def by_name(references, predictions, **kwargs):
        assert len(references) == len(predictions) == 1
        return VALUES[references[0]]

    def by_reference(reference, prediction):
        return VALUES[reference]

    def by_pair(pair):
        return VALUES[pair[0]]

    def distance(reference, prediction):
        return 10 * VALUES[reference]

    def several(reference, predictions):
        value = VALUES[reference]
        return {"close": value, "far": 1 - value}

    def several_at_a_time(reference, prediction):
        return {"one": VALUES[reference]} if reference == "ab" else {"other": 0.5}

    def odd(reference, prediction):
        return float("nan") if reference == "ab" else 0.25

    def pair_of_both(reference, prediction):
        return reference, prediction

    def by_answer(reference, predictions: list[list[str]]):
        return [VALUES[reference], 0.5]
"""


@pytest.fixture
def references(tmp_path: Path) -> Path:
    code(tmp_path, OF_REFERENCES)
    return tmp_path


def scored(folder: Path, metric: str, golds: list[Any], **options: Any) -> dict[str, Any]:
    yaml = f"metric_list: [{{metric: !function own.{metric}, aggregation: mean}}]"
    return generate(folder, ["abc"] * len(golds), golds, yaml, **options)


@pytest.mark.parametrize("metric", ["by_reference", "by_pair"])
@pytest.mark.parametrize("golds", [[["abcd", "ab"]], [["ab", "abcd"]]])
def test_of_several_references_the_best_value_of_a_users_metric_counts(
    metric: str, golds: list[Any], references: Path
) -> None:
    assert scored(references, metric, golds)["results"]["t"][f"{metric},none"] == 0.6


def test_of_a_distance_the_smallest_value_counts(references: Path) -> None:
    yaml = "metric_list: [{metric: !function own.distance, aggregation: mean, higher_is_better: false}]"
    results = generate(references, ["abc"], [["abcd", "ab"]], yaml)
    assert results["results"]["t"]["distance,none"] == 3.0


def test_a_registered_metric_declares_that_lower_is_better(tmp_path: Path) -> None:
    code(
        tmp_path,
        """
        from lm_eval.api.registry import register_metric

        @register_metric(metric="gap", higher_is_better=False, output_type="generate_until", aggregation="mean")
        def gap(reference, prediction):
            return abs(len(reference) - len(prediction))

        def same(rows):
            return rows
        """,
    )
    yaml = "process_docs: !function own.same\nmetric_list: [{metric: gap}]"
    assert generate(tmp_path, ["abc"], [["abcdef", "ab"]], yaml)["results"]["t"]["gap,none"] == 1.0


def test_of_several_values_by_name_each_has_its_own_best_reference(references: Path) -> None:
    row = scored(references, "several", [["abcd", "ab"], ["x"]])["results"]["t"]
    assert row["close,none"] == pytest.approx((0.6 + 0.0) / 2)
    assert row["far,none"] == pytest.approx((0.7 + 1.0) / 2)


def test_a_reference_without_a_number_is_not_the_best(references: Path) -> None:
    assert scored(references, "odd", [["abcd", "ab"], ["ab", "x"]])["results"]["t"]["odd,none"] == 0.25


def test_values_of_references_that_cannot_be_compared_fail_their_document(references: Path) -> None:
    yaml = (
        "metric_list: [{metric: exact_match}, {metric: !function own.pair_of_both, aggregation: !function own.count}]"
    )
    code(references, OF_REFERENCES + "\n    def count(values):\n        return float(len(values))\n")
    results = generate(references, ["abcd", "ab"], [["abcd", "ab"], ["ab"]], yaml)
    assert results["results"]["t"]["exact_match,none"] == 1.0
    assert results["results"]["t"]["pair_of_both,none"] == 1.0
    [reason] = results["assay"]["tasks"]["t"]["reasons"]
    assert "'pair_of_both'" in reason and "several references" in reason


def test_names_that_not_every_reference_has_fail_their_document(references: Path) -> None:
    results = scored(references, "several_at_a_time", [["abcd", "ab"], ["ab"]])
    assert results["results"]["t"]["one,none"] == 0.6
    [reason] = results["assay"]["tasks"]["t"]["reasons"]
    assert "'several_at_a_time'" in reason


def test_a_document_without_a_reference_fails_instead_of_scoring_zero(references: Path) -> None:
    results = scored(references, "by_reference", [["abcd", "ab"], []])
    assert results["results"]["t"]["by_reference,none"] == 0.6
    assert results["assay"]["tasks"]["t"]["failed"] == 1


@pytest.mark.parametrize(("golds", "expected"), [([["abcd", "ab"]], 1.0), ([["x", "x"]], 0.0), ([["x", "ab"]], 1.0)])
def test_with_compat_any_reference_makes_it_one_as_in_lm_eval(
    golds: list[Any], expected: float, references: Path
) -> None:
    assert scored(references, "by_name", golds, compat="lm-eval")["results"]["t"]["by_name,none"] == expected


def test_with_compat_a_document_with_a_single_reference_is_scored_like_the_others(references: Path) -> None:
    """lm-eval decides by the first document whether there are several; then each is made 0 or 1."""
    row = scored(references, "by_name", [["abcd", "ab"], ["ab"], "x"], compat="lm-eval")["results"]["t"]
    assert row["by_name,none"] == pytest.approx((1 + 1 + 0) / 3)


# --- a list has a score for each answer, and an invalid number fails its row ----------------------------------------

THREE = SAMPLED + "repeats: 3\nfilter_list: [{name: none, filter: [{function: take_first_k, k: 3}]}]\n"

SEED = '''
    from assay import GenResult, Instance, Scorer
    from assay.config.task import TaskConfig


    class GenerationScorer(Scorer[GenResult]):
        """Scorer for generation tasks, as the seed 001 writes it."""

        def __init__(self, task_config: TaskConfig):
            self.seen = True
            super().__init__(task_config)

        def score_instances(self, instances: list[Instance], filter_name: str) -> GenResult:
            gen_result = GenResult.from_instances(instances, filter_name)
            gen_result.repeats = self.config.repeat_cfg.repeats
            metrics = self.get_metrics(filter_name)
            gen_result.scores = self._compute_metrics(gen_result, metrics)
            return gen_result

        def _compute_metrics(self, gen_result, metrics) -> dict[str, list[float]]:
            from collections import defaultdict

            scores = defaultdict(list)
            gold = gen_result.target
            for generation in gen_result.results:
                for metric in metrics:
                    if metric.fn is None:
                        continue
                    try:
                        score = metric.fn(
                            references=[gold] if not isinstance(gold, list) else gold,
                            predictions=[generation],
                            **metric.kwargs,
                        )
                    except TypeError:
                        score = metric.fn([gold, generation])
                    if isinstance(score, dict):
                        for k, v in score.items():
                            scores[k].append(v)
                    else:
                        scores[metric.name].append(score)
            return dict(scores)

        def get_metrics(self, filter_name: str):
            for filter_config in self.config.get_filters():
                if filter_config.name == filter_name:
                    return filter_config.metric_list
            return self.config._metric_list
'''


@pytest.mark.parametrize("parent", ["own.GenerationScorer", "assay.GenerationScorer"])
def test_the_seeds_lists_are_the_scores_of_repeats(parent: str, tmp_path: Path) -> None:
    module, _, name = parent.partition(".")
    code(tmp_path, SEED)
    code(
        tmp_path,
        f"""
        from {module} import {name}

        class Judge({name}):
            def _compute_metrics(self, gen_result, metrics):
                scores = super()._compute_metrics(gen_result, metrics)
                scores["llm_judge"] = [0.1 * len(each) for each in gen_result.results]
                return scores
        """,
        "judging",
    )
    yaml = THREE + "scorer: !function judging.Judge\nmetric_list: [{metric: exact_match, reduction: [max, pass@2]}]\n"
    results = generate(
        tmp_path, [["a", "aa", "b"], ["c", "c", "c"]], ["a", "c"], yaml, output_path=str(tmp_path / "run")
    )
    row = results["results"]["t"]
    assert row["llm_judge,none"] == pytest.approx(((0.1 + 0.2 + 0.1) / 3 + 0.1) / 2)
    assert row["exact_match,none"] == pytest.approx((1 / 3 + 1) / 2)
    assert row["max,none"] == 1.0  # the best of (1, 0, 0) and of (1, 1, 1)
    assert row["pass@2,none"] == pytest.approx((2 / 3 + 1) / 2)
    rows = sample_rows(tmp_path / "run/samples/t.parquet")
    scores = rows[0]["scores"]
    assert scores["llm_judge,none,repeats"] == pytest.approx([0.1, 0.2, 0.1])
    assert scores["exact_match,none,repeats"] == [1.0, 0.0, 0.0]


RETURNED = {
    "a list of another length": "[0.5, 0.5]",
    "an empty list": "[]",
    "a list of texts": "['a']",
    "nothing": "None",
    "a text": "'0.5'",
    "a complex number": "1j",
    "an array of two": "numpy.array([1.0, 2.0])",
    "a matrix": "numpy.array([[1.0]])",
    "a set": "{1.0}",
    "bytes": "b'1'",
    "a number without end": "10 ** 400",
    "an object": "object()",
    "a mapping of mappings": "{'a': {'b': 1.0}}",
    "a mapping of lists of another length": "{'a': [1.0, 2.0]}",
    "a list of mappings": "[{'a': [1, 2]}]",
}
GIVES = """
    import numpy
    from assay import GenerationScorer

    def value():
        return {value}

    def metric(references, predictions):
        return value() if predictions[0] == "odd" else 0.5

    def process_results(doc, results):
        return {{"exact_match": float(results[0] == doc["gold"]), "metric": value() if results[0] == "odd" else 0.5}}

    class Own(GenerationScorer):
        name = "metric"

        def score(self, reference, predictions):
            return value() if predictions[0] == "odd" else 0.5

    class Batch(GenerationScorer):
        name = "metric"

        def score_batch(self, results):
            return [value() if result.answer == "odd" else 0.5 for result in results]

    class Computing(GenerationScorer):
        def _compute_metrics(self, result, metrics):
            given = value() if result.answer == "odd" else 0.5
            return {{**super()._compute_metrics(result, metrics), **(given if isinstance(given, dict) else {{"metric": given}})}}
"""
ENTRY_POINTS = {
    "metric": "metric_list: [{metric: exact_match}, {metric: !function own.metric, aggregation: mean}]",
    "process_results": "process_results: !function own.process_results",
    "declared process_results": "process_results: !function own.process_results\nmetric_list: [{metric: metric, aggregation: median}]",
    "score": "scorer: !function own.Own\nmetric_list: [{metric: exact_match}]",
    "score_batch": "scorer: !function own.Batch\nmetric_list: [{metric: exact_match}]",
    "_compute_metrics": "scorer: !function own.Computing\nmetric_list: [{metric: exact_match}]",
}


@pytest.mark.parametrize("value", RETURNED)
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_an_invalid_score_fails_its_document_in_that_row_alone(entry_point: str, value: str, tmp_path: Path) -> None:
    code(tmp_path, GIVES.format(value=RETURNED[value]))
    write_task(tmp_path, [{"q": "0", "gold": "fine"}], "doc_to_text: q\ndoc_to_target: gold\n", name="healthy")
    rows = [{"q": "0", "gold": "fine"}, {"q": "1", "gold": "odd"}, {"q": "2", "gold": "x"}]
    write_task(tmp_path, rows, f"doc_to_text: q\ndoc_to_target: gold\n{ENTRY_POINTS[entry_point]}\n")
    results = run(tmp_path, says(["fine", "odd", "fine"]), ["t", "healthy"], output_path=str(tmp_path / "run"))
    assert results["results"]["healthy"]["exact_match,none"] == 1.0
    account = results["assay"]["tasks"]["t"]
    assert results["results"]["t"]["exact_match,none"] == pytest.approx(2 / 3)
    assert rows_of(results, "t")["exact_match,none"]["n"] == 3
    assert (results["results"]["t"]["metric,none"], rows_of(results, "t")["metric,none"]["n"]) == (0.5, 2)
    assert (account["failed"], account["documents"]) == (1, 3)
    [reason] = account["reasons"]
    assert "'metric'" in reason or "'a'" in reason
    assert rows_of(results, "t")["exact_match,none"]["failure_bounds"] == pytest.approx([2 / 3, 2 / 3])
    assert rows_of(results, "t")["metric,none"]["failure_bounds"] == pytest.approx([1 / 3, 2 / 3])
    stored = sample_rows(tmp_path / "run/samples/t.parquet")
    assert [row["scores"].get("metric,none") for row in stored] == [0.5, None, 0.5]
    assert [bool(row["failed"]) for row in stored] == [False, True, False]


FINE = {
    "1": 1.0, "True": 1.0, "numpy.int32(1)": 1.0, "numpy.int64(1)": 1.0, "numpy.float32(0.5)": 0.5,
    "numpy.float16(0.5)": 0.5, "numpy.float64(0.5)": 0.5, "numpy.bool_(True)": 1.0, "numpy.array(0.5)": 0.5,
    "numpy.array(1, dtype=numpy.int8)": 1.0, "numpy.longdouble(0.5)": 0.5, "[0.5]": 0.5, "(0.5,)": 0.5,
    "numpy.array([0.5])": 0.5, "[numpy.float32(0.5)]": 0.5, "__import__('fractions').Fraction(1, 2)": 0.5,
    "__import__('decimal').Decimal('0.5')": 0.5, "{'metric': numpy.float32(0.5)}": 0.5, "10 ** 17 + 1": 1e17,
    "{numpy.str_('metric'): 0.5}": 0.5,
}  # fmt: skip


@pytest.mark.parametrize("value", FINE)
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_numbers_of_every_kind_are_scores(entry_point: str, value: str, tmp_path: Path) -> None:
    if value.startswith("{") and "process_results" in entry_point:
        return  # there it would be a mapping within a mapping
    code(tmp_path, GIVES.format(value=value))
    results = generate(
        tmp_path, ["odd", "odd"], ["odd", "x"], ENTRY_POINTS[entry_point] + "\n", output_path=str(tmp_path / "run")
    )
    assert results["assay"]["tasks"]["t"]["failed"] == 0
    assert results["results"]["t"]["metric,none"] == FINE[value]
    assert results["results"]["t"]["metric_stderr,none"] == (
        "N/A" if "median" in ENTRY_POINTS[entry_point] and False else 0.0
    )
    rows = sample_rows(tmp_path / "run/samples/t.parquet")
    assert rows[0]["scores"]["metric,none"] == FINE[value]


def test_a_list_of_process_results_has_a_score_for_each_repeat(tmp_path: Path) -> None:
    code(
        tmp_path,
        """
        def process_results(doc, results):
            return {"right": [float(each == doc["gold"]) for each in results[0]], "n": len(results[0])}
        """,
    )
    yaml = (
        THREE
        + "process_results: !function own.process_results\nmetric_list: [{metric: right, aggregation: mean, reduction: [pass@2]}]\n"
    )
    results = generate(tmp_path, [["a", "a", "b"], ["c", "d", "e"]], ["a", "x"], yaml)
    assert results["results"]["t"]["right,none"] == pytest.approx((2 / 3 + 0) / 2)
    assert results["results"]["t"]["pass@2,none"] == pytest.approx((1 + 0) / 2)
    assert results["results"]["t"]["n,none"] == 3
    assert results["samples"]["t"][0]["scores_per_repeat"] == {"right": [1.0, 1.0, 0.0]}


def test_a_users_metric_may_give_a_score_for_each_repeat_and_each_reference(references: Path) -> None:
    code(
        references,
        OF_REFERENCES.replace("return [VALUES[reference], 0.5]", "return [VALUES[reference], 0.5, 0]"),
    )
    yaml = THREE + "metric_list: [{metric: !function own.by_answer, aggregation: mean}]\n"
    results = generate(references, [["a", "b", "c"]], [["abcd", "ab"]], yaml)
    assert results["results"]["t"]["by_answer,none"] == pytest.approx((0.6 + 0.5 + 0) / 3)
    assert results["samples"]["t"][0]["scores_per_repeat"] == {"by_answer": [0.6, 0.5, 0]}


def test_a_user_defined_aggregation_receives_the_values_unchanged(tmp_path: Path) -> None:
    """lm-eval's tasks give pairs, lists, texts and arrays to their own aggregations."""
    code(
        tmp_path,
        """
        import numpy

        def process_results(doc, results):
            return {"pair": (doc["gold"], results[0]), "several": [1.0, 2.0], "array": numpy.array([1.0, 3.0]), "text": "a", "none": None}

        def share(items):
            assert all(isinstance(each, tuple) for each in items)
            return sum(gold == given for gold, given in items) / len(items)

        def length(items):
            return float(sum(len(each) for each in items))

        def mean_of_arrays(items):
            return numpy.mean([each.mean() for each in items])

        def count(items):
            return len(items)
        """,
    )
    yaml = """
        process_results: !function own.process_results
        metric_list:
          - {metric: pair, aggregation: !function own.share}
          - {metric: several, aggregation: !function own.length}
          - {metric: array, aggregation: !function own.mean_of_arrays}
          - {metric: text, aggregation: !function own.length}
          - {metric: none, aggregation: !function own.count}
        """
    results = generate(tmp_path, ["a", "b"], ["a", "x"], yaml)
    assert results["assay"]["tasks"]["t"]["failed"] == 0
    assert {name: results["results"]["t"][f"{name},none"] for name in ("pair", "several", "array", "text", "none")} == {
        "pair": 0.5, "several": 4.0, "array": 2.0, "text": 2.0, "none": 2,
    }  # fmt: skip


def test_a_reduction_that_cannot_be_computed_fails_its_row_alone(tmp_path: Path) -> None:
    code(
        tmp_path,
        "def part(references, predictions: list[list[str]]):\n    return [0.5, 1.0, 0.0]\n\n\ndef worst(scores):\n    return None\n",
    )
    yaml = (
        THREE
        + "metric_list: [{metric: exact_match, reduction: {worst: !function own.worst, best: max}}, {metric: !function own.part, aggregation: mean, reduction: [pass@2]}]\n"
    )
    results = generate(tmp_path, [["a", "a", "b"]], ["a"], yaml)
    assert results["results"]["t"]["exact_match,none"] == pytest.approx(2 / 3)
    assert results["results"]["t"]["best,none"] == 1.0
    assert results["results"]["t"]["part,none"] == 0.5
    assert "worst,none" not in results["results"]["t"] and "pass@2,none" not in results["results"]["t"]
    [reason] = results["assay"]["tasks"]["t"]["reasons"]
    assert "'worst'" in reason and "pass@2" in reason


def test_an_aggregation_that_takes_resamples_badly_costs_the_error_alone(tmp_path: Path) -> None:
    code(
        tmp_path,
        """
        def count(items):
            if len(set(items)) < len(items):
                raise RuntimeError("each value once")
            return float(len(items))

        def process_results(doc, results):
            return {"own": results[0]}
        """,
    )
    yaml = (
        "process_results: !function own.process_results\nmetric_list: [{metric: own, aggregation: !function own.count}]"
    )
    row = generate(tmp_path, ["a", "b", "c"], ["a", "b", "c"], yaml)["results"]["t"]
    assert (row["own,none"], row["own_stderr,none"]) == (3.0, "N/A")


# --- numpy's numbers and texts from helper code, wherever it returns any -------------------------------------------------

CHOOSING = "output_type: multiple_choice\ndoc_to_text: q\nmetric_list: [{metric: acc}, {metric: exact_match}]\n"
INDEX = [
    "numpy.int32({})",
    "numpy.int64({})",
    "numpy.uint8({})",
    "numpy.bool_({})",
    "numpy.array({})",
]


def chosen(folder: Path, helper: str, yaml: str, **options: Any) -> dict[str, Any]:
    """The results of two documents of which the second choice is right, then the first, and the model says the second."""
    code(folder, f"import numpy\n\n\n{dedent(helper)}")
    write_task(folder, [{"q": "0", "gold": 1}, {"q": "1", "gold": 0}], CHOOSING + yaml)
    model = Scripted(loglikelihood=lambda context, text: (-1.0 if text == " yes" else -2.0, text == " yes"))
    return run(folder, model, output_path=str(folder / "run"), **options)


@pytest.mark.parametrize("compat", [None, "lm-eval"])
@pytest.mark.parametrize("index", INDEX)
def test_a_target_that_is_a_number_of_numpys_is_a_number(index: str, compat: str | None, tmp_path: Path) -> None:
    """As in lm-eval's toxigen, whose targets are np.int32."""
    helper = f"def target(doc):\n    return {index.format('doc[' + repr('gold') + ']')}\n"
    built = chosen(
        tmp_path, helper, "doc_to_target: !function own.target\ndoc_to_choice: ['no', 'yes']\n", compat=compat
    )
    assert (built["results"]["t"]["acc,none"], built["results"]["t"]["exact_match,none"]) == (0.5, 0.5)
    assert built["assay"]["tasks"]["t"]["failed"] == 0
    assert [sample["target"] for sample in built["samples"]["t"]] == [1, 0]
    assert all(type(sample["target"]).__module__ == "builtins" for sample in built["samples"]["t"])


@pytest.mark.parametrize(
    "choices", ["numpy.array(['no', 'yes'])", "[numpy.str_('no'), numpy.str_('yes')]", "(numpy.array('no'), 'yes')"]
)
@pytest.mark.parametrize(
    "target", ["numpy.str_('yes' if doc['gold'] else 'no')", "[numpy.int64(doc['gold'])]", "numpy.array([doc['gold']])"]
)
def test_choices_and_lists_of_targets_may_be_of_numpys(choices: str, target: str, tmp_path: Path) -> None:
    helper = f"def target(doc):\n    return {target}\n\n\ndef choices(doc):\n    return {choices}\n"
    built = chosen(tmp_path, helper, "doc_to_target: !function own.target\ndoc_to_choice: !function own.choices\n")
    assert built["results"]["t"]["acc,none"] == 0.5


@pytest.mark.parametrize(("value", "text"), [
    ("numpy.int32(5)", "5"), ("numpy.float32(0.1)", "0.1"), ("numpy.float16(0.1)", "0.1"), ("numpy.float64(0.1)", "0.1"),
    ("numpy.bool_(True)", "True"), ("numpy.str_('a b')", "a b"), ("numpy.array(7)", "7"), ("numpy.array('x')", "x"),
])  # fmt: skip
def test_references_of_numpys_are_written_as_their_digits(value: str, text: str, tmp_path: Path) -> None:
    code(
        tmp_path,
        f"import numpy\n\n\ndef target(doc):\n    return {value}\n\n\ndef text(doc):\n    return numpy.str_(doc['q'])\n",
    )
    write_task(tmp_path, [{"q": "0"}], "doc_to_text: !function own.text\ndoc_to_target: !function own.target\n")
    results = run(tmp_path, says([text]), output_path=str(tmp_path / "run"))
    assert results["results"]["t"]["exact_match,none"] == 1.0
    assert type(results["samples"]["t"][0]["arguments"][0][0]) is str


@pytest.mark.parametrize("entry_point", [
    "process_docs: !function own.rows\n",
    "process_docs: !function own.row_by_row\n",
    "process_docs: !function own.mapped\n",
    "custom_dataset: !function own.splits\n",
])  # fmt: skip
def test_rows_that_helper_code_makes_have_plain_numbers(entry_point: str, tmp_path: Path) -> None:
    code(
        tmp_path,
        """
        import numpy

        def rows(docs):
            return [{"q": numpy.str_(doc["q"]), "gold": numpy.int32(doc["gold"])} for doc in docs]

        def row_by_row(docs):
            yield from rows(docs)

        def mapped(docs):
            return docs.map(lambda doc: {"gold": numpy.array(doc["gold"], dtype=numpy.int8)})

        def splits(**kwargs):
            return {"test": rows([{"q": "0", "gold": 1}, {"q": "1", "gold": 0}])}
        """,
    )
    write_task(
        tmp_path,
        [{"q": "0", "gold": 1}, {"q": "1", "gold": 0}],
        CHOOSING + "doc_to_target: gold\ndoc_to_choice: ['no', 'yes']\n" + entry_point,
    )
    model = Scripted(loglikelihood=lambda context, text: (-1.0 if text == " yes" else -2.0, False))
    results = run(tmp_path, model)
    assert results["results"]["t"]["acc,none"] == 0.5
    assert all(
        type(value).__module__ == "builtins" for sample in results["samples"]["t"] for value in sample["doc"].values()
    )


def test_examples_that_helper_code_makes_have_plain_numbers(tmp_path: Path) -> None:
    code(
        tmp_path,
        """
        import numpy

        def shots():
            return [{"q": "x", "gold": numpy.int32(1)}]
        """,
    )
    yaml = (
        CHOOSING
        + "doc_to_target: gold\ndoc_to_choice: ['no', 'yes']\nnum_fewshot: 1\nfewshot_config: {sampler: first_n, samples: !function own.shots}\n"
    )
    write_task(tmp_path, [{"q": "0", "gold": 1}], yaml)
    asked: list[str] = []
    run(tmp_path, Scripted(loglikelihood=lambda context, text: (asked.append(context) or -1.0, False)))  # type: ignore[func-returns-value]
    assert set(asked) == {"x yes\n\n0"}


@pytest.mark.parametrize(
    "built",
    [
        "numpy.array([each[0] for each in resps])",
        "[numpy.array([numpy.str_(x) for x in each]) for each in resps]",
        "[[numpy.str_(x) for x in each] for each in resps]",
    ],
)
def test_answers_of_filters_may_be_of_numpys(built: str, tmp_path: Path) -> None:
    code(tmp_path, f"import numpy\n\n\ndef own(resps, docs):\n    return {built}\n")
    yaml = "filter_list: [{name: none, filter: [{function: !function own.own}, {function: take_first}]}]\n"
    if built.startswith("numpy"):
        yaml = yaml.replace(", {function: take_first}", "")
    results = generate(tmp_path, ["abc", "d"], ["abc", "x"], yaml, output_path=str(tmp_path / "run"))
    assert results["results"]["t"]["exact_match,none"] == 0.5
    assert [type(sample["filtered_resps"][0]) for sample in results["samples"]["t"]] == [str, str]


def test_aggregations_and_reductions_may_return_numbers_of_numpys(tmp_path: Path) -> None:
    code(
        tmp_path,
        """
        import numpy

        def one(values):
            return numpy.array(numpy.mean(values), dtype=numpy.float32)

        def several(values):
            return {numpy.str_("low"): numpy.float32(min(values)), "high": numpy.array(max(values))}

        def typical(scores):
            return numpy.median(scores).astype(numpy.float32)
        """,
    )
    yaml = (
        THREE
        + """
metric_list:
  - {metric: exact_match, aggregation: !function own.one, reduction: !function own.typical}
  - {metric: token_f1, aggregation: !function own.several}
"""
    )
    results = generate(tmp_path, [["a", "a", "b"], ["x", "x", "x"]], ["a", "c"], yaml)
    assert results["results"]["t"]["exact_match,none"] == pytest.approx(1 / 3)
    assert results["results"]["t"]["typical,none"] == 0.5  # of the medians 1 and 0
    assert results["results"]["t"]["token_f1,none"] == {"low": 0.0, "high": pytest.approx(2 / 3)}


def test_a_class_may_give_targets_of_numpys(tmp_path: Path) -> None:
    code(
        tmp_path,
        """
        import numpy
        from lm_eval.api.task import ConfigurableTask

        class Own(ConfigurableTask):
            def doc_to_target(self, doc):
                return numpy.int32(doc["gold"])
        """,
    )
    yaml = (
        CHOOSING.replace("doc_to_text: q\n", "doc_to_text: q\nclass: !function own.Own\n")
        + "doc_to_target: gold\ndoc_to_choice: ['no', 'yes']\n"
    )
    write_task(tmp_path, [{"q": "0", "gold": 1}, {"q": "1", "gold": 0}], yaml)
    model = Scripted(loglikelihood=lambda context, text: (-1.0 if text == " yes" else -2.0, False))
    results = run(tmp_path, model)
    assert results["results"]["t"]["acc,none"] == 0.5
    assert [sample["target"] for sample in results["samples"]["t"]] == [1, 0]


@pytest.mark.parametrize(
    ("value", "averaged", "otherwise"),
    [
        (1.5, 1.5, 1.5),
        (2**53, 2**53, 2**53),
        (-(2**53), -(2**53), -(2**53)),
        (2**53 + 1, float(2**53), 2**53 + 1),  # a mean is one of floats, which have no such number
        (-(2**53) - 1, float(-(2**53)), -(2**53) - 1),
        (2**1100, "must be a number", 2**1100),
        ("x", "must be a number", "x"),
        (math.nan, "is NaN", "holds NaN"),
        ([1, 2], "is a list of 2 for 1 answer", [1, 2]),
    ],
)
def test_a_score_is_what_its_aggregation_takes_or_a_failure(value: Any, averaged: Any, otherwise: Any) -> None:
    for is_averaged, expected in ((True, averaged), (False, otherwise)):
        rules = ScoreRules(lambda *_, is_averaged=is_averaged: RowRule(is_averaged))  # type: ignore[misc]
        score = check_scores({"m": value}, ["a"], "none", rules)["m"]
        if isinstance(score, Failed):
            assert expected in score.reason
        else:
            assert (score, type(score)) == (expected, type(expected))


@pytest.mark.parametrize("pattern", ["(", 5, None, "a{99999999999}", "(" * 5000 + ")" * 5000])
def test_what_is_no_regular_expression_is_refused_in_words(pattern: Any) -> None:
    with pytest.raises(ValueError, match=r"^regexes_to_ignore: .* is not a regular expression: "):
        exact_match(["a"], "a", regexes_to_ignore=[pattern])


@pytest.mark.parametrize(
    ("values", "different"),
    [
        ({"a": 1.0, "b": 0.5}, (1.0, 0.5)),
        ({"a": 1.0, "b": 1.0}, None),
        ({"a": 1.0}, None),  # of the other order it raises: the run says so
        ({"b": 1.0}, None),
        ({"a": "one", "b": 1.0}, None),
    ],
)
def test_a_metric_depends_on_the_order_of_references_where_both_have_a_number(
    values: dict[str, Any], different: tuple[float, float] | None
) -> None:
    def first(result: GenResult) -> Any:
        return values[result.references[0]]

    assert depends_on_order(first, GenResult({}, ["a", "b"], "x")) == different
