"""Every metric and filter of lm-eval, and every one of assay, on 200 random cases and more, against another implementation: lm_eval 0.4.13 (tests/golden/metrics.json),
scikit-learn, scipy, sacrebleu, rouge_score, rapidfuzz, and fractions for mathematics."""

import json
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
from hypothesis import example, given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein
from rouge_score.rouge_scorer import RougeScorer
from scipy.special import log_softmax, softmax
from sklearn.metrics import f1_score, precision_recall_fscore_support, precision_score, recall_score

from assay.compat.registered import Registered
from assay.config.task import MetricConfig
from assay.errors import Place
from assay.records import Failed, Sample
from assay.scoring.filters import DEFAULT, FILTERS, build_pipeline
from assay.scoring.helper_code import Helpers
from assay.scoring.loop import ScoringLoop
from assay.scoring.metric_binding import MetricBinder
from assay.scoring.metrics.registry import bits_per_byte_of_gold, choice_logprob, choice_logprob_norm, choice_prob_norm
from assay.scoring.metrics.text import edits
from assay.scoring.results import CHOICE, GENERATE, LIKELIHOOD, ROLLING, AnsweredSample, MCResult, ResultBuilder
from assay.scoring.scorer import GenerationScorer, bind, scorer_step
from assay.statistics.aggregations import AGGREGATIONS
from assay.statistics.estimates import estimate

pytestmark = pytest.mark.slow  # hundreds of cases each, and other libraries' implementations of them
CASES = 200
GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden/metrics.json").read_text(encoding="utf-8"))


def scoring(output_type: str, metrics: Sequence[Mapping[str, Any]]) -> ScoringLoop:
    """Metrics as a task file names them, bound as the run binds them."""

    def place(*path: object) -> Place:
        return Place("here")

    none = Registered()
    helpers = Helpers(lambda function: function, list, none.find_metric, dict)
    configs = [
        MetricConfig(**{key: value for key, value in metric.items() if key in ("name", "aggregation")},
                     kwargs={key: value for key, value in metric.items() if key not in ("name", "aggregation")})
        for metric in metrics
    ]  # fmt: skip
    bound = MetricBinder(output_type, place, helpers).bind(configs, processed=False)
    scorer = GenerationScorer()
    bind(scorer, DEFAULT.name, bound)
    reading = ResultBuilder(output_type)
    step = scorer_step(scorer, build_pipeline(DEFAULT, place), (DEFAULT.name,), reading, "t")
    return ScoringLoop([step], reading)


def scores(scored: ScoringLoop, doc: Mapping[str, Any], responses: Sequence[Any]) -> Mapping[str, Any]:
    """The values of one document."""
    gold, choices = doc["gold"], doc.get("choices")
    sample = Sample(0, doc, (), gold, gold, choices)
    [computed] = scored.score([AnsweredSample(sample, [[response] for response in responses])])
    assert not isinstance(computed, Failed), computed
    return computed[0].values


def same(result: Any, expected: Any) -> bool:
    if isinstance(expected, list | tuple):
        return len(result) == len(expected) and all(map(same, result, expected))
    return bool(result == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True))


# --- documents, by lm_eval ------------------------------------------------------------------------------------------

KINDS = {
    "multiple_choice": CHOICE,
    "several right": CHOICE,
    "mutual information": CHOICE,
    "loglikelihood": LIKELIHOOD,
    "loglikelihood_rolling": ROLLING,
    "generate_until": GENERATE,
    "several references": GENERATE,
}


@pytest.mark.parametrize("kind", KINDS)
def test_documents_score_as_in_lm_eval(kind: str) -> None:
    cases = GOLDEN["documents"][kind]
    assert len(cases) >= CASES
    for case in cases:
        own = {"likelihood": {"aggregation": "mean"}}  # which has no default aggregation
        names = [{"name": name, **own.get(name, {}), **case.get("kwargs", {})} for name in case["found"]]
        scored = scoring(KINDS[kind], names)
        if kind == "several references":
            scored.reading.multiple_targets = True
        results = [tuple(each) if isinstance(each, list) else each for each in case["results"]]
        computed = scores(scored, case["doc"], results)
        assert set(computed) == set(case["found"])
        for name, expected in case["found"].items():
            assert same(computed[name], expected), (name, case, computed)


