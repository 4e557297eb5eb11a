"""Texts with `{name}` in them, as graphs write their prompts; `{{` and `}}` are braces."""

import re
from dataclasses import dataclass

from assay.config.option import YAMLMapping

_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True, slots=True)
class Braces:
    """A parsed text: literal pieces, and between two of them the name of a value."""

    pieces: tuple[str, ...]
    names: tuple[str, ...]
    wrong: str = ""
    """The syntax error, if there is one."""

    @classmethod
    def of(cls, text: str) -> "Braces":
        """Parse a text.

        >>> Braces.of("{a} is {{b}}").names, Braces.of("{a} is {{b}}").fill({"a": 1})
        (('a',), '1 is {b}')
        """
        pieces, names, wrong, start = [""], list[str](), "", 0
        for match in _PARTS.finditer(text):
            pieces[-1] += text[start : match.start()]
            start = match.end()
            token, name = match.group(), match.group(1)
            if name is not None and name.strip():
                names.append(name.strip())
                pieces.append("")
            elif token in ("{{", "}}"):
                pieces[-1] += token[0]
            else:
                wrong = wrong or f"has a lone {token!r} at character {match.start() + 1}"
        pieces[-1] += text[start:]
        return cls(tuple(pieces), tuple(names), wrong)

    def fill(self, values: YAMLMapping) -> str:
        """Replace the names by values."""
        text = self.pieces[0]
        for name, piece in zip(self.names, self.pieces[1:], strict=True):
            value = values[name]
            text += (value if type(value) is str else str(value)) + piece
        return text
