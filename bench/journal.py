"""`python -m bench.journal`: memory of the journal's index, and flipped bits that are noticed."""

import os
import random
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from assay.records import Likelihood, Text
from assay.runs import journal
from assay.runs.journal import Journal

REQUESTS, FLIPS = 100_000, 1_000


def index_memory() -> float:
    """MB of the index of a journal that is opened again, for 100,000 requests."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / journal.NAME
        built = Journal(path)
        built.add((os.urandom(16), Likelihood(-1.5, True)) for _ in range(REQUESTS))
        built.close()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        built = Journal(path)
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        built.close()
    return used / 1e6


def unnoticed(compressed: bool) -> Iterator[int]:
    """Positions of a journal at which a flipped bit is not noticed."""
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / journal.NAME
        built = Journal(path, {"spec": {}})
        built.add((draw.randbytes(16), Text(f"answer {draw.random()}", "stop")) for _ in range(200))
        built.close()
        file = path
        if compressed:
            journal.LONG = 1
            built = Journal(path)
            built.compress()
            built.close()
            file = path.with_name(path.name + ".zst")
        data = file.read_bytes()
        for position in draw.choices(
            range(len(data) - 1), k=FLIPS
        ):  # without the last newline, the line is torn, not damaged
            flipped = bytearray(data)
            flipped[position] ^= 1 << draw.randrange(8)
            path.unlink(missing_ok=True)
            file.write_bytes(flipped)
            built = Journal(path)
            built.close()
            if not built.damaged:
                yield position


if __name__ == "__main__":
    import logging

    logging.disable(logging.WARNING)
    print(f"index of {REQUESTS:,} requests: {index_memory():.1f} MB")
    for compressed in (False, True):
        missed = len(list(unnoticed(compressed)))
        print(f"flipped bits noticed, {'compressed' if compressed else 'plain'}: {FLIPS - missed} of {FLIPS}")
