"""Offsets of journal lines by their keys, with little memory."""

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence

RECENT, SHARE = 32_768, 64
"""Entries that are held in a dict, at ten times the memory, before they are sorted in among the others: so many, or this
share of all, so that sorting in takes little time however many there are."""


_BUCKETS = 1 << 16


class KeyIndex:
    """Offsets of lines by the first eight bytes of their keys, which are hashes of 16 bytes.

    Two keys may share them (two of a million keys do with a probability of 3e-8), so the reader of a line compares the
    whole key. The later offset of a key counts.
    """

    def __init__(self) -> None:
        self._recent: dict[bytes, int] = {}
        self._keys, self._offsets = memoryview(array("Q")), memoryview(array("Q"))  # sorted by key
        self._starts = array("I")  # where the keys with each first two bytes begin; empty without keys

    def get(self, key: bytes) -> int | None:
        """The offset of a key."""
        recent = self._recent.get(key)
        if recent is not None or not self._starts:
            return recent
        bucket = key[0] << 8 | key[1]
        start, end = self._starts[bucket], self._starts[bucket + 1]
        if start == end:
            return None
        number = int.from_bytes(key[:8])
        at = bisect_left(self._keys, number, start, end)
        return self._offsets[at] if at < end and self._keys[at] == number else None

    def among(self, keys: Sequence[bytes]) -> list[bytes]:
        """Those of some keys that have an offset."""
        if not self._starts and self._recent.keys().isdisjoint(keys):  # as nearly always
            return []
        return [key for key in keys if key and self.get(key) is not None]

    def put(self, key: bytes, offset: int) -> None:
        self.put_all({key: offset})

    def put_all(self, offsets: Mapping[bytes, int]) -> None:
        self._recent.update(offsets)
        if len(self._recent) >= RECENT and len(self._recent) * SHARE >= len(self._keys):
            self._sort_in()

    def offsets(self) -> "array[int]":
        """The offsets of all keys, as they are now."""
        self._sort_in()
        return array("Q", self._offsets.tobytes())

    def __len__(self) -> int:
        self._sort_in()
        return len(self._keys)

    def _sort_in(self) -> None:
        if not self._recent:
            return
        import numpy as np

        keys, offsets = np.frombuffer(self._keys, np.uint64), np.frombuffer(self._offsets, np.uint64)
        recent = np.frombuffer(b"".join([key[:8] for key in self._recent]), ">u8").astype(np.uint64)
        recent, first = np.unique(recent, return_index=True)
        places = np.fromiter(self._recent.values(), np.uint64, len(self._recent))[first]
        at = np.searchsorted(keys, recent)
        if len(keys):
            known = keys[np.minimum(at, len(keys) - 1)] == recent
            offsets[at[known]] = places[known]  # the later one counts
            recent, places, at = recent[~known], places[~known], at[~known]
        self._recent = {}
        self._keys = np.insert(keys, at, recent).data
        del keys  # before the next copy is made: what a long run holds at once, the allocator keeps
        self._offsets = np.insert(offsets, at, places).data
        firsts = np.arange(_BUCKETS, dtype=np.uint64) << np.uint64(48)
        starts = np.append(np.searchsorted(np.frombuffer(self._keys, np.uint64), firsts), len(self._keys))
        self._starts = array("I", starts.astype(np.uint32).tobytes())
