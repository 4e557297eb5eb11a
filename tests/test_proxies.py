"""Proxies between us and servers: of the environment for hosts that are not this machine, of the model's arguments for any."""

import http.server
import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import assay
import run_world
from assay.errors import ConfigError
from assay.models.servers.proxies import is_loopback, proxy_of
from serving import Arrived, free_port, loopback
from small_runs import write_task

HOST = "api.provider.test"
TASK = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider's name is this machine's, as in a hosts file."""
    found = socket.getaddrinfo

    def look_up(host: Any, *arguments: Any, **options: Any) -> Any:
        return found("127.0.0.1" if host == HOST else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@contextmanager
def proxying(password: str = "") -> Iterator[tuple[str, list[str]]]:
    """A proxy that opens tunnels (CONNECT) and forwards requests, all to this machine, and the first lines that arrived there."""
    listener, log = socket.create_server(("127.0.0.1", 0)), list[str]()

    def attend(client: socket.socket) -> None:
        with client, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(2**16)
            line, _, headers = head.decode("latin-1").partition("\r\n")
            log.append(line)
            if password and f"Basic {password}" not in headers:
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            method, target, _ = line.split(" ")
            port = int(target.removeprefix("http://").partition("/")[0].rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as server:
                if method == "CONNECT":
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    server.sendall(head.replace(f"http://{HOST}:{port}".encode(), b"", 1))
                back = threading.Thread(target=pump, args=(server, client), daemon=True)
                back.start()
                pump(client, server)
                back.join()

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=attend, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", log
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def answer(arrived: Arrived) -> Any:
    return {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}


def evaluate(folder: Path, url: str, **arguments: Any) -> dict[str, Any]:
    write_task(folder, [{"q": f"q{n}", "gold": "x"} for n in range(3)], TASK)
    return assay.simple_evaluate(
        "openai-chat", {"model": "m", "base_url": url, "max_retries": 1, **arguments}, tasks=["t"],
        include_path=str(folder), include_defaults=False, output_path=str(folder / "run"),
    )  # fmt: skip


def provider(url: str) -> str:
    return url.replace("127.0.0.1", HOST)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_proxy_of_the_environment_is_used_for_a_provider(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loopback(answer) as (url, arrived), proxying() as (proxy, log):
        monkeypatch.setenv(name, proxy)
        assert evaluate(tmp_path, provider(url))["results"]["t"]["exact_match,none"] == 1.0
    assert len(arrived) == 5
    assert log and all(line.startswith(f"POST http://{HOST}:") for line in log)


def test_https_goes_through_a_tunnel_and_a_name_without_a_server_there_is_not_one_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loopback(answer) as (url, _), proxying() as (proxy, log):
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        with pytest.raises(ConfigError) as refused:  # the server behind the tunnel speaks no TLS
            evaluate(tmp_path, provider(url).replace("http:", "https:"))
    assert log[0].startswith(f"CONNECT {HOST}:")
    assert f"check the proxy {proxy} (from HTTPS_PROXY)" in str(refused.value)


def test_a_proxy_is_not_used_for_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{free_port()}")
    with loopback(answer) as (url, _):
        assert evaluate(tmp_path, url)["results"]["t"]["exact_match,none"] == 1.0


@pytest.mark.usefixtures("resolved")
def test_no_proxy_names_hosts_that_are_reached_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with loopback(answer) as (url, _), proxying() as (proxy, log):
        monkeypatch.setenv("HTTP_PROXY", proxy)
        monkeypatch.setenv("NO_PROXY", "example.com, .provider.test")
        assert evaluate(tmp_path, provider(url))["results"]["t"]["exact_match,none"] == 1.0
    assert log == []


@pytest.mark.usefixtures("resolved")
def test_the_argument_switches_the_proxy_off_or_names_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with loopback(answer) as (url, _), proxying() as (proxy, log):
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
        evaluate(tmp_path / "off", provider(url), proxy="off")
        assert log == []
        evaluate(tmp_path / "named", provider(url), proxy=proxy)
        assert log


def test_the_password_of_a_proxy_is_sent_to_it_and_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with loopback(answer) as (url, _), proxying("bWU6Y2FuYXJ5LTQ3MTE=") as (proxy, _):  # me:canary-4711
        secret = proxy.replace("//", "//me:canary-4711@")
        given = evaluate(tmp_path / "given", provider(url), proxy=secret)
        monkeypatch.setenv("HTTP_PROXY", secret)
        read = evaluate(tmp_path / "read", provider(url))
        monkeypatch.setenv("HTTP_PROXY", proxy.replace("//", "//me:canary-wrong@"))
        with pytest.raises(ConfigError) as refused:
            evaluate(tmp_path / "wrong", provider(url))
    assert given["results"]["t"]["exact_match,none"] == read["results"]["t"]["exact_match,none"] == 1.0
    assert "HTTP 407: Proxy Authentication Required — check the name and the password of the proxy" in str(
        refused.value
    )
    written = [str(given), str(read), str(refused.value), caplog.text]
    written += [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()]
    assert all("canary" not in text and "bWU6" not in text for text in written)


def test_a_dead_proxy_is_named_with_the_variable_that_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    with pytest.raises(ConfigError) as refused:
        evaluate(tmp_path, f"https://{HOST}/v1")
    assert f"the proxy is unreachable: 127.0.0.1:{port}: Connection refused" in str(refused.value)
    assert f"check the proxy http://127.0.0.1:{port} (from HTTPS_PROXY)" in str(refused.value)
    assert "start the server" not in str(refused.value)


def test_a_provider_that_cannot_be_reached_is_not_a_server_to_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        evaluate(tmp_path, "https://api.provider.invalid/v1")
    assert "start the server" not in str(refused.value) and "HTTPS_PROXY" in str(refused.value)
    assert "ssl:" not in str(refused.value)


def test_a_server_nearby_that_is_not_there_is_one_to_start(tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(ConfigError) as refused:
        evaluate(tmp_path, f"http://localhost:{port}/v1")
    assert f"localhost:{port}: Connection refused — start the server" in str(refused.value)


def test_a_server_without_tls_that_is_asked_by_https_is_not_one_to_start(tmp_path: Path) -> None:
    with loopback(answer) as (url, _), pytest.raises(ConfigError) as refused:
        evaluate(tmp_path, url.replace("http://", "https://"))
    assert "TLS failed: wrong version number — write http:// in base_url" in str(refused.value)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_certificate_that_nobody_known_signed_is_said_with_the_argument_that_names_its_signer(tmp_path: Path) -> None:
    made = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-keyout",
        "key.pem",
        "-out",
        "c.pem",
    ]
    subprocess.run(["openssl", *made], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "c.pem", tmp_path / "key.pem")
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(ConfigError) as refused:
            evaluate(tmp_path, f"https://127.0.0.1:{server.server_port}/v1")
    finally:
        server.shutdown()
        server.server_close()
    assert "TLS failed: self-signed certificate — give ca_cert_path=FILE" in str(refused.value)


@pytest.mark.parametrize(
    ("exceptions", "host", "is_used"),
    [
        ("", HOST, True), ("*", HOST, False), ("provider.test", HOST, False), (".provider.test", HOST, False),
        ("*.provider.test", HOST, False), ("vider.test", HOST, True), (f"{HOST}:8000", HOST, False), (f"{HOST}:81", HOST, True),
        ("10.0.0.0/8", "10.1.2.3", False), ("10.0.0.0/8", "11.1.2.3", True), ("10.1.2.3", "10.1.2.3", False),
        ("other.test,API.PROVIDER.TEST", HOST, False), ("fd00::/8", "[fd00::1]", False),
    ],
)  # fmt: skip
def test_no_proxy_has_names_domains_ports_and_networks(
    exceptions: str, host: str, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", exceptions)
    proxy = proxy_of(f"http://{host}:8000/v1", None)
    assert (proxy is not None) is is_used
    assert proxy is None or proxy.url == "http://proxy.test:3128"


@pytest.mark.parametrize("host", ["localhost", "app.localhost", "127.0.0.1", "127.8.8.8", "[::1]"])
def test_this_machine_has_several_names(host: str) -> None:
    assert is_loopback(host)


def test_a_socks_proxy_is_refused_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(ConfigError, match="SOCKS is not supported — give proxy=http://HOST:PORT"):
        evaluate(tmp_path, f"http://{HOST}/v1")


def test_a_proxy_is_no_part_of_what_identifies_a_run(tmp_path: Path) -> None:
    with loopback(answer) as (url, arrived), proxying() as (proxy, _):
        evaluate(tmp_path, url)
        before = len(arrived)
        evaluate(tmp_path, provider(url), proxy=proxy)
    assert len(arrived) - before == 2  # the greeting alone
    assert run_world.results(tmp_path / "run")
