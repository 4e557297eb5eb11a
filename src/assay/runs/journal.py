"""The journal of responses, written as they arrive: one line of JSON each, appended and never changed.

A line is found by its key. An answered request is not sent again: not in this run, not after it was killed. Tool calls have
two lines, an intent before they begin and their result; a finished record of a graph has one.

The first line is a header with the format and the run's manifest; every line ends in the CRC32 of the text before it. A
damaged line is ignored and counted.
"""

import logging
import math
import os
import tempfile
import threading
import zlib
from array import array
from binascii import hexlify
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import orjson

from assay.errors import AssayError
from assay.records import (
    MOST_TOKENS,
    NOTHING_MORE,
    AnyJSON,
    Failed,
    JSONObject,
    Likelihood,
    Outcome,
    Response,
    Returned,
    Text,
    Usage,
)
from assay.runs.compression import read_frames, write_frames
from assay.runs.files import new_file, open_file, sync_folder
from assay.runs.key_index import KeyIndex
from assay.runs.outcomes import KeptRecord, kept_record, kept_result, kept_way, read_record, read_result
from assay.runs.validation import FORMAT, other_format

NAME = "responses.jsonl"
LONG = 16 * 2**20
"""From this size on, the journal of a finished run is compressed."""
SYNC_SECONDS = 0.5
"""Written responses are synced to the disk after this time, whether or not another response arrives: with what a sync takes, none
that is a second old is lost."""
UNREADABLE = "no response is written like this"
INTENT = "intent"
"""The key of a line that announces a tool call. Such a line is not a response."""
DONE = "done"
"""The key of a line with the result of a tool call, or with a finished record: no responses either."""
_NUMBERS, _PARTS = frozenset((int, float)), len(Usage._fields)
KEY_BYTES = 16
T = TypeVar("T")
_READ = 4096
_BLOCK = 1 << 20
_SEAL = len(b',"c":"00000000"}\n')


class JournalError(AssayError):
    """A journal cannot be used."""


class JournalLine(NamedTuple):
    """A line of a journal and what it holds; nothing where it, or the frame with so many `lost` lines, is damaged."""

    text: bytes
    entry: Mapping[str, Any] | None
    lost: int = 0


class JournaledResponse(NamedTuple):
    """A response in a journal: the key of its request, and the role of the model that gave it."""

    key: bytes
    role: str
    response: Response


