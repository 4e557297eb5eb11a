"""Programs that a model wrote: whether they pass, and that they can do no harm. Both ways to isolate are tried."""

import errno
import json
import os
import platform
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import run_world
from assay import ConfigError
from assay.groups.aggregators import pass_at_k
from assay.models import Scripted
from assay.scoring import sandbox
from assay.scoring.sandbox import Launcher, SandboxError, SandboxLimits, with_bubblewrap, with_unshare
from assay.scoring.sandboxed import system_call_filter
from assay.user_code import TIME_LIMIT
from run_world import failed_in
from serving import TALKING, Servers, fetched
from small_runs import generate, says, write_task
from small_runs import run as run_task

LAUNCHERS = {"bubblewrap": with_bubblewrap, "unshare": with_unshare}


def works(launcher: Launcher) -> bool:
    try:
        return sandbox._run(launcher, "", SandboxLimits())
    except (SandboxError, OSError, LookupError):
        return False


@pytest.fixture(params=LAUNCHERS, scope="module")
def launcher(request: pytest.FixtureRequest) -> Launcher:
    result = LAUNCHERS[request.param]
    if not works(result):
        pytest.skip(f"programs cannot be isolated by {request.param} on this machine")
    return result


ANY = pytest.mark.skipif(not any(map(works, LAUNCHERS.values())), reason="programs cannot be isolated on this machine")


def ran(launcher: Launcher, program: str, **limits: Any) -> bool:
    return sandbox._run(launcher, program, SandboxLimits(**{"seconds": 20.0, **limits}))


# --- what counts as passed ------------------------------------------------------------------------------------------

ADD = "def add(a, b):\n    return a + b\n"
PROGRAMS = {
    "tests that hold": (ADD + "assert add(2, 3) == 5", True),
    "a test that does not": (ADD + "assert add(2, 3) == 6", False),
    "nothing": ("", True),
    "an error": ("1 / 0", False),
    "no Python": ("this is not Python", False),
    "a letter that is not text": ("x = '\ud800'", False),
    "the end before the tests": ("import sys\nsys.exit(0)\nassert False", False),
    "the end at once": ("import os\nos._exit(0)", False),
    "what is printed does not matter": ("print('passed\\n' * 100000)", True),
    "nothing can be read": ("import sys\nassert sys.stdin.read() == ''", True),
    "the main part is run": ("assert __name__ == '__main__'", True),
    "installed libraries": ("import numpy\nassert numpy.ones(3).sum() == 3", True),
    "threads": ("import threading\nt = threading.Thread(target=list)\nt.start()\nt.join()", True),
    "writing a file": ("open('x', 'w').write('y')\nassert open('/tmp/x').read() == 'y'", True),
    "a million letters": ("x = '" + "a" * 1_000_000 + "'\nassert len(x) == 1000000", True),
}


@pytest.mark.process
@pytest.mark.parametrize("case", PROGRAMS)
def test_a_program_passes_when_it_reaches_its_end(case: str, launcher: Launcher) -> None:
    program, expected = PROGRAMS[case]
    assert ran(launcher, program) is expected


# --- what a program cannot do ---------------------------------------------------------------------------------------


def fails(launcher: Launcher, line: str, error: str, **limits: Any) -> bool:
    """Whether a line fails with this error, and with no other: a program that sees another does not pass."""
    lines = "\n    ".join(line.splitlines())
    return ran(launcher, f"try:\n    {lines}\nexcept {error}:\n    pass\nelse:\n    raise SystemExit", **limits)


