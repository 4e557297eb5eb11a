"""Offsets by key, in 16 bytes each: a run may have millions of responses."""

from array import array
from bisect import bisect_left

RECENT = 32_768
"""Entries that are held in a dict, at eight times the memory, before they are sorted in among the others."""
_BUCKETS = 1 << 16


class KeyIndex:
    """Offsets of lines by the first eight bytes of their keys, which are hashes of 16 bytes.

    Two keys may begin alike (of a million keys two do with a probability of 3e-8), so whoever reads the line compares the
    whole key. The later offset of a key counts.
    """

    def __init__(self) -> None:
        self._recent: dict[bytes, int] = {}
        self._keys, self._offsets = array("Q"), array("Q")  # sorted by key
        self._starts = array("I")  # of the keys that begin with the same two bytes; empty while there are no keys

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

    def put(self, key: bytes, offset: int) -> None:
        self._recent[key] = offset
        if len(self._recent) >= RECENT and len(self._recent) * 8 >= len(self._keys):
            self._sort_in()

    def offsets(self) -> "array[int]":
        """The offsets of all keys, as they are now."""
        self._sort_in()
        return self._offsets[:]

    def __len__(self) -> int:
        self._sort_in()
        return len(self._keys)

    def _sort_in(self) -> None:
        if not self._recent:
            return
        import numpy as np

        recent = np.frombuffer(b"".join(key[:8] for key in self._recent), ">u8").astype(np.uint64)
        keys = np.concatenate([recent, np.frombuffer(self._keys, np.uint64)])
        offsets = np.fromiter(self._recent.values(), np.uint64, len(recent))
        offsets = np.concatenate([offsets, np.frombuffer(self._offsets, np.uint64)])
        keys, first = np.unique(keys, return_index=True)  # of equal keys the first: the recent one
        self._keys, self._offsets = array("Q", keys.tobytes()), array("Q", offsets[first].tobytes())
        counts = np.bincount((keys >> np.uint64(48)).astype(np.int64), minlength=_BUCKETS)
        self._starts = array("I", np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32).tobytes())
        self._recent = {}
