"""Facts of a model for the conditions of group members, known before it is opened: `model.params`, `model.context`."""

import json
import struct
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from assay.catalog.conditions import Facts
from assay.config.option import YAMLMapping, YAMLValue
from assay.models.protocol import AnyModel

PARAMS, CONTEXT = "params", "context"
MEANINGS = {
    "name": "the backend, as --model names it",
    PARAMS: "the number of parameters: of a local model by the headers of its safetensors files, else `--metadata params=8e9`",
    CONTEXT: "the context length in tokens: `max_length`, else by the config.json of a local model, else `--metadata context=8192`",
}
"""The facts of every model, beside its arguments."""
FOLDER_ARGUMENTS, LENGTH_ARGUMENTS = ("pretrained", "path"), ("max_length", "max_model_len")
LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "n_ctx")
MAX_HEADER = 100_000_000


class ModelFacts(Facts):
    """The arguments of a model, its name, and what its files show; those are read when a condition asks for it.

    Only what was asked for is listed, so that a run without conditions reads nothing.
    """

    remedies: Mapping[str, str] = {
        key: f"give --metadata {key}={value}" for key, value in ((PARAMS, "8e9"), (CONTEXT, 8192))
    }

    def __init__(self, known: YAMLMapping, metadata: YAMLMapping) -> None:
        self._known = dict(known)
        self._metadata = metadata

    @classmethod
    def of_object(cls, model: AnyModel, metadata: YAMLMapping) -> "ModelFacts":
        """Those of a model that is there already."""
        length = {} if model.max_length is None else {CONTEXT: model.max_length}
        return cls({"name": model.name, **length, **getattr(model, "facts", {})}, metadata)

    def __getitem__(self, key: str) -> YAMLValue:
        if key not in self._known:
            value: YAMLValue = self._in_files(key) if key in MEANINGS else None
            value = self._metadata.get(key) if value is None and key in MEANINGS else value
            if value is None:
                raise KeyError(key)
            self._known[key] = value
        return self._known[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def _in_files(self, key: str) -> int | None:
        if key == CONTEXT:
            said = next((self._known[each] for each in LENGTH_ARGUMENTS if self._known.get(each)), None)
            if isinstance(said, int):
                return said
        folder = _folder(self._known)
        if folder is None:
            return None
        return _parameters(folder) if key == PARAMS else _context(folder)


def _folder(known: YAMLMapping) -> Path | None:
    """The folder of a local model: that of an argument, the one in the hub's cache, or the bundled one."""
    written = next((str(known[key]) for key in FOLDER_ARGUMENTS if known.get(key)), None)
    if written is None:
        from assay.models.local.embedded import BUNDLED  # it imports numpy

        return BUNDLED if known.get("name") == "embedded" else None
    folder = Path(written).expanduser()
    return folder if folder.is_dir() else _cached(written, known.get("revision"))


def _cached(name: str, revision: YAMLValue) -> Path | None:
    try:
        from huggingface_hub import snapshot_download

        at = revision if isinstance(revision, str) else None
        return Path(snapshot_download(name, revision=at, local_files_only=True))
    except (ImportError, OSError, ValueError):  # not installed, not there, or not a name of the hub
        return None


def _parameters(folder: Path) -> int | None:
    """The number of weights by the headers of the safetensors files, without reading the weights."""
    counts = [_weights(file) for file in folder.glob("*.safetensors")]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _weights(file: Path) -> int | None:
    try:
        with file.open("rb") as opened:
            (size,) = struct.unpack("<Q", opened.read(8))
            header: dict[str, Any] = json.loads(opened.read(size)) if size <= MAX_HEADER else {}
        return sum(int(prod(each["shape"])) for name, each in header.items() if name != "__metadata__")
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return None


def _context(folder: Path) -> int | None:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return next((int(config[key]) for key in LENGTH_KEYS if isinstance(config.get(key), int)), None)
