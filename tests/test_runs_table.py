"""`assay table`: models by tasks as a paper prints them."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

from assay import Scripted, simple_evaluate
from assay.cli import main
from assay.errors import ConfigError
from assay.report.report_table import NumberCell, ReportTable
from assay.report.runs_table import RunsTableOptions, runs_table
from assay.report.table_writers import write_latex
from compared_world import make_run, two_runs, write_tasks
from paper_world import BOLD, DOCUMENTS, RUNS, SCORES, make_paper_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_paper_runs(tmp_path_factory.mktemp("paper"))


def bold_cells(table: ReportTable) -> dict[str, tuple[int, ...]]:
    """By the key of a column the lines that are bold in it."""
    return {
        column.name: tuple(
            place
            for place, line in enumerate(table.lines)
            if isinstance(cell := line.cells[number], NumberCell) and cell.style == "bold"
        )
        for number, column in enumerate(table.columns)
        if number
    }


def test_bold_are_the_best_number_and_those_not_significantly_worse(runs: list[Path]) -> None:
    table = runs_table(runs)
    assert [column.name for column in table.columns] == ["model", *sorted(SCORES)]
    assert bold_cells(table) == BOLD


def test_a_run_without_numbers_does_not_hide_those_of_the_next(tmp_path: Path) -> None:
    """Whichever comes first: every document of one failed."""
    good, other = two_runs(tmp_path, [1.0, 0.0], [0.0, 1.0])

    def fail(prompt: str, params: dict[str, object], repeat: int) -> str:
        raise ValueError(prompt)

    bad = tmp_path / "bad"
    simple_evaluate(
        Scripted(generate=fail, identity="fails"), output_path=str(bad), tasks=["t"], include_path=str(tmp_path / "tasks"),
        include_defaults=False, max_failures=None,
    )  # fmt: skip
    for runs in ([good, bad, other], [bad, good, other]):
        table = runs_table(runs)
        numbers = {str(line.cells[0]): line.cells[1] for line in table.lines}
        values = sorted(cell.value is None for cell in numbers.values() if isinstance(cell, NumberCell))
        assert values == [False, False, True]
        assert "– No number could be computed (bad in t: every document failed in this row)." in table.notes
        assert "– The run has no such number." not in table.notes


def test_three_runs_by_15_tasks_as_latex_can_be_read_back(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", *map(str, runs), "--format", "latex"]) == 0
    printed, warned = capsys.readouterr()
    assert "--transpose" in warned
    header, rows = read_latex(printed)
    assert len(header) == 1 + len(SCORES)
    assert header[:3] == ["Model", r"less\_0 $\downarrow$", r"less\_1 $\downarrow$"]
    assert [row[0] for row in rows] == [r"a\_1\%", r"b\&co", r"c\#\{\$\}\textasciitilde{}\textasciicircum{}"]
    for column, name in enumerate(sorted(SCORES), 1):
        assert tuple(n for n, row in enumerate(rows) if "mathbf" in row[column]) == BOLD[name], name
    by_name = dict(zip(sorted(SCORES), rows[2][1:], strict=True))
    assert by_name["t_08"] == "--"  # it has no such task
    assert by_name["t_07"] == "$1.000 \\pm 0.000^{*}$"  # one of its documents failed: 11 of 11
    assert by_name["t_06"] == "$0.250 \\pm 0.131$"  # sqrt(0.25 * 0.75 / 11)


def read_latex(text: str) -> tuple[list[str], list[list[str]]]:
    """The cells of the head and of the lines of a table, as they are written; checks that its environments are closed."""
    assert re.findall(r"\\(begin|end){(\w+)}", text) == [
        ("begin", "table"),
        ("begin", "tabular"),
        ("end", "tabular"),
        ("end", "table"),
    ]
    [columns] = re.findall(r"\\begin{tabular}{([lr]+)}", text)
    head, body = re.search(r"\\toprule\n(.*)\\midrule\n(.*)\\bottomrule\n", text, re.DOTALL).groups()  # type: ignore[union-attr]
    lines = [re.split(r"(?<!\\) & ", line.removesuffix(r" \\")) for line in (head + body).splitlines()]
    assert {len(line) for line in lines} == {len(columns)}
    return lines[0], lines[1:]


def test_the_notes_have_n_the_level_and_what_is_not_paired(runs: list[Path]) -> None:
    notes = " ".join(runs_table(runs).notes)
    assert "Metric: x." in notes
    assert f"n = {DOCUMENTS} (t_07: {DOCUMENTS - 1} to {DOCUMENTS})." in notes
    assert "Holm-corrected within the task, 5 % level" in notes
    assert "by their standard errors, not document by document: b&co in t_10." in notes
    assert "* Documents failed or were not asked" in notes
    assert "– The run has no such number." in notes


def test_a_line_for_each_task_and_chosen_tasks_in_their_order(runs: list[Path]) -> None:
    table = runs_table(runs, RunsTableOptions(tasks=["t_03", "less_*"], transposed=True, names={"b&co": "Model B"}))
    assert [column.title for column in table.columns] == ["Task", "a_1%", "Model B", RUNS[2]]
    assert [line.cells[0] for line in table.lines] == ["t_03 ↑", "less_0 ↓", "less_1 ↓", "less_2 ↓"]
    assert [cell.value for cell in table.lines[0].cells[1:]] == [1.0, 8 / 12, 5 / 12]  # type: ignore[union-attr]


def test_intervals_are_in_brackets(runs: list[Path]) -> None:
    text = write_latex(runs_table(runs, RunsTableOptions(tasks=["t_04"], spread="interval", digits=2)))
    assert r"$\mathbf{0.67}\;[0.3" in text
    assert r"\pm" not in text


def test_csv_and_json_have_values_unrounded(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    command = ["table", *map(str, runs), "--tasks", "t_03"]
    assert main([*command, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["t_03"]) for row in rows] == [1.0, 8 / 12, 5 / 12]
    assert float(rows[1]["t_03_stderr"]) == pytest.approx((8 / 12 * 4 / 12 / 11) ** 0.5, rel=1e-12)
    assert [row["t_03_style"] for row in rows] == ["bold", "bold", ""]
    assert main([*command, "--format", "json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert [row["t_03"] for row in written["rows"]] == [1.0, 8 / 12, 5 / 12]
    assert [row["model"] for row in written["rows"]] == list(RUNS)


@pytest.mark.parametrize(
    ("suffix", "beginning"),
    [("tex", "% needs"), ("md", "|Model"), ("html", "<table>"), ("csv", "model,"), ("json", "{")],
)
def test_the_name_of_a_file_chooses_its_format(runs: list[Path], tmp_path: Path, suffix: str, beginning: str) -> None:
    target = tmp_path / "new" / f"table.{suffix}"
    assert main(["table", *map(str, runs[:2]), "--tasks", "t_03", "-o", str(target)]) == 0
    assert target.read_text().startswith(beginning)


def test_what_cannot_be_chosen_is_refused(runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="no task or group with numbers is named 't_3'"):
        runs_table(runs, RunsTableOptions(tasks=["t_3"]))
    with pytest.raises(ConfigError, match="no metric named 'y'"):
        runs_table(runs, RunsTableOptions(metrics=["y"]))
    assert main(["table", str(runs[0]), "-o", str(tmp_path / "table.doc")]) == 2
    assert "end it in .tex" in capsys.readouterr().err


def test_one_run_has_numbers_and_no_best(runs: list[Path]) -> None:
    table = runs_table(runs[:1])
    assert set(bold_cells(table).values()) == {()}
    assert not any("Bold" in note for note in table.notes)


def test_runs_with_other_prompts_are_refused_unless_that_is_allowed(tmp_path: Path) -> None:
    a, _ = two_runs(tmp_path / "a", [1.0, 0.0, 1.0], [1.0, 0.0, 0.0])
    other = tmp_path / "other"
    text = (tmp_path / "a" / "tasks" / "t.yaml").read_text().replace("doc_to_text: n", "doc_to_text: 'Q: {{n}}'")
    (tmp_path / "a" / "tasks" / "t.yaml").write_text(text)
    make_run(tmp_path / "a" / "tasks", other, {"t": [1.0, 1.0, 1.0]})
    with pytest.raises(ConfigError, match="prompts of 3 of 3 documents differ"):
        runs_table([a, other])
    assert runs_table([a, other], RunsTableOptions(allow_different_prompts=True)).lines


def test_a_number_that_one_run_lacks_is_not_the_column_of_a_group_whichever_run_comes_first(tmp_path: Path) -> None:
    """A geometric mean of 0.5 and 0 does not exist; the least of them does in both runs."""
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 4, "u": [{}] * 4})
    entries = "{metric: x, name: geo, aggregation: geometric_mean}, {metric: x, name: worst, aggregation: min}"
    (folder / "g.yaml").write_text(f"group: g\ntask: [t, u]\naggregate_metric_list: [{entries}]\n")
    scores = {"a": {"t": [0.5] * 4, "u": [0.5] * 4}, "b": {"t": [0.5] * 4, "u": [0.0] * 4}}
    runs = [make_run(folder, tmp_path / name, own, tasks=["g"]) for name, own in scores.items()]
    for order in (runs, runs[::-1]):
        table = runs_table(order, RunsTableOptions(tasks=["g"]))
        values = {str(line.cells[0]): line.cells[1].value for line in table.lines}  # type: ignore[union-attr]
        assert values == {"a": 0.5, "b": 0.0}
        assert any("worst" in note for note in table.notes)
