"""The time left of a run: by the requests that are left of every task and kind; what was not seen is named, not guessed."""

import os
import pty
import re
import subprocess
import sys
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.engine.counts import TaskCounts
from assay.evaluation import time_left as module
from assay.evaluation.time_left import TimeEstimator, TimeLeft
from assay.number_text import time_left_text
from assay.report.progress import log_line, terminal_line
from assay.tasks.runnable import TaskFacts
from small_runs import write_task


class Clock:
    """Monotonic time that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


def task(name: str, size: int, needs: set[str], limit: int = 256, judge: bool = False) -> Any:
    described = {"generation_kwargs": {"max_gen_toks": limit}}
    runnable = SimpleNamespace(
        task=SimpleNamespace(name=name, definition=None),
        facts=TaskFacts(size=size, original=size, version=1, models={"judge": None} if judge else {}),
        needs=lambda: frozenset(needs),
        described=lambda: described,
    )
    board = SimpleNamespace(documents=0, failed={}, noticed={"cut off at the token limit": 0})
    return SimpleNamespace(runnable=runnable, board=board)


class Engine:
    """The counts of an engine, which a test fills in."""

    def __init__(self, local: bool = False, capacity: float = 4.0) -> None:
        self.usage = SimpleNamespace(local={"model"} if local else set(), seconds={}, total=SimpleNamespace(cost=1.5))
        self.task_counts: dict[str, TaskCounts] = {}
        self.busy_roles = ["model"]
        self._capacity = capacity
        self.unreachable_since = None
        self.replicas: dict[str, int] = {}

    def capacity(self, role: str) -> float:
        return self._capacity

    def pending(self, role: str) -> int:
        return 0

    def answer(
        self, name: str, documents: int, each: int, seconds: float, role: str = "model", ends: bool = True
    ) -> None:
        """Answers of `each` request of so many documents."""
        counts = self.task_counts.setdefault(name, TaskCounts())
        if role == "model":
            counts.started += documents
        counts.asked[role] += documents * each
        counts.received[role] += documents * each
        if ends:
            counts.ended += documents
        counts.of_ended[role] += documents * each
        self.usage.seconds.setdefault((name, role), array("d")).extend([seconds] * documents * each)


def progress(tasks: list[Any], engine: Engine) -> Any:
    return SimpleNamespace(tasks=tasks, engine=engine)


def test_requests_left_have_the_latency_of_their_task() -> None:
    """Choices: 90 documents with 4 requests of 0.1 s; long: 8 of 2 s; four at once: (36 + 16) / 4 s."""
    engine = Engine()
    tasks = [task("choices", 100, {"loglikelihood"}), task("long", 10, {"generate"}, 1024)]
    engine.answer("choices", 10, 4, 0.1)
    engine.answer("long", 2, 1, 2.0)
    left = TimeEstimator()(progress(tasks, engine))
    assert left.seconds == pytest.approx(13.0)
    assert (left.done, left.left, left.unknown) == (42, 368, ())


def test_kinds_that_were_not_seen_are_named() -> None:
    engine = Engine()
    tasks = [
        task("choices", 100, {"loglikelihood"}),
        task("more", 50, {"loglikelihood"}),
        task("short", 10, {"generate"}, 32),
        task("judged", 10, {"generate"}, 64, judge=True),
    ]
    engine.answer("choices", 50, 2, 0.2)
    left = TimeEstimator()(progress(tasks, engine))
    assert left.seconds == pytest.approx((100 + 100) * 0.2 / 4)  # `more` is of a kind that was seen
    assert left.unknown == ("texts of 2 tasks", "judge calls")
    assert (
        time_left_text(left.seconds, left.unknown)
        == "at least 10 s left (texts of 2 tasks and judge calls not yet seen)"
    )


def test_a_judge_takes_its_time_after_the_answers() -> None:
    """20 answers of 1 s and 20 verdicts of 4 s, both four at once: verdicts take 20 s, and answers are ready before."""
    engine = Engine()
    tasks = [task("judged", 30, {"generate"}, judge=True)]
    engine.answer("judged", 10, 1, 1.0)
    engine.answer("judged", 10, 1, 4.0, "judge", ends=False)
    assert TimeEstimator()(progress(tasks, engine)).seconds == pytest.approx(20.0)


def test_nothing_is_known_before_the_first_answer() -> None:
    left = TimeEstimator()(progress([task("choices", 100, {"loglikelihood"})], Engine()))
    assert left.seconds is None
    assert time_left_text(left.seconds, left.unknown) == "time left unknown (log-likelihoods not yet seen)"


def test_a_local_model_is_timed_by_its_recent_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 requests in 10 s after 10 in 10 s: the last count most."""
    clock, engine, estimate = Clock(monkeypatch), Engine(local=True), TimeEstimator()
    tasks = [task("choices", 1100, {"loglikelihood"})]
    estimate(progress(tasks, engine))
    for documents in (10, *[100] * 5):
        clock.now += 10.0
        engine.answer("choices", documents, 1, 0.0)
        left = estimate(progress(tasks, engine))
    assert left.seconds == pytest.approx(590 * 60 / 510, rel=0.1)


