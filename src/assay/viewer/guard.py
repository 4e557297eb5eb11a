"""The guard before the viewer: read-only, by default for this machine only, and pages that can load nothing from elsewhere."""

import ipaddress
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
METHODS = ("GET", "HEAD")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at that address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def allowed_hosts(host: str) -> frozenset[str]:
    """The host names that a request may use: any other may be a DNS rebinding attack."""
    if is_loopback(host):
        return LOOPBACK_NAMES | {host}
    return LOOPBACK_NAMES | {host, socket.gethostname().lower(), socket.getfqdn().lower()}


class RequestGuard:
    """Refuses requests that do not read or that use a foreign host name; adds the security headers."""

    def __init__(self, app: App, names: frozenset[str], close: Callable[[], None] = lambda: None) -> None:
        self.app = app
        self.close = close  # ends what is open, when the server stops
        self.names = names
        self._open = not all(map(is_loopback, names - {"localhost"}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["method"] not in METHODS:
            await _refuse(send, 405, "this server is read-only — use GET or HEAD", {"allow": "GET, HEAD"})
        elif not self.is_ours(dict(scope["headers"]).get(b"host", b"").decode("latin-1")):
            await _refuse(send, 421, "unknown host name — open this server as http://127.0.0.1 or http://localhost")
        else:
            await self.app(scope, receive, _with_headers(send))

    def is_ours(self, host: str) -> bool:
        """Whether a Host header names this server. On a server open to others, a plain IP address does: it cannot be
        rebound.
        """
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
        name = name.strip("[]").lower()
        return name in self.names or (self._open and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            present = {name for name, _ in message.get("headers", ())}
            added = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in present]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return sending


async def _refuse(send: Send, status: int, why: str, headers: MutableMapping[str, str] | None = None) -> None:
    every = {**HEADERS, **(headers or {}), "content-type": "text/plain; charset=utf-8"}
    encoded = [(name.encode(), value.encode()) for name, value in every.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": why.encode() + b"\n"})
