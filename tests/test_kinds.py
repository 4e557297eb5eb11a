"""Which tests `make quick` leaves out, and the guard over those that it runs."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import assay
import kinds
from commands import Run, isolated_plugins, registered_names


def starts_a_process() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def uses_one_that_does() -> list[None]:
    return [starts_a_process() for _ in range(2)]


class Starter:
    def begin(self) -> None:
        uses_one_that_does()


def builds_a_class() -> Starter:
    return Starter()


def imports_torch_when_called() -> object:
    import torch

    return torch


def needs_nothing(path: Path) -> str:
    return path.name


@pytest.mark.parametrize(
    ("function", "marks"),
    [
        (starts_a_process, {"process"}),
        (uses_one_that_does, {"process"}),
        (builds_a_class, {"process"}),
        (imports_torch_when_called, {"torch"}),
        (needs_nothing, set()),
    ],
)
def test_requirements_of_a_test_are_read_from_its_code(function: kinds.Function, marks: set[str]) -> None:
    assert kinds.needs_of(function) == marks


def test_files_that_import_torch_at_their_head_are_not_read_for_a_quick_run(tmp_path: Path) -> None:
    texts = {
        "tests/test_heavy.py": "import pytest\nfrom transformers import AutoModel\n",
        "tests/test_light.py": "def test_one():\n    import torch\n",
        "src/assay/models/one.py": "import torch\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    heavy = [tmp_path / "tests/test_heavy.py", tmp_path / "src/assay/models/one.py"]
    assert kinds.files_with_torch(tmp_path) == sorted(map(str, heavy))


def test_the_guard_fails_a_quick_test_that_starts_a_process_unmarked() -> None:
    """Within `src/assay` nothing is read: a process that a run starts is seen when it starts."""
    guard = kinds.Guard()
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert guard.seen == {"process"}


def test_of_many_alike_all_but_the_kept_ones_are_nightly() -> None:
    first, second, third = kinds.mostly_nightly(["a", ("b", 1), "c"], kept=["a"])
    assert first == "a"
    assert (second.values, third.values) == (("b", 1), ("c",))  # type: ignore[attr-defined]
    assert {mark.name for each in (second, third) for mark in each.marks} == {"nightly"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("asked", "expression"),
    [("", "not nightly"), ("slow or torch", "(slow or torch) and not nightly"), ("nightly", "nightly")],
)
def test_nightly_tests_are_chosen_by_their_mark_alone(asked: str, expression: str) -> None:
    assert kinds.chosen_marks(asked) == expression
    assert kinds.chosen_marks(expression) == expression, "workers choose again"
    assert kinds.chosen_marks(kinds.QUICK) == kinds.QUICK


@pytest.mark.xdist_group("kinds")
def test_tests_of_a_group_are_run_by_one_worker(request: pytest.FixtureRequest) -> None:
    """pytest-xdist groups by a suffix of the node id, which pytest 9.2 does not let it write."""
    if request.config.getoption("loadgroup", default=False):
        assert request.node.nodeid.endswith("@kinds")


@pytest.fixture(scope="module")
def made_once() -> list[int]:
    return []


def test_tests_that_share_a_modules_fixture_are_a_group(made_once: list[int], request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("xdist_group").args == ("test_kinds",)


def test_names_that_a_modules_fixture_registers_are_forgotten_with_the_module() -> None:
    with isolated_plugins():
        assay.filter("of_a_fixture")(list)
        assert "of_a_fixture" in registered_names()["filters"]
    assert "of_a_fixture" not in registered_names()["filters"]


def test_a_command_in_this_process_leaves_nothing_behind(tmp_path: Path, run_assay: Run) -> None:
    (tmp_path / "mine.py").write_text("import assay\n\n\n@assay.filter('mine')\ndef mine():\n    return list\n")
    before = (dict(os.environ), Path.cwd(), list(sys.path), sys.argv, logging.getLogger().handlers, set(sys.modules))
    listed = run_assay("ls", "filters", "--plugin", "mine", COLUMNS="99")
    assert (listed.returncode, "mine" in listed.stdout.split()) == (0, True), listed.stderr
    assert "mine" not in run_assay("ls", "filters").stdout.split()
    after = (dict(os.environ), Path.cwd(), list(sys.path), sys.argv, logging.getLogger().handlers)
    assert after == before[:-1] and "mine" not in sys.modules


def test_a_command_prints_the_same_in_this_process_as_in_a_separate_one(
    tmp_path: Path, run_assay: Run, run_assay_process: Run
) -> None:
    """Refusals of every layer, and a list."""
    for words in (["nosuch"], ["ls", "--nosuch"], ["show", "nosuch"], ["ls", "formats"], ["samples", tmp_path]):
        assert run_assay(*words) == run_assay_process(*words), words
