"""Runs from Python: `assay.run`, tables, frames, comparisons; short where they are printed."""

import ast
import asyncio
import copy
import io
import json
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import assay
from assay.evaluation.writing import SampleLogs
from assay.results import Estimate, Results, Row, TaskEntry

SUMS = [(a, b) for a in range(4) for b in range(3)]


def tasks(folder: Path, *names: str) -> str:
    """Tasks of twelve sums each."""
    folder.mkdir(exist_ok=True)
    rows = [json.dumps({"q": f"{a} + {b} =", "a": str(a + b)}) for a, b in SUMS]
    (folder / "sums.jsonl").write_text("\n".join(rows))
    for name in names:
        (folder / f"{name}.yaml").write_text(
            f"task: '{name}'\ndataset_path: json\ndataset_kwargs: {{data_files: {folder / 'sums.jsonl'}}}\ntest_split: train\n"
            "output_type: generate_until\ndoc_to_text: '{{q}}'\ndoc_to_target: '{{a}}'\ngeneration_kwargs: {max_gen_toks: 4}\n"
            "metric_list: [{metric: exact_match}]\n"
        )
    return str(folder)


def adder(right: Callable[[int, int], bool], identity: str = "adder") -> assay.Scripted:
    """A model that adds where it is right; where that raises, the document fails."""

    def generate(prompt: str, params: object, repeat: int) -> str:
        a, b = (int(part) for part in prompt.removesuffix(" =").split(" + "))
        return str(a + b) if right(a, b) else "no"

    return assay.Scripted(generate=generate, identity=identity)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[assay.Run, assay.Run]:
    """9 of 12 right, and 6 of 12."""
    folder = tmp_path_factory.mktemp("runs")
    path = tasks(folder / "tasks", "sums", "more")
    shares = {"first": lambda a, b: a != 0, "second": lambda a, b: a > 1}
    first, second = (
        assay.run(
            adder(right, name),
            tasks=["sums", "more"],
            include_path=path,
            output_path=str(folder / name),
            progress=False,
        )
        for name, right in shares.items()
    )
    return first, second


def test_a_run_from_python_is_stored_where_the_command_stores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tasks(tmp_path / "tasks", "sums")
    run = assay.run(adder(lambda a, b: True), tasks="sums", include_path=path, progress=False)
    assert isinstance(run, assay.Run) and run.status == "complete"
    assert run.path.parent == tmp_path / "runs" and [each.name for each in Path("runs").iterdir()] == [run.path.name]
    monkeypatch.setenv("ASSAY_RUNS_DIR", "elsewhere")
    assert (
        assay.run(adder(lambda a, b: True), tasks="sums", include_path=path, progress=False).path.parent.name
        == "elsewhere"
    )


def test_a_run_starts_inside_a_running_event_loop_as_in_a_notebook(tmp_path: Path) -> None:
    path = tasks(tmp_path / "tasks", "sums")

    async def cell() -> assay.Run:
        return assay.run(adder(lambda a, b: True), tasks="sums", include_path=path, output_path=str(tmp_path / "run"))

    assert asyncio.run(cell()).rows("sums")["exact_match", "none"].estimate.value == 1.0


def test_a_run_with_failed_documents_does_not_pass_for_a_complete_one(tmp_path: Path) -> None:
    model = assay.Scripted(generate=lambda prompt, params, repeat: assay.Failed("no answer"), identity="never")  # type: ignore[arg-type, return-value]
    path = tasks(tmp_path / "tasks", "sums")
    run = assay.run(model, tasks="sums", include_path=path, output_path=str(tmp_path / "run"), progress=False)
    assert run.status == "incomplete"
    assert "incomplete" in repr(run) and "incomplete" in str(run.table) and "incomplete" in run.table._repr_html_()


def test_options_that_return_no_run_are_refused(tmp_path: Path) -> None:
    for option, said in (
        ({"dry_run": True}, "a dry run has no results to return"),
        ({"model_args": {"pretrained": ["a", "b"]}}, "names several checkpoints"),
        ({"output_pth": "x"}, "did you mean 'output_path'"),
    ):
        with pytest.raises(assay.ConfigError, match=said):
            assay.run("embedded", tasks="first_steps_sums", runs_dir=str(tmp_path), **option)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_scores_have_a_row_for_every_task_filter_and_metric(runs: tuple[assay.Run, assay.Run]) -> None:
    polars = pytest.importorskip("polars")
    first = runs[0].scores()
    [row] = [row for row in first.to_pylist() if row["task"] == "sums"]
    assert (row["kind"], row["metric"], row["filter"]) == ("task", "exact_match", "none")
    assert (row["value"], row["n"], row["failed"], row["incomplete"]) == (0.75, 12, 0, False)
    assert row["low"] < 0.75 < row["high"] and row["higher_is_better"] is True
    assert first.to_pandas().shape == polars.from_arrow(first).shape == (2, 13)


