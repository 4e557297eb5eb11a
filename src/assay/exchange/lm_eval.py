"""lm-eval 0.4.13: exports MODEL/results_DATE.json and MODEL/samples_TASK_DATE.jsonl for each task, and imports them."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from assay.exchange.imported import ImportedRun, ImportedTask, members_first, reported_values
from assay.exchange.lm_eval_layout import SECTION, lm_eval_layout
from assay.exchange.lm_eval_samples import SampleLog, count_repeats, logged_files, read_samples
from assay.records import (
    AnyJSON,
    JSONObject,
)
from assay.results import GroupEntry, Results, Row
from assay.runs.files import new_file
from assay.runs.folder import LineWriter, RunError
from assay.runs.results_json import decode
from assay.runs.run import Run
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import SampleRecord, lm_eval_records
from assay.runs.samples.writer import file_name

OWN = ("scores_per_repeat", "verdicts")
"""Keys that only assay's samples have, beside those of lm-eval 0.4.13."""
UNKNOWN = ("pretty_env_info", "upper_git_hash", "eot_token_id", "chat_template", "chat_template_sha")
"""Facts that lm-eval records and assay does not have."""


def export_lm_eval(run: Run, target: Path, *, samples: bool = True) -> list[Path]:
    """Write the files below `target`, or beside it if it is a .json file; facts that lm-eval records and assay lacks are null.

    As in lm-eval, the date is put into the name of a .json file, and without `samples` there are no hashes of them.
    """
    layout = lm_eval_layout(run.results)
    date = _date(layout)
    is_file = target.suffix == ".json"
    folder, stem = (target.parent, target.stem) if is_file else (target / model_folder(layout), "results")
    folder.mkdir(parents=True, exist_ok=True)
    files, hashes = [], {}
    for task, stored in run.sample_files().items() if samples else ():
        path = folder / f"samples_{file_name(task)}_{date}.jsonl"
        hashes[task] = _write_samples(stored, path)
        files.append(path)
    packages = run.manifest.get("environment", {}).get("packages", {})
    reported = {key: value for key, value in layout.items() if key != "assay_version"}
    unknown = {key: reported.get(key) for key in UNKNOWN}
    versions = {"transformers_version": packages.get("transformers", "N/A"), "task_hashes": hashes}
    results = folder / f"{stem}_{date}.json"
    content = {**reported, **unknown, **versions}
    with new_file(
        results
    ) as part:  # as json writes it: lm-eval's tools read NaN where there is no number, as in its dict
        part.write_text(json.dumps(content, indent=2, default=str, ensure_ascii=False) + "\n", encoding="utf-8")
    return [results, *files]


def model_folder(results: JSONObject) -> str:
    """The folder that lm-eval writes the files of a model to: an adapter's name comes before that of its model."""
    arguments = results.get("config", {}).get("model_args") or {}
    adapter = next(
        (arguments[key] for key in ("peft", "delta") if isinstance(arguments, Mapping) and key in arguments), None
    )
    if adapter is not None:
        return file_name(re.sub(r"[\"<>:/|\\?*\[\]]+", "__", str(adapter)))
    return file_name(str(results.get("model_name_sanitized") or results.get("model_name") or "model"))


def _date(results: JSONObject) -> str:
    """When the run was made, as lm-eval writes it into names of files."""
    moment = results.get("end_time") or results.get("date") or 0
    return datetime.fromtimestamp(float(moment), UTC).replace(tzinfo=None).isoformat().replace(":", "-")


def _write_samples(samples: SampleFile, path: Path) -> str:
    """Write the samples of a task; returns lm-eval's hash over all of them."""
    hashes: dict[str, list[str]] = {}

    def records(kept: SampleRecord, doc_id: int) -> Iterator[JSONObject]:
        for record in lm_eval_records(kept, doc_id):
            own = hashes.setdefault(record["filter"], [])
            own.append(record["doc_hash"] + record["prompt_hash"] + record["target_hash"])
            yield {key: value for key, value in record.items() if key not in OWN}

    writer = LineWriter(path, lambda _, doc_id: doc_id, records)
    try:
        for kept in samples.records():
            writer.add(kept)
        writer.end()
        writer.place()
    finally:
        writer.abandon()
    return hashlib.sha256("".join(each for parts in hashes.values() for each in parts).encode()).hexdigest()


