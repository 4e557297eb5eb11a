"""Scores that take long on the nodes of a cluster: the same scores, whatever happens to the nodes."""

import json
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import assay
from assay import Scripted
from assay.config.run import RunConfig
from assay.evaluation.flow import execute, prepare_run
from assay.evaluation.options import task_manager
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.scoring.sandbox import obstacle
from small_runs import says, write_task

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.process]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    nodes = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 2,
            "object_store_memory": 80_000_000,
            "include_dashboard": False,
            "_system_config": {
                "health_check_initial_delay_ms": 500,
                "health_check_period_ms": 500,
                "health_check_timeout_ms": 1000,
                "health_check_failure_threshold": 2,
            },
        },
    )
    nodes.add_node(num_cpus=2, object_store_memory=80_000_000)
    try:
        yield nodes
    finally:
        nodes.shutdown()


START = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
OWN = """
import os, signal, sys, time
from assay import Scorer
from beside import points
def node():
    ray = sys.modules.get("ray")
    return ray.get_runtime_context().get_node_id() if ray is not None and ray.is_initialized() else "here"
class Slow(Scorer):
    name = "slow"
    parallel = True
    def __init__(self, config=None, log="", wait=0.0):
        super().__init__(config)
        self.log, self.wait = log, wait
    def score(self, reference, predictions):
        with open(self.log, "a") as log:
            log.write(f"{node()} {predictions[0]}\\n")
        time.sleep(self.wait)
        if predictions[0] == "bad":
            raise ZeroDivisionError("bad")
        if predictions[0] == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        if predictions[0] == "nan":
            return float("nan")
        return {"points": points(reference, predictions[0]), "length": len(predictions[0])}
"""
BESIDE = "def points(reference, answer):\n    return 0.5 + (answer == reference)\n"


def write(folder: Path, count: int = 40, **kwargs: object) -> Path:
    """A task with a slow scorer; returns the file in which that scorer notes where it scored which answer."""
    log = folder.parent / f"log of {folder.name}"
    rows = [{"q": f"{number}", "gold": "aa"} for number in range(count)]
    scorer = json.dumps({"log": str(log), **kwargs})
    write_task(folder, rows, f"{START}scorer: {{type: !function own.Slow, kwargs: {scorer}}}\n")
    (folder / "own.py").write_text(OWN)
    (folder / "beside.py").write_text(BESIDE)
    return log


def run(folder: Path, answers: list[Any], **options: Any) -> dict[str, Any]:
    known = {"include_path": str(folder), "include_defaults": False, "confirm_run_unsafe_code": True, **options}
    return assay.simple_evaluate(says(answers), tasks=["t"], **known)


def scored(results: dict[str, Any]) -> str:
    """All that scores decide, as text: types and order of keys included."""
    about = results["assay"]["tasks"]["t"]
    return json.dumps([results["results"], results["samples"], about.get("reasons", {})], default=str)


def where(log: Path) -> dict[str, list[str]]:
    """The answers that were scored, by the node that did."""
    lines = [line.split(" ", 1) for line in log.read_text().splitlines()]
    return {node: [answer for each, answer in lines if each == node] for node, _ in lines}


ODD = {7: "bad", 9: "nan", 11: "deadly"}
ANSWERS = [ODD.get(number, "a" * (number % 4)) for number in range(40)]


def test_scores_of_a_scorer_are_computed_on_all_nodes_and_are_the_same(cluster: Any, tmp_path: Path) -> None:
    log = write(tmp_path / "tasks", wait=0.01)
    plain = run(tmp_path / "tasks", ANSWERS)
    log.unlink()
    there = run(tmp_path / "tasks", ANSWERS, ray=cluster.address)
    assert scored(there) == scored(plain)
    assert plain["results"]["t"]["length,none"] == (60 - 3 - 1 - 3) / 37  # without documents 7, 9 and 11
    nodes = where(log)
    assert len(nodes) == 3
    assert sorted(nodes.pop("here")) == ["bad", "deadly", "nan"]  # failures are those of a run without a cluster
    killed = [answer for answers in nodes.values() for answer in answers].count("deadly")
    assert killed == 3  # twice among others, once alone


