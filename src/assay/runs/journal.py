"""Every response, written down as it comes: one line of JSON, appended and never changed.

A key finds its line again. What was answered is not asked again: not in this run, not after it was killed. A line that
cannot have been written so counts for nothing: its request is asked again.
"""

import logging
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from assay.records import MOST_TOKENS, Failed, Likelihood, Response, Text, Usage

NAME = "responses.jsonl"
LONG = 16 * 2**20
"""From this size on, the journal of a finished run is kept compressed."""
UNREADABLE = "no response is written like this"
_NUMBERS, _PARTS = frozenset((int, float)), len(Usage._fields)
_READ = 4096
_BLOCK = 1 << 20


class Journal:
    """Responses by key, in a file. Without a path it is a file without a name, gone with the process.

    Failures are written down, too, and asked again the next time: only answers are found by their key.
    """

    def __init__(self, path: Path | None) -> None:
        self._offsets: dict[bytes, int] = {}
        self._path = path
        if path is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # lives as long as the run
            self._handle = self._file.fileno()
            self._end = 0
        else:
            _unpack(path)
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            self._end = self._load()
        self._earlier = set(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, key: bytes) -> bool:
        return key in self._offsets

    def get(self, key: bytes) -> Response | None:
        """The response that was given to this key, if one was."""
        offset = self._offsets.get(key)
        return None if offset is None else _read(orjson.loads(self._line(offset)))

    def add(self, answered: Iterable[tuple[bytes, Response]], role: str = "model") -> None:
        """Write responses down, all in one write: from then on they survive the end of this process."""
        who = b"" if role == "model" else b',"m":%s' % orjson.dumps(role)
        lines, offset = [], self._end
        for key, response in answered:
            line = b'{"k":"%s",%s%s}\n' % (key.hex().encode(), to_line(response), who)
            if not isinstance(response, Failed):
                self._offsets[key] = offset
            lines.append(line)
            offset += len(line)
        self._write(b"".join(lines))

    def _write(self, data: bytes) -> None:
        written = 0
        while written < len(data):
            written += os.pwrite(self._handle, data[written:], self._end + written)
        self._end += len(data)

    def add_lines(self, several: Iterable[bytes]) -> None:
        """Take over another journal, as it is written; answers that are here already stay. Failures come into a new one only."""
        block: list[bytes] = []
        size = 0
        for line in several:
            key = _answered(line)
            if key is not None and key not in self._offsets:
                self._offsets[key] = self._end + size
            elif key is not None or self._earlier or not _is_failure(line):
                continue
            block.append(line)
            size += len(line)
            if size > _BLOCK:
                self._write(b"".join(block))
                block, size = [], 0
        self._write(b"".join(block))

    def paid(self) -> Iterator[tuple[str, Response]]:
        """The responses that earlier processes of this run were given, with the role that gave them, where they cost something."""
        for key in self._earlier:
            entry = orjson.loads(self._line(self._offsets[key]))
            if "u" in entry:
                yield entry.get("m", "model"), _read(entry)

    def claim(self, key: bytes) -> bool:
        """Whether a response was there when the journal was opened, and is asked about for the first time."""
        found = key in self._earlier
        self._earlier.discard(key)
        return found

    def sync(self) -> None:
        """See to it that what was written survives the end of this machine, too."""
        os.fsync(self._handle)

    def compress(self) -> None:
        """Make a long journal short: it is only read again when the run is."""
        if self._path is None or self._end < LONG:
            return
        import pyarrow as pa

        part = self._path.with_name(f".{NAME}.zst.part")
        with pa.CompressedOutputStream(str(part), "zstd") as packed, self._path.open("rb") as plain:
            while block := plain.read(1 << 20):
                packed.write(block)
        part.replace(_packed(self._path))
        self._path.unlink()

    def close(self) -> None:
        os.close(self._handle) if not hasattr(self, "_file") else self._file.close()

    def _line(self, offset: int) -> bytes:
        data = os.pread(self._handle, _READ, offset)
        while b"\n" not in data:
            more = os.pread(self._handle, len(data) * 4, offset + len(data))
            if not more:
                break
            data += more
        return data.partition(b"\n")[0]

    def _load(self) -> int:
        """Find every whole line. A torn last one, of a process that was killed, is cut off; a damaged one counts for nothing."""
        offset = damaged = 0
        with open(os.dup(self._handle), "rb") as lines:  # noqa: PTH123  # by its handle
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                key = _answered(line)
                if key is not None:
                    self._offsets[key] = offset
                elif not _is_failure(line):
                    damaged += 1
                offset += len(line)
        if damaged:
            what = "1 damaged line was" if damaged == 1 else f"{damaged} damaged lines were"
            logging.getLogger("assay").warning(
                "%s: %s ignored; requests without an answer are asked again", self._path, what
            )
        os.ftruncate(self._handle, offset)
        return offset


