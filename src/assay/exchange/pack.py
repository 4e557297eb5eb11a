"""One file of a run to hand on: what a reader needs, without secrets, the same bytes every time."""

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import orjson

import assay
from assay.errors import Place, Problem
from assay.exchange.archive import write_archive
from assay.exchange.finished import finished_run, sample_files
from assay.exchange.gold_removal import GoldRemoval
from assay.runs.folder import MANIFEST, RESULTS, RunError
from assay.runs.links import LINK_OUTSIDE, is_outside
from assay.runs.redaction import without_secrets
from assay.runs.run import Run
from assay.runs.samples.decode import texts_of
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.writer import file_name
from assay.runs.signature import SIGNATURE
from assay.runs.versions import SCORED as SCORED
from assay.runs.versions import scorings

NOTE = "packed.json"
SECRET = re.compile(r"(?:KEY|TOKEN|SECRET|PASSW(?:OR)?D|CREDENTIALS?)S?$", re.IGNORECASE)
"""Variables of the environment whose values must not be in an archive."""
LEAST = 8
"""Characters of a value that is looked for: a shorter one stands anywhere."""


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
        raise RunError([Problem(Place(str(path)), "an archive of a run is a zip file", "end its name in .zip")])
    with tempfile.TemporaryDirectory(prefix="assay-pack-") as scratch:
        golds = GoldRemoval(run, Path(scratch)) if no_gold else None
        members = [*_members(run, golds)]
        removed = golds.told() if golds is not None else []
        hashes = {inner: sha256(content).hexdigest() for inner, content, _ in members if isinstance(content, bytes)}
        hashes |= {inner: _hash(content) for inner, content, _ in members if isinstance(content, Path)}
        note = {"assay_version": assay.__version__, "of": run.manifest.get("spec_digest"), "removed": removed,
                "files": dict(sorted(hashes.items()))}  # fmt: skip
        members.append((NOTE, _json(note), None))
        _refuse_secrets(members)
        path.parent.mkdir(parents=True, exist_ok=True)
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
    """What is taken of one folder: nothing that lies elsewhere, and is there by a link."""
    as_written = Run.open(run.path)
    contents = {RESULTS: as_written.results, MANIFEST: as_written.manifest}
    for file in contents:
        if is_outside(run.path, run.path / file):
            raise RunError([Problem(Place(str(run.path / file)), LINK_OUTSIDE, "put the file itself there")])
        known = _clean({key: each for key, each in contents[file].items() if key != SIGNATURE})
        content = known if golds is None else golds.without(known, is_manifest=file == MANIFEST)
        yield before + file, _json(content), run.path / file
    for task, samples in sample_files(run).items():
        path = samples.path
        if path.is_file() and not is_outside(run.path, path):
            samples.check()
            inner = f"{before}samples/{file_name(task)}.parquet"
            yield inner, path if golds is None else golds.rewritten(run, task, inner), path


def _clean(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a file says without secrets, and without the name of anybody's folder of their own."""
    found: Mapping[str, Any] = _without_home(without_secrets(value), str(Path.home()))
    return found


def _without_home(value: Any, home: str) -> Any:
    if isinstance(value, str):
        return value.replace(home, "~") if len(home) > 1 else value
    if isinstance(value, Mapping):
        return {_without_home(key, home): _without_home(each, home) for key, each in value.items()}
    return [_without_home(each, home) for each in value] if isinstance(value, list) else value


def _refuse_secrets(members: Sequence[Member]) -> None:
    """See to it that no secret of this environment is in the archive: not in numbers, not in samples."""
    variables = {name: value for name, value in os.environ.items() if SECRET.search(name) and len(value) >= LEAST}
    secrets = {form: name for name, value in variables.items() for form in _forms(value)}
    for inner, content, source in members if secrets else ():
        for text in _texts(content):
            found = next((name for value, name in secrets.items() if value in text), None)
            if found is not None:
                what = f"{inner} holds the value of the environment variable {found}"
                raise RunError(
                    [Problem(Place(str(source or inner)), what, "take it out of the run before you hand it on")]
                )


def _forms(value: str) -> set[str]:
    """How a value may be written: as it is, and inside of JSON, of which some stands inside of other JSON."""
    forms = {value}
    for _ in range(2):
        forms |= {json.dumps(form, ensure_ascii=plain)[1:-1] for form in forms for plain in (False, True)}
    return forms


def _texts(content: bytes | Path) -> Iterator[str]:
    """All that is written in a member; of samples column by column."""
    if isinstance(content, bytes):
        yield content.decode()
        return
    for table in SampleFile(content).tables():
        yield from texts_of(table)


def _contents(name: str, members: Sequence[Member]) -> Iterator[tuple[str, bytes | IO[bytes]]]:
    """The members below a folder of their own, each open while it is read."""
    for inner, content, _ in members:
        if isinstance(content, bytes):
            yield f"{name}/{inner}", content
        else:
            with content.open("rb") as file:
                yield f"{name}/{inner}", file


def _hash(path: Path) -> str:
    made = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            made.update(block)
    return made.hexdigest()


def _json(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n"
