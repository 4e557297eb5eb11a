"""Write the data of the bundled `first_steps` tasks: original, licence-free, the same every time.

usage: python tools/make_first_steps.py [FOLDER]
"""

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

HOME = Path(__file__).parent.parent / "src/assay/bundled/first_steps/data"
TRAIN, TEST = 40, 60

NOUNS = "apple bridge candle dog engine flower garden house island jacket kettle lamp mirror needle orange"
VERBS = "ask bring carry dance eat find give hear invite jump keep laugh melt notice open"
ADJECTIVES = "angry brave clean deep early fast gentle happy idle jolly kind late merry narrow old"

Row = dict[str, object]


def sums(rng: random.Random) -> Iterator[Row]:
    """Additions of two numbers below 50, none twice."""
    pairs = [(a, b) for a in range(1, 50) for b in range(1, 50)]
    for a, b in rng.sample(pairs, TRAIN + TEST):
        yield {"question": f"{a} + {b}", "answer": str(a + b)}


def word_classes(rng: random.Random) -> Iterator[Row]:
    """Words that are a noun, a verb or an adjective."""
    classes = {"noun": NOUNS.split(), "verb": VERBS.split(), "adjective": ADJECTIVES.split()}
    words = [(word, number) for number, members in enumerate(classes.values()) for word in members]
    for _ in range((TRAIN + TEST) // len(words) + 1):
        for word, number in rng.sample(words, len(words)):
            yield {"word": word, "choices": list(classes), "label": number}


def sorting(rng: random.Random) -> Iterator[Row]:
    """Three letters to be put in order."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    seen = set()
    while True:
        given = tuple(rng.sample(letters, 3))
        if given not in seen:
            seen.add(given)
            yield {"letters": " ".join(given), "sorted": " ".join(sorted(given))}


TASKS: dict[str, Callable[[random.Random], Iterator[Row]]] = {
    "sums": sums,
    "word_classes": word_classes,
    "sorting": sorting,
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in TASKS.items():
        made = rows(random.Random(f"first_steps {name}"))
        for split, number in (("train", TRAIN), ("test", TEST)):
            lines = [json.dumps(next(made)) + "\n" for _ in range(number)]
            (folder / f"{name}_{split}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HOME)
