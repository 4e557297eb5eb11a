"""Managed servers: `--serve` starts servers with a command, waits until they answer, restarts those that end, and stops all."""

import asyncio
import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from assay.config.option import YAMLMapping
from assay.config.run import RunConfig
from assay.config.serve_command import ServeCommand
from assay.errors import AssayError, ConfigError
from assay.fleet.cluster import LOCAL, connected
from assay.fleet.server_process import GRACE_SECONDS, LOOPBACK, ServerProcess, ServerState
from assay.models.load import backend, load_model, parameters
from assay.models.protocol import PermanentError, RetryableError
from assay.models.servers.http import Http
from assay.models.servers.server_model import NONDETERMINISTIC, ServerModel
from assay.records import JSONDict
from assay.redaction import conceal
from assay.runs.results import plain

TICK = 0.3
MAX_RESTARTS = 3
"""How often each server is started again in a run."""
NOTICE_SECONDS = 60.0
"""Time between two lines about servers that are still starting."""
JOIN_SECONDS = 10.0
AUTO = "auto"
SameModel = Callable[[str], bool | None]
"""Whether the server at an address has the model of the run; None while it does not answer."""
log = logging.getLogger("assay")


class Server(Protocol):
    """A server that was started, here or on a node of a cluster."""

    def state(self) -> ServerState: ...
    def stop(self, keep_log: bool = False) -> None: ...


class ServersEnded(AssayError):
    """None of the servers runs any more, and none may be started again."""


def load_served(config: RunConfig, arguments: YAMLMapping) -> ServerModel:
    """Start the servers of a run and return the model behind them, which ends them when it is closed or no longer used."""
    assert config.serve is not None
    servers = ManagedServers(config)
    with ExitStack() as undo:
        undo.callback(servers.stop)
        states = servers.start()
        shared = _shared_arguments(config, arguments, states)
        model = load_model(config.model, {**shared, "base_url": [state.address for state in states]})
        assert isinstance(model, ServerModel), "checked with the options of the run"
        model.managed = servers
        weakref.finalize(model, servers.stop)  # for models that no run closes
        servers.watch(model.http, partial(_is_same_model, weakref.ref(model), config.model, shared))
        undo.pop_all()
    return model


def _shared_arguments(config: RunConfig, arguments: YAMLMapping, states: Sequence[ServerState]) -> dict[str, Any]:
    """The arguments of the model but its addresses: its name and key are the servers', its concurrency grows with their number."""
    command = ServeCommand.parse(config.serve or "")
    known = parameters(backend(config.model))
    shared = {"num_concurrent": int(str(known["num_concurrent"])) * len(states), **arguments}
    shared["proxy"] = "off"  # the nodes of a cluster are near, wherever its environment sends requests
    if command.api_key is not None:
        shared.setdefault("api_key", command.api_key)
    if not shared.get("model") and not shared.get("pretrained"):
        names = next((state.models for state in states if state.models), ())
        if not names:
            what = "the server does not list its models at /v1/models"
            raise ConfigError.at("model_args.model", what, "give --model_args model=NAME")
        shared["model"] = names[0]
    return shared


def _is_same_model(model: "weakref.ref[ServerModel]", name: str, shared: YAMLMapping, address: str) -> bool | None:
    """Whether a restarted server has the model of the run, by its reply to the probe; None while it gives none."""
    running = model()
    if running is None:
        return None
    expected = running.probed["said"]
    restarted = load_model(name, {**shared, "base_url": [address]})
    assert isinstance(restarted, ServerModel)
    try:
        asyncio.run(restarted.greet())
    except (RetryableError, PermanentError, ConfigError):
        return None
    reply = restarted.probed["said"]
    return not expected or NONDETERMINISTIC in (expected, reply) or reply == expected


@dataclass(slots=True)
class ServerSlot:
    """One of the servers of a run: which it is now, since when, and how often it ended."""

    server: Server
    since: float = field(default_factory=time.monotonic)
    state: ServerState = ServerState("starting")
    is_used: bool = True
    restarts: int = 0


