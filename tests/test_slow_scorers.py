"""Scorers that take long: in several processes, and never twice."""

import json
import os
import signal
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import assay
from assay.exchange.importers import score
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.records import Failed
from assay.runs.cache import SCORES_FILE, ScoreCache
from assay.scoring import workers
from assay.scoring.scorer import Scorer
from assay.scoring.workers import ScorerMemo, Workers, can_fork, identity_of
from run_world import start
from small_runs import says, write_task

START = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
OWN = """
import os, time
from pathlib import Path
from assay import Scorer
class Slow(Scorer):
    name = "slow"
    cached, parallel = CACHED, PARALLEL
    def __init__(self, config=None, log="", wait=0.0, add=0.0):
        super().__init__(config)
        self.log, self.wait, self.add = log, wait, add
    def score(self, reference, predictions):
        with open(self.log, "a") as log:
            log.write(f"{os.getpid()} {predictions[0]}\\n")
        time.sleep(self.wait)
        if predictions[0] == "bad":
            raise ZeroDivisionError("bad")
        return self.add + len(predictions[0]) + (predictions[0] == reference)
class Together(Slow):
    name = "together"
    parallel = False
    def score_batch(self, results):
        return [Slow.score(self, result.target[0], result.results) for result in results]
    score = Scorer.score
"""


def write(folder: Path, *, cached: bool = False, parallel: bool = False, kind: str = "Slow", **kwargs: object) -> Path:
    rows = [{"q": f"{number}", "gold": "aa"} for number in range(6)]
    log = folder / "log"
    scorer_options = {"log": str(log), **kwargs}
    write_task(folder, rows, f"{START}scorer: {{type: !function own.{kind}, kwargs: {json.dumps(scorer_options)}}}\n")
    (folder / "own.py").write_text(OWN.replace("CACHED", str(cached)).replace("PARALLEL", str(parallel)))
    return log


def run(folder: Path, answers: list[str], **options: Any) -> dict[str, Any]:
    known = {"include_path": str(folder), "include_defaults": False, **options}
    return assay.simple_evaluate(says(answers), tasks=["t"], **known)


ANSWERS = ["a", "aa", "aaa", "b", "bb", "bbb"]
SCORES = [1, 3, 3, 1, 2, 3]


@pytest.mark.process
@pytest.mark.skipif(not can_fork(), reason="needs Linux")
def test_scores_of_a_parallel_scorer_are_computed_in_other_processes(tmp_path: Path) -> None:
    log = write(tmp_path, parallel=True)
    results = run(tmp_path, ANSWERS)
    assert [sample["slow"] for sample in results["samples"]["t"]] == SCORES
    pids = {int(line.split()[0]) for line in log.read_text().splitlines()}
    assert len(log.read_text().splitlines()) == 6
    assert (os.getpid() in pids) == (len(os.sched_getaffinity(0)) == 1)


@pytest.mark.process
def test_eight_processes_score_eight_documents_at_once(tmp_path: Path) -> None:
    forked = get_context("fork")
    at_work, eight = forked.Value("i", 0), forked.Event()

    class Waiting:
        name = "waiting"

        def score(self, reference: Any, predictions: list[Any]) -> float:
            with at_work.get_lock():
                at_work.value += 1
                if at_work.value == 8:
                    eight.set()
            assert eight.wait(60), "eight documents were never scored at once"
            with at_work.get_lock():
                at_work.value -= 1
            return float(reference)

    one, workers = Waiting(), None
    try:
        workers = Workers([one], 8)
        assert workers.score(one, [(number, []) for number in range(64)]) == [float(number) for number in range(64)]
    finally:
        if workers is not None:
            workers.close()


@pytest.mark.process
def test_a_document_that_cannot_be_scored_fails_alone(tmp_path: Path) -> None:
    write(tmp_path, parallel=True)
    results = run(tmp_path, ["a", "bad", "aaa", "b", "bb", "bbb"])
    assert results["assay"]["tasks"]["t"]["reasons"] == {
        "scoring: scorer 'slow' of filter 'none': ZeroDivisionError: bad (own.py:16)": 1
    }
    assert results["results"]["t"]["slow,none"] == pytest.approx((1 + 3 + 1 + 2 + 3) / 5)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not can_fork() or len(os.sched_getaffinity(0)) < 2, reason="needs Linux and two processors")
