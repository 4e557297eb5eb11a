"""Connections to servers, kept so that an answer belongs to the request that it was sent for.

HTTP/1.1 has no ids: what comes on a connection is the answer to the last request on it. A server or proxy that sends a
response too many would so answer the next document, and all after it. Against that:

- A connection rests before it is used again, and a new one is opened meanwhile. What comes late comes to a resting
  connection, which is closed at the first byte. Rest costs only open sockets: each connection is still used again.
- A connection is looked at right before it is used again: bytes or an end that wait in the kernel close it.
- An answer that comes before its request was received is thrown away, and its connection with it.
- A server that did any of this is never again trusted with a second request on a connection, and requests in flight on
  used ones are sent again.
"""

import array
import fcntl
import logging
import re
import resource
import select
import termios
import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler

from assay.models.servers.checkout import Checkout, current_checkout

if TYPE_CHECKING:
    import ssl

    from aiohttp.client_reqrep import ClientRequest, ConnectionKey
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

IDLE_SECONDS = 60.0
"""A connection that nobody used for so long is closed."""
REST_SECONDS, MIN_REST_SECONDS = 10.0, 0.1
"""Rest of a connection between two requests: the first while fewer than `spare` rest, the second always. A proxy that asks its
server twice answers seconds after its first answer, and nothing tells such an answer from that of the next request."""
MAX_SPARE = 256
"""Connections that rest: up to 25 requests a second each rests for all of `REST_SECONDS`, at 2,500 for a tenth of a second."""
HARMLESS = re.compile(rb"\r?\n?(HTTP/1\.[01] 408\b|(\r?\n)*$)")
"""What some servers send on an idle connection: the reason why they close it, or the end of a line."""
KEEP_ALIVE = re.compile(r"(?i)\btimeout *= *(\d{1,6})")
KEEP_ALIVE_MARGIN = 1.0
"""Seconds before the announced end at which a connection counts as closed: the request must arrive there."""


class Link(ResponseHandler):
    """One connection."""

    connections: "Connections"
    key: "ConnectionKey | None" = None
    uses = 0
    is_resting = False
    expires = float("inf")

    @property
    def is_distrusted(self) -> bool:
        return self.key in self.connections.distrusted

    def data_received(self, data: bytes) -> None:
        if data and self.is_resting:
            self.close()
            if not HARMLESS.match(data):
                self.connections.distrust(self)
            return
        super().data_received(data)

    @property
    def has_unasked(self) -> bool:
        """Whether there is more than the answer that was read."""
        return bool(self._buffer or self._tail)

    def is_usable(self, now: float) -> bool:
        """Whether the connection is open and silent: what the kernel has of it is unread."""
        if not self.is_connected() or now >= self.expires:
            return False
        transport = cast(Any, self.transport)
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    def has_unsent(self) -> bool:
        """Whether the server has not received all of the request yet. Its answer would acknowledge that."""
        transport = cast(Any, self.transport)
        if transport is None or transport.is_closing():
            return False
        if transport.get_write_buffer_size():
            return True
        unacknowledged = array.array("i", [0])
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, unacknowledged)
        return bool(unacknowledged[0])


class Connections(aiohttp.TCPConnector):
    """Connections to the servers of one model. `distrusted` servers sent what nobody asked for. `spare` connections may
    rest; with none (`has_own`), each request has a connection of its own. `software` is what the first answer names."""

    def __init__(self, limit: int, verify: "ssl.SSLContext | bool", *, has_own: bool) -> None:
        super().__init__(limit=limit, keepalive_timeout=IDLE_SECONDS, ssl=verify)
        self.spare = 0 if has_own else spare_connections(limit)
        self.software: str | None = None
        self.distrusted: set[ConnectionKey] = set()
        self._factory = partial(self._link, loop=self._loop)  # type: ignore[assignment]

    def _link(self, **options: Any) -> Link:
        link = Link(**options)
        link.connections = self
        return link

    def distrust(self, link: Link) -> None:
        """Give each request to the server of a connection one of its own from now on."""
        key = link.key
        if key is None or key in self.distrusted:
            return
        self.distrusted.add(key)
        logging.getLogger("assay").warning(
            "%s:%s sent a response that nobody asked for: each request has a connection of its own from now on, and requests"
            " in flight are sent again",
            key.host,
            key.port,
        )

    async def connect(
        self, req: "ClientRequest", traces: "list[Trace]", timeout: aiohttp.ClientTimeout
    ) -> "Connection":
        connection = await super().connect(req, traces, timeout)
        link = cast(Link, connection.protocol)
        link.key, link.is_resting = req.connection_key, False
        link.uses += 1
        checkout = current_checkout.get()
        if checkout is not None:
            checkout.link, checkout.is_reused = link, link.uses > 1
        return connection

    async def _get(self, key: "ConnectionKey", traces: "list[Trace]") -> "Connection | None":
        checkout = current_checkout.get()
        return await super()._get(key, traces) if checkout is not None and self._has_rested(checkout, key) else None

    def _has_rested(self, checkout: Checkout, key: "ConnectionKey") -> bool:
        """Whether the connection that rests longest can be used; those before it that cannot be are closed."""
        resting = self._conns.get(key)
        if not resting or checkout.wants_new or key in self.distrusted:
            return False
        now = time.monotonic()
        while resting:
            link, since = cast("tuple[Link, float]", resting[0])
            if now - since < (MIN_REST_SECONDS if len(resting) >= self.spare else REST_SECONDS):
                return False
            if link.is_usable(now):
                return True
            resting.popleft()
            link.close()
        return False

    def _release(self, key: "ConnectionKey", protocol: ResponseHandler, *, should_close: bool = False) -> None:
        link = cast(Link, protocol)
        if link.has_unasked:
            self.distrust(link)
        has_own = not self._may_rest(key)
        super()._release(key, protocol, should_close=should_close or has_own or key in self.distrusted)
        if link.transport is None:
            return
        link.is_resting = True
        resting = self._conns[key]
        if len(resting) > self.spare + self.limit:
            cast(Link, resting.popleft()[0]).close()

    def _may_rest(self, key: "ConnectionKey") -> bool:
        """A server that is asked one request at a time may be one that serves one connection at a time."""
        return self.spare > 0 and (self.limit > 1 or key.is_ssl)


def spare_connections(limit: int) -> int:
    """The number of connections that may rest: what the process may still open, and not all of that."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(0, min(MAX_SPARE, soft // 4, soft // 2 - limit)) if soft != resource.RLIM_INFINITY else MAX_SPARE


class PooledResponse(aiohttp.ClientResponse):
    """An answer that knows what its head says about its connection."""

    async def start(self, connection: "Connection") -> "PooledResponse":
        link = cast(Link, connection.protocol)
        await super().start(connection)
        checkout = current_checkout.get()
        if checkout is not None and checkout.is_reused and link.has_unsent():
            checkout.is_early = True
            link.connections.distrust(link)
        if link.connections.software is None:
            link.connections.software = self.headers.get("Server", "")
        announced = self.headers.get("Keep-Alive")
        if announced is not None and (seconds := KEEP_ALIVE.search(announced)) is not None:
            link.expires = time.monotonic() + max(0.0, int(seconds[1]) - KEEP_ALIVE_MARGIN)
        return self
