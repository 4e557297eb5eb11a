"""What every target of the fuzz is made of: inputs are a few files, and a check puts them in their place and tries all that reads them.

A check passes if everything works or is refused in words: an AssayError, or an exit code of the command line.
"""

import contextlib
import io
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from assay.cli import main
from assay.errors import AssayError

Files = Mapping[str, bytes]
TESTS = Path(__file__).parent.parent
BUNDLED = TESTS.parent / "src/assay/bundled/first_steps"


@dataclass(frozen=True)
class Target:
    """A door: what is sent through it, and who reads that."""

    inputs: Callable[[], st.SearchStrategy[Files]]
    check: Callable[[Files, Path], None]


def command(*arguments: object) -> None:
    """Run the command line; every exit code is an answer."""
    with contextlib.suppress(SystemExit):
        main([str(each) for each in arguments])


def refused(do: Callable[[], object]) -> None:
    """Do something that may be refused."""
    with contextlib.suppress(AssayError):
        do()


@contextmanager
def silent() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def placed(files: Files, folder: Path) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@contextmanager
def watched() -> Iterator[None]:
    """Raise what was raised where nobody could catch it: in a thread, or in a destructor."""
    seen: list[BaseException] = []

    def note(raised: object) -> None:
        error = getattr(raised, "exc_value", None)
        if isinstance(error, BaseException) and not isinstance(
            error, TimeoutError
        ):  # the alarm of a document rings again
            seen.append(error)

    hooks = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = threading.excepthook = note
    try:
        yield
    finally:
        sys.unraisablehook, threading.excepthook = hooks
    if seen:
        raise seen[0]
