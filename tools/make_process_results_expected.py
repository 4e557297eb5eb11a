"""Have lm-eval score documents with every `process_results` of its tasks, and keep what it found.

usage: python tools/make_process_results_expected.py FOLDER METRICS SQUAD [FUNCTION]
with the Python of an environment that has lm_eval==0.4.13 and the libraries of its tasks. FOLDER holds documents.yaml and gets
expected.json (tests/process_results in this repository). METRICS holds metrics of the `evaluate` repository, a folder each
(rouge/rouge.py); SQUAD is squad_metrics.py of transformers 4, which transformers 5 has no more. FUNCTION: only those that
match are made anew; acpbench needs a separate environment.

Tasks that share a function, an output type, filters and metrics are scored once: `tasks` names them all.
"""

import contextlib
import fnmatch
import importlib.util
import io
import itertools
import json
import math
import os
import random
import sys
import types
from collections import defaultdict
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "LOCAL_RANK": "1"}  # nothing is downloaded: nltk's data by rank 0 alone

import datasets
import evaluate
import numpy as np
import yaml
from lm_eval import tasks
from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask
from lm_eval.evaluator_utils import _compute_task_aggregations
from lm_eval.tasks._index import TaskIndex
from lm_eval.tasks._yaml_loader import load_yaml

TASKS = Path(tasks.__file__).parent
FIT_NOTHING = ["", " \n", "¿?! 漢字 ,; $x$ }{", "lorem ipsum dolor sit amet"]
SEED = 1234
BY_DATA_SET = "acpbench/"
"""Where a function scores documents of each data set in another way."""


def main(folder: Path, metrics: Path, squad: Path, expected: str = "*") -> None:
    lend(metrics, squad)
    cases = yaml.safe_load((folder / "documents.yaml").read_text(encoding="utf-8"))
    before = folder / "expected.json"
    built = (
        []
        if expected == "*"
        else [
            entry
            for entry in json.loads(before.read_text(encoding="utf-8"))
            if not matches(entry["function"], [expected])
        ]
    )
    for (function, *_), members in sorted(same_scoring().items()):
        if matches(function, [expected]):
            entry = {"function": function, "task": members[0][0], "tasks": [name for name, _ in members]}
            case = next(
                each
                for each in cases
                if matches(function, each["functions"]) and matches(members[0][0], each.get("tasks", ["*"]))
            )
            built.append(
                entry | ({"left_out": case["left_out"]} if "left_out" in case else scored(members[0][1], case))
            )
            print(function, len(members), failures(built[-1]))
    lines = ",\n".join(
        json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in sorted(built, key=order)
    )
    before.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def order(entry: dict) -> tuple[str, str]:
    return entry["function"], entry["task"]


def failures(entry: dict) -> str:
    """How many pairs of a document and an answer lm-eval cannot score, and which numbers it cannot compute."""
    failed = [each["failed"] for items in entry.get("values", {}).values() for each in items if "failed" in each]
    lost = [key for key, value in entry.get("results", {}).items() if isinstance(value, dict) and "failed" in value]
    reported = [f"{len(failed)} pairs fail: {sorted(set(failed))}"] * bool(failed) + [f"no {lost}"] * bool(lost)
    return entry.get("left_out") or "; ".join(reported)


def lend(metrics: Path, squad: Path) -> None:
    """What helper code would download, and what newer libraries lack."""
    load = evaluate.load

    def load_here(path: str, *arguments: object, **options: object) -> object:
        if not (metrics / path).is_dir():
            raise FileNotFoundError(f"the metric {path!r} would be downloaded")
        return load(str(metrics / path), *arguments, **options)

    evaluate.load = load_here
    outer = types.ModuleType("transformers.data.metrics")
    outer.__path__ = []
    spec = importlib.util.spec_from_file_location(f"{outer.__name__}.squad_metrics", squad)
    outer.squad_metrics = importlib.util.module_from_spec(spec)
    importlib.import_module("transformers.data").metrics = outer
    sys.modules |= {outer.__name__: outer, spec.name: outer.squad_metrics}
    spec.loader.exec_module(outer.squad_metrics)


def same_scoring() -> dict[tuple[str, ...], list[tuple[str, Path]]]:
    """The tasks with `process_results`, by all that decides how they score."""
    result = defaultdict(list)
    for name, entry in TaskIndex.build([TASKS]).items():
        config = load_yaml(entry.yaml_path, resolve_func=False) if entry.kind.name in ("TASK", "PY_TASK") else {}
        if "process_results" in config:
            folder, _, function = config["process_results"].removeprefix(f"{TASKS}/").rpartition("/")
            settings = [config.get(key) for key in ("output_type", "filter_list", "metric_list", "repeats")]
            settings += [config.get("dataset_name")] if folder.startswith(BY_DATA_SET) else []
            result[f"{folder} {function}", *map(repr, settings)].append((name, entry.yaml_path))
    return result


