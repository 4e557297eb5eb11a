"""For scorers that take long: processes that score, and a cache of scores that were computed before.

Processes are made by forking, when the tasks are prepared and before there is a model, a connection or a thread: each
has the scorers as they are, helper code included, and only answers and scores travel. Where a system cannot fork, or has
one processor, scores are computed in this process.
"""

import ctypes
import inspect
import json
import os
import pickle
import re
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from assay.records import Answer, Failed, MetricValue, Params, UserValue
from assay.scoring.results import Reference
from assay.user_code import TIME_LIMIT, call_user_code, timed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

ScoreInput = Any
"""The input of one score: reference and answers, with the document before them where all are scored at once."""
TOGETHER = 8
"""Documents that are given to a process at once."""
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_OWN = f"{Path(__file__).parent.parent}{os.sep}"
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG: no process outlives a run that is killed."""


class ParallelScorer(Protocol):
    """The part of a scorer that a process needs."""

    @property
    def name(self) -> str: ...

    def score(self, reference: Reference, predictions: list[Answer]) -> MetricValue: ...


class ScoreWorkers(Protocol):
    """Where scores that take long are computed: in processes of this machine, or on the nodes of a cluster."""

    def score(self, scorer: ParallelScorer, asked: Sequence[ScoreInput], place: str = "") -> list[MetricValue]:
        """The scores of answers, in their order; or of each the failure that it is."""
        ...


class Workers:
    """Processes for some scorers: one that hands answers out, and those that score, which are children of it.

    A process that dies, of a segmentation fault say, takes the score of one document with it: another process takes its
    place. It is forked from the one that hands out, which has neither a model nor threads.
    """

    def __init__(self, scorers: Sequence[ParallelScorer], count: int | None = None) -> None:
        self._count = count if count is not None else usable_cpus() if can_fork() else 1
        self._scorers = list(scorers)
        self._link: Connection | None = None
        self._supervisor: BaseProcess | None = None
        if scorers and self._count > 1 and can_fork():
            self._link, self._supervisor = self._started()

    def _started(self) -> "tuple[Connection, BaseProcess]":
        from multiprocessing import get_context

        forked = get_context("fork")
        here, there = forked.Pipe()
        supervisor = forked.Process(target=_supervise, args=(there, here, self._scorers, self._count, os.getpid()))
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # of threads: libraries may have some that do nothing yet
            supervisor.start()
        there.close()
        return here, supervisor

    def score(self, scorer: ParallelScorer, asked: Sequence[ScoreInput], place: str = "") -> list[MetricValue]:
        """The scores of answers, in their order; or of each the failure that it is."""
        place = place or f"scoring: scorer {scorer.name!r}"
        if self._link is None:
            return [_guarded(place, scorer, *each) for each in asked]
        number = next(number for number, each in enumerate(self._scorers) if each is scorer)
        try:
            self._link.send((number, place, asked))
            written = self._link.recv()
        except (EOFError, OSError):
            return [Failed(f"{place}: the processes that score were ended from outside")] * len(asked)
        return [each if isinstance(each, Failed) else call_user_code(place, pickle.loads, each) for each in written]

    def close(self) -> None:
        if self._link is not None and self._supervisor is not None:
            self._link.close()
            self._supervisor.terminate()  # those below it end with it
            self._supervisor.join()


def can_fork() -> bool:
    """Whether this is a system where forking does no harm: Linux."""
    return sys.platform == "linux"


QUOTAS = ("/sys/fs/cgroup/cpu.max",), ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us")
"""Files with the share of the CPUs that a container has, and its period: of control groups 2 and 1."""


def usable_cpus() -> int:
    """Number of CPUs that this process may use: a container may have few of those of its machine."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for files in QUOTAS:
        with suppress(OSError, ValueError):  # "max" where there is no limit
            quota, period = (int(part) for name in files for part in Path(name).read_text().split())
            count = min(count, max(1, quota // period)) if quota > 0 else count
    return count


def _begin(parent: int) -> None:
    """Prepare a process: Ctrl-C is left to the run, and the process ends with the one that made it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _supervise(
    link: "Connection", other_end: "Connection", scorers: Sequence[ParallelScorer], count: int, parent: int
) -> None:
    """Hand answers to processes, and their scores back, until the run ends."""
    _begin(parent)
    other_end.close()
    crew = [_Worker(scorers) for _ in range(count)]
    while True:
        try:
            number, place, asked = link.recv()
        except EOFError:
            os._exit(0)
        link.send(_scores(crew, number, place, asked))


def _scores(crew: "Sequence[_Worker]", number: int, place: str, asked: Sequence[ScoreInput]) -> list[bytes | Failed]:
    """The scores as they were written by the processes; a process that dies fails the document that it was scoring."""
    from multiprocessing.connection import wait

    written: list[bytes | Failed] = [b""] * len(asked)
    left = deque(range(len(asked)))
    for worker in crew:
        worker.take(left, number, place, asked)
    while busy := {worker.link: worker for worker in crew if worker.documents}:
        for link in wait(list(busy)):
            worker = busy[link]  # type: ignore[index]  # these are the connections that were given
            document = worker.documents[0]
            try:
                written[document] = worker.link.recv_bytes()
                worker.documents.popleft()
            except (EOFError, OSError):
                written[document] = Failed(f"{place}: {worker.buried()}")
                left.extendleft(list(worker.documents)[:0:-1])
                worker.start()
            if not worker.documents:
                worker.take(left, number, place, asked)
    return written


class _Worker:
    """A process that scores, with the numbers of the documents that it was given."""

    def __init__(self, scorers: Sequence[ParallelScorer]) -> None:
        self._scorers = scorers
        self.start()

    def start(self) -> None:
        from multiprocessing import get_context

        forked = get_context("fork")
        self.documents: deque[int] = deque()
        self.link, there = forked.Pipe()
        self._process = forked.Process(target=_work, args=(there, self.link, self._scorers, os.getpid()))
        self._process.start()
        there.close()

    def take(self, left: deque[int], number: int, place: str, asked: Sequence[ScoreInput]) -> None:
        """Give it the next documents."""
        self.documents = deque(left.popleft() for _ in range(min(TOGETHER, len(left))))
        if self.documents:
            with suppress(OSError):  # it is dead, which is found when its scores are read
                self.link.send((number, place, [asked[each] for each in self.documents]))

    def buried(self) -> str:
        """How the process ended."""
        self._process.join()
        code = self._process.exitcode or 0
        how = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with exit code {code}"
        self.link.close()
        return f"the process that scored it ended {how}"


def _work(link: "Connection", other_end: "Connection", scorers: Sequence[ParallelScorer], parent: int) -> None:
    """Score the documents that come, and send each score when it is there."""
    _begin(parent)
    other_end.close()
    with suppress(EOFError, BrokenPipeError):
        while True:
            number, place, asked = link.recv()
            for each in asked:
                value = _guarded(place, scorers[number], *each)
                written = call_user_code(place, pickle.dumps, value)
                link.send_bytes(pickle.dumps(written) if isinstance(written, Failed) else written)
    os._exit(0)


def _guarded(place: str, scorer: ParallelScorer, reference: Reference, predictions: list[Answer]) -> MetricValue:
    return timed(TIME_LIMIT, place, scorer.score, reference, predictions)


class ScoreStore(Protocol):
    """Where scores are kept by key."""

    def get(self, key: bytes) -> bytes | None: ...
    def add(self, key: bytes, value: bytes) -> None: ...


class ScorerMemo:
    """The scores of one scorer. `identity` is its source, its version and its parameters: with another, all are computed anew."""

    def __init__(self, identity: str, store: ScoreStore) -> None:
        self._key_of_scorer, self._store = blake2b(identity.encode()).digest(), store

    def filled(
        self, asked: Sequence[ScoreInput], compute: Callable[[list[int]], Sequence[MetricValue]]
    ) -> list[MetricValue]:
        """The scores of everything asked; `compute` is given the numbers of those that are not known yet."""
        keys = [self._key(each) for each in asked]
        stored = [self._store.get(key) if key is not None else None for key in keys]
        missing = [number for number, known in enumerate(stored) if known is None]
        computed = dict(zip(missing, compute(missing), strict=True)) if missing else {}
        for number, value in computed.items():
            key, written = keys[number], _written(value)
            if key is not None and written is not None:
                self._store.add(key, written)
        return [computed[number] if known is None else json.loads(known) for number, known in enumerate(stored)]

    def _key(self, asked: ScoreInput) -> bytes | None:
        text = _written(asked)
        return blake2b(text, key=self._key_of_scorer, digest_size=16).digest() if text else None


def _written(value: MetricValue | ScoreInput) -> bytes | None:
    """A value as JSON, if it can be read back as what it was."""
    if isinstance(value, Failed):
        return None
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        return None
    return text.encode() if json.loads(text) == value else None


def identity_of(kind: type, until: type, version: str | int, kwargs: Params) -> str | None:
    """Everything the scores of a class depend on beside answers: its source and that of its bases, up to `until`, with the
    files they are defined in and the files beside them that these import.

    None where that is unknown.
    """
    kinds = kind.__mro__[: kind.__mro__.index(until)]
    code = call_user_code("", _code, kinds)
    if isinstance(code, Failed):
        return None
    try:
        sources = [inspect.getsource(each) for each in kinds]
        return json.dumps([sources, code, version, dict(kwargs)], default=_source)
    except (OSError, TypeError):
        return None


def _code(kinds: Sequence[type]) -> list[str]:
    """The content of the files of users' classes: a function that `score` calls may be anywhere in them."""
    known: dict[str, str] = {}
    for kind in kinds:
        for method in vars(kind).values():
            _read_files(getattr(method, "__globals__", {}), "", known)
    return sorted(known.values())


def _read_files(scope: Mapping[str, Any], folder: str, known: dict[str, str]) -> None:
    """Read the file of a module's names, and those of what it imports from its folder."""
    file = scope.get("__file__")
    if not isinstance(file, str) or file in known or file.startswith(_OWN) or not file.startswith(folder):
        return
    _read_text(Path(file), known)
    beside = f"{Path(file).parent}{os.sep}"
    if beside.endswith(_INSTALLED):
        return  # the folder of all packages
    for value in list(scope.values()):
        module = value if isinstance(value, ModuleType) else sys.modules.get(str(getattr(value, "__module__", "")))
        inner = getattr(value, "__globals__", None) or (vars(module) if module is not None else {})
        _read_files(inner, folder or beside, known)


_IMPORTED = re.compile(r"^[ \t]*(?:from|import)[ \t]+\.?(\w+)", re.MULTILINE)


def _read_text(file: Path, known: dict[str, str]) -> None:
    """Read a file, and those beside it that it imports: of a plain value nothing says where it comes from."""
    if str(file) in known:
        return
    known[str(file)] = text = file.read_text(encoding="utf-8")
    for name in _IMPORTED.findall(text):
        if (beside := file.with_name(f"{name}.py")).is_file():
            _read_text(beside, known)


def _source(value: UserValue) -> str:
    if not callable(value):
        raise TypeError("only functions have a source")
    return inspect.getsource(value)
