"""Keys of servers: from the environment, from a file, or as they are."""

import os
from pathlib import Path

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


def _problem(what: str, fix: str) -> ConfigError:
    return ConfigError([Problem(Place("model_args.api_key"), what, fix)])
