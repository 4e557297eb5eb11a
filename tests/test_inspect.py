"""Inspect opens what we write for it: `make test-inspect` installs inspect_ai into a separate environment and runs this."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import run_world
from assay.exchange.exporters import export
from assay.exchange.importers import import_runs
from assay.exchange.lm_eval_layout import lm_eval_layout
from exchange_world import INSPECT, TASKS
from run_world import ACC, ACC_STDERR, COLOURS, EXACT_MATCH, EXACT_MATCH_STDERR, RecordingModel

PYTHON = os.environ.get("INSPECT_PYTHON", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="inspect_ai has a separate environment: make test-inspect")

READ = """
import json, sys
from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries
found = {}
for path in sys.argv[1:]:
    log = read_eval_log(path)
    found[log.eval.task] = {
        "status": log.status, "epochs": log.eval.config.epochs, "model": log.eval.model,
        "samples": [{"id": s.id, "epoch": s.epoch, "target": s.target, "choices": s.choices, "said": s.output.completion,
                     "error": s.error.message if s.error else None,
                     "scores": {k: [v.value, v.answer] for k, v in (s.scores or {}).items()}} for s in log.samples],
        "numbers": {s.name: {k: m.value for k, m in s.metrics.items()} for s in log.results.scores},
        "summaries": [[s.id, s.epoch, s.completed] for s in read_eval_log_sample_summaries(path)],
    }
print(json.dumps(found))
"""


def read(paths: list[str]) -> dict[str, Any]:
    ended = subprocess.run([PYTHON, "-c", READ, *paths], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    data: dict[str, Any] = json.loads(ended.stdout)
    return data


def test_inspect_reads_scores_ids_targets_and_failures_of_our_logs(tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(failing={"3*3="}), tasks, output)
    result = read(export(output, "inspect", tmp_path / "logs"))
    sums, colours = result["sums"], result["colours"]
    assert [sample["id"] for sample in sums["samples"]] == [0, 1, 2, 3, 4]
    assert [sample["scores"].get("exact_match") for sample in sums["samples"]] == [
        [1, "2"], [1, "5"], [0, "4"], None, [0, "none"],
    ]  # fmt: skip
    assert (sums["status"], colours["status"]) == ("error", "success")
    assert "no answer to 3*3=" in sums["samples"][3]["error"]
    assert sums["numbers"]["exact_match"]["exact_match"] == 0.5
    assert colours["numbers"] == {"acc": {"acc": ACC, "stderr": pytest.approx(ACC_STDERR)}}
    assert [sample["target"] for sample in colours["samples"]] == ["AB"[gold] for gold, *_ in COLOURS.values()]
    assert colours["samples"][0]["choices"] == ["green", "red"]
    assert colours["samples"][1]["said"] == " red"
    assert colours["summaries"] == [[number, 1, True] for number in range(4)]


def test_inspect_reads_repeats_as_epochs(write: Any, tmp_path: Path) -> None:
    folder = write({**run_world.FILES, **TASKS})
    run_world.run(RecordingModel(), folder, tmp_path / "run", tasks=["sums"])
    [result] = read(export(tmp_path / "run", "inspect", tmp_path / "logs")).values()
    assert result["epochs"] == 2
    assert {(sample["id"], sample["epoch"]) for sample in result["samples"]} == {
        (n, e) for n in range(5) for e in (1, 2)
    }
    assert result["numbers"]["exact_match (first)"]["exact_match"] == EXACT_MATCH
    assert result["numbers"]["exact_match (first)"]["stderr"] == pytest.approx(EXACT_MATCH_STDERR)


def test_an_inspect_log_is_imported_and_exported_with_its_numbers(tmp_path: Path) -> None:
    import_runs([INSPECT / "sums.eval"], tmp_path / "run")
    theirs, ours = (
        read([str(INSPECT / "sums.eval")])["sums"],
        read(export(tmp_path / "run", "inspect", tmp_path / "out"))["sums"],
    )
    assert ours["numbers"]["accuracy (match)"]["accuracy"] == theirs["numbers"]["match"]["accuracy"]
    assert ours["numbers"]["accuracy (match)"]["stderr"] == pytest.approx(theirs["numbers"]["match"]["stderr"])
    letters = {"C": 1, "I": 0}
    reported = {("abcd".index(s["id"]), s["epoch"]): s["scores"].get("match") for s in theirs["samples"]}
    for sample in ours["samples"]:
        known = reported[sample["id"], sample["epoch"]]
        assert sample["scores"].get("accuracy (match)") == (None if known is None else [letters[known[0]], known[1]])


AGAIN = """
import sys
from inspect_ai import score
from inspect_ai.log import read_eval_log, write_eval_log
from inspect_ai.scorer import Score, accuracy, scorer

@scorer(metrics=[accuracy()], name="exact_match")
def nothing():
    async def judged(state, target):
        return Score(value=0)
    return judged

log = read_eval_log(sys.argv[1])
write_eval_log(log, sys.argv[2])
log.eval.model = "mockllm/model"  # one that Inspect knows
write_eval_log(score(log, nothing(), action="overwrite"), sys.argv[3])
"""


def test_an_exported_log_is_imported_from_inspect_as_it_was_or_as_it_was_scored_there(
    tasks: Path, output: Path, tmp_path: Path
) -> None:
    run_world.run(RecordingModel(), tasks, output, tasks=["sums"])
    [log] = export(output, "inspect", tmp_path / "logs")
    same, scored = str(tmp_path / "same.eval"), str(tmp_path / "scored.eval")
    ended = subprocess.run([PYTHON, "-c", AGAIN, log, same, scored], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert lm_eval_layout(import_runs([same], tmp_path / "back"))["results"]["sums"]["exact_match,none"] == EXACT_MATCH
    assert lm_eval_layout(import_runs([scored], tmp_path / "new"))["results"]["sums"]["accuracy,exact_match"] == 0.0


def test_inspects_commands_open_our_logs(tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    [first, _] = export(output, "inspect", tmp_path / "logs")
    inspect = str(Path(PYTHON).with_name("inspect"))
    dumped = subprocess.run([inspect, "log", "dump", first], capture_output=True, text=True, check=True)
    assert json.loads(dumped.stdout)["eval"]["task"] == "sums"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        inspect,
        "view",
        "start",
        "--log-dir",
        str(tmp_path / "logs"),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        listed = json.loads(_answer(f"http://127.0.0.1:{port}/api/logs"))
        assert {each["task"] for each in listed["files"]} == {"sums", "colours"}
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=20)


def _answer(url: str) -> bytes:
    for _ in range(60):
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                content: bytes = response.read()
                return content
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
    raise AssertionError(f"{url} does not answer")
