"""How many threads torch has on a processor."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SMALL = 50_000_000
"""A model of fewer parameters has no work for a second thread."""


def fitting(parameters: int, most: int) -> int:
    """As many threads as cores are free, and one for a small model: threads wait for each other at every step, and on a
    machine that is busy so long that two are ten times slower than one (docs/backends/hf.md)."""
    if parameters < SMALL:
        return 1
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return max(1, min(most, int((os.cpu_count() or 1) - busy)))


@contextmanager
def of_torch(count: int | None) -> Iterator[None]:
    """So many threads while this lasts; with nothing said, as they are."""
    import torch

    before: Any = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
