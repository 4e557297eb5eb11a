"""Every example of seed 002: micro and macro, overrides, groups in place, classes, paths, formats, names to show."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay import GroupManager, Task, TaskConfig, TaskManager
from assay.models import Scripted
from assay.report.table import results_table
from group_world import group_file, scored
from seed_blocks import copied
from small_runs import ANYTHING, run

NLI = copied("002/02.yaml")
MMLU = copied("002/09.yaml") + "aggregate_metric_list: [{metric: acc}]\n"
OVERRIDES = copied("002/03.yaml")
INLINE = copied("002/04.yaml")


@pytest.fixture
def benchmarks(tmp_path: Path) -> Path:
    scored(tmp_path, "cb", acc=[1, 1, 1, 0])
    scored(tmp_path, "anli_r1", acc=[1, 0])
    scored(tmp_path, "rte", acc=[0, 0])
    scored(tmp_path, "mmlu_abstract_algebra", acc=[1, 0, 0, 0, 0, 0, 0, 0])
    scored(tmp_path, "mmlu_anatomy", acc=[1, 1, 1, 1, 1, 0, 0, 0])
    scored(tmp_path, "hellaswag", acc=[1, 0, 1, 1], more="num_fewshot: 1\n")
    group_file(tmp_path, MMLU, "mmlu")
    return tmp_path


def test_a_group_without_numbers_shows_its_tasks(benchmarks: Path) -> None:
    group_file(benchmarks, copied("002/01.yaml"))
    results = run(benchmarks, ANYTHING, "nli_tasks")
    assert "groups" not in results
    assert results["group_subtasks"] == {"nli_tasks": ["cb", "anli_r1", "rte"]}
    assert results["results"]["nli_tasks"] == {"alias": "nli_tasks", "name": "nli_tasks"}


@pytest.mark.parametrize(("by_size", "expected"), [("true", 4 / 8), ("false", (0.75 + 0.5 + 0) / 3)])
def test_micro_and_macro(by_size: str, expected: float, benchmarks: Path) -> None:
    group_file(benchmarks, NLI.replace("weight_by_size: true", f"weight_by_size: {by_size}"))
    assert run(benchmarks, ANYTHING, "nli_tasks")["groups"]["nli_tasks"]["acc,none"] == pytest.approx(expected)


def test_micro_is_like_one_data_set(benchmarks: Path) -> None:
    group_file(benchmarks, NLI)
    scored(benchmarks, "together", acc=[1, 1, 1, 0, 1, 0, 0, 0])
    results = run(benchmarks, ANYTHING, ["nli_tasks", "together"])["results"]
    assert results["nli_tasks"]["acc,none"] == results["together"]["acc,none"]


def test_overrides_reach_every_task_of_a_group(benchmarks: Path) -> None:
    group_file(benchmarks, OVERRIDES)
    shots = run(benchmarks, ANYTHING, "my_benchmark")["n-shot"]
    assert shots == {"mmlu": 5, "mmlu_abstract_algebra": 5, "mmlu_anatomy": 5, "hellaswag": 0}


def test_a_group_written_in_place(benchmarks: Path) -> None:
    group_file(benchmarks, INLINE)
    results = run(benchmarks, ANYTHING, "nli_and_mmlu")
    assert results["group_subtasks"]["nli_and_mmlu"] == ["nli_and_mmlu::nli_tasks", "mmlu"]
    assert results["groups"]["nli_and_mmlu::nli_tasks"]["acc,none"] == 0.5
    assert results["groups"]["mmlu"]["acc,none"] == 6 / 16
    assert results["higher_is_better"]["nli_and_mmlu::nli_tasks"] == {"acc": True}
    assert (results["n-shot"]["mmlu"], results["n-shot"]["nli_and_mmlu::nli_tasks"]) == (2, 0)


def test_a_group_written_in_place_is_built_by_the_manager_too() -> None:
    manager: GroupManager[Any] = GroupManager()
    for name in ("cb", "rte", "mmlu"):
        manager.register_task(Task(TaskConfig(task=name)))
    inner = {"group": "nli_tasks", "task": ["cb", "rte"], "aggregate_metric_list": [{"metric": "acc"}]}
    manager.build_hierarchy({"both": {"task": [inner, "mmlu"]}})
    results = {"cb": {"acc,none": 0.5, "samples": 10}, "rte": {"acc,none": 1.0, "samples": 30}, "mmlu": {"samples": 1}}
    assert manager.compute_all_group_metrics(results) == {"both": {}, "both::nli_tasks": {"acc,none": 0.875}}


@pytest.mark.parametrize(
    ("asked", "run_tasks"),
    [("mmlu::mmlu_anatomy", {"mmlu_anatomy"}), ("nli_and_mmlu::nli_tasks::cb", {"cb"}),
     ("nli_and_mmlu::nli_tasks", {"cb", "anli_r1", "rte"})],
)  # fmt: skip
def test_paths_choose_within_groups(asked: str, run_tasks: set[str], benchmarks: Path) -> None:
    group_file(benchmarks, INLINE)
    assert set(run(benchmarks, ANYTHING, asked)["configs"]) == run_tasks
    assert set(TaskManager(include_path=benchmarks, include_defaults=False).load([asked])["tasks"]) == run_tasks


def test_paths_are_taken_on_the_command_line(benchmarks: Path, run_assay: Callable[..., Any], tmp_path: Path) -> None:
    done = run_assay("run", "--model", "dummy", "--tasks", "mmlu::mmlu_anatomy", "--include_path", benchmarks)
    assert done.returncode == 0, done.stderr
    assert "Anatomy" in done.stdout
    assert "Abstract Algebra" not in done.stdout


def test_the_table_shows_aliases_and_indents_members(benchmarks: Path) -> None:
    names = [
        line.split("|")[1].rstrip()
        for line in str(results_table(run(benchmarks, ANYTHING, "mmlu").results)).splitlines()[2:]
    ]
    assert names == ["MMLU", " - Abstract Algebra", " - Anatomy"]


def test_the_number_of_examples_that_a_group_shows_may_be_given(benchmarks: Path) -> None:
    group_file(benchmarks, NLI + "  num_fewshot: 3\n")
    results = run(benchmarks, ANYTHING, "nli_tasks")
    assert (results["n-shot"]["nli_tasks"], results["n-shot"]["cb"]) == (3, 0)
    [line] = [line for line in str(results_table(results.results)).splitlines() if line.startswith("|nli_tasks")]
    assert line.split("|")[4].strip() == "3"


def test_formats_in_a_group(tmp_path: Path) -> None:
    rows = '{"question": "1+1", "answer": 0, "choices": ["2", "3"]}\n{"question": "2+2", "answer": 1, "choices": ["3", "4"]}\n'
    (tmp_path / "sums.jsonl").write_text(rows)
    data = f"dataset_path: json\n    dataset_kwargs: {{data_files: {{test: {tmp_path / 'sums.jsonl'}}}}}\n    test_split: test"
    group_file(tmp_path, copied("002/08.yaml").replace("dataset_path: ...", data))
    model = Scripted(
        generate=lambda prompt, params, repeat: "A",
        loglikelihood=lambda context, choice: (-1.0 if "A" in choice else -2.0, False),
    )
    results = run(tmp_path, model, "my_benchmark")
    assert results["results"]["my_benchmark::subtask_a@mcqa"]["acc,none"] == 0.5
    assert results["results"]["my_benchmark::subtask_b"]["exact_match,none"] == 0.5


SCROLLS = """
import datasets
from lm_eval.api.task import ConfigurableTask

