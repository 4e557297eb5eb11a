"""Reads samples from Parquet, one row group at a time: documents, requests, responses and scores."""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import orjson

from assay.records import (
    AnyJSON,
    Failed,
    FilterScores,
    Generate,
    JSONObject,
    Likelihood,
    Loglikelihood,
    Outcome,
    Prompt,
    Request,
    Response,
    Rolling,
    Sample,
    Text,
    Usage,
    plain_to_messages,
)
from assay.runs.files import open_file
from assay.runs.folder import RunError
from assay.runs.samples import search
from assay.runs.samples.decode import columns_of, decode_samples, fields_of, wrong_json, wrong_schema
from assay.runs.samples.encode import from_json
from assay.runs.samples.records import GENERATE, LOGLIKELIHOOD, SampleRecord, StoredRequest
from assay.runs.samples.records import StoredSample as StoredSample
from assay.runs.samples.schema import (
    DICTIONARIES,
    REQUEST_COLUMNS,
    Array,
    ArrowTable,
    FileMetadata,
    ParquetFile,
    leaf_names,
    score_columns,
)
from assay.runs.samples.writer import NO_DIGITS, file_name, verify_checksum, written_checksum
from assay.score_keys import ScoreKey

T = TypeVar("T")
PARQUET_END = b"PAR1"


class ReplayedSample(NamedTuple):
    """A sample with its responses, and its scores of an earlier scoring."""

    sample: Sample
    responses: Sequence[Response]
    scores: Mapping[ScoreKey, Any] = MappingProxyType({})
    failed: str = ""


def sample_file(folder: Path, task: str) -> Path | None:
    """The samples of a task in a run's folder: in place, or whole and waiting for the end of the run."""
    path = folder / "samples" / f"{file_name(task)}.parquet"
    part = path.with_suffix(".parquet.part")
    if path.is_file():
        return path
    if is_whole(part):
        return part
    return path if path.is_file() else None  # the run may have ended between the two looks


def is_whole(path: Path) -> bool:
    """Whether a file of samples was written to its end: with its checksum, which is the last that is written."""
    try:
        with open_file(path) as file:
            if file.seek(0, os.SEEK_END) < len(PARQUET_END) + 4:
                return False
            file.seek(-len(PARQUET_END), os.SEEK_END)
            if file.read() != PARQUET_END:
                return False
        return written_checksum(path)[1] != NO_DIGITS
    except OSError:  # none, or no longer there
        return False


