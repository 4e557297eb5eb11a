"""`assay view`: look at runs in a browser. The server only reads, and only this machine can reach it."""

import argparse
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

from assay.cli.output import say, tell
from assay.errors import ConfigError, Place, Problem, installing
from assay.runs.folder import no_run

PORT = 8777


def define(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "folder",
        nargs="?",
        default=".",
        metavar="DIR",
        help="a folder with runs somewhere in it, or a run; else this one",
    )
    add("--port", type=int, default=PORT, help=f"where the server listens ({PORT}); 0 for any that is free")
    add("--host", default="127.0.0.1", help="the address it listens at (127.0.0.1)")
    add(
        "--allow_remote",
        action="store_true",
        help="let other machines in, at a --host that they reach: whoever does sees everything below DIR, without a password",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    folder = Path(options.folder)
    _check(folder, options.host, options.allow_remote)
    from assay.viewer.app import make_app, serve

    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.socket(family) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((options.host, options.port))
        except OSError as error:
            what = f"the server cannot listen at {options.host}, port {options.port}: {error.strerror}"
            raise ConfigError(
                [Problem(Place("--port"), what, "choose another one, or 0 for any that is free")]
            ) from None
        host = f"[{options.host}]" if family == socket.AF_INET6 else options.host
        app = make_app(folder, options.host)
        listening.listen(128)  # who opens the address at once waits, and is not turned away
        say(f"http://{host}:{listening.getsockname()[1]}/")
        sys.stdout.flush()
        tell("Ctrl-C ends it")
        serve(app, listening)
    return 0


def _check(folder: Path, host: str, allow_remote: bool) -> None:
    if folder.is_file():
        raise ConfigError([no_run(folder)])
    if not folder.is_dir():
        raise ConfigError([Problem(Place(str(folder)), "there is no such folder", "name one that has runs in it")])
    missing = [library for library in ("starlette", "uvicorn", "duckdb") if find_spec(library) is None]
    if missing:
        what = f"the viewer needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
        raise ConfigError([Problem(Place("assay view"), what, installing("view"))])
    from assay.viewer.guard import is_loopback

    if not is_loopback(host) and not allow_remote:
        what = f"at {host} other machines could read everything below {folder}"
        raise ConfigError([Problem(Place("--host"), what, "leave it out; or say --allow_remote, if that is meant")])
