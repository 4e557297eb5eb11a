"""The server of the pages: uvicorn on a socket that is open already."""

import socket
from pathlib import Path

from assay.viewer.app import make_app


def serve(folder: Path, host: str, listening: socket.socket) -> None:
    """Serve the runs below a folder until interrupted."""
    import uvicorn

    config = uvicorn.Config(
        make_app(folder, host),
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="off",
    )
    uvicorn.Server(config).run(sockets=[listening])
