"""Runs against kinds of faults: what is scored right, wrong or not at all.

usage: python -m bench.fault_runs WAY KIND ...   (a line of JSON for each kind, for `bench.under_fire`)
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import assay
from assay.models.load import load_model
from bench.fault_server import address, fault_server
from bench.faults import WAYS, Way

DOCUMENTS = 12
SECONDS = 1.0
"""The `timeout` of the runs."""
_DATA = "task: t\ndataset_path: json\ntest_split: test\ndataset_kwargs: {{data_files: {{test: {folder}/t.jsonl}}}}\n"
_TEXT = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\ngeneration_kwargs: {until: [], max_gen_toks: 16}\n"
_CHOICES = "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: choices\ndoc_to_target: 0\n"
_GRAPH = """
task: t
data_config: {source: {type: disk, file_path: t.jsonl}}
graph_config:
  nodes:
    ask:
      node_type: llm
      prompt: [{user: "{q}"}]
      output_keys: [said]
      model: {name: m, parameters: {max_tokens: 16}, structured_output: {schema: {fields: {said: {type: str}}}}}
    score:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      golden_key: gold
      predicted_key: said
      unit_metrics_map: [{name: exact_match, params: {key: text}}]
      output_keys: [exact_match_result]
  edges:
    - {from: START, to: ask}
    - {from: ask, to: score}
    - {from: score, to: END}
output_config: {output_map: {exact_match_result: {from: exact_match_result}, said: {from: said}}}
graph_post_process:
  - processor: tasks.eval.utils.MetricCollatorPostProcessor
    params: {aggregator_metrics_map: [{name: accuracy, params: {key: text}, unit_metrics_results: [exact_match_result]}]}
"""


class Outcome(NamedTuple):
    """What became of a run: documents that were scored right, scored wrong, and failed, with reasons; and what was noticed."""

    right: int
    wrong: Sequence[str]
    failed: int
    reasons: Sequence[str] = ()
    noticed: Sequence[str] = ()


def run_against(server: str, kind: str, way_name: str, folder: Path, **more: Any) -> Outcome:
    """Run the documents of a way against a kind of fault, in this process; `more` are arguments of the model."""
    way = WAYS[way_name]
    task = _write_world(folder, way)
    return _outcome(assay.simple_evaluate(**_options(folder, server, kind, way_name, more), tasks=[task]), way)


def _write_world(folder: Path, way: Way) -> str:
    """Write a task for a way to ask; returns the name or folder by which it is run."""
    numbers = range(1, DOCUMENTS + 1)
    rows = [{"q": f"question {n}", "gold": f"answer {n}", "choices": [f"answer {n}", f"junk {n}"]} for n in numbers]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if way.asks == "graph":
        (folder / "graph_config.yaml").write_text(_GRAPH)
        return str(folder)
    yaml = _CHOICES if way.asks == "choices" else _TEXT + ("scorer: llm_judge\n" if way.asks == "judge" else "")
    (folder / "t.yaml").write_text(_DATA.format(folder=folder) + yaml)
    return "t"


def _options(folder: Path, server: str, kind: str, way_name: str, more: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `assay.simple_evaluate`. Where a judge is asked, its answers are faulty, and the model's are sound."""
    way = WAYS[way_name]

    def model_args(faults: str) -> dict[str, Any]:
        given = {"model": "m", "base_url": address(server, faults, way_name), "num_concurrent": 3, "timeout": SECONDS}
        given |= {"max_retries": 2, **({"stream": way.stream} if way.backend != "litellm" else {}), **more}
        return given | ({"model": "openai/m", "api_key": "k"} if way.backend == "litellm" else {})

    given: dict[str, Any] = {"model": way.backend, "model_args": model_args("sound" if way.asks == "judge" else kind)}
    if way.asks == "judge":
        given["model_role"] = {"judge": load_model(way.backend, model_args(kind))}
    return {**given, "include_path": str(folder), "include_defaults": False}


def _outcome(results: dict[str, Any], way: Way) -> Outcome:
    """Count the documents of a finished run."""
    [(name, task)] = results["assay"]["tasks"].items()
    metric = {"choices": "acc", "judge": "llm_judge"}.get(way.asks, "exact_match")
    wrong, right = list[str](), 0
    for sample in results["samples"][name]:
        if sample.get(metric) == 1.0:
            right += 1
        else:
            wrong.append(f"document {sample['doc_id']}: {json.dumps(sample['resps'])[:80]}")
    noticed = [
        f"{count['count']} {what}" for what, count in task["audit"].items() if count["count"] and what != "failed"
    ]
    return Outcome(right, wrong, task["failed"], list(task.get("reasons", ())), noticed)


def main() -> None:
    way_name, *kinds = sys.argv[1:]
    with fault_server() as (url, _), tempfile.TemporaryDirectory() as folder:
        for number, kind in enumerate(kinds):
            try:
                outcome = run_against(url, kind, way_name, Path(folder, str(number)))
            except assay.AssayError as error:  # the run was refused, in words
                outcome = Outcome(0, (), DOCUMENTS, [str(error)[:200]])
            print(json.dumps([kind, *outcome]), flush=True)


if __name__ == "__main__":
    main()
