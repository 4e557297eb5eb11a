"""Archives of runs: `pack` writes one zip file without secrets, with the same bytes every time; `unpack` reads only those."""

import re
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path, PurePosixPath
from typing import IO

import orjson

from assay.errors import Place, Problem, some
from assay.evaluation.answers import imported
from assay.exchange.gold_removal import GoldRemoval
from assay.records import AnyJSON, JSONObject
from assay.redaction import environment_secrets, forms_of
from assay.results import Results
from assay.runs.files import make_folder, new_file, replace_folder
from assay.runs.folder import (
    CHECKSUMS,
    LINK_OUTSIDE,
    MANIFEST,
    RESULTS,
    RunError,
    is_outside,
    scorings,
    staging_folder,
    write_results,
)
from assay.runs.folder import SCORED as SCORED
from assay.runs.labels import LABELS
from assay.runs.results_json import encode
from assay.runs.run import Run, finished_run
from assay.runs.samples.decode import texts_of
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.writer import file_name
from assay.runs.signature import SIGNATURE
from assay.version import __version__

NOTE = "packed.json"


@dataclass(frozen=True)
class Packed:
    """An archive: where it is, what is in it, what was taken out, and what of the folder was left behind."""

    path: Path
    files: Sequence[str]
    removed: Sequence[str]
    left: Sequence[str]


def pack(folder: str | Path, output: str | Path | None = None, *, no_gold: bool = False) -> Packed:
    """Write an archive of a run that has ended: numbers, samples, scorings; and with `no_gold` no right answers."""
    run = finished_run(folder)
    name = file_name(run.path.resolve().name)
    path = Path(output) if output is not None else Path(f"{name}{'-no_gold' if no_gold else ''}.zip")
    if path.suffix.lower() != ".zip":
        raise RunError.at(path, "an archive of a run is a zip file", "end its name in .zip")
    path.parent.mkdir(parents=True, exist_ok=True)
    with staging_folder(path.parent) as scratch:
        golds = GoldRemoval(run, scratch) if no_gold else None
        members = [*_members(run, golds)]
        removed = golds.summary() if golds is not None else []
        hashes = {inner: sha256(content).hexdigest() for inner, content, _ in members if isinstance(content, bytes)}
        hashes |= {inner: _hash(content) for inner, content, _ in members if isinstance(content, Path)}
        note = {"assay_version": __version__, "of": run.manifest.get("spec_digest"), "removed": removed,
                "files": dict(sorted(hashes.items()))}  # fmt: skip
        members.append((NOTE, _json(note), None))
        _refuse_secrets(members)
        write_archive(path, _contents(name, sorted(members, key=lambda member: member[0])))
    taken = {str(source) for _, _, source in members if source is not None}
    left = sorted(
        str(each.relative_to(run.path)) for each in run.path.rglob("*") if each.is_file() and str(each) not in taken
    )
    return Packed(path, sorted(inner for inner, _, _ in members), removed, left)


Member = tuple[str, bytes | Path, Path | None]
"""A name in the archive, its content or the file that has it, and the file of the run that it is of."""


def _members(run: Run, golds: GoldRemoval | None) -> Iterator[Member]:
    yield from _folder(run, "", golds)
    for version in scorings(run.path):
        if is_outside(run.path, version):
            continue
        yield from _folder(finished_run(version), f"{SCORED}/{version.name}/", golds)


def _folder(run: Run, before: str, golds: GoldRemoval | None) -> Iterator[Member]:
    """Yield the members of one folder; nothing that is a link to elsewhere."""
    as_written = Run.open(run.path)
    contents = {RESULTS: encode(as_written.written), MANIFEST: as_written.manifest}
    for file in contents:
        if is_outside(run.path, run.path / file):
            raise RunError.at(run.path / file, LINK_OUTSIDE, "put the file itself there")
        shared = {key: each for key, each in contents[file].items() if key not in (SIGNATURE, CHECKSUMS)}
        known = _without_home(shared, str(Path.home()))
        content = known if golds is None else golds.without(known, is_manifest=file == MANIFEST)
        yield before + file, _json(content), run.path / file
    labels = run.path / LABELS
    if golds is None and as_written.labels and not is_outside(run.path, labels):
        yield before + LABELS, labels.read_bytes(), labels
    for task, samples in run.sample_files().items():
        path = samples.path
        if path.is_file() and not is_outside(run.path, path):
            samples.check()
            inner = f"{before}samples/{file_name(task)}.parquet"
            yield inner, path if golds is None else golds.rewritten(run, task, inner), path


