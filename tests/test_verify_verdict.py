"""The verdict of `assay verify-backend`: what makes two backends differ, and what does not."""

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.comparison.verification import (
    PRECISIONS,
    AnswerComparison,
    Divergence,
    Failure,
    LikelihoodDifferences,
    Verification,
    VerificationRow,
    Where,
    judge,
    verification,
)
from assay.evaluation.options import run_config
from assay.evaluation.verify import verify
from assay.models import Scripted
from assay.report.comparison_text import verification_text
from assay.statistics.paired import Drift, PairedDifference

FLOAT32, BFLOAT16 = PRECISIONS["float32"], PRECISIONS["bfloat16"]
Assay = Callable[..., Any]
Write = Callable[[Any], Path]

ADD = """
    task: add
    dataset_path: json
    dataset_kwargs: {data_files: {test: rows.jsonl}}
    test_split: test
    doc_to_text: "{{q}}"
    doc_to_target: "{{a}}"
    generation_kwargs: {until: ["\\n"], do_sample: false}
    metric_list: [{metric: exact_match}]
"""
ROWS = "".join(json.dumps({"q": f"{n}+{n}=", "a": str(2 * n), "gold": 0}) + "\n" for n in range(100))
RIGHT = Scripted(generate=lambda prompt, *_: str(2 * int(prompt.split("+")[0])), identity="right")
WRONG = Scripted(generate=lambda *_: "banana", identity="wrong")


def compared(folder: Path, a: Any, b: Any, precision: str = "bfloat16", **options: Any) -> Verification:
    arguments = {"tasks": ["add"], "include_path": str(folder), "include_defaults": False, **options}
    return verification(verify(a, b, run_config(arguments)), PRECISIONS[precision])


def far(difference: float, tokens: int = 1, *, same_greedy: bool = True) -> LikelihoodDifferences:
    return LikelihoodDifferences(Where("t", 0, 0), -5.0, -5.0 - difference, tokens, same_greedy)


def row(low: float, high: float, *, is_counted: bool = True) -> VerificationRow:
    change = PairedDifference(0.0, interval=(low, high), n=10)
    return VerificationRow("t", "acc", "none", Drift(0.5, 0.5, change), change, is_counted)


@pytest.mark.parametrize(
    ("likelihoods", "rows", "expected"),
    [
        ([far(0.00009)], [row(-1, 1)], "same"),
        ([far(0.00011)], [row(-1, 1)], "drifts"),
        ([far(0.0004, tokens=5)], [row(-1, 1)], "same"),
        ([far(0.0006, tokens=5)], [row(-1, 1)], "drifts"),
        ([far(math.inf)], [row(-1, 1)], "drifts"),
        ([far(math.nan)], [row(-1, 1)], "drifts"),
        ([far(0.1)], [row(0.01, 0.2)], "differ"),
        ([far(0.1)], [row(-0.2, -0.01), row(-1, 1)], "differ"),
        ([far(0.00009)], [row(0.01, 0.2)], "differ"),  # enough to choose otherwise
        ([far(0.0)], [row(0.01, 0.2)], "same"),  # the same answers scored otherwise: not the backend's doing
        ([far(0.0, same_greedy=False)], [row(0.01, 0.2)], "differ"),
    ],
)
def test_the_verdict_follows_from_the_tolerance_and_the_intervals(
    likelihoods: list[LikelihoodDifferences], rows: list[VerificationRow], expected: str
) -> None:
    assert judge(AnswerComparison(likelihoods=likelihoods), rows, FLOAT32)[0] == expected


@pytest.mark.parametrize(
    ("likelihoods", "expected"),
    [
        ([far(0.4), *[far(0.001)] * 99], "same"),  # 0.005 on average: perplexity is unchanged
        ([far(0.2)] * 100, "differ"),  # each within the tolerance, and a perplexity of e to the 0.2 times as much
        ([far(0.6), *[far(0.001)] * 99], "differ"),
        ([far(math.nan)], "differ"),
    ],
)
def test_a_continuous_metric_drifts_only_where_rounding_exceeds_a_tenth_of_the_tolerance(
    likelihoods: list[LikelihoodDifferences], expected: str
) -> None:
    assert judge(AnswerComparison(likelihoods=likelihoods), [row(0.01, 0.2, is_counted=False)], BFLOAT16)[0] == expected


def test_a_drift_is_explained_only_by_the_answers_of_its_task() -> None:
    elsewhere = Divergence(Where("u", 0, 0), 0, None, "a", "b")
    texts = Counter(generate=1)
    result = AnswerComparison(compared=texts, likelihoods=[far(0.0)], divergences=[elsewhere], same_texts={"u": False})
    assert judge(result, [row(0.01, 0.2)], BFLOAT16)[0] == "same"
    assert judge(result, [row(0.01, 0.2)._replace(task="u")], BFLOAT16)[0] == "differ"


