"""The audit in every result, and `assay samples`, which shows the samples it names."""

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import assay
from assay.cli import main
from assay.models import Scripted
from assay.records import FilterScores, Sample
from assay.results import AuditCount
from assay.runs.samples.records import SampleRecord
from assay.tasks.audit import KINDS, Audit, kinds_of
from commands import Run
from run_world import RecordingModel, run
from small_runs import generate, processed, says, write_task
from small_runs import run as run_small

TWO = r"""
    filter_list:
      - {name: strict, filter: [{function: regex, regex_pattern: "#### (\\d+)"}, {function: take_first}]}
      - {name: loose, filter: [{function: regex, regex_pattern: "(\\d+)"}, {function: take_first}]}
    metric_list: [{metric: exact_match}]
"""


def audit(result: Any, task: str = "t") -> dict[str, Any]:
    """The kinds that there are, with the documents."""
    audit_counts = result["assay"]["tasks"][task]["audit"]
    assert list(audit_counts) == list(KINDS)
    return {kind: each["ids"] for kind, each in audit_counts.items() if each["count"]}


def test_the_audit_names_the_samples_of_each_kind(tmp_path: Path) -> None:
    """Document 0 is right; 1 is right for the loose filter alone; 2 is empty; 3 names 7 in words no filter reads; 4 has 42, not 4."""
    answers = ["#### 4", "it is 4", " ", "no: seven, yes", "#### 42"]
    results = generate(tmp_path, answers, ["4", "4", "4", "seven", "4"], TWO)
    assert audit(results) == {
        "empty": [2],
        "unextracted": [1, 2, 3],
        "disagreeing": [1],
        "gold_in_answer": [3],
    }
    assert results["results"]["t"]["exact_match,strict"] == 0.2
    assert results["results"]["t"]["exact_match,loose"] == 0.4


def test_an_answer_that_was_cut_off_or_never_left_thinking_is_truncated() -> None:
    results = assay.simple_evaluate("embedded", tasks=["first_steps_sums"], limit=3, gen_kwargs={"max_gen_toks": 1})
    assert audit(results, "first_steps_sums")["truncated"] == [0, 1, 2]
    kept = SampleRecord(Sample(0, {}, (), "b", "b"), [[""]], [FilterScores("none", [""], {"m": 0.0})])
    assert kinds_of(kept._replace(replies=[{"finish": "thinking"}]), dict) == ("truncated",)
    assert kinds_of(kept._replace(replies=[{"finish": "stop"}]), dict) == ("empty",)


def test_a_scorer_that_raises_marks_the_sample_failed_instead_of_scoring_zero(tmp_path: Path) -> None:
    """Of 1, 0 and one that raises, the mean is 1/2 of the two that have a value."""
    helper = "\n\ndef odd(doc, results):\n    return {'v': 1 / doc['values']['d'] - 1}\n"
    yaml = "metric_list: [{metric: v, aggregation: mean}]\n"
    processed(tmp_path, [{"d": 0.5}, {"d": 1.0}, {"d": 0.0}], yaml, helper=helper)
    text = (tmp_path / "t.yaml").read_text().replace("helper.values", "helper.odd")
    (tmp_path / "t.yaml").write_text(text)
    results = run_small(tmp_path, says(["x"] * 3))
    assert results["results"]["t"]["v,none"] == 0.5
    assert audit(results)["failed"] == [2]
    [reason] = results["assay"]["tasks"]["t"]["reasons"]
    assert "ZeroDivisionError" in reason


def test_results_name_twenty_and_count_all() -> None:
    audit = Audit()
    for number in range(50):
        audit.note(number, ["empty"] if number % 2 else [])
    assert audit.by_flag()["empty"] == AuditCount(25, list(range(1, 41, 2)))
    assert audit.by_flag()["failed"] == AuditCount(0)


def test_where_less_is_better_nothing_is_wrong() -> None:
    kept = SampleRecord(Sample(0, {}, (), "4", "4"), [["4"]], [FilterScores("none", ["4"], {"errors": 0})])
    assert kinds_of(kept, lambda: {"errors": False}) == ()
    assert kinds_of(kept, lambda: {"errors": True}) == ("gold_in_answer",)
    assert kinds_of(kept, dict) == ("gold_in_answer",)


@given(st.text(alphabet="ab1 .", min_size=1), st.text(alphabet="ab1 ."))
def test_the_gold_is_found_as_whole_words_wherever_a_pattern_would_find_it(gold: str, text: str) -> None:
    import re

    words = gold.strip()
    before = r"(?<![^\W_])" if words[:1].isalnum() else ""
    after = r"(?![^\W_])" if words[-1:].isalnum() else ""
    expected = bool(words) and re.search(before + re.escape(words) + after, text) is not None
    kept = SampleRecord(Sample(0, {}, (), gold, gold), [[text]], [FilterScores("none", [text], {"m": 0.0})])
    assert ("gold_in_answer" in kinds_of(kept, dict)) == expected


