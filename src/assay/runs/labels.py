"""Labels that people gave to documents of a run, and the numbers corrected by them: `labels.json` beside the run's own files.

The run's files stay as they were written. `Run.results` has the corrected rows beside the judge's: `llm_judge_corrected`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson

from assay.config.row_names import row_key, row_name, stderr_name
from assay.errors import Place, Problem
from assay.records import AnyJSON, JSONDict, JSONObject, ScoreKey
from assay.runs.files import read_bytes, verify_json
from assay.runs.folder import RunError, write_checked
from assay.runs.validation import Check, count, each, fields, listed, mapping, number, optional, pair, text

LABELS = "labels.json"
SUFFIX = "_corrected"


@dataclass(frozen=True)
class TaskLabels:
    """The labels of a task by document, on the `scale` that people use; `rows` are those of the judge that they correct, and
    `bounds` those of its scores."""

    rows: Sequence[str]
    scale: tuple[float, float]
    bounds: tuple[float, float]
    labels: Mapping[int, float]
    corrected: Mapping[str, JSONObject] = field(default_factory=dict)
    """By row of the judge: its value then, and the corrected one with its interval."""

    def as_score(self, label: float) -> float:
        """A label on the scale of the judge's scores."""
        (low, high), (least, most) = self.scale, self.bounds
        return least + (label - low) / (high - low) * (most - least)


def corrected_key(key: ScoreKey) -> ScoreKey:
    """The row with the corrected value of a judge's row.

    >>> corrected_key(ScoreKey("llm_judge", "none"))
    ScoreKey(metric='llm_judge_corrected', filter='none')
    """
    return key._replace(metric=key.metric + SUFFIX)


ROW = fields({
    "judge": number, "value": number, "stderr": optional(number), "interval": optional(pair), "method": text, "n": count,
    "labels": count, "tuning": number, "scale": pair, "reason": text,
}, "judge", "value", "n", "labels")  # fmt: skip
TASK = fields({
    "rows": listed(text), "scale": pair, "bounds": pair, "labels": each(number), "corrected": each(ROW),
}, "rows", "scale", "bounds", "labels")  # fmt: skip
LAYOUT: Check = fields({"tasks": each(TASK), "groups": each(each(mapping))}, "tasks")


def read_labels(folder: Path) -> tuple[dict[str, TaskLabels], JSONObject]:
    """The labels of a run by task, and the corrected rows of its groups; a damaged file is a RunError."""
    path = folder / LABELS
    try:
        data = read_bytes(path)
        wrong = "" if verify_json(data) else "it does not end in a checksum"
        content = orjson.loads(data)
        wrong = wrong or LAYOUT(content)
    except (FileNotFoundError, NotADirectoryError):
        return {}, {}
    except OSError as error:
        wrong = error.strerror or str(error)
    except ValueError as error:
        wrong = str(error)
    try:
        tasks = {} if wrong else {task: _task_labels(about) for task, about in content["tasks"].items()}
    except (ValueError, TypeError) as error:  # an end of a scale may be missing
        wrong = str(error)
    if wrong:
        fix = "remove it, and import the labels again: `assay label RUN --import FILE`"
        raise RunError([Problem(Place(str(path)), f"the file is damaged: {wrong}", fix)])
    return tasks, content.get("groups", {})


def _task_labels(about: JSONObject) -> TaskLabels:
    scale, bounds = tuple(about["scale"]), tuple(about["bounds"])
    if not scale[0] < scale[1] or not bounds[0] < bounds[1]:
        raise ValueError("a scale must have its lower end first")
    labels = {int(document): float(label) for document, label in about["labels"].items()}
    return TaskLabels(about["rows"], scale, bounds, labels, about.get("corrected", {}))


def write_labels(folder: Path, tasks: Mapping[str, TaskLabels], groups: JSONObject) -> None:
    """Write the labels of a run and the numbers corrected by them."""
    write_checked(folder / LABELS, {"tasks": {task: asdict(about) for task, about in tasks.items()}, "groups": groups})


def with_corrected_rows(results: JSONObject, tasks: Mapping[str, TaskLabels], groups: JSONObject) -> JSONDict:
    """Results with a corrected row beside each of a judge. Numbers that were corrected before the run was scored again are
    left out, with a remark."""
    whole = {
        **results,
        "results": dict(results.get("results", {})),
        "higher_is_better": dict(results.get("higher_is_better", {})),
    }
    account = whole["assay"] = dict(results.get("assay", {}))
    corrected = {"tasks": {task: about.corrected for task, about in tasks.items()}, "groups": groups}
    for section, rows_by_name in corrected.items():
        account[section] = dict(account.get(section, {}))
        for name, rows in rows_by_name.items():
            if name in whole["results"] and name in account[section]:
                _add(whole, section, name, rows)
    if "groups" in results:
        whole["groups"] = {name: whole["results"][name] for name in results["groups"]}
    return whole


def _add(whole: JSONDict, section: str, name: str, corrected: Mapping[str, JSONObject]) -> None:
    row, own = dict(whole["results"][name]), dict(whole["assay"][section][name])
    better, rows = dict(whole["higher_is_better"].get(name, {})), dict(own.get("rows", {}))
    remarks = list(own.get("remarks", ()))
    for written, about in corrected.items():
        if not _is_current(row.get(written), about["judge"]):
            remarks.append(f"{written}: it was scored again since its labels were imported: import them again")
            continue
        key = row_key(written)
        corrected_row = corrected_key(key)
        row |= {row_name(corrected_row): about["value"], stderr_name(corrected_row): about.get("stderr") or "N/A"}
        better[corrected_row.metric] = better.get(key.metric)
        known = ("value", "stderr", "interval", "method", "n", "labels", "tuning", "scale", "reason", "of")
        rows[row_name(corrected_row)] = {each: about[each] for each in known if each in about}
        remarks.append(
            f"{row_name(corrected_row)}: by {about['labels']} labels of {about['n']} documents, {about['method']}"
        )
        if "sample_count" in row:
            row["sample_count"] = {**row["sample_count"], row_name(corrected_row): about["n"]}
    own |= {"rows": rows, **({"remarks": remarks} if section == "tasks" and remarks else {})}
    whole["results"][name], whole["assay"][section][name] = row, own
    whole["higher_is_better"][name] = better


def _is_current(value: AnyJSON, judge: float) -> bool:
    return isinstance(value, int | float) and math.isclose(float(value), judge, rel_tol=1e-9, abs_tol=1e-12)