def test_a_killed_run_leaves_no_process_running(tmp_path: Path) -> None:
    log = write(tmp_path / "tasks", parallel=True, wait=60)
    process = start(
        "-m", "assay", "run", "--model=dummy", "--tasks=t", f"--include_path={tmp_path / 'tasks'}", cwd=tmp_path
    )
    for _ in range(400):
        if log.is_file() and log.read_text():
            break
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    pids = {int(line.split()[0]) for line in log.read_text().splitlines()}
    assert pids
    assert process.pid not in pids
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for _ in range(100):
        if not any(map(is_alive, pids)):
            break
        time.sleep(0.05)
    assert not any(map(is_alive, pids))


# --- scores that were computed before -----------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize(("kind", "parallel"), [("Slow", False), ("Slow", True), ("Together", False)])
def test_a_cached_score_is_computed_once(kind: str, parallel: bool, tmp_path: Path) -> None:
    log = write(tmp_path / "tasks", cached=True, parallel=parallel, kind=kind)
    output = str(tmp_path / "run")
    first = run(tmp_path / "tasks", ANSWERS, output_path=output)
    assert len(log.read_text().splitlines()) == 6
    again = run(tmp_path / "tasks", ANSWERS, output_path=output)
    assert len(log.read_text().splitlines()) == 6
    assert first["results"] == again["results"]
    assert [sample[kind.lower()] for sample in again["samples"]["t"]] == SCORES


@pytest.mark.process
@pytest.mark.parametrize(("kind", "parallel"), [("Slow", False), ("Slow", True), ("Together", False)])
def test_a_cached_score_is_not_computed_again_when_answers_are_scored_again(
    kind: str, parallel: bool, tmp_path: Path
) -> None:
    """Another filter beside it changes nothing; another parameter of the scorer, or another answer, does."""
    log = write(tmp_path / "tasks", cached=True, parallel=parallel, kind=kind)
    run(tmp_path / "tasks", ANSWERS, output_path=str(tmp_path / "run"))
    score([tmp_path / "run"])
    task = tmp_path / "tasks/t.yaml"
    plain = task.read_text()
    steps = "[{function: take_first}], metric_list: [{metric: exact_match}]"
    task.write_text(
        f"{plain}filter_list: [{{name: none, filter: [{{function: take_first}}]}}, {{name: b, filter: {steps}, scorer: generation}}]\n"
    )
    again = score([tmp_path / "run"])
    assert lm_eval_layout(again.results)["results"]["t"][f"{kind.lower()},none"] == pytest.approx(sum(SCORES) / 6)
    assert len(log.read_text().splitlines()) == 6
    task.write_text(
        f"{plain}filter_list: [{{name: none, filter: [{{function: uppercase}}, {{function: take_first}}]}}]\n"
    )
    score([tmp_path / "run"])
    assert len(log.read_text().splitlines()) == 12
    write(tmp_path / "tasks", cached=True, parallel=parallel, kind=kind, add=1.0)
    more = lm_eval_layout(score([tmp_path / "run"]).results)["results"]["t"]
    assert more[f"{kind.lower()},none"] == pytest.approx(sum(SCORES) / 6 + 1)
    assert len(log.read_text().splitlines()) == 18


@pytest.mark.parametrize("file", ["own.py", "beside.py"])
def test_a_cached_score_is_computed_again_when_a_function_that_it_calls_changes(file: str, tmp_path: Path) -> None:
    """The class stays as it is: a function in its file, or in a file that it imports, does not."""
    log = write(tmp_path / "tasks", cached=True)
    own, beside = tmp_path / "tasks/own.py", tmp_path / "tasks/beside.py"
    beside.write_text("def further():\n    return 0.0  # of beside.py\n")
    first = "from beside import further\ndef more():\n    return further() + 0.0  # of own.py\n"
    own.write_text(first + own.read_text().replace("return self.add +", "return self.add + more() +"))
    run(tmp_path / "tasks", ANSWERS, output_path=str(tmp_path / "run"))
    score([tmp_path / "run"])
    assert len(log.read_text().splitlines()) == 6
    changed = tmp_path / "tasks" / file
    changed.write_text(changed.read_text().replace(f"0.0  # of {file}", "100.0"))
    again = lm_eval_layout(score([tmp_path / "run"]).results)["results"]["t"]
    assert again["slow,none"] == pytest.approx(100 + sum(SCORES) / 6)
    assert len(log.read_text().splitlines()) == 12


