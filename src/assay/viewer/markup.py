"""Markdown and LaTeX in a model's text, rendered on demand: no HTML of the text itself, no link that leads anywhere, no image.

A page of the viewer may not load anything from elsewhere and has no inline styles; what is rendered here keeps to that by itself,
not only by the browser's policy.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape, unescape
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element

from markupsafe import Markup

from assay.user_code import call_user_code

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict

MAX_RENDERED = 30_000
"""Characters of a text that are rendered; a longer one is shown as text."""
FORMULA = re.compile(
    r"\\\((.{1,1000}?)\\\)|\\\[(.{1,1000}?)\\\]|\$\$([^$]{1,1000})\$\$|\$(?=\S)([^$\n]{1,1000})(?<=\S)\$(?!\d)",
    re.DOTALL,
)
"""Formulas: \\( \\), \\[ \\], $$ $$, and $ $ where no space is inside, so that prices stay prices."""
TAGS = frozenset((
    "math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "ms", "mfrac", "msqrt", "mroot", "mstyle", "merror", "mpadded", "mphantom",
    "menclose", "msub", "msup", "msubsup", "munder", "mover", "munderover", "mmultiscripts", "mprescripts", "none", "mtable", "mtr",
    "mtd", "mlabeledtr",
))  # fmt: skip
ATTRIBUTES = frozenset((
    "display", "displaystyle", "scriptlevel", "mathvariant", "stretchy", "fence", "form", "separator", "accent", "accentunder",
    "columnalign", "rowspacing", "columnspacing", "columnlines", "rowlines", "linethickness", "notation", "movablelimits",
))  # fmt: skip
"""Attributes of MathML that are kept: neither links nor styles, colors or sizes from the text."""


def rendered(text: str) -> Markup:
    """The text with its markdown and formulas as HTML; a very long one as it is."""
    html = call_user_code("markdown", _parser().render, text) if len(text) <= MAX_RENDERED else None
    return Markup(html) if isinstance(html, str) else Markup('<pre class="plain">{}</pre>').format(text)


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    parser.disable(["html_block", "html_inline", "image"])
    parser.inline.ruler.before("escape", "formula", _read_formula)
    parser.core.ruler.push("harmless", lambda state: _make_harmless(state.tokens))
    parser.add_render_rule("formula", _formula_html)
    return parser


def _read_formula(state: "StateInline", silent: bool) -> bool:
    """Read a formula at this place of a line."""
    if state.src[state.pos] not in "\\$" or (matched := FORMULA.match(state.src, state.pos)) is None:
        return False
    if not silent:
        token = state.push("formula", "math", 0)
        token.content = next(part for part in matched.groups() if part is not None)
        token.meta = {"block": matched[0].startswith(("\\[", "$$"))}
    state.pos = matched.end()
    return True


def _formula_html(
    renderer: "RendererHTML",  # noqa: ARG001  # the shape of a rule
    tokens: Sequence["Token"],
    place: int,
    options: "OptionsDict",  # noqa: ARG001
    env: "EnvType",  # noqa: ARG001
) -> str:
    return formula(tokens[place].content, is_block=bool(tokens[place].meta.get("block")))


def _make_harmless(tokens: Sequence["Token"]) -> None:
    """Headings become paragraphs, since a page has its own; links keep their text and show where they would lead."""
    for token in _flat(tokens):
        if token.type in ("heading_open", "heading_close"):
            token.attrs = {"class": f"heading {token.tag}"} if token.nesting == 1 else {}
            token.tag = "p"
        elif token.type in ("link_open", "link_close"):
            token.tag = "span"
            token.attrs = {"class": "address", "title": str(token.attrs.get("href", ""))} if token.nesting == 1 else {}
        else:
            align = str(token.attrs.pop("style", "")).partition("text-align:")[2]
            token.attrs |= {"class": align} if align in ("right", "center") else {}


def _flat(tokens: Sequence["Token"]) -> Iterator["Token"]:
    for token in tokens:
        yield token
        yield from _flat(token.children or ())


def formula(latex: str, *, is_block: bool = False) -> str:
    """A formula as MathML; as text where it cannot be read, or where the library is not installed."""
    kind = "block" if is_block else "inline"
    try:
        from latex2mathml.converter import convert_to_element
    except ModuleNotFoundError:
        return _formula_text(latex, kind)
    # the library has no class for a text that is not a formula: it raises whatever its parser stumbled over, StopIteration, too
    html = call_user_code("latex2mathml", lambda: _mathml(convert_to_element(latex, display=kind)))
    return html if isinstance(html, str) else _formula_text(latex, kind)


def _formula_text(latex: str, kind: str) -> str:
    return f'<span class="formula {kind}">{escape(latex)}</span>'


def _mathml(element: Element) -> str:
    """An element with what may be in a page; anything else of it is left out, its text is kept as text."""
    inner = _said(element.text) + "".join(_mathml(child) + _said(child.tail) for child in element)
    if element.tag not in TAGS:
        return inner
    kept = "".join(f' {name}="{escape(value)}"' for name, value in element.attrib.items() if name in ATTRIBUTES)
    return f"<{element.tag}{kept}>{inner}</{element.tag}>"


def _said(text: str | None) -> str:
    return escape(unescape(text)) if text else ""
