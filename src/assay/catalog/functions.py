"""The functions that `!function` names: checked without executing, loaded when used."""

import ast
import importlib
import importlib.util
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Union

from assay.errors import Place, Problem, did_you_mean, nearest
from assay.records import Function, UserFunction, UserValue


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


class WrittenDefinition(NamedTuple):
    """What the source of a module shows of a function or class that it defines, without executing it."""

    like: UserFunction | None
    """A function with its signature, which returns itself; of a class, with that of its own `__init__`, if it has one."""
    is_class: bool
    is_plain: bool
    """Whether it is a function, or a class that extends nothing: neither a task nor a scorer."""


def written_definition(function: Function) -> WrittenDefinition | None:
    """Return what is written of a function or class; None where its name is uncertain."""
    file = module_file(function)
    try:
        return _definitions_in(str(file), file.stat().st_mtime_ns).get(function.name)
    except OSError:
        return None


@cache
def _definitions_in(path: str, _changed_at: int) -> dict[str, WrittenDefinition]:
    """By name, the functions and classes defined once, at top level, without decorators."""
    tree = _parsed(path)
    if isinstance(tree, str):
        return {}
    stored = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    nodes = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    names = [node.name for node in nodes] + stored
    definitions: dict[str, WrittenDefinition] = {}
    for node in nodes:
        if names.count(node.name) > 1 or node.decorator_list:
            continue
        with suppress(SyntaxError):  # such as an argument that comes twice, which parsing lets pass
            definitions[node.name] = _definition(node, path)
    return definitions


def _definition(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, path: str) -> WrittenDefinition:
    if not isinstance(node, ast.ClassDef):
        return WrittenDefinition(_like(node, path), is_class=False, is_plain=True)
    inits = [inner for inner in node.body if isinstance(inner, ast.FunctionDef) and inner.name == "__init__"]
    extends = bool(node.keywords) or any(_name(base) != "object" for base in node.bases)
    return WrittenDefinition(_like(inits[0], path) if len(inits) == 1 else None, is_class=True, is_plain=not extends)


def _like(node: ast.FunctionDef | ast.AsyncFunctionDef, path: str) -> UserFunction:
    """Return a function that is defined like another, with a body that returns the function itself.

    Nothing of the other is executed: of defaults only constants are taken, of annotations only plain types.
    """
    like, arguments = copy(node), deepcopy(node.args)
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    hints = {
        each.arg: _plain_type(each.annotation) for each in every if each is not None and each.annotation is not None
    }
    for each in every:
        if each is not None:
            each.annotation = None
    arguments.defaults = [_constant(each) for each in arguments.defaults]
    arguments.kw_defaults = [each and _constant(each) for each in arguments.kw_defaults]
    body: ast.stmt = ast.Expr(ast.Yield()) if _yields(node) else ast.Return(ast.Name(node.name, ast.Load()))
    like.args, like.body, like.decorator_list, like.returns = arguments, [body], [], None
    namespace: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(ast.Module([like], [])), path, "exec"), namespace)
    function: Any = namespace[node.name]
    function.__annotations__ = hints
    return function  # type: ignore[no-any-return]


def _constant(default: ast.expr) -> ast.Constant:
    """A default that is a constant; of another, only that there is one counts."""
    return ast.copy_location(ast.Constant(default.value if isinstance(default, ast.Constant) else None), default)


PLAIN_TYPES = {each.__name__: each for each in (bool, int, float, str, list, dict)}


