"""The catalog: listing, loading and explaining lm-eval's own 13,986 task files, by both."""

import shutil
from pathlib import Path

from bench.environments import HOME, assay_python, lm_eval_python
from bench.measure import Row, cpu_seconds

MANAGER = """
from time import process_time
from lm_eval.tasks import TaskManager
start = process_time()
TaskManager()
print(process_time() - start)
"""


def rows() -> list[Row]:
    theirs, ours = lm_eval_python(), assay_python()
    tasks = next(Path(theirs).parent.parent.glob("lib/python3*/site-packages/lm_eval/tasks"))
    lm_eval, assay = theirs.parent / "lm-eval", ours.parent / "assay"
    include = ("--include_path", tasks)

    def cold() -> float:
        shutil.rmtree(HOME / "cache", ignore_errors=True)
        return cpu_seconds([assay, "ls", *include], runs=1)

    index = min(cold() for _ in range(3))
    manager = min(_printed(theirs, MANAGER) for _ in range(2))
    listed = cpu_seconds([lm_eval, "ls", "tasks"], runs=1)
    helped = cpu_seconds([lm_eval, "--help"], runs=5)
    imported = cpu_seconds([theirs, "-c", "import lm_eval"], runs=5)
    return [
        Row("index of 13,986 files from cold (assay: the whole `ls`)", manager, index, "≤ 4 s"),
        Row("`ls tasks`, warm", listed, cpu_seconds([assay, "ls", "tasks", *include], runs=9), "≤ 0.3 s, ≥ 100×"),
        Row("`--help`", helped, cpu_seconds([assay, "--help"], runs=9), "≤ 0.12 s"),
        Row("`import` (with the interpreter)", imported, cpu_seconds([ours, "-c", "import assay"], runs=9), "≤ 0.05 s"),
        Row("`show mmlu` tree, warm", None, cpu_seconds([assay, "show", "mmlu", *include], runs=9), "≤ 0.3 s"),
        Row("`validate` of the whole folder", None, cpu_seconds([assay, "validate", *include], runs=1), "–"),
    ]


def _printed(python: Path, code: str) -> float:
    import subprocess

    from bench.environments import bare_environment

    ended = subprocess.run(
        [str(python), "-c", code], env=bare_environment(), capture_output=True, text=True, check=True
    )
    return float(ended.stdout.split()[-1])
