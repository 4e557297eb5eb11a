"""A task: its configuration, where it belongs, and how it scores instances that it is handed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from assay.config.decode import decode
from assay.config.fields import Fields, Origin
from assay.config.group import GroupRules
from assay.config.kinds import KINDS, Definition, kind_key
from assay.config.option import YAMLMapping, yaml_keys
from assay.config.task import MEDIA, TaskConfig, media_problem, unsent_media
from assay.dialect import Dialect, dialect_of, join
from assay.errors import ConfigError, Place, Problem
from assay.groups import Group, TagGroup
from assay.groups.group import TaskT
from assay.records import Function, MetricValue
from assay.scoring.results import HookInput, Instance, StepInput, sort_instances
from assay.scoring.scorer import has_methods_set

if TYPE_CHECKING:
    from assay.config.task import FilterConfig
    from assay.scoring.helper_code import Helpers
    from assay.scoring.scorer import Scorer
    from assay.tasks.instances import InstanceScoring

InstanceScores = dict[tuple[str, str], list[Any]]
"""By metric and filter, the scores of documents in their order: a number, a list of several answers', or a failure."""


def task_dialect(task: "Task", compat: str | None) -> Dialect:
    """Return the rules that a task is read and scored by in a run with this `--compat`."""
    return join(dialect_of(compat), task.fields.dialect)


def set_group_rules(group: Group[TaskT], dialect: Dialect) -> None:
    """Write into a group's configuration how its numbers are computed, by the dialect of the run and that of the group's file."""
    dialect = join(dialect, group.fields.dialect)
    entries = group.config.aggregate_metric_list or ()
    own_code = group.computes_own_numbers or group.config.group_scorer is not None
    # lm-eval has means alone: what else a group computes is computed as always
    is_lm_evals = not own_code and all(entry.aggregation == "mean" for entry in entries)
    rules = GroupRules(
        missing="skip" if dialect.drops_members_without_metric else "error",
        row_names="any" if dialect.accepts_any_row_name else "checked",
        equal_rows="last" if dialect.keeps_last_of_equal_rows else "error",
        means="pooled" if dialect.averages_groups_as_lm_eval and is_lm_evals else "exact",
    )
    if rules != group.config.rules:  # another configuration makes another aggregator, and a user may hold this one
        group.config = replace(group.config, rules=rules)


def not_a_task_class(task: "Task") -> Problem:
    """The problem of a `class:` that is none of a task."""
    kind: Any = task.config.class_
    fix = "derive it from assay.GenerateTask, assay.MultipleChoiceTask, or lm_eval.api.task.ConfigurableTask"
    name = kind.__name__ if isinstance(kind, type) else getattr(kind, "name", repr(kind))
    return Problem(class_place(task), f"{name!r} is not a task class", fix)


def place_in(task: "Task", *path: str | int) -> Place:
    """Return the place of an entry of the task's file; in words where it is written in none."""
    steps = [step for step in path if step != ""]
    if str(path[0]) in task.fields:
        return task.fields.place(*steps)
    return Place(f"task {task.name!r}, {'.'.join(map(str, steps))}")


def class_place(task: "Task") -> Place:
    """The place of a task's `class:`, also of a class that is given in Python."""
    written = task.config.class_
    if isinstance(written, Function):
        return written.place
    return task.fields.place("class") if "class" in task.fields else Place(f"task {task.name!r}")


