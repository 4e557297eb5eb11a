"""A parser of the command line that says what was probably meant, and guesses nothing."""

import argparse
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from assay.errors import nearest

CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)$")


class Parser(argparse.ArgumentParser):
    """Options are written out: the beginning of a name is no name, since a new option would change what it means."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        chosen = CHOICE.search(message)
        if chosen is not None:
            message += _near(chosen[1], (each.strip(" '") for each in chosen[2].split(",")))
        super().error(message)

    def refuse(self, unknown: list[str]) -> NoReturn:
        """Say that there are no such arguments."""
        options = [name for name in self._option_string_actions if name.startswith("--")]
        wrong = [each.partition("=")[0] for each in unknown if each.startswith("-")] or unknown
        super().error(f"there is no {wrong[0]}" + _near(wrong[0], options))


def _near(word: str, known: Iterable[str]) -> str:
    found = nearest(word, known, count=1)
    return f"; did you mean {found[0]}?" if found else ""
