"""What a model in a folder is: its content, not its name."""

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CONTENT = (".json", ".safetensors", ".bin", ".pt", ".model", ".txt", ".jinja", ".py", ".gguf", ".spm", ".tiktoken")
BLOCK = 1 << 22
TRAINING = ("optimizer", "scheduler", "rng_state", "trainer_state", "training_args", "scaler")
"""How the names of files begin that training goes on from: a model is the same without them."""
SHA256 = 64
"""Letters in the name of a file in the hub's cache, which is called after its content."""


def identity_of_folder(*folders: Path) -> str:
    """A digest of weights, configuration and tokenizer: of every file of these folders that a model is made of."""
    files = [file for folder in folders for file in sorted(folder.iterdir()) if _counts(file)]
    return identity_of_files(files)


def identity_of_files(files: Iterable[Path]) -> str:
    made = hashlib.blake2b(digest_size=16)
    several = list(files)
    with ThreadPoolExecutor() as pool:  # hashing lets other threads go on
        for file, content in zip(several, pool.map(_content, several), strict=True):
            made.update(f"{file.name}\0{content}\0".encode())
    return made.hexdigest()


def _counts(file: Path) -> bool:
    return file.suffix in CONTENT and not file.name.startswith(TRAINING) and file.is_file()


def _content(file: Path) -> str:
    blob = file.resolve()
    if blob.parent.name == "blobs" and len(blob.name) == SHA256:
        return blob.name
    made = hashlib.blake2b(digest_size=32)
    with file.open("rb") as opened:
        while block := opened.read(BLOCK):
            made.update(block)
    return made.hexdigest()
