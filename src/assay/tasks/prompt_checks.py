"""Prompt fields against the data: what names a column that is not there is refused, and not sent as a text.

A text without markup is a column where the data has one of that name, and else itself. A sentence, a digit, punctuation
and nothing at all are texts that tasks mean; a lone word is nearly always the name of a column.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from assay.config.fields import Fields
from assay.config.option import YAMLValue
from assay.config.task import TaskConfig
from assay.dialect import Dialect
from assay.errors import ConfigError, Place, Problem, nearest, placed_error
from assay.records import Function, Sample
from assay.samples.data import Split, columns_of
from assay.samples.fewshot import TooFewExamples
from assay.samples.prompt import InvalidTemplate, RenderError, Row, UndefinedVariable, is_template, template
from assay.samples.variables import required_variables
from assay.scoring.results import ResultBuilder
from assay.signatures import can_take, is_async, unreturned
from assay.tasks.settings import Settings
from assay.tasks.task import Task, task_dialect

Slip = tuple[str, str]
"""A problem and its fix."""
LEAST = 3
"""Minimum length of a name in braces: `{a}` and `{x}` are sets and formulas. Braces mean much else, too: LaTeX, JSON, a place
for the model to fill in. Only a name that is a column's, or nearly, is a slip."""

_BRACES = re.compile(r"(?<![\w\\{}^])\{\s*(([A-Za-z_]\w*)(?:\.\w+|\[[^\]\s{}]+\])*)\s*\}(?!\})")
_MARKUP = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_FORMULA = re.compile(r"[\\$^]")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TERM = r"""(?:[A-Za-z_]\w*(?:\.\w+|\[[^\]\s]+\])*(?:\s*\|\s*\w+(?:\([^()]*\))?)*|"[^"]*"|'[^']*')"""
_EXPRESSION = re.compile(rf"{_TERM}(?:\s*[+~]\s*{_TERM})*")
_OF_EXPRESSION = re.compile(r"""(?:^|[+~])\s*([A-Za-z_]\w*)""")
_FUNCTION = re.compile(r"([A-Za-z_]\w*)(?:\.[A-Za-z_]\w*)+")
MAX_COMPARED = 1 << 28
"""Characters of equal prompts after which no more are compared."""
LOOKED_FURTHER = 1000
"""Documents that are tried where none of those can be asked: a column may be absent from the first."""
QUESTION_KEYS = ("doc_to_text", "doc_to_choice", "gen_prefix", "description")


def prompt_problems(
    task: Task,
    config: TaskConfig,
    columns: Collection[str],
    settings: Settings,
    keys: Sequence[str] = QUESTION_KEYS,
) -> Iterator[Problem]:
    """Find questions, choices and prefixes that name a column which the documents do not have."""
    for path in _paths(task, config, keys, settings):
        yield from _problems(task, path, _written(task, config, path), columns)


def target_problems(
    task: Task, config: TaskConfig, columns: Collection[str], settings: Settings, choices: YAMLValue
) -> Iterator[Problem]:
    """Find slips in targets. A choice may be a single word; a task with `process_results` may not use its target."""
    known = [str(choice) for choice in choices] if isinstance(choices, list | tuple) else []
    for path in _paths(task, config, ("doc_to_target",), settings):
        text = _written(task, config, path)
        unused = config.process_results is not None and not config.num_fewshot
        if not unused and text not in known:
            yield from _problems(task, path, text, columns)


def check_right_choices(task: Task, reading: ResultBuilder, first: Sequence[Sample]) -> None:
    """Refuse a task of which none of the first right answers is a choice: every document would be asked, and fail."""
    problems = []
    for sample in first:
        try:
            reading.gold(sample)
        except (ValueError, TypeError) as error:
            problems.append(str(error))
    if first and len(problems) == len(first):
        fix = "give the index of a choice, or its text"
        raise placed_error(RenderError, Problem(_place(task, ("doc_to_target",)), f"doc_to_target: {problems[0]}", fix))


def explained(task: Task, error: RenderError, docs: Iterable[Row], columns: Collection[str]) -> Problem:
    """The problem that keeps every document from being asked, with its place; `docs` are the first of them."""
    if error.problem is not None:
        return error.problem
    if isinstance(error, UndefinedVariable):
        return _undefined(task, error, next(iter(docs), {}), columns)
    if isinstance(error, TooFewExamples):
        place = task.fields.place("num_fewshot") if "num_fewshot" in task.fields else Place("num_fewshot")
        return Problem(place, str(error), "ask for fewer, or name a split with more of them as fewshot_split")
    named = [
        key for key in TEMPLATES if str(error).startswith(key) or f"template {task.fields.get(key)!r}" in str(error)
    ]
    other = "doc_to_target" if "index of a choice" in str(error) else "doc_to_text"
    return Problem(_place(task, (named[0] if named else other,)), str(error), "correct it")


