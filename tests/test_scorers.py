"""The family of scorers, as the seeds 001 and 004 use it: every example written as a user would write it."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import assay
from assay import (
    SCORER_REGISTRY,
    GenerateTask,
    GenerationScorer,
    GenResult,
    Instance,
    LoglikelihoodScorer,
    MCResult,
    MultipleChoiceTask,
    PerplexityScorer,
    ProcessResultsScorer,
    Results,
    Scorer,
    ScorerFactory,
    Task,
    register_scorer,
)
from assay.errors import ConfigError
from assay.models import Scripted
from assay.scoring.reductions import majority, pass_all, pass_at
from run_world import sample_rows
from small_runs import SAMPLED, generate, run, write_task

PLAIN = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"


@pytest.fixture(autouse=True)
def own_registry() -> Any:
    """What a test registers is forgotten after it."""
    before = dict(SCORER_REGISTRY)
    yield
    for name in [name for name in SCORER_REGISTRY if name not in before]:
        del SCORER_REGISTRY[name]


# --- seed 001: subclasses, registry, YAML ------------------------------------------------------------------------------


def test_a_subclass_adds_scores_to_those_of_the_metrics(tmp_path: Path) -> None:
    """The BeamSearchScorer of the seed: how many of the answers are different."""

    class BeamSearchScorer(GenerationScorer):
        def _compute_metrics(self, gen_result: Any, metrics: Any) -> dict[str, Any]:
            scores = super()._compute_metrics(gen_result, metrics)
            scores["diversity"] = len(set(gen_result.results)) / len(gen_result.results)
            scores["n_unique"] = len(set(gen_result.results))
            return scores

    SCORER_REGISTRY["beam"] = BeamSearchScorer
    keep = "filter_list: [{name: none, filter: [{function: take_first_k, k: 3}]}]\nrepeats: 3\nscorer: beam\n"
    row = generate(tmp_path, [["a", "a", "b"], ["c", "c", "c"]], ["a", "x"], SAMPLED + keep)["results"]["t"]
    assert row["exact_match,none"] == pytest.approx((2 / 3 + 0) / 2)
    assert row["diversity,none"] == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert row["n_unique,none"] == pytest.approx(1.5)


def test_a_scorer_of_helper_code_is_registered_as_the_seed_writes_it(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from lm_eval.api.scorer import GenerationScorer, SCORER_REGISTRY\n\n\n"
        "class MyCustomScorer(GenerationScorer):\n"
        "    def _compute_metrics(self, gen_result, metrics):\n"
        "        scores = super()._compute_metrics(gen_result, metrics)\n"
        "        scores['custom_metric'] = float(len(gen_result.results[0]))\n"
        "        return scores\n\n\n"
        "SCORER_REGISTRY['my_custom'] = MyCustomScorer\n\n\n"
        "def same(rows):\n    return rows\n"
    )
    for written in ("my_custom", "!function own.MyCustomScorer", "{type: !function own.MyCustomScorer}"):
        yaml = f"process_docs: !function own.same\nscorer: {written}\n"
        row = generate(tmp_path, ["abc", "x"], ["abc", "y"], yaml)["results"]["t"]
        assert (row["exact_match,none"], row["custom_metric,none"]) == (0.5, 2.0)


def test_every_filter_has_separate_metrics(tmp_path: Path) -> None:
    """The YAML example of the seed, but for `group_select: 1`, which picks a second match."""
    yaml = r"""
        filter_list:
          - name: strict-match
            filter: [{function: regex, regex_pattern: "Answer: (.*)"}, {function: lowercase}, {function: take_first}]
            metric_list: [{metric: exact_match, aggregation: mean}, {metric: f1_score, aggregation: mean}]
          - name: flexible-extract
            filter: [{function: regex, regex_pattern: "([A-Za-z]+)", group_select: 0}, {function: lowercase}, {function: take_first}]
            metric_list: [{metric: exact_match, aggregation: mean}, {metric: bleu, aggregation: mean}]
          - name: no-filter
            filter: [{function: take_first}]
            metric_list: [{metric: rouge, aggregation: mean}]
        """
    row = generate(tmp_path, ["Well. Answer: Blue sky", "green"], ["blue sky", "green"], yaml)["results"]["t"]
    assert row["exact_match,strict-match"] == 0.5
    assert row["f1_score,strict-match"] == 0.5
    assert row["exact_match,flexible-extract"] == 0.5
    assert row["bleu,flexible-extract"] > 0
    assert {"rouge1,no-filter", "rougeL,no-filter"} <= set(row)
    assert "exact_match,no-filter" not in row


def test_a_filter_may_have_its_own_scorer(tmp_path: Path) -> None:
    @register_scorer("length")
    class Length(GenerationScorer):
        def score(self, reference: Any, predictions: list[Any]) -> float:
            return float(len(predictions[0]))

    yaml = """
        filter_list:
          - {name: plain, filter: [{function: take_first}]}
          - {name: long, filter: [{function: take_first}], scorer: length}
        """
    row = generate(tmp_path, ["abc"], ["abc"], yaml)["results"]["t"]
    assert row["exact_match,plain"] == 1.0
    assert row["length,long"] == 3.0
    assert "length,plain" not in row


@pytest.mark.parametrize(
    ("output_type", "kind"),
    [("generate_until", GenerationScorer), ("multiple_choice", LoglikelihoodScorer),
     ("loglikelihood", LoglikelihoodScorer), ("loglikelihood_rolling", PerplexityScorer)],
)  # fmt: skip
def test_the_factory_chooses_the_scorer_by_output_type(output_type: str, kind: type[Scorer]) -> None:
    config = Task.from_config({"task": "t", "output_type": output_type}).config
    assert type(ScorerFactory.create_scorer(config)) is kind


def test_the_factory_takes_the_tasks_own_function_first() -> None:
    import dataclasses

    config = Task.from_config({"task": "t", "scorer": "first_token"}).config
    assert type(ScorerFactory.create_scorer(config)).__name__ == "FirstToken"
    own = dataclasses.replace(config, process_results=lambda doc, results: {"n": len(results)})  # type: ignore[arg-type]
    built = ScorerFactory.create_scorer(own)
    assert isinstance(built, ProcessResultsScorer)
    instance = Instance(doc={"a": 1}, resps=["x"], filtered_resps={"none": "x"})
    assert built.score_instances([instance], "none") == {"n": 1}


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("scorer: first_tokn\n", "did you mean 'first_token'"),
        ("scorer: {type: choice_match, kwargs: {case: true}}\n", "has no parameter 'case'"),
        ("scorer: loglikelihood\n", "does not score generate_until"),
        ("filter_list: [{name: a, filter: [{function: take_first}], scorer: regx}]\n", "did you mean 'regex'"),
        ("scorer: {type: regex, kwargs: {regex_pattern: '('}}\n", "cannot be made"),
        ("scorer: {kind: regex}\n", "kind"),
    ],
)
def test_typos_of_scorers_are_refused_before_any_request(yaml: str, said: str, tmp_path: Path) -> None:
    asked = []
    write_task(tmp_path, [{"q": "a", "gold": "b"}], PLAIN + yaml)
    model = Scripted(generate=lambda prompt, params, repeat: asked.append(prompt) or "x")  # type: ignore[func-returns-value]
    with pytest.raises(ConfigError, match=said):
        run(tmp_path, model)
    assert asked == []


def test_only_scorers_are_registered() -> None:
    with pytest.raises(TypeError, match=r"must be a class derived from assay\.Scorer"):
        SCORER_REGISTRY["mine"] = len  # type: ignore[assignment]


def test_a_scorer_may_need_filters(tmp_path: Path) -> None:
    @register_scorer("agreeing")
    class Agreeing(GenerationScorer):
        needs_filters = ("first", "last")

        def score_instances(self, instances: Sequence[Instance], filter_name: str) -> Mapping[str, Any]:
            result = instances[0].filtered_resps
            return {"agree": float(result["first"] == result["last"])}

    yaml = r"""
        scorer: agreeing
        filter_list:
          - {name: first, filter: [{function: regex, regex_pattern: '(\d+)'}, {function: take_first}]}
          - {name: last, filter: [{function: regex, regex_pattern: '(\d+)', group_select: -1}, {function: take_first}]}
        """
    result = generate(tmp_path, ["1 and 2", "3"], ["x", "y"], yaml)["results"]["t"]
    assert result["agree,first"] == 0.5
    with pytest.raises(ConfigError, match="needs the filter 'first'"):
        generate(tmp_path, ["1"], ["x"], "scorer: agreeing\n")


# --- three tiers, each in a few lines ----------------------------------------------------------------------------------


def test_tier_one_is_defaults_alone(tmp_path: Path) -> None:
    from assay import FilterConfig, MetricConfig
    from assay.config.task import FilterStep

    @register_scorer("shout")
    class Shout(GenerationScorer):
        def default_filters(self) -> Any:
            steps = (FilterStep(function="uppercase"), FilterStep(function="take_first"))
            return (FilterConfig(name="loud", filter=steps),)

        def default_metrics(self) -> Any:
            return (MetricConfig(name="exact_match"),)

    assert generate(tmp_path, ["abc", "x"], ["ABC", "y"], "scorer: shout\n")["results"]["t"]["exact_match,loud"] == 0.5


def test_tier_two_is_the_score_of_a_document(tmp_path: Path) -> None:
    @register_scorer("closeness")
    class Closeness(GenerationScorer):
        def __init__(self, config: Any = None, scale: float = 1.0) -> None:
            super().__init__(config)
            self.scale = scale

        def score(self, reference: Any, predictions: list[Any]) -> Any:
            return {"off_by": abs(float(reference) - float(predictions[0])) / self.scale, "said": 1.0}

    yaml = "scorer: {type: closeness, kwargs: {scale: 2}}\n"
    row = generate(tmp_path, ["3", "10"], ["5", "10"], yaml)["results"]["t"]
    assert (row["off_by,none"], row["said,none"]) == (0.5, 1.0)
    assert "exact_match,none" not in row


def test_tier_three_is_all_documents_at_once(tmp_path: Path) -> None:
    @register_scorer("rank")
    class Rank(GenerationScorer):
        def score_batch(self, results: Sequence[Any]) -> Sequence[float]:
            ordered = sorted(results, key=lambda result: len(result.results[0]))
            return [float(ordered.index(result)) for result in results]

    run_results = generate(tmp_path, ["aaa", "a", "aa"], ["x", "y", "z"], "scorer: rank\n")
    assert run_results["results"]["t"]["rank,none"] == 1.0
    by_doc = {sample["doc_id"]: sample["rank"] for sample in run_results["samples"]["t"]}
    assert by_doc == {0: 2.0, 1: 0.0, 2: 1.0}


def test_an_exception_of_a_scorer_fails_its_document_instead_of_scoring_zero(tmp_path: Path) -> None:
    @register_scorer("picky")
    class Picky(GenerationScorer):
        def score(self, reference: Any, predictions: list[Any]) -> float:
            return 1 / len(predictions[0])

    results = generate(tmp_path, ["a", ""], ["a", "b"], "scorer: picky\n")
    assert results["results"]["t"]["picky,none"] == 1.0
    assert results["assay"]["tasks"]["t"]["failed"] == 1
    assert "ZeroDivisionError" in next(iter(results["assay"]["tasks"]["t"]["reasons"]))


def test_a_batch_that_gives_too_few_scores_fails_its_documents(tmp_path: Path) -> None:
    @register_scorer("short")
    class Short(GenerationScorer):
        def score_batch(self, results: Sequence[Any]) -> Sequence[float]:
            return [1.0]

    run_results = generate(tmp_path, ["a", "b"], ["a", "b"], "scorer: short\n")
    assert run_results["assay"]["tasks"]["t"]["failed"] == 2
    assert "gave 1 scores for 2 documents" in next(iter(run_results["assay"]["tasks"]["t"]["reasons"]))


# --- seed 004: the loop on user-made instances --------------------------------------------------------------------------


def instances(answers: Sequence[Sequence[str]], golds: Sequence[Any]) -> list[Instance]:
    items = zip(answers, golds, strict=True)
    return [Instance(doc={"n": n}, doc_id=n, target=gold, resps=list(said)) for n, (said, gold) in enumerate(items)]


def test_instances_are_scored_filter_by_filter_document_by_document() -> None:
    task = GenerateTask({
        "task": "t",
        "metric_list": [{"metric": "exact_match"}],
        "filter_list": [
            {"name": "raw", "filter": [{"function": "take_first"}]},
            {"name": "low", "filter": [{"function": "lowercase"}, {"function": "take_first"}], "metric_list": [{"metric": "exact_match"}, {"metric": "token_f1"}]},
        ],
    })  # fmt: skip
    result = task.process_instances(instances([["A b"], ["c"]], ["a b", "c"]))
    assert result == {
        ("exact_match", "raw"): [0.0, 1.0],
        ("exact_match", "low"): [1.0, 1.0],
        ("token_f1", "low"): [1.0, 1.0],
    }
    assert task.compute_aggregations()["exact_match", "raw"] == 0.5
    assert [each.name for each in task.config.get_filters()] == ["raw", "low"]
    assert [metric.name for metric in task.config.get_filters()[0].metric_list or ()] == ["exact_match"]


def test_choices_are_scored_by_their_likelihoods() -> None:
    task = MultipleChoiceTask({"task": "t", "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]})
    pairs = [(" long words", -3.0), (" x", -2.0)]
    items = [
        Instance(
            doc={}, doc_id=0, idx=n, args=("c", text), target=0, resps=[(value, False)], request_type="multiple_choice"
        )
        for n, (text, value) in enumerate(pairs)
    ]
    assert task.process_instances(items) == {("acc", "none"): [0.0], ("acc_norm", "none"): [1.0]}


def test_results_are_made_of_instances() -> None:
    [one, two] = instances([["a", "b"], ["c"]], ["a", ["c", "d"]])
    built = GenResult.from_instances([one])
    assert (built.results, built.target, built.repeats) == (["a"], "a", 2)
    filtered = Instance(doc={}, resps=["x y"], filtered_resps={"f": ["x", "y"]})
    assert GenResult.from_instances([filtered], "f").results == ["x", "y"]
    assert Results.create([filtered], "f").results == {"f": ["x", "y"]}
    choice = [
        Instance(doc={}, args=("", text), target=1, resps=[(ll, True)]) for text, ll in ((" a", -1.0), (" b", -2.0))
    ]
    mc = MCResult.from_instances(choice)
    assert (list(mc.choices), mc.lls, mc.target, mc.results) == ([" a", " b"], [-1.0, -2.0], 1, [" a"])
    doubled = MCResult.from_instances([*choice, *choice], acc_mutual_info=True)
    assert (doubled.lls, doubled.lls_unconditional) == ([-1.0, -2.0], [-1.0, -2.0])
    assert two.target == ["c", "d"]


def test_the_seeds_own_way_to_compute_works_in_a_subclass(tmp_path: Path) -> None:
    """The body of the seed's GenerationScorer, word for word in its calls."""

    @register_scorer("seeds")
    class Seeds(GenerationScorer):
        def score_instances(self, instances: Sequence[Instance], filter_name: str) -> Any:
            gen_result = GenResult.from_instances(instances, filter_name)
            assert self.config is not None
            gen_result.repeats = self.config.repeat_cfg.repeats
            scores: dict[str, list[Any]] = {}
            gold = gen_result.target
            for generation in gen_result.results:
                for metric in self.get_metrics(filter_name):
                    score = metric.fn(
                        references=[gold] if not isinstance(gold, list) else gold,
                        predictions=[generation],
                        **metric.kwargs,
                    )
                    scores.setdefault(metric.name, []).append(score)
            gen_result.scores = {name: values[0] if len(values) == 1 else values for name, values in scores.items()}
            return gen_result

    yaml = "scorer: seeds\nmetric_list: [{metric: exact_match, ignore_case: true}]\n"
    assert generate(tmp_path, ["A", "x"], ["a", "b"], yaml)["results"]["t"]["exact_match,none"] == 0.5


