"""Small worlds for the tests of groups: tasks whose documents carry their scores, and groups of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

from assay import GroupConfig, StandardGroup, Task, TaskConfig
from assay.config.decode import decode
from assay.config.fields import Fields, Origin
from assay.groups.task_results import Members, as_floats
from assay.models import Scripted
from run_world import rows_of
from small_runs import ANYTHING, SAMPLED, run, write_task

Plain = Mapping[str, Mapping[str, float]]


def scored(
    folder: Path, name: str, *, more: str = "", better: bool | None = True, **metrics: Sequence[float | None]
) -> None:
    """A task with one score per document and metric."""
    folder.mkdir(exist_ok=True)
    rows = [{"q": f"{name} {n}", "gold": "x", **dict(zip(metrics, row, strict=True))}
            for n, row in enumerate(zip(*metrics.values(), strict=True))]  # fmt: skip
    expected = list(metrics)
    module = f"scores_{name}"
    code = f"def values(doc, results):\n    return {{k: doc[k] for k in {expected!r} if doc[k] is not None}}\n"
    (folder / f"{module}.py").write_text(code)
    summary = "aggregation: mean" + (f", higher_is_better: {str(better).lower()}" if better is not None else "")
    listed = ", ".join(f"{{metric: {each}, {summary}}}" for each in metrics)
    yaml = (
        "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nfewshot_split: test\n"
        f"process_results: !function {module}.values\nmetric_list: [{listed}]\n"
    )
    write_task(folder, rows, yaml + dedent(more), name)


def twins(folder: Path, **scores: Sequence[float]) -> None:
    """Tasks of the same documents, each with different scores."""
    folder.mkdir(exist_ok=True)
    rows = [{"q": f"{n}", "gold": "x", **dict(zip(scores, row, strict=True))}
            for n, row in enumerate(zip(*scores.values(), strict=True))]  # fmt: skip
    for name in scores:
        (folder / f"twin_{name}.py").write_text(f"def acc(doc, results):\n    return {{'acc': doc[{name!r}]}}\n")
        yaml = (
            "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
            f"process_results: !function twin_{name}.acc\nmetric_list: [{{metric: acc, aggregation: mean}}]\n"
        )
        write_task(folder, rows, yaml, name)


def by_filter(folder: Path, name: str, **filters: Sequence[float]) -> None:
    """A task with one f1 per document and filter."""
    rows = [{"q": f"{name} {number}", "gold": "x", **{f: v[number] for f, v in filters.items()}} for number in range(2)]
    pipelines = ", ".join(
        f"{{name: {each}, filter: [{{function: map, mapping_dict: {{x: {each}}}}}, {{function: take_first}}]}}"
        for each in filters
    )
    (folder / "filtered.py").write_text("def f1(doc, results):\n    return {'f1': doc[results[0]]}\n")
    yaml = (
        "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nprocess_results: !function filtered.f1\n"
        f"metric_list: [{{metric: f1, aggregation: mean}}]\nfilter_list: [{pipelines}]\n"
    )
    write_task(folder, rows, yaml, name)


def attempts(
    folder: Path, name: str, right: Sequence[int], repeats: int, metrics: str = "{metric: exact_match}"
) -> None:
    """A task of problems that are asked several times: `right[n]` of the answers to the n-th are right."""
    rows = [{"q": f"{count} {name} {number}", "gold": "yes"} for number, count in enumerate(right)]
    (folder / "code.py").write_text(
        "def compilation_rate(references, predictions, **kwargs):\n"
        "    answers = predictions[0] if isinstance(predictions[0], list) else predictions\n"
        "    return sum(answer == 'yes' for answer in answers) / len(answers)\n"
    )
    yaml = SAMPLED + (
        f"output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nrepeats: {repeats}\n"
        f"filter_list: [{{name: none, filter: [{{function: take_first_k, k: {repeats}}}]}}]\nmetric_list: [{metrics}]\n"
    )
    write_task(folder, rows, yaml, name)


def _attempt(prompt: str, params: dict[str, object], repeat: int) -> str:
    return "yes" if repeat < int(prompt.split()[0]) else "no"


UNSURE = Scripted(generate=_attempt, identity="unsure")


def group_file(folder: Path, yaml: str, name: str = "group") -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}_file.yaml").write_text(dedent(yaml).lstrip("\n"), encoding="utf-8")


def group_row(folder: Path, yaml: str, key: str = "acc,none", **options: Any) -> dict[str, Any]:
    """One row of the group `g`, from a run."""
    group_file(folder, yaml)
    data: dict[str, Any] = rows_of(run(folder, ANYTHING, "g", **options), "g")[key]
    return data


def config_of(yaml: Mapping[str, object]) -> GroupConfig:
    """A configuration as a file gives it."""
    problems: list[Any] = []
    result = decode(GroupConfig, Fields.of({"group": "g", **yaml}, Origin("here")), problems)
    assert result is not None, problems
    assert not problems
    return result


def group_of(names: Sequence[str], *entries: Mapping[str, object], **more: object) -> "StandardGroup[Task]":
    """A group of tasks with these entries of `aggregate_metric_list`."""
    group: StandardGroup[Task] = StandardGroup(config_of({"aggregate_metric_list": list(entries), **more}))
    for name in names:
        group.add_child(Task(TaskConfig(task=name)))
    return group


def computed(results: Plain, *entries: Mapping[str, object], **more: object) -> dict[str, float]:
    """The rows of a group of all these tasks, also those without a number."""
    group = group_of(list(results), *entries, **more)
    return as_floats(group.aggregator.estimates(group, Members(results)))
