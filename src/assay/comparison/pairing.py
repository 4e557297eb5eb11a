"""The same documents in two runs: matched by data-set fingerprint and row, or by content where the data differ."""

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import DTypeLike, NDArray

from assay.errors import ConfigError, some
from assay.records import AnyJSON, JSONObject
from assay.runs.labels import TaskLabels, corrected_key
from assay.runs.run import Run
from assay.runs.samples.encode import from_json
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import StoredRequest, StoredSample
from assay.score_keys import ScoreKey
from assay.statistics.board import cluster_number
from assay.statistics.labels import Corrected, corrected

Array = NDArray[Any]
"""Numbers, one for each sample or document."""
PROMPT_OPTIONS = ("apply_chat_template", "system_instruction", "fewshot_as_multiturn", "fewshot_random_seed", "num_fewshot",
                  "over_length")  # fmt: skip
"""Options of a run that change the prompts."""
PACKED = {name: f"hash_of_{name}" for name in ("prompts", "responses", "contents", "clusters")}
"""Columns of a packed baseline, which has hashes in place of texts."""


def scoring_configs(config: JSONObject) -> list[JSONObject]:
    """The configuration of a task and those of its filters: each may have a scorer and metrics."""
    return [config, *(entry for entry in config.get("filter_list") or () if isinstance(entry, Mapping))]


def task_scores(run: Run, task: str) -> "TaskScores | None":
    """The samples of a task; None where they are not there."""
    file = run.sample_file(task)
    graph = run.config(task).get("graph_config")
    graph_text = orjson.dumps(_graph_definition(graph), option=orjson.OPT_SORT_KEYS).decode() if graph else ""
    labels, cluster_by = run.labels.get(task), str(run.config(task).get("cluster_by") or "")
    return TaskScores(file, list(values(run, task)), graph_text, labels, cluster_by) if file is not None else None


