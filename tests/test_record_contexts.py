"""Each record runs in its own context: what its code sets in context variables is seen by its later nodes, and by no other
record."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import assay
from graph_world import AGENT, the_file, write_graph
from serving import TALKING, Servers

CODE = """
    import asyncio, contextvars, time

    NAMES = contextvars.ContextVar("NAMES", default=())

    def put(name):
        NAMES.set((*NAMES.get(), name))
        return NAMES.get()

    def place(node, state):
        return {node["writes"]: put(f"{node['writes']}{state['x']}")}

    def slow(node, state):
        time.sleep(0.003)
        return place(node, state)

    async def wait(node, state):
        await asyncio.sleep(0.001)
        return place(node, state)

    def choose(state):
        put(f"condition{state['x']}")
        return "on"

    def look(node, state):
        return {"seen": NAMES.get()}

    class Source:
        def transform(self, rows, params):
            put("source")
            return rows
"""
LAMBDA = "{{node_type: lambda, lambda: code.{function}, writes: {writes}, output_keys: [{writes}]}}"


def seen(
    top: Path, nodes: dict[str, str], edges: list[tuple[str, ...]], source: str = "", records: int = 40
) -> list[list[str]]:
    """The names that the last node of each record sees, of records 0, 1, ..."""
    lines = [f"    {name}: {LAMBDA.format(function=function, writes=name)}" for name, function in nodes.items()]
    ways = [f"    - {{from: {edge[0]}, to: {edge[1]}}}" for edge in edges if len(edge) == 2]
    ways += [f"    - {{from: {a}, condition: code.choose, path_map: {{on: {b}}}}}" for a, b, *c in edges if c]
    head = f"data_config: {{source: {{type: disk, file_path: records.jsonl{source}}}}}\ngraph_config:\n  nodes:"
    look = "    look: {node_type: lambda, lambda: code.look, output_keys: [seen]}\n  edges:"
    graph = "\n".join([head, *lines, look, *ways, "output_config: {output_map: {seen: {from: seen}}}"])
    folder = write_graph(top, [{"x": n} for n in range(records)], graph, code=CODE)
    assay.simple_evaluate(None, tasks=[str(folder)], output_path=str(top / "run"))
    return [record["seen"] for record in the_file(top / "run", "*output_*.json*")]


CHAIN = [("START", "one"), ("one", "two"), ("two", "look"), ("look", "END")]


@pytest.mark.parametrize("first", ["place", "slow", "wait"])
@pytest.mark.parametrize("second", ["place", "slow", "wait"])
def test_what_a_lambda_sets_is_seen_by_later_nodes_of_its_record_alone(tmp_path: Path, first: str, second: str) -> None:
    """In place, in a thread (`slow`, after its first call) and awaited alike."""
    assert seen(tmp_path, {"one": first, "two": second}, CHAIN) == [[f"one{n}", f"two{n}"] for n in range(40)]


def test_what_sources_and_conditions_set_is_seen_by_no_other_record(tmp_path: Path) -> None:
    edges = [("START", "one"), ("one", "look", "if"), ("look", "END")]
    source = ", transformations: [{transform: code.Source}]"
    assert seen(tmp_path, {"one": "place"}, edges, source) == [[f"one{n}", f"condition{n}"] for n in range(40)]


@pytest.mark.parametrize("function", ["place", "slow", "wait"])
def test_branches_do_not_see_each_other_and_the_last_value_counts(tmp_path: Path, function: str) -> None:
    edges = [("START", "one"), ("one", "two"), ("one", "three"), ("two", "look"), ("three", "look"), ("look", "END")]
    found = seen(tmp_path, {"one": "place", "two": function, "three": function}, edges)
    assert found == [[f"one{n}", f"three{n}"] for n in range(40)]


SHOP = """
    import contextvars, json, time

    DB = contextvars.ContextVar("DB")
    SIZE = contextvars.ContextVar("SIZE", default=0)

    def open_db(node, state):
        DB.set({"owner": state["x"], "paid": []})
        return {}

    def pay(item: str):
        time.sleep(0.002)
        DB.get()["paid"].append(item)
        SIZE.set(SIZE.get() + 1)
        return json.dumps({"calls": [["refund", {"item": item}]]})

    async def refund(item: str):
        DB.get()["paid"].remove(item)
        SIZE.set(SIZE.get() + 1)
        return json.dumps({"say": f"{DB.get()['owner']} {SIZE.get()}"})

    def write(reply, state):
        return {"said": reply.content, "owner": DB.get()["owner"]}

    def close_db(node, state):
        return {"db": DB.get(), "size": SIZE.get()}
"""
SHOP_GRAPH = (
    AGENT.replace("TOOLS", "code.pay, code.refund").replace("model:", "post_process: code.write\n      model:")
    + """\
    open: {node_type: lambda, lambda: code.open_db}
    close: {node_type: lambda, lambda: code.close_db, output_keys: [db, size]}
  edges: [{from: START, to: open}, {from: open, to: agent}, {from: agent, to: close}, {from: close, to: END}]
output_config: {output_map: {db: {from: db}, size: {from: size}, said: {from: said}}}
"""
)


@pytest.fixture(scope="module")
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


def test_the_tools_of_an_agent_work_on_the_database_of_their_record(tmp_path: Path, talking: str) -> None:
    """Each record has its own database, whether its tools run in threads or are awaited."""
    records = [{"x": n, "q": json.dumps({"calls": [["pay", {"item": f"i{n}"}]]})} for n in range(12)]
    folder = write_graph(tmp_path, records, SHOP_GRAPH, code=SHOP)
    assay.simple_evaluate(
        "openai-chat", model_args=f"model=m,base_url={talking}", tasks=[str(folder)], output_path=str(tmp_path / "run")
    )
    expected = [{"db": {"owner": n, "paid": []}, "size": 2, "said": f"{n} 2"} for n in range(12)]
    assert the_file(tmp_path / "run", "*output_*.json*") == expected