@pytest.fixture
def server() -> Iterator[tuple[str, int]]:
    """A server of this machine that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        yield listening.getsockname()


def test_there_is_no_network(launcher: Launcher, server: tuple[str, int]) -> None:
    with socket.create_connection(server):
        pass
    assert fails(launcher, f"import socket\nsocket.create_connection({server!r}, timeout=2)", "OSError")
    assert fails(launcher, "import socket\nsocket.create_connection(('192.0.2.1', 80), timeout=2)", "OSError")
    assert ran(launcher, "import socket\nassert [name for _, name in socket.if_nameindex()] in (['lo'], [])")


@pytest.mark.process
def test_there_is_no_home_and_nothing_of_this_machine_but_python(launcher: Launcher, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    for path in (secret, Path.home() / ".bashrc", Path("/etc/passwd"), Path("/proc/self/environ"), Path("/sys")):
        assert fails(launcher, f"import os\nos.stat({str(path)!r})", "FileNotFoundError"), path
    with_home = f"import os\nhome = {str(Path.home())!r}\n"
    shown = {Path(path).relative_to(Path.home()).parts[0] for path in sandbox._shown() if Path(path).is_relative_to(Path.home())}  # fmt: skip
    assert ran(launcher, with_home + f"assert not os.path.exists(home) or set(os.listdir(home)) <= {shown!r}")


@pytest.mark.process
def test_the_environment_is_empty(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "s")
    assert ran(launcher, "import os\nassert dict(os.environ) == {}")


@pytest.mark.process
def test_the_name_of_this_machine_is_not_shown(launcher: Launcher) -> None:
    assert ran(launcher, "import os\nassert os.uname().nodename == 'sandbox'")


@pytest.mark.process
def test_nothing_can_be_written_but_a_little_in_its_own_folder(launcher: Launcher) -> None:
    for path in ("/x", "/usr/lib/x", "/dev/x", "/lib/x"):
        assert fails(launcher, f"open({path!r}, 'w')", "OSError"), path
    python = sandbox._shown()[-1] + "/x"
    assert fails(launcher, f"open({python!r}, 'w')", "OSError")
    assert fails(launcher, "open('x', 'wb').write(bytes(2 << 20))", "OSError", file_size=1)
    many = "for n in range(5):\n    open(f'x{n}', 'wb').write(bytes(1 << 20))"
    assert fails(launcher, many, "OSError", file_size=2)


@pytest.mark.process
def test_it_runs_as_an_unprivileged_user_and_cannot_become_another(launcher: Launcher) -> None:
    assert ran(launcher, "import os\nassert os.getuid() == os.getgid() == 65534")
    for line in ("os.setuid(0)", "os.chroot('/tmp')", "os.setgroups([])"):
        assert fails(launcher, f"import os\n{line}", "OSError"), line
    call = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    new_user_namespace = call + "assert libc.unshare(0x10000000) == -1\nassert ctypes.get_errno() == 1"
    assert ran(launcher, new_user_namespace)
    assert ran(launcher, call + "assert libc.mount(b'x', b'/tmp', b'tmpfs', 0, None) == -1")


@pytest.mark.process
def test_memory_is_limited(launcher: Launcher) -> None:
    assert fails(launcher, "x = bytearray(300 << 20)", "MemoryError", memory=200)
    assert ran(launcher, "x = bytearray(300 << 20)", memory=500)
    shared = "import ctypes\nassert ctypes.CDLL(None).shmget(0, 1 << 20, 0o1666) == -1"
    assert ran(launcher, shared), "memory that no limit of the process counts"


@pytest.mark.process
def test_no_process_can_be_started(launcher: Launcher) -> None:
    for line in ("import os\nos.fork()", "import subprocess, sys\nsubprocess.run([sys.executable])"):
        assert fails(launcher, line, "PermissionError"), line
    assert fails(launcher, "import os, sys\nos.posix_spawn(sys.executable, ['x'], {})", "OSError")


OF_OTHERS = {
    "the memory of another process": {"x86_64": (310, 311), "aarch64": (270, 271)},
    "a comparison with another process": {"x86_64": (312,), "aarch64": (272,)},
    "a handle of another process": {"x86_64": (434, 438), "aarch64": (434, 438)},
    "hints about the memory of another process": {"x86_64": (440, 448), "aarch64": (440, 448)},
}


@pytest.mark.process
@pytest.mark.parametrize("case", OF_OTHERS)
def test_other_processes_cannot_be_reached(case: str, launcher: Launcher) -> None:
    """The first process of bubblewrap has no limits and no filter, and its memory could be written to."""
    calls = OF_OTHERS[case][platform.machine()]
    refused = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n" + "".join(
        f"assert libc.syscall({call}, 1, 0, 0, 0, 0, 0) == -1\nassert ctypes.get_errno() == 1\n" for call in calls
    )
    assert ran(launcher, refused)


@pytest.mark.process
def test_sockets_lead_nowhere_but_into_the_sandbox(launcher: Launcher) -> None:
    """AF_VSOCK leads to the host of a virtual machine, in spite of the namespace of the network."""
    for family in (40, 38, 17, 31):  # virtual machine, cryptography, packets, Bluetooth
        assert fails(launcher, f"import socket\nsocket.socket({family}, socket.SOCK_STREAM)", "PermissionError"), family
    assert ran(launcher, "import socket\nfor family in (1, 2):\n    socket.socket(family, socket.SOCK_STREAM).close()")
    assert ran(launcher, "import asyncio\nasyncio.run(asyncio.sleep(0))\nimport socket\nsocket.socketpair()")


ENDLESS = {
    "a loop": "while True: pass",
    "a sleep": "import time\ntime.sleep(1000)",
    "a loop that minds nothing": "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "a bomb of processes": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "a bomb of threads": "import threading, time\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(1000,)).start()\n    except RuntimeError: pass",
    "a flood of words": "import os\nwhile True: os.write(1, b'x' * 65536)",
    "a flood of the report": "import os\nwhile True:\n    for file in range(3, 10):\n        try: os.write(file, b'x' * 65536)\n        except OSError: pass",
    "threads that stay": "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()\nraise ValueError",
}  # fmt: skip


@pytest.mark.parametrize("case", ENDLESS)
def test_a_program_without_end_is_ended_and_nothing_of_it_stays(case: str, launcher: Launcher) -> None:
    start = time.monotonic()
    assert ran(launcher, ENDLESS[case], seconds=1.0) is False
    assert time.monotonic() - start < 1.0 + sandbox.START_SECONDS
    end = time.monotonic() + 10
    while left := children():
        assert time.monotonic() < end, left
        time.sleep(0.05)


def children() -> list[str]:
    """The processes below this one that belong to a sandbox."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()[1:]]
    mine = {str(os.getpid())}
    while more := {row[0] for row in rows if row[1] in mine} - mine:
        mine |= more
    return [row[2] for row in rows if row[0] in mine and "Runs inside the sandbox" in row[2]]


