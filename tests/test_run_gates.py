"""`assay gate` and `assay run --gate`: what a run must show alone or against a baseline, and the exit codes of CI."""

import json
import math
import re
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import run_world
from assay.cli import main
from assay.comparison.compare import compare, gate
from assay.comparison.gates import RunNumbers, parse_gate
from assay.comparison.packs import noise_lines, open_run, pack_baseline
from assay.errors import AssayError
from assay.report.comparison_text import GateOutcome, annotations, gate_line, gates_markdown, gates_text, junit_xml
from assay.report.report_table import make_table
from assay.report.table_writers import write_markdown
from assay.runs.comparison import GateVerdict
from assay.runs.run import Run
from assay.score_keys import ScoreKey
from assay.statistics.intervals import interval
from compared_world import GROUP, make_run, write_tasks

PERPLEXITY = "metric_list: [{metric: x, aggregation: perplexity, higher_is_better: false}]\n"


def decided(run: Path, *gates: str, **options: Any) -> list[str]:
    return [each.decision for each in gate(run, gates, **options).verdicts]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of t (100 documents, all right) and u (100, half of them), in the group g; and of one that is worse."""
    folder = tmp_path_factory.mktemp("gates")
    tasks = write_tasks(folder / "tasks", {"t": [{}] * 100, "u": [{}] * 100}, group=GROUP)
    right = {"t": [1.0] * 100, "u": [1.0, 0.0] * 50}
    make_run(tasks, folder / "main", right, tasks=["g"])
    make_run(tasks, folder / "worse", {**right, "t": [1.0] * 60 + [0.0] * 40}, tasks=["g"])
    make_run(tasks, folder / "failing", {**right, "t": [1.0] * 98 + ["broken"] * 2}, tasks=["g"])  # type: ignore[list-item]
    return folder


# --- conditions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("acc >= 0.8", ("value", "acc", 0.8, "")),
        ("mmlu/acc > 75%", ("value", "acc", 0.75, "%")),
        ("acc>=1e-3", ("value", "acc", 0.001, "")),
        ("ll > -3.5", ("value", "ll", -3.5, "")),
        ("failed <= 1%", ("count", "failed", 0.01, "%")),
        ("failed <= 3", ("count", "failed", 3.0, "")),
        ("cost <= $5", ("count", "cost", 5.0, "")),
        ("time <= 10m", ("count", "time", 600.0, "")),
        ("time <= 1.5h", ("count", "time", 5400.0, "")),
        ("tokens <= 2M", ("count", "tokens", 2e6, "")),
        ("cost,none <= 5", ("value", "cost", 5.0, "")),
        ("acc > -1pp", ("difference", "acc", -0.01, "pp")),
        ("acc >= baseline - 1pp", ("difference", "acc", -0.01, "pp")),
        ("acc >= baseline", ("difference", "acc", 0.0, "")),
        ("ppl <= baseline + 0.5", ("difference", "ppl", 0.5, "")),
        ("acc > -2% rel", ("difference", "acc", -0.02, "% rel")),
        ("acc >= 98.5% of baseline", ("difference", "acc", -0.015, "% of baseline")),
    ],
)
def test_a_condition_is_about_a_number_a_count_or_a_difference(written: str, expected: tuple[Any, ...]) -> None:
    gate = parse_gate(written, plain="value")
    assert (gate.kind, gate.metric, pytest.approx(gate.threshold), gate.unit) == expected


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("acc == 1", "invalid gate 'acc == 1' — write it as 'acc >= 0.8'"),
        ("acc", "invalid gate 'acc'"),
        ("acc > nan", "invalid gate"),
        ("acc > inf", "invalid gate"),
        ("", "invalid gate"),
        ("x >= baseline 3", "invalid gate 'x >= baseline 3' — write 'acc >= baseline - 1pp'"),
        ("x >= baseline - 1%", "does not say of what it is a percentage"),
        ("failed <= 0.01", "'failed' is a number of documents — write '1%' for a share"),
        ("failed <= baseline", "the threshold of 'failed' is a number, or one with %"),
        ("cost <= 5%", "the threshold of 'cost' is a number without a unit"),
        ("time <= 5k", "the threshold of 'time' is a number, or one with s or m or h or d"),
        ("x >= 5m", "'x' does not have the unit 'm'"),
        ("xx >= 0.5", "no metric named 'xx' — did you mean 'x'?"),
        ("fialed <= 1%", "did you mean 'failed'? There are: cost, empty, failed, time, tokens, truncated, x"),
        ("tt/x >= 0.5", "no task or group named 'tt' has 'x' — did you mean 't'? There are: g, t, u"),
        ("x,strict > 0.5", "no metric named 'x,strict'"),
        ("tt/failed <= 1%", "no task or group named 'tt' — did you mean 't'?"),
        ("t/time <= 5m", "the time is that of the whole run"),
        ("x > -1pp", "is about a difference to a baseline, and there is none — add --baseline RUN"),
    ],
)
def test_a_gate_that_means_nothing_is_refused_with_exit_code_2(
    written: str, said: str, world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", str(world / "main"), written, "--junit", str(tmp_path / "j.xml")]) == 2
    assert said in capsys.readouterr().err
    [case] = ElementTree.parse(tmp_path / "j.xml").getroot().iter("testcase")
    assert [child.tag for child in case] == ["error"]


# --- numbers of one run --------------------------------------------------------------------------------------------


def test_a_number_passes_by_its_one_sided_bound(world: Path) -> None:
    """100 of 100 right: by mid-p the lower bound p has half of p^100 = 0.05, so it is 0.1^(1/100) = 0.97724."""
    [verdict] = gate(world / "main", ["t/x >= 0.977"]).verdicts
    assert (verdict.decision, verdict.difference, verdict.kind) == ("pass", 1.0, "value")
    assert verdict.bound == pytest.approx(0.1**0.01, abs=1e-9)
    assert decided(world / "main", "t/x >= 0.978") == ["inconclusive"]
    assert decided(world / "main", "t/x < 97%") == ["fail"]
    assert decided(world / "main", "u/x > 0.5") == ["inconclusive"]
    assert decided(world / "main", "u/x > 60%") == ["fail"]


def test_gates_of_one_command_are_decided_together(world: Path) -> None:
    """Two gates of which neither is decided at 2.5 % each: 0.05^(1/100) = 0.97049 is the bound of both."""
    verdicts = gate(world / "main", ["t/x >= 0.974", "u/x > 0.5"]).verdicts
    assert [each.decision for each in verdicts] == ["inconclusive", "inconclusive"]
    assert verdicts[0].bound == pytest.approx(0.05**0.01, abs=1e-9)
    assert decided(world / "main", "t/x >= 0.974") == ["pass"]
    assert decided(world / "main", "t/x >= 0.974", "u/x > 0.2") == [
        "pass",
        "pass",
    ]  # the second one leaves 5 % to the first


def test_without_a_name_the_top_level_is_meant_and_a_glob_means_all(world: Path) -> None:
    assert [each.name for each in gate(world / "main", ["x > 0.5"]).verdicts] == ["g"]
    assert [each.name for each in gate(world / "main", ["*/x > 0.1"]).verdicts] == ["g", "t", "u"]


def test_bounds_are_those_of_the_stored_intervals(world: Path) -> None:
    numbers = RunNumbers(Run.open(world / "worse"))
    for row in numbers.rows:
        rebuilt = interval(numbers.estimate(row.name, row.key))
        assert rebuilt == pytest.approx(numbers.stored(row).estimate.interval, rel=1e-9), row.name


def test_a_threshold_that_the_number_cannot_have_is_refused(tmp_path: Path) -> None:
    bounded = "metric_list: [{metric: x, aggregation: mean, higher_is_better: true, bounds: [0, 1]}]\n"
    percent = bounded.replace("[0, 1]", "[0, 100]")
    run = make_run(write_tasks(tmp_path / "a", {"t": [{}] * 50}, bounded), tmp_path / "r", {"t": [1.0, 0.0] * 25})
    with pytest.raises(AssayError, match=r"'x' of 't' is between 0 and 1 — write '80%' for a share"):
        gate(run, ["x >= 80"])
    other = make_run(write_tasks(tmp_path / "b", {"t": [{}] * 50}, percent), tmp_path / "s", {"t": [60.0, 40.0] * 25})
    assert decided(other, "x > 40%") == ["pass"]  # of a scale from 0 to 100, 40 % is 40
    assert decided(other, "x > 60%") == ["fail"]


def test_of_a_perplexity_less_is_better(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 50}, PERPLEXITY)
    run = make_run(folder, tmp_path / "r", {"t": [-1.0, -1.2] * 25})  # e^1.1 = 3.004
    assert decided(run, "x <= 3.2") == ["pass"]
    report = gate(run, ["x >= 3.5"])
    assert [each.decision for each in report.verdicts] == ["fail"]
    assert report.notes == ["x >= 3.5: lower is better for x; the gate asks for the opposite"]
    with pytest.raises(AssayError, match="is not a share"):
        gate(run, ["x <= 20%"])


def test_without_a_standard_error_or_a_number_nothing_is_decided(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}], "u": [{}] * 9, "v": [{}] * 9})
    run = make_run(folder, tmp_path / "r", {"t": [0.3], "u": [math.nan] * 9, "v": [2.5] * 9})
    reasons = {
        each.name: (each.decision, each.reason) for each in gate(run, ["*/x > 0.1"], allow_incomplete=True).verdicts
    }
    assert reasons["t"] == ("inconclusive", "it has no standard error: one document has no spread")
    assert reasons["u"][0] == "inconclusive"
    assert reasons["v"] == ("inconclusive", "all documents score alike, and nothing bounds how far others could")


def test_an_interval_that_user_code_gave_decides_and_its_level_is_not_exceeded(tmp_path: Path) -> None:
    """Its ends are given for 95 %: each may err with 2.5 %. One gate is allowed 5 %, two share them; three would need 1.7 %."""
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 20})
    (folder / "own.py").write_text(
        "from assay import Estimate\ndef given(group, results): return Estimate(0.5, 0.01, 20, interval=(0.25, 0.75))\n"
    )
    entry = "aggregate_metric_list: [{metric: x, name: y, aggregation: !function own.given}]\n"
    (folder / "g.yaml").write_text(f"group: g\ntask: [t]\n{entry}")
    run = make_run(folder, tmp_path / "r", {"t": [0.5, 0.4] * 10}, tasks=["g"])
    [verdict] = gate(run, ["g/y >= 0.2"]).verdicts
    assert (verdict.decision, verdict.bound) == ("pass", 0.25)
    assert verdict.reason == "by the interval that user code gave"
    assert decided(run, "g/y >= 0.4") == ["inconclusive"]  # 0.5 - 1.73 × 0.01, by its standard error alone, passes
    assert decided(run, "g/y >= 0.8") == ["fail"]
    assert decided(run, "g/y >= 0.2", "g/y <= 0.8") == ["pass", "pass"]
    assert decided(run, "g/y >= 0.2", "g/y <= 0.8", "g/y >= 0.1")[:2] == ["inconclusive", "inconclusive"]


def test_an_interval_of_user_code_decides_nothing_while_documents_have_no_score(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 20})
    (folder / "own.py").write_text(
        "from assay import Estimate\ndef given(group, results): return Estimate(0.5, 0.01, 19, interval=(0.25, 0.75))\n"
    )
    entry = "aggregate_metric_list: [{metric: x, name: y, aggregation: !function own.given}]\n"
    (folder / "g.yaml").write_text(f"group: g\ntask: [t]\n{entry}")
    run = make_run(folder, tmp_path / "r", {"t": [*[0.5, 0.4] * 9, 0.5, "no number"]}, tasks=["g"])
    verdict, *_ = gate(run, ["g/y >= 0.2"]).verdicts
    assert verdict.decision == "inconclusive"
    assert verdict.reason == "1 documents failed, and how far they could move it is not known"
    assert decided(run, "g/y >= 0.2", allow_incomplete=True) == ["pass"]


def test_two_filters_are_two_rows_and_are_listed_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "r")
    assert main(["run", "-t", "first_steps_sums", "-L", "10", "-o", out, "--gate", "exact_match >= 50%"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("✓")]
    assert [line.split()[5] for line in lines] == ["exact_match,strict", "exact_match,flexible"]
    assert main(["gate", out, "exact_match,strict >= 50%"]) == 0


# --- counts --------------------------------------------------------------------------------------------------------


def test_counts_are_compared_as_they_are(world: Path) -> None:
    run = world / "failing"  # 2 of 200 documents
    for condition, expected in (("failed <= 1%", "pass"), ("failed <= 0.9%", "fail"), ("failed < 2", "fail"),
                                ("failed <= 2", "pass"), ("t/failed <= 1%", "fail"), ("u/failed <= 0", "pass"),
                                ("empty <= 0", "pass"), ("truncated <= 0%", "pass"), ("time <= 1d", "pass"),
                                ("time <= 0", "fail")):  # fmt: skip
        assert gate(run, [condition], allow_incomplete=True).verdicts[0].decision == expected, condition


def test_an_unknown_cost_is_inconclusive(world: Path) -> None:
    [verdict] = gate(world / "main", ["cost <= 5"]).verdicts
    assert (verdict.decision, verdict.reason) == ("inconclusive", "the cost is not known: give prices in --model_args")


def with_usage(source: Path, target: Path, **usage: Any) -> Path:
    """A copy of a run with another usage."""
    import shutil

    shutil.copytree(source, target)
    if usage:
        run_world.change_results(
            target, lambda content: content.update(usage={"requests": 9, "failed": 0, "retries": 0, **usage})
        )
    manifest = json.loads((target / "manifest.json").read_text())
    (target / "manifest.json").write_text(
        json.dumps({k: v for k, v in manifest.items() if k not in ("checksums", "crc32")})
    )
    return target


def test_cost_and_tokens_are_of_all_roles_or_of_the_named_tasks(world: Path, tmp_path: Path) -> None:
    own = {
        "cost": 3.0,
        "tokens": {"in": 900, "out": 100},
        "tasks": {"t": {"requests": 9, "failed": 0, "retries": 0, "cost": 1.0, "tokens": {"in": 1, "out": 1}}},
    }
    run = with_usage(world / "main", tmp_path / "priced", **own)
    assert decided(run, "cost <= 3", "cost < 3", "t/cost <= 1", "tokens <= 1k", "tokens < 1k") == [
        "pass", "fail", "pass", "pass", "fail"]  # fmt: skip
    roles = {
        role: {"requests": 4, "failed": 0, "retries": 0, "tokens": {"in": 1, "out": 1}} for role in ("default", "judge")
    }
    roles["default"]["cost"] = 3.0
    judged = with_usage(world / "main", tmp_path / "judged", **own, roles=roles)
    [verdict] = gate(judged, ["cost <= 5"]).verdicts
    assert (verdict.decision, verdict.reason[:29]) == ("inconclusive", "the cost of judge is not know")


def test_a_metric_that_is_called_like_a_count_is_asked_for_with_its_filter(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 9}, "metric_list: [{metric: cost, aggregation: mean}]\n")
    (folder / "helper.py").write_text("def values(doc, results):\n    return {'cost': float(results[0])}\n")
    run = make_run(folder, tmp_path / "r", {"t": [1.0, 2.0, 3.0] * 3})
    with pytest.raises(
        AssayError, match=r"is a count of every run, and a metric of 't' — write 'cost,none' for the metric"
    ):
        gate(run, ["cost <= 5"])
    assert decided(run, "cost,none <= 5") == ["pass"]


# --- runs that are not whole ---------------------------------------------------------------------------------------


def test_an_incomplete_run_passes_only_if_a_gate_says_how_many_may_fail(world: Path) -> None:
    """Two of 100 documents of t failed: if they were wrong, 98 of 98 would be 98 of 100, 0.02 lower than the bound."""
    run = world / "failing"
    report = gate(run, ["t/x > 0.9"])
    assert [each.decision for each in report.verdicts] == ["pass", "inconclusive"]
    assert "'failed <= 1%' allows some documents to fail" in report.verdicts[1].reason
    assert report.verdicts[0].bound == pytest.approx(0.1 ** (1 / 98) - 0.02, abs=1e-9)
    assert "the whole run is incomplete: t: 2 of 100 documents failed" in gate_line(report.verdicts[1])
    assert decided(run, "t/x > 0.9", "failed <= 1%") == ["pass", "pass"]
    assert decided(run, "t/x > 0.9", "failed <= 0") == ["pass", "fail", "inconclusive"]
    assert main(["gate", str(run), "t/x > 0.9", "--inconclusive", "pass"]) == 4  # no policy makes a run complete
    assert main(["gate", str(run), "t/x > 0.9", "--inconclusive", "fail"]) == 1
    assert main(["gate", str(run), "t/x > 0.9", "--allow_incomplete"]) == 0


def test_a_bound_stays_within_the_scale(tmp_path: Path) -> None:
    """4 of 6 documents have a score: were the others wrong, the bound would be below 0."""
    tasks = write_tasks(tmp_path / "tasks", {"t": [{}] * 6})
    run = make_run(tasks, tmp_path / "r", {"t": [1.0, 1.0, 0.0, 0.0, "broken", "broken"]})  # type: ignore[list-item]
    assert [each.bound for each in gate(run, ["x > 0.1", "x < 0.9"]).verdicts[:2]] == [0.0, 1.0]


def test_a_partial_run_never_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "r")
    arguments = ["run", "-t", "first_steps_sums", "-L", "20", "-o", out, "--max_time", "0.000001"]
    assert main([*arguments, "--gate", "failed <= 1%", "--inconclusive", "pass"]) == 4
    assert "the whole run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("gates", "flags", "expected"),
    [
        (["t/x >= 0.9"], [], 0),
        (["t/x < 0.9"], [], 1),
        (["u/x > 0.5"], [], 4),
        (["u/x > 0.5"], ["--inconclusive", "pass"], 0),
        (["u/x > 0.5"], ["--inconclusive", "fail"], 1),
        (["u/x > 0.5", "t/x < 0.9"], ["--inconclusive", "pass"], 1),
        (["u/y > 0.5"], ["--inconclusive", "pass"], 2),
        (["t/x >= 0.9"], ["--baseline", "none"], 2),
        (["x > -1pp"], ["--baseline", "none"], 2),
        (["t/x >= 0.9"], ["--level", "1.5"], 2),
    ],
)
def test_exit_codes(
    gates: list[str], flags: list[str], expected: int, world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", str(world / "main"), *gates, *flags]) == expected
    capsys.readouterr()


def test_a_folder_without_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("no run")
    for path in (tmp_path, tmp_path / "none", tmp_path / "notes.txt"):
        assert main(["gate", str(path), "x > 0"]) == 2
    assert "nor a file of `assay pack`" in capsys.readouterr().err


# --- against a baseline --------------------------------------------------------------------------------------------


def test_differences_and_numbers_are_decided_in_one_command(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = gate(
        world / "worse", ["t/x >= baseline - 1pp", "u/x >= baseline - 5pp", "failed <= 0"], baseline=world / "main"
    )
    assert [each.decision for each in report.verdicts] == ["fail", "pass", "pass"]
    both = compare([world / "main", world / "worse"], gates=["t/x > -1pp"]).verdicts[0]
    assert (both.decision, both.difference) == ("fail", pytest.approx(-0.4))
    assert main(["compare", str(world / "main"), str(world / "worse"), "--gate", "u/x > -1pp"]) == 4
    assert (
        main(["compare", str(world / "main"), str(world / "worse"), "--gate", "u/x > -1pp", "--inconclusive", "pass"])
        == 0
    )
    capsys.readouterr()


def test_a_packed_baseline_decides_as_the_run_does(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = tmp_path / "main.zip"
    assert main(["pack", str(world / "main"), "--baseline", "-o", str(pack)]) == 0
    assert f"no texts, {pack.stat().st_size:,} bytes" in capsys.readouterr().out
    for gates in (["x > -1pp"], ["t/x > -1% rel", "u/x > -3pp"], ["*/x >= 40% of baseline"]):
        by_run, by_pack = (gate(world / "worse", gates, baseline=each) for each in (world / "main", pack))
        assert [each.bound for each in by_pack.verdicts] == [each.bound for each in by_run.verdicts]
        assert [each.decision for each in by_pack.verdicts] == [each.decision for each in by_run.verdicts]
    rows = compare([pack, world / "worse"], flips=2)
    assert [each.difference for each in rows.rows] == [
        each.difference for each in compare([world / "main", world / "worse"]).rows]  # fmt: skip
    assert {flip.question for flip in rows.flips} == {"t 60", "t 61"}  # as the other run has it
    with zipfile.ZipFile(pack) as archive:
        samples = [archive.read(name) for name in archive.namelist() if name.endswith("t.parquet")]
    assert len(samples) == 1
    assert b"t 60" not in samples[0]
    assert [each.name for each in Path(str(open_run(pack).path)).parent.iterdir()] == ["main.zip"]


def test_a_baseline_of_other_prompts_is_refused(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = write_tasks(tmp_path / "tasks", {"t": [{}] * 100, "u": [{}] * 100}, group=GROUP)
    (tasks / "t.yaml").write_text((tasks / "t.yaml").read_text().replace("doc_to_text: n", "doc_to_text: 'Say: {{n}}'"))
    other = make_run(tasks, tmp_path / "other", {"t": [1.0] * 100, "u": [1.0] * 100}, tasks=["g"])
    pack_baseline([world / "main"], tmp_path / "b.zip")
    assert main(["gate", str(other), "x > -1pp", "--baseline", str(tmp_path / "b.zip")]) == 2
    assert "differ between the runs" in capsys.readouterr().err


def test_a_damaged_pack_is_refused(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack = pack_baseline([world / "main"], tmp_path / "b.zip").path
    pack.write_bytes(pack.read_bytes()[:2000])
    assert main(["gate", str(world / "worse"), "x > -1pp", "--baseline", str(pack)]) == 2
    report = tmp_path / "j.xml"
    assert (
        main(["compare", str(world / "main"), str(world / "worse"), "--gate", "y > -1pp", "--junit", str(report)]) == 2
    )
    assert "no shared metric named" in report.read_text()
    assert main(["compare", str(world / "main"), str(world / "worse"), "--inconclusive", "pass"]) == 2
    assert "cannot be unpacked" in capsys.readouterr().err


def test_several_runs_carry_their_noise(tmp_path: Path) -> None:
    """Three runs of four kinds of documents. Within documents the variance is by hand; whole runs have 1.5, 1.1 and 1."""
    tasks = write_tasks(tmp_path / "tasks", {"t": [{}] * 40})
    kinds = [[2, 2, 2], [2, 2, 0], [2, 0, 0], [0, 0.4, 2]]
    scores = [[float(kind[run]) for kind in kinds for _ in range(10)] for run in range(3)]
    runs = [make_run(tasks, tmp_path / f"r{n}", {"t": own}, random_seed=n) for n, own in enumerate(scores)]
    candidate = make_run(tasks, tmp_path / "c", {"t": [0.0] * 5 + [2.0] * 35})
    packed = open_run(pack_baseline(runs, tmp_path / "b.zip").path)
    assert [line[:36] for line in noise_lines(tmp_path / "b.zip")] == ["noise: t x,none: ±0.2412 between 3 r"]
    noise = packed.results.row("t", ScoreKey("x", "none")).noise
    within = (0 + 4 / 3 + 4 / 3 + 1.12) / 4  # of [2, 2, 0]: 4/3; of [0, 0.4, 2]: (0.64 + 0.16 + 1.44) / 2
    assert noise["within"] == pytest.approx(within)
    between = ((1.5 - 1.2) ** 2 + (1.1 - 1.2) ** 2 + (1 - 1.2) ** 2) / 2
    assert (noise["runs"], noise["between_runs"]) == (3, pytest.approx(between - within / 80))
    assert packed.rows("t")[next(iter(packed.rows("t")))].estimate.value == pytest.approx(1.2)
    seeds = [each["seeds"]["random_seed"] for each in packed.manifest["baseline"]]
    assert seeds == [0, 1, 2]
    [verdict] = gate(candidate, ["x >= baseline - 0.6"], baseline=packed.path).verdicts
    assert verdict.difference == pytest.approx(1.75 - 1.2)
    assert "with the noise between 3 runs" in verdict.reason
    # the plain paired variance, plus 4/3 of that between runs, with Satterthwaite's degrees of freedom
    means = [2.0] * 10 + [4 / 3] * 10 + [2 / 3] * 10 + [0.8] * 10
    changes = [b - a for a, b in zip(means, [0.0] * 5 + [2.0] * 35, strict=True)]
    centre = sum(changes) / 40
    plain = sum((each - centre) ** 2 for each in changes) / 39 / 40
    more = (between - within / 80) * 4 / 3
    freedom = (plain + more) ** 2 / (plain**2 / 39 + more**2 / 2)
    from scipy.stats import t as student

    expected = centre - student.ppf(0.95, freedom) * math.sqrt(plain + more)
    assert verdict.bound == pytest.approx(expected, rel=1e-6)


def test_runs_that_are_not_alike_make_no_baseline(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = write_tasks(tmp_path / "tasks", {"t": [{}] * 100})
    other = make_run(tasks, tmp_path / "other", {"t": [1.0] * 100})
    for runs, said in (
        ([world / "main", other], "it does not have the tasks of"),
        ([world / "failing"], "is incomplete"),
    ):
        assert main(["pack", *map(str, runs), "--baseline", "-o", str(tmp_path / "b.zip")]) == 2
        assert said in capsys.readouterr().err
    assert main(["pack", str(world / "main"), "--baseline", "--no_gold"]) == 2
    assert "no texts at all" in capsys.readouterr().err


def test_a_group_of_several_runs_is_the_mean_of_its_tasks(tmp_path: Path) -> None:
    """t is right 100 and 60 times in 100, u 50 and 70: the runs' means are 0.75 and 0.65, the mean of the group 0.7."""
    tasks = write_tasks(tmp_path / "tasks", {"t": [{}] * 100, "u": [{}] * 100}, group=GROUP)
    scores = [
        {"t": [1.0] * 100, "u": [1.0] * 50 + [0.0] * 50},
        {"t": [1.0] * 60 + [0.0] * 40, "u": [1.0] * 70 + [0.0] * 30},
    ]
    runs = [make_run(tasks, tmp_path / f"r{n}", own, tasks=["g"]) for n, own in enumerate(scores)]
    pack = pack_baseline(runs, tmp_path / "b.zip").path
    noise = open_run(pack).results.row("g", ScoreKey("x", "none")).noise
    chance = (0.4 / 2 / 100 + 0.2 / 2 / 100) / 4  # 40 and 20 of 100 documents differ by 1, whose variance is a half
    assert noise["between_runs"] == pytest.approx(0.005 - chance / 2)  # of 0.75 and 0.65
    [verdict] = gate(runs[0], ["x >= baseline - 50pp"], baseline=pack).verdicts
    assert (verdict.name, verdict.difference) == ("g", pytest.approx(0.05))
    assert "with the noise between 2 runs" in verdict.reason


