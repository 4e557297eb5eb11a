"""The checks of a plain task, in the order in which their problems are listed: `validate` and a run walk this list."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.catalog.functions import check_function, functions_in
from assay.checks import Check, Level
from assay.config.task import FormatConfig, TaskConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean, nearest, unknown_name
from assay.samples.data import FILE_READERS, Split, columns_of, find_files
from assay.samples.fewshot import SAMPLERS
from assay.samples.formats import format_from_table, formats_table
from assay.samples.rows import DataError
from assay.scoring.filters import selection_note
from assay.scoring.loop import ScoringLoop
from assay.scoring.metrics.registry import METRICS
from assay.scoring.results import GENERATE
from assay.scoring.scorer import roles_of
from assay.scoring.scorer_models import models_of
from assay.tasks.prompt_checks import (
    FORMAT_TEXTS,
    format_slips,
    misfit_functions,
    prompt_problems,
    target_problems,
    template_error,
    written_slips,
)
from assay.tasks.settings import Settings
from assay.tasks.task import Task, place_in


@dataclass(frozen=True, kw_only=True)
class CheckedTask:
    """A task as far as it is known: `config` has functions or their stand-ins from LOADED on, the others follow."""

    task: Task
    config: TaskConfig
    settings: Settings
    formats: Mapping[str, FormatConfig] = field(default_factory=dict)
    docs: Split = ()
    scored: ScoringLoop | None = None
    """None where filters and metrics cannot be made."""
    choices: Any = None
    """The choices of the first document."""

    @property
    def columns(self) -> Sequence[str]:
        return columns_of(self.docs)


def unsent_media(about: CheckedTask) -> Iterator[Problem]:
    if about.task.unsent is not None:
        yield replace(about.task.unsent, serious=_is_refused(about.task))


def _is_refused(task: Task) -> bool:
    """Whether what cannot run is a mistake: in files of another program it is noted."""
    return not task.fields.dialect.notes_what_cannot_run


def missing_functions(about: CheckedTask) -> Iterator[Problem]:
    """Find `!function` names of which the module, or the name in it, does not exist."""
    for function in functions_in(dict(about.task.fields)):
        problem = check_function(function)
        if problem is not None:
            yield problem


def unknown_sampler(about: CheckedTask) -> Iterator[Problem]:
    fields = about.task.fields
    shots = fields.get("fewshot_config")
    sampler = shots.get("sampler", "default") if isinstance(shots, Mapping) else None
    if isinstance(sampler, str) and sampler not in SAMPLERS:
        place = fields.place("fewshot_config", "sampler")
        yield unknown_name("sampler", sampler, SAMPLERS.names(), place)


def wrong_formats(about: CheckedTask) -> Iterator[Problem]:
    """Find what is wrong with every format of a task's table, also those that are not asked for now."""
    fields = about.task.fields
    if formats_table(fields) is None:
        yield from format_slips(fields)
    for name in formats_table(fields) or {}:
        try:
            yield from format_problems(format_from_table(fields, name, about.formats), fields.place("formats", name))
        except ConfigError as error:
            yield from error.problems


def format_problems(format: FormatConfig, place: Place) -> Iterator[Problem]:
    for key in FORMAT_TEXTS:
        text = getattr(format, key)
        wrong = template_error(text) if text else None
        if wrong:
            yield Problem(place, f"{key} of format {format.format!r} is not a valid template: {wrong}", "correct it")


