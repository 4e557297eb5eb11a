"""The time that a run still takes, from the requests that are left and how long such requests took lately.

Requests differ: a log-likelihood takes milliseconds, a long text minutes. So every task and role has its own latency; a task
that has not begun has that of its kind, if tasks of the kind agree. What has not been seen is listed as unknown, never guessed.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple
from weakref import WeakKeyDictionary

from assay.engine.counts import TaskCounts
from assay.engine.drive import Engine
from assay.evaluation.dispatch import RunProgress
from assay.tasks.preflight import token_limit
from assay.tasks.run import TaskRun
from assay.tasks.runnable import UNDER_TEST, Runnable

MIN_SECONDS = 0.25
"""Time between two computations."""
SHARE = 0.02
"""Maximum share of the time that computing takes."""
RECENT = 128
"""Number of latencies of a task that count."""
SPEED_SECONDS, SPEED_LATENCIES = 5.0, 6.0
"""The speed of a lane is that of the last seconds, or of so many latencies if those are longer."""
FULL = 0.9
"""Share of its capacity from which on a lane is full."""
FORGET = 0.98
"""Weight of what a local model did before its last answers."""
RATE_SECONDS = 5.0
ALIKE = 2.0
"""Maximum ratio of the latencies of tasks of one kind whose mean is used for tasks that have not begun."""
MIN_TEXTS = 2
"""Number of tasks with one limit of tokens that must agree before the length of another task's texts is expected: texts differ
more than log-likelihoods."""
TEXTS = "texts of up to "
LOGLIKELIHOODS, ROLLING, JUDGE_CALLS = "log-likelihoods", "rolling log-likelihoods", "judge calls"


class TimeLeft(NamedTuple):
    """Requests that are done and those that are left, requests per second, the seconds that are left (None if nothing is
    known), and the kinds of requests that have not been seen."""

    done: int = 0
    left: int = 0
    rate: float = 0.0
    seconds: float | None = None
    unknown: tuple[str, ...] = ()


class Need(NamedTuple):
    """Requests of a task to a role that are left, and how long one takes; None where that is unknown, by its `kind`."""

    role: str
    kind: str
    requests: float | None
    seconds: float | None


KnownKinds = dict[tuple[str, str], list[tuple[float, float]]]
"""By kind and role of requests: the requests per document and the seconds of each task that has been measured."""


class LaneSpeed:
    """The speed of a role: seconds of latency that are worked off in a second, which is the number of requests at once.

    A request in flight counts as half done, on average. Judges wait for answers to judge, and the model waits for judges that are
    behind: the speed of a lane that waits for others is measured only while it is full.
    """

    def __init__(self) -> None:
        self.active = self.work = self.half_done = self.latency = 0.0
        self.history: deque[tuple[float, float]] = deque(maxlen=4096)
        self._was_measured = False

    def add(self, passed: float, work: Mapping[float, int], pending: int, *, is_full: bool, waits: bool) -> None:
        """Add what was worked off in the time that passed: the number of answers by latency. It `waits` where another lane keeps
        requests from it."""
        is_measured = is_full if waits else bool(pending or work)
        if is_measured and not self._was_measured:
            self.history.clear()
        self.active += passed if self._was_measured else 0.0
        self._was_measured = is_measured
        self.work += sum(latency * number for latency, number in work.items())
        if work:
            self.latency = max(work, key=lambda latency: work[latency] * latency)
        self.half_done = pending * self.latency / 2
        if is_measured:
            self.history.append((self.active, self.work + self.half_done))

    def speed(self, capacity: float) -> float:
        """The recent speed, or the capacity while there is too little to measure."""
        span = max(SPEED_SECONDS, SPEED_LATENCIES * self.latency)
        while len(self.history) > 2 and self.active - self.history[1][0] > span:
            self.history.popleft()
        if len(self.history) < 2:
            return capacity
        active, work = (now - then for now, then in zip(self.history[-1], self.history[0], strict=True))
        return work / active if active > max(0.5, 2 * self.latency) and work > 0 else capacity


class TimeEstimator:
    """Called with the progress of a run, returns what is left of it; computes now and then, however often it is called."""

    def __init__(self) -> None:
        self._last = TimeLeft()
        self._next = self._before = 0.0
        self._received: dict[tuple[str, str], int] = {}
        self._lanes: dict[str, LaneSpeed] = {}
        self._local: dict[tuple[str, str], tuple[float, float]] = {}
        """Of local models the seconds and the requests of each task, lately."""
        self._waited: dict[str, float] = {}
        self._totals: deque[tuple[float, int]] = deque()
        self._kinds: dict[str, str] = {}
        self._roles: dict[str, list[str]] = {}
        """By task the roles of the models that its scorers ask."""

    def __call__(self, run: RunProgress) -> TimeLeft:
        started = time.monotonic()
        if started < self._next:
            return self._last
        self._measure(run.engine, started)
        known = self._known(run)
        needs = {id(each): list(self._needs(each, run, known)) for each in run.tasks}
        self._last = self._summed(run, needs, started)
        self._next = started + max(MIN_SECONDS, (time.monotonic() - started) / SHARE)
        return self._last

    def _measure(self, engine: Engine, now: float) -> None:
        """Note what was received since the last time."""
        passed = now - self._before if self._before else 0.0
        self._before = now
        new: dict[str, dict[str, int]] = {}
        for task, counts in engine.task_counts.items():
            for role, number in counts.received.items():
                added = number - self._received.get((task, role), 0)
                if added:
                    new.setdefault(role, {})[task] = added
                    self._received[task, role] = number
        roles = {*new, *engine.busy_roles, *self._lanes}
        full = {role for role in roles if engine.pending(role) >= FULL * engine.capacity(role)}
        for role in roles:
            if role in engine.usage.local:
                self._measure_local(role, new.get(role, {}), passed)
                continue
            work = {self._latency(engine, task, role) or 0.0: added for task, added in new.get(role, {}).items()}
            waits = role != UNDER_TEST or bool(full - {UNDER_TEST})
            lane = self._lanes.setdefault(role, LaneSpeed())
            lane.add(passed, work, engine.pending(role), is_full=role in full, waits=waits)

    def _measure_local(self, role: str, new: Mapping[str, int], passed: float) -> None:
        self._waited[role] = self._waited.get(role, 0.0) + passed
        total = sum(new.values())
        for task, added in new.items():
            seconds, requests = self._local.get((task, role), (0.0, 0.0))
            keep = FORGET if requests > added else 1.0
            self._local[task, role] = (keep * seconds + self._waited[role] * added / total, keep * requests + added)
        if total:
            self._waited[role] = 0.0

    def _latency(self, engine: Engine, task: str, role: str) -> float | None:
        """Seconds of a recent request of a task; of a local model the time for each."""
        if role in engine.usage.local:
            seconds, requests = self._local.get((task, role), (0.0, 0.0))
            return seconds / requests if requests else None
        known = engine.usage.seconds.get((task, role))
        recent = known[-RECENT:] if known else ()
        return sum(recent) / len(recent) if recent else None

    def _needs(self, run: TaskRun, progress: RunProgress, known: KnownKinds) -> Iterator[Need]:
        """Requests that a task still needs, by role."""
        task, engine, name = run.runnable, progress.engine, run.runnable.task.name
        counts = engine.task_counts.get(name)
        if counts is not None and counts.ended >= task.facts.size:
            return
        is_graph = task.task.definition is not None
        if name not in self._roles:
            self._roles[name] = [*task.facts.models]
        asked = list(counts.asked) if counts is not None else []
        others = [*self._roles[name], *asked]
        roles = dict.fromkeys([UNDER_TEST, *others] if task.needs() or not is_graph else others)
        for role in roles:
            kind = self._kind(task, role)
            per_document = _per_document(role, counts, is_graph=is_graph)
            seconds = self._latency(engine, name, role)
            if per_document is None or seconds is None:
                alike = _alike(kind, known.get((kind, role), ()))
                per_document = alike[0] if per_document is None and alike is not None else per_document
                seconds = alike[1] if seconds is None and alike is not None else seconds
            yield Need(role, kind, _requests_left(task, role, counts, per_document), seconds)

    def _known(self, progress: RunProgress) -> KnownKinds:
        """What has been measured of each kind of request, in one pass over the tasks: there may be thousands."""
        known: KnownKinds = {}
        for each in progress.tasks:
            task, name = each.runnable, each.runnable.task.name
            counts = progress.engine.task_counts.get(name)
            for role in counts.asked if counts is not None else ():
                seconds = self._latency(progress.engine, name, role)
                per_document = _per_document(role, counts, is_graph=task.task.definition is not None)
                if seconds is not None and per_document is not None:
                    known.setdefault((self._kind(task, role), role), []).append((per_document, seconds))
        return known

    def _kind(self, task: Runnable, role: str) -> str:
        name = task.task.name
        if role != UNDER_TEST and task.task.definition is None:
            return JUDGE_CALLS if role == "judge" else f"calls of {role}"
        if name not in self._kinds:
            self._kinds[name] = _kind_of(task)
        return self._kinds[name]

    def _summed(self, run: RunProgress, needs: Mapping[int, Sequence[Need]], now: float) -> TimeLeft:
        done = sum(
            sum(chain(counts.known.values(), counts.received.values())) for counts in run.engine.task_counts.values()
        )
        self._totals.append((now, sum(self._received.values())))
        while len(self._totals) > 2 and now - self._totals[1][0] > RATE_SECONDS:
            self._totals.popleft()
        before, passed = self._totals[0][1], now - self._totals[0][0]
        rate = (self._totals[-1][1] - before) / passed if passed > 0 else 0.0
        left, is_known, unknown = 0.0, False, dict[str, list[str]]()
        model_end, ends = 0.0, dict[str, float]()
        half_done = {role: lane.half_done for role, lane in self._lanes.items()}
        speeds = self._speeds(run.engine, [need for each in needs.values() for need in each])
        for each in run.tasks:
            start = model_end
            for role, kind, requests, seconds in needs[id(each)]:
                left += each.runnable.facts.size if requests is None else requests
                if requests is None or seconds is None:
                    unknown.setdefault(TEXTS if kind.startswith(TEXTS) else kind, []).append(each.runnable.task.name)
                    continue
                is_known = True
                takes = max(requests * seconds - half_done.pop(role, 0.0), 0.0) / speeds[role]
                if role == UNDER_TEST:
                    model_end = start + takes
                else:
                    ends[role] = max(ends.get(role, 0.0), start) + takes
        seconds_left = max(model_end, *ends.values(), 0.0) if is_known or not unknown else None
        return TimeLeft(done, round(left), rate, seconds_left, tuple(_unseen(unknown)))

    def _speeds(self, engine: Engine, needs: Sequence[Need]) -> dict[str, float]:
        """By role how many seconds of latency are worked off in a second."""
        speeds: dict[str, float] = {}
        for role in {need.role for need in needs}:
            if role in engine.usage.local or role not in self._lanes:
                speeds[role] = 1.0 if role in engine.usage.local else engine.capacity(role)
                continue
            speeds[role] = self._lanes[role].speed(engine.capacity(role))
        return speeds


def _alike(kind: str, known: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Requests per document and seconds of other tasks of a kind; None where none is known, or they differ much."""
    is_enough = len(known) >= (MIN_TEXTS if kind.startswith(TEXTS) else 1)
    return known[-1] if is_enough and max(s for _, s in known) <= ALIKE * min(s for _, s in known) else None


