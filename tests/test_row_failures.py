"""A failure belongs to one row of one sample: the other rows of that sample keep their scores."""

import math
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import run_world
from assay import GenerateTask, GenerationScorer, Instance
from assay.cli import main
from assay.cli.output import exit_code
from assay.errors import ConfigError
from assay.models import Scripted
from assay.records import EVERY_ROW, Failed, FilterScores, Sample
from assay.report.table import results_table
from assay.runs.samples.records import SampleRecord, row_failures
from assay.score_keys import ScoreKey
from assay.user_code import call_user_code, timed
from run_world import failed_in, rows_of
from small_runs import choose, generate, run, says, write_task

METRICS = """\
def half(references, predictions):
    return 0.5


def odd(references, predictions):
    number = int(predictions[0])
    if number == 1:
        return 1 / (number - 1)
    if number == 2:
        return "two"
    if number == 3:
        return float("nan")
    return 1.0


def several(references, predictions):
    if predictions[0] == "1":
        raise KeyError("no such key")
    return {"first": 1.0, "second": 0.0}
"""
BOTH = "metric_list: [{metric: !function utils.half, aggregation: mean, higher_is_better: true}, {metric: !function utils.odd, aggregation: mean, higher_is_better: true}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "utils.py").write_text(METRICS)
    return tmp_path


def test_a_metric_that_raises_returns_a_text_or_nan_loses_its_own_row_of_that_document_alone(folder: Path) -> None:
    results = generate(folder, ["0", "1", "2", "3"], ["x"] * 4, BOTH)
    half, odd = rows_of(results, "t")["half,none"], rows_of(results, "t")["odd,none"]
    assert (half["value"], half["n"], half["failed"]) == (0.5, 4, 0)
    assert (odd["value"], odd["n"], odd["failed"]) == (1.0, 1, 3)
    assert odd["reasons"] == {
        "scoring: metric 'odd' of filter 'none': ZeroDivisionError: division by zero (utils.py:8)": 1,
        "scoring: 'odd' of filter 'none' is a value of type 'str', and must be a number": 1,
        "scoring: 'odd' of filter 'none' is NaN, and must be a number": 1,
    }
    assert "reasons" not in half
    account = results["assay"]["tasks"]["t"]
    assert (account["documents"], account["scored"], account["failed"]) == (4, 4, 3)
    assert half["failure_bounds"] == [0.5, 0.5]
    assert odd["failure_bounds"] == [0.25, 1.0]  # 1 of 4 right, or all 4
    assert (odd["is_incomplete"], "is_incomplete" in half) == (True, False)


def test_a_row_in_which_every_document_failed_is_listed_without_a_value(folder: Path) -> None:
    results = generate(folder, ["1", "1"], ["x"] * 2, BOTH)
    odd = rows_of(results, "t")["odd,none"]
    assert (odd["value"], odd["n"], odd["failed"]) == (None, 0, 2)
    assert rows_of(results, "t")["half,none"]["n"] == 2


def test_a_metric_of_several_values_that_raises_is_counted_in_each_of_its_rows(folder: Path) -> None:
    metrics = "metric_list: [{metric: !function utils.half, aggregation: mean, higher_is_better: true}, {metric: !function utils.several, aggregation: mean, higher_is_better: true}]\n"
    rows = rows_of(generate(folder, ["0", "1", "2"], ["x"] * 3, metrics), "t")
    assert {name: (row["n"], row["failed"]) for name, row in rows.items()} == {
        "half,none": (3, 0),
        "first,none": (2, 1),
        "second,none": (2, 1),
    }


def test_a_filter_that_raises_loses_the_rows_of_that_filter_alone(folder: Path) -> None:
    (folder / "utils.py").write_text(
        METRICS + "\n\ndef picky(resps, docs):\n    return [[r for r in rs if 1 / (int(r) - 1)] for rs in resps]\n"
    )
    filters = """\
    filter_list:
      - {name: picky, filter: [{function: regex, regex_pattern: "[0-9]"}, {function: take_first}],
         metric_list: [{metric: !function utils.odd, aggregation: mean, higher_is_better: true}]}
      - {name: plain, filter: [{function: take_first}], metric_list: [{metric: !function utils.half, aggregation: mean, higher_is_better: true}]}
    """
    rows = rows_of(generate(folder, ["0", "1"], ["x"] * 2, dedent(filters)), "t")
    assert (rows["odd,picky"]["n"], rows["odd,picky"]["failed"]) == (1, 1)
    assert (rows["half,plain"]["n"], rows["half,plain"]["failed"]) == (2, 0)


