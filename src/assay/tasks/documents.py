"""Which documents of a task are evaluated, and which may serve as examples."""

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

from assay.config.source import digest
from assay.config.task import FewshotConfig, TaskConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean, placed_error
from assay.records import Document, Function
from assay.runs.folder import RunError
from assay.runs.run import Run
from assay.runs.samples.encode import from_json
from assay.runs.samples.records import StoredSample
from assay.runs.samples.writer import file_name
from assay.samples.data import DataSet, Split, data_set
from assay.samples.fewshot import SAMPLERS, LeakPolicy
from assay.samples.prompt import Examples, Pool, RenderError, Sampler
from assay.samples.rows import DataError, as_rows, file_digest, spill_rows, typed
from assay.score_keys import join_scores
from assay.scoring.helper_code import Helpers
from assay.tasks.settings import Settings, Shard
from assay.tasks.task import Task, place_in
from assay.user_code import place_of, user_code

ProcessDocs = Callable[[Any], Iterable[Document] | None]
"""A task's function from a data set, as helper code sees it, to the documents to use."""


@dataclass(slots=True)
class Splits:
    """The splits of a task, prepared by its process_docs: each once, however often it is asked for."""

    data: DataSet
    as_dataset: Callable[[Split], Any]
    _prepared: dict[tuple[str, int], Split] = field(default_factory=dict)
    _digests: dict[Path, str] = field(default_factory=dict)

    def split(self, name: str, process_docs: ProcessDocs | None) -> Split:
        key = (name, id(process_docs))
        if key not in self._prepared:
            rows = self.data.split(name)
            if process_docs is not None:
                rows = spill_rows(self._processed(rows, process_docs, name))
            self._prepared[key] = rows
        return self._prepared[key]

    def _processed(self, rows: Split, process_docs: ProcessDocs, name: str) -> Split:
        with user_code(place_of("process_docs", process_docs), DataError):
            return _as_split(process_docs(self.as_dataset(rows)), name)

    def fingerprint(self, *names: str) -> str:
        """Return the fingerprint of splits, or of all that were used: of files by content, of other sources by name."""
        parts = [self.data.name]
        for name in names or sorted({name for name, _ in self._prepared}):
            files = getattr(self.data.split(name), "files", None)
            parts += [f"{name} {self._digest(file)}" for file in files] if files is not None else [name]
        return digest("\n".join(parts).encode())

    def _digest(self, file: Path) -> str:
        """The digest of a file, which is read for it once: it is asked for with one split and with all."""
        if file not in self._digests:
            self._digests[file] = file_digest(file)
        return self._digests[file]


def _as_split(rows: Iterable[Document] | None, name: str) -> Split:
    if rows is None:
        raise DataError(f"process_docs returned nothing for the split {name!r}")
    return as_rows(rows, "process_docs returned")


def evaluated_split(config: TaskConfig) -> str:
    split = config.test_split or config.validation_split
    if not split:
        raise DataError("the task names neither test_split nor validation_split, so there is nothing to evaluate")
    return split


def open_splits(task: Task, config: TaskConfig, settings: Settings, helpers: Helpers) -> Splits:
    """The data of a task; nothing is read yet."""
    data = data_set(
        config,
        folder=data_folder(task),
        data_dir=settings.run.data_dir,
        dialect=settings.dialect,
        read_run=read_run,
    )
    return Splits(data, helpers.as_dataset)


def data_folder(task: Task) -> str | None:
    """The folder that paths of data are relative to."""
    key = next((key for key in ("dataset_kwargs", "dataset_path", "task") if key in task.fields), None)
    return task.fields.origin(key).folder if key is not None else None


def evaluated_docs(task: Task, config: TaskConfig, splits: Splits) -> Split:
    """The documents to evaluate, as its process_docs prepares them."""
    process = config.process_docs if callable(config.process_docs) else None
    try:
        docs = splits.split(evaluated_split(config), process)
        if len(docs) == 0:
            raise DataError(f"the split {evaluated_split(config)!r} is empty")
    except DataError as error:
        raise placed_split(task, error, splits) from error
    return docs


_NO_SPLIT = re.compile(r"\bno split '([^']*)'")


def placed_split(task: Task, error: DataError, splits: Splits) -> DataError:
    """The same error; that about a split that does not exist with the place of its name."""
    named = _NO_SPLIT.search(str(error))
    if named is None or error.problem is not None:
        return error
    keys = ("test_split", "validation_split", "fewshot_split", "training_split")
    path = next(((key,) for key in keys if task.fields.get(key) == named[1]), ("fewshot_config", "split"))
    fix = did_you_mean(named[1], splits.data.available())
    return placed_error(DataError, Problem(place_in(task, *path), str(error), fix))


