"""Requests and responses as bytes, between the process of a run and its replicas. Objects are never pickled."""

from collections.abc import Iterable, Mapping, Sequence

import orjson

from assay.models.protocol import Answered
from assay.records import (
    AnyJSON,
    Failed,
    Generate,
    Loglikelihood,
    Prompt,
    Request,
    Response,
    Rolling,
    UserValue,
    messages_to_plain,
    plain_to_messages,
)
from assay.runs.journal import from_line, to_line
from assay.user_code import written

_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def pack_requests(requests: Sequence[Request]) -> bytes:
    """Requests as bytes: prompts and parameters that some share are written once."""
    prompts: list[AnyJSON] = []
    params: list[Mapping[str, object]] = []
    places: dict[int, int] = {}
    asked: list[AnyJSON] = []

    def place(value: object, plain: AnyJSON, among: list[AnyJSON]) -> int:
        at = places.get(id(value))
        if at is None:
            at = places[id(value)] = len(among)
            among.append(plain(value))
        return at

    for request in requests:
        if isinstance(request, Generate):
            prompt = place(request.prompt, _plain_prompt, prompts)
            which = place(request.params, dict, params)
            asked.append((prompt, which, request.repeat, request.role, request.node, request.draw.hex()))
        elif isinstance(request, Loglikelihood):
            asked.append((place(request.context, _plain_prompt, prompts), request.continuation, request.role))
        else:
            asked.append((place(request.text, _plain_prompt, prompts), request.role))
    return orjson.dumps((prompts, params, asked), default=_plain_value, option=_OPTIONS)


def _plain_prompt(prompt: Prompt) -> AnyJSON:
    return prompt if isinstance(prompt, str) else messages_to_plain(prompt)


def _plain_value(value: UserValue) -> AnyJSON:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"a parameter of generation is {value!r:.80}, which is neither text, number, list nor mapping")


def read_requests(packed: bytes) -> list[Request]:
    """The requests that were packed."""
    plain, params, asked = orjson.loads(packed)
    prompts: list[Prompt] = [each if isinstance(each, str) else plain_to_messages(each) for each in plain]
    requests: list[Request] = []
    for each in asked:
        if len(each) == 6:
            prompt, which, repeat, role, node, draw = each
            requests.append(Generate(prompts[prompt], params[which], repeat, role, tuple(node), bytes.fromhex(draw)))
        elif len(each) == 3:
            requests.append(Loglikelihood(prompts[each[0]], each[1], each[2]))
        else:
            text = prompts[each[0]]
            assert isinstance(text, str)
            requests.append(Rolling(text, each[1]))
    return requests


def response_line(number: bytes, response: Response) -> bytes:
    """A response with the number of its request, as the journal writes it."""
    try:
        return b"%s %s" % (number, to_line(response))
    except TypeError as error:
        return b"%s %s" % (number, to_line(Failed(written(f"the model gave what cannot be written: {error}"))))


def pack_responses(lines: Iterable[bytes]) -> bytes:
    return b"\n".join(lines)


def read_responses(packed: bytes) -> Answered:
    """The responses of a chunk, each with the number of its request."""
    answered: list[tuple[int, Response]] = []
    for line in packed.split(b"\n"):
        number, _, inside = line.partition(b" ")
        answered.append((int(number), from_line(inside)))
    return answered
