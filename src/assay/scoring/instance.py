"""A request of a document with its responses, as lm-eval's users know it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Instance:
    """One request: `resps` are the raw responses to it, one per repeat; `filtered_resps` what each filter left of them.

    `target` is what an answer is compared with: one reference or several; of choices, the number of the right one.
    """

    doc: Mapping[str, Any]
    doc_id: int = 0
    args: tuple[Any, ...] = ()
    target: Any = None
    idx: int = 0
    resps: Sequence[Any] = ()
    filtered_resps: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    task_name: str = ""
    request_type: str = "generate_until"
    choices: Sequence[str] = ()

    @property
    def repeats(self) -> int:
        return len(self.resps)


def sort_instances(instances: Sequence[Instance]) -> dict[int, list[Instance]]:
    """The instances of each document together, in the order of documents and of requests."""
    found: dict[int, list[Instance]] = {}
    for instance in sorted(instances, key=lambda each: (each.doc_id, each.idx)):
        found.setdefault(instance.doc_id, []).append(instance)
    return found
