"""The one registry and the one binder: map names in YAML to Python objects, with their parameters.

Each kind (metric, filter, model, …) has one `Registry`. Members are built in, registered by a decorator, or named by entry
points of installed packages, read for unknown names only. Keyword parameters are YAML keys: `bind` checks names and types of all.
"""

import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass, replace
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from inspect import unwrap
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from assay.errors import AssayError, ConfigError, Place, Problem, check_each, unknown_name
from assay.records import Params, UserFunction, UserValue
from assay.redaction import reveal
from assay.signatures import Accepted, Where, accepted, line_to_add, location, problems_of
from assay.user_code import MOST_WORDS, user_code, words

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

M = TypeVar("M")
B = TypeVar("B")
T = TypeVar("T")


class Registry(MutableMapping[str, M], Generic[M, B]):
    """Members of one kind by name; `bind` combines a member with parameters into the object a run uses.

    `supplied` names the arguments that the caller passes besides the parameters of a file. `adopt` converts what a user
    registers to a member, or raises a TypeError that says what it must be. A text such as "module:Class" is imported at
    its first use.
    """

    word = "parameter"

    def __init__(
        self,
        kind: str,
        members: Mapping[str, M | str],
        *,
        group: str | None = None,
        supplied: Sequence[str] = (),
        adopt: Callable[[str, UserValue], M] | None = None,
        build: Callable[..., B] | None = None,
    ) -> None:
        self.kind, self.group, self.supplied = kind, group, tuple(supplied)
        self._members: dict[str, M | str] = dict(members)
        self._built_in = frozenset(members)
        self._sources: dict[str, object] = {}
        self._adopt, self._build = adopt, build

    def __getitem__(self, name: str) -> M:
        """Return the member; a plug-in is imported now."""
        if name not in self._members:
            if name not in self._plugins():
                raise KeyError(name)
            self._load(name)
        member = self._members[name]
        if isinstance(member, str):
            module, _, attribute = member.partition(":")
            loaded: M = getattr(import_module(module), attribute)
            self._members[name] = member = loaded
        return member

    def __setitem__(self, name: str, member: UserValue) -> None:
        """Register a member; it replaces a user's member of that name, never a built-in."""
        self.add(name, member, replacing=True)

    def __delitem__(self, name: str) -> None:
        if name in self._built_in:
            raise KeyError(f"{self.kind} {name!r} is built in and cannot be removed")
        del self._members[name]
        self._sources.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._members or name in self._plugins()

    def __iter__(self) -> Iterator[str]:
        """Iterate over names known without importing plug-ins; `names` has all."""
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    @property
    def added(self) -> list[str]:
        """Names that users registered."""
        return [name for name in self._members if name not in self._built_in]

    def names(self) -> list[str]:
        """List all names, including plug-ins that are not imported yet."""
        return [*self._members, *(name for name in self._plugins() if name not in self._members)]

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers an object as `name`."""
        self.check_name(name)

        def registered(thing: T) -> T:
            self.add(name, thing)
            return thing

        return registered

    def check_name(self, name: object) -> None:
        """Refuse what is no name: a decorator without parentheses is handed the function."""
        if not isinstance(name, str) or not name.strip():
            fix = f" — write `@assay.{self.kind.replace(' ', '_')}('NAME')`" if callable(name) else ""
            raise TypeError(f"a name in the registry of {_plural(self.kind)} must be a text, got {name!r:.60}{fix}")

    def add(self, name: str, thing: Any, *, source: UserValue = None, replacing: bool = False) -> M:
        """Register an object. A name that another object has is rejected with both locations."""
        self.check_name(name)
        source = thing if source is None else source
        if name in self._built_in:
            what = f"the name {name!r} is that of a built-in {self.kind}"
            raise ConfigError.at(_defined(source), what, "choose another name")
        other = self._other(name, source)
        if not replacing and other is not None:
            what = f"two {_plural(self.kind)} are called {name!r}: {_defined(other)} and {_defined(source)}"
            raise ConfigError.at(_defined(source), what, "give one of them another name")
        member: M = self._adopt(name, thing) if self._adopt is not None else thing
        if callable(member):
            self.refuse_shape(member, len(self.supplied))
        self._members[name], self._sources[name] = member, source
        return member

    def _other(self, name: str, source: UserValue) -> UserValue:
        """Return another object with this name: registered, or a plug-in of another package."""
        other = self._sources.get(name)
        if other is not None:
            return other if other is not source and _identity(other) != _identity(source) else None
        package = str(getattr(source, "__module__", "")).partition(".")[0]
        plugins = [each for each in self._plugins().get(name, ()) if each is not source]
        others = [each for each in plugins if each.module.partition(".")[0] != package]
        return next((each for each in others if _identity(each) != _identity(source)), None)

    def is_loaded_from(self, name: str, file: Path) -> bool:
        """Whether a file registered this name, as a plug-in or script: helper code is loaded by each run, which notes its files."""
        source = self._sources.get(name)
        is_helper = str(getattr(source, "__module__", "")).startswith(HELPER_MODULE)
        return not is_helper and file_of(source) == os.path.realpath(file)

    def refuse_shape(self, function: UserFunction, supplied: int) -> None:
        """Raise a TypeError if a function cannot take the arguments that it will be called with."""
        takes = accepted(function, supplied)
        if takes.unreturned is not None:
            what, fix = takes.unreturned
            raise TypeError(f"{self.kind} {_called(function)!r} {what}: {fix}")
        if takes.lacking:
            parameters = ", ".join(self.supplied)
            what = f"{_called(function)} cannot be used as {self.kind}"
            raise TypeError(f"{what}: it must take ({parameters}, …) by position")

    def find(self, name: str, where: Where) -> M:
        """Return the member named `name`, or raise an error with the nearest names."""
        try:
            return self[name]
        except KeyError:
            raise ConfigError([unknown_name(self.kind, name, self.names(), location(where))]) from None

    def accepts(self, member: Any) -> Accepted:
        """Return the parameters that a file may set for a member."""
        return accepted(member, len(self.supplied))

    def fix_for_missing(self, name: str, key: str) -> str:  # noqa: ARG002  # kinds with another notation override it
        """Return the fix for a missing parameter."""
        return line_to_add(key)

    def problems(self, name: str, takes: UserFunction | Accepted, params: Params, where: Where) -> list[Problem]:
        """List all problems with the parameters of the member that messages call `name`."""
        known = takes if isinstance(takes, Accepted) else accepted(takes, len(self.supplied))
        subject = (f"{self.kind} {name!r}", self.word, partial(self.fix_for_missing, name))
        what = f"{self.kind} {name!r} cannot be called: it must take ({', '.join(self.supplied)}, …) by position"
        return problems_of(known, params, subject, where, (what, "correct its parameters"))

    def check(self, named: str | UserFunction, params: Params, where: Where) -> M:
        """Return the member of a name or a user's object after checking all parameters."""
        member: Any = self.find(named, where) if isinstance(named, str) else named
        problems = self.problems(_called(named), self.accepts(member), params, where)
        if problems:
            raise ConfigError(problems)
        checked: M = member
        return checked

    def bind(self, named: str | UserFunction, params: Params, where: Where, *supplied: UserValue) -> B:
        """Return the member with its parameters, ready for a run; raise a ConfigError if it cannot be built."""
        member: Any = self.check(named, params, where)
        place = location(where)
        build: Callable[..., B] = partial(self._build, member) if self._build is not None else member
        with refused(place, f"{self.kind} {_called(named)!r} cannot be made", "correct its parameters"):
            return build(*supplied, **reveal(params))

    def _plugins(self) -> "Mapping[str, Sequence[EntryPoint]]":
        return installed_plugins(self.group, tuple(sys.path)) if self.group is not None else {}

    def _load(self, name: str) -> None:
        """Import and register the plug-in with this name."""
        plugins = self._plugins()[name]
        if len(plugins) > 1:
            raise ConfigError([self._twice(name, plugins)])
        [plugin] = plugins
        fix = "fix or uninstall the package"
        with refused(Place(_origin(plugin)), f"the plug-in {name!r} cannot be loaded", fix):
            thing = plugin.load()
            if name not in self._members:  # else importing its module has registered it, with the decorator's options
                self.add(name, thing, source=plugin)
        USED[_distribution(plugin)] = plugin.dist.version if plugin.dist is not None else ""

    def _twice(self, name: str, plugins: "Sequence[EntryPoint]") -> Problem:
        what = f"two plug-ins register the {self.kind} {name!r}: {' and '.join(map(_origin, plugins))}"
        return Problem(Place(_origin(plugins[0])), what, "uninstall one of them")

    def plugin_problems(self) -> list[Problem]:
        """List problems with the names of installed plug-ins, without importing any."""
        problems = []
        for name, plugins in self._plugins().items():
            if name in self._built_in:
                what = f"the plug-in's name {name!r} is that of a built-in {self.kind}, which is used instead of it"
                problems += [Problem(Place(_origin(each)), what, "choose another name") for each in plugins]
            elif len(plugins) > 1:
                problems.append(self._twice(name, plugins))
        return problems


