"""Lm-eval 0.5's reductions, metrics and scorers, as its helper code writes them; numbers by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.compat.lm_eval_metrics import LLResults, Metric
from assay.compat.lm_eval_scorers import MetricKey
from assay.scoring.reductions import pass_at_several
from assay.scoring.results import LLResult, MCResult
from assay.tasks.validate import validate
from small_runs import SAMPLED, choose, generate

FOUR = f"repeats: 4\n{SAMPLED}filter_list: [{{name: none, filter: [{{function: take_first_k, k: 4}}]}}]\n"
ANSWERS, GOLDS = [["a", "b", "b", "b"], ["a", "a", "b", "b"]], ["a", "a"]
"""One of four answers is right, and two of four. pass@1: (1/4 + 1/2) / 2; pass@2: (1 - 3/6 + 1 - 1/6) / 2; pass@3: (3/4 + 1) / 2."""
IMPORTS = """
from lm_eval.api.metrics import CorpusMetric, LLResults
from lm_eval.api.registry import register_metric, register_reduction, register_scorer

def same(docs):
    return docs
"""


def numbers(results: dict[str, Any]) -> dict[str, float]:
    return {row: value for row, value in results["results"]["t"].items() if "," in row and "_stderr" not in row}


def entry(written: str, code: str = "") -> Callable[[Path], dict[str, float]]:
    """The numbers of a task of four answers with this entry of metric_list, and helper code."""

    def run(folder: Path) -> dict[str, float]:
        (folder / "own.py").write_text(IMPORTS + code)
        yaml = f"{FOUR}process_docs: !function own.same\nmetric_list: [{{{written}}}]\n"
        return numbers(generate(folder, ANSWERS, GOLDS, yaml))

    return run


WORST = "@register_reduction('worst')\ndef worst(references, predictions):\n    return min(predictions) + 2 * (references == 'a')\n"
SHARES = "@register_reduction('ends')\ndef ends(references, predictions):\n    return {'first': predictions[0], 'last': predictions[-1]}\n"
HIT = "@register_metric('hit', aggregation='mean', reduction='ends', output_type='generate_until')\ndef hit(references, predictions):\n    return float(predictions[0] in references)\n"
LENGTH = """
@register_metric("length", higher_is_better=False, output_type="generate_until")
class Length(CorpusMetric[list[str], tuple[int, int]]):
    def __call__(self, references, predictions):
        return len(references[0]), len(predictions[0])

    def aggregation(self, items):
        return sum(answer for _, answer in items) / sum(right for right, _ in items)
"""
LONGEST = LENGTH.replace(
    "    def aggregation",
    "    def reduce(self, references, predictions, **kwargs):\n        return (1, 3 * len(predictions))\n\n    def aggregation",
)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (entry("metric: exact_match, reduction: pass@k"), {"pass@1(exact_match)": 0.375, "pass@3(exact_match)": 0.875, "pass@4(exact_match)": 1.0}),
        (entry("metric: exact_match, reduction: {pass@k: {k: [1, 2]}}"), {"pass@1(exact_match)": 0.375, "pass@2(exact_match)": 2 / 3}),
        (entry("metric: exact_match, reduction: {pass@k: {k: 2}}"), {"pass@2(exact_match)": 2 / 3}),
        (entry("metric: exact_match, reduction: worst", WORST), {"exact_match": 2.0}),
        (entry("metric: exact_match, reduction: !function own.worst", WORST), {"exact_match": 2.0}),
        (entry("metric: exact_match, reduction: ends", SHARES), {"first(exact_match)": 1.0, "last(exact_match)": 0.0}),
        (entry("metric: hit", SHARES + HIT), {"first(hit)": 1.0, "last(hit)": 0.0}),
        (entry("metric: length", LENGTH), {"length": 1.0}),
        (entry("metric: length", LONGEST), {"length": 12.0}),
    ],
)  # fmt: skip
def test_a_reduction_of_references_and_scores_is_in_place_of_the_metrics_row(
    run: Callable[[Path], dict[str, float]], expected: dict[str, float], tmp_path: Path
) -> None:
    assert run(tmp_path) == {f"{row},none": pytest.approx(value) for row, value in expected.items()}


@pytest.mark.parametrize(
    ("reduction", "what"),
    [
        ("{pass@k: {k: [1, 8]}}", "needs 8 repeats, but the task has 4 — write `repeats: 8`"),
        ("{pass@k: {k: 0}}", "reduction 'pass@k': k must be 1 or more, got 0"),
        ("{pass@k: {kk: 1}}", "reduction 'pass@k' has no parameter 'kk'"),
        ("{pass@k: {k: some}}", "reduction 'pass@k': 'k' cannot be 'some'"),
        ("[pass@k, max]", "reduction 'pass@k' is in place of the metric's row: name it alone"),
        ("wort", "no reduction named 'wort'"),
    ],
)
def test_a_wrong_reduction_is_refused_by_run_and_validate(reduction: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(assay.ConfigError, match=r"t\.yaml:\d+:\d+: ") as refused:
        entry(f"metric: exact_match, reduction: {reduction}")(tmp_path)
    assert what in str(refused.value)
    manager = assay.TaskManager(include_path=str(tmp_path), include_defaults=False)
    assert [str(problem) for problem in validate(manager, ["t"])] == [str(each) for each in refused.value.problems]


def test_a_corpus_metric_of_choices_is_given_their_log_likelihoods(tmp_path: Path) -> None:
    """By hand: -1 + 2 + 200 for the first, where the right choice is 0, and -1 + 3 + 200 for the second; the greatest counts."""
    code = """
