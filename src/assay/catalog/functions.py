"""The functions that `!function` names: checked without executing, loaded when used."""

import ast
import importlib
import importlib.util
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from assay.errors import Place, Problem, did_you_mean, nearest
from assay.records import Function, UserValue
from assay.signatures import Signature, written_signature


def functions_in(value: UserValue) -> Iterator[Function]:
    """Every function in a value, at any depth."""
    if isinstance(value, Function):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from functions_in(inner)
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from functions_in(getattr(value, each.name))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from functions_in(inner)


def module_file(function: Function) -> Path:
    """The file of its module, beside the YAML file or elsewhere in the same `lm_eval/tasks` folder."""
    parts = function.module.split(".")
    if parts[:2] == ["lm_eval", "tasks"] and "/lm_eval/tasks" in function.folder:
        top = function.folder.rpartition("/lm_eval/tasks")[0]
        return Path(top, *parts).with_suffix(".py")
    return Path(function.folder, *parts).with_suffix(".py")


def check_function(function: Function) -> Problem | None:
    """Return the problem of a function's name, found by parsing its module without executing it."""
    file = module_file(function)
    try:
        is_there = file.is_file()
    except OSError as error:
        return Problem(
            function.place,
            f"module {function.module[:60]!r} cannot be found: {error.strerror}",
            "correct its name",
        )
    if not is_there and file.exists():
        return Problem(function.place, f"{file} is not a regular file", "put a module in its place")
    if not is_there:
        if _is_installed(function.module.partition(".")[0]):
            return None  # an installed module: to look inside would be to run it
        near = nearest(file.stem, [path.stem for path in file.parent.glob("*.py")], count=1)
        fix = f"did you mean {near[0]!r}?" if near else "write the module, or correct its name"
        return Problem(function.place, f"no module {function.module!r}: there is no {file}", fix)
    return check_name(file, function.name, function.place)


def check_name(file: Path, name: str, place: Place) -> Problem | None:
    """Return the problem of a name that a module's source does not define."""
    names = _names_in(str(file), file.stat().st_mtime_ns)
    if isinstance(names, str):
        return Problem(place, f"module {file} cannot be read: {names}", "correct the module")
    if names is None or name in names:
        return None
    return Problem(place, f"{file.name} has no {name!r}", did_you_mean(name, names))


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ValueError, ImportError):  # a module without a spec, as `__main__`
        return False


