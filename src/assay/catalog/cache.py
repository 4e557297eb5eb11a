"""Files that can be rebuilt, cached with a header that shows whether they are still valid. No pickle, no locks."""

import contextlib
import os
from pathlib import Path

from assay.config.folders import cache_folder
from assay.config.source import digest


def read_cached(name: str, stamp: str) -> bytes | None:
    """Read a cached file; None where it is damaged or its stamp has changed."""
    try:
        head, _, body = (cache_folder() / "catalog" / name).read_bytes().partition(b"\n")
    except OSError:
        return None
    return body if head == _header(body, stamp) else None


def write_cached(name: str, stamp: str, body: bytes) -> None:
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
    except OSError:
        # No room or no permission: the next process makes it again. That costs a little time, and loses nothing.
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


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