HELPER_MODULE = "assay_helper_"
"""The beginning of the names of modules that are loaded as helper code."""
USED: dict[str, str] = {}
"""Packages whose plug-ins were imported in this process, with versions, for the run's manifest."""


@cache
def installed_plugins(group: str, path: tuple[str, ...]) -> "Mapping[str, Sequence[EntryPoint]]":  # noqa: ARG001  # the key of the cache
    """Return the entry points of a group by name, without importing. Scanned once per process and `sys.path`: 20 ms."""
    from importlib.metadata import entry_points

    plugins: dict[str, list[EntryPoint]] = {}
    for plugin in entry_points(group=group):
        known = plugins.setdefault(plugin.name, [])
        if (plugin.value, _distribution(plugin)) not in [(each.value, _distribution(each)) for each in known]:
            known.append(plugin)  # a package that is on the path twice counts once
    return plugins


def _distribution(plugin: "EntryPoint") -> str:
    return plugin.dist.name if plugin.dist is not None else plugin.value


def _origin(plugin: "EntryPoint") -> str:
    return f"{plugin.group} of {_distribution(plugin)} ({plugin.value})"


def load_plugins(named: Iterable[str]) -> list[Path]:
    """Import users' modules, by name or file, which register their plug-ins; return their files.

    A file is executed again only if it has changed, so a run may name what the command line has already loaded.
    """
    modules = check_each(lambda name: _plugin_file(Path(name)) if is_plugin_file(name) else _plugin_module(name), named)
    return [Path(module.__file__) for module in modules if module.__file__]