def test_the_time_of_a_resumed_run_is_known_within_limits(world: Path, tmp_path: Path) -> None:
    run = with_usage(world / "main", tmp_path / "resumed")
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["created"] -= 3600
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert decided(run, "time <= 2h", "time <= 30m", "time <= 0") == ["pass", "inconclusive", "fail"]


# --- recovery ------------------------------------------------------------------------------------------------------


def test_recovery_is_the_ratio_with_fiellers_interval(tmp_path: Path) -> None:
    """By hand: the roots of (b - r a)² = t² (Vb - 2 r C + r² Va), with the variances of two means of 10 documents."""
    a = [2.0, 3.0, 2.5, 3.5, 2.0, 3.0, 2.2, 2.8, 3.1, 2.9]
    b = [1.9, 2.9, 2.6, 3.2, 2.1, 2.8, 2.0, 2.9, 3.0, 2.6]
    tasks = write_tasks(tmp_path / "tasks", {"t": [{}] * 10})
    runs = [make_run(tasks, tmp_path / name, {"t": own}) for name, own in (("a", a), ("b", b))]
    [row] = compare(runs, recovery=True).rows
    import numpy as np
    from scipy.stats import t as student

    cov = np.cov(a, b) / 10
    square = student.ppf(0.975, 9) ** 2
    means = np.mean(a), np.mean(b)
    roots = np.roots([means[0] ** 2 - square * cov[0, 0], -2 * (means[0] * means[1] - square * cov[0, 1]),
                      means[1] ** 2 - square * cov[1, 1]])  # fmt: skip
    assert row.recovery is not None
    assert row.recovery.value == pytest.approx(means[1] / means[0])
    assert row.recovery.interval == pytest.approx(tuple(sorted(roots)), rel=1e-6)


