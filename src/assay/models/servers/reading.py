"""Everything that a server says is decoded here, strictly: texts, finish reasons, tool calls, usage, log-probabilities, names.

A backend builds the body of a request and hands the answer to a function of this file. An answer that is not of the
protocol raises: a LookupError, TypeError or AttributeError is retried as a malformed answer, a PermanentError fails the
document at once. Usage alone may be absent: it is a non-negative number or nothing.
"""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeGuard

import orjson

from assay.models.endings import FAULTS, MAX_REASON, end_for, with_reason
from assay.models.protocol import PermanentError, RetryableError
from assay.models.reasoning import Draft
from assay.records import JSON, MOST_TOKENS, Likelihood, Response, Usage

ServerJSON = Any
"""JSON that a server sent. Nothing about it is certain: the parts that are read are checked, or fail the request."""
ServerObject = Mapping[str, ServerJSON]
"""A JSON object that a server sent."""
RequestBody = dict[str, Any]
"""JSON to send to a server. It may include a user's parameters."""
_NUMBERS = frozenset((int, float))
MAX_NAME = 100
"""Maximum characters of a model's name that is kept."""


# values


def token_count(value: JSON) -> int:
    """Return a reported number of tokens; 0 if it is invalid.

    >>> [token_count(value) for value in (12, 12.0, None, "12", [12], {}, -5, True, float('nan'), 1e300)]
    [12, 12, 0, 0, 0, 0, 0, 0, 0, 0]
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_TOKENS:
        return 0
    return int(value)


def usage_of(answer: Mapping[str, JSON]) -> Usage:
    """Return the usage in an answer of OpenAI's protocol."""
    reported = mapping_of(answer.get("usage"))
    details = mapping_of(reported.get("prompt_tokens_details"))
    return usage(reported.get("prompt_tokens"), reported.get("completion_tokens"), details.get("cached_tokens"))


def usage(read: JSON, written: JSON, stored: JSON = 0) -> Usage:
    """Return the usage of reported counts. No more can come from the cache than was read."""
    tokens = token_count(read)
    return Usage(tokens, token_count(written), stored=min(tokens, token_count(stored)))


def checked_usage(counts: Usage) -> Usage:
    """Return the usage if all its numbers are valid; invalid ones become 0."""
    if _NUMBERS.issuperset(map(type, counts)) and min(counts) >= 0 and max(counts) <= MOST_TOKENS:
        return counts
    checked = usage(counts.read, counts.written, counts.stored)
    return checked._replace(tries=token_count(counts.tries) or 1, cut=token_count(counts.cut))


def mapping_of(value: JSON) -> Mapping[str, JSON]:
    """Return a mapping unchanged; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def finish_of(value: JSON) -> str | None:
    """Return the finish reason, if there is one."""
    if value and (not isinstance(value, str) or len(value) > MAX_REASON):
        raise TypeError(f"finish_reason must be a short text, got {type(value).__name__}")
    return value if isinstance(value, str) and value else None


def name_of(answer: ServerObject) -> str:
    """Return the name of the model that answered; empty if the server reports none."""
    name = answer.get("model")
    if name is None:
        return ""
    if not isinstance(name, str):
        raise TypeError(f"the name of the model must be text, got {type(name).__name__}")
    return name


def is_same_model(asked: str, named: str) -> bool:
    """Whether a model's name is the one that was asked for: in another folder, or with a date, a version or a revision.

    >>> [is_same_model("gpt-4o", name) for name in ("gpt-4o-2024-08-06", "openai/GPT-4o", "gpt-4o-mini", "gpt-4")]
    [True, True, False, False]
    >>> is_same_model("claude-haiku-latest", "claude-haiku-20241022"), is_same_model("m@v1", "m@v2")
    (True, False)
    >>> [is_same_model("m", name) for name in ("org/m@main", "m@1a2b3c4", "m@main-mini x")]
    [True, True, False]
    """
    ours, theirs = (name.rstrip("/").rpartition("/")[2].casefold() for name in (asked, named))
    ours, theirs = re.sub("[-:]latest$", "", ours), re.sub(":latest$", "", theirs)
    return theirs.startswith(ours) and re.fullmatch(r"(?:[-:][\d-]{3,}|@[\w.-]+)?", theirs[len(ours) :]) is not None


def tool_calls_of(value: ServerJSON) -> Sequence[ServerObject]:
    """Return the tool calls of a message: a list of mappings, each with a function's name and arguments."""
    if not value:
        return ()
    if not isinstance(value, list) or not all(_is_call(call) for call in value):
        raise TypeError("tool_calls must be a list of calls, each with the name and the arguments of a function")
    # as the journal will return it: infinite numbers are null; a TypeError if it cannot be stored (nested too deeply)
    stored: Sequence[ServerObject] = orjson.loads(orjson.dumps(value))
    return stored


