"""Arguments written as `k=v,k2=v2`, or as JSON: lm-eval's syntax for a mapping on the command line."""

import ast
import json
import re
from collections.abc import Mapping

from assay.config.option import YAMLValue
from assay.errors import ConfigError
from assay.redaction import seal

_NEXT_KEY = re.compile(r" +(?:[\w.\-]+ *=|$|,)")
MAX_WHOLE = 2**64 - 1
"""The largest whole number that JSON writers, seeds and servers take."""


def is_too_large(value: YAMLValue) -> bool:
    """Whether a value is, or contains, a whole number of more than 64 bits."""
    if isinstance(value, Mapping):
        return any(map(is_too_large, value.values()))
    if isinstance(value, list | tuple):
        return any(map(is_too_large, value))
    return isinstance(value, int) and not -(2**63) <= value <= MAX_WHOLE


def parse_arguments(written: YAMLValue, name: str) -> dict[str, YAMLValue]:
    """Parse a text, or copy a mapping; `name` is the place that errors report. Secret values become Secrets.

    >>> parse_arguments("pretrained=gpt2,dtype=float32,revision=1.0,trust=true", "model_args")
    {'pretrained': 'gpt2', 'dtype': 'float32', 'revision': 1.0, 'trust': True}
    >>> parse_arguments('{"until": ["a"]}', "gen_kwargs")
    {'until': ['a']}
    """
    arguments = seal(_arguments(written, name), texts=True)
    wrong = next((key for key, value in arguments.items() if is_too_large(value)), None)
    if wrong is not None:
        what = f"{wrong} is a whole number of more than 64 bits"
        raise ConfigError.at(name, what, "give a smaller one, or quote it if it is meant as text")
    return arguments


def _arguments(written: YAMLValue, name: str) -> dict[str, YAMLValue]:
    if written is None or written == "":
        return {}
    if isinstance(written, Mapping):
        return {str(key): value for key, value in written.items()}
    text = str(written).strip()
    if text.startswith("{"):
        try:
            mapping = json.loads(text)
        except ValueError as error:
            raise ConfigError.at(name, f"is not valid JSON: {error}", "check quotes and commas") from None
        return dict(mapping)
    arguments: dict[str, object] = {}
    for part in _split(text):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            after = f" after {list(arguments)[-1]!r}" if arguments else ""  # the text itself may be half of a secret
            what = f"expected key=value{after}"
            raise ConfigError.at(name, what, "write key=value,key=value; quote values with blanks")
        arguments[key.strip()] = parse_value(value.strip())
    return arguments


def parse_value(text: str) -> YAMLValue:
    """Parse a word: true, false, none, a number, a Python literal, else the text itself."""
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered in ("none", "null"):
        return None
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    if text[:1] in "[({'\"":
        try:
            literal: object = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            return text
        return literal
    return text


def _split(text: str) -> list[str]:
    """Split at commas that are not inside brackets or quotes, and at spaces before the next key.

    >>> _split('a=1 b=[2, 3],c=--x --y')
    ['a=1', 'b=[2, 3]', 'c=--x --y']
    """
    parts, depth, quote, current = [], 0, "", ""
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "[({":
            depth += 1
        elif letter in "])}":
            depth -= 1
        if depth == 0 and not quote and (letter == "," or (letter == " " and _NEXT_KEY.match(text, place))):
            parts.append(current)
            current = ""
        else:
            current += letter
    return [part for part in (*parts, current) if part]
