"""Every YAML and Python example of seed 000: each loads, and gives the numbers worked out by hand beside it."""

import math
from collections.abc import Mapping
from itertools import chain
from math import comb, sqrt
from pathlib import Path
from statistics import mean, variance
from typing import Any

import pytest
import yaml

from assay import (
    Aggregator,
    AggregatorFactory,
    ConfigError,
    CustomAggregator,
    Group,
    GroupConfig,
    GroupManager,
    HarmonicMeanAggregator,
    MeanAggregator,
    NoOpAggregator,
    PassAtKAggregator,
    StandardGroup,
    Task,
    TaskConfig,
    TaskManager,
)  # fmt: skip
from assay.report.table import results_table
from group_world import UNSURE, Plain, attempts, by_filter, computed, config_of, group_file, scored
from run_world import rows_of
from seed_blocks import copied
from small_runs import ANYTHING, noting, run

# --- seed 000: the YAML -------------------------------------------------------------------------------------------

MMLU_PRO = copied("000/19.yaml")
CODE = copied("000/20.yaml")
REASONING = copied("000/21.yaml")
EXTRACTION = copied("000/22.yaml")


def built(*texts: str, tasks: list[str]) -> "GroupManager[Task]":
    """A hierarchy from YAML, with these tasks."""
    manager: GroupManager[Task] = GroupManager()
    for name in tasks:
        manager.register_task(Task(TaskConfig(task=name)))
    written = [yaml.safe_load(text) for text in texts]
    manager.build_hierarchy({each["group"]: config_of(each) for each in written})
    return manager


def test_the_basic_group_by_hand() -> None:
    names = ["mmlu_pro_biology", "mmlu_pro_chemistry", "mmlu_pro_physics"]
    manager = built(MMLU_PRO, tasks=names)
    values = zip(names, (0.9, 0.6, 0.3), (100, 50, 50), strict=True)
    results: Plain = {name: {"acc,none": value, "samples": n} for name, value, n in values}
    # (90 + 30 + 15) of 200
    assert manager.compute_all_group_metrics(results) == {"mmlu_pro": {"acc,none": pytest.approx(0.675, abs=1e-15)}}
    group = manager.groups["mmlu_pro"]
    assert (group.alias, group.version, group.metadata["domain"]) == ("MMLU Professional", "2.0", "knowledge")


def test_the_basic_group_as_a_run(tmp_path: Path) -> None:
    scored(tmp_path, "mmlu_pro_biology", acc=[1, 1, 1, 0])
    scored(tmp_path, "mmlu_pro_chemistry", acc=[1, 0])
    scored(tmp_path, "mmlu_pro_physics", acc=[0, 0, 1, 0])
    group_file(tmp_path, MMLU_PRO)
    results = run(tmp_path, ANYTHING, "mmlu_pro")
    row = results["groups"]["mmlu_pro"]
    assert (row["alias"], row["acc,none"]) == ("MMLU Professional", pytest.approx(0.5, abs=1e-15))
    # Each variance of a mean is s²/n: 1/16, 1/4, 1/16; they count by the square of the shares 4/10, 2/10, 4/10.
    expected = sqrt(0.16 / 16 + 0.04 / 4 + 0.16 / 16)
    assert row["acc_stderr,none"] == pytest.approx(expected, abs=1e-12)
    result_row = rows_of(results, "mmlu_pro")["acc,none"]
    assert (result_row["value"], result_row["n"], result_row["tasks"]) == (pytest.approx(0.5), 10, 3)
    assert result_row["interval"][0] < 0.5 < result_row["interval"][1]
    assert results["versions"]["mmlu_pro"] == "2.0"
    assert results["assay"]["groups"]["mmlu_pro"]["metadata"]["domain"] == "knowledge"


