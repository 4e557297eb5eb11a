"""A user's own metric: how it is called, what is refused before the run; its repeats, and the names of its rows."""

import itertools
import math
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import assay
from assay.errors import ConfigError
from assay.report.table import table_footing
from assay.scoring.metrics.convention import read_call
from assay.scoring.results import GenResult
from assay.statistics.aggregations import AGGREGATIONS, Aggregation, Repeated, over_repeats
from assay.tasks.manager import TaskManager
from assay.tasks.validate import validate
from run_world import rows_of
from small_runs import SAMPLED, choose, generate, noting, run, says, write_task

QUESTION = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"


def own(folder: Path, code: str) -> Path:
    (folder / "own.py").write_text(dedent(code), encoding="utf-8")
    return folder


def row(results: dict[str, Any]) -> dict[str, Any]:
    """The numbers of the task, without standard errors."""
    return {
        key.removesuffix(",none"): value
        for key, value in results["results"]["t"].items()
        if "," in key and "_stderr" not in key
    }


# --- one convention ----------------------------------------------------------------------------------------------------

CALLED = {
    "all references": ("def m(references, prediction): return calls.append((references, prediction)) or 1",
                       [(["a", "bc"], "x"), (["a", "bc"], "y")]),
    "in another order": ("def m(prediction, references): return calls.append((references, prediction)) or 1",
                         [(["a", "bc"], "x"), (["a", "bc"], "y")]),
    "each reference": ("def m(reference, prediction): return calls.append((reference, prediction)) or 1",
                       [("a", "x"), ("bc", "x"), ("a", "y"), ("bc", "y")]),
    "the seeds' form": ("def m(references, predictions, **kw): return calls.append((references, predictions)) or 1",
                        [(["a", "bc"], ["x"]), (["a", "bc"], ["y"])]),
    "each reference, in lists of one": ("def m(reference, predictions): return calls.append((reference, predictions)) or 1",
                                        [("a", ["x"]), ("bc", ["x"]), ("a", ["y"]), ("bc", ["y"])]),
    "lm-eval's pair": ("def m(items): return calls.append(tuple(items)) or 1",
                       [("a", "x"), ("bc", "x"), ("a", "y"), ("bc", "y")]),
    "all repeats at once": ("def m(references, predictions: list[list[str]]): return calls.append((references, predictions)) or 1",
                            [(["a", "bc"], [["x", "y"]])]),
}  # fmt: skip
"""Functions, and the calls of a document with the references a, bc and the answers x, y."""


@pytest.mark.parametrize("case", CALLED)
def test_a_metric_is_called_as_the_names_of_its_parameters_say(case: str) -> None:
    code, expected = CALLED[case]
    names: dict[str, Any] = {"calls": []}
    exec(code, names)
    compute = read_call(names["m"]).computing({}, "m", higher_is_better=True)
    value = compute(GenResult({}, ["a", "bc"], ["x", "y"]))
    assert names["calls"] == expected
    assert value == (1 if case == "all repeats at once" else [1, 1])


@pytest.mark.parametrize(("better", "expected"), [(True, 0.6), (False, 0.3), (None, 0.6)])
@pytest.mark.parametrize("signature", ["reference, prediction", "reference, predictions", "items"])
def test_of_several_references_the_best_by_direction_is_kept(
    signature: str, better: bool | None, expected: float
) -> None:
    names: dict[str, Any] = {}
    first = "items[0]" if signature == "items" else "reference"
    exec(f"def m({signature}): return {{'a': 0.3, 'b': 0.6}}[{first}]", names)
    compute = read_call(names["m"]).computing({}, "m", higher_is_better=better)
    assert compute(GenResult({}, ["a", "b"], "x")) == expected


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(st.floats(-10, 10), min_size=1, max_size=5),
    answers=st.lists(st.sampled_from("xyz"), min_size=1, max_size=4),
    better=st.booleans(),
)
def test_the_best_of_references_does_not_depend_on_their_order(
    values: list[float], answers: list[str], better: bool
) -> None:
    """And each answer has its own: the value of all repeats is the list of those of single answers."""

    def m(reference: float, prediction: str) -> float:
        return reference * "xyz".index(prediction)

    compute = read_call(m).computing({}, "m", higher_is_better=better)
    whole = compute(GenResult({}, values, answers))
    assert list(whole) == [compute(GenResult({}, values, each)) for each in answers]
    for order in itertools.islice(itertools.permutations(values), 6):
        assert compute(GenResult({}, list(order), answers)) == whole


