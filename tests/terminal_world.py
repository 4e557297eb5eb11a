"""A terminal to run commands in: a real pty of a chosen width, in this process."""

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
import threading
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from unicodedata import combining, east_asian_width

from assay.cli import main

STYLE = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(arguments: Sequence[object], columns: int = 80) -> tuple[int, str]:
    """The exit code of a command and what a terminal of that width gets of its standard output."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    parts: list[bytes] = []

    def read() -> None:
        while True:
            try:
                part = os.read(mine, 65536)
            except OSError:  # the other end is closed
                return
            parts.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    screen = io.TextIOWrapper(io.FileIO(theirs, "w"), encoding="utf-8", write_through=True)
    with screen, redirect_stdout(screen), redirect_stderr(io.StringIO()) as said:
        code = main([str(each) for each in arguments])
    reader.join(60)  # it ends with the terminal: at once, but for a busy machine
    assert not reader.is_alive()
    os.close(mine)
    text = b"".join(parts).decode().replace("\r\n", "\n")
    assert code in (0, 1) or text, said.getvalue()
    sys.stdout.flush()
    return code, text


def cells(line: str) -> int:
    """The width of a line by Unicode's own table: wide characters take two cells, combining ones none."""
    plain = STYLE.sub("", line)
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in plain)


def widest(text: str) -> int:
    return max(map(cells, text.splitlines()), default=0)
