"""Choice of few-shot examples: lm-eval's random stream, without its leaks."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.registry import Registry, must_be_callable
from assay.samples.prompt import Pool, RenderError, Row, Sampler


@dataclass(frozen=True, slots=True)
class LeakPolicy:
    """Handles the evaluated document when it is in the pool.

    `one_more`: draw one example more than needed as a spare (as lm-eval does where few-shot and test split are the
    same, or both unnamed). `always`: never show a document its own answer, whatever the pool.
    """

    one_more: bool
    always: bool


class TooFewExamples(RenderError):
    """The pool has fewer examples than requested."""


def default_sampler(pool: Pool, seed: int | None, leaks: LeakPolicy) -> Sampler:
    """Random examples: one generator for the task, drawn from once per document, in order."""
    generator = random.Random(seed)

    def choose(doc: Row, number: int) -> Sequence[int]:
        spare = 1 if leaks.one_more and doc and len(pool) > number else 0
        chosen = _draw(generator, range(len(pool)), number + spare)
        if spare or leaks.always:
            chosen = [index for index in chosen if pool[index] != doc]
        if len(chosen) < number:  # copies of the document were drawn: draw again from what is not a copy
            chosen = _draw(generator, [index for index in range(len(pool)) if pool[index] != doc], number)
        return chosen[:number]

    return choose


def first_n_sampler(pool: Pool, seed: int | None, leaks: LeakPolicy) -> Sampler:  # noqa: ARG001  # nothing is random here
    """The first examples of the pool, in order."""
    everything = range(len(pool))

    def choose(doc: Row, number: int) -> Sequence[int]:
        guarded = leaks.one_more or leaks.always
        looked_at = everything[: number + 1] if guarded else everything[:number]
        chosen = [index for index in looked_at if not guarded or pool[index] != doc][:number]
        if len(chosen) < number:
            chosen = [index for index in everything if not guarded or pool[index] != doc][:number]
        if len(chosen) < number:
            raise TooFewExamples(f"{number} examples are asked for, and the pool holds {len(chosen)}")
        return chosen

    return choose


def _draw(generator: random.Random, population: Sequence[int], number: int) -> list[int]:
    if number > len(population):
        raise TooFewExamples(f"{number} examples are asked for, and the pool holds {len(population)}")
    return generator.sample(population, number)


SAMPLERS: Registry[Callable[..., Any], Sampler] = Registry(
    "sampler",
    {"default": default_sampler, "first_n": first_n_sampler},
    group="assay.samplers",
    supplied=("pool", "seed", "leaks"),
    adopt=must_be_callable,
)