@pytest.fixture
def answered(tmp_path: Path) -> Path:
    output = tmp_path / "run"
    answers = ["#### 4", "it is 4", " ", "\x1b[31mred\x07", "#### 42"]
    rows = [{"q": f"{number}", "gold": gold} for number, gold in enumerate(["4", "4", "4", "seven", "4"])]
    fields = 'output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\ndescription: "Count.\\n\\n"\n'
    write_task(tmp_path / "tasks", rows, fields + dedent(TWO))
    model = Scripted(generate=lambda prompt, params, repeat: answers[int(prompt[-1])])
    run_small(tmp_path / "tasks", model, output_path=str(output))
    return output


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["samples", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def documents(text: str) -> list[int]:
    return [int(line.split("document ")[1].split()[0]) for line in text.splitlines() if line.startswith("━━")]


def test_samples_are_shown_with_prompt_answer_target_and_scores(
    answered: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, answered, "--doc", 1)
    assert text.strip().splitlines() == [
        "━━ t · document 1 · disagreeing, unextracted",
        "── prompt",
        "[8 characters before it; --full shows them]",
        "1",
        "── answer",
        "it is 4",
        "── filtered by strict",
        "[invalid]",
        "── filtered by loose",
        "4",
        "── target",
        "4",
        "── scores",
        "exact_match,strict: 0.0",
        "exact_match,loose: 1.0",
    ]
    assert "Count.\n\n1\n" in shown(capsys, answered, "--doc", 1, "--full")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], [0, 1, 2, 3, 4]),
        (["-n", 2], [0, 1]),
        (["--wrong"], [2, 3, 4]),
        (["--reason", "empty"], [2]),
        (["--reason", "unextracted", "--wrong"], [2, 3]),
        (["--reason", "failed"], []),
        (["--doc", 4, 0], [0, 4]),
    ],
)
def test_samples_are_chosen(
    options: list[object], expected: list[int], answered: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert documents(shown(capsys, answered, *options)) == expected


def test_a_model_cannot_steer_the_terminal(answered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, answered, "--doc", 3)
    assert "\x1b" not in text
    assert "\\x1b[31mred\\x07" in text


def test_log_likelihoods_are_shown_by_continuation(
    tasks: Path, output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(RecordingModel(failing={"snow is"}), tasks, output, tasks=["colours"])
    text = shown(capsys, output, "--doc", 1)
    assert "        -3.0        ' green'\n        -0.5        ' red'\n── target\n1: red" in text
    assert "── failed\nTimeoutError: no answer to snow is" in shown(capsys, output, "--reason", "failed")


def test_tasks_that_finished_before_a_kill_are_shown_and_scorings_too(
    tasks: Path, output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay import ScoreOptions, score

    run(RecordingModel(), tasks, output)
    scored = score(output, ScoreOptions(tasks=["sums"], filters=["none=regex:([1-3])"])).folder
    assert documents(shown(capsys, scored, "--wrong", "-t", "sums")) == [1, 2, 3, 4]
    manifest = json.loads((output / "manifest.json").read_text())
    (output / "manifest.json").write_text(json.dumps({**manifest, "status": "running", "checksums": {}}))
    (output / "samples/sums.parquet").rename(output / "samples/sums.parquet.part")
    (output / "samples/colours.parquet").rename(output / "samples/colours.parquet.part")
    (output / "samples/colours.parquet.part").write_bytes(b"PAR1 and no end")
    assert documents(shown(capsys, output, "-n", 1)) == [0]


def test_a_long_text_is_cut_in_the_middle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate(tmp_path, ["a" * 3000 + "end"], ["x"], output_path=str(tmp_path / "run"))
    text = shown(capsys, tmp_path / "run")
    assert "[… 1003 characters more; --full shows them …]" in text
    assert len(text) < 4600
    assert "a" * 3000 + "end" in shown(capsys, tmp_path / "run", "--full")


def test_what_is_not_there_is_refused(run_assay: Run, tmp_path: Path) -> None:
    assert run_assay("run", "--tasks", "first_steps_sums", "--limit", 3, "-o", "out").returncode == 0
    wrong = run_assay("samples", "out", "--task", "first_steps_sum")
    assert (wrong.returncode, "did you mean 'first_steps_sums'" in wrong.stderr) == (2, True)
    assert "holds no run" in run_assay("samples", tmp_path / "none").stderr
    assert run_assay("samples", "out", "--reason", "odd").returncode == 2
    assert "must be a whole number from 0 on" in run_assay("samples", "out", "-n", "-1").stderr
    damaged = tmp_path / "out/samples/first_steps_sums.parquet"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:300])
    for command in ("samples", "score"):
        torn = run_assay(command, "out")
        assert (torn.returncode, "the samples cannot be read" in torn.stderr, "Traceback" in torn.stderr) == (
            2,
            True,
            False,
        )
    damaged.write_bytes(whole)
    piped = run_assay("samples", "out", "-n", 1)
    assert piped.stdout.count("━━") == 1
    assert "2 samples more" in piped.stderr