@register_metric("margin", output_type="multiple_choice")
class Margin(CorpusMetric[LLResults, float]):
    def __call__(self, references, predictions):
        lls = predictions.lls
        return float(lls[references] - lls[1 - references]) + 100 * predictions.char_len()[0]

    def aggregation(self, items):
        return max(items)
"""
    (tmp_path / "own.py").write_text(IMPORTS + code)
    yaml = "process_docs: !function own.same\nmetric_list: [{metric: margin}]\n"
    results = choose(tmp_path, [[-1.0, -2.0], [-3.0, -1.0]], [0, 1], ["xx", "y"], yaml)
    assert numbers(results) == {"margin,none": 202.0}


def test_log_likelihoods_have_lm_evals_names() -> None:
    of_choices = LLResults.of(MCResult({}, 1, ["é", "b c"], [-1.0, -2.0], [True, False], [-0.5, -3.0]))
    assert (of_choices.targets, list(of_choices.lls), list(of_choices.lls_mutual_info)) == (
        1,
        [-1.0, -2.0],
        [-0.5, 1.0],
    )
    lengths = [list(each()) for each in (of_choices.char_len, of_choices.byte_len, of_choices.word_len)]
    assert lengths == [[1.0, 3.0], [2.0, 3.0], [1.0, 2.0]]
    of_text = LLResults.of(LLResult({}, "one two", -4.0, True))
    assert (of_text.targets, list(of_text.lls), of_text.choices, list(of_text.word_len())) == (
        0,
        [-4.0],
        ["one two"],
        [2.0],
    )
    metric = Metric("m", lambda a, b, *, scale: scale * (a - b), {"scale": 2})
    assert (metric.compute(3, 1), metric.compute(3, 1, scale=1)) == (4, 2)


def test_the_usual_k_of_many_answers_are_spaced_as_in_lm_eval() -> None:
    """Of 1000 answers: between 100 and 1000 the points 100 · 10^(1/3) and 100 · 10^(2/3)."""
    names = list(pass_at_several("a", [1.0] * 1000))
    assert names == [f"pass@{k}" for k in (1, 3, 5, 10, 20, 50, 100, 215, 464, 1000)]


SCORERS = """
from dataclasses import dataclass
from lm_eval.api.metrics import Metric
from lm_eval.api.registry import register_scorer
from lm_eval.scorers import GenScorer, LLScorer, ScoredDoc

def same(docs):
    return docs

@register_scorer(NAME)
@dataclass
class Own(BASE):
"""
SCORE = """
    timeout: int = 10

    def score(self, reference, predictions, **kwargs):
        return {"own": [self.timeout * float(answer == reference) for answer in predictions]}
"""
TOGETHER = """
    def score_instances(self, instances):
        inputs = {doc_id: self._extract_inputs(own) for doc_id, own in instances.items()}
        return {doc_id: ScoredDoc(doc_id, reference, {"own": [len(inputs) + float(answer == reference) for answer in answers]})
                for doc_id, (reference, answers, _) in inputs.items()}
