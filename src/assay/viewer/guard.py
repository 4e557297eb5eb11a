"""The door of the viewer: only reading, only for the machine it runs on, and pages that can load nothing from elsewhere."""

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
READING = ("GET", "HEAD")
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


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


def names_for(host: str) -> frozenset[str]:
    """The names that a browser may call the server by: others are somebody's trick with the name of another machine."""
    if is_loopback(host):
        return LOCAL | {host}
    return LOCAL | {host, socket.gethostname().lower(), socket.getfqdn().lower()}


class Guard:
    """Refuses what does not read or calls the server by a name that is not its own; tells browsers what pages may do."""

    def __init__(self, app: App, names: frozenset[str]) -> None:
        self.app = app
        self.names = names
        self._open = not all(map(is_loopback, names - {"localhost"}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["method"] not in READING:
            await _refuse(send, 405, "this server only shows: GET and HEAD", {"allow": "GET, HEAD"})
        elif not self.is_ours(dict(scope["headers"]).get(b"host", b"").decode("latin-1")):
            await _refuse(
                send, 421, "this server is not called by that name: open it as http://127.0.0.1 or http://localhost"
            )
        else:
            await self.app(scope, receive, _with_headers(send))

    def is_ours(self, host: str) -> bool:
        """Whether a Host header names this server. Where it is open to others, a plain address does: no name can be turned."""
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
            given = {name for name, _ in message.get("headers", ())}
            added = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in given]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return sending


async def _refuse(send: Send, status: int, why: str, headers: MutableMapping[str, str] | None = None) -> None:
    told = {**HEADERS, **(headers or {}), "content-type": "text/plain; charset=utf-8"}
    sending = [(name.encode(), value.encode()) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": sending})
    await send({"type": "http.response.body", "body": why.encode() + b"\n"})
