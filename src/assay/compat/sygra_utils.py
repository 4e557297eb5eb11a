"""Functions of `sygra.utils.utils` that helper code calls: texts, files, messages, and the graph that it belongs to."""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.config.source import Source
from assay.graphs.history import ROLES
from assay.records import JSONDict

current_task: str | None = None
"""None means the graph of the file that asks, whatever else is in the run."""
GRAPH = "graph_config.yaml"


def extract_and_load_json(text: str) -> Any:
    """The JSON object, or the list of objects, in a text; None without one.

    >>> extract_and_load_json('So: [{"a": 1}] and no more')
    [{'a': 1}]
    """
    match = re.search(r"[\[\s]*\{.+\}[\s\]]*", text, re.DOTALL)
    return load_json(match[0]) if match else None


def load_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def load_json_file(filepath: str) -> Any:
    return json.loads(Path(filepath).read_text("utf-8"))


def load_jsonl_file(filepath: str) -> list[Any]:
    return [json.loads(line) for line in Path(filepath).read_text("utf-8").splitlines()]


def load_yaml_file(filepath: str) -> Any:
    return Source(str(filepath), Path(filepath).read_bytes()).value


def extract_pattern(string: str, pattern: str) -> list[str]:
    return [match for match in re.findall(pattern, string) if match]


def flatten_dict(d: Mapping[str, Any], parent_key: str = "", sep: str = "_") -> JSONDict:
    """The values of nested mappings in one, by their joined keys.

    >>> flatten_dict({"a": {"b": 1}, "c": 2})
    {'a_b': 1, 'c': 2}
    """
    flat: JSONDict = {}
    for key, value in d.items():
        name = f"{parent_key}{sep}{key}" if parent_key else key
        flat |= flatten_dict(value, name, sep) if isinstance(value, dict) else {name: value}
    return flat


def deep_update(target: JSONDict, src: Mapping[str, Any]) -> None:
    for key, value in src.items():
        if isinstance(target.get(key), dict) and isinstance(value, dict):
            deep_update(target[key], value)
        else:
            target[key] = value


def get_env_name(name: str) -> str:
    return re.sub(r"\s+", "_", name).upper()


def convert_messages_from_config_to_chat_format(messages: Iterable[Mapping[str, Any]]) -> list[JSONDict]:
    return [{"role": role, "content": content} for each in messages for role, content in [next(iter(each.items()))]]


def convert_messages_from_langchain_to_chat_format(messages: Sequence[Any]) -> list[JSONDict]:
    """Messages of the state, ours or LangChain's, as mappings; messages of tools are left out."""
    return [
        {"role": ROLES[message.type], "content": message.content}
        for message in messages
        if getattr(message, "type", None) in ROLES and message.type != "tool"
    ]


def get_graph_properties(task_name: str | None = None) -> JSONDict:
    """The `graph_properties` of a graph: of that name, or the one around the file of the caller."""
    path = _around(sys._getframe(1).f_globals.get("__file__")) if task_name is None else _named(task_name)
    return _properties(path)


def get_graph_property(key: str, default_value: Any, task_name: str | None = None) -> Any:
    path = _around(sys._getframe(1).f_globals.get("__file__")) if task_name is None else _named(task_name)
    return _properties(path).get(key, default_value)


def _named(task: str) -> Path:
    return Path(task if "/" in task else task.replace(".", "/")) / GRAPH


def _around(file: str | None) -> Path:
    folders = Path(file).parents if file is not None else ()
    return next((folder / GRAPH for folder in folders if (folder / GRAPH).is_file()), Path(GRAPH))


def _properties(path: Path) -> JSONDict:
    written = load_yaml_file(str(path)) if path.is_file() else {}
    graph = written.get("graph_config") if isinstance(written, Mapping) else None
    return dict((graph or {}).get("graph_properties") or {})


NAMES: Mapping[str, Any] = {
    "current_task": current_task,
    **{each.__name__: each for each in (
        extract_and_load_json, load_json, load_json_file, load_jsonl_file, load_yaml_file, extract_pattern, flatten_dict,
        deep_update, get_env_name, convert_messages_from_config_to_chat_format,
        convert_messages_from_langchain_to_chat_format, get_graph_properties, get_graph_property,
    )},
}  # fmt: skip