def _is_call(call: JSON) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments", "") if isinstance(function, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str) and isinstance(arguments, str | dict)


def tokens_of(answer: ServerObject) -> list[int]:
    """Return the tokens of a text, from a server's tokenizer."""
    tokens = answer["tokens"]
    if not isinstance(tokens, list) or not all(type(token) is int and token >= 0 for token in tokens):
        raise TypeError("the tokens of a text must be a list of integers")
    return tokens


def number_of(value: JSON) -> float:
    """Return the only number of an answer, however nested."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise PermanentError(f"the server must return one number, got {str(value)[:60]}: serve a model with one label")
    return float(value)


def error_message(text: str) -> str:
    """Return a server's error message without the JSON around it."""
    try:
        answer = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text.strip()[:300]
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    return str(error.get("message", error.get("detail", error)) if isinstance(error, dict) else error)[:300]


# OpenAI's protocol


def _error_of(answer: ServerObject) -> ServerJSON:
    """The error that an answer or event of any protocol reports beside what else it has; None where it has none.

    `object: error` is vLLM's before 0.10, in streams, too.
    """
    return answer.get("error") or answer.get("errors") or (answer if answer.get("object") == "error" else None)


def refuse_error(answer: ServerObject) -> None:
    """Raise the error that an answer reports, whatever else it has."""
    error = _error_of(answer)
    if error:
        raise RetryableError(f"{FAULTS['error beside the answer'].sentence}: {error_message(json.dumps(error))}")


def refuse_bad_end(answer: ServerObject) -> None:
    """Raise the error of an answer of which only the log-probabilities are read, if it did not end well."""
    refuse_error(answer)
    choices = answer.get("choices")
    reasons = [mapping_of(choice).get("finish_reason") for choice in choices] if isinstance(choices, list) else []
    for reason in reasons or [mapping_of(mapping_of(answer.get("meta_info")).get("finish_reason")).get("type")]:
        end = end_for(reason)
        if end.outcome == "failed":
            raise PermanentError(with_reason(end.sentence, reason))


def add_openai_event(drafts: Sequence[Draft], event: ServerObject) -> set[int]:
    """Add a stream event to its drafts; return the answers that need no more: at a stop string, or with a fault."""
    refuse_error(event)
    choices = _choices(event)
    if len(choices) > 1:
        _refuse_twins(drafts, choices)
    ended: set[int] = set()
    for choice in choices:
        number = _number(choice, 0, drafts)
        draft, delta = drafts[number], choice.get("delta")
        if draft.is_stopped:
            draft.pieces += 1
            continue
        if delta is not None and not isinstance(delta, dict):
            raise TypeError(f"delta must be a mapping, got {type(delta).__name__}")
        delta = delta or choice
        if "role" in delta:  # an empty answer has no more than this, and its text may be null here
            draft.has_message = True
        _fail_message(draft, delta, choice)
        if delta.get("tool_calls"):
            draft.fail("calls not offered")
        content = delta.get("content")
        if draft.add(content if content is not None else delta.get("text"), _thought(delta)) or draft.fault:
            ended.add(number)
        draft.finish = draft.finish or ("stop" if draft.is_stopped else finish_of(choice.get("finish_reason")))
    drafts[0].model = drafts[0].model or name_of(event)
    if event.get("usage"):
        drafts[0].usage = usage_of(event)
    return ended


