"""The index of a root on disk, so that it is built once. Whatever is wrong with it, it is only built again."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.catalog.entries import Entry
from assay.catalog.roots import Root
from assay.catalog.scan import Stamp
from assay.config.source import digest

FOLDER_VARIABLE = "ASSAY_CACHE_DIR"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The index of one root as it was: its files with stamp and digest, and what was known of each."""

    stamps: Mapping[str, Stamp]
    digests: Mapping[str, str]
    entries: tuple[Entry, ...]


def cache_folder() -> Path:
    """Where assay keeps what it can make again: $ASSAY_CACHE_DIR, else the system's place for caches."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("assay", appauthor=False)


def load(root: Root) -> Snapshot | None:
    """The snapshot of a root, or None where there is none that can be trusted."""
    try:
        head, _, body = _file(root).read_bytes().partition(b"\n")
        if head.decode() != _head(body):
            return None
        return _unpack(json.loads(body))
    except (OSError, ValueError):
        return None


def save(root: Root, snapshot: Snapshot) -> None:
    """Write the snapshot in one move, so that another process sees the old one or the new one, never half of it."""
    body = json.dumps(_pack(snapshot), separators=(",", ":")).encode()
    target = _file(root)
    temporary = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name)
        with os.fdopen(handle, "wb") as file:
            file.write(_head(body).encode() + b"\n" + body)
        Path(temporary).replace(target)
    except OSError:
        # No room or no permission: the next process builds the index again. That costs seconds, and loses nothing.
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


def _file(root: Root) -> Path:
    identity = json.dumps([root.path, root.lenient, root.deep])
    return cache_folder() / "catalog" / f"{digest(identity.encode())}.json"


def _head(body: bytes) -> str:
    return f"assay catalog {_code_stamp()} {digest(body)}"


def _code_stamp() -> str:
    """Changes whenever the code that makes or judges entries changes, so that no index outlives its rules."""
    here = Path(__file__).parent
    return digest(
        repr([_stat(path) for folder in (here, here.parent / "config") for path in _modules(folder)]).encode()
    )


def _modules(folder: Path) -> Iterable[str]:
    return sorted(entry.path for entry in os.scandir(folder) if entry.name.endswith(".py"))


def _stat(path: str) -> tuple[str, int, int]:
    status = os.stat(path)  # noqa: PTH116  # on the path of every command
    return path, status.st_size, status.st_mtime_ns


def _pack(snapshot: Snapshot) -> list[object]:
    paths = list(snapshot.stamps)
    number = {path: index for index, path in enumerate(paths)}
    rows = [
        [e.kind, e.name, number[e.path], [number[f] for f in e.files], e.tags, e.members, e.output_type, e.error]
        for e in snapshot.entries
    ]
    sizes, times = zip(*snapshot.stamps.values(), strict=True) if paths else ((), ())
    return [paths, sizes, times, [snapshot.digests.get(path, "") for path in paths], rows]


def _unpack(packed: list[list[object]]) -> Snapshot:
    paths, sizes, times, digests, rows = packed
    entries = tuple(
        Entry(kind, name, paths[at], tuple([paths[f] for f in files]), tuple(tags), tuple(members), output_type, error)  # type: ignore
        for kind, name, at, files, tags, members, output_type, error in rows
    )
    stamps = dict(zip(paths, zip(sizes, times, strict=True), strict=True))
    return Snapshot(stamps, dict(zip(paths, digests, strict=True)), entries)  # type: ignore[arg-type]
