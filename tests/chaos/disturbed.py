"""`python disturbed.py ROOT STEP SIGNAL COUNT_FILE assay-arguments…`: assay, with a signal to itself at a step.

A step is a change to a file below ROOT that Python makes: opening to write, renaming, removing, making a folder, syncing. With STEP 0
nothing is sent, and the number of steps is written to COUNT_FILE when the process ends.
"""

import os
import signal
import sys
from pathlib import Path

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
PATHS = {"os.rename": 2, "os.remove": 1, "os.mkdir": 1, "os.rmdir": 1, "os.link": 2, "os.truncate": 1}


def main() -> None:
    root, step, number, counted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    owner, taken = os.getpid(), [0]

    def count() -> None:
        taken[0] += 1
        if taken[0] == step:
            os.kill(owner, number)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if os.getpid() != owner:
            return
        if event == "open":
            path, _, flags = arguments
            touched = [path] if isinstance(flags, int) and flags & WRITES else []
        else:
            touched = list(arguments[: PATHS.get(event, 0)])
        if any(isinstance(path, str) and str(Path.cwd() / path).startswith(root) for path in touched):
            count()

    sync = os.fsync

    def fsync(handle: int) -> None:
        sync(handle)
        if os.getpid() == owner:
            count()

    os.fsync = fsync
    sys.addaudithook(watch)
    sys.argv = ["assay", *sys.argv[5:]]
    from assay.cli import main as assay

    code = assay()
    if not step:
        Path(counted).write_text(str(taken[0]), encoding="utf-8")
    sys.exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background has it ignored
    main()