def missing_data(about: CheckedTask) -> Iterator[Problem]:
    """Find a task that does not say where its data is, and files it names that are not there."""
    config, fields, serious = about.task.config, about.task.fields, _is_refused(about.task)
    if config.dataset_path is None and config.custom_dataset is None and config.class_ is None:
        what, fix = f"task {about.task.name!r} names no data", "add dataset_path"
        yield Problem(fields.place("task"), what, fix, serious=serious)
    reader, kwargs = config.dataset_path, config.dataset_kwargs or {}
    key = next((key for key in ("data_files", "data_file") if kwargs.get(key)), None)
    if key is None:
        return
    if reader not in FILE_READERS:
        alike = nearest(reader or "", FILE_READERS, 1, only_slips=True)
        if alike and "/" not in str(reader):
            what = f"no reader named {reader!r}, and a data set of the hub has no data_files here"
            yield Problem(fields.place("dataset_path"), what, f"did you mean {alike[0]!r}?", serious=serious)
        return
    files: Any = kwargs[key]
    folder = fields.origin("dataset_kwargs").folder
    for split, written in files.items() if isinstance(files, Mapping) else [("", files)]:
        place = fields.place("dataset_kwargs", key, *([str(split)] if split != "" else []))
        paths = written if isinstance(written, list | tuple) else [written]
        if not isinstance(split, str) or not all(isinstance(path, str) for path in paths):
            what = f"{key}: {split!r} must be the name of a split, with a file or a list of files"
            yield Problem(place, what, "write `data_files: {test: file.jsonl}`", serious=serious)
            continue
        for path in paths:
            try:
                if not path.startswith(("hf://", "http://", "https://")):
                    find_files(path, folder, None)
            except DataError as error:
                yield Problem(place, str(error), "put the file there, or correct its name", serious=serious)


def unread_keys(about: CheckedTask) -> Iterator[Problem]:
    """Find slips in the options of a file reader, and a `recipe` that no class reads."""
    config, fields, serious = about.task.config, about.task.fields, _is_refused(about.task)
    for key in config.dataset_kwargs or {} if config.dataset_path in FILE_READERS else ():
        alike = nearest(key, READER_OPTIONS, 1, only_slips=True)
        if key not in READER_OPTIONS and alike:
            place = fields.place("dataset_kwargs", key)
            yield Problem(place, f"dataset_kwargs has no key {key!r}", f"did you mean {alike[0]!r}?", serious=serious)
    if config.dataset_name and config.dataset_path in FILE_READERS:
        what = f"dataset_name has no effect: the reader {config.dataset_path!r} has no configurations"
        place, fix = fields.place("dataset_name", key=True), "leave it out; `data_files` names the files"
        # inherited, it is a note: files often stand in for the data set of an included task
        is_own = "task" in fields and place.file == fields.place("task").file
        yield Problem(place, what, fix, serious=serious and is_own)
    if config.dataset_path and config.custom_dataset is not None and "dataset_path" in fields:
        what, fix = "dataset_path has no effect beside custom_dataset, which returns the data", "leave one of them out"
        # a note: custom_dataset is often added to a task that has a path
        yield Problem(fields.place("dataset_path", key=True), what, fix, serious=False)
    if config.multiple_inputs and config.output_type == GENERATE and config.class_ is None:
        what = "multiple_inputs has no effect on generate_until: it is of choices that stand in the context"
        fix = "leave it out, or write `output_type: multiple_choice`"
        if "multiple_inputs" in fields:
            yield Problem(fields.place("multiple_inputs", key=True), what, fix, serious=serious)
    if config.recipe is not None and config.class_ is None:
        what, fix = "a recipe is read by a class, and the task has none", "write `class: !function module.Class`"
        yield Problem(fields.place("recipe", key=True), what, fix, serious=serious)


def missing_targets(about: CheckedTask) -> Iterator[Problem]:
    """Find metrics that compare generated text with the right answer, of a task that does not say which it is."""
    config = about.config
    if about.scored is None or config.doc_to_target is not None or config.output_type != GENERATE:
        return
    if callable(config.process_results) or config.class_ is not None or config.use_prompt is not None:
        return
    for metric in {metric.of: metric for step in about.scored.steps for metric in step.metrics}:
        is_ours = metric in METRICS and metric not in METRICS.added and metric not in WITHOUT_TARGET
        if is_ours and METRICS[metric].needs_golden is True:
            what = f"metric {metric!r} compares with the right answer, and the task has no doc_to_target"
            place = place_in(about.task, "metric_list" if "metric_list" in about.task.fields else "task")
            yield Problem(place, what, "add `doc_to_target:`, a column or a template", serious=_is_refused(about.task))


def lost_scores(about: CheckedTask) -> Iterator[Problem]:
    for note in about.task.notes:
        yield Problem(Place(f"task {about.task.name!r}"), note, "give the format a metric_list", serious=False)