class SampleFile:
    """The samples of a task in a file; `repeats` is how many times each request was sent, `checksum` what the file must have."""

    def __init__(self, path: Path, repeats: int = 1, checksum: str = "") -> None:
        self.path, self._repeats, self.checksum = path, repeats, checksum
        self._file: Any = None
        self._metadata: Any = None
        self._latest: tuple[int, Any] = (-1, None)

    @property
    def metadata(self) -> FileMetadata:
        """The metadata of the file: 13 MB of a million samples."""
        return self._read(lambda file: file.metadata)

    def use_metadata(self, metadata: FileMetadata) -> None:
        """Read the file by metadata that was read before, and is still that of the file."""
        self._metadata = metadata

    def close(self) -> None:
        """Close the file; it is opened again where it is read."""
        if self._file is not None:
            self._file.close(force=True)
            self._file = None

    def samples(self) -> Iterator[ReplayedSample]:
        """The samples in their order."""
        yield from self._converted(lambda row: _stored(row, self._repeats))

    def outcomes(self) -> Iterator[ReplayedSample]:
        """Yield the samples of a graph: after the responses of each its outcome, or why it failed."""
        yield from self._converted(_ended)

    def first_record(self) -> JSONObject | None:
        """Return a record of a graph's output, if there is any."""
        return next((record for record in self._converted(_record) if record is not None), None)

    def records(self) -> Iterator[SampleRecord]:
        """Yield the records of the samples in their order."""
        yield from self._converted(lambda row: sample_record(row, self._repeats))

    def rows_with_records(self) -> Iterator[tuple[StoredSample, SampleRecord]]:
        """Yield the stored samples in their order, each with its record."""
        yield from self._converted(lambda row: (row, sample_record(row, self._repeats)))

    def check(self) -> None:
        """Check that every sample can be read."""
        for _ in self.columns(StoredSample._fields):
            pass

    def _converted(self, make: Callable[[StoredSample], T]) -> Iterator[T]:
        """Convert each sample; one that cannot be converted is a RunError."""
        for row in self.rows():
            try:
                value = make(row)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                raise self._damaged(f"document {row.doc_id}: {type(error).__name__}: {error}") from error
            yield value

    def rows(self) -> Iterator[StoredSample]:
        """The rows in their order; texts that many share are one object. A column that a file lacks is empty."""
        for number in range(self._groups):
            group = self._group(number, None)
            self._latest = (number, group)
            yield from self._rows(group)

    def at(self, places: Sequence[int]) -> list[StoredSample]:
        """The rows at these places of the file, in this order: only the row groups that hold them are read."""
        positions, start = set(places), 0
        samples: dict[int, StoredSample] = {}
        sizes = self._read(lambda file: [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)])
        for number in range(len(sizes)):
            size = sizes[number]
            own = [place for place in positions if start <= place < start + size]
            if own:
                group = _few_rows(self._group(number, None), [place - start for place in own])
                samples |= dict(zip(own, self._rows(group), strict=True))
            start += size
        return [samples[place] for place in places if place in samples]

    @property
    def names(self) -> list[str]:
        """The columns that the file has."""
        names: list[str] = self._read(lambda file: file.schema_arrow.names)
        return names

    @property
    def score_keys(self) -> list[ScoreKey]:
        """The scores that have a column."""
        return score_columns(self.names)

    @property
    def num_rows(self) -> int:
        """The number of samples."""
        rows: int = self._read(lambda file: file.metadata.num_rows)
        return rows

    @cached_property
    def leaves(self) -> frozenset[str]:
        """The fields that hold values, each with the way to it: `responses.text`. A file lacks what none of its samples has."""
        leaves: frozenset[str] = self._read(lambda file: frozenset(leaf_names(file.schema_arrow)))
        return leaves

    @property
    def _groups(self) -> int:
        groups: int = self._read(lambda file: file.num_row_groups)
        return groups

    def columns(self, fields: Sequence[str | ScoreKey]) -> Iterator[dict[str | ScoreKey, list[AnyJSON]]]:
        """Some fields of the rows, or scores that have a column, as lists: one row group at a time."""
        for number in range(self._groups):
            group = self._group(number, fields)
            yield self._guarded(lambda: _checked(fields_of(group, fields)))  # noqa: B023  # called at once

    def tables(self) -> Iterator[ArrowTable]:
        """The row groups as tables."""
        return (self._group(number, None) for number in range(self._groups))

    def selected(self, places: Sequence[int]) -> Iterator[ArrowTable]:
        """The rows at these places, which ascend: a table for each row group that has some, and no other is read."""
        sizes = self._read(lambda file: [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)])
        start = first = 0
        for number, size in enumerate(sizes):
            last = bisect_left(places, start + size, first)
            if last > first:
                yield self._group(number, None).take([int(place) - start for place in places[first:last]])
            start, first = start + size, last

    def rows_with_text(self, text: str) -> Array:
        """For each row whether it contains a text in its prompt, messages, responses or target."""
        return self._read(lambda file: search.rows_with_text(self.path, file.metadata, text))

    def empty_table(self) -> ArrowTable:
        """A table with the columns of the file, and no row."""
        return (
            self._group(0, None).slice(0, 0)
            if self._groups
            else self._read(lambda file: file.schema_arrow).empty_table()
        )

    def request_arrays(self, number: int) -> dict[str, Array]:
        """Return the columns of requests and responses of one row group; the last one read is cached."""
        known, group = self._latest
        if known != number:
            group = self._group(number, None)
        return {name: group.column(name).combine_chunks() for name in REQUEST_COLUMNS if name in group.column_names}

    def _group(self, number: int, fields: Sequence[str | ScoreKey] | None) -> ArrowTable:
        """A row group; with `fields`, at least the columns that those need."""

        def read(file: ParquetFile) -> ArrowTable:
            columns = columns_of(file.schema_arrow.names, fields) if fields is not None else None
            return file.read_row_group(number, columns=columns).combine_chunks()

        return self._read(read)

    def _rows(self, group: ArrowTable) -> list[StoredSample]:
        return self._guarded(lambda: [*decode_samples(group)])

    def _read(self, read: Callable[[ParquetFile], T]) -> T:
        """Open the file, once."""

        def opened() -> T:
            if self._file is None:
                self._file = _opened(self.path, self.checksum, self._metadata)
            return read(self._file)

        return self._guarded(opened)

    def _guarded(self, make: Callable[[], T]) -> T:
        """Convert the file; a damaged one is a RunError."""
        try:
            return make()
        except (
            OSError,
            ArithmeticError,
            AttributeError,
            LookupError,
            NotImplementedError,
            TypeError,
            ValueError,
        ) as error:
            raise self._damaged(str(error)) from None

    def _damaged(self, what: str) -> RunError:
        fix = "repeat the command of the run: it sends no request twice, and rewrites its samples"
        return RunError.at(self.path, f"the samples cannot be read: {what}", fix)


