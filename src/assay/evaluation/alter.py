"""Filters and metrics given on the command line, put into tasks in place of theirs or beside them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from assay.config.arguments import parse_arguments, parse_value
from assay.config.decode import decode
from assay.config.fields import Fields, Origin
from assay.config.source import Source
from assay.config.task import FilterConfig, FilterStep, MetricConfig, ScorerConfig
from assay.errors import ConfigError, Place, Problem
from assay.scoring.filters import DEFAULT, FILTERS
from assay.scoring.metrics.table import DEFAULTS
from assay.scoring.scorer import make_scorer
from assay.tasks.task import Task

R = TypeVar("R", FilterConfig, MetricConfig)
ENDS = ("take_first", "take_first_k", "noop")
"""Steps after which nothing is added: they say themselves how many answers are left."""


def parse_filter(written: str) -> FilterConfig:
    r"""The filter that `NAME=STEP:VALUE` means, VALUE being the step's first parameter; or an entry of filter_list.

    >>> [step.function for step in parse_filter(r"number=regex:(\d+)").filter]
    ['regex', 'take_first']
    """
    if written.lstrip().startswith("{"):
        return _decoded(FilterConfig, written, "--filter")
    name, equals, rest = written.partition("=")
    step, colon, value = rest.partition(":")
    if not equals or not name.strip() or not step.strip():
        fix = r"write NAME=STEP or NAME=STEP:VALUE, as in number=regex:(\d+); or an entry of filter_list, {name: …}"
        raise ConfigError([Problem(Place("--filter"), f"{written!r} is no filter", fix)])
    FILTERS.find(step.strip(), Place("--filter"))
    steps = [FilterStep(function=step.strip(), kwargs=_first_parameter(step.strip(), value) if colon else {})]
    if step.strip() not in ENDS:
        steps.append(FilterStep(function="take_first"))
    return FilterConfig(name=name.strip(), filter=tuple(steps))


def _first_parameter(step: str, value: str) -> dict[str, object]:
    parameters = list(FILTERS.accepts(FILTERS[step]).named.values())
    if not parameters:
        raise ConfigError([Problem(Place("--filter"), f"filter {step!r} has no parameter", f"write {step} alone")])
    return {parameters[0].name: value if parameters[0].annotation is str else parse_value(value)}


def parse_metric(written: str) -> MetricConfig:
    """The metric that `NAME` or `NAME:key=value,…` means; or an entry of metric_list.

    >>> parse_metric("exact_match:ignore_case=true").kwargs["ignore_case"]
    True
    """
    if written.lstrip().startswith("{"):
        return _decoded(MetricConfig, written, "--metric")
    name, _, rest = written.partition(":")
    if not name.strip():
        raise ConfigError([Problem(Place("--metric"), f"{written!r} is no metric", "write NAME or NAME:key=value")])
    given = {"metric": name.strip(), **parse_arguments(rest, "--metric")}
    return _checked(MetricConfig, Fields.of(given, Origin("--metric")))


def _decoded(record: type[R], written: str, name: str) -> R:
    source = Source(name, written.encode())
    if source.problems or not isinstance(source.value, Mapping):
        raise ConfigError(source.problems or [Problem(Place(name), f"{written!r} is no mapping", "write {name: …}")])
    return _checked(record, Fields.of(source.value, Origin(source)))


def _checked(record: type[R], fields: Fields) -> R:
    problems: list[Problem] = []
    made = decode(record, fields, problems)
    if made is None or problems:
        raise ConfigError(problems)
    return made


def altered(task: Task, filters: Sequence[FilterConfig], metrics: Sequence[MetricConfig]) -> Task:
    """The task with filters and metrics: one that has the name of its own takes its place, another is added."""
    if not filters and not metrics:
        return task
    config = task.config
    problem = _unalterable(task, metrics)
    if problem is not None:
        raise ConfigError([problem])
    named = (
        make_scorer(config.scorer, config, Place("scorer")) if isinstance(config.scorer, str | ScorerConfig) else None
    )
    own_filters = config.filter_list or (named.default_filters() if named is not None else None) or (DEFAULT,)
    own_metrics = config.metric_list if config.metric_list is not None or named is None else named.default_metrics()
    if own_metrics is None:
        own_metrics = tuple(MetricConfig(name=name) for name in DEFAULTS[config.output_type])
    fields = task.fields
    if filters:
        config = replace(config, filter_list=_merged(own_filters, filters))
        said = [_plain_filter(each) for each in config.filter_list or ()]
        fields |= Fields.of({"filter_list": said}, Origin("--filter"))
    if metrics:
        config = replace(config, metric_list=_merged(own_metrics, metrics))
        said = [_plain_metric(each) for each in config.metric_list or ()]
        fields |= Fields.of({"metric_list": said}, Origin("--metric"))
    made = Task(config, name=task.name, fields=fields)
    made.alias, made.notes = task.alias, task.notes
    return made


def _unalterable(task: Task, metrics: Sequence[MetricConfig]) -> Problem | None:
    place = Place(f"task {task.name!r}")
    if task.graph is not None:
        fix = "change graph_post_process in its file, or give another one: --with FILE"
        return Problem(place, "is a graph, which has neither filters nor metrics", fix)
    if task.config.class_ is not None:
        return Problem(place, "is a Python class, which says itself how it is scored", "leave it out with --tasks")
    if metrics and task.config.process_results is not None:
        fix = "change that function, or give the task without it in a file: --with FILE"
        return Problem(place, "computes its values in process_results, not by metrics", fix)
    return None


def _merged(own: Iterable[R], given: Iterable[R]) -> tuple[R, ...]:
    return tuple({**{each.name: each for each in own}, **{each.name: each for each in given}}.values())


def _plain_filter(config: FilterConfig) -> dict[str, Any]:
    steps = [{"function": step.function, **step.kwargs} for step in config.filter]
    own = config.metric_list
    more = {"metric_list": [_plain_metric(each) for each in own]} if own is not None else {}
    return {"name": config.name, "filter": steps, **more}


def _plain_metric(config: MetricConfig) -> dict[str, Any]:
    said = {key: getattr(config, key) for key in ("aggregation", "higher_is_better", "reduction")}
    return {"metric": config.name, **{key: value for key, value in said.items() if value is not None}, **config.kwargs}