def test_a_gate_about_recovery_is_one_about_the_share_of_the_baseline(world: Path) -> None:
    [verdict] = gate(world / "worse", ["t/x >= 70% of baseline"], baseline=world / "main").verdicts
    assert (verdict.decision, verdict.threshold) == ("fail", pytest.approx(0.7))
    assert verdict.difference == pytest.approx(0.6)
    assert decided(world / "worse", "t/x >= 50% of baseline", baseline=world / "main") == ["pass"]


# --- assay run --gate ----------------------------------------------------------------------------------------------

SUMS = ["run", "-t", "first_steps_sums", "first_steps_facts", "-L", "12"]


def test_a_run_with_gates_is_run_compared_and_decided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SUMS, "-o", str(tmp_path / "main")]) == 0
    assert main(["pack", str(tmp_path / "main"), "--baseline", "-o", str(tmp_path / "main.zip")]) == 0
    gates = [
        "--gate",
        "first_steps_facts/acc >= baseline - 1pp",
        "--gate",
        "failed <= 0",
        "--baseline",
        str(tmp_path / "main.zip"),
    ]
    assert main([*SUMS, "-o", str(tmp_path / "again"), *gates, "--junit", str(tmp_path / "j.xml")]) == 0
    out = capsys.readouterr().out
    assert (
        "✓ first_steps_facts/acc >= baseline - 1pp: first_steps_facts +0.00pp, same model, and no document differs"
        in out
    )
    assert ElementTree.parse(tmp_path / "j.xml").getroot()[0].attrib["tests"] == "2"
    assert (
        main([*SUMS, "-o", str(tmp_path / "again"), "--gate", "acc > 0.999"]) == 1
    )  # the run is there, and decided again
    capsys.readouterr()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--gate", "acd >= 0.5"], "no metric named 'acd' — did you mean 'acc'?"),
        (["--gate", "first_steps_sum/exact_match >= 0.5"], "did you mean 'first_steps_sums'?"),
        (["--gate", "acc >= 80"], "'acc' of 'first_steps_facts' is between 0 and 1 — write '80%' for a share"),
        (["--gate", "acc >= baseline - 1pp"], "there is none — add --baseline RUN"),
        (["--gate", "acc >= 0.5", "--baseline", "none"], "no gate is about a difference to none"),
        (["--gate", "acc > -1pp", "--baseline", "none"], "none"),
        (
            ["--gate", "exact_match > -1pp", "--baseline", "{main}"],
            "the baseline {main} has no task or group 'first_steps_sums'",
        ),
        (
            ["--gate", "acc > -1pp", "--baseline", "{main}", "-f", "2"],
            "has other prompts: --num_fewshot is not the same",
        ),
        (["--gate", "acc > -1pp", "--baseline", "{main}", "-L", "20"], "has only the documents of --limit 5"),
        (["--gate", "acc > -1pp", "--baseline", "{out}.zip"], "there is no such file — make it: assay pack RUN"),
        (["--gate", "acc >= baseline", "--baseline", "{out}/../r"], "r is what this run is written to"),
        (["--gate", "acc > 0.5", "--no_output"], "leave out --no_output"),
        (["--gate", "acc > 0.5", "--shard", "1/2"], "not with --shard"),
        (["--gate", "acc > 0.5", "--predict_only"], "not with --predict_only"),
        (["--gate", "acc > 0.5", "--junit", "/"], "cannot be written"),
        (["--junit", "{out}.xml"], "is for gates, and there is none"),
        (["--baseline", "{main}"], "is for gates, and there is none"),
    ],
)
def test_a_mistake_is_refused_before_the_first_request(
    flags: list[str], said: str, tmp_path: Path, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [each.format(main=small, out=tmp_path / "r") for each in flags]
    out = [] if "--no_output" in flags else ["-o", str(tmp_path / "r")]
    assert main([*SUMS[:4], "-L", "5", *out, *arguments]) == 2
    assert said.format(main=small) in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["run", "-t", "nope", "-o", "{out}", "--gate", "acc > 0"], "no task, group or tag named"),
        (["run", "-t", "first_steps_sums", "--num_fewshot", "-1", "-o", "{out}", "--gate", "x > 0"], "num_fewshot"),
        (["run", "-C", "{out}.yaml", "--gate", "x > 0"], "{out}.yaml"),
        (["compare", "{main}", "{out}", "--gate", "acc > -1pp"], "{out}"),
        (["gate", "{main}", "acd > 0"], "acd"),
        (["gate", "{main}", "acc > 0", "--baseline", "{out}"], "no gate is about a difference"),
    ],
)
def test_a_command_that_is_refused_leaves_no_green_test_of_a_former_one(
    command: list[str], said: str, tmp_path: Path, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names, report = {"main": small, "out": tmp_path / "r"}, tmp_path / "j.xml"
    assert main(["gate", str(small), "acc > 0", "--junit", str(report)]) == 0
    assert main([*(each.format(**names) for each in command), "--junit", str(report)]) == 2
    suite = ElementTree.parse(report).getroot()[0]
    assert (suite.attrib["tests"], suite.attrib["errors"]) == ("1", "1")
    assert said.format(**names) in suite[0][0].attrib["message"]
    capsys.readouterr()


def test_a_report_that_cannot_be_written_is_refused_before_the_first_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file/j.xml", tmp_path, Path("/proc/none/j.xml")):
        assert main([*SUMS, "-o", str(tmp_path / "r"), "--gate", "acc > 0", "--junit", str(path)]) == 2
        assert "cannot be written" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        ("gate: [acc >= 10%, failed <= 0]\n", [], 0),
        ("gate: acc > 99.99%\ninconclusive: pass\n", [], 1),
        ("gate: acc >= 10%\n", ["--gate", "acc < 10%"], 1),  # a flag replaces it
        ("gate: [3]\n", [], 2),
        ("gate: acc >= 10%\ninconclusive: maybe\n", [], 2),
        ("gates: acc >= 10%\n", [], 2),
    ],
)
def test_gates_may_be_in_a_config_file(
    text: str, flags: list[str], expected: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "ci.yaml"
    config.write_text(f"tasks: [first_steps_facts]\nlimit: 8\noutput_path: {tmp_path / 'r'}\n{text}")
    assert main(["run", "--config", str(config), *flags]) == expected
    capsys.readouterr()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("small") / "main"
    assert main(["run", "-t", "first_steps_facts", "-L", "5", "-o", str(out)]) == 0
    return out


# --- reports -------------------------------------------------------------------------------------------------------

HOSTILE = 'a"b<c>&\x00\x1b[31m\ud800]]>\n::error::100%|`x`'


def outcome(policy: Any = None, name: str = HOSTILE) -> GateOutcome:
    verdicts = [GateVerdict(f"{name} > 1", name, "m", "f", 1, decision, 0.5, 0.4, 1.0, name)  # type: ignore[arg-type]
                for decision in ("pass", "fail", "inconclusive")]  # fmt: skip
    return GateOutcome(name, verdicts, policy, [name])


@pytest.mark.parametrize(
    ("policy", "tags"),
    [(None, ["failure", "error"]), ("pass", ["failure", "skipped"]), ("fail", ["failure", "failure"])],
)
def test_junit_has_a_test_case_for_each_gate_whatever_the_names_hold(policy: str | None, tags: list[str]) -> None:
    root = ElementTree.fromstring(junit_xml(outcome(policy), 1.5))
    [suite] = root
    assert (root.tag, suite.tag, suite.attrib["tests"], suite.attrib["time"]) == (
        "testsuites",
        "testsuite",
        "3",
        "1.500",
    )
    cases = [[child.tag for child in case if child.tag != "system-out"] for case in suite]
    assert cases == [[], [tags[0]], [tags[1]]]
    counts = {name: sum(case == [tag] for case in cases) for name, tag in
              (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))}  # fmt: skip
    assert {name: int(suite.attrib[name]) for name in counts} == counts
    assert 'a"b<c>&' in suite[0].attrib["name"]


