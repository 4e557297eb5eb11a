"""What lm-eval's functions `simple_evaluate` and `evaluate` take and return: its dicts of tasks and of results."""

import logging
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

from assay.config.option import YAMLValue
from assay.errors import ConfigError, some
from assay.evaluation.writing import Evaluation
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.groups import Group
from assay.results import Results
from assay.runs.results import failure_lines
from assay.runs.run import Run
from assay.tasks import Task


class EvaluationResults(dict[str, Any]):
    """Results in lm-eval's layout: a dict that is short where it is printed, and a table in a notebook."""

    def __init__(self, results: Results, samples: Mapping[str, Any] | None = None) -> None:
        layout = lm_eval_layout(results)
        own = {"samples": samples} if samples is not None else {}
        super().__init__({**layout, **own})
        self.results = results

    def __repr__(self) -> str:
        names, status = list(self.results.tasks), self.results.status
        return f"<EvaluationResults: {some(names)}, {status}; keys: {', '.join(self)}>"

    def _repr_html_(self) -> str:
        return Run(Path("results"), {}, self.results)._repr_html_()


def in_lm_eval_layout(evaluation: Evaluation) -> EvaluationResults:
    """The results of an evaluation in lm-eval's layout; failures are logged."""
    for line in failure_lines(evaluation.results):
        logging.getLogger("assay").warning(line)
    return EvaluationResults(evaluation.results, evaluation.samples)


def tasks_in(written: YAMLValue) -> list[Task | Group[Task]]:
    """The tasks and groups of what `TaskManager.load` returned, or of a mapping of names to them, as lm-eval's task_dict."""
    if not isinstance(written, Mapping):
        what = f"must be a mapping, got {written!r:.60}"
        raise ConfigError.at("task_dict", what, "give what TaskManager.load returned, or {'name': task}")
    loaded = isinstance(written.get("tasks"), Mapping)
    parts = [written["tasks"], written.get("groups", {})] if loaded else [written]
    items = [
        item if loaded else _named(item, str(name))  # a name that was set on a loaded task is its own
        for part in parts
        for name, item in part.items()
    ]
    wrong = next((item for item in items if not isinstance(item, Task | Group)), None)
    if wrong is not None or not items:
        what = f"{wrong!r:.60} is neither a task nor a group" if items else "there is no task"
        fix = "give what TaskManager.load returned, or {'name': task}"
        raise ConfigError.at("task_dict", what, fix)
    return items


def _named(item: Task | Group[Task], name: str) -> Task | Group[Task]:
    """A task under the name that results call it by."""
    if not isinstance(item, Task) or item.name == name:
        return item
    renamed = copy(item)
    renamed.name = renamed.alias = name
    return renamed
