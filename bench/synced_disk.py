"""A disk as fsync guarantees it, and the system calls of a log of strace that change it; for `bench.power_cut`."""

import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.environments import ROOT

CALLS = (
    "openat,creat,write,pwrite64,writev,pwritev,pwritev2,lseek,ftruncate,truncate,fallocate,rename,renameat,renameat2,unlink,"
    "unlinkat,rmdir,mkdir,mkdirat,fsync,fdatasync,sendfile,copy_file_range,link,linkat,symlink,symlinkat"
)
UNMODELLED = frozenset(
    ("creat", "writev", "pwritev", "pwritev2", "truncate", "fallocate", "sendfile", "copy_file_range", "link", "linkat")
)


# ---- the disk


@dataclass
class File:
    """A file: its content now, and as its last fsync left it."""

    now: bytes = b""
    synced: bytes = b""


Change = Mapping[str, "File | Folder | None"]
"""Names of a folder that change at once, with what they name from then on."""


@dataclass
class Folder:
    """A folder: its names now, as the last fsync left them, and the changes since."""

    now: dict[str, "File | Folder"] = field(default_factory=dict)
    synced: dict[str, "File | Folder"] = field(default_factory=dict)
    since: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        self.since.append(change)
        _apply(self.now, change)


def _apply(names: dict[str, File | Folder], change: Change) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def durable(path: Path) -> Folder:
    """A folder as it is on this disk, all of it synced."""
    folder = Folder()
    for each in path.iterdir():
        content = each.read_bytes() if each.is_file() else b""
        folder.now[each.name] = durable(each) if each.is_dir() else File(content, content)
    folder.synced = dict(folder.now)
    return folder


Names = Callable[[Folder], dict[str, File | Folder]]
Data = Callable[[File], bytes]


def rebuild(folder: Folder, path: Path, names: Names, data: Data) -> None:
    """Write a folder as it is after the cut."""
    path.mkdir(parents=True, exist_ok=True)
    for name, node in names(folder).items():
        if isinstance(node, Folder):
            rebuild(node, path / name, names, data)
        else:
            (path / name).write_bytes(data(node))


def zeros(file: File) -> bytes:
    """The length has reached the disk, what was written has not."""
    return file.synced + bytes(max(len(file.now) - len(file.synced), 0))