def _number(choice: ServerObject, position: int, drafts: Sequence[Draft]) -> int:
    """Return the number of the answer that a choice belongs to."""
    number = choice.get("index")
    if number is None:
        return position
    if isinstance(number, bool) or not 0 <= number < len(drafts):
        raise IndexError(f"unexpected answer number {number}")
    return int(number)


def _refuse_twins(drafts: Sequence[Draft], choices: Sequence[ServerObject]) -> None:
    """Refuse more than one choice for an answer."""
    numbers = [_number(choice, position, drafts) for position, choice in enumerate(choices)]
    if len(set(numbers)) < len(numbers):
        raise two_answers(len(numbers))


def two_answers(count: int = 2) -> RetryableError:
    """Return the error of several answers where one was asked for."""
    return RetryableError(f"the server sent {count} answers, {FAULTS['two answers in one'].sentence}", malformed=True)


def _fail_message(draft: Draft, message: ServerObject, choice: ServerObject) -> None:
    """Fail an answer that is a refusal, that calls as OpenAI's protocol once did, or whose choice reports an error."""
    if message.get("refusal"):
        draft.fail("refusal text", f": {message['refusal']}")
    if message.get("function_call"):
        draft.fail("calls not offered")
    refuse_error(choice)


def is_whole(event: ServerObject) -> bool:
    """Whether the server sent the whole answer although a stream was requested. Some send it beside each delta."""
    return any("message" in choice and not choice.get("delta") for choice in _choices(event))


def _choices(event: ServerObject) -> Sequence[ServerJSON]:
    """Return the choices of a stream event; the usage event has none."""
    choices = event.get("choices")
    if choices is not None and not isinstance(choices, list):
        raise TypeError(f"choices must be a list, got {type(choices).__name__}")
    return choices or ()


def _thought(message: ServerObject) -> str | None:
    thought = message.get("reasoning_content") or message.get("reasoning")
    if thought and not isinstance(thought, str):
        raise TypeError(f"reasoning_content must be text, got {type(thought).__name__}")
    return thought or None


def fill_openai(drafts: Sequence[Draft], answer: ServerObject) -> None:
    """Add a whole answer to its drafts."""
    refuse_error(answer)
    choices, name = answer["choices"], name_of(answer)
    if not choices:
        raise RetryableError("the answer has no choices", malformed=True)
    if len(choices) > 1:
        _refuse_twins(drafts, choices)
    for position, choice in enumerate(choices):
        draft, message = drafts[_number(choice, position, drafts)], choice.get("message") or choice
        if draft.has_begun:
            raise two_answers()
        _fail_message(draft, message, choice)
        draft.calls = tool_calls_of(message.get("tool_calls"))
        draft.add(message.get("content", message.get("text")), _thought(message))
        draft.finish, draft.usage, draft.model = finish_of(choice.get("finish_reason")), Usage(), name
    drafts[0].usage = usage_of(answer)


def reported_length(models: ServerJSON, name: str) -> int | None:
    """Context length from the server's list of models, if it reports one."""
    rows = models.get("data") if isinstance(models, dict) else None
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and row.get("id") == name and token_count(row.get("max_model_len")):
            return token_count(row["max_model_len"])
    return None


def slot_length(props: ServerObject) -> int | None:
    """Context length of each of llama.cpp's slots, from its properties."""
    return token_count(mapping_of(props.get("default_generation_settings")).get("n_ctx")) or None


# Anthropic's protocol

