"""Pictures of runs: their marks are where the numbers are, no text in them is markup, and bad input is refused before any work."""

import json
import random
import re
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.test_python_runs import adder, tasks

import assay
import run_world
from assay.cli import main
from assay.report.charts import Chart, Panel, Point, Series, axis_of, draw, style_of
from assay.report.drawing import COLORS, Drawing, Label, Titled, as_image, as_svg, fitted, fitted_names, text_width
from assay.report.pictures import KINDS
from assay.score_keys import ScoreKey
from small_runs import write_task

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '"><script>alert(1)</script>&amp;\x00\x1b[31m$x_1$‮'


def chart(points: list[Point], rows: list[str], **more: object) -> Drawing:
    return draw(Chart("t", [Panel("", "v", [Series("a", points)], rows, **more)]))  # type: ignore[arg-type]


def elements(svg: str, name: str, color: str = "") -> list[ElementTree.Element]:
    every = ElementTree.fromstring(svg).iter(f"{SVG}{name}")
    return [each for each in every if not color or COLORS[color].paper in (each.get("fill"), each.get("stroke"))]


def places(element: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in element.get("points", "").split())]


def test_marks_and_caps_are_at_the_numbers_of_the_axis() -> None:
    """Of an axis from 0 to 1, 0.25 and 0.75 are as far from the ends as they are from the middle."""
    points = [Point(0, 0.5, 0.25, 0.75), Point(1, 1.0), Point(2, 0.0)]
    svg = as_svg(chart(points, ["a", "b", "c"], limits=(0.0, 1.0), whole=True))
    middle, one, zero = (float(each.get("cx", 0)) for each in elements(svg, "circle", "series0"))
    assert middle == pytest.approx((zero + one) / 2, abs=0.1)
    line, low, high = (places(each) for each in elements(svg, "polyline", "series0"))
    assert line[0][0] == low[0][0] == pytest.approx((zero + middle) / 2, abs=0.1)
    assert line[1][0] == high[0][0] == pytest.approx((one + middle) / 2, abs=0.1)
    assert low[0][0] == low[1][0] and low[0][1] < line[0][1] < low[1][1], "a cap is upright, across the line"


def test_thirty_five_runs_look_different() -> None:
    assert len({style_of(number) for number in range(35)}) == 35
    series = [Series(f"run {number}", [Point(0, number / 10)], number) for number in range(7)]
    svg = as_svg(draw(Chart("t", [Panel("", "v", series, ["a"])], [each.name for each in series])))
    for number in range(7):  # in the legend and on the panel
        assert len([*elements(svg, "circle", f"series{number}"), *elements(svg, "polygon", f"series{number}")]) == 2


def test_names_of_tasks_never_run_into_the_plot_and_stay_different() -> None:
    names = [
        f"a_suite_with_a_long_name_task_{number:02d}_and_a_long_end_that_all_of_them_share" for number in range(40)
    ]
    drawing = chart([Point(n, 0.5) for n in range(40)], names)
    labels = [
        each.shapes[0] for each in drawing.shapes if isinstance(each, Titled) and isinstance(each.shapes[0], Label)
    ]
    texts = [label.text for label in labels if isinstance(label, Label)]
    assert len(set(texts)) == 40
    first = min(float(each.get("cx", 0)) for each in elements(as_svg(drawing), "circle", "series0"))
    assert all(text_width(text) + 14 < first for text in texts)
    ys = [label.y for label in labels if isinstance(label, Label)]
    assert min(b - a for a, b in pairwise(ys)) >= 12, "lines of text do not overlap"


def test_the_estimate_of_a_width_is_that_of_a_wide_font_or_more() -> None:
    textpath = pytest.importorskip("matplotlib.textpath")
    from matplotlib.font_manager import FontProperties

    for text in ("exact_match (strict)", "MMLU Pro: WINOGRANDE", "first_steps_word_classes", "0.25, 1,000 iiiilllj"):
        width, _, _ = textpath.TextToPath().get_text_width_height_descent(
            text, FontProperties(family="DejaVu Sans", size=12), False
        )
        assert width * 0.97 <= text_width(text) <= width * 1.35, text