def is_plugin_file(named: str) -> bool:
    """Whether `--plugin` names a file rather than a module."""
    return named.endswith(".py") or "/" in named or os.sep in named


def _plugin_module(name: str) -> ModuleType:
    place = Place(f"--plugin {name}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError.at(place, f"invalid module name {name!r}", "name a module, or a file that ends in .py")
    if name not in sys.modules:
        fix = f"write ./{name}.py for the file" if Path(f"{name}.py").is_file() else "install it, or name its file"
        with refused(place, "the plug-in cannot be loaded", fix):
            import_module(name)
    return sys.modules[name]


def _plugin_file(file: Path) -> ModuleType:
    place, path = Place(f"--plugin {file}"), Path(os.path.realpath(file.expanduser()))
    if not path.is_file():
        raise ConfigError.at(place, "there is no such file", "correct its path, or name an importable module")
    state = path.stat()
    stamp = (state.st_mtime_ns, state.st_size)
    name = f"assay_plugin_{zlib.crc32(str(path).encode()):08x}_{path.stem}"
    if name in sys.modules and _LOADED.get(path) == stamp:
        return sys.modules[name]
    with refused(place, "the plug-in cannot be loaded", "correct the file"):
        module = ModuleType(name)
        module.__file__ = str(path)
        sys.modules[name] = module  # dataclasses and pickling look up a class's module there
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)  # as importing it does
    _LOADED[path] = stamp
    return module


_LOADED: dict[Path, tuple[int, int]] = {}


class refused(user_code):  # noqa: N801  # reads as a statement: `with refused(place, "… cannot be made", fix):`
    """Context manager in which user code is loaded or built: any exception becomes a ConfigError at one place.

    ConfigErrors keep their text and get the place.
    """

    def __init__(self, place: Place, what: str, fix: str) -> None:
        super().__init__(what, lambda message: ConfigError.at(place, message, fix), passes=AssayError)
        self._at, self._what, self._fix = place, what, fix

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ConfigError):
            placed = [each if each.place.line else replace(each, place=self._at) for each in error.problems]
            raise ConfigError(placed) from error
        if isinstance(error, TypeError | ValueError):  # the message of a wrong argument is enough
            _, _, message = words(error).partition(": ")
            raise ConfigError.at(self._at, f"{self._what}: {message:.{MOST_WORDS}}", self._fix) from error
        super().__exit__(kind, error, trace)


Other = TypeVar("Other")