PARTS: Mapping[str | None, tuple[str, ...]] = {
    None: ("text", "thinking", "partial_json"),
    "text": ("text",),
    "text_delta": ("text",),
    "thinking": ("thinking",),
    "thinking_delta": ("thinking",),
    "input_json_delta": ("partial_json",),
}
"""Keys of the text by the type of a block or delta: one of them must be there."""
RATE_LIMITED = ("overloaded_error", "rate_limit_error")
RETRYABLE = (*RATE_LIMITED, "api_error", "timeout_error")


def fill_anthropic(draft: Draft, answer: ServerObject) -> None:
    """Add a whole answer to its draft."""
    _refuse_anthropic_error(answer)
    if not isinstance(answer["content"], list):
        raise TypeError(f"content must be a list of blocks, got {type(answer['content']).__name__}")
    if draft.has_begun:
        raise two_answers()
    draft.has_message = True  # one without blocks is an empty answer
    for block in answer["content"]:
        _add(draft, block)
    draft.calls = _calls_of(answer["content"]) or ()
    draft.finish = finish_of(answer.get("stop_reason"))
    draft.usage, draft.model = _usage_so_far(answer.get("usage"), Usage()), name_of(answer)


def add_anthropic_event(draft: Draft, event: ServerObject) -> bool:
    """Add a stream event to the draft; return whether it is the last one."""
    _refuse_anthropic_error(event)
    match event.get("type"):
        case "message_start":
            if draft.has_message:
                raise two_answers()
            _refuse_anthropic_error(event["message"])
            draft.has_message = True
            draft.usage = _usage_so_far(event["message"].get("usage"), Usage())
            draft.model = name_of(event["message"])
        case "content_block_start":
            block = mapping_of(event.get("content_block"))
            if block.get("type") == "tool_use":  # tools are never offered in a stream
                draft.fail("calls not offered")
            elif any(block.get(name) for name in ("text", "thinking")):
                _add(draft, block)
        case "content_block_delta":
            _add(draft, event["delta"])
        case "message_delta":
            draft.finish = draft.finish or finish_of(event["delta"].get("stop_reason"))
            draft.usage = _usage_so_far(event.get("usage"), draft.usage or Usage())
        case "message_stop":
            return True
        case "message" | None:
            fill_anthropic(draft, event)
            return True
    return bool(draft.fault)


def _refuse_anthropic_error(answer: ServerObject) -> None:
    """Raise the error that an answer or event reports, whatever else it has."""
    error = _error_of(answer)
    if not error and answer.get("type") != "error":
        return
    described = mapping_of(error)
    kind = described.get("type")
    reported = (
        f"{kind}: {error_message(str(described.get('message')))}" if described else error_message(json.dumps(error))
    )
    message = f"{FAULTS['error beside the answer'].sentence}: {reported}"
    if kind not in RETRYABLE and answer.get("type") == "error":
        raise PermanentError(message)
    raise RetryableError(message, rate_limited=kind in RATE_LIMITED)


def _add(draft: Draft, block: ServerObject) -> None:
    """Add a block or delta. A known type must have its text; other types have none."""
    kind = block.get("type")
    keys = PARTS.get(kind) if isinstance(kind, str | None) else ()
    if keys is not None and not any(isinstance(block.get(name), str) for name in keys):
        raise TypeError(f"a content block has no text ({' or '.join(keys) or 'type'})")
    draft.add(block.get("text"), block.get("thinking"))


def _calls_of(blocks: Sequence[ServerObject]) -> list[ServerObject]:
    """Return the tool calls among the blocks of an answer, in OpenAI's format."""
    calls: list[ServerObject] = []
    for block in blocks:
        if block.get("type") != "tool_use":
            continue
        name, arguments, call_id = block.get("name"), block.get("input"), block.get("id")
        if not isinstance(name, str) or not isinstance(arguments, dict) or not isinstance(call_id, str):
            raise TypeError("a tool_use block must have an id, a name and an input")
        text = orjson.dumps(arguments).decode()  # a TypeError if it cannot be stored
        calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": text}})
    return calls