def test_a_metric_cannot_change_the_references_of_the_next(tmp_path: Path) -> None:
    own(tmp_path, "def greedy(references, prediction):\n    references.clear()\n    return 0.5\n")
    yaml = "metric_list: [{metric: !function own.greedy, aggregation: mean}, {metric: exact_match}]\n"
    assert row(generate(tmp_path, ["a"], [["a", "b"]], yaml)) == {"greedy": 0.5, "exact_match": 1.0}


def test_repeats_are_scored_one_by_one_and_reduced(tmp_path: Path) -> None:
    """Right are 2 of 4: mean 1/2, pass@2 = 1 − C(2,2)/C(4,2) = 5/6. A list of one is the score of its answer."""
    own(tmp_path, "def right(references, predictions):\n    return [float(predictions[0] in references)]\n")
    yaml = (
        SAMPLED
        + "repeats: 4\nmetric_list: [{metric: !function own.right, aggregation: mean, reduction: [max, pass@2]}]\n"
    )
    numbers = row(generate(tmp_path, [["a", "a", "b", "c"]], ["a"], yaml))
    assert numbers == {"right": 0.5, "max": 1.0, "pass@2": pytest.approx(5 / 6)}


@pytest.mark.parametrize(("compat", "expected"), [(None, 0.5), ("lm-eval", 0.0)])
def test_with_compat_all_repeats_come_in_one_call_as_in_lm_eval(
    compat: str | None, expected: float, tmp_path: Path
) -> None:
    own(tmp_path, "def same(references, predictions):\n    return float(references[0] == predictions[0])\n")
    yaml = SAMPLED + "repeats: 2\nfilter_list: [{name: none, filter: [{function: take_first_k, k: 2}]}]\n"
    yaml += "metric_list: [{metric: !function own.same, aggregation: mean}]\n"
    assert row(generate(tmp_path, [["a", "b"]], ["a"], yaml, compat=compat)) == {"same": expected}


def test_a_signature_that_lm_eval_could_not_call_is_called_by_ours_with_compat_too(tmp_path: Path) -> None:
    own(tmp_path, "def same(reference, predictions):\n    return float([reference] == predictions)\n")
    yaml = "metric_list: [{metric: !function own.same, aggregation: mean}]\n"
    assert row(generate(tmp_path, ["a", "b"], ["a", "a"], yaml, compat="lm-eval")) == {"same": 0.5}


def test_a_registered_metric_is_called_by_the_same_convention(tmp_path: Path) -> None:
    @assay.metric("nearest_length")
    def nearest_length(reference: str, prediction: str, *, scale: float = 1.0) -> float:
        return -abs(len(reference) - len(prediction)) * scale

    try:
        yaml = "metric_list: [{metric: nearest_length, scale: 2.0}]\n"
        assert row(generate(tmp_path, ["abcd"], [["a", "abc"]], yaml)) == {"nearest_length": -2.0}
        with pytest.raises(ConfigError, match="did you mean 'scale'"):
            generate(tmp_path, ["a"], ["a"], yaml.replace("scale", "scael"))
    finally:
        del assay.plugins.registry("metrics")["nearest_length"]


