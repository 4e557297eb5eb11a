"""Baselines as files: the scores of every document, of one run or the mean of several, without texts; and runs in files."""

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from assay.comparison.contrasts import aggregation_of
from assay.comparison.pairing import PACKED, Array, TaskScores, task_scores
from assay.errors import some
from assay.exchange.archive import Packed, pack, unpack
from assay.number_text import format_decimal
from assay.records import JSONDict, mapping
from assay.results import Estimate, Results, Row, TaskEntry
from assay.runs.folder import SAMPLES, RunError, staging_folder, write_results
from assay.runs.run import COMPLETE, Run, finished_run
from assay.runs.samples.encode import sample_arrays
from assay.runs.samples.records import StoredSample
from assay.runs.samples.writer import GroupWriter, file_name
from assay.runs.storage import local_folder
from assay.score_keys import ScoreKey, is_joined
from assay.statistics.arrays import estimate
from assay.statistics.noise import noise_of

EXPLAINED = 0.5
"""How much of what single answers explain is subtracted from the variance between runs. With all of it, too little remains of few
runs (6 % false alarms of three, `python -m bench gates`); with none, real drops are missed."""
_folders: list["tempfile.TemporaryDirectory[str]"] = []
"""Where files were unpacked; removed at the end of the process."""


def open_run(path: str | PathLike[str]) -> Run:
    """The finished run in a folder, or in a file of `assay pack`; either may be a URL. One that is open is returned as it is."""
    if isinstance(path, Run):
        return path.finished()
    local = local_folder(path)
    if local.suffix.lower() == ".zip" and not local.exists():
        fix = f"make it: assay pack RUN --baseline -o {local}"
        raise RunError.at(local, "there is no such file", fix)
    return Run.open(_folder(str(local), local.stat().st_mtime_ns) if local.is_file() else local).finished()


@lru_cache(maxsize=64)
def _folder(path: str, written: int) -> Path:  # noqa: ARG001  # a file that is written again is another one
    if Path(path).suffix.lower() != ".zip":
        raise RunError.at(path, "is neither the folder of a run nor a file of `assay pack`", "name one of them")
    place = tempfile.TemporaryDirectory(prefix="assay-")
    _folders.append(place)
    target = Path(place.name) / Path(path).name
    unpack(Path(path), target)
    return target


def pack_baseline(folders: Sequence[str | Path], output: str | Path) -> Packed:
    """Write the scores of a run's documents to a small file that can be compared with. Of several runs of one model it has
    their means, and how far they differ: from answer to answer, and from run to run."""
    runs = [finished_run(folder) for folder in folders]
    _refuse_unlike(runs)
    target = Path(output)
    target.parent.mkdir(parents=True, exist_ok=True)
    with staging_folder(target.parent) as scratch:
        folder = scratch / file_name(target.stem)
        (folder / SAMPLES).mkdir(parents=True)
        tasks = {name: _shared(name, runs) for name in runs[0].scored_tasks}
        for name, task in tasks.items():
            task.write(folder / SAMPLES / f"{file_name(name)}.parquet")
        write_results(folder, _results(runs, tasks), _manifest(runs))
        return pack(folder, target)


def noise_lines(path: Path) -> Iterator[str]:
    """The noise floor of a baseline: how far its numbers differ from run to run, and scores within documents."""
    run = open_run(path)
    for name in (*run.groups, *run.scored_tasks):
        for key, row in run.rows(name).items():
            noise = mapping(row.noise)
            parts = (
                [f"±{format_decimal(math.sqrt(noise['between_runs']))} between {noise['runs']} runs"]
                if noise.get("runs")
                else []
            )
            parts += [f"±{format_decimal(math.sqrt(noise['within']))} within a document"] if noise.get("within") else []
            if parts:
                yield f"noise: {name} {key!s}: {', '.join(parts)}"


def _refuse_unlike(runs: Sequence[Run]) -> None:
    first = runs[0]
    for run in runs:
        if run.status != COMPLETE:
            raise _refused(run, f"the run is {run.status}: a baseline is complete", "resume it, or name another")
        lacking = [task for task in run.scored_tasks if run.sample_file(task) is None]
        if lacking:
            raise _refused(run, f"the samples of {some(lacking)} are missing", "restore them, or name another run")
        odd = sorted({*run.scored_tasks} ^ {*first.scored_tasks})
        if odd:
            what = f"it does not have the tasks of {first.path}: {some(odd)}"
            raise _refused(run, what, "name runs of the same tasks")
        other = [task for task in run.scored_tasks if run.source(task) != first.source(task)]
        if other:
            what = f"it has other documents than {first.path} in {some(other)}"
            raise _refused(run, what, "name runs of the same data")


