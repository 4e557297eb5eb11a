"""Servers that tests start on loopback and end by process id."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
STUB, TRUTH, TALKING = HERE.parent / "bench/openai_stub.py", HERE / "truth_server.py", HERE / "talking_server.py"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Servers:
    """Starts servers and gives their addresses; `end` kills what was started."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def __call__(self, *options: object, script: Path = STUB, port: int | None = None) -> str:
        at = port or free_port()
        command = [sys.executable, str(script), str(at), *map(str, options)]
        process = subprocess.Popen(command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stderr=subprocess.DEVNULL)
        self._started.append(process)
        for _ in range(1200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{at}/v1/models", timeout=1).close()
                return f"http://127.0.0.1:{at}/v1"
            except OSError:
                assert process.poll() is None
                time.sleep(0.05)
        raise AssertionError("the server never came")

    def end(self) -> None:
        for process in self._started:
            process.send_signal(signal.SIGKILL)
            process.wait()
        self._started = []


def fetched(url: str, path: str) -> Any:
    """The pages a server has about itself."""
    with urllib.request.urlopen(url.removesuffix("/v1") + path) as answer:
        return json.load(answer)


class Arrived(NamedTuple):
    """A request as it reached a server."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


RESET = object()
"""No answer: the connection is reset."""
Answer = Callable[[Arrived], Any]
"""What a server answers: JSON, bytes, `RESET`, or a status with headers and JSON."""


@contextmanager
def loopback(answer: Answer) -> Iterator[tuple[str, list[Arrived]]]:
    """A server in a thread that answers by a function, with its address and all that arrived there."""
    log: list[Arrived] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            arrived = Arrived(
                self.command,
                self.path,
                dict(self.headers),
                self.rfile.read(int(self.headers.get("Content-Length") or 0)),
            )
            log.append(arrived)
            said = answer(arrived)
            if said is RESET:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                self.close_connection = True
                self.connection.close()
                return
            status, headers, content = said if isinstance(said, tuple) else (200, {}, said)
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(data)),
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST  # noqa: N815  # the name that the library calls

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, request: object, client_address: object) -> None:
            """Ignores connections that were reset."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", log
    finally:
        server.shutdown()
        server.server_close()
