"""Runs at URLs, for every command that takes folders of runs: read from a copy, and uploaded after a command that writes."""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from assay.cli.output import echo_err
from assay.runs.storage import is_url, local_folder, refuse_url, uploaded

RUNS = ("runs", "shards", "baseline", "folder", "output", "files")
"""The arguments of commands that are runs, or folders of runs."""
WRITING = {"label": "folder", "merge": "output", "score": "runs"}
"""The argument of a command that it writes into."""


FILES = {"pack": "output_path", "report": "output_path", "label": "output_path", "plot": "output", "compare": "plot",
         "import": "output_path", "score": "output_path", "export": "output_path"}  # fmt: skip
"""The argument of a command that is written on this machine: a URL would become the name of a folder here."""
SERVERS = ("mlflow", "wandb", "trackio")
"""The exports whose output may be the address of a server."""


@contextmanager
def local_copies(options: argparse.Namespace) -> Iterator[None]:
    """Replace URLs of runs by folders of this machine while a command runs."""
    _refuse_url_of_file(options)
    written = None if getattr(options, "output_path", None) else WRITING.get(options.command)
    with ExitStack() as stack:
        for name in RUNS:
            value = getattr(options, name, None)
            paths = [str(path) for path in (value if isinstance(value, list) else [value])]
            if not any(map(is_url, paths)):
                continue
            local = [_local(path, stack if name == written else None) for path in paths]
            setattr(options, name, local if isinstance(value, list) else local[0])
        yield


def _refuse_url_of_file(options: argparse.Namespace) -> None:
    flag = FILES.get(options.command, "")
    path = getattr(options, flag, None)
    if isinstance(path, str) and getattr(options, "to", "") not in SERVERS:
        refuse_url(path, f"--{flag}")


def _local(path: str, stack: ExitStack | None) -> str:
    if not is_url(path):
        return path
    return str(local_folder(path) if stack is None else stack.enter_context(uploaded(path, echo_err)))
