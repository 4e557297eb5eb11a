"""`assay fetch tasks`: the task files of lm-eval without the package, from a package index, a wheel or a folder."""

import base64
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import NamedTuple

from assay.catalog.lm_eval_names import VERSION
from assay.catalog.roots import fetched_tasks
from assay.errors import ConfigError, Place
from assay.redaction import without_queries
from assay.runs.folder import staging_folder

NOTE = "fetched.json"
INSIDE = "lm_eval/tasks/"
LARGEST = 1 << 30
"""Bytes that the task files may have: they are 75 MB."""
FROM = Place("--from")
_VERSION = re.compile(r"\d+(\.\w+)*")
_DIST = re.compile(r"lm_eval-([^-]+)\.dist-info")


class FetchedTasks(NamedTuple):
    """Task files on this machine: their folder, lm-eval's version, their number, and whether they were there before."""

    folder: Path
    version: str
    files: int
    were_there: bool


def fetch_tasks(version: str | None = None, source: Path | None = None) -> FetchedTasks:
    """Put lm-eval's task files where names are looked up; nothing is done where they are there and unchanged."""
    required, version = version, version or VERSION
    if not _VERSION.fullmatch(version):
        raise ConfigError.at("--version", f"{version!r} is not a version", f"such as {VERSION}")
    target = fetched_tasks()
    if source is None:
        known = _fetched_before(target.parent)
        if known is not None and known.version == version:
            return known
    try:
        target.parent.parent.mkdir(parents=True, exist_ok=True)
        with staging_folder(target.parent.parent) as part:
            note = _unpacked(source, part) if source is not None else _downloaded(version, part)
            if required not in (None, note["version"]):
                what = f"{source or 'the download'} is of version {note['version']}, not {required}"
                raise ConfigError.at(FROM, what, "leave out --version, or give another file")
            known = _fetched_before(target.parent)
            if known is not None and note == _note(target.parent):
                return known
            _replace(part, target.parent)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise ConfigError.at(target, what, "set ASSAY_TASKS_DIR to another folder") from None
    return FetchedTasks(target, str(note["version"]), int(str(note["files"])), were_there=False)


def _replace(part: Path, folder: Path) -> None:
    """Put a folder in place of an earlier one. The files are not synced: a damaged one is found by its checksum."""
    part.chmod(0o755)
    with TemporaryDirectory(dir=folder.parent, prefix=".old-", ignore_cleanup_errors=True) as old:
        with suppress(FileNotFoundError):
            folder.rename(Path(old, "lm_eval"))
        part.rename(folder)


def _fetched_before(folder: Path) -> FetchedTasks | None:
    """The files that are there, if they are as they were fetched."""
    note = _note(folder)
    files = list(_files(folder / "tasks"))
    if not note or note.get("digest") != _digest(folder / "tasks", files):
        return None
    return FetchedTasks(folder / "tasks", str(note["version"]), len(files), were_there=True)


def fetched_version(tasks: Path) -> str:
    """The version of lm-eval whose task files were fetched to a folder; empty where they came otherwise."""
    return str(_note(tasks.parent).get("version", ""))


def _note(folder: Path) -> dict[str, object]:
    try:
        note = json.loads((folder / NOTE).read_bytes())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder, in order; neither links nor compiled code."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts:
            yield path


def _digest(folder: Path, files: Sequence[Path]) -> str:
    digest = sha256()
    for path in files:
        digest.update(f"{path.relative_to(folder).as_posix()}\0{sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _downloaded(version: str, part: Path) -> dict[str, object]:
    """The files of a version from the configured package index: by pip, else by uv."""
    requirement = f"lm_eval=={version}"
    with TemporaryDirectory() as folder:
        by_pip = ["pip", "download", "--no-deps", "--only-binary", ":all:", "--dest", folder, "--quiet", "--no-input",
                  "--disable-pip-version-check", "--retries", "1", requirement]  # fmt: skip
        by_uv = [
            "uv",
            "pip",
            "install",
            "--no-deps",
            "--quiet",
            "--target",
            folder,
            "--python",
            sys.executable,
            requirement,
        ]
        if find_spec("pip") is not None:
            command = [sys.executable, "-m", *by_pip]
        elif shutil.which("uv"):
            command = by_uv
        else:
            raise ConfigError.at(requirement, "needs pip or uv to be downloaded", _elsewhere(version))
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip() and "[notice]" not in line]
            reason = without_queries(
                lines[-1].strip().removeprefix("ERROR: ") if lines else f"exit code {done.returncode}"
            )
            what = f"cannot be downloaded: {reason}"
            raise ConfigError.at(requirement, what, _elsewhere(version))
        wheels = list(Path(folder).glob("*.whl"))
        return _unpacked(wheels[0] if wheels else Path(folder), part)