# texts


@pytest.mark.parametrize("precision", list(PRECISIONS))
def test_a_backend_with_wrong_answers_differs_in_every_precision(write: Write, precision: str) -> None:
    comparison = compared(write({"add.yaml": ADD, "rows.jsonl": ROWS}), RIGHT, WRONG, precision)
    assert comparison.verdict == "differ"
    assert comparison.because[0] == "add exact_match drifts by -1, which chance does not explain"


def test_texts_that_differ_and_score_the_same_are_the_same_where_the_precision_lets_them(write: Write) -> None:
    folder = write({"add.yaml": ADD, "rows.jsonl": ROWS})
    assert compared(folder, WRONG, Scripted(generate=lambda *_: "apple")).verdict == "same"


def test_sampled_texts_with_different_scores_differ(write: Write) -> None:
    folder = write({"add.yaml": ADD, "rows.jsonl": ROWS})
    comparison = compared(folder, RIGHT, WRONG, gen_kwargs={"do_sample": True, "temperature": 1.0})
    assert (comparison.verdict, comparison.answers.requests["sampled"]) == ("differ", 100)


def test_a_score_whose_chance_is_not_known_drifts_and_is_not_the_same(write: Write) -> None:
    median = ADD.replace("{metric: exact_match}", "{metric: exact_match, aggregation: median}")
    folder = write({"add.yaml": median, "rows.jsonl": ROWS})
    comparison = compared(folder, RIGHT, WRONG)
    reported = "add exact_match drifts by -1, and it cannot be tested against chance: none is known for median"
    assert (comparison.verdict, comparison.because) == ("drifts", [reported])
    assert compared(folder, WRONG, Scripted(generate=lambda *_: "apple")).verdict == "same"


# choices


def test_choices_within_the_tolerance_with_different_scores_differ(write: Write) -> None:
    chosen = ADD.replace(
        "    generation_kwargs", "    output_type: multiple_choice\n    doc_to_choice: [green, red]\n    #"
    )
    chosen = chosen.replace('"{{a}}"', "gold").replace("exact_match", "acc")

    def leaning(likelier: str) -> Scripted:
        return Scripted(loglikelihood=lambda _, choice: (-1.0 if choice.strip() == likelier else -1.01, False))

    comparison = compared(write({"add.yaml": chosen, "rows.jsonl": ROWS}), leaning("green"), leaning("red"))
    assert [(each.drift.before, each.drift.after) for each in comparison.rows] == [(1.0, 0.0)]
    assert max(each.difference for each in comparison.answers.likelihoods) == pytest.approx(0.01)
    assert comparison.verdict == "differ"


# failures


def test_where_both_fail_everything_nothing_is_compared() -> None:
    failures = [Failure(Where("t", number, 0), "HTTP 500", "HTTP 500") for number in range(3)]
    assert judge(AnswerComparison(failures=failures), [], FLOAT32)[0] == "nothing"
    one_answers = [*failures, Failure(Where("t", 3, 0), "HTTP 500", "")]
    assert judge(AnswerComparison(failures=one_answers), [], FLOAT32)[0] == "differ"


def test_the_exit_code_is_2_where_nothing_could_be_compared(write: Write, run_assay: Assay) -> None:
    folder = write({"add.yaml": ADD.replace('"{{q}}"', '"{{q * 2000}}"'), "rows.jsonl": ROWS})  # longer than the model
    command = ["verify-backend", "embedded", "embedded", "--tasks", "add", "--include_path", folder, "--no_defaults"]
    ended = run_assay(*command, "--limit", 3, "--accept", "drifts")
    assert ended.returncode == 2, ended.stdout
    assert "verdict: nothing: there is nothing to compare" in ended.stdout
    assert "B failed 3 requests" in ended.stdout


def test_answers_that_can_be_scored_of_one_alone_differ(write: Write) -> None:
    task = ADD.replace("    metric_list", "    process_results: !function tools.number\n    metric_list")
    tools = "def number(doc, results):\n    return {'exact_match': int(results[0]) == int(doc['a'])}\n"
    comparison = compared(write({"add.yaml": task, "rows.jsonl": ROWS, "tools.py": tools}), RIGHT, WRONG)
    assert (comparison.answers.failures, comparison.answers.compared["generate"]) == ([], 100)
    assert comparison.verdict == "differ"
    assert "100 documents that both answered have a score of one of the two alone" in verification_text(comparison)
