"""Agents: nodes that call tools until their model answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.graphs.history import HISTORY
from assay.graphs.nodes import LlmNode, answers
from assay.graphs.tools import as_mapping
from assay.graphs.walk import (
    UNUSED,
    Asking,
    NodeFailed,
    State,
    Steps,
    UnfinishedAgent,
    Updates,
    Walk,
    add_usage,
    run_calls,
)
from assay.records import (
    Failed,
    JSONDict,
    Message,
    Returned,
    Text,
    messages_to_plain,
    tool_call_of,
)

BROKEN_CALLS = "with calls of tools that failed"
UNKEPT = "of tools that are not JSON, and not journaled"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentNode(LlmNode):
    """Asks a model, calls the tools that it wants, and asks again with what they gave, until it wants none.

    The conversation is `<key>_messages` in the state, the calls are `<key>_tool_calls`, and the turns, tokens, seconds and
    cost of all replies are `<key>_usage`.
    """

    injected: Mapping[int, str]
    """System messages by turn, counted from 1; without tools by turn of the conversation, as SyGra counts: from 0, of two."""

    @property
    def key(self) -> str:
        return str(self.spec.keys[0])

    def conversation(self, state: State) -> tuple[Message, ...]:
        messages = LlmNode.conversation(self, state)
        if state.get("_agent_prompt") and not any(each.role == "system" for each in messages):
            messages = (Message("system", str(state["_agent_prompt"])), *messages)
        said = None if self.tools else self.injected.get(len(state.get(HISTORY) or ()) // 2)
        return (*messages[:-1], Message("system", said), *messages[-1:]) if said else messages

    def ask(self, state: State, walk: Walk) -> Steps:
        state, begun = self.prepared(state)
        max_turns = self.spec.max_turns
        messages = begun
        calls: list[JSONDict] = [*(state.get(f"{self.key}_tool_calls") or ())]  # of earlier visits
        usage: JSONDict = {**UNUSED, **(state.get(f"{self.key}_usage") or {})}
        for turn in range(1, max_turns + 1):
            if turn in self.injected and self.tools:
                messages = (*messages, Message("system", self.injected[turn]))
            state |= self._trajectory(messages, calls, usage)
            [response] = yield from answers([(self.model, walk)], messages)
            add_usage(usage, response.usage, walk.cost_of(self.model.role, response))
            if not response.calls:
                said = self._trajectory((*messages, Message("assistant", response.text)), calls, usage)
                state |= said
                return {**self.updates(response, state, begun), **said}
            messages = (*messages, Message("assistant", response.text, tuple(map(tool_call_of, response.calls))))
            messages += tuple((yield from self._call_tools(response, walk, (turn, usage["turns"]), calls)))
        said = {**self._trajectory(messages, calls, usage), self.key: response.text}
        raise UnfinishedAgent(f"the agent {self.name!r} still called tools after {max_turns} turns", said)

    def _trajectory(self, messages: Sequence[Message], calls: Sequence[JSONDict], usage: JSONDict) -> Updates:
        return {
            f"{self.key}_messages": messages_to_plain(messages),
            f"{self.key}_tool_calls": list(calls),
            f"{self.key}_usage": dict(usage),
        }

    def _call_tools(
        self, response: Text, walk: Walk, turn: tuple[int, int], noted: list[JSONDict]
    ) -> Asking[list[Message]]:
        """Return the tools' results as messages; a tool that is missing or raises gives the model an error message.

        `turn` is that of this visit, and that of all visits.
        """
        own, total = turn
        wanted = [as_mapping(tool_call_of(call)) for call in response.calls]
        left = walk.seconds_left()
        runnable = {
            position: self.tools[call["name"]].call(call["args"], (*walk.node, own, position, call["name"]), left)
            for position, call in enumerate(wanted)
            if call["name"] in self.tools and isinstance(call["args"], dict)
        }
        returned = (yield from run_calls([*runnable.values()])) if runnable else []
        results = dict(zip(runnable, returned, strict=True))
        messages: list[Message] = []
        for position, call in enumerate(wanted):
            missing = Returned(None, error=f"there is no such tool, or its arguments cannot be read: {call['name']}")
            result = results.get(position, missing)
            if isinstance(result, Failed):
                if not self.tools[call["name"]].reruns:
                    raise NodeFailed(result.reason)
                result = Returned(None, error=result.reason)
            said = f"Error: {result.error}" if result.error else result.value
            text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False, default=str)
            messages.append(Message("tool", text, tool_call_id=call["id"]))
            noted.append(_noted(call, result, text, total, response))
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
