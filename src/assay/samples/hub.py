"""The Hugging Face hub, asked once whether it can be reached: offline, the library would try for every data set anew."""

import os
import re
import socket
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from assay.user_code import UserCodeError, user_code

ENDPOINT = "https://huggingface.co"
MAX_REASON = 200
SECONDS = 5.0
"""Time for a connection to the hub."""
NETWORK_ERRORS = frozenset(
    ("ConnectionError", "ConnectError", "Timeout", "TimeoutException", "TimeoutError", "MaxRetryError", "gaierror")
)
"""Names of classes that the hub's library, and those below it, raise where there is no connection."""
T = TypeVar("T")
_QUOTED = re.compile(r"(?<!\w)'[^']*'")
"""The name of the data set in the library's words, which are shown for other data sets, too."""
_faults: dict[str, str] = {}
"""By address why it cannot be reached; empty where it could. Asked once per process."""


def from_hub(place: str, load: Callable[[], T]) -> T:
    """Load something with the hub's library; without a connection, from its cache alone. A UserCodeError says why not."""
    address = os.environ.get("HF_ENDPOINT") or ENDPOINT
    if address not in _faults:
        _faults[address] = _fault(address)
    if not _faults[address]:
        try:
            with user_code(place):
                return load()
        except UserCodeError as error:
            if not _is_of_network(error.__cause__):
                raise
            _faults[address] = _QUOTED.sub("a data set", str(error.__cause__))[:MAX_REASON]
    try:
        with _offline(), user_code(place):
            return load()
    except UserCodeError as error:
        what = f"{address} cannot be reached ({_faults[address]}), and the cache does not have it"
        raise UserCodeError(f"{place}: {what}") from error


def _fault(address: str) -> str:
    """Why there is no connection to an address; empty where there is one, or where it is the library's to find out."""
    parts = urlsplit(address)
    if parts.hostname is None or urllib.request.getproxies() or _is_offline():
        return ""
    try:
        socket.create_connection(
            (parts.hostname, parts.port or (80 if parts.scheme == "http" else 443)), SECONDS
        ).close()
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__
    return ""


def _is_offline() -> bool:
    names = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in names)


def _is_of_network(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, is about the connection."""
    while error is not None:
        if any(kind.__name__ in NETWORK_ERRORS for kind in type(error).__mro__):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def _offline() -> Iterator[None]:
    """The offline mode of the hub's libraries, which they read from the environment when they are imported."""
    import datasets.config
    import huggingface_hub.constants

    places: list[Any] = [datasets.config, huggingface_hub.constants]
    before = [each.HF_HUB_OFFLINE for each in places]
    for each in places:
        each.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for each, value in zip(places, before, strict=True):
            each.HF_HUB_OFFLINE = value