"""
EACH = """
    def score_doc(self, doc_id, instances):
        reference, answers, _ = self._extract_inputs(instances)
        prompt = instances[0].args[0]
        return ScoredDoc(doc_id, reference, {"own": [len(prompt) + float(answer == reference) for answer in answers]})
"""
DEFAULTS = """
    default_filter_cfg = [{"function": "regex", "kwargs": {"regex_pattern": "(b+)", "fallback": "none"}}, {"function": "take_first"}]
    default_metric_cfg = [{"metric": "exact_match", "kwargs": {"ignore_case": True}},
                          Metric("own", lambda references, predictions: float(len(predictions[0])))]
"""


@pytest.mark.parametrize(
    ("body", "kwargs", "of_one", "of_four"),
    [  # of one answer each, a and bb, with a right; and of the four answers above, of which 3/8 are right
        (SCORE, "", {"own": 5.0}, {"own": 3.75}),
        (SCORE, ", kwargs: {timeout: 2}", {"own": 1.0}, {"own": 0.75}),
        (TOGETHER, "", {"own": 2.5}, {"own": 2.375}),
        (EACH, "", {"own": 1.5}, {"own": 1.375}),
        (DEFAULTS, "", {"exact_match": 0.0, "own": 3.0}, None),  # of none and bb
    ],
)
def test_a_scorer_of_lm_eval_next_scores_as_it_is_written(
    body: str, kwargs: str, of_one: dict[str, float], of_four: dict[str, float] | None, tmp_path: Path
) -> None:
    worlds = [(["a", "bb"], "", of_one), *([(ANSWERS, FOUR, of_four)] if of_four else [])]
    for number, (answers, yaml, expected) in enumerate(worlds):
        name, folder = f"next_{number}_{abs(hash((body, kwargs)))}", tmp_path / str(number)
        code = SCORERS.replace("NAME", repr(name)).replace("BASE", "GenScorer") + body
        folder.mkdir()
        (folder / "own.py").write_text(code)
        keys = f"scorer: {{type: {name}{kwargs}}}\nprocess_docs: !function own.same\n"
        assert numbers(generate(folder, answers, GOLDS, yaml + keys)) == {
            f"{row},none": each for row, each in expected.items()
        }


def test_a_scorer_of_log_likelihoods_is_given_the_instances_of_a_document(tmp_path: Path) -> None:
    body = """
    def score_doc(self, doc_id, instances):
        best = max(instances, key=lambda instance: instance.filtered_resps["none"][0])
        return ScoredDoc(doc_id, 0, {"own": [float(best.idx == instances[0].target)]})
"""
    code = SCORERS.replace("NAME", "'next_likeliest'").replace("BASE", "LLScorer") + body
    (tmp_path / "own.py").write_text(code)
    yaml = "scorer: next_likeliest\nprocess_docs: !function own.same\n"
    results = choose(tmp_path, [[-1.0, -2.0], [-1.0, -2.0]], [0, 1], ["x", "y"], yaml)
    assert numbers(results) == {"own,none": 0.5}


def test_a_field_that_a_scorer_has_not_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SCORERS.replace("NAME", "'next_refused'").replace("BASE", "GenScorer") + SCORE)
    keys = "scorer: {type: !function own.Own, kwargs: {timeut: 2}}\n"
    with pytest.raises(
        assay.ConfigError, match=r"t\.yaml:\d+:\d+: .* has no parameter 'timeut' — did you mean 'timeout'"
    ):
        generate(tmp_path, ["a"], ["a"], keys)


def test_a_reduction_of_references_is_refused_for_the_rows_of_a_scorer(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SCORERS.replace("NAME", "'next_reduced'").replace("BASE", "GenScorer") + SCORE)
    keys = f"{FOUR}scorer: {{type: !function own.Own, reduction: pass@k}}\n"
    with pytest.raises(assay.ConfigError, match=r"t\.yaml:\d+:\d+: a scorer's own rows have no references"):
        generate(tmp_path, ANSWERS, GOLDS, keys)


def test_keys_of_results_are_read_and_written_as_lm_eval_does() -> None:
    for written, parts in {"acc,none": ("acc", "none", False), "acc_stderr,strict": ("acc", "strict", True)}.items():
        key = MetricKey.parse(written)
        assert key == MetricKey(*parts) and str(key) == written
    assert MetricKey.parse("alias") is None
    assert (MetricKey("pass@1(acc)", "none").parent_metric, MetricKey("acc", "none").parent_metric) == ("acc", None)
