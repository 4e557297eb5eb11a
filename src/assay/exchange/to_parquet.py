"""A run as three tables for an analysis: all samples, all scores one a row, all numbers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from assay.exchange.finished import model_name, sample_files
from assay.records import arguments
from assay.runs.atomic import replace_file
from assay.runs.run import Run
from assay.runs.samples.records import SampleRecord

TEXT, NUMBER, COUNT = "string", "float64", "int64"
SAMPLES = {
    "model": TEXT, "task": TEXT, "doc_id": COUNT, "prompt": TEXT, "target": TEXT, "responses": TEXT, "answers": TEXT,
    "failed": TEXT, "audit": TEXT, "doc": TEXT,
}  # fmt: skip
SCORES = {
    "model": TEXT,
    "task": TEXT,
    "doc_id": COUNT,
    "metric": TEXT,
    "filter": TEXT,
    "repeat": COUNT,
    "value": NUMBER,
}
NUMBERS = {
    "model": TEXT, "name": TEXT, "kind": TEXT, "metric": TEXT, "filter": TEXT, "value": NUMBER, "stderr": NUMBER,
    "low": NUMBER, "high": NUMBER, "n": COUNT,
}  # fmt: skip
ROWS = 5000
"""Rows that are held before they are written."""


def export_parquet(run: Run, target: Path) -> list[Path]:
    """Write samples.parquet, scores.parquet (a row for each document, filter, metric and repeat) and numbers.parquet."""
    target.mkdir(parents=True, exist_ok=True)
    samples = (_sample(run, task, kept) for task, kept in _kept(run))
    scores = (row for task, kept in _kept(run) for row in _scores(run, task, kept))
    tables = (("samples", SAMPLES, samples), ("scores", SCORES, scores), ("numbers", NUMBERS, numbers(run)))
    return [_write(target / f"{name}.parquet", columns, rows) for name, columns, rows in tables]


def numbers(run: Run) -> Iterator[tuple[Any, ...]]:
    """Every number of a run: model, name, task or group, metric, filter, value, standard error, interval, documents."""
    model = model_name(run)
    for kind, names in (("task", run.scored_tasks), ("group", run.groups)):
        for name in names:
            for row in run.rows(name).values():
                yield (model, name, kind, row.metric, row.filter, row.value, row.stderr, row.low, row.high, row.n)


def _kept(run: Run) -> Iterator[tuple[str, SampleRecord]]:
    return ((task, kept) for task, samples in sample_files(run).items() for kept in samples.kept())


def _sample(run: Run, task: str, kept: SampleRecord) -> tuple[Any, ...]:
    sample = kept.sample
    prompt = str(arguments(sample.requests[0])[0]) if sample.requests else ""
    answers = {each.filter: each.answers for each in kept.scores}
    values = (_json(sample.target), _json(kept.responses), _json(answers))
    return (
        model_name(run),
        task,
        sample.doc_id,
        prompt,
        *values,
        kept.failed or None,
        ",".join(kept.audit) or None,
        _json(sample.doc),
    )


def _scores(run: Run, task: str, kept: SampleRecord) -> Iterator[tuple[Any, ...]]:
    for each in kept.scores:
        for metric, value in each.values.items():
            about = (model_name(run), task, kept.sample.doc_id, metric, each.filter)
            if isinstance(value, int | float):
                yield (*about, None, float(value))
            several = each.repeats.get(metric, ())
            yield from (
                (*about, repeat, float(own)) for repeat, own in enumerate(several) if isinstance(own, int | float)
            )


def _write(path: Path, columns: Mapping[str, str], rows: Iterator[Sequence[Any]]) -> Path:
    """Write rows as they come, a few thousand at a time, into a file that gets its name when it is whole."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in columns.items()])
    part = path.with_suffix(".parquet.part")
    with parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        for batch in _batches(rows):
            arrays = [
                pa.array(column, field.type) for column, field in zip(zip(*batch, strict=True), schema, strict=True)
            ]
            writer.write_table(pa.table(arrays, schema=schema))
    replace_file(part, path)
    return path


def _batches(rows: Iterator[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    held: list[Sequence[Any]] = []
    for row in rows:
        held.append(row)
        if len(held) == ROWS:
            yield held
            held = []
    if held:
        yield held


def _json(value: Any) -> str:
    return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS).decode()


def _plain(value: Any) -> Any:
    make: Callable[[Any], Any] = list if isinstance(value, tuple) else dict if isinstance(value, Mapping) else str
    return make(value)
