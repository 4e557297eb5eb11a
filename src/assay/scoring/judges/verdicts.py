"""What keeps a judge's verdict its own: answers stand between marks that they cannot hold, and verdicts must name the mark.

A mark is a hash of the document and of everything that stands between the two lines with it. An answer that held its own
mark would have to be found by trying 2**128 of them; so no answer ends its fence early, and no text that an answer
suggests is taken for a verdict on it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from assay.scoring.scorer import Unscored

SALT = b"assay judge"
TRIES = 1000
"""So many braces of a reply are looked at: a judge's reply has a few."""
UNPARSABLE = "judge: unparsable verdict: "


def plain(text: object) -> str:
    """A text that can be sent anywhere: halves of characters, which no encoding has, become question marks."""
    return str(text).encode("utf-8", "replace").decode()


def mark_of(doc: Mapping[str, Any], texts: Sequence[str]) -> str:
    """The mark of texts that answer a document: the same for the same, so that a run that goes on asks nothing again."""
    made = blake2b(digest_size=16, salt=SALT)
    row = json.dumps(dict(doc), default=lambda value: type(value).__name__, skipkeys=True)
    for part in (row, *texts):
        data = part.encode("utf-8", "replace")
        made.update(len(data).to_bytes(8))
        made.update(data)
    return made.hexdigest()


def fenced(text: str, mark: str, label: str = "answer") -> str:
    """A text between two lines that carry its mark."""
    if mark in text:
        raise Unscored("judge: an answer holds its own mark")
    return f"<<<{label} {mark}>>>\n{text}\n<<<end of {label} {mark}>>>"


def read_verdict(reply: str, mark: str) -> Mapping[str, Any]:
    """The JSON object in a reply that names the mark; anything else is no verdict."""
    found = list(_objects(reply))
    own = [each for each in found if each.get("id") == mark]
    if not own:
        raise Unscored(f"{UNPARSABLE}{'it does not name the answer' if found else 'there is no JSON object'}")
    if any(each != own[0] for each in own):
        raise Unscored(f"{UNPARSABLE}there are several that differ")
    return own[0]


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, the outermost ones, in their order."""
    decoder = json.JSONDecoder(object_pairs_hook=_without_doubles, strict=False)  # a reason may have several lines
    at = text.find("{")
    for _ in range(TRIES):
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
            yield value
        except (ValueError, RecursionError):
            end = at + 1
        at = text.find("{", end)


def _without_doubles(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands there twice")
    return made


def read_score(reply: str, mark: str, low: float, high: float) -> float:
    """The score that a verdict gives, between the ends of its scale."""
    score = read_verdict(reply, mark).get("score")
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise Unscored(f"{UNPARSABLE}its score is no number")
    if not low <= score <= high:
        raise Unscored(f"{UNPARSABLE}its score is not on the scale from {low:g} to {high:g}")
    return float(score)


def read_winner(reply: str, mark: str) -> str:
    """Which of two answers a verdict prefers: A, B or tie."""
    winner = read_verdict(reply, mark).get("winner")
    if winner not in ("A", "B", "tie"):
        raise Unscored(f"{UNPARSABLE}its winner is none of A, B and tie")
    return str(winner)