class Journal:
    """Responses by key, in a file. Without a path it is a file without a name, deleted with the process.

    Failures are journaled, too, and requested again the next time: only answers are found by their key. `manifest` is
    written to the header of a new journal. `damaged` counts the lines that could not be read.
    """

    def __init__(self, path: Path | None, manifest: JSONObject | None = None) -> None:
        self._index, self._begun, self._done = KeyIndex(), KeyIndex(), KeyIndex()
        self._run = int.from_bytes(
            blake2b(str((manifest or {}).get("spec_digest", "")).encode(), digest_size=KEY_BYTES).digest()
        )
        self._path = path
        self._is_cut_off = False
        self.damaged = 0
        if path is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # lives as long as the run
            self._descriptor = self._file.fileno()
            self._end = 0
        else:
            self.damaged = _unpack(path)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            open_file(path).close()  # a FIFO or a device would be read for ever
            self._end = self._load()
        self._earlier = _Earlier(self._index)
        self._clock = _Clock(self._descriptor) if path is not None else None
        if path is not None and self._end == 0:
            self._write(header(manifest or {}))
            sync_folder(path.parent)  # a new file: its content is synced by the clock, its name is not

    @property
    def own(self) -> "Journal":
        return self

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, key: bytes) -> bool:
        return self._index.get(key) is not None

    def get(self, key: bytes) -> Response | None:
        """The response that was given to this key, if one was."""
        offset = self._index.get(key)
        if offset is None:
            return None
        try:
            entry = orjson.loads(self._line(offset))
        except ValueError:
            if not self.loss:
                raise
            return None  # somebody cut it off
        return _read(entry) if entry["k"] == key.hex() else None

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Response]:
        """The responses that were given to these keys, of those that were."""
        found: dict[bytes, Response] = {}
        for key in self._index.among(keys):
            response = self.get(key)
            if response is not None:
                found[key] = response
        return found

    def add(self, answered: Iterable[tuple[bytes, Response]], role: str = "model") -> None:
        """Write responses down, all in one write: from then on they survive the end of this process."""
        who = b"" if role == "model" else b',"m":%s' % orjson.dumps(role)
        lines, offsets, offset = [], dict[bytes, int](), self._end
        crc32, dumps = zlib.crc32, orjson.dumps
        for key, response in answered:
            if (
                type(response) is Likelihood and response[2:] == NOTHING_MORE
            ):  # as most are: `to_line`, without a call for each
                written = b'"r":' + dumps(response[:2])
            else:
                written = to_line(response)
            inside = b'{"k":"%s",%s%s' % (hexlify(key), written, who)
            line = b'%s,"c":"%08x"}\n' % (inside, crc32(inside))  # `sealed`, without a call for every response
            if not isinstance(response, Failed):
                offsets[key] = offset
            lines.append(line)
            offset += len(line)
        self._index.put_all(offsets)
        self._write(b"".join(lines))

    @property
    def loss(self) -> str:
        """What somebody did to the file while it was written: `removed`, `replaced` or `cut off`; empty if nothing."""
        if self._path is None:
            return ""
        try:
            there = self._path.stat()
        except OSError:
            return "removed"
        own = os.fstat(self._descriptor)
        if (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino):
            return "replaced"
        return "cut off" if self._is_cut_off or own.st_size < self._end else ""

    def _write(self, data: bytes) -> None:
        self._is_cut_off = self._is_cut_off or os.fstat(self._descriptor).st_size < self._end
        written = 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], self._end + written)
        self._end += len(data)
        if self._clock is not None:
            self._clock.wrote()

    def add_lines(self, entries: Iterable[JournalLine]) -> None:
        """Copy the lines of another journal; existing answers stay. Failures are copied into a new journal only."""
        block: list[bytes] = []
        size = 0
        for line in entries:
            self.damaged += line.lost
            key = _answered(line.entry)
            if key is not None and key not in self:
                self._index.put(key, self._end + size)
            elif key is not None or self._earlier or not _is_failure(line.entry):
                continue
            block.append(line.text)
            size += len(line.text)
            if size > _BLOCK:
                self._write(b"".join(block))
                block, size = [], 0
        self._write(b"".join(block))

    def announce(self, key: bytes, identity: Sequence[str | int]) -> None:
        """Write down that a tool call begins; `sync_intents` makes sure of it."""
        if self._path is not None:
            own = self._own(key)
            self._put(self._begun, own, orjson.dumps({INTENT: own.hex(), "call": identity})[:-1])

    def withdraw(self, key: bytes) -> None:
        """Write down that an announced tool call was not begun."""
        if self._path is not None:
            own = self._own(key)
            self._put(self._begun, own, orjson.dumps({INTENT: own.hex(), "withdrawn": True})[:-1])

    def sync_intents(self) -> None:
        """Sync what was announced: a tool runs only when its intent is on the disk."""
        if self._path is not None:
            self.sync()

    def has_begun(self, key: bytes) -> bool:
        """Whether a tool call was announced, and not withdrawn."""
        offset = self._begun.get(self._own(key))
        return offset is not None and "withdrawn" not in orjson.loads(self._line(offset))

    def calls_in_doubt(self) -> list[Sequence[str | int]]:
        """The identities of tool calls that were begun and have no result, in the order of the journal."""
        begun = (orjson.loads(self._line(offset)) for offset in sorted(self._begun.offsets()))
        open_calls = (entry for entry in begun if self._done.get(bytes.fromhex(entry[INTENT])) is None)
        return [entry["call"] for entry in open_calls if "withdrawn" not in entry]

    def put_result(self, key: bytes, result: Returned) -> None:
        """Write down the result of a tool call."""
        if self._path is not None:
            own = self._own(key)
            self._put(self._done, own, orjson.dumps({DONE: own.hex(), **kept_result(result)})[:-1])

    def result(self, key: bytes) -> Returned | None:
        """The result of a tool call that was finished."""
        return self._finished(key, read_result)

    def put_record(self, key: bytes, outcome: Outcome, keys: Sequence[bytes]) -> Outcome:
        """Write down a finished record with the keys of its responses; returns it as it is read back."""
        kept = kept_record(outcome) if self._path is not None else None
        way = kept_way(outcome, keys) if kept is not None else None
        if kept is None or way is None:
            return outcome
        own = self._own(key)
        self._put(self._done, own, b'{"%s":"%s","record":%s,%s' % (DONE.encode(), own.hex().encode(), kept[0], way))
        return kept[1]

    def record(self, key: bytes) -> KeptRecord | None:
        """A finished record."""
        return self._finished(key, read_record)

    def _own(self, key: bytes) -> bytes:
        """The key of what is this run's alone: the requests in another run's records may differ."""
        return (int.from_bytes(key) ^ self._run).to_bytes(KEY_BYTES)

    def _finished(self, key: bytes, read: Callable[[JSONObject], T]) -> T | None:
        offset = self._done.get(self._own(key))
        entry = orjson.loads(self._line(offset)) if offset is not None else {}
        try:
            return read(entry) if entry.get(DONE) == self._own(key).hex() else None
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return None

    def _put(self, index: KeyIndex, key: bytes, inside: bytes) -> None:
        index.put(key, self._end)
        self._write(sealed(inside))

    def paid(self, *, unclaimed: bool = False) -> Iterator[tuple[str, Response]]:
        """The responses that earlier processes of this run were given, with the role that gave them, where they cost something; or
        those of them that were not claimed: they answer requests that were not needed this time."""
        for offset in self._earlier.unclaimed() if unclaimed else self._earlier.offsets:
            entry = orjson.loads(self._line(offset))
            if "u" in entry:
                yield entry.get("m", "model"), _read(entry)

    def earlier(self) -> Iterator[JournaledResponse]:
        """All responses that earlier processes of this run were given."""
        for offset in self._earlier.offsets:
            entry = orjson.loads(self._line(offset))
            yield JournaledResponse(bytes.fromhex(entry["k"]), entry.get("m", "model"), _read(entry))

    def claim(self, key: bytes) -> bool:
        """Whether a response was there when the journal was opened, and is claimed for the first time."""
        return self._earlier.claim(self._index.get(key))

    def sync(self) -> None:
        """Sync, so that what was written survives a power cut."""
        os.fsync(self._descriptor)

    def compress(self) -> None:
        """Make a long journal short: it is only read again when the run is."""
        if self._path is None or self._end < LONG:
            return
        with new_file(_packed(self._path)) as part, part.open("wb") as packed, self._path.open("rb") as plain:
            write_frames(plain, packed)
        self._path.unlink()

    def close(self) -> None:
        if self._clock is not None:
            self._clock.stop()
        os.close(self._descriptor) if not hasattr(self, "_file") else self._file.close()

    def _line(self, offset: int) -> bytes:
        data = os.pread(self._descriptor, _READ, offset)
        while b"\n" not in data:
            more = os.pread(self._descriptor, len(data) * 4, offset + len(data))
            if not more:
                break
            data += more
        return data.partition(b"\n")[0]

    def _load(self) -> int:
        """Find every whole line. A torn last one, of a process that was killed, is cut off; damaged ones are counted."""
        offset = 0
        with open(os.dup(self._descriptor), "rb") as file:  # noqa: PTH123  # by its handle
            for line in _entries((line for line in file if line.endswith(b"\n")), self._path):
                self.damaged += line.lost
                key = _answered(line.entry)
                if key is not None:
                    self._index.put(key, offset)
                elif line.entry is not None and (own := _own_key(line.entry)) is not None:
                    (self._begun if INTENT in line.entry else self._done).put(own, offset)
                offset += len(line.text)
        os.ftruncate(self._descriptor, offset)
        if self.damaged:
            what = "1 damaged line was" if self.damaged == 1 else f"{self.damaged} damaged lines were"
            logging.getLogger("assay").warning(
                "%s: %s ignored; requests without an answer are sent again", self._path, what
            )
        return offset


