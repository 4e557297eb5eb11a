"""A scorer's class becomes a frozen step once, and one loop walks over steps."""

from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from assay import (
    EnsembleScorer,
    GenerateTask,
    GenerationScorer,
    Instance,
    LLMJudgeScorer,
    ProcessResultsScorer,
    RewardModelScorer,
    Scorer,
)
from assay.records import Failed, Sample
from assay.scoring.filters import Pipeline
from assay.scoring.loop import ScoringLoop, ScoringStep
from assay.scoring.results import GENERATE, AnsweredSample, ResultBuilder
from assay.scoring.scorer import bind, scorer_step


class Length(GenerationScorer):
    name = "length"

    def score(self, reference: Any, predictions: list[Any]) -> float:
        return float(len(predictions[0]))


class Ranks(GenerationScorer):
    name = "rank"

    def score_batch(self, results: Sequence[Any]) -> list[float]:
        answers = sorted(result.results[0] for result in results)
        return [float(answers.index(result.results[0])) for result in results]


def step(scorer: Scorer) -> ScoringStep:
    bind(scorer, "none", ())
    return scorer_step(scorer, Pipeline("none"), ("none",), ResultBuilder(GENERATE), "t")


@pytest.mark.parametrize(
    ("scorer", "form"),
    [
        (GenerationScorer(), None),
        (ProcessResultsScorer(None, lambda doc, results: {"n": 1.0}), "compute"),
        (Length(), "compute"),
        (Ranks(), "batch"),
        (LLMJudgeScorer(), "ask"),
        (RewardModelScorer(), "ask"),
        (EnsembleScorer([Length()]), "compute"),
        (EnsembleScorer([Length(), LLMJudgeScorer()]), "ask"),
    ],
)
def test_a_scorer_becomes_a_frozen_step_with_one_form(scorer: Scorer, form: str | None) -> None:
    built = step(scorer)
    forms = ("compute", "batch", "ask")
    last = built.parts[-1] if built.parts else None
    assert [name for name in forms if getattr(last, name, None) is not None] == ([form] if form else [])
    with pytest.raises(FrozenInstanceError):
        built.place = "elsewhere"  # type: ignore[misc]


def test_the_methods_of_a_scorer_class_are_inspected_once_for_all_documents() -> None:
    asked: list[str] = []

    class Counting(Length):
        def get_metrics(self, filter_name: str) -> Sequence[Any]:
            asked.append(filter_name)
            return super().get_metrics(filter_name)

    scorer = Counting()
    scoring = ScoringLoop([step(scorer)], ResultBuilder(GENERATE))
    before = len(asked)
    documents = [AnsweredSample(Sample(n, {}, (), "x", "x"), ["a" * n]) for n in range(1, 4)]  # type: ignore[list-item]
    scores = scoring.score(documents)
    assert [rows[0].values for rows in scores if not isinstance(rows, Failed)] == [
        {"length": 1.0},
        {"length": 2.0},
        {"length": 3.0},
    ]
    assert len(asked) == before


def test_a_batch_that_fails_loses_its_own_row_of_every_document() -> None:
    class Broken(Ranks):
        def score_batch(self, results: Sequence[Any]) -> list[float]:
            raise RuntimeError("out of memory")

        def _compute_metrics(self, result: Any, metrics: Any) -> dict[str, Any]:
            return {"one": 1.0}

    scorer = Broken()
    scoring = ScoringLoop([step(scorer)], ResultBuilder(GENERATE))
    scores = scoring.score([AnsweredSample(Sample(n, {}, (), "x", "x"), [["a"]]) for n in range(2)])
    for rows in scores:
        assert not isinstance(rows, Failed)
        assert rows[0].values == {"one": 1.0}
        assert (
            rows[0]
            .failed["rank"]
            .startswith("scoring: scorer 'rank' of filter 'none': RuntimeError: out of memory (test_scoring_steps.py:")
        )


def test_a_task_may_create_results_and_compute_metrics_itself_and_the_loop_stays_the_same() -> None:
    class Shouting(GenerateTask):
        def _create_result(self, instances: Sequence[Instance], filter_name: str) -> Any:
            first = instances[0]
            return first.filtered_resps[filter_name].upper(), first.target.upper()

        def _compute_metric(self, pair: Any, metric_config: Any) -> float:
            answer, target = pair
            return 1 / (answer == target)

    task = Shouting({
        "task": "t", "doc_to_text": "q", "doc_to_target": "gold", "metric_list": [{"metric": "exact_match"}],
        "filter_list": [{"name": "first", "filter": [{"function": "take_first"}]}],
    })  # fmt: skip
    answers = enumerate(["Ab", "b"])
    result = task.process_instances([Instance({}, doc_id=n, target="aB", resps=[answer]) for n, answer in answers])
    [right, wrong] = result["exact_match", "first"]
    assert right == 1.0
    assert isinstance(wrong, Failed)
    assert wrong.reason.startswith("scoring: metric 'exact_match' of filter 'first': ZeroDivisionError")
