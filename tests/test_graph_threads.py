"""Blocking functions of lambda nodes run in threads; fast ones, and those that must not, stay where they are."""

import signal
import time
from pathlib import Path

import pytest

from assay.graphs.nodes import LambdaNode
from run_world import start
from test_graphs import account, run
from test_signals import until

CODE = """
    import contextvars, threading, time

    tenant = contextvars.ContextVar("tenant", default="none")
    tenant.set("us")
    lock = threading.Lock()
    running, most, threads = 0, [], set()

    def blocking(node, state):
        global running
        with lock:
            running += 1
            most.append(running)
        time.sleep(0.02)
        with lock:
            running -= 1
        threads.add(threading.current_thread().name)
        return {"twice": state["x"] * 2, "most": max(most), "tenant": tenant.get(), "where": sorted(threads)}

    def failing(node, state):
        time.sleep(0.02)
        if state["x"] == 2:
            raise StopIteration("of all things")
        if state["x"] == 3:
            raise SystemExit(3)
        if state["x"] == 4:
            return None
        state["seen"] = True
        return state
"""
GRAPH = """
    graph_config:
      nodes:
        work: {node_type: lambda, lambda: code.blocking}
      edges: [{from: START, to: work}, {from: work, to: END}]
"""
RECORDS = [{"x": n} for n in range(40)]


def test_a_blocking_lambda_runs_for_many_records_at_once(tmp_path: Path) -> None:
    """The first call is made in place, which is how it is known to block; all others are made in threads."""
    _, output = run(tmp_path, GRAPH, RECORDS, code=CODE)
    assert [record["twice"] for record in output] == [2 * n for n in range(40)]
    assert max(record["most"] for record in output) > 20
    assert {record["tenant"] for record in output} == {"us"}
    assert "MainThread" in output[0]["where"]


def test_a_lambda_that_is_not_thread_safe_runs_alone(tmp_path: Path) -> None:
    _, output = run(
        tmp_path, GRAPH.replace("code.blocking", "code.blocking, thread_safe: false"), RECORDS[:9], code=CODE
    )
    assert [(record["most"], record["where"]) for record in output] == [(1, ["MainThread"])] * 9


@pytest.mark.parametrize("more", ["", ", thread_safe: false"])
def test_what_a_lambda_raises_is_worded_alike_in_threads_and_in_place(tmp_path: Path, more: str) -> None:
    graph = GRAPH.replace("code.blocking", f"code.failing{more}")
    results, output = run(tmp_path, graph, RECORDS[:6], code=CODE)
    assert [record["seen"] for record in output] == [True] * 3
    assert account(results)["reasons"] == {
        "the node 'work': StopIteration: of all things (code.py:23)": 1,
        "the node 'work': SystemExit: 3 (code.py:25)": 1,
        "the node 'work' must return the state, or a mapping of changes to it, got nothing (None)": 1,
    }


def threaded(*seconds: float) -> list[bool]:
    """Whether calls are made in threads after each of these, which took so long."""
    node, states = LambdaNode("x", lambda node, state: state, {}, threads=True), []
    for each in seconds:
        node.note(each)
        states.append(node.asks)
    return states


def test_one_slow_call_among_fast_ones_does_not_move_a_lambda_into_threads() -> None:
    """At most 15 ms of a call count, and a sixteenth of it: less than 1 ms. Fast calls move a lambda back: 15 · (15/16)^n
    is below 1 after 42 of them."""
    assert threaded(0.0, 0.0, 3.0, 0.0) == [False] * 4
    assert threaded(0.0, 0.002, 0.002) == [False] * 3
    assert threaded(0.0, 0.05, 0.05) == [False, False, True]
    assert threaded(0.0011, 0.0) == [True, True]
    moved = threaded(1.0, *[0.0] * 42)
    assert (moved[0], moved[41], moved[42]) == (True, True, False)


def test_ctrl_c_ends_a_run_whose_lambdas_still_block(tmp_path: Path) -> None:
    code = "import time\ndef block(node, state):\n    open(f'began{state[\"x\"]}', 'w').close()\n    time.sleep(0.01 if state['x'] == 0 else 600)\n    return state\n"
    (tmp_path / "code_of_it.py").write_text(code)
    (tmp_path / "records.jsonl").write_text("".join(f'{{"x": {n}}}\n' for n in range(9)))
    source = "task: waits\ndata_config: {source: {type: disk, file_path: records.jsonl}}\n"
    shape = GRAPH.replace("\n    ", "\n").replace("code.blocking", "code_of_it.block").strip()
    (tmp_path / "waits.yaml").write_text(f"{source}{shape}\n")
    process = start("-m", "assay", "run", "--tasks", "./waits.yaml", "-o", "run", cwd=tmp_path)
    until(lambda: len(list(tmp_path.glob("began*"))) == 9, process)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - begin < 30
