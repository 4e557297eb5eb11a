"""Agents: nodes that call tools until their model answers."""

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from assay.graphs.contexts import run_calls
from assay.graphs.history import HISTORY
from assay.graphs.nodes import LlmNode, answers
from assay.graphs.tools import as_mapping
from assay.graphs.walk import Costs, NodeFailed, State, Steps, UnfinishedAgent, Updates, Walk
from assay.records import (
    Call,
    Failed,
    JSONDict,
    Message,
    Returned,
    Text,
    ToolCall,
    messages_to_plain,
    tool_call_of,
)

UNUSED: JSONDict = {"turns": 0, "tokens": 0, "seconds": 0.0, "cost": None}
BROKEN_CALLS = "with calls of tools that failed"
UNKEPT = "of tools that are not JSON, and not journaled"
ToolSteps = Generator[Sequence[Call], Sequence[Returned | Failed], list[Message]]
"""Tools at work: yields their calls, is sent the results, and returns messages for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentNode(LlmNode):
    """Asks a model, calls the tools that it wants, and asks again with what they gave, until it wants none.

    The conversation is `<key>_messages` in the state, the calls are `<key>_tool_calls`, and the turns, tokens, seconds and
    cost of all replies are `<key>_usage`.
    """

    max_turns: int
    injected: Mapping[int, str]
    """System messages by turn, counted from 1; without tools by turn of the conversation, as SyGra counts: from 0, of two."""
    key: str = "messages"
    cost_of: Costs

    def conversation(self, state: State) -> tuple[Message, ...]:
        messages = LlmNode.conversation(self, state)
        if state.get("_agent_prompt") and not any(each.role == "system" for each in messages):
            messages = (Message("system", str(state["_agent_prompt"])), *messages)
        said = None if self.tools else self.injected.get(len(state.get(HISTORY) or ()) // 2)
        return (*messages[:-1], Message("system", said), *messages[-1:]) if said else messages

    def ask(self, state: State, walk: Walk) -> Steps:
        state, begun = self.prepared(state)
        messages = begun
        calls: list[JSONDict] = [*(state.get(f"{self.key}_tool_calls") or ())]  # of earlier visits
        usage: JSONDict = {**UNUSED, **(state.get(f"{self.key}_usage") or {})}
        for turn in range(1, self.max_turns + 1):
            if turn in self.injected and self.tools:
                messages = (*messages, Message("system", self.injected[turn]))
            state |= self._trajectory(messages, calls, usage)
            [response] = (yield from answers([self.model.ask(messages, walk)], walk))[""]
            self._count(usage, response)
            if not response.calls:
                said = self._trajectory((*messages, Message("assistant", response.text)), calls, usage)
                state |= said
                return {**self.updates(response, state, begun), **said}
            asked = tuple(map(tool_call_of, response.calls))
            messages = (*messages, Message("assistant", response.text, asked))
            messages += tuple((yield from self._called(asked, walk, (turn, usage["turns"]), response, calls)))
        said = {**self._trajectory(messages, calls, usage), self.key: response.text}
        raise UnfinishedAgent(f"the agent {self.name!r} still called tools after {self.max_turns} turns", said)

    def _trajectory(self, messages: Sequence[Message], calls: Sequence[JSONDict], usage: JSONDict) -> Updates:
        return {
            f"{self.key}_messages": messages_to_plain(messages),
            f"{self.key}_tool_calls": list(calls),
            f"{self.key}_usage": dict(usage),
        }

    def _count(self, total: JSONDict, response: Text) -> None:
        total["turns"] += 1
        if response.usage is not None:
            total["tokens"] += response.usage.read + response.usage.written
            total["seconds"] += response.usage.seconds
        cost = self.cost_of(self.model.role, response)
        if cost is not None:
            total["cost"] = (total["cost"] or 0.0) + cost

    def _called(
        self, calls: Sequence[ToolCall], walk: Walk, turn: tuple[int, int], response: Text, noted: list[JSONDict]
    ) -> ToolSteps:
        """Return the tools' results as messages; a tool that is missing or raises gives the model an error message.

        `turn` is that of this visit, and that of all visits.
        """
        own, total = turn
        read = [as_mapping(call) for call in calls]
        can_run = [each["name"] in self.tools and isinstance(each["args"], dict) for each in read]
        left = walk.seconds_left()
        requested = [
            self.tools[each["name"]].call(each["args"], (*walk.node, own, position, each["name"]), left)
            for position, (each, runs) in enumerate(zip(read, can_run, strict=True))
            if runs
        ]
        results = iter((yield from run_calls(requested)) if requested else ())
        messages: list[Message] = []
        for each, runs in zip(read, can_run, strict=True):
            missing = Returned(None, error=f"there is no such tool, or its arguments cannot be read: {each['name']}")
            result = next(results) if runs else missing
            if isinstance(result, Failed) and self.tools[each["name"]].reruns:
                result = Returned(None, error=result.reason)
            if isinstance(result, Failed):
                raise NodeFailed(result.reason)
            said = f"Error: {result.error}" if result.error else result.value
            text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False, default=str)
            messages.append(Message("tool", text, tool_call_id=each["id"]))
            noted.append(_noted(each, result, text, total, response))
            walk.note_call(noted[-1])
            if result.error:
                walk.noticed[BROKEN_CALLS] += 1
            if not result.is_kept:
                walk.noticed[UNKEPT] += 1
        walk.check_limits()
        return messages


def _noted(call: JSONDict, result: Returned, text: str, turn: int, response: Text) -> JSONDict:
    """A call in the state: its arguments, its result or error, and the turn that made it with its tokens."""
    usage = response.usage
    return {
        "name": call["name"],
        "arguments": call["args"],
        "result": None if result.error else result.value if result.is_kept else text,
        "error": result.error or None,
        "turn": turn,
        "tokens": usage.read + usage.written if usage is not None else None,
        "seconds": result.usage.seconds if result.usage is not None else 0.0,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class UserNode(LlmNode):
    """Plays the user: its model gets its own prompt, then the conversation with the roles of user and assistant exchanged."""

    def conversation(self, state: State) -> tuple[Message, ...]:
        own = len(self.prompt.messages)
        messages = LlmNode.conversation(self, state)
        return (*messages[:own], *flipped(messages[own:]))


def flipped(messages: Sequence[Message]) -> list[Message]:
    """A conversation as its other side sees it: without system messages, tools and turns without a text.

    >>> [message[:2] for message in flipped([Message("user", "hi"), Message("assistant", "hello")])]
    [('assistant', 'hi'), ('user', 'hello')]
    """
    roles = {"user": "assistant", "assistant": "user"}
    return [Message(roles[each.role], each.content) for each in messages if each.role in roles and each.content]
