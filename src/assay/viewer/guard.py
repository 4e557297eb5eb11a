"""The guard before the viewer: read-only, by default for this machine only, and pages that can load nothing from elsewhere.

With `--label`, a few paths take a POST: from pages of this server alone, and only from a browser that has the token.
"""

import ipaddress
import secrets
import socket
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
METHODS = ("GET", "HEAD")
LARGEST_FORM = 100_000
FORM = "application/x-www-form-urlencoded"
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


class WritePermit(NamedTuple):
    """Permits POST requests to some paths: with the token, which the URL in the terminal has and a cookie keeps."""

    paths: frozenset[str]
    token: str
    cookie: str
    """Its name: servers at other ports of this machine get the same cookies."""

    @classmethod
    def to(cls, *paths: str) -> "WritePermit":
        return cls(frozenset(paths), secrets.token_urlsafe(24), f"assay_{secrets.token_hex(4)}")

    def is_held(self, headers: Headers) -> bool:
        """Whether a request has the token in its cookies."""
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        own = cookies.get(self.cookie)
        return own is not None and secrets.compare_digest(own.value.encode(), self.token.encode())

    def refusal(self, headers: Headers) -> tuple[int, str] | None:
        """The status and the reason with which a POST is refused; None where it may write."""
        site, origin, host = headers.get("sec-fetch-site"), headers.get("origin"), headers.get("host", "").lower()
        if site is None and origin is None:
            return 403, "the request does not say which page it comes from — use a browser"
        if site not in (None, "same-origin") or (origin is not None and _netloc(origin) != host):
            return 403, "the request comes from a page of another server"
        if not self.is_held(headers):
            return 403, "the token is missing — open the URL that `assay view` printed"
        if headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
            return 415, f"a form is expected — send {FORM}"
        size = headers.get("content-length", "")
        return None if size.isdecimal() and int(size) <= LARGEST_FORM else (413, "the form is too large")


class RequestGuard:
    """Refuses requests that do not read or that use a foreign host name; adds the security headers. A `permit` lets some write."""

    def __init__(
        self,
        app: ASGIApp,
        names: frozenset[str],
        close: Callable[[], None] = lambda: None,
        permit: WritePermit | None = None,
    ) -> None:
        self.app = app
        self.close = close  # ends what is open, when the server stops
        self.names = names
        self.permit = permit
        self._open = not all(map(is_loopback, names - {"localhost"}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        else:
            answer = self._refusal(scope, Headers(scope=scope))
            await (answer or self.app)(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: Headers) -> PlainTextResponse | None:
        """The answer to a request that the application does not get."""
        permit = self.permit if self.permit is not None and scope["path"] in self.permit.paths else None
        writes = scope["method"] == "POST" and permit is not None
        if scope["method"] not in METHODS and not writes:
            return _answer(405, "this server is read-only — use GET or HEAD", {"allow": "GET, HEAD"})
        if not self.is_ours(headers.get("host", "")):
            return _answer(421, "unknown host name — open this server as http://127.0.0.1 or http://localhost")
        if writes and permit is not None and (refusal := permit.refusal(headers)) is not None:
            return _answer(*refusal)
        if self.permit is not None and scope["path"] == "/" and b"token=" in scope["query_string"]:
            return self._admit(self.permit, scope)
        return None

    def _admit(self, permit: WritePermit, scope: Scope) -> PlainTextResponse:
        """Put the token of a URL into a cookie, and lead to the URL without it."""
        [token, *_] = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
        if not secrets.compare_digest(token.encode(), permit.token.encode()):
            return _answer(403, "the token is wrong — open the URL that `assay view` printed")
        cookie = f"{permit.cookie}={permit.token}; Path=/; HttpOnly; SameSite=Strict"
        return _answer(303, "", {"location": "/", "set-cookie": cookie})

    def is_ours(self, host: str) -> bool:
        """Whether a Host header names this server. On a server open to others, a plain IP address does: it cannot be
        rebound.
        """
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
        name = name.strip("[]").lower()
        return name in self.names or (self._open and _is_address(name))


def _netloc(origin: str) -> str:
    """The host and port of an origin; empty where it is not an address of a page, such as `null` and `http://[`."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


def _answer(status: int, why: str, headers: dict[str, str] | None = None) -> PlainTextResponse:
    return PlainTextResponse(f"{why}\n", status, headers)
