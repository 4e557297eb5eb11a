"""Every fault of user code, models and judges, put into one row of a task: it takes that row of that document away.

The answers are aa, b, ccc, a and bb, and the row that is struck is the length of the answer: 9/5 undisturbed, and 8/4 when the
document that was answered b fails in it. All other rows are those of the undisturbed run, to the last digit.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent, indent
from typing import Any, NamedTuple

import pytest

from assay import UnitMetricRegistry, simple_evaluate, unit_metric
from assay.exchange.importers import score
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.models import Scripted
from assay.report.table import results_table
from assay.runs.run import Run
from assay.score_keys import ScoreKey
from assay.scoring.workers import can_fork
from run_world import rows_of
from small_runs import SAMPLED, choose, generate, run, says, write_task

ANSWERS = ["aa", "b", "ccc", "a", "bb"]
STRUCK = 1
"""The document that fails, in the row `length,two`."""
NUMBER = "aggregation: mean, higher_is_better: true"
FIRST = "filter: [{function: take_first}]"


class Fault(NamedTuple):
    """The entry of filter `two`; its helper, where `FAULT` is replaced by nothing or by the fault; and what is said."""

    entry: str
    helper: str
    fault: str
    says: str


def without_bounds(results: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of the task but for where they would be if all failed documents were wrong, or right: that is of all its rows."""
    return {
        name: {key: value for key, value in row.items() if key != "failure_bounds"}
        for name, row in rows_of(results, "t").items()
    }


def of_metric(fault: str, said: str) -> Fault:
    entry = f"{FIRST}, metric_list: [{{metric: !function h.length, {NUMBER}}}, {{metric: exact_match}}]"
    helper = """
    def length(references, predictions):
        [answer] = predictions
        if answer == 'b':
            FAULT
        return float(len(answer))
    """
    return Fault(entry, helper, fault, said)


def of_filter(fault: str, said: str) -> Fault:
    steps = "[{function: !function h.keep}, {function: take_first}]"
    entry = f"filter: {steps}, metric_list: [{{metric: !function h.length, {NUMBER}}}]"
    helper = """
    def keep(resps, docs):
        kept = []
        for answers in resps:
            if answers[0] == 'b':
                FAULT
            kept.append(answers)
        return kept

    def length(references, predictions):
        return float(len(predictions[0]))
    """
    return Fault(entry, helper, fault, said)


def of_scorer(body: str, fault: str, said: str) -> Fault:
    helper = (
        "import os, signal\nfrom assay import GenerationScorer\nclass Own(GenerationScorer):\n    name = 'length'\n"
    )
    return Fault(f"{FIRST}, scorer: !function h.Own", helper + indent(dedent(body), "    "), fault, said)


def of_score(fault: str, said: str, more: str = "") -> Fault:
    body = f"""
    {more}
    def score(self, reference, predictions):
        answer = predictions[0]
        if answer == 'b':
            FAULT
        return float(len(answer))
    """
    return of_scorer(body, fault, said)


def of_batch(fault: str, said: str) -> Fault:
    body = """
    def score_batch(self, results):
        scores = []
        for result in results:
            if result.results[0] == 'b':
                FAULT
            scores.append(float(len(result.results[0])))
        return scores
    """
    return of_scorer(body, fault, said)


def of_method(
    signature: str, answer: str, fault: str, said: str, ends: str = "{'length': float(len(answer))}"
) -> Fault:
    body = f"""
    def {signature}:
        answer = {answer}
        if answer == 'b':
            FAULT
        return {ends}
    """
    return of_scorer(body, fault, said)


def of_process_results(fault: str, said: str) -> Fault:
    """The function is called for every filter; it knows filter `two` by its upper case."""
    helper = """
    def values(doc, results):
        answer = results[0]
        if answer == 'B':
            FAULT
        return {'length': float(len(answer))}
    """
    return Fault("process_results", helper, fault, said)