def test_without_a_folder_or_the_option_nothing_is_kept(tmp_path: Path) -> None:
    log = write(tmp_path / "tasks", cached=True)
    run(tmp_path / "tasks", ANSWERS)
    run(tmp_path / "tasks", ANSWERS)
    assert len(log.read_text().splitlines()) == 12
    write(tmp_path / "tasks")
    run(tmp_path / "tasks", ANSWERS, output_path=str(tmp_path / "run"))
    assert not (tmp_path / "run" / SCORES_FILE).exists()


def test_a_failure_is_computed_again(tmp_path: Path) -> None:
    log = write(tmp_path / "tasks", cached=True)
    for _ in range(2):
        run(tmp_path / "tasks", ["bad", *ANSWERS[1:]], output_path=str(tmp_path / "run"))
    assert [line.split()[1] for line in log.read_text().splitlines()].count("bad") == 2
    assert len(log.read_text().splitlines()) == 7


def test_a_file_that_is_damaged_is_begun_again(tmp_path: Path) -> None:
    log = write(tmp_path / "tasks", cached=True)
    first = run(tmp_path / "tasks", ANSWERS, output_path=str(tmp_path / "run"))
    (tmp_path / "run" / SCORES_FILE).write_bytes(b"no database at all, and long enough to be looked at" * 99)
    again = run(tmp_path / "tasks", ANSWERS, output_path=str(tmp_path / "run"))
    assert first["results"] == again["results"]
    assert len(log.read_text().splitlines()) == 12


class One(Scorer):
    def score(self, reference: Any, predictions: list[Any]) -> float:
        return 1.0


class Two(Scorer):
    def score(self, reference: Any, predictions: list[Any]) -> float:
        return 2.0


def test_scores_depend_on_source_version_and_parameters() -> None:
    known = {
        identity_of(One, Scorer, 1, {}),
        identity_of(Two, Scorer, 1, {}),
        identity_of(One, Scorer, 2, {}),
        identity_of(One, Scorer, 1, {"unit": 3}),
    }
    assert len(known) == 4
    assert None not in known
    assert identity_of(One, Scorer, 1, {}) in known
    assert identity_of(One, Scorer, 1, {"odd": object()}) is None


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(PLAIN, min_size=1, max_size=5, unique_by=repr), PLAIN)
def test_cached_scores_equal_computed_ones(tmp_path_factory: Any, asked: list[Any], value: Any) -> None:
    file = ScoreCache(tmp_path_factory.mktemp("scores"))
    memory, other = ScorerMemo("a", file), ScorerMemo("b", file)
    first = memory.filled(asked, lambda numbers: [value] * len(numbers))
    second = memory.filled(asked, lambda numbers: [value] * len(numbers))
    assert repr(first) == repr(second) == repr([value] * len(asked))
    computed: list[int] = []
    other.filled(asked, lambda numbers: computed.extend(numbers) or [0] * len(numbers))  # type: ignore[func-returns-value]
    assert computed == list(range(len(asked)))  # another scorer's scores are not taken
    file.close()


def test_scores_that_cannot_be_cached_are_computed_every_time(tmp_path: Path) -> None:
    file = ScoreCache(tmp_path)
    memory, calls = ScorerMemo("a", file), list[int]()

    def compute(numbers: list[int]) -> list[Any]:
        calls.extend(numbers)
        return [(1, 2), Failed("no")]

    for _ in range(2):
        assert memory.filled(["x", "y"], compute) == [(1, 2), Failed("no")]
    assert calls == [0, 1, 0, 1]
    file.close()


@pytest.mark.parametrize(
    ("files", "expected"),
    [({"a": "max 100000"}, 8), ({"a": "250000 100000"}, 2), ({"a": "50000 100000"}, 1), ({"b": "-1", "c": "100000"}, 8),
     ({"b": "400000", "c": "100000"}, 4), ({}, 8)],
)  # fmt: skip
def test_a_container_has_the_cpus_of_its_quota(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control groups 2 (one file) and 1 (two), as Linux writes them; a machine with 8 CPUs."""
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(workers, "QUOTAS", ((tmp_path / "a",), (tmp_path / "b", tmp_path / "c")))
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda _: set(range(8)))
    assert workers.usable_cpus() == expected