@dataclass(frozen=True)
class TaskScores:
    """The samples of one task: columns that are read at their first use. `graph` is the definition of a graph task, `labels`
    those that people gave, and `cluster_by` the column of documents that are one draw."""

    file: SampleFile
    keys: Sequence[ScoreKey]
    graph: str = ""
    labels: TaskLabels | None = None
    cluster_by: str = ""

    @cached_property
    def documents(self) -> Array:
        """The number of each sample's document."""
        return _joined([np.array(part["doc_id"], np.int64) for part in self.file.columns(["doc_id"])], np.int64)

    @cached_property
    def values(self) -> "dict[ScoreKey, PairedColumn]":
        """By row the value of each sample; of a row that labels correct, how far each sample moves it."""
        judged = {corrected_key(key): key for key in self.labels.rows} if self.labels else {}
        own = [key for key in dict.fromkeys((*self.keys, *judged.values())) if key not in judged]
        there = set(self.file.score_keys)
        simple = [key for key in own if key in there]
        columns: dict[ScoreKey, list[PairedColumn]] = {key: [] for key in own}
        for part in self.file.columns([*simple, *([] if len(simple) == len(own) else ["scores"])]):
            for key in simple:
                columns[key].append(PairedColumn.of_numbers(part[key]))
            scores = part.get("scores", ())
            for key in set(own) - set(simple):
                columns[key].append(PairedColumn.of([of_sample.get(key) for of_sample in scores]))
        rows = {key: PairedColumn.joined(parts_of_row) for key, parts_of_row in columns.items()}
        if self.labels is not None:
            rows |= {new: self._moved_by_labels(self.labels, rows[key]) for new, key in judged.items()}
        return rows

    def _moved_by_labels(self, labels: TaskLabels, column: "PairedColumn") -> "PairedColumn":
        number = self.corrected(labels, column)
        moved = np.full(len(self.documents), math.nan)
        moved[column.present] = math.nan if number is None else number.for_contrasts
        return PairedColumn(moved, column.present & (number is not None), is_score=False)

    def corrected(self, labels: TaskLabels, column: "PairedColumn", source: str = "") -> Corrected | None:
        """The number of a judge's row, corrected by labels; None where no document that it scored has one."""
        own = self.documents[column.present].tolist()
        if not any(each in labels.labels for each in own):
            return None
        by_document = [labels.as_score(labels.labels[each]) if each in labels.labels else math.nan for each in own]
        clusters = self.clusters(self.cluster_by) if self.cluster_by else None
        ties = None if clusters is None else clusters[column.present].tolist()
        verdicts = np.asarray(column.present_values, np.float64)
        return corrected(verdicts, by_document, bounds=labels.bounds, clusters=ties, source=source, documents=own)

    @cached_property
    def prompts(self) -> Array:
        """A hash of each document's prompt and continuations, without sampling parameters.

        Later requests of a graph contain answers to earlier ones, so the graph's definition counts instead. A record that
        failed has no requests, and the hash 0.
        """

        def name(prefix: str, prompt: str, requests: Sequence[StoredRequest]) -> int:
            if self.graph and not requests:
                return 0
            whole = prefix + prompt
            parts = [(None if each.prompt == whole else each.prompt, each.continuation) for each in requests]
            return _digest(f"{whole}\0{self.graph or orjson.dumps(parts).decode()}")

        return self._named("prompts", ["prefix", "prompt", "requests"], name)

    @cached_property
    def responses(self) -> Array:
        """A hash of each document's responses."""
        return self._named("responses", ["responses"], lambda responses: _digest(orjson.dumps(responses).decode()))

    @cached_property
    def contents(self) -> Array:
        """A hash of each document's content."""
        return self._named("contents", ["doc"], _digest)

    def _packed(self, what: str) -> Array | None:
        """The hashes of a packed baseline; None where the file has the texts themselves."""
        if PACKED[what] not in self.file.names:
            return None
        kind = np.int64 if what == "clusters" else np.uint64
        return _joined([np.array(part[PACKED[what]], kind) for part in self.file.columns([PACKED[what]])], kind)

    def _named(self, what: str, columns: Sequence[str], name: Callable[..., int]) -> Array:
        """A number of 64 bits for each sample, from some of its columns."""
        packed = self._packed(what)
        if packed is not None:
            return packed
        parts = self.file.columns(columns)
        return _joined(
            [np.array([*map(name, *(part[each] for each in columns))], np.uint64) for part in parts], np.uint64
        )

    def clusters(self, column: str) -> Array | None:
        """The cluster of each sample by a column of its document, one without a value being its own; None where no document
        has the column."""
        packed = self._packed("clusters") if column == self.cluster_by else None
        if packed is not None:
            return packed
        clusters = np.array(self.documents)
        known, place = False, 0
        for part in self.file.columns(["doc"]):
            for doc in map(from_json, part["doc"]):
                known = known or column in doc
                if doc.get(column) is not None:
                    clusters[place] = cluster_number(doc[column])
                place += 1
        return clusters if known else None

    def some(self, places: Sequence[int]) -> dict[int, StoredSample]:
        """The samples at these places of the file."""
        positions = sorted(set(places))
        return dict(zip(positions, self.file.at(positions), strict=True))


class PairedColumn(NamedTuple):
    """The values of a row, sample by sample: numbers as an array of them, anything else as objects; and which are there."""

    values: Array
    present: Array
    is_score: bool = True
    """Not of a corrected row: there a document has no score, but moves the number."""

    @classmethod
    def of_numbers(cls, scores: Sequence[float | None]) -> "PairedColumn":
        values = np.array(scores, np.float64)
        return cls(
            values,
            np.array([each is not None for each in scores], bool) if np.isnan(values).any() else values == values,
        )

    @classmethod
    def of(cls, scores: Sequence[AnyJSON]) -> "PairedColumn":
        return cls(np.fromiter(scores, object, len(scores)), np.array([each is not None for each in scores], bool))

    @classmethod
    def joined(cls, columns: "Sequence[PairedColumn]") -> "PairedColumn":
        values = _joined([each.values for each in columns], np.float64)
        return cls(values, _joined([each.present for each in columns], bool))

    def at(self, places: Any) -> Any:
        """Select the values at these positions, or where a mask is true."""
        selected = self.values[places]
        return selected.tolist() if selected.dtype == object else selected

    @property
    def present_values(self) -> Any:
        """The values that there are."""
        return self.at(self.present)


