"""Records of graphs that failed: what was asked and answered, the path, the last state and the line of the user's file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import assay
from assay.cli import main
from assay.evaluation.merge import merge
from assay.evaluation.score import ScoreOptions
from assay.exchange.importers import score
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import StoredSample
from test_graphs import account, last, run, scripted

CODE = """
    def check(node, state):
        state["seen"] = [state["said"], {1, 1}]
        if state["x"] == 1:
            return helped(state)
        return state

    def helped(state):
        return state["nothing"]
"""
GRAPH = """
    graph_config:
      nodes:
        one: {node_type: llm, output_keys: said, prompt: [{user: "one {x}"}], model: {name: m}}
        two: {node_type: llm, output_keys: more, prompt: [{user: "two {said}"}], model: {name: m}}
        aside: {node_type: llm, output_keys: aside, prompt: [{user: "aside {said}"}], model: {name: m}}
        check: {node_type: lambda, lambda: code.check}
      edges:
        - {from: START, to: one}
        - {from: one, to: aside}
        - {from: one, to: two}
        - {from: aside, to: check}
        - {from: two, to: check}
        - {from: check, to: END}
"""
NAME = "eval.question_answering.simpleqa"


def answer(messages: list[dict[str, str]]) -> str:
    if last(messages) == "aside one 2":
        raise TimeoutError("no answer")
    return last(messages)


def rows(folder: Path) -> list[StoredSample]:
    [file] = (folder / "samples").glob("*.parquet")
    return list(SampleFile(file).rows())


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Path]:
    """A run of three records: one is right, one fails in code, one by the first of two requests of a step."""
    results, _ = run(tmp_path, GRAPH, [{"x": n} for n in range(3)], scripted(answer), CODE)
    assert account(results)["reasons"] == {
        "the node 'check': KeyError: 'nothing' (code.py:9)": 1, "TimeoutError: no answer": 1,
    }  # fmt: skip
    yield tmp_path


def asked(row: StoredSample) -> list[tuple[Any, Any]]:
    prompts = [orjson.loads(each.prompt or row.prompt)[-1]["content"] for each in row.requests]
    return [*zip(prompts, [text for [text] in row.responses], strict=True)]


def test_a_failed_record_keeps_what_was_asked_its_path_and_its_last_state(stored: Path) -> None:
    right, by_code, by_request = rows(stored / "run")
    assert asked(by_code) == [("one 1", "one 1"), ("aside one 1", "aside one 1"), ("two one 1", "two one 1")]
    assert by_code.trace == [["one", [0]], ["aside", [1]], ["two", [2]], ["check", []]]
    assert by_code.last_state == {
        "said": "one 1",
        "aside": "aside one 1",
        "more": "two one 1",
        "seen": ["one 1", "{1}"],
    }
    assert asked(by_request)[:2] == [("one 2", "one 2"), ("aside one 2", None)]
    assert by_request.last_state == {"said": "one 2"}
    assert by_request.replies is not None and by_request.replies[1]["failed"] == "TimeoutError: no answer"
    assert (right.last_state, right.failed) == ({}, None)


def test_samples_print_it(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["samples", str(stored / "run"), "--doc", "1"]) == 0
    text = capsys.readouterr().out
    for part in (
        "── path\none → aside → two → check\n",
        "── prompt of two\nuser: two one 1\n── answer to two\ntwo one 1\n",
        "── failed\nthe node 'check': KeyError: 'nothing' (code.py:9)\n",
        "── last state\nsaid: one 1\n",
    ):
        assert part in text


def test_scoring_and_merging_keep_it(stored: Path) -> None:
    before = rows(stored / "run")
    score(stored / "run", ScoreOptions())
    assert rows(stored / "run/scored/001") == before
    folder = stored / f"tasks/{NAME.replace('.', '/')}"
    for number in (1, 2):
        assay.simple_evaluate(
            scripted(answer), tasks=[str(folder)], output_path=str(stored / f"part{number}"), shard=f"{number}/2"
        )
    merge(stored / "whole", [stored / "part1", stored / "part2"])
    assert rows(stored / "whole") == before
