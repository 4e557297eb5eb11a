"""Base classes for the helper code of a graph, by SyGra's names."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.graphs.spec import Record, Value
from assay.records import JSONDict


def clone_around(folder: Path) -> Path | None:
    """The top of the SyGra repository, or of a layout like it, that a folder of `tasks` or `sygra` belongs to."""
    tops = [top for top in folder.parents if folder.relative_to(top).parts[0] in ("tasks", "sygra")]
    return tops[0] if tops else None


class SygraState(dict[str, Any]):
    """The values of a record while it goes through a graph, by name."""


@dataclass(frozen=True, slots=True)
class SygraMessage:
    """The argument of a post-processor: it holds the message."""

    message: Any


class NodePreProcessor:
    """Changes the state before a model is asked."""

    def apply(self, state: Value) -> Value:
        raise NotImplementedError(f"{type(self).__name__} has no `apply`")


class NodePostProcessor:
    """Makes values of a model's message."""

    def apply(self, resp: SygraMessage) -> Value:
        raise NotImplementedError(f"{type(self).__name__} has no `apply`")


class NodePostProcessorWithState:
    """Makes values of a model's message and the state."""

    def apply(self, resp: SygraMessage, state: Value) -> Value:
        raise NotImplementedError(f"{type(self).__name__} has no `apply`")


class LambdaFunction:
    """A node that is a function of its configuration and the state."""

    @staticmethod
    def apply(lambda_node_dict: JSONDict, state: Value) -> Value:
        raise NotImplementedError("a lambda node's class has no `apply`")


class AsyncLambdaFunction:
    """The same for a function that waits."""

    @staticmethod
    async def apply(lambda_node_dict: JSONDict, state: Value) -> Value:
        raise NotImplementedError("a lambda node's class has no `apply`")


class EdgeCondition:
    """Says which way a record goes: a key of `path_map`."""

    @staticmethod
    def apply(state: Value) -> str:
        raise NotImplementedError("a condition's class has no `apply`")


class GraphPostProcessor:
    """Makes a report, or other records, of the records of a run."""

    def process(self, data: Sequence[JSONDict], metadata: JSONDict) -> list[Value]:
        raise NotImplementedError(f"{type(self).__name__} has no `process`")


class ModelPostProcessor:
    """Changes every answer of a model, named in models.yaml."""

    def apply(self, generated_text: str) -> str:
        raise NotImplementedError(f"{type(self).__name__} has no `apply`")


class RemoveThinkData(ModelPostProcessor):
    """Removes the thoughts before an answer, with the tags around them."""

    def __init__(self, start_tag: str = "<think>", end_tag: str = "</think>") -> None:
        self._tags = start_tag, end_tag

    def apply(self, generated_text: str) -> str:
        before, _, rest = generated_text.partition(self._tags[0])
        _, ended, after = rest.partition(self._tags[1])
        return before + after if ended else generated_text


class BaseOutputGenerator:
    """Makes the record that is written of the state at the end: each field `from` the state or a `value`.

    A field's `transform` is a method of the class, of the value and the state.
    """

    def __init__(self, output_config: Record | None = None) -> None:
        self.output_config = output_config or {}
        self.output_map: Record = self.output_config.get("output_map", {})

    def generate(self, state: Record) -> JSONDict | None:
        """The record; None leaves it out."""
        return {field: self._value(rule or {}, state) for field, rule in self.output_map.items()}

    def _value(self, rule: Record, state: Record) -> Value:
        value = rule["value"] if "value" in rule else state.get(rule.get("from", ""))
        transform = rule.get("transform")
        return getattr(self, transform)(value, state) if transform else value


def parse_response_as_json(s: Value) -> JSONDict | None:
    """The JSON object that a reply is, or else the first one in it; None without one.

    >>> parse_response_as_json('The answer is {"topic": "Music"}.')
    {'topic': 'Music'}
    >>> parse_response_as_json("3")
    {'value': 3}
    """
    if s is None:
        return None
    text = s if isinstance(s, str) else str(s)
    try:
        value = json.loads(text)
        return value if isinstance(value, dict) else {"value": value}
    except (ValueError, RecursionError):
        return _first_object(text)


def _first_object(text: str) -> JSONDict | None:
    decoder, start = json.JSONDecoder(), text.find("{")
    while start >= 0:
        try:
            value: JSONDict = decoder.raw_decode(text, start)[0]
            return value
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
    return None