class ManagedServers:
    """The servers that a run started. A thread restarts those that end; the client is given their addresses."""

    def __init__(self, config: RunConfig) -> None:
        self._config, self._written, self._limit = config, config.serve or "", config.serve_timeout
        self.command = str(plain(self._written))
        self._ended = threading.Event()
        self._lock = threading.RLock()
        self._cluster = ExitStack()
        self._slots: list[ServerSlot] = []
        self._thread: threading.Thread | None = None
        self._reasons: list[str] = []
        self._count = 1
        self._open: Callable[[], Server] = partial(ServerProcess, self._written, str(Path.cwd()))

    def start(self) -> list[ServerState]:
        """Start the servers and wait until all answer; raise a ConfigError with the log of the first that does not."""
        if self._config.replicas not in (None, 1) or self._config.ray is not None:
            ray = self._cluster.enter_context(connected(self._config.ray))
            placement = placement_of(ray, self._config)
            self._count, self._open = placement.count, partial(ActorServer, ray, placement, self._written)
        log.warning("starting %s: %s", f"{self._count} servers" if self._count > 1 else "a server", self.command)
        begun = noticed = time.monotonic()
        self._slots = [ServerSlot(self._open()) for _ in range(self._count)]
        while True:
            for slot in self._slots:
                slot.state = slot.server.state()
                if slot.state.phase == "ended":
                    raise self._failed(slot, f"a server did not start: {slot.state.reason}")
            waiting = [slot for slot in self._slots if slot.state.phase == "starting"]
            seconds = time.monotonic() - begun
            if not waiting:
                log.warning("%s after %.0f s", "all answer" if self._count > 1 else "it answers", seconds)
                return [slot.state for slot in self._slots]
            if seconds > self._limit:
                why = f": {waiting[0].state.reason}" if waiting[0].state.reason else ""
                raise self._failed(waiting[0], f"a server does not answer after {self._limit:g} s{why}")
            if time.monotonic() - noticed > NOTICE_SECONDS:
                noticed = time.monotonic()
                log.warning("%d of %d servers do not answer yet, after %.0f s", len(waiting), self._count, seconds)
            time.sleep(TICK)

    def _failed(self, slot: ServerSlot, what: str) -> ConfigError:
        """The error for servers that did not start, with the log of one of them; its log is kept."""
        slot.server.stop(keep_log=True)
        fix = "correct the command, or give it more time with --serve_timeout" if slot.state.phase == "starting" else ""
        fix = fix or "correct the command"
        return ConfigError.at("serve", what, f"{fix}. The last lines of its log: {slot.state.log}")

    def watch(self, client: Http, is_same: SameModel) -> None:
        """Watch the servers from now on, and keep the addresses of a client true."""
        self._thread = threading.Thread(target=self._watch, args=(client, is_same), name="assay-servers", daemon=True)
        self._thread.start()

    def _watch(self, client: Http, is_same: SameModel) -> None:
        while not self._ended.wait(TICK):
            for number, slot in enumerate(self._slots):
                if slot.restarts <= MAX_RESTARTS and not self._ended.is_set():
                    self._check(number, slot, client, is_same)
            if all(slot.restarts > MAX_RESTARTS for slot in self._slots):
                what = f"every server ended {MAX_RESTARTS + 1} times; the last time {self._reasons[-1]}"
                fix = "correct the command, then run the same command again to resume. The last lines of a log:"
                client.fail(ServersEnded.at("serve", what, f"{fix} {self._slots[-1].state.log}"))
                return

    def _check(self, number: int, slot: ServerSlot, client: Http, is_same: SameModel) -> None:
        """Restart a server that ended, and use a restarted one once it answers as the others do."""
        slot.state = state = slot.server.state()
        if state.phase == "ended":
            self._restart(number, slot, client, state.reason)
        elif not slot.is_used and state.phase == "running":
            same = is_same(state.address)
            if same:
                client.join(number, state.address)
                slot.is_used = True
                log.warning("server %d of %d answers again", number + 1, self._count)
            elif same is not None:
                self._restart(number, slot, client, "it has another model than before")
        if not slot.is_used and time.monotonic() - slot.since > self._limit:
            self._restart(number, slot, client, f"it does not answer after {self._limit:g} s")

    def _restart(self, number: int, slot: ServerSlot, client: Http, reason: str) -> None:
        client.leave(number)
        slot.is_used = False
        self._reasons.append(reason)
        slot.restarts += 1
        again = "it is started again" if slot.restarts <= MAX_RESTARTS else "it is not started again"
        log.warning("server %d of %d: %s; %s", number + 1, self._count, reason, again)
        with self._lock:  # none is started while they are stopped
            if self._ended.is_set():
                return
            slot.server.stop(keep_log=True)
            if slot.restarts <= MAX_RESTARTS:
                slot.server, slot.since = self._open(), time.monotonic()

    def usage(self) -> JSONDict:
        """The number of servers and of restarts, with the reasons, for the results."""
        restarts = sum(min(slot.restarts, MAX_RESTARTS) for slot in self._slots)
        return {"count": self._count, **({"restarts": restarts, "reasons": list(self._reasons)} if restarts else {})}

    def stop(self) -> None:
        """Stop every server; a second call does nothing."""
        if self._ended.is_set():
            return
        self._ended.set()
        with self._lock:
            stopping = [threading.Thread(target=slot.server.stop) for slot in self._slots]
            for thread in stopping:
                thread.start()
            for thread in stopping:
                thread.join()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(JOIN_SECONDS)
        self._cluster.close()