def unaskable(task: Task, error: RenderError, docs: Split, settings: Settings) -> Exception:
    """The error about documents that cannot be asked: a column that none of them has is a mistake in the file."""
    problem = explained(task, error, docs, columns_of(docs))
    if isinstance(error, TooFewExamples) and settings.run.num_fewshot is not None:
        problem = replace(problem, place=Place("--num_fewshot"))
    breaks_alone = task_dialect(task, settings.run.compat).breaks_unaskable_tasks
    if not breaks_alone and is_everywhere_undefined(error, islice(docs, LOOKED_FURTHER)):
        return ConfigError([problem])
    return placed_error(RenderError, problem)


def is_everywhere_undefined(error: RenderError, docs: Iterable[Row]) -> bool:
    """Whether a template names a variable, or an attribute, that none of these documents has."""
    return isinstance(error, UndefinedVariable) and not any(error.name in doc for doc in docs)


def _undefined(task: Task, error: UndefinedVariable, doc: Row, columns: Collection[str]) -> Problem:
    name = error.name
    path = _path_of(task, error)
    place = task.fields.origin(str(path[0])).word_place(path, name) if path else _place(task, ("doc_to_text",))
    key = f"{next((str(step) for step in reversed(path) if isinstance(step, str)), 'a text of its format')}: "
    owner = re.search(rf"([\w.]+)(?:\.|\[['\"]){re.escape(name)}\b", error.text)
    if owner is not None and name not in required_variables(error.text):
        value: Any = doc
        for step in owner[1].split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        has = f"; it has: {_some([*map(str, value)])}" if isinstance(value, Mapping) else ""
        return Problem(place, f"{key}{owner[1]!r} has no {name!r}{has}", _meant(name, value if has else ()))
    if name not in required_variables(error.text):
        return Problem(place, f"{key}no {name!r} in what is read there", "correct the name")
    inner = re.search(r"\bdoc\.(\w+)", error.text) if name == "doc" else None
    if inner is not None:
        fix = f"write {{{{{(nearest(inner[1], columns, count=1) or [inner[1]])[0]}}}}}: columns are named alone"
    else:
        fix = _meant(name, columns)
    return Problem(place, f"{key}the documents have no column {name!r}; they have: {_some(columns)}", fix)


def _meant(name: str, options: Collection[str]) -> str:
    near = nearest(name, map(str, options), count=1)
    return (
        f"did you mean {near[0]!r}?" if near else f"correct it, or write {{{{ {name} | default('') }}}} if some lack it"
    )


def _path_of(task: Task, error: UndefinedVariable) -> tuple[str | int, ...]:
    """The path of the text that has the variable: of the template itself, or of the text that a format put into it."""
    word = re.compile(rf"\b{re.escape(error.name)}\b")
    texts = [(path, text) for path, text in _texts(dict(task.fields), ()) if is_template(text) and word.search(text)]
    return next((path for path, text in texts if text == error.text), texts[0][0] if texts else ())


