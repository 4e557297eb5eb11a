"""The standing budget: sizes, start-up times and dependencies against tests/budget.toml."""

import io
import os
import re
import resource
import statistics
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import anchor

import budget

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/assay"


def python_files() -> list[Path]:
    return [path for path in SOURCE.rglob("*") if path.suffix == ".py"]


def wheel_bytes() -> int:
    """The size of the files of the wheel, compressed as a wheel is. Its metadata are some kilobytes more."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path in SOURCE.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                wheel.write(path, path.relative_to(ROOT / "src"))
    return len(memory.getvalue())


def core_dependencies() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return sorted(re.split(r"[\[<>=!~ ]", name)[0] for name in project["dependencies"])


def test_every_limit_has_a_reason() -> None:
    for name, entry in budget.LIMITS.items():
        assert entry["limit"] > 0, name
        assert len(entry["reason"].split()) >= 5, f"{name}: say why the limit is what it is"


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("src_bytes", lambda: sum(path.stat().st_size for path in python_files())),
        ("src_files", lambda: len(python_files())),
        ("wheel_bytes", wheel_bytes),
        ("core_dependencies", lambda: len(core_dependencies())),
    ],
)
def test_sizes_are_within_the_budget(name: str, size: Callable[[], int]) -> None:
    assert size() <= budget.LIMITS[name]["limit"], budget.LIMITS[name]["reason"]


def test_the_core_depends_on_these_libraries_by_name() -> None:
    assert core_dependencies() == budget.LIMITS["core_dependencies"]["names"]


def cpu_seconds(*arguments: str) -> float:
    """CPU time of a Python process: a busy machine makes it wait, and hardly makes it work more."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_starting_costs_little_more_than_python_itself() -> None:
    commands = {
        "nothing": ["-c", "pass"],
        "import_ratio": ["-c", "import assay"],
        "help_ratio": ["-m", "assay", "--help"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(9):  # one after the other, so that a busy moment meets all of them
        for name, arguments in commands.items():
            seconds[name].append(cpu_seconds(*arguments))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name in ("import_ratio", "help_ratio"):
        ratio = medians[name] / medians["nothing"]
        assert ratio <= budget.LIMITS[name]["limit"], f"{name} is {ratio:.2f}; CPU seconds: {medians}"


@pytest.mark.skipif(
    "ASSAY_NIGHTLY" not in os.environ, reason="measures CPU, which wants a machine of its own: make nightly"
)
def test_runs_cost_no_more_than_their_budget_against_the_anchor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GIT_DIR")  # with which tests have no repository
    known = subprocess.run(["git", "cat-file", "-e", f"{anchor.ANCHOR}^{{commit}}"], cwd=ROOT, capture_output=True)
    if known.returncode:
        pytest.skip("the anchor is not in this clone: git fetch --unshallow")
    sides = anchor.make_sides(tmp_path)
    for name in (*anchor.SHAPES, "anchor_tiny"):
        limit = budget.LIMITS[name]["limit"]
        theirs, ours = sides.cpu(name, rounds=6, enough=limit)
        assert ours <= limit * theirs, (
            f"{name}: {ours:.2f} s, the anchor {theirs:.2f} s: {budget.LIMITS[name]['reason']}"
        )
