"""Writes the samples of a task as Parquet, with a checksum over the whole file.

Parquet has checksums for pages, not for their headers and the footer. So the CRC32 of all bytes is written as eight digits into
the key-value metadata, where they count as zeros.
"""

import json
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import orjson

from assay.config.source import digest
from assay.records import (
    AnyJSON,
    Generate,
    JSONDict,
    JSONObject,
    Loglikelihood,
    Prompt,
    Request,
    Rolling,
    messages_to_plain,
    prompt_text,
)
from assay.redaction import redact_text, written_arguments
from assay.runs.files import rename_file
from assay.runs.samples.encode import as_json, likelihood_requests, request_arrays, request_lists, score_arrays
from assay.runs.samples.records import (
    GENERATE,
    GRAPH,
    LOGLIKELIHOOD,
    NOTHING,
    ROLLING,
    SampleRecord,
    StoredRequest,
    StoredSample,
    row_failures,
)
from assay.runs.samples.schema import (
    DICTIONARIES,
    MESSAGE,
    REPEATED,
    ROW_NAMES,
    Array,
    ArrowSchema,
    ParquetFile,
    cast_table,
    union_schema,
)
from assay.score_keys import ScoreKey

ROWS, HELD = 2000, 8 * 2**20
"""Rows of one group at most, and characters of text: counts, not times, so that the same samples make the same file."""
NEWEST = 200
"""Number of the newest samples that readers of a run in progress see."""
_UNSAFE = re.compile(r"[^\w.@#+-]+")


def file_name(task: str) -> str:
    """A name for files of a task: readable, safe on every system, and no two tasks share one.

    >>> file_name("mmlu_anatomy"), file_name("a::b").startswith("a_b-")
    ('mmlu_anatomy', True)
    """
    plain = _UNSAFE.sub("_", task)[:120]
    return plain if plain == task else f"{plain}-{digest(task.encode())[:8]}"