# --- repeats -----------------------------------------------------------------------------------------------------------

FOUR = SAMPLED + "repeats: 4\nfilter_list: [{name: none, filter: [{function: take_first_k, k: 4}]}]\n"


def test_reductions_are_added_and_the_plain_metric_keeps_its_name(tmp_path: Path) -> None:
    """Of four answers, 2 and 1 are right: pass@2 = 1 − C(2,2)/C(4,2) = 5/6 and 1 − C(3,2)/C(4,2) = 1/2; pass^2 = 1/6 and 0."""
    yaml = FOUR + "metric_list: [{metric: exact_match, reduction: [pass@1, pass@2, pass^2, pass@4]}]\n"
    row = generate(tmp_path, [["a", "a", "b", "c"], ["x", "y", "z", "a"]], ["a", "a"], yaml)["results"]["t"]
    assert row["exact_match,none"] == pytest.approx((0.5 + 0.25) / 2)
    assert row["pass@1,none"] == pytest.approx((0.5 + 0.25) / 2)
    assert row["pass@2,none"] == pytest.approx((5 / 6 + 1 / 2) / 2)
    assert row["pass^2,none"] == pytest.approx((1 / 6 + 0) / 2)
    assert row["pass@4,none"] == 1.0


def test_majorities_are_over_extracted_answers(tmp_path: Path) -> None:
    """a a b c: a wins with two votes. x y z w: all tie, and one of the four is right."""
    yaml = FOUR + "metric_list: [{metric: exact_match, reduction: maj@4}]\n"
    row = generate(tmp_path, [["a", "a", "b", "c"], ["x", "y", "z", "w"]], ["a", "x"], yaml)["results"]["t"]
    assert row["maj@4,none"] == pytest.approx((1.0 + 0.25) / 2)


