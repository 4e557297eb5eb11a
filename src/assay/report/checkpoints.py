"""The results of several checkpoints side by side."""

from collections.abc import Mapping
from typing import Any

from assay.config.row_names import row_name, stderr_name
from assay.records import ScoreKey
from assay.report.table import markdown, metrics_of, number
from assay.runs.results import names_with_depth

Results = Mapping[str, Any]
NOTHING = "–"


def checkpoints_table(several: Mapping[str, Results | None]) -> str:
    """A row for every metric of every task and group, a column for every checkpoint; a dash where there is no number."""
    header = ("Tasks", "Filter", "Metric", "", *several)
    return markdown(header, [_row(row, several) for row in _rows(several)])


def checkpoints_json(several: Mapping[str, Results | None]) -> dict[str, Any]:
    """The same for programs: by checkpoint its status and its results."""
    return {
        "checkpoints": [
            {"name": name, "status": "failed"}
            if found is None
            else {
                "name": name,
                "status": found["assay"]["status"],
                "pretrained": (found.get("config", {}).get("model_args") or {}).get("pretrained"),
                "results": found["results"],
                **({"groups": found["groups"]} if found.get("groups") else {}),
            }
            for name, found in several.items()
        ]
    }


Row = tuple[str, str, ScoreKey, str]
"""Name of a task, what it is shown as, its metric with the filter, and which way is better."""


def _rows(several: Mapping[str, Results | None]) -> list[Row]:
    made: dict[tuple[str, ScoreKey], Row] = {}
    for found in several.values():
        if found is None:
            continue
        for name, depth in names_with_depth(found):
            row = found["results"].get(name, {})
            alias = " " * depth + ("- " if depth else "") + str(row.get("alias", name))
            for key in metrics_of(row):
                better: bool | None = found["higher_is_better"].get(name, {}).get(key.metric)
                arrow = "" if better is None else "↑" if better else "↓"
                made.setdefault((name, key), (name, alias, key, arrow))
    return list(made.values())


def _row(row: Row, several: Mapping[str, Results | None]) -> tuple[str, ...]:
    name, alias, key, arrow = row
    return (alias, key.filter, key.metric, arrow, *(_cell(found, name, key) for found in several.values()))


def _cell(found: Results | None, name: str, key: ScoreKey) -> str:
    row = found["results"].get(name, {}) if found is not None else {}
    value = row.get(row_name(key))
    if value is None:
        return NOTHING
    stderr = row.get(stderr_name(key))
    spread = f" ± {number(stderr)}" if isinstance(stderr, int | float) and stderr == stderr else ""
    account = found.get("assay", {}) if found is not None else {}
    known = {**account.get("tasks", {}), **account.get("groups", {})}
    return number(value) + spread + ("*" if known.get(name, {}).get("incomplete") else "")