def _refused(run: Run, what: str, fix: str) -> RunError:
    return RunError.at(run.path, what, fix)


@dataclass(frozen=True)
class SharedTask:
    """A task of several runs: its documents, hashes of its texts, and by row the scores in each run, NaN where one has none."""

    scores: TaskScores
    numbers: Mapping[ScoreKey, Array]
    """Rows that are means of numbers: an array with a line for each run."""
    others: Mapping[ScoreKey, Sequence[Any]]
    """Other rows, as the first run has them."""
    repeats: Mapping[ScoreKey, Sequence[Sequence[float]]]
    """Scores of every answer, where a document has several in a single run."""
    is_one: bool

    def mean(self, key: ScoreKey) -> Array:
        return np.asarray(self.numbers[key].mean(axis=0))

    def per_document(self, key: ScoreKey) -> list[list[float]]:
        """By document the scores that differ by chance alone: of its answers, or of the runs."""
        if self.is_one:
            return [[*each] for each in self.repeats.get(key, ())]
        whole = self.numbers[key][:, ~np.isnan(self.numbers[key]).any(axis=0)]
        return [list(map(float, each)) for each in whole.T]

    def write(self, path: Path) -> None:
        import pyarrow as pa

        means = {key: self.mean(key) for key in self.numbers}
        rows = []
        for place, document in enumerate(self.scores.documents.tolist()):
            scores: dict[ScoreKey, Any] = {key: float(v[place]) for key, v in means.items() if not math.isnan(v[place])}
            scores |= {key: v[place] for key, v in self.others.items() if v[place] is not None}
            if self.is_one:
                repeats = {key: v[place] for key, v in self.repeats.items() if len(v[place]) > 1}
            else:
                every = {key: v[:, place] for key, v in self.numbers.items() if not np.isnan(v[:, place]).any()}
                repeats = {key: v.tolist() for key, v in every.items()}
            rows.append(StoredSample(document, "", scores=scores, repeats=repeats))
        arrays, keys = sample_arrays(rows)
        for name, digests in self.digests().items():
            arrays[name] = pa.array(digests)
        of_scores = {name: array for name, array in arrays.items() if is_joined(name)}
        others = {name: array for name, array in arrays.items() if name not in of_scores}
        writer = GroupWriter(path)
        writer.write({**others, **of_scores}, keys)
        writer.end()

    def digests(self) -> dict[str, Array]:
        own = self.scores
        known = {"prompts": own.prompts, "responses": own.responses, "contents": own.contents}
        clusters = own.clusters(own.cluster_by) if own.cluster_by else None
        return {PACKED[n]: a for n, a in known.items()} | (
            {PACKED["clusters"]: clusters} if clusters is not None else {}
        )


def _shared(name: str, runs: Sequence[Run]) -> SharedTask:
    """The task of all runs on the documents of the first."""
    every = [scores for run in runs if (scores := task_scores(run, name)) is not None]
    first = every[0]
    for run, scores in zip(runs[1:], every[1:], strict=True):
        if not np.array_equal(first.documents, scores.documents) or not np.array_equal(first.prompts, scores.prompts):
            what = f"task {name!r} has other documents or prompts than in {runs[0].path}"
            raise _refused(run, what, "name runs of the same prompts")
    numbers, others = {}, {}
    for key, column in first.values.items():
        if all(key in own.values and _is_mean(run, name, key, own) for run, own in zip(runs, every, strict=True)):
            numbers[key] = np.stack(
                [np.where(own.values[key].present, own.values[key].values, np.nan) for own in every]
            )
        elif column.is_score:
            others[key] = [
                v if there else None for v, there in zip(column.values.tolist(), column.present, strict=True)
            ]
    repeats = _repeats(first, [*numbers]) if len(runs) == 1 else {}
    return SharedTask(first, numbers, others, repeats, is_one=len(runs) == 1)


def _is_mean(run: Run, task: str, key: ScoreKey, scores: TaskScores) -> bool:
    column = scores.values[key]
    if column.values.dtype == object or not column.is_score or not column.present.any():
        return False
    aggregation = aggregation_of(run, task, key, column.present_values)
    return aggregation is not None and aggregation.name == "mean"


def _repeats(scores: TaskScores, keys: Iterable[ScoreKey]) -> dict[ScoreKey, list[list[float]]]:
    every = [each for part in scores.file.columns(["repeats"]) for each in part["repeats"]]
    lists_of = {key: [each.get(key, []) for each in every] for key in keys}
    return {key: lists for key, lists in lists_of.items() if any(map(len, lists))}