@pytest.mark.process
def test_a_sandbox_that_does_not_start_is_not_a_failed_program() -> None:
    with pytest.raises(SandboxError, match="did not start"):
        sandbox._run(lambda limits, folder: ["/bin/sh", "-c", "echo no room >&2; exit 1"], "", SandboxLimits())


# --- programs that send signals -------------------------------------------------------------------------------------

SIGNALS = "import os, signal, ctypes, time\nlibc = ctypes.CDLL(None, use_errno=True)\n"
HARMFUL = {
    "its group is killed": "os.kill(0, 9)",
    "its group is ended": "os.killpg(0, 15)",
    "its group is interrupted": "os.kill(0, 2)",
    "its group is hung up": "signal.signal(1, signal.SIG_IGN)\nos.kill(0, 1)",
    "its group is ended, itself excepted": "signal.signal(15, signal.SIG_IGN)\nos.killpg(0, 15)",
    "its group is stopped": "os.kill(0, signal.SIGSTOP)",
    "its group by number": "os.killpg(os.getpgrp(), 9)",
    "its parent is killed": "os.kill(os.getppid(), 9)",
    "its parent is stopped": "os.kill(os.getppid(), signal.SIGSTOP)",
    "its parent's group is killed": "os.killpg(os.getpgid(os.getppid()), 9)",
    "everybody is killed": "os.kill(-1, 9)",
    "the first process is killed": "os.kill(1, 9)",
    "the first process is interrupted": "os.kill(1, 2)",
    "itself is killed": "os.kill(os.getpid(), 9)",
    "itself is ended": "os.kill(os.getpid(), 15)",
    "itself is stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "an alarm without a handler": "signal.alarm(1)\ntime.sleep(10)",
    "a thread of another process": "assert libc.syscall(234, 1, 1, 9) == 0",
    "a signal in a queue": "assert libc.sigqueue(1, 2, None) == 0",
    "a separate session and then its group": "os.setsid()\nos.kill(0, 9)",
    "the group of its parent joined": "os.setpgid(0, os.getppid())\nos.kill(0, 9)",
    "all files closed": "os.closerange(0, 1000)",
    "a child that would survive": "os.fork() or (os.setsid(), time.sleep(60))",
    "not to be ended with its parent": "libc.prctl(1, 0)\nos.kill(0, 9)\n",
    "not to be ended with its parent, and then no end": "libc.prctl(1, 0)\nwhile True: pass",
    "a separate session, and then no end": "try: os.setsid()\nexcept OSError: pass\nlibc.prctl(1, 0)\nos.closerange(0, 1000)\nwhile True: time.sleep(1)",
}  # fmt: skip
HARMLESS = """
for number in (1, 2, 3, 9, 15, 19, 20, 23):
    for process in (0, 1, -1, -2, os.getppid(), -os.getppid(), 2, 3, 4, 5, 100):
        if abs(process) != os.getpid():
            try: os.kill(process, number)
            except OSError: pass
"""