def test_a_reduction_has_a_row_of_its_name_beside_the_mean(tmp_path: Path) -> None:
    answers, gold = [["a", "b", "b", "b"]], ["a"]
    for written, expected in (("take_first", 1.0), ("max", 1.0), ("min", 0.0), ("median", 0.0), ("mean", 0.25)):
        yaml = FOUR + f"metric_list: [{{metric: exact_match, reduction: {written}}}]\n"
        row = generate(tmp_path, answers, gold, yaml)["results"]["t"]
        assert (row["exact_match,none"], row[f"{written},none"]) == (0.25, expected)


def test_rows_of_reductions_may_be_named_and_functions_be_ones_own(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def spread(scores):\n    return max(scores) - min(scores)\n")
    yaml = (
        FOUR
        + "metric_list: [{metric: exact_match, reduction: {best: max, spread: !function own.spread, any2: pass@2}}]\n"
    )
    row = generate(tmp_path, [["a", "b", "b", "b"]], ["a"], yaml)["results"]["t"]
    assert (row["best,none"], row["spread,none"], row["any2,none"]) == (1.0, 1.0, 0.5)
    assert row["exact_match,none"] == 0.25


def test_two_metrics_with_one_reduction_have_two_rows(tmp_path: Path) -> None:
    yaml = FOUR + "metric_list: [{metric: exact_match, reduction: pass@2}, {metric: token_f1, reduction: pass@2}]\n"
    row = generate(tmp_path, [["a", "b", "b", "b"]], ["a"], yaml)["results"]["t"]
    assert row["pass@2(exact_match),none"] == row["pass@2(token_f1),none"] == 0.5


@pytest.mark.parametrize(
    ("reduction", "said"),
    [("pass@8", "needs 8 repeats, but the task has 4"), ("pas@2", "no reduction named"), ("[max, max]", "twice"),
     ("pass@0", "no reduction named")],
)  # fmt: skip
def test_invalid_reductions_are_refused(reduction: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        generate(
            tmp_path, [["a"] * 4], ["a"], FOUR + f"metric_list: [{{metric: exact_match, reduction: {reduction}}}]\n"
        )


def test_repeats_of_the_command_line_count(tmp_path: Path) -> None:
    keep = SAMPLED + "filter_list: [{name: none, filter: [{function: take_first_k, k: 2}]}]\n"
    yaml = keep + "metric_list: [{metric: exact_match, reduction: pass@2}]\n"
    row = generate(tmp_path, [["a", "b"]], ["a"], yaml, repeats=2)["results"]["t"]
    assert (row["exact_match,none"], row["pass@2,none"]) == (0.5, 1.0)


def test_list_valued_scores_are_not_taken_for_repeats(tmp_path: Path) -> None:
    """A function of the task's that gives a list gives one value that is a list, however many answers there are."""
    (tmp_path / "own.py").write_text(
        "def score(doc, results):\n    return {'both': [1.0, 3.0]}\n\n\ndef total(values):\n    return sum(sum(v) for v in values)\n"
    )
    yaml = "process_results: !function own.score\nmetric_list: [{metric: both, aggregation: !function own.total}]\n"
    assert generate(tmp_path, ["a", "b"], ["a", "b"], yaml)["results"]["t"]["both,none"] == 8.0


@given(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=7), st.data())
def test_pass_at_k_is_the_mean_over_all_ways_to_choose(scores: list[int], data: Any) -> None:
    k = data.draw(st.integers(1, len(scores)))
    subsets = list(itertools.combinations(scores, k))
    assert pass_at(scores, [], k=k) == pytest.approx(mean(float(any(each)) for each in subsets))
    assert pass_all(scores, [], k=k) == pytest.approx(mean(float(all(each)) for each in subsets))


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=7), st.data())
def test_majority_of_two_answers_is_a_count(answers: list[str], data: Any) -> None:
    """With two answers, a subset of k is right where more than half of it says a, and half right where exactly half does."""
    k = data.draw(st.integers(1, len(answers)))
    n, right = len(answers), answers.count("a")
    expected = 0.0
    for chosen in range(max(0, k - (n - right)), min(right, k) + 1):
        ways = math.comb(right, chosen) * math.comb(n - right, k - chosen) / math.comb(n, k)
        expected += ways * (1.0 if 2 * chosen > k else 0.5 if 2 * chosen == k else 0.0)
    scores = [float(answer == "a") for answer in answers]
    assert majority(scores, answers, k=k) == pytest.approx(expected)


