"""Calls of a user's functions: whatever they raise, and where they end the process, is an error that names them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from assay.errors import AssayError, blame
from assay.records import plain
from assay.samples.rows import DataError
from assay.samples.templates import RenderError
from assay.writable import HALF, is_writable

T = TypeVar("T")


def called(purpose: str, function: object, call: Callable[[], T], error: type[ValueError] = DataError) -> T:
    """What a call of a user's function returns. `purpose` is the key that names the function; Ctrl-C goes through."""
    try:
        return call()
    except (RenderError, DataError, AssayError):
        raise
    except BaseException as raised:
        raise error(blamed(purpose, function, raised)) from raised


def guarded(purpose: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, as one whose errors are those of the document that it is called for, and that returns plain values."""

    def call(*arguments: Any) -> Any:
        try:
            found = plain(function(*arguments))
        except (RenderError, DataError, AssayError):
            raise
        except BaseException as raised:
            raise RenderError(blamed(purpose, function, raised)) from raised
        if not is_writable(found):
            raise RenderError(f"{purpose} ({_named(function)}) returned {HALF}")
        return found

    return call


def blamed(purpose: str, function: object, raised: BaseException) -> str:
    """The sentence that says which function raised what.

    >>> blamed("doc_to_text", len, KeyError("gold"))
    "doc_to_text (len) raised KeyError: 'gold'"
    """
    what = f"{blame(raised):.300}"
    ended = "tried to end the process with" if isinstance(raised, SystemExit) else "raised"
    return f"{purpose} ({_named(function)}) {ended} {what}"


def _named(function: object) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    code = getattr(function, "__code__", None)
    return f"{name}, {Path(code.co_filename).name}:{code.co_firstlineno}" if code is not None else str(name)