BYSTANDERS = """
import ctypes, json, os, subprocess, sys, time
from pathlib import Path
from assay.scoring import sandbox

def below(parents):
    "The processes below these, without those that have ended."
    rows = [text.rpartition(")")[2].split() + [name] for name, text in stats()]
    while more := {row[-1] for row in rows if row[1] in parents and row[0] != "Z"} - parents:
        parents = parents | more
    return parents

def stats():
    for path in Path("/proc").glob("[0-9]*/stat"):
        try: yield path.parent.name, path.read_text()
        except OSError: continue  # it has ended meanwhile

ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # what is left behind becomes a child of this process
other = subprocess.Popen(["sleep", "100"])
launcher, program, seconds = getattr(sandbox, sys.argv[1]), sys.argv[2], float(sys.argv[3])
try:
    passed = sandbox._run(launcher, program, sandbox.SandboxLimits(seconds))
    again = sandbox._run(launcher, "assert 1 + 1 == 2", sandbox.SandboxLimits(20.0))
    end = time.monotonic() + 10
    while (left := below({str(os.getpid())}) - {str(os.getpid()), str(other.pid)}) and time.monotonic() < end:
        time.sleep(0.05)
    state = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[0]
    print(json.dumps({"passed": passed, "again": again, "left": sorted(left), "other": state}))
finally:
    other.kill()
"""


def evaluated(launcher: Launcher, program: str, seconds: float = 2.0) -> dict[str, Any]:
    """The result of a program for an evaluator in a separate session, with another process in its group.

    A program that gets out ends them, and not this test.
    """
    command = [sys.executable, "-c", BYSTANDERS, launcher.__name__, program, str(seconds)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=90, start_new_session=True)
    assert ended.returncode == 0, (ended.returncode, ended.stderr)
    return dict(json.loads(ended.stdout))


@pytest.mark.parametrize("case", HARMFUL)
def test_a_program_that_sends_signals_harms_itself_only(case: str, launcher: Launcher) -> None:
    expected = {"passed": False, "again": True, "left": [], "other": "S"}
    assert evaluated(launcher, f"{SIGNALS}{HARMFUL[case]}\nassert True\n") == expected