def _usage_so_far(counts: JSON, before: Usage) -> Usage:
    """Return the usage so far; counts that an event does not report stay as before."""
    reported = mapping_of(counts)
    stored = token_count(reported.get("cache_read_input_tokens")) or before.stored
    fresh = token_count(reported.get("input_tokens")) + token_count(reported.get("cache_creation_input_tokens"))
    read = fresh + stored if reported.get("input_tokens") is not None else before.read
    return before._replace(
        read=read, written=token_count(reported.get("output_tokens")) or before.written, stored=min(read, stored)
    )


# log-probabilities

ROUNDING = 1e-3
"""Tolerance for a log-probability above 0."""
LOST = "\ufffd"
"""Replacement character for bytes that are not a character."""
SPACES = str.maketrans({"\u0120": " ", "\u2581": " ", "\u010a": "\n", "\u0109": "\t"})
LONGEST_TOKEN = 32
ANOTHER_TOKENIZER = "the server reports other tokens than were sent: check that the tokenizer is this model's"


def logprob_of(value: JSON) -> float:
    """Return a log-probability: a number, at most 0 but for rounding. Minus infinity is valid: the token is impossible."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= ROUNDING:
        raise PermanentError(f"the server reports the log-probability {value!r:.40}: it must be a number of at most 0")
    return float(value)


def logprobs_of(answer: ServerObject) -> ServerObject:
    """Return the log-probabilities of an answer; raise if its lists differ in length."""
    logprobs = answer["choices"][0].get("logprobs")
    if not isinstance(logprobs, Mapping) or not isinstance(logprobs.get("token_logprobs"), list):
        raise PermanentError("the server reports no log-probabilities (logprobs, token_logprobs)")
    names = ("token_logprobs", "top_logprobs", "tokens", "text_offset")
    lengths = {name: len(logprobs[name]) for name in names if isinstance(logprobs.get(name), list)}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{count} {name}" for name, count in lengths.items())
        raise PermanentError(f"the server reports lists of different lengths: {shown}")
    return logprobs


def sum_logprobs(answer: ServerObject, logprobs: ServerObject, start: int, end: int) -> Response:
    """Return the log-likelihood of tokens; greedy if each was the most likely."""
    tops = logprobs.get("top_logprobs")
    if not isinstance(tops, list) or not all(isinstance(top, Mapping) and top for top in tops[start:end]):
        raise PermanentError("the server reports no most likely tokens (top_logprobs)")
    values = [logprob_of(value) for value in logprobs["token_logprobs"][start:end]]
    greedy = all(value >= _largest(top.values()) for value, top in zip(values, tops[start:end], strict=True))
    return Likelihood(float(sum(values)), greedy, usage_of(answer), name_of(answer))


def most_likely(answer: ServerObject) -> dict[str, float]:
    """Return the log-probabilities of the most likely next tokens, by their text."""
    logprobs = answer["choices"][0].get("logprobs")
    if not isinstance(logprobs, Mapping):
        raise PermanentError("the server reports no log-probabilities (logprobs)")
    if "content" in logprobs:
        return {_text(each["token"]): logprob_of(each["logprob"]) for each in logprobs["content"][0]["top_logprobs"]}
    return {_text(text): logprob_of(value) for text, value in logprobs["top_logprobs"][0].items()}


def vllm_loglikelihood(answer: ServerObject, tokens: Sequence[int], start: int) -> Likelihood:
    """Return the log-likelihood from vLLM's `prompt_logprobs`: for each position its token and the most likely one."""
    logprobs = answer["choices"][0].get("prompt_logprobs")
    if not isinstance(logprobs, list):
        raise PermanentError("the server reports no log-probabilities of prompts (prompt_logprobs)")
    if len(logprobs) != len(tokens):
        raise PermanentError(token_count_mismatch(len(logprobs), len(tokens)))
    total, greedy = 0.0, True
    for at in range(start, len(tokens)):
        entries = logprobs[at]
        if not isinstance(entries, Mapping) or str(tokens[at]) not in entries:
            raise PermanentError(ANOTHER_TOKENIZER)
        entry = entries[str(tokens[at])]
        value = _listed(entry)
        rank = entry.get("rank") if isinstance(entry, Mapping) else None
        if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int)):
            raise PermanentError(f"the server reports the rank {rank!r:.40}: it must be an integer")
        is_first = rank == 1 if rank is not None else value >= max(_listed(each) for each in entries.values())
        total, greedy = total + value, greedy and is_first
    return Likelihood(total, greedy, usage_of(answer), name_of(answer))


