"""A run of our own, or a scoring of one, as something to be brought together with others."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.exchange.brought import Brought, BroughtGroup, BroughtTask, bottom_up, told_rows
from assay.exchange.opened import Opened, opened


def from_run(folder: Path) -> Brought:
    """The tasks and groups of a run as it told them."""
    run = opened(folder)
    return Brought(
        format="assay",
        tasks=[_task(run, name) for name in run.tasks],
        groups=[
            _group(run.results, name, run.results["results"].get(name, {}))
            for name in bottom_up(run.results.get("group_subtasks", {}))
        ],
        facts=run.results,
        files=list(run.tasks.values()),
    )


def _task(run: Opened, name: str) -> BroughtTask:
    results, facts = run.results, run.facts(name)
    row = results["results"].get(name, {})
    return BroughtTask(
        name=name,
        samples=run.samples(name).kept,
        told=told_rows(row),
        alias=str(row.get("alias", name)),
        repeats=run.repeats(name),
        original=results.get("n-samples", {}).get(name, {}).get("original"),
        expected=int(run.account(name).get("documents", 0)) + int(run.account(name).get("not_asked", 0)),
        num_fewshot=int(results.get("n-shot", {}).get(name) or 0),
        version=results.get("versions", {}).get(name, "N/A"),
        source=str(facts.get("source") or ""),
        higher_is_better=results.get("higher_is_better", {}).get(name, {}),
        config=results.get("configs", {}).get(name, {}),
        multiple_targets=bool(facts.get("multiple_targets")),
    )


def _group(results: Mapping[str, Any], name: str, row: Mapping[str, Any]) -> BroughtGroup:
    return BroughtGroup(
        name=name,
        members=results["group_subtasks"][name],
        told=told_rows(row),
        alias=str(row.get("alias", name)),
        version=str(results.get("versions", {}).get(name, "N/A")),
        size=int(row.get("sample_len") or 0),
        higher_is_better=results.get("higher_is_better", {}).get(name, {}),
    )