def test_a_line_fits_the_terminal() -> None:
    engine = Engine()
    engine.task_counts["a_task_with_a_name_that_is_much_too_long"] = TaskCounts()
    tasks = [task("a_task_with_a_name_that_is_much_too_long", 10, {"generate"})]
    left = TimeLeft(12_345, 67_890, 123.4, 2700.0, ("texts of 12 tasks", "judge calls", "log-likelihoods"))
    for width in range(20, 200, 7):
        line = terminal_line(progress(tasks, engine), left, width)
        assert len(line) <= width
        assert "left" in line
    assert "cost 1.50" in line
    assert "replica" not in line
    assert "at least 45 min left (texts of 12 tasks and judge calls and log-likelihoods not yet seen)" in line


def test_replicas_that_are_ready_are_shown() -> None:
    engine = Engine()
    engine.replicas = {"model": 4, "judge": 1}
    left, view = TimeLeft(1, 2, 1.0, 1.0), progress([task("choices", 3, {"loglikelihood"})], engine)
    assert ", 4 replicas, 1 replica of judge, cost 1.5000, " in log_line(view, left)
    assert ", 4 replicas, 1 replica of judge, cost 1.5000, " in terminal_line(view, left, 120)


def test_a_terminal_gets_one_line_within_its_width(tmp_path: Path) -> None:
    rows = [{"q": f"{number}", "gold": "a"} for number in range(40)]
    write_task(tmp_path, rows, "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n", "slow_task")
    code = (
        "import sys, time; from assay import simple_evaluate; from assay.report.progress import Progress;"
        "from assay.evaluation.flow import execute, prepare_run;"
        "from assay.evaluation.options import run_config, task_manager; from assay.models import Scripted;"
        f"config = run_config(dict(tasks=['slow_task'], include_path={str(tmp_path)!r}, include_defaults=False));"
        "model = Scripted(generate=lambda p, a, r: time.sleep(0.05) or 'a');"
        "prepared = prepare_run(config, task_manager(config), model)\n"
        "with Progress() as watch: execute(prepared, watch)"
    )
    primary, secondary = pty.openpty()
    environment = {**os.environ, "COLUMNS": "70", "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=secondary, stdout=subprocess.DEVNULL, env=environment
    )
    os.close(secondary)
    shown = b""
    while True:
        try:
            shown += os.read(primary, 65536)
        except OSError:
            break
    assert process.wait() == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\n", plain))
    assert max(map(len, lines)) <= 70
    os.close(primary)
    assert any("slow_task" in line and "of 40 requests" in line and "about" in line for line in lines), lines
