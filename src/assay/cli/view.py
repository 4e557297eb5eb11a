"""`assay view`: browse runs. By default the server is read-only, and only this machine can reach it."""

import argparse
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

from assay.cli.flags import labeller_name
from assay.cli.output import echo, echo_err
from assay.errors import ConfigError, installing
from assay.runs.folder import no_run

PORT = 8777


def run_view(options: argparse.Namespace) -> int:
    folder = Path(options.folder)
    _check(folder, options.host, options.allow_remote)
    labeller = labeller_name(options.labeller) if options.label or options.labeller is not None else ""
    if labeller and not options.label:
        raise ConfigError.at("--labeller", "nothing is labelled without --label", "add --label")
    from assay.viewer.app import make_app, serve

    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.socket(family) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((options.host, options.port))
        except OSError as error:
            what = f"the server cannot listen at {options.host}, port {options.port}: {error.strerror}"
            raise ConfigError.at("--port", what, "choose another one, or 0 for any free one") from None
        host = f"[{options.host}]" if family == socket.AF_INET6 else options.host
        app = make_app(folder, options.host, labeller)
        listening.listen(128)  # a browser that connects early waits instead of being refused
        token = f"?token={app.permit.token}" if app.permit is not None else ""
        echo(f"http://{host}:{listening.getsockname()[1]}/{token}")
        sys.stdout.flush()
        echo_err("press Ctrl-C to stop")
        serve(app, listening)
    return 0


def _check(folder: Path, host: str, allow_remote: bool) -> None:
    if folder.is_file():
        raise ConfigError([no_run(folder)])
    if not folder.is_dir():
        raise ConfigError.at(folder, "no such folder", "name one that contains runs")
    missing = [library for library in ("starlette", "uvicorn", "duckdb") if find_spec(library) is None]
    if missing:
        what = f"the viewer needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
        raise ConfigError.at("assay view", what, installing("view"))
    from assay.viewer.guard import is_loopback

    if not is_loopback(host) and not allow_remote:
        what = f"with --host {host} other machines can read everything below {folder}"
        raise ConfigError.at("--host", what, "omit it, or add --allow_remote")