def _texts(value: YAMLValue, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every text in the prompt fields of a task, its examples and its formats."""
    named = [step for step in path if isinstance(step, str)]
    if isinstance(value, str) and named[-1] in (*TEMPLATES, *FORMAT_TEXTS):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _texts(inner, (*path, number))


def equal_prompts(task: Task, samples: Iterable[Sample], dialect: Dialect) -> Problem | None:
    """Whether all documents are asked the same: two or more with equal prompts and choices."""
    first: Sample | None = None
    count = size = 0
    for sample in samples:
        if first is None:
            first, size = sample, len(str(sample.requests[:1])) * len(sample.requests)
        elif sample.requests != first.requests or count * size > MAX_COMPARED:
            return None
        count += 1
    if count < 2:
        return None
    what = f"all {count} documents are asked the same: their prompts and choices are equal"
    fix = "name a column in doc_to_text; to ask one question several times, write `repeats`"
    return Problem(_place(task, ("doc_to_text",)), what, fix, serious=not dialect.accepts_equal_prompts)


CALLED: Mapping[str, Sequence[str]] = {
    "doc_to_text": ("doc",), "doc_to_target": ("doc",), "doc_to_choice": ("doc",),
    "process_docs": ("dataset",), "process_results": ("doc", "results"), "samples": (),
}  # fmt: skip
"""The arguments that functions of prompt fields and data are called with, by position."""
MAY_YIELD = (CALLED["process_docs"], CALLED["samples"])
"""Those that may give rows one by one."""


def misfit_functions(task: Task, config: TaskConfig) -> list[Problem]:
    """Functions of the task that cannot be called as they will be, or that nothing would await."""
    problems: list[Problem] = []
    for path in [(key,) for key in CALLED] + [("fewshot_config", key) for key in CALLED]:
        function: Any = config if path[0] in task.fields else None
        for step in path:
            function = getattr(function, step, None)
        if callable(function):
            wrong = _misfit(function, CALLED[path[-1]])
        elif path[-1].startswith("process_") and function is not None and not isinstance(function, Function):
            wrong = f"{function!r:.40} is not a function", "name a function"
        else:
            wrong = None
        if wrong is not None:
            problems.append(Problem(task.fields.place(*path), f"{path[-1]}: {wrong[0]}", wrong[1]))
    return problems


def _misfit(function: Callable[..., Any], arguments: Sequence[str]) -> Slip | None:
    name = getattr(function, "__name__", type(function).__name__)
    shape = f"`def {name}({', '.join(arguments)})`"
    wrong = unreturned(function)
    if wrong is not None and (is_async(function) or arguments not in MAY_YIELD):
        return f"{name!r} {wrong[0]}", f"{wrong[1]}: {shape}"
    if not can_take(function, len(arguments)):
        return f"{name!r} cannot be called with {len(arguments)} arguments ({', '.join(arguments)})", f"write {shape}"
    return None


def _place(task: Task, path: Sequence[str]) -> Place:
    if path[0] in task.fields:
        return task.fields.place(*path)
    return task.fields.place("task") if "task" in task.fields else Place(f"task {task.name!r}, {'.'.join(path)}")


def _paths(task: Task, config: TaskConfig, keys: Sequence[str], settings: Settings) -> Iterator[tuple[str, ...]]:
    """The fields to look at: the task's, and those of its examples; none that is sent as it is written."""
    if settings.dialect.sends_mistakes_as_written:
        return
    tops = [(key,) for key in keys] + [("fewshot_config", key) for key in keys if config.num_fewshot]
    for path in tops:
        if path[0] not in task.fields or not task.fields.origin(path[0]).dialect.sends_mistakes_as_written:
            yield path


def _written(task: Task, config: TaskConfig, path: Sequence[str]) -> YAMLValue:
    """Return the value in the file, before a format changed it; of a task made in Python, that of its configuration."""
    if path[0] not in task.fields:
        value: Any = config
        for step in path:
            value = getattr(value, step, None)
        return value
    written: object = task.fields[path[0]]
    for step in path[1:]:
        written = written.get(step) if isinstance(written, Mapping) else None
    return written


def _problems(task: Task, path: Sequence[str], text: YAMLValue, columns: Collection[str]) -> Iterator[Problem]:
    place = _place(task, path)
    folder = task.fields.origin(path[0]).folder if path[0] in task.fields else None
    for wrong in _slips(path[-1], text, columns, folder):
        yield Problem(place, f"{path[-1]}: {wrong[0]}", wrong[1])
    if isinstance(text, str) and is_template(text):
        yield from _misspelt_variables(task, path, text, columns)


def _misspelt_variables(task: Task, path: Sequence[str], text: str, columns: Collection[str]) -> Iterator[Problem]:
    """Variables one slip away from a column, also in a branch that the first documents do not take."""
    for name in sorted(required_variables(text) - {*columns, *task.config.derived}):
        meant = _column(name, columns, exactly=len(name) <= LEAST)
        if meant is not None:
            place = task.fields.origin(path[0]).word_place(path, name) if path[0] in task.fields else _place(task, path)
            what = f"{path[-1]}: the documents have no column {name!r}; they have: {_some(columns)}"
            yield Problem(place, what, f"did you mean {meant!r}?")


def _slips(key: str, text: YAMLValue, columns: Collection[str], folder: str | None) -> Iterator[Slip]:
    """Yield the slips of a field: names in single braces in any of them, others only where a column is expected."""
    wrong: Slip | None = None
    if isinstance(text, Mapping | list | tuple):
        wrong = unfilled_items(list(text.values() if isinstance(text, Mapping) else text), columns)
    elif isinstance(text, str):
        wrong = _slip_of_text(key, text, columns, folder)
    if wrong is not None:
        yield wrong


def _slip_of_text(key: str, text: str, columns: Collection[str], folder: str | None) -> Slip | None:
    is_asked = key.startswith("doc_to_")
    wrong = unfilled(text, columns, least=1 if is_asked else LEAST)
    if wrong is None and (is_asked or (key == "gen_prefix" and _is_misspelt_prefix(text, columns))):
        wrong = _forgotten_function(text, columns, folder) or slip(text, columns)
    return wrong


def _forgotten_function(text: str, columns: Collection[str], folder: str | None) -> Slip | None:
    """`utils.text` without its `!function`: there is such a file beside that of the task."""
    match = _FUNCTION.fullmatch(text.strip())
    if match is None or folder is None or text in columns or match[1] in columns:
        return None
    if not Path(folder, f"{match[1]}.py").is_file():
        return None
    return f"{text!r} is a text, not a function", f"write !function {text.strip()}"


def slip(text: str, columns: Collection[str]) -> Slip | None:
    """Return the slip in a text that should name a column; None where it may be meant.

    >>> slip("questoin", ["question", "answer"])[0]
    "the documents have no column 'questoin'; they have: question, answer"
    >>> slip("Answer the question.", ["question"]), slip("", ["question"]), slip("question", ["question"])
    (None, None, None)
    """
    bare = text.strip()
    if not bare or text in columns or is_template(text):
        return None
    names = _OF_EXPRESSION.findall(bare) if _EXPRESSION.fullmatch(bare) else []
    if names and bare not in columns and not _WORD.fullmatch(bare) and all(name in columns for name in names):
        return f"{text!r} is a text, not a column", f"write {_quoted('{{' + bare + '}}')}"
    near = [column for column in columns if _folded(column) == _folded(bare)] or nearest(bare, columns, count=1)
    is_same = bool(near) and _folded(near[0]) == _folded(bare)
    if _WORD.fullmatch(bare) is None and not is_same and not _is_close(text, columns):
        return None
    what = f"the documents have no column {text!r}; they have: {_some(columns)}"
    meant = f"did you mean {near[0]!r}? " if near else ""
    return what, f"{meant}If the text itself is meant, write \"{{{{ '{text}' }}}}\""


def _folded(name: str) -> str:
    """A name as it is compared: `Question Text`, `question-text` and `question_text` are one."""
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())


