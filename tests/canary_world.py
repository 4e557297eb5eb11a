"""Secrets that can be found again in whatever form they come out, and every output that assay has."""

import asyncio
import base64
import contextlib
import io
import json
import logging
import sqlite3
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

import assay
from assay.cli import main
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.viewer.app import make_app

CANARY = "kanarie"
"""A part of every secret here. It looks like no known key."""


def canary(way: str) -> str:
    """A separate secret for each way in, with signs that JSON, addresses and base64 write differently."""
    return f"{CANARY}.{way}+Pq8/r~Zt"


FORMS = [
    CANARY.encode(),
    CANARY.encode().hex().encode(),
    *(base64.b64encode(b"?" * shift + CANARY.encode())[4 if shift else 0 : -4] for shift in range(3)),
]
"""Plain, in hexadecimal, and within base64 wherever it may begin; escaping changes none of its letters."""


def leaked(content: bytes | str) -> str | None:
    """The text around the first secret in it."""
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    for form in FORMS:
        at = data.find(form)
        if at >= 0:
            return data[max(at - 60, 0) : at + 40].decode("utf-8", "replace")
    return None


def decoded(path: Path, content: bytes) -> Iterator[bytes]:
    """The bytes of a file, and what is packed in them."""
    yield content
    if path.suffix == ".parquet":
        table = pq.read_table(io.BytesIO(content))
        yield repr((table.to_pylist(), table.schema.metadata)).encode()
    elif path.suffix == ".zst":
        yield pa.CompressedInputStream(io.BytesIO(content), "zstd").read()
    elif path.suffix == ".sqlite":
        with contextlib.closing(sqlite3.connect(path)) as file:
            names = [name for (name,) in file.execute("select name from sqlite_master where type = 'table'")]
            yield repr([file.execute(f"select * from {name}").fetchall() for name in names]).encode()
    elif zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield name.encode()
                yield from decoded(Path(name), archive.read(name))


def leaks_in_files(folder: Path) -> dict[str, str]:
    """The files below a folder that hold a secret, by name or content."""
    leaks = {}
    for path in sorted(folder.rglob("*")):
        contents = [str(path.relative_to(folder)).encode()]
        contents += decoded(path, path.read_bytes()) if path.is_file() else []
        where = next(filter(None, map(leaked, contents)), None)
        if where is not None:
            leaks[str(path.relative_to(folder))] = where
    return leaks


class Said(NamedTuple):
    """How a command ended, what it printed, and what was logged at the level of debugging."""

    code: int
    printed: str
    logged: str


def said_by(*words: object) -> Said:
    said, logged = io.StringIO(), io.StringIO()
    handler, root, before = logging.StreamHandler(logged), logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    argv, sys.argv = sys.argv, ["assay", *map(str, words)]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                code = main(
                    sys.argv[1:]
                )  # without arguments it may end the process, where libraries are still being imported
            except SystemExit as ended:
                code = int(ended.code or 0) if not isinstance(ended.code, str) else 2
    finally:
        sys.argv = argv
        root.removeHandler(handler)
        root.setLevel(before)
    return Said(code, said.getvalue(), logged.getvalue())


AFTER = {
    "samples": ["samples", "RUN", "--full"],
    "report html": ["report", "RUN", "-o", "OUT/report.html"],
    "report md": ["report", "RUN", "-o", "OUT/report.md"],
    "report json": ["report", "RUN", "-o", "OUT/report.json"],
    "report csv": ["report", "RUN", "-o", "OUT/report.csv"],
    "export lm-eval": ["export", "RUN", "--to", "lm-eval", "-o", "OUT/lm-eval"],
    "export inspect": ["export", "RUN", "--to", "inspect", "-o", "OUT/inspect"],
    "export parquet": ["export", "RUN", "--to", "parquet", "-o", "OUT/parquet"],
    "pack": ["pack", "RUN", "-o", "OUT/packed.zip"],
    "pack without golds": ["pack", "RUN", "--no_gold", "-o", "OUT/packed-no_gold.zip"],
    "import packed": ["import", "OUT/packed.zip", "-o", "OUT/unpacked"],
    "import lm-eval": ["import", "OUT/lm-eval", "-o", "OUT/from-lm-eval"],
    "compare": ["compare", "RUN", "OUT/unpacked", "--flips", "3"],
    "compare json": ["compare", "RUN", "OUT/unpacked", "--format", "json"],
    "score": ["score", "RUN", "-o", "OUT/again"],
    "runs ls": ["runs", "list", "--runs_dir", "OUT"],
    "runs show": ["runs", "show", "RUN"],
    "cache ls": ["cache", "ls", "OUT/cache"],
    "plan": ["plan", "--baseline", "RUN", "--mde", "0.1"],
    "table": ["table", "RUN", "--format", "json"],
    "leaderboard": ["leaderboard", "RUN", "OUT/unpacked"],
}
"""Every command that shows or converts a run."""


def after_a_run(built: Path, run: str = "run") -> dict[str, Said]:
    """What each of these commands prints."""

    def filled(words: Sequence[str]) -> list[str]:
        return [word.replace("RUN", str(built / run)).replace("OUT", str(built)) for word in words]

    return {name: said_by(*filled(words)) for name, words in AFTER.items()}


def pages(built: Path, run: str = "run") -> dict[str, str]:
    """The pages of the viewer over a folder of runs, as JSON too, and its downloads."""
    opened = assay.Run.open(built / run)
    addresses = [
        "/",
        "/events",
        f"/run?{urlencode({'run': run})}",
        f"/compare?{urlencode({'run': [run, run]}, doseq=True)}",
    ]
    for task in opened.tasks:
        addresses += [
            f"/task?{urlencode({'run': run, 'task': task})}",
            f"/graph?{urlencode({'run': run, 'task': task})}",
        ]
        addresses += [f"/sample?{urlencode({'run': run, 'task': task, 'doc': doc})}" for doc in range(4)]

    addresses += [address.replace("?", ".json?", 1) for address in addresses if "?" in address] + ["/runs.json"]
    addresses += [
        f"/samples.{kind}?{urlencode({'run': run, 'task': task})}" for task in opened.tasks for kind in ("csv", "jsonl")
    ]

    async def fetch() -> dict[str, str]:
        transport = httpx.ASGITransport(make_app(built), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return {address: (await client.get(address)).text for address in addresses}

    return {**asyncio.run(fetch()), "repr": repr(opened) + repr(lm_eval_layout(opened.results)) + repr(opened.manifest)}


def write_yaml(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, indent=1)  # JSON is YAML
    path.write_text(text.replace('"!function helper.results"', "!function helper.results"), encoding="utf-8")
    return path