def _opened(path: Path, checksum: str, metadata: FileMetadata = None) -> ParquetFile:
    """A file of samples whose checksum and columns are right."""
    from pyarrow import parquet

    known, metadata = verify_checksum(path), metadata or parquet.read_metadata(path)
    if not known:
        raise ValueError("it has no checksum")
    if checksum not in ("", known):
        raise ValueError("the manifest has another checksum for it, so it is of another run or task")
    file = parquet.ParquetFile(
        path, metadata=metadata, read_dictionary=[*DICTIONARIES], page_checksum_verification=True
    )
    # `metadata.schema` would hold the metadata in memory, and that it: 13 MB of a million samples, each time a file is opened
    if what := wrong_schema(file.schema_arrow):
        raise ValueError(what)
    return file


def _few_rows(table: ArrowTable, places: Sequence[int]) -> ArrowTable:
    """Some rows of a table. The first `take` of a process imports pandas, which takes longer than a page may."""
    import pyarrow as pa

    return pa.concat_tables([table.slice(place, 1) for place in places]).combine_chunks()


def _checked(fields: dict[str | ScoreKey, list[AnyJSON]]) -> dict[str | ScoreKey, list[AnyJSON]]:
    if what := wrong_json(fields):
        raise ValueError(what)
    return fields


def sample_record(row: StoredSample, repeats: int) -> SampleRecord:
    """Convert a stored sample to a record: its responses as filters saw them, its answers and scores by filter."""
    return SampleRecord(
        _sample(row, repeats),
        row.responses,
        filter_scores(row.answers, row.scores, row.repeats, row.failures),
        repeats,
        row.failed or "",
        row.replies,
        tuple(row.audit),
    )


def filter_scores(
    answers: Mapping[str, Sequence[AnyJSON]],
    scores: Mapping[ScoreKey, AnyJSON],
    repeats: Mapping[ScoreKey, Sequence[AnyJSON]] = MappingProxyType({}),
    failures: Mapping[ScoreKey, str] = MappingProxyType({}),
) -> list[FilterScores]:
    """Group answers and scores by filter.

    >>> [filtered] = filter_scores({"strict": ["4"]}, {ScoreKey("exact_match", "strict"): 1})
    >>> filtered.filter, filtered.values
    ('strict', {'exact_match': 1})
    """
    values, of_repeats, failed = (_by_filter(mapping) for mapping in (scores, repeats, failures))
    return [
        FilterScores(name, left, values.get(name, {}), of_repeats.get(name, {}), failed.get(name, {}))
        for name, left in answers.items()
    ]


def _by_filter(values: Mapping[ScoreKey, T]) -> dict[str, dict[str, T]]:
    by_filter: dict[str, dict[str, T]] = {}
    for key, value in values.items():
        by_filter.setdefault(key.filter, {})[key.metric] = value
    return by_filter


def _stored(row: StoredSample, repeats: int) -> ReplayedSample:
    sample = _sample(row, repeats)
    raw = [value for values in row.responses for value in values]
    if len(raw) != len(sample.requests) and not row.failed:
        raise ValueError(f"{len(sample.requests)} requests and {len(raw)} responses")
    return ReplayedSample(sample, _responses(sample.requests, raw, row.replies), row.scores, row.failed or "")


def _sample(row: StoredSample, repeats: int) -> Sample:
    loads = from_json
    target, failed = loads(row.target), row.failed or ""
    return Sample(
        row.doc_id,
        loads(row.doc),
        _requests(row.prefix + row.prompt, row.requests, repeats),
        target,
        loads(row.gold) if row.gold is not None else target,
        row.choices,
        row.prefix,
        failed if failed and row.replies is None and not row.responses else "",
        row.dropped or 0,
    )


