"""Kills a run at random moments, runs it again, and counts what was lost or doubled."""

import json
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.environments import HOME, assay_python, bare_environment
from bench.measure import Said

TASKS = ("first_steps_larger", "first_steps_stories", "first_steps_sums")
KILLS = 20
SEED = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """One kill: responses that were journaled and are missing, or were never asked; duplicate keys; equal results."""

    journaled: int
    lost: int
    doubled: int
    is_equal: bool


def rows() -> Iterator[Said]:
    with tempfile.TemporaryDirectory() as folder:
        outcomes = list(kills(Path(folder)))
    lost, doubled = sum(one.lost for one in outcomes), sum(one.doubled for one in outcomes)
    equal, at_work = sum(one.is_equal for one in outcomes), sum(one.journaled > 0 for one in outcomes)
    result = (
        f"{lost} lost, {doubled} doubled, {equal} of {KILLS} results equal ({at_work} killed with responses journaled)"
    )
    yield Said(f"kill -9 at {KILLS} random moments, then resume", result, "0 lost, 0 doubled, same results")


def kills(folder: Path) -> Iterator[Outcome]:
    whole, draw = folder / "whole", random.Random(SEED)
    if _started(whole).wait():  # the first run of all fills the caches
        raise RuntimeError("`assay run` does not work here")
    shutil.rmtree(whole)
    first, last = _timed(whole)
    for number in range(KILLS):
        yield _killed(whole, folder / str(number), draw.uniform(0.9 * first, last))


def _timed(output: Path) -> tuple[float, float]:
    """When an undisturbed run writes its first response, and when it ends: a kill before that proves little."""
    begin, process, first = time.monotonic(), _started(output), 0.0
    while process.poll() is None:
        if not first and _lines(output):
            first = time.monotonic() - begin
        time.sleep(0.005)
    if process.returncode:
        raise RuntimeError("the undisturbed run failed")
    return first, time.monotonic() - begin


def _killed(whole: Path, output: Path, moment: float) -> Outcome:
    """What came of a run that was killed after so many seconds and run again."""
    process = _started(output)
    time.sleep(moment)
    process.kill()
    process.wait()
    known = _lines(output)
    if _started(output).wait():
        raise RuntimeError(f"the run killed after {moment:.2f} s cannot be resumed")
    lines = _lines(output)
    keys = Counter(json.loads(line)["k"] for line in lines)
    expected = {json.loads(line)["k"] for line in _lines(whole)}
    lost = len(set(known) - set(lines)) + len(expected - set(keys))
    return Outcome(len(known), lost, sum(keys.values()) - len(keys), _result(output) == _result(whole))


def _started(output: Path) -> "subprocess.Popen[bytes]":
    command = [str(python()), "-m", "assay", "run", "--tasks", *TASKS, "--log_samples", "--output_path", str(output)]
    environment = {**bare_environment(), "OPENBLAS_NUM_THREADS": "1"}  # threads that wait for each other take minutes
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@cache
def python() -> Path:
    """The one that the other parts of `python -m bench` have made, or a new one."""
    built = HOME / "assay/bin/python"
    return built if built.exists() else assay_python()


def _lines(output: Path) -> list[bytes]:
    """The whole lines of the journal behind its header."""
    path = output / "responses.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [line for line in lines[1:] if line.endswith(b"\n")]


def _result(output: Path) -> dict[str, bytes]:
    """The outcome of a run: results.json but for its times, and the samples."""
    text = re.sub(
        rb'"(date|start_time|end_time|total_evaluation_time_seconds|crc32)": "?[0-9a-f.]+',
        b"",
        (output / "results.json").read_bytes(),
    )
    samples = {str(path.relative_to(output)): path.read_bytes() for path in output.glob("samples*/*")}
    logged = {path.name: path.read_bytes() for path in output.glob("samples_*.jsonl")}
    return {"results.json": text, **samples, **logged}
