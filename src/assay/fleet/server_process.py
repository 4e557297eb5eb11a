"""One server on this machine: started on a free port, asked whether it is ready, and ended with all that it started.

The same class is used in the process of the run and inside a Ray actor. It has no thread: whoever asks for its state moves it on.
"""

import errno
import fcntl
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from assay.config.serve_command import ServeCommand, found_program
from assay.redaction import HIDDEN, redact_text, secrets_in

LOOPBACK = "127.0.0.1"
ANY_ADDRESS = ("0.0.0.0", "::", "*", "")  # recognized, not bound
FIRST_PORT, LAST_PORT = 20_000, 32_767
"""Ports below those that the system gives to outgoing connections: a server may bind its port minutes after it was chosen."""
PORT_ATTEMPTS = 3
IN_USE = ("address already in use", "address in use", "eaddrinuse", "errno 98", "only one usage of each socket address")
GRACE_SECONDS = 5.0
"""Time that a server has after SIGTERM."""
ANSWER_SECONDS, PAUSE_SECONDS = 5.0, 0.5
"""Time for an answer while the server starts, and between two requests."""
OUR_REQUEST = re.compile(r"GET /(health|v1/models)\b")
"""Lines of a log about our own requests."""
LOG_LINES, LINE_LENGTH, LOG_BYTES = 15, 300, 20_000
GUARDIAN = Path(__file__).with_name("guardian.py")
NO_HANDLE = -1


class ServerState(NamedTuple):
    """The state of a server: its address and the names of its models while it runs, and afterwards why it ended."""

    phase: Literal["starting", "running", "ended"]
    address: str = ""
    models: tuple[str, ...] = ()
    reason: str = ""
    log: str = ""
    """The last lines of its log, where it ended or does not answer."""


