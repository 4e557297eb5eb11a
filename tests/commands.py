"""The command line for tests: in this process, which costs a tenth, or in a separate one where the process is the point."""

import gc
import importlib
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from assay.cli import main
from assay.plugins import REGISTRIES, registry


@dataclass(frozen=True)
class Ended:
    """What a command left: named as `subprocess.CompletedProcess` names it."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Ended]
"""A fixture that runs the command line: `(*arguments, cwd=None, **variables)`."""

READ_ONCE = ("PYTHON", "HF_")
"""Beginnings of the names of variables that Python reads when it starts, and libraries when they are imported."""


def run_command(*arguments: object, cwd: Path, **variables: str) -> Ended:
    """Run the command line in this process as `python -m assay` runs it in a separate one, and leave nothing of it behind."""
    assert not [name for name in variables if name.startswith(READ_ONCE)], "read at the start or an import: run_process"
    words = list(map(str, arguments))
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        with isolated_state(), _output_to(out, err), _logging_of_a_process(), warnings.catch_warnings():
            os.environ.update(variables)
            os.chdir(cwd)
            sys.argv = ["assay", *words]
            sys.path.insert(0, str(cwd))  # as `-m` does
            see_new_modules()
            try:
                code = main(words)
            except SystemExit as ended:
                code = _exit_code(ended)
        return Ended(code, _text(out), _text(err))


def see_new_modules() -> None:
    """Let imports find a module that a test wrote a moment ago.

    A thread of an earlier command may import its modules meanwhile, and Python's cache change under the loop over it.
    """
    for _ in range(10):
        with suppress(RuntimeError):
            importlib.invalidate_caches()
            return
        time.sleep(0.05)
    importlib.invalidate_caches()


def run_process(*arguments: object, cwd: Path, **variables: str) -> Ended:
    """Run the command line in a separate process: for start-up, exit, signals, encodings and `PYTHONPATH`."""
    command = [sys.executable, "-m", "assay", *map(str, arguments)]
    environment = {**os.environ, **variables}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, check=False)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def registered_names() -> dict[str, frozenset[str]]:
    """Return the names that users have registered in the registries imported so far."""
    names = {}
    for kind, place in REGISTRIES.items():
        module, _, attribute = place.partition(":")
        entries = getattr(sys.modules.get(module), attribute, None)
        if entries is not None:
            names[kind] = frozenset(entries.added)
    return names


@contextmanager
def isolated_state() -> Iterator[None]:
    """Restore the working folder, variables, arguments, search path, registered names and imported files of users."""
    folder, variables, words, path = Path.cwd(), dict(os.environ), sys.argv, list(sys.path)
    threshold = gc.get_threshold()
    try:
        with isolated_plugins():
            yield
    finally:
        os.chdir(folder)
        if os.environ != variables:
            os.environ.clear()
            os.environ.update(variables)
        sys.argv, sys.path[:] = words, path
        gc.set_threshold(*threshold)


@contextmanager
def isolated_plugins() -> Iterator[None]:
    """Forget the names that are registered inside, and the files of users that are imported: they belong to the whole process."""
    names, modules = registered_names(), set(sys.modules)
    try:
        yield
    finally:
        _forget_names(names)
        _forget_modules(set(sys.modules) - modules)


def _forget_names(before: Mapping[str, frozenset[str]]) -> None:
    for kind, now in registered_names().items():
        for name in now - before.get(kind, frozenset()):
            del registry(kind)[name]


def _forget_modules(loaded: set[str]) -> None:
    """Let the next test that names a plug-in, or another file that a test wrote, import it again."""
    for name in loaded:
        file = getattr(sys.modules[name], "__file__", None) or ""
        # not all of the temporary folder: CI keeps its environment there, and perhaps this repository
        if name.startswith("assay_plugin_") or "/pytest-of-" in file:
            del sys.modules[name]


def _exit_code(ended: SystemExit) -> int:
    """Return the code that Python would exit with."""
    if isinstance(ended.code, str):
        sys.stderr.write(f"{ended.code}\n")
        return 1
    return ended.code or 0


@contextmanager
def _output_to(out: TextIO, err: TextIO) -> Iterator[None]:
    """Send both streams to files, by descriptor too: processes that a command starts write there.

    The streams have separate descriptors, since a command that cannot write any more puts another file in their place.
    """
    kept = os.dup(1), os.dup(2)
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    try:
        with (
            os.fdopen(os.dup(1), "w", encoding="utf-8") as stdout,
            os.fdopen(os.dup(2), "w", encoding="utf-8", buffering=1) as stderr,
            redirect_stdout(stdout),
            redirect_stderr(stderr),
        ):
            yield
    finally:
        for descriptor, copy in enumerate(kept, start=1):
            os.dup2(copy, descriptor)
            os.close(copy)


@contextmanager
def _logging_of_a_process() -> Iterator[None]:
    """Take pytest's handlers away: without any, Python prints warnings to standard error, as users see them."""
    loggers = [logging.getLogger(name) for name in (None, "assay", "assay.validate")]
    before = [(logger.handlers, logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers = []
    try:
        yield
    finally:
        for logger, (logger.handlers, level, logger.propagate) in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _text(file: TextIO) -> str:
    file.seek(0)
    return file.read()
