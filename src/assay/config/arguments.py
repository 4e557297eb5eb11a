"""Arguments written as `k=v,k2=v2`, or as JSON: lm-eval's way to give a mapping on the command line."""

import ast
import json
from collections.abc import Mapping

from assay.errors import ConfigError, Place, Problem


def parse_arguments(written: object, name: str) -> dict[str, object]:
    """The mapping that a text or mapping means; `name` is what errors call it.

    >>> parse_arguments("pretrained=gpt2,dtype=float32,revision=1.0,trust=true", "model_args")
    {'pretrained': 'gpt2', 'dtype': 'float32', 'revision': 1.0, 'trust': True}
    >>> parse_arguments('{"until": ["a"]}', "gen_kwargs")
    {'until': ['a']}
    """
    if written is None or written == "":
        return {}
    if isinstance(written, Mapping):
        return {str(key): value for key, value in written.items()}
    text = str(written).strip()
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ConfigError(
                [Problem(Place(name), f"is not valid JSON: {error}", "check quotes and commas")]
            ) from None
        return dict(found)
    made: dict[str, object] = {}
    for part in _split(text):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            after = f" after {list(made)[-1]!r}" if made else ""  # the text itself may be half of a secret
            what = f"there is something{after} that is not of the form key=value"
            raise ConfigError([Problem(Place(name), what, "write key=value,key=value; quote what holds blanks")])
        made[key.strip()] = parse_value(value.strip())
    return made


def parse_value(text: str) -> object:
    """What a word means: true, false, a number, a Python literal, else itself."""
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
            found: object = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            return text
        return found
    return text


def _split(text: str) -> list[str]:
    """The parts between commas and spaces that are not inside brackets or quotes."""
    parts, depth, quote, current = [], 0, "", ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "[({":
            depth += 1
        elif letter in "])}":
            depth -= 1
        if letter in ", " and depth == 0 and not quote:
            parts.append(current)
            current = ""
        else:
            current += letter
    return [part for part in (*parts, current) if part]
