"""assay: evaluate language models; YAML in, numbers with honest error bars out.

Everything a user needs can be imported from here: assay/public.py lists the names. A name is imported at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from assay.version import __version__ as __version__

if TYPE_CHECKING:
    from assay.public import *  # noqa: F403  # editors and type checkers see what `__getattr__` finds


def __getattr__(name: str) -> object:
    public = import_module("assay.public")
    if name == "__all__":
        return __dir__()
    globals()[name] = value = public.load(name)
    return value


def __dir__() -> list[str]:
    return ["__version__", *import_module("assay.public").NAMES]
