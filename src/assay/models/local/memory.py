"""Memory that was not there, whoever says so."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SIGNS = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")
"""What processors, Macs and libraries say instead of raising torch's own error."""


@contextmanager
def short_of_memory() -> Iterator[None]:
    """Make torch's error of whatever is raised for want of memory."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except MemoryError as error:
        raise torch.OutOfMemoryError(str(error)) from error
    except RuntimeError as error:
        if any(sign in str(error) for sign in SIGNS):
            raise torch.OutOfMemoryError(str(error)) from error
        raise
