"""A local model on this CPU: a tiny random Llama, lm-eval's `hf` and ours on the same requests, in one go."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.environments import HOME, ROOT, bare_environment, lm_eval_python
from bench.measure import Row, Said
from bench.runs import SYNTHETIC

TASK, LIMIT = "synth_mmlu5", 50
BATCHES = (1, 8)
"""Rows at once of lm-eval's: the better of the two counts. On a CPU more are slower, and pad more."""
MODEL = HOME / "tiny_llama"


def rows() -> Iterator[Row | Said]:
    """Ours runs where this does, and needs torch and transformers there."""
    subprocess.run([sys.executable, str(ROOT / "bench/make_benchmark.py"), str(SYNTHETIC)], check=True)
    _side(Path(sys.executable), "make", SYNTHETIC, MODEL)
    theirs = min((_measured(lm_eval_python(), "lm_eval", batch) for batch in BATCHES), key=lambda run: run["seconds"])
    ours = min((_measured(Path(sys.executable), "assay", 0) for _ in range(2)), key=lambda run: run["seconds"])
    what = f"tiny random Llama, {TASK} × {LIMIT} documents"
    yield Row(f"{what}, CPU of the evaluation", theirs["seconds"], ours["seconds"], "≥ 4×")
    shares = [side["forwarded"] / ours["unique"] for side in (theirs, ours)]
    yield Said(
        f"{what}: tokens forwarded for each of {ours['unique']:,} unique ones",
        f"{shares[1]:.3f} (lm-eval {shares[0]:.2f})",
        "≤ 1.05",
    )
    yield Said(f"{what}: the same scores", str(theirs["results"] == ours["results"]), "True")


def _measured(python: Path, side: str, batch: int) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(_side(python, side, SYNTHETIC, MODEL, TASK, LIMIT, batch).splitlines()[-1])
    return data


def _side(python: Path, *arguments: object) -> str:
    command = [str(python), str(ROOT / "bench/local_run.py"), *map(str, arguments)]
    return subprocess.run(command, env=bare_environment(), capture_output=True, text=True, check=True).stdout