def torn(file: File) -> bytes:
    """Half of what was written has reached the disk."""
    return file.now[: (len(file.synced) + len(file.now)) // 2]


def by_lot(draw: random.Random) -> tuple[Names, Data]:
    def names(folder: Folder) -> dict[str, File | Folder]:
        entry = dict(folder.synced)
        for change in folder.since:
            if draw.random() < 0.5:
                _apply(entry, change)
        return entry

    def data(file: File) -> bytes:
        return draw.choice([file.synced, zeros(file), torn(file), file.now])

    return names, data


def ways(draw: random.Random, number: int) -> dict[str, tuple[Names, Data]]:
    fixed: list[tuple[str, tuple[Names, Data]]] = [
        ("nothing since", (lambda folder: folder.synced, lambda file: file.synced)),
        ("names alone", (lambda folder: folder.now, lambda file: file.synced)),
        ("names and zeros", (lambda folder: folder.now, zeros)),
    ]
    return dict([fixed[number % len(fixed)], ("by lot", by_lot(draw))])


# ---- the log

LINE = re.compile(r"(\d+) +([\d.]+) (.*)")
STARTED = re.compile(r"(\w+)\((.*)")
RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")
TEXT = re.compile(r'(?:"((?:\\x[0-9a-f]{2})*)"|(\w+)<((?:\\x[0-9a-f]{2})*)>)')


@dataclass(frozen=True)
class Call:
    """A system call at its start or at its end; `result` is empty at the start of one that ends later."""

    time: float
    thread: str
    name: str
    arguments: str
    result: str


def calls(log: Path) -> Iterator[Call]:
    """The calls of a log of strace; one that another thread interrupts comes twice, as it starts and as it ends."""
    open_calls: dict[str, tuple[str, str]] = {}
    for line in log.read_text().splitlines():
        match = LINE.match(line)
        if match is None:
            raise ValueError(f"strace wrote {line[:80]}")
        if match[3][:3] in ("+++", "---"):
            continue
        thread, moment, text = match[1], float(match[2]), match[3]
        if resumed := RESUMED.match(text):
            name, before = open_calls.pop(thread)
            text = before + resumed[1]
        elif started := STARTED.match(text):
            name, text = started[1], started[2]
        else:
            raise ValueError(f"strace wrote {text[:80]}")
        if text.endswith("<unfinished ...>"):
            text = text.removesuffix("<unfinished ...>")
            open_calls[thread] = (name, text)
            yield Call(moment, thread, name, text, "")
            continue
        arguments, _, result = text.rpartition(" = ")
        yield Call(moment, thread, name, arguments, result)


def texts(written: str) -> list[bytes]:
    """The paths, contents and files of the arguments, in their order."""
    return [_bytes(match[1] or match[3] or "") for match in TEXT.finditer(written)]


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


class Replay:
    """The disk below one folder, as the calls of a log change it."""

    def __init__(self, path: Path, disk: Folder) -> None:
        self._path, self.disk = path, disk
        self._at: dict[tuple[str, str], int] = {}
        self._syncing: dict[str, tuple[File | Folder, Any, int]] = {}

    def play(self, call: Call) -> bool:
        """Whether a call changed anything, or guaranteed it."""
        if call.name in ("fsync", "fdatasync"):
            return self._sync(call)
        if not call.result or call.result.startswith("-1 "):
            return False
        if call.name in UNMODELLED and any(self._inside(text) for text in texts(call.arguments)):
            raise ValueError(f"{call.name} is not in the model")
        play = getattr(self, f"_{call.name.replace('at2', '').removesuffix('at').replace('64', '')}", None)
        return bool(play is not None and play(call))

    def _inside(self, path: bytes) -> str | None:
        """A path below the folder, from there; None for others."""
        full = str(ROOT / path.decode("utf-8", "replace"))
        return os.path.relpath(full, self._path) if full.startswith(f"{self._path}/") else None

    def _place(self, inside: str) -> tuple[Folder, str]:
        *above, name = inside.split("/")
        folder = self.disk
        for each in above:
            entry = folder.now[each]
            assert isinstance(entry, Folder)
            folder = entry
        return folder, name

    def _paths(self, call: Call) -> list[str]:
        entry = [self._inside(text) for text in texts(call.arguments)]
        return [path for path in entry if path is not None]

    def _file(self, call: Call) -> tuple[str, File] | None:
        [path, *_] = self._paths(call) or [""]
        if not path or not TEXT.match(call.arguments):
            return None
        folder, name = self._place(path)
        node = folder.now.get(name)
        return (path, node) if isinstance(node, File) else None

    def _open(self, call: Call) -> bool:
        paths = self._paths(call)
        if not paths:
            return False
        folder, name = self._place(paths[-1])
        known = folder.now.get(name)
        if isinstance(known, Folder) or "O_DIRECTORY" in call.arguments:
            return False
        changed = known is None
        file = known if known is not None else File()
        if changed:
            folder.change({name: file})
        if "O_TRUNC" in call.arguments and file.now:
            file.now, changed = b"", True
        self._at[(call.result.partition("<")[0], paths[-1])] = len(file.now) if "O_APPEND" in call.arguments else 0
        return changed

    def _lseek(self, call: Call) -> bool:
        if (entry := self._file(call)) is not None:
            self._at[(call.arguments.partition("<")[0], entry[0])] = int(call.result)
        return False

    def _write(self, call: Call) -> bool:
        entry = self._file(call)
        if entry is None:
            return False
        key = (call.arguments.partition("<")[0], entry[0])
        size = int(call.result)
        self._put(entry[1], self._at.get(key, 0), texts(call.arguments)[1][:size])
        self._at[key] = self._at.get(key, 0) + size
        return True

    def _pwrite(self, call: Call) -> bool:
        entry = self._file(call)
        if entry is None:
            return False
        offset = int(call.arguments.rstrip(")").rpartition(", ")[2])
        self._put(entry[1], offset, texts(call.arguments)[1][: int(call.result)])
        return True

    @staticmethod
    def _put(file: File, at: int, data: bytes) -> None:
        before = file.now.ljust(at, b"\0")
        file.now = before[:at] + data + before[at + len(data) :]

    def _ftruncate(self, call: Call) -> bool:
        entry = self._file(call)
        if entry is not None:
            size = int(call.arguments.rstrip(")").rpartition(", ")[2])
            entry[1].now = entry[1].now[:size].ljust(size, b"\0")
        return entry is not None

    def _mkdir(self, call: Call) -> bool:
        paths = self._paths(call)
        if paths:
            folder, name = self._place(paths[-1])
            folder.change({name: Folder()})
        return bool(paths)

    def _unlink(self, call: Call) -> bool:
        paths = self._paths(call)
        if paths:
            folder, name = self._place(paths[-1])
            folder.change({name: None})
        return bool(paths)

    _rmdir = _unlink

    def _rename(self, call: Call) -> bool:
        paths = self._paths(call)
        if paths:
            (source, old), (target, new) = map(self._place, paths[-2:])
            assert source is target, "within one folder"
            source.change({old: None, new: source.now[old]})
        return bool(paths)

    def _sync(self, call: Call) -> bool:
        """What is there as the call starts is guaranteed when it has ended."""
        if call.thread not in self._syncing:
            [path, *_] = texts(call.arguments) or [b""]
            inside = "" if path.decode("utf-8", "replace") == str(self._path) else self._inside(path)
            if inside is None:
                return False
            folder, name = self._place(inside) if inside else (self.disk, "")
            node = folder.now.get(name) if inside else self.disk
            if node is None:  # removed meanwhile
                return False
            state = (dict(node.now), len(node.since)) if isinstance(node, Folder) else (node.now, 0)
            self._syncing[call.thread] = (node, *state)
        if not call.result:
            return False
        node, now, count = self._syncing.pop(call.thread)
        node.synced = now
        if isinstance(node, Folder):
            del node.since[:count]
        return True
