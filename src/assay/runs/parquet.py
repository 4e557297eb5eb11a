"""The samples of a task as Parquet: what an analysis reads without loading a run."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from assay.config.source import digest
from assay.records import Loglikelihood, Request, Rolling, prompt_text
from assay.runs.durable import put_in_place
from assay.runs.redact import written_arguments
from assay.runs.samples import Kept, arguments

ROWS, HELD = 2000, 8 * 2**20
"""Rows of one group at most, and characters of text: counts, not times, so that the same samples make the same file."""


class Asked(NamedTuple):
    """What was asked about a sample and answered, as it is written: what is not a number is text, mostly JSON."""

    doc_id: int
    dropped: int | None
    doc: str
    target: str
    gold: str | None
    choices: str | None
    prompt: str
    requests: str
    responses: str
    replies: str | None
    prefix: str


class Verdict(NamedTuple):
    """What a scoring made of a sample, as it is written. Scores that are numbers have columns of their own, too."""

    answers: str
    scores: str
    failed: str | None
    audit: str | None


_NUMBERS = ("doc_id", "dropped")
_REPEATED = ["prefix", "target", "gold", "choices", "requests", "replies", "scores", "failed", "audit"]
"""Columns that may say the same in many rows."""


def file_name(task: str) -> str:
    """A name for files of a task: readable, safe on every system, and no two tasks share one.

    >>> file_name("mmlu_anatomy"), file_name("a::b").startswith("a_b-")
    ('mmlu_anatomy', True)
    """
    plain = re.sub(r"[^\w.@#+-]+", "_", task)[:120]
    return plain if plain == task else f"{plain}-{digest(task.encode())[:8]}"


class SampleWriter:
    """Writes samples in their order into a file that gets its name when it is whole.

    `known` gives, row group by row group, what was asked and answered of the same samples when they were scored before.
    """

    def __init__(self, folder: Path, task: str, known: Callable[[int], dict[str, Any]] | None = None) -> None:
        self.path = folder / f"{file_name(task)}.parquet"
        self._part = self.path.with_suffix(".parquet.part")
        self._known = known
        self._groups = 0
        self._asked: list[Asked] = []
        self._documents: list[int] = []
        self._verdicts: list[Verdict] = []
        self._scores: list[str] | None = None
        self._values: list[Mapping[str, Any]] = []
        self._held = 0
        self._arrays: dict[str, Any] = {}
        self._writer: Any = None

    def add(self, kept: Kept) -> None:
        scores = {f"{metric},{each.filter}": value for each in kept.scores for metric, value in each.values.items()}
        verdict = Verdict(
            _json({each.filter: each.answers for each in kept.scores}),
            _json({**scores, **_per_repeat(kept)} if any(each.repeats for each in kept.scores) else scores),
            kept.failed or None,
            ",".join(kept.audit) or None,
        )
        if self._known is None:
            asked = _asked(kept)
            self._asked.append(asked)
            self._held += sum(len(part) for part in asked if isinstance(part, str)) + len(verdict.answers)
        elif not self._values:
            self._arrays = self._known(self._groups)
        self._documents.append(kept.sample.doc_id)
        self._verdicts.append(verdict)
        self._values.append(scores)
        if self._is_full:
            self._flush()

    @property
    def _is_full(self) -> bool:
        """Whether a group of rows is complete: by what is in it alone, or as it was before."""
        if self._known is not None:
            return len(self._values) == len(self._arrays["doc_id"])
        return len(self._values) >= ROWS or self._held >= HELD

    def end(self) -> None:
        """Write what is left."""
        self._flush()
        self.abandon()

    def place(self) -> None:
        """Give the file its name."""
        put_in_place(self._part, self.path)

    def abandon(self) -> None:
        if self._writer is not None and self._writer.is_open:
            self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        if not self._values and self._writer is not None:
            return
        if self._scores is None:
            self._scores = sorted(
                {name for values in self._values for name, value in values.items() if _is_number(value)}
            )
        arrays = dict(self._arrays) if self._known is not None and self._values else _asked_arrays(self._asked)
        self._groups += 1
        assert arrays["doc_id"].to_pylist() == self._documents, "the samples of another file come in its order"
        for name, column in zip(Verdict._fields, _columns(self._verdicts, Verdict), strict=True):
            arrays[name] = pa.array(column, pa.string())
        for name in self._scores:
            found = [values.get(name) if _is_number(values.get(name)) else None for values in self._values]
            arrays[name] = pa.array(found, pa.float64())
        table = pa.table(arrays)
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = parquet.ParquetWriter(self._part, table.schema, compression="zstd", use_dictionary=_REPEATED)
        self._writer.write_table(table)
        self._asked, self._documents, self._verdicts, self._values, self._held = [], [], [], [], 0


def _columns(rows: Sequence[Any], kind: Any) -> Iterable[Sequence[Any]]:
    return zip(*rows, strict=True) if rows else [()] * len(kind._fields)


def _asked_arrays(rows: Sequence[Asked]) -> dict[str, Any]:
    """Columns of what was asked; a beginning that many prompts share is stored once."""
    import pyarrow as pa

    columns = dict(zip(Asked._fields, _columns(rows, Asked), strict=True))
    prefixes = columns.pop("prefix")
    numbers = {text: number for number, text in enumerate(dict.fromkeys(prefixes))}
    arrays = {name: pa.array(each, pa.int64() if name in _NUMBERS else pa.string()) for name, each in columns.items()}
    indices = pa.array([numbers[text] for text in prefixes], pa.int32())
    return {**arrays, "prefix": pa.DictionaryArray.from_arrays(indices, pa.array(list(numbers), pa.string()))}


def _asked(kept: Kept) -> Asked:
    sample = kept.sample
    requests = sample.requests[:: kept.repeats]
    prefix = _shared(requests, sample.prefix)
    return Asked(
        doc_id=sample.doc_id,
        dropped=sample.dropped or None,
        doc=_json(sample.doc),
        target=_json(sample.target),
        gold=_json(sample.gold) if sample.gold is not sample.target else None,
        choices=_json(sample.choices) if sample.choices is not None else None,
        prompt=_prompt(requests, prefix),
        requests=_json(_described(requests)),
        responses=_json(kept.responses),
        replies=_json(kept.replies) if kept.replies is not None else None,
        prefix=prefix,
    )


def _per_repeat(kept: Kept) -> dict[str, Any]:
    """The scores of every answer, beside those of the document."""
    return {
        f"{metric},{each.filter},repeats": several for each in kept.scores for metric, several in each.repeats.items()
    }


def _shared(requests: Sequence[Request], prefix: str) -> str:
    """The part that many samples share, where this one begins with it: a text that is rolled over stands alone."""
    return prefix if requests and str(arguments(requests[0])[0]).startswith(prefix) else ""


def _prompt(requests: Sequence[Request], prefix: str) -> str:
    """The context of the first request, without the part that many samples share."""
    return str(arguments(requests[0])[0])[len(prefix) :] if requests else ""


def _described(requests: Sequence[Request]) -> list[Any]:
    """What each request has beside the prompt: a continuation or parameters, with its context where that is another one."""
    first = arguments(requests[0])[0] if requests else None
    described: list[Any] = []
    for request in requests:
        if isinstance(request, Loglikelihood):
            context = request.context if isinstance(request.context, str) else prompt_text(request.context)
            own = [] if context is first or context == first else [context]
            described.append([*own, request.continuation])
        else:
            told = [*arguments(request), None] if isinstance(request, Rolling) else list(written_arguments(request))
            described.append([each for each in told[1:] if each is not None] if told[0] == first else told)
    return described


def _is_number(value: Any) -> bool:
    """Whether a value fits a column of numbers: whole ones as far as they are exact there."""
    return isinstance(value, float) or (
        isinstance(value, int) and not isinstance(value, bool) and -(2**53) <= value <= 2**53
    )


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
