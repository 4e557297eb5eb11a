"""The keys of task files and of formats. Names and defaults are lm-eval's; keys that only assay has come last."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from assay.config.option import MAX_REPEATS, NOTHING, Remark, YAMLMapping, YAMLValue, at_least, near_miss, option
from assay.errors import Place, Problem
from assay.records import LIMITS, Function

OutputType = Literal["generate_until", "loglikelihood", "loglikelihood_rolling", "multiple_choice"]


GENERATION_KEYS = (
    "until", "do_sample", "temperature", "max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens",
    "top_p", "top_k", "min_p", "num_beams", "seed", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "max_length",
)  # fmt: skip

TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)

GenerationParams = Mapping[str, YAMLValue]
"""Parameters of generation by name; those that assay does not know are passed to the model."""


def generation_slips(value: YAMLValue) -> Iterator[Remark]:
    """Refuse only keys that look like a typo, and values that cannot be meant: other keys are passed to the model."""
    if isinstance(value, Mapping):
        for key in value:
            near = near_miss(str(key), GENERATION_KEYS) if key not in GENERATION_KEYS else None
            if near:
                yield (key,), f"has no key {key!r}", f"did you mean {near!r}?"
        yield from generation_types(value)


def template_slips(params: YAMLValue, path: tuple[str | int, ...] = ()) -> Iterator[Remark]:
    """Find templates in parameters of generation, which are one mapping for all documents: nothing would fill them in."""
    if isinstance(params, str):
        if template := TEMPLATE.search(params):
            what = (
                f"{template[0]!r:.60} is sent as it is written: parameters of generation are the same for all documents"
            )
            yield path, what, "write the value itself"
        return
    parts = (
        params.items() if isinstance(params, Mapping) else enumerate(params) if isinstance(params, list | tuple) else ()
    )
    for key, value in parts:
        yield from template_slips(str(key), (*path, key))
        yield from template_slips(value, (*path, key))


def generation_types(params: Mapping[str, object]) -> Iterator[Remark]:
    """Find values of known parameters that are of another type. Numbers may be written as text, as on a command line."""
    yield from template_slips(params)
    for key in ("temperature", *LIMITS):
        read: Callable[[str], float] = int if key in LIMITS else float
        value = params.get(key)
        try:
            if value is not None and not math.isfinite(read(str(value))):
                raise ValueError
        except (ValueError, OverflowError):
            kind = "whole number" if key in LIMITS else "number"
            yield (key,), f"{key} must be a {kind}, got {value!r:.60}", f"write `{key}: {64 if key in LIMITS else 0.7}`"
    until = params.get("until")
    texts = until if isinstance(until, list | tuple) else [until]
    if not all(isinstance(text, str | None) for text in texts):
        yield ("until",), f"until must be text or a list of texts, got {until!r:.60}", 'write `until: ["\\n"]`'


_FUNCTION = re.compile(r"\s*!function\b\s*(\S*)|\s*function\s+([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)\s*$")
_ONE_EXPRESSION = re.compile(r"\s*\{\{-?((?:(?!\}\}|\{\{).)*?)-?\}\}\s*", re.DOTALL)


def quoted_function(value: YAMLValue) -> Iterator[Remark]:
    """Find a `!function` in quotes, or without its exclamation mark: YAML reads it as text."""
    match = _FUNCTION.match(value) if isinstance(value, str) else None
    if match is not None:
        what = f"is the text {value!r:.80}, not a function"
        yield (), what, f"write it without quotes: !function {match[1] or match[2] or 'module.name'}"


def prompt_slips(value: YAMLValue) -> Iterator[Remark]:
    """Find mistakes in a question or an answer: a function in quotes, templates inside a list."""
    yield from choice_slips(value)
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, tuple | list) else ()
    for at, item in items:
        if isinstance(item, str) and _has_markup(item):
            what = f"has the item {item!r:.60}, but templates inside a list are not filled in"
            texts = list(value.values()) if isinstance(value, Mapping) else list(value)  # type: ignore[call-overload]
            yield (at,), what, f"write one template that gives the list: {_as_template(texts)}"
            return


def choice_slips(value: YAMLValue) -> Iterator[Remark]:
    """Find a function in quotes in choices, or in the list of them, whose templates are filled in."""
    yield from quoted_function(value)
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, tuple | list) else ()
    for at, item in items:
        yield from (((at,), f"has an item that {what}", fix) for _, what, fix in quoted_function(item))


def literal_slips(value: YAMLValue) -> Iterator[Remark]:
    """Find mistakes in a delimiter: it is not a template."""
    yield from quoted_function(value)
    if isinstance(value, str) and _has_markup(value):
        yield (), f"is {value!r:.60}, but a delimiter is not filled in", "write the characters themselves"


def _has_markup(text: str) -> bool:
    return "{{" in text or "{%" in text


def _as_template(items: list[YAMLValue]) -> str:
    """Join a list of templates into one, if each is a single expression or plain text.

    >>> _as_template(["{{a}}", "{{ b.c }}", "none"])
    '"{{[a, b.c, \\'none\\']}}"'
    """
    expressions = [_ONE_EXPRESSION.fullmatch(item) if isinstance(item, str) else None for item in items]
    if not all(
        one or not (isinstance(item, str) and _has_markup(item)) for one, item in zip(expressions, items, strict=True)
    ):
        return '"{{[a, b]}}"'
    return (
        '"{{['
        + ", ".join(one[1].strip() if one else repr(item) for one, item in zip(expressions, items, strict=True))
        + ']}}"'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricConfig:
    """One entry of `metric_list`. Keys beyond these are parameters of the metric; `fn`, from Python alone, is its function."""

    name: str | Function = option("The metric: a name of `assay ls metrics`, or a function.", key="metric")
    aggregation: str | Function | None = option("How the scores of the samples are aggregated.", None)
    higher_is_better: bool | None = option("Whether more is better (default: as the metric declares).", None)
    row: str | None = option("The name of the row (default: the metric's); `NAME_KEY` of several.", None, key="name")
    hf_evaluate: bool = option("Take the metric of this name from Hugging Face `evaluate`.", False)
    reduction: str | Function | Mapping[str, object] | tuple[object, ...] | None = option(
        "Rows beside the metric's own: how the scores of a sample's repeats are reduced to one.", None
    )
    bounds: tuple[float, ...] | None = option(
        "The least and the greatest score of a sample: intervals stay within them (default: as the metric declares).",
        None,
    )
    kwargs: Mapping[str, object] = option("Parameters of the metric.", NOTHING, rest=True)
    # not a key of any file: a function of Python code; else what finds the metric by its name, when it is called
    fn: Callable[..., Any] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.fn is None or isinstance(self.fn, NamedMetric):
            object.__setattr__(self, "fn", NamedMetric(self))

    @property
    def metric(self) -> str | Function:
        """The metric, by its key in a file."""
        return self.name

    @property
    def row_metric(self) -> str:
        """The metric of its row."""
        if self.row is not None:
            return self.row
        if isinstance(self.name, str):
            return self.name
        return self.name.name if isinstance(self.name, Function) else str(getattr(self.name, "__name__", self.name))


class NamedMetric:
    """The metric of an entry as a function: of a result, or of `references` and `predictions`."""

    __slots__ = ("_config", "_function")
    bind: "ClassVar[Callable[[MetricConfig], Callable[..., Any]]]"
    """Makes the function; `scoring.metric_binding`, which knows metrics, sets it."""

    def __init__(self, config: MetricConfig) -> None:
        self._config = config
        self._function: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._function is None:
            self._function = NamedMetric.bind(self._config)
        return self._function(*args, **kwargs)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterStep:
    """One step of a filter. Keys beyond `function` are its parameters."""

    function: str | Function = option("The step: a name of `assay ls filters`, or a class or function.")
    kwargs: Mapping[str, object] = option("Parameters of the step.", NOTHING, rest=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerConfig:
    """A scorer with its parameters."""

    type: str | Function = option("The scorer: a name of `assay ls scorers`, or a class.")
    kwargs: Mapping[str, object] = option("Parameters of the scorer.", NOTHING)
    reduction: str | Function | Mapping[str, object] | tuple[object, ...] | None = option(
        "Rows beside the scorer's own: how the scores of a sample's repeats are reduced to one.", None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterConfig:
    """One entry of `filter_list`: named steps from raw responses to answers."""

    name: str = option("The name after the comma in results: `exact_match,strict`.")
    filter: tuple[FilterStep, ...] = option("The steps, in order.", ())
    metric_list: tuple[MetricConfig, ...] | None = option("Metrics of this filter (default: the task's).", None)
    scorer: str | Function | ScorerConfig | None = option("Scorer of this filter (default: the task's).", None)

    @property
    def metric(self) -> str | Function:
        """The metric, by its key in a file."""
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class FewshotConfig:
    """How the few-shot examples are chosen and written. Absent keys are those of the task."""

    sampler: str | Function = option("`default` (seeded random), `first_n`, or a class.", "default")
    split: str | None = option("The split the examples come from.", None)
    process_docs: Function | None = option("A function that prepares the rows of that split.", None)
    fewshot_indices: tuple[int, ...] | None = option("Rows of the split that may be used as examples.", None)
    samples: tuple[Mapping[str, object], ...] | Function | None = option(
        "The examples themselves, or a function that returns them.", None
    )
    doc_to_text: str | int | Function | tuple[object, ...] | None = option(
        "The question of an example.", None, check=prompt_slips
    )
    doc_to_choice: str | Function | Mapping[str, object] | tuple[object, ...] | None = option(
        "The choices of an example.", None, check=choice_slips
    )
    doc_to_target: str | int | Function | tuple[object, ...] | None = option(
        "The answer of an example.", None, check=prompt_slips
    )
    gen_prefix: str | None = option("Text before the answer of an example.", None, check=quoted_function)
    fewshot_delimiter: str | None = option("Between one example and the next.", None, check=literal_slips)
    target_delimiter: str | None = option("Between question and answer of an example.", None, check=literal_slips)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """One evaluation: how a row of data becomes a prompt, and how the answer becomes scores."""

    task: str = option("The name.")
    task_alias: str | None = option("The name shown in tables.", None)
    tag: tuple[str, ...] = option("Names that select it together with others.", (), many=True)
    class_: Function | None = option("A Python class that is the task (`!function module.Class`).", None, key="class")
    recipe: str | None = option("The recipe of a class-based task (unitxt).", None)
    # data
    custom_dataset: Function | None = option("A function that returns the data set.", None)
    dataset_path: str | None = option("A data set of the hub, or a reader: json, csv, parquet.", None)
    dataset_name: str | None = option("The configuration of the data set.", None)
    dataset_kwargs: Mapping[str, object] | None = option("Arguments of the reader; `data_files` for local files.", None)
    training_split: str | None = option("The split of the examples if there is no fewshot_split.", None)
    validation_split: str | None = option("The split to evaluate if there is no test_split.", None)
    test_split: str | None = option("The split to evaluate.", None)
    fewshot_split: str | None = option("The split the few-shot examples come from.", None)
    process_docs: Function | None = option("A function from a split to a split.", None)
    # prompt
    description: str = option("Text put once at the start of the prompt (Jinja template).", "", check=quoted_function)
    doc_to_text: str | int | Function | tuple[object, ...] | None = option(
        "The question: a column, a template, a function.", None, check=prompt_slips
    )
    doc_to_target: str | int | Function | tuple[object, ...] | None = option(
        "The answer, or the index of the right choice.", None, check=prompt_slips
    )
    doc_to_choice: str | Function | Mapping[str, object] | tuple[object, ...] | None = option(
        "The choices.", None, check=choice_slips
    )
    doc_to_image: str | Function | tuple[object, ...] | None = option(
        "The images; assay sends only text, and refuses to run the task.", None
    )
    doc_to_audio: str | Function | tuple[object, ...] | None = option("The audio; refused likewise.", None)
    doc_to_video: str | Function | tuple[object, ...] | None = option("The video; refused likewise.", None)
    gen_prefix: str | None = option("The beginning of the answer, sent with the prompt.", None, check=quoted_function)
    target_delimiter: str = option("Between question and answer.", " ", check=literal_slips)
    fewshot_delimiter: str = option("Between one example and the next.", "\n\n", check=literal_slips)
    fewshot_config: FewshotConfig | None = option("How the examples are chosen and written.", None)
    num_fewshot: int | None = option("Number of examples before the question.", None, check=at_least(0))
    use_prompt: str | None = option("A prompt of promptsource or of a file, as `source:name`.", None)
    # requests
    output_type: OutputType = option("The kind of request.", "generate_until")
    generation_kwargs: Mapping[str, object] | None = option("Parameters of generation.", None, check=generation_slips)
    repeats: int = option("How many times each request is sent.", 1, check=at_least(1, MAX_REPEATS))
    unsafe_code: bool = option("Scoring runs code that the model wrote; needs --confirm_run_unsafe_code.", False)
    # scoring
    filter_list: tuple[FilterConfig, ...] | None = option("Filters from raw responses to answers.", None)
    metric_list: tuple[MetricConfig, ...] | None = option("The metrics.", None)
    process_results: Function | None = option(
        "A function (row, responses) -> {metric: value} in place of metrics.", None
    )
    scorer: str | Function | ScorerConfig | None = option(
        "The scorer: a name, a class, or either with parameters.", None
    )
    should_decontaminate: bool = option("No effect; lm-eval's files have it.", False)
    doc_to_decontamination_query: str | Function | None = option(
        "No effect; lm-eval's files have it.", None, check=quoted_function
    )
    metadata: Mapping[str, object] | None = option("`version`, `num_fewshot` as shown, and any other key.", None)
    # since lm-eval 0.5
    formats: str | Mapping[str, object] | None = option("A format by name, with changes, or a table of formats.", None)
    multiple_inputs: bool = option("`doc_to_text` returns a list of contexts for one continuation.", False)
    multiple_targets: bool = option("`doc_to_target` returns a list of right answers.", False)
    # only in assay
    cluster_by: str | None = option(
        "A column: documents with the same value in it (a passage, a source) are one cluster for the standard error.",
        None,
    )
    # not a key of any file: variables of the templates that a function computes from the row, set by a format
    derived: Mapping[str, Function] = field(default_factory=lambda: NOTHING)
    # neither: the choices that a format lists in the prompt of a generation
    listed: "ListedChoices | None" = None

    @property
    def _metric_list(self) -> tuple[MetricConfig, ...]:
        return self.metric_list or ()

    @property
    def repeat_cfg(self) -> "RepeatConfig":
        return RepeatConfig(self.repeats)

    def get_filters(self) -> list[FilterConfig]:
        """List its filters, each with its metrics: the filter's, else the task's."""
        entries = self.filter_list or (FilterConfig(name="none", filter=(FilterStep(function="take_first"),)),)
        return [each if each.metric_list else replace(each, metric_list=self._metric_list) for each in entries]


@dataclass(frozen=True, slots=True)
class RepeatConfig:
    """How often each request is sent."""

    repeats: int = 1


@dataclass(frozen=True, slots=True)
class ListedChoices:
    """The choices in a prompt, as `doc_to_choice` has them, and the format's labels."""

    choices: object
    labels: str | tuple[object, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatConfig:
    """How a question becomes a prompt. Texts may use `_num_choices`, `_choice_labels`, `_choice_list_and` and `_choice_list_or`."""

    format: str = option("The name.", "")
    type: str | None = option("The format it starts from.", None)
    output_type: OutputType = option("The kind of request.", "multiple_choice")
    instruction: str | None = option("Text before the question.", None, check=quoted_function)
    question_prefix: str | None = option("Text directly before the question.", "Question: ", check=quoted_function)
    choice_labels: str | tuple[object, ...] | None = option(
        "`letters`, `numbers`, a list of labels, or null for none.", "letters"
    )
    choice_delimiter: str = option("Between one choice and the next.", "\n")
    section_separator: str = option("Between question, choices and answer.", "\n")
    answer_instruction: str | None = option("Text after the choices.", None, check=quoted_function)
    answer_prompt: str | None = option("Text at the end.", "Answer:", check=quoted_function)
    gen_prefix: str | None = option("The first words of the answer.", None, check=quoted_function)
    target_delimiter: str = option("Between question and answer.", " ", check=literal_slips)
    fewshot_delimiter: str = option("Between one example and the next.", "\n\n", check=literal_slips)
    scorer: str | ScorerConfig | None = option("The scorer.", None)
    metric_list: tuple[MetricConfig, ...] | None = option("Metrics in place of the task's.", None)
    filter_list: tuple[FilterConfig, ...] | None = option("Filters in place of the task's.", None)
    generation_kwargs: Mapping[str, object] | None = option(
        "Parameters of generation in place of the task's.", None, check=generation_slips
    )


MEDIA = {"doc_to_image": "images", "doc_to_audio": "audio", "doc_to_video": "video"}


def unsent_media(fields: YAMLMapping) -> str | None:
    """Return the key by which a task sends more than text, if it has one."""
    return next((key for key in MEDIA if fields.get(key)), None)


def media_problem(key: str, place: Place) -> Problem:
    """Return the problem of a task that sends more than text: its text alone would be another task."""
    what = f"{key}: assay does not send {MEDIA[key]} to models yet, and the text alone is another task"
    return Problem(place, what, "omit the task, or run it with a harness that does")