def test_a_metric_of_choices_compares_their_texts(tmp_path: Path) -> None:
    own(
        tmp_path,
        """
        def letters(references, prediction):
            return float(len(prediction) == len(references[0]))

        def margin(result):
            return max(result.lls) - min(result.lls)
        """,
    )
    entries = ", ".join(f"{{metric: !function own.{name}, aggregation: mean}}" for name in ("letters", "margin"))
    results = choose(tmp_path, [[-1.0, -3.0], [-2.0, -1.0]], [0, 0], ["yes", "no"], f"metric_list: [{entries}]\n")
    assert row(results) == {"letters": 0.5, "margin": 1.5}


# --- refused before the run ---------------------------------------------------------------------------------------------

MEAN = "{metric: !function own.m, aggregation: mean}"
FILTERED = "filter_list: [{name: f, filter: [{function: !function own.f}, {function: take_first}]}]\n"
REFUSED = {
    "names that say nothing": ("def m(pred, gold): return 1", MEAN, "it takes (pred, gold)", "name its parameters `references`"),
    "no name of the answer": ("def m(references, pred): return 1", MEAN, "none is named `prediction`", "call 'pred' `prediction`"),
    "no reference": ("def m(prediction): return 1", MEAN, "none is named `references`", "add a parameter"),
    "one side alone": ("def m(answer): return 1", MEAN, "takes 'answer' alone", "name its parameters"),
    "no parameter": ("def m(): return 1", MEAN, "takes neither a reference nor an answer", "name its parameters"),
    "one parameter too many": ("def m(references, prediction, doc): return 1", MEAN, "needs the parameter 'doc'", "add `doc:`"),
    "by position alone": ("def m(references, prediction, /): return 1", MEAN, "cannot be given by name", "remove the `/`"),
    "async": ("async def m(references, prediction): return 1", MEAN, "is async", "in place of `async def`"),
    "a generator": ("def m(references, prediction): yield 1", MEAN, "it yields", "write `return`"),
    "a class": ("class m:\n    def __init__(self, references, prediction): ...", MEAN, "it is a class", "name a function"),
    "an unknown parameter": ("def m(references, prediction, *, weight=1): return 1", MEAN.replace("}", ", weigth: 2}"),
                             "has no parameter 'weigth'", "did you mean 'weight'"),
    "a parameter of another type": ("def m(reference, prediction, *, weight: float = 1): return 1",
                                    MEAN.replace("}", ", weight: heavy}"), "'weight' cannot be 'heavy'", "of type float"),
    "a text for a list": ("def m(reference, prediction, *, words: list[str] = []): return 1",
                          MEAN.replace("}", ", words: a}"), "'words' cannot be 'a'", "of type list"),
    "a text for a number": ("def m(references, prediction, *, weight=0.5): return weight", MEAN.replace("}", ", weight: heavy}"),
                            "'weight' cannot be 'heavy'", "of type float"),
    "a number for a truth": ("def m(references, prediction, *, loose=False): return 1", MEAN.replace("}", ", loose: 2}"),
                             "'loose' cannot be 2", "of type bool"),
    "a text for a number of an aggregation": ("def a(values, *, least=0.0): return 1",
                                              "{metric: exact_match, aggregation: !function own.a, least: low}",
                                              "'least' cannot be 'low'", "of type float"),
    "f1 of texts": ("", "{metric: f1}", "'f1' is of the classes 0 and 1", "use macro_f1"),
    "a text for a truth": ("", "{metric: exact_match, ignore_case: 'yes please'}", "'ignore_case' cannot be", "of type bool"),
    "a reduction of nothing": ("def r(): return 1", "{metric: exact_match, reduction: !function own.r}", "r cannot be used", ""),
    "an async reduction": ("async def r(scores): return 1", "{metric: exact_match, reduction: !function own.r}", "is async", ""),
    "an aggregation of nothing": ("def a(): return 1", "{metric: exact_match, aggregation: !function own.a}",
                                  "must take (values, …)", ""),
    "an async aggregation": ("async def a(values): return 1", "{metric: exact_match, aggregation: !function own.a}", "is async", ""),
    "a filter of one parameter": ("def f(resp): return resp", FILTERED, "must take (resps, docs)", "give it both"),
    "an async filter": ("async def f(resps, docs): return resps", FILTERED, "is async", "in place of `async def`"),
    "process_results of a document": ("def p(doc): return {}", "process_results: !function own.p\n", "cannot be called with 2 arguments", "doc, results"),
    "an async process_results": ("async def p(doc, results): ...", "process_results: !function own.p\n", "is async", "doc, results"),
    "pass@k of a corpus metric": ("", "{metric: bleu, reduction: pass@2}", "no score to reduce", "aggregation: mean"),
    "a renamed row of process_results": ("def p(doc, results): ...",
                                         "process_results: !function own.p\nmetric_list: [{metric: a, name: b, aggregation: mean}]\n",
                                         "process_results names its rows itself", "leave `name` out"),
    "an invalid name": ("", "{metric: exact_match, name: 'a,b'}", "a row cannot be named 'a,b'", ""),
    "one row twice": ("", "{metric: exact_match}, {metric: exact_match, ignore_case: true}", "two rows are named", "a `name`"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_is_refused_by_validate_and_before_any_request(case: str, tmp_path: Path) -> None:
    code, written, what, fix = REFUSED[case]
    yaml = written if written.endswith("\n") else f"metric_list: [{written}]\n"
    own(tmp_path, code)
    write_task(tmp_path, [{"q": "0", "gold": "a"}], QUESTION + SAMPLED + "repeats: 2\n" + yaml)
    problems = validate(TaskManager(include_path=str(tmp_path), include_defaults=False))
    assert [what in each.what and fix in each.fix for each in problems] == [True], problems
    assert (problems[0].place.file or "").endswith("t.yaml")
    assert problems[0].place.line
    asked: list[str] = []
    with pytest.raises(ConfigError) as raised:
        run(tmp_path, noting(asked))
    assert (list(raised.value.problems), asked) == (problems, [])


def test_a_scorer_whose_score_takes_one_argument_is_refused_before_any_request(tmp_path: Path) -> None:
    own(tmp_path, "import assay\nclass S(assay.Scorer):\n    def score(self, prediction): return 1\n")
    write_task(tmp_path, [{"q": "0", "gold": "a"}], QUESTION + "scorer: !function own.S\n")
    asked: list[str] = []
    with pytest.raises(ConfigError, match=r"def score\(self, reference, predictions\)"):
        run(tmp_path, noting(asked))
    assert asked == []


ORDERED = {
    "the first alone": "def m(references, prediction): return float(references[0] == prediction)",
    "in the seeds' form": "def m(references, predictions, **kw): return {'x': 0.3 if references[0] == 'a' else 0.6}",
    "in a list": "def m(references, predictions): return [float(references[-1] == predictions[0])]",
}
FREE = {
    "one of them": ("def m(references, prediction): return float(prediction in references)", 1.0),
    "at random": ("import random\ndef m(references, prediction): return 0.5 + 0 * random.random() if len(references) else 0", 0.5),
    "raises": ("def m(references, prediction): return 1 / (prediction == 'x')", None),
    "a pair for an aggregation": ("def m(references, prediction): return references, prediction", None),
}  # fmt: skip


@pytest.mark.parametrize("case", ORDERED)
def test_a_metric_that_depends_on_the_order_of_references_is_refused_before_any_request(
    case: str, tmp_path: Path
) -> None:
    """The first documents have one reference, and say nothing about it."""
    own(tmp_path, ORDERED[case])
    rows = [{"q": str(n), "gold": ["a"]} for n in range(5)] + [{"q": last, "gold": ["a", last]} for last in "bc"]
    write_task(tmp_path, rows, QUESTION + f"metric_list: [{MEAN}]\n")
    asked: list[str] = []
    with pytest.raises(
        ConfigError,
        match=r"t\.yaml:\d+:\d+: metric 'm' gives .* for the references \['a', 'b'\] .* in reverse order — .*`reference`",
    ):
        run(tmp_path, noting(asked))
    assert asked == []


@pytest.mark.parametrize("case", FREE)
def test_a_metric_that_is_given_all_references_runs_where_their_order_does_not_matter(
    case: str, tmp_path: Path
) -> None:
    code, expected = FREE[case]
    own(tmp_path, code)
    numbers = row(generate(tmp_path, ["b"], [["a", "b"]], f"metric_list: [{MEAN}]\n"))
    assert numbers.get("m") == expected


def test_with_compat_order_is_not_asked_for(tmp_path: Path) -> None:
    own(
        tmp_path,
        ORDERED["the first alone"].replace("prediction)", "predictions)").replace("prediction)", "predictions[0])"),
    )
    yaml = f"metric_list: [{MEAN}]\n"
    assert row(generate(tmp_path, ["b"], [["a", "b"]], yaml, compat="lm-eval")) == {"m": 0.0}


# --- repeats -------------------------------------------------------------------------------------------------------------

EIGHT = [["a", "a", "b", "c"], ["x", "y", "a", "z"]]
"""Right answers are a: 2 of 4 and 1 of 4."""


def remarks(results: dict[str, Any]) -> list[str]:
    sentences: list[str] = results["assay"]["tasks"]["t"].get("remarks", [])
    return sentences


@pytest.mark.parametrize(
    "reduction", ["", ", reduction: pass@2", ", reduction: [max, maj@4]", ", reduction: {best: max}"]
)
def test_all_repeats_are_scored_and_a_reduction_leaves_the_metrics_row_alone(reduction: str, tmp_path: Path) -> None:
    yaml = SAMPLED + f"repeats: 4\nmetric_list: [{{metric: exact_match{reduction}}}]\n"
    results = generate(tmp_path, EIGHT, ["a", "a"], yaml)
    assert row(results)["exact_match"] == pytest.approx((2 / 4 + 1 / 4) / 2)
    assert remarks(results) == []


@pytest.mark.parametrize(
    ("scorer", "answers", "expected"),
    [("first_token", [[" a", "b"], ["b ", "A."]], 0.5), ("{type: regex, kwargs: {regex_pattern: 'is (.)'}}", [["is a", "a"], ["is b", "is a"]], 0.5)],
)  # fmt: skip
def test_scorers_with_default_filters_score_all_repeats(
    scorer: str, answers: list[list[str]], expected: float, tmp_path: Path
) -> None:
    yaml = SAMPLED + f"repeats: 2\nscorer: {scorer}\n"
    assert row(generate(tmp_path, answers, ["a", "a"], yaml))["exact_match"] == expected


UNSCORED = {
    "lm-eval": ("", {"compat": "lm-eval"}, ["3 of 4 answers are not scored: take_first"]),
    "take_first": ("filter_list: [{name: f, filter: [{function: lowercase}, {function: take_first}]}]\n", {},
                   ["3 of 4 answers are not scored: take_first"]),
    "take_first_k": ("filter_list: [{name: f, filter: [{function: take_first_k, k: 3}]}]\n", {},
                     ["1 of 4 answers are not scored: take_first_k"]),
    "two filters": ("filter_list: [{name: f, filter: [{function: take_first}]}, {name: g, filter: [{function: noop}]}]\n", {},
                    ["3 of 4 answers are not scored: take_first of filter f"]),
    "a vote": ("filter_list: [{name: f, filter: [{function: majority_vote}, {function: take_first}]}]\n", {}, []),
    "all of them": ("", {}, []),
    "nothing sampled": ("", {"gen_kwargs": "do_sample=False"},
                        ["the 4 answers are copies: nothing is sampled (set do_sample and temperature)"]),
}  # fmt: skip


@pytest.mark.parametrize("case", UNSCORED)
def test_the_foot_of_the_table_says_which_answers_are_not_scored(case: str, tmp_path: Path) -> None:
    yaml, options, expected = UNSCORED[case]
    results = generate(tmp_path, EIGHT, ["a", "a"], SAMPLED + "repeats: 4\n" + yaml, **options)
    assert remarks(results) == expected
    assert [line for line in table_footing(results.results) if "answers" in line] == [f"t: {each}" for each in expected]


TRANSLATED = [
    ["the cat sat on the mat", "a cat sat on a mat now"],
    ["he reads books every day", "he read a book each day"],
    ["rain falls in spain often", "rain in spain"],
]
ENGLISH = ["the cat sat on the mat today", "he reads a book every day", "rain falls mainly in spain"]
LABELLED, LABELS = [["a", "b"], ["b", "b"], ["a", "a"], ["b", "a"]], ["a", "b", "a", "a"]


def by_sacrebleu(name: str, answers: list[str]) -> float:
    import sacrebleu

    compute: Any = {
        "bleu": sacrebleu.corpus_bleu, "chrf": sacrebleu.corpus_chrf, "ter": sacrebleu.corpus_ter,
        "chrf++": lambda *both: sacrebleu.corpus_chrf(*both, word_order=2),
    }[name]  # fmt: skip
    return float(compute(answers, [ENGLISH]).score)


def by_sklearn(name: str, answers: list[str]) -> float:
    from sklearn.metrics import f1_score, matthews_corrcoef, precision_score

    compute: Any = {
        "macro_f1": lambda *both: f1_score(*both, average="macro"),
        "micro_f1": lambda *both: f1_score(*both, average="micro"),
        "weighted_precision": lambda *both: precision_score(*both, average="weighted"),
        "mcc": matthews_corrcoef,
    }[name]
    return float(compute(LABELS, answers))


@pytest.mark.parametrize(
    "metric", ["bleu", "chrf", "chrf++", "ter", "macro_f1", "micro_f1", "weighted_precision", "mcc"]
)
def test_a_corpus_metric_of_repeats_is_the_mean_of_the_repeats(metric: str, tmp_path: Path) -> None:
    """With a standard error over documents: each is drawn with all its repeats."""
    compute, answers, golds = (
        (by_sacrebleu, TRANSLATED, ENGLISH)
        if metric in ("bleu", "chrf", "chrf++", "ter")
        else (by_sklearn, LABELLED, LABELS)
    )
    expected = sum(compute(metric, [each[repeat] for each in answers]) for repeat in range(2)) / 2
    results = generate(tmp_path, answers, golds, SAMPLED + f"repeats: 2\nmetric_list: [{{metric: {metric}}}]\n")
    assert row(results)[metric] == pytest.approx(expected)
    assert results["results"]["t"][f"{metric}_stderr,none"] > 0
    assert results["assay"]["tasks"]["t"]["failed"] == 0


def test_classes_of_repeats_have_a_row_each(tmp_path: Path) -> None:
    """Repeat 1 has a, b, a, b for a, b, a, a: f1 of a = 2·2/(2+3) and of b = 2·1/(2+1); repeat 2 b, b, a, a: 4/5, 2/3."""
    yaml = SAMPLED + "repeats: 2\nmetric_list: [{metric: f1_by_class, labels: [a, b]}]\n"
    assert row(generate(tmp_path, LABELLED, LABELS, yaml)) == pytest.approx({"f1[a]": 0.8, "f1[b]": 2 / 3})


def test_an_aggregation_of_ones_own_is_given_the_pairs_of_one_repeat_at_a_time(tmp_path: Path) -> None:
    own(
        tmp_path,
        """
        def both(reference, prediction):
            return reference, prediction

        def share(pairs):
            assert all(len(each) == 2 for each in pairs), pairs
            return sum(gold == given for gold, given in pairs) / len(pairs)
        """,
    )
    entry = "{metric: !function own.both, aggregation: !function own.share}"
    numbers = row(generate(tmp_path, LABELLED, LABELS, SAMPLED + f"repeats: 2\nmetric_list: [{entry}]\n"))
    assert numbers == {"both": (3 / 4 + 3 / 4) / 2}


PAIRS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("ab")), min_size=3, max_size=3)


