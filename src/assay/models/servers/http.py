"""HTTP client: load balancing over servers, whole and streamed answers, classified errors."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http.client import responses
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from assay.errors import AssayError, ConfigError
from assay.models.protocol import PermanentError, RetryableError
from assay.models.servers.bodies import (
    ENCODINGS,
    MB,
    BodyReader,
    Deadline,
    EventData,
    StreamLimits,
    pieces,
    start_of,
    within,
)
from assay.models.servers.checkout import Checkout, StaleConnection, current_checkout
from assay.models.servers.proxies import Proxy, Route, is_near, proxy_of
from assay.models.servers.reading import ServerJSON, error_message
from assay.models.servers.remedies import NO_CREDIT, TOO_MANY
from assay.records import JSON

if TYPE_CHECKING:
    import ssl

    import aiohttp

RETRYABLE_STATUSES = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529))
"""Statuses after which a request is retried."""
RATE_LIMIT_STATUSES = frozenset((429, 503, 529))
CONNECT_SECONDS = 30.0
"""Seconds for a connection, with its TLS handshake."""
MAX_COOLDOWN = 5.0
"""Maximum seconds for which a failing server is skipped, if there are others."""
DONE: ServerJSON = {}
"""Yielded in place of `data: [DONE]`, which ends a stream of events."""
REQUEST_TIMEOUT = 408
"""Status of an idle connection that the server gave up."""
RESPONSE_BYTES = 64 * MB
MAX_VALUES = 2**20
"""Maximum values in a large body: each takes up to 200 bytes, however short it is written."""
MANY_BYTES, MAX_NAN_BYTES = 2**20, 2**23
HIDDEN = "***"
MAX_RETRY_AFTER = 120.0
MAX_SHOWN = 80
"""Characters of an unreadable answer that are shown."""
MIN_PARTIAL_SECRET = 6
"""Minimum length of the start of a secret that is redacted where a message was cut off."""


@dataclass(slots=True)
class ServerAddress:
    """One address, with its number of requests in flight."""

    url: str = field(repr=False)
    pending: int = 0
    faults: int = 0
    skip_until: float = 0.0

    def fail(self) -> None:
        """Skip the server for a while: the longer, the more often it failed in a row."""
        self.faults += 1
        self.skip_until = time.monotonic() + min(MAX_COOLDOWN, 0.1 * 2**self.faults)


@dataclass(slots=True)
class Http:
    """A client of one or more equal servers. Used as an async context.

    `timeout` applies to a whole answer or, if streamed, to its next chunk. `secrets` are redacted from messages. No
    redirect is followed: keys and prompts go only to the given hosts. `proxy` is the address of one, or `off`; without it
    the environment's count (`proxies.proxy_of`). aiohttp's `trust_env` stays off: it would read passwords from .netrc,
    too. Cookies are not kept: they would grow with the run. `limit` is the maximum size of an answer in bytes, decompressed.
    """

    urls: list[str] = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 300.0
    connections: int = 64
    secrets: Sequence[str] = field(default=(), repr=False)
    verify: bool | str = True
    limit: int = RESPONSE_BYTES
    proxy: str | None = field(default=None, repr=False)
    slots: int | None = None
    """Requests that the servers work on at once, where they say so. Each connection holds one of their threads."""
    down: set[int] = field(default_factory=set)
    """Numbers of servers that ended and are not asked."""
    _failure: AssayError | None = None
    _servers: list[ServerAddress] = field(default_factory=list)
    _session: Any = None
    _bodies: Any = None
    _connections: Any = None
    _proxies: dict[str, Proxy | None] = field(default_factory=dict, repr=False)

    async def __aenter__(self) -> "Http":
        import aiohttp

        from assay.models.servers.connections import Connections, PooledResponse

        self._servers = [ServerAddress(url) for url in self.urls]
        self._proxies = {url: proxy_of(url, self.proxy) for url in self.urls}
        for proxy in filter(None, self._proxies.values()):
            self.secrets = list(dict.fromkeys((*self.secrets, *proxy.secrets)))
        self._connections = Connections(self.connections, _certificates(self.verify), has_own=self.slots is not None)
        self._bodies = BodyReader(self.limit, self.connections)
        self._session = aiohttp.ClientSession(
            connector=self._connections, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, response_class=PooledResponse,
            headers={"Content-Type": "application/json", "Accept-Encoding": ENCODINGS, **self.headers},
            timeout=aiohttp.ClientTimeout(total=self.timeout, sock_connect=CONNECT_SECONDS),
        )  # fmt: skip
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self._session.close()

    async def post(self, path: str, body: Mapping[str, JSON]) -> ServerJSON:
        """Return the answer to a request. Raises RetryableError for temporary failures and PermanentError for others."""
        data = orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
        with PendingRequest(self) as server:
            route = self._route(server.url, path)
            try:
                return await self._posted(route, data, Checkout(wants_new=False))
            except StaleConnection:
                return await self._posted(route, data, Checkout(wants_new=True))

    async def _posted(self, route: Route, data: bytes, checkout: Checkout) -> ServerJSON:
        async with await self._begin(route, data, checkout) as answer:
            await self._check(answer)
            value = await self._bodies.read(answer, self.parse)
        if checkout.is_doubtful:
            raise StaleConnection
        return value

    def _route(self, url: str, path: str) -> Route:
        """The way to a path of a server."""
        if url not in self._proxies:  # a server that joined again, elsewhere
            self._proxies[url] = proxy_of(url, self.proxy)
        proxy = self._proxies[url]
        return Route(with_path(url, path), proxy.address if proxy is not None else None)

    async def _begin(
        self, route: Route, data: bytes, checkout: Checkout, **options: "aiohttp.ClientTimeout"
    ) -> "aiohttp.ClientResponse":
        """Send a request and return its answer once the head is there. Raises StaleConnection if a connection that was used before
        ended, or brought something else."""
        import aiohttp

        before = current_checkout.set(checkout)
        try:
            answer: aiohttp.ClientResponse = await self._session.post(
                route.url, data=data, allow_redirects=False, proxy=route.proxy, **options
            )
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientResponseError):
            if checkout.is_reused:
                raise StaleConnection from None
            raise
        finally:
            current_checkout.reset(before)
        if checkout.is_doubtful or (checkout.is_reused and answer.status == REQUEST_TIMEOUT):
            answer.close()
            raise StaleConnection
        return answer

    async def stream(
        self, path: str, body: Mapping[str, JSON], limits: StreamLimits | None = None
    ) -> AsyncIterator[ServerJSON]:
        """Yield the events of a streamed answer, within limits, or the whole answer of a server that does not stream; `DONE`
        where its end is announced, and what comes behind it."""
        limits = limits or StreamLimits(self.limit, seconds=self.timeout)
        clock = Deadline(self.timeout, limits.seconds)
        with PendingRequest(self) as server:
            answer, checkout = await self._begin_stream(self._route(server.url, path), body)
            async with answer:
                await self._check(answer)
                if "event-stream" not in answer.headers.get("Content-Type", ""):
                    async with asyncio.timeout(self.timeout):
                        whole = await self._bodies.read(answer, self.parse)
                    yield whole
                    yield DONE
                    return
                events = EventData(limits)
                held = 0
                try:
                    async for piece in within(clock, pieces(answer)):
                        for data in events.add(piece):
                            clock.restart()
                            if checkout.is_doubtful:
                                raise RetryableError("the server sent a response that nobody asked for")
                            yield DONE if data == b"[DONE]" else self.parse(data)
                        clock.check()
                        if events.waiting > self.limit:
                            raise self._bodies.too_large(f"more than {self.limit / MB:.0f}")
                        if not held and events.waiting > self._bodies.small:
                            held = await self._bodies.reserve()
                finally:
                    self._bodies.release(held)

    async def _begin_stream(self, route: Route, body: Mapping[str, JSON]) -> "tuple[aiohttp.ClientResponse, Checkout]":
        """Begin a streamed answer, whose head must come in time: aiohttp's limit begins anew with every byte."""
        import aiohttp

        chunk_timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=self.timeout)
        data = orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
        async with asyncio.timeout(self.timeout):
            try:
                checkout = Checkout(wants_new=False)
                return await self._begin(route, data, checkout, timeout=chunk_timeout), checkout
            except StaleConnection:
                checkout = Checkout(wants_new=True)
                return await self._begin(route, data, checkout, timeout=chunk_timeout), checkout

    async def _check(self, answer: "aiohttp.ClientResponse") -> None:
        """Raise the error of an answer whose status is not 200."""
        if answer.status != 200:
            async with asyncio.timeout(self.timeout):
                start = await start_of(answer)
            self._refuse(answer.status, answer.headers, start.decode("utf-8", "replace"))

    def as_retryable(self, error: BaseException) -> RetryableError | None:
        """Return the RetryableError that an exception means; None for one that no server caused, and for a refusal."""
        import aiohttp

        match error:
            case RetryableError():
                return error
            case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError():
                return RetryableError(f"incomplete answer: {error or type(error).__name__}")
            case aiohttp.ClientConnectionError() if not isinstance(error, aiohttp.SocketTimeoutError):
                unsent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
                is_proxy = isinstance(error, aiohttp.ClientProxyConnectionError)
                what = f"the {'proxy' if is_proxy else 'server'} is unreachable: {connection_problem(error)}"
                return RetryableError(self.clean(what), unreachable=True, unsent=unsent)
            case aiohttp.ClientHttpProxyError() if error.status in RETRYABLE_STATUSES:
                what = f"the server is unreachable: the proxy answers HTTP {error.status}: {error.message}"
                return RetryableError(self.clean(what), unreachable=True, unsent=True)
            case TimeoutError():  # one while the answer is read is of both kinds
                return RetryableError(f"no answer within {self.timeout:.0f} s", rate_limited=True)
            case aiohttp.ClientError():
                return RetryableError(self.clean(f"invalid HTTP answer: {type(error).__name__}: {error}")[:300])
        return None

    def proxy_refusal(self, error: BaseException) -> PermanentError | None:
        """Return the error of a proxy that refuses the way to a server, for good."""
        import aiohttp

        if not isinstance(error, aiohttp.ClientHttpProxyError) or error.status in RETRYABLE_STATUSES:
            return None
        return PermanentError(self.clean(f"HTTP {error.status} of the proxy: {error.message}"))

    def reaching_remedy(self, url: str, error: BaseException) -> str:
        """Return what to do about a server that cannot be reached; empty where a user may have to start it."""
        proxy, host = self._proxies.get(url), urlsplit(url).hostname or ""
        tls = tls_remedy(error)
        if proxy is not None:
            check = f"check {proxy.shown}, or use none with proxy=off in the model's arguments"
            return f"{tls}; {check}" if tls else check
        if tls or is_near(host):
            return tls
        return (
            f"check the network and the address {host}; behind a proxy set HTTPS_PROXY, or give proxy=http://HOST:PORT"
        )

    async def get(self, path: str) -> ServerJSON:
        """Return the JSON at a path of the first server; None if it does not answer with status 200."""
        import aiohttp

        try:
            route, short = self._route(self.urls[0], path), aiohttp.ClientTimeout(total=10)
            async with self._session.get(route.url, timeout=short, allow_redirects=False, proxy=route.proxy) as answer:
                return await self._bodies.read(answer, self.parse) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, RetryableError, PermanentError):
            return None

    async def offered_slots(self) -> int | None:
        """Return the number of requests that the server works on at once; None if it does not say: only llama.cpp does."""
        if self._connections is None or not (self._connections.software or "").startswith("llama.cpp"):
            return None  # a model that asks by other means opens none
        props = await self.get("/../props" if self.urls[0].endswith("/v1") else "/props")
        slots = props.get("total_slots") if isinstance(props, dict) else None
        return slots if isinstance(slots, int) and slots > 0 else None

    def leave(self, number: int) -> None:
        """Send nothing more to a server, until it joins again. Called from other threads, too, as are the next two."""
        self.down.add(number)

    def join(self, number: int, url: str) -> None:
        """Send requests to a server again, at this address."""
        self.urls[number] = url
        if self._servers:
            self._servers[number] = ServerAddress(url)
        self.down.discard(number)

    def fail(self, error: AssayError) -> None:
        """End the run with an error, at its next request."""
        self._failure = error

    def least_loaded(self) -> ServerAddress:
        servers = self._servers if not self.down else self._running()
        if len(servers) == 1:
            return servers[0]
        now = time.monotonic()
        available = [server for server in servers if server.skip_until <= now] or servers
        return min(available, key=lambda server: server.pending)

    def _running(self) -> list[ServerAddress]:
        """The servers that have not ended."""
        if self._failure is not None:
            raise self._failure
        running = [server for number, server in enumerate(self._servers) if number not in self.down]
        if not running:
            raise RetryableError("every server ended and is being restarted", unreachable=True, unsent=True)
        return running

    def _refuse(self, status: int, headers: Mapping[str, str], text: str) -> None:
        if 300 <= status < 400:
            raise PermanentError(self.clean(redirect_message(status, headers.get("Location"))))
        message = f"HTTP {status}: {error_message(self.clean(text)) or responses.get(status, 'no message')}"
        if status in RETRYABLE_STATUSES and not (status == TOO_MANY and NO_CREDIT.search(text)):
            raise RetryableError(
                message,
                retry_after=_retry_after(headers.get("Retry-After")),
                rate_limited=status in RATE_LIMIT_STATUSES,
            )
        raise PermanentError(message)

    def clean(self, text: str, more: Sequence[str] = ()) -> str:
        """Redact keys and passwords, also one that the end of the text cut off."""
        secrets = (*more, *self.secrets)
        for secret in secrets:
            text = text.replace(secret, HIDDEN)
        bare = text.rstrip("'\"")
        for secret in secrets:
            lengths = range(min(len(secret), len(bare)), MIN_PARTIAL_SECRET - 1, -1)
            cut = next((length for length in lengths if bare.endswith(secret[:length])), 0)
            if cut:
                return bare[:-cut] + HIDDEN + text[len(bare) :]
        return text

    def parse(self, data: bytes) -> ServerJSON:
        """The JSON of an answer. NaN and infinities, which JSON does not have and some servers send, are read as such."""
        if len(data) > MANY_BYTES and data.count(b",") > MAX_VALUES:
            raise PermanentError(f"the answer has more than {MAX_VALUES} values")
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            if len(data) <= MAX_NAN_BYTES and (b"NaN" in data or b"Infinity" in data):
                with suppress(ValueError, RecursionError):
                    value = json.loads(data)
                    json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair could not be written down
                    return value
            longest = max(map(len, self.secrets), default=0)
            start = self.clean(bytes(data[: 4 * (MAX_SHOWN + longest)]).decode("utf-8", "replace"))
            raise RetryableError(f"the answer is not JSON: {start[:MAX_SHOWN]!r}", malformed=True) from None