WHERE = r"\(h\.py:\d+\)"
OF_TWO = "scoring: metric 'length' of filter 'two': "
OWN = "scoring: scorer 'length' of filter 'two': "
ENDED = "the process that scored it ended "
FAULTS = {
    "a metric raises": of_metric("raise KeyError('x')", OF_TWO + "KeyError: 'x' " + WHERE),
    "a metric ends the process": of_metric("raise SystemExit(0)", OF_TWO + "SystemExit: 0 " + WHERE),
    "a metric never ends its recursion": of_metric("return length(references, predictions)", "RecursionError.*" + WHERE),
    "a metric gives NaN": of_metric("return float('nan')", "'length' of filter 'two' is NaN"),
    "a metric gives None": of_metric("return None", "'length' of filter 'two' is None"),
    "a metric gives a text": of_metric("return '0.5'", "'length' of filter 'two' is a value of type 'str'"),
    "a metric gives a list": of_metric("return [1.0, 2.0]", "'length' of filter 'two' is a list of 2 for 1 answer"),
    "a metric gives nothing by name": of_metric("return {}", "'length' returned no value"),
    "a filter raises": of_filter("raise ValueError('x')", "filter 'two': ValueError: x " + WHERE),
    "a filter ends the process": of_filter("raise SystemExit(3)", "filter 'two': SystemExit: 3 " + WHERE),
    "a filter returns a text for a list": of_filter("answers = 'b'", "filter 'two' returned a value of type 'str'.*return \\[answer\\]"),
    "a filter returns None for a list": of_filter("answers = None", "filter 'two' returned a value of type 'NoneType'"),
    "a filter returns a mapping for a list": of_filter("answers = {'a': 'b'}", "filter 'two' returned a value of type 'dict'"),
    "a filter leaves no answer": of_filter("answers = []", "filter 'two'.*leaves no answer"),
    "a filter returns too few answers": of_filter("continue", "filter 'two' returned 0 answers for 1 request"),
    "a filter returns half a character": of_filter("answers = ['\\ud800']", "filter 'two' returned text with half a character"),
    "score raises": of_score("raise ValueError('x')", OWN + "ValueError: x " + WHERE),
    "score gives None": of_score("return None", "'length' of filter 'two' is None"),
    "score gives nothing by name": of_score("return {}", "'length' returned no value"),
    "score_batch raises": of_batch("raise ValueError('x')", OWN + "ValueError: x " + WHERE),
    "score_batch gives too few": of_batch("continue", "score_batch gave 0 scores for 1 document"),
    "score_batch gives NaN": of_batch("scores.append(float('nan')); continue", "'length' of filter 'two' is NaN"),
    "score_instances raises": of_method("score_instances(self, instances, filter_name)", "instances[0].resps[0]", "raise ValueError('x')", OWN + "ValueError: x " + WHERE),
    "score_instances gives None": of_method("score_instances(self, instances, filter_name)", "instances[0].resps[0]", "return None", OWN),
    "_compute_metrics raises": of_method("_compute_metrics(self, result, metrics)", "result.results[0]", "raise ValueError('x')", OWN + "ValueError: x " + WHERE),
    "_compute_metrics gives None": of_method("_compute_metrics(self, result, metrics)", "result.results[0]", "return None", OWN),
    "process_results raises": of_process_results("raise ValueError('x')", "process_results of filter 'two': ValueError: x " + WHERE),
    "process_results gives None": of_process_results("return None", r"process_results of filter 'two' \(values, h.py:\d+\) returned None"),
    "process_results gives nothing": of_process_results("return {}", r"process_results of filter 'two' \(values, h.py:\d+\) returned no value"),
    "process_results gives a list": of_process_results("return [1.0]", r"process_results of filter 'two' \(values, h.py:\d+\) returned a list of 1"),
    "process_results gives NaN": of_process_results("return {'length': float('nan')}", "'length' of filter 'two' is NaN"),
}  # fmt: skip
DEATHS = {
    "a worker exits": of_score("os._exit(3)", OWN + ENDED + "with exit code 3", "parallel = True"),
    "a worker is killed": of_score("os.kill(os.getpid(), signal.SIGKILL)", OWN + ENDED + "by signal 9", "parallel = True"),
    "a worker raises": of_score("raise ValueError('x')", OWN + "ValueError: x " + WHERE, "parallel = True"),
    "a worker gives what cannot be sent": of_score("return lambda: 0", OWN + ".*pickle", "parallel = True"),
}  # fmt: skip
TASK = """
output_type: generate_until
doc_to_text: q
doc_to_target: gold
filter_list:
  - {name: one, filter: [{function: take_first}], metric_list: [{metric: exact_match}]}
  - {name: two, ENTRY}
  - {name: three, filter: [{function: uppercase}, {function: take_first}], metric_list: [{metric: token_f1}]}
"""
PROCESSED = """
output_type: generate_until
doc_to_text: q
doc_to_target: gold
process_results: !function h.values
metric_list: [{metric: length, aggregation: mean, higher_is_better: true}]
filter_list:
  - {name: one, filter: [{function: take_first}]}
  - {name: two, filter: [{function: uppercase}, {function: take_first}]}
  - {name: three, filter: [{function: lowercase}, {function: take_first}]}
"""


