"""An archive of a run, unpacked into a folder: only what `pack` puts there, and only if it is as it was packed."""

import re
import shutil
import zipfile
import zlib
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from assay.errors import Place, Problem
from assay.evaluation.foreign import imported
from assay.exchange.finished import finished_run, read_json
from assay.exchange.pack import NOTE
from assay.runs.atomic import replace_folder
from assay.runs.folder import MANIFEST, RESULTS, RunError, write_json
from assay.runs.run import Run
from assay.runs.versions import staging_folder, scorings

SMALL, GROWS = 64 << 20, 200
"""An archive may unpack to so many bytes, and to so many times its own size beyond them: results never shrink so far."""
MEMBER = re.compile(
    rf"(scored/\d+/)?({RESULTS}|{MANIFEST}|samples/[^/\\]+\.parquet)|{NOTE}".replace(".json", r"\.json")
)
"""What a member is called, below the one folder of the archive: no name leads out of it."""


def unpack(archive: Path, target: Path) -> dict[str, Any]:
    """Unpack an archive of `assay pack` into a new folder; what comes back is the content of its results.json."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunError([Problem(Place(str(target)), "the folder holds something already", "choose a new folder")])
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with staging_folder(target.parent) as part:
            with zipfile.ZipFile(archive) as file:
                _extract(file, archive, part)
            _check(part, archive)
            run = _opened(part, archive)
            _note_paths(part)
            part.chmod(0o755)
            if target.exists():
                target.rmdir()
            replace_folder(part, target)
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        what = f"cannot be unpacked: {getattr(error, 'strerror', None) or error}"
        raise RunError([Problem(Place(str(archive)), what, "give a file that `assay pack` wrote")]) from None
    return dict(run.results)


def _extract(file: zipfile.ZipFile, archive: Path, part: Path) -> None:
    size = sum(about.file_size for about in file.infolist())
    if size > SMALL + GROWS * archive.stat().st_size:
        what = f"would unpack to {size / 1e9:.1f} GB, which is no packed run"
        raise RunError([Problem(Place(str(archive)), what, "give a file that `assay pack` wrote")])
    for about in file.infolist():
        inner = "/".join(PurePosixPath(about.filename).parts[1:])
        if not MEMBER.fullmatch(inner):
            what = f"holds {about.filename!r:.80}, which is no part of a packed run"
            raise RunError([Problem(Place(str(archive)), what, "give a file that `assay pack` wrote")])
        path = part / inner
        path.parent.mkdir(parents=True, exist_ok=True)
        with file.open(about) as source, path.open("xb") as out:
            shutil.copyfileobj(source, out)


def _check(part: Path, archive: Path) -> None:
    """Refuse what is not as it was packed."""
    told = read_json(part / NOTE).get("files") or {}
    there = {path.relative_to(part).as_posix(): path for path in part.rglob("*") if path.is_file()}
    wrong = sorted({*told, *there} - {NOTE} - {name for name, path in there.items() if told.get(name) == _hash(path)})
    if wrong or not told:
        what = f"is not as it was packed: {', '.join(wrong[:3]) or 'it has no ' + NOTE}"
        raise RunError([Problem(Place(str(archive)), what, "get it again from where it was packed")])


def _opened(part: Path, archive: Path) -> Run:
    """The run that was unpacked: nothing is put in place that cannot be read."""
    try:
        for version in scorings(part):
            finished_run(version)
        return finished_run(part)
    except RunError as error:
        problems = [
            Problem(
                Place(str(archive)), f"{Path(each.place.file).name}: {each.what}", "get it again from who packed it"
            )
            for each in error.problems
        ]
        raise RunError(problems) from None


def _note_paths(part: Path) -> None:
    """See to it that what the run names of where it was made is noted, and never used."""
    for path in (part / MANIFEST, *part.glob(f"scored/*/{MANIFEST}")):
        run = Run.open(path.parent)
        write_json(path, imported(run.manifest, [*run.members, *run.manifest.get("tasks", ())]))


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return sha256(file.read()).hexdigest()
