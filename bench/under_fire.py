"""Servers with faults: every kind of `bench.faults` in every way to ask, and servers that answer without end.

usage: python -m bench.under_fire [faults | WAY | CASE ...] (default: everything)

Faults: no document may be scored by another's answer, every run must end, and none may crash. Answers without end: peak memory and
time of a run against each, in a separate process. 32 documents, 32 requests at once, 32 tokens asked for; every one of them must
fail, and the run must end by itself.
"""

import asyncio
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.environments import ROOT
from bench.fault_runs import DOCUMENTS as FAULTY
from bench.fault_runs import Outcome
from bench.faults import KINDS, WAYS, Kind
from bench.measure import Said

DOCUMENTS = 32
MOST_MB, MOST_SECONDS = 300, 60
CASES = {
    "bomb": "a gzip of 3 MB that unpacks to 3 GB",
    "endless": "a stream that does not end",
    "huge": "an answer of 100 MB",
    "chunked": "an answer of 100 MB without a length",
    "nested": "an answer of 60 MB of empty lists",
    "long": "an answer of 60 MB of text",
    "empty": "a stream of events without text that does not end",
    "line": "a stream of one line that does not end",
    "error": "an error of 100 MB",
}
STREAMED = ("endless", "empty", "line")


FAULT_SECONDS = 90
"""A run against a kind of fault that takes longer counts as endless."""


def rows() -> Iterator[Said]:
    yield faults(WAYS)
    for case, words in CASES.items():
        yield attacked(case, words)


def faults(ways: Iterable[str]) -> Said:
    """The runs against every kind of fault, in ways to ask; whatever is wrong is printed to stderr."""
    counts = dict.fromkeys(("wrong scores", "endless", "crashes", "not as expected"), 0)
    runs = 0
    for way in ways:
        for kind, outcome in _fault_runs(way):
            runs += 1
            bad = outcome if isinstance(outcome, str) else _fault_of(KINDS[kind], outcome)
            if bad:
                counts[bad] += len(outcome.wrong) if bad == "wrong scores" and not isinstance(outcome, str) else 1
                print(f"{way}, {kind}: {bad}: {outcome}", file=sys.stderr, flush=True)
    text = ", ".join(f"{count} {what}" for what, count in counts.items())
    return Said(f"{len(KINDS)} kinds of faults, {runs} runs of {FAULTY} documents", text, "0, 0, 0, 0")


def _fault_of(kind: Kind, outcome: Outcome) -> str:
    """What is wrong about an outcome; empty if nothing is."""
    if outcome.wrong and not outcome.noticed:
        return "wrong scores"
    missing = {"right": outcome.right < FAULTY, "failed": bool(outcome.right), "either": False}
    return "not as expected" if missing[kind.expected] else ""


def _fault_runs(way: str) -> Iterator[tuple[str, Outcome | str]]:
    """Run the kinds in a process; one that hangs or crashes is noted, and another process goes on behind it."""
    left = list(KINDS)
    while left:
        command = [sys.executable, "-m", "bench.fault_runs", way, *left]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT)
        assert process.stdout is not None
        ended = "crashes"
        while left:
            if not select.select([process.stdout], [], [], FAULT_SECONDS)[0]:
                ended = "endless"
                break
            if not (line := process.stdout.readline()):
                break
            kind, *outcome = json.loads(line)
            left.remove(kind)
            yield kind, Outcome(*outcome)
        process.kill()
        process.wait()
        if left:
            yield left.pop(0), ended


def attacked(case: str, words: str) -> Said:
    """Run against a server that does this at every document; the probe before the run is answered well."""
    with tempfile.TemporaryDirectory() as folder:
        _write_task(Path(folder))
        server = subprocess.Popen(
            [sys.executable, "-m", "bench.under_fire", "serve", case],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        )
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
            arguments = f"model=m,base_url={url},max_retries=1" + (",stream=true" if case in STREAMED else "")
            command = [
                sys.executable, "-m", "assay", "run", "--tasks", "t", "--include_path", folder, "--no_defaults", "--model",
                "openai", "--model_args", arguments, "-o", f"{folder}/run",
            ]  # fmt: skip
            began = time.monotonic()
            run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
            _, status, used = os.wait4(run.pid, 0)
            run.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.monotonic() - began
        finally:
            server.kill()
            server.wait()
        results = json.loads(Path(folder, "run/results.json").read_text())["tasks"]["t"]
    text = (
        f"{used.ru_maxrss / 1024:.0f} MB, {seconds:.1f} s, {results['failed']} of {DOCUMENTS} failed, exit"
        f" {run.returncode}: {next(iter(results['reasons']))}"
    )
    return Said(f"{words}, × {DOCUMENTS}", text, f"≤ {MOST_MB} MB, all failed")


