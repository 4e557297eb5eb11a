"""What `evaluate.load` gives, for the metrics that task files and helper code name: computed here, nothing is downloaded."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from assay.compat.code_eval import code_eval
from assay.compat.squad import squad_v2
from assay.scoring.metrics.table import exact_match as matches


class Loaded:
    """A metric as `evaluate` hands it out: `compute` takes all predictions and references at once."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._function = function
        self._added: tuple[list[Any], list[Any]] = ([], [])

    def compute(
        self, *, predictions: Sequence[Any] | None = None, references: Sequence[Any] | None = None, **kwargs: Any
    ) -> Any:
        if predictions is None or references is None:
            predictions, references = self._added
            self._added = ([], [])
        return self._function(predictions=list(predictions), references=list(references), **kwargs)

    def add(self, *, prediction: Any, reference: Any) -> None:
        self._added[0].append(prediction)
        self._added[1].append(reference)

    def add_batch(self, *, predictions: Sequence[Any], references: Sequence[Any]) -> None:
        self._added[0].extend(predictions)
        self._added[1].extend(references)


def f1(predictions: Sequence[Any], references: Sequence[Any], labels: Any = None, pos_label: Any = 1,
       average: str | None = "binary", sample_weight: Any = None) -> dict[str, Any]:  # fmt: skip
    from sklearn.metrics import f1_score

    score = f1_score(
        references, predictions, labels=labels, pos_label=pos_label, average=average, sample_weight=sample_weight
    )
    return {"f1": float(score) if np.size(score) == 1 else score}


def accuracy(
    predictions: Sequence[Any], references: Sequence[Any], normalize: bool = True, sample_weight: Any = None
) -> dict[str, Any]:
    from sklearn.metrics import accuracy_score

    return {
        "accuracy": float(accuracy_score(references, predictions, normalize=normalize, sample_weight=sample_weight))
    }


def exact_match(predictions: Sequence[Any], references: Sequence[Any], **kwargs: Any) -> dict[str, Any]:
    scores = [matches([reference], answer, **kwargs) for answer, reference in zip(predictions, references, strict=True)]
    return {"exact_match": np.mean(scores)}


def rouge(
    predictions: Sequence[str], references: Sequence[Any], rouge_types: Sequence[str] | None = None,
    use_aggregator: bool = True, use_stemmer: bool = False, tokenizer: Any = None,
) -> dict[str, Any]:  # fmt: skip
    from rouge_score import rouge_scorer, scoring

    types = list(rouge_types or ["rouge1", "rouge2", "rougeL", "rougeLsum"])
    scorer = rouge_scorer.RougeScorer(types, use_stemmer=use_stemmer, tokenizer=tokenizer)
    scores = [
        scorer.score(reference, answer) if isinstance(reference, str) else scorer.score_multi(reference, answer)
        for reference, answer in zip(references, predictions, strict=True)
    ]
    if not use_aggregator:
        return {name: [score[name].fmeasure for score in scores] for name in types}
    aggregator = scoring.BootstrapAggregator()
    for score in scores:
        aggregator.add_scores(score)
    return {name: found.mid.fmeasure for name, found in aggregator.aggregate().items()}


def bleu(
    predictions: Sequence[str], references: Sequence[Any], tokenizer: Callable[[str], Sequence[str]] | None = None,
    max_order: int = 4, smooth: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Corpus BLEU as `evaluate` has it: clipped n-gram precisions, their geometric mean, a penalty for brevity."""
    split = tokenizer or _tokens_13a
    matched, possible = [0] * max_order, [0] * max_order
    given_length = wanted_length = 0
    for prediction, several in zip(predictions, references, strict=True):
        wanted = [list(split(text)) for text in ([several] if isinstance(several, str) else several)]
        given = list(split(prediction))
        given_length, wanted_length = given_length + len(given), wanted_length + min(map(len, wanted))
        counts = _ngrams(given, max_order)
        allowed: Counter[tuple[str, ...]] = Counter()
        for each in wanted:
            allowed |= _ngrams(each, max_order)
        for ngram, count in (counts & allowed).items():
            matched[len(ngram) - 1] += count
        for order in range(max_order):
            possible[order] += max(len(given) - order, 0)
    more = 1.0 if smooth else 0.0
    precisions = [(m + more) / (p + more) if p + more else 0.0 for m, p in zip(matched, possible, strict=True)]
    mean = math.exp(sum(math.log(p) for p in precisions) / max_order) if min(precisions) > 0 else 0.0
    ratio = given_length / wanted_length if wanted_length else 0.0
    penalty = 1.0 if ratio > 1.0 else math.exp(1 - 1.0 / ratio) if ratio else 0.0
    return {
        "bleu": mean * penalty, "precisions": precisions, "brevity_penalty": penalty, "length_ratio": ratio,
        "translation_length": given_length, "reference_length": wanted_length,
    }  # fmt: skip


def _ngrams(tokens: Sequence[str], most: int) -> "Counter[tuple[str, ...]]":
    return Counter(tuple(tokens[n : n + order]) for order in range(1, most + 1) for n in range(len(tokens) - order + 1))


def _tokens_13a(text: str) -> list[str]:
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    return list(Tokenizer13a()(text).split())  # type: ignore[no-untyped-call]


METRICS: dict[str, Callable[..., Mapping[str, Any]]] = {
    "bleu": bleu,
    "f1": f1,
    "accuracy": accuracy,
    "exact_match": exact_match,
    "rouge": rouge,
    "squad_v2": squad_v2,
}


def load(path: str, *_: Any, **__: Any) -> Loaded:
    """The metric of that name, as `evaluate.load` would give it. Only helper code gets the one that runs programs."""
    known: dict[str, Callable[..., Any]] = {**METRICS, "code_eval": code_eval}
    if path not in known:
        raise FileNotFoundError(f"evaluate.load({path!r}) would need the hub; without it there are: {', '.join(known)}")
    return Loaded(path, known[path])


def find_metric(name: str) -> Callable[..., Any] | None:
    """The function a task means that names a metric of `evaluate`."""
    return Loaded(name, METRICS[name]).compute if name in METRICS else None
