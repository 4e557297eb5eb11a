"""Programs that a model wrote, run where they can do no harm: in separate namespaces, without network, home or
environment, with little memory and time and no processes. By bubblewrap, else by util-linux' `unshare`.

What is kept out is harm, not deceit: a program that wants to look as if it had passed its tests can.
"""

import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from assay.records import Answer
from assay.scoring.declarations import Metric
from assay.scoring.results import GENERATE, References
from assay.statistics.influence import SHARE
from assay.user_code import clock_stopped

START_SECONDS = 30.0
"""Time limit for the sandbox itself to be ready on a busy machine."""
UNPRIVILEGED = "65534"
SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
STARTED = b"started\n"


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Resources a program may use: seconds, and megabytes of memory and of every file."""

    seconds: float = 5.0
    memory: int = 1024
    file_size: int = 16


class SandboxError(RuntimeError):
    """The sandbox did not work, which says nothing about the program."""


def code_exec(references: References, prediction: Answer, *, timeout: float = 5.0, memory_mb: int = 1024) -> float:
    """Whether the answer runs to its end with the tests behind it. The references are the tests, all of them."""
    program = "\n\n".join([str(prediction), *map(str, references)]) + "\n"
    return float(passes(program, SandboxLimits(timeout, memory_mb)))


def passes(program: str, limits: SandboxLimits) -> bool:
    """Whether a Python program runs to its end, without an error and within its limits."""
    launcher = _launcher()
    if launcher is None:
        raise SandboxError("this machine has no isolation")
    return _run(launcher, program, limits)


def obstacle() -> tuple[str, str] | None:
    """Why programs cannot be run here, and what would help; None where they can."""
    if _launcher() is not None:
        return None
    what = "programs can be isolated neither by bubblewrap nor by user namespaces"
    return what, "install bubblewrap on a Linux machine that lets users make namespaces"


@cache
def _launcher() -> "Launcher | None":
    """The first way to start a sandbox that works here: found out by trying."""
    for launcher in (with_bubblewrap, with_unshare):
        with contextlib.suppress(SandboxError, OSError, LookupError):
            if _run(launcher, "", SandboxLimits()) and not _run(launcher, "raise ValueError", SandboxLimits()):
                return launcher
    return None


# --- what is shown of the machine -------------------------------------------------------------------------------------


def _interpreter() -> str:
    """The Python behind any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def _packages() -> list[str]:
    """The folders of installed libraries."""
    return list(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))


def _shown() -> list[str]:
    """The paths a Python needs, and nothing else of this machine; paths within another of these are left out."""
    needed = [*SYSTEM, _interpreter(), os.path.realpath(f"{sys.base_prefix}/lib"), *_packages()]
    there = sorted({path for path in needed if os.path.exists(path)})  # noqa: PTH110  # paths are arguments here
    return [path for path in there if not any(path.startswith(f"{other}/") for other in there)]


def _python() -> list[str]:
    inside = Path(__file__).with_name("sandboxed.py").read_text(encoding="utf-8")
    return [_interpreter(), "-I", "-S", "-B", "-c", inside]


# --- ways to start it -------------------------------------------------------------------------------------------------

Launcher = Callable[[SandboxLimits, str], list[str]]
"""The command that runs our part in a sandbox; it may use an empty folder."""


def with_bubblewrap(limits: SandboxLimits, folder: str) -> list[str]:  # noqa: ARG001  # the shape of a launcher
    shown = [part for path in _shown() for part in ("--ro-bind", path, path)]
    size = str(limits.file_size << 20)
    return [
        _path_of("bwrap"), "--unshare-all", "--unshare-user", "--uid", UNPRIVILEGED, "--gid", UNPRIVILEGED, "--cap-drop", "ALL",
        "--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox", "--size", size, "--tmpfs", "/tmp",
        *shown, "--dev", "/dev", "--remount-ro", "/dev", "--remount-ro", "/",
        "--chdir", "/tmp", "--", *_python(),
    ]  # fmt: skip