def from_lm_eval(paths: Sequence[Path]) -> list[ImportedRun]:
    """The tasks of samples files, with the numbers and groups of the results beside them: a run for each file of results."""
    samples = [path for path in paths if path.is_dir() or path.suffix == ".jsonl"]
    samples += [path.parent for path in paths if path.suffix == ".json" and path.parent not in samples]
    files = logged_files(samples)
    if not files:
        fix = "run lm-eval with --log_samples: a run needs samples, not numbers alone"
        raise RunError.at(paths[0], "there is no samples_*.jsonl file beside it", fix)
    beside = {id(file.results): file.results for file in files.values()}
    facts = next((results for results in beside.values() if results), {})
    runs = []
    for results in beside.values():
        own = [file for file in files.values() if file.results is results]
        finished = _finished(results)
        runs.append(
            ImportedRun(
                format="lm-eval",
                tasks=[_task(file) for file in own],
                groups=() if finished is not None else list(_groups(results, files)),
                facts=facts,
                files=[file.path for file in own],
                finished=finished,
            )
        )
    return runs


def _finished(results: JSONObject) -> Results | None:
    """The results of assay in a file that it exported; None where there are none, or where the file was changed since."""
    if not isinstance(results.get(SECTION), Mapping):
        return None
    finished = decode(results[SECTION])
    layout, names = lm_eval_layout(finished), ("results", "groups")
    is_unchanged = all(_as_text(layout.get(name)) == _as_text(results.get(name)) for name in names)
    return finished if is_unchanged else None


def _as_text(value: AnyJSON) -> str:
    """A value as text, in which NaN is NaN."""
    return json.dumps(value, default=str, sort_keys=True)


def _task(file: SampleLog) -> ImportedTask:
    name, results = file.task, file.results
    row = results.get("results", {}).get(name, {})
    repeats = count_repeats(file)
    return ImportedTask(
        name=name,
        samples=partial(read_samples, file.path, repeats),
        reported=reported_values(row),
        alias=str(row.get("alias", name)),
        repeats=repeats,
        original=results.get("n-samples", {}).get(name, {}).get("original"),
        expected=int(results.get("n-samples", {}).get(name, {}).get("effective") or 0),
        num_fewshot=int(results.get("n-shot", {}).get(name) or 0),
        version=results.get("versions", {}).get(name, "N/A"),
        higher_is_better=results.get("higher_is_better", {}).get(name, {}),
        config=results.get("configs", {}).get(name, {}),
    )


def _groups(results: JSONObject, files: Mapping[str, SampleLog]) -> Iterator[GroupEntry]:
    """Read the groups whose tasks are all imported. Where members are not listed, a single group has them all."""
    groups, rows = results.get("groups", {}), results.get("results", {})
    tasks = [name for name in rows if name not in groups]
    known = results.get("group_subtasks") or (dict.fromkeys(groups, tasks) if len(groups) == 1 else {})
    for name in members_first(known):
        row, members = groups.get(name) or rows.get(name, {}), known[name]
        if members and all(task in files for task in _leaves(name, known)):
            yield GroupEntry(
                name=name,
                alias=str(row.get("alias", name)),
                members=members,
                rows=[Row(name, *key, number) for key, number in reported_values(row).items()],
                size=int(row.get("sample_len") or 0),
                directions=results.get("higher_is_better", {}).get(name, {}),
                version=str(results.get("versions", {}).get(name, "N/A")),
            )


def _leaves(name: str, known: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        leaf for member in known.get(name, ()) for leaf in (_leaves(member, known) if member in known else [member])
    ]
