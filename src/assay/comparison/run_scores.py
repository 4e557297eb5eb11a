"""The scores of a run as they are stored, document by document. Nothing of the run's code is executed to read them."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import orjson

from assay.config.row_names import row_name
from assay.records import ScoreKey
from assay.runs.redaction import redacted
from assay.runs.rows import StoredRequest
from assay.runs.run import Run, mapping
from assay.runs.samples.reader import SampleFile
from assay.statistics.board import cluster_number

DRAWN = ("name", "parameters", "url", "auth_token")
"""Of a node's model: who it is, and how answers are drawn."""


def values(run: Run, name: str) -> dict[ScoreKey, float | None]:
    """The numbers of a task or group that can be compared; None where there is none."""
    rows = run.rows(name).items()
    return {key: row.value if row.value is not None and math.isfinite(row.value) else None
            for key, row in rows if row.several is None}  # fmt: skip


def model_of(run: Run) -> str:
    """The model of a run with its arguments, without secrets."""
    config = mapping(run.results.get("config"))
    args = redacted(config.get("model_args") or {})
    listed = ",".join(f"{key}={value}" for key, value in args.items()) if isinstance(args, Mapping) else str(args)
    name = str(config.get("model") or run.results.get("model_name") or "?")
    return f"{name} ({listed})" if listed else name


def task_scores(run: Run, task: str) -> "TaskScores | None":
    """The samples of a task; None where they are not there."""
    file = run.sample_file(task)
    graph = run.config(task).get("graph_config")
    asked = orjson.dumps(_asked_by(graph), option=orjson.OPT_SORT_KEYS).decode() if graph else ""
    return TaskScores(file, list(values(run, task)), asked) if file is not None else None


@dataclass(frozen=True)
class TaskScores:
    """The samples of one task: columns that are read when they are asked for. Of a graph, `graph` is what asks in it."""

    file: SampleFile
    keys: Sequence[ScoreKey]
    graph: str = ""

    @cached_property
    def documents(self) -> Any:
        """The number of each sample's document."""
        return _joined([np.array(part["doc_id"], np.int64) for part in self.file.columns(["doc_id"])], np.int64)

    @cached_property
    def values(self) -> "dict[ScoreKey, ScoreColumn]":
        """By row the value of each sample."""
        own = {key: row_name(key) for key in self.keys}
        there = set(self.file.names)
        simple = {key: name for key, name in own.items() if name in there}
        found: dict[ScoreKey, list[ScoreColumn]] = {key: [] for key in own}
        for part in self.file.columns([*simple.values(), *([] if len(simple) == len(own) else ["scores"])]):
            for key, name in simple.items():
                found[key].append(ScoreColumn.of_numbers(part[name]))
            told = part.get("scores", ())
            for key in own.keys() - simple.keys():
                found[key].append(ScoreColumn.of([each.get(own[key]) for each in told]))
        return {key: ScoreColumn.joined(several) for key, several in found.items()}

    @cached_property
    def prompts(self) -> Any:
        """A name for what was asked about each document: prompt and continuations, not how answers were drawn.

        Later requests of a graph hold answers to earlier ones: of those it is what the graph says that counts. A record that
        failed on its way leaves no requests, and has no name: 0.
        """

        def name(prefix: str, prompt: str, requests: Sequence[StoredRequest]) -> int:
            if self.graph and not requests:
                return 0
            whole = prefix + prompt
            asked = [(None if each.prompt == whole else each.prompt, each.continuation) for each in requests]
            return _digest(f"{whole}\0{self.graph or orjson.dumps(asked).decode()}")

        return self._named(["prefix", "prompt", "requests"], name)

    @cached_property
    def responses(self) -> Any:
        """A name for what was answered about each document."""
        return self._named(["responses"], lambda responses: _digest(orjson.dumps(responses).decode()))

    @cached_property
    def contents(self) -> Any:
        """A name for the content of each document."""
        return self._named(["doc"], _digest)

    def _named(self, columns: Sequence[str], name: Callable[..., int]) -> Any:
        """A number of 64 bits for each sample, from some of its columns."""
        parts = self.file.columns(columns)
        return _joined(
            [np.array([*map(name, *(part[each] for each in columns))], np.uint64) for part in parts], np.uint64
        )

    def clusters(self, column: str) -> Any:
        """The cluster of each sample by a column of its document, one without a value being its own; None where no document
        has the column."""
        found = np.array(self.documents)
        known, place = False, 0
        for part in self.file.columns(["doc"]):
            for doc in map(orjson.loads, part["doc"]):
                known = known or column in doc
                if doc.get(column) is not None:
                    found[place] = cluster_number(doc[column])
                place += 1
        return found if known else None

    def some(self, places: Sequence[int], wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Columns of a few samples, in the order of the file."""
        asked, before = sorted(set(places)), 0
        for part in self.file.columns(wanted):
            size = len(next(iter(part.values()), ()))
            for place in [each - before for each in asked if before <= each < before + size]:
                yield {"place": place + before, **{name: column[place] for name, column in part.items()}}
            before += size


class ScoreColumn(NamedTuple):
    """The values of a row, sample by sample: numbers as an array of them, anything else as objects; and which are there."""

    values: Any
    present: Any

    @classmethod
    def of_numbers(cls, several: Sequence[float | None]) -> "ScoreColumn":
        values = np.array(several, np.float64)
        return cls(
            values,
            np.array([each is not None for each in several], bool) if np.isnan(values).any() else values == values,
        )

    @classmethod
    def of(cls, several: Sequence[Any]) -> "ScoreColumn":
        return cls(np.fromiter(several, object, len(several)), np.array([each is not None for each in several], bool))

    @classmethod
    def joined(cls, several: "Sequence[ScoreColumn]") -> "ScoreColumn":
        values = _joined([each.values for each in several], np.float64)
        return cls(values, _joined([each.present for each in several], bool))

    def at(self, places: Any) -> Any:
        """The values at these places, or where a mask says so."""
        found = self.values[places]
        return found.tolist() if found.dtype == object else found

    @property
    def there(self) -> Any:
        """The values that there are."""
        return self.at(self.present)


def _asked_by(graph: Any, key: str = "") -> Any:
    """What a graph says, but for whose answers it asks and how they are drawn."""
    if isinstance(graph, list):
        return [_asked_by(each, key) for each in graph]
    if not isinstance(graph, Mapping):
        return graph
    if key == "models":  # by label
        return {label: _asked_by(each, "model") for label, each in graph.items()}
    return {name: _asked_by(each, name) for name, each in graph.items() if key != "model" or name not in DRAWN}


def _digest(text: str) -> int:
    """A number of 64 bits that is not 0."""
    found = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(found, "little") or 1


def _joined(parts: Sequence[Any], kind: Any) -> Any:
    return np.concatenate(parts) if parts else np.empty(0, kind)
