"""What can be made again and is kept meanwhile: files whose head says what they are good for. No pickle, no locks."""

import contextlib
import os
from pathlib import Path

from assay.config.source import digest

FOLDER_VARIABLE = "ASSAY_CACHE_DIR"


def cache_folder() -> Path:
    """Where assay keeps what it can make again: $ASSAY_CACHE_DIR, else the system's place for caches."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("assay", appauthor=False)


def recall(name: str, stamp: str) -> bytes | None:
    """What was kept under a name, if it is whole and its stamp is still this one."""
    try:
        head, _, body = (cache_folder() / "catalog" / name).read_bytes().partition(b"\n")
    except OSError:
        return None
    return body if head == _head(body, stamp) else None


def keep(name: str, stamp: str, body: bytes) -> None:
    """Keep something, in one move: another process sees what was there before or what is there now, never a half."""
    from tempfile import mkstemp

    target = cache_folder() / "catalog" / name
    temporary = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = mkstemp(dir=target.parent, prefix=name)
        with os.fdopen(handle, "wb") as file:
            file.write(_head(body, stamp) + b"\n" + body)
        Path(temporary).replace(target)
    except OSError:
        # No room or no permission: the next process makes it again. That costs a little time, and loses nothing.
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


def stamp_of(*folders: str) -> str:
    """A text that changes when something in these folders is added, removed or written; or, of a file, when it is."""
    seen = []
    for folder in folders:
        try:
            status = os.stat(folder)  # noqa: PTH116  # on the way of every command
        except OSError:
            continue
        seen.append((folder, status.st_mtime_ns, status.st_size))
    return digest(repr(seen).encode())


def _head(body: bytes, stamp: str) -> bytes:
    return f"assay catalog {stamp} {digest(body)}".encode()
