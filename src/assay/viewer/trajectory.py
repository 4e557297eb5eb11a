"""The way of a graph's record: the nodes it visited with their conversations, and how long each request and tool call took."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from assay.models.servers.server_model import Price
from assay.records import JSONObject, Usage
from assay.report.charts import Span
from assay.runs.samples.records import StoredSample, call_text, made_calls
from assay.runs.samples.turns import ChatTurn, stored_exchanges, turns_of

MODEL, TOOL = "model", "tool"
"""Who spent the time of a span."""
FENCED = re.compile(r"<<<(.+) ([0-9a-f]{32})>>>\n(?s:.*)\n<<<end of \1 \2>>>")
"""An answer as a judge sees it."""


class Step(NamedTuple):
    """A node that a graph's record visited, with its conversation, and its time where that is known; `failed` is the reason."""

    node: str
    turns: Sequence[ChatTurn]
    seconds: float | None
    failed: str = ""
    tokens: tuple[int, int] | None = None
    """Tokens read and written by its models."""
    cost: float | None = None


def steps_of(row: StoredSample, prices: Mapping[str, Price | None] | None = None) -> list[Step]:
    """The visited nodes in order. What an earlier request of a conversation has is not repeated."""
    parts, replies = stored_exchanges(row), row.replies or ()
    steps = []
    for node, numbers in _visits(row):
        own = [parts[number] for number in numbers if number < len(parts)]
        said = [message for each in own for message in (*each.asked, each.answer) if message is not None]
        node_replies = [replies[number] for number in numbers if number < len(replies)]
        usages = [reply["usage"] for reply in node_replies if reply.get("usage") is not None]
        reason = next((str(reply["failed"]) for reply in node_replies if "failed" in reply), "")
        tokens = (sum(each[0] for each in usages), sum(each[1] for each in usages)) if usages else None
        seconds = sum(each[2] for each in usages) if usages else None
        price = (prices or {}).get(node)
        cost = sum(price.of(Usage(*each)) for each in usages) if price is not None and usages else None
        steps.append(Step(node, turns_of(said), seconds, reason, tokens, cost))
    if row.failed and steps and not any(step.failed for step in steps):  # no request did: the last node it reached
        steps[-1] = steps[-1]._replace(failed=row.failed)
    return steps


def nodes_of_responses(row: StoredSample) -> dict[int, str]:
    """The node that each response of a graph's record belongs to."""
    return {number: node for node, numbers in _visits(row) for number in numbers}


def judge_questions(row: StoredSample) -> dict[int, str]:
    """The requests of a graph's record that ask a judge, by number: their question has an answer in its fence."""
    asked = {
        number: "\n\n".join(turn.text for turn in turns_of(each.asked))
        for number, each in enumerate(stored_exchanges(row))
    }
    return {number: question for number, question in asked.items() if FENCED.search(question)}


def _visits(row: StoredSample) -> Iterator[tuple[str, list[int]]]:
    trace = row.trace
    for entry in trace if isinstance(trace, list) else ():
        yield str(entry[0]), [number for number in entry[1] if isinstance(number, int)]


def spans_of(row: StoredSample) -> list[Span]:
    """Requests and tool calls in their order, each with its seconds; empty where none has any."""
    replies, left = row.replies or (), list(made_calls(row.replies))
    spans: list[Span] = []
    for node, numbers in _visits(row):
        for turn, number in enumerate(numbers, 1):
            reply = replies[number] if number < len(replies) else {}
            spans.append(_request_span(node, turn if len(numbers) > 1 else 0, reply))
            own = [call for call in left if _node(call) == node and call.get("turn") == turn]
            left = [call for call in left if not any(call is each for each in own)]
            spans += map(_call_span, own)
    spans += map(_call_span, left)
    return spans if any(span.seconds for span in spans) else []


def _node(call: JSONObject) -> str:
    return str(call.get("node"))


def _request_span(node: str, turn: int, reply: JSONObject) -> Span:
    usage = reply.get("usage")
    note = f"{usage[0]:,} tokens in, {usage[1]:,} out" if usage else ""
    failed = f"failed: {reply['failed']}" if "failed" in reply else ""
    return Span(f"{node}, turn {turn}" if turn else node, float(usage[2]) if usage else 0.0, MODEL, failed or note)


def _call_span(call: JSONObject) -> Span:
    return Span(str(call.get("name")), float(call.get("seconds") or 0.0), TOOL, call_text(call))
