"""Texts that begin alike, turned into tokens from where they differ.

A tokenizer that splits a text into words before anything else, from left to right and without looking back, makes the same
tokens of what follows a gap between two words whatever stands before it. So the tokens of a beginning are found once, and
those of each text from the last gap of the beginning on. For every beginning it is tried out whether this holds at the gap.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from assay.models.local.prefixes import beginnings

EncodeMany = Callable[[Sequence[str]], list[list[int]]]

GAP = re.compile(r"(?<=[A-Za-z0-9])[ \n](?=[A-Za-z0-9])")
MARGIN = 24
"""So many letters behind a gap, at least: what follows is too far away to change what stands before it."""
REACH = 200
"""A gap is looked for in so many letters at the end of a beginning."""
SPLITTERS = frozenset((
    "Split", "ByteLevel", "Whitespace", "WhitespaceSplit", "Digits", "Punctuation", "BertPreTokenizer"
))  # fmt: skip
NORMALIZERS = frozenset(("NFC", "NFKC", "Lowercase"))


class Cut(NamedTuple):
    """Where a beginning is cut, and its tokens before that."""

    at: int
    before: list[int]


def splits_words(tokenizer: Any) -> bool:
    """Whether a tokenizer of `tokenizers` is one of those that split words first: by what it says of itself, and on a try."""
    told = json.loads(tokenizer.to_str())
    splitters = _parts(told.get("pre_tokenizer"), "pretokenizers")
    normalizers = _parts(told.get("normalizer"), "normalizers")
    return (
        bool(splitters)
        and all(each["type"] in SPLITTERS and not each.get("add_prefix_space") for each in splitters)
        and not any("(?<" in str(each.get("pattern")) for each in splitters)
        and all(each["type"] in NORMALIZERS for each in normalizers)
        and not told["model"].get("dropout")
        and _splits(tokenizer.pre_tokenizer, "ab cd\nef 12 gh\n3 i")
    )


def _splits(splitter: Any, text: str) -> bool:
    starts = {start for _, (start, _) in splitter.pre_tokenize_str(text)}
    return all(starts & {found.start(), found.start() + 1} for found in GAP.finditer(text))


def cuts(heads: Sequence[str], tokens: Sequence[list[int]], bare: EncodeMany) -> list[Cut | None]:
    """Where beginnings with these tokens may be cut, if anywhere; `bare` makes tokens and nothing that begins or ends a text."""
    gaps = [_gap(head) for head in heads]
    tails = iter(bare([head[gap:] for head, gap in zip(heads, gaps, strict=True) if gap]))
    made: list[Cut | None] = []
    for gap, known in zip(gaps, tokens, strict=True):
        tail = next(tails) if gap else []
        holds = bool(tail) and known[-len(tail) :] == tail
        made.append(Cut(gap, known[: -len(tail)]) if holds else None)
    return made


def encode_alike(texts: Iterable[str], encode: EncodeMany, bare: EncodeMany) -> dict[str, list[int]]:
    """The tokens of texts, many of which begin alike."""
    by_letters = sorted((text.encode("utf-32-le"), text) for text in dict.fromkeys(texts))
    heads: list[str] = []
    head_of: list[int] = []
    for shared, run in beginnings([letters for letters, _ in by_letters]):
        head_of += [len(heads)] * len(run)
        heads.append(by_letters[len(head_of) - 1][1][: shared if len(run) > 1 else None])
    found = cuts(heads, encode(heads), bare)
    texts_of = [(text, found[head]) for (_, text), head in zip(by_letters, head_of, strict=True)]
    whole = [text for text, cut in texts_of if cut is None]
    made = dict(zip(whole, encode(whole), strict=True))
    behind = [(text, cut) for text, cut in texts_of if cut is not None]
    tails = bare([text[cut.at :] for text, cut in behind])
    made.update((text, cut.before + tail) for (text, cut), tail in zip(behind, tails, strict=True))
    return made


def _gap(head: str) -> int:
    """Where the last gap between words begins that is far enough from the end; 0 where there is none."""
    start = max(len(head) - REACH, 0)
    last = 0
    for found in GAP.finditer(head, start, max(len(head) - MARGIN, start)):
        last = found.start()
    return last


def _parts(told: Any, key: str) -> list[dict[str, Any]]:
    if told is None:
        return []
    return [part for each in told[key] for part in _parts(each, key)] if told["type"] == "Sequence" else [told]
