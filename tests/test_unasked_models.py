"""A model that a graph does not ask is refused: it would be credited with numbers that are not its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import assay
from assay.cli import main
from assay.errors import ConfigError
from assay.models import Scripted
from graph_world import write_graph

RECORDS = [{"x": 1, "y": 1}, {"x": 2, "y": 3}]
GRAPH = """
    data_config: {source: {type: disk, file_path: records.jsonl}}
    graph_config:
      nodes:
        agent: {node_type: lambda, lambda: code.agent, output_keys: [said]}
        measure:
          node_type: lambda
          lambda: tasks.eval.utils.UnitMetrics
          golden_key: y
          predicted_key: said
          unit_metrics_map: [{name: exact_match, params: {key: text}}]
          output_keys: [exact_match_result]
      edges: [{from: START, to: agent}, {from: agent, to: measure}, {from: measure, to: END}]
"""
CODE = """
    def agent(node, state):
        return {"said": {"text": state["x"]}, "y": {"text": state["y"]}}
"""
JUDGED = """
    data_config: {source: {type: disk, file_path: records.jsonl}}
    graph_config:
      nodes:
        rate: {node_type: llm, output_keys: said, prompt: [{user: "{x}"}], model: {name: other}}
      edges: [{from: START, to: rate}, {from: rate, to: END}]
"""
Start = Callable[[str, Path], object]


def run_file(folder: str, top: Path, **keys: object) -> object:
    file = top / "run.yaml"
    file.write_text(yaml.safe_dump({"tasks": [folder], "output_path": str(top / "out"), **keys}))
    return main(["run", "--config", str(file)])


WAYS: dict[str, Start] = {
    "command": lambda folder, top: main(["run", "--tasks", folder, "--model", "dummy", "-o", str(top / "out")]),
    "dry run": lambda folder, top: main(["run", "--tasks", folder, "--model", "dummy", "--dry_run"]),
    "run file": lambda folder, top: run_file(folder, top, model="dummy"),
    "sweep": lambda folder, top: run_file(folder, top, models=[{"model": "dummy", "name": "a"}, {"model": "embedded", "name": "b"}]),
    "mixed": lambda folder, top: main(["run", "--tasks", f"first_steps_sums,{folder}", "--model", "dummy", "-o", str(top / "out")]),
    "roles": lambda folder, top: main(["run", "--tasks", folder, "--model", "dummy", "--model_role", "judge=dummy", "-o", str(top / "out")]),
    "a name": lambda folder, top: assay.simple_evaluate("dummy", tasks=[folder], output_path=str(top / "out")),
    "an object": lambda folder, top: assay.simple_evaluate(Scripted(), tasks=[folder], output_path=str(top / "out")),
    "assay.run": lambda folder, top: assay.run("dummy", tasks=[folder], output_path=str(top / "out"), progress=False),
    "task_dict": lambda folder, top: assay.evaluate(Scripted(), assay.TaskManager().load([folder]), output_path=str(top / "out")),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_model_is_refused_for_a_graph_that_asks_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    folder = str(write_graph(tmp_path, RECORDS, GRAPH, code=CODE))
    try:
        code, said = WAYS[way](folder, tmp_path), ""
    except ConfigError as error:
        code, said = 2, str(error)
    said += capsys.readouterr().err
    assert code == 2
    assert "graph_config.yaml:4:3: the graph asks no model" in said
    assert "leave --model out" in said
    assert not list(tmp_path.glob("out/**/results.json"))


def test_a_graph_that_asks_another_role_only_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = str(write_graph(tmp_path, RECORDS, JUDGED))
    roles = ["--model_role", "other=dummy"]
    assert main(["run", "--tasks", folder, "--model", "dummy", *roles, "-o", str(tmp_path / "both")]) == 0
    assert "the graph asks the roles other only, and the run names a model under test" in caplog.text
    caplog.clear()
    assert main(["run", "--tasks", folder, *roles, "-o", str(tmp_path / "out")]) == 0
    assert "model under test" not in caplog.text


def test_without_a_model_the_graph_runs_and_the_manifest_names_none(tmp_path: Path) -> None:
    folder = str(write_graph(tmp_path, RECORDS, GRAPH, code=CODE))
    returned: dict[str, Any] = assay.simple_evaluate(None, tasks=[folder])
    [numbers] = returned["results"].values()
    assert (numbers["exact_match,none"], returned["config"]["model"]) == (0.5, "no model")
    results = assay.run(None, tasks=[folder], output_path=str(tmp_path / "out"), progress=False).results
    [entry] = results.tasks.values()
    assert [row.estimate.value for row in entry.rows if row.metric == "exact_match"] == [0.5]
    assert results.config["model"] == "no model"
