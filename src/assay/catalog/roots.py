"""Which folders hold tasks: those bundled with assay, lm_eval's, those of plug-ins, and the user's own."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec
from pathlib import Path

from assay.errors import ConfigError, Place, Problem

PLUGIN_GROUP = "assay.tasks"
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


def default_roots() -> Iterator[Root]:
    """What is there without asking; later roots win over earlier ones."""
    yield Root(str(Path(__file__).resolve().parent.parent / "bundled"), "bundled")
    folder = lm_eval_tasks()
    if folder is not None:
        yield Root(str(folder), "lm_eval")
    for plugin in sorted(entry_points(group=PLUGIN_GROUP), key=lambda plugin: plugin.name):
        yield plugin_root(plugin)


def lm_eval_tasks() -> Path | None:
    """The task folder of an installed lm_eval, found through its metadata; the package itself is not imported."""
    try:
        folder = Path(str(distribution("lm_eval").locate_file("lm_eval/tasks")))
    except PackageNotFoundError:
        return None
    return next((path.resolve() for path in (folder, *_package_folders("lm_eval", "tasks")) if path.is_dir()), None)


def plugin_root(plugin: EntryPoint) -> Root:
    """The folder a plug-in names, as `package.folder`, without importing the package."""
    package, *parts = plugin.module.split(".")
    folders = list(_package_folders(package, *parts))
    found = next((folder for folder in folders if folder.is_dir()), None)
    if found is None:
        what = f"no folder {plugin.value!r}, which this plug-in names as its tasks"
        raise ConfigError([Problem(Place(f"plug-in {plugin.name!r}"), what, "reinstall or uninstall the plug-in")])
    return Root(str(found.resolve()), f"plugin {plugin.name}")


def included_roots(include_path: IncludePath, *, lenient: bool) -> Iterator[Root]:
    """The user's folders, in their order; one that does not exist is an error, never skipped."""
    for written in split_paths(include_path):
        folder = Path(written).expanduser().resolve()
        if not folder.is_dir():
            what = f"no folder {written!r}" if not folder.exists() else f"{written!r} is not a folder"
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


def _package_folders(package: str, *parts: str) -> Iterator[Path]:
    spec = find_spec(package)  # of a top-level name: looks, and runs nothing
    for location in (spec.submodule_search_locations if spec else None) or []:
        yield Path(location, *parts)
