"""Have lm-eval run the tasks of tests/differences, where it errs or is easily misread, and keep what it asked and found.

usage: PYTHON tools/make_differences.py, with a PYTHON of an environment with lm_eval==0.4.13
"""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "tests/differences"
RUNS = {
    "own_examples": {"tasks": ["own_examples"]},
    "no_examples": {"tasks": ["no_examples"], "num_fewshot": 2},
    "wrong_label": {"tasks": ["wrong_label"]},
    "samples": {"tasks": ["plain"], "samples": {"plain": [5, 2]}},
    "shuffled": {"tasks": ["shuffled_first", "shuffled_then"]},
    "several_references": {"tasks": ["several_references"]},
    "numpy_target": {"tasks": ["numpy_target"]},
    "predicted": {"tasks": ["own_filters", "own_text_none"], "predict_only": True},
    "predicted_choices": {"tasks": ["own_choice"], "predict_only": True},
    "predicted_class": {"tasks": ["own_class"], "predict_only": True},
    "indices": {"tasks": ["indices", "indices_first"]},
    "part": {"tasks": ["shots"], "samples": {"shots": [4, 6]}},
    "codes": {"tasks": ["codes"]},
    "instructed": {"tasks": ["plain", "described"], "system_instruction": "Be brief."},
    "rolling": {"tasks": ["texts"], "num_fewshot": 1},
}


def main() -> None:
    sys.path.insert(0, str(ROOT / "bench"))
    os.chdir(FOLDER)  # lm-eval looks for data files from where it is called
    os.environ["HF_DATASETS_CACHE"] = os.environ.get("TMPDIR", "/tmp") + "/assay-differences"
    import lm_eval
    from lm_eval.tasks import TaskManager

    from lm_eval_run import Instant

    for name, options in RUNS.items():
        manager = TaskManager(include_path=str(FOLDER / "tasks"), include_defaults=False)
        results = lm_eval.simple_evaluate(
            Instant(False), task_manager=manager, bootstrap_iters=1000, log_samples=True, **options
        )
        asked = {
            task: [
                [sample["doc_id"], sample["arguments"]]
                for sample in samples
                if sample["filter"] == samples[0]["filter"]
            ]
            for task, samples in results["samples"].items()
        }
        kept = {"options": options, "results": results["results"], "n-shot": results["n-shot"], "asked": asked}
        (FOLDER / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
