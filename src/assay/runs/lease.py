"""The lock of a run folder: which process holds it, and whether that process is alive."""

import fcntl
import json
import os
import socket
import time
from pathlib import Path

from assay.errors import AssayError
from assay.records import JSONDict, JSONObject
from assay.runs.files import read_bytes

NAME = "run.lock"
STALE_SECONDS = 60.0
LOOKS, LOOK_SECONDS = 3, 0.002
"""How often a beat that is not JSON is read again, and the pause before: it was read while it was written."""


class FolderInUse(AssayError):
    """Another process works in this folder."""


class Lease:
    """The right to work in a folder. The system takes it back when the process ends, however it ends.

    Locks do not reach across machines that share a disk, so there is a heartbeat, too: one that has stopped for a
    minute does not count.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        while True:
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            owner = self._owner()
            locked = self._lock()
            if not locked or self._is_current():
                break
            os.close(self._handle)  # released, and so removed, between opening and locking
        if not locked or self._lives_elsewhere(owner):
            os.close(self._handle)
            raise FolderInUse.at(
                str(folder),
                f"another run uses this folder{_named(owner)}",
                "wait until it ends, or choose another folder",
            )
        self._longest = os.fstat(self._handle).st_size  # of a process that was killed
        self.beat()

    def beat(self) -> None:
        """Say that this process lives."""
        sign = {"host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}
        data = json.dumps(sign).encode()
        # never shorter than before: whoever reads meanwhile would find the end of an earlier beat behind this one
        self._longest = max(self._longest, len(data))
        os.pwrite(self._handle, data.ljust(self._longest), 0)

    def release(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self._handle)

    def _lock(self) -> bool:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _is_current(self) -> bool:
        try:
            return self.path.stat().st_ino == os.fstat(self._handle).st_ino
        except FileNotFoundError:
            return False

    def _owner(self) -> JSONDict:
        try:
            owner = json.loads(os.pread(self._handle, 1 << 20, 0) or b"{}")
        except ValueError:
            return {}
        return owner if isinstance(owner, dict) else {}

    @staticmethod
    def _lives_elsewhere(owner: JSONDict) -> bool:
        elsewhere = owner.get("host") not in (None, socket.gethostname())
        return elsewhere and _is_recent(owner)


def is_held(folder: Path) -> bool:
    """Whether a process holds a folder, by its own record: nothing is locked to find out."""
    owner = _owner(folder)
    if owner.get("host") != socket.gethostname():
        return _is_recent(owner)
    try:
        os.kill(int(owner["pid"]), 0)
    except ProcessLookupError:
        return False
    except (OSError, KeyError, OverflowError, TypeError, ValueError):
        return "pid" in owner
    return True


def _is_recent(owner: JSONObject) -> bool:
    """Whether the owner gave a sign of life in the last minute, and not in the future."""
    beat = owner.get("time")
    now = time.time()
    return isinstance(beat, int | float) and now - STALE_SECONDS < beat < now + STALE_SECONDS  # an int of any size


def _owner(folder: Path) -> JSONDict:
    for _ in range(LOOKS):
        try:
            owner = json.loads(read_bytes(folder / NAME))
        except OSError:
            return {}
        except (
            ValueError
        ):  # half of it is of the beat before: the lock cannot be replaced in one move, as it is the file itself
            time.sleep(LOOK_SECONDS)
            continue
        return owner if isinstance(owner, dict) else {}
    return {}


def _named(owner: JSONDict) -> str:
    return f" (process {owner.get('pid')} on {owner.get('host')})" if owner else ""
