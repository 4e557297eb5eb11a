"""Reads Inspect's log files: a zip of header.json, samples/*.json, summaries.json …, or one JSON text; without inspect_ai."""

import io
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from assay.records import AnyJSON, JSONDict, JSONObject
from assay.runs.folder import RunError

ZSTD = 93
"""How Inspect packs members; Python's own zipfile learns it with 3.14."""
LARGEST = 2**30
"""Bytes of a member that are read: what is packed small may be large."""
FIX = "give a log that `inspect eval` wrote: a .eval or .json file"


@dataclass(frozen=True)
class InspectLog:
    """A log: its header, and its samples one after the other, all epochs of one together."""

    path: Path
    header: Mapping[str, Any]
    reductions: list[Mapping[str, Any]]

    def samples(self) -> Iterator[list[JSONObject]]:
        """The epochs of each sample, in the order of the data set: none of one that is not in the log."""
        if self.path.suffix == ".json":
            yield from _grouped(self.sample_ids, _parsed(self.path, self.path.read_bytes()).get("samples") or ())
            return
        with zipfile.ZipFile(self.path) as file:
            named: dict[str, list[str]] = {f"samples/{each}": [] for each in self.sample_ids}
            for name in file.namelist():
                if name.startswith("samples/") and name.endswith(".json"):
                    named.setdefault(name.rpartition("_epoch_")[0], []).append(name)
            for names in named.values():
                epochs = [_parsed(self.path, member(file, each)) for each in names]
                yield sorted((with_attachments(each) for each in epochs), key=lambda each: each.get("epoch", 1))

    @property
    def sample_ids(self) -> list[AnyJSON]:
        """The ids of the expected samples, each once; empty where the log does not list them."""
        ids = {str(each): each for each in (self.header["eval"].get("dataset") or {}).get("sample_ids") or ()}
        return list(ids.values())


def read_log(path: Path) -> InspectLog:
    """Read a log and its header; refuse a file that is not a log, or not finished."""
    try:
        if path.suffix == ".json":
            header = dict(_parsed(path, path.read_bytes()))
            reductions = header.pop("reductions", None) or []
        else:
            with zipfile.ZipFile(path) as file:
                names = file.namelist()
                if "header.json" not in names:
                    what = (
                        "the evaluation has not finished" if "_journal/start.json" in names else "is not an Inspect log"
                    )
                    raise RunError.at(path, what, FIX)
                header = _parsed(path, member(file, "header.json"))
                has = "reductions.json" in names
                reductions = orjson.loads(finite(member(file, "reductions.json"))) if has else []
    except (zipfile.BadZipFile, UnicodeError):  # a damaged list of its files
        raise RunError.at(path, "is not an Inspect log", FIX) from None
    if not isinstance(header.get("eval"), dict) or not header["eval"].get("task"):
        raise RunError.at(path, "is not an Inspect log", FIX)
    return InspectLog(path, header, reductions)


def member(file: zipfile.ZipFile, name: str) -> bytes:
    """A member of an archive, whichever way it is packed."""
    known = file.getinfo(name)
    if known.file_size > LARGEST:
        what = f"{name} has {known.file_size:,} bytes, too many for a sample"
        raise RunError.at(str(file.filename), what, FIX)
    try:
        return file.read(name) if known.compress_type != ZSTD else _unpacked(file, known)
    except (
        zipfile.BadZipFile,
        UnicodeError,
        zlib.error,
        struct.error,
        EOFError,
        OSError,
        NotImplementedError,
        RuntimeError,  # it needs a password
    ) as error:
        what = f"{name} is damaged, or compressed with an unsupported method: {error}"
        raise RunError.at(str(file.filename), what, FIX) from None


def _unpacked(file: zipfile.ZipFile, known: zipfile.ZipInfo) -> bytes:
    """A member that is packed with zstd."""
    import pyarrow as pa

    assert file.fp is not None
    file.fp.seek(known.header_offset)
    name_length, extra_length = struct.unpack("<26x2H", file.fp.read(30))
    file.fp.seek(known.header_offset + 30 + name_length + extra_length)
    packed = file.fp.read(known.compress_size)
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        content = bytes(stream.read(known.file_size))  # and not more: a zip bomb stops here
    if zlib.crc32(content) != known.CRC:
        raise zipfile.BadZipFile("its checksum does not match")
    return content


def with_attachments(sample: JSONObject) -> JSONObject:
    """Return a sample with its attachments in place."""
    apart = sample.get("attachments") or {}
    if not apart:
        return sample

    def placed(value: AnyJSON) -> AnyJSON:
        if isinstance(value, str):
            return apart.get(value.removeprefix("attachment://"), value) if value.startswith("attachment://") else value
        if isinstance(value, Mapping):
            return {key: placed(each) for key, each in value.items()}
        return [placed(each) for each in value] if isinstance(value, list) else value

    return {key: value if key in ("events", "attachments") else placed(value) for key, value in sample.items()}


def finite(data: bytes) -> bytes:
    """Return valid JSON: Inspect writes NaN where there is no number, which only Python's reader accepts."""
    if b"NaN" not in data and b"Infinity" not in data:
        return data
    import json

    return json.dumps(json.load(io.BytesIO(data), parse_constant=lambda _: None)).encode()


def _parsed(path: Path, data: bytes) -> JSONDict:
    try:
        parsed = orjson.loads(finite(data))
    except ValueError as error:
        raise RunError.at(path, f"invalid JSON: {error}", FIX) from None
    if not isinstance(parsed, dict):
        raise RunError.at(path, "is not an Inspect log", FIX)
    return parsed


def _grouped(ids: Sequence[AnyJSON], samples: Iterable[JSONObject]) -> Iterator[list[JSONObject]]:
    by_id: dict[str, list[Mapping[str, Any]]] = {str(each): [] for each in ids}
    for sample in samples:
        by_id.setdefault(str(sample.get("id")), []).append(with_attachments(sample))
    for epochs in by_id.values():
        yield sorted(epochs, key=lambda each: each.get("epoch", 1))
