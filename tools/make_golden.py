"""Have lm-eval run its tasks on the data in tests/golden, and keep what it asked and found (tests/golden/README.md).

usage: PYTHON tools/make_golden.py NAME..., with a PYTHON of an environment with lm_eval==0.4.13 and what its tasks import.
A NAME is a task, or TASK__VARIANT with one of VARIANTS. Metrics of `evaluate` are those of a clone of its repository, $EVALUATE.
"""

import json
import os
import sys
import types
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests/golden"
VARIANTS = {"predict_only": {"predict_only": True}}


def main(names: list[str]) -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    sys.modules["assay.models"] = types.SimpleNamespace(Scripted=None)  # the fake model is wanted without assay
    os.environ["HF_DATASETS_OFFLINE"] = "1"
    import datasets

    datasets.load_dataset = load_here
    if "EVALUATE" in os.environ:
        import evaluate

        load_metric = evaluate.load
        evaluate.load = lambda name, *args, **kwargs: load_metric(
            f"{os.environ['EVALUATE']}/metrics/{name}", *args, **kwargs
        )
    for name in names:
        task, _, variant = name.partition("__")
        kept = evaluated(task, VARIANTS.get(variant, {}))
        (GOLDEN / f"expected/{name}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def load_here(path: str, name: str | None = None, **_: object) -> object:
    """The splits of a data set as the hub would give them."""
    import datasets

    folder = GOLDEN / "data" / path / (name or "default")
    rows = {file.stem: [json.loads(line) for line in file.open(encoding="utf-8")] for file in folder.glob("*.jsonl")}
    return datasets.DatasetDict({split: datasets.Dataset.from_list(each) for split, each in rows.items()})


def evaluated(task: str, options: dict) -> dict:
    import lm_eval
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    import fake_models

    class Fake(LM):
        def loglikelihood(self, requests, **_):
            digests = [fake_models.sha("\0".join(request.args)) for request in requests]
            return [(fake_models.value(digest), int(digest[-1], 16) % 2 == 0) for digest in digests]

        def loglikelihood_rolling(self, requests, **_):
            return [fake_models.value(fake_models.sha(request.args[0])) for request in requests]

        def generate_until(self, requests, **_):
            seen = Counter()
            answers = []
            for request in requests:
                answers.append(fake_models.generate(request.args[0], None, seen[request.args[0]]))
                seen[request.args[0]] += 1
            return answers

    results = lm_eval.simple_evaluate(
        Fake(), tasks=[task], task_manager=TaskManager(), bootstrap_iters=1000, log_samples=True, **options
    )
    tasks = {leaf: {"requests": asked(samples)} for leaf, samples in results["samples"].items()}
    kwargs = {"bootstrap_iters": 1000, **options}
    return {
        "task": task,
        "kwargs": kwargs,
        "results": results["results"],
        "groups": results.get("groups"),
        "tasks": tasks,
    }


def asked(samples: list[dict]) -> list[dict]:
    first = [sample for sample in samples if sample["filter"] == samples[0]["filter"]]
    return [
        {"doc_id": sample["doc_id"], "instances": [{"args": list(args)} for args in sample["arguments"]]}
        for sample in first
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
