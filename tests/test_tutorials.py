"""The pages about graphs do what they say: their files are written, their commands run, and their tables come out."""

import inspect
import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay import UnitMetricRegistry
from assay.cli import main
from serving import Arrived, loopback
from test_docs import ROOT, blocks, write_data

ADDRESS = "localhost:8000"


def write_files(page: Path, folder: Path) -> None:
    """The files of a page: graphs by their name, modules by their first line, data by the line before it."""
    for text in blocks(page, "yaml"):
        (folder / f"{yaml.safe_load(text)['task']}.yaml").write_text(text)
    for text in blocks(page, "python"):
        (folder / text.split()[1]).write_text(text)
    write_data(folder, page)


def commands(page: Path) -> list[str]:
    lines = re.findall(r"^    (assay .+)$", page.read_text(), re.MULTILINE)
    return [each for each in lines if not each.startswith("assay view")]


@contextmanager
def served(answer: Callable[[dict[str, Any]], Any]) -> Iterator[str]:
    """The address of a server whose `answer` is a text, or a message."""

    def reply(arrived: Arrived) -> Any:
        message = answer(json.loads(arrived.body or b"{}"))
        said = {"role": "assistant", **(message if isinstance(message, dict) else {"content": message})}
        usage = {"prompt_tokens": 9, "completion_tokens": 3}
        return {"choices": [{"index": 0, "message": said, "finish_reason": "stop"}], "usage": usage}

    with loopback(reply) as (url, _):
        yield url.removesuffix("/v1")


def run_page(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[dict[str, Any]], Any]
) -> None:
    """Run the commands of a page in order, each with success."""
    page = ROOT / "docs" / name
    write_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    with served(answer) as url:
        for command in commands(page):
            assert main(shlex.split(command.replace(f"http://{ADDRESS}", url))[1:]) == 0, command