def test_a_request_that_failed_counts_in_every_row(folder: Path) -> None:
    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        if prompt == "2":
            raise TimeoutError("no answer")
        return prompt

    rows = [{"q": f"{number}", "gold": "x"} for number in range(3)]
    write_task(folder, rows, "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n" + BOTH)
    result_row = rows_of(run(folder, Scripted(generate=answer)), "t")
    assert {name: (row["n"], row["failed"]) for name, row in result_row.items()} == {
        "half,none": (2, 1),
        "odd,none": (1, 2),
    }


def test_a_judge_that_fails_leaves_the_scores_of_the_metrics(folder: Path) -> None:
    def judge(prompt: str, params: dict[str, object], repeat: int) -> str:
        raise TimeoutError("no verdict")

    judged = "scorer: llm_judge\nmetric_list: [{metric: exact_match}]\n"
    write_task(
        folder,
        [{"q": "0", "gold": "a"}, {"q": "1", "gold": "b"}],
        "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n" + judged,
    )
    results = run(folder, says(["a", "a"]), model_role={"judge": Scripted(generate=judge)})
    rows = rows_of(results, "t")
    assert (rows["exact_match,none"]["value"], rows["exact_match,none"]["n"]) == (0.5, 2)
    assert (rows["llm_judge,none"]["value"], rows["llm_judge,none"]["failed"]) == (None, 2)
    assert rows["llm_judge,none"]["reasons"] == {"judge: TimeoutError: no verdict": 2}


def test_under_compat_lm_eval_nan_is_the_number_it_is_there(folder: Path) -> None:
    results = generate(folder, ["0", "3"], ["x"] * 2, BOTH, compat="lm-eval")
    assert math.isnan(results["results"]["t"]["odd,none"])
    assert results["results"]["t"]["half,none"] == 0.5


def test_the_table_shows_how_many_documents_failed_in_each_row(folder: Path) -> None:
    text = str(results_table(generate(folder, ["0", "1", "2", "3"], ["x"] * 4, BOTH).results))
    [half, odd] = [line for line in text.splitlines() if "half" in line or "|odd" in line.replace(" ", "")]
    assert [cell.strip() for cell in half.split("|")[-3:-1]] == ["4", "0"]
    assert [cell.strip() for cell in odd.split("|")[-3:-1]] == ["1", "3*"]


def test_the_table_has_a_row_for_a_metric_that_failed_everywhere(folder: Path) -> None:
    text = str(results_table(generate(folder, ["1", "1"], ["x"] * 2, BOTH).results))
    [odd] = [line for line in text.splitlines() if "|odd" in line.replace(" ", "")]
    cells = [cell.strip() for cell in odd.split("|")]
    assert (cells[7], cells[-3:-1]) == ("–", ["0", "2*"])


class Inverse(GenerationScorer):
    name = "inverse"

    def score(self, reference: Any, predictions: list[Any]) -> float:
        return 1 / len(predictions[0])


def test_instances_are_scored_by_the_same_loop_and_a_failure_keeps_its_place() -> None:
    task = GenerateTask({
        "task": "t", "doc_to_text": "q", "doc_to_target": "gold", "scorer": Inverse,
        "metric_list": [{"metric": "exact_match"}],
        "filter_list": [{"name": "first", "filter": [{"function": "take_first"}]}],
    })  # fmt: skip
    items = [
        Instance({"q": "x", "gold": "ab"}, doc_id=number, target="ab", resps=[answer])
        for number, answer in enumerate(["ab", "", "abcd"])
    ]
    result = task.process_instances(items)
    assert result["exact_match", "first"] == [1.0, 0.0, 0.0]
    [one, lost, other] = result["inverse", "first"]
    assert (one, other) == (0.5, 0.25)
    where = f"test_row_failures.py:{Inverse.score.__code__.co_firstlineno + 1}"
    assert lost == Failed(f"scoring: scorer 'inverse' of filter 'first': ZeroDivisionError: division by zero ({where})")
    assert task.compute_aggregations()["inverse", "first"] == 0.375


def test_a_scorer_may_ask_in_several_rounds(folder: Path) -> None:
    (folder / "own.py").write_text(
        dedent("""\
        from assay import LLMJudgeScorer
        from assay.records import Generate

        class Twice(LLMJudgeScorer):
            def ask(self, result):
                [first] = yield [Generate("round 1", {}, 0, "judge")]
                [second] = yield [Generate(f"round 2 after {first.text}", {}, 0, "judge")]
                return float(second.text)
        """)
    )
    asked: list[str] = []

    def judge(prompt: str, params: dict[str, object], repeat: int) -> str:
        asked.append(prompt)
        return "0.25" if prompt.endswith("after yes") else "yes"

    write_task(
        folder,
        [{"q": "0", "gold": "a"}],
        "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nscorer: !function own.Twice\n",
    )
    results = run(folder, says(["a"]), model_role={"judge": Scripted(generate=judge)})
    assert rows_of(results, "t")["Twice,none"]["value"] == 0.25
    assert asked == ["round 1", "round 2 after yes"]


