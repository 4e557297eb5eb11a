"""A checksum over a whole Parquet file, inside of it: pages have their own, headers of pages and the footer have none.

It is the CRC32 of all bytes, written as eight digits into the key-value metadata, which count as zeros.
"""

import os
import zlib
from pathlib import Path

CHECKSUM_KEY, NO_CHECKSUM = "assay.crc32", "crc32:00000000"
DIGITS = 8
BLOCK = 1 << 20
_MARK = NO_CHECKSUM[:-DIGITS].encode()
_known: dict[tuple[str, int, int, int], None] = {}
"""Files that were found whole, as long as they do not change: a server reads them again and again."""
REMEMBERED = 10_000


def write_checksum(path: Path) -> None:
    """Put the checksum into a file that was written with KEY: UNSEALED in its metadata."""
    at = _digits_at(path)
    assert at is not None, "the file has no place for a checksum"
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"%08x" % _crc(path, at))


def verify_checksum(path: Path) -> bool:
    """Whether a file has a checksum. One that does not match what is in the file is a ValueError."""
    state = path.stat()
    key = (os.fspath(path), state.st_mtime_ns, state.st_size, state.st_ino)
    if key in _known:
        return True
    at = _digits_at(path)
    if at is None:
        return False
    with path.open("rb") as file:
        file.seek(at)
        written = file.read(DIGITS)
    if written != b"%08x" % _crc(path, at):
        raise ValueError("its content does not match its checksum")
    while len(_known) >= REMEMBERED:
        _known.pop(next(iter(_known)))
    _known[key] = None
    return True


def _digits_at(path: Path) -> int | None:
    """Where the digits are: the last place in the footer that looks so."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 8, 0))
        length = int.from_bytes(file.read(4), "little") + 8
        start = max(size - length, 0)
        file.seek(start)
        found = file.read().rfind(_MARK)
    return start + found + len(_MARK) if found >= 0 else None


def _crc(path: Path, at: int) -> int:
    """The checksum of a file with zeros in place of the digits."""
    with path.open("rb") as file:
        found, left = 0, at
        while left and (block := file.read(min(BLOCK, left))):
            found, left = zlib.crc32(block, found), left - len(block)
        found = zlib.crc32(b"0" * DIGITS, found)
        file.seek(at + DIGITS)
        while block := file.read(BLOCK):
            found = zlib.crc32(block, found)
    return found