def token_count_mismatch(reported: int, sent: int) -> str:
    """Return the message for an answer with another number of tokens than were sent."""
    return f"the server reports {reported} tokens for {sent} that were sent: check that the tokenizer is this model's"


def sglang_loglikelihood(answer: ServerObject, targets: Sequence[int]) -> Response:
    """Return the log-likelihood from SGLang's list: the last tokens of the prompt, each with its log-probability and id."""
    meta = answer["meta_info"]
    lists = [meta[key] for key in ("input_token_logprobs", "input_top_logprobs")]
    if not all(isinstance(each, list) and len(each) >= len(targets) for each in lists) or len(lists[0]) != len(
        lists[1]
    ):
        raise PermanentError(ANOTHER_TOKENIZER)
    tokens, tops = (each[len(each) - len(targets) :] for each in lists)
    if not all(each[1] in (token, 0) for each, token in zip(tokens, targets, strict=True)):  # 0: the very last one
        raise PermanentError(ANOTHER_TOKENIZER)
    if not all(isinstance(top, list) and top for top in tops):
        raise PermanentError("the server reports no most likely tokens (input_top_logprobs)")
    values = [logprob_of(each[0]) for each in tokens]
    greedy = all(value >= _largest(each[0] for each in top) for value, top in zip(values, tops, strict=True))
    used = usage(meta.get("prompt_tokens"), meta.get("completion_tokens"), meta.get("cached_tokens"))
    return Likelihood(float(sum(values)), greedy, used)


NO_PROBABILITY = -1e30
"""llama.cpp writes the least float where a probability is 0."""


def forced_logprob(answer: ServerObject, token: int, prompt_length: int) -> tuple[float, bool]:
    """Return the log-probability of the token that llama.cpp was made to generate, and whether it was the most likely one."""
    reported = answer.get("completion_probabilities")
    if not isinstance(reported, list) or not reported:
        raise PermanentError("the server reports no log-probabilities (completion_probabilities)")
    if answer.get("truncated") or token_count(answer.get("tokens_evaluated")) != prompt_length:
        raise PermanentError(token_count_mismatch(token_count(answer.get("tokens_evaluated")), prompt_length))
    entry = reported[0]
    if entry.get("id") != token:
        raise PermanentError(f"the server generated the token {entry.get('id')!r:.20} where {token} was forced")
    tops = entry.get("top_logprobs")
    if not isinstance(tops, list) or not tops:
        raise PermanentError("the server reports no most likely tokens (top_logprobs)")
    value = logprob_of(entry["logprob"])
    is_first = value >= _largest(top["logprob"] for top in tops)
    return (value if value > NO_PROBABILITY else -math.inf), is_first


def offsets_of(logprobs: ServerObject) -> Sequence[int] | None:
    """Return the text offset of each token; None if the server reports none or, like SGLang, -1 for all."""
    offsets = logprobs.get("text_offset")
    if not isinstance(offsets, list):
        return None
    if not all(isinstance(offset, int) and not isinstance(offset, bool) for offset in offsets):
        raise PermanentError("the server reports text offsets that are not integers (text_offset)")
    return None if any(offset < 0 for offset in offsets) else offsets


