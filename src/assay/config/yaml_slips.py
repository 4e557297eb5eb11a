"""The slips behind the YAML library's syntax errors: a tab, an unquoted template, a colon in a value."""

import re
from collections.abc import Sequence
from typing import NamedTuple

LINE = re.compile(r"(?P<before>\s*(?:- +)*)(?P<key>[\w.@-]+):(?P<space>[ \t]+)(?P<value>\S.*?)\s*$")
ITEM = re.compile(r"(?P<before>\s*(?:- +)+)(?P<value>\S.*?)\s*$")
TIGHT = re.compile(r"(?P<before>\s*(?:- +)*)(?P<key>\w+):(?P<value>[^\s/:][^\s:]*)\s*$")
TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")
SHOWN = 60


class Mark(NamedTuple):
    """A point in a text; lines and columns count from 0."""

    line: int
    column: int


class Slip(NamedTuple):
    """A mistake at a point: what is wrong, and how to fix it."""

    at: Mark
    what: str
    fix: str


def find_slip(error: str, at: Mark, begin: Mark | None, lines: Sequence[str]) -> Slip | None:
    """The slip that a syntax error comes from; None for an error that is not known.

    `error` is the library's sentence, `at` the point of it, `begin` where the thing begins that it belongs to.

    >>> find_slip("found unhashable key", Mark(0, 14), Mark(0, 13), ["doc_to_text: {{question}}"])[1:]
    ('a value that begins with {{ must be in quotes', 'write `doc_to_text: "{{question}}"`')
    """
    line = lines[at.line] if at.line < len(lines) else ""
    return _tab(at, line) or _template(at, line) or _by_sentence(error, at, begin or at, lines, line)


def _tab(at: Mark, line: str) -> Slip | None:
    indentation = line[: len(line) - len(line.lstrip())]
    column = (
        indentation.find("\t") if "\t" in indentation else at.column if line[at.column : at.column + 1] == "\t" else -1
    )
    if column < 0:
        return None
    return Slip(Mark(at.line, column), "a tab, which YAML does not take as indentation", "replace it by spaces")


def _template(at: Mark, line: str) -> Slip | None:
    """A value that begins with a template, or a list of such values: YAML reads a brace as the begin of a mapping."""
    known = LINE.match(line) or ITEM.match(line)
    if known is None or not known["value"].lstrip("[ ").startswith(("{{", "{%")):
        return None
    listed = known["value"].startswith("[")
    value = TEMPLATE.sub(r'"\g<0>"', known["value"]) if listed else _quoted(known["value"])
    mark = TEMPLATE.search(known["value"])
    begins = mark.group()[:2] if mark is not None else "{"
    what = f"a value that begins with {begins} must be in quotes"
    return Slip(Mark(at.line, known.start("value")), what, _write(known, value))


def _by_sentence(error: str, at: Mark, begin: Mark, lines: Sequence[str], line: str) -> Slip | None:
    if "mapping values are not allowed" in error:
        return _colon(at, lines, line)
    if "cannot start any token" in error:
        sign = line[at.column : at.column + 1]
        known = LINE.match(line) or ITEM.match(line)
        fix = _write(known, _quoted(known["value"])) if known is not None else "put it in quotes"
        return Slip(at, f"a value cannot begin with {sign}", fix)
    if "expected key" in error or "'-' indicator" in error:
        return _after_quote(at, line) or Slip(
            at, "the indentation of this line fits none above", "begin keys that belong together in the same column"
        )
    if "undefined alias" in error:
        known = LINE.match(line) or ITEM.match(line)
        fix = _write(known, _quoted(known["value"])) if known is not None else "put it in quotes"
        return Slip(at, "a value that begins with * is read as an alias, and there is none of that name", fix)
    return next(
        (Slip(begin if opened else at, what, fix) for part, opened, what, fix in SENTENCES if part in error), None
    )


SENTENCES = (
    # part of the library's sentence; whether the mistake is where the thing begins; what is wrong, and the fix
    ("found another document", False, "a second document begins here", "write each task or group to its own file"),
    (
        "flow sequence",
        True,
        "a list that opens here is not closed",
        "close it with ], and separate its items by commas",
    ),
    (
        "flow mapping",
        True,
        "a mapping that opens here is not closed",
        "close it with }, and separate its keys by commas",
    ),
    ("unexpected end of stream", True, "a quote that opens here is not closed", "close it"),
    ("unknown escape", False, "this backslash means nothing in double quotes", "use single quotes, or write it twice"),
    ("could not find expected ':'", True, "this line has no key", "write `key: value`, or `- item` with a space"),
)


def _colon(at: Mark, lines: Sequence[str], line: str) -> Slip | None:
    """A colon where none may be: in an unquoted value, after a line without a space behind its colon, or too far right."""
    known = LINE.match(line)
    if known is not None and at.column > known.start("value"):
        return Slip(
            Mark(at.line, known.start("value")),
            "a value with a colon and a space in it must be in quotes",
            _write(known, _quoted(known["value"])),
        )
    above = next(
        (n for n in range(at.line - 1, -1, -1) if lines[n].strip() and not lines[n].lstrip().startswith("#")), None
    )
    tight = TIGHT.match(lines[above]) if above is not None else None
    if above is not None and tight is not None:
        fix = f"write `{tight['key']}: {tight['value']}`"
        return Slip(Mark(above, tight.start("key")), "a colon needs a space behind it", fix)
    column = len(line) - len(line.lstrip())
    what = "this line is indented, and the line above it has a value already"
    return Slip(Mark(at.line, column), what, "begin it in the same column as the line above")


def _after_quote(at: Mark, line: str) -> Slip | None:
    known = LINE.match(line) or ITEM.match(line)
    if known is None or known["value"][0] not in "'\"" or at.column <= known.start("value"):
        return None
    inside = "a ' inside of single quotes is written twice" if known["value"][0] == "'" else 'a " inside is written \\"'
    return Slip(at, "there is text behind the closing quote", f"put the whole value in quotes; {inside}")


def _quoted(value: str) -> str:
    return f"'{value}'" if '"' in value and "'" not in value else '"' + value.replace('"', '\\"') + '"'


def _write(known: re.Match[str], value: str) -> str:
    if len(value) > SHOWN:
        return "put it in quotes"
    return f"write `{known['key']}: {value}`" if "key" in known.groupdict() else f"write `- {value}`"
