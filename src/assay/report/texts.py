"""Texts of anybody's, made harmless for where they are shown: pages, tables, markdown."""

import re

_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)
_MARKS = re.compile(r"([\\`*_\[\]|~$])")
_REFERENCES = re.compile(r"([@#])(?=\w)")
LONG = 1200


def visible(text: str) -> str:
    r"""The text with what cannot be seen spelt out: it cannot steer a terminal, nor turn the direction of a line.

    >>> visible("a" + chr(0x202E) + "b")
    'a\\u202eb'
    """
    return _UNSEEN.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def cut(text: str, most: int = LONG) -> str:
    """A text; of a long one its beginning and its end."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters more …]\n{text[-half:]}"


def in_markdown(text: str) -> str:
    r"""A text within a line of markdown: nothing in it is mark-up, HTML, a mention or a new line.

    >>> in_markdown("a|<b> @you\n*c*")
    'a\\|&lt;b&gt; @&#8203;you \\*c\\*'
    """
    plain = " ".join(visible(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _REFERENCES.sub(r"\1&#8203;", _MARKS.sub(r"\\\1", plain))


def fenced(text: str) -> str:
    """A text as a block of markdown that nothing in it can end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{visible(text)}\n{fence}"


def in_cell(text: str) -> str:
    """A text in a table that a spreadsheet opens: what begins as a formula does is marked as text."""
    plain = visible(text)
    return f"'{plain}" if plain[:1] in ("=", "+", "-", "@", "\t", "\r") else plain


def decimal(value: float | None, digits: int = 4) -> str:
    """A number, or a dash where there is none."""
    if value is None or value != value:
        return "–"
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.4g}"


def ends(low: float | None, high: float | None) -> str:
    return f"{decimal(low, 3)} … {decimal(high, 3)}" if low is not None and high is not None else ""
