"""What a user's class defines, or sets on an object, although nothing asks for it: it is refused, where it would be ignored.

Three kinds are told apart: members of our own class that are not for users to replace, names that another harness or an earlier
version asks for, and slips in the name of one that we ask for. Of the last two, what the user's own code reads is let be.
"""

import dis
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import CodeType, FunctionType
from typing import Any

from assay.errors import ConfigError, Place, Problem
from assay.signatures import method_problem
from assay.similar import nearest
from assay.user_code import is_overridden

_STANDARD = ("abc", "builtins", "collections.abc", "dataclasses", "typing")


@dataclass(frozen=True)
class ExtensionPoint:
    """A class that users derive from.

    methods:     those that it calls, with the names of their arguments; None where others call them, too
    attributes:  the others that it asks for
    others:      names that it does not ask for, each with what to do instead
    may_yield:   methods whose values are iterated over
    """

    base: type
    methods: Mapping[str, Sequence[str] | None]
    attributes: Sequence[str] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    may_yield: Sequence[str] = ()

    def problems(self, owner: object) -> Iterator[tuple[str, str]]:
        """Everything wrong with what a user's class defines, or was set on an object: what it is, and how to correct it."""
        yield from self.unasked(owner)
        yield from self.uncallable(owner)

    def uncallable(self, owner: object) -> Iterator[tuple[str, str]]:
        """The methods that cannot be called as they will be."""
        for name, arguments in self.methods.items():
            if arguments is None or not is_overridden(owner, name, self.base):
                continue
            what = method_problem(getattr(owner, name), len(arguments), may_yield=name in self.may_yield)
            if what is not None:
                yield f"{name} {what}", f"write `def {name}(self, {', '.join(arguments)})`"

    def refuse(self, owner: object, place: Place) -> None:
        """Raise a ConfigError with everything that is wrong."""
        found = [Problem(place, f"class {type(owner).__name__!r}: {what}", fix) for what, fix in self.problems(owner)]
        if found:
            raise ConfigError(found)

    @cached_property
    def asked(self) -> Sequence[str]:
        return [*self.methods, *self.attributes]

    def unasked(self, owner: object) -> Iterator[tuple[str, str]]:
        """Every name that is defined and never asked for."""
        kind = type(owner)
        for name in self._defined(owner):
            is_own = name in self._own
            is_ours = is_own or any(name in vars(ours) for ours in kind.__mro__ if not _is_users(ours))
            alike = nearest(name, self.asked, 1, only_slips=True)
            fix = self.others.get(name) or (f"did you mean {alike[0]!r}?" if alike and not is_ours else None)
            if is_own and fix is None:
                yield f"{name} belongs to assay, and cannot be replaced", "choose another name"
            elif fix is not None and (is_own or not _is_read(name, kind)):
                yield f"{name} has no effect", fix

    def _defined(self, owner: object) -> list[str]:
        """The names that a user's classes define, and those that were set on the object."""
        kind = type(owner)
        by_class = [name for theirs in kind.__mro__ if _is_users(theirs) for name in vars(theirs)]
        set_by_ours = _set_by_ours(kind)  # type: ignore[arg-type]  # a class can be hashed
        # an attribute that our `__init__` sets hides one of the class, unless that is a property
        hidden = {name for name in by_class if name in set_by_ours and isinstance(getattr(kind, name, None), property)}
        on_object = [name for name in getattr(owner, "__dict__", ()) if name not in set_by_ours and self._may_set(name)]
        every = [name for name in dict.fromkeys([*by_class, *on_object]) if name not in hidden]
        unasked = [name for name in every if name not in self.asked or name in self.others]
        return [name for name in unasked if not name.startswith(("__", "_abc_", "_is_protocol"))]

    def _may_set(self, name: str) -> bool:
        """Whether an attribute of an object may be a user's: our own code sets only those that are data in our class."""
        return name not in self._own or callable(getattr(self.base, name))

    @cached_property
    def _own(self) -> frozenset[str]:
        """The names that our class defines."""
        return frozenset(name for kind in self.base.__mro__ if kind is not object for name in vars(kind))


def _is_users(kind: type) -> bool:
    """Whether a class is neither ours nor Python's. One that `type(…)` made of an abstract class says that it is of `abc`."""
    is_pythons = kind.__module__ in _STANDARD and hasattr(sys.modules[kind.__module__], kind.__name__)
    return not is_pythons and kind.__module__.partition(".")[0] != "assay"


@lru_cache
def _set_by_ours(kind: type) -> frozenset[str]:
    """The names that our own code sets on objects of a class: whether a user set them, nobody can tell."""
    codes = [code for ours in kind.__mro__ if not _is_users(ours) for code in _codes(ours)]
    return frozenset(name for code in codes for name in _attributes(code, "STORE_ATTR"))


def _is_read(name: str, kind: type) -> bool:
    """Whether code of the user's reads an attribute of that name: in the classes, and the modules that they are of."""
    for theirs in filter(_is_users, kind.__mro__):
        module = vars(sys.modules.get(theirs.__module__, object))
        parts = [value for value in module.values() if isinstance(value, type | FunctionType)]
        holders = [theirs, *(value for value in parts if value.__module__ == theirs.__module__)]
        if any(name in names_read(holder) for holder in holders):
            return True
    return False


def names_read(holder: type | FunctionType) -> frozenset[str]:
    """The attributes that a function, or the methods of a class, read; and their constants, which `getattr` may be given."""
    operations = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
    codes = list(_codes(holder))
    texts = [value for code in codes for value in code.co_consts if isinstance(value, str)]
    return frozenset(texts).union(*(_attributes(code, *operations) for code in codes))


def _codes(holder: Any) -> Iterator[CodeType]:
    """The code of a function, or of the methods of a class, with the functions within."""
    if isinstance(holder, type):
        for value in vars(holder).values():
            yield from _codes(value)
        return
    for part in (holder, *(getattr(holder, name, None) for name in ("__func__", "fget", "fset", "func"))):
        waiting = [code] if (code := getattr(part, "__code__", None)) is not None else []
        while waiting:
            code = waiting.pop()
            yield code
            waiting += [inner for inner in code.co_consts if isinstance(inner, CodeType)]


def _attributes(code: CodeType, *operations: str) -> frozenset[str]:
    return frozenset(step.argval for step in dis.get_instructions(code) if step.opname in operations)