@settings(max_examples=50, deadline=None)
@given(
    repeats=st.lists(PAIRS, min_size=1, max_size=4), name=st.sampled_from(["macro_f1", "micro_f1", "weighted_recall"])
)
def test_the_number_of_repeats_is_the_mean_of_their_numbers(repeats: list[Any], name: str) -> None:
    """Also where all repeats are equal, which changes neither number nor influence."""
    known = AGGREGATIONS[name]
    averaged = over_repeats(known, len(repeats))
    values = [Repeated(each) for each in zip(*repeats, strict=True)]
    assert averaged(values) == pytest.approx(sum(known(each) for each in repeats) / len(repeats))
    copied = [Repeated([each] * 3) for each in repeats[0]]
    assert averaged(copied) == pytest.approx(known(repeats[0]))
    assert isinstance(averaged, Aggregation) and averaged.influence is not None and known.influence is not None
    assert averaged.influence(copied) == pytest.approx(known.influence(repeats[0]))


def test_reductions_of_a_scorers_own_row(tmp_path: Path) -> None:
    """2 of 4 and 1 of 4 are right: pass@2 is 5/6 and 1/2. Of several rows, each has its own."""
    own(
        tmp_path,
        """
        import assay

        class Right(assay.Scorer):
            def score(self, reference, predictions):
                return [float(each == reference) for each in predictions]

        class Two(assay.Scorer):
            def score(self, reference, predictions):
                return {"right": [float(each == reference) for each in predictions], "short": [1.0] * len(predictions)}
        """,
    )
    yaml = SAMPLED + "repeats: 4\nscorer: {type: !function own.Right, reduction: [pass@2, max]}\n"
    numbers = row(generate(tmp_path, EIGHT, ["a", "a"], yaml))
    assert numbers["pass@2"] == pytest.approx((5 / 6 + 1 / 2) / 2)
    assert (numbers["max"], next(iter(numbers.values()))) == (1.0, pytest.approx(3 / 8))
    numbers = row(generate(tmp_path, EIGHT, ["a", "a"], yaml.replace("Right", "Two")))
    assert numbers["pass@2(right)"] == pytest.approx((5 / 6 + 1 / 2) / 2)
    assert (numbers["right"], numbers["pass@2(short)"]) == (pytest.approx(3 / 8), 1.0)
    with pytest.raises(ConfigError, match="needs 5 repeats"):
        generate(tmp_path, EIGHT, ["a", "a"], yaml.replace("pass@2", "pass@5"))


