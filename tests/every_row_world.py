"""Two runs with every kind of row: numbers with and without an error, several of one metric, none, lost ones; of tasks and groups."""

import json
from pathlib import Path

from assay import simple_evaluate
from assay.models import Scripted

OWN = """
import math


def values(doc, results):
    right = float(results[0])
    return {"x": right, "several": right, "alone": right, "none": right, "endless": right, "lost": None}


def several(values):
    return {"low": min(values), "high": max(values)}


def alone(values):
    return max(values)


def none(values):
    return math.nan


def endless(values):
    return math.inf
"""
METRICS = """
output_type: generate_until
doc_to_text: n
doc_to_target: n
process_results: !function own.values
metric_list:
  - {metric: x, aggregation: mean, higher_is_better: true}
  - {metric: several, aggregation: !function own.several, higher_is_better: true}
  - {metric: alone, aggregation: !function own.alone}
  - {metric: none, aggregation: !function own.none, higher_is_better: true}
  - {metric: endless, aggregation: !function own.endless, higher_is_better: true}
  - {metric: lost, aggregation: mean, higher_is_better: true}
"""
GROUP = """
group: g
task: [t, u]
aggregate_metric_list: [{metric: x, aggregation: mean}]
"""
TAG = "group: h\ntask: [t, u]\n"
SCORES = {"a": {"t": [0.0, 1.0, 0.5], "u": [1.0, 0.25, 0.5]}, "b": {"t": [1.0, 1.0, 0.5], "u": [0.5, 0.25, 0.5]}}
NUMBERS = {("t", "x"): 0.5, ("t", "several[low]"): 0.0, ("t", "several[high]"): 1.0, ("t", "alone"): 1.0,
           ("g", "x"): 0.5416666666666666}  # fmt: skip
"""Numbers of the first run, by hand: (0 + 1 + 0.5) / 3; least and greatest; (0.5 + 1.75 / 3) / 2."""
WITHOUT = (("t", "none"), ("t", "lost"))
"""Rows that have no number."""


def write_every_row(folder: Path) -> tuple[Path, Path]:
    """Write the tasks and two runs of them, `a` and `b`; a task that cannot be run is among them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.py").write_text(OWN)
    (folder / "g.yaml").write_text(GROUP)
    (folder / "h.yaml").write_text(TAG)
    for name in ("t", "u", "broken"):
        data = folder / f"{name}.jsonl"
        if name != "broken":
            data.write_text("".join(json.dumps({"n": f"{name} {number}"}) + "\n" for number in range(3)))
        source = f"dataset_path: json\ntest_split: test\ndataset_kwargs: {{data_files: {{test: {data}}}}}\n"
        (folder / f"{name}.yaml").write_text(f"task: {name}\n{source}{METRICS}")
    for run, scores in SCORES.items():

        def answer(prompt: str, params: dict[str, object], repeat: int, known: dict[str, list[float]] = scores) -> str:
            name, number = prompt.split()[-2:]
            return repr(known[name][int(number)])

        simple_evaluate(
            Scripted(generate=answer, identity=run), tasks=["g", "h", "broken"], include_path=str(folder),
            include_defaults=False, output_path=str(folder / run), log_samples=False,
        )  # fmt: skip
    return folder / "a", folder / "b"