def test_helper_files_travel_with_the_task(cluster: Any, tmp_path: Path) -> None:
    log = write(tmp_path / "tasks")
    config = RunConfig(
        tasks=("t",), include_path=(str(tmp_path / "tasks"),), include_defaults=False, ray=cluster.address
    )

    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        shutil.rmtree(tmp_path / "tasks", ignore_errors=True)  # as on a node that does not share this disk
        return "aa"

    results = lm_eval_layout(execute(prepare_run(config, task_manager(config), Scripted(generate=answer))).results)
    assert results["results"]["t"]["points,none"] == 1.5
    assert "here" not in where(log)


CODE = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: test\nunsafe_code: true\nrepeats: 2\nmetric_list:\n  - {metric: code_exec, name: passed, timeout: 5, reduction: [mean, pass@2]}\ngeneration_kwargs: {do_sample: true, temperature: 1}\n"


@pytest.mark.skipif(obstacle() is not None, reason="needs namespaces")
def test_code_runs_in_the_sandbox_of_nodes_and_a_node_without_one_is_refused(
    cluster: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"q": f"{number}", "test": f"assert half({2 * number}) == {number}"} for number in range(16)]
    write_task(tmp_path, rows, CODE)
    right, wrong = "def half(n):\n    return n // 2", "import socket\nsocket.create_connection(('127.0.0.1', 1))"
    answers = [[wrong, wrong if number % 4 == 0 else right] for number in range(16)]
    plain = run(tmp_path, answers)
    bare = cluster.add_node(num_cpus=2, object_store_memory=80_000_000, env_vars={"PATH": "/nowhere"})
    try:
        with caplog.at_level(logging.INFO, "assay"):
            there = run(tmp_path, answers, ray=cluster.address)
    finally:
        cluster.remove_node(bare)
    assert scored(there) == scored(plain)
    row = there["results"]["t"]
    assert (row["passed,none"], row["pass@2,none"]) == (12 / 32, 12 / 16)
    [refused] = [line for line in caplog.messages if "is not scored on node" in line]
    assert "metric 'code_exec' cannot work here: programs can be isolated neither by bubblewrap nor" in refused
    [counted] = [line for line in caplog.messages if line.startswith("scores computed: ")]
    assert "16 on node" in counted


def test_a_node_that_dies_loses_no_score(cluster: Any, tmp_path: Path) -> None:
    answers = ["a" * (number % 4) for number in range(80)]
    log = write(tmp_path / "tasks", 80)
    plain = run(tmp_path / "tasks", answers)
    log.unlink()
    shutil.rmtree(tmp_path / "tasks")
    write(tmp_path / "tasks", 80, wait=0.04)
    doomed = cluster.add_node(num_cpus=4, object_store_memory=80_000_000)
    done = threading.Event()

    def kill() -> None:
        while doomed.node_id not in (log.read_text() if log.exists() else "") and not done.wait(0.01):
            pass
        cluster.remove_node(doomed, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        there = run(tmp_path / "tasks", answers, ray=cluster.address)
    finally:
        done.set()
        killer.join()
    assert doomed.node_id in where(log)
    assert scored(there) == scored(plain)


def test_a_task_of_python_objects_stays_on_this_machine_and_says_so(
    cluster: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Own(assay.Scorer):
        name = "own"
        parallel = True

        def score(self, reference: Any, predictions: list[Any]) -> float:
            return float(predictions[0] == reference)

    config = {"task": "t", "output_type": "generate_until", "doc_to_text": "q", "doc_to_target": "gold",
              "scorer": Own, "dataset_path": "json", "test_split": "test",
              "dataset_kwargs": {"data_files": {"test": str(tmp_path / "rows.jsonl")}}}  # fmt: skip
    (tmp_path / "rows.jsonl").write_text('{"q": "0", "gold": "a"}\n{"q": "1", "gold": "b"}\n')
    results = assay.simple_evaluate(says(["a", "a"]), tasks=[config], ray=cluster.address)
    assert results["results"]["t"]["own,none"] == 0.5
    [line] = [line for line in caplog.messages if "on this machine alone" in line]
    assert (
        line
        == "task 't' is scored on this machine alone: scorer holds a value of type 'ABCMeta', which cannot be written as JSON"
    )
