"""Few-shot samplers as classes, which helper code may subclass."""

import random
from collections.abc import Sequence
from typing import Any


class ContextSampler:
    """Random examples from a pool."""

    def __init__(
        self, df: Sequence[Any] | None = None, *, rnd: int | None = None, fewshot_indices: Any = None, **_: Any
    ) -> None:
        self.rnd = random.Random(rnd)
        self.df = list(df or [])
        self.fewshot_indices = fewshot_indices

    def set_rnd(self, rnd: int | None) -> "ContextSampler":
        self.rnd = random.Random(rnd)
        return self

    def replace_df(self, df: Sequence[Any]) -> "ContextSampler":
        self.df = list(df)
        return self

    def fewshot_docs(self) -> list[Any]:
        return [self.df[index] for index in self.fewshot_indices] if self.fewshot_indices else list(self.df)

    def sample(self, n: int, eval_doc: Any = None, df: Sequence[Any] | None = None, **_: Any) -> Sequence[Any]:
        if n == 0:
            return []
        if df:
            self.df = list(df)
        pool = self.fewshot_docs()
        drawn = self.rnd.sample(pool, n + 1 if eval_doc else n)
        chosen = self.rm_eval_doc(eval_doc, drawn, n) if eval_doc else drawn
        if len(chosen) < n:
            chosen = self.rnd.sample([doc for doc in pool if doc != eval_doc], n)
        return chosen

    @staticmethod
    def rm_eval_doc(doc: Any, _iter: Sequence[Any], n: int | None = None) -> list[Any]:
        return [each for each in _iter if each != doc][:n]


class FirstNSampler(ContextSampler):
    """The first examples of a pool."""

    def sample(self, n: int, eval_doc: Any = None, df: Sequence[Any] | None = None, **_: Any) -> Sequence[Any]:  # noqa: ARG002
        pool = self.rm_eval_doc(eval_doc, self.df) if eval_doc is not None else self.df
        if n > len(pool):
            raise ValueError(f"{n} examples are asked for, and the pool holds {len(pool)}")
        return pool[:n]
