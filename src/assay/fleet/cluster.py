"""The connection to a Ray cluster: the only place where Ray is imported, started and ended."""

import logging
import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType

from assay.errors import ConfigError, installing
from assay.scoring.workers import usable_cpus

LOCAL, RUNNING = "local", "auto"
CONNECT_SECONDS = 5.0
STORE_BYTES = (80_000_000, 200_000_000)
"""Least and most memory for objects of a local cluster: requests and answers are small."""
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
"""Variables of Ray, where the user sets none: no statistics sent, no warnings about its defaults, and nothing printed among the
output of this process, such as that a worker died."""
_lock = threading.Lock()
_users = 0
_own = False
"""Whether this process connected to the cluster; one that the caller connected to is left connected."""


def import_ray() -> ModuleType:
    """Ray, with its usage statistics off; refused where it is not installed."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        fix = (
            f"{installing('ray')}; without it, run `--shard 1/N` to `N/N` in separate processes and `assay merge` them"
        )
        raise ConfigError.at("ray", "Ray is not installed", fix) from None
    return ray


@contextmanager
def connected(address: str | None = None, cpus: int | None = None) -> Iterator[ModuleType]:
    """Ray, connected to a cluster: `local` or None starts one on this machine that ends with the last user of this process.
    `cpus` is the least number of CPUs that a cluster started here declares."""
    global _users, _own
    ray = import_ray()
    with _lock:
        if not ray.is_initialized():
            _connect(ray, address or LOCAL, cpus)
            _own = True
        _users += 1
    try:
        yield ray
    finally:
        with _lock:
            _users -= 1
            if not _users and _own:
                ray.shutdown()
                _own = False


def _connect(ray: ModuleType, address: str, cpus: int | None) -> None:
    common = {"log_to_driver": False, "configure_logging": False, "logging_level": logging.ERROR}
    logging.getLogger("ray").setLevel(logging.ERROR)
    on_term = signal.getsignal(signal.SIGTERM)
    try:
        if address == LOCAL:
            ray.init(
                address="local", include_dashboard=False, num_cpus=max(cpus or 1, usable_cpus()),
                object_store_memory=_store_bytes(), **common,
            )  # fmt: skip
        else:
            _check_address(os.environ.get("RAY_ADDRESS", "") if address == RUNNING else address)
            ray.init(address=address, **common)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        if isinstance(error, ConfigError):
            raise
        what = f"no Ray cluster at {address!r}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        raise ConfigError.at("ray", what, START_ONE) from None
    if threading.current_thread() is threading.main_thread():
        # Ray's handlers of SIGTERM print a stack, exit with 15, and kill this process 3 seconds later, by an alarm
        signal.signal(signal.SIGTERM, on_term)


START_ONE = "start one with `ray start --head`, or write --ray local"


def _check_address(address: str) -> None:
    """Refuse an address where nothing listens: Ray would try for a minute."""
    if address in ("", LOCAL, RUNNING):
        return
    if address.startswith("ray://"):
        what = f"{address!r} is the address of Ray's client server, which cannot stream answers"
        raise ConfigError.at("ray", what, "write that of the head node, HOST:6379")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        what, fix = f"{address!r} is not an address", "write --ray HOST:PORT, such as 10.0.0.1:6379, or local, or auto"
        raise ConfigError.at("ray", what, fix)
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS):
            pass
    except OSError as error:
        what = f"no Ray cluster at {address!r}: {error.strerror or error}"
        raise ConfigError.at("ray", what, START_ONE) from None


def _store_bytes() -> int:
    least, most = STORE_BYTES
    with suppress(OSError):
        most = min(most, shutil.disk_usage("/dev/shm").free // 2)  # where Ray keeps objects
    return max(least, most)