def test_code_generation_from_reduced_numbers() -> None:
    """Members that report pass@k themselves are averaged, each with its own size; rates of compilation without."""
    results: Plain = {
        "humaneval": {"pass@1,none": 0.5, "pass@10,none": 0.8, "compilation_rate,none": 0.9, "samples": 164},
        "mbpp": {"pass@1,none": 0.25, "pass@10,none": 0.5, "compilation_rate,none": 0.6, "samples": 36},
        "apps": {"pass@1,none": 0.0, "pass@10,none": 0.2, "compilation_rate,none": 0.3, "samples": 200},
    }
    manager = built(CODE, tasks=list(results))
    [result] = manager.compute_all_group_metrics(results).values()
    expected = {"pass@1,none": 91 / 400, "pass@10,none": (131.2 + 18 + 40) / 400, "compilation_rate,none": 0.6}
    assert result == pytest.approx(expected, abs=1e-15)


PROBLEMS = {"humaneval": ([0, 1, 10], 10), "mbpp": ([5, 2], 10), "apps": ([4, 0, 20], 20)}


def pass_at(k: int) -> list[list[float]]:
    """By task and problem: 1 - C(n-c, k) / C(n, k)."""
    return [[1 - comb(n - c, k) / comb(n, k) for c in right] for right, n in PROBLEMS.values()]


CODE_METRICS = "{metric: exact_match}, {metric: !function code.compilation_rate, aggregation: mean}"


@pytest.mark.parametrize("more", ["", "of: exact_match"])
def test_code_generation_as_a_run_with_repeats(more: str, tmp_path: Path) -> None:
    for name, (right, repeats) in PROBLEMS.items():
        attempts(tmp_path, name, right, repeats, CODE_METRICS)
    group_file(tmp_path, CODE.replace("kwargs:\n", f"kwargs:\n      {more}\n"))
    results = run(tmp_path, UNSURE, "code_generation")
    rows = rows_of(results, "code_generation")
    assert results["higher_is_better"]["code_generation"]["pass@10"] is True, "as the metric whose answers are counted"
    for k in (1, 10):
        by_task = pass_at(k)
        result = rows[f"pass@{k},none"]
        assert result["n"] == 8, "problems, not answers"
        assert result["value"] == pytest.approx(mean(chain(*by_task)), abs=1e-12)
        spread = sqrt(sum(len(scores) * variance(scores) for scores in by_task)) / 8
        assert result["stderr"] == pytest.approx(spread, abs=1e-12)
    assert rows["compilation_rate,none"]["value"] == pytest.approx((11 / 30 + 7 / 20 + 24 / 60) / 3, abs=1e-12)


def test_one_answer_to_each_problem_is_enough_for_pass_at_1(tmp_path: Path) -> None:
    attempts(tmp_path, "humaneval", [1, 0, 1, 1], 1)
    group_file(tmp_path, "group: g\ntask: humaneval\naggregate_metric_list: [{metric: pass@1, aggregation: pass@k}]\n")
    assert rows_of(run(tmp_path, UNSURE, "g"), "g")["pass@1,none"]["value"] == 0.75


NESTED = {"math_reasoning": {"gsm8k": 0.5, "math_qa": 0.25}, "logical_reasoning": {"logiqa": 0.5},
          "commonsense_reasoning": {"piqa": 1.0}}  # fmt: skip


def test_nested_groups_by_hand() -> None:
    leaves = {task: value for members in NESTED.values() for task, value in members.items()}
    texts = [f"{{group: {name}, task: {list(members)}}}" for name, members in NESTED.items()]
    manager = built(REASONING, *texts, tasks=list(leaves))
    result = manager.compute_all_group_metrics(
        {name: {"acc,none": value, "samples": 4} for name, value in leaves.items()}
    )
    assert result["reasoning"] == {"acc,none": pytest.approx(4 / (2 + 4 + 2 + 1), abs=1e-15)}
    assert result["math_reasoning"] == {}
    assert [root.name for root in manager.root_groups] == ["reasoning"]


def nest(folder: Path, entry: str = "") -> None:
    for name, members in NESTED.items():
        for task, value in members.items():
            scored(folder, task, acc=[1] * int(32 * value) + [0] * int(32 - 32 * value))
        own = "aggregate_metric_list: [{metric: acc}]\n" if entry else ""
        group_file(folder, f"group: {name}\ntask: {list(members)}\n{own}", name)
    group_file(folder, REASONING.rstrip() + entry + "\n")


