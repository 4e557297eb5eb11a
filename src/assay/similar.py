"""Names like a mistyped one: slips of the pen, the same words in another order, a part of a longer name. Nothing that only
shares letters with it: a wrong suggestion costs more than none.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

_JOINTS, _VOWELS = str.maketrans(dict.fromkeys("-. /:", "_")), frozenset("aeiou")
MANY = 500
"""Among so many names, some begin like any word and differ from it in a letter or two: less counts as alike."""
MOST_EDITS = 3
SAME, SLIP, SHORTENED, WORDS, PART, WHOLE = range(6)


class _Folded(NamedTuple):
    """A name without case and joints: its letters, its words, and where among the letters a word begins or ends."""

    letters: str
    words: tuple[str, ...]
    bounds: frozenset[int]


class _Likeness(NamedTuple):
    """Its kind, the smallest is best; the edits; the difference of the lengths."""

    kind: int
    edits: int
    rest: int


def nearest(name: str, options: Iterable[str], count: int = 5, *, only_slips: bool = False) -> list[str]:
    """Return the options that `name` may stand for, best first; with `only_slips`, those a few letters apart.

    >>> nearest("mmlu_anatmy", ["mmlu_anatomy", "mmlu_astronomy", "gsm8k"])
    ['mmlu_anatomy']
    >>> nearest("accuracy", ["acc", "bleu", "selective_accuracy"], count=1)
    ['acc']
    >>> nearest("arc_easy", ["first_steps_word_classes", "first_steps_graph_classes"])
    []
    """
    known = list(options)
    folded = _folded(name)
    if not folded.letters:
        return [option for option in known if name == option]
    few = len(known) < MANY
    ranked = sorted((like, option) for option in known if (like := _likeness(folded, _folded(option), few)) is not None)
    if only_slips:
        ranked = [(like, option) for like, option in ranked if like.kind <= SLIP]
    if ranked:  # beside a good one, those that are much worse are noise
        best = ranked[0][0]
        ranked = [each for each in ranked if each[0].kind <= max(best.kind, SLIP) and each[0].edits <= best.edits + 1]
    return [option for _, option in ranked[:count]]


@lru_cache(maxsize=1 << 15)
def _folded(name: str) -> _Folded:
    words = tuple(word for word in name.casefold().translate(_JOINTS).split("_") if word)
    bounds, end = {0}, 0
    for word in words:
        end += len(word)
        bounds.add(end)
    return _Folded("".join(words), words, frozenset(bounds))


def _likeness(name: _Folded, option: _Folded, few: bool) -> _Likeness | None:
    ours, theirs = name.letters, option.letters
    if ours == theirs:
        return _Likeness(SAME, 0, 0)
    rest = abs(len(theirs) - len(ours))
    if not few and rest > MOST_EDITS and not (ours in theirs or theirs in ours or set(name.words) & set(option.words)):
        return None  # of thousands of names, nearly all: here they cost least
    slip = _slip(name, option, few)
    if slip is not None:
        return _Likeness(SLIP, slip, rest + 10 * abs(len(name.words) - len(option.words)))
    if few and len(name.words) == 1 and len(theirs) >= 3 and ours.startswith(theirs) and len(ours) <= 3 * len(theirs):
        return _Likeness(SHORTENED, 0, rest)
    edits = _word_edits(name, option, few)
    if edits is not None:
        return _Likeness(WORDS, edits, rest)
    if _is_part(ours, option, few):
        return _Likeness(PART, 0, rest)
    return _Likeness(WHOLE, 0, rest) if _is_whole(name, theirs, few) else None


def _slip(name: _Folded, option: _Folded, few: bool) -> int | None:
    """Return the edits between two names where they are few for their length, and for that of each word. The first letter is
    seldom wrong; one other letter in a short word makes another word, unless it is an abbreviation."""
    ours, theirs = name.letters, option.letters
    size = max(len(ours), len(theirs))
    if few and size == 2 and {*ours} == {*theirs}:  # a key pressed twice
        return 1
    edits = edit_distance(ours, theirs, _most_edits(size))
    if edits > _most_edits(size):
        return None
    is_swap = sorted(ours) == sorted(theirs)
    if ours[0] != theirs[0] and (edits > 1 or size < 5) and not is_swap:
        return None
    if not few and size <= 4 and len(ours) == len(theirs) and not is_swap and not _VOWELS.isdisjoint(ours):
        return None
    if len(name.words) == len(option.words) > 1:
        pairs = zip(name.words, option.words, strict=True)
        limits = [(word, other, _most_edits(max(len(word), len(other))) + 1) for word, other in pairs]
        if any(edit_distance(word, other, most) > most for word, other, most in limits):
            return None
    return edits


def _most_edits(size: int) -> int:
    return 0 if size < 3 else 1 if size < 7 else 2 if size < 11 else MOST_EDITS


def _word_edits(name: _Folded, option: _Folded, few: bool) -> int | None:
    """Return the edits after which every word of a name is in another name, in any order; None where that is too many."""
    ours, theirs = name.words, option.words
    is_alone = len(ours) == 1
    if len(name.letters) < 3 or not (any(word in theirs for word in ours) or (few and is_alone)):
        return None
    if is_alone and not few and _is_passing(name.letters, option.letters):
        return None
    total = 0
    for word in ours:
        if word not in theirs:
            most = 1 if len(word) >= 5 else 0
            edits = min((edit_distance(word, other, most) for other in theirs if other[0] == word[0]), default=most + 1)
            if edits > most:
                return None
            total += edits
    return total if total <= 2 else None


def _is_passing(ours: str, theirs: str) -> bool:
    """Whether a name would only be mentioned in a longer one: "test" is a word of many names, and the subject of few."""
    return 10 * len(ours) < (3 if len(ours) >= 4 else 5) * len(theirs)


def _is_part(ours: str, option: _Folded, few: bool) -> bool:
    """Whether a name is some of the words of a longer one, written together, or the beginning of them; of few, also its end
    with a slip in it."""
    if len(ours) < 3 or (not few and _is_passing(ours, option.letters)):
        return False
    if few and len(ours) >= 6 and edit_distance(ours, option.letters[-len(ours) :], 1) <= 1:
        return True
    start = option.letters.find(ours)
    while start >= 0:
        is_start = (
            start in option.bounds if few else start == 0 and (len(ours) >= 5 or 2 * len(ours) >= len(option.letters))
        )
        if is_start or (start in option.bounds and start + len(ours) in option.bounds):
            return True
        start = option.letters.find(ours, start + 1)
    return False


def _is_whole(name: _Folded, theirs: str, few: bool) -> bool:
    """Whether a name is another one with more words before or after it."""
    if len(theirs) < (3 if few else 4) or 10 * len(theirs) < 3 * len(name.letters):
        return False
    ends = len(theirs) in name.bounds and name.letters.startswith(theirs)
    return ends or (len(name.letters) - len(theirs) in name.bounds and name.letters.endswith(theirs))


def edit_distance(one: str, other: str, most: int) -> int:
    """Count the letters to add, remove, replace or swap with their neighbour; `most + 1` where there are more than `most`.

    >>> edit_distance("gms8k", "gsm8k", 3), edit_distance("arc", "arc_easy", 3)
    (1, 4)
    """
    if abs(len(one) - len(other)) > most:
        return most + 1
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    if len({*one} ^ {*other}) > 2 * most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, above, row = row, before, [i]
        for j, theirs in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != theirs))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == theirs:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)
