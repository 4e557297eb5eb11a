"""The writers of tables: what each writes for every kind of cell, and that no text in a table can harm its reader."""

import csv
import io
import json
from html import unescape
from html.parser import HTMLParser

import pytest

from assay.report.report_table import (
    Cell,
    Column,
    CountCell,
    DurationCell,
    IntervalCell,
    LinkCell,
    MetricCell,
    MoneyCell,
    NumberCell,
    PartsCell,
    ProgressCell,
    PValueCell,
    ReportTable,
    ShareCell,
    TableLine,
    TextCell,
)
from assay.report.table_writers import write_csv, write_html, write_json, write_latex, write_markdown, write_page_table
from assay.report.terminal import write_terminal

HOSTILE = "\x1b[2J\u202e<script>alert(1)</script> | `rm` **x** [a](b) @team #1 \\input{/etc/passwd} $x^2$ %& ~_\n--"


def one_cell(cell: Cell, **line: object) -> ReportTable:
    return ReportTable([Column("Name"), Column("Value", align="right")], [TableLine([TextCell("a"), cell], **line)])  # type: ignore[arg-type]


def terminal_text(table: ReportTable, width: int | None = None, *, colored: bool = False) -> str:
    return "\n".join(write_terminal(table, width, colored=colored)[0])


@pytest.mark.parametrize(
    ("cell", "text", "latex"),
    [
        (NumberCell(0.61334), "0.6133", "$0.6133$"),
        (NumberCell(434.98), "435.0", "$435.0$"),
        (NumberCell(434.98, digits=4), "434.9800", "$434.9800$"),
        (NumberCell(0.5, digits=1, reason="one document"), "0.5 one document", "$0.5$ one document"),
        (PValueCell(0.00001), "<0.0001", r"\textless{}0.0001"),
        (TextCell("g", is_repeated=True), "", ""),
        (NumberCell(0.61334, stderr=0.0134, digits=3), "0.613 ± 0.013", r"$0.613 \pm 0.013$"),
        (NumberCell(-0.5, interval=(-0.75, None), digits=2, is_signed=True), "-0.50 [-0.75, –]", r"$-0.50\;[-0.75, \mbox{--}]$"),
        (NumberCell(200.0, stderr=200.0, is_logarithmic=True, digits=1), "200.0 ×/÷ 2.72", r"$200.0 \mathbin{\times\!/\!\div} 2.72$"),
        (NumberCell(0.5, mark="*", digits=1, style="bold"), "0.5*", r"$\mathbf{0.5}^{*}$"),
        (NumberCell(None), "–", "--"),
        (NumberCell(3e9), "3e+09", r"$3\times10^{9}$"),
        (IntervalCell(0.25, 0.5), "0.250 … 0.500", r"$0.250 \dots 0.500$"),
        (IntervalCell(4.2437, 9300.7, is_logarithmic=True), "4.24 … 9300", r"$4.24 \dots 9300$"),
        (IntervalCell(None, None), "", ""),
        (CountCell(1319), "1,319", "1,319"),
        (CountCell(3, of=57, mark="*"), "3 of 57*", "3 of 57{*}"),
        (ShareCell(0.031), "3.1 %", r"3.1 \%"),
        (DurationCell(75.0), "1 min 15 s", "1 min 15 s"),
        (MoneyCell(0.00123), "0.001230", "0.001230"),
        (MetricCell("f1", "strict", False), "f1 (strict) ↓", r"f1 (strict) $\downarrow$"),
        (ProgressCell(3, 1200), "3 / 1,200", "3 / 1,200"),
        (PartsCell([CountCell(2), "", CountCell(0)], separator=" / "), "2 / 0", "2 / 0"),
        (NumberCell(-0.00001), "0.0000", "$0.0000$"),
        (NumberCell(-0.00001, is_signed=True, digits=2), "+0.00", "$+0.00$"),
        (IntervalCell(-0.00001, 0.5), "0.000 … 0.500", r"$0.000 \dots 0.500$"),
    ],
)  # fmt: skip
def test_a_cell_as_people_read_it(cell: Cell, text: str, latex: str) -> None:
    table = one_cell(cell)
    assert terminal_text(table).splitlines()[1].removeprefix("a").strip() == text
    in_markdown = write_markdown(table).splitlines()[2].split("|")[2].strip()
    assert in_markdown == (f"**{text}**" if isinstance(cell, NumberCell) and cell.style else text)
    assert f"\na & {latex} \\\\\n" in write_latex(table)


def test_csv_and_json_have_each_value_unrounded_in_a_separate_column() -> None:
    columns = [
        Column("Task"),
        Column("b − a", key="difference"),
        Column("95 %", key="interval"),
        Column("n"),
        Column("time"),
    ]
    cells = [
        TextCell("t"),
        NumberCell(1 / 3, stderr=1 / 7, mark="*"),
        IntervalCell(0.1, None),
        CountCell(3, of=4),
        DurationCell(1 / 9),
    ]
    table = ReportTable(
        columns,
        [
            TableLine(cells),
            TableLine(
                [TextCell("u"), NumberCell(None), IntervalCell(None, None), CountCell(5), DurationCell(None)], level=1
            ),
        ],
    )
    [header, first, second] = csv.reader(io.StringIO(write_csv(table)))
    assert header == [
        "level",
        "task",
        "difference",
        "difference_stderr",
        "difference_mark",
        "interval_low",
        "interval_high",
        "n",
        "n_of",
        "time",
    ]
    assert first == ["0", "t", repr(1 / 3), repr(1 / 7), "*", "0.1", "", "3", "4", repr(1 / 9)]
    assert second == ["1", "u", "", "", "", "", "", "5", "", ""]
    [one, _] = json.loads(write_json(table))["rows"]
    assert one == {"level": 0, "task": "t", "difference": 1 / 3, "difference_stderr": 1 / 7, "difference_mark": "*",
                   "interval_low": 0.1, "interval_high": None, "n": 3, "n_of": 4, "time": 1 / 9}  # fmt: skip


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str | None] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name == "href"]

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile_table() -> ReportTable:
    lines = [
        TableLine([TextCell(HOSTILE), LinkCell(HOSTILE, "javascript:alert(1)")]),
        TableLine([TextCell("=1+1"), LinkCell("run", "https://a.example/r?x=1&y")]),
    ]
    return ReportTable([Column(HOSTILE, "a"), Column("b")], lines, HOSTILE, [HOSTILE])


