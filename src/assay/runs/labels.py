"""Labels that people gave to documents of a run: `labels.jsonl` beside the run's own files, a sealed line for each.

The run's files stay as they were written, and no number that labels correct is stored. `Run.results` has such rows beside the
judge's, computed when they are read: `llm_judge_corrected`.
"""

import fcntl
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import orjson

from assay.errors import Place
from assay.results import Results, Row
from assay.runs.files import read_bytes
from assay.runs.folder import RunError
from assay.runs.journal import is_intact, sealed
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import StoredSample, shown_texts
from assay.runs.validation import Check, count, fields, listed, number, optional, pair, text
from assay.score_keys import ScoreKey

LABELS = "labels.jsonl"
SUFFIX = "_corrected"


@dataclass(frozen=True)
class PersonLabel:
    """A person's label of a document, on the `scale` that people use; None takes an earlier one back.

    `rows` are those of the judge that it is about, `bounds` the ends of its scores, and `answer` is a digest of the answer.
    """

    task: str
    doc: int
    label: float | None
    by: str
    rows: Sequence[ScoreKey]
    scale: tuple[float, float]
    bounds: tuple[float, float]
    answer: str = ""
    samples: str = ""
    """The checksum of the file of samples that was labelled."""
    at: str = ""


@dataclass(frozen=True)
class TaskLabels:
    """The labels of a task: by person, by document."""

    rows: Sequence[ScoreKey]
    scale: tuple[float, float]
    bounds: tuple[float, float]
    people: Mapping[str, Mapping[int, float]]
    answers: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    """By document the digest of the answer that was labelled, and the checksum of the file of samples then."""
    stale: int = 0
    """Labels that are left out: they are about other answers."""

    @cached_property
    def labels(self) -> Mapping[int, float]:
        """By document its label; of several people the mean."""
        by_document: dict[int, list[float]] = {}
        for own in self.people.values():
            for document, label in own.items():
                by_document.setdefault(document, []).append(label)
        return {document: math.fsum(labels) / len(labels) for document, labels in by_document.items()}

    @property
    def counts(self) -> dict[str, int]:
        """How many documents each person has labelled."""
        return {name: len(own) for name, own in self.people.items() if own}

    def as_score(self, label: float) -> float:
        """A label on the scale of the judge's scores."""
        (low, high), (least, most) = self.scale, self.bounds
        return least + (label - low) / (high - low) * (most - least)


class Corrections(NamedTuple):
    """Rows that labels correct, by task and by group; and sentences about the labels of each task."""

    tasks: Mapping[str, Sequence[Row]]
    groups: Mapping[str, Sequence[Row]]
    remarks: Mapping[str, Sequence[str]]


def corrected_key(key: ScoreKey) -> ScoreKey:
    """The row with the corrected value of a judge's row.

    >>> corrected_key(ScoreKey("llm_judge", "none"))
    ScoreKey(metric='llm_judge_corrected', filter='none')
    """
    return key._replace(metric=key.metric + SUFFIX)


def judged_answer(sample: StoredSample, filter_name: str) -> str:
    """The first answer that the judge saw; of repeats the first stands for all."""
    filtered = [each for each in sample.answers.get(filter_name, ()) if isinstance(each, str)]
    return (filtered or shown_texts(sample.responses, sample.replies) or [""])[0]


def answer_digest(answer: str) -> str:
    return blake2b(answer.encode("utf-8", "replace"), digest_size=8).hexdigest()


# ---- writing