def test_samples_have_a_row_for_every_document(runs: tuple[assay.Run, assay.Run]) -> None:
    polars = pytest.importorskip("polars")
    samples = runs[0].samples("sums")
    assert samples.column("exact_match,none").to_pylist() == [float(a != 0) for a, _ in SUMS]
    assert samples.to_pandas()["doc_id"].tolist() == polars.from_arrow(samples)["doc_id"].to_list() == list(range(12))
    assert runs[0].samples("sums", ["doc_id"]).column_names == ["doc_id"]
    assert sum(batch.num_rows for batch in runs[0].sample_batches("sums")) == 12
    with pytest.raises(assay.AssayError, match="no column 'doc_ids' — did you mean 'doc_id'"):
        runs[0].samples("sums", ["doc_ids"])


def test_a_run_compares_itself_with_others(runs: tuple[assay.Run, assay.Run], tmp_path: Path) -> None:
    comparison = runs[0].compare(runs[1])
    assert isinstance(comparison, assay.Comparison)
    assert {(row.name, row.difference.value) for row in comparison.rows} == {("sums", -0.25), ("more", -0.25)}
    assert repr(comparison) == "<Comparison of second with first: 2 rows, 0 better, 0 worse>"
    assert "-0.2500" in str(comparison.table) and "-0.2500" in comparison._repr_html_()
    assert [row.difference.value for row in assay.compare([runs[0], str(runs[1].path)]).rows] == [-0.25, -0.25]
    gated = runs[0].compare(runs[1], gates=["exact_match > -50pp"])
    assert gated.decision is not None and repr(gated).endswith(f"0 worse, gates: {gated.decision}>")
    assert runs[0].report(tmp_path / "report.md").read_text().startswith("## first")


