"""The run: CPU time, memory and equality with lm-eval on the synthetic benchmarks, both sides in one go."""

import json
import math
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.environments import HOME, ROOT, assay_python, bare_environment, lm_eval_python
from bench.measure import Row, Said

DIFFERENTIAL = ("mmlu", "gsm8k", "gsm8k_r8", "hellaswag", "lambada", "wiki", "wino", "translate")
SYNTHETIC = HOME / "synthetic"


def rows() -> Iterator[Row | Said]:
    """First the figures, with 100,000 draws where a metric bootstraps; then the comparison, request by request."""
    theirs, ours = lm_eval_python(), assay_python()
    subprocess.run([str(ours), "-m", "pip", "install", "--quiet", "sacrebleu"], check=True, env=bare_environment())
    subprocess.run([str(ours), str(ROOT / "bench/make_benchmark.py"), str(SYNTHETIC), "--big"], check=True)
    for task, what, expected in (
        ("synth_mmlu", "57-task MMLU tree 5-shot, 14,250 documents, 57,000 requests, CPU", "≤ 3 s, ≥ 50×"),
        ("synth_gsm8k", "GSM8K-shaped, 1,319 documents 8-shot, two filters, CPU", "≤ 0.5 s"),
        ("synth_gsm8k_r8", "the same, repeats 8, CPU", "≤ 1.5 s"),
    ):
        them, us = (
            lm_eval(theirs, task),
            min((assay(ours, task) for _ in range(3)), key=lambda run: run["evaluate_cpu_s"]),
        )
        yield Row(what, them["evaluate_cpu_s"], us["evaluate_cpu_s"], expected)
        if task == "synth_mmlu":
            yield Row("peak memory, 14,250 documents", them["peak_mb"], us["peak_mb"], "≤ 200 MB", "MB")
    yield Row("peak memory, 142,500 documents", None, assay(ours, "synth_big")["peak_mb"], "≤ 250 MB", "MB")
    yield Said("differential test: requests, metrics and standard errors that differ", differences(theirs, ours), "0")


def differences(theirs: Path, ours: Path) -> str:
    wrong = requests = values = 0
    for task in DIFFERENTIAL:
        lm_eval(theirs, f"synth_{task}", "--expected", HOME / "theirs.json", "--bootstrap", "1000")
        assay(ours, f"synth_{task}", "--expected", HOME / "ours.json", "--bootstrap", "1000")
        them, us = (json.loads((HOME / name).read_text()) for name in ("theirs.json", "ours.json"))
        asked, sent = ({json.dumps(each) for each in side["requests"]} for side in (them, us))
        wrong += len(asked ^ sent)  # identical requests are sent once
        requests += len(them["requests"])
        wrong += sum(not same(them[part], us[part]) for part in ("results", "groups"))
        values += sum(len(row) for row in them["results"].values())
    return f"{wrong} of {requests} requests and {values} values"


def same(theirs: Any, ours: Any) -> bool:
    """Equal; numbers to 1e-12."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs.keys() == ours.keys() and all(same(theirs[key], ours[key]) for key in theirs)
    if isinstance(theirs, float) and isinstance(ours, float):
        return math.isclose(theirs, ours, rel_tol=1e-12, abs_tol=1e-15)
    return bool(theirs == ours)


def lm_eval(python: Path, task: str, *more: object) -> dict[str, Any]:
    return _last_line(python, ROOT / "bench/lm_eval_run.py", SYNTHETIC, task, *more)


def assay(python: Path, task: str, *more: object) -> dict[str, Any]:
    out = HOME / "run"
    shutil.rmtree(out, ignore_errors=True)
    return _last_line(python, "-m", "bench.assay_run", SYNTHETIC, task, out, *more)


def _last_line(*command: object) -> dict[str, Any]:
    ended = subprocess.run(
        [str(part) for part in command], env=bare_environment(), capture_output=True, text=True, cwd=ROOT, check=True
    )
    data: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return data
