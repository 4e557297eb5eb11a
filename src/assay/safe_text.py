"""Texts of models, documents and files, written so that they cannot harm who reads them.

A terminal obeys control characters, Markdown and HTML have markup, and a spreadsheet runs formulas.
"""

import re

FORMULA = frozenset("=+-@\t\r")
"""The characters that a spreadsheet begins a formula with."""
PLAIN_NUMBER = re.compile(r"[+-]?[\d.,]+")
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)
_MARKS = re.compile(r"([\\`*_\[\]|~$])")
_REFERENCES = re.compile(r"([@#])(?=\w)")
MAX_TEXT = 1200


def visible(text: str) -> str:
    r"""The text with invisible characters escaped: it cannot control a terminal or change the text direction.

    >>> visible("a" + chr(0x202E) + "b")
    'a\\u202eb'
    """
    if text.isprintable():  # as nearly all are
        return text
    return _UNSEEN.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def shorten(text: str, most: int = MAX_TEXT) -> str:
    """The text; of a long one its beginning and end."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters more …]\n{text[-half:]}"


def cut(text: str, most: int) -> str:
    """The text; of a long one its beginning, with a sign that there is more.

    >>> cut("abcdef", 6), cut("abcdefg", 6)
    ('abcdef', 'abcde…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def markdown_text(text: str) -> str:
    r"""The text within a line of markdown: markup, HTML, mentions and newlines are escaped.

    >>> markdown_text("a|<b> @you\n*c*")
    'a\\|&lt;b&gt; @&#8203;you \\*c\\*'
    """
    plain = " ".join(visible(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _REFERENCES.sub(r"\1&#8203;", _MARKS.sub(r"\\\1", plain))


def fenced(text: str) -> str:
    """The text as a markdown code block that nothing in it can close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{visible(text)}\n{fence}"


def spreadsheet_cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula: an answer could read other files with one.

    >>> spreadsheet_cell("=HYPERLINK(A1)"), spreadsheet_cell("-5"), spreadsheet_cell("as it is")
    ("'=HYPERLINK(A1)", '-5', 'as it is')
    """
    return f"'{text}" if text[:1] in FORMULA and not PLAIN_NUMBER.fullmatch(text) else text


def spreadsheet_text(text: str) -> str:
    """The text for a CSV cell: what a spreadsheet would read as a formula is marked as text."""
    return spreadsheet_cell(visible(text))


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Spell out control characters: the name or content of a file cannot control the terminal.

    >>> printable("a" + chr(27) + "[31mb")
    'a\\\\x1b[31mb'
    """
    return text if text.isprintable() else _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)
