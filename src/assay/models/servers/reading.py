"""Everything that a server says is decoded here, strictly: texts, finish reasons, tool calls, usage, log-probabilities, names.

A backend builds the body of a request and hands the answer to a function of this file. An answer that is not of the
protocol raises: a LookupError, TypeError or AttributeError is retried as a malformed answer, a PermanentError fails the
document at once. Only usage is lenient: it is a non-negative number or nothing.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from assay.models.protocol import PermanentError, RetryableError
from assay.models.reasoning import Draft
from assay.records import JSON, MOST_TOKENS, UNFINISHED, Likelihood, Response, Usage

ServerJSON = Any
"""JSON that a server sent. Nothing about it is certain: the parts that are read are checked, or fail the request."""
ServerObject = Mapping[str, ServerJSON]
"""A JSON object that a server sent."""
RequestBody = dict[str, Any]
"""JSON to send to a server. It may include a user's parameters."""
_NUMBERS = frozenset((int, float))
MAX_NAME = 100
"""Maximum characters of a finish reason, and of a model's name that is kept."""
BROKEN_OFF = ("abort", "aborted", "cancelled", "canceled", "error")
"""Finish reasons of an answer that the server did not finish."""


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
    if value and (not isinstance(value, str) or len(value) > MAX_NAME):
        raise TypeError(f"finish_reason must be a short text, got {type(value).__name__}")
    if value in BROKEN_OFF:
        raise RetryableError(f"the server broke the answer off (finish_reason: {value})")
    return value if isinstance(value, str) else None


def name_of(answer: ServerObject) -> str:
    """Return the name of the model that answered; empty if the server reports none."""
    name = answer.get("model")
    if name is None:
        return ""
    if not isinstance(name, str):
        raise TypeError(f"the name of the model must be text, got {type(name).__name__}")
    return name


def is_same_model(asked: str, named: str) -> bool:
    """Whether a model's name is the one that was asked for: in another folder, or with a date or version.

    >>> [is_same_model("gpt-4o", name) for name in ("gpt-4o-2024-08-06", "openai/GPT-4o", "gpt-4o-mini", "gpt-4")]
    [True, True, False, False]
    >>> is_same_model("claude-haiku-latest", "claude-haiku-20241022")
    True
    """
    ours, theirs = (name.rstrip("/").rpartition("/")[2].casefold() for name in (asked, named))
    ours, theirs = re.sub("[-:]latest$", "", ours), re.sub(":latest$", "", theirs)
    return theirs.startswith(ours) and re.fullmatch(r"(?:[-@:][\d-]{3,})?", theirs[len(ours) :]) is not None


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


def add_openai_event(drafts: Sequence[Draft], event: ServerObject) -> set[int]:
    """Add a stream event to its drafts; return the answers that reached a stop string."""
    if event.get("error"):
        raise RetryableError(f"the server ended the stream: {error_message(json.dumps(event['error']))}")
    stopped: set[int] = set()
    for choice in _choices(event):
        number, delta = choice.get("index") or 0, choice.get("delta")
        if delta is not None and not isinstance(delta, dict):
            raise TypeError(f"delta must be a mapping, got {type(delta).__name__}")
        delta = delta or choice
        if isinstance(number, bool) or not 0 <= number < len(drafts):
            raise IndexError(f"unexpected answer number {number}")
        if delta.get("refusal"):
            raise PermanentError(f"the model refuses: {delta['refusal']}"[:300])
        if delta.get("tool_calls"):
            raise PermanentError("the model calls a tool in a stream, and none was offered")
        draft = drafts[number]
        content = delta.get("content")
        if draft.add(content if content is not None else delta.get("text"), _thought(delta)):
            stopped.add(number)
        draft.finish = "stop" if number in stopped else finish_of(choice.get("finish_reason")) or draft.finish
    drafts[0].model = drafts[0].model or name_of(event)
    if event.get("usage"):
        drafts[0].usage = usage_of(event)
    return stopped


def is_whole(event: ServerObject) -> bool:
    """Whether the server sent the whole answer although a stream was requested."""
    return any("message" in choice for choice in _choices(event))


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
    choices, name = answer["choices"], name_of(answer)
    if not choices:
        raise RetryableError("the answer has no choices", malformed=True)
    if len(choices) > len(drafts):
        raise IndexError(f"{len(choices)} answers to a request for {len(drafts)}")
    for draft, choice in zip(drafts, choices, strict=False):
        message = choice.get("message") or choice
        text, thought, finish = (
            message.get("content", message.get("text")),
            _thought(message),
            finish_of(choice.get("finish_reason")),
        )
        if message.get("refusal"):
            raise PermanentError(f"the model refuses: {message['refusal']}"[:300])
        draft.calls = tool_calls_of(message.get("tool_calls"))
        if text is None and thought is None and finish != "length" and not draft.calls:
            raise PermanentError(f"the answer has no text (finish_reason: {finish})")
        draft.add(text, thought)
        is_silent = text is None and thought is None and not draft.calls
        draft.finish, draft.usage, draft.model = UNFINISHED if is_silent else finish, Usage(), name
    drafts[0].usage = usage_of(answer)


def reported_length(models: ServerJSON, name: str) -> int | None:
    """Context length from the server's list of models, if it reports one."""
    rows = models.get("data") if isinstance(models, dict) else None
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and row.get("id") == name and token_count(row.get("max_model_len")):
            return token_count(row["max_model_len"])
    return None