def fitted_offsets(logprobs: ServerObject, offsets: Sequence[int], sent: str) -> Sequence[int]:
    """Return the offset of each token in the text that was sent; raise where the tokens are not found at their offsets.

    Servers count from the text that they read, which may begin with a BOS token and with the space that SentencePiece puts
    before a text: both lie before the text that was sent, at offsets below 0.
    """
    tokens = logprobs.get("tokens")
    if not tokens or not _are_texts(tokens):
        return offsets
    if "".join(tokens).startswith(sent) and list(offsets) == [0, *accumulate(map(len, tokens[:-1]))]:  # as most are
        return offsets
    spelled = [token.translate(SPACES) for token in tokens]
    lead = 1 if BEGIN.fullmatch(spelled[0].strip()) and not sent.startswith(spelled[0]) else 0
    space = len(spelled[lead]) - len(spelled[lead].lstrip()) if lead < len(spelled) else 0
    for shift in dict.fromkeys((0, *(offset + extra for offset in offsets[lead : lead + 1] for extra in (0, space)))):
        moved = [offset - shift for offset in offsets]
        if _are_found(spelled[lead:], moved[lead:], sent):
            return [*[-1] * lead, *moved[lead:]]
    raise PermanentError("the server reports text offsets at which its tokens are not found in the text (text_offset)")


def _are_found(tokens: Sequence[str], offsets: Sequence[int], sent: str) -> bool:
    """Whether tokens stand one behind the other in a text, but for white space between them. A token that is a part of a
    character is not looked for."""
    end = 0
    for token, offset in zip(tokens, offsets, strict=True):
        if offset >= len(sent):
            break
        if LOST in token or not token:
            end = len(sent)
            continue
        start = max(offset, 0) if offset >= 0 or token[:1].isspace() else -1
        if start < 0 or not sent[start:].lstrip().startswith(token.strip()) or sent[end:start].strip():
            return False
        end = start + len(sent[start:]) - len(sent[start:].lstrip()) + len(token.strip())
    return True


def refuse_part(logprobs: ServerObject, offsets: Sequence[int], text: str) -> None:
    """Refuse log-probabilities that end before the text does."""
    tokens = logprobs.get("tokens")
    if not offsets or offsets[-1] >= len(text) or not isinstance(tokens, list) or not isinstance(tokens[-1], str):
        return
    if text.isascii() and offsets[-1] + len(tokens[-1]) < len(text.rstrip()):
        raise PermanentError("the server reports log-probabilities of only a part of the text")


BEGIN = re.compile(
    r"(?:\[gMASK\])?<(?:s|sop|bos|\|?(?:begin|start|end)_?of_?text\|?|[|\uff5c]begin.of.sentence[|\uff5c])>|\[(?:CLS|BOS)\]",
    re.IGNORECASE,
)
"""BOS tokens as servers render them."""
MARKER = re.compile(r"<[^<>\s]{1,40}>|\[/?[A-Z_]{2,20}\]")
"""Texts that may be special tokens, which servers leave out of what they echo."""


