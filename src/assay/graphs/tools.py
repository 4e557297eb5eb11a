"""Tools of nodes: functions of users that models call."""

import inspect
import json
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import ModuleType, UnionType
from typing import Any, NamedTuple

from assay.errors import ConfigError, Place
from assay.graphs.spec import JSON_TYPES, Record, ToolSpec, Value
from assay.records import Call, JSONDict, ToolCall, UserFunction, UserValue
from assay.samples.rows import DataError
from assay.scoring.helper_code import Helpers
from assay.signatures import accepted, is_async
from assay.user_code import UserCodeError, is_writable, place_of, user_code, words


class Tool(NamedTuple):
    """A function with its description for the model. A call that was begun and not finished may be repeated if it is
    `repeatable`; with `reruns`, calls are not journaled, so that a resumed record makes them again."""

    function: UserFunction
    schema: Record
    repeatable: bool = False
    reruns: bool = False

    def call(self, arguments: JSONDict, where: tuple[str | int, ...], seconds: float | None = None) -> Call:
        """A call of the tool; `where` is the place of the call in the walk of its record, with the tool's name at the end."""
        identity = () if self.reruns else (*where, json.dumps(arguments, sort_keys=True))
        return Call(_with_names(self.function), (arguments,), identity, self.repeatable, seconds)


def _with_names(tool: UserFunction) -> Callable[[Record], Value]:
    """A tool as a function of its arguments by name; one that waits still waits. Its errors are worded for the model."""
    if is_async(tool):

        async def waiting(arguments: Record) -> Value:
            try:
                async with user_code("", passes=UserCodeError):
                    return await tool(**arguments)
            except UserCodeError as error:
                raise _for_model(error) from error

        return waiting

    def call(arguments: Record) -> Value:
        try:
            with user_code("", passes=UserCodeError):
                return tool(**arguments)
        except UserCodeError as error:
            raise _for_model(error) from error

    return call


def _for_model(error: UserCodeError) -> UserCodeError:
    return UserCodeError(words(error.__cause__ or error))


def as_mapping(call: ToolCall) -> JSONDict:
    """A call of a tool as post-processors know it: name, args, id."""
    arguments: Any = call.arguments
    with suppress(ValueError, RecursionError):
        read = json.loads(call.arguments or "{}")
        arguments = read if is_writable(read) else arguments
    return {"name": call.name, "args": arguments, "id": call.id, "type": "tool_call"}


def tool_spec(written: str | ToolSpec) -> ToolSpec:
    return ToolSpec(name=written) if isinstance(written, str) else written


def find_tools(
    written: Sequence[str | ToolSpec], helpers: Helpers, folder: str | None, place: Place
) -> dict[str, Tool]:
    """The tools that names mean: a function, the public methods of a class, the public functions of a module."""
    tools: dict[str, Tool] = {}
    for spec in map(tool_spec, written):
        functions = list(_functions(helpers.dotted(spec.name, folder, place)))
        if not functions:
            raise ConfigError.at(place, f"{spec.name} has no functions to call", "name a function, class or module")
        for tool in map(describe_tool, functions):
            name = tool.schema["name"]
            if name in tools:
                raise ConfigError.at(place, f"two tools are called {name!r}", "remove one")
            tools[name] = tool._replace(repeatable=spec.repeatable, reruns=spec.on_resume == "rerun")
    return tools


def parameters(tools: Mapping[str, Tool], choice: str | Record | None) -> JSONDict | None:
    """Return the request parameters that describe tools, and which of them must be called where the node says so."""
    if not tools:
        return None
    described = [{"type": "function", "function": dict(tool.schema)} for tool in tools.values()]
    return {"tools": described, **({"tool_choice": choice} if choice is not None else {})}


def _functions(named: UserValue) -> Iterator[Any]:
    if isinstance(named, ModuleType):
        for name, member in vars(named).items():
            own = getattr(member, "__module__", None) == named.__name__ or hasattr(member, "args_schema")
            is_function = not isinstance(member, type) and (callable(member) or _is_tool(member))
            if own and is_function and not name.startswith("_"):
                yield member
    elif isinstance(named, type):
        with user_code(place_of("tools", named), DataError):
            instance = named()
        public = [getattr(instance, name) for name in dir(named) if not name.startswith("_")]
        yield from [member for member in public if _is_tool(member)] or filter(callable, public)
    elif callable(named) or _is_tool(named):
        yield named


def _is_tool(thing: UserValue) -> bool:
    """Whether something is a tool as LangChain makes them."""
    return hasattr(thing, "args_schema") and hasattr(thing, "invoke")


def describe_tool(function: Any) -> Tool:
    """A function as a tool, by its annotations and its docstring; or a tool of LangChain's, which describes itself."""
    if _is_tool(function):
        schema = {"type": "object", "properties": dict(function.args)}
        about = {"name": function.name, "description": function.description, "parameters": schema}
        return Tool(_invoking(function), about)
    hints, takes = typing.get_type_hints(function), accepted(function)
    properties = {name: _schema(hints.get(name, str)) for name in takes.named}
    schema = {"type": "object", "properties": properties, "required": list(takes.required)}
    description = inspect.getdoc(function) or ""
    return Tool(function, {"name": function.__name__, "description": description, "parameters": schema})


def _invoking(tool: Any) -> UserFunction:
    """A tool of LangChain's as a function of its arguments, which it converts: 2 to 2.0 for a float."""
    if getattr(tool, "coroutine", None) is not None:

        async def waits(**arguments: UserValue) -> UserValue:
            return await tool.ainvoke(arguments)

        return waits

    def calls(**arguments: UserValue) -> UserValue:
        return tool.invoke(arguments)

    return calls


def _schema(hint: Any) -> JSONDict:
    """The JSON Schema of an annotation; of one that JSON does not know, that of texts.

    >>> _schema(int | None), _schema(list[float]), _schema(typing.Literal["up", "down"])
    ({'type': 'integer'}, {'type': 'array', 'items': {'type': 'number'}}, {'type': 'string', 'enum': ['up', 'down']})
    """
    origin, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is typing.Annotated:
        return _schema(parts[0])
    if origin is typing.Literal:
        return {**_schema(type(parts[0])), "enum": list(parts)}
    if origin in (typing.Union, UnionType):
        schemas = [_schema(each) for each in parts if each is not type(None)]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    if origin is list:
        return {"type": "array", "items": _schema(parts[0]) if parts else {}}
    return {"type": JSON_TYPES.get(getattr(origin, "__name__", ""), "string")}