# Anthropic's protocol

FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}
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
    if not isinstance(answer["content"], list):
        raise TypeError(f"content must be a list of blocks, got {type(answer['content']).__name__}")
    for block in answer["content"]:
        _add(draft, block)
    draft.calls = _calls_of(answer["content"]) or ()
    _finish(draft, answer["stop_reason"])
    draft.usage, draft.model = _usage_so_far(answer.get("usage"), Usage()), name_of(answer)


def add_anthropic_event(draft: Draft, event: ServerObject) -> None:
    """Add a stream event to the draft."""
    match event.get("type"):
        case "message_start":
            draft.usage = _usage_so_far(event["message"].get("usage"), Usage())
            draft.model = name_of(event["message"])
        case "content_block_delta":
            _add(draft, event["delta"])
        case "message_delta":
            _finish(draft, event["delta"].get("stop_reason"))
            draft.usage = _usage_so_far(event.get("usage"), draft.usage or Usage())
        case "error":
            error = event.get("error") or {}
            message = f"{error.get('type')}: {error_message(str(error.get('message')))}"
            if error.get("type") in RETRYABLE:
                raise RetryableError(message, rate_limited=error.get("type") in RATE_LIMITED)
            raise PermanentError(message)
        case "message" | None:
            fill_anthropic(draft, event)


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


def _finish(draft: Draft, reason_sent: JSON) -> None:
    reason = finish_of(reason_sent)
    if reason == "refusal":
        raise PermanentError("the model refused to answer (stop_reason: refusal)")
    draft.finish = FINISHES.get(reason, reason) if reason is not None else draft.finish


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


def offsets_of(logprobs: ServerObject) -> Sequence[int] | None:
    """Return the text offset of each token; None if the server reports none or, like SGLang, -1 for all."""
    offsets = logprobs.get("text_offset")
    if not isinstance(offsets, list):
        return None
    if not all(isinstance(offset, int) and not isinstance(offset, bool) for offset in offsets):
        raise PermanentError("the server reports text offsets that are not integers (text_offset)")
    return None if any(offset < 0 for offset in offsets) else offsets


def refuse_part(logprobs: ServerObject, offsets: Sequence[int], text: str) -> None:
    """Refuse log-probabilities that end before the text does."""
    tokens = logprobs.get("tokens")
    if not offsets or offsets[-1] >= len(text) or not isinstance(tokens, list) or not isinstance(tokens[-1], str):
        return
    if text.isascii() and offsets[-1] + len(tokens[-1]) < len(text.rstrip()):
        raise PermanentError("the server reports log-probabilities of only a part of the text")


def refuse_other_text(answer: ServerObject, logprobs: ServerObject, sent: str, *, is_exact: bool) -> None:
    """Refuse an answer about another text than was sent, by its `text` and `tokens`.

    White space may differ, and what a tokenizer makes of half a character. Where tokens were sent (`is_exact` is false),
    special tokens may be missing, and the spelling of single tokens is not checked.
    """
    echoed, spelled = answer["choices"][0].get("text") or "", _spelled(logprobs.get("tokens"))
    if not isinstance(echoed, str):
        raise PermanentError(f"the text of an answer must be text, got {type(echoed).__name__}")
    if echoed.startswith(sent) or not (echoed or (spelled and is_exact)):
        return
    if any(text and _is_same(sent, text, is_exact=is_exact) for text in (echoed, spelled)):
        return
    is_last = bool(spelled) and not is_exact and echoed.strip() == str(logprobs["tokens"][-1]).strip()
    is_short = not spelled and len(echoed) < min(LONGEST_TOKEN, len(sent) / 2)
    if not is_last and not is_short:  # otherwise it is the one generated token
        raise PermanentError(f"the server echoed a different text than was sent: {(echoed or spelled)[:60]!r}")


def _spelled(tokens: JSON) -> str:
    """Join tokens to a text, with white space for the marks of tokenizers; empty if they are ids."""
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        return ""
    return "" if tokens and tokens[-1].startswith("token_id:") else "".join(tokens).translate(SPACES)


def _is_same(sent: str, text: str, *, is_exact: bool) -> bool:
    ours, theirs = ("".join(each.replace(LOST, "").split()) for each in (sent, text))
    if not theirs or ours in theirs:
        return True
    if len(theirs) > 2 * len(ours) + 10 * LONGEST_TOKEN:  # a long text has all pieces of a short one, and takes long
        return False
    return (not is_exact or LOST in text) and _shared(ours, theirs) >= 0.5


def _shared(ours: str, theirs: str) -> float:
    """The share of pieces of the shorter text that the other one has."""
    ours, theirs = (re.sub(r"\W+", "", text.casefold()) or text for text in (ours, theirs))
    size = 5 if min(len(ours), len(theirs)) >= 40 else min(2, len(ours), len(theirs))
    one, other = ({text[at : at + size] for at in range(len(text) - size + 1)} for text in (ours, theirs))
    return len(one & other) / min(len(one), len(other))


def _largest(values: Iterable[JSON]) -> float:
    return max(logprob_of(value) for value in values)


def _listed(entry: JSON) -> float:
    return logprob_of(entry.get("logprob") if isinstance(entry, Mapping) else entry)


def _text(token: JSON) -> str:
    if not isinstance(token, str):
        raise PermanentError(f"the server reports the token {token!r:.40}: it must be text")
    return token