def refuse_other_text(
    answer: ServerObject, logprobs: ServerObject, sent: str, *, is_exact: bool, decoded: Callable[[], str] | None = None
) -> None:
    """Refuse an answer about another text than was sent, by its `text` and `tokens`.

    Servers echo the text, or decode the tokens that they read. So these may differ from what was sent:
    - a BOS token before it, the white space between words and before punctuation, what a tokenizer makes of half a character,
      and the form of letters by Unicode's compatibility (as SentencePiece normalizes them);
    - special tokens within it, which servers leave out of the text;
    - what tokens were sent as (`is_exact` is false): the text may be that which the tokenizer makes of them (`decoded`), and
      the spelling of single tokens is not checked.
    Behind it is what was generated. An answer without the prompt has only that: its log-probabilities then count alone.
    """
    echoed, spelled = answer["choices"][0].get("text") or "", _spelled(logprobs.get("tokens"))
    if not isinstance(echoed, str):
        raise PermanentError(f"the text of an answer must be text, got {type(echoed).__name__}")
    if spelled and is_exact and not spelled.startswith(sent) and not _begins_with(spelled, sent):
        raise _other_text(spelled)
    if echoed.startswith(sent) or not echoed:
        return
    is_last = bool(spelled) and echoed.strip() == str(logprobs["tokens"][-1]).strip()
    is_short = not spelled and len(echoed) < min(LONGEST_TOKEN, len(sent) / 2)
    if is_last or is_short or _begins_with(echoed, sent):  # the first two: the one generated token
        return
    known = decoded() if decoded is not None else ""
    if not known or not _begins_with(echoed, known):
        raise _other_text(echoed)


def _other_text(text: str) -> PermanentError:
    return PermanentError(f"the server echoed a different text than was sent: {text[:60]!r}")


def _are_texts(tokens: JSON) -> TypeGuard[list[str]]:
    """Whether a list has the texts of tokens: some servers have their ids there."""
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        return False
    return not (tokens and tokens[-1].startswith("token_id:"))


def _spelled(tokens: JSON) -> str:
    """Join tokens to a text, with white space for the marks of tokenizers; empty if they are ids."""
    return "".join(tokens).translate(SPACES) if _are_texts(tokens) else ""


def _begins_with(echoed: str, sent: str) -> bool:
    """Whether an echo is the text that was sent, with what may differ."""
    if len(echoed) > 2 * len(sent) + 64 * LONGEST_TOKEN:  # far more than was sent
        return False
    theirs, ours = _normal(echoed), _normal(sent)
    if theirs.startswith(ours):
        return True
    begin = BEGIN.match(theirs)
    if begin is not None and not ours.startswith(begin[0]):
        theirs = theirs[begin.end() :].lstrip()
    return theirs.startswith(ours) or _is_walked(theirs, ours)


def _normal(text: str) -> str:
    """Return a text with one space for white space, none before punctuation, and letters in their plain form."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return re.sub(r" (?=[^\w\s])", "", " ".join(plain.split()))


def _is_walked(theirs: str, ours: str) -> bool:
    """Whether an echo has every letter of a text, but for special tokens and parts of characters."""
    at = here = 0
    while here < len(ours):
        if theirs.startswith(ours[here:], at):
            return True
        same = next(
            (n for n, pair in enumerate(zip(theirs[at:], ours[here:], strict=False)) if pair[0] != pair[1]),
            len(theirs) - at,
        )
        at, here = at + same, here + same
        lost = len(theirs[at:]) - len(theirs[at:].lstrip(LOST + " ")) if theirs.startswith(LOST, at) else 0
        marker = MARKER.match(ours, here)
        if lost:
            at += lost
            known = theirs[at : at + LONGEST_TOKEN].partition(LOST)[0]
            left = ours[here : here + lost + len(known)]
            found = next((n for n in range(lost + 1) if known and left[n:].startswith(known[: len(left) - n])), -1)
            if found < 0 and len(ours) - here > lost:
                return False
            here += found if found >= 0 else lost
        elif marker is not None:
            here = marker.end()
            here += 1 if ours.startswith(" ", here) and not theirs.startswith(" ", at) else 0
            at += 1 if theirs.startswith(" ", at) and not ours.startswith(" ", here) else 0
        else:
            return here >= len(ours)
    return True


def _largest(values: Iterable[JSON]) -> float:
    return max(logprob_of(value) for value in values)


def _listed(entry: JSON) -> float:
    return logprob_of(entry.get("logprob") if isinstance(entry, Mapping) else entry)


def _text(token: JSON) -> str:
    if not isinstance(token, str):
        raise PermanentError(f"the server reports the token {token!r:.40}: it must be text")
    return token