class GivenTask(ConfigurableTask):
    """A task of lm-eval's with documents that are given, and without prompts."""

    rows: list

    def download(self, *_, **__) -> None:
        self.dataset = defaultdict(lambda: datasets.Dataset.from_list(self.rows))

    def fewshot_docs(self) -> None:
        return None

    def doc_to_text(self, *_, **__) -> str:
        return ""

    def doc_to_target(self, *_, **__) -> str:
        return ""


def scored(path: Path, case: dict) -> dict:
    """Documents, answers, and what lm-eval makes of them: the values of each pair, and the numbers of the task."""
    crossed = case.get("crossed", {})
    rows = case.get("documents") or [
        dict(zip(crossed, row, strict=True)) for row in itertools.product(*crossed.values())
    ]
    documents = datasets.Dataset.from_list(rows).to_list()
    with contextlib.redirect_stdout(io.StringIO()):
        config = {"output_type": "generate_until"} | load_yaml(path, resolve_func=True)
        config |= {"process_docs": None} if "processed" in case else {}
        arguments = type("Given", (GivenTask,), {"rows": documents})(config=config)
        pairs = [
            [number, answers]
            for number, doc in enumerate(arguments.eval_docs)
            for answers in answers_to(arguments, doc, case)
        ]
        values = values_of(arguments, pairs)
        results = numbers_of(arguments, values)
    kept = {key: case[key] for key in ("processed", "close", "needs") if key in case}
    return kept | {"documents": documents, "pairs": pairs, "values": plain(values), "results": plain(results)}


def answers_to(task: ConfigurableTask, doc: dict, case: dict) -> list[list[list]]:
    """Some sets of answers: for each request, one for each repeat."""
    if task.OUTPUT_TYPE == "generate_until":
        texts = [*case["answers"], *FIT_NOTHING]
        repeats = range(task.config.repeats)
        return [[[texts[(start + more % 2) % len(texts)] for more in repeats]] for start in range(len(texts))]
    drawn = random.Random(json.dumps(doc, sort_keys=True, default=str))
    count = len(task.doc_to_choice(doc)) if task.OUTPUT_TYPE == "multiple_choice" else 1
    some = [
        [(round(drawn.uniform(-20, 0), 3), drawn.random() < 0.3) for _ in range(count)]
        for _ in range(case.get("rounds", 3))
    ]
    alike = [(-1.5, False)] * count
    rolling = task.OUTPUT_TYPE == "loglikelihood_rolling"
    return [[[answer[0] if rolling else answer] for answer in items] for items in [*some, alike]]


def values_of(task: ConfigurableTask, pairs: list) -> dict[str, list[dict]]:
    """By filter, what `process_results` says of each pair: values, or that it failed."""
    random.seed(SEED)
    np.random.seed(SEED)
    docs = list(task.eval_docs)
    asked = [
        [
            Instance(task.OUTPUT_TYPE, docs[number], ("",), idx, resps=list(repeats))
            for idx, repeats in enumerate(answers)
        ]
        for number, answers in pairs
    ]
    for each in task._filters:
        each.apply(list(itertools.chain.from_iterable(asked)))
    return {
        each.name: [value_of(task, requests[0].doc, requests, each.name) for requests in asked]
        for each in task._filters
    }


def value_of(task: ConfigurableTask, doc: dict, requests: list[Instance], name: str) -> dict:
    try:
        return dict(task.process_results(doc, [request.filtered_resps[name] for request in requests]))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is lm-eval's answer
        return {"failed": type(error).__name__}


def numbers_of(task: ConfigurableTask, values: dict[str, list[dict]]) -> dict[str, object]:
    """The numbers of the task, each with its standard error, or why there is none."""
    raw = defaultdict(list)
    for name, group in values.items():
        for metric, value in ((m, v) for each in group if "failed" not in each for m, v in each.items()):
            raw[metric, name].append(value)
    results = {}
    for key, items in raw.items():
        try:
            results |= _compute_task_aggregations(task, {key: items}, 100)[0]
        except Exception as error:  # noqa: BLE001
            results[",".join(key)] = {"failed": type(error).__name__}
    return results


def plain(value):
    """A value in JSON: tuples as lists, numpy's numbers as Python's, NaN and infinities as their names."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), *sys.argv[4:])
