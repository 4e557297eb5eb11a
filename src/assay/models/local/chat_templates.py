"""Conversations rendered by the chat template of a tokenizer of transformers, which whoever made the model has written."""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from assay.template_worker import CannotTravel, Render, Renderer
from assay.templates import Sandbox, is_simple
from assay.user_code import TIME_LIMIT, alarmed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CHAT = "the chat template"


def apply_chat_template(
    tokenizer: "PreTrainedTokenizerBase", messages: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
) -> str:
    """The text of a conversation, as `tokenizer.apply_chat_template` gives it. A template that could take all time and memory is
    rendered in the process for such; a tokenizer with a method of its own renders here, with a time limit."""
    from transformers import PreTrainedTokenizerBase

    here = partial(tokenizer.apply_chat_template, messages, tokenize=False, **arguments)  # type: ignore[arg-type]  # a list of mappings
    if type(tokenizer).apply_chat_template is PreTrainedTokenizerBase.apply_chat_template:
        elsewhere = _renderer(tokenizer.get_chat_template(arguments.get("chat_template")))
        if elsewhere is None:
            return str(here())
        values = {"messages": messages, "special": dict(tokenizer.special_tokens_map), "arguments": dict(arguments)}
        try:
            return elsewhere(values, TIME_LIMIT)
        except CannotTravel:
            pass
    return str(alarmed(TIME_LIMIT, CHAT, here))


@cache
def _renderer(source: str) -> Renderer | None:
    """What renders a template elsewhere; None of one that is simple."""
    sandbox = Sandbox(trim=True)
    sandbox.add_extension("jinja2.ext.loopcontrols")
    try:
        simple = alarmed(TIME_LIMIT, CHAT, lambda: is_simple(sandbox.parse(source)))
    except TemplateError:  # it has blocks that only transformers knows, or is wrong, which transformers says
        simple = False
    return None if simple else Renderer(CHAT, _render_with_transformers, source)


class _WrittenTemplate:
    """All that rendering needs of a tokenizer."""

    def __init__(self, source: str, special: Mapping[str, Any]) -> None:
        self._source, self.special_tokens_map = source, special

    def get_chat_template(self, *_: object) -> str:
        return self._source


def _render_with_transformers(source: str) -> Render:
    """A function that renders a template: made in the process with limits."""
    from transformers import PreTrainedTokenizerBase

    def render(values: Mapping[str, Any]) -> str:
        tokenizer: Any = _WrittenTemplate(source, values["special"])
        arguments = values["arguments"]
        return str(
            PreTrainedTokenizerBase.apply_chat_template(tokenizer, values["messages"], tokenize=False, **arguments)
        )

    return render