@cache
def _names_in(path: str, _changed_at: int) -> frozenset[str] | str | None:
    """The names that a module defines; None where only executing it would show them, an error text where it cannot be
    parsed.
    """
    tree = _parsed(path)
    if isinstance(tree, str):
        return tree
    names: set[str] = set()
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(statement.name)
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
        waiting += [child for child in ast.walk(statement) if isinstance(child, ast.stmt) and child is not statement]
        names.update(
            node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return (
        None
        if "*" in names or "__getattr__" in names or calls & {"globals", "exec", "vars", "setattr"}
        else frozenset(names)
    )


class StaticSignature(NamedTuple):
    """The signature of a function or class, read from the source of its module, with its line."""

    signature: Signature
    is_class: bool
    is_async: bool
    is_generator: bool
    line: int


class _Definition(NamedTuple):
    """What the source of a module shows of a function or class that it defines."""

    signature: StaticSignature | None
    is_plain: bool
    """Whether it is a function, or a class that extends nothing."""


def static_signature(function: Function) -> StaticSignature | None:
    """The signature of a function or class by its source, without executing it; None where that is uncertain.

    Annotations other than plain types accept anything.
    """
    definition = _definition(function)
    return definition.signature if definition is not None else None


def is_plain_class(function: Function) -> bool:
    """Whether a name is, by its source, a function or a class that extends nothing: neither a task nor a scorer."""
    definition = _definition(function)
    return definition is not None and definition.is_plain


def _definition(function: Function) -> _Definition | None:
    file = module_file(function)
    try:
        return _definitions_in(str(file), file.stat().st_mtime_ns).get(function.name)
    except OSError:
        return None


@cache
def _definitions_in(path: str, _changed_at: int) -> dict[str, _Definition]:
    """By name, the functions and classes defined once, at top level, without decorators."""
    tree = _parsed(path)
    if isinstance(tree, str):
        return {}
    stored = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    nodes = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    names = [node.name for node in nodes] + stored
    definitions: dict[str, _Definition] = {}
    for node in nodes:
        if names.count(node.name) > 1 or node.decorator_list:
            continue
        is_class = isinstance(node, ast.ClassDef)
        inits = (
            [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"] if is_class else [node]
        )
        signature = None
        if len(inits) == 1:
            signature = StaticSignature(
                written_signature(inits[0].args, skipped=1 if is_class else 0),  # type: ignore[union-attr]
                is_class,
                isinstance(node, ast.AsyncFunctionDef),
                not is_class and _yields(node),
                node.lineno,
            )
        extends = isinstance(node, ast.ClassDef) and (node.keywords or any(_name(b) != "object" for b in node.bases))
        definitions[node.name] = _Definition(signature, not extends)
    return definitions


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _parsed(path: str) -> ast.Module | str:
    """The syntax tree of a module, or why it cannot be read."""
    try:
        if not Path(path).is_file():
            return "it is not a regular file"  # a pipe would be waited for, and a device never ends
        with warnings.catch_warnings(action="ignore"):  # warnings of users' code are not ours
            return ast.parse(Path(path).read_bytes(), Path(path).name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: {error or 'it is nested too deeply'}"
    except OSError as error:
        return error.strerror or str(error)


def load_problem(file: Path, is_supplied: Callable[[str], bool]) -> str:
    """Return why a module cannot be loaded, as far as its text shows it: syntax, and imports of what is not there; or "".

    `is_supplied` returns whether assay supplies a package.
    """
    tree = _parsed(str(file))
    if isinstance(tree, str):
        return tree
    for statement in tree.body:
        names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
        if isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            names = [statement.module]
        for name in {name.partition(".")[0] for name in names}:
            beside = [top / each for top in (file.parent, Path.cwd()) for each in (name, f"{name}.py")]
            if not (is_supplied(name) or any(each.exists() for each in beside) or _is_installed(name)):
                return f"ModuleNotFoundError: No module named {name!r} (pip install {name}) ({file.name}:{statement.lineno})"
    return ""


METRIC_DECORATORS = {
    "unit_metric": "unit",
    "metric": "unit",
    "aggregator_metric": "aggregator",
    "aggregation": "aggregator",
}
"""By decorator the kind of metric of graphs that it registers a name for."""


def declared_metrics(files: Collection[Path]) -> set[tuple[str, str]]:
    """The metrics that modules, and those beside them that they import, register by a decorator: kind and name of each."""
    waiting, seen, declared = list(files), set(files), set[tuple[str, str]]()
    while waiting:
        file = waiting.pop()
        tree = _parsed(str(file))
        for node in ast.walk(tree) if not isinstance(tree, str) else ():
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                declared |= {metric for each in node.decorator_list if (metric := _declared(each)) is not None}
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            beside = {Path(file.parent, *name.split(".")).with_suffix(".py") for name in modules} - seen
            waiting += [each for each in beside if each.is_file()]
            seen |= beside
    return declared


def _declared(decorator: ast.expr) -> tuple[str, str] | None:
    """The metric that a decorator registers, as `@unit_metric("name")`."""
    if not isinstance(decorator, ast.Call) or not decorator.args or not isinstance(decorator.args[0], ast.Constant):
        return None
    called = decorator.func.attr if isinstance(decorator.func, ast.Attribute) else _name(decorator.func)
    return (METRIC_DECORATORS[called], str(decorator.args[0].value)) if called in METRIC_DECORATORS else None


def _yields(function: ast.AST) -> bool:
    """Whether a function is a generator: it yields itself, and not a function inside it."""
    inner = [each for each in ast.iter_child_nodes(function) if not isinstance(each, ast.FunctionDef | ast.Lambda)]
    return any(isinstance(each, ast.Yield | ast.YieldFrom) or _yields(each) for each in inner)
