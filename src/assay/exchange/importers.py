"""A run of our own, or a scoring of one, as something to be brought together with others."""

from collections.abc import Mapping
from pathlib import Path

from assay.exchange.brought import ImportedRun, ImportedGroup, ImportedTask, ReportedValue, bottom_up
from assay.exchange.finished import finished_run, sample_files
from assay.records import ScoreKey
from assay.runs.run import ResultRow, Run
from assay.runs.samples.reader import SampleFile


def from_run(folder: Path) -> ImportedRun:
    """The tasks and groups of a run as it told them."""
    run = finished_run(folder)
    files = sample_files(run)
    return ImportedRun(
        format="assay",
        tasks=[_task(run, name, file) for name, file in files.items()],
        groups=[_group(run, name) for name in bottom_up(run.members)],
        facts=run.results,
        files=[file.path for file in files.values()],
    )


def _task(run: Run, name: str, file: SampleFile) -> ImportedTask:
    results, facts = run.results, run.facts(name)
    return ImportedTask(
        name=name,
        samples=file.kept,
        told=_told(run.rows(name)),
        alias=run.alias(name),
        repeats=run.repeats(name),
        original=results.get("n-samples", {}).get(name, {}).get("original"),
        expected=int(run.summary(name).get("documents", 0)) + int(run.summary(name).get("not_asked", 0)),
        num_fewshot=int(results.get("n-shot", {}).get(name) or 0),
        version=results.get("versions", {}).get(name, "N/A"),
        source=str(facts.get("source") or ""),
        higher_is_better=run.higher_is_better(name),
        config=run.config(name),
        multiple_targets=bool(facts.get("multiple_targets")),
    )


def _told(rows: Mapping[ScoreKey, ResultRow]) -> dict[ScoreKey, ReportedValue]:
    return {key: ReportedValue(row.value, row.stderr, row.n or None) for key, row in rows.items() if row.value is not None}


def _group(run: Run, name: str) -> ImportedGroup:
    results, row = run.results, run.results["results"].get(name, {})
    return ImportedGroup(
        name=name,
        members=run.members[name],
        told=_told(run.rows(name)),
        alias=run.alias(name),
        version=str(results.get("versions", {}).get(name, "N/A")),
        size=int(row.get("sample_len") or 0),
        higher_is_better={
            metric: better for metric, better in run.higher_is_better(name).items() if better is not None
        },
    )
