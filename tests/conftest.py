"""The world of a test: files written on the spot, a separate cache, lm-eval's task files where they are wanted."""

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import settings

from assay import TaskManager
from budget import SuiteTime
from commands import Run, isolated_plugins, isolated_state, run_command, run_process
from kinds import (
    MARKS,
    QUICK,
    Guard,
    chosen_marks,
    files_with_torch,
    mark_by_needs,
    share_fixtures,
    try_again_what_waits,
)
from run_world import FILES

os.environ["HF_HUB_OFFLINE"] = "1"  # or its client tries for 23 seconds to reach a hub that is not there
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of some hundred processes compiles assay's source anew
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"  # or the threads of each server and command wait for each other, and compute meanwhile
os.environ["GIT_DIR"] = os.devnull  # or each run asks for the state of this repository: half of what a small one costs
for variable in (
    "COLUMNS",
    "LINES",
    "NO_COLOR",
):  # xdist and some terminals set them: tests open their terminals themselves
    os.environ.pop(variable, None)
settings.register_profile("assay", deadline=None)  # a busy machine is slow, not wrong
settings.load_profile("assay")

Write = Callable[[Mapping[str, str]], Path]
collect_ignore = [
    "differences",
    "plugin_package",
    "seeds",
    "lm_eval_script.py",
    "lm_eval_tables.py",
    "fleet_models.py",
    "nightly/llama_server.py",
    "nightly/make_gguf.py",
]
if "ASSAY_NIGHTLY" not in os.environ:
    collect_ignore.append("nightly")  # real servers: `make nightly` installs them


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests without processes, servers, browsers and torch")


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    if config.option.quick:
        config.option.markexpr = config.option.markexpr or QUICK
        config.option.ignore = [*(config.option.ignore or []), *files_with_torch(config.rootpath)]
        config.pluginmanager.register(Guard())
    if not any("::" in argument for argument in config.args):  # a test that is named runs, nightly or not
        config.option.markexpr = chosen_marks(config.option.markexpr)
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    if is_whole and not hasattr(config, "workerinput"):
        quick, whole = SuiteTime("quick_seconds", 1), SuiteTime("suite_minutes", 60)
        config.pluginmanager.register(quick if config.option.quick else whole)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Half as many workers again as there are cores: tests of processes, servers and clusters wait a third of their time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return None if config.option.quick else cores + cores // 2


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_by_needs(items)
    if config.pluginmanager.hasplugin("rerunfailures"):  # the quick tests do without
        try_again_what_waits(items)
    share_fixtures(items)


def pytest_collection_finish() -> None:
    gc.freeze()  # a million objects of tests and libraries live to the end: no collection need visit them again


@pytest.fixture(scope="module", autouse=True)
def isolate_modules() -> Iterator[None]:
    """No test sees the names that a fixture of another module has registered."""
    with isolated_plugins():
        yield


@pytest.fixture(autouse=True)
def isolate_tests() -> Iterator[None]:
    """No test sees the variables that another one has set, the names that it has registered, or its folder."""
    with isolated_state():
        yield


@pytest.fixture(autouse=True)
def cache(isolate_tests: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(folder))
    monkeypatch.setenv("ASSAY_TASKS_DIR", str(tmp_path / "fetched"))
    monkeypatch.setenv("ASSAY_RUNS_DIR", str(tmp_path / "runs"))
    return folder


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes files by relative path into a folder of tasks, and returns that folder."""
    folder = tmp_path / "tasks"

    def write_files(files: Mapping[str, str]) -> Path:
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        return folder

    return write_files


@pytest.fixture
def tasks(write: Write) -> Path:
    """The tasks of run_world, with hand-computed numbers."""
    return write(FILES)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def manage(write: Write) -> Callable[..., TaskManager]:
    """A manager that knows just the files given."""

    def manager(files: Mapping[str, str], **options: object) -> TaskManager:
        return TaskManager(include_path=write(files), include_defaults=False, **options)  # type: ignore[arg-type]

    return manager


@pytest.fixture
def run_assay(tmp_path: Path) -> Run:
    """Runs the command line in an empty folder, in this process."""
    return lambda *arguments, cwd=None, **variables: run_command(*arguments, cwd=cwd or tmp_path, **variables)


@pytest.fixture
def run_assay_process(tmp_path: Path) -> Run:
    """Runs the command line in an empty folder, in a separate process: where the process is what a test is about."""
    return lambda *arguments, cwd=None, **variables: run_process(*arguments, cwd=cwd or tmp_path, **variables)


@pytest.fixture(scope="session")
def lm_eval_folder() -> Path:
    """Where `make test` unpacks lm_eval 0.4.13, without its dependencies."""
    folder = Path(os.environ.get("LM_EVAL_FOLDER", Path(sys.prefix) / "lm_eval"))
    if not (folder / "lm_eval/tasks").is_dir():
        pytest.fail(f"no lm_eval in {folder}: run the suite with `make test`, which puts it there")
    return folder


A_TASK = """
    task: {name}
    dataset_path: some/data
    dataset_name: main
    test_split: test
    output_type: multiple_choice
    doc_to_text: question
    doc_to_choice: choices
    doc_to_target: answer
    metric_list: [{{metric: acc}}]
"""


def a_task(name: str, **more: str) -> str:
    """A small valid task, with more lines of YAML."""
    lines = "".join(f"{key}: {value}\n" for key, value in more.items())
    return dedent(A_TASK.format(name=name)).lstrip("\n") + lines
