"""A report: one file with the results of runs, without external files, that no text in a run can break out of."""

import base64
import csv
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import compared_world
import run_world
from assay import simple_evaluate
from assay.errors import AssayError
from assay.models import Scripted
from assay.report.document import build_report
from assay.report.write import PAGE_STYLE, as_csv, as_html, as_json, as_markdown
from assay.runs.extensions import ReportOptions
from assay.safe_text import fenced, markdown_text, shorten, spreadsheet_text, visible
from conftest import Write
from exchange_world import HARM, INSPECT, run_harm, write_harm
from run_world import ACC, EXACT_MATCH, RecordingModel


class Page(HTMLParser):
    """What a browser would find in a page: tags with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.style = "", ""
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self.style += data
        else:
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


KNOWN = {
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "h4", "p", "b", "div", "table", "thead", "tbody", "tr", "th", "td",
    "span", "svg", "rect", "path", "g", "text", "circle", "polyline", "polygon", "desc", "details", "summary", "pre", "dl", "dt", "dd",
    "bdi", "br", "small", "wbr",
}  # fmt: skip
HARMLESS = {
    "class", "charset", "scope", "content", "http-equiv", "name", "lang", "title", "colspan", "open", "role", "viewbox", "width", "height",
    "aria-label", "x", "y", "d", "text-anchor", "cx", "cy", "r", "points", "rx", "transform", "font-size", "font-weight", "stroke-width", "stroke-dasharray",
}  # fmt: skip


def assert_alone(text: str) -> Page:
    """A page has only tags and attributes that can neither run nor load anything, and a policy that forbids it besides."""
    result = Page(text)
    assert {tag for tag, _ in result.tags} <= KNOWN
    assert {name for _, attributes in result.tags for name in attributes} <= HARMLESS
    assert "url(" not in result.style and "@import" not in result.style
    [policy] = [a["content"] for _, a in result.tags if a.get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(result.style.encode()).digest()).decode()
    assert (
        policy == f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return result


def test_a_page_shows_the_numbers_without_external_files(tasks: Path, output: Path) -> None:
    run_world.run(RecordingModel(failing={"3*3="}), tasks, output)
    result = assert_alone(as_html(build_report([output])))
    assert f"{ACC:.4f}" in result.text
    assert "1 failed" in result.text and "no answer to 3*3=" in result.text
    assert sum(tag == "svg" for tag, _ in result.tags) >= 2


@pytest.fixture
def harm(tmp_path: Path) -> Path:
    folder = write_harm(tmp_path / "tasks")
    run_harm(folder, tmp_path / HARM[0].replace("/", "") / "run")
    return tmp_path / HARM[0].replace("/", "") / "run"


def test_nothing_hostile_leaves_its_place_in_a_page(harm: Path) -> None:
    options = ReportOptions(samples=len(HARM), columns=["kind", "q"])
    result = assert_alone(as_html(build_report([harm], options)))
    for text in HARM:
        assert visible(text) in result.text, "it is shown, as text"


def test_nothing_hostile_leaves_its_place_when_runs_are_compared(harm: Path, tmp_path: Path) -> None:
    folder = write_harm(tmp_path / "tasks")
    run_harm(folder, tmp_path / "b", right=True)
    report = build_report([harm, tmp_path / "b"])
    assert report.comparison is not None and len(report.comparison.flips) == 5
    assert_alone(as_html(report))


def outside_of_fences(text: str) -> str:
    """Markdown without its fenced blocks."""
    kept, fence = [], ""
    for line in text.splitlines():
        if not fence and line.startswith("```"):
            fence = line[: len(line) - len(line.lstrip("`"))]
        elif fence and line == fence:
            fence = ""
        elif not fence:
            kept.append(line)
    assert not fence, "every fence is closed"
    return "\n".join(kept)


def test_nothing_hostile_leaves_its_place_in_markdown(harm: Path) -> None:
    text = as_markdown(build_report([harm], ReportOptions(samples=len(HARM), columns=["kind"])))
    left = outside_of_fences(text)
    assert set(re.findall(r"</?\w+", left)) == {"<details", "<summary", "</summary", "</details"}
    assert not re.search(r"(?<!\\)\]\(|@\w|(?<!&)#\d", left)
    assert "\x1b" not in text and "\u202e" not in text and "\x00" not in text
    tables = [line for line in left.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in tables} <= {5, 7}


def test_a_spreadsheet_finds_no_formula(harm: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(build_report([harm])))))
    assert [row["name"] for row in rows] == ["harm"]
    assert not any(
        value[:1] in "=+@" for row in rows for key, value in row.items() if key in ("run", "model", "name") and value
    )
    assert spreadsheet_text('=HYPERLINK("x")') == '\'=HYPERLINK("x")'


@given(st.text())
def test_no_text_ends_its_fence_or_is_rendered_as_markup(text: str) -> None:
    fence, *inside, end = fenced(text).split("\n")
    assert end == fence.removesuffix("text")
    assert not any(line.strip().startswith(end) for line in inside)
    inline = markdown_text(text)
    assert "<" not in inline and "\n" not in inline and not re.search(r"@\w", inline)
    assert re.sub(r"\\.", "", inline).count("|") == 0


@given(st.text(min_size=1), st.integers(2, 50))
def test_a_text_that_is_cut_keeps_its_beginning_and_its_end(text: str, most: int) -> None:
    result = shorten(text, most)
    assert (
        result == text
        if len(text) <= most
        else (result.startswith(text[: most // 2]) and result.endswith(text[-(most // 2) :]))
    )


LEVELS = """
    task: levels
    dataset_path: json
    dataset_kwargs: {data_files: {test: levels.jsonl}}
    test_split: test
    doc_to_text: "{{q}}"
    doc_to_target: "{{ 'yes' }}"
    metric_list: [{metric: exact_match}]
    generation_kwargs: {until: ["\\n"], do_sample: false}
