"""Helper code: modules beside task files, loaded with a separate `import`.

Inside a helper module, `import lm_eval`, `import datasets`, `import evaluate`, `import sygra` and `import
tasks.eval.utils` find what assay supplies, whether or not those are installed. What it does not supply of the last two
comes from the files around the graph, if they exist; every other import is the usual one. With ASSAY_DATASETS=real in
the environment, `datasets` is the installed library, and rows are handed over as its data sets. Nothing outside the
module sees a difference: no entry in `sys.modules`, no path. The modules of one HelperCode are loaded once, so a fresh
one means fresh modules.
"""

import builtins
import importlib
import importlib.util
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, redirect_stdout
from functools import cached_property
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from assay.catalog.functions import check_function, check_name, load_problem, module_file
from assay.catalog.roots import installed_folders
from assay.compat.registered import Registered
from assay.config.run import RunConfig
from assay.config.source import digest
from assay.errors import ConfigError, Place, did_you_mean, installing, nearest
from assay.records import Document, Function
from assay.registry import HELPER_MODULE
from assay.scoring.helper_code import Helpers
from assay.tasks.settings import HELPER_CODE
from assay.user_code import user_code

if TYPE_CHECKING:
    from assay.compat.sygra_names import ModuleContents

LM_EVAL_TASKS = "/lm_eval/tasks"
TASK_UTILITIES = "tasks.eval.utils"
"""SyGra's module of an evaluation task's nodes. Of a file of that name only further names are used."""
AROUND = ("sygra", "tasks")
"""Packages around graph files."""


class Overlay(ModuleType):
    """A supplied module over a file of the same name: names that assay supplies win, the rest comes from the file, which is
    executed when it is needed.

    So the numbers of a graph do not depend on the files around it, and neither do they need what those files import.
    """

    def __init__(self, supplied: ModuleType, file: Path, load: Callable[[Path], ModuleType]) -> None:
        super().__init__(supplied.__name__)
        self.__file__ = str(file)
        self._load = load
        self.__dict__.update({name: value for name, value in vars(supplied).items() if not name.startswith("__")})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.below(), name)

    def below(self) -> ModuleType:
        """The module in the file; this runs it."""
        return self._load(Path(str(self.__file__)))

    def take_all(self) -> None:
        """Take every public name of the file over, as `import *` wants them."""
        own = {name: value for name, value in vars(self.below()).items() if not name.startswith("_")}
        self.__dict__.update({name: value for name, value in own.items() if name not in self.__dict__})