def write(folder: Path, of: Fault, *, faulty: bool) -> None:
    rows = [{"q": str(number), "gold": gold} for number, gold in enumerate(["aa", "b", "x", "A", "bb"])]
    write_task(folder, rows, PROCESSED if of.entry == "process_results" else TASK.replace("ENTRY", of.entry))
    (folder / "h.py").write_text(dedent(of.helper).replace("FAULT", of.fault if faulty else "pass"))


def scores(folder: Path) -> list[dict[ScoreKey, Any]]:
    """By document the values of its rows, as the samples file has them."""
    file = Run.open(folder).sample_file("t")
    assert file is not None
    return [dict(sample.scores) for sample in file.rows()]


def failures(folder: Path) -> list[dict[ScoreKey, str]]:
    file = Run.open(folder).sample_file("t")
    assert file is not None
    return [dict(sample.failures) for sample in file.rows()]


def check(folder: Path, disturbed: Path, says: str) -> None:
    """One document fails in the row `length,two`, everywhere; and everything else is as it was."""
    before, after = Run.open(folder), Run.open(disturbed)
    rows, known = (without_bounds(lm_eval_layout(run.results)) for run in (after, before))
    others = [name for name in known if name != "length,two"]
    assert len(others) >= 2
    assert {name: rows[name] for name in others} == {name: known[name] for name in others}
    assert set(rows) == set(known)
    assert (known["length,two"]["value"], known["length,two"]["n"], known["length,two"]["failed"]) == (1.8, 5, 0)
    struck = rows["length,two"]
    assert (struck["value"], struck["n"], struck["failed"]) == (2.0, 4, 1)
    [(reason, count)] = struck["reasons"].items()
    assert count == 1
    assert re.search(says, reason), reason
    row = after.rows("t")[ScoreKey("length", "two")]
    assert (row.estimate.value, row.estimate.n, row.failed) == (2.0, 4, 1)
    expected = scores(folder)
    del expected[STRUCK][ScoreKey("length", "two")]
    assert scores(disturbed) == expected
    [lost] = failures(disturbed)[STRUCK].items()
    assert (lost[0].filter, lost[0].metric in ("length", "*"), lost[1]) == ("two", True, reason)
    assert not any(failures(disturbed)[:STRUCK] + failures(disturbed)[STRUCK + 1 :])
    [line] = [
        line for line in str(results_table(after.results)).splitlines() if re.search(r"\|two *\|.*\|length", line)
    ]
    assert [cell.strip() for cell in line.split("|")[-3:-1]] == ["4", "1*"]


def try_fault(tmp_path: Path, of: Fault) -> None:
    tasks = tmp_path / "tasks"
    write(tasks, of, faulty=False)
    run(tasks, says(ANSWERS), output_path=str(tmp_path / "whole"))
    write(tasks, of, faulty=True)
    run(tasks, says(ANSWERS), output_path=str(tmp_path / "disturbed"))
    check(tmp_path / "whole", tmp_path / "disturbed", of.says)
    check(tmp_path / "whole", score([tmp_path / "whole"]).folder, of.says)


@pytest.mark.parametrize("of", FAULTS.values(), ids=FAULTS)
def test_a_fault_takes_its_row_of_its_document_and_nothing_else(of: Fault, tmp_path: Path) -> None:
    try_fault(tmp_path, of)


@pytest.mark.process
@pytest.mark.skipif(not can_fork(), reason="needs Linux")
@pytest.mark.parametrize("of", DEATHS.values(), ids=DEATHS)
def test_a_process_that_dies_takes_the_score_of_one_document(of: Fault, tmp_path: Path) -> None:
    try_fault(tmp_path, of)