def _without_home(value: AnyJSON, home: str) -> AnyJSON:
    """Remove the path of the home directory from the content of a file."""
    if isinstance(value, str):
        return value.replace(home, "~") if len(home) > 1 else value
    if isinstance(value, Mapping):
        return {_without_home(key, home): _without_home(each, home) for key, each in value.items()}
    return [_without_home(each, home) for each in value] if isinstance(value, list) else value


def _refuse_secrets(members: Sequence[Member]) -> None:
    """Refuse an archive with a secret of this environment in it: in results or in samples."""
    secrets = {form: name for value, name in environment_secrets().items() for form in forms_of([value])}
    for inner, content, source in members if secrets else ():
        for text in _texts(content):
            variable = next((name for value, name in secrets.items() if value in text), None)
            if variable is not None:
                what = f"{inner} holds the value of the environment variable {variable}"
                raise RunError.at(source or inner, what, "remove it from the run before you share it")


def _texts(content: bytes | Path) -> Iterator[str]:
    """All that is written in a member; of samples column by column."""
    if isinstance(content, bytes):
        yield content.decode()
        return
    for table in SampleFile(content).tables():
        yield from texts_of(table)


def _contents(name: str, members: Sequence[Member]) -> Iterator[tuple[str, bytes | IO[bytes]]]:
    """Yield the members below the archive's folder, each open while it is read."""
    for inner, content, _ in members:
        if isinstance(content, bytes):
            yield f"{name}/{inner}", content
        else:
            with content.open("rb") as file:
                yield f"{name}/{inner}", file


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _json(value: AnyJSON) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n"


MOMENT = (1980, 1, 1, 0, 0, 0)
"""The time of every member that we write: the same run gives the same bytes."""


def write_archive(path: Path, members: Iterable[tuple[str, bytes | IO[bytes]]]) -> None:
    """Write a zip in one move, of texts or of files that are read from their start; the same members give the same bytes."""
    with new_file(path) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as file:
        for name, content in members:
            about = zipfile.ZipInfo(name, MOMENT)
            about.compress_type, about.external_attr, about.create_system = zipfile.ZIP_DEFLATED, 0o644 << 16, 3
            with file.open(about, "w", force_zip64=True) as out:
                if isinstance(content, bytes):
                    out.write(content)
                else:
                    content.seek(0)
                    shutil.copyfileobj(content, out)


SMALL, GROWS = 64 << 20, 200
"""An archive may unpack to so many bytes, and to so many times its own size beyond them: results never shrink so far."""
MEMBER = re.compile(
    rf"(scored/\d+/)?({RESULTS}|{MANIFEST}|{LABELS}|samples/[^/\\]+\.parquet)|{NOTE}".replace(".json", r"\.json")
)
"""The allowed names of members, below the one folder of the archive: no name leads out of it."""


def unpack(archive: Path, target: Path) -> Results:
    """Unpack an archive of `assay pack` into a new folder; returns the results of the run. A folder that this archive was
    unpacked to stays as it is."""
    is_there = target.exists() and (not target.is_dir() or any(target.iterdir()))
    if is_there and not (target / NOTE).is_file():
        raise RunError.at(target, "the folder is not empty", "choose a new folder")
    if archive.exists() and not archive.is_file():  # a pipe would be waited for
        raise _refused(archive, "is not a regular file")
    make_folder(target.parent)
    try:
        with staging_folder(target.parent) as part:
            with zipfile.ZipFile(archive) as file:
                _extract(file, archive, part)
            _check(part, archive)
            run = _opened(part, archive)
            _note_paths(part)
            if is_there:
                _refuse_other(part, target)
                return run.results
            part.chmod(0o755)
            if target.exists():
                target.rmdir()
            replace_folder(part, target)
    except (OSError, RuntimeError, UnicodeError, zipfile.BadZipFile, zlib.error) as error:  # RuntimeError: a password
        raise _refused(archive, f"cannot be unpacked: {getattr(error, 'strerror', None) or error}") from None
    return run.results