class _Earlier:
    """The responses that were there when a journal was opened, each of which is claimed once."""

    def __init__(self, index: KeyIndex) -> None:
        self.offsets = array("Q", sorted(index.offsets()))
        self._is_claimed = bytearray(len(self.offsets))

    def __bool__(self) -> bool:
        return bool(self.offsets)

    def unclaimed(self) -> Iterator[int]:
        return (offset for offset, was in zip(self.offsets, self._is_claimed, strict=True) if not was)

    def claim(self, offset: int | None) -> bool:
        if offset is None or not self.offsets or offset > self.offsets[-1]:
            return False
        number = bisect_left(self.offsets, offset)
        was, self._is_claimed[number] = self._is_claimed[number], 1
        return not was


class _Clock(threading.Thread):
    """Syncs a file twice a second while something is written to it."""

    def __init__(self, handle: int) -> None:
        super().__init__(name="journal", daemon=True)
        self._descriptor, self._stopped, self._is_dirty = handle, threading.Event(), False
        self._error: OSError | None = None

    def wrote(self) -> None:
        """Something was written; raises what syncing met."""
        if self._error is not None:
            raise self._error
        self._is_dirty = True
        if not self.is_alive() and not self._stopped.is_set():
            self.start()

    def run(self) -> None:
        while not self._stopped.wait(SYNC_SECONDS):
            if self._is_dirty and self._error is None:
                self._is_dirty = False
                try:
                    os.fsync(self._descriptor)
                except OSError as error:
                    self._error = error

    def stop(self) -> None:
        self._stopped.set()
        if self.is_alive():
            self.join()


