"""Formats: they rewrite the prompt fields of a task and set its output type."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from assay.config.decode import decode
from assay.config.fields import Fields
from assay.config.option import yaml_keys
from assay.config.task import (
    FewshotConfig,
    FilterConfig,
    FilterStep,
    FormatConfig,
    ListedChoices,
    MetricConfig,
    ScorerConfig,
    TaskConfig,
)
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.registry import Registry
from assay.samples.layout import PromptLayout, prompt_layout, prompt_parts

_GENERATE = FormatConfig(
    format="generate",
    output_type="generate_until",
    instruction="Given the following question and {{ _num_choices }} candidate answers ({{ _choice_list_and }}), "
    "choose the best answer.\n",
    answer_prompt='Your response should end with "The best answer is [answer_letter]", '
    "where [answer_letter] is one of {{ _choice_list_or }}.",
    gen_prefix="The best answer is",
    target_delimiter="\n",
    scorer="first_token",
    generation_kwargs={
        "until": ["\nQuestion:", "\n\nGiven the following question"],  # a chat answer has lines, and reasons first
        "do_sample": False,
        "temperature": 0.0,
        "max_gen_toks": 256,
    },
)
LM_EVALS_GENERATE = replace(
    _GENERATE,
    scorer=ScorerConfig(type="first_token", kwargs={"whole": True}),
    generation_kwargs={"until": ["\n"], "do_sample": False, "temperature": 0.0, "max_gen_toks": 32},
)
"""`generate` as lm-eval 0.5 has it: the first line, compared as a whole."""

_FINAL_ANSWER = FilterConfig(
    name="final-answer",
    filter=(
        FilterStep(
            function="regex",
            kwargs={
                "regex_pattern": r"(?i)final answer\W*(?:is\b|:)[\s:*_]*(?:\$|\\[([]|\\boxed|\\text|\{)*"
                r"((?:(?!final answer).)*(?!final answer)\S)",
                "group_select": -1,
            },
        ),
        FilterStep(function="take_first"),
    ),
)

_COT = replace(
    _GENERATE,
    format="cot",
    instruction="Given the following problem, reason step by step to find the final answer.\n",
    question_prefix="Problem: ",
    choice_labels=None,
    answer_prompt='Your response should end with "The final answer is [answer]", '
    "where [answer] is the answer to the problem.",
    gen_prefix=None,
    scorer=None,  # lm-eval 0.5 compares the whole text here, reasoning included
    filter_list=(_FINAL_ANSWER,),
    metric_list=(MetricConfig(name="exact_match", kwargs={"ignore_case": True, "ignore_punctuation": True}),),
    generation_kwargs={"until": ["Problem:"], "do_sample": False, "temperature": 0.0, "max_gen_toks": 1024},
)


def _as_format(name: str, thing: object) -> FormatConfig:
    """A format, or a function without parameters that returns one."""
    config = thing() if callable(thing) else thing
    if not isinstance(config, FormatConfig):
        raise TypeError(f"format {name!r} must be a FormatConfig, or a function that returns one, got {config!r:.60}")
    if config.type is not None:
        raise ValueError(
            f"format {name!r} starts from nothing: leave `type={config.type!r}` out, and give each key it has"
        )
    return replace(config, format=name)


FORMATS: Registry[FormatConfig, FormatConfig] = Registry(
    "format",
    {
        "mcqa": FormatConfig(format="mcqa"),
        "cloze": FormatConfig(format="cloze", choice_labels=None),
        "generate": _GENERATE,
        "cot": _COT,
    },
    group="assay.formats",
    adopt=_as_format,
)
"""The built-in formats; YAML files and plug-ins add theirs."""


@dataclass(frozen=True, slots=True)
class FormattedTask:
    """A task in a format, with notes on ignored settings."""

    config: TaskConfig
    notes: tuple[str, ...]


def apply_format(config: TaskConfig, format: FormatConfig, *, any_output: bool = False) -> FormattedTask:
    """Apply a format to a task. The task's scoring settings stay where they fit the output type.

    `any_output`: the task names no output type, so its scoring settings always fit.
    """
    place = Place(f"task {config.task!r} in format {format.format!r}")
    fits = any_output or config.output_type == format.output_type
    if config.process_results is not None and not fits:
        what = f"its process_results expects {config.output_type}, the format asks for {format.output_type}"
        raise ConfigError.at(place, what, "use a format with the same output_type")
    layout = _layout(config, format, place)
    examples = _example_layout(config, format, place)
    changed = replace(
        config,
        doc_to_text=layout.doc_to_text,
        doc_to_choice=layout.doc_to_choice,
        doc_to_target=layout.doc_to_target,
        derived={**layout.derived, **(examples.derived if examples else {})},
        fewshot_config=_fewshot_config(config.fewshot_config, examples),
        listed=_listed(config, format),
        output_type=format.output_type,
        target_delimiter=format.target_delimiter,
        fewshot_delimiter=format.fewshot_delimiter,
        gen_prefix=format.gen_prefix if format.gen_prefix is not None else config.gen_prefix,
        scorer=format.scorer if format.scorer is not None else config.scorer,
        metric_list=format.metric_list if format.metric_list is not None else config.metric_list if fits else None,
        filter_list=format.filter_list if format.filter_list is not None else config.filter_list if fits else None,
        generation_kwargs=_generation_kwargs(config, format),
    )
    return FormattedTask(changed, _ignored_notes(config, changed, format))


def _listed(config: TaskConfig, format: FormatConfig) -> ListedChoices | None:
    if config.doc_to_choice is None or format.output_type != "generate_until":
        return None
    return ListedChoices(config.doc_to_choice, format.choice_labels)


def choose_format(
    fields: Fields, asked: str | None, known: Mapping[str, FormatConfig], place: Place | None = None
) -> FormatConfig | None:
    """The format of a task: the requested one (`task@format`, at `place`), else that of its `formats`, else none.

    `formats` is a name, a mapping with `type` and changes, or a table of those by name, whose first entry is the
    default.
    """
    table = formats_table(fields)
    if table is not None and (asked or next(iter(table), None)) in table:
        return format_from_table(fields, asked or next(iter(table)), known)
    written = fields.get("formats")
    if asked is None and isinstance(written, Mapping) and table is None:
        return _format_with_changes(fields, ("formats",), known)
    if asked is None:
        return _known_format(written, known, fields.place("formats")) if isinstance(written, str) else None
    return _known_format(asked, known, place or Place(f"{fields.get('task')}@{asked}"), *(table or {}))


def formats_table(fields: Fields) -> dict[str, object] | None:
    """The task's own formats by name; None where its `formats` is not a table."""
    written = fields.get("formats")
    return (
        {str(name): entry for name, entry in written.items()}
        if isinstance(written, Mapping) and "type" not in written
        else None
    )


