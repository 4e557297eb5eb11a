"""Runs to compare: tasks whose documents score what the model says, so that both runs' scores are written in the test."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

from assay import simple_evaluate
from assay.models import Scripted

HELPER = "def values(doc, results):\n    return {'x': float(results[0])}\n\n\ndef halved(x):\n    return sum(x) / len(x) / 2\n"
MEAN = "metric_list: [{metric: x, aggregation: mean, higher_is_better: true}]\n"
GROUP = "group: g\ntask: [t, u]\naggregate_metric_list: [{metric: x, aggregation: mean, weight_by_size: false}]\n"


def write_tasks(
    folder: Path, rows: Mapping[str, Sequence[Mapping[str, Any]]], more: str = MEAN, group: str = ""
) -> Path:
    """A folder with a task for each name, with documents that have these columns."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "helper.py").write_text(HELPER)
    for name, items in rows.items():
        lines = "".join(json.dumps({"n": f"{name} {n}", **row}) + "\n" for n, row in enumerate(items))
        (folder / f"{name}.jsonl").write_text(lines)
        data = (
            f"dataset_path: json\ntest_split: test\ndataset_kwargs: {{data_files: {{test: {folder / name}.jsonl}}}}\n"
        )
        asked = (
            "output_type: generate_until\ndoc_to_text: n\ndoc_to_target: n\nprocess_results: !function helper.values\n"
        )
        (folder / f"{name}.yaml").write_text(f"task: {name}\n{data}{asked}{dedent(more)}")
    if group:
        (folder / "group.yaml").write_text(group)
    return folder


def make_run(folder: Path, output: Path, scores: Mapping[str, Sequence[object]], **options: Any) -> Path:
    """A run in which the n-th document of a task scores the n-th number; its model is known by these."""

    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        name, number = prompt.split()[-2:]
        return repr(scores[name][int(number)])

    arguments = {
        "tasks": list(scores),
        "include_path": str(folder),
        "include_defaults": False,
        "log_samples": False,
        **options,
    }
    simple_evaluate(Scripted(generate=answer, identity=repr(scores)), output_path=str(output), **arguments)
    return output


def two_runs(tmp_path: Path, a: Sequence[float], b: Sequence[float], **columns: Sequence[Any]) -> list[Path]:
    """Two runs of one task, `t`, that score a and b."""
    rows = (
        [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        if columns
        else [{}] * len(a)
    )
    folder = write_tasks(tmp_path / "tasks", {"t": rows})
    return [make_run(folder, tmp_path / "a", {"t": a}), make_run(folder, tmp_path / "b", {"t": b})]
