"""Proxies between us and servers: of the model's arguments, or of the environment for hosts that are not this machine."""

from base64 import b64encode
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies_environment

from assay.errors import ConfigError
from assay.models.servers.secrets import hidden_texts

OFF = "off"
SCHEMES = ("http", "https")


class Proxy(NamedTuple):
    """A proxy: its address with credentials and without, the header and the password of these, and where it was named."""

    address: str
    url: str
    authorization: str | None
    password: str | None
    source: str

    def __repr__(self) -> str:
        return f"Proxy({self.shown})"

    @property
    def secrets(self) -> list[str]:
        """Texts to redact."""
        return hidden_texts([self.password], [self.authorization or ""])

    @property
    def shown(self) -> str:
        return f"the proxy {self.url} (from {self.source})"


def proxy_of(url: str, argument: str | None) -> Proxy | None:
    """Return the proxy for a server, if there is one. A ConfigError for one that cannot be used.

    `argument` is an address or `off`; without it HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY count, not for loopback.
    """
    if argument is not None:
        return _proxy(argument, "proxy") if argument != OFF else None
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host or is_loopback(host):
        return None
    found = getproxies_environment()  # reads HTTP_PROXY of a web server's visitor only where that is safe
    port = parts.port or (443 if parts.scheme == "https" else 80)
    name = parts.scheme if found.get(parts.scheme) else "all"
    if not found.get(name) or _is_excepted(host, port, found.get("no", "")):
        return None
    return _proxy(found[name], f"{name.upper()}_PROXY")


class Route(NamedTuple):
    """The way to a path of a server; the address of the proxy has its credentials."""

    url: str
    proxy: str | None = None


def is_loopback(host: str) -> bool:
    """Whether a host is this machine.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.9", "::1", "10.0.0.1", "api.openai.com")]
    [True, True, True, False, False]
    """
    address = _address(host)
    return address.is_loopback if address is not None else host.casefold().rstrip(".").rpartition(".")[2] == "localhost"


def is_near(host: str) -> bool:
    """Whether a host is one that a user may have started a server on: a name without dots, or a private address."""
    address = _address(host)
    return address.is_private if address is not None else "." not in host or is_loopback(host)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None


def _is_excepted(host: str, port: int, exceptions: str) -> bool:
    """Whether NO_PROXY names a host: `*`, the host or a domain above it, an address or a network; with a port if it has one."""
    host = host.casefold().rstrip(".")
    return any(_matches(entry.strip().casefold(), host, port) for entry in exceptions.split(",") if entry.strip())


def _matches(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    address = _address(host)
    if address is not None:
        try:
            return address in ip_network(entry.strip("[]"), strict=False)
        except ValueError:
            pass  # a name, or an address with a port
    name, _, written = entry.rpartition(":")
    if name and written.isdecimal():
        if int(written) != port:
            return False
        entry = name
    domain = entry.strip("[]").removeprefix("*").strip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _proxy(written: str, source: str) -> Proxy:
    address = written if "://" in written else f"http://{written}"
    try:
        password = urlsplit(address).password
        url, authorization = without_user(address)
        parts = urlsplit(url)
        is_valid = bool(parts.hostname) and parts.scheme in SCHEMES and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        what = f"{source} is not the address of an HTTP proxy" + (
            "" if "socks" not in written[:6] else ": SOCKS is not supported"
        )
        raise ConfigError.at("model_args.proxy", what, "give proxy=http://HOST:PORT, or proxy=off")
    return Proxy(address, f"{parts.scheme}://{parts.netloc}", authorization, password, source)


def without_user(url: str) -> tuple[str, str | None]:
    """Return an address without credentials, and the header with them.

    >>> without_user("http://me:pw@127.0.0.1:80/v1")
    ('http://127.0.0.1:80/v1', 'Basic bWU6cHc=')
    """
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url, None
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), f"Basic {b64encode(unquote(user).encode()).decode()}"
