"""A module that assay supplies, over a file of the same name: a user's own, or one of a clone of SyGra."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


class Overlay(ModuleType):
    """What assay supplies is assay's, whatever the file says; the rest is the file's, which is run when it is needed.

    So the numbers of a graph do not depend on the files around it, and neither do they need what those files import.
    """

    def __init__(self, supplied: ModuleType, file: Path, load: Callable[[Path], ModuleType]) -> None:
        super().__init__(supplied.__name__)
        self.__file__ = str(file)
        self._load = load
        self.__dict__.update({name: value for name, value in vars(supplied).items() if not name.startswith("__")})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.below(), name)

    def below(self) -> ModuleType:
        """The module in the file; this runs it."""
        return self._load(Path(str(self.__file__)))

    def take_all(self) -> None:
        """Take every public name of the file over, as `import *` wants them."""
        own = {name: value for name, value in vars(self.below()).items() if not name.startswith("_")}
        self.__dict__.update({name: value for name, value in own.items() if name not in self.__dict__})


def warn_of_hidden(supplied: ModuleType, file: Path) -> None:
    """Say which names of a user's file are not used, because assay has its own."""
    defined = set(re.findall(r"^(?:class|def)\s+(\w+)", file.read_text("utf-8", "replace"), re.MULTILINE))
    hidden = sorted(name for name in vars(supplied) if name in defined)
    if hidden:
        logging.getLogger("assay").warning(
            "%s: %s of %s are assay's own, and those of the file are not used; give another name to what differs",
            file, ", ".join(hidden), supplied.__name__,
        )  # fmt: skip
