"""CPU of this tree against another commit, run in turns so that a busy machine slows both alike.

usage: python bench/interleaved.py COMMIT [--rounds 7] [--tasks synth_mmlu,synth_gsm8k,…] [--instructions]

Every round runs the other commit, this tree and the other commit again: the second pair is the A/A spread. Ratios are of the
least CPU time of each side; the packages come from the environment that runs this file. `--instructions` counts instructions
with valgrind instead (imports and the model included): 30 times slower, and hardly disturbed by what else the machine does.
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")


def export(commit: str, folder: Path) -> Path:
    """The tree of a commit."""
    folder.mkdir()
    packed = subprocess.run(
        ["git", "archive", commit, "src", "bench"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "x", "-C", str(folder)], input=packed, check=True)
    return folder


def copy_this(folder: Path) -> Path:
    """This tree as it is now."""
    for part in ("src", "bench"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def compile_tree(tree: Path) -> Path:
    """Write the byte code of a tree, for whose making neither side is charged."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", "src", "bench"], cwd=tree, check=True)
    return tree


def make_data(folder: Path, *options: str) -> Path:
    """The synthetic benchmarks."""
    command = [sys.executable, str(ROOT / "bench/make_benchmark.py"), str(folder), *options]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def environment(tree: Path) -> dict[str, str]:
    """Runs of a tree find its packages before installed ones, and its own index of tasks."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return {
        **kept,
        "PYTHONPATH": f"{tree / 'src'}:{tree}",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "ASSAY_CACHE_DIR": str(tree / "cache"),
        "HF_HUB_OFFLINE": "1",
    }


def measure(tree: Path, data: Path, task: str, out: Path, *, count: bool) -> float:
    """CPU seconds of one evaluation, journal and samples included; or the billions of instructions of the whole process."""
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "bench.assay_run", str(data), task, str(out)]
    if count:
        return count_instructions(tree, command)
    return float(printed_by(tree, command)["evaluate_cpu_s"])


def printed_by(tree: Path, command: Sequence[str]) -> dict[str, float]:
    """The JSON of the last line that a command printed."""
    printed = subprocess.run(
        command, cwd=tree, env=environment(tree), check=True, capture_output=True, text=True
    ).stdout
    figures: dict[str, float] = json.loads(printed.strip().splitlines()[-1])
    return figures


def count_instructions(tree: Path, command: Sequence[str]) -> float:
    """The billions of instructions of a whole process."""
    ended = subprocess.run(
        [*VALGRIND, *command], cwd=tree, env=environment(tree), check=True, capture_output=True, text=True
    )
    return int(re.findall(r"I\s+refs:\s+([\d,]+)", ended.stderr)[-1].replace(",", "")) / 1e9


def whole_cpu(tree: Path, command: Sequence[str]) -> float:
    """CPU seconds of a whole process, from start to exit."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=tree, env=environment(tree), check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tasks", default="synth_mmlu,synth_gsm8k,synth_gsm8k_r8,synth_wiki")
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    unit = "billion instructions" if options.instructions else "s"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        other, this = compile_tree(export(options.commit, folder / "other")), compile_tree(copy_this(folder / "this"))
        data = make_data(folder / "data")
        for task in options.tasks.split(","):
            first, ours, second = [], [], []
            for _ in range(options.rounds):
                first.append(measure(other, data, task, folder / "run", count=options.instructions))
                ours.append(measure(this, data, task, folder / "run", count=options.instructions))
                second.append(measure(other, data, task, folder / "run", count=options.instructions))
            before = min(first + second)
            spread = abs(min(first) - min(second)) / before
            figures = (
                f"{options.commit} {before:.3f} {unit}, this {min(ours):.3f} {unit}: ratio {min(ours) / before:.3f}"
            )
            print(f"{task}: {figures}, A/A spread {spread:.1%}", flush=True)


if __name__ == "__main__":
    main()