class GroupWriter:
    """Writes row groups into a Parquet file, whose schema grows where a later group has more columns or fields."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer: Any = None
        self._keys: dict[ScoreKey, None] = {}
        self.has_begun = False

    def write(self, arrays: Mapping[str, Array], keys: Sequence[ScoreKey]) -> None:
        """Write a row group; `keys` are its rows of scores, in their order."""
        import pyarrow as pa

        self._keys |= dict.fromkeys(keys)
        table = pa.table(dict(arrays))
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = _opened(self.path, table.schema)
            self.has_begun = True
        elif table.schema != self._writer.schema:
            self._widen(union_schema(self._writer.schema, table.schema, self._keys))
            table = cast_table(arrays, self._writer.schema)
        self._writer.write_table(table)

    def _widen(self, schema: ArrowSchema) -> None:
        """Rewrite the groups so far, if the schema has more than theirs."""
        from pyarrow import parquet

        if schema == self._writer.schema:
            return
        self._writer.close()
        before = self.path.with_name(f".{self.path.name.partition('.parquet')[0]}.before")
        self.path.replace(before)
        self._writer = _opened(self.path, schema)
        try:
            with parquet.ParquetFile(
                before, page_checksum_verification=True, read_dictionary=[*DICTIONARIES]
            ) as source:
                for number in range(source.num_row_groups):
                    group = source.read_row_group(number).combine_chunks()
                    arrays = {name: group.column(name).chunk(0) for name in group.column_names}
                    self._writer.write_table(cast_table(arrays, schema))
        finally:
            before.unlink()

    def end(self) -> None:
        """Close the file, and give it its checksum."""
        if self._writer is not None and self._writer.is_open:
            self._writer.add_key_value_metadata(
                {ROW_NAMES: orjson.dumps([*map(str, self._keys)]).decode(), CHECKSUM_KEY: NO_CHECKSUM}
            )
            self._writer.close()
            self._writer = None  # a closed one holds 80 kB, and a run may have thousands
            write_checksum(self.path)

    def abandon(self) -> None:
        if self._writer is not None and self._writer.is_open:
            with suppress(OSError):
                self._writer.close()


def _opened(path: Path, schema: ArrowSchema) -> ParquetFile:
    from pyarrow import parquet

    return parquet.ParquetWriter(
        path,
        schema,
        compression="zstd",
        use_dictionary=REPEATED,
        write_page_checksum=True,
        write_statistics=["doc_id"],
        store_schema=False,  # names of lists' items differ between arrays that are built and those that are read
    )


class SampleWriter:
    """Writes samples in their order into a file that gets its name when it is whole.

    `known` returns, row group by row group, the request columns of the same samples in an earlier scoring.
    """

    def __init__(self, folder: Path, task: str, known: Callable[[int], JSONDict] | None = None) -> None:
        self.path = folder / f"{file_name(task)}.parquet"
        self._part = self.path.with_suffix(".parquet.part")
        self._file = GroupWriter(self._part)
        self._known = known
        self._groups = self._written = 0
        self._rows: list[StoredSample] = []
        self._requests: list[Sequence[Request]] = []
        self._held = 0
        self._most = ROWS
        """Rows of the group: where requests are known, as many as it had before."""
        self._arrays: dict[str, Any] = {}
        self._before: tuple[list[StoredSample], list[Sequence[Request]]] = ([], [])
        """The end of the last group of rows, for `write_newest`."""
        self.is_ended = False

    @property
    def count(self) -> int:
        """Number of samples so far."""
        return self._written + len(self._rows)

    def write_newest(self, path: Path, count: int) -> int:
        """Write the newest samples into a separate file, for readers of a run in progress; returns their number."""
        missing = max(count - len(self._rows), 0)
        rows, requests = self._rows[-count:], self._requests[-count:]
        if missing:
            before_rows, before_requests = self._before
            rows, requests = [*before_rows[-missing:], *rows], [*before_requests[-missing:], *requests]
        if rows:
            part = path.with_name(f"{path.name}.part")
            file = GroupWriter(part)
            scored, keys = score_arrays(rows)
            file.write({**_request_arrays(rows, requests), **scored}, keys)
            file.end()
            part.replace(path)  # not synced: it is of use while the run is, and no longer
        return len(rows)

    def add(self, record: SampleRecord) -> None:
        if self._known is None:
            requests = record.sample.requests[:: record.repeats]
            row = StoredSample(*_request_fields(record, requests), *_score_fields(record))
            self._requests.append(requests)
            self._held += len(row.doc) + len(row.prompt) + len(row.prefix) + _length(record.responses)
        else:
            row = StoredSample(record.sample.doc_id, *NOT_ASKED, *_score_fields(record))
            if not self._rows:
                self._arrays = self._known(self._groups)
                self._most = len(self._arrays["doc_id"])
        self._rows.append(row)
        if len(self._rows) == self._most or self._held >= HELD:
            self._flush()

    def end(self) -> None:
        """Write what is left."""
        self._flush()
        self._file.end()
        self.is_ended, self._before = True, ([], [])

    def place(self) -> None:
        """Give the file its name. The folder is synced once, when all files of a run have theirs."""
        rename_file(self._part, self.path)

    def abandon(self) -> None:
        """Leave nothing of a file that was not finished; one that waits for its name stays."""
        self._file.abandon()
        if not self.is_ended:
            self._part.unlink(missing_ok=True)

    def _flush(self) -> None:
        if not self._rows and self._file.has_begun:
            return
        is_known = self._known is not None and self._rows
        arrays = dict(self._arrays) if is_known else _request_arrays(self._rows, self._requests)
        self._groups += 1
        documents = [row.doc_id for row in self._rows]
        assert arrays["doc_id"].to_pylist() == documents, "the samples of another file come in its order"
        scored, keys = score_arrays(self._rows)
        self._file.write({**arrays, **scored}, keys)
        self._written += len(self._rows)
        self._before = (self._rows[-NEWEST:], self._requests[-NEWEST:])
        self._rows, self._requests, self._held = [], [], 0


def _length(responses: Sequence[Sequence[AnyJSON]]) -> int:
    """How much text there is, about: of likelihoods there is none."""
    if not responses or not responses[0] or type(responses[0][0]) is tuple:
        return 30 * len(responses)
    return sum([len(said) if type(said) is str else 30 for repeats in responses for said in repeats])


# ---- a sample as rows have it


def _score_fields(record: SampleRecord) -> tuple[Any, ...]:
    """The fields of a sample from its answers on. Positions: by their names, each sample would take 2 µs more."""
    answers: dict[str, Sequence[Any]] = {}
    scores: dict[ScoreKey, Any] = {}
    repeats: dict[ScoreKey, Any] = {}
    has_failed = bool(record.failed)
    for name, left, values, repeated, failed in record.scores:
        answers[name] = left
        if failed:
            has_failed = True
        for metric, value in values.items():
            scores[_key(metric, name)] = value
        for metric, each in repeated.items() if repeated else ():
            repeats[_key(metric, name)] = each
    if not has_failed:
        return answers, scores, repeats, None, NO_FAILURES, record.audit
    failures = {key: _reason(failed) for key, failed in row_failures(record).items()}
    return answers, scores, repeats, _reason(record.failed) or None, failures, record.audit


@lru_cache(1024)
def _reason(failed: str) -> str:
    """A reason of a failure without secrets: those that models of others return, and of imported runs, may have some."""
    return redact_text(failed)


_key = cache(ScoreKey)
"""One object for each row of scores: equal ones, made for each sample, took 8 % of the time of writing."""
NOT_ASKED: tuple[Any, ...] = StoredSample(0)[1 : StoredSample._fields.index("answers")]
"""The fields between the document's number and the answers, where the columns of requests are known already."""
NO_FAILURES: Mapping[ScoreKey, str] = MappingProxyType({})


