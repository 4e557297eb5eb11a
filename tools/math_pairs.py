"""Compare `math_equal` with math-verify alone on the labelled pairs: python tools/math_pairs.py [file ...]

A row of a file is one target, one answer, whether it is right, and who says so: the tests of math-verify, of lm-eval's is_equiv
(or is_equiv itself), or a person. Pairs of those tests are left out whose verdict is wrong mathematically, or about the order of
a list.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from assay.scoring.metrics.math_equal import math_equal

TESTS = Path(__file__).parents[1] / "tests"
FILES = (TESTS / "math_pairs.jsonl", TESTS / "math_pairs_more.jsonl")


class Pair(TypedDict):
    """One labelled pair."""

    target: str
    answer: str
    right: bool
    source: str


def pairs_of(*files: Path) -> list[Pair]:
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def by_assay(target: str, answer: str) -> bool:
    return math_equal([target], answer) == 1.0


def by_math_verify(target: str, answer: str) -> bool:
    from math_verify import parse, verify

    return bool(verify(parse(target), parse(answer)))


def misjudged(pairs: list[Pair], judge: Callable[[str, str], bool]) -> tuple[list[Pair], list[Pair]]:
    """The wrong answers that are taken for right, and the right ones that are not; a target that cannot be read counts as those."""
    credited = [_credited(pair, judge) for pair in pairs]
    return (
        [pair for pair, is_credited in zip(pairs, credited, strict=True) if is_credited and not pair["right"]],
        [pair for pair, is_credited in zip(pairs, credited, strict=True) if pair["right"] and not is_credited],
    )


def _credited(pair: Pair, judge: Callable[[str, str], bool]) -> bool:
    try:
        return judge(pair["target"], pair["answer"])
    except ValueError as error:
        print(f"{pair['target']!r}: {error}", file=sys.stderr)
        return False


def main() -> None:
    for file in [Path(name) for name in sys.argv[1:]] or FILES:
        pairs = pairs_of(file)
        wrong = sum(not pair["right"] for pair in pairs)
        print(f"{file.name}: {len(pairs)} pairs, {wrong} of them wrong answers")
        for name, judge in (("assay", by_assay), ("math-verify", by_math_verify)):
            positive, negative = misjudged(pairs, judge)
            right = len(pairs) - len(positive) - len(negative)
            share = f"right {right} ({right / len(pairs):.1%})"
            print(f"  {name:11}  {share}, false positives {len(positive)}, false negatives {len(negative)}")


if __name__ == "__main__":
    main()
