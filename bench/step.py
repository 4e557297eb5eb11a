"""CPU of what reads many tasks or runs, against the last commit of the step before; in turns, medians.

`python -m bench step`, in the environment of the tests (`make install-test`), which has lm-eval's task files. `step:groups`,
`step:ls` and `step:runs` are its parts.
"""

import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.interleaved import compile_tree, copy_this, export, make_data, printed_by, whole_cpu
from bench.measure import Said

BEFORE = "aa144c68"
"""The commit with which step 1 ended."""
RUNS = 10_000
LIMIT = 1.02
ASSAY = (sys.executable, "-m", "assay")
Measure = Callable[[Path], float]


def rows(chosen: str = "") -> Iterator[Said]:
    parts = {"groups": groups, "ls": listing, "runs": index_of_runs}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        trees = (compile_tree(export(BEFORE, folder / "before")), compile_tree(copy_this(folder / "this")))
        for name, part in parts.items():
            if chosen in ("", name):
                yield from part(trees)


def groups(trees: Sequence[Path]) -> Iterator[Said]:
    def measure(tree: Path) -> float:
        return printed_by(tree, (sys.executable, "-m", "bench.groups", "many"))["cpu_s"]

    yield compare("10,000 tasks in 1,000 groups", trees, measure)


def listing(trees: Sequence[Path]) -> Iterator[Said]:
    tasks = Path(os.environ.get("LM_EVAL_FOLDER", Path(sys.prefix) / "lm_eval"), "lm_eval/tasks")
    command = (*ASSAY, "ls", "tasks", "--include_path", str(tasks))
    for tree in trees:
        whole_cpu(tree, command)  # writes the index of the files
    yield compare("`assay ls tasks` over lm-eval's folder, warm", trees, lambda tree: whole_cpu(tree, command))


def index_of_runs(trees: Sequence[Path]) -> Iterator[Said]:
    """Both trees list copies of a run that each has written itself: what a run's files contain may differ between them."""
    folder = trees[0].parent
    data = make_data(folder / "data")
    for tree in trees:
        run = folder / "a_run"
        names = ("--model", "dummy", "--tasks", "synth_gsm8k", "--limit", "2", "--include_path", str(data / "tasks"))
        whole_cpu(tree, (*ASSAY, "run", *names, "--output_path", str(run)))
        for number in range(RUNS):
            copy = runs_of(tree) / f"run_{number}"
            copy.mkdir(parents=True)
            for name in ("manifest.json", "results.json"):
                shutil.copyfile(run / name, copy / name)
        shutil.rmtree(run)

    def read_again(tree: Path) -> float:
        return whole_cpu(tree, (*ASSAY, "runs", "list", "--runs_dir", str(runs_of(tree))))

    def build(tree: Path) -> float:
        shutil.rmtree(tree / "cache", ignore_errors=True)
        for written in set(runs_of(tree).iterdir()):
            if not written.name.startswith("run_"):  # the index that an earlier round left
                written.unlink()
        return read_again(tree)

    yield compare(f"index of {RUNS:,} runs, built", trees, build, rounds=3)
    yield compare("the same, read again", trees, read_again)


def runs_of(tree: Path) -> Path:
    return tree / "runs"


def compare(what: str, trees: Sequence[Path], measure: Measure, rounds: int = 7) -> Said:
    """The median of either tree, measured in turns so that a busy machine slows both alike."""
    seconds: list[list[float]] = [[], []]
    for _ in range(rounds):
        for side, tree in zip(seconds, trees, strict=True):
            side.append(measure(tree))
    before, this = map(statistics.median, seconds)
    return Said(what, f"{this:.3f} s, {this / before:.3f}×", f"≤ {LIMIT}×", f"{BEFORE}: {before:.3f} s")
