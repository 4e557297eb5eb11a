"""The connection to a Ray cluster: the only place where Ray is imported, started and ended."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from assay.errors import ConfigError, Place, Problem

LOCAL, RUNNING = "local", "auto"
_lock = threading.Lock()
_users = 0
_own = False
"""Whether this process connected to the cluster; one that the caller connected to is left connected."""


def import_ray() -> ModuleType:
    """Ray, with its usage statistics off; refused where it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        fix = "pip install 'assay[ray]'; without it, run `--shard 1/N` to `N/N` in separate processes and `assay merge` them"
        raise ConfigError([Problem(Place("ray"), "Ray is not installed", fix)]) from None
    return ray


@contextmanager
def connected(address: str | None = None) -> Iterator[ModuleType]:
    """Ray, connected to a cluster: `local` or None starts one on this machine that ends with the last user of this process."""
    global _users, _own
    ray = import_ray()
    with _lock:
        if not ray.is_initialized():
            _connect(ray, address or LOCAL)
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


def _connect(ray: ModuleType, address: str) -> None:
    common = {"log_to_driver": False, "configure_logging": False, "logging_level": logging.ERROR}
    try:
        if address == LOCAL:
            ray.init(address="local", include_dashboard=False, **common)
        else:
            ray.init(address=address, **common)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        what = f"no Ray cluster at {address!r}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        fix = "start one with `ray start --head`, or write --ray local"
        raise ConfigError([Problem(Place("ray"), what, fix)]) from None