@dataclass(frozen=True)
class PairedTask:
    """A task that two runs share: the samples that are of the same document, by their places in either file."""

    name: str
    name_b: str
    scores_a: TaskScores
    scores_b: TaskScores
    places_a: Array
    places_b: Array
    source: str
    by_content: bool

    @property
    def documents(self) -> Array:
        return self.scores_a.documents[self.places_a]

    @cached_property
    def prompts_that_differ(self) -> list[int]:
        """The documents with different prompts."""
        a, b = self.scores_a.prompts[self.places_a], self.scores_b.prompts[self.places_b]
        documents: list[int] = self.documents[(a != b) & (a != 0) & (b != 0)].tolist()
        return documents

    @cached_property
    def has_same_answers(self) -> bool:
        """Whether all responses are equal."""
        return bool((self.scores_a.responses[self.places_a] == self.scores_b.responses[self.places_b]).all())


def shared_tasks(a: Run, b: Run) -> dict[str, str]:
    """The tasks of the first run that the other has, too: by name, else the one that is the same in another format."""
    there = set(b.scored_tasks)
    shared = {name: name for name in a.scored_tasks if name in there}
    left, other = [n for n in a.scored_tasks if n not in shared], [n for n in b.scored_tasks if n not in shared]
    for name in left:
        same = [each for each in other if _plain(each) == _plain(name)]
        if len(same) == 1 and sum(_plain(each) == _plain(name) for each in left) == 1:
            shared[name] = same[0]
    return shared


def _plain(name: str) -> str:
    return name.partition("@")[0]


def pair_tasks(a: Run, b: Run, names: Collection[str], notes: list[str]) -> list[PairedTask]:
    """The shared tasks of these names with their documents paired; what is in one run alone is noted."""
    every = shared_tasks(a, b)
    shared = {name: other for name, other in every.items() if name in names}
    if not shared:
        what = f"the runs share no task: {some(a.scored_tasks)} there, {some(b.scored_tasks)} here"
        raise ConfigError.at(b.path, what, "name runs of the same tasks")
    _note_tasks(
        "the first run alone has", [each for each in a.scored_tasks if each in names and each not in every], notes
    )
    _note_tasks(f"{b.path} alone has", [n for n in b.scored_tasks if n in names and n not in every.values()], notes)
    pairs = []
    for name, other in shared.items():
        scores_a, scores_b = task_scores(a, name), task_scores(b, other)
        if scores_a is None or scores_b is None:
            lacking = a if scores_a is None else b
            notes.append(f"{name}: its samples are not in {lacking.path}: it is not compared")
            continue
        paired = _pair(name, other, (a, scores_a), (b, scores_b))
        pairs.append(paired)
        _note_documents(paired, notes)
    return pairs


def _note_tasks(who: str, names: Sequence[str], notes: list[str]) -> None:
    if names:
        notes.append(f"{who} the task{'s' if len(names) > 1 else ''} {some(names)}: not compared")


def _pair(name: str, other: str, of_a: tuple[Run, TaskScores], of_b: tuple[Run, TaskScores]) -> PairedTask:
    (a, scores_a), (b, scores_b) = of_a, of_b
    source = a.source(name)
    if source and source == b.source(other):
        _, places_a, places_b = np.intersect1d(scores_a.documents, scores_b.documents, return_indices=True)
        return PairedTask(name, other, scores_a, scores_b, places_a, places_b, source, by_content=False)
    places_a, places_b = _by_content(scores_a.contents, scores_b.contents)
    return PairedTask(name, other, scores_a, scores_b, places_a, places_b, source or name, by_content=True)