def format_from_table(fields: Fields, name: str, known: Mapping[str, FormatConfig]) -> FormatConfig:
    """One format of a task's table."""
    entry = (formats_table(fields) or {}).get(name)
    if isinstance(entry, Mapping):
        return replace(_format_with_changes(fields, ("formats", name), known), format=name)
    place = fields.place("formats", name)
    if entry is not None and not isinstance(entry, str):
        raise ConfigError.at(place, f"format {name!r} must be a name or a mapping", "correct the value")
    return replace(_known_format(entry if isinstance(entry, str) else name, known, place), format=name)


def _format_with_changes(fields: Fields, path: tuple[str, ...], known: Mapping[str, FormatConfig]) -> FormatConfig:
    written: object = fields[path[0]]
    for step in path[1:]:
        written = next(v for k, v in written.items() if str(k) == step) if isinstance(written, Mapping) else {}
    mapping = dict(written) if isinstance(written, Mapping) else {}
    return format_from_mapping(Fields.of(mapping, fields.origin(path[0]).within(*path)), known, default=path[-1])


def format_from_mapping(fields: Fields, known: Mapping[str, FormatConfig], *, default: str) -> FormatConfig:
    """The format that `type` names, or else `default`, with the changes written beside it."""
    problems: list[Problem] = []
    changes = decode(FormatConfig, fields, problems, known=("include",))
    base = fields.get("type", default)
    if not isinstance(base, str) or base not in known:
        here = next((fields.origin(key).place() for key in fields), Place(default))
        place = fields.place("type") if "type" in fields else here
        fix = (
            did_you_mean(str(base), [*known, *FORMATS.names()])
            if "type" in fields
            else "name its base format with `type`"
        )
        problems.append(Problem(place, f"no format named {base!r}", fix))
    if (
        changes is not None
        and isinstance(changes.choice_labels, str)
        and changes.choice_labels not in ("letters", "numbers")
    ):
        fix = did_you_mean(changes.choice_labels, ["letters", "numbers"])
        problems.append(Problem(fields.place("choice_labels"), f"no labels named {changes.choice_labels!r}", fix))
    if problems or changes is None:
        raise ConfigError(problems)
    changed = {key: getattr(changes, key) for key in yaml_keys(FormatConfig) if key in fields and key != "type"}
    return replace(known[str(base)], **changed)


def _known_format(name: str, known: Mapping[str, FormatConfig], place: Place, *more: str) -> FormatConfig:
    if name not in known:
        raise ConfigError.at(place, f"no format named {name!r}", did_you_mean(name, [*known, *FORMATS.names(), *more]))
    return known[name]


def _layout(config: TaskConfig, format: FormatConfig, place: Place, prefix: str = "") -> PromptLayout:
    text = config.doc_to_text if config.doc_to_text is not None else "question"
    target = config.doc_to_target if config.doc_to_target is not None else "answer"
    return prompt_layout(prompt_parts(text, config.doc_to_choice, target, prefix=prefix, place=place), format, place)


def _example_layout(config: TaskConfig, format: FormatConfig, place: Place) -> PromptLayout | None:
    """The layout of few-shot examples, where they have their own prompt fields."""
    shots = config.fewshot_config
    own = {
        name: value
        for name in ("doc_to_text", "doc_to_choice", "doc_to_target")
        if shots is not None and (value := getattr(shots, name)) is not None
    }
    return _layout(replace(config, **own), format, place, prefix="_example") if own else None


def _fewshot_config(shots: FewshotConfig | None, layout: PromptLayout | None) -> FewshotConfig | None:
    if shots is None or layout is None:
        return shots
    return replace(
        shots, doc_to_text=layout.doc_to_text, doc_to_choice=layout.doc_to_choice, doc_to_target=layout.doc_to_target
    )


def _generation_kwargs(config: TaskConfig, format: FormatConfig) -> Mapping[str, object] | None:
    if format.output_type != "generate_until":
        return None
    return {**(format.generation_kwargs or {}), **(config.generation_kwargs or {})} or None


def _ignored_notes(before: TaskConfig, after: TaskConfig, format: FormatConfig) -> tuple[str, ...]:
    """Notes on the task's settings that the format replaces."""
    lost = [
        key
        for key in ("metric_list", "filter_list")
        if getattr(before, key) and getattr(after, key) != getattr(before, key)
    ]
    why = (
        f"is ignored: it is for {before.output_type}, and format {format.format!r} uses {after.output_type}"
        if before.output_type != after.output_type
        else f"is replaced by that of format {format.format!r}"
    )
    return tuple(f"{key} of {before.task!r} {why}" for key in lost)