def test_a_table_is_markdown_as_text_html_in_a_notebook_and_fits_a_terminal(
    runs: tuple[assay.Run, assay.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    table = runs[0].table
    assert "|sums|exact_match ↑|0.7500|" in str(table).replace(" ", "").replace("↑", " ↑") and repr(table) == str(table)
    assert table._repr_html_().count("<tr>") == 3
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "60")
    lines = re.sub(r"\x1b\[[\d;]*m", "", repr(table)).splitlines()
    assert "0.7500" in repr(table) and max(map(len, lines)) <= 60


def test_names_in_a_table_are_not_markup(tmp_path: Path) -> None:
    name = "<b>x\x1b[31m</b>"
    path = tasks(tmp_path / "tasks", "sums")
    run = assay.run(
        adder(lambda a, b: True), tasks="sums", include_path=path, output_path=str(tmp_path / "run"), progress=False
    )
    task = replace(run.results.tasks["sums"], alias=name)
    hostile = assay.Run(tmp_path / "run", run.manifest, replace(run.results, tasks={"sums": task}))
    assert "<b>x" not in hostile._repr_html_() and "\x1b[31m</b>" not in str(hostile.table)


def test_a_table_of_thousands_of_rows_stays_short() -> None:
    names = [f"t{n}" for n in range(5000)]
    tasks = {name: TaskEntry(name, "t", [Row(name, "exact_match", "none", Estimate(0.5))]) for name in names}
    run = assay.Run(Path("large"), {}, Results(tasks))
    assert len(run._repr_html_()) < 200_000 and "4,700 rows more: .scores()" in str(run.table)
    assert run.scores().num_rows == 5000


def test_results_are_a_dict_that_is_short_where_it_is_printed(tmp_path: Path) -> None:
    path = tasks(tmp_path / "tasks", "sums")
    results = assay.simple_evaluate(adder(lambda a, b: True), tasks="sums", include_path=path)
    assert isinstance(results, dict) and json.loads(json.dumps(results))["results"]["sums"]["exact_match,none"] == 1.0
    assert len(repr(results)) < 600 and "sums, complete" in repr(results)
    assert results._repr_html_().count("<tr>") == 2  # type: ignore[attr-defined]


def test_objects_are_short_where_they_are_printed(runs: tuple[assay.Run, assay.Run]) -> None:
    from assay.statistics import estimate

    number = estimate([1, 0, 1, 1])
    assert (
        repr(number).startswith("0.75 (0.") and repr(number).endswith(", n 4)") and f"{number}" == str(number) == "0.75"
    )
    assert f"{number:.1f}" == "0.8" and float(number) == 0.75
    assert repr(runs[0]) == f"<Run {str(runs[0].path)!r}: scripted, sums, more, complete>"
    assert "first leads sums exact_match" in repr(assay.leaderboard(runs))
    path = str(runs[0].path.parent / "tasks")
    assert (
        repr(assay.TaskManager(include_path=path, include_defaults=False)) == "<TaskManager: 2 tasks, 0 groups, 0 tags>"
    )


TYPED = """
from typing import assert_type
from pathlib import Path

import assay

run = assay.run("embedded", tasks=["first_steps_sums"], limit=10)
assert_type(run, assay.Run)
assert_type(assay.Run.open("runs/first"), assay.Run)
comparison = run.compare("runs/second", metrics=["acc"])
assert_type(comparison, assay.Comparison)
assert_type(str(comparison.table), str)
assert_type(run.plot("time").save("out.svg"), Path)
assert_type(assay.plot([run, "runs/second"]), assay.Picture)
assert_type(run.report("report.html"), Path)
assert_type(run.rows("sums")[assay.ScoreKey("acc", "none")].estimate.value, float | None)
value: float = assay.simple_evaluate("embedded", tasks="first_steps_sums")["results"]["first_steps_sums"]["acc,none"]
assay.run("embedded", limt=10)  # type: ignore[call-arg]
run.plot("pie")  # type: ignore[arg-type]
"""


SEEDS_GROUPS = """
from assay import Aggregator, Group, GroupConfig, StandardGroup, Task


class GeometricMeanAggregator(Aggregator):
    def __init__(self, config: GroupConfig, k: int = 1):
        super().__init__(config)
        self.k = k

    def aggregate(self, group: Group[Task], task_results: dict[str, dict[str, float]]) -> dict[str, float]:
        product = 1.0
        for task in group.get_all_tasks():
            product *= task_results[task.task_name]["acc,none"]
        return {"acc,none": product}


class DomainGroup(StandardGroup[Task]):
    def compute_domain_score(self) -> float:
        return self.compute_metrics({"a": {"acc,none": 0.5}})["acc,none"]


group = DomainGroup(GroupConfig(group="g"))
group.metadata = {"domain": "arithmetic"}
group.aggregator = GeometricMeanAggregator(group.config)
"""
SEEDS_SCORERS = """
from typing import Any, assert_type

from assay import (
    GenerateTask, GenerationScorer, GenResult, Instance, LoglikelihoodScorer, MCResult, MetricConfig, MultipleChoiceTask,
    Scorer, TaskConfig,
)


class BeamSearchScorer(GenerationScorer):
    def _compute_metrics(self, gen_result: GenResult, metrics: list[MetricConfig]) -> dict[str, list[float]]:
        scores = super()._compute_metrics(gen_result, metrics)
        scores["n_unique"] = [float(len(set(gen_result.results)))]
        return scores


class Own(Scorer[GenResult]):
    def __init__(self, task_config: TaskConfig):
        super().__init__(task_config)

    def score_instances(self, instances: list[Instance], filter_name: str) -> GenResult:
        gen_result = GenResult.from_instances(instances, filter_name)
        gen_result.scores = {"own": [1.0 for _ in self.get_metrics(filter_name)]}
        return gen_result

    def get_metrics(self, filter_name: str) -> list[MetricConfig]:
        return []


class Chosen(LoglikelihoodScorer):
    def score_instances(self, instances: list[Instance], filter_name: str) -> MCResult:
        mc_result = super().score_instances(instances, filter_name)
        assert_type(mc_result, MCResult)
        return mc_result


class Loop(GenerateTask):
    def _create_result(self, instances: list[Instance], filter_name: str) -> GenResult:
        return GenResult.from_instances(instances, filter_name=filter_name)

    def _compute_metric(self, gen_result: GenResult, metric: MetricConfig) -> list[float]:
        return [float(generation == gen_result.target) for generation in gen_result.results]


class Choice(MultipleChoiceTask):
    def _create_result(self, instances: list[Instance], filter_name: str) -> MCResult:
        return MCResult.from_instances(instances, acc_mutual_info=True)

    def _compute_metric(self, mc_result: MCResult, metric: MetricConfig) -> Any:
        return metric.fn(mc_result) if metric.fn is not None else None


instance = Instance(doc={}, doc_id=0, target="x")
instance.resps = ["output1"]
instance.filtered_resps["none"] = "output1"
"""
SEEDS_OTHER_SCORERS = """
from collections import defaultdict
from typing import Any

from assay import (
    SCORER_REGISTRY, FilterConfig, GenerateTask, Instance, MetricConfig, Results, Scorer,
    ScorerFactory, TaskConfig,
)


class EnsembleScorer(Scorer):
    def __init__(self, scorers: list[Scorer], weights: list[float]):
        self.scorers = scorers
        self.weights = weights

    def score_instances(self, instances: list[Instance], filter_name: str) -> Any:
        return [s.score_instances(instances, filter_name) for s in self.scorers]


class CrossFilterScorer(Scorer):
    def score_instances(self, instances: list[Instance], filter_name: str) -> dict[str, float]:
        every = {name: [inst.filtered_resps[name] for inst in instances] for name in instances[0].filtered_resps.keys()}
        return {"filter_agreement": float(len(every))}

    def get_metrics(self, filter_name: str) -> list[MetricConfig]:
        return []


class ProcessScorer(Scorer):
    def score_instances(self, instances: list[Instance], filter_name: str) -> dict[str, Any]:
        result = Results.create(instances, filter_name)
        return {"n": len(result.results[filter_name])}


class MyTask(GenerateTask):
    def __init__(self, config: TaskConfig):
        super().__init__(config)
        self._scorer: Scorer = ScorerFactory.create_scorer(config)
        self._filters: list[FilterConfig] = config.get_filters()

    def process_instances(self, instances: list[Instance] | None = None) -> Any:
        results: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for doc_instances in self.sort_instances(instances or self._instances).values():
            scored = self._scorer.score_instances(doc_instances, "none")
            for metric, score in scored.scores.items():
                results[(metric, "none")].append(score)
        return results


SCORER_REGISTRY["my_custom"] = CrossFilterScorer
"""


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [TYPED, SEEDS_GROUPS, SEEDS_SCORERS, SEEDS_OTHER_SCORERS],
    ids=["the names of assay", "seed 000's classes", "classes of seeds 001 and 004", "seed 001's further classes"],
)
def test_code_of_users_is_type_checked(code: str, tmp_path: Path) -> None:
    """In mypy's strict mode an ignore that is not needed is an error, too: wrong names are refused, right ones pass."""
    if shutil.which("mypy", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("mypy is not installed")
    (tmp_path / "user.py").write_text(code)
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(root / ".mypy_cache/users"),
               "--config-file", "", "--ignore-missing-imports", "user.py"]  # fmt: skip
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_samples_of_a_task_are_made_once_and_only_when_they_are_read() -> None:
    made = []

    def make(task: str) -> list[str]:
        made.append(task)
        return [task]

    logs = SampleLogs({task: partial(make, task) for task in "abc"})
    assert (list(logs), list(logs.keys()), len(logs), "b" in logs, "d" in logs) == ([*"abc"], [*"abc"], 3, True, False)
    assert (logs.get("d"), made) == (None, [])
    assert logs["b"] is logs["b"] is logs.get("b") is logs.setdefault("b", [])
    assert (logs["b"], made) == (["b"], ["b"])
    with pytest.raises(KeyError):
        logs["d"]
    logs["c"] = []
    assert (logs.pop("c"), logs.pop("a"), [*logs], made) == ([], ["a"], ["b"], ["b", "a"])