def _quoted(text: str) -> str:
    return f"'{text}'" if '"' in text else f'"{text}"'


def _is_close(text: str, columns: Collection[str]) -> bool:
    """Whether a text of more than one word is like a column with such a name; a sentence is like none."""
    spaced = " " in text.strip()
    alike = [column for column in columns if (" " in column.strip()) == spaced]
    return text[-1] not in ".:?!\n" and bool(nearest(text.strip(), alike, count=1, only_slips=True))


def _is_misspelt_prefix(text: str, columns: Collection[str]) -> bool:
    """Whether the first words of an answer are a slip of a column: "Answer" is a good beginning, "answr" is not."""
    return bool(_WORD.fullmatch(text)) and text.islower() and bool(nearest(text, columns, count=1, only_slips=True))


def _some(columns: Collection[str]) -> str:
    names = list(columns)
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def unfilled(text: str, columns: Collection[str], least: int = LEAST) -> Slip | None:
    """Return the slip in a text that has a column in single braces; None where it has none.

    In a template only a column that it does not use otherwise is taken for a slip, and only one that is written rightly.
    Names of less than `LEAST` letters must have at least `least`, in a text without a formula.

    >>> unfilled("Q: {questoin}", ["question"])[1]
    "did you mean {{question}}? If the braces themselves are meant, write {{ '{questoin}' }}"
    >>> unfilled("{x | x > 3} and \\frac{abc}{abc}", ["abc", "x"]), unfilled("{{question}} {question}", ["question"])
    (None, None)
    """
    if text in columns:
        return None
    used = " ".join(_MARKUP.findall(text)) if is_template(text) else ""
    for whole, name in _BRACES.findall(_MARKUP.sub(" ", text)):
        if len(name) < LEAST and (len(name) < least or used or _FORMULA.search(text)):
            continue
        meant = _column(name, columns, exactly=bool(used) or len(name) < LEAST)
        if meant is None or re.search(rf"\b{re.escape(meant)}\b", used):
            continue
        fix = f"write {{{{{whole}}}}}" if meant == name else f"did you mean {{{{{meant}{whole[len(name) :]}}}}}?"
        stop = "; if" if meant == name else " If"
        return (
            f"{{{whole}}} is not filled in",
            f"{fix}{stop} the braces themselves are meant, write {{{{ '{{{whole}}}' }}}}",
        )
    return None


