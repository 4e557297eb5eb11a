"""Servers that answer without end: peak memory and time of a run against each, in a separate process.

usage: python -m bench.under_fire [CASE ...] (default: all of CASES)

32 documents, 32 requests at once, 32 tokens asked for; every one of them must fail, and the run must end by itself.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.environments import ROOT
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


def rows() -> Iterator[Said]:
    for case, words in CASES.items():
        yield attacked(case, words)


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
        results = json.loads(Path(folder, "run/results.json").read_text())["assay"]["tasks"]["t"]
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
    for case in sys.argv[1:] or CASES:
        print(attacked(case, CASES[case]), flush=True)


if __name__ == "__main__":
    main()
