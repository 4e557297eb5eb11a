"""Samples read back from Parquet, one row group at a time: what was asked, what was answered, what it scored."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import orjson

from assay.errors import Place, Problem
from assay.records import (
    Failed,
    FilterScores,
    Generate,
    Likelihood,
    Loglikelihood,
    Outcome,
    Request,
    Response,
    Rolling,
    Sample,
    Text,
    Usage,
)
from assay.runs.folder import RunError
from assay.runs.layout import NEEDED, are_responses, wrong_column
from assay.runs.parquet import Asked, file_name
from assay.runs.samples import Kept

T = TypeVar("T")
NUMBERS = ("doc_id", "dropped")
_LEAST = float("-inf")
"""What null means as a likelihood: JSON has no infinity, and nothing else that one may be is written so."""


class Row(NamedTuple):
    """A sample as it is written: what was asked and answered, and what a scoring made of it."""

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
    answers: str
    scores: str
    failed: str | None
    audit: str | None


class Stored(NamedTuple):
    """A sample with its responses, and what an earlier scoring made of it, as it is written."""

    sample: Sample
    responses: Sequence[Response]
    scores: str = "{}"
    failed: str = ""


def sample_file(folder: Path, task: str) -> Path | None:
    """The samples of a task in a run's folder: in place, or whole and waiting for the end of the run."""
    path = folder / "samples" / f"{file_name(task)}.parquet"
    part = path.with_suffix(".parquet.part")
    return path if path.is_file() else part if part.is_file() and is_whole(part) else None


def is_whole(path: Path) -> bool:
    """Whether a Parquet file was written to its end."""
    with path.open("rb") as file:
        file.seek(0, 2)
        if file.tell() < 8:
            return False
        file.seek(-4, 2)
        return file.read() == b"PAR1"


class SampleFile:
    """The samples of a task in a file; `repeats` is how many times each request was sent."""

    def __init__(self, path: Path, repeats: int = 1) -> None:
        self.path, self._repeats = path, repeats
        self._file: Any = None
        self._latest: tuple[int, Any] = (-1, None)

    def samples(self) -> Iterator[Stored]:
        """The samples in their order."""
        yield from self._made(lambda row: _stored(row, self._repeats))

    def outcomes(self) -> Iterator[Stored]:
        """The samples of a graph: behind the responses of each what it came to, or why it came to nothing."""
        yield from self._made(_ended)

    def first_record(self) -> Mapping[str, Any] | None:
        """A record of a graph's output, where any came to something."""
        return next((found for found in self._made(_record) if found is not None), None)

    def kept(self) -> Iterator[Kept]:
        """The samples in their order, as they were kept when they were scored."""
        yield from self._made(lambda row: as_kept(row, self._repeats))

    def rows_kept(self) -> Iterator[tuple[Row, Kept]]:
        """The rows in their order, each with the sample as it was kept."""
        yield from self._made(lambda row: (row, as_kept(row, self._repeats)))

    def check(self) -> None:
        """See to it that every row can be read."""
        for _ in self.columns(Row._fields):
            pass

    def _made(self, make: Callable[[Row], T]) -> Iterator[T]:
        """What is made of each row; one of which nothing can be made is told."""
        for row in self._rows(is_read_again=True):
            try:
                made = make(row)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                raise self._damaged(f"document {row.doc_id}: {type(error).__name__}: {error}") from error
            yield made

    def rows(self) -> Iterator[Row]:
        """The rows in their order; texts that many share are one object. A column that a file lacks is empty."""
        return self._rows(is_read_again=False)

    def _rows(self, *, is_read_again: bool) -> Iterator[Row]:
        for number in range(self._read(lambda file: file.num_row_groups)):
            group = self._group(number, Row._fields)
            self._latest = (number, group)
            there, empty = group.column_names, [None] * group.num_rows
            columns = [
                self._values(name, group, is_read_again=is_read_again) if name in there else empty
                for name in Row._fields
            ]
            yield from map(Row._make, zip(*columns, strict=True))

    @property
    def names(self) -> list[str]:
        """The columns that the file has."""
        found: list[str] = self._read(lambda file: file.schema_arrow.names)
        return found

    def columns(self, wanted: Sequence[str]) -> Iterator[dict[str, list[Any]]]:
        """Some of the columns, those that are there, as lists: one row group at a time."""
        for number in range(self._read(lambda file: file.num_row_groups)):
            group = self._group(number, wanted)
            yield {name: self._values(name, group) for name in group.column_names}

    def asked(self, number: int) -> dict[str, Any]:
        """The columns of what was asked and answered of one row group: the one that was read last is at hand."""
        import pyarrow as pa

        known, group = self._latest
        if known != number:
            group = self._group(number, Asked._fields)
        empty = pa.nulls(group.num_rows, pa.string())
        there = group.column_names
        return {name: group.column(name).combine_chunks() if name in there else empty for name in Asked._fields}

    def _group(self, number: int, wanted: Sequence[str]) -> Any:
        def read(file: Any) -> Any:
            return file.read_row_group(number, columns=[name for name in wanted if name in file.schema_arrow.names])

        return self._read(read)

    def _read(self, read: Callable[[Any], Any]) -> Any:
        """What is read from the file, which is opened once; a damaged one is told."""
        from pyarrow import parquet

        try:
            if self._file is None:
                self._file = parquet.ParquetFile(self.path)
                self._check(self._file.schema_arrow)
            return read(self._file)
        except (OSError, LookupError, NotImplementedError, ValueError) as error:
            raise self._damaged(str(error)) from None

    def _check(self, schema: Any) -> None:
        """See to it that the columns are there that are needed, and hold numbers and texts as they should."""
        missing = sorted(NEEDED - {*schema.names})
        if missing or len({*schema.names}) != len(schema.names):
            raise ValueError(f"there is no column {missing[0]}" if missing else "two columns have one name")
        wrong = [field for field in schema if _is_of_another_kind(field.name, field.type)]
        if wrong:
            raise ValueError(f"the column {wrong[0].name} holds {wrong[0].type}")

    def _values(self, name: str, group: Any, *, is_read_again: bool = False) -> list[Any]:
        """A column of a row group as a list, its texts checked."""
        try:
            found = _values(group.column(name))
            what = wrong_column(name, found, is_read_again=is_read_again)
        except (LookupError, TypeError, ValueError) as error:
            raise self._damaged(f"the column {name}: {error}") from None
        if what:
            raise self._damaged(what)
        return found

    def _damaged(self, what: str) -> RunError:
        fix = "give the command of the run again: it asks nothing twice, and writes its samples anew"
        return RunError([Problem(Place(str(self.path)), f"the samples cannot be read: {what}", fix)])