def unfilled_items(items: Sequence[YAMLValue], columns: Collection[str]) -> Slip | None:
    """Return the slip in the items of a list, which are never filled in.

    >>> unfilled_items(["{one}", "{two}"], ["one", "two"])
    ('{one} is not filled in', 'write one template that gives the list: "{{[one, two]}}"')
    """
    slips = [unfilled(item, columns) if isinstance(item, str) else None for item in items]
    wrong = next((slip for slip in slips if slip is not None), None)
    if wrong is None:
        return None
    named = [
        _BRACES.fullmatch(item) if isinstance(item, str) and slip else None
        for item, slip in zip(items, slips, strict=True)
    ]
    listed = ", ".join(one[1] if one else repr(item) for one, item in zip(named, items, strict=True))
    return wrong[0], f'write one template that gives the list: "{{{{[{listed}]}}}}"'


def _column(name: str, columns: Collection[str], *, exactly: bool) -> str | None:
    """The column that a name is, or is one slip away from."""
    if name in columns or exactly:
        return name if name in columns else None
    return next((column for column in columns if is_one_slip(name.casefold(), column.casefold())), None)


def is_one_slip(one: str, other: str) -> bool:
    """Whether one letter less, more, other or in another place makes a word of another; or nothing at all.

    >>> [is_one_slip("questoin", word) for word in ("question", "questoin", "questoins", "quest")]
    [True, True, True, False]
    """
    if abs(len(one) - len(other)) > 1:
        return False
    start = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    a, b = one[start:], other[start:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])


TEMPLATES = ("description", "doc_to_text", "doc_to_target", "doc_to_choice", "gen_prefix")
FORMAT_TEXTS = ("instruction", "question_prefix", "answer_instruction", "answer_prompt", "gen_prefix")


def check_templates(task: Task, config: TaskConfig) -> None:
    """Refuse a task with an invalid template; other tasks are not affected."""
    texts = [getattr(each, key, None) for each in (config, config.fewshot_config) for key in TEMPLATES]
    wrong = next((what for text in texts if isinstance(text, str) and (what := template_error(text))), None)
    if wrong is None:
        return
    raise placed(task, wrong)


def placed(task: Task, wrong: str) -> RenderError:
    """Return the error about an invalid template of a task, with its place."""
    known = [*written_slips(task.fields), *format_slips(task.fields)]
    problem = known[0] if known else Problem(Place(f"task {task.name!r}"), _invalid("one of its texts", wrong))
    return placed_error(RenderError, problem)


def written_slips(fields: Fields) -> Iterator[Problem]:
    """Yield the problems of a task's texts, and of its examples', that are invalid templates."""
    yield from _template_slips(fields, (), TEMPLATES, fields)
    yield from _template_slips(fields.get("fewshot_config"), ("fewshot_config",), TEMPLATES, fields)


def format_slips(fields: Fields) -> Iterator[Problem]:
    """Yield the same problems of the formats in its file."""
    said = fields.get("formats")
    yield from _template_slips(said, ("formats",), FORMAT_TEXTS, fields)
    for name, entry in said.items() if isinstance(said, Mapping) else ():
        yield from _template_slips(entry, ("formats", name), FORMAT_TEXTS, fields)


def _template_slips(
    values: YAMLValue, path: tuple[str, ...], keys: tuple[str, ...], fields: Fields
) -> Iterator[Problem]:
    if not isinstance(values, Mapping):
        return
    for key in keys:
        text = values.get(key)
        wrong = template_error(text) if isinstance(text, str) else None
        if wrong:
            yield Problem(fields.place(*path, key), _invalid(key, wrong), "correct the template")


def _invalid(what: str, wrong: str) -> str:
    return f"{what} is not a valid template: {wrong}"


@cache
def template_error(text: str) -> str | None:
    """Return why a text is an invalid template; None for a valid one."""
    try:
        template(text)
    except InvalidTemplate as error:
        return error.reason
    return None
