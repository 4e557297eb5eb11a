"""Memory, descriptors and speed of a long run: so many requests, so many at once, against servers in other processes.

usage: python -m bench.soak [--requests N] [--concurrency N] [--servers N] [--latency MS] [--most SECONDS]

Prints resident memory and open descriptors at every tenth of the requests, and the slope from 10 % to 100 % in bytes a
request. The step's figure is `python -m bench.soak --requests 1000000 --concurrency 1000`.
"""

import argparse
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import NamedTuple

from bench.environments import ROOT
from bench.measure import Said

FORKED = get_context("fork")
MOST_BYTES = 60
ANSWER = json.dumps({
    "object": "text_completion", "model": "m", "choices": [{"index": 0, "text": "text 12\n#### 42", "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
}).encode()  # fmt: skip
REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Point(NamedTuple):
    """The run at one moment."""

    requests: int
    memory: int
    descriptors: int
    seconds: float


def rows() -> Iterator[Said]:
    yield soaked(100_000, 1000)


def soaked(requests: int, concurrency: int, *, servers: int = 1, latency: float = 20.0, most: float = 7200.0) -> Said:
    """Run a task of so many documents, each asked once."""
    listening = [socket.create_server(("127.0.0.1", 0), backlog=4096) for _ in range(servers)]
    counters = [FORKED.Value("Q", 0) for _ in listening]
    stubs = [
        FORKED.Process(target=serve, args=(*each, latency), daemon=True)
        for each in zip(listening, counters, strict=True)
    ]
    with tempfile.TemporaryDirectory(dir=os.environ.get("SOAK_FOLDER")) as folder:
        write_task(Path(folder), requests)
        for stub in stubs:
            stub.start()
        urls = [f"http://127.0.0.1:{each.getsockname()[1]}/v1" for each in listening]
        arguments = json.dumps({"model": "m", "base_url": urls, "num_concurrent": concurrency})
        command = [
            sys.executable, "-m", "assay", "run", "--tasks", "t", "--include_path", folder, "--no_defaults", "--model",
            "openai", "--model_args", arguments, "-o", f"{folder}/run",
        ]  # fmt: skip
        with Path(folder, "log").open("wb") as log:
            run = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
            points = watch(run, counters, requests, most)
        for stub in stubs:
            stub.terminate()
        if run.returncode:
            print(Path(folder, "log").read_text()[-2000:], file=sys.stderr)
    for point in points:
        print(
            f"{point.requests:>9,} requests {point.memory / 1e6:7.1f} MB {point.descriptors:>5} descriptors {point.seconds:7.1f} s"
        )
    first, last = points[0], points[-1]
    slope = (last.memory - first.memory) / max(1, last.requests - first.requests)
    text = (
        f"{slope:.0f} bytes a request ({first.memory / 1e6:.0f} → {last.memory / 1e6:.0f} MB), at most"
        f" {max(point.descriptors for point in points)} descriptors, {last.requests / last.seconds:,.0f} requests/s,"
        f" exit {run.returncode}"
    )
    return Said(f"soak: {requests:,} requests, concurrency {concurrency:,}", text, f"≤ {MOST_BYTES} bytes a request")


def watch(
    run: "subprocess.Popen[bytes]", counters: "list[Synchronized[int]]", requests: int, most: float
) -> list[Point]:
    """The run at every tenth of its requests."""
    began, points = time.monotonic(), list[Point]()
    while run.poll() is None and time.monotonic() - began < most:
        done = sum(counter.value for counter in counters)
        if done >= requests * (len(points) + 1) // 10 and len(points) < 10:
            points.append(Point(done, memory_of(run.pid), descriptors_of(run.pid), time.monotonic() - began))
        time.sleep(0.05)
    run.kill()
    run.wait()
    return points


def memory_of(pid: int) -> int:
    """Bytes that the process holds, in memory or swapped out: pages of files come and go with what others need."""
    status = Path(f"/proc/{pid}/status").read_text()
    return sum(int(kilobytes) for kilobytes in re.findall(r"(?:RssAnon|VmSwap):\s*(\d+)", status)) * 1024


def descriptors_of(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def write_task(folder: Path, documents: int) -> None:
    with (folder / "t.jsonl").open("w") as file:
        for number in range(documents):
            file.write(
                f'{{"q": "Question {number}: how much is {number % 97} and {number % 89}?", "gold": "{number % 50}"}}\n'
            )
    (folder / "t.yaml").write_text(
        "task: t\ndataset_path: json\ntest_split: test\noutput_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
        f"dataset_kwargs: {{data_files: {{test: {folder}/t.jsonl}}}}\ngeneration_kwargs: {{until: [], max_gen_toks: 32}}\n"
        "filter_list: [{name: strict, filter: [{function: regex, regex_pattern: '#### (\\d+)'}, {function: take_first}]}]\n"
    )


# the server


class Answering(asyncio.Protocol):
    """Answers every request alike after a while, with as little work as can be."""

    counter: "Synchronized[int]"
    latency: float

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.waiting = transport, b""

    def data_received(self, data: bytes) -> None:
        self.waiting += data
        head, end, body = self.waiting.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        size = int(length[1]) if length else 0
        if end and len(body) >= size:
            self.waiting = body[size:]
            asyncio.get_running_loop().call_later(self.latency / 1000, self.answer)

    def answer(self) -> None:
        self.counter.value += 1
        if not self.transport.is_closing():
            self.transport.write(REPLY)  # type: ignore[attr-defined]  # of TCP


def serve(listening: socket.socket, counter: "Synchronized[int]", latency: float) -> None:
    Answering.counter, Answering.latency = counter, latency

    async def forever() -> None:
        server = await asyncio.get_running_loop().create_server(Answering, sock=listening)
        await server.serve_forever()

    asyncio.run(forever())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=1000)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--latency", type=float, default=20.0)
    parser.add_argument("--most", type=float, default=7200.0)
    options = parser.parse_args()
    print(
        soaked(
            options.requests, options.concurrency, servers=options.servers, latency=options.latency, most=options.most
        )
    )


if __name__ == "__main__":
    main()
