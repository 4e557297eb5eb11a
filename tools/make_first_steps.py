"""Write the data of the bundled `first_steps` tasks: the same every time.

usage: python tools/make_first_steps.py [FOLDER]
"""

import json
import random
import sys
from pathlib import Path

from first_steps_rows import SIZES, TASKS, rows, test_rows, withheld

HOME = Path(__file__).parent.parent / "src/assay/bundled/first_steps/data"


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in TASKS:
        number = SIZES.get(name, (60, 30))[1]
        train = rows(name, random.Random(f"first_steps {name} train"), number, without=withheld(name))
        for split, items in (("train", train), ("test", test_rows(name))):
            text = "".join(json.dumps(row) + "\n" for row in items)
            (folder / f"{name}_{split}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HOME)