def test_nested_groups_as_a_run_over_tasks(tmp_path: Path) -> None:
    nest(tmp_path)
    results = run(tmp_path, ANYTHING, "reasoning")
    assert list(results["groups"]) == ["reasoning"], "groups without aggregations have no row there"
    row = rows_of(results, "reasoning")["acc,none"]
    h = 4 / 9
    assert row["value"] == pytest.approx(h, abs=1e-12)
    # The derivative by a member is h²/(4x²): s²/n is p(1-p)/31, and 0 where all are right.
    slopes = {x: h * h / (4 * x * x) for x in (0.5, 0.25, 1.0)}
    expected = sqrt((2 * slopes[0.5] ** 2 / 4 + slopes[0.25] ** 2 * 3 / 16) / 31)
    assert row["stderr"] == pytest.approx(expected, abs=1e-12)


def test_nested_groups_as_a_run_over_groups(tmp_path: Path) -> None:
    nest(tmp_path, "\n    levels: children")
    row = rows_of(run(tmp_path, ANYTHING, "reasoning"), "reasoning")["acc,none"]
    assert row["value"] == pytest.approx(3 / (1 / 0.375 + 2 + 1), abs=1e-12)


FILTERED = {"ner": ((0.5, 1.0), (1.0, 1.0)), "relation_extraction": ((0.25, 0.25), (0.5, 0.5)),
            "event_extraction": ((1.0, 1.0), (0.25, 0.75))}  # fmt: skip


def test_several_filters_give_a_row_each(tmp_path: Path) -> None:
    for name, (strict, lenient) in FILTERED.items():
        by_filter(tmp_path, name, strict=strict, lenient=lenient)
    group_file(tmp_path, EXTRACTION)
    row = run(tmp_path, ANYTHING, "extraction_tasks")["groups"]["extraction_tasks"]
    assert row["f1,strict"] == pytest.approx(3 / (1 / 0.75 + 4 + 1), abs=1e-12)
    assert row["f1,lenient"] == pytest.approx(3 / (1 + 2 + 2), abs=1e-12)


def test_filters_of_different_members_may_differ(tmp_path: Path) -> None:
    """Pain point 7 of the seed: ner .75 strict, the others .5 lenient, all of two documents."""
    for name, (strict, lenient) in FILTERED.items():
        by_filter(tmp_path, name, strict=strict, lenient=lenient)
    text = EXTRACTION.replace("[strict, lenient]", '{ner: strict, "*": lenient}')
    group_file(tmp_path, text.replace("harmonic_mean", "mean"))
    [row] = rows_of(run(tmp_path, ANYTHING, "extraction_tasks"), "extraction_tasks").values()
    assert row["value"] == pytest.approx((0.75 + 0.5 + 0.5) / 3, abs=1e-12)


def test_each_entry_has_a_separate_aggregator() -> None:
    """The seed's "Flexible Aggregation": not that of the first entry for all."""
    f1 = {"metric": "f1", "aggregation": "harmonic_mean", "weight_by_size": False}
    first = {"metric": "pass@1", "aggregation": "pass@k", "kwargs": {"k": 1}}
    results: Plain = {"a": {"f1,none": 0.5, "pass@1,none": 0.5, "samples": 3},
                      "b": {"f1,none": 1.0, "pass@1,none": 1.0, "samples": 1}}  # fmt: skip
    assert computed(results, f1, first) == pytest.approx({"f1,none": 2 / 3, "pass@1,none": 0.625}, abs=1e-15)


# --- seed 000: the Python -----------------------------------------------------------------------------------------