def _requests(context: str, stored: Sequence[StoredRequest], repeats: int) -> list[Request]:
    if repeats == 1 and stored and stored[0].kind == LOGLIKELIHOOD:
        return [_request(context, each, 0) for each in stored]
    return [_request(context, each, repeat) for each in stored for repeat in range(repeats)]


def _ended(row: StoredSample) -> ReplayedSample:
    """Convert a record of a graph after its plan: the plan sent its requests, so they are those of its outcome."""
    loads = from_json
    requests = [_request(row.prefix + row.prompt, each, 0) for each in row.requests]
    raw = [value for values in row.responses for value in values]
    replies: Sequence[Mapping[str, Any]] = row.replies if row.replies is not None else [{}] * len(raw)
    end: Mapping[str, Any] = replies[len(requests)] if len(replies) > len(requests) else {}
    failed = row.failed or "" if "state" in end else ""
    record, target = end["state"] if failed else _record(row), loads(row.target)
    if record is not None:
        own = [_answered(*each) for each in zip(requests, raw or [None] * len(requests), replies, strict=False)]
        noticed, trace, calls = end.get("noticed", {}), end.get("trace", ()), end.get("tool_calls", ())
        responses: list[Response] = [*own, Outcome(record, requests, noticed, None, trace, calls, failed)]
    else:  # a record whose plan was not driven to its end: it has no outcome
        responses = _responses(requests, raw, replies)
        if not any(isinstance(response, Failed) for response in responses):
            responses.append(Failed(row.failed or "the graph returned no record"))
    sample = Sample(row.doc_id, loads(row.doc), (), target, loads(row.gold) if row.gold is not None else target)
    return ReplayedSample(sample, responses, row.scores, row.failed or "")


def _answered(request: Request, raw: AnyJSON, reply: JSONObject) -> Response:
    return Failed(reply["failed"]) if "failed" in reply else _response(request, raw, reply)


def _record(row: StoredSample) -> JSONObject | None:
    """Return the output record of a graph: the whole answer of its only filter."""
    answers = row.answers.get("none")  # a record may have failed in some rows alone
    return answers[0] if answers else None


def _request(context: str, stored: StoredRequest, repeat: int) -> Request:
    text = context if stored.prompt is None else stored.prompt
    prompt: Prompt = text if stored.messages is None else plain_to_messages(stored.messages)
    if stored.kind == LOGLIKELIHOOD:
        return Loglikelihood(prompt, stored.continuation or "")
    if stored.kind == GENERATE:
        return Generate(prompt, orjson.loads(stored.params or "{}"), repeat)
    return Rolling(text)


def _responses(
    requests: Sequence[Request], raw: Sequence[AnyJSON], replies: Sequence[JSONObject] | None
) -> list[Response]:
    """Rebuild the responses. A failed sample has only the reason, and the usage of the other responses."""
    if not raw and replies is not None:
        return [_failure(reply) for reply in replies]
    if replies is None and raw and isinstance(requests[0], Loglikelihood):  # a hundred thousand times four of them
        return [Likelihood(value, greedy) for value, greedy in raw]
    metadata: Sequence[Mapping[str, Any]] = replies if replies is not None else [{}] * len(raw)
    own = [_response(*each) for each in zip(requests, raw, metadata[: len(raw)], strict=bool(raw))]
    return [*own, *map(_verdict, metadata[len(raw) :])]


def _verdict(reply: JSONObject) -> Response:
    """Convert a response to a scorer."""
    if "failed" in reply:
        return _failure(reply)
    said = reply["verdict"]
    return _response(None, said if isinstance(said, str) else (said, False), reply)


def _failure(reply: JSONObject) -> Response:
    if "failed" in reply:
        return Failed(reply["failed"])
    return _response(None, "", reply)


def _response(request: Request | None, raw: AnyJSON, reply: JSONObject) -> Response:
    usage = _usage(reply) if reply else None
    if isinstance(raw, str):
        return Text(raw, reply.get("finish"), reply.get("reasoning"), usage, reply.get("calls", ()))
    value, greedy = (raw, False) if isinstance(request, Rolling) else raw
    return Likelihood(value, greedy, usage)


def _usage(reply: JSONObject) -> Usage | None:
    usage = reply.get("usage")
    return Usage(*usage) if usage is not None else None
