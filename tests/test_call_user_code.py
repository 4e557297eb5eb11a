"""One call of user code: what it raises becomes a sentence with the file and line of the user's frame."""

import asyncio
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from assay.errors import ConfigError, Place, Problem
from assay.records import Failed
from assay.user_code import UserCodeError, call_user_code, user_code, words

HELPER = """\
import json
import sys


def divide(n):
    return 1 / n


def parse(text):
    return json.loads(text)


def twice(n):
    return divide(n) * 2


def leave():
    sys.exit(3)


def descend(n):
    return descend(n + 1)


def fill():
    raise MemoryError


class Wordless(Exception):
    def __str__(self):
        raise ValueError("no words")


def wordless():
    raise Wordless


def missing():
    import no_such_package_at_all.inner
"""

Load = Callable[[Path], ModuleType]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(folder: Path = tmp_path) -> ModuleType:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "utils.py"
        file.write_text(HELPER)
        spec = importlib.util.spec_from_file_location("utils_of_the_test", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def utils(load: Load, tmp_path: Path) -> ModuleType:
    return load(tmp_path)


def test_a_value_is_returned_as_it_is(utils: ModuleType) -> None:
    assert call_user_code("metric", utils.divide, n=4) == 0.25


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("divide", [0], "ZeroDivisionError: division by zero (utils.py:6)"),
        ("twice", [0], "ZeroDivisionError: division by zero (utils.py:6)"),
        ("parse", ["x"], "JSONDecodeError: Expecting value: line 1 column 1 (char 0) (utils.py:10)"),
        ("leave", [], "SystemExit: 3 (utils.py:18)"),
        ("fill", [], "MemoryError (utils.py:26)"),
        ("wordless", [], "Wordless (utils.py:35)"),
        ("missing", [], "ModuleNotFoundError: No module named 'no_such_package_at_all' (pip install no_such_package_at_all) (utils.py:39)"),
    ],
)  # fmt: skip
def test_an_exception_is_a_failure_with_its_words_and_the_line_of_the_users_file(
    utils: ModuleType, name: str, arguments: list[object], reason: str
) -> None:
    assert call_user_code("metric 'm'", getattr(utils, name), *arguments) == Failed(f"metric 'm': {reason}")


def test_a_recursion_without_end_is_a_failure(utils: ModuleType) -> None:
    result = call_user_code("", utils.descend, 0)
    assert isinstance(result, Failed)
    assert result.reason.startswith("RecursionError: maximum recursion depth exceeded")
    assert result.reason.endswith("(utils.py:22)")


def test_the_frame_of_a_plugin_in_site_packages_is_named_before_those_of_the_libraries_it_calls(
    load: Load, tmp_path: Path
) -> None:
    plugin = load(tmp_path / "site-packages" / "plugin")
    result = call_user_code("", plugin.parse, "x")
    assert isinstance(result, Failed)
    assert result.reason.endswith("(utils.py:10)")


def test_ctrl_c_passes_through() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_user_code("", interrupted)
    with pytest.raises(KeyboardInterrupt), user_code(""):
        interrupted()


def test_cancellation_passes_through_awaited_code_and_a_synchronous_function_that_raises_it_has_failed() -> None:
    async def waiting() -> None:
        async with user_code("call"):
            await asyncio.sleep(60)

    async def cancelled() -> bool:
        task = asyncio.create_task(waiting())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return task.cancelled()

    def raising() -> None:
        raise asyncio.CancelledError

    assert asyncio.run(cancelled())
    result = call_user_code("metric", raising)
    assert isinstance(result, Failed)
    assert result.reason.startswith("metric: CancelledError (test_call_user_code.py:")


def test_an_error_that_explains_itself_is_quoted_without_its_type() -> None:
    error = ConfigError([Problem(Place("a.yaml", 3, 1), "unknown key 'taks'", "did you mean 'task'?")])

    def refuse() -> None:
        raise error

    assert call_user_code("metric", refuse) == Failed("a.yaml:3:1: unknown key 'taks' — did you mean 'task'?")
    with pytest.raises(ConfigError), user_code("metric"):
        refuse()


def test_a_context_raises_the_error_that_is_wanted_and_keeps_the_cause(utils: ModuleType) -> None:
    words = r"process_docs: ZeroDivisionError: division by zero \(utils.py:6\)"
    with pytest.raises(LookupError, match=words) as error, user_code("process_docs", LookupError):
        utils.divide(0)
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_a_generator_is_closed_without_an_error_and_what_it_raises_is_explained(utils: ModuleType) -> None:
    def plan() -> object:
        with user_code("the node 'a'"):
            yield 1
            utils.divide(0)

    closed = iter(plan())  # type: ignore[call-overload]
    next(closed)
    closed.close()
    failing = iter(plan())  # type: ignore[call-overload]
    next(failing)
    with pytest.raises(UserCodeError, match=r"the node 'a': ZeroDivisionError: division by zero \(utils.py:6\)"):
        next(failing)


def test_asyncio_is_not_imported_to_recognize_a_cancellation() -> None:
    import subprocess

    code = "import assay.user_code, sys; print('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_addresses_in_the_error_of_a_tool_are_without_their_secrets() -> None:
    """It is sent to the model, journaled, and in the samples."""
    said = words(ValueError("GET https://me:kanarie@h.example/x?sig=kanarie failed"))
    assert said.startswith("ValueError: GET https://") and said.endswith(" failed")
    assert "h.example/x" in said and "kanarie" not in said
