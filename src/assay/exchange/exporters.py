"""Exporters: a run in the format of lm-eval, Inspect, MLflow or Weights & Biases, or as Parquet tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import orjson

from assay.errors import ConfigError, Place
from assay.exchange.inspect.exporter import export_inspect
from assay.exchange.lm_eval import export_lm_eval
from assay.exchange.trackers import export_hub, export_mlflow, export_trackio, export_wandb, result_values
from assay.records import AnyJSON, JSONObject, arguments
from assay.registry import Registry, must_be_callable, refused
from assay.runs.files import new_file
from assay.runs.run import Run, finished_run
from assay.runs.samples.records import SampleRecord
from assay.signatures import hints

TEXT, NUMBER, COUNT = "string", "float64", "int64"
SAMPLE_COLUMNS = {
    "model": TEXT, "task": TEXT, "doc_id": COUNT, "prompt": TEXT, "target": TEXT, "responses": TEXT, "answers": TEXT,
    "failed": TEXT, "audit": TEXT, "doc": TEXT,
}  # fmt: skip
SCORE_COLUMNS = {
    "model": TEXT,
    "task": TEXT,
    "doc_id": COUNT,
    "metric": TEXT,
    "filter": TEXT,
    "repeat": COUNT,
    "value": NUMBER,
}
RESULT_COLUMNS = {
    "model": TEXT, "name": TEXT, "kind": TEXT, "metric": TEXT, "filter": TEXT, "value": NUMBER, "stderr": NUMBER,
    "low": NUMBER, "high": NUMBER, "n": COUNT,
}  # fmt: skip
ROWS = 5000
"""Rows that are held before they are written."""


def export_parquet(run: Run, target: Path) -> list[Path]:
    """Write samples.parquet, scores.parquet (a row for each document, filter, metric and repeat) and numbers.parquet."""
    target.mkdir(parents=True, exist_ok=True)
    samples = (_sample_values(run, task, record) for task, record in _sample_records(run))
    scores = (row for task, record in _sample_records(run) for row in _score_values(run, task, record))
    tables = (
        ("samples", SAMPLE_COLUMNS, samples),
        ("scores", SCORE_COLUMNS, scores),
        ("numbers", RESULT_COLUMNS, result_values(run)),
    )
    return [_write(target / f"{name}.parquet", columns, rows) for name, columns, rows in tables]


def _sample_records(run: Run) -> Iterator[tuple[str, SampleRecord]]:
    return ((task, record) for task, samples in run.sample_files().items() for record in samples.records())


def _sample_values(run: Run, task: str, record: SampleRecord) -> tuple[AnyJSON, ...]:
    sample = record.sample
    prompt = str(arguments(sample.requests[0])[0]) if sample.requests else ""
    answers = {each.filter: each.answers for each in record.scores}
    values = (_json_text(sample.target), _json_text(record.responses), _json_text(answers))
    return (
        run.model_name,
        task,
        sample.doc_id,
        prompt,
        *values,
        record.failed or None,
        ",".join(record.audit) or None,
        _json_text(sample.doc),
    )


def _score_values(run: Run, task: str, record: SampleRecord) -> Iterator[tuple[AnyJSON, ...]]:
    for each in record.scores:
        for metric, value in each.values.items():
            about = (run.model_name, task, record.sample.doc_id, metric, each.filter)
            if isinstance(value, int | float):
                yield (*about, None, float(value))
            repeats = each.repeats.get(metric, ())
            yield from (
                (*about, repeat, float(own)) for repeat, own in enumerate(repeats) if isinstance(own, int | float)
            )


def _write(path: Path, columns: Mapping[str, str], rows: Iterator[Sequence[AnyJSON]]) -> Path:
    """Write rows as they come, a few thousand at a time, into a file that gets its name when it is whole."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in columns.items()])
    with new_file(path) as part, parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        for batch in _batches(rows):
            arrays = [
                pa.array(column, field.type) for column, field in zip(zip(*batch, strict=True), schema, strict=True)
            ]
            writer.write_table(pa.table(arrays, schema=schema))
    return path


def _batches(rows: Iterator[Sequence[AnyJSON]]) -> Iterator[list[Sequence[AnyJSON]]]:
    held: list[Sequence[Any]] = []
    for row in rows:
        held.append(row)
        if len(held) == ROWS:
            yield held
            held = []
    if held:
        yield held


def _json_text(value: AnyJSON) -> str:
    return orjson.dumps(value, default=_plain_value, option=orjson.OPT_NON_STR_KEYS).decode()


def _plain_value(value: AnyJSON) -> AnyJSON:
    make: Callable[[Any], Any] = list if isinstance(value, tuple) else dict if isinstance(value, Mapping) else str
    return make(value)


EXPORTERS: Registry[Callable[..., Any], Any] = Registry(
    "exporter",
    {
        "lm-eval": export_lm_eval,
        "inspect": export_inspect,
        "parquet": export_parquet,
        "mlflow": export_mlflow,
        "wandb": export_wandb,
        "trackio": export_trackio,
        "hf-hub": export_hub,
    },
    group="assay.exporters",
    supplied=("run", "target"),
    adopt=must_be_callable,
)
"""Functions of a run and of the folder it goes to, which return where they wrote. A parameter `name` is `--name`; a target
that is `str | None` is handed over as it was given, if it was."""


def export(
    run: str | Path,
    to: str,
    target: str | Path | None = None,
    *,
    name: str | None = None,
    args: JSONObject | None = None,
    config_args: JSONObject | None = None,
) -> list[str]:
    """Export a run to another format; returns the paths or addresses written.

    `name` is the experiment or project of a tracker, `args` are the arguments that open it, `config_args` further settings there.
    """
    options = {"name": name, "args": args, "config_args": config_args}
    named = {key: value for key, value in options.items() if value is not None}
    exporter = EXPORTERS.check(to, named, Place("--to"))
    if target is None and writes_files(exporter):
        raise ConfigError.at("--output_path", f"{to} needs a folder to write to", "give one with -o")
    where = target if target is None else Path(target) if writes_files(exporter) else str(target)
    finished = finished_run(run)
    with (
        refused(Place(f"--to {to}"), f"exporter {to!r} failed", "correct it")
        if to in EXPORTERS.added
        else nullcontext()
    ):
        written = exporter(finished, where, **named)
    return [str(each) for each in ([written] if isinstance(written, str | Path) else written or ())]


def writes_files(exporter: Callable[..., Any]) -> bool:
    """Whether an exporter needs a folder: one whose target may be None goes to a server."""
    types = hints(exporter)
    return len(types) < 2 or type(None) not in get_args(types[1])
