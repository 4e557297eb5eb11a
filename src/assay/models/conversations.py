"""Conversations as models take them: rendered by the chat template for local models, as messages for servers."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from assay.errors import ConfigError
from assay.models.protocol import Answered, PermanentError
from assay.records import (
    AudioPart,
    Failed,
    Generate,
    ImagePart,
    Loglikelihood,
    Message,
    Prompt,
    Request,
    messages_to_plain,
)  # fmt: skip
from assay.templates import RENDER_ERRORS, reason

Template = Callable[[tuple[Message, ...], bool], Prompt]
Answer = Callable[[Sequence[Request]], AsyncIterator[Answered]]


def sent_messages(prompt: Prompt) -> list[dict[str, Any]]:
    """Return the messages to send to a server; a text becomes one user message, whatever it looks like."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    parts = [part for message in prompt if not isinstance(message.content, str) for part in message.content]
    if any(isinstance(part, ImagePart | AudioPart) for part in parts):
        raise PermanentError("images and audio in messages are not supported yet")
    return messages_to_plain(prompt)


def answer_rendered(requests: Sequence[Request], template: Template, answer: Answer) -> AsyncIterator[Answered]:
    """Answer requests with `answer`, which takes text only: conversations are rendered by the template first."""
    if {type(request[0]) for request in requests} <= {str}:
        return answer(requests)
    return _render_and_answer(requests, template, answer)


async def _render_and_answer(
    requests: Sequence[Request], template: Template, answer: Answer
) -> AsyncIterator[Answered]:
    rendered = [render_request(request, template) for request in requests]
    failed = [(number, each) for number, each in enumerate(rendered) if isinstance(each, Failed)]
    asked = [(number, each) for number, each in enumerate(rendered) if not isinstance(each, Failed)]
    yield failed
    async for answered in answer([request for _, request in asked]):
        yield [(asked[number][0], response) for number, response in answered]


def render_request(request: Request, template: Template) -> Request | Failed:
    """Render a request's conversation. The generation prompt is added unless the last message is the assistant's."""
    try:
        if isinstance(request, Generate) and not isinstance(request.prompt, str):
            return request._replace(prompt=_render(request.prompt, template))
        if isinstance(request, Loglikelihood) and not isinstance(request.context, str):
            return request._replace(context=_render(request.context, template))
    except (ConfigError, *RENDER_ERRORS) as error:
        return Failed(f"the chat template failed: {reason(error)}")
    return request


def _render(messages: tuple[Message, ...], template: Template) -> Prompt:
    return template(messages, not messages or messages[-1].role != "assistant")
