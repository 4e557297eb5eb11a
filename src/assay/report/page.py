"""A report as one page of HTML that needs nothing else: no script, no address, styles of its own that alone are allowed."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import orjson
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

import assay
from assay.comparison.comparison import Comparison
from assay.report.document import Document, Slices
from assay.report.plots import STYLE, Interval, forest, interval_bar, slices
from assay.report.reading import Line
from assay.report.texts import cut, decimal, ends, visible
from assay.runs.run import ResultRow

RULES = """\
:root { color-scheme: light dark; --paper: #ffffff; --panel: #f4f5f7; --ink: #1b1f24; --faint: #57606a; --line: #c8ccd2;
  --track: #d9dde3; --spread: #9ec1ea; --accent: #0550ae; --good: #116329; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --panel: #1e2329; --ink: #e8eaed; --faint: #a9b1ba;
  --line: #3c444d; --track: #333a42; --spread: #2f5d92; --accent: #7ab7ff; --good: #5fd07f; --bad: #ff8f85; } }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; font: 15px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; }
a { color: var(--accent); } .faint { color: var(--faint); } .bad { color: var(--bad); } .good { color: var(--good); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .15rem .7rem .15rem 0; vertical-align: top; } th { color: var(--faint); font-weight: 600; }
tr.group td { font-weight: 600; } td.n, th.n { text-align: right; } td.n, td.i { white-space: nowrap; }
td, th { font-size: .87rem; padding-right: .5rem; } th { max-width: 7rem; overflow-wrap: break-word; vertical-align: bottom; }
 tbody tr:hover { background: var(--panel); }
pre { background: var(--panel); padding: .6rem .8rem; margin: .2rem 0 .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .4rem 0; } summary { cursor: pointer; } dt { color: var(--faint); } dd { margin: 0 0 .3rem 0; }
.d1 { padding-left: 1.2rem; } .d2 { padding-left: 2.4rem; } .d3 { padding-left: 3.6rem; } .d4 { padding-left: 4.8rem; }
@media print { details { display: block; } }
"""
"""The page's own rules: light or dark as the reader's system is."""
LINES = 400
"""Characters of a text in a line of a table."""


def page(document: Document) -> str:
    """The report as HTML. Whatever a model, a task or a file said stands in it as text."""
    style = RULES + STYLE
    policy = f"default-src 'none'; style-src '{_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    made: str = _template().render(
        document=document,
        style=Markup(style),  # our own, and what the policy allows
        policy=policy,
        title=", ".join(part.reading.name for part in document.runs),
        version=assay.__version__,
    )
    return made


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _template() -> Any:
    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {
        "safe_text": visible,
        "cut": lambda text: visible(cut(str(text))),
        "decimal": decimal,
        "json": lambda value: visible(orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2).decode()),
        "short": lambda value: visible(cut(str(value), LINES)),
    }
    made.globals |= {"bar": bar, "ends": ends, "depth": depth, "parts": parts, "forest": differences, "arrow": arrow}
    return made.from_string(files("assay.report").joinpath("page.html.jinja").read_text("utf-8"))


def bar(number: ResultRow) -> Markup:
    """The line of a share; other numbers have no scale that all would understand."""
    if number.value is None or not number.is_share:
        return Markup("")
    return Markup(interval_bar(Interval(visible(number.metric), number.value, number.low, number.high)))


def parts(found: Slices) -> Markup:
    return Markup(slices([each._replace(name=visible(each.name)) for each in found.parts]))


def differences(comparison: Comparison, run: int) -> Markup:
    """The differences of all tasks and groups to the first run, on their first metric of which more is better."""
    rows = [
        Interval(visible(row.alias or row.name), row.difference, row.interval[0], row.interval[1], f"n {row.n:,}")
        for row in first_rows(comparison, run)
        if row.difference is not None and row.interval is not None
    ]
    return Markup(forest(rows)) if rows else Markup("")


def first_rows(comparison: Comparison, run: int) -> Sequence[Any]:
    """One row for each task and group: of its first metric of which more is better."""
    found: dict[str, Any] = {}
    for row in comparison.rows:
        if row.run == run and row.higher_is_better is not False:
            found.setdefault(row.name, row)
    return list(found.values())


def depth(line: Line) -> int:
    return min(line.depth, 4)


def arrow(better: bool | None) -> str:
    return {True: "↑", False: "↓"}.get(better, "") if better is not None else ""
