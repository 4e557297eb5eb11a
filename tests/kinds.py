"""What a test needs beyond this process, read from its code: `make quick` leaves out every test that needs any of it.

The code of a test, of its fixtures and of the functions of tests/ and bench/ that they use is searched for the modules of USES. What
src/assay starts by itself is not seen there: such a test carries its mark (`@pytest.mark.process` …), and the guard of
`make quick` fails where one is missing.
"""

import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest

MARKS = {
    "process": "starts a process, or waits for one",
    "server": "opens a socket",
    "browser": "drives a browser",
    "torch": "imports torch or transformers",
    "slow": "takes seconds without any of these: simulations, fuzzing, the task files of lm-eval",
    "nightly": "one of many that are alike: `make nightly` runs them all, `make test` the others",
}
USES = {
    "subprocess": "process",
    "multiprocessing": "process",
    "signal": "process",
    "socket": "server",
    "http.server": "server",
    "aiohttp": "server",
    "starlette.testclient": "server",
    "playwright": "browser",
    "playwright.sync_api": "browser",
    "torch": "torch",
    "transformers": "torch",
    "ray.cluster_utils": "process",
}
STARTS = {"start_server": "server", "start_unix_server": "server"}
"""Functions of asyncio, which is no sign by itself."""
IMPORTED_WITHIN = {
    "ray.cluster_utils",
    "subprocess",
    "multiprocessing",
    "playwright",
    "playwright.sync_api",
    "torch",
    "transformers",
    "http.server",
    "starlette.testclient",
}
"""Modules of USES whose name in a function, where no global has it, is an import and not an attribute."""
Function = Callable[..., object]
SEARCHED = tuple(str(Path(__file__).parents[1] / folder) for folder in ("tests", "bench"))
"""Folders whose code is searched: tests use servers and runs of bench/."""


def mark_by_needs(items: list[pytest.Item]) -> None:
    """Add the marks of MARKS that each test's code asks for."""
    for item in items:
        if isinstance(item, pytest.Function):
            for kind in sorted(_needs(item)):
                item.add_marker(getattr(pytest.mark, kind))


WAITS = {"process", "server", "browser"}
"""Kinds of tests that wait for other processes, whose speed is the machine's."""


LEFT_BEHIND = ["unraisable exception", "PytestUnraisableExceptionWarning"]
"""The errors of which pytest tells the test that runs when garbage is collected."""


def try_again_what_waits(items: list[pytest.Item]) -> None:
    """Let a test that waits for other processes fail twice before the suite fails; that it failed once is printed.

    Of some thousand such tests, three at a time beside Ray clusters and browsers, one a day meets a pause that it does not expect.
    A test that computes is tried again for one reason alone: something that another test had left behind, as the pipes of a process
    that was ended while it failed, was found when its memory was freed. What a test leaves itself, it leaves twice.
    """
    for item in items:
        if WAITS.intersection(mark.name for mark in item.iter_markers()):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=5))
        else:
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=LEFT_BEHIND))


def mostly_nightly(values: Iterable[object], kept: Container[object]) -> list[object]:
    """Return the parameters of a test of which `make test` runs those of `kept`, and `make nightly` the others."""
    nightly = pytest.mark.nightly
    return [
        value if value in kept else pytest.param(*(value if type(value) is tuple else (value,)), marks=nightly)
        for value in values
    ]


def chosen_marks(expression: str) -> str:
    """Return the expression that chooses tests by marks, without the nightly ones where it does not speak of them."""
    if "nightly" in expression:
        return expression
    return f"({expression}) and not nightly" if expression else "not nightly"


def share_fixtures(items: list[pytest.Item]) -> None:
    """Let one worker run all tests that use a module's fixture, so that it is made once: most are runs that tests only read."""
    for item in items:
        if isinstance(item, pytest.Function) and not item.get_closest_marker("xdist_group"):
            fixtures: Mapping[str, list[object]] = item._fixtureinfo.name2fixturedefs  # type: ignore[assignment]
            modules = {name for name, definitions in fixtures.items() if definitions[-1].scope == "module"}  # type: ignore[attr-defined]
            if modules - {"isolate_modules"}:
                item.add_marker(pytest.mark.xdist_group(item.path.stem))


def _needs(item: pytest.Function) -> set[str]:
    if "lm_eval_folder" in item.fixturenames:
        return {"slow"}
    functions = [item.function]
    fixtures: Mapping[str, list[object]] = item._fixtureinfo.name2fixturedefs  # type: ignore[assignment]
    functions += [definition.func for items in fixtures.values() for definition in items]  # type: ignore[attr-defined]
    return {kind for function in functions for kind in needs_of(function)}


def files_with_torch(root: Path) -> list[str]:
    """Files that import torch at their head, or the world of tests that does.

    That import takes longer than a thousand tests: such files are not even read for a quick run, nor need torch be there.
    """
    head = re.compile(r"^(import|from) (torch|transformers|hf_world)\b", re.M)
    paths = [*(root / "tests").glob("*.py"), *(root / "src").rglob("*.py")]
    return [str(path) for path in sorted(paths) if head.search(path.read_text(encoding="utf-8"))]


@cache
def needs_of(function: Function) -> frozenset[str]:
    """The marks for what a function of tests/ or bench/ uses, itself or through others of them."""
    return frozenset(_search(function, set()))


def _search(value: object, seen: set[int]) -> Iterator[str]:
    """Marks of a module, function or class that is used."""
    if id(value) in seen:
        return
    seen.add(id(value))
    value = getattr(value, "__wrapped__", value)
    home = value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", None))
    if home in USES:
        yield USES[home]
    if isinstance(value, type) and _is_searched(home):
        for member in vars(value).values():
            yield from _search(getattr(member, "__func__", member), seen)
    if isinstance(value, FunctionType) and value.__code__.co_filename.startswith(SEARCHED):
        for name in _names(value.__code__):
            if name in value.__globals__:
                yield from _search(value.__globals__[name], seen)
            elif name in IMPORTED_WITHIN:
                yield USES[name]
            elif name in STARTS:
                yield STARTS[name]


def _is_searched(module: str) -> bool:
    return str(getattr(sys.modules.get(module), "__file__", None)).startswith(SEARCHED)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


QUICK = "not (" + " or ".join(MARKS) + ")"
WATCHED = {
    "subprocess.Popen": "process",
    "os.fork": "process",
    "os.forkpty": "process",
    "os.posix_spawn": "process",
    "socket.bind": "server",
    "socket.connect": "server",
}


class Guard:
    """Fails a test of `make quick` that does what its marks do not say. Python's own audit events are watched."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        sys.addaudithook(self._watch)

    def _watch(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in WATCHED:
            # every run asks git for its commit, Python the system for its name; a fork has no arguments
            if arguments[:1] not in (("git",), ("uname",)):
                self.seen.add(WATCHED[event])
        elif event == "import" and arguments[0] in ("torch", "transformers"):
            self.seen.add("torch")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.seen.clear()
        yield
        if self.seen:
            marks = " and ".join(f"@pytest.mark.{kind}" for kind in sorted(self.seen))
            pytest.fail(f"`make quick` ran this test, which needs {marks}", pytrace=False)
