"""Seed 000's own aggregators, factory and links, as it writes them over assay's classes; and groups made in Python."""

from pathlib import Path
from typing import Any

import pytest

import assay
from assay import (
    AggMetricConfig,
    Aggregator,
    ConfigError,
    CustomAggregator,
    Group,
    GroupConfig,
    GroupManager,
    HarmonicMeanAggregator,
    MetricConfig,
    NoOpAggregator,
    PassAtKAggregator,
    StandardGroup,
    Task,
    TaskConfig,
    TaskManager,
)
from assay.groups.task_results import EstimatedFloat
from group_world import group_file, scored
from run_world import rows_of
from small_runs import ANYTHING, run


class SeedMean(Aggregator):
    """The body of the seed's MeanAggregator."""

    def aggregate(self, group: Any, task_results: Any) -> Any:
        if not self.agg_metric_configs:
            return {}  # No aggregation configured

        group_metrics = {}
        tasks = group.get_all_tasks()

        for agg_config in self.agg_metric_configs:
            metric_name = agg_config.metric
            weight_by_size = agg_config.weight_by_size
            filter_list = agg_config.filter_list

            # Collect metric values and sizes
            values = []
            weights = []

            for task in tasks:
                task_name = task.task_name
                if task_name not in task_results:
                    continue

                # Get metric with filter
                metric_key = f"{metric_name},{filter_list}"
                if metric_key in task_results[task_name]:
                    values.append(task_results[task_name][metric_key])

                    # Get sample size for weighting
                    if weight_by_size:
                        weights.append(task_results[task_name].get("samples", 1))
                    else:
                        weights.append(1)

            # Compute weighted mean
            if values:
                group_metrics[metric_key] = sum(v * w for v, w in zip(values, weights)) / sum(weights)  # noqa: B905

        return group_metrics


class SeedHarmonic(Aggregator):
    """The body of the seed's HarmonicMeanAggregator."""

    def aggregate(self, group: Any, task_results: Any) -> Any:
        group_metrics = {}
        tasks = group.get_all_tasks()

        for agg_config in self.agg_metric_configs:
            metric_name = agg_config.metric
            filter_list = agg_config.filter_list

            values = []
            for task in tasks:
                task_name = task.task_name
                metric_key = f"{metric_name},{filter_list}"

                if task_name in task_results and metric_key in task_results[task_name]:
                    values.append(task_results[task_name][metric_key])

            # Harmonic mean: n / sum(1/x_i)
            if values and all(v > 0 for v in values):
                group_metrics[metric_key] = len(values) / sum(1 / v for v in values)

        return group_metrics


def seed_factory(config: GroupConfig) -> Aggregator:
    """The body of the seed's create_aggregator."""
    if not config.aggregate_metric_list:
        return NoOpAggregator(config)  # No aggregation

    # Check first aggregation config to determine type
    first_agg: Any = config.aggregate_metric_list[0]
    agg_type = first_agg.aggregation

    if agg_type == "mean":
        return SeedMean(config)
    if agg_type == "harmonic_mean":
        return SeedHarmonic(config)
    if agg_type == "pass@k":
        k = first_agg.kwargs.get("k", 1)
        return PassAtKAggregator(config, k=k)
    if callable(agg_type):
        return CustomAggregator(config, agg_fn=agg_type)
    raise ValueError(f"Unknown aggregation type: {agg_type}")


def of_two(*entries: Any, **more: Any) -> StandardGroup[Task]:
    group: StandardGroup[Task] = StandardGroup(GroupConfig("g", aggregate_metric_list=list(entries), **more))
    for name in ("a", "b"):
        group.add_child(Task(TaskConfig(task=name)))
    return group


RESULTS = {"a": {"acc,none": 0.8, "samples": 100}, "b": {"acc,none": 0.6, "samples": 300}}
# by size (80 + 180) / 400, each once 1.4 / 2, harmonic 2 / (1/.8 + 1/.6) = 2 / (35/12)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, 0.65),
        ({"weight_by_size": True}, 0.65),
        ({"weight_by_size": False}, 0.7),
        ({"filter_list": "none"}, 0.65),
        ({"aggregation": "harmonic_mean"}, 24 / 35),
        ({"aggregation": "pass@k"}, 0.65),
        ({"aggregation": "pass@k", "kwargs": {"k": 1}}, 0.65),
    ],
)
def test_the_seeds_own_classes_and_assays_give_the_same_number(entry: dict[str, Any], expected: float) -> None:
    group = of_two(AggMetricConfig(metric="acc", **entry))
    assert group.compute_metrics(RESULTS) == {"acc,none": pytest.approx(expected, abs=1e-12)}
    group._aggregator = seed_factory(group.config)
    assert group.compute_metrics(RESULTS) == {"acc,none": pytest.approx(expected, abs=1e-12)}


