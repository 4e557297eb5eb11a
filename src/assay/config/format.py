"""The keys of a format: how the parts of a question are joined, and which requests are sent."""

from collections.abc import Mapping
from dataclasses import dataclass

from assay.config.option import option
from assay.config.prompt_slips import literal_slips, quoted_function
from assay.config.task import FilterConfig, MetricConfig, OutputType, ScorerConfig


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
    generation_kwargs: Mapping[str, object] | None = option("Parameters of generation in place of the task's.", None)
