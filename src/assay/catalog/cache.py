"""Files that can be rebuilt, cached with a header that shows whether they are still valid. No pickle, no locks.

Environments, versions and folders share the cache without evicting each other's files: what a file depends on is in its name.
"""

import contextlib
import os
import time
from functools import cache
from pathlib import Path

from assay.config.folders import cache_folder
from assay.config.source import digest
from assay.version import __version__

MOST_FILES = 200
MOST_BYTES = 256 << 20
UNUSED_SECONDS = 30 * 86_400
"""Files of the cache that were not used for so long are removed, and the oldest beyond these limits."""
DAY = 86_400


def read_cached(name: str, stamp: str = "") -> bytes | None:
    """Read a cached file; None where it is damaged or its stamp has changed."""
    file = cache_folder() / "catalog" / name
    try:
        head, _, body = file.read_bytes().partition(b"\n")
        if time.time() - file.stat().st_mtime > DAY:
            os.utime(file)  # its time is that of its last use
    except OSError:
        return None
    return body if head == _header(body, stamp) else None


def write_cached(name: str, body: bytes, stamp: str = "") -> None:
    """Write a cached file atomically: another process sees the old or the new content, never a part."""
    from tempfile import mkstemp

    target = cache_folder() / "catalog" / name
    temporary = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = mkstemp(dir=target.parent, prefix=name)
        with os.fdopen(handle, "wb") as file:
            file.write(_header(body, stamp) + b"\n" + body)
        Path(temporary).replace(target)
        _remove_unused(target.parent)
    except OSError:
        # No room or no permission: the next process makes it again. That costs a little time, and loses nothing.
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


def _remove_unused(folder: Path) -> None:
    """Remove files that have not been used for long, and the least recently used beyond the limits."""
    with os.scandir(folder) as entries:
        known = sorted(((entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in entries), reverse=True)
    oldest, size = time.time() - UNUSED_SECONDS, 0
    for number, (used, length, path) in enumerate(known):
        size += length
        if used < oldest or number >= MOST_FILES or (size > MOST_BYTES and number > 0):
            with contextlib.suppress(OSError):  # another process has removed it
                Path(path).unlink()


@cache
def code_key(*folders: str) -> str:
    """The version with the content of the modules in these folders: the same in every environment that has both."""
    parts = [__version__.encode()]
    for folder in folders:
        for name in sorted(name for name in os.listdir(folder) if name.endswith(".py")):  # noqa: PTH208  # as below
            with open(f"{folder}/{name}", "rb") as file:  # noqa: PTH123  # on the way of every command: 0.4 ms in all
                parts += [name.encode(), file.read()]
    return digest(b"\0".join(parts))


def stamp_files(*folders: str) -> str:
    """Return a text that changes when one of these files is written, or an entry of these folders added or removed."""
    seen = []
    for folder in folders:
        try:
            status = os.stat(folder)  # noqa: PTH116  # on the way of every command
        except OSError:
            continue
        seen.append((folder, status.st_mtime_ns, status.st_size))
    return digest(repr(seen).encode())


def _header(body: bytes, stamp: str) -> bytes:
    return f"assay catalog {stamp} {digest(body)}".encode()