def _plain_type(node: ast.expr) -> Any:
    """The plain type, or union of them, of an annotation; `Any` for every other."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value, mode="eval").body
        except SyntaxError:
            return Any
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return Union[_plain_type(node.left), _plain_type(node.right)]  # noqa: UP007  # of values: None | None is not a type
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in ("list", "List"):
        return list[_plain_type(node.slice)]  # type: ignore[misc]  # built from the text of a file
    return PLAIN_TYPES.get(node.id, Any) if isinstance(node, ast.Name) else Any


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


class Registration(NamedTuple):
    """What the source of a module shows of something that it registers."""

    kind: str
    """As problems name it, such as `unit metric`."""
    name: str
    """"" of one that is computed."""
    target: str
    """The class or function; "" where it has no name at the top of the module."""


@cache
def _registrations_in(path: str, _changed_at: int) -> tuple[list[Registration], set[str]]:
    """What a module registers, by a decorator or as an entry of a registry, and the names of the modules that it imports."""
    tree = _parsed(path)
    found, imports = list[Registration](), set[str]()
    for node in ast.walk(tree) if isinstance(tree, ast.Module) else ():
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found += [_registration(call, node.name) for call in node.decorator_list if isinstance(call, ast.Call)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Call):
            found.append(_registration(node.func, _name(node.args[0]) if node.args else ""))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            entry = node.targets[0]
            kind = ast.unparse(entry.value).rpartition(".")[2].lower().removesuffix("_registry")
            found.append(Registration(kind, _text(entry.slice), _name(node.value)))
        elif isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module] if node.module else [alias.name for alias in node.names]
            imports.update(modules)
    return [each._replace(kind=each.kind.replace("_", " ")) for each in found], imports


def _registration(call: ast.Call, target: str) -> Registration:
    """What a call of a decorator such as `assay.metric("name")` or `SCORER_REGISTRY.register("name")` registers."""
    registry, _, last = ast.unparse(call.func).rpartition(".")
    if last == "register":
        last = registry.rpartition(".")[2].lower().removesuffix("_registry").removesuffix("s")
    named = [*call.args[:1], *(each.value for each in call.keywords if each.arg in ("name", "metric"))]
    return Registration(last.removeprefix("register_"), _text(named[0]) if named else "", target)


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def find_registrations(file: Path) -> list[Registration]:
    """What a module registers, as its source shows it; nothing is executed."""
    try:
        return _registrations_in(str(file), file.stat().st_mtime_ns)[0]
    except OSError:
        return []


def registered_names(files: Collection[Path]) -> dict[str, set[str]]:
    """By kind, the names that modules register, and those beside them that they import, as their sources show; "" for one
    that is computed."""
    known: dict[str, set[str]] = {}
    waiting, seen = list(files), set(files)
    while waiting:
        file = waiting.pop()
        try:
            found, imports = _registrations_in(str(file), file.stat().st_mtime_ns)
        except OSError:  # it is not there, or no file can have its name: reported where functions are looked up
            continue
        for kind, name, _ in found:
            known.setdefault(kind, set()).add(name)
        beside = {Path(file.parent, *name.split(".")).with_suffix(".py") for name in imports} - seen
        seen |= beside
        waiting += beside
    return known


def leave_registered(problems: Iterable[Problem], known: Mapping[str, Collection[str]]) -> Iterator[Problem]:
    """Leave out that something has no such name where code that is not loaded registers it; a note where it may."""
    for problem in problems:
        kind, name = problem.cause if len(problem.cause) == 2 else ("", "")
        names = {each for also in (kind, *IS_ALSO.get(kind, ())) for each in known.get(also, ())}
        if "" in names and name not in names:
            fix = f"{problem.fix}; `--load` runs the helper code that may register it"
            yield replace(problem, fix=fix, serious=False)
        elif name not in names and not (kind == "reduction" and name.rstrip("0123456789") in names):
            yield problem


IS_ALSO = {
    "unit metric": ("metric",),
    "aggregator metric": ("aggregation",),
    "aggregator": ("aggregation",),
}
"""By kind, the kinds of which the members are found by its names, too."""


def _yields(function: ast.AST) -> bool:
    """Whether a function is a generator: it yields itself, and not a function inside it."""
    inner = [each for each in ast.iter_child_nodes(function) if not isinstance(each, ast.FunctionDef | ast.Lambda)]
    return any(isinstance(each, ast.Yield | ast.YieldFrom) or _yields(each) for each in inner)
