"""Scores that take long, computed on the nodes of a Ray cluster: code execution, math checks, `parallel` scorers.

No object is pickled. A task travels as its definition and the contents of its helper files; a node reads
both as a run does, and answers and scores travel as JSON. A node that cannot bind the task, or has other code, is refused with
its reason. What cannot travel, what fails on a node, and a document that ended two processes there are scored by the processes
of this machine: so every score and every reason is that of a run without a cluster.

Ray places the work, repeats it when a node dies, and uses nodes that join.
"""

import atexit
import json
import logging
import os
import platform
import shutil
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from assay.compat.modules import HelperCode
from assay.config.fields import Fields, Origin
from assay.config.run import RunConfig
from assay.config.source import Source, digest
from assay.dialect import Dialect
from assay.errors import SelfExplanatory
from assay.fleet.cluster import connected
from assay.records import Failed, Function, MetricValue, UserValue
from assay.registry import is_plugin_file, load_plugins
from assay.scoring.helper_code import resolve_functions
from assay.scoring.loop import ParallelMetric, ScoringLoop
from assay.scoring.scorer import Scorer, members_of, scorer_identity
from assay.scoring.scores import Repeated
from assay.scoring.workers import TOGETHER, ParallelScorer, ScoreInput, Workers
from assay.tasks.prepare import PreparedTask, with_settings
from assay.tasks.runnable import Runnable
from assay.tasks.scoring import scoring
from assay.tasks.settings import Settings, seed_random
from assay.tasks.task import Task
from assay.user_code import TIME_LIMIT, call_user_code, timed
from assay.version import __version__

STALLED = TIME_LIMIT * TOGETHER + 40.0
"""Seconds without any score after which the nodes are given up: other work may hold all of their processors."""
LOG = logging.getLogger("assay")
FUNCTION, REPEATED, HERE = "!function", "!repeated", "this machine"


class NotPortable(SelfExplanatory):
    """Why something cannot be written for another machine."""


class _Address(NamedTuple):
    """A scorer or metric, as a node finds it again: by its number in its task. `identity` is that of its code."""

    task: str
    kind: str
    number: int
    name: str
    identity: str


@contextmanager
def node_workers(
    config: RunConfig, tasks: Sequence[Runnable], helper_files: Sequence[Path], local: Workers
) -> Iterator["NodeWorkers"]:
    """The nodes of a run's cluster, for its parallel scorers and metrics; `local` scores what they cannot."""
    with connected(config.ray) as ray:
        workers = NodeWorkers(ray, config, helper_files, local)
        for task in tasks:
            workers.add(task)
        yield workers
        workers.report()


class NodeWorkers:
    """Scores on nodes: the second way of `Workers`."""

    def __init__(self, ray: ModuleType, config: RunConfig, helper_files: Sequence[Path], local: Workers) -> None:
        self._ray, self._config, self._helper_files, self._local = ray, config, helper_files, local
        self._addresses: dict[int, _Address] = {}
        self._definitions: dict[str, Any] = {}
        self._refused: dict[str, dict[str, str]] = {}
        self._counts: Counter[str] = Counter()

    def add(self, task: Any) -> None:
        """Write a task with parallel scorers or metrics down for the nodes; of one that cannot travel, say why."""
        parallel = [(number, each) for number, each in enumerate(task.facts.scorers) if each.parallel]
        metrics = list(enumerate(_metrics(task.scoring))) if isinstance(task, PreparedTask) else []
        if not parallel and not metrics:
            return
        name = task.task.name
        try:
            definition = described(task, self._config, self._helper_files)
            addresses = {
                id(each): _Address(name, "scorer", number, each.name, _code(each)) for number, each in parallel
            }
        except NotPortable as error:
            LOG.warning("task %r is scored on this machine alone: %s", name, error)
            return
        addresses |= {id(each): _Address(name, "metric", number, each.name, "") for number, each in metrics}
        self._definitions[name] = self._ray.put(definition)
        self._addresses |= addresses
        self._refused[name] = {}

    def score(self, scorer: ParallelScorer, asked: Sequence[ScoreInput], place: str = "") -> list[MetricValue]:
        """The scores of answers, in their order; or of each the failure that it is."""
        address = self._addresses.get(id(scorer))
        known: Mapping[int, MetricValue] = {}
        if address is not None:
            node_scores = _NodeScores(self._ray, address, place, asked, self._refused[address.task], self._counts)
            known = node_scores.all(self._definitions[address.task])
        left = [number for number in range(len(asked)) if number not in known]
        here = dict(zip(left, self._local.score(scorer, [asked[each] for each in left], place), strict=True))
        self._counts[HERE] += len(left)
        return [known[number] if number in known else here[number] for number in range(len(asked))]

    def report(self) -> None:
        """Log where scores were computed."""
        if self._counts:
            LOG.info("scores computed: %s", ", ".join(f"{count} on {node}" for node, count in self._counts.items()))


