"""Servers that tests start on loopback and end by process id."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STUB, TRUTH, TALKING = HERE.parent / "bench/openai_stub.py", HERE / "truth_server.py", HERE / "talking_server.py"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


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
    """What a server tells of itself."""
    with urllib.request.urlopen(url.removesuffix("/v1") + path) as answer:
        return json.load(answer)