_SCRIPT = """
set -eu
mount=$1 mkdir=$2 unshare=$3 root=$4 size=$5 hostname=$6
shift 6
"$hostname" sandbox || :
"$mount" -n -t tmpfs -o "size=$size,mode=755,nosuid,nodev" sandbox "$root"
show() {
    if [ -d "$1" ]; then "$mkdir" -p "$root$1"; else "$mkdir" -p "$root${1%/*}"; : >"$root$1"; fi
    "$mount" -n --bind "$1" "$root$1"
}
"$mkdir" "$root/tmp"
"$mount" -n -t tmpfs -o "size=$size,mode=777,nosuid,nodev" sandbox "$root/tmp"
while [ "$1" != -- ]; do
    show "$1"
    "$mount" -n -o remount,bind,ro,nosuid,nodev "$root$1"
    shift
done
shift
show /dev/null
"$mount" -n -o remount,bind,ro,nosuid,nodev "$root"
unset PWD OLDPWD
exec "$unshare" --user --map-user=UNPRIVILEGED --map-group=UNPRIVILEGED --root="$root" --wd=/tmp "$@"
""".replace("UNPRIVILEGED", UNPRIVILEGED)
"""In the second user namespace the program is an unprivileged user, without rights over what the first has mounted."""


def with_unshare(limits: SandboxLimits, folder: str) -> list[str]:
    unshare = _path_of("unshare")
    return [
        _path_of("setpriv"), "--pdeathsig", "KILL", unshare, "--user", "--map-root-user", "--mount", "--net", "--ipc",
        "--uts", "--pid", "--fork", "--kill-child", _path_of("sh"), "-c", _SCRIPT, "sandbox", _path_of("mount"),
        _path_of("mkdir"), unshare, folder, str(limits.file_size << 20), shutil.which("hostname") or ":", *_shown(), "--",
        *_python(),
    ]  # fmt: skip


def _path_of(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise LookupError(f"{program} is not installed")
    return path


# --- one program ------------------------------------------------------------------------------------------------------


def _run(launcher: Launcher, program: str, limits: SandboxLimits) -> bool:
    word = secrets.token_hex(16)
    order = json.dumps({"program": program, "word": word, "packages": _packages(), **asdict(limits)}).encode()
    with clock_stopped(), tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as written:
        written.write(order)
        written.seek(0)
        command, pipe = launcher(limits, folder), subprocess.PIPE
        with subprocess.Popen(
            command, env={}, cwd="/", stdin=written, stdout=pipe, stderr=pipe, start_new_session=True
        ) as process:
            try:
                return _ended_well(process, word, limits.seconds)
            finally:
                _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill the launcher and its process group, to which the first process of the sandbox belongs: no other outlives that one."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _ended_well(process: "subprocess.Popen[bytes]", word: str, seconds: float) -> bool:
    """Whether the program said the word; that it never started is the sandbox's fault."""
    assert process.stdout is not None
    assert process.stderr is not None
    said = _heard(process.stdout.fileno(), len(STARTED), START_SECONDS)
    if said != STARTED:
        _end(process)
        raise SandboxError(f"the sandbox did not start: {process.stderr.read(2000).decode(errors='replace').strip()}")
    return _heard(process.stdout.fileno(), len(word), seconds) == word.encode()


def _heard(file: int, length: int, seconds: float) -> bytes:
    """At most so many bytes, until there are no more or the time is over."""
    heard, end = b"", time.monotonic() + seconds
    while len(heard) < length:
        ready, _, _ = select.select([file], [], [], max(0.0, end - time.monotonic()))
        more = os.read(file, length - len(heard)) if ready else b""
        if not more:
            break
        heard += more
    return heard


CODE_METRICS: dict[str, Metric] = {
    "code_exec": Metric({GENERATE: code_exec}, obstacle=obstacle, runs_code=True, bounds=SHARE, parallel=True),
}
