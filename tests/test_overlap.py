"""Work beside a model that computes: requests are tokenized ahead, responses scored and stored, weights loaded while tasks are
prepared. None of it changes what a run writes, what is reported, or that Ctrl-C ends it."""

import shutil
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay import simple_evaluate
from assay.ahead import Ahead
from assay.models import Scripted
from assay.models.local.embedded import BUNDLED
from assay.models.local.hf.backend import HF
from assay.models.protocol import Answered
from assay.records import Request
from commands import Run
from hf_world import build, text, words
from run_world import differing, everything, journal, outcome, results, start
from small_runs import run, write_task

TEXTS = """
    output_type: generate_until
    doc_to_text: q
    doc_to_target: gold
    generation_kwargs: {until: ["\\n"], max_gen_toks: 8}
"""
SCORED = """
    process_results: !function tools.score
    metric_list: [{metric: waited, aggregation: mean, higher_is_better: true}]
"""
CHOICES = """
    output_type: multiple_choice
    doc_to_text: q
    doc_to_choice: [w5, w6 w7, w8]
    doc_to_target: gold
"""


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


# --- a thread that works ahead


def test_items_come_in_order_and_an_error_after_those_before_it() -> None:
    def items() -> Generator[int]:
        yield from (1, 2)
        raise ValueError("no third")

    with Ahead(items()) as ahead:
        assert (next(ahead), next(ahead)) == (1, 2)
        with pytest.raises(ValueError, match="no third"):
            next(ahead)
        assert list(ahead) == []


def test_no_more_items_are_made_ahead_than_allowed() -> None:
    numbers: list[int] = []

    def items() -> Generator[int]:
        for number in range(100):
            numbers.append(number)
            yield number

    with Ahead(items(), most=2) as ahead:
        until(lambda: len(numbers) == 3)  # two wait, and one waits to
        assert next(ahead) == 0
        until(lambda: len(numbers) == 4)
    assert len(numbers) <= 6  # closing makes space


def test_closing_ends_a_thread_in_the_middle_of_an_item() -> None:
    begun, ended = threading.Event(), []

    def items() -> Generator[int]:
        try:
            while True:
                begun.set()
                time.sleep(0.001)
            yield 1
        finally:
            ended.append(threading.current_thread())

    ahead = Ahead(items())
    begun.wait(60)
    ahead.close()
    assert len(ended) == 1 and ended[0] is not threading.main_thread() and not ended[0].is_alive()


# --- a model that answers in a thread


def threaded(model: Scripted, *, is_so: bool = True) -> Scripted:
    """The same model, answering 16 requests at a time in a thread; in the main one if not `is_so`."""
    model.can, model.window = replace(model.can, answer_in_thread=is_so), 16
    return model


def shouting(inspect: Callable[[str], None] = lambda prompt: None) -> Scripted:
    def generate(prompt: str, params: dict[str, object], repeat: int) -> str:
        inspect(prompt)
        if prompt.endswith("7"):
            raise TimeoutError("no answer to sevens")
        return prompt.upper()

    return Scripted(generate, identity="shouting")


def rows(count: int) -> list[dict[str, object]]:
    return [{"q": f"a{number}", "gold": f"A{number}" if number % 3 else "none"} for number in range(count)]


def test_a_run_writes_the_same_bytes_with_a_thread_and_without(tmp_path: Path) -> None:
    write_task(tmp_path, rows(200), TEXTS)
    write_task(tmp_path, rows(30), TEXTS, name="other")
    seen: set[threading.Thread] = set()
    options = {"tasks": ["t", "other"], "max_failures": 1000}
    run(tmp_path, threaded(shouting(), is_so=False), output_path=str(tmp_path / "plain"), **options)
    model = threaded(shouting(lambda _: seen.add(threading.current_thread())))
    run(tmp_path, model, output_path=str(tmp_path / "thread"), **options)
    assert len(seen) == 1 and threading.main_thread() not in seen
    assert len(journal(tmp_path / "thread")) == 200 + 3  # three that failed are asked again by the other task
    assert differing(tmp_path / "thread", outcome(tmp_path / "plain")) == []


def test_documents_are_scored_while_the_model_answers_the_next_window(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "import pathlib, time\n"
        "def score(doc, results):\n"
        "    end = time.monotonic() + 9\n"
        "    while not pathlib.Path(__file__).with_name('begun').exists() and time.monotonic() < end:\n"
        "        time.sleep(0.01)\n"  # in vain, where nothing runs beside it
        "    return {'waited': float(time.monotonic() < end)}\n"
    )
    write_task(tmp_path, rows(64), TEXTS + SCORED)

    def inspect(prompt: str) -> None:
        if prompt == "a20":  # of the second window
            (tmp_path / "begun").touch()

    evaluated = run(tmp_path, threaded(shouting(inspect)), max_failures=100)
    assert evaluated["results"]["t"]["waited,none"] == 1.0


class Breaking(Scripted):
    """A model that fails as a whole after its first answers."""

    async def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:  # type: ignore[override]
        async for answered in super().answer(requests[:5]):
            yield answered
        raise RuntimeError("the device was lost")