def test_a_program_whose_signals_reach_no_process_is_judged_by_its_tests(launcher: Launcher) -> None:
    right, wrong = SIGNALS + HARMLESS + "assert True\n", SIGNALS + HARMLESS + "assert False\n"
    assert evaluated(launcher, right, 20.0) == {"passed": True, "again": True, "left": [], "other": "S"}
    assert evaluated(launcher, wrong, 20.0) == {"passed": False, "again": True, "left": [], "other": "S"}


@pytest.mark.process
def test_a_program_may_send_signals_to_itself(launcher: Launcher) -> None:
    handled = "seen = []\nsignal.signal(10, lambda *_: seen.append(1))\n"
    for line in ("os.kill(os.getpid(), 10)", "signal.raise_signal(10)", "signal.setitimer(0, 0.1)\nsignal.signal(14, lambda *_: seen.append(1))\ntime.sleep(1)"):  # fmt: skip
        assert ran(launcher, SIGNALS + handled + line + "\nassert seen == [1]"), line


@pytest.mark.process
def test_a_program_that_is_stopped_costs_its_time_and_no_more(launcher: Launcher) -> None:
    start = time.monotonic()
    assert ran(launcher, SIGNALS + "os.kill(os.getpid(), signal.SIGSTOP)", seconds=1.0) is False
    assert time.monotonic() - start < 1.0 + sandbox.START_SECONDS


# --- as a metric ----------------------------------------------------------------------------------------------------

TESTS = "assert add(2, 3) == 5\nassert add(-1, 1) == 0"
METRIC = "metric_list: [{metric: code_exec, timeout: 2}]\n"


@pytest.mark.process
@ANY
def test_answers_are_run_with_their_tests(tmp_path: Path) -> None:
    answers = [ADD, "def add(a, b):\n    return 5", "while True: pass", "not Python"]
    results = generate(tmp_path, answers, [TESTS] * 4, METRIC, confirm_run_unsafe_code=True)
    assert results["results"]["t"]["code_exec,none"] == 0.25
    assert failed_in(results) == 0


@pytest.mark.process
@ANY
def test_every_one_of_several_tests_must_hold(tmp_path: Path) -> None:
    golds = [TESTS.splitlines(), ["assert add(2, 3) == 5", "assert add(2, 3) == 6"]]
    results = generate(tmp_path, [ADD, ADD], golds, METRIC, confirm_run_unsafe_code=True)
    assert results["results"]["t"]["code_exec,none"] == 0.5


@pytest.mark.process
@ANY
def test_a_document_whose_sandbox_does_not_start_is_failed_and_not_wrong(tmp_path: Path) -> None:
    """A limit that the kernel cannot count to stops our own part before the program."""
    yaml = "metric_list: [{metric: code_exec, memory_mb: 1000000000000000}]\n"
    results = generate(tmp_path, [ADD], [TESTS], yaml, confirm_run_unsafe_code=True)
    assert "code_exec,none" not in results["results"]["t"]
    assert "the sandbox did not start" in str(results["assay"]["tasks"]["t"]["reasons"])


@pytest.mark.process
@ANY
def test_time_in_the_sandbox_is_not_taken_from_the_document(tmp_path: Path) -> None:
    """A document may be scored for ten seconds; a program that is given longer is waited for."""
    yaml = f"metric_list: [{{metric: code_exec, timeout: {TIME_LIMIT + 5}}}]\n"
    answer = f"import time\ntime.sleep({TIME_LIMIT + 0.5})"
    results = generate(tmp_path, [answer], [""], yaml, confirm_run_unsafe_code=True)
    assert (results["results"]["t"]["code_exec,none"], failed_in(results)) == (1.0, 0)


PROGRAMS_OF = {"with_bubblewrap": ("bwrap",), "with_unshare": ("unshare", "setpriv", "sh", "mount", "mkdir")}


