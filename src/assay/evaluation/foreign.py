"""Runs that were made elsewhere: what their manifests say is data, and no path in it is followed."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from assay.catalog.graphs import graph_file
from assay.catalog.roots import split_paths
from assay.catalog.selection import looks_like_path, split_specs
from assay.config.arguments import parse_arguments
from assay.errors import AssayError
from assay.runs.signature import SIGNATURE

PATHS = frozenset(("include_path", "plugins", "data_dir", "models_file", "output_path", "runs_dir", "use_cache"))
CONSENT = frozenset(("confirm_run_unsafe_code", "trust_remote_code"))
"""Options by which a user allows code to run: one user's consent is not another's."""
UNUSED = frozenset(("model_role", "force", "write_out", "show_config", "dry_run", "verbosity"))
ARGUMENTS = frozenset(("model_args", "metadata"))
"""Options that hold anything, paths among it."""
LEFT_OUT = "left_out"
"""What a manifest that was imported says of the paths that it named where it was made."""


class Kept(NamedTuple):
    """Options that can be used, and the paths among the others."""

    options: dict[str, Any]
    left_out: list[str]


def without_paths(options: Mapping[str, Any], names: Iterable[str]) -> Kept:
    """Options of a run without what may lead to code: its tasks are asked for by name.

    `names` are those of its tasks and groups, which are asked for where a file or folder was.
    """
    dropped = PATHS | CONSENT | UNUSED | ARGUMENTS | {"tasks"}
    kept = {key: value for key, value in options.items() if key not in dropped}
    left_out = [
        each for key in sorted(PATHS - {"output_path", "runs_dir", "use_cache"}) for each in _texts(options.get(key))
    ]
    for key in sorted(ARGUMENTS & options.keys()):
        given = _arguments(options[key])
        kept[key] = {name: value for name, value in given.items() if not any(map(_is_path, _texts(value)))}
    asked = [each for each in _specs(options.get("tasks")) if isinstance(each, str)]
    named = [each for each in asked if _is_name(each)]
    left_out += [each for each in asked if each not in named]
    is_whole = named and len(named) == len(_specs(options.get("tasks")))
    further = [] if is_whole else [name for name in names if _is_name(name)]
    return Kept({**kept, "tasks": list(dict.fromkeys([*named, *further]))}, list(dict.fromkeys(left_out)))


def _is_name(spec: str) -> bool:
    """Whether a text means a task or group by its name, and no file."""
    return not looks_like_path(spec.partition("@")[0]) and split_specs([spec]) == [spec]


def is_known(spec: str, include_path: Sequence[str]) -> bool:
    """Whether a name is looked for in these folders and in those of packages: SyGra's way of naming graphs is looked for in the
    working directory first, which nobody named."""
    folders = split_paths(include_path)
    graph = graph_file(spec.partition("@")[0], folders)
    return graph is None or any(graph.is_relative_to(Path(folder).expanduser().resolve()) for folder in folders)


def imported(manifest: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The manifest of a run that comes from elsewhere, as it is written down here: its paths are noted, not used."""
    rest = {key: value for key, value in manifest.items() if key != SIGNATURE}
    if not isinstance(manifest.get("options"), Mapping):
        return rest
    kept = without_paths(manifest["options"], names)
    known = _texts(manifest.get(LEFT_OUT))
    return {**rest, "options": kept.options, LEFT_OUT: list(dict.fromkeys([*known, *kept.left_out]))}


def _specs(tasks: object) -> list[object]:
    """The single things asked for; what is no text cannot be asked for by name."""
    found: list[object] = []
    for each in tasks if isinstance(tasks, list | tuple) else [tasks]:
        found += split_specs([each]) if isinstance(each, str) else [each]
    return found


def _arguments(written: object) -> dict[str, object]:
    try:
        return parse_arguments(written, "arguments") if isinstance(written, str | Mapping) else {}
    except AssayError:
        return {}


def _texts(value: object) -> list[str]:
    """Every text in a value."""
    if isinstance(value, Mapping):
        return [text for each in value.items() for text in _texts(each)]
    if isinstance(value, list | tuple):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) and value else []


def _is_path(text: str) -> bool:
    """Whether a text leads to a file: `org/name` is the name of a model, unless there is such a folder."""
    try:
        return text.startswith(("~", "./", "../", os.sep)) or Path(text).is_absolute() or Path(text).exists()
    except (OSError, ValueError):
        return True
