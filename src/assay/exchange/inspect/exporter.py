"""A run as logs of Inspect's, one for each task: what `inspect view` opens and `inspect_ai.log` reads."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import orjson

import assay
from assay.config.source import digest
from assay.exchange.archive import write_archive
from assay.exchange.finished import model_name, sample_files
from assay.exchange.inspect_own import KEPT, written
from assay.exchange.inspect_sample import epochs, scorer, summary
from assay.runs.run import ResultRow, Run
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.writer import file_name


def export_inspect(run: Run, target: Path) -> list[Path]:
    """Write DATE_TASK_ID.eval for each task of a run; the names are those that Inspect gives."""
    target.mkdir(parents=True, exist_ok=True)
    files = []
    for task, samples in sample_files(run).items():
        spec = _spec(run, task)
        date = spec["created"].replace(":", "-").replace("+", "-")
        name = file_name(task).replace("_", "-")  # Inspect takes names apart at this sign
        path = target / f"{date}_{name}_{spec['task_id']}.eval"
        with TemporaryFile() as summaries:
            write_archive(path, _members(run, samples, spec, summaries))
        files.append(path)
    return files


def _members(
    run: Run, samples: SampleFile, spec: Mapping[str, Any], summaries: IO[bytes]
) -> Iterator[tuple[str, bytes | IO[bytes]]]:
    """The members of a log in the order that Inspect writes them: the start, the samples, what sums them up, the header.

    `summaries` is a file to hold those of all samples meanwhile.
    """
    task = spec["task"]
    plan = {"name": "plan", "steps": [{"solver": str(run.config(task).get("output_type", "assay")), "params": {}}]}
    yield "_journal/start.json", _json({"version": 2, "eval": spec, "plan": plan})
    repeats = run.repeats(task)
    summaries.write(b"[")
    reductions = EpochReductions(repeats)
    failed = total = 0
    for row, kept in samples.rows_kept():
        reductions.add(kept.sample.doc_id, kept.scores)
        total, failed = total + repeats, failed + (repeats if kept.failed else 0)
        for number, sample in enumerate(epochs(kept, spec)):
            sample = {**sample, "store": {KEPT: written(row)}} if number == 0 else sample
            summaries.write((b"," if summaries.tell() > 1 else b"") + _json(summary(sample)))
            yield f"samples/{sample['id']}_epoch_{sample['epoch']}.json", _json(sample)
    summaries.write(b"]")
    yield "summaries.json", summaries
    yield "reductions.json", _json(reductions.told())
    lacking = int(run.summary(task).get("not_asked", 0)) * repeats
    header = {
        "version": 2,
        **_ended(run.summary(task)),
        "eval": spec,
        "plan": plan,
        "results": {"total_samples": total + lacking, "completed_samples": total - failed,
                    "scores": list(_scores(run, task, repeats))},
        "stats": {"started_at": spec["created"], "completed_at": moment(run.results.get("end_time") or run.results.get("date")),
                  "model_usage": {}},
    }  # fmt: skip
    yield "header.json", _json(header)


def _ended(account: Mapping[str, Any]) -> dict[str, Any]:
    """How Inspect says that a task has come to its end: an incomplete one is no success."""
    if not account.get("incomplete"):
        return {"status": "success"}
    counts = {"failed": account.get("failed", 0), "were not asked": account.get("not_asked", 0)}
    whole = account.get("documents", 0) + account.get("not_asked", 0)
    told = [f"{count} of {whole} documents {what}" for what, count in counts.items() if count]
    message = "; ".join(["the task is incomplete", *told])
    return {"status": "error", "error": {"message": message, "traceback": "", "traceback_ansi": ""}}


class EpochReductions:
    """What the epochs of each sample come to, scorer by scorer, as Inspect keeps it."""

    def __init__(self, repeats: int) -> None:
        self._reducer = "mean" if repeats > 1 else None
        self._samples: dict[str, list[dict[str, Any]]] = {}

    def add(self, doc_id: int, scores: Sequence[Any]) -> None:
        for each in scores:
            for metric, value in each.values.items():
                if _is_value(value):
                    self._samples.setdefault(scorer(metric, each.filter), []).append(
                        {"value": value, "sample_id": doc_id}
                    )

    def told(self) -> list[dict[str, Any]]:
        return [
            {"scorer": name, "reducer": self._reducer, "samples": samples} for name, samples in self._samples.items()
        ]


def _spec(run: Run, task: str) -> dict[str, Any]:
    results, manifest = run.results, run.manifest
    config, about = results.get("config", {}), run.facts(task)
    own = digest(f"{manifest.get('spec_digest')} {manifest.get('created')} {task}".encode())
    limit = config.get("limit")
    git = (manifest.get("environment") or {}).get("git") or {}
    return {
        "eval_id": own[:22],
        "run_id": digest(f"{manifest.get('spec_digest')} {manifest.get('created')}".encode())[:22],
        "created": moment(results.get("start_time") or results.get("date")),
        "task": task,
        "task_id": own[-22:],
        "task_version": _version(results.get("versions", {}).get(task, 0)),
        "task_display_name": run.alias(task),
        "dataset": {"name": str(results.get("configs", {}).get(task, {}).get("dataset_path") or task), "samples": about.get("size"),
                    "shuffled": False},
        "model": model_name(run),
        "model_args": dict(config.get("model_args") or {}),
        "config": {"limit": int(limit) if isinstance(limit, int | float) and limit >= 1 else None, "epochs": run.repeats(task),
                   **({"epochs_reducer": ["mean"]} if run.repeats(task) > 1 else {})},
        **({"revision": {"type": "git", "origin": "", "commit": git["commit"], "dirty": git.get("dirty")}} if git else {}),
        "packages": {"assay": assay.__version__},
        "metadata": {KEPT: _ours(run, task)},
        "scorers": [{"name": scorer(*key)} for key in run.rows(task)],
    }  # fmt: skip


def _ours(run: Run, task: str) -> dict[str, Any]:
    """All that is known of a task, so that nothing is lost on the way back."""
    results = run.results
    return {
        "rows": [[[*key], [row.value, row.stderr]] for key, row in run.rows(task).items() if _is_value(row.value)],
        "task": {
            "name": task,
            "alias": run.alias(task),
            "original": results.get("n-samples", {}).get(task, {}).get("original"),
            "num_fewshot": int(results.get("n-shot", {}).get(task) or 0),
            "version": results.get("versions", {}).get(task, "N/A"),
            "source": run.facts(task).get("source") or "",
            "higher_is_better": results.get("higher_is_better", {}).get(task, {}),
            "config": results.get("configs", {}).get(task, {}),
            "multiple_targets": bool(run.facts(task).get("multiple_targets")),
        },
    }


def _scores(run: Run, task: str, repeats: int) -> Iterator[dict[str, Any]]:
    """The numbers of a task: each row a score, with its value under the metric's name and its standard error."""
    documents = run.summary(task).get("documents", 0)
    for key, row in run.rows(task).items():
        name = scorer(*key)
        found = {key.metric: row.value, "stderr": row.stderr}
        yield {
            "name": name,
            "scorer": name,
            **({"reducer": "mean"} if repeats > 1 else {}),
            "scored_samples": row.n,
            "unscored_samples": max(documents - row.n, 0),
            "params": {},
            "metrics": {
                each: {"name": each, "value": value, "params": {}} for each, value in found.items() if _is_value(value)
            },
            "metadata": {"interval": _interval(row), "metric": key.metric, "filter": key.filter},
        }


def _interval(row: ResultRow) -> list[float] | None:
    return [row.low, row.high] if row.low is not None and row.high is not None else None


def _version(version: object) -> int | str:
    return version if isinstance(version, int) else str(version)


def moment(seconds: object) -> str:
    """A point in time as Inspect writes it."""
    return datetime.fromtimestamp(float(str(seconds or 0)), UTC).isoformat(timespec="seconds")


def _is_value(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _json(value: object) -> bytes:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
