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

import run_world
from assay.runs.run import Run
from run_world import finish, start
from serving import Arrived, loopback
from small_runs import write_task
from test_malformed_answers import TASK, WHOLE

ANSWERED, DOCUMENTS = 6, 10
LM_EVAL = Path(__file__).parent.parent / "packages/assay-lm-eval/src"


def until(condition: Callable[[], bool], process: "subprocess.Popen[str]", seconds: float = 300) -> None:
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
        said = "".join(process.communicate(timeout=120))
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
    assert f"at least {DOCUMENTS} answered" in said  # the four were asked twice
    assert Run.open(tmp_path / "run").usage["at_least"]
    results = run_world.results(tmp_path / "run")
    assert results["results"]["t"]["exact_match,none"] == 1.0


SLOW = """
import argparse, sys, time
from assay import cli
def work(options):
    try:
        print("at work", flush=True)
        time.sleep(600)
    finally:
        print("cleaning up", flush=True)
        time.sleep(600)
sys.exit(cli._run(argparse.Namespace(run=work)))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_prints_one_line_and_ends_at_once(number: int, code: int, tmp_path: Path) -> None:
    process = start("-c", SLOW, cwd=tmp_path)
    assert process.stdout is not None
    for words in ("at work\n", "cleaning up\n"):
        assert process.stdout.readline() == words
        process.send_signal(number)
    _, said = process.communicate(timeout=120)
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


SIGNALLED = """
import os, signal, sys

class Attribute:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), {number})
        for _ in range(1000):
            pass

def in_a_class():
    type("Owner", (), dict(attribute=Attribute()))

def as_an_import_error():
    try:
        in_a_class()
    except BaseException:
        raise ImportError("no such library")

def as_an_exit():
    try:
        in_a_class()
    except BaseException:
        sys.exit(1)

def not_at_all():
    try:
        in_a_class()
    except BaseException:
        pass

class Finder:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            sys.meta_path.remove(self)
            {turn}()
"""
STARTED = (
    SIGNALLED
    + """
sys.meta_path.insert(0, Finder())
from {program}
"""
)
ASSAY_MAIN, LM_EVAL_MAIN = (
    "assay.cli import main; sys.exit(main())",
    "lm_eval.__main__ import cli_evaluate; cli_evaluate()",
)


@pytest.mark.parametrize(
    ("program", "module", "turn", "number"),
    [
        (ASSAY_MAIN, "assay.cli.flags", "in_a_class", signal.SIGTERM), (ASSAY_MAIN, "assay.cli.flags", "in_a_class", signal.SIGINT),
        (ASSAY_MAIN, "assay.cli.ls", "as_an_import_error", signal.SIGTERM), (ASSAY_MAIN, "assay.cli.view", "as_an_exit", signal.SIGTERM),
        (ASSAY_MAIN, "assay.cli.compare", "not_at_all", signal.SIGTERM), (ASSAY_MAIN, "assay.catalog.index", "in_a_class", signal.SIGTERM),
        (LM_EVAL_MAIN, "lm_eval._cli", "in_a_class", signal.SIGTERM),
        (LM_EVAL_MAIN, "assay.cli.flags", "as_an_import_error", signal.SIGINT),
    ],
    ids=str,
)  # fmt: skip
def test_a_signal_while_a_command_is_imported_is_its_exit_code_whatever_becomes_of_the_interrupt(
    program: str, module: str, turn: str, number: signal.Signals, tmp_path: Path
) -> None:
    code = STARTED.format(program=program, module=module, turn=turn, number=int(number))
    commands = {
        "assay.cli.view": ["view", "--port", "0"],
        "assay.cli.compare": ["compare", "one", "two"],
        "assay.cli.flags": ["run", "--tasks"],
    }
    process = start("-c", code, *commands.get(module, ["ls"]), cwd=tmp_path, PYTHONPATH=str(LM_EVAL))
    said = "".join(process.communicate(timeout=60))
    assert (process.returncode, "Traceback" in said) == (128 + number, False), said


def test_a_signal_while_a_plug_in_is_imported_is_the_exit_code_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        SIGNALLED.format(number=int(signal.SIGTERM), module="", turn="not_at_all") + "in_a_class()\n"
    )
    process = start("-m", "assay", "ls", "--plugin", tmp_path / "slow.py", cwd=tmp_path)
    assert "".join(process.communicate(timeout=60)) == ""
    assert process.returncode == 143


def test_a_signal_that_a_destructor_swallows_stops_the_command_all_the_same(tmp_path: Path) -> None:
    code = (
        "import argparse, os, signal, sys, time; from assay import cli\n"
        "class Resource:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        time.sleep(0.2)\n"
        "def work(_):\n"
        "    Resource()\n"
        "    time.sleep(600)\n"
        "sys.exit(cli._run(argparse.Namespace(run=work)))\n"
    )
    process = start("-c", code, cwd=tmp_path)
    assert "".join(process.communicate(timeout=120)) == ""
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
        "def slow(references, predictions):\n    Path('begun').touch()\n    time.sleep(600)\n    return 1.0\n"
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
    said = "".join(process.communicate(timeout=120))
    assert (process.returncode, "Traceback" in said) == (143, False), said
    assert list((tmp_path / "run/scored").iterdir()) == []
