"""The LaTeX of `assay table` is compiled by pdflatex, names and marks included. `make nightly` runs this file.

It needs `apt-get install texlive-latex-recommended poppler-utils`: without them it fails.
"""

import re
import subprocess
from pathlib import Path

from assay.report.report_table import Column, NumberCell, ReportTable, TableLine, TextCell
from assay.report.runs_table import RunsTableOptions, runs_table
from assay.report.table_writers import write_latex
from paper_world import RUNS, SCORES, make_paper_runs

PRINTABLE = "".join(map(chr, range(33, 127)))
GLYPHS = str.maketrans("’‘”ˆ˜−∗∼", "'`\"^~-*~")
"""What pdftotext reads in the fonts of a plain document, where it is another character. An underscore is a rule there: a blank."""


def compile_document(folder: Path, *tables: ReportTable) -> str:
    """The text of a document with these tables, as a reader sees it; a warning about a line that is too wide is an error."""
    parts = [rf"\input{{table{number}}}\clearpage" for number in range(len(tables))]
    for number, table in enumerate(tables):
        (folder / f"table{number}.tex").write_text(write_latex(table), encoding="utf-8")
    head = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    (folder / "paper.tex").write_text("\n".join([head, *parts, r"\end{document}"]))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    ended = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stdout
    assert "Overfull" not in ended.stdout
    command = ["pdftotext", "-layout", "paper.pdf", "-"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=True).stdout.translate(
        GLYPHS
    )


def test_three_runs_by_15_tasks_fit_a_page(tmp_path: Path) -> None:
    runs = make_paper_runs(tmp_path / "runs")
    tables = [runs_table(runs, RunsTableOptions(transposed=True, spread=spread)) for spread in ("stderr", "interval")]
    text = compile_document(tmp_path, *tables)
    pages = text.split("\f")
    assert len(pages) == 3  # two tables, and nothing after the last page
    for page in pages[:2]:
        assert all(run.replace("_", " ") in page for run in RUNS)
        assert all(name.replace("_", " ") in page for name in SCORES)
    assert re.search(r"t 06 ↑\s+0\.833 ± 0\.112\s+0\.750 ± 0\.131\s+0\.250 ± 0\.131", pages[0])
    assert re.search(r"t 07 ↑\s+1\.000 ± 0\.000\s+0\.500 ± 0\.151\s+1\.000 ± 0\.000\*", pages[0])
    assert re.search(r"t 04 ↑\s+0\.667 \[0\.\d{3}, 0\.\d{3}\]", pages[1])


def test_every_character_of_a_keyboard_is_printed_and_none_obeyed(tmp_path: Path) -> None:
    half = len(PRINTABLE) // 2
    lines = [
        TableLine([TextCell(text), NumberCell(0.5)])
        for text in (PRINTABLE[:half], PRINTABLE[half:], "[2em]", "*", "", "−±×÷≤≥∞†…")
    ]
    table = ReportTable([Column("*"), Column("[1]", align="right")], lines, "\\input{x} % 100 $", [PRINTABLE[:half]])
    text = compile_document(tmp_path, table)
    assert PRINTABLE[:half] in text
    assert PRINTABLE[half:].replace("_", " ") in text
    assert r"\input{x} % 100 $" in text
    assert "[2em]" in text