def _refuse_other(part: Path, target: Path) -> None:
    """Refuse a folder that another archive was unpacked to, or whose files have changed since; people may have added labels."""
    if (part / NOTE).read_bytes() != (target / NOTE).read_bytes():
        raise RunError.at(target, "the folder holds another run", "choose a new folder")
    names = sorted(path.relative_to(part).as_posix() for path in part.rglob("*") if path.is_file())
    changed = [name for name in names if not _is_same(part / name, target / name)]
    if changed:
        what = f"the folder holds this run, and {some(changed)} {'have' if len(changed) > 1 else 'has'} changed"
        raise RunError.at(target, what, "choose a new folder")


def _is_same(unpacked: Path, there: Path) -> bool:
    return there.is_file() and (unpacked.name == LABELS or _hash(unpacked) == _hash(there))


def _refused(archive: Path, what: str) -> RunError:
    return RunError.at(archive, what, "give a file that `assay pack` wrote")


def _extract(file: zipfile.ZipFile, archive: Path, part: Path) -> None:
    size = sum(about.file_size for about in file.infolist())
    if size > SMALL + GROWS * archive.stat().st_size:
        raise _refused(archive, f"would unpack to {size / 1e9:.1f} GB, too much for a packed run")
    for about in file.infolist():
        inner = "/".join(PurePosixPath(about.filename).parts[1:])
        if not MEMBER.fullmatch(inner):
            raise _refused(archive, f"holds {about.filename!r:.80}, which `assay pack` never writes")
        path = part / inner
        if path.exists():
            raise _refused(archive, f"holds {inner!r:.80} twice")
        path.parent.mkdir(parents=True, exist_ok=True)
        with file.open(about) as source, path.open("xb") as out:
            shutil.copyfileobj(source, out)


def _check(part: Path, archive: Path) -> None:
    """Refuse what is not as it was packed."""
    noted = read_json(part / NOTE).get("files")
    hashes = noted if isinstance(noted, dict) else {}
    there = {path.relative_to(part).as_posix(): path for path in part.rglob("*") if path.is_file()}
    wrong = sorted(
        {*hashes, *there} - {NOTE} - {name for name, path in there.items() if hashes.get(name) == _hash(path)}
    )
    if wrong or not hashes:
        what = f"differs from what was packed: {', '.join(wrong[:3]) or 'it has no ' + NOTE}"
        raise RunError.at(archive, what, "get it again from its source")


def _opened(part: Path, archive: Path) -> Run:
    """The run that was unpacked: nothing is put in place that cannot be read."""
    try:
        for folder in (*scorings(part), part):
            for samples in finished_run(folder).sample_files().values():
                samples.check()
        return finished_run(part)
    except RunError as error:
        about = [f"{Path(each.place.file).name}: " if each.place.file != str(part) else "" for each in error.problems]
        problems = [
            Problem(Place(str(archive)), f"{file}{each.what}", "get it again from its source")
            for file, each in zip(about, error.problems, strict=True)
        ]
        raise RunError(problems) from None


def _note_paths(part: Path) -> None:
    """Record the paths that the run names as foreign, so that they are never used."""
    for path in (part / MANIFEST, *part.glob(f"scored/*/{MANIFEST}")):
        run = Run.open(path.parent)
        write_results(
            path.parent,
            run.written,
            imported(run.manifest, [*run.members, *run.manifest.get("tasks", ())]),
        )


def read_json(path: Path) -> JSONObject:
    """The mapping in a file of another program; an empty one where there is none."""
    try:
        content = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
