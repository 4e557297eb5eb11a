"""Agents on every chat backend: tools, calls, results and errors in the wire format of each."""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import assay
from graph_world import the_file, write_graph
from serving import TALKING, Servers, fetched

CODE = """
    import json

    def look_up(order: str, times: int = 1):
        \"\"\"Where an order is.\"\"\"
        return json.dumps({"say": "shipped"})

    def broken(order: str):
        raise ValueError("out of order")
"""
GRAPH = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    agent:
      node_type: agent
      prompt: [{system: "You help."}, {user: "{q}"}]
      output_keys: said
      tools: [code.look_up, code.broken]
      tool_choice: CHOICE
      model: {name: m}
  edges: [{from: START, to: agent}, {from: agent, to: END}]
"""
PARALLEL = {"calls": [["broken", {"order": "A1"}], ["look_up", {"order": "A1", "times": 2}]]}
BACKENDS = {
    "openai-chat": ("openai-chat", "model=m,base_url={url}"),
    "anthropic": ("anthropic", "model=m,base_url={url}"),
    "litellm over OpenAI": ("litellm", "model=openai/m,base_url={url},api_key=k"),
    "litellm over Anthropic": ("litellm", "model=anthropic/m,base_url={root},api_key=k"),
}


@pytest.fixture(scope="module")
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


def evaluate(top: Path, url: str, backend: str, choice: str = "auto") -> tuple[dict[str, Any], list[dict[str, Any]]]:
    name, arguments = BACKENDS[backend]
    if name == "litellm" and importlib.util.find_spec("litellm") is None:
        pytest.skip("litellm is not installed")
    before = len(fetched(url, "/log"))
    folder = write_graph(top, [{"q": json.dumps(PARALLEL)}], GRAPH.replace("CHOICE", choice), code=CODE)
    results = assay.simple_evaluate(
        model=name,
        model_args=arguments.format(url=url, root=url.removesuffix("/v1")) + ",max_retries=1",
        tasks=[str(folder)],
        output_path=str(top / "run"),
    )
    bodies = [each["body"] for each in fetched(url, "/log")[before:]]
    return results, [body for body in bodies if body.get("tools")]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_agent_calls_tools_in_parallel_on_every_backend(tmp_path: Path, talking: str, backend: str) -> None:
    results, _ = evaluate(tmp_path, talking, backend)
    [account] = results["assay"]["tasks"].values()
    assert not account["failed"], account["reasons"]
    [record] = the_file(tmp_path / "run", "output_*.json")
    assert record["said"] == "shipped"  # the server does what the last result says
    assert [(call["name"], call["arguments"], call["error"]) for call in record["said_tool_calls"]] == [
        ("broken", {"order": "A1"}, "ValueError: out of order"),
        ("look_up", {"order": "A1", "times": 2}, None),
    ]


def test_the_wire_format_of_anthropic(tmp_path: Path, talking: str) -> None:
    _, [first, second] = evaluate(tmp_path, talking, "anthropic", "required")
    assert first["tools"][0] == {
        "name": "look_up",
        "description": "Where an order is.",
        "input_schema": {
            "type": "object",
            "properties": {"order": {"type": "string"}, "times": {"type": "integer"}},
            "required": ["order"],
        },
    }
    assert first["tool_choice"] == {"type": "any"}
    assert first["system"] == "You help."
    assert second["messages"][1:] == [
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t0", "name": "broken", "input": {"order": "A1"}},
            {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"order": "A1", "times": 2}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t0", "content": "Error: ValueError: out of order", "is_error": True},
            {"type": "tool_result", "tool_use_id": "t1", "content": '{"say": "shipped"}'},
        ]},
    ]  # fmt: skip


@pytest.mark.parametrize(
    "choice, sent",
    [
        ("none", {"type": "none"}),
        ("look_up", {"type": "tool", "name": "look_up"}),
        ("{type: function, function: {name: broken}}", {"type": "tool", "name": "broken"}),
    ],
)
def test_the_choice_of_a_tool_for_anthropic(tmp_path: Path, talking: str, choice: str, sent: dict[str, str]) -> None:
    _, [first, *_] = evaluate(tmp_path, talking, "anthropic", choice)
    assert first["tool_choice"] == sent
