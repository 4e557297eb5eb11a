"""What a run says to all of its tasks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from assay.records import Function
from assay.samples.prompt import Chat


@dataclass(frozen=True, slots=True)
class RegisteredMetric:
    """A metric of helper code's, with what it was registered with: that counts where a task says nothing."""

    function: Callable[..., Any]
    aggregation: Callable[..., Any] | None
    higher_is_better: bool | None


@dataclass(frozen=True, slots=True)
class Helpers:
    """How helper code is reached: what a `!function` is, how rows look to it, and what it calls by name.

    The room `compat` supplies these; tasks need not know how.
    """

    resolve: Callable[[Function], Any]
    as_dataset: Callable[[Sequence[Mapping[str, Any]]], Any]
    find_metric: Callable[[str], Callable[..., Any] | None]
    filters: Callable[[], Mapping[str, Callable[..., Any]]]
    metrics: Mapping[str, RegisteredMetric] = field(default_factory=dict)
    aggregations: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


class Shard(NamedTuple):
    """One of several equal parts of the documents; `number` counts from 1."""

    number: int
    of: int


@dataclass(frozen=True, slots=True)
class Settings:
    """How the tasks of a run are set up."""

    num_fewshot: int | None = None
    repeats: int | None = None
    gen_kwargs: Mapping[str, object] = field(default_factory=dict)
    limit: float | None = None
    sample: int | None = None
    samples: Mapping[str, Sequence[int]] | None = None
    shard: Shard | None = None
    chat: Chat = field(default_factory=Chat)
    fewshot_seed: int | None = 1234
    data_dir: str | None = None
    predict_only: bool = False
    like_lm_eval: bool = False
    fits: Callable[[Sequence[str], int], bool] | None = None
    """Whether prompts fit the model, with so many tokens to come; where it is given, examples are dropped until they do."""
