"""Several scorers as one, and several filters side by side."""

import json
import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import assay
from assay import CrossFilterScorer, EnsembleScorer, TaskManager
from assay.errors import ConfigError
from assay.models import Scripted
from assay.scoring.combined import agreement, diversity
from assay.scoring.results import Instance
from assay.scoring.scorer import Scorer
from assay.tasks.validate import validate
from small_runs import SAMPLED, says, write_task

START = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
MARK = re.compile(r"<<<answer ([0-9a-f]{32})>>>")
OWN = """
from assay.scoring.scorer import Scorer
class Length(Scorer):
    name = "length"
    def score(self, reference, predictions):
        return [float(len(each)) for each in predictions]
class Everything(Scorer):
    name = "everything"
    def score_batch(self, results):
        return [1.0 for _ in results]
class Seeds(Scorer):
    name = "seeds"
    def _compute_metrics(self, result, metrics):
        return {"seeds": 4.0}
class Instances(Scorer):
    name = "instances"
    def score_instances(self, instances, filter_name):
        return {"instances": float(len(instances[0].filtered_resps))}
"""


def judge(score: int) -> Scripted:
    def say(prompt: str, params: dict[str, object], repeat: int) -> str:
        match = MARK.search(prompt)
        assert match is not None
        return json.dumps({"id": match[1], "score": score})

    return Scripted(generate=say, identity=f"judge {score}")


def evaluated(folder: Path, answers: Sequence[Any], golds: Sequence[str], yaml: str, **options: Any) -> dict[str, Any]:
    write_task(folder, [{"q": f"{n}", "gold": gold} for n, gold in enumerate(golds)], START + yaml)
    (folder / "own.py").write_text(OWN)
    known = {"include_path": str(folder), "include_defaults": False, **options}
    results = assay.simple_evaluate(says(answers), tasks=["t"], **known)
    data: dict[str, Any] = results["results"]["t"]
    return {key: value for key, value in data.items() if "," in key and "_stderr" not in key}


def test_an_ensemble_is_the_weighted_mean_of_its_members(tmp_path: Path) -> None:
    """exact_match is 1 and 0, length 2 and 4; with weights 3 and 1: (3·1 + 2)/4 and (0 + 4)/4."""
    yaml = "scorer: {type: ensemble, kwargs: {scorers: [generation, !function own.Length], weights: [3, 1]}}\n"
    results = evaluated(tmp_path, ["ab", "abcd"], ["ab", "x"], yaml)
    assert results == {"exact_match,none": 0.5, "length,none": 3.0, "ensemble,none": pytest.approx((5 / 4 + 1) / 2)}


def test_without_weights_members_count_equally(tmp_path: Path) -> None:
    yaml = "scorer: {type: ensemble, kwargs: {scorers: [!function own.Seeds, !function own.Length]}}\n"
    results = evaluated(tmp_path, ["ab"], ["ab"], yaml)
    assert results == {"seeds,none": 4.0, "length,none": 2.0, "ensemble,none": 3.0}


def test_judges_and_reward_models_work_inside_an_ensemble(tmp_path: Path) -> None:
    yaml = """\
scorer:
  type: ensemble
  kwargs:
    scorers:
      - choice_match
      - {type: llm_judge, kwargs: {role: strict}}
      - reward_model
      - {type: llm_judge, kwargs: {role: kind}}
      - !function own.Instances
    weights: [1, 2, 1, 4, 2]
"""
    reward = Scripted(loglikelihood=lambda context, continuation: (float(len(continuation)), False))
    roles = {"strict": judge(1), "kind": judge(10), "reward": reward}
    results = evaluated(tmp_path, ["ab", "AB!"], ["ab", "ab"], yaml, model_role=roles)
    assert results == {
        "exact_match,none": 1.0,
        "llm_judge,none": 0.0,
        "reward,none": 2.5,
        "llm_judge#2,none": 1.0,
        "instances,none": 1.0,
        "ensemble,none": pytest.approx((1 + 0 + 2.5 + 4 + 2) / 10),
    }


def test_the_agreement_of_judges_inside_is_still_an_agreement(tmp_path: Path) -> None:
    yaml = "scorer: {type: ensemble, kwargs: {scorers: [{type: llm_judge, kwargs: {roles: [a, b]}}]}}\n"

    def by_length(prompt: str, params: dict[str, object], repeat: int) -> str:
        match = re.search(r"<<<answer ([0-9a-f]{32})>>>\n(.*)\n<<<end", prompt)
        assert match is not None
        return json.dumps({"id": match[1], "score": len(match[2])})

    roles = {role: Scripted(generate=by_length, identity=role) for role in "ab"}
    assert evaluated(tmp_path, ["a", "abc"], ["x", "y"], yaml, model_role=roles)["llm_judge_alpha,none"] == 1.0


def test_answers_of_repeats_are_weighted_one_by_one(tmp_path: Path) -> None:
    yaml = f"repeats: 2\n{SAMPLED}filter_list: [{{name: all, filter: [{{function: take_first_k, k: 2}}]}}]\n"
    ensemble = "scorer: {type: ensemble, kwargs: {scorers: [!function own.Length, !function own.Seeds]}}\n"
    results = evaluated(tmp_path, [["a", "abc"]], ["x"], yaml + ensemble)
    assert results == {"length,all": 2.0, "seeds,all": 4.0, "ensemble,all": 3.0}


class Half(Scorer):
    name = "half"

    def score(self, reference: Any, predictions: list[Any]) -> float:
        return 0.5


class Whole(Scorer):
    name = "whole"

    def score(self, reference: Any, predictions: list[Any]) -> float:
        return 1.0


