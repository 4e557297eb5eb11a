"""Zip archives that come out the same every time."""

import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from assay.runs.atomic import replace_file

MOMENT = (1980, 1, 1, 0, 0, 0)
"""The time of every member that we write: the same run gives the same bytes."""


def write_archive(path: Path, members: Iterable[tuple[str, bytes | IO[bytes]]]) -> None:
    """Write a zip in one move, of texts or of files that are read from their start; the same members give the same bytes."""
    part = path.with_name(f".{path.name}.part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as file:
        for name, content in members:
            about = zipfile.ZipInfo(name, MOMENT)
            about.compress_type, about.external_attr, about.create_system = zipfile.ZIP_DEFLATED, 0o644 << 16, 3
            with file.open(about, "w", force_zip64=True) as out:
                if isinstance(content, bytes):
                    out.write(content)
                else:
                    content.seek(0)
                    shutil.copyfileobj(content, out)
    replace_file(part, path)