def test_row_failures_survive_in_results_json(folder: Path) -> None:
    generate(folder, ["0", "1"], ["x"] * 2, BOTH, output_path=str(folder / "run"))
    written = run_world.results(folder / "run")
    assert rows_of(written, "t")["odd,none"]["failed"] == 1


def test_after_a_metric_was_stopped_by_the_clock_the_next_one_can_be_stopped_too() -> None:
    def endless() -> None:
        while True:
            pass

    def both() -> list[object]:
        return [call_user_code("first", endless), call_user_code("second", endless), timed(60, "third", endless)]

    result = timed(0.1, "scoring", both)
    assert isinstance(result, list)
    assert [each.reason.partition(" (")[0] for each in result] == [
        f"{name}: TimeoutError: a filter or metric took more than 0.1 s" for name in ("first", "second", "third")
    ]


CLOCKS = """\
import signal

def is_timed(items):
    return float(signal.getitimer(signal.ITIMER_REAL)[0] > 0)

def process_results(doc, results):
    return {"is_timed": is_timed(results)}
"""


@pytest.mark.parametrize(
    "scored",
    [
        "metric_list: [{metric: !function clocks.is_timed, aggregation: mean, higher_is_better: true}, {metric: acc}]",
        "process_results: !function clocks.process_results\n"
        "metric_list: [{metric: is_timed, aggregation: mean, higher_is_better: true}]",
    ],
)
def test_code_of_users_that_scores_choices_has_a_time_limit_though_our_own_metrics_need_none(
    scored: str, tmp_path: Path
) -> None:
    (tmp_path / "clocks.py").write_text(CLOCKS)
    task = "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_target: 0\ndoc_to_choice: ['a', 'b']\n"
    write_task(tmp_path, [{"q": "0"}, {"q": "1"}], f"{task}{scored}\n")
    results = run(tmp_path, Scripted(loglikelihood=lambda context, text: (-float(len(context + text)), False)))
    assert rows_of(results, "t")["is_timed,none"]["value"] == 1.0


def test_the_failures_of_a_sample_are_listed_by_row() -> None:
    sample = Sample(0, {}, (), None, None)
    rows = [
        FilterScores("strict", ["a"], {"half": 0.5}, failed={"odd": "is NaN"}),
        FilterScores("loose", (), {}, failed={EVERY_ROW: "the filter raised"}),
    ]
    assert row_failures(SampleRecord(sample, [], rows, failed="is NaN; the filter raised")) == {
        ScoreKey("odd", "strict"): "is NaN",
        ScoreKey("*", "loose"): "the filter raised",
    }
    assert row_failures(SampleRecord(sample, [], (), failed="no answer")) == {ScoreKey("*", "*"): "no answer"}
    assert row_failures(SampleRecord(sample, [], rows[:0])) == {}


def test_choices_without_any_likelihood_fail_brier_score_and_are_counted_as_tied(tmp_path: Path) -> None:
    """p = 1/(1 + 1/e) for the first document, 1/(1 + 1/e²) for the third: 2·(1 - p)², and no share of nothing."""
    lls = [[-1.0, -2.0], [-math.inf, -math.inf], [-3.0, -1.0]]
    yaml = "metric_list: [{metric: brier_score}, {metric: acc}]\n"
    results = choose(tmp_path, lls, [0, 1, 1], ["x", "y"], yaml)
    brier, acc = rows_of(results, "t")["brier_score,none"], rows_of(results, "t")["acc,none"]
    p, q = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(-2))
    assert brier["value"] == pytest.approx(((1 - p) ** 2 * 2 + (1 - q) ** 2 * 2) / 2)
    assert (brier["n"], brier["failed"], acc["n"], acc["failed"]) == (2, 1, 3, 0)
    assert results["assay"]["tasks"]["t"]["audit"]["tied"] == {"count": 1, "ids": [1]}
    like_lm_eval = choose(tmp_path, lls, [0, 1, 1], ["x", "y"], yaml, compat="lm-eval")
    assert math.isnan(like_lm_eval["results"]["t"]["brier_score,none"])


def test_choices_that_are_all_equally_likely_are_counted(tmp_path: Path) -> None:
    """Of the second document two of three are equal, which is no tie of all."""
    lls = [[-1.0, -1.0, -1.0], [-1.0, -1.0, -3.0], [-4.0, -4.0, -4.0]]
    audit = choose(tmp_path, lls, [0, 0, 2], ["x", "y", "z"])["assay"]["tasks"]["t"]["audit"]
    assert audit["tied"] == {"count": 2, "ids": [0, 2]}