def _is_of_another_kind(name: str, written: Any) -> bool:
    """Whether a column that is read holds neither what it should nor nothing."""
    from pyarrow import types

    kind = written.value_type if types.is_dictionary(written) else written
    is_score = "," in name
    if types.is_null(kind) or not (is_score or name in Row._fields):
        return False
    if is_score or name in NUMBERS:
        return not (types.is_floating(kind) or types.is_integer(kind))
    return not (types.is_string(kind) or types.is_large_string(kind))


def _values(chunks: Any) -> list[Any]:
    column = chunks.combine_chunks()
    if hasattr(column, "dictionary"):
        texts = column.dictionary.to_pylist()
        return [texts[number] for number in column.indices.to_pylist()]
    found: list[Any] = column.to_pylist()
    return found


def as_kept(row: Row, repeats: int) -> Kept:
    """A sample as it was kept when it was scored: its responses as filters saw them, what each filter made of it."""
    loads = orjson.loads
    return Kept(
        _sample(row, repeats),
        [[_seen(value) for value in several] for several in _said(row)],
        filter_scores(
            {name: [_seen(each) for each in several] for name, several in loads(row.answers).items()}, loads(row.scores)
        ),
        repeats,
        row.failed or "",
        loads(row.replies) if row.replies is not None else None,
        tuple(row.audit.split(",")) if row.audit else (),
    )


def filter_scores(answers: Mapping[str, Sequence[Any]], scores: Mapping[str, Any]) -> list[FilterScores]:
    """What each filter made of a sample, from its answers and from `{"metric,filter": value}`.

    >>> [(each.filter, each.values) for each in filter_scores({"strict": ["4"]}, {"exact_match,strict": 1})]
    [('strict', {'exact_match': 1})]
    """
    values: dict[str, dict[str, Any]] = {name: {} for name in answers}
    repeats: dict[str, dict[str, Any]] = {name: {} for name in answers}
    for row, value in scores.items():
        metric, _, name = row.partition(",")
        if name in values:
            values[name][metric] = value
        elif name.removesuffix(",repeats") in repeats:
            repeats[name.removesuffix(",repeats")][metric] = value
    return [FilterScores(name, several, values[name], repeats[name]) for name, several in answers.items()]