@pytest.mark.parametrize("write", [write_markdown, write_html, write_csv, write_latex, terminal_text])
def test_no_writer_passes_on_control_characters(write: "object") -> None:
    text = write(hostile_table())  # type: ignore[operator]
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_html_has_no_element_of_a_text_and_links_to_pages_alone() -> None:
    page = Elements(write_html(hostile_table()))
    assert set(page.tags) <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p", "a"}
    assert page.links == ["https://a.example/r?x=1&y"]
    assert page.text.count("<script>") == 5


def test_a_page_has_no_element_of_a_text_no_style_and_links_to_pages_alone() -> None:
    text = write_page_table(hostile_table(), "t")
    page = Elements(str(text))
    assert set(page.tags) <= {"table", "thead", "tbody", "tr", "th", "td", "bdi", "a", "br", "small", "wbr"}
    assert page.links == ["https://a.example/r?x=1&y"]
    assert page.text.count("<script>") == 3
    assert "style=" not in text and "\x1b" not in text and "\u202e" not in text


def test_a_page_says_what_a_copy_of_its_table_has_in_each_column() -> None:
    columns = [Column("Task"), Column("Metric"), Column("95 %", "interval"), Column("same", align="right", drop=1)]
    counts = PartsCell([CountCell(2), CountCell(7)], "a hint", ("better", "worse"), " / ")
    group = TableLine(["g", MetricCell("acc_norm", "strict", True), IntervalCell(1 / 3, 0.5), counts], style="bold")
    lines = [group, TableLine([TextCell("t_1"), TextCell("not run", "worse")], level=1)]
    text = unescape(str(write_page_table(ReportTable(columns, lines), "t"))).replace("<wbr>", "")
    assert """<th scope="col" data-csv="["Task","depth"]">Task</th>""" in text
    assert """<th scope="col" data-csv="["Metric","filter"]">Metric</th>""" in text
    assert """<th scope="col" class="right roomy" data-csv="["better","worse"]">same</th>""" in text
    assert """<tr class="group"><td class="name depth0" data-markdown="g" data-csv="["g",0]">g</td>""" in text
    assert """acc_norm <span title="higher is better">↑</span> <small>strict</small></td>""" in text
    assert """class="num nowrap faint" data-csv="[0.3333333333333333,0.5]">0.333 … 0.500</td>""" in text
    assert """<td class="right roomy" title="a hint" data-csv="[2,7]">2 / 7</td></tr>""" in text
    assert (
        """data-csv="["t_1",1]">t_1</td><td class="bad" data-csv="["not run",null]" colspan="3">not run</td>""" in text
    )


def test_markdown_of_a_text_has_no_markup() -> None:
    lines = write_markdown(hostile_table()).split("\n")
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 4
    assert {len(row.replace("\\|", "").split("|")) for row in rows} == {4}
    for mark in ("<script", " `rm`", "**x", "[a](b)", "@team", "#1", "} $x"):
        assert mark not in "\n".join(lines)
    assert "[run](<https://a.example/r?x=1&amp;y>)" in rows[3]


def test_a_spreadsheet_runs_no_text() -> None:
    rows = list(csv.reader(io.StringIO(write_csv(hostile_table()))))
    assert rows[2][0] == "'=1+1"


def test_latex_runs_no_text() -> None:
    text = write_latex(
        ReportTable(
            [Column("[2em]"), Column("*")],
            [TableLine([TextCell("[1]"), TextCell(HOSTILE)]), TableLine([TextCell("*"), TextCell("--x")])],
        )
    )
    for command in ("\\input", " $x", "^2", "\\%&", "\n[", "\n*", "--"):
        assert command not in text.replace("\\input{table}", "")
    assert r"\textbackslash{}input\{/etc/passwd\} \$x\textasciicircum{}2\$ \%\& \textasciitilde{}\_" in text
    assert "\n{[}1{]} & " in text


def test_members_are_indented_below_their_group() -> None:
    table = ReportTable(
        [Column("Task"), Column("n")],
        [TableLine([TextCell("g"), CountCell(2)], style="bold"), TableLine([TextCell("t"), CountCell(1)], level=1)],
    )
    assert terminal_text(table).splitlines() == ["Task  n", "g     2", " - t  1"]
    assert terminal_text(table, colored=True).splitlines()[1].startswith("\x1b[1mg\x1b[0m")
    assert "\n| - t| 1|" in write_markdown(table).replace("1 |", " 1|")
    assert r"\hspace*{1em}t & 1" in write_latex(table)
    assert "<b>g</b>" in write_html(table)


def test_a_narrow_terminal_leaves_out_columns_in_their_order() -> None:
    columns = [Column("Task"), Column("Value"), Column("second", drop=2), Column("first", drop=1)]
    table = ReportTable(
        columns, [TableLine([TextCell("task"), NumberCell(0.5), TextCell("x" * 10), TextCell("y" * 10)])]
    )
    assert write_terminal(table, 40)[1] == []
    assert write_terminal(table, 26)[1] == ["first"]
    assert write_terminal(table, 14)[1] == ["first", "second"]
