"""A task stops when its first 20 requests fail for one permanent reason; the others continue, and a rerun asks again."""

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import assay
from assay.engine.counts import EarlyStop, TemporaryFailure
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
    assert (bad["failed"], bad["documents"], bad["incomplete"]) == (SIZE, SIZE, True)
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