class PendingRequest:
    """Context manager of a request to the least loaded server. Errors become RetryableErrors and make the server be skipped.

    A class, since an asynchronous generator takes four times as long, for every request.
    """

    __slots__ = ("_http", "_server")

    def __init__(self, http: Http) -> None:
        self._http, self._server = http, http.least_loaded()

    def __enter__(self) -> ServerAddress:
        self._server.pending += 1
        return self._server

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.pending -= 1
        if error is None:
            self._server.faults = 0
            return
        if (refusal := self._http.proxy_refusal(error)) is not None:
            raise refusal from None
        retryable = self._http.as_retryable(error)
        if retryable is not None:
            self._server.fail()
            if retryable.unreachable:
                retryable.fix = self._http.reaching_remedy(self._server.url, error)
            if retryable is not error:
                raise retryable from None


def connection_problem(error: "aiohttp.ClientConnectionError") -> str:
    """Return where a connection failed, and the system's reason: aiohttp's text names TLS settings where there is no TLS."""
    reason: object = getattr(error, "os_error", None) or getattr(error, "certificate_error", None)
    if reason is None:
        return str(error)
    where = f"{getattr(error, 'host', '')}:{getattr(error, 'port', '')}"
    if is_tls_error(reason):  # its number is OpenSSL's, and not the system's
        words = (
            getattr(reason, "verify_message", "")
            or str(getattr(reason, "reason", "") or reason).replace("_", " ").lower()
        )
        return f"{where}: TLS failed: {words}"
    number = getattr(reason, "errno", None)
    known = os.strerror(number) if isinstance(number, int) and number > 0 else getattr(reason, "strerror", None)
    return f"{where}: {known or reason}"


