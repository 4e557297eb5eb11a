"""Tools of nodes: functions of users that models call."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from assay.graphs.spec import Record, Value
from assay.records import Call, JSONDict, ToolCall, UserFunction
from assay.signatures import is_async
from assay.user_code import UserCodeError, is_writable, user_code, words


class NodeTool(NamedTuple):
    """A tool of a node. A call that was begun and not finished may be repeated if it is `repeatable`; with `reruns`, calls
    are not journaled, so that a resumed record makes them again."""

    function: UserFunction
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
