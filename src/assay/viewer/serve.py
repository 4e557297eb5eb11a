"""The server of the pages: uvicorn on a socket that is open already."""

import socket

import uvicorn

from assay.viewer.guard import Guard


def serve(app: Guard, listening: socket.socket) -> None:
    """Serve pages until interrupted."""
    quiet = {"log_level": "warning", "access_log": False, "server_header": False, "date_header": False}
    uvicorn.Server(uvicorn.Config(app, lifespan="on", **quiet)).run(sockets=[listening])  # type: ignore[arg-type]
