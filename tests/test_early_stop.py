"""A task stops when its first 20 requests fail for one permanent reason; the others continue, and a rerun asks again."""

import json
import time
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import assay
from assay.engine.counts import EarlyStop, TemporaryFailure
from assay.models import Scripted
from assay.records import Failed
from serving import Arrived, loopback
from small_runs import write_task

TEXT = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
SIZE = 80
GRAPH = """
    data_config:
      source: {type: disk, file_path: records.jsonl}
    graph_config:
      nodes:
        answer:
          node_type: llm
          prompt: [{user: "{q}"}]
          output_keys: said
          model: {name: mine, parameters: {temperature: 0, max_tokens: 100}}
      edges:
        - {from: START, to: answer}
        - {from: answer, to: END}
"""


class Refusing:
    """A server that refuses prompts with a word in them, from the n-th on, and answers the others."""

    def __init__(self, word: str, status: int = 400, passes: int = 0) -> None:
        self.word, self.status, self.passes, self.refused = word, status, passes, 0

    def __call__(self, arrived: Arrived) -> Any:
        body = json.loads(arrived.body or b"{}")
        if self.word in json.dumps(body.get("messages", "")):
            self.refused += 1
            if self.refused > self.passes:
                message = f"request {self.refused}: unknown field {self.refused * 7}"
                return self.status, {}, {"error": {"message": message}}
        return {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}


def write(folder: Path, extra: str = "") -> None:
    for name in ("good", "bad"):
        rows = [{"q": f"{name} {number}", "gold": "yes"} for number in range(SIZE)]
        write_task(folder, rows, TEXT + (extra if name == "bad" else ""), name)


def evaluate(folder: Path, url: str, **options: Any) -> dict[str, Any]:
    model_args = {"model": "m", "base_url": url, "num_concurrent": 8, "max_retries": 1}
    return assay.simple_evaluate(
        "openai-chat", model_args, tasks=["good", "bad"], include_path=str(folder), include_defaults=False, **options
    )


def test_a_task_that_is_refused_stops_and_the_others_continue(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path)
    server = Refusing("bad")
    with loopback(server) as (url, _):
        results = evaluate(tmp_path, url, output_path=str(tmp_path / "run"))
        refused = server.refused
        server.word = "nothing"
        again = evaluate(tmp_path, url, output_path=str(tmp_path / "run"))
    assert 20 <= refused <= 20 + 16
    bad = results["assay"]["tasks"]["bad"]
    assert (bad["failed"], bad["documents"], bad["is_incomplete"]) == (SIZE, SIZE, True)
    not_asked = {reason: count for reason, count in bad["reasons"].items() if reason.startswith("not asked, since")}
    assert sum(not_asked.values()) == SIZE - refused
    assert results["results"]["good"]["exact_match,none"] == 1.0
    assert "task 'bad' stops: its first 20 requests failed for one reason" in caplog.text
    assert again["results"]["bad"]["exact_match,none"] == 1.0


def test_one_answer_among_the_first_keeps_a_task(tmp_path: Path) -> None:
    write(tmp_path)
    server = Refusing("bad", passes=1)
    with loopback(server) as (url, _):
        results = evaluate(tmp_path, url)
    assert server.refused == SIZE
    assert results["assay"]["tasks"]["bad"]["failed"] == SIZE - 1


def test_failures_that_may_pass_and_a_limit_of_the_user_keep_a_task(tmp_path: Path) -> None:
    write(tmp_path)
    server, limited = Refusing("bad", status=503), Refusing("bad")
    with loopback(server) as (url, _):
        evaluate(tmp_path, url)
    with loopback(limited) as (url, _):
        results = evaluate(tmp_path, url, max_failures=40)
    assert server.refused == SIZE
    assert limited.refused >= 40
    assert results["assay"]["ended"].startswith("max_failures")


def test_a_judge_that_is_refused_stops_the_task(tmp_path: Path) -> None:
    write(tmp_path, "scorer: llm_judge\n")
    server, judge = Refusing("nothing"), Refusing("<<<answer")
    with loopback(server) as (url, log), loopback(judge) as (other, _):
        role = {"judge": {"model": "openai-chat", "model_args": {"model": "j", "base_url": other, "num_concurrent": 8}}}
        results = evaluate(tmp_path, url, model_role=role)
    assert 20 <= judge.refused <= 20 + 16
    assert len(log) < SIZE + SIZE  # the model under test is not asked for all documents either
    reasons = results["assay"]["tasks"]["bad"]["reasons"]
    assert any("requests to the role 'judge' failed" in reason for reason in reasons)
    assert results["assay"]["tasks"]["bad"]["failed"] == SIZE


