"""A model for all of SyGra's task graphs, and records for those whose data is not in its repository.

The model answers by rules, so that one run is as another: SyGra itself was run against it to get tests/sygra_facts.json.
"""

import json
import re
from pathlib import Path
from typing import Any

from serving import Arrived

TOPICS = ["Music", "Art", "Sports", "History", "Other"]
ANSWERS = [("Paris", "paris"), ("Rome", "Rom"), ("Bergen", "Oslo"), ("Bern", None)]


def problem(**said: Any) -> str:
    return json.dumps({"say": json.dumps(said) if None not in said.values() else "no idea"})


QUESTIONS = [
    {"task_id": n, "problem": problem(predicted_answer=predicted), "answer": golden, "topic": "Geography"}
    for n, (golden, predicted) in enumerate(ANSWERS)
]
PROBLEMS = [
    {"task_id": n, "problem": problem(predicted_topic=said), "answer": "", "topic": topic}
    for n, (topic, said) in enumerate(zip(TOPICS * 2, ["Music", "music", "Art", "Sports", "Opera"] * 2, strict=True))
]
PICTURE = "data:image/png;base64,iVBORw0KGgo="
MISSIONS = [
    {
        "id": f"m{n}", "mission_id": f"mission{n // 2}", "turn": n % 2, "mission": "Buy a ticket",
        "navigational_directions": "", "chat_history": [], "current_user_text": f"Step {n}: {tool}",
        "current_screenshot": PICTURE, "current_tool_result": {"content": []}, "date": "2026-01-01",
        "golden_response": {"tool": golden, "properties": properties},
    }
    for n, (tool, golden, properties) in enumerate(
        [
            ("click 5 5", "click", {"bbox": {"x": 0, "y": 0, "width": 10, "height": 10}}),
            ("click 50 5", "click", {"bbox": {"x": 0, "y": 0, "width": 10, "height": 10}}),
            ("type hello", "typing", {"text": "hello"}),
            ("scroll down", "click", {"bbox": {"x": 0, "y": 0, "width": 10, "height": 10}}),
        ]
    )
]  # fmt: skip
CODE = [{"id": n, "task_id": n, "prompt": f"Write f{n}.", "question": f"Write f{n}.", "answer": "def f(): pass",
         "test_list": ["assert f()"], "audio": "data:audio/wav;base64,UklGRg=="} for n in (1, 2)]  # fmt: skip
HUB = {
    "google/simpleqa-verified/simpleqa_verified/eval": None,
    "glaiveai/glaive-code-assistant-v2/default/train": CODE,
    "google-research-datasets/mbpp/sanitized/train": [
        {key: value for key, value in each.items() if key != "id"} for each in CODE
    ],
    "datasets-examples/doc-audio-1/default/train": CODE,
    "HuggingFaceM4/Docmatix/zero-shot-exp/train": [{"id": 1, "images": [PICTURE]}],
}
"""The data sets of the graphs by their place in a data folder; the two evaluations have different records of one."""


def write_data(top: Path, name: str) -> None:
    """The records of a graph that are not in SyGra's repository, in `top`/data and where the graph reads them."""
    for place, records in HUB.items():
        file = (top / "data" / place).with_suffix(".jsonl")
        file.parent.mkdir(parents=True, exist_ok=True)
        own = records or (QUESTIONS if "question" in name else PROBLEMS)
        file.write_text("".join(json.dumps(each) + "\n" for each in own))
    (top / "tasks/eval/agents/web_agents/chat_history_seed.json").write_text(json.dumps(MISSIONS))


