"""Keys of servers: from the environment, a file, or literal."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote_plus

from assay.config.option import YAMLMapping
from assay.errors import ConfigError
from assay.redaction import forms_of


def secret(written: str | None, *variables: str) -> str | None:
    """Return the key: of `env:NAME`, of `file:PATH`, or literal; without one, of the first variable that is set."""
    if written is None:
        return next((os.environ[name] for name in variables if os.environ.get(name)), None)
    kind, _, rest = written.partition(":")
    if kind == "env":
        if rest not in os.environ:
            raise _problem(f"environment variable {rest} is not set", f"set it: export {rest}=…")
        return os.environ[rest]
    if kind == "file":
        try:
            return Path(rest).expanduser().read_text(encoding="utf-8").strip()
        except OSError as error:
            raise _problem(f"the key file cannot be read: {error.strerror}", "check the path") from None
    return written


_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""A header name, by RFC 9110."""
LEAST = 4
"""Shorter values of headers and queries are not redacted: they would match in any message."""


def hidden_texts(keys: Iterable[str | None], values: Iterable[str]) -> list[str]:
    """Return the texts to redact, longest first: keys, values of headers and queries, and parts of those.

    >>> hidden = hidden_texts(["k-1"], ["Bearer abcdef123", "sig=a%2Fb%3D"])
    >>> {"k-1", "Bearer abcdef123", "abcdef123", "a%2Fb%3D", "a/b="} <= set(hidden)
    True
    """
    hidden = {key for key in keys if key}
    for value in map(str, values):
        parts = re.split(r"[\s;,&]+", value)
        ends = [part.partition("=")[2] for part in parts]
        forms = [value, *(part for part in parts[1:] if len(part) >= 2 * LEAST), *ends, *map(unquote_plus, ends)]
        hidden |= {form for form in forms if len(form) >= LEAST}
    return forms_of(hidden)


def refuse_malformed(arguments: YAMLMapping) -> None:
    """Refuse a key or headers that cannot be sent, without printing them."""
    key, header = arguments.get("api_key"), arguments.get("header")
    if key is not None and not isinstance(key, str):
        raise _problem("api_key must be text", "put it in quotes")
    if header is None:
        return
    if not isinstance(header, Mapping):
        raise _problem("header must be a mapping of names to texts", "write header={'X-Name': 'value'}", "header")
    for name, value in header.items():
        if not isinstance(value, str) or not value.isprintable() or not _HEADER_NAME.fullmatch(str(name)):
            raise _problem(f"invalid header {str(name)!r}", "use a name without spaces and a printable text", "header")


def _problem(what: str, fix: str, argument: str = "api_key") -> ConfigError:
    return ConfigError.at(f"model_args.{argument}", what, fix)
