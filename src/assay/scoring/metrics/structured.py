"""Metrics of answers that are more than a text: transcripts by their word errors, JSON by its schema, rankings of items."""

import json
import math
import re
import string
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Never

from assay.errors import installing
from assay.records import Answer, AnyJSON, UserValue
from assay.scoring.declarations import Metric
from assay.scoring.metrics.text import ALONE as SENTENCES
from assay.scoring.metrics.text import edits
from assay.scoring.results import CHOICE, GENERATE, MCResult, References

# --- word and character errors ------------------------------------------------------------------------------------------


def _errors(by_word: bool) -> Callable[..., tuple[int, int]]:
    def errors(
        references: References, prediction: Answer, *, ignore_case: bool = False, ignore_punctuation: bool = False
    ) -> tuple[int, int]:
        """The edits that make the answer a reference, and the length of that: the nearest of several."""
        table = str.maketrans("", "", string.punctuation if ignore_punctuation else "")

        def units(text: Answer) -> Sequence[str]:
            plain = str(text).translate(table)
            plain = plain.casefold() if ignore_case else plain
            return jiwer_words(plain) if by_word else " ".join(plain.split())

        answer = units(prediction)
        counted = [(edits(reference, answer), len(reference)) for reference in map(units, references)]
        return min(counted, key=lambda each: (each[0] / max(each[1], 1), each))

    return errors


def jiwer_words(text: str) -> list[str]:
    """The words of a text as jiwer and `evaluate` take them: a single line break does not end a word.

    >>> jiwer_words("one  two\\nthree")
    ['one', 'two\\nthree']
    """
    return [word for word in re.sub(r"\s\s+", " ", text).strip().split(" ") if word]


def _rate(by_word: bool) -> Callable[..., float]:
    errors = _errors(by_word)

    def rate(
        references: References, prediction: Answer, *, ignore_case: bool = False, ignore_punctuation: bool = False
    ) -> float:
        """The same as a share of the reference."""
        wrong, length = errors(references, prediction, ignore_case=ignore_case, ignore_punctuation=ignore_punctuation)
        if not length:
            raise ValueError("the reference is empty, so that errors have no rate")
        return wrong / length

    return rate


# --- JSON -----------------------------------------------------------------------------------------------------------------

FENCE = re.compile(r"\s*```(?:json)?[ \t]*\n(.*?)\n?```\s*", re.DOTALL | re.IGNORECASE)
Check = Callable[[AnyJSON], bool]


def schema_validator(schema: Any) -> Check:
    """Return the check of a JSON Schema; raise a ValueError for an invalid one, or if the library for it is not installed."""
    if not schema and schema is not False:
        return lambda value: True  # noqa: ARG005  # no schema
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
        from referencing import Registry
        from referencing.exceptions import Unresolvable
    except ModuleNotFoundError:
        raise ValueError(f"`schema` needs jsonschema, which is not installed: {installing('metrics')}") from None
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"the JSON Schema is invalid: {error.message:.200}") from None
    validator = kind(schema, registry=Registry())  # an empty one, so that nothing is fetched from the network

    def is_valid(value: AnyJSON) -> bool:
        try:
            return bool(validator.is_valid(value))
        except Unresolvable as error:
            raise ValueError(f"the JSON Schema refers to {error.ref!r:.80}, which is not in it") from None

    return is_valid


@lru_cache(maxsize=256)
def _check_of_text(text: str) -> Check:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("the target is not a JSON Schema, and the metric has no `schema`") from None
    return schema_validator(schema)


def json_schema(
    references: References, prediction: Answer, *, schema: Mapping[str, object] | None = None, fenced: bool = False
) -> float:
    """Whether the answer is JSON that fits the schema; without `schema`, that of the document, which is its target."""
    return _fitting(schema, fenced)(references, prediction)