def chosen(docs: Split, task: str, settings: Settings) -> Iterator[tuple[int, Document]]:
    """The documents to evaluate with their numbers, in the order of the data."""
    numbers = _numbers(len(docs), task, settings) if _is_restricted(task, settings) else None
    if numbers is None:
        yield from enumerate(docs)
        return
    last, keep = max(numbers, default=-1), set(numbers)
    for number, doc in enumerate(docs):
        if number > last:
            return
        if number in keep:
            yield number, doc


def walked(docs: Split, task: str, settings: Settings, *, whole: bool) -> Iterator[tuple[int, Document, bool]]:
    """The documents up to the last one to evaluate, with their numbers, and whether each is evaluated in this run.

    With `whole` they come from the first on, chosen or not: examples are drawn one document after the other, and so a part
    of the documents is asked just what it is asked in a run of all.
    """
    numbers, shard = _chosen_numbers(docs, task, settings), settings.shard
    if shard is None and numbers == range(
        len(docs)
    ):  # all of them, as nearly always: without a generator's turn for each
        return zip(numbers, docs, repeat(True))
    return _walked(docs, numbers, shard, whole=whole)


def _walked(
    docs: Split, numbers: Sequence[int], shard: Shard | None, *, whole: bool
) -> Iterator[tuple[int, Document, bool]]:
    keep = numbers if isinstance(numbers, range) else frozenset(numbers)
    last, position = max(numbers, default=-1), 0
    for number, doc in enumerate(docs):
        if number > last:
            return
        if number in keep:
            yield number, doc, is_in(shard, position)
            position += 1
        elif whole:
            yield number, doc, False


def asked_after(last: int, docs: Split, task: str, settings: Settings) -> Iterator[int]:
    """The numbers of the documents after one that are evaluated in this run."""
    for position, number in enumerate(_chosen_numbers(docs, task, settings)):
        if number > last and is_in(settings.shard, position):
            yield number


def _chosen_numbers(docs: Split, task: str, settings: Settings) -> Sequence[int]:
    return _numbers(len(docs), task, settings) if _is_restricted(task, settings) else range(len(docs))


def count(docs: Split, task: str, settings: Settings) -> int:
    """How many documents `chosen` gives, of which the shard may have a part."""
    whole = len(_numbers(len(docs), task, settings)) if _is_restricted(task, settings) else len(docs)
    return whole if settings.shard is None else len(range(settings.shard.number - 1, whole, settings.shard.of))


def parse_shard(written: str | None) -> Shard | None:
    """The shard that `2/4` means; the options of a run have been checked.

    >>> parse_shard("2/4")
    Shard(number=2, of=4)
    """
    if written is None:
        return None
    number, _, of = written.partition("/")
    return Shard(int(number), int(of))


def is_in(shard: Shard | None, number: int) -> bool:
    """Whether the n-th of the chosen documents, counted from 0, belongs to a shard: they are dealt out in turn."""
    return shard is None or number % shard.of == shard.number - 1


def _named_documents(task: str, settings: Settings) -> Sequence[int] | None:
    """Return the documents of a task that the run names by number, if it names any."""
    return (settings.run.samples or {}).get(task)  # type: ignore[return-value]  # checked by check_samples


def _is_restricted(task: str, settings: Settings) -> bool:
    run = settings.run
    is_picked = _named_documents(task, settings) is not None
    return is_picked or run.limit is not None or run.sample is not None or run.start_index > 0


def _numbers(n: int, task: str, settings: Settings) -> Sequence[int]:
    run, picked = settings.run, _named_documents(task, settings)
    if picked is not None:
        numbers = sorted(set(picked))
        if numbers and not 0 <= numbers[0] <= numbers[-1] < n:
            raise DataError(f"samples names document {numbers[-1]}, but there are {n} (from 0 to {n - 1})")
        return numbers
    if run.sample is not None:
        return sorted(random.Random(f"sample {task}").sample(range(n), min(run.sample, n)))
    first = min(run.start_index, n)
    if run.limit is None:
        return range(first, n)
    n -= first
    return range(first, first + min(n, math.ceil(n * run.limit) if run.limit < 1 else int(run.limit)))


def examples(config: TaskConfig, number: int, splits: Splits, settings: Settings) -> Examples:
    """The few-shot examples of a task: their number, pool and choice."""
    shots = config.fewshot_config or FewshotConfig()
    # lm-eval prepares the pool in any case, which matters where process_docs draws from the global random numbers
    prepares_unused = settings.dialect.prepares_unused_examples and config.process_docs
    if number == 0 and not prepares_unused:
        return Examples()
    pool, named = _pool(config, shots, splits)
    if number == 0:
        return Examples()
    if shots.fewshot_indices is not None and not settings.dialect.ignores_fewshot_indices:
        pool = _picked(pool, shots.fewshot_indices)
    leaks = LeakPolicy(
        one_more=named == config.test_split, always=not settings.dialect.draws_examples_from_evaluated_split
    )
    return Examples(number, pool, lambda: _sampler(shots.sampler, pool, settings.run.fewshot_random_seed, leaks))


