"""Run assay on a synthetic benchmark with the instant model; print CPU seconds and memory, and write what it asked and scored.

usage (with assay installed, from the root of the repository): python -m bench.assay_run BENCH_DIR TASK OUT [--expected FILE]

OUT becomes the folder of the run: its journal and Parquet samples are measured, too; import and the model's time are not.
"""

import argparse
import json
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet  # noqa: F401  # imports are not measured: these would come with the first run

import assay.config.loader
import assay.evaluation.api  # noqa: F401
from assay import TaskManager, simple_evaluate
from assay.models.protocol import Answered
from assay.models.scripted import Scripted
from assay.records import Request
from assay.runs.samples.records import arguments
from bench.instant import instant
from bench.measure import peak_memory

KINDS = {"Generate": "generate_until", "Loglikelihood": "loglikelihood", "Rolling": "loglikelihood_rolling"}


class Timed:
    """The instant model, with its own time taken and, if wanted, its requests noted."""

    def __init__(self, model: Scripted, *, record: bool) -> None:
        self._model, self._record = model, record
        self.seconds = 0.0
        self.asked: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        if self._record:
            self.asked += [[KINDS[type(each).__name__], *arguments(each)] for each in requests]
        start = time.process_time()
        async for answered in self._model.answer(requests):
            self.seconds += time.process_time() - start
            yield answered
            start = time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("task")
    parser.add_argument("out")
    parser.add_argument("--expected")
    parser.add_argument("--bootstrap", type=int, default=100_000)
    options = parser.parse_args()
    model = Timed(instant(), record=bool(options.expected))
    start = time.process_time()
    manager = TaskManager(include_path=f"{options.bench}/tasks", include_defaults=False, compat="lm-eval")
    results = simple_evaluate(
        model, tasks=[options.task], task_manager=manager, compat="lm-eval", output_path=options.out,
        bootstrap_iters=options.bootstrap, log_samples=False,
    )  # fmt: skip
    seconds = time.process_time() - start - model.seconds
    if options.expected:
        kept = {"results": results["results"], "groups": results.get("groups"), "requests": model.asked}
        Path(options.expected).write_text(json.dumps(kept))
    memory = round(peak_memory())
    print(json.dumps({"task": options.task, "evaluate_cpu_s": round(seconds, 3), "peak_mb": memory}))


if __name__ == "__main__":
    main()