def _manifest(runs: Sequence[Run]) -> JSONDict:
    """The manifest of the first run, with the seeds and fingerprints of all."""
    first = runs[0]
    specs = [mapping(run.manifest.get("spec")) for run in runs]
    seeds = ("random_seed", "numpy_random_seed", "torch_random_seed", "fewshot_random_seed")
    listed = [
        {"run": run.path.name, "spec_digest": run.manifest.get("spec_digest"), "model": spec.get("model"),
         "created": run.manifest.get("created"), "seeds": {each: spec.get(each) for each in seeds}}
        for run, spec in zip(runs, specs, strict=True)
    ]  # fmt: skip
    is_one_model = all(spec.get(key) == specs[0].get(key) for spec in specs for key in ("model", "roles"))
    spec = {key: value for key, value in specs[0].items() if key != "model" or is_one_model}
    left_out = ("scored", "of", "checksums", "signature")
    manifest = {key: value for key, value in first.manifest.items() if key not in left_out}
    return {**manifest, "spec": spec, "status": COMPLETE, "baseline": listed}


def _results(runs: Sequence[Run], tasks: Mapping[str, SharedTask]) -> Results:
    """The results of the first run with the means of all, and the noise of each number."""
    first = runs[0].results
    entries = {
        name: replace(entry, rows=_task_rows(entry, tasks[name], runs)) if name in tasks else entry
        for name, entry in first.tasks.items()
    }
    groups = dict(first.groups)
    for name, group in groups.items():
        if group.rows is not None and len(runs) > 1:
            rows = [_group_row(row, runs, tasks) for row in group.rows]
            groups[name] = replace(group, rows=[row for row in rows if row is not None])
    return replace(first, tasks=entries, groups=groups)


def _task_rows(entry: TaskEntry, task: SharedTask, runs: Sequence[Run]) -> list[Row]:
    """The rows of a task with the mean of all runs, and its noise."""
    known = {row.key: row for row in entry.rows}
    for key in task.numbers:
        row = known.get(key) or Row(entry.name, key.metric, key.filter, Estimate(None))
        if len(runs) > 1:
            row = replace(row, estimate=_mean(task.mean(key), row.estimate))
        noise = noise_of([scores for scores in task.per_document(key) if len(scores) > 1])
        if noise is not None:
            chance = noise.within / len(task.per_document(key))
            values = [run.rows(entry.name)[key].estimate.value for run in runs]
            row = replace(row, noise=noise._asdict() | between_runs(values, chance))
        known[key] = row
    return list(known.values())


def _mean(values: Array, before: Estimate) -> Estimate:
    """A mean of documents' means, in place of the number of one run."""
    known = values[~np.isnan(values)]
    scale = before.scale
    inside = scale if scale is not None and all(map(math.isfinite, scale)) else None
    number = estimate(known, bounds=inside)
    ends = None if number.low is None else (number.low, number.high)
    return replace(before, value=float(number), stderr=number.stderr, interval=ends, n=len(known))


def between_runs(values: Sequence[float | None], chance: float) -> JSONDict:
    """How far whole runs differ, beyond what the chance of single answers explains (`chance` is its variance)."""
    known = [each for each in values if each is not None]
    if len(values) < 2 or len(known) < len(values):
        return {}
    return {"runs": len(known), "between_runs": max(float(np.var(known, ddof=1)) - EXPLAINED * chance, 0.0)}


def _group_row(first: Row, runs: Sequence[Run], tasks: Mapping[str, SharedTask]) -> Row | None:
    """The mean of a group's number where it follows from means of tasks with the same weights; else None."""
    rows = [run.results.row(first.owner, first.key) for run in runs]
    parts = [row.slopes if row is not None else None for row in rows]
    is_linear = parts[0] is not None and all(part == parts[0] for part in parts)
    if parts[0] is None or not is_linear or not all(k in tasks[t].numbers for t, k in parts[0]):
        return None
    values = [row.estimate.value for row in rows if row is not None and row.estimate.value is not None]
    value = sum(slope * float(np.nanmean(tasks[t].mean(k))) for (t, k), slope in parts[0].items())
    chance = 0.0
    for (task, key), slope in parts[0].items():
        documents = tasks[task].per_document(key)
        noise = noise_of(documents)
        chance += slope**2 * noise.within / len(documents) if noise is not None else 0.0
    return replace(
        first, estimate=replace(first.estimate, value=value, interval=None), noise=between_runs(values, chance)
    )