def _seen(value: Any) -> Any:
    """A response as filters saw it: a text, a pair of likelihood and greediness, or a likelihood alone."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], bool):
        return (_LEAST if value[0] is None else value[0], value[1])
    return _LEAST if value is None else value


def _stored(row: Row, repeats: int) -> Stored:
    sample = _sample(row, repeats)
    replies = orjson.loads(row.replies) if row.replies is not None else None
    raw = [value for several in _said(row) for value in several]
    if len(raw) != len(sample.requests) and not row.failed:
        raise ValueError(f"{len(sample.requests)} requests and {len(raw)} responses")
    return Stored(sample, _responses(sample.requests, raw, replies), row.scores, row.failed or "")


def _said(row: Row) -> list[list[Any]]:
    """By request what was answered, as it is written."""
    found: list[list[Any]] = orjson.loads(row.responses)
    if not are_responses(found):
        raise ValueError("its responses are not what they should be")
    return found


def _sample(row: Row, repeats: int) -> Sample:
    loads = orjson.loads
    target, failed = loads(row.target), row.failed or ""
    return Sample(
        row.doc_id,
        loads(row.doc),
        _requests(row.prefix + row.prompt, loads(row.requests), repeats),
        target,
        loads(row.gold) if row.gold is not None else target,
        loads(row.choices) if row.choices is not None else None,
        row.prefix,
        failed if failed and row.replies is None and not any(loads(row.responses)) else "",
        row.dropped or 0,
    )


def _requests(context: str, asked: Sequence[Sequence[Any]], repeats: int) -> list[Request]:
    if repeats == 1 and asked and len(asked[0]) == 1 and isinstance(asked[0][0], str):
        return [Loglikelihood(context, each[0]) if len(each) == 1 else Loglikelihood(*each) for each in asked]
    return [_request(context, each, repeat) for each in asked for repeat in range(repeats)]


def _ended(row: Row) -> Stored:
    """A record of a graph as its plan left it: it asked on its own, so its requests are those of its outcome."""
    loads = orjson.loads
    requests = [_request(row.prefix + row.prompt, each, 0) for each in loads(row.requests)]
    raw = [value for several in _said(row) for value in several]
    replies = loads(row.replies) if row.replies is not None else [{}] * len(raw)
    behind = replies[len(raw) :] if raw else []
    own = _responses(requests, raw, replies[: len(raw)] if raw else replies)
    record, target = _record(row), loads(row.target)
    if record is not None:
        told: Mapping[str, Any] = behind[0] if behind else {}
        end: Response = Outcome(record, requests, told.get("noticed", {}), trace=told.get("trace", ()))
        responses = [*own, end]
    else:
        failed = any(isinstance(response, Failed) for response in own)
        responses = own if failed else [*own, Failed(row.failed or "the record came to nothing")]
    sample = Sample(row.doc_id, loads(row.doc), (), target, loads(row.gold) if row.gold is not None else target)
    return Stored(sample, responses, row.scores, row.failed or "")


def _record(row: Row) -> Mapping[str, Any] | None:
    """What a graph made of a document; the whole answer of its only filter."""
    found = orjson.loads(row.answers).get("none")  # a record may have failed in some rows alone
    return found[0] if found else None


def _request(context: str, described: Sequence[Any], repeat: int) -> Request:
    """A request from what it has beside the first context: parameters, a continuation with its context, or nothing."""
    if not described or described[-1] is None:
        return Rolling(described[0] if described else context)
    if isinstance(described[0], str) and isinstance(described[-1], dict):
        return Generate(described[0], described[1], repeat)
    if isinstance(described[0], str):
        return Loglikelihood(described[0] if len(described) > 1 else context, described[-1])
    return Generate(context, described[0], repeat)


def _responses(
    requests: Sequence[Request], raw: Sequence[Any], replies: Sequence[Mapping[str, Any]] | None
) -> list[Response]:
    """The responses as they came. Of a sample that failed nothing is kept but why, and what the others took."""
    if not raw and replies is not None:
        return [_failure(reply) for reply in replies]
    if replies is None and raw and isinstance(requests[0], Loglikelihood):  # a hundred thousand times four of them
        return [Likelihood(value if value is not None else _LEAST, greedy) for value, greedy in raw]
    told: Sequence[Mapping[str, Any]] = replies if replies is not None else [{}] * len(raw)
    own = [_response(*each) for each in zip(requests, raw, told[: len(raw)], strict=bool(raw))]
    return [*own, *map(_verdict, told[len(raw) :])]


def _verdict(reply: Mapping[str, Any]) -> Response:
    """What a scorer was told about an answer."""
    if "failed" in reply:
        return _failure(reply)
    said = reply["verdict"]
    return _response(None, said if isinstance(said, str) else (said, False), reply)


def _failure(reply: Mapping[str, Any]) -> Response:
    if "failed" in reply:
        return Failed(reply["failed"], reply.get("trace", ()))
    return _response(None, "", reply)


def _response(request: Request | None, raw: Any, reply: Mapping[str, Any]) -> Response:
    usage = _usage(reply) if reply else None
    if isinstance(raw, str):
        return Text(raw, reply.get("finish"), reply.get("reasoning"), usage, reply.get("calls", ()))
    value, greedy = (raw, False) if isinstance(request, Rolling) else raw
    return Likelihood(value if value is not None else _LEAST, greedy, usage)


def _usage(reply: Mapping[str, Any]) -> Usage | None:
    told = reply.get("usage")
    return Usage(*told) if told is not None else None