class HelperCode:
    """Loads helper modules and hands out what they hold. `data_dir` is for helper code that loads data itself."""

    def __init__(self, data_dir: str | None = None, lm_eval_folder: str | None = None) -> None:
        self.registered = Registered()
        self._real_datasets = _wants_real_datasets()
        self._lm_eval_folder = lm_eval_folder
        self._modules: dict[str, ModuleType] = {}
        self._overlays: dict[str, Overlay] = {}
        self._data_dir = data_dir

    @classmethod
    def of_run(cls, config: RunConfig) -> "HelperCode":
        """That of a run, with the modules of an installed lm_eval."""
        lm_eval = next((folder for origin, folder in installed_folders() if origin == "lm_eval"), None)
        return cls(config.data_dir, lm_eval or None)

    @cached_property
    def _provided(self) -> dict[str, ModuleType]:
        """The modules that assay supplies. They name half of the package, and most runs load no helper code."""
        from assay.compat.names import provided_modules

        provided = provided_modules(self.registered, self._data_dir)
        if self._real_datasets:
            del provided["datasets"]
        return provided

    @property
    def files(self) -> list[Path]:
        """The files of all modules that were loaded, those that others import included."""
        return [Path(path) for path in self._modules]

    def helpers(self) -> Helpers:
        """The helper code as tasks use it."""
        known = self.registered
        return Helpers(
            self.resolve, self.as_dataset, known.find_metric, lambda: known.filters, known.metrics, known.aggregations,
            known.reductions, self.dotted,
        )  # fmt: skip

    def dotted(self, path: str, folder: str | None, place: Place) -> Any:
        """The object that a dotted name of a graph file means. This runs its module."""
        return resolve_dotted(path, folder, self, place)

    def resolve(self, function: Function) -> Any:
        """The object that a `!function` names. This runs its module. A class that is given in Python is the object itself."""
        if not isinstance(function, Function):
            return function
        problem = check_function(function)
        if problem is not None:
            raise ConfigError([problem])
        file = module_file(function)
        fix = "do what it asks for, or leave the task out"
        with user_code(f"{file.name} cannot be loaded", lambda reason: ConfigError.at(function.place, reason, fix)):
            module = self.load(file) if file.is_file() else importlib.import_module(function.module)
        if not hasattr(module, function.name):
            fix = did_you_mean(function.name, vars(module))
            raise ConfigError.at(function.place, f"{file.name} has no {function.name!r}", fix)
        return getattr(module, function.name)

    def as_dataset(self, rows: Sequence[Document]) -> Iterable[Document]:
        """Rows as helper code expects them: a data set with its operations; one of the real library stays what it is."""
        if type(rows).__module__.startswith("datasets"):
            return rows
        from assay.compat.dataset import Dataset  # imported where helper code takes rows

        data = rows if isinstance(rows, Dataset) else Dataset(rows)
        return importlib.import_module("datasets").Dataset.from_list(data.to_list()) if self._real_datasets else data

    def load(self, file: Path) -> ModuleType:
        """The module in a file, executed with our import."""
        path = str(file)
        if path not in self._modules:
            module = ModuleType(f"{HELPER_MODULE}{digest(path.encode())}_{file.stem}")
            module.__file__ = path
            scoped = self._importer(file.parent)
            module.__dict__["__builtins__"] = {**vars(builtins), "__import__": scoped}
            with ExitStack() as undo:  # a module that fails half-way is not there
                self._modules[path] = module
                undo.callback(self._modules.pop, path)
                sys.modules[module.__name__] = module  # dataclasses and pickling look a class's module up there
                undo.callback(sys.modules.pop, module.__name__)
                code = compile(file.read_bytes(), path, "exec", dont_inherit=True)
                with redirect_stdout(StringIO()) as printed:  # of downloads, say: it is not part of our output
                    exec(code, module.__dict__)  # what loading a module is
                logging.getLogger("assay").debug("%s printed: %s", path, printed.getvalue())
                undo.pop_all()
        return self._modules[path]

    def _importer(self, folder: Path) -> Callable[..., ModuleType]:
        """`__import__` for the modules of one folder."""

        def scoped(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
            if level > 0:
                return self._relative(folder, name, fromlist or (), level)
            root = name.partition(".")[0]
            if root == "tasks":
                return self._tasks_import(name, globals, fromlist or (), folder)
            if root in ("lm_eval", "datasets", "evaluate", "sygra") or name in self._provided:
                return self._provided_import(name, fromlist or (), folder)
            if name == "transformers.data" and "metrics" in (fromlist or ()):
                return self._provided_import(name, fromlist, folder)
            try:
                return builtins.__import__(name, globals, locals, fromlist, level)
            except ModuleNotFoundError:
                sibling = folder / f"{name.replace('.', '/')}.py"
                if not sibling.is_file():
                    raise
                return self.load(sibling)

        return scoped

    def _relative(self, folder: Path, name: str, fromlist: Sequence[str], level: int) -> ModuleType:
        start = folder
        for _ in range(level - 1):
            start = start.parent
        target = start.joinpath(*name.split(".")) if name else start
        dotted = _inside_sygra(target)
        if dotted is not None:
            return self._provided_import(dotted, fromlist, folder)
        if target.with_suffix(".py").is_file():
            return self.load(target.with_suffix(".py"))
        package = ModuleType(target.name)
        for item in fromlist:
            setattr(package, item, self.load(target / f"{item}.py"))
        return package

    def _tasks_import(
        self, name: str, globals: "ModuleContents | None", fromlist: Sequence[str], folder: Path
    ) -> ModuleType:
        """A module of the user's `tasks` package, one that assay supplies, or an installed one."""
        inner = [name, *(f"{name}.{item}" for item in fromlist)]
        if any(each == TASK_UTILITIES or task_file(each, folder) for each in inner):
            return self._provided_import(name, fromlist, folder)
        return builtins.__import__(name, globals, None, fromlist, 0)

    def find_module(self, name: str, folder: str | None) -> ModuleType | None:
        """The module that a dotted name in a file of `folder` means, or None; this runs it."""
        here = Path(folder) if folder is not None else Path.cwd()
        for top in dict.fromkeys((here, Path.cwd())) if name.partition(".")[0] not in AROUND else ():
            file = Path(top, *name.split(".")).with_suffix(".py")
            if file.is_file():
                return self.load(file)
        module = self._find_or_none(name, here)
        if module is not None:
            return module
        spec = _spec(name)
        if spec is None:
            return None
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("sygra", "tasks") or not spec.origin:
                raise
            return self.load(Path(spec.origin))  # written for SyGra: with our import, it finds its names

    def supplied(self, name: str) -> ModuleType | None:
        """A module that assay supplies under a dotted name, or None; nothing is run."""
        return self._provided.get(name)

    def is_supplied(self, package: str) -> bool:
        """Whether assay supplies a package, or finds it around the file."""
        return package in AROUND or any(name.partition(".")[0] == package for name in self._provided)

    def module_names(self, folder: str | None) -> list[str]:
        """The modules that a dotted name may mean without anything installed."""
        beside = [path.stem for path in Path(folder).glob("*.py")] if folder is not None else []
        return [*beside, *self._provided]

    def _provided_import(self, name: str, fromlist: Sequence[str], folder: Path) -> ModuleType:
        """A module we supply: the last of a dotted name for `from` imports, else the first with the rest hung on it."""
        module = self._find(name, folder)
        over = module if isinstance(module, Overlay) else None
        if over is not None and "*" in fromlist:
            over.take_all()
        for item in fromlist:
            known = hasattr(module, item) if over is None else item in vars(over)  # its file is asked last
            if not known and item != "*":
                inner = self._find_or_none(f"{name}.{item}", folder)
                if inner is not None:
                    setattr(module, item, inner)
        if fromlist or "." not in name:
            return module
        parts = name.split(".")
        for end in range(len(parts) - 1, 0, -1):
            outer = self._find_or_none(".".join(parts[:end]), folder) or ModuleType(".".join(parts[:end]))
            setattr(outer, parts[end], module)
            module = outer
        return module

    def _find(self, name: str, folder: Path) -> ModuleType:
        module = self._find_or_none(name, folder)
        if module is None:
            raise ModuleNotFoundError(f"assay supplies no module {name!r} to helper code", name=name)
        return module

    def _find_or_none(self, name: str, folder: Path) -> ModuleType | None:
        own = task_file(name, folder) if name.partition(".")[0] in AROUND else None
        supplied = self._provided.get(name)
        if supplied is not None:
            return self._overlaid(supplied, own) if own is not None and own.is_file() else supplied
        if own is not None:
            return self.load(own) if own.is_file() else ModuleType(name)
        if name.startswith("lm_eval.tasks."):
            return self._task_module(name.split(".")[2:], folder)
        root, around = name.partition(".")[0], task_file(name.rpartition(".")[0], folder) if "." in name else None
        if root == "sygra" and around is not None and around.is_file():
            return None  # a name that a module on disk lacks is not in an installed one, either
        if root in ("datasets", "evaluate", "sygra") and importlib.util.find_spec(root):
            return importlib.import_module(name)  # a part that we do not supply, of a library that is installed
        return None

    def _overlaid(self, supplied: ModuleType, file: Path) -> Overlay:
        """A supplied module over a file."""
        if str(file) not in self._overlays:
            self._overlays[str(file)] = Overlay(supplied, file, self.load)
            if supplied.__name__ == TASK_UTILITIES:
                warn_of_hidden(supplied, file)
        return self._overlays[str(file)]

    def _task_module(self, parts: Sequence[str], folder: Path) -> ModuleType | None:
        """A module of lm-eval's task folder, by the name helper code calls it."""
        path = str(folder)
        inside = path[: path.index(LM_EVAL_TASKS) + len(LM_EVAL_TASKS)] if LM_EVAL_TASKS in path else None
        for top in (inside, self._lm_eval_folder):
            if top is None:
                continue
            target = Path(top, *parts)
            if target.with_suffix(".py").is_file():
                return self.load(target.with_suffix(".py"))
            if (target / "__init__.py").is_file():
                return self.load(target / "__init__.py")
            if target.is_dir():
                return ModuleType(".".join(("lm_eval", "tasks", *parts)))
        return None


def task_file(name: str, folder: Path) -> Path | None:
    """The file of a module of the user's `tasks` package, the one around `folder` or one on the path; or its folder.

    The same for a `sygra` beside it; one that is installed is imported as usual.
    """
    around = [top for top in folder.parents if any(folder.is_relative_to(top / each) for each in AROUND)]
    path = map(Path, sys.path) if name.partition(".")[0] == "tasks" else ()
    targets = [Path(top, *name.split(".")) for top in (folder, *around, Path.cwd(), *path)]
    files = [file for target in targets for file in (target.with_suffix(".py"), target / "__init__.py")]
    file = next((file for file in files if file.is_file()), None)
    return file or next((target for target in targets if target.is_dir()), None)


def _inside_sygra(target: Path) -> str | None:
    """The dotted name of a module inside a package `sygra` on disk."""
    tops = [top for top in (target, *target.parents) if top.name == "sygra" and (top / "core").is_dir()]
    return ".".join(target.relative_to(tops[0].parent).parts) if tops else None


def _spec(name: str) -> ModuleSpec | None:
    """Where an installed module is; None where there is none. Packages around it are imported."""
    try:
        return importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):
        return None


