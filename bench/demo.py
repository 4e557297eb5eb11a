"""`make demo` from a clean clone, with a warm package cache: how long a newcomer waits."""

import shutil
import subprocess
import time
from collections.abc import Iterator

from bench.environments import HOME, ROOT, bare_environment
from bench.measure import Row, Said


def rows() -> Iterator[Row | Said]:
    clone = HOME / "clone"
    shutil.rmtree(clone, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    start = time.monotonic()
    ended = subprocess.run(
        ["make", "demo"], cwd=clone, env=bare_environment(), capture_output=True, text=True, check=True
    )
    yield Row("`make demo` from a clean clone, seconds of the clock", None, time.monotonic() - start, "≤ 90 s")
    last = ended.stdout.rstrip().splitlines()[-1]
    yield Said("its last line", f"`{last.replace(str(clone), '.')}`", "the path of the run")