def test_a_run_with_harmful_answers_finishes_and_can_be_resumed(tmp_path: Path, launcher: Launcher) -> None:
    """Of four answers one is right. The command is given twice: the second time all answers are known."""
    answers = [ADD, "import os\nos.kill(0, 9)", "import os\nos.kill(os.getppid(), 9)", "import os\nos.killpg(0, 15)"]
    rows = [{"q": json.dumps({"say": answer}), "gold": TESTS} for answer in answers]
    write_task(tmp_path, rows, "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n" + METRIC)
    (tmp_path / "bin").mkdir()
    for program in PROGRAMS_OF[launcher.__name__]:
        (tmp_path / "bin" / program).symlink_to(shutil.which(program) or "")
    servers = Servers()
    try:
        url = servers(script=TALKING)
        model = f"base_url={url},model=m"
        command = [sys.executable, "-m", "assay", "run", "--model", "openai-chat", "--model_args", model, "--tasks", "t", "--include_path", str(tmp_path), "--apply_chat_template", "--confirm_run_unsafe_code", "--output_path", str(tmp_path / "out")]  # fmt: skip
        for _ in range(2):
            ended = subprocess.run(command, env={**os.environ, "PATH": str(tmp_path / "bin")}, capture_output=True, text=True, timeout=120, start_new_session=True)  # fmt: skip
            assert ended.returncode == 0, (ended.returncode, ended.stdout, ended.stderr)
            results = run_world.results(tmp_path / "out")
            assert (results["results"]["t"]["code_exec,none"], failed_in(results)) == (0.25, 0)
            (tmp_path / "out" / "results.json").unlink()
        assert sum("say" in str(each["body"]["messages"]) for each in fetched(url, "/log")) == 4, (
            "one request an answer"
        )
    finally:
        servers.end()


@pytest.mark.parametrize("where", ["task", "filter"])
def test_code_is_run_only_when_that_was_asked_for(where: str, tmp_path: Path) -> None:
    of_filter = f"filter_list: [{{name: f, filter: [{{function: take_first}}], {METRIC.strip()}}}]\n"
    with pytest.raises(ConfigError, match="confirm_run_unsafe_code"):
        generate(tmp_path, [ADD], [TESTS], METRIC if where == "task" else of_filter)


def test_where_nothing_isolates_the_run_is_refused_before_any_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # neither bwrap nor unshare are found
    sandbox._launcher.cache_clear()
    asked: list[str] = []
    write_task(tmp_path, [{"q": "0", "gold": TESTS}], "doc_to_text: q\ndoc_to_target: gold\n" + METRIC)

    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        asked.append(prompt)
        return ADD

    try:
        with pytest.raises(ConfigError, match="cannot work here: programs can be isolated neither"):
            run_task(tmp_path, Scripted(generate=answer), confirm_run_unsafe_code=True)
    finally:
        sandbox._launcher.cache_clear()
    assert asked == []


HUMANEVAL = """
    unsafe_code: true
    repeats: 3
    generation_kwargs: {do_sample: true, temperature: 1.0, until: []}
    filter_list:
      - name: create_test
        filter: [{function: custom, filter_fn: !function utils.build_predictions}]
    metric_list: [{metric: !function utils.pass_at_k, aggregation: mean, k: [1, 2]}]
"""


