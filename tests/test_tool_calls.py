"""Tools of agents run once: whatever is killed when, and however often a run is resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.errors import AssayError
from assay.records import Outcome
from assay.runs.journal import Journal, lines
from assay.runs.outcomes import kept_record
from graph_world import AGENT, the_file, write_graph
from serving import TALKING, Servers, fetched

TOOLS = """
    import json, os, pathlib, signal, time
    HERE = pathlib.Path(__file__).parent

    def noted(name, what):
        with (HERE / f"{name}.txt").open("a") as file:
            file.write(f"{what}\\n")
        return len((HERE / f"{name}.txt").read_text().split())

    def refund(order: str):
        number = noted("refunds", order)
        if os.environ.get("KILL") == order:
            time.sleep(1)  # the others finish
            os.kill(os.getpid(), signal.SIGKILL)
        return json.dumps({"say": f"refund {number} of {order}"})

    def slow(order: str):
        noted("refunds", order)
        time.sleep(float(os.environ.get("SECONDS", 2)))
        return json.dumps({"say": "paid"})

    def unsteady(order: str):
        noted("refunds", order)
        return json.dumps({"say": f"paid {order}", "fail_first": 1})

    def paced(order: str):
        noted("begun", order)
        time.sleep(0.6)
        noted("refunds", order)
        return json.dumps({"say": f"paid {order}"})

    async def waits(order: str):
        import asyncio
        noted("begun", order)
        await asyncio.sleep(0.6)
        noted("refunds", order)
        return json.dumps({"say": f"paid {order}"})

    def odd(order: str):
        noted("refunds", order)
        return {order}

    def seen(node, state):
        noted("lambdas", state["order"])
        return {"length": len(state["said"])}
"""
GRAPH = (
    AGENT
    + """\
    seen: {node_type: lambda, lambda: code.seen, output_keys: length}
  edges: [{from: START, to: agent}, {from: agent, to: seen}, {from: seen, to: END}]
