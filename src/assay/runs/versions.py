"""Scorings of a run beside its own: numbered folders below `scored/`, each whole or not there at all."""

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.runs.atomic import replace_folder

SCORED = "scored"


def scorings(folder: Path) -> list[Path]:
    """The scorings of a run, the latest last."""
    found = (folder / SCORED).glob("[0-9]*") if (folder / SCORED).is_dir() else ()
    return sorted((path for path in found if path.name.isdecimal()), key=lambda path: int(path.name))


@contextmanager
def new_scoring(folder: Path) -> Iterator[Path]:
    """A folder to write a scoring into. When all went well `publish_scoring` gives it its number; else nothing is left of it."""
    (folder / SCORED).mkdir(parents=True, exist_ok=True)
    with staging_folder(folder / SCORED) as part:
        yield part


@contextmanager
def staging_folder(folder: Path) -> Iterator[Path]:
    """A new folder in another one, called after this process; it is taken away in the end if it was not given another name.

    What processes of this machine left that were killed is taken away, too.
    """
    host = re.sub(r"[^\w.]", "_", socket.gethostname())
    for left in folder.glob(f".part-{host}-*"):
        owner = left.name.removeprefix(f".part-{host}-").partition("-")[0]
        if owner.isdecimal() and not _lives(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=f".part-{host}-{os.getpid()}-", dir=folder))
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    return True


def publish_scoring(part: Path) -> Path:
    """Give a scoring the next free number, however many are written at once."""
    part.chmod(0o755)
    while True:
        there = scorings(part.parent.parent)
        wanted = part.with_name(f"{int(there[-1].name) + 1 if there else 1:03}")
        try:
            return replace_folder(part, wanted)
        except OSError:
            if not wanted.exists():
                raise
