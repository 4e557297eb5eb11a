"""Metrics of one answer against its references: words in common, n-grams, edits. Of several references the best counts."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from assay.records import Answer
from assay.scoring.declarations import Metric
from assay.scoring.results import GENERATE, References
from assay.statistics.classes import score_of_counts
from assay.statistics.influence import COUNT, PERCENT, SHARE

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer

ROUGE_SENTENCES = {
    "rouge1": "ROUGE-1: F-measure of common words.",
    "rouge2": "ROUGE-2: F-measure of common pairs of words.",
    "rougeL": "ROUGE-L: F-measure of the longest common sequence of words.",
    "rougeLsum": "ROUGE-L by lines, for summaries.",
}
ROUGE_TYPES = tuple(ROUGE_SENTENCES)


def plain_words(text: str) -> list[str]:
    """The words of an answer as SQuAD compares them: lower case, without punctuation and articles."""
    without = text.lower().translate(str.maketrans("", "", string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", without).split()


def token_f1(references: References, prediction: Answer) -> float:
    """F1 of the words in common; where one side has none, whether the other has none either."""
    return max(_words_in_common(plain_words(str(each)), plain_words(str(prediction))) for each in references)


def _words_in_common(right: Sequence[str], answer: Sequence[str]) -> float:
    if not right or not answer:
        return float(list(right) == list(answer))
    same = (Counter(right) & Counter(answer)).total()
    return score_of_counts("f1", same, len(answer), len(right))


# --- ROUGE ----------------------------------------------------------------------------------------------------------


def rouge(
    references: References,
    prediction: str,
    *,
    rouge_types: Sequence[str] = ROUGE_TYPES,
    use_stemmer: bool = False,
) -> dict[str, float]:
    """The F-measure of each kind of ROUGE."""
    scores = [_rouge_scorer(tuple(rouge_types), use_stemmer).score(each, prediction) for each in references]
    return {kind: max(float(score[kind].fmeasure) for score in scores) for kind in rouge_types}


@cache
def _rouge_scorer(types: tuple[str, ...], use_stemmer: bool) -> "RougeScorer":
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(list(types), use_stemmer=use_stemmer)


def _one_rouge(kind: str) -> Callable[..., float]:
    def score(references: References, prediction: str, *, use_stemmer: bool = False) -> float:
        return rouge(references, prediction, rouge_types=(kind,), use_stemmer=use_stemmer)[kind]

    return score


def rouge_names(*, rouge_types: Sequence[str] = ROUGE_TYPES, use_stemmer: bool = False) -> Sequence[str]:  # noqa: ARG001
    """The names of the values that `rouge` gives; an unknown kind is refused."""
    for kind in rouge_types:
        if not re.fullmatch(r"rouge([1-9]|L|Lsum)", str(kind)):
            raise ValueError(f"unknown kind of ROUGE {kind!r}: use rouge1 to rouge9, rougeL or rougeLsum")
    return tuple(rouge_types)


# --- one sentence of a translation -------------------------------------------------------------------------------------


def sentence_bleu(references: References, prediction: str) -> float:
    """BLEU of one answer, smoothed, over the orders that it is long enough for."""
    import sacrebleu

    return float(sacrebleu.sentence_bleu(prediction, list(references)).score)


def sentence_chrf(references: References, prediction: str) -> float:
    """chrF of one answer."""
    import sacrebleu

    return float(sacrebleu.sentence_chrf(prediction, list(references)).score)


def sentence_chrf_with_words(references: References, prediction: str) -> float:
    """chrF++ of one answer."""
    import sacrebleu

    return float(sacrebleu.sentence_chrf(prediction, list(references), word_order=2).score)


def sentence_ter(references: References, prediction: str) -> float:
    """Translation edit rate of one answer."""
    import sacrebleu

    return float(sacrebleu.sentence_ter(prediction, list(references)).score)


# --- edits ----------------------------------------------------------------------------------------------------------


def edits(one: Sequence[str], other: Sequence[str]) -> int:
    """How many letters must be put in, taken out or replaced to make one text the other; of lists, how many words.

    Myers' way in Hyyrö's form: a column of the usual table is two whole numbers, one bit for each letter of `one`, which
    say where the next entry is one more and one less. Texts of ten thousand letters take less than a second.
    """
    if not one:
        return len(other)
    whole, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    places: dict[str, int] = {}
    for number, letter in enumerate(one):
        places[letter] = places.get(letter, 0) | 1 << number
    more, fewer, distance = whole, 0, len(one)
    for letter in other:
        here = places.get(letter, 0)
        same = (((here & more) + more) ^ more) | here | fewer
        up, down = fewer | (~(same | more) & whole), more & same
        distance += bool(up & last) - bool(down & last)
        up, down = (up << 1 | 1) & whole, (down << 1) & whole
        more, fewer = down | (~(same | up) & whole), up & same
    return distance


def edit_distance(references: References, prediction: Answer) -> int:
    """The edits to the nearest reference."""
    return min(edits(str(each), str(prediction)) for each in references)


def edit_similarity(references: References, prediction: Answer) -> float:
    """One minus the edits as a share of the longer text: 1 for equal texts, 0 where no letter can stay."""
    return max(_similarity(str(each), str(prediction)) for each in references)


def _similarity(one: str, other: str) -> float:
    longer = max(len(one), len(other))
    return 1 - edits(one, other) / longer if longer else 1.0


TEXT_METRICS: dict[str, Metric] = {
    "token_f1": Metric({GENERATE: token_f1}, bounds=SHARE),
    "f1_score": Metric({GENERATE: token_f1}, bounds=SHARE),
    "rouge": Metric({GENERATE: rouge}, needs="rouge_score.rouge_scorer", gives=rouge_names, bounds=SHARE),
    **{
        kind: Metric({GENERATE: _one_rouge(kind)}, needs="rouge_score.rouge_scorer", bounds=SHARE, sentence=sentence)
        for kind, sentence in ROUGE_SENTENCES.items()
    },
    "edit_distance": Metric({GENERATE: edit_distance}, higher_is_better=False, bounds=COUNT),
    "edit_similarity": Metric({GENERATE: edit_similarity}, bounds=SHARE),
}

ALONE: dict[str, Metric] = {
    "bleu": Metric({GENERATE: sentence_bleu}, needs="sacrebleu", bounds=PERCENT),
    "chrf": Metric({GENERATE: sentence_chrf}, needs="sacrebleu", bounds=PERCENT),
    "chrf++": Metric({GENERATE: sentence_chrf_with_words}, needs="sacrebleu", bounds=PERCENT),
    "ter": Metric({GENERATE: sentence_ter}, higher_is_better=False, needs="sacrebleu", bounds=COUNT),
}
"""Corpus metrics computed for one document, used where the aggregation takes numbers, such as mean."""
