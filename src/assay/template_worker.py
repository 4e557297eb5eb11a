"""Renders templates in a process of its own, with limits on its time, its memory and what it gives.

A template that others wrote can take all time and memory. A thread cannot be stopped, and a limit on the memory of this process
would hit all that it does meanwhile. So there is one more process, started when the first template needs it, and again after a
limit was reached. It gets pickled values and returns text, so that it runs nothing here; of the environment it has what NEEDED
names; and it ends with this process, whose end closes its standard input.
"""

import atexit
import faulthandler
import json
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

from jinja2 import TemplateError, UndefinedError

from assay.user_code import UserCodeError, clock_stopped, user_code

MAX_RENDERED = 64 * 2**20
"""Characters of one rendered template: as many as an answer may have bytes, and more than any model reads."""
MAX_MEMORY = 512 * 2**20
"""Bytes that a template may take while it is rendered: 64 Mi characters, of up to four bytes, in pieces and joined."""
MAX_REASON = 500
"""Characters of the reason that a template failed: it may name what the template made."""
RENDER_ERRORS = (
    UndefinedError, TemplateError, RecursionError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError,
    AssertionError, NameError, re.error, RuntimeError, MemoryError, TimeoutError,
)  # fmt: skip
"""Errors that a template may raise for a document. The process says by number which one it was: the first that fits."""
NEEDED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LC_TIME", "LD_LIBRARY_PATH", "PYTHONHASHSEED", "SYSTEMROOT", "TZ")
"""The environment variables that the process is given. Without torch, transformers is imported in a fraction of the time."""
FIXED = {"USE_TORCH": "0", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
COMMAND = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from assay.template_worker import serve; serve()"
KNOWN_ELSEWHERE = (*sys.stdlib_module_names, "assay", "jinja2", "numpy", "PIL")
"""Packages whose objects the process can have: others may be a user's, whose modules it would not find."""
LARGE = 2**20
"""Bytes of values from which on their own size is added to what a template may take."""
TIMED_OUT = -getattr(signal, "SIGALRM", -1)
"""How the process ends when the time is over: by an alarm, on Windows with the code 1."""
_DONE = -1

Render = Callable[[Any], str]
"""Renders a template with its values."""


class CannotTravel(Exception):  # a statement about values, after which they are rendered here
    """Values that only this process can have: objects of users' classes."""


class _Pickler(pickle.Pickler):
    """Pickles what the other process can unpickle without a user's module."""

    def reducer_override(self, value: object) -> Any:
        owner = value if isinstance(value, type | FunctionType | BuiltinFunctionType) else type(value)
        if (owner.__module__ or "builtins").partition(".")[0] not in KNOWN_ELSEWHERE:
            raise pickle.PicklingError(f"{owner.__module__} may be a user's module")
        return NotImplemented


def _pickled(value: object) -> bytes:
    written = BytesIO()
    try:
        with user_code(""):  # an image is read while it is pickled: that may raise anything
            _Pickler(written, pickle.HIGHEST_PROTOCOL).dump(value)
    except UserCodeError as error:
        if isinstance(error.__cause__, RecursionError):  # data may be nested so: that is no way around the limits
            raise error.__cause__ from None
        raise CannotTravel from None
    return written.getvalue()


def reason(error: BaseException) -> str:
    """The reason that a template failed, in words."""
    if isinstance(error, RecursionError):
        return "the template is nested too deeply, or calls itself without end"
    said = str(error) or type(error).__name__
    return said if len(said) <= MAX_REASON else f"{said[:MAX_REASON]}…"


class Renderer:
    """Renders one template in the process: `make(*arguments)` returns there the function that renders it."""

    def __init__(self, what: str, make: Callable[..., Render], *arguments: object, draws: bool = False) -> None:
        self._what, self._draws = what, draws
        self._maker = _pickled((make, arguments))

    def __call__(self, values: object, seconds: float) -> str:
        """Render it with these values. Raises CannotTravel before anything is done, else what the template raises."""
        state = random.getstate() if self._draws else None  # `| random` draws there what it would draw here
        values_written = _pickled(values)
        try:
            with clock_stopped():  # it has a limit of its own, and may have to be started
                number, drawn, text = _PROCESS.ask(self._maker, seconds, state, values_written)
        except _Ended as ended:
            if ended.code == TIMED_OUT:
                raise TimeoutError(f"{self._what} took more than {seconds:g} s") from None
            raise RuntimeError(f"the process that renders templates ended with code {ended.code}") from None
        if drawn is not None:
            version, numbers, gauss = drawn
            random.setstate((version, tuple(numbers), gauss))
        if number == _DONE:
            return text
        if RENDER_ERRORS[number] is MemoryError:
            text = f"{self._what} takes more than {MAX_MEMORY >> 20} MB of memory"
        raise RENDER_ERRORS[number](text)


class _Ended(Exception):  # a statement about the process
    """The process ended in the middle of a template."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Process:
    """The process, one for all threads: they wait for each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._numbers: dict[bytes, int] = {}

    def ask(self, maker: bytes, seconds: float, state: object, values: bytes) -> tuple[int, Any, str]:
        """Have a template rendered: the number of the error or _DONE, the state of random numbers, and the text."""
        with self._lock:
            is_old = self._child is not None
            try:
                return self._ask(maker, seconds, state, values)
            except _Ended as ended:
                if ended.code == TIMED_OUT or not is_old:
                    raise
            return self._ask(maker, seconds, state, values)  # somebody ended it before

    def _ask(self, maker: bytes, seconds: float, state: object, values: bytes) -> tuple[int, Any, str]:
        child = self._child or self._start()
        assert child.stdin is not None and child.stdout is not None
        is_new = maker not in self._numbers
        number = self._numbers.setdefault(maker, len(self._numbers))
        request = pickle.dumps((number, maker if is_new else None, seconds, state, values), pickle.HIGHEST_PROTOCOL)
        is_ready = False
        try:
            child.stdin.write(request)
            child.stdin.flush()
            result, drawn, text = json.loads(child.stdout.readline())
            is_ready = result == _DONE or RENDER_ERRORS[result] is not MemoryError
        except (BrokenPipeError, json.JSONDecodeError):  # the end of the output is no JSON
            raise _Ended(self._end(patience=1.0)) from None
        finally:
            if not is_ready:  # it would give this answer to the next template, or has too little memory left for it
                self._end()
        return result, drawn, text

    def _start(self) -> "subprocess.Popen[bytes]":
        root = str(Path(__file__).parent.parent)
        path = [*(folder for folder in sys.path if Path(folder).is_absolute()), root]
        command = [sys.executable, "-I", "-S", "-c", COMMAND, json.dumps(path)]
        environment = FIXED | {name: os.environ[name] for name in NEEDED if name in os.environ}
        pipe = subprocess.PIPE
        try:
            self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment)
        except OSError as error:
            raise RuntimeError(f"the process that renders templates cannot be started: {error}") from error
        self._numbers.clear()
        atexit.unregister(self._kill)
        atexit.register(self._kill)
        return self._child

    def _kill(self) -> None:
        """At the end of this process: without the lock, which a thread may hold that waits for a template."""
        child = self._child
        if child is not None:
            child.kill()
            child.wait()

    def end(self) -> None:
        """End the process; the next template starts another."""
        with self._lock:
            self._end()

    def _end(self, patience: float = 0.0) -> int:
        child, self._child = self._child, None
        if child is None:
            return 0
        with suppress(subprocess.TimeoutExpired):
            child.wait(patience)
        child.kill()
        code = child.wait()
        _close(child)
        return code

    def leave_to_parent(self) -> None:
        """In a process that was forked: the other one still uses it."""
        child, self._child, self._lock = self._child, None, threading.Lock()
        if child is not None:
            child.returncode = 0  # it is not ours to wait for
            _close(child)


