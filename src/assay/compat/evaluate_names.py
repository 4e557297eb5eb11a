"""The metrics of `evaluate.load` that task files and helper code name, and SQuAD's; nothing is downloaded."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from assay.compat.features import Ignored
from assay.records import JSON, UserFunction
from assay.scoring.metrics.registry import exact_match as matches
from assay.scoring.metrics.text import plain_words, token_f1
from assay.scoring.sandbox import SandboxLimits, passes
from assay.statistics.pass_at_k import pass_at_k

Label = int | float | str | bool
"""A class that is predicted, or the right one."""
Texts = Sequence[str | Sequence[str]]
"""The references of each prediction: one text or more."""
Scores = float | np.ndarray[tuple[int], np.dtype[np.float64]]
"""A score, or one for each class."""


class EvaluateMetric:
    """A metric as `evaluate` hands it out: `compute` takes all predictions and references at once."""

    def __init__(self, name: str, function: UserFunction) -> None:
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


def f1(predictions: Sequence[Label], references: Sequence[Label], labels: Sequence[Label] | None = None, pos_label: Label = 1,
       average: str | None = "binary", sample_weight: Sequence[float] | None = None) -> dict[str, Scores]:  # fmt: skip
    from sklearn.metrics import f1_score

    score = f1_score(
        references, predictions, labels=labels, pos_label=pos_label, average=average, sample_weight=sample_weight
    )
    return {"f1": float(score) if np.size(score) == 1 else score}


def accuracy(
    predictions: Sequence[Label],
    references: Sequence[Label],
    normalize: bool = True,
    sample_weight: Sequence[float] | None = None,
) -> dict[str, float]:
    from sklearn.metrics import accuracy_score

    return {
        "accuracy": float(accuracy_score(references, predictions, normalize=normalize, sample_weight=sample_weight))
    }


def exact_match(predictions: Sequence[Any], references: Sequence[Any], **kwargs: Any) -> dict[str, Any]:
    scores = [matches([reference], answer, **kwargs) for answer, reference in zip(predictions, references, strict=True)]
    return {"exact_match": np.mean(scores)}


def rouge(
    predictions: Sequence[str], references: Texts, rouge_types: Sequence[str] | None = None,
    use_aggregator: bool = True, use_stemmer: bool = False, tokenizer: Any = None,
) -> dict[str, float | list[float]]:  # fmt: skip
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
    return {name: score.mid.fmeasure for name, score in aggregator.aggregate().items()}


def bleu(
    predictions: Sequence[str], references: Texts, tokenizer: Callable[[str], Sequence[str]] | None = None,
    max_order: int = 4, smooth: bool = False,
) -> dict[str, float | list[float]]:  # fmt: skip
    """Corpus BLEU as `evaluate` has it: clipped n-gram precisions, their geometric mean, a penalty for brevity."""
    split = tokenizer or _tokens_13a
    matched, possible = [0] * max_order, [0] * max_order
    predicted_length = expected_length = 0
    for prediction, texts in zip(predictions, references, strict=True):
        expected = [list(split(text)) for text in ([texts] if isinstance(texts, str) else texts)]
        predicted = list(split(prediction))
        predicted_length, expected_length = predicted_length + len(predicted), expected_length + min(map(len, expected))
        counts = _ngrams(predicted, max_order)
        allowed: Counter[tuple[str, ...]] = Counter()
        for tokens in expected:
            allowed |= _ngrams(tokens, max_order)
        for ngram, count in (counts & allowed).items():
            matched[len(ngram) - 1] += count
        for order in range(max_order):
            possible[order] += max(len(predicted) - order, 0)
    more = 1.0 if smooth else 0.0
    precisions = [(m + more) / (p + more) if p + more else 0.0 for m, p in zip(matched, possible, strict=True)]
    mean = math.exp(sum(math.log(p) for p in precisions) / max_order) if min(precisions) > 0 else 0.0
    ratio = predicted_length / expected_length if expected_length else 0.0
    penalty = 1.0 if ratio > 1.0 else math.exp(1 - 1.0 / ratio) if ratio else 0.0
    return {
        "bleu": mean * penalty, "precisions": precisions, "brevity_penalty": penalty, "length_ratio": ratio,
        "translation_length": predicted_length, "reference_length": expected_length,
    }  # fmt: skip


def _ngrams(tokens: Sequence[str], most: int) -> "Counter[tuple[str, ...]]":
    return Counter(tuple(tokens[n : n + order]) for order in range(1, most + 1) for n in range(len(tokens) - order + 1))


def _tokens_13a(text: str) -> list[str]:
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    return list(Tokenizer13a()(text).split())  # type: ignore[no-untyped-call]


def normalize_answer(s: str) -> str:
    """Lower case, without punctuation, articles and extra white space."""
    return " ".join(plain_words(s))


def get_tokens(s: str) -> list[str]:
    return plain_words(s)


def compute_exact(a_gold: str, a_pred: str) -> int:
    return int(plain_words(a_gold) == plain_words(a_pred))


def compute_f1(a_gold: str, a_pred: str) -> float:
    """F1 of the words in common; where one side has none, whether the other has none either."""
    return token_f1([a_gold], a_pred)


def squad_v2(predictions: list[dict[str, JSON]], references: list[dict[str, JSON]]) -> dict[str, float]:
    """The scores of `evaluate.load("squad_v2")`: over all, over questions with an answer, and over those without."""
    predicted = {str(entry["id"]): str(entry["prediction_text"]) for entry in predictions}
    unanswerable = {str(entry["id"]): float(str(entry["no_answer_probability"])) for entry in predictions}
    exact: dict[str, float] = {}
    f1: dict[str, float] = {}
    has_answer: dict[str, bool] = {}
    for entry in references:
        name, answers = str(entry["id"]), entry["answers"]
        texts = [text for text in _texts(answers) if normalize_answer(text)] or [""]
        has_answer[name] = bool(_texts(answers))
        exact[name] = max(compute_exact(text, predicted[name]) for text in texts)
        f1[name] = max(compute_f1(text, predicted[name]) for text in texts)
    scores = _means(exact, f1, list(exact), "")
    for prefix, answerable in (("HasAns_", True), ("NoAns_", False)):
        names = [name for name, has in has_answer.items() if has is answerable]
        scores |= _means(exact, f1, names, prefix) if names else {}
    answered = {name for name, text in predicted.items() if text}
    for which, values in (("exact", exact), ("f1", f1)):
        scores |= _best(values, unanswerable, has_answer, answered, which)
    return scores


def _texts(answers: JSON) -> list[str]:
    if isinstance(answers, dict):
        return [str(text) for text in answers.get("text", [])]
    return [str(answer["text"]) for answer in answers] if isinstance(answers, list) else []


def _means(exact: dict[str, float], f1: dict[str, float], names: list[str], prefix: str) -> dict[str, float]:
    total = len(names)
    return {
        f"{prefix}exact": 100.0 * sum(exact[name] for name in names) / total,
        f"{prefix}f1": 100.0 * sum(f1[name] for name in names) / total,
        f"{prefix}total": total,
    }


def _best(
    scores: dict[str, float], unanswerable: dict[str, float], has_answer: dict[str, bool], answered: set[str], name: str
) -> dict[str, float]:
    """The best score over all thresholds for "no answer", and its threshold."""
    current = best = float(sum(1 for has in has_answer.values() if not has))
    threshold = 0.0
    for question in sorted(unanswerable, key=unanswerable.__getitem__):
        if question not in scores:
            continue
        current += scores[question] if has_answer[question] else -1 if question in answered else 0
        if current > best:
            best, threshold = current, unanswerable[question]
    return {f"best_{name}": 100.0 * best / len(scores), f"best_{name}_thresh": threshold}


SQUAD_METRICS = {function.__name__: function for function in (normalize_answer, get_tokens, compute_exact, compute_f1)}
"""SQuAD's exact match and F1, as `transformers.data.metrics.squad_metrics` had them before transformers 5."""