def header(manifest: JSONObject) -> bytes:
    """The first line of a journal."""
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    return sealed(b'{"format":%d,"manifest":%s' % (FORMAT, orjson.dumps(manifest, default=str, option=options)))


def read_header(path: Path) -> JSONObject | None:
    """The manifest that a run began with, from its journal, compressed or not; None where it has none."""
    first = next(iter(lines(path)), None)
    manifest = first.entry.get("manifest") if first is not None and first.entry is not None else None
    return manifest if isinstance(manifest, dict) and manifest else None


def responses(path: Path) -> Iterator[JournaledResponse]:
    """Every response of a journal in the order it came, failures included; damaged lines are left out."""
    for line in lines(path):
        key = _key(line.entry) if line.entry is not None and "format" not in line.entry else None
        if line.entry is not None and key is not None:
            yield JournaledResponse(key, line.entry.get("m", "model"), _read(line.entry))


def sealed(inside: bytes) -> bytes:
    """A line of an object without its end, with its checksum."""
    return b'%s,"c":"%08x"}\n' % (inside, zlib.crc32(inside))


def is_intact(line: bytes) -> bool:
    """Whether a line has a checksum, and it is right."""
    return line[-_SEAL:] == b',"c":"%08x"}\n' % zlib.crc32(line[:-_SEAL])


def lines(path: Path) -> Iterator[JournalLine]:
    """The whole lines of a journal, compressed or not."""
    if path.exists():
        with open_file(path) as plain:
            yield from _entries((line for line in plain if line.endswith(b"\n")), path)
    elif _packed(path).exists():
        yield from _entries(read_frames(_packed(path)), path)


def _entries(texts: Iterable[bytes | int], path: Path | None) -> Iterator[JournalLine]:
    """Parse lines; a header of another format is a JournalError."""
    for number, text in enumerate(texts):
        if isinstance(text, int):
            yield JournalLine(b"", None, text)
            continue
        entry = _entry(text)
        if number == 0 and entry is not None and (what := other_format(entry)):
            raise JournalError.at(str(path), what, "use the version of assay that wrote it")
        yield JournalLine(text, entry, lost=int(entry is None))


def _entry(line: bytes) -> JSONObject | None:
    """What a line holds; None where it is damaged."""
    if not is_intact(line):
        return None
    try:
        entry = orjson.loads(line)
    except ValueError:
        return None
    if not isinstance(entry, dict):
        return None
    is_known = "format" in entry or INTENT in entry or DONE in entry or _key(entry) is not None
    return entry if is_known else None


def _key(entry: JSONObject) -> bytes | None:
    """The key of an entry that holds a response of any kind."""
    try:
        _read(entry)
        key = bytes.fromhex(entry["k"])
        return key if len(key) == KEY_BYTES and isinstance(entry.get("m", "model"), str) else None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None


def _own_key(entry: JSONObject) -> bytes | None:
    """The key of an intent, of the result of a tool, or of a finished record."""
    try:
        key = bytes.fromhex(entry.get(INTENT, entry.get(DONE)))
        return key if len(key) == KEY_BYTES else None
    except (ValueError, TypeError):
        return None


