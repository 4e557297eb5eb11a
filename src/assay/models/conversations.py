"""Conversations as models take them: those that read text have their chat template write it, servers are sent messages."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from jinja2 import TemplateError

from assay.errors import ConfigError
from assay.models.protocol import Answered
from assay.models.servers.http import Refused
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

Template = Callable[[tuple[Message, ...], bool], Prompt]
Answer = Callable[[Sequence[Request]], AsyncIterator[Answered]]


def sent_messages(prompt: Prompt) -> list[dict[str, Any]]:
    """The messages that a server is sent; a text is what the user says, whatever it looks like."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    parts = [part for message in prompt if not isinstance(message.content, str) for part in message.content]
    if any(isinstance(part, ImagePart | AudioPart) for part in parts):
        raise Refused("images and recordings in messages are not sent yet")
    return messages_to_plain(prompt)


def in_text(requests: Sequence[Request], template: Template, answer: Answer) -> AsyncIterator[Answered]:
    """Answer requests by `answer`, which takes texts only: the template writes their conversations first."""
    if all(isinstance(request[0], str) for request in requests):
        return answer(requests)
    return _written_first(requests, template, answer)


async def _written_first(requests: Sequence[Request], template: Template, answer: Answer) -> AsyncIterator[Answered]:
    written = [written_request(request, template) for request in requests]
    failed = [(number, each) for number, each in enumerate(written) if isinstance(each, Failed)]
    asked = [(number, each) for number, each in enumerate(written) if not isinstance(each, Failed)]
    yield failed
    async for answered in answer([request for _, request in asked]):
        yield [(asked[number][0], response) for number, response in answered]


def written_request(request: Request, template: Template) -> Request | Failed:
    """A request about text. The model's turn is opened unless the last message begins it."""
    try:
        if isinstance(request, Generate) and not isinstance(request.prompt, str):
            return request._replace(prompt=_written(request.prompt, template))
        if isinstance(request, Loglikelihood) and not isinstance(request.context, str):
            return request._replace(context=_written(request.context, template))
    except (ConfigError, TemplateError) as error:
        return Failed(f"the conversation cannot be written as text: {error}")
    return request


def _written(messages: tuple[Message, ...], template: Template) -> Prompt:
    return template(messages, not messages or messages[-1].role != "assistant")