def _elsewhere(version: str) -> str:
    return f"where there is a network: pip download --no-deps lm_eval=={version}; then here: assay fetch tasks --from FILE.whl"


def _unpacked(source: Path, part: Path) -> dict[str, object]:
    """Put the files of a wheel or folder into `part/tasks`; returns the note about them, which is beside them."""
    if source.is_dir():
        version = _from_folder(source, part)
    elif source.is_file():
        version = _from_wheel(source, part)
    else:
        raise ConfigError.at(FROM, f"no file or folder {str(source)!r}", "give a wheel of lm_eval, or its folder")
    files = list(_files(part / "tasks"))
    if not any(path.suffix == ".yaml" for path in files):
        raise ConfigError.at(FROM, f"{source} has no task files", "give a wheel of lm_eval, or its folder")
    note: dict[str, object] = {"version": version, "files": len(files), "digest": _digest(part / "tasks", files)}
    (part / NOTE).write_text(json.dumps(note, indent=1) + "\n")
    return note


def _from_folder(source: Path, part: Path) -> str:
    """Copy the tasks of an installed or cloned package, or of the folder itself."""
    folders = (source / "lm_eval" / "tasks", source / "tasks", source)
    tasks = next(
        (each for each in folders if each.is_dir() and each.resolve().parts[-2:] == ("lm_eval", "tasks")), None
    )
    if tasks is None:
        raise ConfigError.at(FROM, f"{source} has no folder lm_eval/tasks", "give the folder that has it")
    for path in _files(tasks):
        target = part / "tasks" / path.relative_to(tasks)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    above = (source, source.parent, source.parent.parent)
    names = (match for each in above for path in each.glob("*.dist-info") if (match := _DIST.fullmatch(path.name)))
    return next((match[1] for match in names), "unknown")


def _from_wheel(source: Path, part: Path) -> str:
    """Unpack the tasks of a wheel; every file is compared with the wheel's own list."""
    try:
        with zipfile.ZipFile(source) as wheel:
            folders = {name.partition("/")[0] for name in wheel.namelist()}
            dist = next((match for each in sorted(folders) if (match := _DIST.fullmatch(each))), None)
            if dist is None:
                raise ConfigError.at(FROM, f"{source} is not a wheel of lm_eval", "give one")
            hashes = _hashes(wheel.read(f"{dist[0]}/RECORD").decode())
            members = [each for each in wheel.infolist() if each.filename.startswith(INSIDE) and not each.is_dir()]
            if sum(each.file_size for each in members) > LARGEST:
                raise ValueError("its files are too large")
            for member in members:
                inner = PurePosixPath(member.filename.removeprefix(INSIDE))
                content = wheel.read(member)
                if ".." in inner.parts or inner.is_absolute() or hashes.get(member.filename) != _hash(content):
                    raise ValueError(f"{member.filename} is not as its list of files says")
                path = part / "tasks" / inner
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            hashes = {name: each for name, each in hashes.items() if name.startswith(INSIDE)}
            if absent := sorted(hashes.keys() - {each.filename for each in members}):
                raise ValueError(f"{absent[0]} is missing")
    except ConfigError:
        raise
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        fix = "download it again: pip download --no-deps lm_eval"
        raise ConfigError.at(FROM, f"{source} is not a wheel, or damaged: {error}", fix) from None
    return dist[1]


def _hashes(record: str) -> dict[str, str]:
    """The checksums in a wheel's RECORD: a line for each file, `name,sha256=…,size`."""
    lines = (line.rsplit(",", 2) for line in record.splitlines() if line)
    return {name.strip('"'): checksum for name, checksum, _ in lines if checksum}


def _hash(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
