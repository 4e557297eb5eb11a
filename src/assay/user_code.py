"""Call user code: any exception of a user's function or a third-party library becomes one sentence with its location.

`call_user_code` returns a `Failed`; `user_code` is the same as a context manager, for code that yields or awaits, or whose
caller wants an error. Ctrl-C passes through, and so does cancellation in `async with`. `is_overridden` says whether user code
replaces a method. `is_writable` finds text among the values of user code, data and models that cannot be written as UTF-8.
"""

import os
import signal
import sys
import threading
from _signal import getsignal  # type: ignore[import-not-found]  # 16 ns; that of `signal` makes an enum member first, which takes 2 µs
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from assay.errors import SelfExplanatory
from assay.records import Failed
from assay.redaction import conceal, redact_text, without_queries

T = TypeVar("T")
P = ParamSpec("P")

HALF = "text with half a character (a lone surrogate)"
"""The reason to refuse a text: Python strings may contain lone surrogates, which UTF-8 cannot encode."""
TIME_LIMIT = 10.0
"""Seconds that the filters and metrics of one document may take."""
_CAN_ALARM = hasattr(signal, "setitimer")
MOST_CAUSES = 10
"""Causes of an error among which an interrupt is looked for: they may be a circle."""
MOST_WORDS = 300
"""Longest error message that is kept: some libraries put whole documents into theirs."""
_OWN = f"{Path(__file__).parent}{os.sep}"
_STANDARD = f"{Path(os.__file__).parent}{os.sep}"
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


IN_PYTHON = "set in Python: "
"""Before the name of code that Python gave to a configuration: no file has it when the configuration is read again."""


def named_code(value: Any) -> Any:
    """A configuration with the code that Python gave it as text.

    >>> named_code({"metric_list": [{"metric": len}]})
    {'metric_list': [{'metric': 'set in Python: len'}]}
    """
    if isinstance(value, Mapping):
        return {key: named_code(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [named_code(inner) for inner in value]
    return f"{IN_PYTHON}{getattr(value, '__qualname__', type(value).__name__)}" if is_code(value) else value


def is_code(value: Any) -> bool:
    """Whether a value in a configuration is code: what can be called, a scorer, or the object of a filter's class."""
    return callable(value) or any(callable(getattr(value, name, None)) for name in ("apply", "score_instances"))


def code_in(value: Any) -> str | None:
    """The first code in a configuration that `named_code` wrote."""
    if isinstance(value, Mapping | list | tuple):
        inside = map(code_in, value.values() if isinstance(value, Mapping) else value)
        return next((found for found in inside if found is not None), None)
    return value if isinstance(value, str) and value.startswith(IN_PYTHON) else None


class UserCodeError(SelfExplanatory):
    """An exception of user code as a sentence; the exception is its cause."""


def call_user_code(place: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Failed:
    """Return the value of user code, or a Failed with the reason.

    >>> call_user_code("metric 'half'", int, "7")
    7
    >>> call_user_code("metric 'half'", int, "x")
    Failed(reason="metric 'half': ValueError: invalid literal for int() with base 10: 'x'")
    """
    try:
        return function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001  # the one broad except: user code may raise anything
        return Failed(_sentence(_message(error)) if isinstance(error, SelfExplanatory) else explain(place, error))


class user_code:  # noqa: N801  # reads as a statement: `with user_code("process_docs", DataError):`
    """Context manager around user code: an exception is raised again as an `error` that says what was raised, and where.

    It can be entered any number of times. Errors of class `passes` are not converted.
    """

    __slots__ = ("_error", "_passes", "_place")

    def __init__(
        self,
        place: str,
        error: Callable[[str], Exception] = UserCodeError,
        passes: type[SelfExplanatory] = SelfExplanatory,
    ) -> None:
        self._place, self._error, self._passes = place, error, passes

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, self._passes | GeneratorExit):
            raise self._error(explain(self._place, error)) from error

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not _is_cancellation(error):
            self.__exit__(kind, error, trace)


def explain(place: str, error: BaseException) -> str:
    """Describe an exception of user code: place, type, message, and file and line of the user's frame.

    Ctrl-C is raised again, also where Python has made another error of it: a RuntimeError in `__set_name__`.
    """
    cause: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if isinstance(cause, KeyboardInterrupt):
            raise cause
        cause = cause.__cause__ if cause is not None else None
    before = f"{place}: " if place else ""
    if isinstance(error, SelfExplanatory):
        return before + _message(error)
    fix = (
        f" (pip install {error.name.partition('.')[0]})"
        if isinstance(error, ModuleNotFoundError) and error.name
        else ""
    )
    frame = _user_frame(error)
    where = f" ({Path(frame[0]).name}:{frame[1]})" if frame is not None else ""
    return f"{before}{describe_error(error)}{fix}{where}"


def describe_error(error: BaseException) -> str:
    """Return type and message of an exception as a line without secrets.

    >>> describe_error(OSError("401 for https://me:pw@host/v1"))
    'OSError: 401 for https://***@host/v1'
    """
    return f"{type(error).__name__}: {redact_text(_sentence(_message(error))):.{MOST_WORDS}}".removesuffix(": ")


def is_overridden(owner: object, method: str, base: type) -> bool:
    """Whether a method of an object is not the one of `base`: a subclass defines it, or it was set on the object itself.

    >>> class Shape:
    ...     def area(self): return 0
    >>> square = Shape(); square.area = lambda: 4
    >>> is_overridden(square, "area", Shape), is_overridden(Shape(), "area", Shape)
    (True, False)
    """
    return method in getattr(owner, "__dict__", ()) or getattr(type(owner), method, None) is not getattr(base, method)


def words(error: BaseException) -> str:
    """Return type and message of an error; for a model whose tool failed, where file and line would change request keys.

    >>> words(KeyError("gold"))
    "KeyError: 'gold'"
    """
    return f"{type(error).__name__}: {without_queries(_message(error))}".removesuffix(": ")


def _message(error: BaseException) -> str:
    """The message without the secrets of this process; empty if the exception class fails to format it."""
    try:
        return conceal(written(str(error)))
    except (Exception, SystemExit):  # noqa: BLE001  # it cannot go through call_user_code, which calls it
        return ""


def _sentence(message: str) -> str:
    r"""A message in one line: it becomes a reason in tables, lists and logs.

    >>> _sentence("shapes differ:\n  (2, 3)\n  (3, 2)\n"), _sentence("one  line")
    ('shapes differ: (2, 3) (3, 2)', 'one  line')
    """
    return " ".join(line.strip() for line in message.splitlines() if line.strip()) if "\n" in message else message


def _is_cancellation(error: BaseException) -> bool:
    asyncio = sys.modules.get("asyncio")  # if it was never imported, nothing can be cancelled
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


def place_of(purpose: str, function: object) -> str:
    """Return the YAML key of a user's function with the function and its location.

    >>> place_of("doc_to_text", len)
    'doc_to_text (len)'
    """
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    code = getattr(function, "__code__", None)
    where = f", {Path(code.co_filename).name}:{code.co_firstlineno}" if code is not None else ""
    return f"{purpose} ({name}{where})"


def _user_frame(error: BaseException) -> tuple[str, int] | None:
    """File and line of the deepest frame in user code, otherwise in the file assay called, otherwise outside assay."""
    outside = [frame for frame in _frames(error.__traceback__) if not frame[0].startswith((_OWN, "<"))]
    if not outside:
        return None
    own = [frame for frame in outside if not _is_installed(frame[0])]
    called = next((file for file, _ in outside if not file.startswith(_STANDARD)), None)
    return (own or [frame for frame in outside if frame[0] == called] or outside)[-1]


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, int]]:
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next


