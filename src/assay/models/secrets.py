"""Keys of servers: from the environment, from a file, or as they are."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote_plus

from assay.errors import ConfigError, Place, Problem


def secret(written: str | None, *variables: str) -> str | None:
    """The key that is meant: `env:NAME`, `file:PATH`, or itself; where nothing is written, the first variable that is set."""
    if written is None:
        return next((os.environ[name] for name in variables if os.environ.get(name)), None)
    kind, _, rest = written.partition(":")
    if kind == "env":
        if rest not in os.environ:
            raise _problem(f"the environment has no variable {rest}", f"set it: export {rest}=…")
        return os.environ[rest]
    if kind == "file":
        try:
            return Path(rest).expanduser().read_text(encoding="utf-8").strip()
        except OSError as error:
            raise _problem(f"the file of the key cannot be read: {error.strerror}", "check the path") from None
    return written


LEAST = 4
"""Values of headers and queries that are shorter are no secrets, and would be blotted out of any message."""


def hidden_texts(keys: Iterable[str | None], values: Iterable[str]) -> list[str]:
    """What must be in no message, longest first: keys, values of headers and queries, and the parts of those.

    >>> hidden_texts(["k-1"], ["Bearer abcdef123", "sig=a%2Fb%3D"])
    ['Bearer abcdef123', 'sig=a%2Fb%3D', 'abcdef123', 'a%2Fb%3D', 'a/b=', 'k-1']
    """
    found = {key for key in keys if key}
    for value in map(str, values):
        parts = re.split(r"[\s;,&]+", value)
        ends = [part.partition("=")[2] for part in parts]
        forms = [value, *(part for part in parts[1:] if len(part) >= 2 * LEAST), *ends, *map(unquote_plus, ends)]
        found |= {form for form in forms if len(form) >= LEAST}
    return sorted(found, key=lambda text: (-len(text), text))


def _problem(what: str, fix: str) -> ConfigError:
    return ConfigError([Problem(Place("model_args.api_key"), what, fix)])