@dataclass(frozen=True, slots=True)
class ServerPlacement:
    """How many servers are placed on a cluster, the GPUs of each, and the node of this process."""

    count: int
    gpus: float
    node: str


def placement_of(ray: ModuleType, config: RunConfig) -> ServerPlacement:
    """The servers that a run asks for; refused where a cluster on this machine has too few GPUs for them."""
    nodes = [node["Resources"].get("GPU", 0.0) for node in ray.nodes() if node["Alive"]]
    gpus = config.gpus_per_replica
    if gpus is None:
        gpus = ServeCommand.parse(config.serve or "").gpus or (1.0 if any(nodes) else 0.0)
    fitting = sum(int(number // gpus) for number in nodes) if gpus else len(nodes)
    count = fitting if config.replicas == AUTO else int(config.replicas or 1)
    if gpus and (count > fitting or not count):
        what = f"the cluster has GPUs for {fitting} servers of {gpus:g} each, not for {max(count, 1)}"
        if config.ray in (None, LOCAL) or config.replicas == AUTO:
            fix = "give fewer --replicas, or other --gpus_per_replica (0: without GPUs)"
            raise ConfigError.at("replicas", what, fix)
        log.warning("%s: waiting for nodes that join", what)
    return ServerPlacement(max(count, 1), gpus, ray.get_runtime_context().get_node_id())


class ServerActor(ServerProcess):
    """A server on the node where Ray placed it, asked at loopback by a run on the same node."""

    def __init__(self, command: str, folder: str, node: str) -> None:
        import ray

        is_here = ray.get_runtime_context().get_node_id() == node
        super().__init__(command, folder, LOOPBACK if is_here else ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


class ActorServer:
    """A server in a Ray actor, asked for its state without waiting for the answer."""

    def __init__(self, ray: ModuleType, placement: ServerPlacement, command: str) -> None:
        self._ray = ray
        actor = ray.remote(ServerActor).options(
            num_cpus=0, num_gpus=placement.gpus, max_restarts=0, scheduling_strategy="SPREAD"
        )
        self._actor = actor.remote(command, str(Path.cwd()), placement.node)
        self._asked: Any = None
        self._last = ServerState("starting", log="(Ray has not placed the server on a node yet)")
        self._is_placed = False

    def state(self) -> ServerState:
        if self._last.phase == "ended":
            return self._last
        try:
            self._asked = self._asked or self._actor.state.remote()
            if self._ray.wait([self._asked], timeout=TICK)[0]:
                asked, self._asked = self._asked, None
                self._last, self._is_placed = self._ray.get(asked), True
        except self._ray.exceptions.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            self._last = ServerState("ended", reason="its Ray actor or its node ended", log=conceal(lines[-1]))
        return self._last

    def stop(self, keep_log: bool = False) -> None:
        if self._is_placed:
            with suppress(self._ray.exceptions.RayError):
                self._ray.get(self._actor.stop.remote(keep_log), timeout=GRACE_SECONDS + JOIN_SECONDS)
        self._ray.kill(self._actor)