output_config: {output_map: {order: {from: order}, said: {from: said}, length: {from: length}}}
"""
)


@pytest.fixture(scope="module")
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


class World:
    """A graph with a tool, and what its code noted when it ran."""

    def __init__(self, top: Path, url: str, tool: str, orders: list[str], tools: str = "") -> None:
        records = [{"order": order, "q": json.dumps({"calls": [[tool, {"order": order}]]})} for order in orders]
        self.folder = write_graph(top, records, GRAPH.replace("TOOLS", tools or f"code.{tool}"), code=TOOLS)
        self.run, self.url = top / "run", url
        self.arguments = f"model=m,base_url={url},max_retries=1,num_concurrent=1"

    def evaluate(self, **more: Any) -> dict[str, Any]:
        options = {"output_path": str(self.run), **more}
        results: dict[str, Any] = assay.simple_evaluate(
            model="openai-chat", model_args=self.arguments, tasks=[str(self.folder)], **options
        )
        [account] = results["assay"]["tasks"].values()
        return account

    def start(self, **environment: str) -> "subprocess.Popen[bytes]":
        command = ["run", "--model", "openai-chat", "--model_args", self.arguments, "--tasks", str(self.folder)]
        return subprocess.Popen(
            [sys.executable, "-m", "assay", *command, "--output_path", str(self.run)],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a suite in the background has it ignored
        )

    def noted(self, name: str) -> Counter[str]:
        path = self.folder / f"{name}.txt"
        return Counter(path.read_text().split() if path.exists() else ())

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.run.glob("*_20*")}


ORDERS = [f"A{number}" for number in range(5)]


@pytest.mark.parametrize(
    "tools, refunds, failed",
    [
        ("", {}, 1),
        ("{name: code.refund, repeatable: true}", {"A2": 2}, 0),
        ("{name: code.refund, on_resume: rerun}", {"A2": 2}, 0),
    ],
)
def test_a_call_that_was_cut_off_fails_its_record_unless_it_may_be_repeated(
    tmp_path: Path, talking: str, tools: str, refunds: dict[str, int], failed: int
) -> None:
    world = World(tmp_path, talking, "refund", ORDERS, tools)
    assert world.start(KILL="A2").wait() == -9
    account = world.evaluate()
    assert account["failed"] == failed
    assert all("'refund' was begun and not finished" in reason for reason in account.get("reasons", ()))
    assert world.noted("refunds") == {**dict.fromkeys(ORDERS, 1), **refunds}
    output = the_file(world.run, "output_*.json")
    assert [record["order"] for record in output] == [order for order in ORDERS if not failed or order != "A2"]
    before = world.files()
    assert world.evaluate()["failed"] == failed  # a finished run: nothing runs again
    assert world.noted("refunds") == {**dict.fromkeys(ORDERS, 1), **refunds}
    assert world.noted("lambdas") == dict.fromkeys([record["order"] for record in output], 1)
    assert world.files() == before


def test_a_tool_that_runs_when_the_run_is_interrupted_is_waited_for(tmp_path: Path, talking: str) -> None:
    world = World(tmp_path, talking, "slow", ["F1"])
    process = world.start()
    while not world.noted("refunds") and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait() != 0
    assert world.evaluate()["failed"] == 0
    assert world.noted("refunds") == {"F1": 1}


MANY = [f"M{number}" for number in range(60)]
"""More than the threads that tools have: some calls always wait."""


@pytest.mark.parametrize("tool", ["paced", "waits"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_loses_no_record_and_begins_no_tool_call(
    tmp_path: Path, talking: str, number: int, tool: str
) -> None:
    """The calls that run are finished and journaled; resumed, every order is paid once, and no record fails."""
    world = World(tmp_path, talking, tool, MANY)
    world.arguments = world.arguments.replace("num_concurrent=1", "num_concurrent=40")
    process = world.start()
    while world.noted("begun").total() < 20 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    time.sleep(0.4)  # one that was beginning as the signal came; the first that run end later
    begun = world.noted("begun")
    assert process.wait(timeout=120) == 128 + number
    assert world.noted("begun") == begun
    assert 20 <= begun.total() <= (59 if tool == "paced" else 60)
    assert world.noted("refunds") == begun
    assert world.evaluate()["failed"] == 0
    assert world.noted("refunds") == dict.fromkeys(MANY, 1)


def test_a_second_signal_does_not_wait_for_tools(tmp_path: Path, talking: str) -> None:
    world = World(tmp_path, talking, "slow", ["F1"])
    process = world.start(SECONDS="60")
    while not world.noted("refunds") and process.poll() is None:
        time.sleep(0.01)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert time.monotonic() - begin < 30


def cut_off(world: World) -> None:
    """Kill the run in the middle of the call of A2, which has taken effect."""
    assert world.start(KILL="A2").wait() == -9
    assert world.noted("refunds")["A2"] == 1


@pytest.mark.parametrize(
    ("choice", "refunds", "said"), [("skip", 1, "hello"), ("retry", 2, "refund 6 of A2"), ("fail", 1, None)]
)
def test_resume_calls_completes_a_run_and_calls_twice_only_on_request(
    tmp_path: Path, talking: str, caplog: pytest.LogCaptureFixture, choice: str, refunds: int, said: str | None
) -> None:
    """The call in doubt is listed. Skipped, its model reads that the outcome is not known: the server answers that with hello."""
    world = World(tmp_path, talking, "refund", ORDERS)
    cut_off(world)
    account = world.evaluate(resume_calls=choice)
    assert account["failed"] == (choice == "fail")
    assert world.noted("refunds") == {**dict.fromkeys(ORDERS, 1), "A2": refunds}
    [listed] = [
        record.message for record in caplog.records if "not finished when the run was stopped:" in record.message
    ]
    assert 'refund({"order": "A2"})' in listed
    assert f"--resume_calls is {choice}" in listed
    output = {record["order"]: record["said"] for record in the_file(world.run, "output_*.json")}
    assert output.get("A2") == said
    if choice == "skip":
        [doubt] = [each["body"]["messages"][-1] for each in fetched(talking, "/log")][-1:]
        assert "whether it took effect is not known" in doubt["content"]


def test_a_run_that_was_finished_with_failed_records_is_completed_with_resume_calls(
    tmp_path: Path, talking: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, talking, "refund", ORDERS)
    cut_off(world)
    assert world.evaluate()["failed"] == 1
    assert world.evaluate(resume_calls="skip")["failed"] == 0
    caplog.clear()
    assert world.evaluate()["failed"] == 0  # the choice is journaled: nothing is in doubt any more
    assert "not finished" not in caplog.text
    assert world.noted("refunds") == dict.fromkeys(ORDERS, 1)


@pytest.mark.parametrize("rule", ["repeatable: true", "on_resume: rerun", "repeatable: true, on_resume: reuse"])
def test_rules_for_resumed_calls_may_change_between_two_parts_of_a_run(tmp_path: Path, talking: str, rule: str) -> None:
    world = World(tmp_path, talking, "refund", ORDERS)
    cut_off(world)
    file = world.folder / "graph_config.yaml"
    file.write_text(file.read_text().replace("tools: [code.refund]", f"tools: [{{name: code.refund, {rule}}}]"))
    assert world.evaluate()["failed"] == 0
    assert world.noted("refunds")["A2"] == 2


def test_another_tool_makes_another_run(tmp_path: Path, talking: str) -> None:
    world = World(tmp_path, talking, "refund", ORDERS)
    cut_off(world)
    file = world.folder / "graph_config.yaml"
    file.write_text(file.read_text().replace("tools: [code.refund]", "tools: [{name: code.slow, repeatable: true}]"))
    with pytest.raises(AssayError, match="the folder holds another run"):
        world.evaluate()


def test_a_record_that_failed_later_is_walked_again_with_the_results_of_its_tools(tmp_path: Path, talking: str) -> None:
    world = World(tmp_path, talking, "unsteady", ["B1", "B1"])
    assert world.evaluate()["failed"] == 2  # both ask the same, which is sent once, and refused
    asked = len(fetched(talking, "/log"))
    assert world.evaluate()["failed"] == 0
    assert len(fetched(talking, "/log")) == asked + 2 + 1  # the greeting, and the one turn that failed
    assert world.noted("refunds") == {"B1": 2}  # two records with equal calls: each once
    rerun = World(tmp_path / "rerun", talking, "unsteady", ["B2"], "{name: code.unsteady, on_resume: rerun}")
    assert [rerun.evaluate()["failed"], rerun.evaluate()["failed"]] == [1, 0]
    assert rerun.noted("refunds") == {"B2": 2}


def test_results_that_are_not_json_are_counted_and_not_journaled(tmp_path: Path, talking: str) -> None:
    world = World(tmp_path, talking, "odd", ["C1", "C2"])
    assert world.evaluate()["noticed"] == {"of tools that are not JSON, and not journaled": 2}
    journaled = [line.entry or {} for line in lines(world.run / "responses.jsonl")]
    assert sum("intent" in entry for entry in journaled) == 2
    assert [entry for entry in journaled if "done" in entry and "record" not in entry] == []
    world.evaluate()
    assert world.noted("refunds") == {"C1": 1, "C2": 1}


def test_results_of_tools_are_not_in_the_cache_of_answers(tmp_path: Path, talking: str) -> None:
    world = World(tmp_path, talking, "refund", ["D1"])
    world.evaluate(use_cache=str(tmp_path / "cache"))
    world.evaluate(use_cache=str(tmp_path / "cache"), output_path=str(tmp_path / "other"))
    assert world.noted("refunds") == {"D1": 2}


@pytest.mark.parametrize("lost, refunds, failed", [("record", 1, 0), ("result", 1, 1), ("intent", 1, 0)])
def test_damaged_lines_never_make_a_tool_run_twice(
    tmp_path: Path, talking: str, lost: str, refunds: int, failed: int
) -> None:
    world = World(tmp_path, talking, "refund", ["E1"])
    world.evaluate()
    path = world.run / "responses.jsonl"
    kept = path.read_bytes().splitlines(keepends=True)
    damaged = {"record", lost} if lost != "intent" else {"intent"}
    path.write_bytes(b"".join(_spoiled(line) if damaged & json.loads(line).keys() else line for line in kept))
    assert world.evaluate()["failed"] == failed
    assert world.noted("refunds") == {"E1": refunds}


def _spoiled(line: bytes) -> bytes:
    return line.replace(b'"', b"'", 1)


def test_a_record_is_the_same_when_it_is_read_back() -> None:
    odd = Outcome({"a": (1, 2), "b": float("nan"), "c": {"x"}, 4: 10**30, "half": "\ud800"})
    text, outcome = kept_record(odd) or (b"", odd)
    again = kept_record(outcome)
    assert again is not None and again[0] == text
    assert repr(outcome.record) == repr({"a": [1, 2], "b": float("nan"), "c": ["x"], "4": 10**30, "half": "\ud800"})
    plain = Outcome({"a": [1, "é", None, {"b": 2.5}]})
    assert kept_record(plain) == (b'{"a":[1,"\xc3\xa9",null,{"b":2.5}]}', plain)


def test_a_call_that_was_withdrawn_was_not_begun(tmp_path: Path) -> None:
    key, other, manifest = b"k" * 16, b"o" * 16, {"spec_digest": "one"}
    journal = Journal(tmp_path / "responses.jsonl", manifest)
    for each in (key, other):
        journal.announce(each, ("agent", 1, 0, "refund", each.decode()))
    assert len(journal.calls_in_doubt()) == 2
    journal.withdraw(key)
    journal.close()
    again = Journal(tmp_path / "responses.jsonl", manifest)
    assert [again.has_begun(key), again.has_begun(other)] == [False, True]
    assert again.calls_in_doubt() == [["agent", 1, 0, "refund", "o" * 16]]
    again.announce(key, ("agent", 1, 0, "refund", "again"))
    assert again.has_begun(key)
    again.close()


def test_what_one_run_finished_is_not_taken_by_another(tmp_path: Path) -> None:
    path, key = tmp_path / "responses.jsonl", bytes(16)
    journal = Journal(path, {"spec_digest": "a"})
    journal.announce(key, ("agent", 1, 0, "refund", "{}"))
    journal.put_record(key, Outcome({"x": 1}), [])
    journal.close()
    same, other = Journal(path, {"spec_digest": "a"}), Journal(path, {"spec_digest": "b"})
    kept = same.record(key)
    assert same.has_begun(key) and kept is not None and kept.outcome.record == {"x": 1}
    assert not other.has_begun(key) and other.record(key) is None
    same.close()
    other.close()
