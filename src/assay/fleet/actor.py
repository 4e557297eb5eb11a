"""The code of a replica: one model in one process of a cluster. It arrives there by the name of this module."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import orjson

from assay.engine.drive import checked
from assay.engine.lanes import Budget, KeyedResponse, WindowLane
from assay.errors import AssayError, ConfigError, Place, Problem, SelfExplanatory
from assay.fleet.wire import pack_responses, read_requests, response_line
from assay.models.load import load_model
from assay.models.protocol import Model, ModelLost, Remote
from assay.records import plain_to_messages
from assay.registry import load_plugins
from assay.user_code import user_code
from assay.version import __version__

CHUNK_SECONDS = 0.05
"""Answers that land within this time of each other are sent together."""
FAILED = b"!"
"""Begins the chunk of a call that failed as a whole."""
BEGINS = b"?"
"""The chunk before the model is asked anything of a call."""


class ReplicaActor:
    """A model that answers calls one after the other. Each call is answered in chunks, while the model continues."""

    def __init__(self, spec: bytes) -> None:
        self._spec: dict[str, Any] = orjson.loads(spec)
        self._model: Model | None = None
        self._worker = ThreadPoolExecutor(1, "model")
        self._runner = asyncio.Runner()
        self._budgets: dict[int, Budget] = {}

    def where(self) -> bytes:
        """The process of this replica."""
        return orjson.dumps({"pid": os.getpid(), "host": socket.gethostname(), "version": __version__})

    def open(self) -> bytes:
        """Open the model; returns its description, or the problems."""
        return self._worker.submit(self._open).result()

    def _open(self) -> bytes:
        with _noted_warnings() as warnings:
            try:
                with user_code("the model cannot be opened"):
                    self._load()
                    return orjson.dumps({**self._described(), "warnings": warnings}, default=str)
            except AssayError as error:
                problems = error.problems
            except SelfExplanatory as error:
                problems = (Problem(Place("model"), str(error), ""),)
        return orjson.dumps({"problems": [_plain_problem(each) for each in problems]})

    def _load(self) -> None:
        """Do what the process of the run did before it would open the model."""
        spec = self._spec
        if Path(spec["folder"]).is_dir():
            os.chdir(spec["folder"])  # paths in arguments are relative to it
        for name, value in spec["environment"].items():
            os.environ.setdefault(name, value)
        if spec["hides_gpus"]:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        load_plugins(spec["plugins"])
        model = load_model(spec["model"], spec["arguments"])
        if isinstance(model, Remote):
            what, fix = f"model {spec['model']!r} is a server, which needs no fleet", "leave out --replicas"
            raise ConfigError.at("replicas", what, fix)
        assert not hasattr(model, "joined"), "a fleet of fleets"
        self._model = model
        if spec["template"] is not None:
            model.use_template(spec["template"])  # type: ignore[attr-defined]  # declared by `named_templates`

    def _described(self) -> dict[str, Any]:
        model = self._model
        assert model is not None
        more = {
            name: getattr(model, name) for name in ("precision", "facts", "remarks", "cuts") if hasattr(model, name)
        }
        return {
            "name": model.name,
            "identity": model.identity,
            "can": asdict(model.can),
            "max_length": model.max_length,
            "window": model.window,
            "more": more,
        }

    def answer(self, call: int, packed: bytes, reports_begin: bool = False) -> Iterator[bytes]:
        """Answer a call: yield chunks of what landed within the same 50 ms."""
        if reports_begin:
            yield BEGINS
        ready: SimpleQueue[list[bytes] | None] = SimpleQueue()
        budget = self._budgets.setdefault(call, Budget())
        running = self._worker.submit(self._answer, packed, budget, ready)
        is_over = False
        while not is_over:
            lines, is_over = _completed(ready)
            if lines:
                yield pack_responses(lines)
        del self._budgets[call]
        reason = running.result()
        if reason:
            yield FAILED + reason.encode("utf-8", "replace")

    def _answer(self, packed: bytes, budget: Budget, ready: "SimpleQueue[list[bytes] | None]") -> str:
        """Answer a call in the thread of the model; returns why it failed as a whole."""

        def receive(_: str, responses: Sequence[KeyedResponse]) -> None:
            ready.put([response_line(number, checked(request, response)) for number, request, response in responses])

        async def drive() -> None:
            assert self._model is not None
            lane = WindowLane("model", self._model, receive, budget)
            lane.put([(b"%d" % number, request) for number, request in enumerate(read_requests(packed))])
            while not budget.at_once and await lane.advance():
                pass

        try:
            with user_code("the replica failed"):
                self._runner.run(drive())
        except ModelLost as error:
            logging.getLogger("assay").error("%s", error)
            os._exit(1)  # Ray starts the replica again, in a process whose device works
        except SelfExplanatory as error:
            return str(error)
        finally:
            ready.put(None)
        return ""

    def cancel(self, call: int) -> None:
        """End a call early: it may be running, or wait."""
        self._budgets.setdefault(call, Budget()).stop("cancelled")

    def describe(self, packed: bytes) -> bytes:
        """Call a method that needs the tokenizer only: its name and arguments; returns the value, or the problems."""
        method, *arguments = orjson.loads(packed)
        try:
            with user_code(f"the model's {method}"):
                if method == "chat_template":
                    arguments[0] = plain_to_messages(arguments[0])
                value = getattr(self._model, method)(*arguments)
                return orjson.dumps({"value": value})
        except AssayError as error:
            problems = error.problems
        except SelfExplanatory as error:
            problems = (Problem(Place("model"), str(error)),)
        return orjson.dumps({"problems": [_plain_problem(each) for each in problems]})


def _completed(ready: "SimpleQueue[list[bytes] | None]") -> tuple[list[bytes], bool]:
    """Wait for lines, and for those that land soon after; returns them, and whether they are the last."""
    lines = ready.get()
    if lines is None:
        return [], True
    due = time.monotonic() + CHUNK_SECONDS
    while (left := due - time.monotonic()) > 0:
        try:
            more = ready.get(timeout=left)
        except Empty:
            break
        if more is None:
            return lines, True
        lines += more
    return lines, False


def _plain_problem(problem: Problem) -> list[object]:
    place = problem.place
    return [place.file, place.line, place.column, problem.what, problem.fix, list(problem.cause)]


@contextmanager
def _noted_warnings() -> Iterator[list[str]]:
    """Collect the warnings of assay: no one reads the log of a replica."""
    noted: list[str] = []

    class _Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            noted.append(record.getMessage())

    handler = _Notes(logging.WARNING)
    logger = logging.getLogger("assay")
    logger.addHandler(handler)
    try:
        yield noted
    finally:
        logger.removeHandler(handler)