def test_reductions_of_a_metric_with_several_values_have_a_row_for_each(tmp_path: Path) -> None:
    own(
        tmp_path,
        "def m(references, prediction):\n    return {'m': prediction in references, 'short': len(prediction) < 2}\n",
    )
    yaml = (
        SAMPLED
        + f"repeats: 4\nmetric_list: [{MEAN.replace('}', ', reduction: pass@2}')}, {{metric: rouge, rouge_types: [rouge1], reduction: max}}]\n"
    )
    results = generate(tmp_path, [["a", "a", "bb", "cc"]], ["a"], yaml)
    assert row(results) == {
        "m": 0.5, "short": 0.5, "pass@2": pytest.approx(5 / 6), "pass@2(short)": pytest.approx(5 / 6),
        "rouge1": 0.5, "max(rouge1)": 1.0,
    }  # fmt: skip
    assert "never_came" not in results["assay"]["tasks"]["t"]


# --- names ---------------------------------------------------------------------------------------------------------------

NAMED = """
    metric_list:
      - {metric: exact_match}
      - {metric: exact_match, ignore_case: true, name: loose}
      - {metric: edit_distance, name: edits}
      - {metric: rouge, rouge_types: [rouge1], name: r}
      - {metric: rouge, rouge_types: [rouge1], name: s, use_stemmer: true}
"""