@pytest.mark.parametrize("in_thread", [False, True])
def test_an_error_of_the_model_fails_the_requests_it_did_not_answer(
    in_thread: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_task(tmp_path, rows(8), TEXTS)
    model = Breaking(lambda prompt, params, repeat: prompt.upper(), identity="breaking")
    run(tmp_path, threaded(model, is_so=in_thread))
    assert "3 of 8 documents failed (3× the model failed: RuntimeError: the device was lost" in caplog.text


# --- a model of transformers


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks"
    shared = text(range(20, 60))
    questions = [{"q": f"{shared} {text([3 + n % 100, 5 + n % 90])}", "gold": n % 3} for n in range(120)]
    write_task(folder, questions, CHOICES, name="choices")
    write_task(folder, [{**each, "gold": "w9"} for each in questions[:20]], TEXTS, name="texts")
    return folder


def answered(evaluated: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [(each["doc_id"], each["resps"]) for each in samples] for name, samples in evaluated["samples"].items()
    }


def test_a_transformers_model_gives_the_same_answers_in_a_thread(tasks: Path) -> None:
    evaluated = []
    for in_thread in (False, True):
        model = HF(build("llama"), tokenizer=words(), max_length=128)
        model.can, model.window = replace(model.can, answer_in_thread=in_thread), 64
        evaluated.append(
            simple_evaluate(model, tasks=["choices", "texts"], include_path=str(tasks), include_defaults=False)
        )
    assert len(answered(evaluated[0])["choices"]) == 120
    assert answered(evaluated[0]) == answered(evaluated[1])
    assert evaluated[0]["results"] == evaluated[1]["results"]


def test_an_error_while_tokenizing_ahead_fails_the_requests(tasks: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = HF(build("llama"), tokenizer=words(), max_length=128)
    model._tokenizer._tokenizer = None  # as if it had been taken away
    simple_evaluate(model, tasks=["choices"], include_path=str(tasks), include_defaults=False)
    assert "120 of 120 documents failed (120× the model failed: AttributeError" in caplog.text


def command(folder: Path, model: Path, *more: object) -> list[object]:
    return ["-m", "assay", *options(folder, model, *more)]


def options(folder: Path, model: Path, *more: object) -> list[object]:
    return [
        "run", "--include_path", folder, "--no_defaults", "--model", "hf", "--model_args",
        f"pretrained={model},over_length=truncate", "-o", folder / "run", *more,
    ]  # fmt: skip


def test_ctrl_c_ends_a_run_of_a_transformers_model_and_it_resumes(tmp_path: Path) -> None:
    sentence = "the cat sat on the mat and looked at the dog "
    questions = [{"q": f"{sentence * 12}{number} of {number % 7}", "gold": 0} for number in range(200)]
    write_task(tmp_path, questions, CHOICES)
    process = start(*command(tmp_path, BUNDLED, "--tasks", "t"), cwd=tmp_path)
    stored = tmp_path / "run/responses.jsonl"
    until(lambda: process.poll() is not None or (stored.exists() and stored.read_bytes().count(b"\n") > 10))
    process.send_signal(signal.SIGINT)
    said = "".join(process.communicate(timeout=60))
    assert (process.returncode, "Traceback" in said, "resume with" in said) == (130, False, True), said
    before = len(journal(tmp_path / "run"))
    assert 10 <= before < 600
    again = start(*command(tmp_path, BUNDLED, "--tasks", "t"), cwd=tmp_path)
    said = "".join(again.communicate(timeout=100))
    assert f"resumed: {before:,} responses are there" in said
    assert (again.returncode, len(journal(tmp_path / "run"))) == (0, 600), said


def test_the_journal_of_another_transformers_model_is_refused_before_any_request(
    tmp_path: Path, run_assay: Run
) -> None:
    write_task(tmp_path, rows(4), TEXTS)
    first, other = tmp_path / "first", tmp_path / "other"
    for each in (first, other):
        shutil.copytree(BUNDLED, each)
    (other / "more.txt").write_text("another model")
    run_assay(*options(tmp_path, first, "--tasks", "t"))
    assert results(tmp_path / "run")["results"]["t"]
    before = everything(tmp_path / "run")
    again = run_assay(*options(tmp_path, other, "--tasks", "t"))
    said = again.stdout + again.stderr
    assert (again.returncode, "holds another run" in said, everything(tmp_path / "run")) == (2, True, before), said


@pytest.mark.parametrize(("task", "reason"), [("nosuch", "nosuch"), ("t", "no folder named")])
def test_problems_of_tasks_are_reported_before_those_of_the_model(
    task: str, reason: str, tmp_path: Path, run_assay: Run
) -> None:
    write_task(tmp_path, rows(4), TEXTS)
    ended = run_assay(*options(tmp_path, tmp_path / "missing", "--tasks", task))
    said = ended.stdout + ended.stderr
    assert (ended.returncode, reason in said) == (2, True), said
    assert ("no folder named" in said) == (task == "t")
    assert not (tmp_path / "run").exists()