def test_a_graph_that_is_refused_stops(tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    folder.mkdir()
    (folder / "graph_config.yaml").write_text(dedent(GRAPH))
    records = [{"q": f"bad {number}", "id": number} for number in range(SIZE)]
    (folder / "records.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    write(tmp_path / "tasks")
    server = Refusing("bad")
    with loopback(server) as (url, _):
        model_args = {"model": "m", "base_url": url, "num_concurrent": 8}
        results = assay.simple_evaluate(
            "openai-chat",
            model_args,
            tasks=["good", str(folder)],
            include_path=str(tmp_path / "tasks"),
            apply_chat_template=True,
        )
    assert 20 <= server.refused <= 20 + 16
    own = results["assay"]["tasks"]["graph"]
    assert (own["failed"], own["documents"]) == (SIZE, SIZE)


CODE = """
def fails(*a, **k): raise KeyError("no such column")
def odd(node, state):
    if state["id"] != 3: raise KeyError("no such column")
    return {"y": 1}
def late(node, state):
    if state["id"] >= 30: raise KeyError("no such column")
    return {"y": 1}
def slow(node, state):
    import time
    time.sleep(0.002)
    raise KeyError(f"no such column: {state['id']}")
async def waits(node, state): raise KeyError("no such column")
class Output:
    def __init__(self, config): pass
    def generate(self, state): raise KeyError("no such column")
"""
BROKEN = {
    "a lambda": "{node_type: lambda, lambda: code.fails}",
    "a lambda in threads": "{node_type: lambda, lambda: code.slow}",
    "an async lambda": "{node_type: lambda, lambda: code.waits}",
    "a subgraph": "{node_type: subgraph, subgraph: inner}",
    "a post-processor": '{node_type: llm, post_process: code.fails, prompt: [{user: "{said}"}], model: {name: mine}}',
    "a pre-processor": '{node_type: llm, pre_process: code.fails, prompt: [{user: "{said}"}], model: {name: mine}}',
    "the output": "{node_type: weighted_sampler, attributes: {z: {values: [1]}}}",
}


def graph_run(
    top: Path, node: str, *, more: str = "", shown: str = "said", **options: Any
) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """The number of requests that a graph of 300 records sent, which a node behind its model breaks; its account, and results."""
    folder = top / "graph"
    folder.mkdir()
    graph = dedent(GRAPH).replace("  edges:", f"    second: {node}\n  edges:")
    graph = graph.replace("{from: answer, to: END}", "{from: answer, to: second}\n    - {from: second, to: END}")
    (folder / "graph_config.yaml").write_text(graph + more)
    (folder / "code.py").write_text(CODE)
    (folder / "inner").mkdir()
    (folder / "inner/code.py").write_text(CODE)
    (folder / "inner/graph_config.yaml").write_text(
        "graph_config:\n  nodes: {only: {node_type: lambda, lambda: code.fails}}\n"
        "  edges: [{from: START, to: only}, {from: only, to: END}]\n"
    )
    records = [{"q": f"bad {number}", "id": number} for number in range(300)]
    (folder / "records.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    write(top / "tasks")
    server = Refusing("nothing")
    with loopback(server) as (url, log):
        model_args = {"model": "m", "base_url": url, "num_concurrent": 8}
        results = assay.simple_evaluate(
            "openai-chat", model_args, tasks=[str(folder), "good"], include_path=str(top / "tasks"),
            apply_chat_template=True, **options
        )  # fmt: skip
        sent = sum(b"bad" in each.body for each in log if each.body)
    return sent, results["assay"]["tasks"]["graph"], results


@pytest.mark.parametrize("broken", BROKEN)
def test_a_graph_whose_code_fails_on_every_record_stops(tmp_path: Path, broken: str) -> None:
    """20 records of 300, those in flight, and those whose model answered while the 20th was in a thread."""
    more = "output_config: {generator: code.Output}\n" if broken == "the output" else ""
    sent, own, results = graph_run(tmp_path, BROKEN[broken], more=more)
    assert 20 <= sent <= 20 + 3 * 16
    assert (own["failed"], own["documents"]) == (300, 300)
    reasons = "; ".join(own["reasons"])
    assert "not asked, since the first 20 documents failed: " in reasons
    assert "KeyError: 'no such column" in reasons
    assert results["results"]["good"]["exact_match,none"] == 1.0


@pytest.mark.parametrize("function", ["odd", "late"])
def test_a_graph_with_a_record_that_does_not_fail_among_the_first_goes_on(tmp_path: Path, function: str) -> None:
    sent, own, _ = graph_run(tmp_path, f"{{node_type: lambda, lambda: code.{function}}}")
    assert (sent, own["failed"]) == (300, 299 if function == "odd" else 270)


def test_max_failures_counts_records_whose_code_failed(tmp_path: Path) -> None:
    sent, own, results = graph_run(tmp_path, BROKEN["a lambda"], max_failures=5)
    assert sent <= 5 + 2 * 16
    assert results["assay"]["ended"] == "max_failures: 5 requests or documents failed"
    assert own["not_asked"] + own["failed"] == 300


PLAIN = {
    "process_results": "process_results: !function code.fails\n",
    "a metric": "metric_list: [{metric: !function code.fails, aggregation: mean, higher_is_better: true}]\n",
    "a filter": "filter_list: [{name: f, filter: [{function: custom, filter_fn: !function code.fails}]}]\n"
    "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n",
}
PLAIN_CODE = """
def fails(*a, **k): raise KeyError("no such key")
"""


def plain_run(top: Path, extra: str, **options: Any) -> tuple[int, dict[str, Any]]:
    """The requests about `bad`, and the results."""
    write(top, extra)
    (top / "code.py").write_text(PLAIN_CODE)
    server = Refusing("nothing")
    with loopback(server) as (url, log):
        results = evaluate(top, url, **options)
        return sum(b"bad" in each.body for each in log if each.body), results


@pytest.mark.parametrize("kind", PLAIN)
def test_a_plain_task_whose_code_fails_on_every_document_stops(tmp_path: Path, kind: str) -> None:
    sent, results = plain_run(tmp_path, PLAIN[kind])
    assert 20 <= sent <= 20 + 2 * 16
    bad = results["assay"]["tasks"]["bad"]
    assert any(reason.startswith("not asked, since the first 20 documents failed: ") for reason in bad["reasons"])
    assert bad["failed"] == SIZE
    assert results["results"]["good"]["exact_match,none"] == 1.0


def test_one_broken_metric_beside_another_does_not_stop_a_task(tmp_path: Path) -> None:
    """Its answers are needed for the other metric, and scored again when the broken one is corrected."""
    both = PLAIN["a metric"].replace("[{", "[{metric: exact_match, aggregation: mean, higher_is_better: true}, {")
    sent, results = plain_run(tmp_path, both)
    assert sent == SIZE
    assert results["results"]["bad"]["exact_match,none"] == 1.0


def test_max_failures_counts_documents_of_plain_tasks(tmp_path: Path) -> None:
    sent, results = plain_run(tmp_path, PLAIN["process_results"], max_failures=7)
    assert sent <= 7 + 2 * 16
    assert results["assay"]["ended"] == "max_failures: 7 requests or documents failed"


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("options", [{}, {"max_failures": 20}])
def test_a_local_model_does_not_answer_the_rest_of_its_window(
    tmp_path: Path, options: dict[str, Any], in_thread: bool
) -> None:
    """A window has room for 2,048 requests. After 20 failures a model of this process goes on with other tasks only."""
    asked: list[str] = []

    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        asked.append(prompt)
        time.sleep(0.002)  # longer than the millisecond whose answers are passed on together
        return "yes"

    model = Scripted(generate=answer, identity="says yes")
    model.can = replace(model.can, answer_in_thread=in_thread)
    write(tmp_path, PLAIN["process_results"])
    (tmp_path / "code.py").write_text(PLAIN_CODE)
    names = ["bad"] if in_thread or options else ["bad", "good"]
    results = assay.simple_evaluate(model, tasks=names, include_path=str(tmp_path), include_defaults=False, **options)
    assert 20 <= sum("bad" in prompt for prompt in asked) < 20 + SIZE / 2
    account = results["assay"]["tasks"]["bad"]
    assert account["failed"] + account.get("not_asked", 0) == SIZE
    if "good" in names:
        assert results["results"]["good"]["exact_match,none"] == 1.0
        assert sum("good" in prompt for prompt in asked) == SIZE


@pytest.mark.parametrize(
    ("failures", "stops"),
    [
        ([Failed(f"HTTP 400: {n} of 'x{n}'") for n in range(20)], True),
        ([Failed("HTTP 400: a")] * 19, False),
        ([Failed("HTTP 400: a")] * 19 + [Failed("HTTP 400: b")] + [Failed("HTTP 400: a")] * 20, False),
        ([TemporaryFailure("HTTP 400: a")] + [Failed("HTTP 400: a")] * 30, False),
        ([Failed("HTTP 400: your content was filtered")] * 30, False),
        ([Failed("2000 tokens exceed the model's context length of 1024")] * 30, False),
        ([Failed("the server reports no log-probabilities (logprobs)")] * 20, True),
    ],
)
def test_the_reasons_that_stop_a_task(failures: list[Failed], stops: bool) -> None:
    rule = EarlyStop()
    for failed in failures:
        rule.fail(("t", "model"), failed, set())
    assert ("t" in rule.stopped) == stops
    answered = EarlyStop()
    for failed in failures:
        answered.fail(("t", "model"), failed, {("t", "model")})
    assert not answered.stopped