def is_tls_error(reason: object) -> bool:
    """Whether an error is of the encryption of a connection, and not of the connection."""
    import ssl

    return isinstance(reason, ssl.SSLError | ssl.CertificateError)


def tls_remedy(error: BaseException) -> str:
    """Return what to do about a connection whose encryption failed; empty for other errors."""
    reason = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
    if not is_tls_error(reason):
        return ""
    if getattr(reason, "verify_message", ""):
        return "give ca_cert_path=FILE with the certificate that signed the server's, or verify_certificate=False"
    return "write http:// in base_url if the server does not use TLS"


def _certificates(verify: bool | str) -> "ssl.SSLContext | bool":
    import ssl

    try:
        return ssl.create_default_context(cafile=verify) if isinstance(verify, str) else verify
    except OSError as error:
        what = f"{verify} cannot be read as certificates: {error.strerror or error}"
        raise ConfigError.at("model_args.ca_cert_path", what, "give a file in PEM format") from None


def with_path(url: str, path: str) -> str:
    """Append a path to an address before its query.

    >>> with_path("http://127.0.0.1/v1?sig=1", "/models")
    'http://127.0.0.1/v1/models?sig=1'
    """
    before, question, query = url.partition("?")
    return f"{before}{path}{question}{query}"


def redirect_message(status: int, location: str | None) -> str:
    """Return the message for a redirect: its target without credentials and query."""
    try:
        parts = urlsplit(location or "")
        host = parts.netloc.rpartition("@")[2]
        target = f"{parts.scheme}://{host}{parts.path}" if host else parts.path
    except ValueError:
        target = ""
    shown = "".join(letter if letter.isprintable() else "?" for letter in target)[:200] or "an unknown address"
    return (
        f"HTTP {status}: the server redirects to {shown}; redirects are not followed, since the key and the prompts would be"
        " sent there. If that address is right, set it as base_url"
    )


def _retry_after(written: str | None) -> float | None:
    """Return the seconds of a Retry-After header: a number, or a date."""
    if written is None:
        return None
    try:
        seconds = float(written)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(written).timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER) if seconds == seconds else None  # not NaN