class Qasper(ConfigurableTask):
    ANSWERS = ("a", "b")
    def __init__(self, config=None):
        super().__init__(config={"output_type": "generate_until", "test_split": "test", **(config or {})})
    def download(self, *args, **kwargs):
        rows = [{"q": f"{type(self).__name__} {n}", "a": a} for n, a in enumerate(self.ANSWERS)]
        self.dataset = {"test": datasets.Dataset.from_list(rows)}
    def doc_to_text(self, doc, *args):
        return doc["q"]
    def doc_to_target(self, doc, *args):
        return doc["a"]
    def process_results(self, doc, results):
        return {"acc": float(results[0] == doc["a"])}
    def aggregation(self):
        return {"acc": lambda items: sum(items) / len(items)}
    def higher_is_better(self):
        return {"acc": True}

class QuALITY(Qasper):
    ANSWERS = ("a", "a", "a")

class NarrativeQA(Qasper):
    ANSWERS = ("a", "b", "c", "d")
"""


def test_members_may_be_python_classes(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(SCROLLS)
    aggregate = "aggregate_metric_list: [{metric: acc, weight_by_size: false}]\n"
    group_file(tmp_path, copied("002/05.yaml") + aggregate)
    results = run(tmp_path, Scripted(generate=lambda prompt, params, repeat: "a", identity="a"), "scrolls")
    assert results["groups"]["scrolls"]["acc,none"] == pytest.approx((0.5 + 1.0 + 0.25) / 3)
    members = ["scrolls_qasper", "scrolls_quality", "scrolls_narrativeqa"]
    assert results["group_subtasks"]["scrolls"] == [f"scrolls::{name}" for name in members]
