"""Graphs to run in tests: SyGra's two evaluation graphs, with our own records and post-processors."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

EXECUTOR = """
    from sygra.core.graph.functions.node_processor import NodePostProcessorWithState
    from sygra.core.graph.sygra_message import SygraMessage
    from tasks.eval.utils import parse_response_as_json


    class GenerateAnswerPostProcessor(NodePostProcessorWithState):
        def apply(self, resp: SygraMessage, state):
            found = parse_response_as_json(resp.message.content) or {}
            state["predicted_answer"] = found.get("predicted_answer", "")
            return state


    class GenerateTopicPostProcessor(NodePostProcessorWithState):
        def apply(self, resp: SygraMessage, state):
            found = parse_response_as_json(resp.message.content) or {}
            state["predicted_topic"] = found.get("predicted_topic", "")
            return state
"""

DATA = """
data_config:
  source:
    type: disk
    file_path: records.jsonl
    transformations:
      - transform: sygra.processors.data_transform.RenameFieldsTransform
        params:
          mapping:
            task_id: original_index
          overwrite: false
"""

QUESTION_ANSWERING = (
    DATA
    + """
graph_config:
  nodes:
    predict_answer:
      node_type: llm
      prompt:
        - system: |
            You answer questions.
        - user: |
            {problem}
      output_keys:
        - predicted_answer
      post_process: tasks.eval.question_answering.simpleqa.task_executor.GenerateAnswerPostProcessor
      model:
        name: eval_model
        parameters:
          temperature: 0.1
        structured_output:
          schema:
            fields:
              predicted_answer:
                type: str
                description: "What the model takes for the answer"
    unit_metrics:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      golden_key: "answer"
      predicted_key: "predicted_answer"
      unit_metrics_map:
        - name: "exact_match"
          params:
            key: "text"
      output_keys:
        - exact_match_result
  edges:
    - from: START
      to: predict_answer
    - from: predict_answer
      to: unit_metrics
    - from: unit_metrics
      to: END

output_config:
  output_map:
    original_index:
      from: "original_index"
    problem:
      from: "problem"
    answer:
      from: "answer"
    predicted_answer:
      from: "predicted_answer"
    exact_match_result:
      from: "exact_match_result"

graph_post_process:
  - processor: tasks.eval.utils.MetricCollatorPostProcessor
    params:
      aggregator_metrics_map:
        - name: "accuracy"
          params:
            key: "text"
          unit_metrics_results:
            - "exact_match_result"
"""
)

_AGGREGATED = """        - name: "{name}"
          params:
            {params}
          unit_metrics_results:
            - "exact_match_result"
"""
_ALL = {
    "precision": 'predicted_key: "text"',
    "recall": 'golden_key: "text"',
    "f1_score": 'predicted_key: "text"\n            golden_key: "text"',
}
CLASSIFICATION = (
    QUESTION_ANSWERING.replace("predict_answer", "generate_taxonomy")
    .replace("predicted_answer", "predicted_topic")
    .replace("You answer questions.", "You say what a question is about.")
    .replace(
        "question_answering.simpleqa.task_executor.GenerateAnswer",
        "classification.simpleqa.task_executor.GenerateTopic",
    )
    .replace('golden_key: "answer"', 'golden_key: "topic"')
    .replace('    answer:\n      from: "answer"', '    topic:\n      from: "topic"')
) + "".join(_AGGREGATED.format(name=name, params=params) for name, params in _ALL.items())


def write_graph(
    top: Path,
    records: Sequence[Mapping[str, Any]],
    graph: str = QUESTION_ANSWERING,
    *,
    kind: str = "question_answering",
    **files: str,
) -> Path:
    """A folder `tasks/eval/question_answering/simpleqa` below `top`, with a graph, its records and its code."""
    folder = top / f"tasks/eval/{kind}/simpleqa"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "graph_config.yaml").write_text(dedent(graph))
    (folder / "task_executor.py").write_text(dedent(EXECUTOR))
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for name, text in files.items():
        (folder / f"{name}.py").write_text(dedent(text))
    return folder


def said(answer: str) -> str:
    """A question that the talking server answers so, as structured output."""
    return json.dumps({"say": json.dumps({"predicted_answer": answer})})


RECORDS = [
    {"task_id": 7, "problem": said("Paris"), "answer": "Paris"},
    {"task_id": 8, "problem": said("Rome "), "answer": "rome"},
    {"task_id": 9, "problem": said("Oslo"), "answer": "Bergen"},
    {"task_id": 10, "problem": said("Bern"), "answer": "Bern"},
]
"""Three of four are right, as exact_match compares: 0.75, standard error √(0.75·0.25/3) = 0.25."""


def the_file(folder: Path, pattern: str) -> Any:
    """The content of the one JSON file of a pattern."""
    [result] = folder.glob(pattern)
    text = result.read_text()
    return [json.loads(line) for line in text.splitlines()] if result.suffix == ".jsonl" else json.loads(text)


AGENT = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    agent:
      node_type: agent
      prompt: [{user: "{q}"}]
      output_keys: said
      tools: [TOOLS]
      model: {name: m}
"""
"""The beginning of a graph with an agent: more nodes and the edges follow."""