def test_scores_of_every_repeat_are_in_the_samples(tmp_path: Path) -> None:
    yaml = FOUR + "metric_list: [{metric: exact_match, reduction: pass@2}]\n"
    results = generate(tmp_path, [["a", "b", "a", "c"]], ["a"], yaml, output_path=str(tmp_path / "run"))
    assert results["samples"]["t"][0]["scores_per_repeat"] == {"exact_match": [1.0, 0.0, 1.0, 0.0]}
    [row] = sample_rows(tmp_path / "run/samples/t.parquet")
    assert row["scores"]["exact_match,none,repeats"] == [1.0, 0.0, 1.0, 0.0]
    assert row["scores"]["pass@2,none"] == pytest.approx(5 / 6)


def test_every_name_of_the_seeds_is_public() -> None:
    for name in (
        "Instance",
        "Scorer",
        "ScorerFactory",
        "GenResult",
        "MCResult",
        "Results",
        "MetricConfig",
        "FilterConfig",
    ):
        assert hasattr(assay, name)


def test_a_scorer_of_a_function_gives_it_the_answer_of_one_request_in_a_list_and_those_of_several_as_they_are() -> None:
    seen: list[Any] = []

    def process_results(doc: Any, results: Any) -> Any:
        seen.append((doc, results))
        return {"n": len(results)} if doc["n"] else None

    def instance(number: int, idx: int, answer: Any) -> Instance:
        return Instance({"n": number}, number, ("q",), "x", idx=idx, resps=[answer], filtered_resps={"none": answer})

    config = Task.from_config({"task": "t", "process_results": process_results}).config
    scorer = ProcessResultsScorer(config)
    other = ProcessResultsScorer(config, lambda doc, results: {"own": 1.0})
    one, several = [instance(1, 0, "a")], [instance(2, 0, "a"), instance(2, 1, "b")]
    assert scorer.score_instances(one, "none") == {"n": 1}
    assert scorer.score_instances(several, "none") == {"n": 2}
    assert scorer.score_instances([instance(0, 0, "a")], "none") == {}
    assert other.score_instances(one, "none") == {"own": 1.0}
    assert seen == [({"n": 1}, ["a"]), ({"n": 2}, ["a", "b"]), ({"n": 0}, ["a"])]
    for without in (None, Task.from_config({"task": "t"}).config):
        with pytest.raises(TypeError, match="needs a function process_results"):
            ProcessResultsScorer(without)