def _by_content(a: Array, b: Array) -> tuple[Array, Array]:
    """Places of equal documents, in the order of the first run; of several that are equal, the first goes with the first."""
    _, places_a, places_b = np.intersect1d(_counted(a), _counted(b), assume_unique=True, return_indices=True)
    order = np.argsort(places_a)
    return places_a[order], places_b[order]


def _counted(contents: Array) -> Array:
    """Each content with how many times it came before: no two are equal."""
    order = np.argsort(contents, kind="stable")
    ordered = contents[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else np.empty(0, int)
    before = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.append(starts, len(ordered))))
    numbered = np.empty(len(contents), [("content", np.uint64), ("before", np.int64)])
    numbered["content"], numbered["before"][order] = contents, before
    return numbered


def _note_documents(paired: PairedTask, notes: list[str]) -> None:
    n, of_a, of_b = len(paired.places_a), len(paired.scores_a.documents), len(paired.scores_b.documents)
    if paired.by_content:
        notes.append(f"{paired.name}: the data are not the same, or not known to be: paired by content")
    if n < of_a or n < of_b:
        notes.append(f"{paired.name}: {n} documents are in both runs, {of_a - n} only there and {of_b - n} only here")


class OtherPrompts(ConfigError):
    """The documents were prompted differently, and `--allow_different_prompts` was not given."""


def refuse_other_prompts(tasks: Sequence[PairedTask], a: Run, b: Run) -> None:
    """Refuse tasks whose prompts differ, and name the settings that may be the cause."""
    differing = {task.name: task.prompts_that_differ for task in tasks if task.prompts_that_differ}
    if not differing:
        return
    first = next(task for task in tasks if task.name in differing)
    ids = differing[first.name]
    if len(differing) == 1:
        place = f"task {first.name!r}"
        listed = ", ".join(map(str, ids[:3])) + (" …" if len(ids) > 3 else "")
        what = f"the prompts of {len(ids)} of {len(first.places_a)} documents differ between the runs ({listed})"
    else:
        place, what = (
            str(b.path),
            f"the prompts of {len(differing)} tasks differ between the runs: {some(list(differing))}",
        )
    settings = [
        f"{key} {'–' if one is None else f'{one}'[:60]} → {'–' if other is None else f'{other}'[:60]}"
        for key in PROMPT_OPTIONS
        if (one := a.answers_manifest.get("spec", {}).get(key))
        != (other := b.answers_manifest.get("spec", {}).get(key))
    ]
    fix = f"`assay samples {b.path} --task {first.name_b} --doc {ids[0]} --full` shows one;"
    fix += " --allow_different_prompts compares them all the same"
    raise OtherPrompts.at(place, what + (f" ({', '.join(settings)})" if settings else ""), fix)


DRAWN = ("name", "parameters", "url", "auth_token")
"""Of a node's model: its identity, and how answers are drawn."""


def values(run: Run, name: str) -> dict[ScoreKey, float | None]:
    """The numbers of a task or group that can be compared; None where there is none."""
    numbers = {key: row.estimate.value for key, row in run.rows(name).items()}
    return {key: value if value is not None and math.isfinite(value) else None for key, value in numbers.items()}


def _graph_definition(graph: AnyJSON, key: str = "") -> AnyJSON:
    """Return a graph's definition without its models and sampling parameters."""
    if isinstance(graph, list):
        return [_graph_definition(each, key) for each in graph]
    if not isinstance(graph, Mapping):
        return graph
    if key == "models":  # by label
        return {label: _graph_definition(each, "model") for label, each in graph.items()}
    return {name: _graph_definition(each, name) for name, each in graph.items() if key != "model" or name not in DRAWN}


def _digest(text: str) -> int:
    """A number of 64 bits that is not 0."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def _joined(parts: Sequence[Array], kind: DTypeLike) -> Array:
    return np.concatenate(parts) if parts else np.empty(0, kind)