@given(st.text(max_size=60), st.floats(10, 300))
def test_a_fitted_text_fits(text: str, width: float) -> None:
    assert text_width(fitted(text, width)) <= max(width, text_width("…mm"))
    assert "\n" not in fitted(text, width)


def test_shortened_names_keep_the_part_that_differs() -> None:
    assert fitted_names(["short", "other"], 100) == ["short", "other"]
    names = ["leaderboard_math_algebra_hard_long_version_one", "leaderboard_math_algebra_hard_long_version_two"]
    assert len(set(fitted_names(names, 60))) == 2


@settings(max_examples=40)
@given(
    st.text(max_size=30),
    st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1e300)), min_size=1, max_size=4),
)
def test_every_picture_is_well_formed_and_stays_on_its_sheet(name: str, numbers: list[tuple[float, float]]) -> None:
    points = [Point(at, value, value - spread, value + spread, name) for at, (value, spread) in enumerate(numbers)]
    panels = [
        Panel(name, name, [Series(name, points)], [name] * len(points)),
        Panel(name, name, [Series(name, points)]),
    ]
    for panel in panels:
        drawing = draw(Chart(name, [panel], [name, name], [name]))
        root = ElementTree.fromstring(as_svg(drawing))
        for each in root.iter(f"{SVG}circle"):
            assert 0 <= float(each.get("cx", -1)) <= drawing.width and 0 <= float(each.get("cy", -1)) <= drawing.height


def test_hostile_names_are_text() -> None:
    drawing = draw(
        Chart(
            HOSTILE,
            [Panel(HOSTILE, HOSTILE, [Series(HOSTILE, [Point(0, 0.5, title=HOSTILE)])], [HOSTILE])],
            notes=[HOSTILE],
        )
    )
    root = ElementTree.fromstring(as_svg(drawing))
    assert not [each for each in root.iter() if each.tag.endswith("script")] and "\\u202e" in as_svg(drawing)
    pytest.importorskip("matplotlib")
    assert as_image(drawing, "png")[:4] == b"\x89PNG", "dollar signs are not formulas"


def test_values_over_many_powers_of_ten_have_a_logarithmic_axis() -> None:
    axis = axis_of([1.0, 100.0, 10_000.0], 0.0, 100.0)
    assert (axis(1.0), axis(100.0), axis(10_000.0)) == pytest.approx((0.0, 50.0, 100.0))
    assert [text for _, text in axis.ticks(6)] == ["1", "10", "100", "1000", "10000"]


# --- pictures of runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of training steps 100 to 300: 3, 6 and 9 of 12 sums right. One with 4 repeats, and one with confidences."""
    root = tmp_path_factory.mktemp("pictures")
    path = tasks(root / "tasks", "sums", "more")
    for step in (1, 2, 3):
        output = str(root / f"step-{step * 100}")
        assay.run(
            adder(lambda a, b, step=step: a < step, f"at {step}"),
            tasks=["sums", "more"],
            include_path=path,
            output_path=output,
            progress=False,
        )
    yaml = (root / "tasks/sums.yaml").read_text()
    sampled = yaml.replace("max_gen_toks: 4", "max_gen_toks: 4, do_sample: true, temperature: 1.0")
    (root / "tasks/repeated.yaml").write_text(sampled.replace("task: 'sums'", "task: repeated") + "repeats: 4\n")
    right = assay.Scripted(generate=lambda prompt, params, repeat: "0" if repeat == 0 else "no", identity="once")
    assay.run(right, tasks="repeated", include_path=path, output_path=str(root / "repeated"), progress=False)
    rows = [json.dumps({"q": f"q{number}", "c": ["a", "b"], "g": number % 2}) for number in range(40)]
    (root / "tasks/choices.jsonl").write_text("\n".join(rows))
    (root / "tasks/choices.yaml").write_text(
        f"task: choices\ndataset_path: json\ndataset_kwargs: {{data_files: {root / 'tasks/choices.jsonl'}}}\ntest_split: train\n"
        "output_type: multiple_choice\ndoc_to_text: '{{q}}'\ndoc_to_choice: c\ndoc_to_target: g\n"
        "metric_list: [{metric: acc}, {metric: ece}]\n"
    )
    sure = assay.Scripted(
        loglikelihood=lambda prompt, text: (-random.Random(f"{prompt}{text}").random() * 3, False), identity="sure"
    )
    assay.run(sure, tasks="choices", include_path=path, output_path=str(root / "choices"), progress=False)
    return root