def test_the_factory_makes_what_the_seed_says() -> None:
    def factory(**entry: object) -> Aggregator:
        return AggregatorFactory.create_aggregator(config_of({"aggregate_metric_list": [{"metric": "m", **entry}]}))

    assert type(AggregatorFactory.create_aggregator(GroupConfig(group="g"))) is NoOpAggregator
    assert type(factory(aggregation="mean")) is MeanAggregator
    assert type(factory(aggregation="harmonic_mean")) is HarmonicMeanAggregator
    built = factory(aggregation="pass@k", kwargs={"k": 7})
    assert isinstance(built, PassAtKAggregator)
    assert built.k == 7
    own = factory(aggregation=constant)
    assert isinstance(own, CustomAggregator)
    assert (own.agg_fn, own.kwargs) == (constant, {})
    assert isinstance(factory(aggregation=of_values), CustomAggregator)
    with pytest.raises(ConfigError, match=r"no aggregator named 'hamonic_mean'.*did you mean 'harmonic_mean'"):
        factory(aggregation="hamonic_mean")


def constant(group: Group[Any], results: Mapping[str, Mapping[str, float]]) -> float:
    return 7.0


def of_values(values: list[float], sizes: list[float], weight_by_size: bool) -> float:
    return max(values) - min(values)


def test_one_function_for_several_entries_gives_each_its_number() -> None:
    """Of functions of the group, one call serves all; functions of values are called with those of each entry."""
    entries = [{"metric": "acc", "aggregation": constant}, {"metric": "f1", "aggregation": constant}]
    spreads = [{"metric": "acc", "aggregation": of_values}, {"metric": "f1", "aggregation": of_values}]
    results: Plain = {"a": {"acc,none": 0.25, "f1,none": 1.0}, "b": {"acc,none": 0.75, "f1,none": 0.0}}
    assert computed(results, *entries) == {"acc,none": 7.0, "f1,none": 7.0}
    assert computed(results, *spreads) == {"acc,none": 0.5, "f1,none": 1.0}


def test_two_entries_of_one_row_are_refused_in_python_as_in_yaml() -> None:
    same = [{"metric": "acc"}, {"metric": "acc", "weight_by_size": False}]
    for entries in (same, [same[0], {"metric": "f1", "name": "acc", "aggregation": "median"}]):
        config = GroupConfig("g", aggregate_metric_list=entries)  # type: ignore[arg-type]  # mappings are read
        with pytest.raises(ConfigError, match=r"group 'g', aggregate_metric_list\[1\]: two entries make the row 'acc'"):
            StandardGroup(config)
        with pytest.raises(ConfigError, match="two entries make the row 'acc'"):
            AggregatorFactory.create_aggregator(config)
    named = GroupConfig("g", aggregate_metric_list=[same[0], {**same[1], "name": "macro"}])  # type: ignore[arg-type]
    assert len(StandardGroup(named).aggregator.agg_metric_configs) == 2


def test_aggregators_are_made_by_hand_as_in_the_seed() -> None:
    config = config_of({"aggregate_metric_list": [{"metric": "pass@2"}]})
    group: StandardGroup[Task] = StandardGroup(config)
    group.add_child(Task(TaskConfig(task="t")))
    assert PassAtKAggregator(config, k=2).aggregate(group, {"t": {"pass@2,none": 0.5}}) == {"pass@2,none": 0.5}
    assert NoOpAggregator(config).aggregate(group, {}) == {}
    best = CustomAggregator(config, agg_fn=lambda group, results: {"best,none": max(results["t"].values())})
    assert best.aggregate(group, {"t": {"a,none": 0.1, "b,none": 0.7}}) == {"best,none": 0.7}


