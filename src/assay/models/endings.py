"""How an answer ends: one table for every protocol, streamed or whole.

A backend hands the reason that a server gives, and what else it noticed, to a `Draft`, which reads this table. So the same
fault has the same outcome everywhere, and a reason that no row has is not taken for a good end.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from assay.models.protocol import RetryableError
from assay.records import JSON, UNREPORTED

MAX_REASON = 100
"""Maximum characters of a finish reason."""


class End(NamedTuple):
    """What becomes of an answer that ended in some way: it is `good`; it is kept, and counted in the audit as `noticed`; it
    has `failed`, and is never a score; or it is `retried`, and has failed when the retries are used up.

    `finish` is the reason that samples store, `sentence` why there is no answer.
    """

    outcome: Literal["good", "noticed", "failed", "retried"]
    finish: str = ""
    sentence: str = ""


GOOD, CALLS, TRUNCATED = End("good", "stop"), End("good", "tool_calls"), End("noticed", "length")
FILTERED = End("failed", sentence="the provider's filter ended the answer")
REFUSED = End("failed", sentence="the model refused to answer")
UNFINISHED_TURN = End("failed", sentence="the server paused in the middle of its answer")
OTHER_CALL = End("failed", sentence="the model calls a tool in a way that was not offered")
BROKEN_OFF = End("retried", sentence="the server broke the answer off")
UNKNOWN = End("noticed")
"""The end for a reason that is not in the table, which samples store as the server wrote it."""

REASONS: Mapping[str, End] = {
    # OpenAI's protocol, and servers that speak it
    "stop": GOOD, "length": TRUNCATED, "tool_calls": CALLS, "content_filter": FILTERED, "refusal": REFUSED,
    "function_call": OTHER_CALL,
    "eos": GOOD, "eos_token": GOOD, "stop_sequence": GOOD, "complete": GOOD, "word": GOOD, "limit": TRUNCATED,
    "model_length": TRUNCATED, "max_tokens": TRUNCATED,
    # Anthropic's
    "end_turn": GOOD, "tool_use": CALLS, "pause_turn": UNFINISHED_TURN, "model_context_window_exceeded": TRUNCATED,
    # Gemini's, as some gateways hand them on
    "safety": FILTERED, "recitation": FILTERED, "blocklist": FILTERED, "prohibited_content": FILTERED, "spii": FILTERED,
    "malformed_function_call": OTHER_CALL,
    # of Bedrock, GLM and the Responses API, as gateways hand them on
    "content_filtered": FILTERED, "guardrail_intervened": FILTERED, "sensitive": FILTERED, "max_output_tokens": TRUNCATED,
    "network_error": BROKEN_OFF,
    # of answers that the server did not finish
    "abort": BROKEN_OFF, "aborted": BROKEN_OFF, "cancelled": BROKEN_OFF, "canceled": BROKEN_OFF, "error": BROKEN_OFF,
    "insufficient_system_resource": BROKEN_OFF,
}  # fmt: skip
"""Ends by the reason that a server gives, in lower case and with `_` for `-`."""

FAULTS: Mapping[str, End] = {
    "no reason": End("noticed", UNREPORTED),
    "no text": End("failed", sentence="the answer has no text"),
    "refusal text": End("failed", sentence="the model refuses"),
    "calls not offered": End("failed", sentence="the model calls a tool, and none was offered"),
    "calls missing": End("failed", sentence="the answer ended for a tool call that it does not have"),
    "text after the end": End("failed", sentence="the server sent more text after the end of the answer"),
    "two answers in one": End("retried", sentence="and one was asked for"),
    "error beside the answer": End("retried", sentence="the server reports an error"),
    "broken off": End("retried", sentence="incomplete answer: the stream ended before the answer did"),
}
"""Ends that are known by something else than a reason."""


def end_for(reason: JSON) -> End:
    """Return the end for the reason that a server gives; raise a RetryableError where the answer should be retried.

    >>> end_for("end_turn").finish, end_for("STOP").finish, end_for("banana"), end_for(None).finish
    ('stop', 'stop', End(outcome='noticed', finish='banana', sentence=''), 'unreported')
    """
    if not reason:
        return FAULTS["no reason"]
    if not isinstance(reason, str) or len(reason) > MAX_REASON:
        raise TypeError(f"finish_reason must be a short text, got {type(reason).__name__}")
    end = REASONS.get(reason) or REASONS.get(reason.lower().replace("-", "_"))
    if end is None:
        return UNKNOWN._replace(finish=reason)
    if end.outcome == "retried":
        raise RetryableError(with_reason(end.sentence, reason))
    return end


def with_reason(sentence: str, reason: JSON) -> str:
    """Return the sentence of an end with the reason that the server gave."""
    return f"{sentence} (finish_reason: {reason})"


def is_failed_end(reason: str) -> bool:
    """Whether an answer failed by how it ended: there was one, and the server works. One without any text does not count.

    >>> is_failed_end("the model calls a tool, and none was offered: add"), is_failed_end("HTTP 401: no key")
    (True, False)
    """
    ends = [*REASONS.values(), *(end for fault, end in FAULTS.items() if fault != "no text")]
    return any(end.outcome == "failed" and reason.startswith(end.sentence) for end in ends)