def titles(picture: assay.Picture) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(picture.svg).iter(f"{SVG}title")]


def test_intervals_show_every_task_of_every_run(folder: Path) -> None:
    picture = assay.plot([folder / "step-100", folder / "step-300"])
    for name, value in (("step-100", 0.25), ("step-300", 0.75)):
        row = assay.Run.open(folder / name).rows("sums")["exact_match", "none"].estimate
        shown = f"{name}: sums exact_match {value} ({row.low:.4g} … {row.high:.4g}), n 12"
        assert shown in titles(picture)
    assert "exact_match, higher is better (share of 1, 95 % interval)" in picture.svg
    assert assay.Run.open(folder / "step-100").plot()._repr_svg_().startswith("<svg")


def test_steps_in_the_names_of_runs_are_the_axis_of_time(folder: Path) -> None:
    steps = [folder / f"step-{number}" for number in (300, 100, 200)]
    picture = assay.plot(steps, "time", tasks=["sums"])
    dots = elements(picture.svg, "circle", "series0")
    xs, ys = ([float(each.get(axis, 0)) for each in dots] for axis in ("cx", "cy"))
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2) and xs == sorted(xs), "in the order of steps"
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2) and ys[0] > ys[2], "0.25, 0.5, 0.75"
    assert "training step" in picture.svg and "date (UTC)" in assay.plot(steps, "time", over="date").svg


def test_pass_at_k_is_computed_from_the_answers_of_every_document(folder: Path) -> None:
    """One document (0 + 0) has one right answer of four: pass@k is k/4 of a twelfth."""
    picture = assay.plot(folder / "repeated", "pass_at_k")
    shown = [re.search(r"pass@(\d) ([\d.e-]+)", title) for title in titles(picture)]
    assert [(int(each[1]), float(each[2])) for each in shown if each] == [
        (k, pytest.approx(k / 4 / 12, rel=1e-3)) for k in (1, 2, 3, 4)
    ]


def test_reliability_has_the_stored_curve(folder: Path) -> None:
    picture = assay.plot(folder / "choices", "reliability")
    stored = assay.Run.open(folder / "choices").results.row("choices", ScoreKey("ece", "none")).reliability
    assert len(stored) > 2
    for point in stored:
        right = point.accuracy
        shown = f"choices: choices confidence {point.confidence:.2f}, {right.value:.2f} right of {right.n}"
        assert shown in titles(picture)


def test_differences_are_drawn_in_percentage_points_around_zero(folder: Path) -> None:
    picture = assay.compare([folder / "step-200", folder / "step-300"]).plot()
    assert "difference in percentage points, 95 % interval" in picture.svg and "step-300 minus step-200" in picture.svg
    assert any(title.startswith("sums exact_match 0.25 (") for title in titles(picture))


def test_members_of_a_group_without_a_number_are_not_drawn_below_another(tmp_path: Path) -> None:
    """Outer has a number, its members `a` and `b` are groups; b has none, and its task is one step below outer, not below a."""
    rows = [{"q": "1", "gold": "1"}, {"q": "2", "gold": "3"}]
    text = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nmetric_list: [{metric: exact_match}]\n"
    for name in ("in_a", "in_b"):
        write_task(tmp_path, rows, text, name)
    mean = "aggregate_metric_list: [{metric: exact_match}]\n"
    (tmp_path / "a.yaml").write_text(f"group: a\ntask: [in_a]\n{mean}")
    (tmp_path / "b.yaml").write_text("group: b\ntask: [in_b]\n")
    (tmp_path / "outer.yaml").write_text(f"group: outer\ntask: [a, b]\n{mean}")
    runs = [
        assay.run(assay.Scripted(generate=lambda prompt, params, repeat, said=said: said, identity=said), tasks="outer",
                  include_path=str(tmp_path), output_path=str(tmp_path / f"run-{said}"), progress=False)
        for said in ("1", "3")
    ]  # fmt: skip
    compared = assay.compare(runs)
    assert [(row.name, row.depth) for row in compared.rows] == [("outer", 0), ("a", 1), ("in_a", 2), ("in_b", 1)]
    columns = {each.text or "": float(each.get("x", 0)) for each in elements(assay.plot(runs).svg, "text")}
    assert columns["outer"] < columns["a"] == columns["in_b"] < columns["in_a"]