@pytest.mark.parametrize("name", GOLDEN["aggregations"])
def test_values_are_aggregated_as_in_lm_eval(name: str) -> None:
    cases = GOLDEN["aggregations"][name]
    assert len(cases) >= CASES
    for case in cases:
        values = [math.nan if value is None else value for value in case["values"]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn's, of classes that never occur
            result = AGGREGATIONS["median_high" if name == "median" else name].function(values)
        assert result == pytest.approx(case["found"], rel=1e-9, abs=1e-9, nan_ok=True), case


@pytest.mark.parametrize("name", GOLDEN["filters"])
def test_filters_leave_what_those_of_lm_eval_leave(name: str) -> None:
    cases = GOLDEN["filters"][name]
    assert len(cases) >= CASES
    for case in cases:
        result = FILTERS[name](**case["kwargs"])(case["responses"], case["doc"])
        expected = [case["found"]] if name == "take_first" else case["found"]  # a list of one stands for the one here
        assert list(result) == expected, case


# --- likelihoods of choices, by scipy ---------------------------------------------------------------------------------


def test_likelihoods_of_the_right_choice() -> None:
    draw = np.random.default_rng(5)
    names = ("logprob", "bpb", "choice_logprob", "choice_prob_norm", "choice_logprob_norm", "exact_match_mc")
    scored = scoring(CHOICE, [{"name": name} for name in names])
    for _ in range(CASES):
        count = int(draw.integers(2, 6))
        choices = ["".join(draw.choice(list("abé東"), size=draw.integers(1, 9))) + str(n) for n in range(count)]
        lls, greedy, gold = draw.uniform(-40, 0, count), draw.random(count) < 0.5, int(draw.integers(count))
        sizes = np.array([len(choice.encode()) for choice in choices])
        computed = scores(
            scored,
            {"choices": choices, "gold": gold},
            [(float(ll), bool(g)) for ll, g in zip(lls, greedy, strict=True)],
        )
        expected = {
            "logprob": lls[gold],
            "bpb": -lls[gold] / sizes[gold] * np.log2(np.e),
            "choice_logprob": log_softmax(lls)[gold],
            "choice_prob_norm": softmax(lls / sizes)[gold],
            "choice_logprob_norm": log_softmax(lls / sizes)[gold],
            "exact_match_mc": float(greedy[gold]),
        }
        assert computed == pytest.approx(expected, rel=1e-12, abs=1e-12)


LLS = st.one_of(
    st.floats(-1e5, 0.0), st.floats(-50.0, 0.0), st.sampled_from([0.0, -1.0, -745.2, -800.0, -1e5, -1e300, -math.inf])
)
CHOICES_WITH_LLS = st.integers(1, 6).flatmap(
    lambda count: st.tuples(
        st.lists(LLS, min_size=count, max_size=count).filter(lambda lls: max(lls) > -math.inf),
        st.lists(st.text("abé東", min_size=1, max_size=9), min_size=count, max_size=count),
        st.integers(0, count - 1),
    )
)


@given(CHOICES_WITH_LLS)
@example(([-1.0, -800.0], ["a", "b"], 1))
@example(([-1e5, -1.0, -math.inf], ["a", "b", "c"], 0))
@example(([-math.inf, -1.0], ["a", "b"], 0))
@example(([-1e5, -1e5, -1e5], ["a", "b", "c"], 2))
def test_shares_of_the_likelihood_are_scipys_however_small(case: tuple[list[float], list[str], int]) -> None:
    lls, choices, gold = case
    result, values = MCResult({}, gold, choices, lls, [False] * len(lls)), np.array(lls)
    sizes = np.array([len(choice.encode()) for choice in choices])
    assert choice_logprob(result) == pytest.approx(log_softmax(values)[gold], rel=1e-12, abs=1e-12)
    assert choice_logprob_norm(result) == pytest.approx(log_softmax(values / sizes)[gold], rel=1e-12, abs=1e-12)
    assert choice_prob_norm(result) == pytest.approx(softmax(values / sizes)[gold], rel=1e-9, abs=1e-12)


@given(CHOICES_WITH_LLS)
def test_a_share_is_impossible_only_where_the_likelihood_is(case: tuple[list[float], list[str], int]) -> None:
    lls, choices, gold = case
    result = MCResult({}, gold, choices, lls, [False] * len(lls))
    assert (choice_logprob(result) == -math.inf) == (lls[gold] == -math.inf)
    assert (choice_logprob_norm(result) == -math.inf) == (lls[gold] == -math.inf)


def test_a_share_of_almost_all_keeps_its_digits() -> None:
    """log(1 / (1 + e^-40)) is -e^-40 to 17 digits, where a probability is rounded to 1."""
    result = MCResult({}, 0, ["a", "b"], [-1.0, -41.0], [True, False])
    assert choice_logprob(result) == pytest.approx(-math.exp(-40), rel=1e-12, abs=0)


def test_where_all_choices_are_impossible_so_is_the_right_one() -> None:
    result = MCResult({}, 1, ["a", "b"], [-math.inf, -math.inf], [False, False])
    assert (choice_logprob(result), choice_logprob_norm(result), choice_prob_norm(result)) == (-math.inf, -math.inf, 0)


def test_an_empty_choice_has_no_share_by_bytes_and_takes_none_from_others() -> None:
    """A likelihood below 1 over no bytes at all is worse than any other; a certain one is as good as can be."""
    lls = [-3.0, -2.0]
    right = MCResult({}, 1, ["aaa", ""], lls, [False, False])
    assert (choice_logprob_norm(right), choice_prob_norm(right), bits_per_byte_of_gold(right)) == (
        -math.inf,
        0,
        math.inf,
    )
    wrong = MCResult({}, 0, ["aaa", ""], lls, [False, False])
    assert (choice_logprob_norm(wrong), choice_prob_norm(wrong)) == (0.0, 1.0)
    assert choice_logprob(right) == pytest.approx(log_softmax(lls)[1])
    certain = MCResult({}, 1, ["aaa", ""], [-3.0, 0.0], [False, True])
    assert choice_prob_norm(certain) == pytest.approx(1 / (1 + math.exp(-1)))
    assert bits_per_byte_of_gold(certain) == 0.0


# --- texts ------------------------------------------------------------------------------------------------------------

WORDS = [
    "the",
    "a",
    "an",
    "The",
    "cat,",
    "cat",
    "dog.",
    "sat",
    "running",
    "runs",
    "on",
    "été",
    "東京",
    "!",
    "1,200",
    "x-ray",
    "it's",
]


def sentence(draw: random.Random, least: int = 0, most: int = 12) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(least, most)))


