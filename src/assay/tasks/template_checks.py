"""Texts with markup that are no templates: found before anything is asked, at the place where they are written."""

from collections.abc import Iterator, Mapping
from functools import cache

from assay.config.fields import Fields
from assay.config.task import TaskConfig
from assay.errors import Place, Problem
from assay.samples.templates import InvalidTemplate, RenderError, template
from assay.tasks.task import Task

TEMPLATES = ("description", "doc_to_text", "doc_to_target", "doc_to_choice", "gen_prefix")
FORMAT_TEXTS = ("instruction", "question_prefix", "answer_instruction", "answer_prompt", "gen_prefix")


def check_templates(task: Task, config: TaskConfig) -> None:
    """Refuse a task of which a text is no template; it troubles that task alone."""
    made = [getattr(each, key, None) for each in (config, config.fewshot_config) for key in TEMPLATES]
    wrong = next((what for text in made if isinstance(text, str) and (what := template_error(text))), None)
    if wrong is None:
        return
    raise placed(task, wrong)


def placed(task: Task, wrong: str) -> RenderError:
    """The error about a text of a task that is no template, with the place where it is written."""
    known = [*written_slips(task.fields), *format_slips(task.fields)]
    return RenderError(str(known[0] if known else Problem(Place(f"task {task.name!r}"), _told("a text of it", wrong))))


def written_slips(fields: Fields) -> Iterator[Problem]:
    """What of a task's own texts, and of those of its examples, is no template."""
    yield from _slips(fields, (), TEMPLATES, fields)
    yield from _slips(fields.get("fewshot_config"), ("fewshot_config",), TEMPLATES, fields)


def format_slips(fields: Fields) -> Iterator[Problem]:
    """The same of the formats that its file has."""
    said = fields.get("formats")
    yield from _slips(said, ("formats",), FORMAT_TEXTS, fields)
    for name, entry in said.items() if isinstance(said, Mapping) else ():
        yield from _slips(entry, ("formats", name), FORMAT_TEXTS, fields)


def _slips(values: object, path: tuple[str, ...], keys: tuple[str, ...], fields: Fields) -> Iterator[Problem]:
    if not isinstance(values, Mapping):
        return
    for key in keys:
        text = values.get(key)
        wrong = template_error(text) if isinstance(text, str) else None
        if wrong:
            yield Problem(fields.place(*path, key), _told(key, wrong), "correct the template")


def _told(what: str, wrong: str) -> str:
    return f"{what} is not a valid template: {wrong}"


@cache
def template_error(text: str) -> str | None:
    """What keeps a text from being a template."""
    try:
        template(text)
    except InvalidTemplate as error:
        return error.reason
    return None
