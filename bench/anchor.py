"""CPU and instructions against one fixed commit, so that the small losses of many steps are seen together.

`python -m bench anchor` runs the anchor and this tree in turns, with the packages of the environment that runs this file. One
part alone: `anchor:cpu`, `anchor:instructions` (valgrind, takes minutes), `anchor:tasks`. The limits are those of
tests/budget.toml, and `make nightly` fails above them.
"""

import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.interleaved import (
    ROOT,
    copy_this,
    count_instructions,
    export,
    make_data,
    measure,
    printed_by,
    whole_cpu,
)
from bench.measure import Said

ANCHOR = "4aa8dcd3"
"""The commit of 15 November that README's figures were taken at."""
SHAPES = {"anchor_mmlu": "synth_mmlu", "anchor_gsm8k": "synth_gsm8k"}
TINY = ("-m", "assay", "run", "--model", "dummy", "--tasks", "synth_gsm8k", "--limit", "2")
MANY = (100, 1_000, 10_000)
LIMITS: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "tests/budget.toml").read_text(encoding="utf-8"))


class Sides(NamedTuple):
    """The anchor and this tree, and the data that both evaluate; `out` is where their runs are written."""

    anchor: Path
    this: Path
    data: Path
    out: Path

    def least(self, measured: Callable[[Path], float], rounds: int, enough: float = 0.0) -> tuple[float, float]:
        """The least of several rounds of either side, in turns; fewer rounds where the ratio is `enough` before."""
        least = [float("inf"), float("inf")]
        for number in range(rounds):
            for side, tree in enumerate((self.anchor, self.this)):
                least[side] = min(least[side], measured(tree))
            if number and least[1] <= enough * least[0]:
                break  # not after the first, which pays for byte code, too
        return least[0], least[1]

    def cpu(self, name: str, rounds: int = 5, enough: float = 0.0) -> tuple[float, float]:
        """CPU seconds of a shape: of the evaluation alone, and of the tiny run from start to exit."""
        if name == "anchor_tiny":
            return self.least(lambda tree: whole_cpu(tree, self.tiny_run()), rounds, enough)
        return self.least(lambda tree: measure(tree, self.data, SHAPES[name], self.out, count=False), rounds, enough)

    def instructions(self, name: str) -> tuple[float, float]:
        """Billions of instructions of the whole process, start and imports included; byte code and caches are there."""
        self.cpu(name, rounds=1)
        if name == "anchor_tiny":
            return self.least(lambda tree: count_instructions(tree, self.tiny_run()), 1)
        return self.least(lambda tree: measure(tree, self.data, SHAPES[name], self.out, count=True), 1)

    def tiny_run(self) -> Sequence[str]:
        shutil.rmtree(self.out, ignore_errors=True)
        places = ("--include_path", str(self.data / "tasks"), "--output_path", str(self.out))
        return (sys.executable, *TINY, *places)


def make_sides(folder: Path) -> Sides:
    """Both trees and the data, below a folder."""
    anchor, this = export(ANCHOR, folder / "anchor"), copy_this(folder / "this")
    sides = Sides(anchor, this, make_data(folder / "data"), folder / "run")
    sides.cpu("anchor_tiny", rounds=1)  # byte code is written, and the index of tasks
    return sides


def rows(chosen: str = "") -> Iterator[Said]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sides = make_sides(folder)
        names = (*SHAPES, "anchor_tiny")
        if chosen in ("", "cpu"):
            for name in names:
                yield _row(name, "CPU", "s", sides.cpu(name))
        if chosen in ("", "tasks"):
            yield from many_tasks(sides.this, folder)
        if chosen in ("", "instructions"):
            for name in names:
                yield _row(name, "instructions", "billion", sides.instructions(name))


def _row(name: str, what: str, unit: str, sides: tuple[float, float]) -> Said:
    anchor, this = sides
    shape = SHAPES.get(name, "a tiny run, from start to exit")
    figures = f"{this:.2f} {unit}, {this / anchor:.2f}×"
    return Said(f"{shape}: {what}", figures, f"≤ {LIMITS[name]['limit']}×", f"{ANCHOR}: {anchor:.2f} {unit}")


def many_tasks(tree: Path, folder: Path) -> Iterator[Said]:
    """CPU and memory of one more task of two documents."""
    before = 0, 0.0, 0.0
    for count in MANY:
        data = make_data(folder / f"many_{count}", "--many", str(count))
        seconds, memory = measure_tasks(tree, data, folder / "run")
        if before[0]:
            added = count - before[0]
            each = f"{(seconds - before[1]) / added * 1000:.1f} ms, {(memory - before[2]) / added * 1000:.0f} kB"
            expected = f"≤ {LIMITS['task_milliseconds']['limit']} ms, ≤ {LIMITS['task_kilobytes']['limit']} kB"
            yield Said(f"each of {before[0]:,} to {count:,} tasks of two documents", each, expected)
        before = count, seconds, memory


def measure_tasks(tree: Path, data: Path, out: Path) -> tuple[float, float]:
    """CPU seconds and MB of a run of many tasks, whose files are in the index already."""
    command = [sys.executable, "-m", "bench.assay_run", str(data), "synth_many", str(out)]
    for _ in range(2):
        shutil.rmtree(out, ignore_errors=True)
        figures = printed_by(tree, command)
    return figures["evaluate_cpu_s"], figures["peak_mb"]
