"""Which folders hold tasks: those bundled with assay, lm_eval's, those of plug-ins, and the user's own."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.catalog.installed import installed_folders
from assay.errors import ConfigError, Place, Problem

IncludePath = str | Path | Sequence[str | Path] | None


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that is searched. A lenient one is read as lm-eval would: its slips are told, not refused."""

    path: str
    origin: str
    lenient: bool = False
    deep: bool = True

    def is_lenient(self, file: str) -> bool:
        """Whether a file of this root is read as lm-eval would."""
        return self.lenient or is_lm_eval(file)


def all_roots(include_path: IncludePath, *, include_defaults: bool, lenient: bool) -> list[Root]:
    """Every folder to search, weakest first."""
    defaults = default_roots() if include_defaults else ()
    return [*defaults, *included_roots(include_path, lenient=lenient)]


def default_roots() -> Iterator[Root]:
    """What is there without asking: what is bundled, then what installed packages bring."""
    yield Root(str(Path(__file__).resolve().parent.parent / "bundled"), "bundled")
    for origin, folder in installed_folders():
        if folder:
            yield Root(folder, origin)


def included_roots(include_path: IncludePath, *, lenient: bool) -> Iterator[Root]:
    """The user's folders, in their order; one that does not exist is an error, never skipped."""
    for written in split_paths(include_path):
        try:
            folder = Path(written).expanduser().resolve()
            what = (
                ""
                if folder.is_dir()
                else f"{written!r} is not a folder"
                if folder.exists()
                else f"no folder {written!r}"
            )
        except (OSError, ValueError, RuntimeError) as error:
            what = f"{written!r} cannot be opened: {error}"
        if not what and not os.access(folder, os.R_OK | os.X_OK):
            what = f"the folder {written!r} may not be read"
        if what:
            raise ConfigError([Problem(Place("include_path"), what, "give the folder that holds the task files")])
        yield Root(str(folder), "include_path", lenient=lenient)


def split_paths(include_path: IncludePath) -> list[str]:
    """One or several paths, each perhaps several joined by the system's path separator."""
    if include_path is None:
        return []
    several = [include_path] if isinstance(include_path, str | Path) else list(include_path)
    return [part for path in several for part in str(path).split(os.pathsep) if part]


def is_lm_eval(path: str) -> bool:
    """Whether a file or folder is, or lies within, lm_eval's task folder.

    >>> is_lm_eval("/site-packages/lm_eval/tasks/mmlu"), is_lm_eval("/home/me/tasks")
    (True, False)
    """
    return "/lm_eval/tasks/" in path.replace(os.sep, "/") + "/"