_ESTIMATORS: "WeakKeyDictionary[Engine, TimeEstimator]" = WeakKeyDictionary()


def time_left_of(run: RunProgress) -> TimeLeft:
    """Estimate the rest of a run; one estimator for all that show it."""
    estimator = _ESTIMATORS.get(run.engine)
    if estimator is None:
        estimator = _ESTIMATORS[run.engine] = TimeEstimator()
    return estimator(run)


def _unseen(unknown: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Names of the kinds of requests that have not been seen."""
    for kind, tasks in unknown.items():
        of = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
        yield f"texts of {of}" if kind == TEXTS else kind


def _per_document(role: str, counts: TaskCounts | None, *, is_graph: bool) -> float | None:
    """Requests to a role for each document of a task; None while that is unknown."""
    if counts is None or not counts.started:
        return None
    if counts.ended and (counts.of_ended or not counts.asked):
        return counts.of_ended.get(role, 0) / counts.ended
    return counts.asked.get(role, 0) / counts.started if role == UNDER_TEST and not is_graph else None


def _requests_left(task: Runnable, role: str, counts: TaskCounts | None, per_document: float | None) -> float | None:
    if per_document is None:
        return None
    if counts is None:
        return task.facts.size * per_document
    done = counts.known.get(role, 0) + counts.received.get(role, 0) - counts.of_ended.get(role, 0)
    return max((task.facts.size - counts.ended) * per_document - done, 0.0)


def _kind_of(task: Runnable) -> str:
    """The kind of a task's requests to the model under test."""
    if task.task.definition is not None:
        return f"steps of {task.task.name}"
    if "generate" not in task.needs():
        return ROLLING if "rolling" in task.needs() else LOGLIKELIHOODS
    return f"{TEXTS}{token_limit(task)} tokens"
