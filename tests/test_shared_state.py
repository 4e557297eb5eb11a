"""A class whose object all records share, and which keeps state in `self`, is reported beside the numbers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import assay
from graph_world import AGENT, write_graph
from serving import TALKING, Servers

CODE = """
    import functools, itertools, json, random, sqlite3

    class Shop:
        TAX = {"rate": 0.2}
        ORDERS = []

        def __init__(self):
            self.prices = {"tea": 3}
            self.paid, self.last, self.numbers, self.db = {}, None, itertools.count(), sqlite3.connect(":memory:", check_same_thread=False)
            self.db.execute("create table paid (item)")
            self.carts = {"open": [{"items": []}]}
            self.dice = random.Random(1)

        @functools.cached_property
        def catalog(self):
            return ["tea"]

        def look(self, item: str):
            return json.dumps({"say": str(self.prices[item] * self.TAX["rate"]) + self.catalog[0]})

        def assign(self, item: str):
            self.last = item
            return json.dumps({"say": "ok"})

        def write(self, item: str):
            self.paid[item] = 1
            return json.dumps({"say": "ok"})

        def deep(self, item: str):
            self.carts["open"][0]["items"].append(item)
            return json.dumps({"say": "ok"})

        def count(self, item: str):
            return json.dumps({"say": str(next(self.numbers))})

        def insert(self, item: str):
            self.db.execute("insert into paid values (?)", [item])
            return json.dumps({"say": "ok"})

        def order(self, item: str):
            self.ORDERS.append(item)
            return json.dumps({"say": "ok"})

        def roll(self, item: str):
            return json.dumps({"say": str(self.dice.random())})

        def boom(self, item: str):
            self.last = item
            raise ValueError(item)

    class Step:
        seen = 0
        def apply(self, node, state):
            self.seen += 1
            return {"seen": self.seen}

    class Quiet:
        def __init__(self):
            self.size = 2
        def apply(self, node, state):
            return {"seen": self.size}
"""
GRAPH = (
    AGENT.replace("TOOLS", "code.Shop")
    + """\
  edges: [{from: START, to: agent}, {from: agent, to: END}]
output_config: {output_map: {said: {from: said}}}
"""
)


@pytest.fixture(scope="module")
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


def noticed(results: dict[str, Any]) -> dict[str, int]:
    [account] = results["assay"]["tasks"].values()
    return {kind: count for kind, count in account.get("noticed", {}).items() if "state" in kind}


@pytest.mark.parametrize(
    "tool, attribute",
    [
        ("assign", "last"),
        ("write", "paid"),
        ("deep", "carts"),
        ("count", "numbers"),
        ("insert", "db"),
        ("order", "ORDERS"),
        ("roll", "dice"),
        ("boom", "last"),
        ("look", ""),
    ],
)
def test_a_tool_class_that_keeps_state_in_self_is_reported_with_class_and_attribute(
    tmp_path: Path, talking: str, caplog: pytest.LogCaptureFixture, tool: str, attribute: str
) -> None:
    """The first record has changed nothing for others: all but it are counted. A value that is computed once is no state."""
    records = [{"q": json.dumps({"calls": [[tool, {"item": "tea"}]]})} for _ in range(4)]
    folder = write_graph(tmp_path, records, GRAPH, code=CODE)
    results = assay.simple_evaluate("openai-chat", model_args=f"model=m,base_url={talking}", tasks=[str(folder)])
    kind = f"of code that keeps state from record to record, in Shop.{attribute}"
    assert noticed(results) == ({kind: 3} if attribute else {})
    warned = [record.message for record in caplog.records if "keeps state from record to record" in record.message]
    assert ["class Shop (code.py)" in line and f"self.{attribute}:" in line for line in warned[:1]] == [True] * bool(
        attribute
    )


def test_one_record_shares_its_tools_with_none(tmp_path: Path, talking: str) -> None:
    folder = write_graph(tmp_path, [{"q": json.dumps({"calls": [["assign", {"item": "tea"}]]})}], GRAPH, code=CODE)
    results = assay.simple_evaluate("openai-chat", model_args=f"model=m,base_url={talking}", tasks=[str(folder)])
    assert noticed(results) == {}


@pytest.mark.parametrize(
    "kind, expected", [("Step", {"of code that keeps state from record to record, in Step.seen": 4}), ("Quiet", {})]
)
def test_the_class_of_a_lambda_that_keeps_state_is_reported_too(
    tmp_path: Path, kind: str, expected: dict[str, int]
) -> None:
    graph = """
    data_config: {source: {type: disk, file_path: records.jsonl}}
    graph_config:
      nodes:
        inner: {node_type: subgraph, subgraph: inner}
      edges: [{from: START, to: inner}, {from: inner, to: END}]
    """
    folder = write_graph(tmp_path, [{"x": n} for n in range(5)], graph, code=CODE)
    (folder / "inner").mkdir()
    (folder / "code.py").rename(folder / "inner/code.py")
    (folder / "inner/graph_config.yaml").write_text(
        f"graph_config:\n  nodes:\n    step: {{node_type: lambda, lambda: code.{kind}, output_keys: [seen]}}\n"
        "  edges: [{from: START, to: step}, {from: step, to: END}]\n"
    )
    assert noticed(assay.simple_evaluate(None, tasks=[str(folder)])) == expected
