"""What lm-eval's two older kinds of task classes add to `Task`: choices in the document, and the perplexity of a text."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from assay.compat.task_base import Instance
from assay.statistics.aggregations import bits_per_byte, mean, weighted_perplexity


def _gold_text(self: Any, doc: Mapping[str, Any], *_: Any) -> str:  # noqa: ARG001  # a method
    return f" {doc['choices'][doc['gold']]}"


def _ask_choices(self: Any, doc: Mapping[str, Any], ctx: str, **kwargs: Any) -> list[Instance]:  # noqa: ARG001
    metadata = kwargs.get("metadata", (None, None, None))
    return [
        Instance("loglikelihood", doc, (ctx, f" {choice}"), number, metadata)
        for number, choice in enumerate(doc["choices"])
    ]


def _score_choices(self: Any, doc: Mapping[str, Any], results: Sequence[tuple[float, bool]]) -> dict[str, float]:  # noqa: ARG001
    likelihoods = np.array([likelihood for likelihood, _ in results])
    lengths = np.array([float(len(choice)) for choice in doc["choices"]])
    return {
        "acc": float(np.argmax(likelihoods) == doc["gold"]),
        "acc_norm": float(np.argmax(likelihoods / lengths) == doc["gold"]),
    }


MULTIPLE_CHOICE: dict[str, Any] = {
    "OUTPUT_TYPE": "loglikelihood",
    "doc_to_target": _gold_text,
    "construct_requests": _ask_choices,
    "process_results": _score_choices,
    "aggregation": lambda self: {"acc": mean, "acc_norm": mean},  # noqa: ARG005
    "higher_is_better": lambda self: {"acc": True, "acc_norm": True},  # noqa: ARG005
}


def _no_examples(self: Any, doc: Any, num_fewshot: int = 0, **_: Any) -> str:  # noqa: ARG001
    if num_fewshot != 0:
        raise ValueError("a perplexity task has no examples: set num_fewshot to 0")
    return ""


def _ask_text(self: Any, doc: Any, ctx: str | None = None, **kwargs: Any) -> Instance:
    if ctx:
        raise ValueError("a perplexity task has no context")
    metadata = kwargs.get("metadata", (None, None, None))
    return Instance("loglikelihood_rolling", doc, (self.doc_to_target(doc),), 0, metadata)


def _score_text(self: Any, doc: Any, results: Sequence[float]) -> dict[str, tuple[float, int]]:
    (likelihood,) = results
    text = self.doc_to_target(doc)
    size = likelihood, self.count_bytes(text)
    return {"word_perplexity": (likelihood, self.count_words(text)), "byte_perplexity": size, "bits_per_byte": size}


PERPLEXITY: dict[str, Any] = {
    "OUTPUT_TYPE": "loglikelihood_rolling",
    "has_training_docs": lambda self: False,  # noqa: ARG005
    "doc_to_text": lambda self, doc, *_: "",  # noqa: ARG005
    "doc_to_target": lambda self, doc, *_: doc,  # noqa: ARG005
    "fewshot_context": _no_examples,
    "construct_requests": _ask_text,
    "process_results": _score_text,
    "aggregation": lambda self: {  # noqa: ARG005
        "word_perplexity": weighted_perplexity,
        "byte_perplexity": weighted_perplexity,
        "bits_per_byte": bits_per_byte,
    },
    "higher_is_better": lambda self: dict.fromkeys(("word_perplexity", "byte_perplexity", "bits_per_byte"), False),  # noqa: ARG005
}