def _is_installed(file: str) -> bool:
    """Whether a file is part of Python or of an installed package."""
    return file.startswith(_STANDARD) or any(folder in file for folder in _INSTALLED)


# --- with a time limit ----------------------------------------------------------------------------------------------
# Regular expressions of users may never end, so every document has a time limit.


def in_main_thread() -> bool:
    """Whether alarms can be set at all: only the main thread gets them."""
    return threading.get_ident() == threading.main_thread().ident and _CAN_ALARM


def timed(seconds: float, place: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Failed:
    """As `call_user_code`, with a limit in seconds. Within another call of it, the limit of that one holds."""
    return call_user_code(place, alarmed, seconds, "a filter or metric", function, *args, **kwargs)  # type: ignore[arg-type]  # one T for both


def alarmed(seconds: float, what: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function; after some seconds it is stopped by a TimeoutError: Python's pattern matcher looks for signals now
    and then. Where alarms cannot be set, or one is set already, it is just called.

    The alarm is repeated, so that of a document whose first metric was stopped, the second one can be stopped, too.
    """
    global _limit
    if _limit is not None or not in_main_thread():
        return function(*args, **kwargs)
    if getsignal(signal.SIGALRM) is not _stop:  # user code may set alarms, and leave its handler behind
        signal.signal(signal.SIGALRM, _stop)
    _limit = (what, seconds)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
            return function(*args, **kwargs)
        finally:
            _limit = None
            signal.setitimer(signal.ITIMER_REAL, 0)
    except TimeoutError:  # the alarm may have come between these two lines
        _limit = None
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise


def _stop(*_: object) -> None:
    if _limit is not None:
        raise TimeoutError(f"{_limit[0]} took more than {_limit[1]:g} s")


_limit: tuple[str, float] | None = None
"""The thing that the alarm stops now, and its seconds."""


@contextmanager
def clock_stopped() -> Iterator[None]:
    """Suspend the time limit of a document; code inside may set alarms."""
    if not in_main_thread():
        yield
        return
    left, repeated = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, repeated)


def is_writable(value: Any) -> bool:
    """Whether all text in a value can be written as UTF-8.

    >>> is_writable(["é", {"a": 5}]), is_writable({"a": ["x\\ud800"]})
    (True, False)
    """
    if isinstance(value, str):
        return value.isascii() or _encodes(value)
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(is_writable, value))
    if isinstance(value, Mapping):
        return all(map(is_writable, value)) and all(map(is_writable, value.values()))
    return True


def written(text: str) -> str:
    """Return text that can be encoded as UTF-8, with lone surrogates escaped.

    >>> written("x\\ud800")
    'x\\\\ud800'
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