def pairs(seed: int, count: int = CASES) -> Iterator[tuple[list[str], str]]:
    """References and an answer, often much like one of them."""
    draw = random.Random(seed)
    for _ in range(count):
        references = [sentence(draw, 1) for _ in range(draw.randint(1, 3))]
        near = draw.choice(references).split()
        near[draw.randrange(len(near))] = draw.choice(WORDS)
        yield references, draw.choice([" ".join(near), sentence(draw), draw.choice(references)])


def value(name: str, references: list[str], answer: str, **options: Any) -> Any:
    """The values of metrics of an answer, with every reference."""
    scored = scoring(GENERATE, [{"name": name, **options}])
    scored.reading.multiple_targets = True
    computed = scores(scored, {"gold": references}, [answer])
    return computed.get(name, computed)


@pytest.fixture(scope="module")
def qasper(lm_eval_folder: Path) -> Callable[..., float]:
    """The token F1 of lm_eval's task qasper."""
    spec = spec_from_file_location("qasper_metrics", lm_eval_folder / "lm_eval/tasks/qasper/metrics.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    result: Callable[..., float] = module.f1_abstractive
    return result


@pytest.mark.parametrize("name", ["token_f1", "f1_score"])
def test_token_f1(name: str, qasper: Callable[..., float]) -> None:
    kept_pairs = [pair for pair in pairs(1, 2 * CASES) if not set(pair[1].lower().split()) <= {"the", "a", "an", "!"}]
    assert len(kept_pairs) >= CASES  # where nothing is left, qasper says 0 to nothing for nothing
    for references, answer in kept_pairs:
        expected = max(qasper([answer], [reference]) for reference in references)
        assert value(name, references, answer) == pytest.approx(expected, abs=1e-12), (references, answer)


def test_token_f1_where_nothing_is_left() -> None:
    assert value("token_f1", ["The"], "a!") == 1.0
    assert value("token_f1", ["The"], "cat") == 0.0
    assert value("token_f1", ["cat", "dog"], "the dog") == 1.0


@pytest.mark.parametrize("stemmed", [False, True])
def test_rouge(stemmed: bool) -> None:
    kinds = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    scorer = RougeScorer(kinds, use_stemmer=stemmed)
    for references, answer in pairs(2):
        answer = answer.replace(" dog.", "\ndog.")
        best = scorer.score_multi(references, answer)
        expected = {kind: best[kind].fmeasure for kind in kinds}
        assert value("rouge", references, answer, use_stemmer=stemmed) == pytest.approx(expected, abs=1e-12)
        for kind in kinds:
            assert value(kind, references, answer, use_stemmer=stemmed) == pytest.approx(expected[kind], abs=1e-12)


SENTENCES: dict[str, Callable[..., Any]] = {
    "bleu": sacrebleu.sentence_bleu,
    "chrf": sacrebleu.sentence_chrf,
    "chrf++": lambda answer, references: sacrebleu.sentence_chrf(answer, references, word_order=2),
    "ter": sacrebleu.sentence_ter,
}


@pytest.mark.parametrize("name", SENTENCES)
@pytest.mark.parametrize("aggregation", ["mean", "median"])
def test_a_translation_is_scored_by_itself_where_numbers_are_aggregated(name: str, aggregation: str) -> None:
    for references, answer in pairs(3):
        expected = SENTENCES[name](answer, references).score
        assert value(name, references, answer, aggregation=aggregation) == pytest.approx(expected, abs=1e-9)


LETTERS = "abé東 "


def strings(seed: int) -> Iterator[tuple[str, str]]:
    draw = random.Random(seed)
    for _ in range(2 * CASES):
        length = draw.choice([3, 12, 70, 200])
        one = "".join(draw.choices(LETTERS, k=draw.randint(0, length)))
        other = list(one)
        for _ in range(draw.randint(0, 6)):
            other.insert(draw.randint(0, len(other)), draw.choice(LETTERS))
            del other[draw.randrange(len(other))]
        yield one, draw.choice(["".join(other), "".join(draw.choices(LETTERS, k=draw.randint(0, length)))])


def test_edits() -> None:
    for one, other in strings(4):
        assert value("edit_distance", [one], other) == Levenshtein.distance(one, other)
        expected = Levenshtein.normalized_similarity(one, other)
        assert value("edit_similarity", [one], other) == pytest.approx(expected, abs=1e-12)


@given(st.text("ab", max_size=8), st.text("ab", max_size=8), st.text("ab", max_size=8))
def test_edits_are_a_distance(one: str, other: str, third: str) -> None:
    assert edits(one, one) == 0
    assert edits(one, other) == edits(other, one)
    assert (edits(one, other) == 0) == (one == other)
    assert edits(one, third) <= edits(one, other) + edits(other, third)
    assert abs(len(one) - len(other)) <= edits(one, other) <= max(len(one), len(other))


def test_the_nearest_reference_counts() -> None:
    assert value("edit_distance", ["abc", "xbcd"], "abcd") == 1
    assert value("edit_similarity", ["abc", "xbcd"], "abcd") == 0.75


# --- classes, by scikit-learn -----------------------------------------------------------------------------------------

SKLEARN: dict[str, Callable[..., Any]] = {"precision": precision_score, "recall": recall_score, "f1": f1_score}
CLASSES = ["no", "yes", "maybe", "[invalid]"]


def labelled(seed: int, count: int = CASES) -> Iterator[tuple[list[str], list[str]]]:
    """Right and given classes of many documents; sometimes a class is missing on either side."""
    draw = random.Random(seed)
    for _ in range(count):
        known, said, n = CLASSES[: draw.randint(1, 3)], draw.sample(CLASSES, draw.randint(1, 4)), draw.randint(1, 40)
        right = draw.choices(known, k=n)
        yield right, [r if draw.random() < 0.5 else draw.choice(said) for r in right]


def estimated(scored: ScoringLoop, key: str, values: Sequence[Any]) -> Any:
    """The number of a metric over documents, as a run computes it."""
    metrics = scored.metrics
    named = scored.parents.get(key, key)
    aggregation: Any = next(metric.aggregation for metric in metrics if metric.name == named)
    known = AGGREGATIONS[aggregation] if isinstance(aggregation, str) else aggregation
    return estimate(known, values, bootstrap_iters=100)


def over_documents(
    scored: ScoringLoop, golds: Sequence[Any], answers: Sequence[Any], choices: Sequence[str] = ()
) -> dict[str, float]:
    columns: dict[str, list[Any]] = {}
    for gold, answer in zip(golds, answers, strict=True):
        if choices:
            doc = {"gold": gold, "choices": list(choices)}
            responses = [(0.0 if choice == answer else -1.0, False) for choice in choices]
        else:
            doc, responses = {"gold": gold}, [answer]
        for name, each in scores(scored, doc, responses).items():
            columns.setdefault(name, []).append(each)
    return {name: float(estimated(scored, name, values)) for name, values in columns.items()}


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("score", SKLEARN)
def test_scores_over_classes(average: str, score: str) -> None:
    scored = scoring(GENERATE, [{"name": f"{average}_{score}"}])
    for right, predicted in labelled(6):
        expected = SKLEARN[score](right, predicted, average=average, zero_division=0)
        result = over_documents(scored, right, predicted)[f"{average}_{score}"]
        assert result == pytest.approx(float(expected), abs=1e-12), (right, predicted)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("score", SKLEARN)
def test_scores_over_the_classes_that_are_named(average: str, score: str) -> None:
    scored = scoring(GENERATE, [{"name": f"{average}_{score}", "labels": ["no", "yes"]}])
    kept_pairs = [pair for pair in labelled(7, 2 * CASES) if {"no", "yes"} & set(pair[0])]
    assert len(kept_pairs) >= CASES
    for right, predicted in kept_pairs:
        expected = SKLEARN[score](right, predicted, labels=["no", "yes"], average=average, zero_division=0)
        result = over_documents(scored, right, predicted)[f"{average}_{score}"]
        assert result == pytest.approx(float(expected), abs=1e-12), (right, predicted)


@pytest.mark.parametrize("score", SKLEARN)
def test_scores_of_each_class(score: str) -> None:
    known = CLASSES[:3]
    generated = scoring(GENERATE, [{"name": f"{score}_by_class", "labels": known}])
    chosen = scoring(CHOICE, [{"name": f"{score}_by_class"}])
    for right, predicted in labelled(8):
        one_of = [each if each in known else "no" for each in predicted]
        for scored, said, choices in ((generated, predicted, ()), (chosen, one_of, known)):
            table = precision_recall_fscore_support(right, said, labels=known, zero_division=0)
            expected = dict(zip(known, table[list(SKLEARN).index(score)], strict=True))
            scores = over_documents(scored, right, said, choices)
            assert scores == pytest.approx({f"{score}[{label}]": expected[label] for label in known}, abs=1e-12)


@pytest.mark.parametrize("score", ["precision", "recall"])
def test_scores_of_one_class(score: str) -> None:
    generated = scoring(GENERATE, [{"name": score, "label": "yes"}])
    second = scoring(CHOICE, [{"name": score}])
    for right, predicted in labelled(9):
        for scored, golds, said, choices in (
            (generated, right, predicted, ()),
            (second, [each if each == "yes" else "no" for each in right],
             [each if each == "yes" else "no" for each in predicted], ["no", "yes"]),
        ):  # fmt: skip
            numbers = [[each == "yes" for each in side] for side in (golds, said)]
            expected = SKLEARN[score](*numbers, zero_division=0)
            assert over_documents(scored, golds, said, choices)[score] == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("score", SKLEARN)
def test_the_error_of_a_score_over_classes_is_that_of_a_jackknife(average: str, score: str) -> None:
    """Leaving out each document in turn is another way to the same error; in samples of 400 both agree to a few percent."""
    draw = random.Random(10)
    right = draw.choices(CLASSES[:3], weights=[5, 3, 2], k=400)
    said = [each if draw.random() < 0.7 else draw.choice(CLASSES[:3]) for each in right]
    values = list(zip(right, said, strict=True))
    known = AGGREGATIONS[f"{average}_{score}"]
    without = [known.function(values[:n] + values[n + 1 :]) for n in range(len(values))]
    expected = math.sqrt((len(values) - 1) ** 2 / len(values) * np.var(without, ddof=1))
    estimated = estimate(known, values, bootstrap_iters=100)
    assert estimated.stderr == pytest.approx(expected, rel=0.05)


# --- mathematics, by fractions ----------------------------------------------------------------------------------------


def written(number: Fraction, draw: random.Random) -> str:
    """One of the ways to write a number."""
    above, below, times = number.numerator, number.denominator, draw.randint(1, 4)
    sign = "-" if above < 0 else ""
    ways = [
        rf"${sign}\frac{{{abs(above) * times}}}{{{below * times}}}$",
        rf"\boxed{{{sign}\frac{{{abs(above)}}}{{{below}}}}}",
        f"{above * times}/{below * times}",
        f"{float(number)}",
        f"The answer is ${float(number)}$.",
    ]
    return draw.choice(ways)


def test_numbers_are_equal_however_they_are_written() -> None:
    """Denominators divide a power of ten, so that decimals are exact."""
    pytest.importorskip("math_verify")
    draw = random.Random(11)
    numbers = [Fraction(draw.randint(-500, 500), draw.choice([2, 4, 5, 8, 10, 20, 25])) for _ in range(CASES)]
    for number in numbers:
        other = number if draw.random() < 0.5 else number + Fraction(draw.choice([-1, 1]), draw.choice([2, 5, 10]))
        one, two = written(number, draw), written(other, draw)
        assert value("math_equal", [one], two) == float(number == other), (one, two)


EQUAL = [
    ("x+1", "1 + x", 1.0), ("x+1", "x-1", 0.0), (r"\frac{1}{2}", "0.5", 1.0), ("{1, 2}", r"\{2, 1\}", 1.0),
    (r"2\sqrt{2}", r"\sqrt{8}", 1.0), ("1,234", "1234", 1.0), ("Paris", "Paris", 1.0), ("Paris", "Rome", 0.0),
    ("tree", "reet", 0.0), ("5", "I do not know", 0.0), ("5", "", 0.0), (r"\pi", "3.14", 0.0),
    ("5", "5 m", 1.0), ("x", "x", 1.0), ("x", "y", 0.0), ("2y", "y+y", 1.0), ("(1,2)", "(2,1)", 0.0), ("x^2-1", "(x-1)(x+1)", 1.0), ("12", "so I get $12$", 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("right", "answer", "expected"), EQUAL)
def test_formulas_are_equal_when_they_mean_the_same(right: str, answer: str, expected: float) -> None:
    pytest.importorskip("math_verify")
    assert value("math_equal", [right], answer) == expected
