"""Servers over HTTP: one connection pool, the least loaded of several, and what a failed answer means."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from assay.records import Trouble

AGAIN = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529))
"""Answers that may be another the next time."""
SLOWER = frozenset((429, 503, 529))
SET_ASIDE = 5.0
"""Seconds that a server which could not be reached is left alone, where there are others."""


class Refused(Exception):
    """The server will not answer this request, however often it is asked."""


@dataclass(slots=True)
class Server:
    """One address, with how much is under way there."""

    url: str
    under_way: int = 0
    aside_until: float = 0.0


@dataclass(slots=True)
class Http:
    """A client of one or several servers that are alike. Used as an async context."""

    urls: Sequence[str]
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 300.0
    connections: int = 64
    _servers: list[Server] = field(default_factory=list)
    _session: Any = None

    async def __aenter__(self) -> "Http":
        import aiohttp

        self._servers = [Server(url) for url in self.urls]
        connector = aiohttp.TCPConnector(limit=self.connections, keepalive_timeout=60)
        self._session = aiohttp.ClientSession(
            connector=connector, headers=dict(self.headers), timeout=aiohttp.ClientTimeout(total=self.timeout)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer to a request. Raises Trouble for what may pass and Refused for what will not."""
        import aiohttp

        server = self._least_loaded()
        server.under_way += 1
        try:
            async with self._session.post(
                server.url + path, data=orjson.dumps(body), headers={"Content-Type": "application/json"}
            ) as answer:
                if answer.status == 200:
                    return _read(await answer.read())
                _refuse(answer.status, answer.headers, await answer.text())
        except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError) as error:
            raise Trouble(f"the answer broke off: {error or type(error).__name__}") from None
        except aiohttp.ClientConnectionError as error:
            server.aside_until = time.monotonic() + SET_ASIDE
            raise Trouble(f"the server cannot be reached: {error}", gone=True) from None
        except TimeoutError:
            raise Trouble(f"no answer within {self.timeout:.0f} s", slow_down=True) from None
        finally:
            server.under_way -= 1

    async def get(self, url: str) -> Any:
        """What an address answers; None where it does not."""
        import aiohttp

        try:
            async with self._session.get(url, timeout=aiohttp.ClientTimeout(total=10)) as answer:
                return _read(await answer.read()) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, Trouble):
            return None

    def _least_loaded(self) -> Server:
        now = time.monotonic()
        there = [server for server in self._servers if server.aside_until <= now] or self._servers
        return min(there, key=lambda server: server.under_way)


def _read(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        raise Trouble(f"the answer is not JSON: {data[:80]!r}") from None


def _refuse(status: int, headers: Mapping[str, str], text: str) -> None:
    message = f"HTTP {status}: {_message(text)}"
    if status in AGAIN:
        raise Trouble(message, after=_after(headers.get("Retry-After")), slow_down=status in SLOWER)
    raise Refused(message)


def _message(text: str) -> str:
    """What a server says is wrong, without the JSON around it."""
    try:
        found = orjson.loads(text)
        error = found.get("error", found) if isinstance(found, dict) else found
        return str(error.get("message", error) if isinstance(error, dict) else error)[:300]
    except orjson.JSONDecodeError:
        return text.strip()[:300]


def _after(written: str | None) -> float | None:
    try:
        return min(float(written), 120.0) if written is not None else None
    except ValueError:
        return None  # a date: seldom used, and our own waiting is as good