"""


@pytest.fixture
def levels(write: Write, tmp_path: Path) -> Path:
    """Twenty documents: of ten easy ones eight are right, of ten hard ones two."""
    rows = [{"q": f"{level} {n}", "level": level, "number": n} for level in ("easy", "hard") for n in range(10)]
    folder = write({"levels.yaml": LEVELS, "levels.jsonl": "".join(json.dumps(row) + "\n" for row in rows)})
    right = {f"easy {n}" for n in range(8)} | {"hard 0", "hard 1"}
    model = Scripted(generate=lambda prompt, params, repeat: "yes" if prompt in right else f"no, to {prompt}")
    options = {"include_path": str(folder), "include_defaults": False, "output_path": str(tmp_path / "levels_run")}
    simple_evaluate(model, tasks=["levels"], **options)
    return tmp_path / "levels_run"


def test_a_column_with_few_values_has_a_number_for_each_value(levels: Path) -> None:
    [result] = build_report([levels]).runs[0].slices
    assert (result.task, result.column) == ("levels", "level")
    assert [(part.name, part.number.value, part.number.n) for part in result.parts] == [
        ("hard", 0.2, 10),
        ("easy", 0.8, 10),
    ]
    low, high = result.parts[0].number.low, result.parts[0].number.high
    for end, tail in ((low, 0.025), (high, 0.975)):  # mid-p, of two in ten
        assert binom.sf(2, 10, end) + binom.pmf(2, 10, end) / 2 == pytest.approx(tail)
    [asked] = build_report([levels], ReportOptions(columns=["number"])).runs[0].slices
    assert len(asked.parts) == 10


def test_the_worst_samples_are_shown_with_answer_and_target(levels: Path) -> None:
    shown = build_report([levels], ReportOptions(samples=3)).runs[0].worst
    assert [each.doc_id for each in shown] == [8, 9, 12]
    assert (shown[0].question, shown[0].said, shown[0].target) == ("easy 8", "no, to easy 8", "yes")
    assert build_report([levels], ReportOptions(samples=0)).runs[0].worst == []


def test_several_runs_are_compared_with_the_first(tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    model = Scripted(
        generate=lambda prompt, params, repeat: "wrong", loglikelihood=lambda context, continuation: (-1.0, False)
    )
    options = {"include_path": str(tasks), "include_defaults": False, "output_path": str(tmp_path / "b")}
    simple_evaluate(model, tasks=["sums", "colours"], **options)
    report = build_report([output, tmp_path / "b"])
    assert_alone(as_html(report))
    rows = list(csv.DictReader(io.StringIO(as_csv(report))))
    [row] = [row for row in rows if (row["run"], row["name"]) == ("b", "sums")]
    assert float(row["difference"]) == pytest.approx(0 - EXACT_MATCH)
    assert float(row["difference_low"]) < -EXACT_MATCH < float(row["difference_high"])
    assert "-0.6000|" in as_markdown(report)
    loaded = json.loads(as_json(report))
    assert [run["name"] for run in loaded["runs"]] == ["run", "b"]
    assert {row["name"] for row in loaded["comparison"]["rows"]} == {"sums", "colours"}


def test_p_values_of_groups_are_not_among_the_corrected_ones(tmp_path: Path) -> None:
    group = "group: both\ntask: [t, u]\naggregate_metric_list: [{metric: x}]\n"
    folder = compared_world.write_tasks(tmp_path / "tasks", {"t": [{}] * 8, "u": [{}] * 8}, group=group)
    right, wrong = [1.0] * 8, [0.0] * 8
    a = compared_world.make_run(folder, tmp_path / "a", {"t": right, "u": right}, tasks=["both"])
    b = compared_world.make_run(folder, tmp_path / "b", {"t": wrong, "u": right}, tasks=["both"])
    report = build_report([a, b])
    cells = {
        row[0].strip("\N{NO-BREAK SPACE}"): (row[6], row[7])
        for line in as_markdown(report).splitlines()
        if len(row := [each.strip() for each in line.strip("|").split("|")]) == 12 and row[1] == "x ↑"
    }
    assert cells == {"both": ("0.0039", ""), "t": ("0.0039", "0.0078"), "u": ("1.0000", "1.0000")}  # mid-p: 2 · 2⁻⁸ / 2
    assert "8 / 0 / 0" not in as_html(report)
    assert "0 / 8 / 0" in as_html(report)  # better, worse, same
    assert "p (Holm), tasks" in as_html(report)


def test_runs_that_cannot_be_compared_are_reported_with_the_reason(levels: Path, tasks: Path, output: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    report = build_report([levels, output])
    assert report.comparison is None
    assert report.notes and report.notes[0].startswith("not compared: ")
    assert report.notes[0] in assert_alone(as_html(report)).text


def test_an_imported_run_has_a_report(tmp_path: Path) -> None:
    from assay.exchange.importers import import_runs

    import_runs([INSPECT / "sums.eval"], tmp_path / "run")
    result = assert_alone(as_html(build_report([tmp_path / "run"], ReportOptions(columns=["level"]))))
    assert "0.6667" in result.text and "It is 54" in result.text


def test_a_folder_without_a_finished_run_has_no_report(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="the folder holds no run"):
        build_report([tmp_path])


@pytest.mark.parametrize("command", ["report", "plot"])
def test_of_an_interrupted_run_it_is_said_how_to_get_its_results(
    command: str, run_assay: Any, tasks: Path, output: Path
) -> None:
    run_world.run(RecordingModel(), tasks, output)
    manifest = json.loads((output / "manifest.json").read_text())
    (output / "manifest.json").write_text(json.dumps({**manifest, "status": "interrupted"}))
    (output / "results.json").unlink()
    ended = run_assay(command, output)
    assert ended.returncode == 2
    assert "the run was interrupted before its end and has no results yet" in ended.stderr
    assert "repeat its command with the same --output_path" in ended.stderr


def luminance(colour: str) -> float:
    """As WCAG defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_texts_are_readable_in_light_and_in_dark() -> None:
    """WCAG AA: 4.5 to 1 for every colour of text on both grounds."""
    both = [
        dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in re.findall(r":root \{(.*?)\}", PAGE_STYLE, re.DOTALL)
    ]
    assert len(both) == 2
    for colours in both:
        for ground in ("page", "panel"):
            for ink in ("ink", "faint", "accent", "good", "bad"):
                light, dark = sorted((luminance(colours[ink]), luminance(colours[ground])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground, colours[ink])


@pytest.mark.parametrize(
    ("name", "begins"), [("r.html", "<!doctype html>"), ("r.md", "## run"), ("r.json", "{"), ("r.csv", "run,model")]
)
def test_the_file_name_decides_the_format(
    name: str, begins: str, run_assay: Any, tasks: Path, output: Path, tmp_path: Path
) -> None:
    run_world.run(RecordingModel(), tasks, output)
    ended = run_assay("report", output, "-o", f"there/{name}")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "there" / name).read_text().startswith(begins)


def test_without_a_name_a_page_is_written_and_other_formats_are_printed(
    run_assay: Any, tasks: Path, output: Path, tmp_path: Path
) -> None:
    run_world.run(RecordingModel(), tasks, output)
    assert run_assay("report", output).stdout.startswith("report.html: ")
    assert (tmp_path / "report.html").is_file()
    assert run_assay("report", output, "--format", "csv").stdout.startswith("run,model,kind")
