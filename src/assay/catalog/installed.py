"""Task folders that installed packages bring: lm_eval's, and those of plug-ins. No package is imported to find them."""

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from assay.catalog.store import keep, recall, stamp_of
from assay.errors import Place, Problem

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PLUGIN_GROUP = "assay.tasks"
NAME = "installed.json"


def installed_folders() -> list[tuple[str, str]]:
    """The folders, each with what brings it; empty where that names none that exists.

    Remembered until something is installed or removed.
    """
    stamp = stamp_of(__file__, *sys.path)
    body = recall(NAME, stamp)
    if body is not None:
        return [(origin, folder) for origin, folder in json.loads(body)]
    found = list(_search())
    keep(NAME, stamp, json.dumps(found).encode())
    return found


def _search() -> Iterator[tuple[str, str]]:
    from importlib.metadata import entry_points  # 20 ms: only when something may have changed

    lm_eval = lm_eval_tasks()
    if lm_eval is not None:
        yield "lm_eval", str(lm_eval)
    for plugin in sorted(entry_points(group=PLUGIN_GROUP), key=lambda plugin: plugin.name):
        yield f"plugin {plugin.name}", plugin_folder(plugin)


def lm_eval_tasks() -> Path | None:
    """The task folder of an installed lm_eval, found through its metadata."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        folder = Path(str(distribution("lm_eval").locate_file("lm_eval/tasks")))
    except PackageNotFoundError:
        return None
    return next((path.resolve() for path in (folder, *_package_folders("lm_eval", "tasks")) if path.is_dir()), None)


def plugin_folder(plugin: "EntryPoint") -> str:
    """The folder that a plug-in names as `package.folder`; empty where there is none."""
    package, *parts = plugin.module.split(".")
    found = next((folder for folder in _package_folders(package, *parts) if folder.is_dir()), None)
    return str(found.resolve()) if found is not None else ""


def broken_plugins() -> list[Problem]:
    """The plug-ins whose folder does not exist. They bring nothing, and stop nothing."""
    what, fix = "this plug-in names a folder of tasks that does not exist", "reinstall or uninstall it"
    return [Problem(Place(origin), what, fix) for origin, folder in installed_folders() if not folder]


def _package_folders(package: str, *parts: str) -> Iterator[Path]:
    spec = find_spec(package)  # of a top-level name: looks, and runs nothing
    for location in (spec.submodule_search_locations if spec else None) or []:
        yield Path(location, *parts)