def test_name_renames_a_row_and_allows_one_metric_twice(tmp_path: Path) -> None:
    results = generate(tmp_path, ["a cat", "Cats"], ["a cat", "cats"], NAMED)
    assert row(results) == {"exact_match": 0.5, "loose": 1.0, "edits": 0.5, "r_rouge1": 1.0, "s_rouge1": 1.0}
    better = results["higher_is_better"]["t"]
    assert (better["loose"], better["edits"], better["r_rouge1"]) == (True, False, True)


def test_a_group_a_filter_and_a_reduction_know_the_new_name(tmp_path: Path) -> None:
    group = "group: g\ntask: [t]\naggregate_metric_list: [{metric: loose, filter_list: f}]\n"
    (tmp_path / "g.yaml").write_text(group)
    entries = "[{metric: exact_match, reduction: pass@2}, {metric: exact_match, ignore_case: true, name: loose, reduction: pass@2}]"
    yaml = SAMPLED + f"repeats: 2\nfilter_list: [{{name: f, filter: [{{function: noop}}], metric_list: {entries}}}]\n"
    results = generate(tmp_path, [["a", "A"], ["b", "B"]], ["a", "x"], yaml)["results"]["t"]
    assert (results["exact_match,f"], results["loose,f"]) == (0.25, 0.5)
    assert (results["pass@2(exact_match),f"], results["pass@2(loose),f"]) == (0.5, 0.5)
    assert run(tmp_path, says([["a", "A"], ["b", "B"]]), "g")["results"]["g"]["loose,f"] == 0.5
    (tmp_path / "g.yaml").write_text(group.replace("loose", "lose"))
    with pytest.raises(ConfigError, match="did you mean 'loose'"):
        run(tmp_path, noting([]), "g")


