"""The samples of a task as Parquet: what an analysis reads without loading a run."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from assay.config.source import digest
from assay.records import Loglikelihood, Request
from assay.runs.samples import Kept, arguments

ROWS = 2000
"""Rows of one group: a count, not a time, so that the same samples make the same file."""

_TEXTS = ("doc", "target", "choices", "prompt", "requests", "responses", "answers", "scores", "failed", "replies")


def file_name(task: str) -> str:
    """A name for files of a task: readable, safe on every system, and no two tasks share one.

    >>> file_name("mmlu_anatomy"), file_name("a::b").startswith("a_b-")
    ('mmlu_anatomy', True)
    """
    plain = re.sub(r"[^\w.@#+-]+", "_", task)[:120]
    return plain if plain == task else f"{plain}-{digest(task.encode())[:8]}"


class SampleWriter:
    """Writes samples in their order into a file that gets its name when it is whole."""

    def __init__(self, folder: Path, task: str) -> None:
        self.path = folder / f"{file_name(task)}.parquet"
        self._part = self.path.with_suffix(".parquet.part")
        self._columns: dict[str, list[Any]] = {name: [] for name in ("doc_id", *_TEXTS)}
        self._prefixes: dict[int, int] = {}
        self._prefix_texts: list[str] = []
        self._prefix_column: list[int] = []
        self._scores: list[str] | None = None
        self._values: list[Mapping[str, Any]] = []
        self._writer: Any = None

    def add(self, kept: Kept) -> None:
        sample = kept.sample
        requests = sample.requests[:: kept.repeats]
        scores = {f"{metric},{name}": value for name, _, values, _ in kept.scores for metric, value in values.items()}
        columns = self._columns
        columns["doc_id"].append(sample.doc_id)
        columns["doc"].append(_json(sample.doc))
        columns["target"].append(_json(sample.target))
        columns["choices"].append(_json(sample.choices) if sample.choices is not None else None)
        columns["prompt"].append(_prompt(requests, sample.prefix))
        columns["requests"].append(_json(_described(requests)))
        columns["responses"].append(_json(kept.responses))
        columns["answers"].append(_json({name: answers for name, answers, _, _ in kept.scores}))
        columns["scores"].append(_json({**scores, **_per_repeat(kept)}))
        columns["failed"].append(kept.failed or None)
        columns["replies"].append(_json(kept.replies) if kept.replies is not None else None)
        self._values.append(scores)
        self._prefix_column.append(self._prefix(sample.prefix))
        if len(self._values) >= ROWS:
            self._flush()

    def end(self) -> None:
        """Write what is left."""
        self._flush()
        self.abandon()

    def place(self) -> None:
        """Give the file its name."""
        self._part.replace(self.path)

    def abandon(self) -> None:
        if self._writer is not None and self._writer.is_open:
            self._writer.close()

    def _prefix(self, text: str) -> int:
        number = self._prefixes.get(id(text))
        if number is None or self._prefix_texts[number] is not text:
            number = self._prefixes[id(text)] = len(self._prefix_texts)
            self._prefix_texts.append(text)
        return number

    def _flush(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        if not self._values and self._writer is not None:
            return
        if self._scores is None:
            self._scores = sorted(
                {name for values in self._values for name, value in values.items() if _is_number(value)}
            )
        arrays = {"doc_id": pa.array(self._columns["doc_id"], pa.int64())}
        arrays |= {name: pa.array(self._columns[name], pa.string()) for name in _TEXTS}
        indices = pa.array(self._prefix_column, pa.int32())
        arrays["prefix"] = pa.DictionaryArray.from_arrays(indices, pa.array(self._prefix_texts, pa.string()))
        for name in self._scores:
            numbers = [values.get(name) if _is_number(values.get(name)) else None for values in self._values]
            arrays[name] = pa.array(numbers, pa.float64())
        table = pa.table(arrays)
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = parquet.ParquetWriter(self._part, table.schema, compression="zstd")
        self._writer.write_table(table)
        self._columns = {name: [] for name in ("doc_id", *_TEXTS)}
        self._values, self._prefix_column, self._prefix_texts, self._prefixes = [], [], [], {}


def _per_repeat(kept: Kept) -> dict[str, Any]:
    """The scores of every answer, beside those of the document."""
    return {
        f"{metric},{each.filter},repeats": several for each in kept.scores for metric, several in each.repeats.items()
    }


def _prompt(requests: Sequence[Request], prefix: str) -> str:
    """The context of the first request, without the part that many samples share."""
    return str(arguments(requests[0])[0])[len(prefix) :] if requests else ""


def _described(requests: Sequence[Request]) -> list[Any]:
    """What each request has beside the prompt: a continuation or parameters, with its context where that is another one."""
    first = arguments(requests[0])[0] if requests else None
    described: list[Any] = []
    for request in requests:
        if isinstance(request, Loglikelihood):
            own = [] if request.context is first or request.context == first else [request.context]
            described.append([*own, request.continuation])
        else:
            told = list(arguments(request))
            described.append(told[1:] if told[0] == first else told)
    return described


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # keys that are numbers, values that are arrays: allowed, and slower for all if always asked for
        return _odd_json(value)


def _odd_json(value: Any) -> str:
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode()
    except TypeError:  # a whole number beyond 64 bits, half a character: Python's own writes them
        return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict") or isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