def _answered(entry: JSONObject | None) -> bytes | None:
    """The key of an entry that holds an answer."""
    return None if entry is None or "format" in entry or _is_failure(entry) else _key(entry)


def _is_failure(entry: JSONObject | None) -> bool:
    return entry is not None and "r" in entry and isinstance(_response(entry["r"]), Failed)


def _packed(path: Path) -> Path:
    return path.with_name(f"{path.name}.zst")


def _unpack(path: Path) -> int:
    """Put a compressed journal back as it was; the number of lines that are lost."""
    if path.exists() or not _packed(path).exists():
        return 0
    lost = 0
    with new_file(path) as part, part.open("wb") as plain:
        for line in read_frames(_packed(path)):
            if isinstance(line, int):
                lost += line
            else:
                plain.write(line)
    _packed(path).unlink()
    sync_folder(path.parent)
    return lost


def to_line(response: Response) -> bytes:
    """A response and what it took, as the inside of a JSON object."""
    plain = b'"r":%s' % orjson.dumps(_plain(response))
    if isinstance(response, Failed):
        return plain
    if isinstance(response, Text | Likelihood) and response.model:
        plain = b'%s,"by":%s' % (plain, orjson.dumps(response.model))
    if response.usage is None:
        return plain
    return b'%s,"u":%s' % (plain, orjson.dumps(tuple(response.usage)))


def from_line(inside: bytes) -> Response:
    """The response that was written so; a ValueError where none can have been."""
    entry = orjson.loads(b"{%s}" % inside)
    if "r" not in entry:
        raise ValueError(UNREADABLE)
    return _read(entry)


def _read(entry: JSONObject) -> Response:
    response = _response(entry["r"])
    if isinstance(response, Failed):
        return response
    if "by" in entry:
        if not isinstance(entry["by"], str) or not isinstance(response, Text | Likelihood):
            raise ValueError(UNREADABLE)
        response = response._replace(model=entry["by"])
    return response._replace(usage=_usage(entry["u"])) if "u" in entry else response


def _usage(plain: AnyJSON) -> Usage:
    """The usage that was written so: counts and seconds, none of them below 0; a ValueError where none can have been."""
    if not isinstance(plain, list) or not 1 <= len(plain) <= _PARTS or not _NUMBERS.issuperset(map(type, plain)):
        raise ValueError(UNREADABLE)
    if min(plain) < 0 or max(plain) > MOST_TOKENS:
        raise ValueError(UNREADABLE)
    return Usage(*plain)


def _plain(response: Response) -> AnyJSON:
    if isinstance(response, Likelihood):
        return (response.value, response.greedy, *((True,) if response.is_bound else ()))
    if isinstance(response, Text):
        more = {"finish": response.finish, "reasoning": response.reasoning, "calls": list(response.calls)}
        return {"text": response.text, **{name: value for name, value in more.items() if value}}
    assert isinstance(response, Failed), "nothing else is written down"
    return {"failed": response.reason}


def _response(plain: AnyJSON) -> Response:
    """The response that was written so; a ValueError where none can have been."""
    match plain:
        case [float() | int() as value, bool() as greedy] if not isinstance(value, bool):
            return Likelihood(value, greedy)
        case [float() | int() as value, bool() as greedy, True] if not isinstance(value, bool):
            return Likelihood(value, greedy, is_bound=True)
        case [None, bool() as greedy]:  # minus infinity: JSON has no word for it
            return Likelihood(-math.inf, greedy)
        case {"text": str() as text}:
            finish, reasoning, calls = plain.get("finish"), plain.get("reasoning"), plain.get("calls")
            if not (_is_text(finish) and _is_text(reasoning) and (calls is None or _are_calls(calls))):
                raise ValueError(UNREADABLE)
            return Text(text, finish, reasoning, calls=calls or ())
        case {"failed": str() as reason}:
            return Failed(reason)
    raise ValueError(UNREADABLE)


def _is_text(plain: AnyJSON) -> bool:
    return plain is None or isinstance(plain, str)


def _are_calls(plain: AnyJSON) -> bool:
    return isinstance(plain, list) and all(isinstance(call, dict) for call in plain)