def length_judge(fault: str) -> Scripted:
    """A judge for the length of an answer; of the answer b it says `fault`."""

    def judge(prompt: str, params: dict[str, object], repeat: int) -> str:
        [mark] = set(re.findall(r"mark ([0-9a-f]{32})", prompt))
        [answer] = re.findall(r">>>\n(.*)\n<<<", prompt)
        if answer == "b" and fault == "raise":
            raise TimeoutError("no verdict")
        verdict = json.dumps({"id": mark, "reason": "counted", "score": len(answer)})
        return fault.replace("MARK", mark) if answer == "b" and fault else verdict

    return Scripted(generate=judge, identity=repr(fault))


JUDGE = Fault(
    f"{FIRST}, scorer: {{type: !function h.Own, kwargs: {{scale: [0, 10], normalize: false}}}}",
    "from assay import LLMJudgeScorer\nclass Own(LLMJudgeScorer):\n    name = 'length'\n",
    "",
    "",
)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("It is short.", "judge: unparsable verdict: there is no JSON object"),
        ('{"id": "another", "score": 1}', "judge: unparsable verdict: it does not name the answer"),
        ('{"id": "MARK", "score": 11}', "judge: unparsable verdict: its score is not on the scale"),
        ('{"id": "MARK", "score": NaN}', "judge: unparsable verdict: its score is not on the scale"),
        ("half \ud800", "judge: the model gave text with half a character"),
        ("raise", "judge: TimeoutError: no verdict"),
    ],
)
def test_a_bad_reply_of_a_judge_takes_its_row_of_its_document_and_nothing_else(
    fault: str, said: str, tmp_path: Path
) -> None:
    write(tmp_path / "tasks", JUDGE, faulty=False)
    for name, reply in (("whole", ""), ("disturbed", fault)):
        roles = {"judge": length_judge(reply)}
        run(tmp_path / "tasks", says(ANSWERS), model_role=roles, output_path=str(tmp_path / name))
    check(tmp_path / "whole", tmp_path / "disturbed", said)
    check(tmp_path / "whole", score([tmp_path / "disturbed"]).folder, said)


def test_a_reduction_that_raises_for_one_document_takes_its_row_of_that_document(tmp_path: Path) -> None:
    """Answers right, right; wrong, wrong; right, wrong: exact_match 1, 0, 1/2; best 1, 0, 1; own is the first one's."""
    yaml = """
    repeats: 2
    filter_list: [{name: two, filter: [{function: take_first_k, k: 2}]}]
    metric_list: [{metric: exact_match, reduction: {best: max, own: !function h.own}}]
    """
    for folder, fault in (("whole", "pass"), ("disturbed", "raise ValueError('x')")):
        (tmp_path / folder).mkdir()
        body = f"    if sum(scores) == 0:\n        {fault}\n    return scores[0]\n"
        (tmp_path / folder / "h.py").write_text(f"def own(scores):\n{body}")
    answers = [["a", "a"], ["x", "y"], ["a", "z"]]
    before, after = (
        generate(tmp_path / folder, answers, ["a", "a", "a"], SAMPLED + dedent(yaml))
        for folder in ("whole", "disturbed")
    )
    rows, known = without_bounds(after), without_bounds(before)
    assert {name: row["value"] for name, row in known.items()} == {
        "exact_match,two": 0.5, "best,two": 2 / 3, "own,two": 2 / 3,
    }  # fmt: skip
    assert {name: rows[name] for name in rows if name != "own,two"} == {
        name: known[name] for name in known if name != "own,two"
    }
    assert (rows["own,two"]["value"], rows["own,two"]["n"], rows["own,two"]["failed"]) == (1.0, 2, 1)
    [reason] = rows["own,two"]["reasons"]
    assert re.search("'own'.*ValueError: x " + WHERE, reason)


@pytest.mark.parametrize("fault", ["raise ValueError('x')", "return None", "return float('nan')"])
def test_an_aggregation_that_fails_costs_its_own_row_and_is_said(fault: str, tmp_path: Path) -> None:
    entry = f"{FIRST}, metric_list: [{{metric: exact_match, aggregation: !function h.share}}]"
    of = Fault(entry, "def share(values):\n    FAULT\n    return sum(values) / len(values)\n", fault, "")
    for name, faulty in (("whole", False), ("disturbed", True)):
        write(tmp_path / "tasks", of, faulty=faulty)
        run(tmp_path / "tasks", says(ANSWERS), output_path=str(tmp_path / name))
    before, after = Run.open(tmp_path / "whole"), Run.open(tmp_path / "disturbed")
    struck = ScoreKey("exact_match", "two")
    assert before.rows("t")[struck].estimate.value == 0.6
    assert {key: row for key, row in after.rows("t").items() if key != struck} == {
        key: row for key, row in before.rows("t").items() if key != struck
    }
    assert (after.rows("t")[struck].estimate.value, after.rows("t")[struck].estimate.n) == (None, 5)
    assert re.search(r"the aggregation \(share, h.py:1\)", after.rows("t")[struck].estimate.reason)
    assert after.status == "incomplete"