class ServerProcess:
    """A server that was started with a command, and its guardian, which ends it when this process ends."""

    def __init__(self, command: str, folder: str, host: str = LOOPBACK) -> None:
        """Start the server in a folder; `host` is the address of this machine by which it will be asked."""
        self._command, self._host = ServeCommand.parse(command), host
        self._folder = folder if Path(folder).is_dir() else None
        self._logs = Path(tempfile.mkdtemp(prefix="assay-server-"))
        self._guardian: subprocess.Popen[bytes] | None = None
        self._lease = NO_HANDLE
        self._attempts, self._models = 0, tuple[str, ...]()
        self._has_answered, self._reason = False, ""
        self._asked_at, self._refusal = 0.0, ""
        self._start()

    def state(self) -> ServerState:
        """Ask the server, unless it has answered before, and look whether it still runs."""
        if not self._reason and self._guardian is not None:
            code = self._guardian.poll()
            if code is None and not self._has_answered:
                self._try()
            elif code is not None and not self._has_answered and self._lost_port():
                self._start()
            elif code is not None:
                self._reason = f"it ended {_exit_text(code)}"
        if self._reason:
            return ServerState("ended", self.address, self._models, self._reason, self.log())
        if not self._has_answered:
            return ServerState("starting", self.address, reason=self._refusal, log=self.log())
        return ServerState("running", self.address, self._models)

    @property
    def address(self) -> str:
        host = self._asked_host
        return f"http://{f'[{host}]' if ':' in host else host}:{self._port}/v1"

    @property
    def _asked_host(self) -> str:
        named = self._command.host
        return self._host if named is None or named in ANY_ADDRESS else named

    def log(self) -> str:
        """The place of the log and its last lines, without secrets."""
        with self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - LOG_BYTES))
            text = file.read().decode("utf-8", "replace").replace("\r", "\n")
        for secret in (self._command.api_key or "", *secrets_in(self._command.variables)):
            text = text.replace(secret, HIDDEN) if secret else text
        lines = [line[:LINE_LENGTH] for line in text.split("\n") if line.strip() and not OUR_REQUEST.search(line)]
        shown = [redact_text(line) for line in lines[-LOG_LINES:]]
        clean = ["".join(each if each.isprintable() or each == "\t" else "?" for each in line) for line in shown]
        return "\n".join([f"{socket.gethostname()}:{self._log}", *(f"  {line}" for line in clean or ["(nothing)"])])

    def stop(self, keep_log: bool = False) -> None:
        """End the server and all that it started. The log of one that ended by itself is always kept."""
        if self._guardian is not None and self._guardian.poll() is None:
            self._guardian.send_signal(signal.SIGTERM)
            try:
                self._guardian.wait(GRACE_SECONDS + 5)
            except subprocess.TimeoutExpired:
                self._guardian.kill()  # its other half ends the server
                self._guardian.wait()
        self._release()
        if not self._reason and not keep_log:
            shutil.rmtree(self._logs, ignore_errors=True)

    def _start(self) -> None:
        self._release()
        self._attempts += 1
        self._port, self._lease = _free_port(self._asked_host)
        words, variables = self._command.at(self._host, self._port)
        program = found_program(words[0]) or words[0]
        self._log = self._logs / f"server-{self._attempts}.log"
        command = [sys.executable, "-I", "-S", str(GUARDIAN), str(os.getpid()), str(GRACE_SECONDS), program, *words[1:]]
        with self._log.open("wb") as log:
            self._guardian = subprocess.Popen(
                command, cwd=self._folder, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _try(self) -> None:
        """Ask the server for its models; one that answers at another address of this machine is refused."""
        if time.monotonic() - self._asked_at < PAUSE_SECONDS:
            return
        host, key = self._asked_host, self._command.api_key
        models = models_at(host, self._port, key)
        self._asked_at = time.monotonic()
        if not isinstance(models, str):
            self._has_answered, self._models = True, models
        elif host != LOOPBACK and not isinstance(models_at(LOOPBACK, self._port, key), str):
            self.stop(keep_log=True)
            self._reason = f"it answers at {LOOPBACK} only, and is asked at {host}: write {{host}} where its host goes"
        else:
            self._refusal = models

    def _lost_port(self) -> bool:
        """Whether the server ended since another process took its port, and may be started on another one."""
        log = self.log().lower()
        return self._attempts < PORT_ATTEMPTS and any(text in log for text in IN_USE)

    def _release(self) -> None:
        if self._lease != NO_HANDLE:
            os.close(self._lease)
            self._lease = NO_HANDLE


def models_at(host: str, port: int, key: str | None) -> tuple[str, ...] | str:
    """The names of the models that a server is ready to answer for, or why it is not ready. Proxies are not used."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        health, _ = _get(host, port, "/health", headers)
        status, body = _get(host, port, "/v1/models", headers)
        if health >= 500 or status >= 500 or (status == 404 and health != 200):
            return f"/v1/models has status {status}, /health {health}"
        data = json.loads(body).get("data") if status == 200 else None
    except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    listed = data if isinstance(data, list) else []
    return tuple(each["id"] for each in listed if isinstance(each, dict) and isinstance(each.get("id"), str))


def _get(host: str, port: int, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(2**20)
    finally:
        connection.close()


def _free_port(host: str) -> tuple[int, int]:
    """A port that no process uses, and the handle of its lock: another run leaves it alone until the server has bound it."""
    folder = Path(tempfile.gettempdir(), f"assay-ports-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    ports = list(range(FIRST_PORT, LAST_PORT + 1))
    random.Random(os.urandom(8)).shuffle(ports)
    for port in ports:
        handle = os.open(folder / str(port), os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_taken(host, port):
                return port, handle
        os.close(handle)
    raise OSError(f"every port between {FIRST_PORT} and {LAST_PORT} is in use")


def _is_taken(host: str, port: int) -> bool:
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
    except OSError as error:  # a host that is not an address of this machine is for the server to refuse
        return error.errno == errno.EADDRINUSE
    return False


def _exit_text(code: int) -> str:
    """How a process ended, by the exit code of its guardian."""
    if code > 128 or code < 0:
        number = code - 128 if code > 128 else -code
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        more = ", perhaps for lack of memory" if number == signal.SIGKILL else ""
        return f"by signal {name}{more}"
    return f"with exit code {code}"
