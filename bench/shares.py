"""Where a run's CPU time goes: which part of assay is at work, looked at every few milliseconds of it.

usage (from the root of the repository): python -m bench.shares BENCH_DIR TASK RUNS

Each run is one of bench.assay_run, without a profiler's cost for every call. The model's own time is left out, as it is there.
"""

import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import assay

PARTS = {
    "samples/rows.py": "reading data",
    "samples/data.py": "reading data",
    "samples": "prompts",
    "tasks/prepare.py": "prompts",
    "runs/journal.py": "journal",
    "engine": "engine and keys",
    "scoring": "filters and scores",
    "tasks/run.py": "filters and scores",
    "statistics": "numbers",
    "groups": "numbers",
    "runs": "samples and results on disk",
    "models": "model",
}
"""By file, else by package; the rest is catalog, configuration and the like."""
SOURCE, INSTANT = str(Path(assay.__file__).parent), str(Path(__file__).parent / "instant.py")
EVERY = 0.001


def part(frame: FrameType | None) -> str:
    """The part of the innermost function of assay; but the model's, whatever it calls."""
    files = list(_files(frame))
    if any(file.startswith("models/") for file in files):
        return "model"
    file = files[0] if files else ""
    return PARTS.get(file) or PARTS.get(file.partition("/")[0], "start")


def _files(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(SOURCE):
            yield name[len(SOURCE) + 1 :]
        elif name == INSTANT:
            yield "models/instant.py"
        frame = frame.f_back


def one_run() -> None:
    """Run as bench.assay_run does, with the arguments given, and print how often each part was at work."""
    from bench import assay_run

    counts: Counter[str] = Counter()
    signal.signal(signal.SIGPROF, lambda _, frame: counts.update([part(frame)]))
    signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)
    assay_run.main()
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(json.dumps(counts))


def main() -> None:
    bench, task, runs = sys.argv[1:]
    counts: Counter[str] = Counter()
    for _ in range(int(runs)):
        with tempfile.TemporaryDirectory() as out:
            code = "from bench.shares import one_run; one_run()"
            command = [sys.executable, "-c", code, bench, task, f"{out}/run"]
            ended = subprocess.run(command, capture_output=True, text=True, check=True)
        counts.update(json.loads(ended.stdout.splitlines()[-1]))
    del counts["model"]
    for name, count in counts.most_common():
        print(f"{count / counts.total():.0%} {name}")
    print(f"{counts.total()} looks")


if __name__ == "__main__":
    main()