def test_keys_that_are_not_given_are_read_as_the_seed_reads_them() -> None:
    entry = AggMetricConfig(metric="acc")
    assert (entry.filter_list, entry.weight_by_size, entry.kwargs, entry.aggregation) == ("none", True, {}, "mean")
    assert entry.weight_by_size is True
    assert AggMetricConfig("acc") == entry


def test_the_seeds_factory_takes_a_function_and_refuses_an_unknown_name() -> None:
    def best(group: Any, results: Any) -> dict[str, float]:
        return {"best,none": max(results[task.name]["acc,none"] for task in group.get_all_tasks())}

    group = of_two({"metric": "acc", "aggregation": best})
    assert group.compute_metrics(RESULTS) == {"best,none": 0.8}
    group._aggregator = seed_factory(group.config)
    assert group.compute_metrics(RESULTS) == {"best,none": 0.8}
    with pytest.raises(ValueError, match=r"no aggregator named 'hamonic_mean'.*did you mean 'harmonic_mean'"):
        of_two({"metric": "acc", "aggregation": "hamonic_mean"})


@pytest.mark.parametrize("filters", ["default", ["default"], "none", None])
def test_results_keyed_default_are_found(filters: Any) -> None:
    results = {name: {"acc,default": own["acc,none"], "samples": own["samples"]} for name, own in RESULTS.items()}
    group = of_two({"metric": "acc", "filter_list": filters})
    assert group.compute_metrics(results) == {"acc,default": pytest.approx(0.65, abs=1e-12)}
    assert of_two({"metric": "acc", "filter_list": "default"}).compute_metrics(RESULTS) == {
        "acc,none": pytest.approx(0.65, abs=1e-12)
    }


def test_a_harmonic_mean_with_a_zero_is_absent_as_in_the_seed(tmp_path: Path) -> None:
    results = {"a": {"acc,none": 0.5, "samples": 2}, "b": {"acc,none": 0.0, "samples": 2}}
    group = of_two({"metric": "acc", "aggregation": "harmonic_mean"}, {"metric": "acc", "name": "mean"})
    assert group.compute_metrics(results) == {"mean,none": 0.25}
    assert HarmonicMeanAggregator(group.config).aggregate(group, results) == {}
    assert SeedHarmonic(GroupConfig("g", aggregate_metric_list={"metric": "acc"})).aggregate(group, results) == {}
    scored(tmp_path, "a", acc=[1, 0])
    scored(tmp_path, "b", acc=[0, 0])
    group_file(tmp_path, "group: g\ntask: [a, b]\naggregate_metric_list: [{metric: acc, aggregation: harmonic_mean}]\n")
    row = rows_of(run(tmp_path, ANYTHING, "g"), "g")["acc,none"]
    assert (row["value"], row["reason"]) == (None, "a harmonic mean needs numbers above 0")


# --- groups made in Python ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entries",
    [
        [AggMetricConfig(metric="acc")],
        (AggMetricConfig(metric="acc"),),
        AggMetricConfig(metric="acc"),
        [{"metric": "acc"}],
        {"metric": "acc"},
    ],
)
def test_entries_may_be_mappings_and_one_alone_needs_no_list(entries: Any) -> None:
    group: StandardGroup[Task] = StandardGroup(GroupConfig(group="g", aggregate_metric_list=entries))
    for name in RESULTS:
        group.add_child(Task(TaskConfig(task=name)))
    assert group.compute_metrics(RESULTS) == {"acc,none": pytest.approx(0.65, abs=1e-12)}