def rows(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def last(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def test_the_example_of_each_kind_of_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server answers in two words, which are asked for again; then Paris, Roma and Kyoto."""

    def answer(body: dict[str, Any]) -> str:
        text = last(body)
        if "Is " in text:
            return json.dumps({"is_city": True, "why": "it is"})
        city = {"FRANCE": "Paris", "ITALY": "Roma"}.get(text.partition("capital of ")[2].partition("?")[0], "Kyoto")
        return f"{city}.\nYes" if "Last try" in text else f"The answer: {city}"

    run_page("write-a-graph.md", tmp_path, monkeypatch, answer)
    assert len(commands(ROOT / "docs/write-a-graph.md")) == 3
    [left] = (tmp_path / "runs").iterdir()
    [output] = left.glob("output_*.json")
    records = json.loads(output.read_text())
    assert [(each["predicted"], each["tries"], each["is_city"]) for each in records] == [
        ("Paris", 2, True), ("Roma", 2, True), ("Kyoto", 2, True),
    ]  # fmt: skip
    table = {row[5]: row[7] for row in rows(capsys.readouterr().out.rpartition("|Tasks")[2])}
    assert (table["accuracy"], table["exact_match"], table["same_start"]) == ("0.6667", "0.6667", "0.6667")
    [longest] = left.glob("Longest_*.json")
    assert json.loads(longest.read_text())[0]["predicted"] == "Paris"


def test_the_example_of_a_tool_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(body: dict[str, Any]) -> Any:
        if body["messages"][-1]["role"] == "tool":
            return last(body)
        [tool] = [each["function"] for each in body.get("tools", [])] or [{"name": "none"}]
        city = last(body).partition("live in ")[2].rstrip("?")
        call = {
            "id": "1",
            "type": "function",
            "function": {"name": tool["name"], "arguments": json.dumps({"city": city})},
        }
        return {"content": "", "tool_calls": [call]}

    write_files(ROOT / "docs/write-a-graph.md", tmp_path)
    monkeypatch.chdir(tmp_path)

    with served(answer) as url:
        arguments = ["--model", "openai-chat", "--model_args", f"model=x,base_url={url}/v1", "-o", "out"]
        assert main(["run", "--tasks", "./populations.yaml", *arguments]) == 0
    [output] = (tmp_path / "out").glob("output_*.json")
    assert [each["exact_match_result"]["correct"] for each in json.loads(output.read_text())] == [True, True]


RETRIEVED = {"Elbe bridge": "1947", "ceiling": "Anna Berg", "tram line": "15 km", "coat of arms": "a fish"}


def test_the_tutorial_about_retrieval_gives_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand: of the relevant passages 1, 1, 0.5 and 0 are first, 1, 1, 1 and 0 among two; two answers are right, and the
    judge finds three supported."""

    def answer(body: dict[str, Any]) -> str:
        question = last(body).partition("Question: " if "Question: " in last(body) else "passages: ")[2]
        said = next((each for key, each in RETRIEVED.items() if key in question), "")
        if "response_format" in body:
            return json.dumps({"supported": "no" if said == "15 km" else "yes", "why": "read"})
        return said

    run_page("tutorial-rag.md", tmp_path, monkeypatch, answer)
    [shown] = re.findall(
        r"^```\n(\|Tasks.*?)```", (ROOT / "docs/tutorial-rag.md").read_text(), re.DOTALL | re.MULTILINE
    )
    printed = capsys.readouterr().out
    values = {row[5]: row[7] for row in rows(printed)[2:]}
    assert values == {"correct": "0.5000", "faithful": "0.7500", "recall_at_1": "0.6250", "recall_at_2": "0.7500"}
    assert shown in printed


CALLS = {
    "Where is my order A1?": ("look_up_order", {"order": "A1"}),
    "Where is my order B2?": ("look_up_order", {"order": "B2"}),
    "Please refund it.": ("refund_order", {"order": "A1"}),
    "Thanks. When are you open?": ("opening_hours", {}),
}


def test_the_tutorial_about_an_agent_gives_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand: the third refund is of another order, so 5 of 6 conversations are right, and one customer of two is served
    well three times; the judge gives 10 of 10 to all."""
    refunds: list[str] = []

    def answer(body: dict[str, Any]) -> Any:
        if body.get("tools") is None:
            mark = re.search(r"<<<answer (\w+)>>>", last(body))
            return json.dumps({"id": mark[1] if mark else "", "score": 10})
        if body["messages"][-1]["role"] == "tool":
            return f"It is so: {last(body)}."
        name, arguments = CALLS.get(last(body), ("opening_hours", {}))
        if name == "refund_order":
            refunds.append(name)
            arguments = arguments if len(refunds) < 3 else {"order": "A2"}
        call = {"id": "1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        return {"content": "", "tool_calls": [call]}

    run_page("tutorial-agent.md", tmp_path, monkeypatch, answer)
    assert len(refunds) == 3
    printed = capsys.readouterr().out
    values = {row[5]: row[7] for row in rows(printed)[2:]}
    passed = {"pass^1": "0.8333", "pass^2": "0.6667", "pass^3": "0.5000", "success_rate": "0.8333"}
    assert values == {"right_calls": "0.8333", "no_early_refund": "1.0000", "polite": "1.0000", **passed}
    [shown] = re.findall(
        r"^```\n(\|Tasks.*?)```", (ROOT / "docs/tutorial-agent.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert shown in printed


def test_the_table_of_unit_metrics_has_all_of_them_with_their_parameters() -> None:
    listed: dict[str, dict[str, Any]] = {}
    for cells in rows((ROOT / "docs/write-a-graph.md").read_text()):
        names, parameters = (
            re.findall(r"`([\w+]+)`", cells[1]),
            re.findall(r"`(\w+: [^`]+)`", cells[3]) if len(cells) > 4 else [],
        )
        if parameters:
            listed |= {name: {k: v for each in parameters for k, v in yaml.safe_load(each).items()} for name in names}
    of_agents = {"tool_called", "tool_order", "no_forbidden_tool", "agent_turns", "agent_cost", "llm_judge"}
    known = {name: UnitMetricRegistry.get_metric_class(name) for name in UnitMetricRegistry.list_metrics()}
    own = {name: kind for name, kind in known.items() if kind.__module__.startswith("assay.")}  # not those of the pages
    expected = {
        name: {each.name: each.default for each in inspect.signature(kind).parameters.values()}
        for name, kind in own.items()
        if name not in of_agents
    }
    assert listed == expected
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("graphs.md", "write-a-graph.md"))
    assert of_agents <= set(own) and [name for name in own if f"`{name}`" not in pages] == []
