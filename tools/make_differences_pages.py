"""Write the tables of differences into docs/lm-eval.md and docs/sygra.md, from the rules of `assay.dialect`.

usage: python tools/make_differences_pages.py [FOLDER]

A table stands between the comments `<!-- differences: NAME -->` and `<!-- end -->`; what is around it is written by hand.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from assay.dialect import (
    AGGREGATORS,
    CATALOG,
    COMPAT_LM_EVAL,
    COMPAT_SYGRA,
    DATA,
    LM_EVAL_FILES,
    NOT_REPRODUCED,
    REPORTS,
    RUN,
    UNIT_METRICS,
    Dialect,
)

DOCS = Path(__file__).resolve().parent.parent / "docs"
TABLES: dict[str, tuple[str, Sequence[str]]] = {
    "lm-eval catalog": (COMPAT_LM_EVAL, [CATALOG]),
    "lm-eval run": (COMPAT_LM_EVAL, [RUN, DATA]),
    "sygra unit metrics": (COMPAT_SYGRA, [UNIT_METRICS]),
    "sygra aggregator metrics": (COMPAT_SYGRA, [AGGREGATORS]),
    "sygra reports": (COMPAT_SYGRA, [REPORTS]),
    "sygra data": (COMPAT_SYGRA, [DATA]),
}
"""By the name in the comment, the program and the tables of its rules."""
PAGES = ("lm-eval.md", "sygra.md")
NOT_AT_ALL, ALSO_IN_FILES = " †", " ‡"


def rows_of(program: str, tables: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a table: first the rules that reproduce the program, then what nothing reproduces."""
    for entry in fields(Dialect):
        about = entry.metadata
        if about["table"] in tables and program in about["holds_in"]:
            mark = ALSO_IN_FILES if LM_EVAL_FILES in about["holds_in"] else ""
            for row in about["rows"]:
                yield row.subject + mark, row.theirs, row.ours
    for table in tables:
        for row in NOT_REPRODUCED[program].get(table, ()):
            yield row.subject + NOT_AT_ALL, row.theirs, row.ours


def table_of(name: str) -> str:
    """Return a table of differences in Markdown."""
    program, tables = TABLES[name]
    theirs = "SyGra" if program == COMPAT_SYGRA else "lm-eval 0.4.13"
    rows = [("subject", theirs, "assay"), ("---",) * 3, *rows_of(program, tables)]
    return "\n".join(f"| {' | '.join(row)} |" if row[0] != "---" else "|---|---|---|" for row in rows)


def with_tables(text: str) -> str:
    """Return a page with its tables written again."""
    marked = re.compile(r"(<!-- differences: ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return marked.sub(lambda match: f"{match[1]}\n{table_of(match[2])}\n\n{match[3]}", text)


def main(folder: Path) -> None:
    """Write the pages to a folder, which may be that of the documents."""
    for name in PAGES:
        (folder / name).write_text(with_tables((DOCS / name).read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