def test_lines_on_a_terminal_are_one_for_each_gate_whatever_the_names_hold() -> None:
    """Else a name would be a command of GitHub Actions."""
    lines = gates_text(outcome()).splitlines()
    assert len(lines) == 4
    assert not any(line.startswith("::") for line in lines)
    assert write_markdown(make_table(["Model"], [["a\n::error::x"]])).count("\n") == 2


def test_annotations_are_one_line_each_with_nothing_that_ends_them() -> None:
    lines = annotations(outcome("fail"))
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::error"]
    assert [line.partition(" ")[0] for line in annotations(outcome())] == ["::error", "::warning"]
    for line in lines:
        assert "\n" not in line
        properties, _, message = line.removeprefix("::error ").partition("::")
        assert ":" not in properties
        assert properties.startswith("title=gate ")
        assert "%0A::error::100%25" in message


def test_markdown_keeps_a_cell_a_cell() -> None:
    rows = [line for line in gates_markdown(outcome()).splitlines() if line.startswith("|")][2:]
    assert len(rows) == 3
    for row in rows:
        assert row.replace("\\|", "").count("|") == 7
        assert "<" not in row
        assert "\\`x\\`" in row


def test_the_summary_of_a_github_step_is_appended(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert main(["gate", str(world / "main"), "t/x >= 90%", "u/x > 0.5"]) == 4
    text = summary.read_text()
    assert text.startswith("before\n### ⚠️ INCONCLUSIVE: ")
    assert re.search(r"\|✅ *\|t/x &gt;= 90% *\|t *\| *100\.00%\|", text)
    assert (
        "::warning title=gate inconclusive%3A u/x > 0.5::u/x > 0.5%3A".replace("%3A u/x", "%3A u/x")[:20]
        in capsys.readouterr().out
    )
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "such" / "file"))
    assert main(["gate", str(world / "main"), "t/x >= 90%"]) == 0
    assert "cannot be written" in capsys.readouterr().err


def test_json_and_markdown_are_for_programs(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", str(world / "main"), "u/x > 0.5", "--inconclusive", "pass", "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["decision"], said["counts_as"], said["gates"][0]["name"]) == ("inconclusive", "pass", "u")
    assert main(["gate", str(world / "main"), "u/x > 0.5", "--format", "md"]) == 4
    assert capsys.readouterr().out.startswith("### ⚠️ INCONCLUSIVE")
