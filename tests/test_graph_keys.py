"""Which nodes of a graph may write the same key, keys that a lambda declares, and what SyGra does with columns and sources that
are not there."""

from itertools import pairwise
from pathlib import Path

import pytest

import assay
from assay.errors import ConfigError
from graph_world import CLASSIFICATION, the_file, write_graph
from test_graphs import account, run

CODE = """
    import time
    def start(node, state):
        return {"n": 0}
    def add(node, state):
        return {"n": state["n"] + 1}
    def again(state):
        return "again" if state["n"] < 3 else "done"
    def half(node, state):
        return {"one": 1} if state["x"] == 1 else {"one": 1, "two": 2}
    def half_slow(node, state):
        time.sleep(0.003)
        return half(node, state)
    async def half_async(node, state):
        return half(node, state)
    def whole_state(node, state):
        state["one"] = 1
        return state
"""
LAMBDA = "{{node_type: lambda, lambda: code.{}, output_keys: {}}}"


def graph(nodes: dict[str, tuple[str, str]], edges: str) -> str:
    lines = "".join(f"\n        {name}: {LAMBDA.format(*node)}" for name, node in nodes.items())
    return f"""
    graph_config:
      nodes:{lines}
      edges: [{edges}]
    """


def edge(*ends: str) -> str:
    return ", ".join(f"{{from: {source}, to: {target}}}" for source, target in pairwise(ends))


LOOP = "{from: add, condition: code.again, path_map: {again: add, done: END}}"


@pytest.mark.parametrize("keys", ["[n]", "n"])
def test_nodes_that_run_one_after_the_other_may_write_the_same_key(tmp_path: Path, keys: str) -> None:
    nodes = {"start": ("start", keys), "add": ("add", keys)}
    _, [record] = run(tmp_path, graph(nodes, f"{edge('START', 'start', 'add')}, {LOOP}"), [{"x": 1}], code=CODE)
    assert record["n"] == 3


def test_the_ways_of_one_condition_may_write_the_same_key(tmp_path: Path) -> None:
    nodes = {"start": ("start", "[n]"), "low": ("add", "[n]"), "high": ("start", "[n]")}
    ways = "{from: start, condition: code.again, path_map: {again: low, done: high}}"
    edges = f"{edge('START', 'start')}, {ways}, {edge('low', 'END')}, {edge('high', 'END')}"
    _, [record] = run(tmp_path, graph(nodes, edges), [{"x": 1}], code=CODE)
    assert record["n"] == 1


PARALLEL = {
    "branches": f"{edge('START', 'a', 'END')}, {edge('START', 'b', 'END')}",
    "a longer branch": f"{edge('START', 'c', 'a', 'END')}, {edge('START', 'd', 'b', 'END')}",
    "out of step": f"{edge('START', 'c', 'a', 'END')}, {edge('START', 'd', 'b', 'a')}, {edge('c', 'b')}",
    "behind a condition": f"{edge('START', 'c', 'a', 'END')}, {edge('START', 'd')}, {edge('b', 'END')}, "
    "{from: d, condition: code.again, path_map: {again: b, done: END}}",
}


@pytest.mark.parametrize("keys", ["[n]", "n"])
@pytest.mark.parametrize("edges", PARALLEL.values(), ids=PARALLEL)
def test_nodes_that_can_run_in_the_same_step_may_not(tmp_path: Path, edges: str, keys: str) -> None:
    nodes = {"a": ("start", keys), "b": ("start", keys)}
    nodes |= {
        name: ("whole_state", "[]") for name in ("c", "d") if name in edges.replace("code", "").replace("condition", "")
    }
    with pytest.raises(
        ConfigError, match="the nodes 'a' and 'b' both write 'n', and can run in the same step"
    ) as raised:
        run(tmp_path, graph(nodes, edges), [{"x": 1}], code=CODE)
    [problem] = raised.value.problems
    assert str(problem.place).endswith("graph_config.yaml:7:61")


@pytest.mark.parametrize("function", ["half", "half_slow", "half_async"])
def test_a_declared_key_that_a_lambda_does_not_write_fails_the_record(tmp_path: Path, function: str) -> None:
    nodes = {"work": (function, "[one, two]")}
    results, output = run(tmp_path, graph(nodes, edge("START", "work", "END")), [{"x": n} for n in range(5)], code=CODE)
    reason = "the node 'work' did not write 'two', which is one of its output_keys"
    assert account(results)["reasons"] == {reason: 1}
    assert [record["x"] for record in output] == [0, 2, 3, 4]


def test_a_lambda_that_returns_the_state_must_have_put_the_key_there(tmp_path: Path) -> None:
    nodes = {"work": ("whole_state", "[one, two]")}
    results, _ = run(tmp_path, graph(nodes, edge("START", "work", "END")), [{"x": 1}], code=CODE)
    assert account(results)["failed"] == 1


def test_with_compat_sygra_columns_and_keys_that_are_not_there_are_null(tmp_path: Path) -> None:
    """As SyGra writes them; without it, the graph is refused before the run."""
    shape = graph({"work": ("half", "[one, two]")}, edge("START", "work", "END"))
    shape += "\n    output_config: {output_map: {x: {from: x}, two: {from: two}, lost: {from: nowhere}}}\n"
    with pytest.raises(ConfigError, match="nothing produces 'nowhere'"):
        run(tmp_path / "own", shape, [{"x": 1}], code=CODE)
    _, output = run(tmp_path / "sygra", shape, [{"x": 1}, {"x": 2}], code=CODE, compat="sygra")
    assert output == [{"x": 1, "two": None, "lost": None}, {"x": 2, "two": 2, "lost": None}]


def test_with_compat_sygra_an_empty_source_gives_the_report_of_no_data(tmp_path: Path) -> None:
    """SyGra's report of no records, word for word; without compat, the task cannot be run."""
    folder = write_graph(tmp_path, [], CLASSIFICATION, kind="classification")
    results = assay.simple_evaluate("dummy", tasks=[str(folder)], compat="sygra", output_path=str(tmp_path / "run"))
    assert the_file(tmp_path / "run", "MetricCollatorPostProcessor_*.json") == [
        {"evaluation_summary": {"total_records": 0, "status": "no_data"}, "results": {}}
    ]
    assert the_file(tmp_path / "run", "output_*.json") == []
    assert account(results)["documents"] == 0
    with pytest.raises(ConfigError, match="the source has no records"):
        assay.simple_evaluate("dummy", tasks=[str(folder)])