def _request_fields(record: SampleRecord, requests: Sequence[Request]) -> tuple[Any, ...]:
    """The fields of a sample before its answers, without its requests: they are encoded together, their first prompt is whole."""
    sample = record.sample
    first = _prompt(requests[0]) if requests else ""
    prefix = sample.prefix if requests and first.startswith(sample.prefix) else ""
    try:
        doc, target = orjson.dumps(sample.doc).decode(), orjson.dumps(sample.target).decode()
    except TypeError:  # `as_json` writes these, too: it is not called for every document
        doc, target = as_json(sample.doc), as_json(sample.target)
    return (
        sample.doc_id,
        _kind(record, requests),
        sample.dropped or None,
        doc,
        target,
        as_json(sample.gold) if sample.gold is not sample.target else None,
        sample.choices,
        prefix,
        first[len(prefix) :],
        (),
        record.responses,
        record.replies,
    )


def _prompt(request: Request) -> str:
    prompt = request[0]  # the first field of every kind
    return prompt if isinstance(prompt, str) else prompt_text(prompt)


def _with_requests(row: StoredSample, described: Sequence[StoredRequest]) -> StoredSample:
    """Add the requests. A conversation is stored in the first of them, and not as a prompt, too."""
    if described and described[0].messages is not None:
        return row._replace(prefix="", prompt="", requests=described)
    return row._replace(requests=described)


def _request_arrays(rows: Sequence[StoredSample], requests: Sequence[Sequence[Request]]) -> dict[str, Array]:
    """Build the request columns; log-likelihoods, the most frequent kind, without a record for each request."""
    flat: Sequence[Any] = [request for of_sample in requests for request in of_sample]
    if {*map(type, flat)} != {Loglikelihood} or {type(request[0]) for request in flat} != {str}:
        params = Params()
        described = [request_rows(of_sample, params) for of_sample in requests]
        if any(own[0].messages is not None for own in described if own):
            rows = [_with_requests(*each) for each in zip(rows, described, strict=True)]
        return request_arrays(rows, request_lists(described))
    firsts = [_prompt(of_sample[0]) if of_sample else "" for of_sample in requests]
    prompts: list[Any] = [
        None if request[0] is first or request[0] == first else request[0]
        for of_sample, first in zip(requests, firsts, strict=True)
        for request in of_sample
    ]
    continuations = [request.continuation for request in flat]
    return request_arrays(rows, likelihood_requests(map(len, requests), prompts, continuations, LOGLIKELIHOOD))


def _kind(record: SampleRecord, requests: Sequence[Request]) -> str:
    """Return the kind of a sample: a graph's has a trace, and its requests name their nodes."""
    request = requests[0] if requests else None
    if type(request) is Loglikelihood:
        return LOGLIKELIHOOD
    if (record.replies and "trace" in record.replies[-1]) or (isinstance(request, Generate) and request.node):
        return GRAPH
    return NOTHING if request is None else ROLLING if isinstance(request, Rolling) else GENERATE


class Params(dict[int, str]):
    """Parameters of requests as JSON, by the number of the object: all requests of a task share a few."""

    def of(self, request: Generate) -> str:
        text = self.get(id(request.params))
        if text is None:
            text = self[id(request.params)] = as_json(written_arguments(request)[1])
        return text


def request_rows(requests: Sequence[Request], params: Params) -> list[StoredRequest]:
    """Convert the requests of a sample; a prompt equal to the first one is not repeated."""
    stored: list[StoredRequest] = []
    first: Prompt = requests[0][0] if requests else ""
    for request in requests:
        prompt = request[0]
        own = None if prompt is first or prompt == first else prompt_text(prompt)
        messages = messages_of(prompt) if own is not None or not stored else None
        written = own if messages is None else None
        if isinstance(request, Generate):
            stored.append(StoredRequest(GENERATE, written, messages, None, params.of(request)))
        elif isinstance(request, Loglikelihood):
            stored.append(StoredRequest(LOGLIKELIHOOD, written, messages, request.continuation))
        else:
            stored.append(StoredRequest(ROLLING, own))
    return stored