class Verdict(TypedDict):
    """The outcome of one program, with the keys of `evaluate`."""

    task_id: int
    passed: bool
    result: str
    completion_id: int


Verdicts = dict[int, list[tuple[int, Verdict]]]


def code_eval(
    predictions: Sequence[Sequence[str]],
    references: Sequence[str],
    k: Sequence[int] = (1, 10, 100),
    num_workers: int = 4,  # noqa: ARG001  # theirs; one program runs at a time here
    timeout: float = 3.0,
) -> tuple[dict[str, float], Verdicts]:
    """`pass@k` over tasks, for each k that all tasks have programs for; and the outcome of every program."""
    verdicts: Verdicts = {}
    for task, (programs, tests) in enumerate(zip(predictions, references, strict=True)):
        verdicts[task] = [
            (number, _verdict(task, number, f"{program}\n{tests}", timeout)) for number, program in enumerate(programs)
        ]
    counts = [(len(programs), sum(verdict["passed"] for _, verdict in programs)) for programs in verdicts.values()]
    shares = {
        f"pass@{size}": sum(pass_at_k(n, right, size) for n, right in counts) / len(counts)
        for size in k
        if all(n >= size for n, _ in counts)
    }
    return shares, verdicts


def _verdict(task: int, number: int, program: str, timeout: float) -> Verdict:
    passed = passes(program, SandboxLimits(timeout))
    return {"task_id": task, "passed": passed, "result": "passed" if passed else "failed", "completion_id": number}


METRICS: dict[str, Callable[..., Mapping[str, Any]]] = {
    "bleu": bleu,
    "f1": f1,
    "accuracy": accuracy,
    "exact_match": exact_match,
    "rouge": rouge,
    "squad_v2": squad_v2,
}


def load(path: str, *_: Ignored, **__: Ignored) -> EvaluateMetric:
    """The metric of that name, as `evaluate.load` would give it. Only helper code gets the one that runs programs."""
    known: dict[str, Callable[..., Any]] = {**METRICS, "code_eval": code_eval}
    if path not in known:
        raise FileNotFoundError(f"evaluate.load({path!r}) would need the hub; without it there are: {', '.join(known)}")
    return EvaluateMetric(path, known[path])


def find_metric(name: str) -> UserFunction | None:
    """The function a task means that names a metric of `evaluate`."""
    return EvaluateMetric(name, METRICS[name]).compute if name in METRICS else None
