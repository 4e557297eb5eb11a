"""A fleet: copies of a local model in the processes of a Ray cluster, used like one model."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Literal, Self, cast

import orjson

from assay.config.arguments import parse_arguments
from assay.errors import AssayError, ConfigError, Place, Problem, SelfExplanatory
from assay.fleet.actor import ReplicaActor
from assay.fleet.cluster import LOCAL, connected
from assay.fleet.replica import CONTROL, RayReplica, problems_of
from assay.models.load import backend, load_tokenizer, parameters
from assay.models.protocol import Can, TokenizerAlone
from assay.records import JSONDict, JSONObject, Message, Prompt, messages_to_plain
from assay.registry import load_plugins
from assay.scoring.workers import usable_cpus
from assay.user_code import user_code
from assay.version import __version__

AUTO = "auto"
POLL_SECONDS = 0.2
NODES_SECONDS = 2.0
PLACE_SECONDS = 3.0
"""Time that Ray gets to place the other replicas once the first is ready."""
LOST_SECONDS = 60.0
"""Time without any replica after which the run ends."""
MAX_FAILURES = 3
"""Replicas in a row that may end while they open."""
TEXTS = 65_536
"""Texts whose number of tokens is remembered."""
ENVIRONMENT = ("HF_", "TRANSFORMERS_", "TOKENIZERS_", "VLLM_", "ASSAY_")
"""Beginnings of the variables that replicas get, where their machine does not set them."""
GPU_SHARE = 0.9
CPU_BACKENDS = ("embedded", "dummy")


class FleetError(AssayError):
    """A fleet lost all its replicas."""


class Fleet:
    """Copies of a local model in the processes of a Ray cluster. It is used wherever a model is.

    `model` and `model_args` are those of a run. With `replicas="auto"` there are as many as the cluster has space for, and
    machines that join get one. Each has `gpus_per_replica`. `ray` is `local`, `auto` or the address of a cluster. The model is
    opened when it is first needed; `close`, or leaving a `with` block, ends the replicas.
    """

    shares = False
    """Whether other runs use the same places: one waits for a place as long as it takes, and gives up those without work."""

    def __init__(  # the options of a run
        self,
        model: str,
        model_args: str | Mapping[str, object] | None = None,
        *,
        replicas: int | Literal["auto"] | str = AUTO,
        gpus_per_replica: float | None = None,
        ray: str | None = None,
        plugins: Sequence[str] = (),
    ) -> None:
        arguments = parse_arguments(model_args, "model_args")
        load_plugins(plugins)
        check_backend(model)
        self._model, self._arguments, self._plugins = model, arguments, tuple(plugins)
        self._number, self._gpus_given = replicas, gpus_per_replica
        if replicas != AUTO and (not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 1):
            what = f"must be a positive number or auto, got {replicas!r}"
            raise ConfigError.at("replicas", what, "write 8, or auto")
        self._address, self._ray = ray, cast(ModuleType | None, None)
        self._stack = ExitStack()
        self._template: str | None = None
        self._create: Callable[[bytes], Any] = _not_open
        self._gpus, self._cpus = 0.0, 1.0
        self._described: JSONDict = {}
        self._ready: list[RayReplica] = []
        self._starting: list[RayReplica] = []
        self._started = self._failures = self._target = self._released = 0
        self._last_error = ""
        self._alone_since: float | None = None
        self._counted = 0.0
        self._count = lru_cache(TEXTS)(lambda text: self._describe("count_tokens", text))

    # the members of a model

    @property
    def name(self) -> str:
        return str(self._facts["name"])

    @property
    def identity(self) -> str:
        return str(self._facts["identity"])

    @property
    def can(self) -> Can:
        return Can(**self._facts["can"])

    @property
    def max_length(self) -> int | None:
        length: int | None = self._facts["max_length"]
        return length

    @property
    def window(self) -> int:
        return int(self._facts["window"])

    @property
    def expected(self) -> int:
        return self._target

    @property
    def precision(self) -> str:
        return str(self._facts["more"].get("precision", ""))

    @property
    def facts(self) -> JSONObject:
        known: JSONObject = self._facts["more"].get("facts", {})
        return known

    @property
    def remarks(self) -> Mapping[str, str]:
        known: Mapping[str, str] = self._facts["more"].get("remarks", {})
        return known

    @property
    def cuts(self) -> bool:
        return bool(self._facts["more"].get("cuts", False))

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> Prompt:
        """Render a conversation with the chat template of the model."""
        if self._tokenizer is not None:
            return self._tokenizer.chat_template(messages, add_generation_prompt)
        rendered: str = self._describe("chat_template", messages_to_plain(messages), add_generation_prompt)
        return rendered

    def use_template(self, name: str) -> None:
        """Select one of the model's chat templates by name."""
        self.open()
        for replica in self._ready:
            self._value(self._ray_module.get(replica.control("describe", orjson.dumps(("use_template", name)))))
        self._template = name
        self.__dict__.pop("_tokenizer", None)

    def count_tokens(self, text: str) -> int | None:
        if self._tokenizer is not None:
            return self._tokenizer.count_tokens(text)
        number: int | None = self._count(text)
        return number

    @cached_property
    def _tokenizer(self) -> TokenizerAlone | None:
        """The tokenizer of the model in this process; None where it has no files, or others than the replicas."""
        self.open()
        try:
            with user_code("the tokenizer"):
                opened = load_tokenizer(self._model, self._sent_arguments)
        except (AssayError, SelfExplanatory):
            return None
        if opened is None:
            return None
        if self._template is not None:
            opened.use_template(self._template)  # type: ignore[attr-defined]  # declared by `named_templates`
        return opened if opened.tokenizer_digest() == self._describe("tokenizer_digest") else None

    def _describe(self, method: str, *arguments: object) -> Any:
        """The value of a method of the model that needs its tokenizer only."""
        self.open()
        replica = next((each for each in self._ready if not each.is_lost), None)
        if replica is None:
            raise FleetError([self._lost_problem()])
        return self._value(self._ray_module.get(replica.control("describe", orjson.dumps((method, *arguments)))))

    @staticmethod
    def _value(described: bytes) -> Any:
        read = orjson.loads(described)
        if "problems" in read:
            raise ConfigError(problems_of(read["problems"]))
        return read["value"]

    # opening and closing

    @property
    def _facts(self) -> JSONDict:
        if not self._described:
            self.open()
        return self._described

    @property
    def _ray_module(self) -> ModuleType:
        assert self._ray is not None, "the fleet is open"
        return self._ray

    def open(self) -> None:
        """Start the replicas and wait until they are ready: all that the cluster has space for now."""
        if self._ray is not None:
            return
        least = self._number if isinstance(self._number, int) else None
        with ExitStack() as stack:
            ray = self._ray = stack.enter_context(connected(self._address, least))
            stack.callback(self._end_replicas)
            self._set_size(ray)
            self._fill()
            self._wait_until_ready()
            self._stack = stack.pop_all()
        self._ready[0].log_warnings()

    def close(self) -> None:
        """End the replicas, and a cluster that was started for them."""
        self._stack.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end_replicas(self) -> None:
        for replica in (*self._ready, *self._starting):
            replica.end()
        self._ready, self._starting, self._described, self._ray = [], [], {}, None
        self.__dict__.pop("_tokenizer", None)

    def _set_size(self, ray: ModuleType) -> None:
        """Decide on the number of replicas and on what each gets."""
        has_gpus = ray.cluster_resources().get("GPU", 0) > 0
        self._gpus = self._gpus_given if self._gpus_given is not None else self._default_gpus(has_gpus)
        self._cpus = float(str(self._arguments.get("threads") or 1))
        if isinstance(self._number, int) and (self._address or LOCAL) == LOCAL and not self._gpus:
            self._cpus = max(self._cpus, usable_cpus() // self._number)
            if not self.shares and ray.available_resources().get("CPU", 0) < self._cpus * self._number:
                self._cpus = 0.0  # this machine's are with another model of the run: they take turns
        self._target = self._number if isinstance(self._number, int) else self._capacity()
        if not self._capacity():
            has = ray.cluster_resources()
            what = f"no machine of the cluster has space for a replica with {self._needs}: in all it has"
            what += f" {has.get('GPU', 0):g} GPUs and {has.get('CPU', 0):g} CPUs"
            raise ConfigError.at("gpus_per_replica", what, "give replicas less, or join more machines")
        options: dict[str, Any] = {"num_cpus": self._cpus, "num_gpus": self._gpus, "max_restarts": 0}
        actor = ray.remote(concurrency_groups={CONTROL: 1}, **options)(ReplicaActor)
        self._create = actor.options(scheduling_strategy="SPREAD").remote

    @property
    def _needs(self) -> str:
        """The share of a machine that each replica gets."""
        return f"{self._gpus:g} GPUs" if self._gpus else f"{self._cpus:g} CPUs"

    def _default_gpus(self, has_gpus: bool) -> float:
        if not has_gpus or self._model in CPU_BACKENDS or str(self._arguments.get("device", "")).startswith("cpu"):
            return 0.0
        return float(str(self._arguments.get("tensor_parallel_size") or 1))

    def _capacity(self) -> int:
        """Number of replicas that the machines of the cluster have space for."""
        number = 0
        for node in self._ray_module.nodes():
            if node["Alive"]:
                has = node["Resources"]
                by_cpu = has.get("CPU", 0) // self._cpus if self._cpus else self._target
                number += int(min(by_cpu, has.get("GPU", 0) // self._gpus) if self._gpus else by_cpu)
        return number

    @property
    def _sent_arguments(self) -> dict[str, Any]:
        return {key: value for key, value in self._arguments.items() if key != "data_parallel_size"}

    def _spec(self) -> bytes:
        arguments = self._sent_arguments
        if 0 < self._gpus < 1 and "gpu_memory_utilization" in parameters(backend(self._model)):
            arguments.setdefault("gpu_memory_utilization", round(GPU_SHARE * self._gpus, 3))
        spec = {
            "model": self._model,
            "arguments": arguments,
            "plugins": [str(Path(each).resolve()) if each.endswith(".py") else each for each in self._plugins],
            "folder": str(Path.cwd()),
            "environment": {name: value for name, value in os.environ.items() if name.startswith(ENVIRONMENT)},
            "hides_gpus": self._gpus_given == 0,
            "template": self._template,
        }
        try:
            return orjson.dumps(spec)
        except TypeError as error:
            what = f"an argument cannot be sent to a replica: {error}"
            raise ConfigError.at("model_args", what, "give texts, numbers, lists and mappings") from None

    def _fill(self) -> None:
        """Start the replicas that are missing; Ray places each as soon as there is space."""
        while len(self._ready) + len(self._starting) < self._target - self._released:
            self._started += 1
            self._starting.append(RayReplica(self._ray_module, self._create(self._spec()), self._started))

    def _wait_until_ready(self) -> None:
        """Wait for the replicas that have a place, and for a place of the others for a moment."""
        begun = changed = time.monotonic()
        while self._starting:
            for problem in self._check_starting():
                raise problem
            self._fill()
            opening = [each for each in self._starting if each.where]
            now = time.monotonic()
            changed = now if opening or not self._ready else changed
            if not self._ready and not opening and not self.shares and now - begun > LOST_SECONDS:
                what = f"the cluster gave no replica a place in {LOST_SECONDS:g} s"
                raise ConfigError.at("replicas", what, "wait until others have ended, or ask for less")
            if self._ready and not opening and now - changed > PLACE_SECONDS:
                have = f"{len(self._ready)} of {self._target} replicas have a place with {self._needs}"
                logging.getLogger("assay").warning("%s; the others join when there is space", have)
                return
            waited = [each.opened if each.where else each.placed for each in self._starting]
            self._ray_module.wait(waited, num_returns=1, timeout=POLL_SECONDS)

    def _check_starting(self) -> Iterator[AssayError]:
        """Look which replicas are ready by now; yield why others are refused."""
        ray = self._ray_module
        references = [each for replica in self._starting for each in (replica.placed, replica.opened)]
        known = set(ray.wait(references, num_returns=len(references), timeout=0)[0]) if references else set()
        for replica in list(self._starting):
            try:
                if replica.placed in known and not replica.where:
                    replica.where = orjson.loads(ray.get(replica.placed))
                if replica.opened not in known:
                    continue
                self._starting.remove(replica)
                replica.read_description(ray.get(replica.opened))
                self._admit(replica)
            except (AssayError, ray.exceptions.RayError) as error:
                if replica in self._starting:
                    self._starting.remove(replica)
                replica.end()
                refused = self._refused(error)
                if refused is not None:
                    yield refused

    def _refused(self, error: Exception) -> AssayError | None:
        """Why a replica cannot be used; None where another may be tried."""
        self._failures += 1
        self._last_error = next((line for line in reversed(str(error).strip().splitlines()) if line.strip()), "")
        if isinstance(error, AssayError):
            return error
        if "No module named 'assay" in str(error):
            what = "a machine of the cluster cannot import assay"
            fix = f"install assay {__version__} in the Python environment of every machine"
            return ConfigError.at("ray", what, fix)
        if self._failures < MAX_FAILURES:
            return None
        what = f"{self._failures} replicas ended while they opened the model: {self._last_error}"
        return ConfigError.at("replicas", what, "see the logs of Ray; a model may need more memory")

    def _admit(self, replica: RayReplica) -> None:
        """Add a replica with the same model as the others."""
        if replica.where.get("version", __version__) != __version__:
            what = f"{replica.name} has assay {replica.where['version']}, and this is {__version__}"
            raise ConfigError.at("ray", what, "install the same version on every machine")
        known = self._described or replica.described
        if replica.described["identity"] != known["identity"]:
            what = f"{replica.name} has another model than the others: {replica.described['identity']}"
            what += f" in place of {known['identity']}"
            fix = "give every machine the same files; nothing was mixed"
            raise ConfigError.at("model_args", what, fix)
        self._described, self._failures = known, 0
        self._ready.append(replica)

    # during a run

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def joined(self) -> AsyncIterator[RayReplica]:
        """Yield the replicas that are ready, and others as they become ready; lost ones are replaced."""
        known: set[int] = set()
        while True:
            for replica in list(self._ready):
                if replica.number not in known and not replica.is_lost:
                    known.add(replica.number)
                    yield replica
            await asyncio.sleep(POLL_SECONDS)
            self._tend()

    def release(self, replica: object) -> None:
        """End a replica that has no work left, for another run; one that is not there yet is not waited for any more."""
        for each in [each for each in self._ready if each is replica]:
            self._ready.remove(each)
            each.end()
        for each in self._starting:
            each.end()
        self._released = max(self._target - len(self._ready), 0)
        self._starting = []

    def _tend(self) -> None:
        """Replace lost replicas, and let new ones in; raise when there are none and none can be had."""
        now = time.monotonic()
        for replica in [each for each in self._ready if each.is_lost]:
            self._ready.remove(replica)
            replica.end()
        if self._number == AUTO and now - self._counted > NODES_SECONDS:
            self._counted, self._target = now, self._capacity()
        for refused in self._check_starting():
            logging.getLogger("assay").warning("a replica is refused: %s", refused)
        if self._failures < MAX_FAILURES:
            self._fill()
        if self._ready:
            self._alone_since = None
            return
        self._alone_since = self._alone_since or now
        is_opening = any(replica.where for replica in self._starting)
        is_given_up = self._failures >= MAX_FAILURES and not self._starting
        if is_given_up or (not is_opening and now - self._alone_since > LOST_SECONDS):
            raise FleetError([self._lost_problem()])

    def _lost_problem(self) -> Problem:
        why = f" (the last error: {self._last_error})" if self._last_error else ""
        what = f"all replicas ended, and none could be started again{why}"
        return Problem(
            Place("replicas"), what, "the same command resumes the run: what was answered is not asked again"
        )


def _not_open(_: bytes) -> Any:
    raise AssertionError("the fleet is open")


def check_backend(name: str) -> None:
    """Refuse a fleet of servers."""
    if "base_url" in parameters(backend(name)):
        what = f"model {name!r} is a server, and servers need no fleet"
        fix = "leave out --replicas: base_url=[URL, URL, …] spreads requests over several servers, --serve starts them"
        raise ConfigError.at("replicas", what, fix)