def test_an_ensemble_is_made_and_used_in_python() -> None:
    ensemble = EnsembleScorer([Half(), EnsembleScorer([Whole(), Half()])], [1, 3])
    built = ensemble.score_instances(
        [Instance({"q": "x"}, target="x", resps=["y"], filtered_resps={"none": "y"})], "none"
    )
    inner = {"whole#2": 1.0, "half#2": 0.5, "ensemble#2": 0.75}
    assert built == {"half": 0.5, **inner, "ensemble": pytest.approx((0.5 + 3 * 0.75) / 4)}


@given(st.lists(st.integers(0, 99), min_size=2, max_size=2).filter(any), st.floats(0.01, 100))
def test_only_the_ratio_of_weights_counts(weights: list[int], factor: float) -> None:
    one = EnsembleScorer([Half(), Whole()], weights)
    other = EnsembleScorer([Half(), Whole()], [factor * weight for weight in weights])
    assert one.weights == pytest.approx(other.weights)
    assert sum(one.weights) == pytest.approx(1)


WRONG = {
    "there are 1 scorers and 2 weights": "{scorers: [generation], weights: [1, 2]}",
    "not all 0": "{scorers: [generation], weights: [0]}",
    "needs a scorer": "{scorers: []}",
    "needs the parameter 'scorers'": "{}",
    "no scorer named 'generaton'": "{scorers: [generaton]}",
    "has no parameter 'weight'": "{scorers: [generation], weight: [1]}",
    "must be a name or": "{scorers: [{kind: generation}]}",
    "scores all documents at once": "{scorers: [!function own.Everything]}",
    "has no parameter 'rubrik'": "{scorers: [{type: llm_judge, kwargs: {rubrik: x}}]}",
}


@pytest.mark.parametrize("what", WRONG)
def test_an_invalid_ensemble_is_refused(what: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(what)):
        evaluated(tmp_path, ["a"], ["a"], f"scorer: {{type: ensemble, kwargs: {WRONG[what]}}}\n")


@pytest.mark.parametrize("written", ["!function own.Length", "{type: !function own.Length, kwargs: {unit: 3}}",
                                     "{type: ensemble, kwargs: {scorers: [generation, !function own.Length]}}"])  # fmt: skip
def test_scorers_of_helper_code_are_valid_without_being_loaded(written: str, tmp_path: Path) -> None:
    write_task(tmp_path, [{"q": "0", "gold": "x"}], f"{START}scorer: {written}\n")
    (tmp_path / "own.py").write_text("Length = 1 / 0\n")
    manager = TaskManager(include_path=tmp_path, include_defaults=False)
    assert validate(manager) == []


# --- across filters -------------------------------------------------------------------------------------------------

THREE = """\
filter_list:
  - {name: first, filter: [{function: regex, regex_pattern: "(\\\\d+)"}, {function: take_first}]}
  - {name: last, filter: [{function: regex, regex_pattern: "(\\\\d+)", group_select: -1}, {function: take_first}]}
  - {name: whole, filter: [{function: take_first}]}
"""


def test_filters_agree_as_far_as_pairs_of_them_leave_the_same(tmp_path: Path) -> None:
    """Of "4" all three leave the same; of "4 or 4" two, of "4 or 5" none: agreement 1, 1/3, 0, and 1/3, 2/3, 1 different."""
    results = evaluated(tmp_path, ["4", "4 or 4", "4 or 5"], ["4", "4", "4"], THREE + "scorer: cross_filter\n")
    for name in ("first", "last", "whole"):
        assert results[f"filter_agreement,{name}"] == pytest.approx((1 + 1 / 3 + 0) / 3)
        assert results[f"filter_diversity,{name}"] == pytest.approx((1 / 3 + 2 / 3 + 1) / 3)


def test_it_can_be_of_some_filters_and_of_one_row_beside_metrics(tmp_path: Path) -> None:
    one = THREE.replace(
        "{name: first,", "{name: first, scorer: {type: cross_filter, kwargs: {filters: [first, last]}},"
    )
    results = evaluated(tmp_path, ["4", "4 or 5"], ["4", "4"], one + "metric_list: [{metric: exact_match}]\n")
    assert results == {
        "exact_match,first": 1.0, "filter_agreement,first": 0.5, "filter_diversity,first": 0.75,
        "exact_match,last": 0.5, "exact_match,whole": 0.5,
    }  # fmt: skip


def test_filters_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs the filter 'frist'"):
        evaluated(tmp_path, ["4"], ["4"], THREE + "scorer: {type: cross_filter, kwargs: {filters: [frist, last]}}\n")
    with pytest.raises(ConfigError, match="needs 2 filters, but the task has 1"):
        evaluated(tmp_path, ["4"], ["4"], "scorer: cross_filter\n")
    with pytest.raises(ConfigError, match="two filters or more"):
        evaluated(tmp_path, ["4"], ["4"], THREE + "scorer: {type: cross_filter, kwargs: {filters: [last]}}\n")


def test_answers_of_repeats_are_compared_one_by_one() -> None:
    left = {"a": ["1", "2"], "b": ["1", "3"]}
    scores = CrossFilterScorer().score_instances([Instance({}, target="x", resps=["", ""], filtered_resps=left)], "a")
    assert scores == {"filter_agreement": 0.5, "filter_diversity": 0.75}


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=6))
def test_agreement_and_diversity_of_any_answers(answers: list[str]) -> None:
    pairs = list(combinations(answers, 2))
    assert agreement(answers) == pytest.approx(len([1 for one, two in pairs if one == two]) / len(pairs))
    assert diversity(answers) == len(set(answers)) / len(answers)
    assert (agreement(answers) == 1) == (len(set(answers)) == 1)
