"""Settings of a run for all of its tasks, and how helper code is reached."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from assay.config.run import RunConfig
from assay.config.task import GenerationParams
from assay.dialect import Dialect, dialect_of
from assay.errors import Place
from assay.records import (
    DEFAULT_MAX_GEN_TOKS,
    Message,
    Prompt,
    Response,
)
from assay.runs.extensions import Extension
from assay.samples.prompt import Chat
from assay.scoring.helper_code import Helpers

HELPER_CODE: Extension[Callable[[], Helpers]] = Extension("assay.compat.modules")
"""Makes the helper code of a task that is scored without a run."""
Messages = tuple[Message, ...]


def _as_it_is(role: str, messages: Messages) -> Prompt:  # noqa: ARG001  # the shape of a writer
    return messages


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """Settings of a run for graphs.

    `write` makes a conversation a prompt for the model of a role, `takes_schema` says whether that model takes a JSON
    Schema, and `cost` returns the cost of its response; all are for when the models are there. `roles` are those that the
    run names; `whole` says that the model under test answers for every model of a graph.
    """

    write: Callable[[str, Messages], Prompt] = _as_it_is
    takes_schema: Callable[[str], bool] = lambda role: False  # noqa: ARG005
    roles: frozenset[str] = frozenset()
    whole: bool = False
    cost: Callable[[str, Response], float | None] = lambda role, response: None  # noqa: ARG005
    definition: Callable[[str, Place], Any] | None = None
    """Finds a subgraph by its name, for checks; the place is where the name is written."""


class Shard(NamedTuple):
    """One of several equal parts of the documents; `number` counts from 1."""

    number: int
    of: int


@dataclass(frozen=True, slots=True)
class Settings:
    """How the tasks of a run are set up: the options of the run, and what is resolved from them."""

    run: RunConfig = field(default_factory=RunConfig)
    gen_kwargs: GenerationParams = field(default_factory=dict)
    shard: Shard | None = None
    chat: Chat = field(default_factory=Chat)
    graphs: GraphSettings = field(default_factory=GraphSettings)
    fits: Callable[[Sequence[str], int], bool] | None = None
    """Whether prompts fit the model, with so many tokens to come; where it is given, examples are dropped until they do."""

    @property
    def dialect(self) -> Dialect:
        """The rules that `--compat` asks for, whatever files the tasks come from: those of a task are `task_dialect`."""
        return dialect_of(self.run.compat)


def generation_params(
    task: Mapping[str, object] | None, fewshot_delimiter: str, command: Mapping[str, object]
) -> dict[str, object]:
    """The parameters of generation: the task's, completed as lm-eval does, and over them the command line's."""
    if task is None:
        params: dict[str, object] = {
            "temperature": 0.0, "do_sample": False, "max_gen_toks": DEFAULT_MAX_GEN_TOKS, "until": [fewshot_delimiter],
        }  # fmt: skip
    else:
        params = dict(task)
        if "temperature" in params:
            params["temperature"] = float(str(params["temperature"]))
        params.setdefault("until", [fewshot_delimiter])
    return {**params, **command}


@contextmanager
def preserved_random() -> Iterator[None]:
    """Restore the global random state on exit, whatever is drawn inside."""
    state, array = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(array)


def seed_random(seed: int | None, array_seed: int | None) -> None:
    """Begin the global streams at these seeds; None leaves one as it is."""
    if seed is not None:
        random.seed(seed)
    if array_seed is not None:
        np.random.seed(array_seed)
