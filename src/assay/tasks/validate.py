"""Everything that can be known to be wrong without a model, a network or running any helper code."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from assay.catalog.catalog import Catalog
from assay.catalog.functions import check_function, functions_in
from assay.catalog.selection import Spec
from assay.config.fields import Fields
from assay.errors import Place, Problem
from assay.tasks.manager import TaskManager
from assay.tasks.task import Task

TEMPLATES = ("description", "doc_to_text", "doc_to_target", "doc_to_choice", "gen_prefix")


def validate(manager: TaskManager, specs: "Iterable[Spec] | None" = None) -> list[Problem]:
    """What is wrong with the tasks asked for, or with all there are; serious problems and mere notes, by place."""
    catalog = manager.catalog
    everything = specs is None
    wanted: list[Spec] = [*catalog.index.named.values()] if specs is None else list(specs)
    found, problems = manager.attempt(wanted, thorough=True)
    problems += [problem for task in found["tasks"].values() for problem in check_task(task)]
    if everything:
        problems += _left_over(catalog)
    return sorted(dict.fromkeys(problems))


def check_task(task: Task) -> Iterator[Problem]:
    """What a task's functions and templates show without being run."""
    for function in functions_in(dict(task.fields)):
        problem = check_function(function)
        if problem is not None:
            yield problem
    yield from _check_templates(task.fields, (), task.fields)
    shots = task.fields.get("fewshot_config")
    if isinstance(shots, Mapping):
        yield from _check_templates(shots, ("fewshot_config",), task.fields)
    for note in task.notes:
        yield Problem(Place(f"task {task.name!r}"), note, "give the format a metric_list of its own", serious=False)


def _check_templates(values: Mapping[str, object], path: tuple[str, ...], fields: Fields) -> Iterator[Problem]:
    for key in TEMPLATES:
        text = values.get(key)
        wrong = template_error(text) if isinstance(text, str) and "{" in text else None
        if wrong:
            yield Problem(fields.place(*path, key), f"{key} is not a valid template: {wrong}", "correct the template")


@cache
def template_error(text: str) -> str | None:
    """What keeps a text from being a Jinja template."""
    from jinja2 import Environment, TemplateSyntaxError

    try:
        Environment(autoescape=False).parse(text)  # nothing is rendered, and prompts are not HTML
    except TemplateSyntaxError as error:
        return f"{error.message} (line {error.lineno} of the template)"
    return None


def _left_over(catalog: Catalog) -> Iterator[Problem]:
    """Files that nobody asks for by name: the broken ones, those with a name that is taken, templates without users."""
    index = catalog.index
    for entry in index.entries():
        if entry.kind == "broken":
            _, problems = catalog.read(entry, thorough=True)
            yield from problems
        elif entry.kind == "template" and entry.path not in index.included:
            yield Problem(Place(entry.path), "is neither task nor group, and nothing includes it", "", serious=False)
    for clash in index.clashes:
        yield clash.problem()
