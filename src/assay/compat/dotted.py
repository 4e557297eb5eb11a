"""What a dotted name in a graph file means: an object of a module beside it, of its `tasks` package, of SyGra's names that
assay supplies, or of an installed package. Finding it runs the module."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.compat.modules import HelperCode, task_file
from assay.compat.overlay import Overlay
from assay.errors import ConfigError, Place, Problem, did_you_mean, nearest
from assay.user_code import user_code


def resolve_dotted(path: str, folder: str | None, helper: HelperCode, place: Place | None = None) -> Any:
    """The object, or the module, that a dotted name means. `folder` is that of the file which says it, at `place`."""
    where = place or Place(str(path))
    module_name, _, name = str(path).rpartition(".")
    if not module_name or not all(part.isidentifier() for part in str(path).split(".")):
        raise _problem(where, f"{path!r} is no dotted name", "write module.Name")
    fix = "correct the module, or install what it imports"
    with user_code(f"{path}: the module cannot be loaded", lambda reason: _problem(where, reason, fix)):
        module = helper.find_module(module_name, folder)
        if module is not None and hasattr(module, name):
            return getattr(module, name)
        whole = helper.find_module(path, folder)
    if whole is not None:
        return whole
    if module is not None:
        several = {**vars(module.below()), **vars(module)} if isinstance(module, Overlay) else vars(module)
        public = [each for each in several if not each.startswith("_")]
        raise _problem(where, f"module {module_name!r} has no {name!r}", did_you_mean(name, public))
    raise _no_module(path, module_name, folder, helper, where)


def seen_dotted(path: str, folder: str | None, helper: HelperCode, place: Place) -> Any | None:
    """The same without running anything: an object that assay supplies, or None for what lies in somebody's module."""
    module_name, _, name = path.rpartition(".")
    here = Path(folder) if folder is not None else Path.cwd()
    supplied = helper.supplied(module_name)
    if supplied is not None and name in vars(supplied):
        return vars(supplied)[name]
    for each in (module_name, path):
        files = [Path(top, *each.split(".")).with_suffix(".py") for top in (here, Path.cwd())]
        if any(file.is_file() for file in files) or (each.startswith(("tasks.", "sygra.")) and task_file(each, here)):
            return None
    if supplied is not None:
        public = [each for each in vars(supplied) if not each.startswith("_")]
        raise _problem(place, f"module {module_name!r} has no {name!r}", did_you_mean(name, public))
    root = module_name.partition(".")[0]
    if not root.isidentifier() or (root not in ("sygra", "tasks") and find_spec(root) is not None):
        return None
    raise _no_module(path, module_name, folder, helper, place)


def _no_module(path: str, module: str, folder: str | None, helper: HelperCode, place: Place) -> ConfigError:
    near = nearest(module, helper.module_names(folder), count=1)
    fix = f"did you mean {near[0]!r}?" if near else "write the module beside the graph file, or install its package"
    return _problem(place, f"{path}: there is no module {module!r}", fix)


def _problem(place: Place, what: str, fix: str) -> ConfigError:
    return ConfigError([Problem(place, what, fix)])