def test_a_user_defined_aggregator_replaces_the_groups() -> None:
    class GeometricMeanAggregator(Aggregator):
        def aggregate(self, group: Group[Any], results: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
            values = [results[task.task_name]["acc,none"] for task in group.get_all_tasks()]
            return {"acc,none": math.prod(values) ** (1 / len(values))}

    manager = built("{group: g, task: [a, b, c]}", tasks=["a", "b", "c"])
    group = manager.groups["g"]
    group.aggregator = GeometricMeanAggregator(group.config)
    results: Plain = {"a": {"acc,none": 0.2}, "b": {"acc,none": 0.4}, "c": {"acc,none": 0.8}}
    assert manager.compute_all_group_metrics(results) == {"g": {"acc,none": pytest.approx(0.4, abs=1e-15)}}


class DomainGroup(StandardGroup[Task]):
    """Group for tasks in same domain."""

    def compute_domain_score(self, results: Plain) -> float:
        return max(results[task.name]["acc,none"] for task in self.get_all_tasks())


def test_a_user_defined_kind_of_group_is_chosen_by_name(tmp_path: Path) -> None:
    scored(tmp_path, "gsm8k", acc=[1, 0])
    group_file(tmp_path, "group: math\ntype: DomainGroup\ntask: [gsm8k]\nmetadata: {domain: arithmetic}\n")
    [group] = TaskManager(include_path=tmp_path, include_defaults=False).load("math")["groups"].values()
    assert isinstance(group, DomainGroup)
    assert group.compute_domain_score({"gsm8k": {"acc,none": 0.5}}) == 0.5
    group_file(tmp_path, "group: math\ntype: DomianGroup\ntask: [gsm8k]\n")
    with pytest.raises(ConfigError, match=r"group_file.yaml:2:7.*no kind of group named 'DomianGroup'"):
        TaskManager(include_path=tmp_path, include_defaults=False).load("math")


def test_a_user_defined_kind_of_group_is_built_by_the_manager_too() -> None:
    manager = built("{group: math, type: DomainGroup, task: [gsm8k]}", tasks=["gsm8k"])
    assert isinstance(manager.groups["math"], DomainGroup)


def test_a_group_may_compute_its_own_numbers_by_a_class_beside_its_file(tmp_path: Path) -> None:
    scored(tmp_path, "gsm8k", acc=[1, 0])
    (tmp_path / "kinds.py").write_text(
        "from assay import StandardGroup\nclass Domain(StandardGroup):\n"
        "    def compute_metrics(self, task_results):\n"
        "        return {'domain_score,none': 10 * task_results['gsm8k']['acc,none']}\n"
    )
    group_file(tmp_path, "group: math\ntype: !function kinds.Domain\ntask: [gsm8k]\n")
    assert rows_of(run(tmp_path, ANYTHING, "math"), "math")["domain_score,none"]["value"] == 5.0


def test_a_task_in_several_groups_is_evaluated_once_and_knows_them_all(tmp_path: Path) -> None:
    scored(tmp_path, "gsm8k", acc=[1, 0, 1, 1])
    scored(tmp_path, "arc", acc=[0, 0])
    entry = "aggregate_metric_list: [{metric: acc}]\n"
    group_file(tmp_path, f"group: math\ntask: [gsm8k]\n{entry}", "math")
    group_file(tmp_path, f"group: hard_tasks\ntask: [gsm8k, arc]\n{entry}", "hard")
    asked: list[str] = []
    results = run(tmp_path, noting(asked), ["math", "hard_tasks"])
    assert len(asked) == 6
    assert {name: row["acc,none"] for name, row in results["groups"].items()} == {"math": 0.75, "hard_tasks": 0.5}
    assert str(results_table(results.results)).count("- gsm8k ") == 2, "shown under each"
    loaded = TaskManager(include_path=tmp_path, include_defaults=False).load(["math", "hard_tasks"])
    assert sorted(group.name for group in loaded["tasks"]["gsm8k"].groups) == ["hard_tasks", "math"]


def test_names_are_printed_as_the_hierarchy_is_walked(capsys: pytest.CaptureFixture[str]) -> None:
    manager = built("{group: top, task: [inner, b]}", "{group: inner, task: [a, b]}", tasks=["a", "b"])
    group = manager.groups["top"]
    group.metadata = {"description": "Math word problems", "difficulty": "medium", "citation": "..."}
    group.traverse(lambda node: print(node.name))  # noqa: T201  # as the seed does
    assert capsys.readouterr().out.split() == ["top", "inner", "a", "b"]
    assert group.metadata["citation"] == "..."
