"""What the nodes of the bundled graphs do beside asking: plain functions of the state."""

from typing import Any

State = dict[str, Any]
EXAMPLES = ("sort: d b -> b d\n\n", "sort: z t p h f -> f h p t z\n\n")


def first_line(message: Any) -> State:
    """The first line of an answer, without what does not belong to it."""
    line = message.content.strip().partition("\n")[0].rstrip(".")
    return {"predicted": line.removeprefix("In the ")}


def label(node: State, state: State) -> State:
    """The class that was meant, and the one that is right, by their names."""
    labels = state[node["labels_key"]]
    said = state["said"].lower()
    found = [each for each in labels if each in said]
    return {"right_class": labels[state["answer"]], "predicted_class": found[0] if found else "none"}


def begin(_: State, __: State) -> State:
    return {"examples": "", "tries": 0}


def look(node: State, state: State) -> State:
    """Whether an answer has the letters of the question, or was asked for often enough; if not, there is an example more."""
    tries = state["tries"] + 1
    letters = state["question"].removeprefix("sort:").removesuffix("->").split()
    is_done = sorted(state["predicted"].split()) == sorted(letters) or tries >= node["max_tries"]
    return {"tries": tries, "is_done": is_done, "examples": "".join(EXAMPLES[:tries])}


def next_step(state: State) -> str:
    return "done" if state["is_done"] else "again"
