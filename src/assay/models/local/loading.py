"""Loading of local models: the fingerprint of a folder, and the number of torch threads."""

import hashlib
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from assay.ahead import Ahead

CONTENT = (".json", ".safetensors", ".bin", ".pt", ".model", ".txt", ".jinja", ".py", ".gguf", ".spm", ".tiktoken")
BLOCK = 1 << 26
"""Bytes that are hashed at a time: Python's lock is taken once for each, and may have to be waited for."""
THREADS = 16
"""Number of files that are hashed at a time."""
TRAINING = ("optimizer", "scheduler", "rng_state", "trainer_state", "training_args", "scaler")
"""Prefixes of files that only resuming a training needs: they are not part of the fingerprint."""
SHA256 = 64
"""Length of a file name in the hub's cache, which is the SHA-256 of its content."""


def fingerprint_folder(*folders: Path) -> str:
    """Digest of weights, configuration and tokenizer: of every model file in these folders."""
    files = [file for folder in folders for file in sorted(folder.iterdir()) if _is_model_file(file)]
    return fingerprint_files(files)


def fingerprint_files(files: Iterable[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    paths = list(files)
    waiting = iter(enumerate(paths))

    def digests() -> Generator[tuple[int, str]]:
        for number, file in waiting:
            yield number, _file_digest(file)

    with ExitStack() as stack:  # hashing releases the GIL
        threads = [stack.enter_context(Ahead(digests())) for _ in range(min(len(paths), THREADS))]
        contents = dict(each for thread in threads for each in thread)
    for number, file in enumerate(paths):
        digest.update(f"{file.name}\0{contents[number]}\0".encode())
    return digest.hexdigest()


def _is_model_file(file: Path) -> bool:
    return file.suffix in CONTENT and not file.name.startswith(TRAINING) and file.is_file()


def _file_digest(file: Path) -> str:
    blob = file.resolve()
    if blob.parent.name == "blobs" and len(blob.name) == SHA256:
        return blob.name
    digest = hashlib.blake2b(digest_size=32)
    with file.open("rb") as opened:
        while block := opened.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


SMALL = 50_000_000
"""Models with fewer parameters do not gain from a second thread."""


def default_threads(parameters: int, available: int) -> int:
    """Number of free cores, and one for a small model: threads wait for each other at every step, and on a busy machine
    two can be ten times slower than one (docs/backends/hf.md)."""
    if parameters < SMALL:
        return 1
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return max(1, min(available, int((os.cpu_count() or 1) - busy)))


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """Attention without cuDNN's kernels, which are compiled anew, for a second, for every length of a text."""
    from torch.backends import cuda

    before = cuda.cudnn_sdp_enabled() if hasattr(cuda, "cudnn_sdp_enabled") else False  # type: ignore[no-untyped-call]
    if before:
        cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        if before:
            cuda.enable_cudnn_sdp(True)


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Set the number of torch threads inside the context; None leaves it as it is."""
    import torch

    before: Any = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
