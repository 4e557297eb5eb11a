"""SQuAD's exact match and F1, as `transformers.data.metrics.squad_metrics` had them before transformers 5."""

from assay.scoring.metrics.text import plain_words, token_f1


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


def squad_v2(predictions: list[dict[str, object]], references: list[dict[str, object]]) -> dict[str, float]:
    """The scores of `evaluate.load("squad_v2")`: over all, over questions with an answer, and over those without."""
    given = {str(each["id"]): str(each["prediction_text"]) for each in predictions}
    unanswerable = {str(each["id"]): float(str(each["no_answer_probability"])) for each in predictions}
    exact: dict[str, float] = {}
    f1: dict[str, float] = {}
    has_answer: dict[str, bool] = {}
    for each in references:
        name, answers = str(each["id"]), each["answers"]
        texts = [text for text in _texts(answers) if normalize_answer(text)] or [""]
        has_answer[name] = bool(_texts(answers))
        exact[name] = max(compute_exact(text, given[name]) for text in texts)
        f1[name] = max(compute_f1(text, given[name]) for text in texts)
    scores = _means(exact, f1, list(exact), "")
    for prefix, wanted in (("HasAns_", True), ("NoAns_", False)):
        names = [name for name, has in has_answer.items() if has is wanted]
        scores |= _means(exact, f1, names, prefix) if names else {}
    said = {name for name, text in given.items() if text}
    for which, values in (("exact", exact), ("f1", f1)):
        scores |= _best(values, unanswerable, has_answer, said, which)
    return scores


def _texts(answers: object) -> list[str]:
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
    scores: dict[str, float], unanswerable: dict[str, float], has_answer: dict[str, bool], said: set[str], name: str
) -> dict[str, float]:
    """The best score that some threshold for "there is no answer" would give, and that threshold."""
    current = best = float(sum(1 for has in has_answer.values() if not has))
    threshold = 0.0
    for question in sorted(unanswerable, key=lambda each: unanswerable[each]):
        if question not in scores:
            continue
        current += scores[question] if has_answer[question] else -1 if question in said else 0
        if current > best:
            best, threshold = current, unanswerable[question]
    return {f"best_{name}": 100.0 * best / len(scores), f"best_{name}_thresh": threshold}
