"""Compressed lines in independent, checksummed zstd frames: damage to one frame loses its lines and no others.

The file is ordinary zstd (`zstd -d` reads it). Before each frame of lines there is a skippable frame with the number of
lines, the length of the next frame, its CRC32, and a CRC32 of these three.
"""

import mmap
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from assay.runs.files import open_file

BLOCK = 1 << 20
"""Bytes of lines in a frame, about."""
MAX_LINES = 1 << 28
"""Uncompressed bytes of a frame; one that claims more is damaged."""
_MAGIC = struct.pack("<II", 0x184D2A50, 20)
_HEAD = struct.Struct("<8sIIIII")  # magic, lines, compressed bytes, plain bytes, CRC32 of the frame, CRC32 of the head


def write_frames(lines: Iterable[bytes], file: BinaryIO) -> None:
    """Write whole lines as frames."""
    block: list[bytes] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size >= BLOCK:
            file.write(_frame(block))
            block, size = [], 0
    if block:
        file.write(_frame(block))


def read_frames(path: Path) -> Iterator[bytes | int]:
    """The lines of a file; in place of a damaged frame the number of lines it had (1 where that is not known, either)."""
    if not path.stat().st_size:
        return  # an empty file cannot be mapped
    with open_file(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = 0
        while at < len(data):
            head = _head(data[at : at + _HEAD.size])
            if head is None:
                yield 1
                at = _next(data, at + 1)
                continue
            lines, size, plain, crc = head
            frame = data[at + _HEAD.size : at + _HEAD.size + size]
            if len(frame) == size and zlib.crc32(frame) == crc:
                yield from _unpacked(frame, plain).splitlines(keepends=True)
            else:
                yield lines
            at += _HEAD.size + size


def _frame(block: list[bytes]) -> bytes:
    import pyarrow as pa

    plain = b"".join(block)
    packed: bytes = pa.Codec("zstd").compress(plain, asbytes=True)
    head = _HEAD.pack(_MAGIC, len(block), len(packed), len(plain), zlib.crc32(packed), 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(head)) + packed


def _head(data: bytes) -> tuple[int, int, int, int] | None:
    if len(data) < _HEAD.size:
        return None
    magic, lines, size, plain, crc, own = _HEAD.unpack(data)
    is_whole = magic == _MAGIC and zlib.crc32(data[:-4]) == own and plain <= MAX_LINES
    return (lines, size, plain, crc) if is_whole else None


def _next(data: mmap.mmap, start: int) -> int:
    """Where the next undamaged head begins; the end where there is none."""
    at = data.find(_MAGIC, start)
    while at >= 0 and _head(data[at : at + _HEAD.size]) is None:
        at = data.find(_MAGIC, at + 1)
    return at if at >= 0 else len(data)


def _unpacked(frame: bytes, size: int) -> bytes:
    import pyarrow as pa

    plain: bytes = pa.Codec("zstd").decompress(frame, decompressed_size=size, asbytes=True)
    return plain
