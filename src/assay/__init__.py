"""assay: evaluate language models; YAML in, numbers with honest error bars out.

Everything a user needs can be imported from here: assay/public.py lists the names. A name is imported at its first use.
"""

import builtins
from importlib import import_module
from typing import TYPE_CHECKING

from assay.version import __version__ as __version__

if TYPE_CHECKING:
    from assay.public import *  # noqa: F403  # editors and type checkers see what `__getattr__` finds


def __getattr__(name: str) -> object:
    public = import_module("assay.public")
    if name == "__all__":  # `from assay import *` leaves Python's own names alone: write assay.filter, assay.format
        return [known for known in __dir__() if not hasattr(builtins, known)]
    globals()[name] = value = public.load(name)
    return value


def __dir__() -> list[str]:
    return ["__version__", *import_module("assay.public").NAMES]