def test_an_incomplete_run_says_so_on_the_picture(folder: Path, tmp_path: Path) -> None:
    never = assay.Scripted(generate=lambda prompt, params, repeat: "0", identity="x")
    run = assay.run(
        never, tasks="sums", include_path=str(folder / "tasks"), output_path=str(tmp_path / "r"), progress=False
    )
    run_world.change_results(run.path, lambda content: content.update(status="incomplete"))
    run_world.change_results(run.path, lambda content: content["tasks"]["sums"].update(failed=3))
    manifest = json.loads((run.path / "manifest.json").read_text())
    manifest["checksums"].pop("results.json", None)
    (run.path / "manifest.json").write_text(json.dumps(manifest))
    assert "r: incomplete, 3 of 15 documents failed" in assay.plot(tmp_path / "r").svg


def test_a_picture_is_the_same_file_every_time(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for ending, start in (("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        files = [assay.plot(folder / "step-100").save(tmp_path / name / f"x.{ending}") for name in ("a", "b")]
        first, second = (file.read_bytes() for file in files)
        assert first == second and first.startswith(start)


def test_commands_write_pictures(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [str(folder / "step-100"), str(folder / "step-200")]
    assert main(["plot", *runs, "--kind", "time", "--title", "Nightly"]) == 0
    assert "Nightly" in (tmp_path / "time.svg").read_text()
    assert main(["compare", *runs, "--plot", "out.svg"]) == 0
    assert "minus step-100" in (tmp_path / "out.svg").read_text()
    capsys.readouterr()
    assert main(["compare", *runs, "--plot"]) == 0
    assert "●" in capsys.readouterr().out
    assert main(["plot", runs[0], "-o", "-"]) == 0
    assert capsys.readouterr().out.startswith("<svg ")


REFUSED = [
    (["plot", "{step-100}", "-o", "x.gif"], "pictures cannot end in '.gif' — write x.svg, .png or .pdf"),
    (["plot", "{step-100}", "-o", "x"], "the name of a picture needs an ending"),
    (["plot", "{step-100}", "-o", "{step-100}/manifest.json/x.svg"], "cannot be written"),
    (["plot", "{nothing}"], "holds no run"),
    (["plot", "{step-100}", "--metric", "exact"], "no number of a metric named 'exact'"),
    (["plot", "{step-100}", "--tasks", "sum"], "no task or group named 'sum' — did you mean 'sums'?"),
    (["plot", "{step-100}", "--kind", "pass_at_k"], "has no scores of repeats — ask each question more than once"),
    (["plot", "{step-100}", "--kind", "reliability"], "has no reliability curve"),
    (["plot", "{choices}", "--kind", "time", "--over", "step"], "has no step in its name"),
    (["compare", "{step-100}", "{step-200}", "--plot", "x.bmp"], "pictures cannot end in '.bmp'"),
    (["compare", "--plot", "{step-100}", "{step-200}"], "write the runs first"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=lambda each: each if isinstance(each, str) else "")
def test_bad_input_is_refused(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    named = [re.sub(r"\{(.*?)\}", lambda match: str(folder / match[1]), each) for each in arguments]
    assert main(named) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_one_document_is_drawn_without_an_interval(folder: Path, tmp_path: Path) -> None:
    run = assay.run(
        adder(lambda a, b: True),
        tasks="sums",
        limit=1,
        include_path=str(folder / "tasks"),
        output_path=str(tmp_path / "r"),
        progress=False,
    )
    for kind in KINDS[:2]:
        assert len(elements(run.plot(kind).svg, "circle", "series0")) == 1


def test_png_without_matplotlib_is_refused_with_the_way_to_get_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["plot", str(folder / "step-100"), "-o", "x.png"]) == 2
    assert "PNG and PDF need matplotlib, which is not installed — pip install" in capsys.readouterr().err
