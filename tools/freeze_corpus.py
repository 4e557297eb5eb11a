"""Rewrites the expected files of the frozen corpus, tests/frozen/. Only where a change of numbers is intended, and each is listed
in CHANGELOG.md: `git diff tests/frozen` has one line for every row that changed.

usage: python tools/freeze_corpus.py LM_EVAL_FOLDER [CASE ...]    LM_EVAL_FOLDER holds an unpacked lm_eval, as `make test` puts it
"""

import logging
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]


def main() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.getLogger("assay").setLevel(logging.ERROR)
    from frozen_corpus import FROZEN, World, all_cases, outcome_of_case

    cases = all_cases()
    tasks, names = Path(sys.argv[1]).resolve() / "lm_eval/tasks", sys.argv[2:] or list(cases)
    FROZEN.mkdir(exist_ok=True)
    for path in FROZEN.iterdir():
        if path.stem not in cases:
            path.unlink()
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            for variable in ("CACHE", "TASKS", "RUNS"):
                os.environ[f"ASSAY_{variable}_DIR"] = f"{folder}/{variable.lower()}"
            outcome = outcome_of_case(cases[name], World(Path(folder) / "world", tasks))
        (FROZEN / f"{name}.json").write_text(outcome, encoding="utf-8")
        print(f"{name}: {outcome.count(chr(10))} lines")


if __name__ == "__main__":
    main()
