"""Servers over HTTP: one connection pool, the least loaded of several, whole and streamed answers, what a failed one means."""

import json
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import orjson

from assay.records import Trouble

AGAIN = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529))
"""Answers that may be another the next time."""
SLOWER = frozenset((429, 503, 529))
SET_ASIDE = 5.0
"""The most seconds that a server which does not answer is left alone, where there are others."""
CONNECT_SECONDS = 30.0
MOST_STREAMED = 64 * 2**20
"""Bytes without an end of a line after which a stream is none."""
HIDDEN = "***"
LONGEST_WAIT = 120.0
SHOWN = 80
"""So many characters of an answer that cannot be read are shown."""
CUT_SECRET = 6
"""From so many characters on, the beginning of a secret that a message was cut off in is blotted out, too."""


class Refused(Exception):
    """The server will not answer this request, however often it is asked."""


@dataclass(slots=True)
class Server:
    """One address, with how much is under way there."""

    url: str
    under_way: int = 0
    faults: int = 0
    aside_until: float = 0.0

    def fail(self) -> None:
        """Leave it alone for a while: the longer, the more often it has failed in a row."""
        self.faults += 1
        self.aside_until = time.monotonic() + min(SET_ASIDE, 0.1 * 2**self.faults)


@dataclass(slots=True)
class Http:
    """A client of one or several servers that are alike. Used as an async context.

    `timeout` is for a whole answer, or where it is streamed for the next piece of it. `secrets` are blotted out of
    whatever a server says. No redirect is followed: keys and prompts go to the hosts that were named, and nowhere else.
    Proxies and passwords of the environment (HTTP_PROXY, .netrc) are not used: aiohttp's `trust_env` stays off.
    """

    urls: Sequence[str]
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 300.0
    connections: int = 64
    secrets: Sequence[str] = ()
    verify: bool | str = True
    _servers: list[Server] = field(default_factory=list)
    _session: Any = None

    async def __aenter__(self) -> "Http":
        import aiohttp

        self._servers = [Server(url) for url in self.urls]
        connector = aiohttp.TCPConnector(limit=self.connections, keepalive_timeout=60, ssl=_certificates(self.verify))
        self._session = aiohttp.ClientSession(
            connector=connector, headers={"Content-Type": "application/json", **self.headers},
            timeout=aiohttp.ClientTimeout(total=self.timeout, sock_connect=CONNECT_SECONDS),
        )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer to a request. Raises Trouble for what may pass and Refused for what will not."""
        async with self._sent(path, body, None) as answer:
            return self._read(await answer.read())

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[Any]:
        """The events of a streamed answer, as they come; of a server that does not stream, its one answer."""
        import aiohttp

        patient = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=self.timeout)
        async with self._sent(path, body, patient) as answer:
            if "event-stream" not in answer.headers.get("Content-Type", ""):
                yield self._read(await answer.read())
                return
            rest, last = b"", time.monotonic()
            async for piece in answer.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line.startswith(b"data:"):
                        last = time.monotonic()
                        data = line[5:].strip()
                        if data == b"[DONE]":
                            return
                        yield self._read(data)
                if time.monotonic() - last > self.timeout or len(rest) > MOST_STREAMED:
                    raise Trouble(f"nothing was said for {self.timeout:.0f} s", slow_down=True)

    @asynccontextmanager
    async def _sent(self, path: str, body: Mapping[str, Any], timeout: Any) -> AsyncIterator[Any]:
        """An answer with status 200, open; whatever goes wrong until it is read is told as what it means."""
        import aiohttp

        server = self._least_loaded()
        server.under_way += 1
        options = {"timeout": timeout} if timeout is not None else {}
        try:
            data = orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
            url = with_path(server.url, path)
            async with self._session.post(url, data=data, allow_redirects=False, **options) as answer:
                if answer.status != 200:
                    self._refuse(answer.status, answer.headers, await answer.text(errors="replace"))
                yield answer
                server.faults = 0
        except Trouble:
            server.fail()
            raise
        except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError) as error:
            server.fail()
            raise Trouble(f"the answer broke off: {error or type(error).__name__}") from None
        except aiohttp.SocketTimeoutError:
            server.fail()
            raise Trouble(f"no answer within {self.timeout:.0f} s", slow_down=True) from None
        except aiohttp.ClientConnectionError as error:
            server.fail()
            unsent = isinstance(error, aiohttp.ClientConnectorError)
            raise Trouble(self.clean(f"the server cannot be reached: {error}"), gone=True, unsent=unsent) from None
        except TimeoutError:
            server.fail()
            raise Trouble(f"no answer within {self.timeout:.0f} s", slow_down=True) from None
        except aiohttp.ClientError as error:
            server.fail()
            raise Trouble(self.clean(f"the answer is not of HTTP: {type(error).__name__}: {error}")[:300]) from None
        finally:
            server.under_way -= 1

    async def get(self, path: str) -> Any:
        """What the first server answers there; None where it does not."""
        import aiohttp

        try:
            url, short = with_path(self.urls[0], path), aiohttp.ClientTimeout(total=10)
            async with self._session.get(url, timeout=short, allow_redirects=False) as answer:
                return self._read(await answer.read()) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, Trouble):
            return None

    def _least_loaded(self) -> Server:
        if len(self._servers) == 1:
            return self._servers[0]
        now = time.monotonic()
        there = [server for server in self._servers if server.aside_until <= now] or self._servers
        return min(there, key=lambda server: server.under_way)

    def _refuse(self, status: int, headers: Mapping[str, str], text: str) -> None:
        if 300 <= status < 400:
            raise Refused(self.clean(redirected(status, headers.get("Location"))))
        message = f"HTTP {status}: {said(self.clean(text))}"
        if status in AGAIN:
            raise Trouble(message, after=_after(headers.get("Retry-After")), slow_down=status in SLOWER)
        raise Refused(message)

    def clean(self, text: str) -> str:
        """A text without keys and passwords, also where it was cut off within one."""
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        bare = text.rstrip("'\"")
        for secret in self.secrets:
            lengths = range(min(len(secret), len(bare)), CUT_SECRET - 1, -1)
            cut = next((length for length in lengths if bare.endswith(secret[:length])), 0)
            if cut:
                return bare[:-cut] + HIDDEN + text[len(bare) :]
        return text

    def _read(self, data: bytes) -> Any:
        """The JSON of an answer. NaN and infinities, which JSON does not have and some servers send, are read as such."""
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            if b"NaN" in data or b"Infinity" in data:
                with suppress(ValueError, RecursionError):
                    found = json.loads(data)
                    json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair could not be written down
                    return found
            longest = max(map(len, self.secrets), default=0)
            start = self.clean(data[: 4 * (SHOWN + longest)].decode("utf-8", "replace"))
            raise Trouble(f"the answer is not JSON: {start[:SHOWN]!r}") from None


def without_user(url: str) -> tuple[str, str | None]:
    """An address without the name and password in it, and the header that says them instead.

    >>> without_user("http://me:pw@127.0.0.1:80/v1")
    ('http://127.0.0.1:80/v1', 'Basic bWU6cHc=')
    """
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url, None
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), f"Basic {b64encode(unquote(user).encode()).decode()}"


def _certificates(verify: bool | str) -> Any:
    import ssl

    return ssl.create_default_context(cafile=verify) if isinstance(verify, str) else verify


def with_path(url: str, path: str) -> str:
    """An address with a further path: a query stays at its end.

    >>> with_path("http://127.0.0.1/v1?sig=1", "/models")
    'http://127.0.0.1/v1/models?sig=1'
    """
    before, question, query = url.partition("?")
    return f"{before}{path}{question}{query}"


def redirected(status: int, location: str | None) -> str:
    """The message for an answer that leads elsewhere: to where, without name, password and query."""
    try:
        parts = urlsplit(location or "")
        host = parts.netloc.rpartition("@")[2]
        target = f"{parts.scheme}://{host}{parts.path}" if host else parts.path
    except ValueError:
        target = ""
    shown = (
        "".join(letter if letter.isprintable() else "?" for letter in target)[:200]
        or "an address that it does not name"
    )
    return (
        f"HTTP {status}: the server redirects to {shown}, and redirects are not followed, since the key and the prompts"
        " would go there, too; if that address is right, give it as base_url"
    )


def said(text: str) -> str:
    """What a server says is wrong, without the JSON around it."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text.strip()[:300]
    error = found.get("error", found) if isinstance(found, dict) else found
    return str(error.get("message", error) if isinstance(error, dict) else error)[:300]


def _after(written: str | None) -> float | None:
    """The seconds that a server says to wait: a number, or a date."""
    if written is None:
        return None
    try:
        seconds = float(written)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(written).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return min(max(seconds, 0.0), LONGEST_WAIT)