@pytest.mark.parametrize("built", ["raise ValueError('x')", "return None", "return 'x'"])
def test_an_aggregator_of_a_group_that_fails_ends_with_exit_code_1(built: str, tmp_path: Path) -> None:
    (tmp_path / "h.py").write_text(f"def f(*a, **k):\n    {built}\n")
    (tmp_path / "g.yaml").write_text(
        "group: g\ntask: [t]\naggregate_metric_list: [{metric: exact_match, aggregation: !function h.f}]\n"
    )
    results = generate(tmp_path, ["a"], ["a"], tasks=["g"])
    assert results["results"]["t"]["exact_match,none"] == 1.0
    assert rows_of(results, "g")["exact_match,none"]["value"] is None
    assert exit_code(results.results) == 1


FIRST = "{name: a, filter: [{function: take_first}], metric_list: []}"


def test_an_empty_metric_list_of_a_filter_means_the_metrics_of_the_task(tmp_path: Path) -> None:
    """As in seed 004, `filter.metric_list or global`; without those of the task, the metrics of the output type."""
    own = f"metric_list: [{{metric: token_f1}}]\nfilter_list: [{FIRST}]\n"
    assert list(rows_of(generate(tmp_path, ["a"], ["a"], own), "t")) == ["token_f1,a"]
    assert list(rows_of(generate(tmp_path, ["a"], ["a"], f"filter_list: [{FIRST}]\n"), "t")) == ["exact_match,a"]


def test_a_task_that_would_have_no_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"t.yaml:8:14: filter 'none' has no metric, so nothing would be scored — "):
        generate(tmp_path, ["a"], ["a"], "metric_list: []\n")


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ("scorer: llm_judge\n", "t.yaml:9:9"),
        ("filter_list: [{name: a, filter: [{function: take_first}], scorer: llm_judge}]\n", "t.yaml:9:67"),
    ],
)
def test_a_scorer_beside_process_results_is_refused_because_it_would_never_be_called(
    more: str, place: str, tmp_path: Path
) -> None:
    (tmp_path / "h.py").write_text("def f(doc, results):\n    return {'acc': 1.0}\n")
    with pytest.raises(ConfigError, match=f"{place}: process_results computes the scores.*remove one of the two"):
        generate(tmp_path, ["a"], ["a"], f"process_results: !function h.f\n{more}")


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("None", r"process_results of filter 'none' \(f, h.py:1\) returned None"),
        ("{}", r"process_results of filter 'none' \(f, h.py:1\) returned no value"),
        ("0.5", r"process_results of filter 'none' \(f, h.py:1\) returned a value of type 'float'"),
        ("{'acx': 1.0}", "returned 'acx', and none of the metrics in metric_list"),
    ],
)
def test_process_results_that_returns_no_declared_row_for_any_document_fails_them_all(
    returned: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "h.py").write_text(f"def f(doc, results):\n    return {returned}\n")
    yaml = "process_results: !function h.f\nmetric_list: [{metric: acc, aggregation: mean}]\n"
    results = generate(tmp_path, ["a", "b"], ["a", "a"], yaml)
    row = rows_of(results, "t")["acc,none"]
    assert (row["value"], row["n"], row["failed"]) == (None, 0, 2)
    [reason] = results["assay"]["tasks"]["t"]["reasons"]
    assert re.search(said, reason), reason
    assert exit_code(results.results) == 1


def test_under_compat_lm_eval_process_results_may_leave_documents_out(tmp_path: Path) -> None:
    (tmp_path / "h.py").write_text("def f(doc, results):\n    return {'acc': 1.0} if doc['q'] == '0' else {}\n")
    yaml = "process_results: !function h.f\nmetric_list: [{metric: acc, aggregation: mean}]\n"
    results = generate(tmp_path, ["a", "b"], ["a", "a"], yaml, compat="lm-eval")
    assert (results["results"]["t"]["acc,none"], failed_in(results)) == (1.0, 0)


@pytest.mark.server
def test_a_judge_that_cannot_be_reached_is_named_by_its_role(tmp_path: Path) -> None:
    write_task(
        tmp_path,
        [{"q": "0", "gold": "a"}],
        "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nscorer: llm_judge\n",
    )
    nowhere = {"model": "openai-chat", "model_args": {"model": "m", "base_url": "http://127.0.0.1:9/v1"}}
    with pytest.raises(ConfigError, match=r"model_role\.judge: the model does not answer: .*--model_role judge="):
        run(tmp_path, says(["a"]), model_role={"judge": nowhere})


def test_samples_show_what_the_judge_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judged = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nscorer: llm_judge\n"
    write_task(tmp_path, [{"q": "0", "gold": "a"}], judged)
    roles = {"judge": Scripted(generate=lambda *_: "Well said, I think.")}
    run(tmp_path, says(["a"]), model_role=roles, output_path=str(tmp_path / "run"))
    assert main(["samples", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "said by judges" in shown
    assert "Well said, I think." in shown