def _is_installed(library: str) -> bool:
    if library in sys.modules:  # None there means that its import was forbidden
        return sys.modules[library] is not None
    return importlib.util.find_spec(library) is not None


def _wants_real_datasets() -> bool:
    """Whether helper code shall have Hugging Face's own `datasets`, which the environment says."""
    written = os.environ.get("ASSAY_DATASETS", "")
    if written not in ("", "real"):
        fix = "write ASSAY_DATASETS=real, or leave it out for the one that assay supplies"
        raise ConfigError.at(Place("ASSAY_DATASETS"), f"cannot be {written!r}", fix)
    if written and not _is_installed("datasets"):
        fix = f"{installing('hub')}, or leave ASSAY_DATASETS out"
        raise ConfigError.at(Place("ASSAY_DATASETS"), "is real, and `datasets` is not installed", fix)
    return bool(written)


def warn_of_hidden(supplied: ModuleType, file: Path) -> None:
    """Say which names of a user's file are not used, because assay has its own."""
    defined = set(re.findall(r"^(?:class|def)\s+(\w+)", file.read_text("utf-8", "replace"), re.MULTILINE))
    hidden = sorted(name for name in vars(supplied) if name in defined)
    if hidden:
        logging.getLogger("assay").warning(
            "%s: %s of %s are assay's own, and those of the file are not used; give another name to what differs",
            file, ", ".join(hidden), supplied.__name__,
        )  # fmt: skip