@ANY
def test_lm_evals_own_code_tasks_run_in_the_sandbox(tmp_path: Path, lm_eval_folder: Path) -> None:
    """Of 3 programs 1 is right: 1/3 for one draw, 1 - 1/3 for two. Of 3 none: 0."""
    shutil.copy(lm_eval_folder / "lm_eval/tasks/humaneval/utils.py", tmp_path)
    rows = [{"prompt": "def add(a, b):\n", "number": n, "gold": "assert add(2, 3) == 5"} for n in range(2)]
    fields = 'doc_to_text: "{{number}}"\ndoc_to_target: gold\n'
    write_task(tmp_path, rows, fields + dedent(HUMANEVAL))
    right, wrong, endless = "    return a + b", "    return a * b", "    while True: pass"
    model = says([[wrong, right, wrong], [wrong, wrong, endless]])
    with pytest.raises(ConfigError, match="confirm_run_unsafe_code"):
        run_task(tmp_path, model)
    row = run_task(tmp_path, model, confirm_run_unsafe_code=True)["results"]["t"]
    assert row["pass@1,create_test"] == pytest.approx(1 / 6)
    assert row["pass@2,create_test"] == pytest.approx(1 / 3)


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_draws_with_a_right_program(case: tuple[int, int, int]) -> None:
    n, right, k = case
    draws = list(combinations([True] * right + [False] * (n - right), k))
    assert pass_at_k(n, right, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.process
@ANY
def test_programs_run_from_other_threads_too() -> None:
    collected: list[bool] = []
    thread = threading.Thread(target=lambda: collected.append(sandbox.passes("assert True", SandboxLimits())))
    thread.start()
    thread.join()
    assert collected == [True]


# --- the filter of system calls, by an interpreter of its rules and the numbers of the kernel's own headers ---------------

HEADERS = {
    "x86_64": (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), 0xC000003E),
    "aarch64": (Path("/usr/include/asm-generic/unistd.h"), 0xC00000B7),
}
FORBIDDEN = (
    "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "ptrace", "bpf", "userfaultfd", "keyctl", "add_key",
    "request_key", "perf_event_open", "memfd_create", "shmget", "msgget", "mq_open", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "open_tree", "move_mount", "fsopen", "mount_setattr", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
    "pidfd_send_signal", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_open", "pidfd_getfd", "process_madvise",
    "process_mrelease",
)  # fmt: skip
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000


def decided(rules: bytes, machine: int, call: int, argument: int = 0) -> int:
    """What the kernel does with a call: its number is at 0 of what a filter sees, the machine at 4, the first argument at 16."""
    program = list(struct.iter_unpack("HBBI", rules))
    seen, value, at = {0: call, 4: machine, 16: argument}, 0, 0
    while True:
        kind, if_true, if_false, operand = program[at]
        at += 1
        if kind == 0x20:
            value = seen[operand]
        elif kind == 0x06:
            return operand
        else:
            is_true = {0x15: value == operand, 0x35: value >= operand, 0x45: value & operand != 0}[kind]
            at += if_true if is_true else if_false


@pytest.mark.parametrize("machine", HEADERS)
def test_the_kernel_is_told_to_refuse_processes_signals_to_others_and_what_helps_to_break_out(machine: str) -> None:
    header, number = HEADERS[machine]
    if not header.is_file():
        pytest.skip("the kernel's headers are not installed")
    calls = {name: int(at) for name, at in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())}
    rules = system_call_filter(machine, process=4242)

    def of(name: str, argument: int = 0) -> int:
        return decided(rules, number, calls[name], argument)

    refused, missing = REFUSE | errno.EPERM, REFUSE | errno.ENOSYS
    forbidden = {*FORBIDDEN, *({"fork", "vfork"} & calls.keys())}
    others = calls.keys() - forbidden - {"kill", "tkill", "tgkill", "clone", "clone3", "socket"}
    assert {name for name in forbidden if of(name) != refused} == set()
    assert {name for name in others if calls[name] < 450 and of(name) != ALLOW} == set()
    for name in ("kill", "tkill", "tgkill"):
        assert [of(name, process) for process in (4242, 4241, 1)] == [ALLOW, refused, refused]
    assert (of("clone", 0x10000), of("clone", 0x3D0F00), of("clone", 17), of("clone3")) == (
        ALLOW,
        ALLOW,
        refused,
        missing,
    )
    families = {"local": 1, "IPv4": 2, "IPv6": 10, "netlink": 16, "packet": 17, "virtual machines": 40}
    assert [name for name, family in families.items() if of("socket", family) == ALLOW] == [*families][:4]
    assert decided(rules, number, calls["read"] | 0x40000000) == refused, "of the 32 bits of x86"
    assert decided(rules, 0x40000003, calls["read"]) == KILL, "another machine has other numbers"
