"""What files lie in a folder, and whether they have changed."""

import os
import stat
from collections.abc import Iterable

from assay.catalog.roots import Root

Stamp = tuple[int, int]
"""Size and time of change: what tells, without reading, that a file is as it was."""

GONE: Stamp = (-1, 0)
"""The stamp of what is not there or is no regular file."""

_SKIPPED = ("__pycache__", "node_modules")


def scan(root: Root) -> dict[str, Stamp]:
    """Every file of a root whose name ends in yaml or yml, by path, with its stamp.

    Links to folders are followed after all real folders, and only to folders not met yet: they may form a loop.
    """
    found: dict[str, Stamp] = {}
    visited: list[str] = []
    waiting, links = [root.path], list[str]()
    met: set[tuple[int, int]] = set()
    while waiting or links:
        if not waiting:
            met.update(map(_identity, visited))
            visited, link = [], links.pop()
            if _identity(link) in met:
                continue
            waiting.append(link)
        folder = waiting.pop()
        visited.append(folder)
        inner, linked = _read_folder(folder, found)
        waiting += inner if root.deep else []
        links += linked if root.deep else []
    return found


def _read_folder(folder: str, found: dict[str, Stamp]) -> tuple[list[str], list[str]]:
    """Add the files of one folder to `found`; returns the folders in it, and the links to folders."""
    inner: list[str] = []
    linked: list[str] = []
    try:
        # By its handle, not its path: the path of every file would be walked again from the root of the disk.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return inner, linked  # a folder that may not be read has no tasks for this user; the rest goes on
    try:
        with os.scandir(handle) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(("yaml", "yml")) and not _is_dir(entry):
                    found[f"{folder}/{name}"] = _stamp(entry)
                elif name not in _SKIPPED and not name.startswith(".") and _is_dir(entry):
                    (linked if entry.is_symlink() else inner).append(f"{folder}/{name}")
    finally:
        os.close(handle)
    return inner, linked


def _is_dir(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads to itself


def _identity(folder: str) -> tuple[int, int]:
    try:
        status = os.stat(folder)  # noqa: PTH116  # as below
    except OSError:
        return (-1, -1)
    return (status.st_dev, status.st_ino)


def stamps(paths: Iterable[str]) -> dict[str, Stamp]:
    """The stamps of files that are not below a root."""
    return {path: _stamp(path) for path in paths}


def is_config(path: str) -> bool:
    """Whether a file can hold a task of its own; others are only ever included."""
    return path.endswith((".yaml", ".yml"))


def _stamp(file: "os.DirEntry[str] | str") -> Stamp:
    try:
        status = os.stat(file) if isinstance(file, str) else file.stat()  # noqa: PTH116  # 14,000 Path objects cost more
    except OSError:
        return GONE
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else GONE
