"""Functions that a model may call: found by dotted names, and told to it with the types of their parameters."""

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from assay.errors import ConfigError, Place, Problem
from assay.samples.rows import DataError
from assay.tasks.settings import Helpers
from assay.user_code import place_of, user_code

TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}


class Tool(typing.NamedTuple):
    """A function with what a model is told of it."""

    name: str
    function: Callable[..., Any]
    schema: Mapping[str, Any]


def find_tools(names: Sequence[str], helpers: Helpers, folder: str | None, place: Place) -> dict[str, Tool]:
    """The tools that names mean: a function, the public methods of a class, the public functions of a module."""
    found: dict[str, Tool] = {}
    for name in names:
        made = list(_tools(helpers.dotted(name, folder, place)))
        if not made:
            raise ConfigError([Problem(place, f"{name} has no functions to call", "name a function, class or module")])
        for each in made:
            if each.name in found:
                raise ConfigError([Problem(place, f"two tools are called {each.name!r}", "take one out")])
            found[each.name] = each
    return found


def parameters(tools: Mapping[str, Tool], choice: str | Mapping[str, object] | None) -> dict[str, object]:
    """What a request says of tools."""
    told = [{"type": "function", "function": dict(tool.schema)} for tool in tools.values()]
    return {"tools": told, "tool_choice": choice or "auto"}


def _tools(found: Any) -> Iterator[Tool]:
    if isinstance(found, ModuleType):
        for name, each in vars(found).items():
            own = getattr(each, "__module__", None) == found.__name__ or hasattr(each, "args_schema")
            if not name.startswith("_") and own and not isinstance(each, type) and (callable(each) or _is_made(each)):
                yield _tool(each)
    elif isinstance(found, type):
        with user_code(place_of("tools", found), DataError):
            made = found()
        for name, _ in inspect.getmembers(found, callable):
            if not name.startswith("_"):
                yield _tool(getattr(made, name))
    elif callable(found) or _is_made(found):
        yield _tool(found)


def _is_made(found: Any) -> bool:
    """Whether something is a tool as LangChain makes them."""
    return hasattr(found, "args_schema") and hasattr(found, "invoke")


def _tool(found: Any) -> Tool:
    if _is_made(found):
        function: Callable[..., Any] = getattr(found, "coroutine", None) or found.func
        told = {"type": "object", "properties": dict(found.args)}
        return Tool(found.name, function, {"name": found.name, "description": found.description, "parameters": told})
    name = found.__name__
    hints = typing.get_type_hints(found)
    known = [each for each in inspect.signature(found).parameters.values() if each.kind is not each.VAR_KEYWORD]
    properties = {each.name: {"type": _type(hints.get(each.name, str))} for each in known}
    required = [each.name for each in known if each.default is each.empty]
    told = {"type": "object", "properties": properties, "required": required}
    return Tool(name, found, {"name": name, "description": inspect.getdoc(found) or "", "parameters": told})


def _type(hint: Any) -> str:
    return TYPES.get(typing.get_origin(hint) or hint, "string")
