"""Have lm-eval run the synthetic benchmarks and keep what it found: every result, and one digest of all it asked.

usage: python tools/make_synthetic_expected.py PYTHON FOLDER
PYTHON is one of an environment with lm_eval==0.4.13; FOLDER gets a file per task (tests/synthetic in this repository).
"""

import json
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

BENCH = Path(__file__).parent.parent / "bench"
TASKS = ("mmlu", "mmlu5", "hellaswag", "gsm8k", "gsm8k_r8", "lambada", "wiki", "wino", "translate")


def main(python: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        subprocess.run([python, str(BENCH / "make_benchmark.py"), temporary], check=True)
        for task in TASKS:
            whole = Path(temporary, "expected.json")
            run = [python, str(BENCH / "lm_eval_run.py"), temporary, f"synth_{task}", "--expected", str(whole)]
            subprocess.run([*run, "--bootstrap", "1000"], check=True)
            condense(whole, folder / f"synth_{task}.json")


def condense(whole: Path, part: Path) -> None:
    loaded = json.loads(whole.read_text())
    asked = json.dumps(loaded["requests"], separators=(",", ":")).encode()
    kept = {"results": loaded["results"], "groups": loaded["groups"], "requests": len(loaded["requests"])}
    part.write_text(json.dumps({**kept, "requests_sha256": sha256(asked).hexdigest()}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
