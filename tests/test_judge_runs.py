"""Judges behind servers: verdicts are paid for, so none is asked for twice, whatever ends the run."""

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from run_world import finish, journal, results, samples, start
from serving import TALKING, Servers, fetched
from small_runs import write_task

DOCUMENTS = 24
MARK = re.compile(r"<<<answer ([0-9a-f]{32})>>>")


@pytest.fixture
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


def write(folder: Path, wait: float, tokens: int = 10) -> None:
    """Questions that contain the model's answer and, for the judge, its score: n points, after a delay."""
    rows = []
    for number in range(DOCUMENTS):
        answer = json.dumps({"score": 1 + number % 10, "wait": wait, "n": number, "usage": [tokens - 3, 3, 0]})
        rows.append({"q": json.dumps({"say": answer}), "gold": "x"})
    yaml = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nscorer: llm_judge\n"
    write_task(folder, rows, yaml + "generation_kwargs: {until: [], max_gen_toks: 99}\n")


def command(folder: Path, url: str, output: Path, at_once: int = 2, **more: object) -> list[object]:
    where = f"model=m,base_url={url},price_in=1,price_out=1"
    options = [f"--{key}={value}" for key, value in more.items()]
    return ["-m", "assay", "run", "--model=openai-chat", f"--model_args={where}", "--tasks=t", f"--include_path={folder}",
            f"--model_role=judge=openai-chat,{where},num_concurrent={at_once}", f"--output_path={output}",
            *options]  # fmt: skip


def texts(output: Path) -> list[str]:
    """What the model and the judge said, as the journal has it."""
    return [line["r"].get("text", "") for line in journal(output)]


def verdicts(output: Path) -> set[str]:
    """The marks of the answers on which a verdict is written down."""
    return {json.loads(text)["id"] for text in texts(output) if text.startswith('{"id"')}


def answered(output: Path) -> set[str]:
    """The questions whose answers are written down."""
    return {json.dumps({"say": text}) for text in texts(output) if text.startswith('{"score"')}


def asked(url: str) -> tuple[list[str], list[str]]:
    """The questions that the server received, and the marks of what it was to judge."""
    prompts = [entry["body"]["messages"][-1]["content"] for entry in fetched(url, "/log")]
    return [text for text in prompts if text.startswith("{")], [m[1] for text in prompts if (m := MARK.search(text))]


def judge_rows(output: Path) -> list[dict[str, Any]]:
    """The samples of a run without what differs from run to run: how long a response took."""
    rows = samples(output, "t")
    verdicts_only = [[reply.get("verdict") for reply in row["replies"]] for row in rows]
    return [{**row, "replies": replies} for row, replies in zip(rows, verdicts_only, strict=True)]


def test_a_run_that_is_killed_while_judging_resumes_and_asks_no_verdict_twice(talking: str, tmp_path: Path) -> None:
    write(tmp_path / "tasks", wait=0.15)
    output, whole = tmp_path / "run", tmp_path / "whole"
    process = start(*command(tmp_path / "tasks", talking, output), cwd=tmp_path)
    for _ in range(600):
        if (output / "responses.jsonl").is_file() and len(verdicts(output)) >= 6:
            break
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    known, has_answer, (questions, before) = verdicts(output), answered(output), asked(talking)
    assert 6 <= len(known) < DOCUMENTS
    assert len(known) <= len(has_answer) <= len(questions)
    assert finish(*command(tmp_path / "tasks", talking, output), cwd=tmp_path) == 0
    all_questions, every = asked(talking)
    again, questions_again = every[len(before) :], all_questions[len(questions) :]
    assert known.isdisjoint(again)  # what was judged is not asked about again
    # nor is what was answered; a question that was in flight when the run was killed has to be sent again
    assert len(questions_again) == len(set(questions_again))
    assert has_answer | set(questions_again) == set(all_questions) and has_answer.isdisjoint(questions_again)
    assert len(set(all_questions)) == DOCUMENTS
    assert sorted(again) == sorted(set(again))
    assert known | set(again) == verdicts(output)
    assert len(every) <= DOCUMENTS + 2  # two were in flight when it was killed
    assert finish(*command(tmp_path / "tasks", talking, whole), cwd=tmp_path) == 0
    assert results(output)["results"] == results(whole)["results"]
    assert judge_rows(output) == judge_rows(whole)
    expected = sum(n % 10 for n in range(DOCUMENTS)) / 9 / DOCUMENTS
    assert results(output)["results"]["t"]["llm_judge,none"] == pytest.approx(expected)


def test_verdicts_are_counted_and_paid_for_by_their_role(talking: str, tmp_path: Path) -> None:
    write(tmp_path / "tasks", wait=0)
    output = tmp_path / "run"
    assert finish(*command(tmp_path / "tasks", talking, output), cwd=tmp_path) == 0
    account: dict[str, Any] = results(output)["assay"]["usage"]
    assert {role: reported["requests"] for role, reported in account["roles"].items()} == {"model": 24, "judge": 24}
    assert account["roles"]["judge"]["cost"] == pytest.approx(24 * 10 / 1e6)  # 7 tokens in, 3 out
    assert all(json.loads(row["replies"][1])["reason"] == "so" for row in judge_rows(output))


def test_verdicts_come_from_the_cache_of_another_run(talking: str, tmp_path: Path) -> None:
    write(tmp_path / "tasks", wait=0)
    for name in ("first", "second"):
        line = command(tmp_path / "tasks", talking, tmp_path / name, use_cache=tmp_path / "answers")
        assert finish(*line, cwd=tmp_path) == 0
    questions, marks = asked(talking)
    assert len(questions) == len(marks) == DOCUMENTS
    assert results(tmp_path / "first")["results"] == results(tmp_path / "second")["results"]


def test_a_cost_limit_ends_judging_and_a_larger_one_resumes_it(talking: str, tmp_path: Path) -> None:
    """A verdict costs 0.0006 and may cost 0.0015 to 0.002: six are paid for of 0.006, seven or eight at most."""
    write(tmp_path / "tasks", wait=0, tokens=600)
    output = tmp_path / "run"
    assert finish(*command(tmp_path / "tasks", talking, output, max_cost=0.006), cwd=tmp_path) == 3
    assert 0 < len(verdicts(output)) < 10
    assert finish(*command(tmp_path / "tasks", talking, output, max_cost=1), cwd=tmp_path) == 0
    _, marks = asked(talking)
    assert len(marks) == len(set(marks)) == DOCUMENTS


def test_a_judged_run_is_scored_again_without_asking_the_judge(talking: str, tmp_path: Path) -> None:
    write(tmp_path / "tasks", wait=0.0)
    output = tmp_path / "run"
    assert finish(*command(tmp_path / "tasks", talking, output), cwd=tmp_path) == 0
    before = len(fetched(talking, "/log"))
    assert finish("-m", "assay", "score", str(output), "--metric", "exact_match", cwd=tmp_path) == 0
    assert len(fetched(talking, "/log")) == before
    again = results(next((output / "scored").rglob("results.json")).parent)
    assert again["results"]["t"]["llm_judge,none"] == results(output)["results"]["t"]["llm_judge,none"]
    assert again["results"]["t"]["exact_match,none"] == 0.0
