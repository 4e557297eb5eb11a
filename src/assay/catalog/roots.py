"""Task folders: those bundled with assay, of lm_eval, of plug-ins, and the user's. No package is imported to find
them.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from assay.catalog.cache import read_cached, stamp_files, write_cached
from assay.config.source import digest
from assay.dialect import OURS, Dialect, dialect_of, join
from assay.errors import ConfigError, Place, Problem

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


IncludePath = str | Path | Sequence[str | Path] | None


@dataclass(frozen=True, slots=True)
class Root:
    """A searched folder, with the dialect of its files."""

    path: str
    origin: str
    dialect: Dialect = OURS
    deep: bool = True

    def dialect_of(self, file: str) -> Dialect:
        """The rules that a file of this root is read by: lm-eval's own are known by their path."""
        return join(self.dialect, dialect_of(None, is_lm_evals_file=is_lm_eval(file)))


PLUGIN_GROUP = "assay.tasks"
BUNDLED = "bundled"
FOLDER_VARIABLE = "ASSAY_TASKS_DIR"


def all_roots(include_path: IncludePath, *, include_defaults: bool, dialect: Dialect) -> list[Root]:
    """Every folder to search, weakest first."""
    defaults = default_roots() if include_defaults else ()
    return [*defaults, *included_roots(include_path, dialect)]


def default_roots() -> Iterator[Root]:
    """The default folders: bundled tasks, then those of installed packages."""
    yield Root(str(Path(__file__).resolve().parent.parent / BUNDLED), BUNDLED)
    for origin, folder in installed_folders():
        if folder:
            yield Root(folder, origin)


def included_roots(include_path: IncludePath, dialect: Dialect) -> Iterator[Root]:
    """The user's folders, in order; a missing one is an error, never skipped."""
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
            what = f"the folder {written!r} is not readable"
        if what:
            raise ConfigError.at("include_path", what, "give the folder that holds the task files")
        yield Root(str(folder), "include_path", dialect)


def split_paths(include_path: IncludePath) -> list[str]:
    """Split paths joined by the system's path separator."""
    if include_path is None:
        return []
    paths = [include_path] if isinstance(include_path, str | Path) else list(include_path)
    return [part for path in paths for part in str(path).split(os.pathsep) if part]


def is_lm_eval(path: str) -> bool:
    """Whether a file or folder is inside lm_eval's task folder.

    >>> is_lm_eval("/site-packages/lm_eval/tasks/mmlu"), is_lm_eval("/home/me/tasks")
    (True, False)
    """
    return "/lm_eval/tasks/" in path.replace(os.sep, "/") + "/"


def installed_folders() -> list[tuple[str, str]]:
    """The folders of installed packages, each with its package; empty text where the folder does not exist.

    Cached until a package is installed or removed.
    """
    searched = (__file__, str(fetched_tasks().parent), *sys.path)
    name, stamp = f"installed-{digest(repr(searched).encode())}.json", stamp_files(*searched)
    body = read_cached(name, stamp)
    if body is not None:
        return [(origin, folder) for origin, folder in json.loads(body)]
    folders = list(_find_installed())
    write_cached(name, json.dumps(folders).encode(), stamp)
    return folders


def _find_installed() -> Iterator[tuple[str, str]]:
    from importlib.metadata import entry_points  # 20 ms: only when something may have changed

    lm_eval = lm_eval_tasks()
    if lm_eval is not None:
        yield "lm_eval", str(lm_eval)
    for plugin in sorted(entry_points(group=PLUGIN_GROUP), key=lambda plugin: plugin.name):
        yield f"plugin {plugin.name}", plugin_folder(plugin)


def lm_eval_tasks() -> Path | None:
    """The task folder of an installed lm_eval, found through its metadata; else the one that `assay fetch tasks` made."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        folder = Path(str(distribution("lm_eval").locate_file("lm_eval/tasks")))
        installed = (folder, *_package_folders("lm_eval", "tasks"))
    except PackageNotFoundError:
        installed = ()
    return next((path.resolve() for path in (*installed, fetched_tasks()) if path.is_dir()), None)


def fetched_tasks() -> Path:
    """The folder for lm-eval's task files without the package: below $ASSAY_TASKS_DIR, else the system's data directory."""
    from platformdirs import user_data_path

    chosen = os.environ.get(FOLDER_VARIABLE)
    above = Path(chosen).expanduser() if chosen else user_data_path("assay")
    return above / "lm_eval" / "tasks"


def plugin_folder(plugin: "EntryPoint") -> str:
    """The folder that a plug-in names as `package.folder`; empty where there is none."""
    package, *parts = plugin.module.split(".")
    existing = next((folder for folder in _package_folders(package, *parts) if folder.is_dir()), None)
    return str(existing.resolve()) if existing is not None else ""


def broken_plugins() -> list[Problem]:
    """The plug-ins whose folder does not exist. They are reported and skipped."""
    what, fix = "this plug-in names a folder of tasks that does not exist", "reinstall or uninstall it"
    return [Problem(Place(origin), what, fix) for origin, folder in installed_folders() if not folder]


def _package_folders(package: str, *parts: str) -> Iterator[Path]:
    spec = find_spec(package)  # for a top-level name it only searches, and imports nothing
    for location in (spec.submodule_search_locations if spec else None) or []:
        yield Path(location, *parts)
