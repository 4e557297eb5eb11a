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
import shutil
import subprocess
import sys
import tempfile
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


def measure(tree: Path, data: Path, task: str, out: Path, *, count: bool) -> float:
    """CPU seconds of one evaluation, journal and samples included; or the billions of instructions of the whole process."""
    shutil.rmtree(out, ignore_errors=True)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tree / 'src'}:{tree}",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "bench.assay_run", str(data), task, str(out)]
    if not count:
        printed = subprocess.run(command, cwd=tree, env=environment, check=True, capture_output=True, text=True).stdout
        return float(json.loads(printed.strip().splitlines()[-1])["evaluate_cpu_s"])
    subprocess.run([sys.executable, "-m", "compileall", "-q", "src", "bench"], cwd=tree, check=True)
    counted = [*VALGRIND, *command]
    printed = subprocess.run(counted, cwd=tree, env=environment, check=True, capture_output=True, text=True).stderr
    return int(re.findall(r"I\s+refs:\s+([\d,]+)", printed)[-1].replace(",", "")) / 1e9


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
        other = export(options.commit, folder / "other")
        this = folder / "this"
        this.mkdir()
        for part in ("src", "bench"):
            shutil.copytree(ROOT / part, this / part, ignore=shutil.ignore_patterns("__pycache__"))
        data = folder / "data"
        subprocess.run(
            [sys.executable, str(ROOT / "bench/make_benchmark.py"), str(data)], check=True, capture_output=True
        )
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
