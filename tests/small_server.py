"""A server for tests of managed servers: OpenAI's protocol with the standard library alone, so that it starts at once.

usage: small_server.py PORT [--log FILE] [--key KEY] [--say TEXT] [--die N] [--wait S] [--spawn] [--stubborn] [--taken FILE] [--host H]

--log: a line for each process (`start PID`) and each request (`ask PROMPT`). --die: exit at the Nth request. --wait: seconds
for an answer. --spawn: start a process in another session, as `start PID` too. --stubborn: ignore SIGTERM. --taken: the first
time, another process takes the port before this one can; the file remembers that it happened.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
for name, kind in (
    ("log", str),
    ("key", str),
    ("say", str),
    ("die", int),
    ("wait", float),
    ("taken", str),
    ("host", str),
):
    parser.add_argument(f"--{name}", type=kind)
for name in ("spawn", "stubborn"):
    parser.add_argument(f"--{name}", action="store_true")
options = parser.parse_args(None if __name__ == "__main__" else ["0"])  # it may be imported
lock, count = threading.Lock(), 0


def note(line: str) -> None:
    if options.log:
        with lock, open(options.log, "a") as file:  # noqa: PTH123  # as little as possible is imported
            file.write(f"{line}\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        is_list = self.path == "/v1/models" and self.is_allowed()
        self.reply(200 if is_list else 404, {"data": [{"id": "small"}]} if is_list else {})

    def do_POST(self) -> None:
        global count
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with lock:
            count += 1
        if not self.is_allowed():
            return self.reply(401, {"error": {"message": "no key"}})
        if options.die and count >= options.die:
            os._exit(3)
        time.sleep(options.wait or 0)
        prompt = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
        note(f"ask {prompt}")
        text = options.say or f"you said {prompt}"
        part = {"text": text} if "prompt" in body else {"message": {"role": "assistant", "content": text}}
        return self.reply(200, {"choices": [{"index": 0, "finish_reason": "stop", **part}], "model": "small"})

    def is_allowed(self) -> bool:
        return options.key is None or self.headers.get("Authorization") == f"Bearer {options.key}"

    def reply(self, status: int, content: object) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


if __name__ == "__main__":
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(f"start {os.getpid()}")
    note(f"gpus {os.environ.get('CUDA_VISIBLE_DEVICES', '')}")
    if options.spawn:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        note(f"start {child.pid}")
    if options.taken and not Path(options.taken).exists():
        Path(options.taken).touch()
        thief = socket.create_server(("127.0.0.1", options.port))
    Server((options.host or "127.0.0.1", options.port), Handler).serve_forever()
