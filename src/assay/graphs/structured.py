"""Answers with fields: how a model is asked for them, and whether an answer has them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.records import Message, TextPart

TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "str": ("string", (str,)),
    "int": ("integer", (int,)),
    "float": ("number", (float, int)),
    "bool": ("boolean", (bool,)),
    "list": ("array", (list,)),
    "dict": ("object", (dict,)),
}
"""By the name in a graph: that of JSON Schema, and the classes of Python."""


@dataclass(frozen=True, slots=True)
class Structure:
    """The fields that an answer must have, by name with their types; `schema` is the JSON Schema of all of it."""

    name: str
    schema: Mapping[str, Any]
    types: Mapping[str, str]
    required: frozenset[str]

    @classmethod
    def of_fields(cls, name: str, fields: Mapping[str, Mapping[str, Any]]) -> "Structure":
        properties = {
            key: {
                "type": TYPES[str(told.get("type", "str"))][0],
                **({"description": told["description"]} if told.get("description") else {}),
            }
            for key, told in fields.items()
        }
        required = [key for key, told in fields.items() if "default" not in told]
        schema = {
            "type": "object", "properties": properties, "required": required, "additionalProperties": False,
        }  # fmt: skip
        return cls(
            name, schema, {key: str(told.get("type", "str")) for key, told in fields.items()}, frozenset(required)
        )

    @classmethod
    def of_schema(cls, name: str, schema: Mapping[str, Any]) -> "Structure":
        """That of a pydantic class, by its JSON Schema."""
        names = {shown: name for name, (shown, _) in TYPES.items()}
        properties = schema.get("properties", {})
        types = {key: names[told["type"]] for key, told in properties.items() if told.get("type") in names}
        return cls(name, schema, types, frozenset(schema.get("required", ())))

    @property
    def response_format(self) -> dict[str, Any]:
        """The parameter that servers of OpenAI's protocol take."""
        return {"type": "json_schema", "json_schema": {"name": self.name, "schema": dict(self.schema)}}

    def asked_in(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """A conversation whose last message says in words what the answer must be."""
        told = "\n\nAnswer with one JSON object and nothing else. It must fit this JSON Schema:\n"
        words = told + json.dumps(self.schema, ensure_ascii=False)
        last = messages[-1]
        content = last.content
        added = content + words if isinstance(content, str) else (*content, TextPart(words))
        return (*messages[:-1], last._replace(content=added))

    def fits(self, text: str) -> bool:
        """Whether a text is a JSON object with the fields, each of its type."""
        try:
            found = json.loads(text)
        except ValueError:
            return False
        if not isinstance(found, dict) or not self.required <= found.keys():
            return False
        return all(_is_of(found[key], kind) for key, kind in self.types.items() if key in found)


def _is_of(value: object, kind: str) -> bool:
    return isinstance(value, TYPES[kind][1]) and (kind in ("bool",) or not isinstance(value, bool))