_PROCESS = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_PROCESS.leave_to_parent)


def _close(child: "subprocess.Popen[bytes]") -> None:
    """Close the pipes to a process, without what is not written yet."""
    for stream in (child.stdin, child.stdout):
        stream.raw.close()  # type: ignore[union-attr]  # both are pipes with buffers


# --- in the process ---------------------------------------------------------------------------------------------------


def serve() -> None:
    """Render what is asked for on the standard input, until that ends."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # a library that prints does not answer
    _prepare_signals()
    limit_memory, renderers = _memory_limit(), dict[int, Render]()
    with suppress(EOFError, BrokenPipeError):
        while True:
            # what it reads is what the process that started this one has pickled
            number, maker, seconds, state, values = pickle.load(requests)  # noqa: S301
            if maker is not None:
                limit_memory(None)
                make, arguments = pickle.loads(maker)  # noqa: S301
                renderers[number] = make(*arguments)
            if maker is not None or len(values) > LARGE:
                limit_memory(MAX_MEMORY + 4 * len(values))
            if state is not None:
                random.setstate(state)
            replies.write(_reply(renderers[number], values, seconds, draws=state is not None) + "\n")
            replies.flush()
    os._exit(0)


def _reply(render: Render, values: bytes, seconds: float, *, draws: bool) -> str:
    """The text, or the number of the error that the template raised and the reason."""
    try:
        own_values = pickle.loads(values)  # noqa: S301
        _set_alarm(seconds)
        text = render(own_values)
        _set_alarm(0)
        if len(text) > MAX_RENDERED:
            raise ValueError(f"the template gives more than {MAX_RENDERED >> 20} million characters")
        return json.dumps([_DONE, random.getstate() if draws else None, text])
    except RENDER_ERRORS as error:
        _set_alarm(0)
        result, text = next(at for at, kind in enumerate(RENDER_ERRORS) if isinstance(error, kind)), reason(error)
    return json.dumps([result, random.getstate() if draws else None, text])


def _prepare_signals() -> None:
    """Leave Ctrl-C to whoever is asking; let alarms end the process, whatever it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # both are inherited


def _set_alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)
    elif seconds:
        faulthandler.dump_traceback_later(seconds, exit=True)
    else:
        faulthandler.cancel_dump_traceback_later()


def _memory_limit() -> Callable[[int | None], None]:
    """A function that limits what this process may have beyond what it has; None lifts the limit."""
    if sys.platform != "linux":
        return lambda _: None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    page = os.sysconf("SC_PAGE_SIZE")

    def limit(more: int | None) -> None:
        wanted = soft
        if more is not None:
            most = int(Path("/proc/self/statm").read_bytes().split()[0]) * page + more
            wanted = min([most, *(known for known in (soft, hard) if known != resource.RLIM_INFINITY)])
        resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))

    return limit