def test_rows_in_which_every_document_failed_are_listed_everywhere(tmp_path: Path) -> None:
    """A filter that always fails, and a request that always fails: the rows are known without a document."""
    of = of_filter("pass", "")
    write(tmp_path / "tasks", of._replace(helper=of.helper.replace("if answers[0] == 'b':", "if 1 / 0:")), faulty=True)
    run(tmp_path / "tasks", says(ANSWERS), output_path=str(tmp_path / "filter"))
    write(tmp_path / "tasks", of, faulty=False)

    def nothing(prompt: str, params: dict[str, object], repeat: int) -> str:
        raise TimeoutError("no answer")

    run(tmp_path / "tasks", Scripted(generate=nothing), output_path=str(tmp_path / "request"))
    for name, lost in (("filter", ["length,two"]), ("request", ["exact_match,one", "length,two", "token_f1,three"])):
        opened = Run.open(tmp_path / name)
        rows = {str(row.key): row for row in opened.rows("t").values()}
        assert sorted(rows) == ["exact_match,one", "length,two", "token_f1,three"]
        assert [each for each, row in rows.items() if row.estimate.value is None] == lost
        assert all(
            (rows[each].estimate.n, rows[each].failed, rows[each].is_incomplete) == (0, 5, True) for each in lost
        )
        table = str(results_table(opened.results))
        assert all(f"|{each.partition(',')[0]}" in table for each in rows)


GRAPH = """
task: t
data_config: {source: {type: disk, file_path: t.jsonl}}
graph_config:
  nodes:
    ask: {node_type: llm, prompt: [{user: "{q}"}], output_keys: answer, model: {name: m, parameters: {temperature: 0}}}
    unit:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      golden_key: gold
      predicted_key: answer
      unit_metrics_map: [{name: exact_match}, {name: LENGTH}, {name: token_f1}]
      output_keys: [exact_match_result, LENGTH_result, token_f1_result]
  edges: [{from: START, to: ask}, {from: ask, to: unit}, {from: unit, to: END}]
"""


@pytest.fixture
def own_registry() -> Any:
    yield
    UnitMetricRegistry.clear()


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda: int("x"), "scoring: unit metric 'LENGTH': ValueError: invalid literal.*test_one_fault_one_row.py"),
        (lambda: math.nan, "scoring: unit metric 'LENGTH': ValueError: a score must be a finite number"),
        (lambda: None, "scoring: unit metric 'LENGTH': TypeError"),
    ],
    ids=["raises", "NaN", "None"],
)
def test_a_unit_metric_of_a_graph_that_fails_takes_its_row_of_its_record_and_nothing_else(
    fault: Callable[[], Any], said: str, tmp_path: Path
) -> None:
    rows = [{"q": str(number), "gold": gold} for number, gold in enumerate(["aa", "b", "x", "A", "bb"])]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    known = []
    for name, value in (("whole_length", lambda: 1.0), ("lost_length", fault)):

        def length(golden: Any, predicted: Any, value: Any = value) -> Any:
            return value() if predicted["text"] == "b" else float(len(predicted["text"]))

        unit_metric(name)(length)
        graph = tmp_path / "graph_config.yaml"
        graph.write_text(GRAPH.replace("LENGTH", name))
        model = Scripted(
            generate=lambda prompt, params, repeat: ANSWERS[int(re.findall(r"'content': '(\d)'", prompt)[0])],
            chat_template=lambda messages, _: str(messages),
        )
        results = simple_evaluate(model, tasks=[str(graph)], include_defaults=False, output_path=str(tmp_path / name))
        known.append(without_bounds(results))
        again = without_bounds(lm_eval_layout(score([tmp_path / name]).results))
        assert again == known[-1]
    before, after = known
    struck = after.pop("lost_length,none")
    whole = before.pop("whole_length,none")
    assert after == before
    assert sorted(after) == ["exact_match,none", "token_f1,none"]
    assert (whole["value"], whole["n"], whole["failed"]) == (1.8, 5, 0)
    assert (struck["value"], struck["n"], struck["failed"]) == (2.0, 4, 1)
    [reason] = struck["reasons"]
    assert re.search(said.replace("LENGTH", "lost_length"), reason), reason


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_filter_that_changes_what_it_is_given_before_it_raises_changes_nothing_for_the_others(
    repeats: int, tmp_path: Path
) -> None:
    """The filter takes the last answer off and puts a mark; the last document makes it fail when all marks are there."""
    (tmp_path / "h.py").write_text(
        dedent("""\
        def mark(resps, docs):
            for answers in resps:
                answers[:] = [answer + '!' for answer in answers]
            if any(doc['q'] == '2' for doc in docs):
                raise ValueError('x')
            return resps
        """)
    )
    steps = f"[{{function: !function h.mark}}, {{function: take_first_k, k: {repeats}}}]"
    yaml = f"{SAMPLED}repeats: {repeats}\nfilter_list: [{{name: two, filter: {steps}}}]\n"
    results = generate(tmp_path, [["a"] * 3, ["b"] * 3, ["c"] * 3], ["a!", "b!", "c!"], yaml)
    row = rows_of(results, "t")["exact_match,two"]
    assert (row["value"], row["n"], row["failed"]) == (1.0, 2, 1)