WRONG = {
    "no metric": ({"aggregate_metric_list": [{"metrc": "acc"}]}, "unknown key 'metrc' — did you mean 'metric'"),
    "text": ({"aggregate_metric_list": ["acc"]}, "an entry must be a mapping, got 'acc' — write {'metric': 'acc'}"),
    "number": ({"aggregate_metric_list": 5}, "an entry must be a mapping, got 5"),
    "wrong type": (
        {"aggregate_metric_list": {"metric": "acc", "weight_by_size": "yes"}},
        "weight_by_size must be true or false",
    ),
    "metadata": ({"metadata": "1.0"}, r"metadata must be a mapping, got '1.0' — write \{'version': 1.0\}"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_configuration_is_refused_when_it_is_made(name: str) -> None:
    options, message = WRONG[name]
    with pytest.raises(ConfigError, match=message):
        GroupConfig(group="g", **options)
    with pytest.raises(ValueError, match="must be text"):
        GroupConfig(group=["g"])  # type: ignore[arg-type]


def test_an_aggregator_is_there_when_a_group_is_made(tmp_path: Path) -> None:
    assert isinstance(of_two({"metric": "acc"})._aggregator, assay.MeanAggregator)
    assert isinstance(StandardGroup(GroupConfig("g"))._aggregator, NoOpAggregator)
    scored(tmp_path, "a", acc=[1, 0])
    group_file(tmp_path, "group: g\ntask: [a]\naggregate_metric_list: [{metric: acc}]\n")
    loaded = TaskManager(include_path=tmp_path, include_defaults=False).load("g")["groups"]["g"]
    assert isinstance(loaded._aggregator, assay.MeanAggregator)


class Linked(Group[Task]):
    """The seed's StandardGroup.add_child, in a subclass of Group."""

    def add_child(self, child: Any, *, alias: str | None = None) -> None:
        self.children.append(child)
        if isinstance(child, Group):
            child.parent = self
        elif isinstance(child, Task):
            child._groups.append(self)


def test_a_parent_can_be_assigned() -> None:
    top, inner, task = Linked(GroupConfig("top")), Linked(GroupConfig("inner")), Task(TaskConfig(task="t"))
    inner.add_child(task)
    top.add_child(inner)
    assert (inner.parent, inner.depth(), top.depth()) == (top, 1, 0)
    assert (top.get_all_tasks(), task.groups) == ([task], [inner])
    other = Linked(GroupConfig("other"))
    inner.parent = other
    assert inner.parents == [other, top]
    inner.parent = None
    assert (inner.parents, inner.depth()) == ([], 0)


def test_a_class_beside_the_file_is_the_groups_class_when_it_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "kinds.py").write_text(
        "from assay import StandardGroup\n\nclass DomainGroup(StandardGroup):\n"
        "    def __init__(self, config, parent=None):\n        super().__init__(config, parent)\n"
        "        self.domain = config.metadata['domain']\n\n"
        "    def compute_domain_score(self):\n        return f'{self.domain}: {len(self.children)}'\n\n"
        "class Other:\n    pass\n\n\ndef worst(group, results):\n    return min(r['acc,none'] for r in results.values())\n"
    )
    scored(tmp_path, "a", acc=[1, 0])
    text = "group: g\ntask: [a]\ntype: !function kinds.DomainGroup\nmetadata: {domain: math}\n"
    group_file(tmp_path, text + "aggregate_metric_list: [{metric: acc, aggregation: !function kinds.worst}]\n")
    manager = TaskManager(include_path=tmp_path, include_defaults=False)
    group: Any = manager.load("g")["groups"]["g"]
    assert group.compute_domain_score() == "math: 1"
    assert group.compute_metrics({"a": {"acc,none": 0.25}}) == {"acc,none": 0.25}
    assert rows_of(run(tmp_path, ANYTHING, "g"), "g")["acc,none"]["value"] == 0.5
    group_file(tmp_path, text.replace("DomainGroup", "Other"))
    with pytest.raises(ConfigError, match=r"group_file.yaml:3:7: Other is not a kind of group.*StandardGroup"):
        TaskManager(include_path=tmp_path, include_defaults=False).load("g")


def test_the_best_members_are_named_in_the_results(tmp_path: Path) -> None:
    for name, values in {"a": [1, 1], "b": [0, 0], "c": [1, 0]}.items():
        scored(tmp_path, name, acc=values)
    group_file(
        tmp_path, "group: g\ntask: [a, b, c]\ngroup_filter: {top_k: 2}\naggregate_metric_list: [{metric: acc}]\n"
    )
    row = rows_of(run(tmp_path, ANYTHING, "g"), "g")["acc,none"]
    assert (row["value"], row["chosen"]) == (0.75, ["a", "c"])
    assert "(of a, c)" in row["reason"]


def test_results_of_a_run_count_by_their_length_and_have_their_errors() -> None:
    """lm-eval's rows: .8 of 100 and .6 of 300. Shares 1/4 and 3/4, so the error is √((.04/4)² + (.02·3/4)²)."""
    results: Any = {
        "a": {"alias": "A", "name": "a", "acc,none": 0.8, "acc_stderr,none": 0.04, "sample_len": 100},
        "b": {"alias": "B", "name": "b", "acc,none": 0.6, "acc_stderr,none": 0.02, "sample_len": 300},
    }
    number = of_two({"metric": "acc"}).compute_metrics(results)["acc,none"]
    assert number == pytest.approx(0.65, abs=1e-12)
    assert isinstance(number, EstimatedFloat)
    assert number.estimate.stderr == pytest.approx((0.01**2 + 0.015**2) ** 0.5, abs=1e-12)
    assert number.estimate.n == 400
    group = of_two({"metric": "acc"})
    group._aggregator = SeedMean(group.config)
    assert group.compute_metrics(results) == {"acc,none": pytest.approx(0.65, abs=1e-12)}, "a user's own counts so, too"
    results["b"]["acc_stderr,none"] = "N/A"
    number = of_two({"metric": "acc"}).compute_metrics(results)["acc,none"]
    assert isinstance(number, EstimatedFloat)
    assert (number.estimate.stderr, number.estimate.reason) == (None, "no standard error is known of b")


def test_a_runs_own_results_give_its_groups_numbers_again(tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[1, 0, 1, 1])
    scored(tmp_path, "b", acc=[0, 1])
    group_file(tmp_path, "group: g\ntask: [a, b]\naggregate_metric_list: [{metric: acc}]\n")
    results = run(tmp_path, ANYTHING, "g")
    manager: GroupManager[Task] = GroupManager()
    for name in ("a", "b"):
        manager.register_task(Task(TaskConfig(task=name)))
    manager.build_hierarchy({"g": {"task": ["a", "b"], "aggregate_metric_list": {"metric": "acc"}}})
    number = manager.compute_all_group_metrics(results["results"])["g"]["acc,none"]
    row = rows_of(results, "g")["acc,none"]
    assert number == pytest.approx(4 / 6, abs=1e-12)
    assert isinstance(number, EstimatedFloat)
    assert (float(number), number.estimate.stderr) == (row["value"], pytest.approx(row["stderr"], abs=1e-12))


def test_tasks_by_name_are_evaluated(tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[1, 0])
    loaded = TaskManager(include_path=tmp_path, include_defaults=False).load("a")
    results = assay.evaluate(ANYTHING, {"mine": loaded["tasks"]["a"]})
    assert {name: row["acc,none"] for name, row in results["results"].items()} == {"mine": 0.5}
    assert list(assay.evaluate(ANYTHING, loaded)["results"]) == ["a"]
    for wrong in ({}, {"a": "a"}, {"tasks": {}}):
        with pytest.raises(
            ConfigError, match=r"task_dict: .* — give what TaskManager.load returned, or \{'name': task\}"
        ):
            assay.evaluate(ANYTHING, wrong)


def test_a_metric_is_found_under_its_key() -> None:
    assert MetricConfig(name="acc").metric == "acc"


def test_help_names_the_keys_of_groups_and_their_entries() -> None:
    for record, keys in ((GroupConfig, ("group_filter", "metadata")), (AggMetricConfig, ("weight_by_size", "levels"))):
        assert all(f"    {key}: " in str(record.__doc__) for key in keys)
    assert "parents: " in str(Group.__doc__)
    for each in (Group.get_direct_children, GroupManager.register_group, TaskManager.all_groups.fget):
        assert each is not None
        assert each.__doc__


def test_an_unknown_member_is_not_taken_for_the_group_itself() -> None:
    manager: GroupManager[Task] = GroupManager()
    manager.register_task(Task(TaskConfig(task="t")))
    with pytest.raises(ConfigError, match=r"no task or group named 'gg' — use one of: t$"):
        manager.build_hierarchy({"g": {"task": ["gg"]}})
