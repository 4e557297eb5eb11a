"""Earlier turns of a conversation, in the state as SyGra's helper code knows them: by node, request and response."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from assay.graphs.spec import Record, Value
from assay.records import JSONDict, Message, plain_to_messages

HISTORY = "__chat_history__"


ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
"""Roles of messages by the types that LangChain's have."""
_TYPES = {role: kind for kind, role in ROLES.items()}


class ChatMessage(dict[str, Value]):
    """A message of the state: role and content, also by the names that LangChain's messages have."""

    @property
    def type(self) -> str:
        return _TYPES.get(str(self["role"]), str(self["role"]))

    @property
    def content(self) -> Value:
        return self["content"]


class WantedCall(dict[str, Value]):
    """A call of a tool in the state: name, args, id, type. Helper code written for SyGra reads OpenAI's `function` of it."""

    def __missing__(self, key: str) -> Value:
        if key == "function":
            return {"name": self["name"], "arguments": json.dumps(self["args"], ensure_ascii=False)}
        raise KeyError(key)

    def get(self, key: str, default: Value = None) -> Value:
        return self[key] if key == "function" else dict.get(self, key, default)


@dataclass(frozen=True, slots=True)
class History:
    """How earlier turns are sent: the latest of them, as messages or as one text."""

    window: int
    as_one: bool = False

    def place(self, messages: Sequence[Message], turns: Sequence[Record], name: str) -> tuple[Message, ...]:
        """A conversation with the latest turns after the system's messages. A turn may also be a message that helper code put
        there. As one text, they are in a message that asks for what comes next."""
        system = [message for message in messages if message.role == "system"]
        latest = list(turns[-self.window :])
        if self.as_one:
            asked = next((each["content"] for each in turns[0].get("request", ()) if each["role"] == "user"), "")
            said = [f"{turn.get('name')}: {turn.get('response')}" for turn in latest]
            lines = [
                "The conversation so far:",
                f"Organizer: {asked}",
                *said,
                "",
                f"Write what {name} says next, and no more.",
            ]
            return (*system, Message("user", "\n".join(lines)))
        while len(turns) > self.window and latest and latest[0].get("role", "user") != "user":
            del latest[0]
        earlier = [message for turn in latest for message in _messages(turn)]
        rest = [message for message in messages if message.role != "system"]
        return (*system, *plain_to_messages(earlier), *rest)


def _messages(entry: Record) -> list[JSONDict]:
    if "role" in entry:
        calls = entry.get("tool_calls")
        return [{**entry, "tool_calls": [calls]} if isinstance(calls, dict) and calls else dict(entry)]
    last = [each for each in entry.get("request", ()) if each["role"] == "user"][-1:]
    return [*last, {"role": "assistant", "content": entry.get("response") or ""}]