@pytest.mark.parametrize("aggregation", ["mean", "median", "nanmean"])
def test_infinite_values_have_a_number_or_a_reason_and_no_warning(
    aggregation: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    own(tmp_path, "def m(references, prediction):\n    return float(prediction)\n")
    yaml = f"metric_list: [{{metric: !function own.m, aggregation: {aggregation}}}]\n"
    results = generate(tmp_path, ["inf", "1", "2"], ["a", "b", "c"], yaml)
    rows = rows_of(results, "t")["m,none"]
    assert results["results"]["t"]["m,none"] == (2.0 if aggregation == "median" else math.inf)
    assert rows["stderr"] is None and "infinite" in rows["reason"]
    rows = rows_of(generate(tmp_path, ["inf", "-inf", "2"], ["a", "b", "c"], yaml), "t")["m,none"]
    assert rows["value"] == (2.0 if aggregation == "median" else None)
    assert rows["stderr"] is None and "infinite" in rows["reason"]
    assert [str(each.message) for each in recwarn if each.category is RuntimeWarning] == []


def test_f1_of_numbers_is_computed_for_each_repeat(tmp_path: Path) -> None:
    """Repeat 1 has y n y n for y n y y: 2·2/(2+3) = 4/5; repeat 2 n n y y: 4/5."""
    mapped = "filter_list: [{name: none, filter: [{function: map, mapping_dict: {y: 1, n: 0}}]}]\n"
    answers = [["y", "n"], ["n", "n"], ["y", "y"], ["n", "y"]]
    numbers = row(
        generate(tmp_path, answers, [1, 0, 1, 1], SAMPLED + "repeats: 2\nmetric_list: [{metric: f1}]\n" + mapped)
    )
    assert numbers == {"f1": pytest.approx(0.8)}