def _answered(line: bytes) -> bytes | None:
    """The key of a line that holds an answer which can be read in all its parts."""
    try:
        entry = orjson.loads(line)
        is_ours = isinstance(entry.get("m", "model"), str)
        return None if not is_ours or isinstance(_read(entry), Failed) else bytes.fromhex(entry["k"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None


def _is_failure(line: bytes) -> bool:
    try:
        return isinstance(_response(orjson.loads(line)["r"]), Failed)
    except (ValueError, KeyError, TypeError):
        return False


def lines(path: Path) -> Iterator[bytes]:
    """The whole lines of a journal, compressed or not."""
    if path.exists():
        with path.open("rb") as plain:
            yield from (line for line in plain if line.endswith(b"\n"))
    elif _packed(path).exists():
        import pyarrow as pa

        with pa.input_stream(str(_packed(path)), compression="zstd") as packed:
            rest = b""
            while block := packed.read(_BLOCK):
                *whole, rest = (rest + block).split(b"\n")
                yield from (line + b"\n" for line in whole)


def _packed(path: Path) -> Path:
    return path.with_name(f"{path.name}.zst")


def _unpack(path: Path) -> None:
    """Put a compressed journal back as it was."""
    if path.exists() or not _packed(path).exists():
        return
    import pyarrow as pa

    part = path.with_name(f".{NAME}.part")
    with pa.input_stream(str(_packed(path)), compression="zstd") as packed, part.open("wb") as plain:
        while block := packed.read(1 << 20):
            plain.write(block)
    part.replace(path)
    _packed(path).unlink()


def to_line(response: Response) -> bytes:
    """A response and what it took, as the inside of a JSON object."""
    plain = b'"r":%s' % orjson.dumps(_plain(response))
    if isinstance(response, Failed) or response.usage is None:
        return plain
    return b'%s,"u":%s' % (plain, orjson.dumps(tuple(response.usage)))


def from_line(inside: bytes) -> Response:
    """The response that was written so; a ValueError where none can have been."""
    entry = orjson.loads(b"{%s}" % inside)
    if "r" not in entry:
        raise ValueError(UNREADABLE)
    return _read(entry)


def _read(entry: Mapping[str, Any]) -> Response:
    response = _response(entry["r"])
    if isinstance(response, Failed) or "u" not in entry:
        return response
    return response._replace(usage=_usage(entry["u"]))


def _usage(plain: Any) -> Usage:
    """The usage that was written so: counts and seconds, none of them below 0; a ValueError where none can have been."""
    if not isinstance(plain, list) or not 1 <= len(plain) <= _PARTS or not _NUMBERS.issuperset(map(type, plain)):
        raise ValueError(UNREADABLE)
    if min(plain) < 0 or max(plain) > MOST_TOKENS:
        raise ValueError(UNREADABLE)
    return Usage(*plain)


def _plain(response: Response) -> Any:
    if isinstance(response, Likelihood):
        return (response.value, response.greedy)
    if isinstance(response, Text):
        more = {"finish": response.finish, "reasoning": response.reasoning, "calls": list(response.calls)}
        return {"text": response.text, **{name: value for name, value in more.items() if value}}
    assert isinstance(response, Failed), "nothing else is written down"
    return {"failed": response.reason}


def _response(plain: Any) -> Response:
    """The response that was written so; a ValueError where none can have been."""
    match plain:
        case [float() | int() as value, bool() as greedy] if not isinstance(value, bool):
            return Likelihood(value, greedy)
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


def _is_text(plain: Any) -> bool:
    return plain is None or isinstance(plain, str)


def _are_calls(plain: Any) -> bool:
    return isinstance(plain, list) and all(isinstance(call, dict) for call in plain)