@dataclass(slots=True)
class _NodeScores:
    """The scores of one scorer that nodes compute: some documents at a time, some more than there are processors."""

    ray: ModuleType
    address: _Address
    place: str
    asked: Sequence[ScoreInput]
    refused: dict[str, str]
    """Nodes that cannot score the task, with the reason."""
    counts: Counter[str]
    waiting: deque[list[int]] = field(default_factory=deque)
    running: dict[Any, list[int]] = field(default_factory=dict)
    suspects: set[int] = field(default_factory=set)
    """Documents that were with one of which a process or node died: each is tried alone, once."""
    known: dict[int, MetricValue] = field(default_factory=dict)

    def all(self, definition: Any) -> dict[int, MetricValue]:
        """The scores that nodes could compute, by the number of their document."""
        if self.ray.available_resources().get("CPU", 0) < 1:
            LOG.warning("%s: replicas hold every processor of the cluster; scored on this machine", self.place)
            return self.known
        numbers = [number for number, each in enumerate(self.asked) if _is_plain(list(each))]
        size = max(1, min(TOGETHER, len(numbers) // max(1, 4 * self._processors())))
        self.waiting.extend(numbers[start : start + size] for start in range(0, len(numbers), size))
        last = time.monotonic()
        try:
            while self.waiting or self.running:
                self._submit(definition)
                running = list(self.running)
                done = self.ray.wait(running, num_returns=len(running), timeout=0.05)[0] if running else []
                for each in done:
                    self._take(each, self.running.pop(each))
                last = time.monotonic() if done else last
                if time.monotonic() - last > STALLED:
                    LOG.warning("%s: no node has a free processor; scored on this machine", self.place)
                    break
        finally:
            for each in self.running:
                self.ray.cancel(each, force=True)
        return self.known

    def _nodes(self) -> list[Mapping[str, Any]]:
        return [node for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]

    def _processors(self) -> int:
        return int(sum(node["Resources"]["CPU"] for node in self._nodes()))

    def _submit(self, definition: Any) -> None:
        """Hand documents to Ray, which places them; nodes that were refused are left out, and without any other nothing is."""
        if not self.waiting:
            return
        usable = [node["NodeID"] for node in self._nodes() if node["NodeID"] not in self.refused]
        if not usable:
            self.waiting.clear()
        most = 16 + 2 * self._processors()
        task = self.ray.remote(score_on_node)
        while self.waiting and len(self.running) < most:
            chunk = self.waiting.popleft()
            order = json.dumps([list(self.address), self.place, [list(self.asked[each]) for each in chunk]]).encode()
            node = usable[len(self.running) % len(usable)] if self.refused else ""
            retries = 0 if chunk[0] in self.suspects else 1
            reference = task.options(num_cpus=1, max_retries=retries, **_on_node(node)).remote(definition, order)
            self.running[reference] = chunk

    def _take(self, done: Any, chunk: list[int]) -> None:
        """Note the scores of some documents."""
        try:
            node, host, values = json.loads(self.ray.get(done))
        except self.ray.exceptions.RayError:
            if chunk[0] not in self.suspects:
                self.suspects.update(chunk)
                self.waiting.extendleft([each] for each in reversed(chunk))
            return
        if isinstance(values, str):
            if node not in self.refused:
                self.refused[node] = values
                LOG.warning("task %r is not scored on node %s: %s", self.address.task, host, values)
            self.waiting.appendleft(chunk)
            return
        scores = {number: _read(value[0]) for number, value in zip(chunk, values, strict=True) if value}
        self.known |= scores
        self.counts[f"node {host}"] += len(scores)


def _on_node(node: str) -> dict[str, Any]:
    """The options of Ray for work on a certain node; none for any."""
    if not node:
        return {}
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


# --- a task as text --------------------------------------------------------------------------------------------------


def described(task: Any, config: RunConfig, helper_files: Sequence[Path]) -> bytes:
    """A task for another machine: its definition, the options of the run that change it, and the helper files of the run."""
    if type(task) is not PreparedTask or not task.task.fields:
        raise NotPortable("it is defined by a class or in Python, not by a file")
    own = task.task
    files = {str(file.resolve()): file.read_text(encoding="utf-8") for file in helper_files if file.is_file()}
    plugins = [str(Path(each).resolve()) if is_plugin_file(each) else each for each in config.plugins]
    return json.dumps({
        "versions": versions(), "name": own.name, "folder": str(Path.cwd()), "files": files, "plugins": plugins,
        "fields": {key: _portable(value, key) for key, value in own.fields.items()},
        "rules": [*own.fields.dialect.rules()],
        "run": {"compat": config.compat, "random_seed": config.random_seed, "numpy_random_seed": config.numpy_random_seed},
        "gen_kwargs": _portable(dict(task.settings.gen_kwargs), "gen_kwargs"),
        "repeats": task.config.repeats, "num_fewshot": task.config.num_fewshot,
    }).encode()  # fmt: skip


def versions() -> list[str]:
    """The programs that a score may depend on: nodes must have the same."""
    programs = [__version__, platform.python_version()]
    with suppress(ImportError):
        from importlib.metadata import version

        programs.append(version("math-verify"))
    return programs


def _portable(value: UserValue, key: str) -> Any:
    """A value of a definition as JSON, with functions by name."""
    if isinstance(value, Function):
        return {FUNCTION: [str(Path(value.folder).resolve()), value.module, value.name]}
    if isinstance(value, Mapping) and all(type(each) is str for each in value):
        return {name: _portable(each, key) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_portable(each, key) for each in value]
    if value is None or type(value) in (str, int, float, bool):
        return value
    raise NotPortable(f"{key} holds a value of type {type(value).__name__!r}, which cannot be written as JSON")


def _metrics(loop: ScoringLoop) -> list[ParallelMetric]:
    return [metric for step in loop.steps for metric in step.parallel]


def _code(scorer: Scorer) -> str:
    """The fingerprint of a scorer's class, its files and its parameters."""
    identity = scorer_identity(scorer)
    if identity is None:
        raise NotPortable(f"the source of scorer {scorer.name!r} is unknown")
    return digest(identity.encode())


def _is_plain(value: Any) -> bool:
    """Whether JSON gives a value back as it is, types included."""
    if type(value) in (list, Repeated):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(type(key) is str and key != REPEATED for key in value) and all(map(_is_plain, value.values()))
    return value is None or type(value) in (str, int, bool) or (type(value) is float and value == value)


def _written(value: MetricValue) -> list[Any]:
    """A score in a list; an empty one where it must be computed by the run itself: failures, and values that JSON changes."""
    if isinstance(value, Failed) or not _is_plain(value):
        return []
    return [_marked(value)]


def _marked(value: MetricValue) -> Any:
    if type(value) is Repeated:
        return {REPEATED: [_marked(each) for each in value]}
    if type(value) is dict:
        return {key: _marked(each) for key, each in value.items()}
    return [_marked(each) for each in value] if type(value) is list else value


def _read(value: Any) -> MetricValue:
    if isinstance(value, dict):
        if REPEATED in value:
            return Repeated(_read(each) for each in value[REPEATED])
        return {key: _read(each) for key, each in value.items()}
    return [_read(each) for each in value] if isinstance(value, list) else value


# --- on a node -------------------------------------------------------------------------------------------------------

_bound: dict[str, ScoringLoop | Failed] = {}
"""By the digest of a definition, the task as this process has bound it, or why it could not."""


def score_on_node(definition: bytes, order: bytes) -> bytes:
    """Score documents in a process of a node; returns the node with the scores, or with the reason to refuse it."""
    import ray

    key = digest(definition)
    if key not in _bound:
        _bound[key] = call_user_code("", bind_task, definition)
    written, place, asked = json.loads(order)
    address, node = _Address(*written), ray.get_runtime_context().get_node_id()
    bound = _bound[key]
    scorer: ParallelScorer | Failed = bound if isinstance(bound, Failed) else _scorer(bound, address)
    if isinstance(scorer, Failed):
        return json.dumps([node, platform.node(), scorer.reason]).encode()
    scores = [_written(timed(TIME_LIMIT, place, scorer.score, *each)) for each in asked]
    return json.dumps([node, platform.node(), scores]).encode()


def bind_task(definition: bytes) -> ScoringLoop:
    """The filters and scorers of a task that was written down elsewhere: bound as a run does."""
    known = json.loads(definition)
    if known["versions"] != versions():
        there, here = ", ".join(known["versions"]), ", ".join(versions())
        raise NotPortable(f"it has other versions of assay, Python or math-verify ({here}) than the run ({there})")
    with suppress(OSError):
        os.chdir(known["folder"])
    root = _root(known["files"])
    load_plugins([f"{root}{each}" if is_plugin_file(each) else each for each in known["plugins"]])
    config = RunConfig(**known["run"])
    fields = _fields(known["fields"], root)
    dialect = Dialect(**dict.fromkeys(known["rules"], True))
    origin = Origin(Source(f"{known['name']}.yaml", b"{}", dialect=dialect))
    task = Task.from_fields(Fields.of(fields, origin), name=known["name"])
    settings, helpers = Settings(config, known["gen_kwargs"]), HelperCode.of_run(config).helpers()
    seed_random(config.random_seed, config.numpy_random_seed)
    own = with_settings(resolve_functions(task.config, helpers.resolve), settings)
    own = replace(own, repeats=known["repeats"], num_fewshot=known["num_fewshot"])
    return scoring(task, own, settings, helpers)


def _root(files: Mapping[str, str]) -> str:
    """Where the helper files of a run are: in their places, if they are there with the same content; else in a new folder."""
    if all(_has(Path(path), text) for path, text in files.items()):
        return ""
    root = tempfile.mkdtemp(prefix="assay-")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    for path, text in files.items():
        file = Path(f"{root}{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


def _has(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False


def _fields(value: Any, root: str) -> Any:
    """The values of a definition, with functions in the files of this node."""
    if isinstance(value, dict):
        if FUNCTION in value:
            folder, module, name = value[FUNCTION]
            return Function(f"{root}{folder}", module, name)
        return {key: _fields(each, root) for key, each in value.items()}
    return [_fields(each, root) for each in value] if isinstance(value, list) else value


def _scorer(loop: ScoringLoop, address: _Address) -> ParallelScorer | Failed:
    """The scorer or metric of an address, if its code is that of the run."""
    if address.kind == "metric":
        return _metrics(loop)[address.number]
    scorers: list[Scorer] = [each for step in loop.steps for each in (step.scorer, *members_of(step.scorer))]
    scorer = scorers[address.number]
    code = call_user_code("", _code, scorer)
    if code != address.identity:
        return Failed(f"the code of scorer {address.name!r} is another there")
    return scorer