def test_a_filter_of_choices_that_raises_for_one_document_leaves_the_others_their_choices(tmp_path: Path) -> None:
    (tmp_path / "h.py").write_text(
        "def f(resps, docs):\n    return [r if 1 / int(doc['q']) else r for r, doc in zip(resps, docs)]\n"
    )
    yaml = "filter_list: [{name: two, filter: [{function: !function h.f}, {function: take_first}]}]\n"
    results = choose(tmp_path, [[-1.0, -2.0]] * 3, [0, 0, 1], ["x", "y"], yaml)
    row = rows_of(results, "t")["acc,two"]
    assert (row["value"], row["n"], row["failed"]) == (0.5, 2, 1)


SEEING = """
from assay import GenerationScorer

class Own(GenerationScorer):
    name = "own"
    def score_instances(self, instances, filter_name):
        return {"own": float(len(instances[0].filtered_resps[filter_name]))}

class Both(GenerationScorer):
    name = "both"
    def score_instances(self, instances, filter_name):
        return {"both": float(len(instances[0].filtered_resps["two"]))}

class Every(GenerationScorer):
    name = "every"
    def _compute_metrics(self, result, metrics):
        return {"every": float(len(result.instances[0].filtered_resps))}

def keep(resps, docs):
    return [each if 1 / (each[0] != "b") else each for each in resps]
"""


def test_a_scorer_that_sees_every_filter_fails_only_where_it_looks_at_one_that_failed(tmp_path: Path) -> None:
    """The filter `two` fails for the answer b: `own` never looks at it, `both` does, and `every` counts all filters."""
    (tmp_path / "h.py").write_text(SEEING)
    plain = "filter: [{function: take_first}]"
    entries = [f"{{name: {name.lower()}, {plain}, scorer: !function h.{name}}}" for name in ("Own", "Both", "Every")]
    two = "{name: two, filter: [{function: !function h.keep}, {function: take_first}], metric_list: [{metric: exact_match}]}"
    cross = f"{{name: cross, {plain}, scorer: cross_filter}}"
    rows = generate(tmp_path, ["aa", "b"], ["aa", "b"], f"filter_list: [{', '.join([*entries, two, cross])}]\n")
    known = rows_of(rows, "t")
    assert {name: (row["value"], row["n"], row["failed"]) for name, row in known.items()} == {
        "own,own": (1.5, 2, 0),
        "both,both": (2.0, 1, 1),
        "every,every": (5.0, 1, 1),
        "exact_match,two": (1.0, 1, 1),
        "filter_agreement,cross": (1.0, 1, 1),
        "filter_diversity,cross": (0.2, 1, 1),
    }
    for name in ("both,both", "every,every", "filter_agreement,cross"):
        [reason] = known[name]["reasons"]
        assert "filter 'two': ZeroDivisionError" in reason