def _write_task(folder: Path) -> None:
    documents = [{"q": f"attack {number}", "gold": "x"} for number in range(DOCUMENTS)]
    (folder / "t.jsonl").write_text("".join(json.dumps(each) + "\n" for each in documents))
    (folder / "t.yaml").write_text(
        "task: t\ndataset_path: json\ntest_split: test\noutput_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
        f"dataset_kwargs: {{data_files: {{test: {folder}/t.jsonl}}}}\ngeneration_kwargs: {{until: [], max_gen_toks: 32}}\n"
    )


# the server


def serve(case: str) -> None:
    from aiohttp import web

    async def answer(request: web.Request) -> web.StreamResponse:
        if b"attack" not in await request.read():
            return web.json_response({"choices": [{"text": "x", "finish_reason": "stop"}]})
        return await ATTACKS[case](request)

    async def start() -> None:
        app = web.Application(client_max_size=1 << 26)
        app.add_routes([web.post("/v1/completions", answer)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.sleep(3600)

    asyncio.run(start())


async def _send(request: Any, pieces: Iterator[bytes], headers: dict[str, str], status: int = 200) -> Any:
    from aiohttp import web

    response = web.StreamResponse(status=status, headers=headers)
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece)
    return response


def _gzipped() -> bytes:
    """3 GB of a JSON text, compressed."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = b"x" * 10**7
    packed = [packer.compress(b'{"choices": [{"text": "'), *(packer.compress(block) for _ in range(300))]
    return b"".join([*packed, packer.compress(b'"}]}'), packer.flush()])


def _whole(size: int, unit: bytes, before: bytes, after: bytes) -> Iterator[bytes]:
    block = unit * (10**6 // len(unit))
    yield before
    yield from (block for _ in range(size // len(block)))
    yield after


def _for_ever(piece: bytes) -> Iterator[bytes]:
    while True:
        yield piece


EVENT = b'data: {"choices": [{"index": 0, "text": "word "}]}\n\n'
TEXT = (b'{"choices": [{"finish_reason": "stop", "text": "', b'"}]}')
STREAM = {"Content-Type": "text/event-stream"}
PACKED: list[bytes] = []


async def _bomb(request: Any) -> Any:
    PACKED[:] = PACKED or [_gzipped()]
    headers = {"Content-Encoding": "gzip", "Content-Length": str(len(PACKED[0]))}
    return await _send(request, (PACKED[0][at : at + 2**16] for at in range(0, len(PACKED[0]), 2**16)), headers)


ATTACKS: dict[str, Any] = {
    "bomb": _bomb,
    "endless": lambda request: _send(request, _for_ever(EVENT * 100), STREAM),
    "empty": lambda request: _send(request, _for_ever(b'data: {"choices": []}\n\n' * 100), STREAM),
    "line": lambda request: _send(request, _for_ever(b"data: " + b"x" * 2**16), STREAM),
    "huge": lambda request: _send(request, _whole(10**8, b"word ", *TEXT), {"Content-Length": str(10**8 + 52)}),
    "chunked": lambda request: _send(request, _whole(10**8, b"word ", *TEXT), {}),
    "nested": lambda request: _send(request, _whole(6 * 10**7, b"[],", b'{"choices": [', b"[]]}"), {}),
    "long": lambda request: _send(request, _whole(6 * 10**7, b"word ", *TEXT), {}),
    "error": lambda request: _send(request, _whole(10**8, b"word ", *TEXT), {}, status=400),
}


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
        return
    chosen = sys.argv[1:]
    ways = [way for way in WAYS if not chosen or way in chosen or "faults" in chosen]
    if ways:
        print(faults(ways), flush=True)
    for case in CASES:
        if not chosen or case in chosen:
            print(attacked(case, CASES[case]), flush=True)


if __name__ == "__main__":
    main()
