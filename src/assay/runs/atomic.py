"""Atomic writes that survive a power cut: synced before the rename, and the folder after."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Sync a folder, where the system supports it."""
    if os.name == "posix":
        sync(path)


def replace_file(part: Path, path: Path) -> None:
    """Give a file that is written its name: after a power cut there is the old file or the whole new one."""
    sync(part)
    part.replace(path)
    sync_folder(path.parent)


def replace_folder(part: Path, path: Path) -> Path:
    """Rename a folder after syncing its content. An existing folder that is not empty is an OSError."""
    for folder, _, names in os.walk(part):
        for name in names:
            sync(Path(folder, name))
        sync_folder(Path(folder))
    renamed = part.rename(path)
    sync_folder(path.parent)
    return renamed
