#!/usr/bin/env python3
"""Write the results and samples files that lm-eval 0.4.13 leaves of synthetic tasks: what `assay score` must read.

usage (in an environment with lm_eval==0.4.13):  make_lm_eval_samples.py BENCH_DIR OUT_DIR

BENCH_DIR is what bench/make_benchmark.py wrote; the model is the instant one of bench/lm_eval_run.py.
"""

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
from lm_eval import evaluator
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

from lm_eval_run import Instant

TASKS = ("synth_gsm8k_r8", "synth_mmlu5", "synth_lambada", "synth_wiki", "synth_wino", "synth_translate")
LIMIT = 3
KEPT = ("results", "groups", "n-shot", "n-samples", "higher_is_better", "config")


def main() -> None:
    bench, out = sys.argv[1:3]
    logging.disable(logging.CRITICAL)
    manager = TaskManager(include_path=f"{bench}/tasks", include_defaults=False)
    for task in TASKS:
        results = evaluator.simple_evaluate(
            model=Instant(record=False),
            tasks=[task],
            task_manager=manager,
            limit=LIMIT,
            bootstrap_iters=100,
            log_samples=True,
        )
        samples = results.pop("samples")
        tracker = EvaluationTracker(output_path=f"{out}/{task}")
        tracker.general_config_tracker.model_name_sanitized = "instant"
        names = list(results["configs"])
        kept = {key: results[key] for key in KEPT if key in results}  # the rest names folders of this machine
        tracker.save_results_aggregated(results=kept, samples=samples)
        for name in names:
            tracker.save_results_samples(task_name=name, samples=samples[name])


if __name__ == "__main__":
    main()