class Task:
    """One evaluation, ready to be run. `name` is how results call it; `config.task` how its file does.

    A class of the user's, `class:` in a file, may override `_create_result`, `_compute_metric` and `_process_with_custom_fn`.
    """

    OUTPUT_TYPE: ClassVar[str | None] = None
    """The output type of every task of the class; None where the configuration says it."""
    sort_instances = staticmethod(sort_instances)
    helpers: "Helpers | None" = None
    """How helper code is reached, where a run makes an object of the class."""

    def __init__(self, config: TaskConfig, *, name: str | None = None, fields: Fields | None = None) -> None:
        self.config = config
        self.name = name if name is not None else config.task
        self.alias = config.task_alias or self.name
        self.fields = fields if fields is not None else Fields({}, {})
        self.notes: tuple[str, ...] = ()
        self.format: str | None = None
        """The format that was applied to its configuration."""
        self.definition: Definition | None = None
        """The content of its file, for a task of another kind than plain YAML: a graph."""
        self._groups: list[Group[Task]] = []
        self._tags: list[str] = list(config.tag)
        self._instances: list[Instance] = []
        self._sample_scores: InstanceScores = {}

    @cached_property
    def _scoring(self) -> "InstanceScoring":
        from assay.tasks.instances import InstanceScoring

        return InstanceScoring(self, self.helpers)

    @property
    def set_keys(self) -> Mapping[str, Any]:
        """Keys of its configuration in whose place a user has set an attribute, or a method on the scorer."""
        made = vars(self).get("_scoring")
        return {**({"scorer": made.scorer} if made is not None and has_methods_set(made.scorer) else {}), **self._set}

    @property
    def _set(self) -> dict[str, Any]:
        """What was set; `__init__` of a class as in seed 001 sets it before anything else."""
        keys: dict[str, Any] = vars(self).setdefault("_set_keys", {})
        return keys

    @property
    def _scorer(self) -> "Scorer":
        """Its scorer; one that is set takes the place of that of its configuration, also in runs."""
        if "scorer" in self._set:
            return self._set["scorer"]  # type: ignore[no-any-return]  # what a user set
        return self._scoring.scorer

    @_scorer.setter
    def _scorer(self, scorer: "Scorer") -> None:
        self._set["scorer"] = scorer
        vars(self).pop("_scoring", None)

    @property
    def _filters(self) -> "Sequence[FilterConfig]":
        """Its filters, each with metrics that can be called; those that are set take their place, also in runs."""
        if "filter_list" in self._set:
            return self._set["filter_list"]  # type: ignore[no-any-return]  # what a user set
        return self._scoring.filters

    @_filters.setter
    def _filters(self, filters: "Sequence[FilterConfig]") -> None:
        self._set["filter_list"] = tuple(filters)
        vars(self).pop("_scoring", None)

    def process_instances(self, instances: HookInput = None) -> InstanceScores:
        """The scores of instances, which are those of the task where none are given. Filters are applied where they were not."""
        documents = self.sort_instances(list(instances or self._instances))
        made = vars(self).get("_scoring")
        if made is not None and has_methods_set(made.scorer):
            self._scorer = made.scorer  # its methods are looked up where the loop is made
        processes = self.config.process_results is not None
        scores = self._process_with_custom_fn(documents) if processes else self._scoring.scores(documents)
        self._sample_scores = scores
        return scores

    def compute_aggregations(self, sample_scores: InstanceScores | None = None) -> dict[tuple[str, str], MetricValue]:
        """One number for each metric and filter: by the metric's own aggregation, the mean where it has none."""
        return self._scoring.aggregated(self._sample_scores if sample_scores is None else sample_scores)

    def _process_with_custom_fn(self, instances_by_doc: HookInput) -> InstanceScores:
        return self._scoring.scores(instances_by_doc)

    def _create_result(self, instances: HookInput, filter_name: str) -> StepInput:
        return self._scorer._create_result(instances, filter_name)

    def _compute_metric(self, result: StepInput, metric: HookInput) -> MetricValue:
        return self._scorer._compute_metric(result, metric)

    @classmethod
    def from_config(cls, config: YAMLMapping, *, name: str | None = None) -> "Task":
        """Return a task from a mapping with the keys of a YAML file, checked as strictly."""
        return cls.from_fields(Fields.of(config, Origin("configuration")), name=name)

    @classmethod
    def from_fields(cls, fields: Fields, *, name: str | None = None) -> "Task":
        problems: list[Problem] = []
        config = decode(TaskConfig, fields, problems, known=("group", "task_list"))
        if config is None or any(problem.serious for problem in problems):
            raise ConfigError(problems)
        return cls(config, name=name, fields=fields)

    @classmethod
    def from_kind(cls, fields: Fields, *, name: str, problems: list[Problem] | None = None) -> "Task":
        """A task of one of KINDS. Keys that groups set for all of their tasks and the kind does not have are noted.

        What is wrong with it is raised, or added to the `problems`: then as much of it as is right can be checked, too.
        """
        marking = kind_key(fields)
        assert marking is not None
        kind, wrong = KINDS[marking], list[Problem]()
        keys, own = yaml_keys(kind.config), fields.origin(marking).source
        foreign = [key for key in fields if key not in keys and fields.origin(key).source is not own]
        if "class" in foreign:
            what, fix = f"a {kind.name} cannot be a class: {name}", "leave `class` out of what is said of this task"
            raise ConfigError.at(fields.place("class"), what, fix)
        definition = kind.read(fields.without(*foreign), wrong)
        if definition is None or (problems is None and any(problem.serious for problem in wrong)):
            raise ConfigError(wrong)
        if problems is not None:
            problems += wrong
        task = cls(definition.task_config(name), name=name, fields=fields)
        task.definition = definition
        task.notes = tuple(f"{key} has no effect on a {kind.name}" for key in foreign)
        return task

    def __repr__(self) -> str:
        return f"Task({self.name!r})"

    @property
    def task_name(self) -> str:
        return self.name

    @property
    def unsent(self) -> Problem | None:
        """The reason why a readable task cannot be run: it would send more than text."""
        known = {key: getattr(self.config, key) for key in MEDIA}
        key = unsent_media(known)
        if key is None:
            return None
        return media_problem(key, self.fields.place(key) if key in self.fields else Place(f"task {self.name!r}"))

    @property
    def output_type(self) -> str:
        marking = kind_key(self.definition.fields) if self.definition is not None else None
        return KINDS[marking].name if marking is not None else self.config.output_type

    @property
    def version(self) -> str:
        return str((self.config.metadata or {}).get("version", "N/A"))

    @property
    def groups(self) -> list[Group["Task"]]:
        """The groups this task was added to."""
        return list(self._groups)

    @property
    def tags(self) -> list[str]:
        return list(self._tags)

    def add_to_group(self, group: Group["Task"]) -> None:
        """Join a group; both know of it afterwards. Joining twice is joining once."""
        if any(known is group for known in self._groups):
            return
        if not isinstance(group, TagGroup):  # a tag is noted as a tag
            self._groups.append(group)
        group.add_child(self)

    def add_tag(self, tag: str) -> None:
        if tag not in self._tags:
            self._tags.append(tag)
