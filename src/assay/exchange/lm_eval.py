"""A run as lm-eval 0.4.13 leaves one: MODEL/results_DATE.json, and MODEL/samples_TASK_DATE.jsonl for each task."""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.exchange.finished import sample_files
from assay.runs.folder import LineWriter, write_json
from assay.runs.run import Run
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import SampleRecord, lm_eval_records
from assay.runs.samples.writer import file_name

OURS = ("assay", "assay_version")
"""What our results have beside those of lm-eval."""
OWN = ("scores_per_repeat", "verdicts")
"""What our samples have beside those of lm-eval 0.4.13."""
UNKNOWN = ("pretty_env_info", "upper_git_hash", "eot_token_id", "chat_template", "chat_template_sha")
"""What lm-eval tells of a run and we do not know."""


def export_lm_eval(run: Run, target: Path) -> list[Path]:
    """Write the files below `target`; what lm-eval tells of a run and nobody noted is null."""
    date = _date(run.results)
    folder = target / file_name(
        str(run.results.get("model_name_sanitized") or run.results.get("model_name") or "model")
    )
    folder.mkdir(parents=True, exist_ok=True)
    files, hashes = [], {}
    for task, samples in sample_files(run).items():
        path = folder / f"samples_{file_name(task)}_{date}.jsonl"
        hashes[task] = _write_samples(samples, path)
        files.append(path)
    packages = run.manifest.get("environment", {}).get("packages", {})
    told = {key: value for key, value in run.results.items() if key not in OURS}
    unknown = {key: told.get(key) for key in UNKNOWN}
    versions = {"transformers_version": packages.get("transformers", "N/A"), "task_hashes": hashes}
    results = folder / f"results_{date}.json"
    write_json(results, {**told, **unknown, **versions})
    return [results, *files]


def _date(results: Mapping[str, Any]) -> str:
    """When the run was made, as lm-eval writes it into names of files."""
    moment = results.get("end_time") or results.get("date") or 0
    return datetime.fromtimestamp(float(moment), UTC).replace(tzinfo=None).isoformat().replace(":", "-")


def _write_samples(samples: SampleFile, path: Path) -> str:
    """Write the samples of a task; what comes back is lm-eval's hash over all of them."""
    hashes: dict[str, list[str]] = {}

    def records(kept: SampleRecord, doc_id: int) -> Iterator[Mapping[str, Any]]:
        for record in lm_eval_records(kept, doc_id):
            own = hashes.setdefault(record["filter"], [])
            own.append(record["doc_hash"] + record["prompt_hash"] + record["target_hash"])
            yield {key: value for key, value in record.items() if key not in OWN}

    writer = LineWriter(path, lambda _, doc_id: doc_id, records)
    try:
        for kept in samples.kept():
            writer.add(kept)
        writer.end()
    finally:
        writer.abandon()
    writer.place()
    return hashlib.sha256("".join(each for several in hashes.values() for each in several).encode()).hexdigest()