def _picked(pool: Pool, indices: Sequence[int]) -> Pool:
    beyond = next((index for index in indices if not -len(pool) <= index < len(pool)), None)
    if beyond is not None:
        raise DataError(f"fewshot_indices names row {beyond}, but there are {len(pool)} (from 0 to {len(pool) - 1})")
    return [pool[index] for index in indices]


def _pool(config: TaskConfig, shots: FewshotConfig, splits: Splits) -> tuple[Pool, str | None]:
    """The pool, and the split the task names for it, if it names one."""
    named = shots.split or config.fewshot_split
    if named is not None:
        return _listed(splits.split(named, _callable(shots.process_docs or config.process_docs))), named
    if shots.samples is not None:
        listed: Any = shots.samples
        if callable(listed):
            with user_code(place_of("fewshot_config.samples", listed), DataError):
                listed = list(as_rows(listed(), "it returned"))
        return [typed(each) for each in listed], None
    fallback = config.training_split or config.validation_split or config.test_split
    if fallback is None:
        raise DataError("num_fewshot is above 0, but the task has no split for the examples")
    return _listed(splits.split(fallback, _callable(config.process_docs))), None


def _listed(split: Split) -> Pool:
    return list(split)


def _callable(function: Function | ProcessDocs | None) -> ProcessDocs | None:
    return function if callable(function) else None


def _sampler(sampler: Any, pool: Pool, seed: int | None, leaks: LeakPolicy) -> Sampler:
    if isinstance(sampler, str):
        return _named_sampler(sampler, pool, seed, leaks)
    return _class_sampler(sampler, pool, seed, leaks)


def _named_sampler(name: str, pool: Pool, seed: int | None, leaks: LeakPolicy) -> Sampler:
    """A registered sampler, whose choices are looked at: it may be a user's."""
    place = Place("fewshot_config.sampler")
    made: Any = SAMPLERS.bind(name, {}, place, pool, seed, leaks)
    if not callable(made):
        what = f"sampler {name!r} returned {made!r:.60}, which cannot be called"
        raise ConfigError.at(place, what, "return a function (doc, number) -> numbers of examples")
    guard = user_code(place_of(f"sampler {name!r}", made), RenderError)

    def choose(doc: Document, number: int) -> Sequence[int]:
        with guard:
            chosen = list(made(doc, number))
            if len(chosen) != number or not all(index in range(len(pool)) for index in chosen):
                raise ValueError(
                    f"it chose {chosen!r:.60}, and must choose {number} of the {len(pool)} examples by number"
                )
        return chosen

    return choose


def _class_sampler(kind: Any, pool: Pool, seed: int | None, leaks: LeakPolicy) -> Sampler:
    """A sampler class of helper code, as lm-eval uses it: made with the pool, seeded, asked for documents."""
    place = place_of("fewshot_config.sampler", kind)
    with user_code(place, DataError):
        sampler = kind(list(pool), rnd=None)
        sampler.set_rnd(seed)
        known = {id(doc): number for number, doc in enumerate(sampler.df)}
    guard = user_code(place, RenderError)  # its errors are those of the document that it is asked for

    def choose(doc: Document, number: int) -> Sequence[int]:
        with guard:
            picked = sampler.sample(n=number, eval_doc=doc if leaks.one_more else None)
            return [known[id(each)] if id(each) in known else list(pool).index(each) for each in picked]

    return choose


def read_run(folder: Path) -> "RunSplits":
    """The run in a folder, to be handed to `samples.data.data_set`; a DataError where there is none."""
    try:
        return RunSplits(Run.open(folder))
    except RunError as error:
        raise DataError(f"{error.problems[0]}; give a run as dataset_kwargs.run") from error


class RunSplits:
    """Each task of a run as a split; a task may also be named as its file of samples is."""

    def __init__(self, run: Run) -> None:
        self._files = {task: file for task in run.tasks if (file := run.sample_file(task)) is not None}

    @property
    def splits(self) -> list[str]:
        return sorted(self._files)

    def rows(self, split: str) -> list[Document] | None:
        """The documents of a split, each with what was asked, answered and scored; None where there is no such split."""
        named = {**{file_name(task): file for task, file in self._files.items()}, **self._files}
        if split not in named:
            return None
        try:
            return [_document(row) for row in named[split].rows()]
        except RunError as error:
            raise DataError(str(error.problems[0])) from error


def _document(row: StoredSample) -> Document:
    return {
        **from_json(row.doc), "doc_id": row.doc_id, "prompt": row.prefix + row.prompt, "target": from_json(row.target),
        "responses": row.responses, "answers": row.answers, "scores": join_scores(row.scores, row.repeats),
    }  # fmt: skip
