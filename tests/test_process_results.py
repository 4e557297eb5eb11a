"""Tasks of lm-eval's that score with their function `process_results`: ours gives what lm-eval gave, value for value.

`process_results/expected.json` was made by lm-eval 0.4.13 (tools/make_process_results_expected.py): for every function and all that
decides how its tasks score, documents, answers, what the function said of each pair, and the numbers of the task.
"""

import importlib.util
import json
import math
import random
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay import TaskManager
from assay.compat.modules import HelperCode
from assay.config.run import RunConfig
from assay.records import Failed, Sample
from assay.scoring.helper_code import resolve_functions
from assay.scoring.results import AnsweredSample
from assay.statistics.board import Board
from assay.statistics.evidence import Estimate
from assay.tasks.prepare import PreparedTask, scoring
from assay.tasks.settings import Settings

HERE = Path(__file__).parent
SEED, CLOSE = 1234, 1e-9
Entry = Mapping[str, Any]
EXPECTED: list[Entry] = json.loads((HERE / "process_results/expected.json").read_text(encoding="utf-8"))
COMPARED = {f"{entry['function']} of {entry['task']}": entry for entry in EXPECTED if "left_out" not in entry}
LIKE_LM_EVAL = Settings(RunConfig(compat="lm-eval"))


@pytest.fixture(
    scope="module",  # and one process for each, so that helper code is imported once
    params=[
        pytest.param("with lm_eval", marks=[pytest.mark.xdist_group("with lm_eval"), pytest.mark.nightly]),
        pytest.param("without lm_eval", marks=pytest.mark.xdist_group("without lm_eval")),
    ],
)
def manager(
    request: pytest.FixtureRequest, lm_eval_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TaskManager]:
    """lm-eval's tasks: of a package that can be imported, or of a folder like any other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "one_index"))
        patch.setenv("LOCAL_RANK", "1")  # or ifeval's helper code would download what it does not need here
        if request.param == "with lm_eval":
            patch.syspath_prepend(lm_eval_folder)
            yield TaskManager(compat="lm-eval")
        else:
            assert "lm_eval" not in sys.modules
            yield TaskManager(include_path=lm_eval_folder / "lm_eval/tasks", include_defaults=False, compat="lm-eval")


@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.filterwarnings("ignore")  # helper code is not ours
def test_documents_are_scored_as_lm_eval_scores_them(name: str, manager: TaskManager) -> None:
    entry = COMPARED[name]
    if not is_there(entry.get("needs")):
        pytest.skip(f"without {entry['needs']}")
    task, docs = prepared(entry, manager)
    scored = score(task, docs, entry)
    values = {filter_: [] for filter_ in entry["values"]}
    for built in scored:
        for number, filter_ in enumerate(values):
            values[filter_].append({"failed": built.reason} if isinstance(built, Failed) else built[number].values)
    assert differing(entry["values"], values) == []
    assert differing(entry["results"], numbers(task, scored), close=entry.get("close", CLOSE)) == []


@pytest.mark.filterwarnings("ignore")
def test_the_helper_code_of_every_task_they_stand_for_is_imported(manager: TaskManager) -> None:
    helpers = HelperCode().helpers()
    expected = [name for entry in COMPARED.values() if is_there(entry.get("needs")) for name in entry["tasks"]]
    tasks = manager.load(expected)["tasks"]
    configs = [resolve_functions(task.config, helpers.resolve) for task in tasks.values()]
    assert [config.task for config in configs if not callable(config.process_results)] == []
    assert len(configs) == len(expected)
    assert "lm_eval" not in sys.modules


def test_every_task_of_the_package_that_scores_with_a_function_is_compared_or_left_out_with_a_reason(
    lm_eval_folder: Path,
) -> None:
    catalog = TaskManager(include_path=lm_eval_folder / "lm_eval/tasks", include_defaults=False).catalog
    there = [name for name, entry in catalog.index.named.items() if "process_results" in catalog.read(entry)[0]]
    assert sorted(name for entry in EXPECTED for name in entry["tasks"]) == sorted(there)
    compared, left_out = list(COMPARED.values()), [entry for entry in EXPECTED if "left_out" in entry]
    assert (count(EXPECTED), count(compared), count(left_out)) == ((547, 134), (504, 112), (43, 22))
    page = (HERE.parent / "docs/lm-eval.md").read_text(encoding="utf-8")
    for reason in {entry["left_out"] for entry in left_out}:
        assert f"| {count([each for each in left_out if each['left_out'] == reason])[0]} | {reason} |" in page
    assert all(len({*map(repr, filtered)}) > 1 for entry in compared for filtered in entry["values"].values())


def count(entries: list[Entry]) -> tuple[int, int]:
    """How many tasks, and how many functions."""
    return sum(len(entry["tasks"]) for entry in entries), len({entry["function"] for entry in entries})


def is_there(needed: str | None) -> bool:
    return needed is None or shutil.which(needed) is not None or importlib.util.find_spec(needed) is not None


def prepared(entry: Entry, manager: TaskManager) -> tuple[PreparedTask, list[Any]]:
    """A task with its filters and metrics, but without data and prompts, and the documents of the entry, processed."""
    [task] = manager.load(entry["task"])["tasks"].values()
    helpers = HelperCode().helpers()
    config = resolve_functions(task.config, helpers.resolve)
    rows = helpers.as_dataset(entry["documents"])
    if callable(config.process_docs) and "processed" not in entry:
        rows = config.process_docs(rows)
    scored = scoring(task, config, LIKE_LM_EVAL, helpers)
    return PreparedTask(task, config, LIKE_LM_EVAL, rows, None, scored), list(rows)  # type: ignore[arg-type]


def score(task: PreparedTask, docs: list[Any], entry: Entry) -> list[Any]:
    random.seed(SEED)
    np.random.seed(SEED)
    return task.score(
        [
            AnsweredSample(
                Sample(number, docs[doc], (), None, None), [[answer(each) for each in repeats] for repeats in answers]
            )
            for number, (doc, answers) in enumerate(entry["pairs"])
        ]
    )


def answer(stored: Any) -> Any:
    """An answer as filters see it: a pair of log-likelihood and greedy is a tuple."""
    return tuple(stored) if isinstance(stored, list) else stored


def numbers(task: PreparedTask, scored: list[Any]) -> dict[str, Any]:
    """The numbers of a task with their standard errors, under lm-eval's names."""
    board = Board()
    for number, built in enumerate(scored):
        for filtered in [] if isinstance(built, Failed) else built:
            board.add(number, filtered)
    estimates = board.estimates(task.aggregation, bootstrap_iters=100, stderr="lm-eval", source="")
    return {
        key: value
        for row, estimate in estimates.items()
        for key, value in shown(f"{row.metric}{{}},{row.filter}", estimate)
    }


