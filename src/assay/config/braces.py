"""Texts with `{name}` in them, as graphs write their prompts; `{{` and `}}` are braces."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True, slots=True)
class Braces:
    """A text taken apart: what stands as it is, and between two such pieces the name of what is filled in."""

    pieces: tuple[str, ...]
    names: tuple[str, ...]
    wrong: str = ""
    """What keeps it from being such a text."""

    @classmethod
    def of(cls, text: str, renamed: Mapping[str, str] | None = None) -> "Braces":
        """`renamed` gives other names to some.

        >>> Braces.of("{a} is {{b}}").names, Braces.of("{a} is {{b}}").fill({"a": 1})
        (('a',), '1 is {b}')
        """
        pieces, names, wrong, start = [""], list[str](), "", 0
        for found in _PARTS.finditer(text):
            pieces[-1] += text[start : found.start()]
            start = found.end()
            token, name = found.group(), found.group(1)
            if name is not None and name.strip():
                names.append((renamed or {}).get(name.strip(), name.strip()))
                pieces.append("")
            elif token in ("{{", "}}"):
                pieces[-1] += token[0]
            else:
                wrong = wrong or f"has a lone {token!r} at character {found.start() + 1}"
        pieces[-1] += text[start:]
        return cls(tuple(pieces), tuple(names), wrong)

    def fill(self, values: Mapping[str, object]) -> str:
        """The text with values in the places of their names."""
        made = self.pieces[0]
        for name, piece in zip(self.names, self.pieces[1:], strict=True):
            value = values[name]
            made += (value if type(value) is str else str(value)) + piece
        return made
