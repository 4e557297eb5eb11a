"""Requests that fail, and requests that are the same: what is counted, what is asked again, what is asked once."""

from pathlib import Path

import pytest

from commands import Run
from conftest import Write
from run_world import (
    ACC,
    EXACT_MATCH,
    FILES,
    SUMS,
    RecordingModel,
    failed_in,
    keys,
    manifest,
    results,
    rows_of,
    run,
    samples,
)


def test_a_failure_is_counted_with_its_reason_and_never_a_zero(tasks: Path, output: Path) -> None:
    """Without 1+1, two of four are right: 0.5, standard error √(0.5·0.5/3); were it wrong 2/5, were it right 3/5."""
    run(RecordingModel(failing={"1+1="}), tasks, output)
    written = results(output)
    assert written["results"]["sums"]["exact_match,none"] == pytest.approx(0.5, abs=1e-12)
    assert written["results"]["sums"]["exact_match_stderr,none"] == pytest.approx((0.25 / 3) ** 0.5, abs=1e-12)
    counted = written["assay"]["tasks"]["sums"]
    assert (counted["documents"], counted["scored"], counted["failed"]) == (5, 4, 1)
    assert rows_of(written, "sums")["exact_match,none"]["failure_bounds"] == pytest.approx([0.4, 0.6], abs=1e-12)
    assert [(reason.count("no answer to 1+1="), n) for reason, n in counted["reasons"].items()] == [(1, 1)]
    assert written["assay"]["tasks"]["colours"]["failed"] == 0
    failed = [row["failed"] for row in samples(output, "sums")]
    assert failed[0].endswith("no answer to 1+1=")
    assert failed[1:] == [None] * 4


@pytest.mark.parametrize(("max_failed", "incomplete"), [(0.01, ["sums"]), (0.19, ["sums"]), (0.2, []), (1, [])])
def test_a_row_with_more_failures_than_allowed_is_incomplete(
    max_failed: float, incomplete: list[str], tasks: Path, output: Path
) -> None:
    returned = run(RecordingModel(failing={"1+1="}), tasks, output, max_failed=max_failed)
    tasks_of_run = returned["assay"]["tasks"].items()
    assert [name for name, task in tasks_of_run if task.get("is_incomplete")] == incomplete
    assert failed_in(returned) == 1


def test_a_choice_of_which_one_request_failed_is_not_scored(tasks: Path, output: Path) -> None:
    """Without snow, all three are right."""
    returned = run(RecordingModel(failing={"snow is"}), tasks, output)
    assert returned["results"]["colours"]["acc,none"] == 1
    assert rows_of(returned, "colours")["acc,none"]["failure_bounds"] == pytest.approx([0.75, 1], abs=1e-12)


def test_a_task_of_which_everything_failed_has_no_number(tasks: Path, output: Path) -> None:
    returned = run(RecordingModel(failing=set(SUMS)), tasks, output)
    assert not isinstance(returned["results"]["sums"].get("exact_match,none"), float)
    assert returned["assay"]["tasks"]["sums"]["failed"] == 5
    assert returned["results"]["colours"]["acc,none"] == ACC


def test_failed_requests_are_asked_again_and_no_others(tasks: Path, output: Path) -> None:
    run(RecordingModel(failing={"1+1=", "snow is"}), tasks, output)
    asked = RecordingModel()
    returned = run(asked, tasks, output)
    assert sorted(asked.calls) == [("1+1=", "0"), ("snow is", " green"), ("snow is", " red")]
    assert returned["results"]["sums"]["exact_match,none"] == pytest.approx(EXACT_MATCH, abs=1e-12)
    assert returned["results"]["colours"]["acc,none"] == ACC
    assert (failed_in(returned), manifest(output)["status"]) == (0, "complete")


SCORED_BY_A_HELPER = {
    "sums.yaml": FILES["sums.yaml"].replace(
        "test_split: test", "test_split: test\n        process_results: !function tools.score"
    ),
    "tools.py": "def score(doc, results):\n    return {'exact_match': 1 / (float(doc['a']) - 9)}\n",
}


def test_the_command_ends_with_1_when_something_failed_and_shows_how_much(
    write: Write, output: Path, run_assay: Run
) -> None:
    tasks = write({**FILES, **SCORED_BY_A_HELPER})
    ended = run_assay("run", "-t", "sums", "-M", "dummy", "--include_path", tasks, "-o", output)
    assert ended.returncode == 1, ended.stderr
    row = next(line for line in ended.stdout.splitlines() if line.startswith("|sums"))
    assert [cell.strip() for cell in row.split("|")][-3:-1] == ["4", "1*"]
    assert "incomplete" in ended.stdout + ended.stderr
    assert "ZeroDivisionError" in next(iter(results(output)["assay"]["tasks"]["sums"]["reasons"]))


# One request, one answer


def test_identical_requests_are_sent_once_and_each_document_is_scored(write: Write, output: Path) -> None:
    asked = RecordingModel()
    returned = run(asked, write({**FILES, "sums.jsonl": FILES["sums.jsonl"] * 2}), output, tasks=["sums"])
    assert asked.calls == [(prompt, "0") for prompt in SUMS]
    assert len(keys(output)) == 5
    assert returned["results"]["sums"]["sample_len"] == len(samples(output, "sums")) == 10
    assert returned["results"]["sums"]["exact_match,none"] == pytest.approx(EXACT_MATCH, abs=1e-12)


def test_a_task_in_two_groups_is_asked_once(write: Write, output: Path) -> None:
    groups = {f"{name}.yaml": f"group: {name}\ntask: [sums]\n" for name in ("one", "two")}
    asked = RecordingModel()
    run(asked, write({**FILES, **groups}), output, tasks=["one", "two", "sums"])
    assert (len(asked.calls), len(keys(output))) == (5, 5)


def test_repeats_of_a_sampled_request_are_asked_each(tasks: Path, output: Path) -> None:
    asked = RecordingModel()
    sampling = {"do_sample": True, "temperature": 0.7}
    run(asked, tasks, output, tasks=["sums"], repeats=3, gen_kwargs=sampling)
    assert sorted(asked.calls) == sorted((prompt, str(repeat)) for prompt in SUMS for repeat in range(3))
    assert len(set(keys(output))) == len(keys(output)) == 15
    again = RecordingModel()
    run(again, tasks, output, tasks=["sums"], repeats=3, gen_kwargs=sampling)
    assert again.calls == []


def test_documents_that_ask_the_same_are_sampled_each(write: Write, output: Path) -> None:
    asked = RecordingModel()
    folder = write({**FILES, "sums.jsonl": FILES["sums.jsonl"] * 2})
    run(asked, folder, output, tasks=["sums"], gen_kwargs={"do_sample": True, "temperature": 0.7})
    assert len(asked.calls) == len(set(keys(output))) == 10


def test_repeats_of_a_greedy_request_are_one_request(tasks: Path, output: Path) -> None:
    asked = RecordingModel()
    returned = run(asked, tasks, output, tasks=["sums"], repeats=3)
    assert (len(asked.calls), len(keys(output))) == (5, 5)
    assert returned["results"]["sums"]["exact_match,none"] == pytest.approx(EXACT_MATCH, abs=1e-12)