def _text(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(part.get("text", "") for part in content)
    return content or ""


Call = tuple[str, dict[str, Any]]
RULES: list[tuple[str, str]] = [
    ("simulating a realistic roleplay", json.dumps(
        {"agent_1_role": "Ann Lee", "agent_1_prompt": "You are Ann.", "agent_2_role": "Bob", "agent_2_prompt": "You are Bob."}
    )),
    ("identifying category", json.dumps({"category": "Coding", "sub_category": "Python"})),
    ("short_description", json.dumps({"short_description": "a printer", "description": "it does not print"})),
    ("impartial judge", json.dumps([
        {"assistant": name, "rating": rating, "explanation": "so"}
        for name, rating in (("gpt4", 9), ("gpt-4o", 6), ("gpt-4o-mini", 2), ("scale", 5))
    ])),
    ("paraphrasing a user question", "PARAPHRASED QUESTION: Say it otherwise."),
    ("You improve the candidate", "an improved answer"),
    ("act as a Prompt", "an evolved text"),
    ("unit test", "Unit tests find mistakes early."),
    ("generate questions based on them", "".join(
        f"<question{n}><question_type>objective</question_type><supporting_evidence>all</supporting_evidence>{n}?</question{n}>"
        for n in (1, 2, 3)
    )),
    ("all the text in the image", "<ANSWER>words</ANSWER>"),
    ("animal", "a dog"),
    ("solving", "def f(): pass"),
]  # fmt: skip
"""What is said where a text is in the prompt: the first that is."""
STEPS = {
    "(2+3)*5": [("add", {"a": 2, "b": 3}), ("multiply", {"a": 5, "b": 5})],
    "subtract 1": [("multiply", {"a": 2, "b": 3}), ("subtract", {"a": 6, "b": 1})],
    "3/2": [("divide", {"a": 3, "b": 2})],
    "(2+3)?": [("add", {"a": 2, "b": 3})],
    "multiplying 2 and 3?": [("multiply", {"a": 2, "b": 3})],
    "subtracting 2 from 3": [("subtract", {"a": 3, "b": 2})],
}


def reply(messages: list[dict[str, Any]]) -> str | Call:
    """What the model says, or the tool that it calls."""
    texts = [_text(each.get("content")) for each in messages]
    prompt, last = "\n".join(texts), texts[-1]
    if last.startswith('{"say"'):
        said: str = json.JSONDecoder().raw_decode(last)[0]["say"]
        return said
    if "Step " in prompt and "browser automation" in prompt:
        return _browse(prompt, sum(each["role"] == "assistant" for each in messages))
    if "math agent" in prompt:
        return _calculate(messages, prompt)
    if "You are a strict judge" in prompt:
        good = "improved" in prompt
        return json.dumps({"score": 5 if good else 2, "is_good": good, "critique": "fine" if good else "too short"})
    if "grading a solution" in prompt:
        return "NO MORE FEEDBACK" if len(messages) > 3 else "Add a comment."
    if "Response message" in prompt or '"message"' in prompt:
        return json.dumps({"message": "hello", "success": True})
    for mark, said in RULES:
        if mark in prompt:
            return said
    return _converse(last)


def _browse(prompt: str, tries: int) -> Call:
    kind, *rest = re.findall(r"Step \d: (.*)", prompt)[0].split()
    if kind == "click":
        x, y = (float(each) for each in rest)
        return "click_tool", {"x": x if tries < 1 else 5.0, "y": y}
    return (
        ("type_tool", {"text": rest[0]}) if kind == "type" else ("scroll_tool", {"direction": rest[0], "amount": 10.0})
    )


def _calculate(messages: list[dict[str, Any]], prompt: str) -> str | Call:
    results = [_text(each["content"]) for each in messages if each["role"] == "tool"]
    steps = next((steps for mark, steps in STEPS.items() if mark in prompt), [])
    return (
        steps[len(results)] if len(results) < len(steps) else f"The answer is {results[-1] if results else 'unknown'}."
    )


def _converse(last: str) -> str:
    said = re.findall(r"round (\d)", last)
    number = int(said[-1]) + 1 if said else 1
    return f"round {number}" if number < 4 else "FINAL ANSWER: done"


def answer(arrived: Arrived) -> Any:
    """The answer to a request, in OpenAI's protocol."""
    if arrived.method == "GET":
        return {"data": [{"id": "m", "max_model_len": 100_000}]}
    asked = json.loads(arrived.body)
    said = reply(asked["messages"])
    message: dict[str, Any] = {"role": "assistant", "content": said}
    if isinstance(said, tuple):
        called = {"name": said[0], "arguments": json.dumps(said[1])}
        message = {"role": "assistant", "content": None,
                   "tool_calls": [{"id": f"call{len(asked['messages'])}", "type": "function", "function": called}]}  # fmt: skip
    if "schema" in json.dumps(asked.get("response_format") or {}) and "success" in json.dumps(asked["response_format"]):
        message["content"] = json.dumps({"message": "hello", "success": True})
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if isinstance(said, tuple) else "stop"}
    return {
        "id": "x", "object": "chat.completion", "created": 1, "model": asked.get("model", "m"), "choices": [choice],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }  # fmt: skip
