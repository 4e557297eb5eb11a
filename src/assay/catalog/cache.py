"""The index of a root on disk, so that it is built once. Whatever is wrong with it, it is only built again."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assay.catalog.entries import Entry
from assay.catalog.roots import Root
from assay.catalog.scan import Stamp
from assay.catalog.store import keep, recall, stamp_of
from assay.config.source import DIGEST_LENGTH, digest


@dataclass(frozen=True)
class Snapshot:
    """The index of one root as it was: the files below it and those elsewhere, with stamps; and what each holds.

    `digests` are those of all these files in this order, joined. `made_from` says for each entry the numbers of the
    files it was made from: as it lies on disk, because a listing never asks.
    """

    below: Mapping[str, Stamp]
    elsewhere: Mapping[str, Stamp]
    entries: Sequence[Entry]
    digests: str
    made_from: bytes

    @cached_property
    def paths(self) -> list[str]:
        return [*self.below, *self.elsewhere]

    @cached_property
    def number(self) -> dict[str, int]:
        return {path: number for number, path in enumerate(self.paths)}

    def digest_of(self, path: str) -> str | None:
        """The digest a file had when it was read; None of a file that was not."""
        start = self.number.get(path, -1) * DIGEST_LENGTH
        return self.digests[start : start + DIGEST_LENGTH].strip() if start >= 0 else None

    def sources(self) -> Iterator[dict[str, str]]:
        """For each entry, the files it was made from, itself first, with their digests."""
        for numbers in json.loads(self.made_from):
            yield {path: self.digest_of(path) or "" for path in map(self.paths.__getitem__, numbers)}

    @classmethod
    def of(
        cls, below: Mapping[str, Stamp], elsewhere: Mapping[str, Stamp], made: Sequence[tuple[Entry, Mapping[str, str]]]
    ) -> "Snapshot":
        """A snapshot of entries, each given with the files it was made from."""
        number = {path: index for index, path in enumerate([*below, *elsewhere])}
        digests = {path: digest for _, files in made for path, digest in files.items()}
        joined = "".join(digests.get(path, "").ljust(DIGEST_LENGTH) for path in number)
        made_from = json.dumps([[number[path] for path in files] for _, files in made], separators=(",", ":"))
        return cls(below, elsewhere, tuple(entry for entry, _ in made), joined, made_from.encode())


def load(root: Root) -> Snapshot | None:
    """The snapshot of a root, or None where there is none that can be trusted."""
    body = recall(_name(root), _rules())
    if body is None:
        return None
    front, digests, made_from = body.split(b"\n")
    return _unpack(json.loads(front), digests.decode(), made_from, root)


def save(root: Root, snapshot: Snapshot) -> None:
    front = json.dumps(_pack(snapshot, root), separators=(",", ":")).encode()
    keep(_name(root), _rules(), b"\n".join([front, snapshot.digests.encode(), snapshot.made_from]))


def _name(root: Root) -> str:
    return digest(json.dumps([root.path, root.lenient, root.deep]).encode()) + ".json"


def _rules() -> str:
    """Changes whenever the code that makes or judges entries changes, so that no index outlives its rules."""
    here = os.path.dirname(__file__)  # noqa: PTH120  # on the way of every command
    return stamp_of(*sorted(entry.path for folder in (here, f"{here}/../config") for entry in os.scandir(folder)))


def _pack(snapshot: Snapshot, root: Root) -> list[object]:
    """Columns, not rows, and paths without what they share: read back without a line of Python for each file."""
    kinds, names, paths, *rest = zip(*snapshot.entries, strict=True) if snapshot.entries else [()] * len(Entry._fields)
    number = {path: index for index, path in enumerate(snapshot.below)}
    below = [[path[len(root.path) + 1 :] for path in snapshot.below], *_columns(snapshot.below)]
    elsewhere = [list(snapshot.elsewhere), *_columns(snapshot.elsewhere)]
    return [below, elsewhere, [kinds, names, [number[path] for path in paths], *rest]]


def _unpack(front: list[Any], digests: str, made_from: bytes, root: Root) -> Snapshot:
    (inner, *below), (outer, *elsewhere), (kinds, names, at, tags, members, *rest) = front
    paths = list(map(f"{root.path}/".__add__, inner))
    columns = (kinds, names, map(paths.__getitem__, at), map(tuple, tags), map(tuple, members), *rest)
    return Snapshot(
        below=dict(zip(paths, zip(*below, strict=True), strict=True)),
        elsewhere=dict(zip(outer, zip(*elsewhere, strict=True), strict=True)),
        entries=tuple(map(Entry._make, zip(*columns, strict=True))),
        digests=digests,
        made_from=made_from,
    )


def _columns(stamps: Mapping[str, Stamp]) -> list[list[int]]:
    return [[size for size, _ in stamps.values()], [time for _, time in stamps.values()]]