NOT_LOADED = "the module cannot be loaded"
LOAD_FIX = "correct the module, or install what it imports"


def resolve_dotted(path: str, folder: str | None, helper: HelperCode, place: Place | None = None) -> Any:
    """The object, or the module, that a dotted name means. `folder` is that of the file which says it, at `place`."""
    where = place or Place(str(path))
    module_name, _, name = str(path).rpartition(".")
    if not all(part.isidentifier() for part in str(path).split(".")):
        raise ConfigError.at(where, f"invalid dotted name {path!r}", "write module.Name")
    with user_code(f"{path}: {NOT_LOADED}", lambda reason: ConfigError.at(where, reason, LOAD_FIX)):
        module = helper.find_module(module_name, folder) if module_name else None
        if module is not None and hasattr(module, name):
            return getattr(module, name)
        whole = helper.find_module(path, folder)
    if whole is not None:
        return whole
    if module is not None:
        names = {**vars(module.below()), **vars(module)} if isinstance(module, Overlay) else vars(module)
        public = [each for each in names if not each.startswith("_")]
        file = getattr(module, "__file__", None)
        shown = Path(file).name if file and not isinstance(module, Overlay) else f"module {module_name!r}"
        raise ConfigError.at(where, f"{shown} has no {name!r}", did_you_mean(name, public))
    raise _no_module(path, module_name or path, folder, helper, where)


def seen_dotted(path: str, folder: str | None, helper: HelperCode, place: Place) -> Any | None:
    """The same without executing anything: an object that assay supplies, or None for one of a user's module."""
    module_name, _, name = path.rpartition(".")
    here = Path(folder) if folder is not None else Path.cwd()
    supplied = helper.supplied(module_name)
    if supplied is not None and name in vars(supplied):
        return vars(supplied)[name]
    for each in (module_name, path) if module_name else (path,):
        files = [Path(top, *each.split(".")).with_suffix(".py") for top in (here, Path.cwd())]
        around = task_file(each, here) if each.startswith(("tasks.", "sygra.")) else None
        file = next((file for file in files if file.is_file()), around)
        if file is not None:
            reason = load_problem(file, helper.is_supplied) if file.is_file() else ""
            if reason:
                raise ConfigError.at(place, f"{path}: {NOT_LOADED}: {reason}", LOAD_FIX)
            wrong = (
                check_name(file, name, place) if each == module_name and supplied is None and file.is_file() else None
            )
            if wrong is not None:
                raise ConfigError([wrong])
            return None
    if supplied is not None:
        public = [each for each in vars(supplied) if not each.startswith("_")]
        raise ConfigError.at(place, f"module {module_name!r} has no {name!r}", did_you_mean(name, public))
    root = path.partition(".")[0]
    if not all(part.isidentifier() for part in path.split(".")):
        raise ConfigError.at(place, f"invalid dotted name {path!r}", "write module.Name")
    if root not in ("sygra", "tasks") and find_spec(root) is not None:
        return None
    raise _no_module(path, module_name or path, folder, helper, place)


def _no_module(path: str, module: str, folder: str | None, helper: HelperCode, place: Place) -> ConfigError:
    near = nearest(module, helper.module_names(folder), count=1)
    written = "write the module beside the graph file, or install its package" if "." in path else "write module.Name"
    fix = f"did you mean {near[0]!r}?" if near else written
    return ConfigError.at(place, f"{path}: no module named {module!r}", fix)


HELPER_CODE.register(lambda: HelperCode().helpers())
