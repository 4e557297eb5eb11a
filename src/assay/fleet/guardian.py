"""Runs one command and ends it, with all that it started, as soon as the process that wanted it has ended, however that ended.

usage: python -I -S guardian.py OWNER_PID GRACE_SECONDS COMMAND…

A script of the standard library alone: it starts in 20 ms and is there as long as its server. It is two processes. The first is
the owner's child and passes its signals on; the second is the parent of the server. Ray ends the children of a worker with
SIGKILL, and the second survives that.
"""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType

TICK = 0.1
SET_DEATH_SIGNAL, SET_SUBREAPER = 1, 36
NOT_FOUND, NOT_EXECUTABLE = 127, 126
_stopping: list[int] = []


def run(owner: int, grace: float, command: list[str]) -> int:
    """Run a command; returns its exit code, or 128 and the number of the signal that ended it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    first = os.getpid()
    second = os.fork()
    if second == 0:
        os._exit(_keep(first, grace, command))
    was_asked = False
    while (code := _exit_code(second)) is None:
        if not was_asked and (_stopping or os.getppid() != owner):
            was_asked = True
            with suppress(ProcessLookupError):
                os.kill(second, signal.SIGTERM)
        time.sleep(TICK)
    return code


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # the shape of a handler
    _stopping.append(number)


def _keep(parent: int, grace: float, command: list[str]) -> int:
    """Start the command, wait for its end or its owner's, and leave no process of it behind."""
    _prctl(SET_SUBREAPER, 1)  # processes that left the group become ours when their parents end
    keeper = os.getpid()
    server = os.fork()
    if server == 0:
        os.setsid()
        _prctl(SET_DEATH_SIGNAL, signal.SIGTERM)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):  # Python ignores the last
            signal.signal(number, signal.SIG_DFL)
        _execute(command, keeper)
    code = None
    while code is None and not _stopping and os.getppid() == parent:
        code = _exit_code(server)
        time.sleep(0 if code is not None else TICK)
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 2.0)):
        until, signalled = time.monotonic() + seconds, {server}
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(server, number)
        while _is_there(server) and time.monotonic() < until:
            code = _exit_code(server) if code is None else code
            _signal_new(signalled, number)
            time.sleep(TICK / 2)
    return code if code is not None else 128 + signal.SIGKILL


def _execute(command: list[str], keeper: int) -> None:
    if os.getppid() != keeper:
        os._exit(NOT_FOUND)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


def _exit_code(process: int) -> int | None:
    """The exit code of a child that has ended; None while it runs."""
    try:
        ended, status = os.waitpid(process, os.WNOHANG)
    except ChildProcessError:
        return 128 + signal.SIGKILL
    if ended == 0:
        return None
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _signal_new(signalled: set[int], number: int) -> None:
    """Signal every process that became ours, once: a second SIGTERM means to many servers that they end at once."""
    for child in _children():
        if child not in signalled:
            signalled.add(child)
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, number)


def _is_there(server: int) -> bool:
    """Whether a process of the server is left; those that ended are reaped."""
    for child in _children():
        if child != server:
            with suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)
    try:
        os.killpg(server, 0)
    except (ProcessLookupError, PermissionError):
        return bool(_children())
    return True


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123  # without pathlib: it starts sooner
            return [int(number) for number in file.read().split()]
    except OSError:  # not Linux: the group is all that is known
        return []


def _prctl(what: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(what, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