def _fitting(schema: Mapping[str, object] | None = None, fenced: bool = False) -> Callable[[References, Answer], float]:
    """`json_schema` with its schema read once."""
    own = schema_validator(schema) if schema is not None else None

    def fits(references: References, prediction: Answer) -> float:
        checks = [own] if own is not None else [_check_of_text(str(each)) for each in references]
        text = str(prediction)
        inside = FENCE.fullmatch(text) if fenced else None
        try:
            value = json.loads(inside[1] if inside else text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return 0.0
        return float(any(check(value) for check in checks))

    return fits


json_schema.prepared = _fitting  # type: ignore[attr-defined]


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is not JSON")


# --- rankings ---------------------------------------------------------------------------------------------------------------

MARKER = re.compile(r"(?:\d+[.)]|[-*•])\s+")
"""The beginning of a line of a list."""


def read_items(text: Answer) -> list[str]:
    """The items of a ranking, best first, each once: a JSON list, or a line each, numbered or not.

    >>> read_items("1. b\\n2. a\\n2. b"), read_items('["b", 7]')
    (['b', 'a'], ['b', '7'])
    """
    value = _loaded(text)
    lines = value if isinstance(value, list) else [MARKER.sub("", line.strip(), 1) for line in str(text).splitlines()]
    return list(dict.fromkeys(item for line in lines if (item := str(line).strip())))


def _loaded(text: Answer) -> AnyJSON:
    try:
        return json.loads(text) if isinstance(text, str) and text.strip()[:1] in ("[", "{") else text
    except (ValueError, RecursionError):
        return text


def read_gains(references: References) -> dict[str, float]:
    """By item how relevant it is: as a JSON object says, else 1.

    >>> read_gains(["a", "b"]), read_gains(['{"a": 3, "b": 1}'])
    ({'a': 1.0, 'b': 1.0}, {'a': 3.0, 'b': 1.0})
    """
    gains: dict[str, float] = {}
    for reference in references:
        value = _loaded(reference)
        named = value if isinstance(value, Mapping) else dict.fromkeys(read_items(reference), 1)
        if not all(isinstance(gain, int | float) and 0 <= gain < math.inf for gain in named.values()):
            raise ValueError("the target must give each item a gain of 0 or more")
        gains |= {str(item).strip(): float(gain) for item, gain in named.items()}
    if not any(gains.values()):
        raise ValueError("the document has no relevant item")
    return gains


def _discounted(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(place + 2) for place, gain in enumerate(gains))


def ndcg(ranked: Sequence[float], gains: Sequence[float], k: int) -> float:
    """Discounted gain of a ranking as a share of the best one's."""
    return _discounted(ranked[:k]) / _discounted(sorted(gains, reverse=True)[:k])


def mrr(ranked: Sequence[float], gains: Sequence[float], k: int) -> float:  # noqa: ARG001  # as the others
    """Mean reciprocal rank of the first relevant item; 0 where there is none."""
    return next((1 / (place + 1) for place, gain in enumerate(ranked[:k]) if gain), 0.0)


def recall_at_k(ranked: Sequence[float], gains: Sequence[float], k: int) -> float:
    """Share of the relevant items among the first k places of a ranking."""
    return sum(gain > 0 for gain in ranked[:k]) / sum(gain > 0 for gain in gains)


def precision_at_k(ranked: Sequence[float], gains: Sequence[float], k: int) -> float:  # noqa: ARG001
    """Share of the first k places of a ranking that are relevant; places that are not filled are not."""
    return sum(gain > 0 for gain in ranked[:k]) / k


def _ranking(score: Callable[[Sequence[float], Sequence[float], int], float], default: int | None) -> Metric:
    """A metric of a ranking: of a list in the answer, or of the choices by their likelihood."""

    def of_answer(references: References, prediction: Answer, *, k: int | None = default) -> float:
        gains, items = read_gains(references), read_items(prediction)
        places = k if k is not None else max(len(items), len(gains))
        return score([gains.get(item, 0.0) for item in items], list(gains.values()), places)

    def of_choice(result: MCResult, *, k: int | None = default) -> float:
        order = sorted(range(len(result.lls)), key=lambda choice: -result.lls[choice])
        ranked = [float(result.is_right(choice)) for choice in order]
        return score(ranked, ranked, k if k is not None else len(ranked))

    def checked(*, k: UserValue = default) -> Sequence[str]:
        if k is not None and (isinstance(k, bool) or not isinstance(k, int) or k < 1):
            raise ValueError(f"k must be 1 or more, got {k!r}")
        return ()

    return Metric(
        {GENERATE: of_answer, CHOICE: of_choice}, gives=checked, bounds=(0.0, 1.0), sentence=score.__doc__ or ""
    )


ERRORS = "{} error rate: edits as a share of the reference's {}; lower is better."
STRUCTURED_METRICS: dict[str, Metric] = {
    "wer": Metric({GENERATE: _errors(True)}, "error_rate", False, sentence=ERRORS.format("Word", "words")),
    "cer": Metric({GENERATE: _errors(False)}, "error_rate", False, sentence=ERRORS.format("Character", "characters")),
    "json_schema": Metric({GENERATE: json_schema}, needs="jsonschema", bounds=(0.0, 1.0)),
    "ndcg": _ranking(ndcg, None),
    "mrr": _ranking(mrr, None),
    "recall_at_k": _ranking(recall_at_k, 10),
    "precision_at_k": _ranking(precision_at_k, 10),
}
ALONE: dict[str, Metric] = {
    **SENTENCES,
    "wer": Metric({GENERATE: _rate(True)}, higher_is_better=False, bounds=(0.0, math.inf)),
    "cer": Metric({GENERATE: _rate(False)}, higher_is_better=False, bounds=(0.0, math.inf)),
}
"""Corpus metrics computed for one document, used where the aggregation takes numbers, such as mean."""
