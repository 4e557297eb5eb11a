"""Links in the folder of a run that lead out of it: whoever shows a run to others, or hands it on, does not follow them."""

import os
from collections.abc import Iterator
from pathlib import Path

from assay.errors import Place, Problem
from assay.runs.folder import MANIFEST, RESULTS, SAMPLES, RunError
from assay.runs.journal import NAME as JOURNAL
from assay.runs.lease import NAME as LOCK

JOURNALS = (JOURNAL, f"{JOURNAL}.zst")


def is_outside(folder: Path, file: Path) -> bool:
    """Whether a file below a folder lies elsewhere: it, or a folder above it, is a link."""
    return not file.resolve().is_relative_to(folder.resolve())


def links_outside(folder: Path) -> list[str]:
    """What of a run lies elsewhere: its own files, its samples. Only links are looked at closely: there may be many files."""
    return [name for name in _links(folder) if is_outside(folder, folder / name)]


def _links(folder: Path) -> Iterator[str]:
    yield from (name for name in (MANIFEST, RESULTS, LOCK, SAMPLES, *JOURNALS) if (folder / name).is_symlink())
    try:
        entries = list(os.scandir(folder / SAMPLES))
    except OSError:
        return
    yield from (f"{SAMPLES}/{entry.name}" for entry in entries if entry.is_symlink())


def refuse_links_outside(folder: Path) -> None:
    """See to it that a run is read from its own folder only."""
    found = links_outside(folder)
    if found:
        raise RunError([Problem(Place(str(folder / found[0])), LINK_OUTSIDE, "put the file itself there")])


LINK_OUTSIDE = "is a link that leads out of the folder of the run, and links are not followed"