@pytest.mark.parametrize(
    "read",
    [
        dict,
        copy.copy,
        copy.deepcopy,
        dict.copy,
        lambda logs: logs,
        lambda logs: logs | {},
        lambda logs: {} | logs,
        lambda logs: {**logs},
        lambda logs: dict(logs.items()),
        lambda logs: dict(zip(logs, logs.values(), strict=True)),
        lambda logs: dict([logs.popitem(), logs.popitem()]),
        lambda logs: json.loads(json.dumps(logs)),
        lambda logs: json.loads(json.dumps({"samples": logs}, indent=2))["samples"],
        lambda logs: pickle.loads(pickle.dumps(logs)),  # noqa: S301  # our own
        lambda logs: ast.literal_eval(repr(logs)),
    ],
)
def test_samples_are_the_same_however_their_dict_is_read(read: Callable[[SampleLogs], object]) -> None:
    def unread() -> SampleLogs:
        return SampleLogs({"a": partial(list, "xy"), "b": partial(list, "")})

    plain = {"a": ["x", "y"], "b": []}
    assert read(unread()) == plain
    assert not (read(unread()) != plain)  # noqa: SIM202  # the other operator
    assert read(unread()) != {"a": ["x"], "b": []}


def test_samples_of_a_run_are_made_when_they_are_read(tmp_path: Path) -> None:
    results = assay.simple_evaluate(
        adder(lambda a, b: a != 0), tasks=["sums"], include_path=tasks(tmp_path, "sums"), include_defaults=False
    )
    assert isinstance(dict.__getitem__(results["samples"], "sums"), partial)
    samples = json.loads(json.dumps(results["samples"]))["sums"]
    assert [sample["exact_match"] for sample in samples] == [0, 0, 0] + [1] * 9
    assert [sample["doc"]["q"] for sample in samples] == [f"{a} + {b} =" for a, b in SUMS]
