"""The global random numbers, which helper code draws from."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def preserved_random() -> Iterator[None]:
    """Whatever is drawn inside, the stream outside goes on as if nothing had been."""
    state, array = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(array)


def seed_random(seed: int | None, array_seed: int | None) -> None:
    """Begin the global streams at these seeds; None leaves one as it is."""
    if seed is not None:
        random.seed(seed)
    if array_seed is not None:
        np.random.seed(array_seed)
