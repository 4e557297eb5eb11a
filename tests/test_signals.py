"""Signals to real processes: SIGTERM stops a run as Ctrl-C does, a second signal ends it at once, and nothing answered is lost."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from run_world import finish, start
from serving import Arrived, loopback
from small_runs import write_task
from test_malformed_answers import TASK, WHOLE

ANSWERED, DOCUMENTS = 6, 10


def until(condition: Callable[[], bool], process: "subprocess.Popen[str]", seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


def command(folder: Path, url: str) -> list[object]:
    return [
        "-m", "assay", "run", "--tasks", "t", "--include_path", folder, "--no_defaults", "--model", "openai",
        "--model_args", f"model=m,base_url={url},num_concurrent=16", "-o", folder / "run",
    ]  # fmt: skip


class Halting:
    """A server that answers some documents at once, and the others when it is let go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = threading.Event()

    def __call__(self, arrived: Arrived) -> Any:
        prompt = json.loads(arrived.body or b"{}").get("prompt", "")
        if prompt.isdigit():
            self.asked.append(prompt)
            if int(prompt) >= ANSWERED:
                self.go.wait(60)
        return WHOLE


def journaled(folder: Path) -> int:
    path = folder / "run/responses.jsonl"
    return path.read_bytes().count(b"\n") - 1 if path.exists() else 0


@pytest.mark.parametrize(
    ("signals", "pause", "code"),
    [
        ([signal.SIGTERM], 0.0, 143), ([signal.SIGINT], 0.0, 130), ([signal.SIGINT] * 2, 0.0, 130),
        ([signal.SIGTERM] * 3, 0.03, 143), ([signal.SIGINT] * 4, 0.03, 130),
    ],
    ids=str,
)  # fmt: skip
def test_an_interrupted_run_is_resumed_without_a_second_request(
    signals: list[int], pause: float, code: int, tmp_path: Path
) -> None:
    write_task(tmp_path, [{"q": f"{n}", "gold": "x"} for n in range(DOCUMENTS)], TASK)
    server = Halting()
    with loopback(server) as (url, _):
        process = start(*command(tmp_path, url), cwd=tmp_path)
        until(lambda: journaled(tmp_path) == ANSWERED and len(server.asked) == DOCUMENTS, process)
        for number in signals:
            if process.poll() is None:
                process.send_signal(number)
                time.sleep(pause)
        said = "".join(process.communicate(timeout=30))
        assert (process.returncode, "Traceback" in said) == (code, False), said
        assert journaled(tmp_path) == ANSWERED
        status = json.loads((tmp_path / "run/manifest.json").read_text())["status"]
        if len(signals) == 1:
            assert status == "interrupted"
            assert "resume with: assay run" in said
        server.go.set()
        before = len(server.asked)
        again = start(*command(tmp_path, url), cwd=tmp_path)
        said = "".join(again.communicate(timeout=60))
        assert again.returncode == 0, said
    assert sorted(server.asked[before:]) == ["6", "7", "8", "9"]
    results = json.loads((tmp_path / "run/results.json").read_text())
    assert results["results"]["t"]["exact_match,none"] == 1.0


SLOW = """
import argparse, sys, time
from assay import cli
def work(options):
    try:
        print("at work", flush=True)
        time.sleep(60)
    finally:
        print("cleaning up", flush=True)
        time.sleep(60)
sys.exit(cli._run(argparse.Namespace(run=work)))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_prints_one_line_and_ends_at_once(number: int, code: int, tmp_path: Path) -> None:
    process = start("-c", SLOW, cwd=tmp_path)
    assert process.stdout is not None
    for words in ("at work\n", "cleaning up\n"):
        assert process.stdout.readline() == words
        process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said.strip()) == (code, "ended at once; what was answered is kept")


def test_ctrl_c_while_a_command_is_imported_prints_no_traceback(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'assay.cli.flags':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from assay.cli import main\n"
        "sys.exit(main(['run', '--tasks', 'x']))\n"
    )
    process = start("-c", code, cwd=tmp_path)
    assert "".join(process.communicate(timeout=60)) == ""
    assert process.returncode == 130


def test_a_signal_that_a_destructor_swallows_stops_the_command_all_the_same(tmp_path: Path) -> None:
    code = (
        "import argparse, os, signal, sys, time; from assay import cli\n"
        "class Resource:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        time.sleep(0.2)\n"
        "def work(_):\n"
        "    Resource()\n"
        "    time.sleep(50)\n"
        "sys.exit(cli._run(argparse.Namespace(run=work)))\n"
    )
    process = start("-c", code, cwd=tmp_path)
    assert "".join(process.communicate(timeout=40)) == ""
    assert process.returncode == 143


def test_ignored_signals_stay_ignored(tmp_path: Path) -> None:
    code = (
        "import argparse, os, signal, sys; from assay import cli\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "sys.exit(cli._run(argparse.Namespace(run=lambda _: os.kill(os.getpid(), signal.SIGINT) or 7)))\n"
    )
    assert finish("-c", code, cwd=tmp_path) == 7


def test_handlers_are_restored_and_forked_processes_end_by_the_signal(tmp_path: Path) -> None:
    code = (
        "import argparse, os, signal, sys, time; from assay import cli\n"
        "def work(_):\n"
        "    ready, begun = os.pipe()\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        os.write(begun, b'x')\n"
        "        time.sleep(60)\n"
        "    os.read(ready, 1)\n"
        "    os.kill(child, signal.SIGTERM)\n"
        "    assert os.waitpid(child, 0)[1] == signal.SIGTERM\n"
        "    return 7\n"
        "assert cli._run(argparse.Namespace(run=work)) == 7\n"
        "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\n"
        "assert signal.getsignal(signal.SIGINT) == signal.default_int_handler\n"
    )
    process = start("-c", code, cwd=tmp_path)
    said = process.communicate(timeout=60)
    assert process.returncode == 0, said


def test_a_stopped_scoring_leaves_nothing(tmp_path: Path) -> None:
    write_task(tmp_path, [{"q": f"{n}", "gold": "x"} for n in range(3)], TASK)
    (tmp_path / "slow.py").write_text(
        "import time\nfrom pathlib import Path\nimport assay\n"
        "@assay.metric('slow', aggregation='mean', higher_is_better=True)\n"
        "def slow(references, predictions):\n    Path('begun').touch()\n    time.sleep(60)\n    return 1.0\n"
    )
    with loopback(lambda _: WHOLE) as (url, _):
        assert finish(*command(tmp_path, url), cwd=tmp_path) == 0
    scoring = [
        "-m",
        "assay",
        "score",
        tmp_path / "run",
        "--include_path",
        tmp_path,
        "--metric",
        "slow",
        "--plugin",
        tmp_path / "slow.py",
    ]
    process = start(*scoring, cwd=tmp_path)
    until(lambda: (tmp_path / "begun").exists(), process)
    assert list((tmp_path / "run/scored").glob(".part-*"))
    process.send_signal(signal.SIGTERM)
    said = "".join(process.communicate(timeout=20))
    assert (process.returncode, "Traceback" in said) == (143, False), said
    assert list((tmp_path / "run/scored").iterdir()) == []