def shown(key: str, estimate: Estimate) -> Iterator[tuple[str, Any]]:
    if "failed" in estimate.reason:
        yield key.format(""), {"failed": estimate.reason}
        return
    yield key.format(""), float(estimate) if estimate.named_values is None else estimate.named_values
    yield key.format("_stderr"), "N/A" if estimate.stderr is None else estimate.stderr


def differing(theirs: Any, ours: Any, at: str = "", close: float = CLOSE) -> list[str]:
    """Where two values differ: numbers by more than `close`, failures not by their reason."""
    if isinstance(theirs, Mapping):
        if not isinstance(ours, Mapping) or {*map(str, ours)} != {*theirs}:
            return [f"{at}: {theirs} and {ours}"]
        if "failed" in theirs:
            return []
        return [
            result for key, inner in ours.items() for result in differing(theirs[str(key)], inner, f"{at}/{key}", close)
        ]
    if isinstance(ours, np.generic | np.ndarray):
        ours = ours.tolist()
    if isinstance(theirs, list) and isinstance(ours, list | tuple) and len(theirs) == len(ours):
        pairs = zip(theirs, ours, strict=True)
        return [result for number, pair in enumerate(pairs) for result in differing(*pair, f"{at}/{number}", close)]
    return [] if same(theirs, ours, close) else [f"{at}: {theirs!r} and {ours!r}"]


def same(theirs: Any, ours: Any, close: float) -> bool:
    if isinstance(ours, float) and not math.isfinite(ours):
        return bool(theirs == str(ours))
    if isinstance(theirs, int | float) and isinstance(ours, int | float):
        return math.isclose(theirs, ours, rel_tol=close, abs_tol=close)
    return bool(theirs == ours)