def append_labels(folder: Path, labels: Sequence[PersonLabel]) -> None:
    """Add labels to those of a run. Several processes may do so at once: each waits for the lock of the file."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    lines = [sealed(_encode(replace(label, at=label.at or now))[:-1]) for label in labels]
    path = folder / LABELS
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            _write_whole(handle, _end_of_torn(handle) + b"".join(lines))
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        what = f"labels cannot be written: {error.strerror or error}"
        raise RunError.at(path, what, "make the folder of the run writable") from None


def _encode(label: PersonLabel) -> bytes:
    return orjson.dumps({**asdict(label), "rows": [str(key) for key in label.rows]})


def _end_of_torn(handle: int) -> bytes:
    """Cut off a line that a process left unfinished, so that the next begins as a line; ends one that only lacks its end."""
    size = os.fstat(handle).st_size
    start = max(size - 1_000_000, 0)
    data = os.pread(handle, size - start, start)
    tail = data[data.rfind(b"\n") + 1 :]
    if not tail or is_intact(tail + b"\n"):
        return b"\n" if tail else b""
    os.ftruncate(handle, size - len(tail))
    return b""


def _write_whole(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


# ---- reading


LINE: Check = fields({
    "task": text, "doc": count, "label": optional(number), "by": text, "rows": listed(text), "scale": pair, "bounds": pair,
    "answer": text, "samples": text, "at": text,
}, "task", "doc", "label", "by", "rows", "scale", "bounds")  # fmt: skip


def read_labels(folder: Path) -> dict[str, TaskLabels]:
    """The labels of a run by task; a later label of a person replaces an earlier one. A damaged file is a RunError.

    Labels of a task that are about other rows than the latest are left out.
    """
    tasks: dict[str, TaskLabels] = {}
    for label in _read_lines(folder / LABELS):
        tasks[label.task] = _with(tasks.get(label.task), label)
    return {task: about for task, about in tasks.items() if about.labels}


def _with(before: TaskLabels | None, label: PersonLabel) -> TaskLabels:
    if before is None or [*before.rows] != [*label.rows]:
        before = TaskLabels(label.rows, label.scale, label.bounds, {})
    own = {document: known for document, known in before.people.get(label.by, {}).items() if document != label.doc}
    if label.label is not None:
        own[label.doc] = label.label
    answers = {**before.answers, **({label.doc: (label.answer, label.samples)} if label.answer else {})}
    return replace(before, people={**before.people, label.by: own}, answers=answers)


def _read_lines(path: Path) -> Iterator[PersonLabel]:
    try:
        data = read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from None
    lines = data.split(b"\n")
    if lines[-1] and not is_intact(lines[-1] + b"\n"):
        lines.pop()  # a label that was not written to its end was not reported as stored
    for place, line in enumerate(lines, 1):
        if line:
            yield _read_line(path, place, line)


def _read_line(path: Path, place: int, line: bytes) -> PersonLabel:
    if not is_intact(line + b"\n"):
        raise _damaged(path, "its content does not match its checksum", place)
    try:
        content = orjson.loads(line)
        wrong = LINE(content)
        if not wrong:
            known = {name: content[name] for name in PersonLabel.__dataclass_fields__ if name in content}
            known |= {"scale": _ends(content["scale"]), "bounds": _ends(content["bounds"])}
            label = PersonLabel(**{**known, "rows": [*map(ScoreKey.parse, content["rows"])]})
            if label.label is None or label.scale[0] <= label.label <= label.scale[1]:
                return label
            wrong = f"the label {label.label:g} is off its scale"
    except (ValueError, TypeError) as error:
        wrong = str(error)
    raise _damaged(path, wrong, place)


def _ends(written: Sequence[float]) -> tuple[float, float]:
    low, high = float(written[0]), float(written[1])
    if not low < high:
        raise ValueError("a scale must have its lower end first")
    return low, high


def _damaged(path: Path, what: str, line: int = 0) -> RunError:
    fix = f"remove line {line}" if line else "remove it, and import the labels again: `assay label RUN --import FILE`"
    place = Place(str(path), line, 1) if line else Place(str(path))
    return RunError.at(place, f"the file is damaged: {what}", fix)


# ---- validity


def current_labels(labels: TaskLabels, file: SampleFile | None) -> TaskLabels:
    """The labels that are about the answers of a file of samples."""
    if file is None:
        return labels
    doubtful = {document for document, (_, checksum) in labels.answers.items() if checksum != file.checksum}
    if not doubtful:
        return labels
    own = labels.rows[0].filter
    digests = {row.doc_id: answer_digest(judged_answer(row, own)) for row in file.rows() if row.doc_id in doubtful}
    return _without(labels, {each for each in doubtful if digests.get(each) != labels.answers[each][0]})


def _without(labels: TaskLabels, documents: set[int]) -> TaskLabels:
    people = {
        name: {document: label for document, label in own.items() if document not in documents}
        for name, own in labels.people.items()
    }
    left_out = sum(map(len, labels.people.values())) - sum(map(len, people.values()))
    return replace(labels, people=people, stale=labels.stale + left_out)


# ---- rows


def with_corrected_rows(results: Results, corrections: Corrections) -> Results:
    """Results with a corrected row beside each of a judge, and remarks about labels."""
    tasks, groups = dict(results.tasks), dict(results.groups)
    for name, task in tasks.items():
        rows = corrections.tasks.get(name, ())
        tasks[name] = replace(
            task,
            rows=[*task.rows, *rows],
            remarks=[*task.remarks, *corrections.remarks.get(name, ())],
            directions={**task.directions, **_directions(rows)},
        )
    for name, group in groups.items():
        rows = corrections.groups.get(name, ())
        if rows:
            directions = {**group.directions, **_directions(rows)}
            groups[name] = replace(group, rows=[*(group.rows or ()), *rows], directions=directions)
    return replace(results, tasks=tasks, groups=groups)


def _directions(rows: Sequence[Row]) -> dict[str, bool | None]:
    return {row.metric: row.higher_is_better for row in rows}