class AdaptedMembers(Mapping[str, M], Generic[M, Other]):
    """The members of a registry as members of another kind: `adapt` makes them, each once, or returns None."""

    def __init__(self, registry: Registry[Other, Any], adapt: Callable[[str, Other], M | None]) -> None:
        self.registry, self._adapt = registry, adapt
        self._adapted: dict[str, tuple[Other, M | None]] = {}

    def __getitem__(self, name: str) -> M:
        other = self.registry[name]
        if name not in self._adapted or self._adapted[name][0] is not other:
            self._adapted[name] = other, self._adapt(name, other)
        member = self._adapted[name][1]
        if member is None:
            raise KeyError(name)
        return member

    def __iter__(self) -> Iterator[str]:
        """Iterate over names known without importing plug-ins."""
        return (name for name in self.registry if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class RegistryWithOthers(Registry[M, B], Generic[M, B, Other]):
    """A registry that has the members of another one, too, whenever those are registered. Its built-in ones are as its own."""

    def __init__(
        self, kind: str, members: Mapping[str, M | str], others: AdaptedMembers[M, Other], **options: Any
    ) -> None:
        built_in = {name: others[name] for name in others if name not in others.registry.added}
        super().__init__(kind, {**built_in, **members}, **options)
        self._others = others

    def __getitem__(self, name: str) -> M:
        return super().__getitem__(name) if super().__contains__(name) else self._others[name]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._others

    def names(self) -> list[str]:
        own = super().names()
        return [*own, *(name for name in self._others if name not in own)]


def subclass_of(base: type[T]) -> Callable[[str, UserValue], type[T]]:
    """Return an `adopt` for registries of classes derived from `base`."""

    def adopt(name: str, thing: UserValue) -> type[T]:  # noqa: ARG001  # the shape of `adopt`
        if not (isinstance(thing, type) and issubclass(thing, base)):
            raise TypeError(f"{_called(thing)} must be a class derived from {base.__name__}")
        return thing

    return adopt


def must_be_callable(name: str, thing: UserValue) -> UserFunction:
    """An `adopt` for registries of functions and classes."""
    if not callable(thing):
        raise TypeError(f"{name!r} must be a function or a class, got {thing!r:.60}")
    function: UserFunction = thing
    return function


def _called(thing: UserValue) -> str:
    """Return the name of a user's object for messages."""
    if isinstance(thing, str):
        return thing
    if isinstance(thing, partial):
        return _called(thing.func)
    name = getattr(thing, "__name__", None)
    return str(name) if name else f"{thing!r:.60}"


def _plural(kind: str) -> str:
    return kind + "s"


def _identity(thing: UserValue) -> tuple[UserValue, ...]:
    """File and name: a file that is executed again, as a module, a plug-in, a script, helper code or a cell of a notebook,
    registers the same objects."""
    if hasattr(thing, "group") and hasattr(thing, "value"):  # an entry point, which is not imported for this
        module, _, name = str(thing.value).partition(":")
        return _file_of_module(module) or module, name
    if isinstance(thing, partial):
        return *_identity(thing.func), repr(thing.args), repr(thing.keywords)
    if is_dataclass(thing) and not isinstance(thing, type):  # a format
        return type(thing), repr(thing)
    defined = thing if hasattr(thing, "__qualname__") else type(thing)
    return file_of(defined) or getattr(defined, "__module__", None), getattr(defined, "__qualname__", None)


def file_of(thing: UserValue) -> str | None:
    """The file in which a class or function is defined, whatever the module is called; None where there is none."""
    module = sys.modules.get(str(getattr(thing, "__module__", None)))
    file = getattr(module, "__file__", None)
    return os.path.realpath(file) if isinstance(file, str) else None


def _file_of_module(name: str) -> str | None:
    """The file of a module that may not be imported yet; packages around it are imported."""
    if name in sys.modules:
        file = getattr(sys.modules[name], "__file__", None)
    else:
        with suppress(ImportError, ValueError):
            spec = find_spec(name)
            file = spec.origin if spec is not None else None
    return os.path.realpath(file) if isinstance(file, str) else None


def _defined(thing: UserValue) -> str:
    """Return where an object is defined, as file:line with module and name."""
    if hasattr(thing, "group") and hasattr(thing, "value"):
        return _origin(thing)  # type: ignore[arg-type]
    inner = unwrap(thing) if callable(thing) else thing
    code = getattr(inner, "__code__", None)
    codes: Iterable[Any] = (
        (getattr(each, "__code__", None) for each in vars(inner).values()) if isinstance(inner, type) else ()
    )
    code = code or next((each for each in codes if each is not None), None)
    named = f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', repr(inner)[:60])}".strip(".")
    return f"{code.co_filename}:{code.co_firstlineno}: {named}" if code is not None else named