def messages_of(prompt: Prompt) -> list[JSONDict] | None:
    """A conversation in OpenAI's words, where its columns can hold every message without a loss."""
    if isinstance(prompt, str):
        return None
    messages = messages_to_plain(prompt)
    return messages if messages and all(map(_is_message, messages)) else None


NEEDED_KEYS, MESSAGE_KEYS = frozenset(("role", "content")), frozenset(MESSAGE) - {"media"}


def _is_message(value: AnyJSON) -> bool:
    """Whether a message has nothing but what its columns hold, in the order that it is written in."""
    if not isinstance(value, dict) or not NEEDED_KEYS <= value.keys() <= MESSAGE_KEYS:
        return False
    if [*value] == ["role", "content"] and type(value["role"]) is str and type(value["content"]) is str:
        return True  # as most are
    texts = [value[key] for key in value if key not in ("content", "tool_calls")]
    calls = value.get("tool_calls", [{}])
    are_calls = isinstance(calls, list) and calls and all(isinstance(call, dict) for call in calls)
    return (
        all(isinstance(text, str) for text in texts)
        and isinstance(value["content"], str | None)
        and bool(are_calls)
        and [*value] == [*ordered(value)]
    )


def ordered(message: JSONObject) -> JSONDict:
    """A message with its keys in the order that conversations have them."""
    order = ("role", "tool_call_id", "content", "name", "tool_calls")
    return {key: message[key] for key in order if key in message}


def conversation_text(messages: Sequence[JSONObject]) -> str:
    """A conversation as the text that requests have."""
    return json.dumps(messages, ensure_ascii=False)


CHECKSUM_KEY, NO_CHECKSUM = "assay.crc32", "crc32:00000000"
DIGITS = 8
NO_DIGITS = "0" * DIGITS
"""The digits of a file whose checksum is not written yet."""
BLOCK = 1 << 20
_MARK = NO_CHECKSUM[:-DIGITS].encode()
_known: dict[tuple[str, int, int, int], str] = {}
"""Checksums of files that were found whole, as long as they do not change: a server reads them again and again."""
REMEMBERED = 10_000


def write_checksum(path: Path) -> None:
    """Put the checksum into a file that was written with KEY: UNSEALED in its metadata."""
    with path.open("r+b") as file:
        at = _digits_at(file)
        assert at is not None, "the file has no place for a checksum"
        crc = _crc(file, at)
        file.seek(at)
        file.write(b"%08x" % crc)


def verify_checksum(path: Path) -> str:
    """Return the checksum of a file, empty where it has none. One that does not match what is in the file is a ValueError."""
    state = path.stat()
    key = (os.fspath(path), state.st_mtime_ns, state.st_size, state.st_ino)
    if key in _known:
        return _known[key]
    with path.open("rb") as file:
        at, written = _written_digits(file)
        if written and written != f"{_crc(file, at):08x}":
            raise ValueError("its content does not match its checksum")
    if written:
        while len(_known) >= REMEMBERED:
            _known.pop(next(iter(_known)))
        _known[key] = written
    return written


def written_checksum(path: Path) -> tuple[int, str]:
    """Return the checksum of a file as it is written there, and where; an empty one where there is none."""
    with path.open("rb") as file:
        return _written_digits(file)


def _written_digits(file: BinaryIO) -> tuple[int, str]:
    at = _digits_at(file)
    if at is None:
        return 0, ""
    file.seek(at)
    return at, file.read(DIGITS).decode("ascii", "replace")


def _digits_at(file: BinaryIO) -> int | None:
    """Where the digits are: the last place in the footer that looks so."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 8, 0))
    length = int.from_bytes(file.read(4), "little") + 8
    start = max(size - length, 0)
    file.seek(start)
    offset = file.read().rfind(_MARK)
    return start + offset + len(_MARK) if offset >= 0 else None


def _crc(file: BinaryIO, at: int) -> int:
    """The checksum of a file with zeros in place of the digits."""
    file.seek(0)
    crc, left = 0, at
    while left and (block := file.read(min(BLOCK, left))):
        crc, left = zlib.crc32(block, crc), left - len(block)
    crc = zlib.crc32(b"0" * DIGITS, crc)
    file.seek(at + DIGITS)
    while block := file.read(BLOCK):
        crc = zlib.crc32(block, crc)
    return crc
