"""CPU of this tree against another commit, run in turns so that a busy machine slows both alike.

usage: python bench/interleaved.py COMMIT [--rounds 7] [--tasks synth_mmlu,synth_gsm8k,…]

Every round runs the other commit, this tree and the other commit again: the second pair is the A/A spread. Ratios are of the
least CPU time of each side; the packages come from the environment that runs this file.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def export(commit: str, folder: Path) -> Path:
    """The tree of a commit."""
    folder.mkdir()
    packed = subprocess.run(
        ["git", "archive", commit, "src", "bench"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "x", "-C", str(folder)], input=packed, check=True)
    return folder


def measure(tree: Path, data: Path, task: str, out: Path) -> float:
    """CPU seconds of one evaluation, journal and samples included."""
    shutil.rmtree(out, ignore_errors=True)
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}", "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "bench.assay_run", str(data), task, str(out)]
    said = subprocess.run(command, cwd=tree, env=environment, check=True, capture_output=True, text=True).stdout
    return float(json.loads(said.strip().splitlines()[-1])["evaluate_cpu_s"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tasks", default="synth_mmlu,synth_gsm8k,synth_gsm8k_r8,synth_wiki")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        other = export(given.commit, folder / "other")
        this = folder / "this"
        this.mkdir()
        for part in ("src", "bench"):
            shutil.copytree(ROOT / part, this / part, ignore=shutil.ignore_patterns("__pycache__"))
        data = folder / "data"
        subprocess.run(
            [sys.executable, str(ROOT / "bench/make_benchmark.py"), str(data)], check=True, capture_output=True
        )
        for task in given.tasks.split(","):
            first, ours, second = [], [], []
            for _ in range(given.rounds):
                first.append(measure(other, data, task, folder / "run"))
                ours.append(measure(this, data, task, folder / "run"))
                second.append(measure(other, data, task, folder / "run"))
            before = min(first + second)
            spread = abs(min(first) - min(second)) / before
            figures = f"{given.commit} {before:.3f} s, this {min(ours):.3f} s: ratio {min(ours) / before:.3f}"
            print(f"{task}: {figures}, A/A spread {spread:.1%}", flush=True)


if __name__ == "__main__":
    main()
