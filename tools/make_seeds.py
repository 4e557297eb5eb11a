"""Writes docs/seeds.md: each requirement of the seed documents with what shows it, and each block with the tests that run it.

usage: python tools/make_seeds.py docs/seeds.md

The requirements, and why a block is not run, are in tests/seeds/requirements.toml. A test runs a block where it, or a constant
that it names, contains the block's file name, as in `copied("001/07.py")`.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TABLE, COPIES = "tests/seeds/requirements.toml", "tests/seeds"
BLOCK = re.compile(r"\b0\d{2}/\d{2}\.\w+")
MOST = 3
"""Tests of a block that the page names."""
HEAD = """# Requirements of the seeds, and what shows each

The ids are those of the project's checklist of its five seed documents. A test is named as `file::name`. This page is written by
`python tools/make_seeds.py docs/seeds.md`.
"""
MATRIX = """
## The seam matrix

`test_seams.py::test_an_extension_is_used_or_refused_before_the_first_request` is a test for each extension, each way in which it is
brought in, and each part of assay that has to use it: `compute_metrics`, `process_instances`, `assay.run`, `evaluate`, the command
`assay run`, `score`, `merge`, `validate`. A cell has the number that was worked out by hand, or is refused before the first
request, with its location and a fix. Others are impossible by their type, with the reason in
`tests/seam_matrix.py`, or known to be wrong.

| extension | ways | used | refused | impossible | wrong |
|---|--:|--:|--:|--:|--:|
"""
BLOCKS = """
## Blocks

Every Python and YAML block and every command of the documents is run as it is written there: `tests/seeds` has copies, which a test
compares with the documents where these are beside the checkout. Python follows the imports and the six undefined names of
`tests/seeds/prelude.py`. Where a document leaves something out, its test says what it puts there. `from lm_eval …` in a script
outside helper code works with the package assay-lm-eval ([migrating](migrating.md)).

| block | begins | run by |
|---|---|---|
"""


def read_table(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / TABLE).read_text(encoding="utf-8"))


def page(root: Path = ROOT) -> str:
    """The whole page."""
    table = read_table(root)
    parts = [HEAD]
    for section, rows in groupby(table["requirement"], key=lambda row: row["section"]):
        lines = [f"| {row['id']} | {row['requirement']} | {_shown_by(row)} | {row['page']} |" for row in rows]
        parts.append(
            f"\n## {section}\n\n| id | requirement | shown by | page |\n|---|---|---|---|\n" + "\n".join(lines) + "\n"
        )
    tests = tests_of_blocks(root)
    lines = [
        f"| {file} | `{_first_line(root / COPIES / file)}` | {_shown(tests.get(file), table['not_run'].get(file))} |"
        for file in sorted(str(path.relative_to(root / COPIES)) for path in (root / COPIES).glob("0*/*"))
    ]
    return "".join(parts) + MATRIX + cells_of_the_matrix(root) + BLOCKS + "\n".join(lines) + "\n"


def _shown_by(row: dict[str, Any]) -> str:
    """The tests of a requirement, and the lines of the seam matrix with its cells."""
    cells = [f"*{name}*" for name in row.get("cells", ())]
    return f"{row['shown']}; [cells](#the-seam-matrix): {', '.join(cells)}" if cells else str(row["shown"])


def cells_of_the_matrix(root: Path) -> str:
    """A line for each extension of the seam matrix, and one for all: how many cells have which outcome."""
    sys.path.insert(0, str(root / "tests"))
    from seam_world import count_cells
    from test_seams import SEAMS

    counts: dict[str, list[int]] = {}
    for seam in SEAMS:
        line = counts.setdefault(seam.extension, [0] * 5)
        counts[seam.extension] = [had + more for had, more in zip(line, [1, *count_cells(seam)], strict=True)]
    named = {name for row in read_table(root)["requirement"] for name in row.get("cells", ())}
    if not named <= counts.keys():
        raise SystemExit(f"{TABLE}: the seam matrix has no {', '.join(sorted(named - counts.keys()))}")
    whole = [sum(column) for column in zip(*counts.values(), strict=True)]
    return "".join(f"| {' | '.join(map(str, [name, *line]))} |\n" for name, line in [*counts.items(), ("all", whole)])


def _shown(tests: list[str] | None, reason: str | None) -> str:
    if not tests:
        return f"not run: {reason}"
    return ", ".join([*(f"`{test}`" for test in tests[:MOST]), *(["…"] if len(tests) > MOST else [])])


def _first_line(path: Path) -> str:
    line = next(line for line in path.read_text(encoding="utf-8").splitlines() if line.strip(" [{#"))
    return line.strip().replace("|", "\\|")[:60]


def tests_of_blocks(root: Path = ROOT) -> dict[str, list[str]]:
    """By block, the tests that run it."""
    shown: dict[str, list[str]] = {}
    for path in sorted((root / "tests").glob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "seed_blocks" in text:
            for test, blocks in _tests(ast.parse(text)):
                for block in sorted(blocks):
                    shown.setdefault(block, []).append(f"{path.name}::{test}")
    return {block: list(dict.fromkeys(tests)) for block, tests in shown.items()}


def _tests(module: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """The tests of a file, each with the blocks that it, or what it names, contains."""
    known: dict[str, set[str]] = {}
    for node in module.body:
        blocks = {
            block
            for each in ast.walk(node)
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
            for block in BLOCK.findall(each.value)
        }
        used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and each.id in known}
        blocks |= {block for name in used for block in known[name]}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            known |= {each.id: blocks for each in targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.FunctionDef):
            if node.name.startswith("test_"):
                yield node.name, blocks
            else:
                known[node.name] = blocks


def missing_tests(root: Path, text: str) -> list[str]:
    """The tests that a text names and that do not exist."""
    missing = []
    for named in sorted(set(re.findall(r"`(test_\w+\.py::test_\w+)`", text))):
        file, _, test = named.partition("::")
        path = root / "tests" / file
        if not path.is_file() or not re.search(rf"^def {test}\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            missing.append(named)
    return missing


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