def unsupported_prompt(about: CheckedTask) -> Iterator[Problem]:
    if about.config.use_prompt is not None:
        place = about.task.fields.place("use_prompt", key=True)
        yield Problem(place, "use_prompt is not supported", "write doc_to_text and doc_to_target")


def odd_selections(about: CheckedTask) -> Iterator[Problem]:
    """Note each pattern whose `group_select` looks like the number of a group."""
    for number, entry in enumerate(about.task.config.filter_list or ()):
        for position, step in enumerate(entry.filter):
            note = selection_note(step)
            if note:
                place = place_in(about.task, "filter_list", number, "filter", position, "group_select")
                yield Problem(place, note, "use 0 for the first match, -1 for the last", serious=False)


def unnamed_roles(about: CheckedTask) -> Iterator[Problem]:
    """Note further models that a run must name."""
    place = place_in(about.task, "scorer" if "scorer" in about.task.fields else "filter_list")
    steps = about.scored.steps if about.scored is not None else ()
    for role, model in models_of(roles_of(step.scorer) for step in steps).items():
        if model is None and role not in (about.settings.run.model_role or {}):
            fix = f"give --model_role {role}=… when it is run"
            yield Problem(place, f"the scorer asks a model in the role {role!r}", fix, serious=False)


def unknown_clusters(task: Task, columns: Sequence[str]) -> Iterator[Problem]:
    """Find a `cluster_by` column that the documents do not have."""
    column = task.config.cluster_by
    if column is not None and column not in columns:
        what = f"the documents have no column {column!r} for cluster_by"
        yield Problem(place_in(task, "cluster_by"), what, did_you_mean(column, columns))


def unknown_columns(about: CheckedTask) -> Iterator[Problem]:
    """Find filters and scorers that read a column which the documents do not have."""
    if about.scored is None:
        return
    known = about.columns
    for number, entry in enumerate(about.task.config.filter_list or ()):
        for position, step in enumerate(entry.filter):
            column = step.kwargs.get("choices") if step.function == "choice" else None
            if isinstance(column, str) and column.isidentifier() and column not in known:
                place = place_in(about.task, "filter_list", number, "filter", position, "choices")
                what = f"filter 'choice' reads the column {column!r}, which the documents do not have"
                yield Problem(place, what, did_you_mean(column, known))
    for scorer in (step.scorer for step in about.scored.steps):
        for column in scorer.needs_columns:
            if column not in known:
                what = f"scorer {scorer.name!r} reads the column {column!r}, which the documents do not have"
                yield Problem(place_in(about.task, "scorer"), what, did_you_mean(column, known))


WITHOUT_TARGET = ("bypass", "json_schema")
"""Metrics of ours that need no right answer: the schema may be a parameter."""
READER_OPTIONS = ("data_files", "data_file", "encoding", "delimiter", "sep", "field", "column_names", "names", "header")
"""The keys of `dataset_kwargs` that a reader of files reads; those of the datasets library are let be."""
TASK_CHECKS: tuple[Check[CheckedTask], ...] = (
    Check(Level.STATIC, unsent_media),
    Check(Level.STATIC, missing_functions),
    Check(Level.STATIC, lambda about: written_slips(about.task.fields)),
    Check(Level.STATIC, wrong_formats),
    Check(Level.STATIC, missing_data),
    Check(Level.STATIC, lost_scores),
    Check(Level.LOADED, unknown_sampler),
    Check(Level.LOADED, unread_keys),
    Check(Level.LOADED, unsupported_prompt),
    Check(Level.LOADED, odd_selections),
    Check(Level.LOADED, lambda about: misfit_functions(about.task, about.config)),
    Check(Level.BOUND, lambda about: unknown_clusters(about.task, about.columns)),
    Check(Level.BOUND, unknown_columns),
    Check(Level.BOUND, missing_targets),
    Check(Level.BOUND, lambda about: prompt_problems(about.task, about.config, about.columns, about.settings)),
    Check(
        Level.FIRST_DOCUMENTS,
        lambda about: target_problems(about.task, about.config, about.columns, about.settings, about.choices),
    ),
)
